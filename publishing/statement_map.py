"""The map of a paper's statements: what rests on what, how far executed, what slips affect."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias

from ntpnb_book.claims import covers
from publishing.layered import Layout, layout
from publishing.statements import Statements, below, called, errata_of, rests_on, status

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
    slips : list of str
        Ids of the errata that concern it.
    affected : bool
        Whether it rests on a statement that is false as stated.
    """

    id: str
    name: str
    kind: str
    slips: list[str]
    affected: bool


def nodes(paper: str, statements: Statements, entries: Sequence[Entry]) -> list[Node]:
    """List the statements of a paper that the map shows, in the order of `statements.yml`."""
    claims = [entry["id"] for entry in entries]
    errata = {entry["id"]: entry for entry in entries if covers("erratum", entry["id"])}
    affects: dict[str, str] = {}
    for entry in errata.values():  # said once for all errata that one place explains
        if "affects" in entry:
            affects[entry["explained"]] = entry["affects"]
    slips = errata_of(statements, errata.values())
    false = {
        id
        for id, of in slips.items()
        if any(affects.get(errata[erratum]["explained"]) == "statement" for erratum in of)
    }
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
        found.append(Node(id, called(statement), kind, slips.get(id, []), id in affected))
    return found


def _remarks(node: Node) -> str:
    """Say of a node what its colour and its signs say."""
    text = MEANINGS[node.kind]
    if node.slips:
        text += f"; {len(node.slips)} slip{'s' if len(node.slips) > 1 else ''} in the errata"
    if node.affected:
        text += "; rests on a statement that is false as stated"
    return text


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Write a curve through the middles of rows: straight within a row, bent between rows."""
    half = HEIGHT / 2
    (x, y), *others = points
    text = f"M{x:.0f} {y + half:.0f}"
    for a, b in others:
        middle = (y + b) / 2
        text += f"C{x:.0f} {middle:.0f} {a:.0f} {middle:.0f} {a:.0f} {b - half:.0f}"
        if (a, b) != others[-1]:
            text += f"V{b + half:.0f}"
        x, y = a, b
    return text


def svg(paper: str, title: str, listed: Sequence[Node], statements: Statements) -> str:
    """Draw the map of a paper; each node leads to its row of the statement index.

    Parameters
    ----------
    paper : str
        ``t24`` or ``l24``.
    title : str
        What the drawing is called.
    listed : list of Node
        What `nodes` returns.
    statements : mapping
        The statements by id.
    """
    above = {node.id: rests_on(node.id, statements[node.id]) for node in listed}
    placed: Layout = layout(above)
    margin = GAP
    step, fall = WIDTH + GAP, HEIGHT + FALL

    def centre(x: float, row: float) -> tuple[float, float]:
        return margin + WIDTH / 2 + x * step, margin + HEIGHT / 2 + row * fall

    width = 2 * margin + WIDTH + placed.width * step
    height = 2 * margin + placed.rows * fall - FALL
    lines = [
        f'<svg class="map" role="group" aria-labelledby="map-{paper}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
        f'<title id="map-{paper}">{escape(title)}</title>',
        "<defs>",
        *(
            f'<marker class="{style}" id="{paper}-{style}" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker>'
            for style in ("rests", "carries")
        ),
        "</defs>",
    ]
    kinds = {node.id: node for node in listed}
    for (upper, _), points in placed.edges.items():
        drawn = _path([centre(x, row) for x, row in points])
        carries = kinds[upper].kind == "corrected" or kinds[upper].affected
        style = "carries" if carries else "rests"
        lines.append(f'<path class="{style}" d="{drawn}" marker-end="url(#{paper}-{style})"/>')
    for node in listed:
        x, y = centre(*placed.nodes[node.id])
        label = node.id.replace(".", "-")
        signs = f"  ✎{len(node.slips)}" if node.slips else ""
        signs += "  ▲" if node.affected else ""
        lines += [
            f'<a class="{node.kind.replace(" ", "-")}" href="statements.html#index-{label}">'
            f"<title>{escape(f'{node.name}: {_remarks(node)}')}</title>",
            f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" '
            f'width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text x="{x:.0f}" y="{y - 4:.0f}">{escape(node.name)}</text>',
            f'<text class="small" x="{x:.0f}" y="{y + 13:.0f}">{node.kind}{signs}</text></a>',
        ]
    return "\n".join([*lines, "</svg>"])


def page(paper: str, title: str, statements: Statements, entries: Sequence[Entry]) -> str:
    """Write the map of a paper and, below it, the same as a list of text.

    Parameters
    ----------
    paper : str
        ``t24`` or ``l24``.
    title : str
        What the drawing is called.
    statements : mapping
        The statements of both papers by id.
    entries : list of dict
        What `publishing.collect.collect` returns.
    """
    listed = nodes(paper, statements, entries)
    places = {entry["id"]: entry["explained"] for entry in entries if "explained" in entry}
    text = '```{raw} html\n<div class="map">\n'
    text += svg(paper, title, listed, statements)
    text += "\n</div>\n```\n\n::::{dropdown} The same as text\n"
    for node in listed:
        rests = rests_on(node.id, statements[node.id])
        links = ", ".join(_link(other, statements) for other in rests)
        text += f"- {_link(node.id, statements)}, {_remarks(node)}."
        text += f" Rests on {links}." if links else ""
        where = dict.fromkeys(places[slip].split("#")[1] for slip in node.slips)
        if where:
            words = ", ".join(
                f"{{ref}}`{number} <{label}>`" for number, label in enumerate(where, 1)
            )
            text += f" Slips: {words}."
        text += "\n"
    return text + "::::\n"


def _link(id: str, statements: Statements) -> str:
    """Link to a statement's row of the index by its name."""
    return f"{{ref}}`{called(statements[id])} <index-{id.replace('.', '-')}>`"
