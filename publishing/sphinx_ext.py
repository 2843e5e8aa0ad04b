"""Sphinx extension of the book: links and sliders at figures, and what needs the book's address.

A button that leads nowhere is worse than none, so nothing is assumed: the address comes from the
build's environment, from the package's metadata or from the checkout, in this order.
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

from ntpnb.notebook import output
from ntpnb.notebook.claims import statements
from publishing import project

HOSTED = re.compile(r"(?:https://|git@|ssh://git@)(github\.com|gitlab\.com)[:/](.+?)(?:\.git)?/?")


def repository_url(environ: Mapping[str, str], declared: Sequence[str], remote: str) -> str | None:
    """Return the public https address of the repository, or None where it is not known.

    Parameters
    ----------
    environ : mapping of str to str
        The environment; a GitHub Actions run sets ``GITHUB_REPOSITORY`` to ``owner/name``.
    declared : sequence of str
        The package's ``Project-URL`` metadata, each ``label, address``.
    remote : str
        What ``git remote get-url origin`` prints, or the empty string.
    """
    candidates = []
    if environ.get("GITHUB_REPOSITORY"):
        candidates.append(f"https://github.com/{environ['GITHUB_REPOSITORY']}")
    for line in declared:
        _, _, address = line.partition(",")
        candidates.append(address.strip())
    candidates.append(remote.strip())
    for candidate in candidates:
        match = HOSTED.fullmatch(candidate)
        if match:
            return f"https://{match[1]}/{match[2]}"
    return None


def ask_git(root: Path, *arguments: str) -> str:
    """Return what git prints about the checkout at `root`; empty where that is not a checkout.

    An archive may be unpacked inside another project's checkout, which is no answer for it.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    try:
        top = git("rev-parse", "--show-toplevel").strip()
        own = top != "" and Path(top).resolve() == Path(root).resolve()
        return git(*arguments) if own else ""
    except FileNotFoundError:  # an unpacked archive on a machine without git
        return ""


def find_repository(root: Path, environ: Mapping[str, str]) -> str | None:
    """Find the address of the project at `root`, as `repository_url` gives it."""
    workspace = environ.get("GITHUB_WORKSPACE")
    if workspace and Path(workspace).resolve() != Path(root).resolve():
        environ = {}  # the workflow is another project's, which only builds this one
    declared = metadata.metadata("ntpnb").get_all("Project-URL") or []
    return repository_url(environ, declared, ask_git(root, "remote", "get-url", "origin"))


def pages_url(repository: str) -> str:
    """Return the address at which GitHub or GitLab publishes a repository's pages."""
    match = re.fullmatch(r"https://(\w+)\.com/(.+)/([^/]+)", repository)
    if match is None:
        raise ValueError(
            f"{repository}: an address such as https://github.com/owner/name is needed"
        )
    host, owner, name = match.groups()
    return f"https://{owner.lower().replace('/', '.')}.{host}.io/{name}/"


def _use_address(config: Config, repository: str) -> None:
    """Fill in what a public address makes possible: buttons, sitemap, social card, 404 links."""
    address = pages_url(repository)
    config.html_baseurl = address
    config.ogp_site_url = address
    config.sitemap_url_scheme = "{link}"
    config.ogp_site_name = config.html_title
    config.ogp_image = "_images/toy.png"
    config.ogp_image_alt = "Arrows, one for each token, and the curves that approach them."
    config.ogp_social_cards = {"enable": False}
    config.notfound_urls_prefix = "/" + address.split("/", 3)[3]
    config.html_theme_options |= {
        "repository_url": repository,
        "repository_branch": os.environ.get("GITHUB_REF_NAME", "main"),
        "path_to_docs": "book",
        "use_repository_button": True,
        "use_issues_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        },
    }


def slider(name: str, frames: Mapping[str, Any]) -> str:
    """Write the slider of a figure that moves; `book/_static/frames.js` shows it and reads it.

    Parameters
    ----------
    name : str
        The figure's name.
    frames : dict
        What `ntpnb.notebook.figures.save_frames` recorded.
    """
    texts = frames["texts"]
    start = frames["start"]
    return f"""
<div class="frames" data-texts="{escape(json.dumps(texts, ensure_ascii=False))}" hidden>
<label for="frames-{name}">{escape(frames["control"])}</label>
<input type="range" id="frames-{name}" min="0" max="{len(texts) - 1}" value="{start}"
 autocomplete="off" aria-valuetext="{escape(texts[start])}">
<output for="frames-{name}" aria-live="off">{escape(texts[start])}</output>
</div>
"""


class FigureLinks(SphinxTransform):
    """Add to a caption that offers a figure's data its other files, its notebook and its slider."""

    default_priority = 250  # before Sphinx collects what a page lets one download

    def apply(self, **kwargs: Any) -> None:
        """Complete every caption of the page."""
        notebook = Path(self.env.docname).name
        executed = project.read_executed(notebook, Path(self.env.srcdir).parent)
        frames = {
            record["figure"]: record["frames"]
            for record in output.records(executed, "figure")
            if "frames" in record
        }
        for data in list(self.document.findall(addnodes.download_reference)):
            caption = data.parent
            figure, csv, _ = data["reftarget"].rpartition(".csv")
            if not csv or not isinstance(caption, nodes.caption):
                continue
            files = [
                ("SVG", f"{figure}.svg"),
                ("PDF", f"{figure}.pdf"),
                ("code", f"../../notebooks/{notebook}.md"),
            ]
            name = Path(figure).name
            if name in frames:
                files.append(("all frames", f"{figure}_frames.svg"))
                control = nodes.raw("", slider(name, frames[name]), format="html")
                place = caption.parent.index(caption)
                caption.parent.insert(place, control)
            added: list[nodes.Node] = []
            for label, target in files:
                link = data.deepcopy()
                link["reftarget"] = target
                link.children = []
                link += nodes.literal("", label, classes=["xref", "download"])
                added += [nodes.Text(" · "), link]
            caption.insert(caption.index(data) + 1, added)


@functools.cache  # a build is a process, and the file does not change while it runs
def _statement_labels(root: Path) -> frozenset[str]:
    """Read the labels that blocks quoting a statement of the papers have."""
    return frozenset(name.replace(".", "-") for name in statements(root))


class StatementLinks(SphinxTransform):
    """Let a block that quotes a statement of the papers lead to its row of the index."""

    default_priority = 250  # before Sphinx resolves references

    def apply(self, **kwargs: Any) -> None:
        """Add the link to every such block of the page."""
        known = _statement_labels(Path(self.env.srcdir).parent)
        for block in list(self.document.findall(nodes.Element)):
            label = block.get("label")
            if "proof" not in block.get("classes", ()) or label not in known:
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


# Accessibility slips of the tools beneath: what they write, what it should be.
REPAIRS = {
    'role="doc-biblioentry"': 'role="listitem"',  # ARIA lists hold items only (docutils)
    ' aria-label="Toggle hidden content"': "",  # contradicts the words shown (myst-nb)
}


def _repair(context: dict[str, Any]) -> None:
    """Mend these slips in a page that is about to be written."""
    if "body" in context:
        for written, meant in REPAIRS.items():
            context["body"] = context["body"].replace(written, meant)


# Pages with something to explore have a container `explore-NAME` and a script `explore/NAME.js`.
EXPLORED = ("words", "attention")


def _only_where_explored(context: dict[str, Any]) -> None:
    """Load the scripts of the pages that can be explored on those pages alone.

    Jupyter Book asks every page for every script and style sheet below ``_static``.
    """
    body = context.get("body", "")
    own = [name for name in EXPLORED if f'class="explore-{name}' in body]
    others = [name for name in EXPLORED if name not in own]

    def wanted(file: str) -> bool:
        if "explore/" not in file:
            return True
        return bool(own) and Path(file).name not in [f"{name}.js" for name in others]

    for kind in ("script_files", "css_files"):
        files = context.get(kind, [])
        context[kind] = [file for file in files if wanted(str(file.filename))]


def on_paper(body: str) -> str:
    """Make the page that is printed to a PDF sharp and small.

    Figures are the vector files that captions offer. In code only comments keep their colour: each
    coloured word would cost two of the tags that screen readers need, together most of the PDF.

    Parameters
    ----------
    body : str
        The whole book as HTML.
    """
    files = re.findall(r'href="([^"]+(?<!_frames)\.svg)"', body)
    vectors = {Path(file).stem: file for file in files}

    def sharp(figure: re.Match[str]) -> str:
        shown = figure[0]
        names = re.findall(r'/(\w+)\.(?:png|svg)"', shown)  # the picture's, the links'
        file = next((vectors[name] for name in names if name in vectors), None)
        if file is None:
            return shown
        return re.sub(r'src="[^"]+\.png"', f'src="{file}"', shown)

    body = re.sub(r"<figure.*?</figure>", sharp, body, flags=re.DOTALL)
    body = body.replace('href="statements.html#', 'href="#')  # written by hand, in the maps
    return re.sub(r'<span class="(?!c)\w{1,2}">([^<]*)</span>', r"\1", body)


def foot(repository: str | None, context: dict[str, Any]) -> None:
    """Add to a page's foot the version, what changed, and where to report an error."""
    links = {"What changed": context["pathto"]("changelog")}
    if repository is not None:
        links["Report an error"] = f"{repository}/issues"
    text = f" Version {metadata.version('ntpnb')}."
    for words, target in links.items():
        text += f' <a href="{target}">{words}</a>.'
    context["theme_extra_footer"] += text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    repository = find_repository(Path(app.srcdir).parent, os.environ)

    def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
        _repair(context)
        _only_where_explored(context)
        if app.builder.name == "singlehtml" and "body" in context:
            context["body"] = on_paper(context["body"])
        foot(repository, context)

    app.setup_extension("notfound.extension")
    if repository is not None:
        app.setup_extension("sphinx_sitemap")
        app.setup_extension("sphinxext.opengraph")
        app.connect("config-inited", lambda app, config: _use_address(config, repository))
    app.add_transform(FigureLinks)
    app.add_transform(StatementLinks)
    app.connect("html-page-context", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
