"""The map of a paper's statements: what rests on what, how far executed, what slips affect."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ntpnb_book.claims import covers
from publishing.layered import layout
from publishing.statements import Statements, below, called, rests_on, status

Entry: TypeAlias = Mapping[str, Any]

WIDTH, HEIGHT, GAP, FALL = 116, 44, 10, 44
"""Size of a node, and the gaps beside and below it, in pixels."""

MEANINGS = {
    "executed": "executed",
    "in part": "executed in part",
    "corrected": "corrected: false as stated",
    "conjecture": "expected or observed by the paper, not proved",
    "quoted": "quoted only",
    "not in the book": "not in the book",
}
"""The colours of the map."""


class Node(NamedTuple):
    """A statement as the map shows it.

    Attributes
    ----------
    id, name : str
        Its id and how the paper calls it, such as ``Thm 2``.
    kind : str
        One of `MEANINGS`.
    slips : int
        How many errata concern it.
    affected : bool
        Whether it rests on a statement that is false as stated.
    rests_on : list of str
        Ids of the statements that it rests on.
    explained : list of str
        Labels of the places that explain the slips.
    """

    id: str
    name: str
    kind: str
    slips: int
    affected: bool
    rests_on: list[str]
    explained: list[str]


def nodes(paper: str, statements: Statements, entries: Sequence[Entry]) -> list[Node]:
    """List the statements of a paper that the map shows, in the order of `statements.yml`."""
    claims = {entry["id"]: entry for entry in entries}
    # Whether an erratum affects the statement is said once for all that one place explains.
    places = {e["explained"] for e in entries if e.get("affects") == "statement"}
    explained = {
        id: [claims[erratum]["explained"] for erratum in statement.get("errata", ())]
        for id, statement in statements.items()
    }
    false = {id for id in statements if not places.isdisjoint(explained[id])}
    affected = below(statements, false)
    found = []
    for id, statement in statements.items():
        if not covers(paper, id) or "uses" not in statement:
            continue
        kind = status(id, statement, claims)
        if id in false:
            kind = "corrected"
        elif statement.get("conjecture"):
            kind = "conjecture"
        node = Node(
            id,
            called(statement),
            kind,
            slips=len(explained[id]),
            affected=id in affected,
            rests_on=rests_on(id, statement),
            explained=[place.partition("#")[2] for place in dict.fromkeys(explained[id])],
        )
        found.append(node)
    return found


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Write a curve through the middles of rows: straight within a row, bent between rows."""
    half = HEIGHT // 2
    (x, y), *others = points
    text = f"M{x} {y + half}"
    for a, b in others:
        middle = (y + b) // 2
        text += f"C{x} {middle} {a} {middle} {a} {b - half}"
        if (a, b) != others[-1]:
            text += f"V{b + half}"
        x, y = a, b
    return text


def drawing(paper: str, statements: Statements, entries: Sequence[Entry]) -> dict[str, Any]:
    """Place what the map of a paper shows, as the template ``map.md`` takes it.

    Parameters
    ----------
    paper : str
        ``t24`` or ``l24``.
    statements : mapping
        The statements of both papers by id.
    entries : list of dict
        What `publishing.collect.collect` returns.

    Returns
    -------
    dict
        Among others ``boxes``, each a `Node` with its centre in pixels, and ``arrows``, each with
        its style, ``carries`` from what is false as stated or rests on it, and its curve.
    """
    listed = {node.id: node for node in nodes(paper, statements, entries)}
    placed = layout({id: node.rests_on for id, node in listed.items()})

    def centre(x: float, row: int) -> tuple[int, int]:
        across, down = x * (WIDTH + GAP), row * (HEIGHT + FALL)
        return round(GAP + WIDTH / 2 + across), GAP + HEIGHT // 2 + down

    arrows = []
    for (upper, _), points in placed.edges.items():
        carries = listed[upper].kind == "corrected" or listed[upper].affected
        path = _path([centre(x, row) for x, row in points])
        arrows.append(("carries" if carries else "rests", path))
    right, bottom = centre(placed.width, placed.rows - 1)
    return {
        "arrows": arrows,
        "box": {"width": WIDTH, "height": HEIGHT},
        "boxes": [(node, *centre(*placed.nodes[id])) for id, node in listed.items()],
        "height": bottom + HEIGHT // 2 + GAP,
        "meanings": MEANINGS,
        "paper": paper,
        "statements": statements,
        "width": right + WIDTH // 2 + GAP,
    }
