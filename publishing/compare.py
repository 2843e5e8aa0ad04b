"""Comparing the data behind this machine's figures with those that another one computed."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ntpnb_book import output

TOLERANCE = 1e-6
"""Largest accepted difference, relative to the largest entry of the array."""

Entries: TypeAlias = dict[tuple[str, str], str]
"""The entries of one array, as text, by their indices."""


class Compared(NamedTuple):
    """What `compare` finds of one figure.

    Attributes
    ----------
    figure : str
    same : bool
        Whether every array is there on both sides and no `difference` exceeds the tolerance.
    differences : dict
        `difference` by the name of the array; None for an array that one side lacks.
    """

    figure: str
    same: bool
    differences: dict[str, float | None]


def read(path: Path) -> dict[str, Entries]:
    """Read a figure's data: for each array its entries."""
    arrays: defaultdict[str, Entries] = defaultdict(dict)
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            arrays[row["array"]][row["i"], row["j"]] = row["value"]
    return arrays


def difference(here: Entries, there: Entries) -> float:
    """Largest difference between two arrays' entries, relative to the largest entry of both.

    Infinite where a shape or a text differs, or where only one of two numbers is finite.
    """
    if here == there:
        return 0.0
    if here.keys() != there.keys():
        return math.inf
    try:
        a = np.array([here[place] for place in here], float)
        b = np.array([there[place] for place in here], float)
    except ValueError:  # texts or truth values
        return math.inf
    finite = np.isfinite(a)
    same_elsewhere = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not same_elsewhere or not np.isfinite(b[finite]).all():
        return math.inf
    scale = max(np.abs(a[finite]).max(), np.abs(b[finite]).max())
    return float(np.abs(a - b)[finite].max() / scale)


def compare(
    folder: Path | str, tolerance: float = TOLERANCE, root: Path = output.ROOT
) -> Iterator[Compared]:
    """Compare the figures' data in `folder` with those in the repository's `figures/`.

    Parameters
    ----------
    folder : str or Path
        Holds ``NAME.csv`` of some or all figures.
    tolerance : float
        Largest `difference` that is accepted.

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
        here = read(ours) if ours.exists() else {}
        there = read(path)
        found: dict[str, float | None] = {}
        for name in [*here, *there]:
            on_both = name in here and name in there
            found[name] = difference(here[name], there[name]) if on_both else None
        same = all(value is not None and value <= tolerance for value in found.values())
        yield Compared(path.stem, same, found)
