"""Saving a figure with the data behind it, and showing exactly what was saved."""

import csv
import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from ntpnb_book import output
from ntpnb_book.layout import DPI, NO_ENGINE, settle_layout
from ntpnb_book.stacking import is_sketch, letter_panels, stack

# Nothing in the files may depend on the time or on a random number. Matplotlib takes the layout
# engine away as it saves; what it puts back is the style's, with which later files are drawn twice.
_OUTPUT: dict[Any, Any] = NO_ENGINE | {
    "savefig.facecolor": "auto",
    "savefig.bbox": None,
    "svg.fonttype": "path",
    "svg.hashsalt": "ntpnb",
    "pdf.fonttype": 3,  # the letters that occur; for type 42 this takes three times as long
    "image.composite_image": True,
}
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

# What nobody sees in an SVG is half of it.
_UNSEEN = (
    (r"<!--.*?-->", ""),
    (r'<g id="[^"]*"', "<g"),  # groups are named, but nothing refers to them
    (r"([1-9]\d*\.\d\d)\d+", r"\1"),  # beyond a hundredth of a point
    (r"\s+", " "),
    (r"> <", "><"),
)

DRAWING = "image/svg+xml"
"""MIME type under which a notebook holds a figure."""

HEAVY = 300_000
"""Bytes of a drawing from which on its curves and points become one picture in it: a page should
load on a telephone."""


def _columns(data: Any, prefix: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Flatten nested mappings and lists of mappings into named arrays."""
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = dict(enumerate(data))
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _columns(value, f"{prefix}.{key}" if prefix else str(key))
        return
    array = np.asarray(data)
    if array.dtype.kind not in "biufU" or array.ndim > 2:
        raise ValueError(
            f"data {prefix!r}: numbers or texts in at most two dimensions are needed, "
            f"found {array.dtype} of shape {array.shape}"
        )
    yield prefix, array


def _csv(data: Mapping[str, Any]) -> bytes:
    """Write arrays as one tidy table, every value at full precision."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("array", "i", "j", "value"))
    for name, array in _columns(data):
        for index in np.ndindex(array.shape):
            absent = [""] * (2 - array.ndim)
            table.writerow([name, *index, *absent, array[index].item()])
    return text.getvalue().encode()


def sketch(data: Mapping[str, Any]) -> dict[str, list[float]]:
    """Describe a figure's data by so few numbers that a notebook can hold them.

    Another machine, whose last digits differ, tells by them whether its data are the same.

    Parameters
    ----------
    data : mapping
        What `save` is to write beside the figure.

    Returns
    -------
    dict
        By an array's name: how many finite numbers or texts it has and, of its numbers, the
        smallest, the largest, the mean, and the mean with weights that grow from 0 to 1 along it,
        which an exchange of entries changes. Six digits each.

    Examples
    --------
    >>> from ntpnb_book.saving import sketch
    >>> sketch({"x": [1.0, 2.0, 4.0], "name": ["a", "b"]})
    {'x': [3, 1.0, 4.0, 2.33333, 1.66667], 'name': [2]}
    """
    described: dict[str, list[float]] = {}
    for name, array in _columns(data):
        if array.dtype.kind == "U":
            described[name] = [array.size]
            continue
        numbers = array[np.isfinite(array)].astype(float)
        described[name] = [numbers.size]
        if numbers.size:
            rising = np.linspace(0, 1, numbers.size)
            found = numbers.min(), numbers.max(), numbers.mean(), (rising * numbers).mean()
            described[name] += [float(f"{number:.6g}") for number in found]
    return described


def curves(fig: Figure, data: Mapping[str, Any]) -> tuple[int, int]:
    """Count a figure's curves, and those of them whose heights are not all in the saved data.

    A curve is a line through five or more different heights. Bars, points and images are not
    looked at.

    Parameters
    ----------
    fig : matplotlib Figure
        A figure.
    data : mapping
        What `save` is to write beside it.

    Returns
    -------
    drawn, elsewhere : int
        A curve drawn to guide the eye, or from transformed numbers, is elsewhere as well.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.saving import curves
    >>> fig, ax = figures.plt.subplots()
    >>> lines = ax.plot([1, 2, 3, 4, 5]), ax.plot([1, 2, 3, 4, 6])
    >>> curves(fig, {"x": [1, 2, 3, 4, 5]})
    (2, 1)
    >>> figures.plt.close(fig)
    """
    saved: set[str] = set()
    for _, array in _columns(data):
        if array.dtype.kind != "U":
            saved.update(f"{value:.10g}" for value in array.ravel().astype(float))
    drawn = elsewhere = 0
    for axes in fig.axes:
        for line in axes.lines:
            try:
                heights = np.asarray(line.get_ydata(orig=True), dtype=float).ravel()
            except (TypeError, ValueError):  # names or dates
                continue
            different = {f"{value:.10g}" for value in heights[np.isfinite(heights)]}
            if len(different) >= 5:
                drawn += 1
                elsewhere += not different <= saved
    return drawn, elsewhere


def unnamed(fig: Figure) -> list[str]:
    """List the axes of a figure that do not say what they measure.

    A vertical axis is named by its label or by the panel's title, which stands above it at the
    left; a horizontal one by its label. Axes that leave their numbers to a neighbour, have words
    in place of numbers, or belong to a sketch without ticks need no name.

    Parameters
    ----------
    fig : matplotlib Figure

    Returns
    -------
    list of str
        For example ``["x of panel 2"]``; panels count from 1.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.saving import unnamed
    >>> fig, (left, right) = figures.plt.subplots(1, 2)
    >>> lines = left.plot([1, 2]), right.plot([3, 4])
    >>> texts = left.set(title="loss", xlabel="step"), right.set(ylabel="angle")
    >>> unnamed(fig)
    ['x of panel 2']
    >>> figures.plt.close(fig)
    """
    fig.draw_without_rendering()
    return _unnamed(fig)


def _unnamed(fig: Figure) -> list[str]:
    """Do what `unnamed` does, of a figure that was drawn as it is."""
    found = []
    for number, ax in enumerate(fig.axes, start=1):
        if is_sketch(ax):
            continue
        titles = [ax.get_title(loc=place) for place in ("left", "center", "right")]
        names = {"x": [ax.get_xlabel()], "y": [ax.get_ylabel(), *titles]}
        for which, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
            labels = [one.get_text() for one in axis.get_ticklabels() if one.get_visible()]
            counts = any(re.search(r"\d", text) for text in labels)
            figure_wide = {"x": fig.get_supxlabel(), "y": fig.get_supylabel()}[which]
            if axis.get_visible() and counts and not any([*names[which], figure_wide]):
                found.append(f"{which} of panel {number}")
    return found


def render(fig: Figure, suffix: str) -> bytes:
    """Return a figure as a file of one kind (``png``, ``svg``, ``pdf``), the same on every run."""
    buffer = io.BytesIO()
    with mpl.rc_context(_OUTPUT):
        fig.savefig(buffer, format=suffix, dpi=DPI, metadata=_METADATA[suffix])
    content = buffer.getvalue()
    if suffix == "svg":
        text = content.decode()
        for unseen, instead in _UNSEEN:
            text = re.sub(unseen, instead, text)
        content = text.encode()
    return content


def draw(fig: Figure) -> str:
    """Return a figure as an SVG, its curves and points as one picture where they are too many."""
    svg = render(fig, "svg")
    if len(svg) > HEAVY:
        for ax in fig.axes:
            for artist in (*ax.lines, *ax.collections, *ax.patches):
                artist.set_rasterized(True)
        svg = render(fig, "svg")
    return svg.decode()


def folder() -> Path:
    """Where figures are saved: in a checkout its `figures`, elsewhere one in the working directory.

    The environment variable ``NTPNB_FIGURES`` names another folder.
    """
    if "NTPNB_FIGURES" in os.environ:
        return Path(os.environ["NTPNB_FIGURES"])
    return output.ROOT / "figures" if output.is_checkout(output.ROOT) else Path("figures")


def _formats() -> list[str]:
    """Which kinds of files the environment asks for."""
    asked = os.environ.get("NTPNB_FORMATS", "").split()
    for suffix in asked:
        if suffix not in _METADATA:
            known = ", ".join(sorted(_METADATA))
            raise ValueError(f"NTPNB_FORMATS: some of {known} are needed, found {suffix!r}")
    return asked


def drawing_files(name: str, shown: str, drawings: Mapping[str, str]) -> dict[str, str]:
    """Name the files of a figure's drawings.

    Parameters
    ----------
    name : str
        The figure's.
    shown : str
        The drawing that the notebook shows.
    drawings : mapping of str to str
        The others of its page, ``narrow`` or ``frames``, as the output's metadata hold them.

    Examples
    --------
    >>> from ntpnb_book.saving import drawing_files
    >>> drawing_files("toy", "<svg/>", {"narrow": "<svg></svg>"})
    {'toy.svg': '<svg/>', 'toy_narrow.svg': '<svg></svg>'}
    """
    others = {f"{name}_{kind}.svg": svg for kind, svg in drawings.items()}
    return {f"{name}.svg": shown} | others


def save(
    fig: Figure,
    name: str,
    data: Mapping[str, Any],
    seed: int | list[int] | None,
    *,
    frames: Mapping[str, Any] | None = None,
    strip: str = "",
    columns: int = 1,
) -> None:
    """Save a figure with the data behind it, show it in the notebook and close it.

    Writes ``figures/NAME.svg`` and ``.csv``, with the same bytes on every run, and the kinds of
    files besides that the environment variable ``NTPNB_FORMATS`` lists (``"png pdf"``). In a
    checkout of the book ``figures`` is the one beside the package, elsewhere it is in the working
    directory; ``NTPNB_FIGURES`` names another folder. The notebook shows the very SVG that was
    saved; the output's metadata holds the other drawings of the page and records seed, hash and
    `sketch` of the data, how many `curves` there are and how many of them the data do not hold,
    and which axes have no name (`unnamed`).

    For telephones ``figures/NAME_narrow.svg`` has the panels one below the other. Where this cannot
    be done (`ntpnb_book.stacking.stack` says when), no such file is left, and the page lets the
    wide drawing scroll.

    Parameters
    ----------
    fig : matplotlib Figure
        What to save.
    name : str
        Lower-case letters, digits and underscores.
    data : mapping
        The plotted arrays by name: numbers, truth values or texts, up to two dimensions, of any
        lengths. Mappings and lists of mappings may be nested (`four_panels`' `groups`); their
        keys are joined by dots. The CSV has columns ``array``, ``i``, ``j`` and ``value``, one
        row an entry.
    seed : int, list of int or None
        Seed of the generator; None where nothing is random.
    frames : dict, optional
        What `save_frames` records besides.
    strip : str
        The drawing of all frames, which `save_frames` makes: ``figures/NAME_frames.svg``.
    columns : int
        How many panels stand side by side on a telephone; 0 for none: there it scrolls.

    Raises
    ------
    ValueError
        For a name, data or kinds of files outside these bounds.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> figures.save(figures.plt.figure(), "Figure 1", {"x": [1.0]}, seed=None)
    Traceback (most recent call last):
    ValueError: name 'Figure 1': lower-case letters, digits and underscores are needed
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(f"name {name!r}: lower-case letters, digits and underscores are needed")
    if not isinstance(data, Mapping) or not data:
        raise ValueError(
            f"data: a mapping from names to the plotted arrays is needed, found {data!r:.60}"
        )
    files = {"csv": _csv(data)}
    formats = _formats()
    drawn = curves(fig, data)
    if not frames:  # which have them already
        letter_panels(fig)
    settle_layout(fig)
    for suffix in formats:
        files[suffix] = render(fig, suffix)
    shown = draw(fig)
    nameless = _unnamed(fig)
    drawings = {"frames": strip} if frames else {}
    if columns and not frames and stack(fig, columns):
        drawings["narrow"] = draw(fig)
    plt.close(fig)
    for suffix, content in files.items():
        output.write(folder() / f"{name}.{suffix}", content)
    for path, svg in drawing_files(name, shown, drawings).items():
        output.write(folder() / path, svg)
    if "narrow" not in drawings:
        (folder() / f"{name}_narrow.svg").unlink(missing_ok=True)
    record: dict[str, Any] = {
        "figure": name,
        "seed": np.array(seed).tolist(),
        "data": hashlib.sha256(files["csv"]).hexdigest(),
        "sketch": sketch(data),
        "curves": list(drawn),
        "unnamed": nameless,
        "drawings": drawings,
    }
    output.show(
        {"text/plain": f"Figure {name}", DRAWING: shown},
        record | ({"frames": dict(frames)} if frames else {}),
    )
