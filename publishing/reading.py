"""What a page asks of its reader: what to know before, how many minutes, and routes of pages.

Minutes are computed while the book is built, from what the page shows: its prose, what its cells
print, its figures and its displayed formulas. What is folded away does not count.

In a page, ``:::{needs}`` with what one should have read, or with nothing, and elsewhere
``:::{route} nb/01_toy nb/15_rates:rates-next recap``, where the second page is read up to the label
``rates-next``.
"""

import posixpath
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from publishing.folding import Fold

WORDS_A_MINUTE = 120  # of a text that is thought through, formulas within its lines included
MINUTES_TO_LOOK = 0.5  # at a figure, a displayed formula or a cell whose code is shown

Marks: TypeAlias = dict[str, float]
"""Minutes from the top of a page to each of its labels, and under ``""`` to its end."""

_UNREAD = (Fold, nodes.Invisible, nodes.raw, nodes.system_message)
_LOG = logging.getLogger(__name__)


class Route(nodes.General, nodes.Element):
    """Stands where the pages of a route are listed; `stops` are pairs of a page and a label."""


def _is_read(node: nodes.Element) -> bool:
    """Tell what counts: not what is folded, nor code, but what it prints."""
    if isinstance(node, nodes.literal_block):
        return "output" in node["classes"]
    return node.get("design_component") != "dropdown" and not isinstance(node, _UNREAD)


def _walk(node: nodes.Element | nodes.Text) -> Iterator[tuple[nodes.Node, float]]:
    """Yield every visible node of a page in order with the minutes that it takes by itself."""
    if isinstance(node, nodes.Text):
        yield node, len(node.split()) / WORDS_A_MINUTE
    elif isinstance(node, nodes.math_block):
        yield node, MINUTES_TO_LOOK
    elif _is_read(node):
        is_looked_at = isinstance(node, nodes.figure) or "tag_idea" in node["classes"]
        yield node, MINUTES_TO_LOOK if is_looked_at else 0
        for child in node.children:
            yield from _walk(child)


def minutes(document: nodes.Element) -> Marks:
    """Compute how long a page takes to read, up to each of its labels and to its end.

    Parameters
    ----------
    document : docutils element
        The page as it was read.

    Returns
    -------
    dict
        Minutes by label; under ``""`` those of the whole page.

    Examples
    --------
    >>> from docutils import nodes
    >>> from publishing.reading import minutes
    >>> words = nodes.paragraph("", "word " * 60)
    >>> minutes(nodes.container("", words, nodes.math_block("", "x = 1")))
    {'': 1.0}
    """
    marks: Marks = {}
    total = 0.0
    for node, cost in _walk(document):
        if isinstance(node, nodes.Element):
            marks |= dict.fromkeys(node["ids"], total)
        total += cost
    return marks | {"": total}


def written(duration: float) -> str:
    """Write a number of minutes; no page takes less than one.

    Examples
    --------
    >>> from publishing.reading import written
    >>> written(0.2), written(11.3)
    ('1 minute', '11 minutes')
    """
    whole = max(1, round(duration))
    return f"{whole} minute" + "s" * (whole > 1)


class Needs(SphinxDirective):
    """One line at the head of a page: what the reader needs, and the minutes."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Write the line; `_read` puts the number in."""
        line = nodes.paragraph(classes=["needs"])
        self.set_source_info(line)
        if self.content:
            words, messages = self.parse_inline("\n".join(self.content).removesuffix("."))
            line += [nodes.strong("", "You need: "), *words, *messages, nodes.Text(" · ")]
        return [line]


class RouteDirective(SphinxDirective):
    """A list of pages with the minutes that each takes, and their sum."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Note the stops; `_write` looks up titles and minutes, once all are known."""
        stops = [stop.partition(":") for stop in self.arguments[0].split()]
        route = Route(stops=[(page, label) for page, _, label in stops])
        self.set_source_info(route)
        self.env.metadata[self.env.docname]["route"] = route["stops"]
        return [route]


def _marks(env: BuildEnvironment, page: str) -> Marks:
    """Return what is known of the minutes of a page, which is forgotten when it is read anew."""
    return env.metadata[page].get("minutes", {})


def _stops(app: Sphinx, route: list[tuple[str, str]], here: str) -> list[dict[str, Any]]:
    """List the stops of a route that are there, as the page `here` and its templates name them."""
    return [
        {
            "number": posixpath.basename(page).partition("_")[0].lstrip("0"),
            "page": page,
            "label": label,
            "title": app.env.titles[page].astext(),
            "address": app.builder.get_relative_uri(here, page),
            "minutes": max(1, round(_marks(app.env, page)[label])),
        }
        for page, label in route
        if label in _marks(app.env, page)
    ]


def _render(app: Sphinx, template: str, **values: Any) -> nodes.raw:
    """Fill one of the book's templates."""
    text = app.builder.templates.render(template, {"written": written, **values})
    return nodes.raw("", text, format="html")


def _write(app: Sphinx, document: nodes.document, page: str) -> None:
    """Fill in the route of a page, and say where the evening leaves it."""
    for route in list(document.findall(Route)):
        for name, label in route["stops"]:
            if label not in _marks(app.env, name):
                missing = f"{name}:{label}" if label else name
                _LOG.warning("a route leads to %s, which is not there", missing, location=route)
        route.replace_self(_render(app, "route.html", stops=_stops(app, route["stops"], page)))
    for stop, after in pairwise(_evening(app, page)):
        if stop["page"] != page or not stop["label"]:
            continue
        left = [node for node in document.findall(nodes.Element) if stop["label"] in node["ids"]]
        if left:  # what `publishing.hover` shows of a page is written without it
            place = left[0].parent.index(left[0])
            left[0].parent.insert(place, _render(app, "leaves.html", after=after))


def _evening(app: Sphinx, here: str) -> list[dict[str, Any]]:
    """List the stops of the landing page's route."""
    route = app.env.metadata[app.config.root_doc].get("route", [])
    return _stops(app, route, here)


def _read(app: Sphinx, document: nodes.document) -> None:
    """Compute the minutes of a page that was just read, and put them into its line."""
    marks = minutes(document)
    app.env.metadata[app.env.docname]["minutes"] = marks
    for line in document.findall(nodes.paragraph):
        if "needs" in line["classes"]:
            line += nodes.inline("", written(marks[""]), classes=["minutes"])


def _again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages with a route written again: their minutes are those of other pages."""
    return [page for page, data in env.metadata.items() if "route" in data]


def _show_stop(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Write a line above the text of each stop of the evening, which leads to the next one."""
    stops = _evening(app, page)
    if page in [stop["page"] for stop in stops]:
        line = _render(app, "stop.html", stops=stops, page=page)
        context["body"] = line.astext() + context["body"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives; Sphinx calls this."""
    app.add_node(Route)
    app.add_directive("needs", Needs)
    app.add_directive("route", RouteDirective)
    app.connect("doctree-read", _read)
    app.connect("env-updated", _again)
    app.connect("doctree-resolved", _write)
    app.connect("html-page-context", _show_stop)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
