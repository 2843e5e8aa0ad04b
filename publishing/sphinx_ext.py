"""Sphinx extension of the book: links and sliders at figures, and what needs the book's address.

A button that leads nowhere is worse than none, so nothing is assumed: `publishing.address` finds
the address where it is known.
"""

import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from pybtex.plugin import find_plugin, register_plugin
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

from ntpnb_book import output
from publishing import archives, formulas, pages, project, versions
from publishing.address import find_repository, pages_url
from publishing.symbols import unicode_of

PROCESSES = 2
"""How many processes write pages, which do not depend on it."""

OFFERED = {"Data (CSV)": ".csv", "SVG": ".svg", "PDF": ".pdf", "all frames": "_frames.svg"}
"""What a caption calls a figure's files, and how their names end."""

_STATEMENT = re.compile(r"[tl]24-\w+")
"""Label of a block that quotes a statement: the statement's id, with a dash for its dot."""


def _use_address(config: Config, repository: str) -> None:
    """Fill in what a public address makes possible: buttons, sitemap, social card, 404 links."""
    address = pages_url(repository)
    config.html_baseurl = address
    config.ogp_site_url = address
    config.ogp_site_name = config.html_title
    config.html_extra_path = ["images/toy.png"]
    config.ogp_image = "toy.png"
    config.ogp_image_alt = "Arrows, one for each token, and the curves that approach them."
    config.ogp_social_cards = {"enable": False}
    config.sitemap_url_scheme = "{link}"
    config.notfound_urls_prefix = "/" + address.split("/", 3)[3]
    launch = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"}
    if repository.startswith("https://github.com/"):  # Colab reads from no other place
        launch["colab_url"] = "https://colab.research.google.com"
    config.html_theme_options |= {
        "repository_url": repository,
        "repository_branch": os.environ.get("GITHUB_REF_NAME", "main"),
        "path_to_docs": "book",
        "use_repository_button": True,
        "use_issues_button": True,
        "launch_buttons": launch,
    }


def slider(name: str, frames: Mapping[str, Any]) -> str:
    """Write the slider of a figure that moves; `book/_static/frames.js` shows it and reads it.

    Parameters
    ----------
    name : str
        The figure's name.
    frames : dict
        What `ntpnb_book.figures.save_frames` recorded.
    """
    return pages.fill("slider.html", name=name, frames=frames)


def to_code(caption: nodes.Element, name: str) -> nodes.reference:
    """Name the code of the cell that drew a figure, and write the link that leads to it.

    A browser unfolds what hides the target of a link; `book/_static/figures.js` does it where not.

    Parameters
    ----------
    caption : Element
        The figure's caption, in the output of a cell.
    name : str
        Id of the code.
    """
    cell = caption
    while "cell" not in cell["classes"]:
        cell = cell.parent
    cell[0]["ids"].append(name)
    return nodes.reference("", "code", refuri=f"#{name}", classes=["to-code"])


class FigureLinks(SphinxTransform):
    """Add to a caption that offers a figure's data its other files, its code and its slider.

    Offered is what is there: data and PDF come by ``make figures``.
    """

    default_priority = 250  # before Sphinx collects what a page lets one download

    def apply(self, **kwargs: Any) -> None:
        """Complete every caption of the page."""
        notebook = project.of_page(self.env.docname)
        if not notebook:
            return
        root = Path(self.env.srcdir).parent
        executed = project.read_executed(notebook, root)
        frames = {
            record["figure"]: record["frames"]
            for record in output.records(executed, "figure")
            if "frames" in record
        }
        for data in list(self.document.findall(addnodes.download_reference)):
            caption = data.parent
            figure, csv, _ = data["reftarget"].rpartition(".csv")
            if not csv:
                continue
            name = Path(figure).name
            for image in caption.parent.findall(nodes.image):
                image["uri"] = f"{figure}.svg"  # in place of the copy that the notebook holds
            if name in frames:
                control = nodes.raw("", slider(name, frames[name]), format="html")
                caption.parent.insert(caption.parent.index(caption), control)
            links: list[nodes.Node] = []
            for label, ending in OFFERED.items():
                if (root / f"figures/{name}{ending}").exists():
                    link = data.deepcopy()
                    link["reftarget"] = f"{figure}{ending}"
                    link.children = []
                    link += nodes.literal("", label, classes=["xref", "download"])
                    links += [link, nodes.Text(" · ")]
            caption.replace(data, [*links, to_code(caption, f"code-{name}")])


class StatementLinks(SphinxTransform):
    """Let a block that quotes a statement of the papers lead to its row of the index."""

    default_priority = 250  # before Sphinx resolves references

    def apply(self, **kwargs: Any) -> None:
        """Add the link to every such block of the page."""
        for block in list(self.document.findall(nodes.Element)):
            label = block.get("label", "")
            if "proof" not in block.get("classes", ()) or not _STATEMENT.fullmatch(label):
                continue
            link = addnodes.pending_xref(
                "",
                nodes.inline("", "in the statement index"),
                refdomain="std",
                reftype="ref",
                refexplicit=True,
                reftarget=f"index-{label}",
                refdoc=self.env.docname,
                refwarn=True,
            )
            content = block[-1]
            content += nodes.paragraph("", "", link, classes=["to-index"])


def on_paper(body: str) -> str:
    """Make the page that is printed to a PDF small, and its links lead into it.

    In code only comments keep their colour: each coloured word would cost two of the tags that
    screen readers need, together most of the PDF.

    Parameters
    ----------
    body : str
        The whole book as HTML.
    """
    body = body.replace('href="statements.html#', 'href="#')  # written by hand, in the maps
    body = re.sub(rf'<a href="{archives.FOLDER}/[^"]*">(.*?)</a>', r"\1", body)  # are not on paper
    return re.sub(r'<span class="(?!c)\w{1,2}">([^<]*)</span>', r"\1", body)


def foot(repository: str | None, context: dict[str, Any]) -> None:
    """Add to a page's foot the version, what changed, and, once published, what else there is."""
    links = {"What changed": context["pathto"]("changelog")}
    if repository is not None:
        links["Report an error"] = f"{repository}/issues"
        links["The book as a PDF"] = context["pathto"](archives.PDF, 1)
    text = f" {versions.named(metadata.version('ntpnb'))}"
    for words, target in links.items():
        text += f' <a href="{target}">{words}</a>.'
    context["theme_extra_footer"] += text


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Prepare a page that is written for its card, which begins as the text does, in letters alone.

    What a reader needs, and what a page of evidence belongs to, stand above the text.
    """
    if doctree is None:
        return
    for line in list(doctree.findall(nodes.paragraph)):
        if {"needs", "evidence-for"} & set(line["classes"]):
            line.parent.remove(line)
    for formula in doctree.findall(nodes.math):
        words = unicode_of(formula.astext())
        formula.clear()
        formula += nodes.Text(words)


def _write_in_parallel(app: Sphinx, _: object) -> None:
    """Share out the writing, for which jupyter-book has no option.

    The pages are read already: ``sphinx_multitoc_numbering`` does not say whether reading can be
    shared out.
    """
    app.parallel = PROCESSES


def _register_backends() -> None:
    """Let citations find their backends at once: each would search all installed packages."""
    for name in ("docutils", "plaintext"):
        backend = find_plugin("pybtex.backends", name)
        register_plugin("pybtex.backends", name, backend, force=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    _register_backends()
    repository = find_repository(Path(app.srcdir).parent, os.environ)

    def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
        # ARIA lists hold items only; docutils writes another role for references.
        body = context.get("body", "").replace('role="doc-biblioentry"', 'role="listitem"')
        is_paper = app.builder.name == "singlehtml"
        context["body"] = on_paper(body) if is_paper else formulas.with_room(body)
        foot(repository, context)

    if repository is not None:
        for extension in ("notfound.extension", "sphinx_sitemap", "sphinxext.opengraph"):
            app.setup_extension(extension)
        app.connect("html-page-context", describe, priority=400)  # before it makes the card
        app.connect("config-inited", lambda app, config: _use_address(config, repository))
    app.add_transform(FigureLinks)
    app.add_transform(StatementLinks)
    app.connect("html-page-context", complete)
    app.connect("env-updated", _write_in_parallel)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
