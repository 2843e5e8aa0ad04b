"""What a page asks of its reader: what to know before, how many minutes, and routes of pages.

Minutes are computed while the book is built, from what the page shows: its prose, what its cells
print, its figures and its displayed formulas. What is folded away does not count.

In a page, ``:::{needs}`` with what one should have read, or with nothing, and elsewhere
``:::{route} 01_toy 05_gradient_descent 15_rates:rates-next``, where the last page is read up to the
label ``rates-next``.
"""

import posixpath
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

WORDS_A_MINUTE = 120  # of a text that is thought through, formulas within its lines included
MINUTES_TO_LOOK = 0.5  # at a figure, a displayed formula or a cell whose code is shown

Marks: TypeAlias = dict[str, float]
"""Minutes from the top of a page to each of its labels, and under ``""`` to its end."""

_FOLDED = ("dropdown", "toggle")  # sphinx-design marks its dropdowns in another way
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
    if not isinstance(node, nodes.Element):
        return 0, True
    classes = node.get("classes", [])
    folded = node.get("design_component") == "dropdown"
    if folded or any(word in _FOLDED for word in classes):
        return 0, False
    part = node.get("nb_element")
    if part == "cell_code_source":
        return 0, False
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
        """Write the line; `_write_minutes` puts the number in."""
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
        """Note the stops; `_write_minutes` looks up titles and minutes, once all are known."""
        stops = [stop.partition(":") for stop in self.arguments[0].split()]
        route = Route(stops=[(page, label) for page, _, label in stops])
        self.set_source_info(route)
        return [route]


def _marks(env: BuildEnvironment) -> dict[str, Marks]:
    """Return what is known of the minutes of the pages, by their names."""
    if not hasattr(env, "reading_minutes"):
        env.reading_minutes = {}
    return cast(dict[str, Marks], env.reading_minutes)


def _find_page(env: BuildEnvironment, name: str) -> str | None:
    """Find a page by its name, with or without its folder."""
    return next((page for page in (name, f"nb/{name}") if page in env.all_docs), None)


def _stop(app: Sphinx, page: str, label: str, here: str) -> tuple[nodes.list_item, float]:
    """Write one stop of a route that stands on the page `here`; return it with its minutes."""
    marks = _marks(app.env)[page]
    duration = marks[label]
    title = app.env.titles[page]
    link = nodes.reference(
        "",
        "",
        *(child.deepcopy() for child in title.children),
        internal=True,
        refuri=app.builder.get_relative_uri(here, page),
    )
    stop = nodes.inline("", "", link, classes=["stop"])
    if label:
        stop += nodes.Text(", its first part")
    words: list[nodes.Node] = [stop]
    number = posixpath.basename(page).partition("_")[0]
    if number.isdigit():
        words.insert(0, nodes.inline("", f"{int(number)} ", classes=["number"]))
    words.append(nodes.inline("", written(duration), classes=["minutes"]))
    return nodes.list_item("", nodes.paragraph("", "", *words)), duration


def _write_minutes(app: Sphinx, document: nodes.document, page: str) -> None:
    """Put the minutes into the lines and routes of a page."""
    for place in list(document.findall(ReadingTime)):
        duration = _marks(app.env)[page][""]
        place.replace_self(nodes.inline("", written(duration), classes=["minutes"]))
    for route in list(document.findall(Route)):
        stops = nodes.bullet_list(classes=["route"])
        total = 0
        for name, label in route["stops"]:
            found = _find_page(app.env, name)
            if found is None or label not in _marks(app.env)[found]:
                missing = name if found is None else f"{name}:{label}"
                _LOG.warning("a route leads to %s, which is not there", missing, location=route)
                continue
            item, duration = _stop(app, found, label, page)
            total += max(1, round(duration))  # the sum of what is written
            stops += item
        together = nodes.paragraph("", "Together ", classes=["route-sum"])
        together += nodes.inline("", written(total), classes=["minutes"])
        together += nodes.Text(".")
        route.replace_self([stops, together])


def _say_where_it_leaves(app: Sphinx, document: nodes.document, page: str) -> None:
    """Say, before the label at which the landing page's route leaves a page, where it goes on."""
    route = app.env.metadata[app.config.root_doc].get("route", ())
    for number, (name, label) in enumerate(route[:-1]):
        left = _find_page(app.env, name) == page and label and _with_id(document, label)
        following = _find_page(app.env, route[number + 1][0])
        if left and following:
            line = nodes.paragraph("", "The evening leaves this chapter here. ")
            line["classes"].append("leaves")
            line += nodes.Text("It goes on with ")
            line += nodes.reference(
                "",
                app.env.titles[following].astext(),
                internal=True,
                refuri=app.builder.get_relative_uri(page, following),
            )
            line += nodes.Text("; what follows can wait.")
            left.parent.insert(left.parent.index(left), line)


def _with_id(document: nodes.document, id: str) -> nodes.Element | None:
    """Find the section, or else whatever has this label."""
    return next(
        (node for node in document.findall(nodes.Element) if id in node.get("ids", [])), None
    )


def _read(app: Sphinx, document: nodes.document) -> None:
    """Compute the minutes of a page that was just read."""
    _marks(app.env)[app.env.docname] = minutes(document)
    for route in document.findall(Route):
        app.env.metadata[app.env.docname]["route"] = route["stops"]


def _forget(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Forget the minutes of a page that is read anew or gone."""
    _marks(env).pop(page, None)


def _merge(app: Sphinx, env: BuildEnvironment, pages: set[str], other: BuildEnvironment) -> None:
    """Take over the minutes of pages that another process read."""
    _marks(env).update({page: _marks(other)[page] for page in pages if page in _marks(other)})


def _again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages with a route written again: their minutes are those of other pages."""
    return [page for page, data in env.metadata.items() if "route" in data]


def evening(app: Sphinx, here: str) -> dict[str, Any]:
    """Collect what the sidebar of the page `here` says of the landing page's route.

    Returns
    -------
    dict
        The number, title, address and minutes of each stop as ``stops``, and their sum as
        ``together``; empty where the landing page has no route.
    """
    stops = []
    total = 0
    for name, label in app.env.metadata[app.config.root_doc].get("route", ()):
        page = _find_page(app.env, name)
        if page is None or label not in _marks(app.env)[page]:
            continue  # the landing page has warned of it
        number = posixpath.basename(page).partition("_")[0].lstrip("0")
        duration = _marks(app.env)[page][label]
        opening = ", its first part" if label else ""
        stop = {
            "number": number,
            "title": f"{app.env.titles[page].astext()}{opening}: {written(duration)}",
            "address": app.builder.get_relative_uri(here, page),
            "is_here": page == here,
            "minutes": written(duration),
        }
        stops.append(stop)
        total += max(1, round(duration))
    return {"stops": stops, "together": written(total)} if stops else {}


def _show_evening(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Give the sidebar its stops, and each stop a line above its text that leads to the next."""
    context["evening"] = evening(app, page)
    stops = context["evening"].get("stops", [])
    here = next((k for k, stop in enumerate(stops) if stop["is_here"]), None)
    if here is not None:
        line = {"number": here + 1, "of": len(stops), "minutes": stops[here]["minutes"]}
        line["next"] = stops[here + 1 : here + 2]
        templates = cast(StandaloneHTMLBuilder, app.builder).templates
        context["body"] = templates.render("stop.html", {"stop": line}) + context["body"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives; `publishing.sphinx_ext` calls this."""
    app.add_node(ReadingTime)
    app.add_node(Route)
    app.add_directive("needs", Needs)
    app.add_directive("route", RouteDirective)
    app.connect("doctree-read", _read)
    app.connect("env-purge-doc", _forget)
    app.connect("env-merge-info", _merge)
    app.connect("env-updated", _again)
    app.connect("doctree-resolved", _write_minutes)
    app.connect("doctree-resolved", _say_where_it_leaves)
    app.connect("html-page-context", _show_evening)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
