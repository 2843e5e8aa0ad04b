"""Sphinx extension of the book: links and sliders at figures, and what needs the book's address.

A button that leads nowhere is worse than none, so nothing is assumed: the address comes from the
build's environment, from the package's metadata or from the checkout, in this order.
"""

import json
import os
import re
import subprocess
from html import escape
from importlib import metadata
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from ntpnb.notebook import output
from ntpnb.notebook.claims import statements
from publishing import project

HOSTED = re.compile(r"(?:https://|git@|ssh://git@)(github\.com|gitlab\.com)[:/](.+?)(?:\.git)?/?")


def repository_url(environ, declared, remote):
    """Return the public https address of the repository, or None where it is not known.

    Parameters
    ----------
    environ : mapping of str to str
        The environment; a GitHub Actions run sets ``GITHUB_REPOSITORY`` to ``owner/name``.
    declared : list of str
        The package's ``Project-URL`` metadata, each ``label, address``.
    remote : str
        What ``git remote get-url origin`` prints, or the empty string.
    """
    candidates = []
    if environ.get("GITHUB_REPOSITORY"):
        candidates.append(f"https://github.com/{environ['GITHUB_REPOSITORY']}")
    candidates += [address.partition(",")[2].strip() for address in declared]
    candidates.append(remote.strip())
    for match in map(HOSTED.fullmatch, candidates):
        if match:
            return f"https://{match[1]}/{match[2]}"
    return None


def _repository(folder):
    git = ["git", "-C", str(folder), "remote", "get-url", "origin"]
    try:
        remote = subprocess.run(git, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # an unpacked archive on a machine without git
        remote = ""
    declared = metadata.metadata("ntpnb").get_all("Project-URL") or []
    return repository_url(os.environ, declared, remote)


def pages_url(repository):
    """Return the address at which GitHub or GitLab publishes a repository's pages."""
    host, owner, name = re.fullmatch(r"https://(\w+)\.com/(.+)/([^/]+)", repository).groups()
    return f"https://{owner.lower().replace('/', '.')}.{host}.io/{name}/"


def _use_address(app, config, repository):
    """Fill in what a public address makes possible: buttons, sitemap, social card, 404 links."""
    config.html_baseurl = config.ogp_site_url = address = pages_url(repository)
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


def slider(name, frames):
    """Write the slider of a figure that moves; `book/_static/frames.js` shows it and reads it.

    Parameters
    ----------
    name : str
        The figure's name.
    frames : dict
        What `ntpnb.notebook.figures.save_frames` recorded.
    """
    texts, start = frames["texts"], frames["start"]
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

    def apply(self):
        """Complete every caption of the page."""
        notebook = Path(self.env.docname).name
        drawn = project.read_executed(notebook, Path(self.env.srcdir).parent)
        frames = {
            record["figure"]: record["frames"]
            for record in output.records(drawn, "figure")
            if "frames" in record
        }
        for data in list(self.document.findall(addnodes.download_reference)):
            figure, csv, _ = data["reftarget"].rpartition(".csv")
            if not csv or not isinstance(data.parent, nodes.caption):
                continue
            links = [("SVG", f"{figure}.svg"), ("PDF", f"{figure}.pdf")]
            links += [("code", f"../../notebooks/{notebook}.md")]
            caption, name = data.parent, Path(figure).name
            if name in frames:
                links += [("all frames", f"{figure}_frames.svg")]
                control = nodes.raw("", slider(name, frames[name]), format="html")
                caption.parent.insert(caption.parent.index(caption), control)
            place = caption.index(data) + 1
            for label, target in reversed(links):
                link = data.deepcopy()
                link["reftarget"], link.children = target, []
                link += nodes.literal("", label, classes=["xref", "download"])
                caption.insert(place, [nodes.Text(" · "), link])


class StatementLinks(SphinxTransform):
    """Let a block that quotes a statement of the papers lead to its row of the index."""

    default_priority = 250  # before Sphinx resolves references

    def apply(self):
        """Add the link to every such block of the page."""
        known = {id.replace(".", "-") for id in statements(Path(self.env.srcdir).parent)}
        for block in list(self.document.findall(nodes.Element)):
            if "proof" in block.get("classes", ()) and (label := block.get("label")) in known:
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
                block[-1] += nodes.paragraph("", "", link, classes=["to-index"])


# Accessibility slips of the tools beneath: what they write, what it should be.
REPAIRS = {
    'role="doc-biblioentry"': 'role="listitem"',  # ARIA lists hold items only (docutils)
    ' aria-label="Toggle hidden content"': "",  # contradicts the words shown (myst-nb)
}


def _repair(app, pagename, templatename, context, doctree):
    for written, meant in REPAIRS.items() if "body" in context else ():
        context["body"] = context["body"].replace(written, meant)


def on_paper(body):
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

    def sharp(figure):
        names = re.findall(r'/(\w+)\.(?:png|svg)"', figure[0])  # the picture's, the links'
        file = next((vectors[name] for name in names if name in vectors), None)
        return re.sub(r'src="[^"]+\.png"', f'src="{file}"', figure[0]) if file else figure[0]

    body = re.sub(r"<figure.*?</figure>", sharp, body, flags=re.DOTALL)
    return re.sub(r'<span class="(?!c)\w{1,2}">([^<]*)</span>', r"\1", body)


def _paper(app, pagename, templatename, context, doctree):
    if app.builder.name == "singlehtml" and "body" in context:
        context["body"] = on_paper(context["body"])


def foot(repository, context):
    """Add to a page's foot the version, what changed, and where to report an error."""
    links = {"What changed": context["pathto"]("changelog")}
    if repository is not None:
        links["Report an error"] = f"{repository}/issues"
    context["theme_extra_footer"] += f" Version {metadata.version('ntpnb')}." + "".join(
        f' <a href="{target}">{text}</a>.' for text, target in links.items()
    )


def setup(app):
    """Register the extension; Sphinx calls this."""
    repository = _repository(app.srcdir)
    app.setup_extension("notfound.extension")
    if repository is not None:
        app.setup_extension("sphinx_sitemap")
        app.setup_extension("sphinxext.opengraph")
        app.connect("config-inited", lambda app, config: _use_address(app, config, repository))
    app.add_transform(FigureLinks)
    app.add_transform(StatementLinks)
    app.connect("html-page-context", _repair)
    app.connect("html-page-context", _paper)
    app.connect("html-page-context", lambda *page: foot(repository, page[3]))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
