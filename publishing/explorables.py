"""What can be explored: links to its examples, and its scripts.

An explorable is a container ``explore-NAME``, filled by the script ``explore/NAME.js`` with a table
of named examples. It has the page ``explore_NAME.html``, and may stand in a chapter besides: there
a link sets its state in place. What all of them need lies beside their scripts, and is loaded on
the pages that hold one and on no others.
"""

import functools
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import ReferenceRole

try:
    import minify
except ModuleNotFoundError:  # where it cannot be installed; see pyproject.toml
    minify = None

EXPLORED = ("words", "attention")
SCRIPTS = Path("_static", "explore")

logger = logging.getLogger(__name__)


@functools.cache  # a build is a process, and the scripts do not change while it runs
def presets(page: str, source: Path) -> tuple[str, ...]:
    """Read the names of a page's examples from its script, where they are defined.

    Parameters
    ----------
    page : str
        One of `EXPLORED`.
    source : Path
        The book's folder, with ``_static`` in it.

    Returns
    -------
    tuple of str
        The keys of ``const PRESETS = {...}``, one a line, in their order.
    """
    script = (source / SCRIPTS / f"{page}.js").read_text(encoding="utf-8")
    table = script.partition("const PRESETS = {\n")[2].partition("};\n")[0]
    return tuple(re.findall(r"^ *(\w+): \{ name: ", table, re.MULTILINE))


class Explore(ReferenceRole):
    """A link to an example: ``{explore}`drag it yourself <words:toy>` ``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write a reference to be resolved page by page, or warn that there is no such example."""
        words = nodes.inline("", self.title)
        known = [
            f"{page}:{preset}"
            for page in EXPLORED
            for preset in presets(page, Path(self.env.srcdir))
        ]
        if self.has_explicit_title and self.target in known:
            target = {"refdomain": "", "reftype": "explore", "reftarget": self.target}
            return [addnodes.pending_xref("", words, refdoc=self.env.docname, **target)], []
        message = "explore: `text <PAGE:PRESET>` is needed, not %r; there are %s"
        logger.warning(message, self.text, ", ".join(known), location=self.get_location())
        return [words], []


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, words: nodes.TextElement
) -> nodes.Node | None:
    """Make a link of it where every page has its own address; on paper the words alone remain."""
    if node["reftype"] != "explore":
        return None
    if app.builder.format != "html" or app.builder.name == "singlehtml":
        return words
    page, _, preset = node["reftarget"].partition(":")
    link = nodes.reference("", "", words, refuri=f"#preset-{preset}", internal=True)
    containers = node.document.findall(nodes.container)
    if any(f"explore-{page}" in container["classes"] for container in containers):
        link["classes"] = ["explore-here"]
    else:
        address = app.builder.get_relative_uri(node["refdoc"], f"explore_{page}")
        link["refuri"] = address + link["refuri"]
    return link


def _only_where_explored(
    app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any
) -> None:
    """Load the scripts of the pages that can be explored on those pages alone.

    Jupyter Book asks every page for every script and style sheet below ``_static``.
    """
    body = context.get("body", "")
    others = [name for name in EXPLORED if f'class="explore-{name}' not in body]
    left_out = [f"explore/{name}.js" for name in others]
    if len(others) == len(EXPLORED):
        left_out = ["explore/"]
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file
            for file in context.get(kind, [])
            if not any(part in str(file.filename) for part in left_out)
        ]


def shrink(source: Path, built: Path) -> None:
    """Write the scripts short: without comments, and with short names for what is local.

    Parameters
    ----------
    source, built : Path
        The folders of the scripts as they are written, and as pages load them.
    """
    for script in sorted(source.glob("*.js")):
        short = minify.string("application/javascript", script.read_text(encoding="utf-8"))
        notice = f"// Shortened; to be read in book/_static/explore/{script.name}\n"
        (built / script.name).write_text(f"{notice}{short}\n", encoding="utf-8")


def _shrink_scripts(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html" and minify is not None:
        shrink(Path(app.srcdir) / SCRIPTS, Path(app.outdir) / SCRIPTS)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    app.add_role("explore", Explore())
    app.connect("missing-reference", _resolve)
    app.connect("html-page-context", _only_where_explored)
    app.connect("build-finished", _shrink_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
