"""Drawing a graph without cycles in rows: each node below everything it rests on.

The usual steps (Sugiyama, Tagawa, Toda, IEEE Trans. Syst. Man Cybern. 11, 1981), in plain Python
and without a random choice: rows by the longest way from above, a point in every row that a long
edge crosses, an order in each row that avoids crossings, places in each row near their neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Point: TypeAlias = tuple[str, str, int]
"""A place in a row: a node (its name twice, and its row), or where an edge crosses a row."""

SWEEPS = 24
"""How often the rows are put in order, down and up in turn."""


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


def layout(above: Mapping[str, Sequence[str]], narrow: float = 0.25) -> Layout:
    """Place the nodes of a graph.

    Parameters
    ----------
    above : mapping
        For each node the nodes that it rests on. There must be no cycle.
    narrow : float
        Width that an edge takes in a row it crosses, in units of a node's.

    Examples
    --------
    >>> from publishing.layered import layout
    >>> placed = layout({"a": [], "b": ["a"], "c": ["a", "b"]})
    >>> [row for x, row in placed.nodes.values()]
    [0, 1, 2]
    """
    row: dict[str, int] = {}
    for node in above:
        _deepen(node, above, row)
    chains = {
        (upper, node): [
            (upper, upper, row[upper]),
            *((upper, node, between) for between in range(row[upper] + 1, row[node])),
            (node, node, row[node]),
        ]
        for node in above
        for upper in above[node]
    }
    neighbours: dict[Point, list[Point]] = {(node, node, row[node]): [] for node in above}
    for chain in chains.values():
        for one, other in pairwise(chain):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
    rows: list[list[Point]] = [[] for _ in range(max(row.values(), default=-1) + 1)]
    for point in neighbours:
        rows[point[2]].append(point)
    _order(rows, neighbours)
    x = _places(rows, neighbours, narrow)
    return Layout(
        {node: (x[node, node, row[node]], row[node]) for node in above},
        {edge: [(x[point], point[2]) for point in chain] for edge, chain in chains.items()},
        max(x.values(), default=0.0),
        len(rows),
    )


def _deepen(node: str, above: Mapping[str, Sequence[str]], row: dict[str, int]) -> int:
    """Find the row of a node: one below the lowest of those that it rests on."""
    if node not in row:
        row[node] = 1 + max((_deepen(upper, above, row) for upper in above[node]), default=-1)
    return row[node]


def _crossings(rows: Sequence[Sequence[Point]], neighbours: Mapping[Point, list[Point]]) -> int:
    """Count the pairs of edges that cross."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {point: number for number, point in enumerate(lower)}
        ends = [sorted(place[p] for p in neighbours[point] if p in place) for point in upper]
        for number, left in enumerate(ends):
            for right in ends[number + 1 :]:
                total += sum(a > b for a in left for b in right)
    return total


def _order(rows: list[list[Point]], neighbours: Mapping[Point, list[Point]]) -> None:
    """Put each row in the order of its neighbours' mean place; keep the order that crosses least.

    Afterwards, neighbours in a row change places as long as that removes a crossing.
    """
    best = [list(points) for points in rows]
    least = _crossings(best, neighbours)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        numbers = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
        for number in numbers:
            fixed = rows[number - 1 if downwards else number + 1]
            place = {point: index for index, point in enumerate(fixed)}
            own = {point: index for index, point in enumerate(rows[number])}

            def mean(
                point: Point, place: dict[Point, int] = place, own: dict[Point, int] = own
            ) -> tuple[float, int]:
                near = [float(place[p]) for p in neighbours[point] if p in place]
                return (_mean(near, own[point]), own[point])

            rows[number].sort(key=mean)
        crossings = _crossings(rows, neighbours)
        if crossings < least:
            best, least = [list(points) for points in rows], crossings
    rows[:] = best
    improved = True
    while improved:
        improved = False
        for points in rows:
            for index in range(len(points) - 1):
                points[index : index + 2] = points[index + 1], points[index]
                crossings = _crossings(rows, neighbours)
                if crossings < least:
                    least, improved = crossings, True
                else:
                    points[index : index + 2] = points[index + 1], points[index]


def _places(
    rows: Sequence[Sequence[Point]], neighbours: Mapping[Point, list[Point]], narrow: float
) -> dict[Point, float]:
    """Choose x in each row, in its order: near the neighbours, and nobody on top of another."""
    half = {
        point: 0.5 if point[0] == point[1] else narrow / 2 for points in rows for point in points
    }
    x: dict[Point, float] = {}
    for points in rows:
        end = 0.0
        for point in points:
            x[point] = end + half[point]
            end += 2 * half[point]
        for point in points:
            x[point] -= end / 2  # all rows about one middle
    for sweep in range(2 * SWEEPS):
        for points in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([x[near] for near in neighbours[point]], x[point]) for point in points]
            x.update(zip(points, _spread(wanted, [half[p] for p in points]), strict=True))
    least = min((x[point] - half[point] for point in x), default=0.0)
    return {point: round(place - least - 0.5, 3) for point, place in x.items()}


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    """Mean of numbers, and another number where there are none."""
    return sum(numbers) / len(numbers) if numbers else otherwise


def _spread(wanted: Iterable[float], half: Sequence[float]) -> list[float]:
    """Move places as little as possible (least squares) so that the intervals do not overlap."""
    blocks: list[tuple[float, int]] = []  # mean of what its members want less their offsets; size
    offsets = []
    end = 0.0
    for place, width in zip(wanted, half, strict=True):
        offsets.append(end + width)
        end += 2 * width
        mean, size = place - offsets[-1], 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean = (before * count + mean * size) / (count + size)
            size += count
        blocks.append((mean, size))
    starts = [mean for mean, size in blocks for _ in range(size)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
