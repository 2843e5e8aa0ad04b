"""Panels that show what a reference leads to: terms, equations, figures, statements, citations.

What a panel shows is put into the page that refers to it, as a ``template``, while the book is
built. So it works from a file, and nothing is fetched; ``book/_static/hover.js`` shows it.
"""

import re
from functools import cache
from html import escape
from itertools import takewhile
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes
from sphinx.application import Sphinx

_OF_ITS_PLACE = (nodes.raw, nodes.footnote, nodes.target, addnodes.index)


def _titled(title: str, text: list[nodes.Node]) -> list[nodes.Node]:
    """Set a title above a text."""
    return [nodes.paragraph("", "", nodes.strong("", title)), *text]


def _figure(figure: nodes.figure) -> list[nodes.Node]:
    """Return the picture of a figure and its caption, without the links at its end."""
    shown: list[nodes.Node] = list(figure.findall(nodes.image))[:1]
    for caption in figure.findall(nodes.caption):
        words = takewhile(_is_no_download, caption.children)
        shown.append(nodes.paragraph("", "", *words))
    return shown


def _is_no_download(part: nodes.Node) -> bool:
    return not isinstance(part, addnodes.download_reference)


def _shown(target: nodes.Element) -> list[nodes.Node]:
    """Return what a panel shows of a target; nothing where it has no use for one."""
    if isinstance(target, nodes.term):
        definition = target.parent[-1]
        return _titled(target.astext(), definition.children)
    if isinstance(target, nodes.math_block):
        return [target]
    if isinstance(target, nodes.figure):
        return _figure(target)
    if "proof" in target["classes"]:
        title, *_, statement = target.children
        kind = target["realtype"].title()
        return _titled(f"{kind} {title.astext().strip()}", statement.children)
    return []


def _cut(panel: nodes.Element) -> None:
    """Take out of a panel what belongs to its own place: anchors, links, what is folded."""
    for node in list(panel.findall(nodes.Element)):
        node["ids"] = []
        if isinstance(node, _OF_ITS_PLACE) or "to-index" in node["classes"]:
            node.parent.remove(node)
        elif isinstance(node, nodes.math_block):
            node["number"] = None  # it is the anchor's; the reference itself says it
        elif isinstance(node, nodes.reference):
            node.replace_self(nodes.inline("", "", *node.children))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the panels; Sphinx calls this."""

    @cache
    def targets(page: str) -> dict[str, nodes.Element]:
        """Find what bears an id on a page."""
        return {
            id: node
            for node in app.env.get_doctree(page).findall(nodes.Element)
            if not isinstance(node, nodes.target | nodes.title)
            for id in node["ids"]
        }

    def panel(page: str, id: str) -> str:
        """Write as HTML, for the page that is being written, what stands at an id of `page`."""
        target = targets(page).get(id)
        shown = [] if target is None else _shown(target)
        if not shown:
            return ""
        document = new_document(page, target.document.settings)
        document += [node.deepcopy() for node in shown]
        document.settings.env = app.env
        app.env.apply_post_transforms(document, page)
        _cut(document)
        app.builder.post_process_images(document)
        box = nodes.container("", *document.children, classes=["hover"])
        return app.builder.render_partial(box)["fragment"]

    def attach(
        app: Sphinx, page: str, _: str, context: dict[str, Any], document: nodes.document | None
    ) -> None:
        """Put the panels of a page's references at the end of its body."""
        if app.builder.name != "html" or document is None:
            return
        panels: dict[str, str] = {}
        for link in document.findall(nodes.reference):
            uri = link.get("refuri") or f"#{link.get('refid', '')}"
            path, _, id = urljoin(f"{page}.html", uri).partition("#")
            other = path.removesuffix(".html")
            if id and uri not in panels and other in app.env.all_docs:
                # Of what is cited, bibtex writes the entry as the link's title.
                is_cited = "reftitle" in link and re.fullmatch(r"id\d+", id)
                panels[uri] = f"<p>{escape(link['reftitle'])}</p>" if is_cited else panel(other, id)
        context["body"] += "\n".join(
            f'<template data-hover="{escape(uri)}">{text}</template>'
            for uri, text in panels.items()
            if text
        )

    app.set_html_assets_policy("always")  # formulas in panels, and in titles in the side bar
    app.connect("html-page-context", attach, priority=400)  # before the page's figures are changed
    return {"parallel_read_safe": True, "parallel_write_safe": True}
