"""Pages of evidence: what they prove, how their figures count, what is next.

A chapter teaches; the page of evidence that it leads to measures. Such a page begins with

    :::{evidence-for} 05_gradient_descent gd-why gd-rate
    :::

which names a chapter and the labels of its sections, and becomes links to them.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from publishing import project


class EvidenceFor(SphinxDirective):
    """Say which sections of a chapter a page of evidence belongs to, with links."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Write "Evidence for Chapter 5: *title of the section*."."""
        chapter, *sections = " ".join(self.arguments).split()
        number = chapter.partition("_")[0].lstrip("0")
        text = f"Evidence for {{doc}}`Chapter {number} </nb/{chapter}>`"
        if sections:
            text += ": " + "; ".join(f"*{{ref}}`{section}`*" for section in sections)
        shown, messages = self.parse_inline(f"{text}.")
        return [nodes.paragraph("", "", *shown, classes=["evidence-for"]), *messages]


def number_figures(app: Sphinx, _: Builder | BuildEnvironment) -> None:
    """Number figures, tables and equations of the k-th page of evidence Ek.1, Ek.2 and so on.

    Chapters have numbers of their own, which a counted page could be mistaken for. By now Sphinx
    has kept its own numbers, with which it will compare those that it counts next time.
    """
    for number, name in enumerate(project.evidence_pages(Path(app.srcdir).parent), 1):
        for kinds in app.env.toc_fignumbers.get(f"nb/{name}", {}).values():
            for place, id in enumerate(kinds, 1):
                found: Any = (f"E{number}", place)  # Sphinx joins the parts with dots
                kinds[id] = found


def lead_on(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Let Previous and Next of a chapter lead to chapters, past the pages below them."""
    relations = app.builder.relations

    def stands_below(name: str) -> bool:
        return relations[name][0] not in (None, app.config.root_doc)

    if page not in relations or stands_below(page):
        return
    for key, place in (("prev", 1), ("next", 2)):
        found = relations[page][place]
        while found and stands_below(found):
            found = relations[found][place]
        context[key] = found and {
            "link": app.builder.get_relative_uri(page, found),
            "title": app.builder.render_partial(app.env.titles[found])["title"],
        }


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, the numbers and what is next; Sphinx calls this."""
    app.add_directive("evidence-for", EvidenceFor)
    app.connect("write-started", number_figures)
    app.connect("env-check-consistency", number_figures)  # one page of all starts no writing
    app.connect("html-page-context", lead_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
