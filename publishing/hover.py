r"""Panels that show what a reference leads to: terms, equations, figures, statements, citations.

What a panel shows is put into the page that refers to it, as a ``template``, while the book is
built. So it works from a file, and nothing is fetched; ``book/_static/hover.js`` shows it.

A term may be named by its symbol: ``{term}`$W^{\mathrm{mm}}$ <max-margin matrix>```.
"""

import posixpath
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_MATHEMATICS = re.compile(r"\$([^$]+)\$")


class SymbolsAsTerms(SphinxTransform):
    """Set mathematics in the words of a reference to a term, which Sphinx takes literally."""

    default_priority = 260  # before Sphinx asks which pages have mathematics

    def apply(self, **kwargs: Any) -> None:
        """Replace the words of every such reference of the page."""
        for link in list(self.document.findall(addnodes.pending_xref)):
            words = link.astext()
            if link["reftype"] != "term" or not _MATHEMATICS.search(words):
                continue
            inline = nodes.inline(classes=["xref", "std", "std-term"])
            for number, piece in enumerate(_MATHEMATICS.split(words)):
                if piece:
                    inline += nodes.math("", piece) if number % 2 else nodes.Text(piece)
            link.children = []
            link += inline


def _proof(block: nodes.Element) -> list[nodes.Node]:
    """Return title and text of a block that states something."""
    kind, title = str(block.get("realtype", "")).title(), block.children[0].astext()
    statement = [child.deepcopy() for child in block.children[-1].children]
    return [nodes.paragraph("", "", nodes.strong("", f"{kind} {title.strip()}")), *statement]


def _figure(figure: nodes.figure) -> list[nodes.Node]:
    """Return the picture of a figure and its caption, without the links at its end."""
    shown: list[nodes.Node] = [image.deepcopy() for image in figure.findall(nodes.image)]
    for caption in figure.findall(nodes.caption):
        words = nodes.paragraph()
        for child in caption.children:
            if isinstance(child, addnodes.download_reference):
                break
            words += child.deepcopy()
        shown.append(words)
    return shown


def _shown(target: nodes.Element) -> list[nodes.Node]:
    """Return copies of what a panel shows of a target; nothing where it has no use for one."""
    if isinstance(target, nodes.term):
        definition = target.parent.children[-1]
        name = nodes.paragraph("", "", nodes.strong("", target.astext()))
        return [name, *(child.deepcopy() for child in definition.children)]
    if isinstance(target, nodes.math_block):
        return [target.deepcopy()]
    if isinstance(target, nodes.figure):
        return _figure(target)
    if "proof" in target.get("classes", ()):
        return _proof(target)
    return []


def _cut(panel: nodes.Element) -> None:
    """Take out of a panel what belongs to its own place: anchors, links, what is folded."""
    for node in list(panel.findall(nodes.Element)):
        node["ids"], node["names"] = [], []
        drop = isinstance(node, nodes.raw | nodes.footnote | nodes.target | addnodes.index)
        if node.parent is not None and (drop or "to-index" in node.get("classes", ())):
            node.parent.remove(node)
    for formula in panel.findall(nodes.math_block):
        formula["number"] = None  # it is the anchor's; the reference itself says it
    for link in list(panel.findall(nodes.reference)):
        link.replace_self(nodes.inline("", "", *link.children))


class Panels:
    """Writes panels, and remembers the pages that it took them from.

    Parameters
    ----------
    app : Sphinx
        The build, whose builder writes HTML.
    """

    def __init__(self, app: Sphinx) -> None:
        self.app = app
        self.targets: dict[str, dict[str, nodes.Element]] = {}

    def target(self, page: str, id: str) -> nodes.Element | None:
        """Find what bears an id on a page."""
        if page not in self.targets:
            found: dict[str, nodes.Element] = {}
            for node in self.app.env.get_doctree(page).findall(nodes.Element):
                for name in node.get("ids", ()):
                    if not isinstance(node, nodes.target | nodes.title):
                        found.setdefault(name, node)
            self.targets[page] = found
        return self.targets[page].get(id)

    def write(self, page: str, id: str) -> str:
        """Write as HTML, for the page that is being written, what stands at an id of `page`."""
        target = self.target(page, id)
        shown = [] if target is None else _shown(target)
        if not shown:
            return ""
        document = new_document(page, target.document.settings)
        document += shown
        env = self.app.env
        document.settings.env = env
        env.apply_post_transforms(document, page)
        _cut(document)
        self.app.builder.post_process_images(document)
        panel = nodes.container(classes=["hover"])
        panel += document.children
        return str(self.app.builder.render_partial(panel)["fragment"])


def _references(document: nodes.document, page: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the links of a page as they are written, with page, id and title of their targets."""
    for link in document.findall(nodes.reference):
        if not link.get("internal"):
            continue
        uri = link.get("refuri") or f"#{link.get('refid', '')}"
        path, _, id = uri.partition("#")
        if not id or "://" in path:
            continue
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        yield uri, joined.removesuffix(".html") if path else page, id, link.get("reftitle", "")


def _with_panels(page: str, body: str, document: nodes.document, panels: Panels) -> str:
    """Put the panels of a page's references at the end of its body."""
    app = panels.app
    written: dict[str, str] = {}
    for uri, other, id, title in _references(document, page):
        if uri in written or other not in app.env.all_docs:
            continue
        cited = title and re.fullmatch(r"id\d+", id)  # bibtex writes the entry as a title
        written[uri] = f"<p>{escape(title)}</p>" if cited else panels.write(other, id)
    templates = [
        f'<template data-hover="{escape(uri)}">{panel}</template>'
        for uri, panel in written.items()
        if panel
    ]
    return body + "\n".join(templates)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the panels; `publishing.sphinx_ext` calls this."""
    panels = Panels(app)

    def attach(
        app: Sphinx, page: str, _: str, context: dict[str, Any], document: nodes.document | None
    ) -> None:
        if app.builder.name == "html" and document is not None and "body" in context:
            context["body"] = _with_panels(page, context["body"], document, panels)

    app.add_transform(SymbolsAsTerms)
    app.set_html_assets_policy("always")  # formulas in panels, and in titles in the side bar
    app.connect("html-page-context", attach, priority=400)  # before the page's figures are changed
    return {"parallel_read_safe": True, "parallel_write_safe": True}
