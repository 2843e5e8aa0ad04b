"""What a page asks of its reader: what to know before, how many minutes, and routes of pages.

Minutes are computed while the book is built, from what the page shows: its prose, what its cells
print, its figures and its displayed formulas. What is folded away does not count.

In a page, ``:::{needs}`` with what one should have read, or with nothing, and elsewhere
``:::{route} 01_toy 05_gradient_descent 15_rates:rates-next``, where the last page is read up to the
label ``rates-next``.
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

_FOLDED = {"dropdown", "toggle"}  # sphinx-design marks its dropdowns in another way
_LOG = logging.getLogger(__name__)


class ReadingTime(nodes.General, nodes.Inline, nodes.Element):
    """Stands where the minutes of the page around it are written."""


class Route(nodes.General, nodes.Element):
    """Stands where the pages of a route are listed; `stops` are pairs of a page and a label."""


def _cost(node: nodes.Node) -> tuple[float, bool]:
    """Return the minutes that a node itself takes, and whether to look inside it."""
    if isinstance(node, nodes.Text):
        return len(node.astext().split()) / WORDS_A_MINUTE, False
    if isinstance(node, nodes.math_block | nodes.figure):
        caption = isinstance(node, nodes.figure)
        return MINUTES_TO_LOOK, caption
    if isinstance(node, nodes.Invisible | nodes.raw | nodes.literal_block | nodes.system_message):
        return 0, False
    classes = node.get("classes", [])
    is_dropdown = node.get("design_component") == "dropdown" or _FOLDED & {*classes}
    if is_dropdown or isinstance(node, Fold):
        return 0, False
    part = node.get("nb_element")
    if part == "cell_code_output":
        pictures = sum(1 for _ in node.findall(nodes.figure))
        read = (nodes.caption, nodes.literal_block)  # what is printed is read, too
        words = sum(len(part.astext().split()) for kind in read for part in node.findall(kind))
        return pictures * MINUTES_TO_LOOK + words / WORDS_A_MINUTE, False
    shown = part == "cell_code" and "tag_idea" in classes
    return (MINUTES_TO_LOOK if shown else 0), True


def _walk(node: nodes.Node) -> Iterator[tuple[nodes.Node, float]]:
    """Yield every visible node of a page in order with the minutes that it takes."""
    minutes, inside = _cost(node)
    yield node, minutes
    if inside:
        for child in node.children:
            yield from _walk(child)


def minutes(document: nodes.Node) -> Marks:
    """Compute how long a page takes to read, up to each of its labels and to its end.

    Parameters
    ----------
    document : docutils node
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
            for id in node.get("ids", []):
                marks.setdefault(id, total)
        total += cost
    marks[""] = total
    return marks


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
        """Write the line; `_write` puts the number in."""
        line = nodes.paragraph(classes=["needs"])
        self.set_source_info(line)
        content = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, content)
        paragraphs = list(content.findall(nodes.paragraph))
        if len(paragraphs) > 1 or len(paragraphs) != len(content.children):
            raise self.error("`needs` holds one paragraph, or nothing")
        if paragraphs:
            line += nodes.strong("", "You need: ")
            line += _without_full_stop(paragraphs[0].children)
            line += nodes.Text(" · ")
        line += ReadingTime()
        return [line]


def _without_full_stop(words: list[nodes.Node]) -> list[nodes.Node]:
    """Leave out the full stop at the end of a sentence that goes on."""
    if words and isinstance(words[-1], nodes.Text):
        words = [*words[:-1], nodes.Text(words[-1].astext().rstrip().removesuffix("."))]
    return words


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
    return env.metadata.get(page, {}).get("minutes", {})


def _find(env: BuildEnvironment, name: str, label: str) -> str | None:
    """Find a page that has this label by its name, with or without its folder."""
    pages = (page for page in (name, f"nb/{name}") if label in _marks(env, page))
    return next(pages, None)


def _stops(app: Sphinx, route: list[tuple[str, str]], here: str) -> list[dict[str, Any]]:
    """List the stops of a route, as the page `here` and its templates name them."""
    stops = []
    for name, label in route:
        page = _find(app.env, name, label)
        if page is None:
            continue
        stop = {
            "number": posixpath.basename(page).partition("_")[0].lstrip("0"),
            "page": page,
            "label": label,
            "title": app.env.titles[page].astext(),
            "address": app.builder.get_relative_uri(here, page),
            "minutes": max(1, round(_marks(app.env, page)[label])),
        }
        stops.append(stop)
    return stops


def _render(app: Sphinx, template: str, **values: Any) -> str:
    """Fill one of the book's templates."""
    return app.builder.templates.render(template, {"written": written, **values})


def _write(app: Sphinx, document: nodes.document, page: str) -> None:
    """Put the minutes into the lines and routes of a page, and say where the evening leaves it."""
    for place in list(document.findall(ReadingTime)):
        duration = _marks(app.env, page)[""]
        place.replace_self(nodes.inline("", written(duration), classes=["minutes"]))
    for route in list(document.findall(Route)):
        for name, label in route["stops"]:
            if _find(app.env, name, label) is None:
                missing = f"{name}:{label}" if label else name
                _LOG.warning("a route leads to %s, which is not there", missing, location=route)
        text = _render(app, "route.html", stops=_stops(app, route["stops"], page))
        route.replace_self(nodes.raw("", text, format="html"))
    for stop, after in pairwise(_evening(app, page)):
        if stop["page"] != page or not stop["label"]:
            continue
        left = [node for node in document.findall(nodes.Element) if stop["label"] in node["ids"]]
        if left:  # what `publishing.hover` shows of a page is written without it
            text = _render(app, "leaves.html", after=after)
            left[0].parent.insert(left[0].parent.index(left[0]), nodes.raw("", text, format="html"))


def _evening(app: Sphinx, here: str) -> list[dict[str, Any]]:
    """List the stops of the landing page's route."""
    return _stops(app, app.env.metadata[app.config.root_doc].get("route", []), here)


def _read(app: Sphinx, document: nodes.document) -> None:
    """Compute the minutes of a page that was just read."""
    app.env.metadata[app.env.docname]["minutes"] = minutes(document)


def _again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages with a route written again: their minutes are those of other pages."""
    return [page for page, data in env.metadata.items() if "route" in data]


def _show_evening(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Give the sidebar its stops, and each stop a line above its text that leads to the next."""
    context["evening"] = stops = _evening(app, page)
    context["written"] = written
    if page in [stop["page"] for stop in stops]:
        context["body"] = _render(app, "stop.html", stops=stops, page=page) + context["body"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives; `publishing.sphinx_ext` calls this."""
    app.add_node(ReadingTime)
    app.add_node(Route)
    app.add_directive("needs", Needs)
    app.add_directive("route", RouteDirective)
    app.connect("doctree-read", _read)
    app.connect("env-updated", _again)
    app.connect("doctree-resolved", _write)
    app.connect("html-page-context", _show_evening)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
