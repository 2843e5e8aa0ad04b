"""Comparing the data behind this machine's figures with those that another one computed."""

import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from ntpnb.notebook import output

TOLERANCE = 1e-6
"""Largest accepted difference, relative to the largest entry of the array."""


def read(path):
    """Read a figure's data: for each array its values, as text, by their indices."""
    arrays = defaultdict(dict)
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            arrays[row["array"]][row["i"], row["j"]] = row["value"]
    return arrays


def difference(here, there):
    """Largest difference between two arrays' entries, relative to the largest entry of both.

    Infinite where a shape or a text differs, or where only one of two numbers is finite.
    """
    if here == there:
        return 0.0
    if here.keys() != there.keys():
        return math.inf
    try:
        a, b = np.array([(here[place], there[place]) for place in here], float).T
    except ValueError:  # texts or truth values
        return math.inf
    finite = np.isfinite(a)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(b[finite]).all()
    ):
        return math.inf
    scale = max(np.abs(a[finite]).max(), np.abs(b[finite]).max())
    return float(np.abs(a - b)[finite].max() / scale)


def compare(folder, tolerance=TOLERANCE, root=output.ROOT):
    """Compare the figures' data in `folder` with those in the repository's `figures/`.

    Parameters
    ----------
    folder : str or Path
        Holds ``NAME.csv`` of some or all figures.
    tolerance : float

    Yields
    ------
    figure : str
    same : bool
        Whether every array is there on both sides and no `difference` exceeds the tolerance.
    differences : dict
        `difference` by the name of the array; None for an array that one side lacks.

    Raises
    ------
    ValueError
        Where `folder` is missing or holds no data.
    """
    theirs = sorted(Path(folder).glob("*.csv"))
    if not theirs:
        reason = "holds no CSV" if Path(folder).is_dir() else "does not exist"
        raise ValueError(f"compare: the folder {str(folder)!r} {reason}")
    for path in theirs:
        ours = Path(root) / "figures" / path.name
        here, there = read(ours) if ours.exists() else {}, read(path)
        found = {
            name: difference(here[name], there[name]) if name in here and name in there else None
            for name in dict.fromkeys([*here, *there])
        }
        same = all(value is not None and value <= tolerance for value in found.values())
        yield path.stem, same, found
