"""Saving a figure with the data behind it, and showing exactly what was saved."""

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

from ntpnb.notebook import output

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
DPI = 140


def _columns(data, prefix=""):
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


def render(fig, suffix):
    """Return a figure as a file of one kind, the same bytes on every run."""
    buffer = io.BytesIO()
    options = {"pil_kwargs": {"optimize": True}} if suffix == "png" else {}
    with mpl.rc_context(_OUTPUT):
        fig.savefig(buffer, format=suffix, dpi=DPI, metadata=_METADATA[suffix], **options)
    return buffer.getvalue()


def folder():
    """Where figures are saved."""
    return Path(os.environ.get("NTPNB_FIGURES", output.ROOT / "figures"))


def save(fig, name, data, seed, *, frames=None):
    """Save a figure with the data behind it, show it in the notebook and close it.

    Writes ``figures/NAME.png``, ``.svg``, ``.pdf`` and ``.csv`` (in the folder that the environment
    variable ``NTPNB_FIGURES`` names, where it is set), with the same bytes on every run.
    The notebook shows the very PNG that was saved; the output's metadata records seed and data.

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
    files = {"csv": _csv(data)}
    for suffix in _METADATA:
        files[suffix] = render(fig, suffix)
        fig.set_layout_engine("none")  # the first file's layout serves all, at half the time
    plt.close(fig)
    for suffix, content in files.items():
        output.write(folder() / f"{name}.{suffix}", content)
    record = {
        "figure": name,
        "seed": np.array(seed).tolist(),
        "data": hashlib.sha256(files["csv"]).hexdigest(),
    }
    output.show(
        {"text/plain": f"Figure {name}", "image/png": b64encode(files["png"]).decode()},
        record | ({"frames": frames} if frames else {}),
    )
