"""What the book's search finds: words of the text, not of code, and the page that teaches first."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

SCORER = Path(__file__).with_name("search_scorer.js")
_CODE = (nodes.literal_block, nodes.doctest_block, nodes.raw)


def without_code(document: nodes.document) -> nodes.document:
    """Copy a page without its cells of code and what they print; figures' captions stay."""
    copy = document.deepcopy()
    for block in list(copy.findall(lambda node: isinstance(node, _CODE))):
        block.parent.remove(block)
    return copy


def _index_words_only(app: Sphinx) -> None:
    """Let the builder index pages without their code."""
    builder = app.builder
    if builder.name != "html":
        return
    index_page = builder.index_page

    def index_words(page: str, document: nodes.document, title: str) -> None:
        index_page(page, without_code(document), title)

    builder.index_page = index_words


def _use_scorer(app: Sphinx, config: Config) -> None:
    config.html_search_scorer = str(SCORER)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both; `publishing.sphinx_ext` calls this."""
    app.connect("config-inited", _use_scorer)
    app.connect("builder-inited", _index_words_only)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
