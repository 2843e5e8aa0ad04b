"""What the book's search finds: words of the text, not of code, and the page that teaches first."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

SCORER = Path(__file__).with_name("search_scorer.js")
_CODE = (nodes.literal_block, nodes.doctest_block, nodes.raw)


def _index_words_only(app: Sphinx) -> None:
    """Let the builder index pages without their code; captions stay."""
    builder = app.builder
    if builder.name != "html":
        return
    index_page = builder.index_page

    def index_words(page: str, document: nodes.document, title: str) -> None:
        words = document.deepcopy()
        for block in list(words.findall(lambda node: isinstance(node, _CODE))):
            block.parent.remove(block)
        index_page(page, words, title)

    builder.index_page = index_words


def _use_scorer(app: Sphinx, config: Config) -> None:
    config.html_search_scorer = str(SCORER)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both; `publishing.sphinx_ext` calls this."""
    app.connect("config-inited", _use_scorer)
    app.connect("builder-inited", _index_words_only)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
