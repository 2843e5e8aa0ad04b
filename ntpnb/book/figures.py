"""The book's figures: one style, the papers' four panels, and saving with the data behind them."""

import csv
import hashlib
import io
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler

from . import project

BACKGROUND = "#fcfcfa"
"""An opaque, nearly white card, so that a figure reads the same in light and dark mode."""

PALETTE = ("#0072b2", "#c04a00", "#00795c", "#a0417f", "#8a6a00", "#3d3d3d")
"""Okabe and Ito's hues, darkened until each has contrast 4.5 or more with the background."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")

_STYLE = {
    "figure.figsize": (7.6, 5.4),
    "figure.constrained_layout.use": True,
    "figure.facecolor": BACKGROUND,
    "axes.facecolor": BACKGROUND,
    "axes.prop_cycle": cycler(color=PALETTE) + cycler(linestyle=DASHES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same letters
    "mathtext.fontset": "dejavusans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
}
# Nothing in the files may depend on the time or on a random number.
_OUTPUT = {
    "savefig.facecolor": "auto",
    "savefig.bbox": None,
    "svg.fonttype": "path",
    "svg.hashsalt": "ntpnb",
    "pdf.fonttype": 42,
    "image.composite_image": True,
}
_METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_DPI = 150


def use_style():
    """Set the book's style, whatever the reader's own matplotlib settings are."""
    mpl.rcdefaults()
    mpl.rcParams.update(_STYLE)


def curve(run, trace):
    """Collect what `four_panels` draws.

    Parameters
    ----------
    run
        What `ntpnb.descend` returned for one problem.
    trace
        What ``run.compare(fin, svm)`` returned: ``.alignment``, ``.corrected_alignment``,
        ``.finite_error``.

    Returns
    -------
    dict
        Seven arrays of shape (r,), by the names above.
    """
    of_run = {name: getattr(run, name) for name in ("steps", "loss", "excess", "norm")}
    names = ("alignment", "corrected_alignment", "finite_error")
    return of_run | {name: getattr(trace, name) for name in names}


def four_panels(curves, *, entropy=None, axes=None, xlabel="iteration $k$"):
    """Draw the papers' four panels: loss, norm, alignment, error on F (T24 Fig. 4, 002).

    Parameters
    ----------
    curves : mapping of str to list of mappings
        For each label (an optimizer, a setting) its curves, as `curve` makes them: arrays of
        shape (r,) named ``steps``, ``loss`` or ``excess``, ``norm``, ``alignment``,
        ``corrected_alignment`` and ``finite_error``. The first is drawn in front, the others
        (further seeds) thin. Step 0 is left out: the axis is logarithmic.
    entropy : float, optional
        Draw the loss beside this entropy, in nats. By default the first panel shows
        ``excess``, the loss minus the entropy, on logarithmic axes.
    axes : sequence of four Axes, optional
        Where to draw, in the order above; by default a new figure with two rows.
    xlabel : str
        Name of the horizontal axis.

    Returns
    -------
    fig, axes
        The figure and its four axes.
    """
    if axes is None:
        axes = plt.subplots(2, 2, sharex=True)[1]
    axes = np.ravel(axes)
    if axes.shape != (4,):
        raise ValueError(f"axes: four are needed, found {axes.size}")
    loss = "excess" if entropy is None else "loss"
    panels = (
        (0, loss, "-"),
        (1, "norm", "-"),
        (2, "alignment", "--"),
        (2, "corrected_alignment", "-"),
        (3, "finite_error", "-"),
    )
    styles = zip(PALETTE, MARKERS, strict=True)
    for seeds, (color, marker) in zip(curves.values(), styles, strict=False):
        # Backwards, so that the first curve is drawn last and lies in front.
        for number, one in reversed(list(enumerate(seeds))):
            steps = np.asarray(one["steps"])
            later = steps > 0
            for panel, quantity, dash in panels:
                style = {"color": color, "linestyle": dash}
                if number:
                    style |= {"linewidth": 0.8, "alpha": 0.35}
                elif len(curves) > 1:
                    style |= {"marker": marker, "markevery": 0.25}
                axes[panel].plot(
                    steps[later], np.asarray(one[quantity])[later], zorder=3 - (number > 0), **style
                )
    if entropy is not None:
        axes[0].axhline(entropy, color="#3d3d3d", linestyle=":", label="entropy $\\mathcal{H}$")
    _label(axes, curves, loss, xlabel)
    return axes[0].figure, axes


def _label(axes, curves, loss, xlabel):
    """Name axes and lines; legends tell lines apart by dash and marker as well as by colour."""
    titles = (
        "CE − $\\mathcal{H}$ (nats)" if loss == "excess" else "CE (nats)",
        "$\\|W_k\\|$",
        "alignment with $W^{\\mathrm{mm}}$",
        "$\\|P_{\\mathcal{F}}(W_k) - W^\\star\\|$",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xscale="log", title=title)
    for ax in axes[2:]:
        ax.set_xlabel(xlabel)
    if loss == "excess":
        axes[0].set_yscale("log")
    axes[3].set_yscale("log")
    for label, color, marker in zip(curves, PALETTE, MARKERS, strict=False):
        style = {"marker": marker} if len(curves) > 1 else {}
        axes[0].plot([], [], color=color, linestyle="-", label=label, **style)
    for dash, label in (("--", "$W_k$"), ("-", "$W_k - W^\\star$")):
        axes[2].plot([], [], color="#3d3d3d", linestyle=dash, label=label)
    axes[0].legend()
    axes[2].legend()


def _columns(data, prefix=""):
    """Flatten nested mappings and lists of mappings into named arrays."""
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
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


def _csv(data):
    """Write arrays as one tidy table, every value at full precision."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("array", "i", "j", "value"))
    for name, array in _columns(data):
        for index in product(*map(range, array.shape)):
            i, j = (*index, "", "")[:2]
            table.writerow((name, i, j, array[index].item()))
    return text.getvalue().encode()


def save(fig, name, data, seed):
    """Save a figure with the data behind it, show it in the notebook and close it.

    Writes ``figures/NAME.png``, ``.svg``, ``.pdf`` and ``.csv``, with the same bytes on every run.
    The notebook shows the very PNG that was saved; the output's metadata records seed and data.

    Parameters
    ----------
    fig : matplotlib Figure
        What to save.
    name : str
        Lower-case letters, digits and underscores.
    data : mapping
        The plotted arrays by name: numbers, truth values or texts, up to two dimensions, of any
        lengths. Mappings and lists of mappings may be nested (``four_panels``' `curves`); their
        keys are joined by dots. The CSV has columns ``array``, ``i``, ``j`` and ``value``, one
        row an entry.
    seed : int, list of int or None
        Seed of the generator; None where nothing is random.

    Raises
    ------
    ValueError
        For a name or data outside these bounds.
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(f"name {name!r}: lower-case letters, digits and underscores are needed")
    if not isinstance(data, Mapping) or not data:
        raise ValueError(
            f"data: a mapping from names to the plotted arrays is needed, found {data!r:.60}"
        )
    folder = Path(os.environ.get("NTPNB_FIGURES", project.ROOT / "figures"))
    files = {"csv": _csv(data)}
    with mpl.rc_context(_OUTPUT):
        for suffix, metadata in _METADATA.items():
            buffer = io.BytesIO()
            fig.savefig(buffer, format=suffix, dpi=_DPI, metadata=metadata)
            files[suffix] = buffer.getvalue()
    plt.close(fig)
    for suffix, content in files.items():
        project.write(folder / f"{name}.{suffix}", content)
    project.show(
        {"text/plain": f"Figure {name}", "image/png": b64encode(files["png"]).decode()},
        {"figure": name, "seed": seed, "data": hashlib.sha256(files["csv"]).hexdigest()},
    )
