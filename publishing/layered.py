"""Drawing a graph without cycles in rows: each node below everything it rests on.

The usual steps (Sugiyama, Tagawa, Toda, IEEE Trans. Syst. Man Cybern. 11, 1981), without a random
choice: rows by the longest way from above, a point in every row that a long edge crosses, an order
in each row that avoids crossings, and places that make edges as upright as the order lets them.
"""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import lsq_linear

Point: TypeAlias = tuple[str, str, int]
"""A place in a row: a node (its name twice, and its row), or where an edge crosses a row."""

Link: TypeAlias = tuple[Point, Point]
"""A part of an edge, from a row to the next."""

SWEEPS = 24
"""How often the rows are put in order, down and up in turn."""

NARROW = 0.25
"""Width that an edge takes in a row it crosses, in units of a node's with its gap."""


class Layout(NamedTuple):
    """Where the nodes of a graph are drawn, and along which points its edges.

    Attributes
    ----------
    nodes : dict
        Centre of each node: x in units of a node's width with its gap, and its row from 0.
    edges : dict
        Points of each edge (from, to) in the same units, from above to below.
    width : float
        Largest x; the smallest is zero.
    rows : int
        Number of rows.
    """

    nodes: dict[str, tuple[float, int]]
    edges: dict[tuple[str, str], list[tuple[float, int]]]
    width: float
    rows: int


def layout(above: Mapping[str, Sequence[str]]) -> Layout:
    """Place the nodes of a graph.

    Parameters
    ----------
    above : mapping
        For each node the nodes that it rests on. There must be no cycle.

    Examples
    --------
    >>> from publishing.layered import layout
    >>> placed = layout({"a": [], "b": ["a"], "c": ["a", "b"]})
    >>> [row for x, row in placed.nodes.values()]
    [0, 1, 2]
    """
    if not above:
        return Layout({}, {}, 0.0, 0)
    row: dict[str, int] = {}
    for node in TopologicalSorter(above).static_order():
        row[node] = 1 + max((row[upper] for upper in above[node]), default=-1)
    chains = {
        (upper, node): [
            (upper, upper, row[upper]),
            *((upper, node, between) for between in range(row[upper] + 1, row[node])),
            (node, node, row[node]),
        ]
        for node in above
        for upper in above[node]
    }
    links = [link for chain in chains.values() for link in pairwise(chain)]
    rows: list[list[Point]] = [[] for _ in range(max(row.values()) + 1)]
    for node in above:
        rows[row[node]].append((node, node, row[node]))
    for chain in chains.values():
        for point in chain[1:-1]:
            rows[point[2]].append(point)
    _order(rows, links)
    x = _places(rows, links)
    return Layout(
        {node: (x[node, node, row[node]], row[node]) for node in above},
        {edge: [(x[point], point[2]) for point in chain] for edge, chain in chains.items()},
        max(x.values()),
        len(rows),
    )


def _order(rows: list[list[Point]], links: Sequence[Link]) -> None:
    """Put each row in the order of its neighbours' mean place.

    The neighbours are those of the row before, going down and up in turn.
    """
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        near: dict[Point, list[Point]] = {}
        for upper, lower in links:
            moved, fixed = (lower, upper) if is_down else (upper, lower)
            near.setdefault(moved, []).append(fixed)
        for points in rows if is_down else reversed(rows):
            at = {point: number for row in rows for number, point in enumerate(row)}
            mean = {point: fmean(at[p] for p in near.get(point, [point])) for point in points}
            points.sort(key=mean.__getitem__)


def _places(rows: Sequence[Sequence[Point]], links: Sequence[Link]) -> dict[Point, float]:
    """Choose x in each row, in its order, so that the links lean least (least squares).

    What is chosen are the gaps, of which each has to hold half of both points beside it.
    """
    points = [point for row in rows for point in row]
    half = {point: 0.5 if point[0] == point[1] else NARROW / 2 for point in points}
    room = [
        half[left] + half[right] if left else 0.0
        for row in rows
        for left, right in pairwise([None, *row])
    ]
    from_gaps = block_diag(*(np.tri(len(row)) for row in rows))
    at = {point: k for k, point in enumerate(points)}
    gaps = np.array(room)
    if links:
        leaning = np.array([from_gaps[at[upper]] - from_gaps[at[lower]] for upper, lower in links])
        gaps = lsq_linear(leaning, np.zeros(len(links)), bounds=(room, np.inf)).x
    x = dict(zip(points, from_gaps @ gaps, strict=True))
    return {point: round(float(place - min(x.values())), 3) for point, place in x.items()}
