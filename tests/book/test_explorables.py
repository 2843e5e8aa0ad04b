"""Links to the examples of the pages that can be explored, and the scripts as they are shipped."""

import re
import shutil

import pytest
import small_site
from built_site import SITE, soup

from ntpnb_book.output import ROOT
from publishing import explorables

BOOK = ROOT / "book"
SCRIPTS = BOOK / explorables.SCRIPTS
MOST = 60_000  # bytes of all scripts together

PAGES = {
    "index": "# Index\n\n```{toctree}\n:glob:\n\n*\nnb/*\nnb/evidence/*\n```\n",
    "explore_words": "# Words\n\n{explore}`another <words:tie>`\n",
    "explore_attention": "# Attention\n",
    "nb/chapter": "# Chapter\n\nThe toy: {explore}`drag it yourself <words:toy>`.\n",
    "nb/evidence/proof": "# Proof\n\nA cycle: {explore}`train it <attention:cycle>`.\n",
}


@pytest.fixture
def build(tmp_path):
    """Build a book of these pages; yields the folder and what the build warned of."""
    shutil.copytree(SCRIPTS, tmp_path / "book" / explorables.SCRIPTS)

    def run(builder, **pages):
        settings = {"builder": builder, "html_static_path": ["_static"]}
        return small_site.build(tmp_path, PAGES | pages, "publishing.explorables", **settings)

    return run


def test_a_link_leads_from_any_folder_to_the_page_with_its_example(build):
    out, warnings = build("html")
    assert warnings == ""
    found = {}
    for page in ("explore_words", "nb/chapter", "nb/evidence/proof"):
        (link,) = soup(out / f"{page}.html").select('a[href*="#preset-"]')
        found[page] = (link.get_text(), link["href"])
    assert found == {
        "explore_words": ("another", "#preset-tie"),
        "nb/chapter": ("drag it yourself", "../explore_words.html#preset-toy"),
        "nb/evidence/proof": (
            "train it",
            "../../explore_attention.html#preset-cycle",
        ),
    }


@pytest.mark.parametrize("builder", ["singlehtml", "text", "latex"])
def test_on_paper_a_link_is_its_words(builder, build):
    out, warnings = build(builder)
    assert warnings == ""
    ending = {"singlehtml": "index.html", "text": "*.txt", "latex": "*.tex"}[builder]
    written = "".join(path.read_text("utf-8") for path in out.rglob(ending))
    assert "drag it yourself" in written
    assert "preset-" not in written


@pytest.mark.parametrize(
    ("role", "word"),
    [
        ("{explore}`drag it <words:toys>`", "there are words:toy, words:single, words:tie"),
        ("{explore}`drag it <words>`", "`text <PAGE:PRESET>` is needed, not 'drag it <words>'"),
        (
            "{explore}`drag it <sentences:toy>`",
            "is needed, not 'drag it <sentences:toy>'; there are words:toy",
        ),
        ("{explore}`words:toy`", "`text <PAGE:PRESET>` is needed"),
    ],
)
def test_an_unknown_example_is_a_warning(role, word, build):
    _, warnings = build("html", explore_attention=f"# Attention\n\n{role}\n")
    assert word in warnings
    assert re.search(r"explore_attention\.md:\d+: WARNING: explore:", warnings)
    assert warnings.count("WARNING") == 1


def test_scripts_name_their_examples():
    """Their whole list is compared in a browser, with what the pages offer."""
    words, attention = (explorables.presets(page, BOOK) for page in explorables.EXPLORED)
    assert (len(words), words[0], words[-1]) == (9, "toy", "optimizers")
    assert (len(attention), attention[0], attention[-1]) == (6, "acyclic", "inseparable")


@pytest.fixture
def shortened(tmp_path):
    """The scripts as the build shortens them; on a machine without what does it, it leaves them."""
    pytest.importorskip("minify")
    explorables.shrink(SCRIPTS, tmp_path)
    return sorted(tmp_path.iterdir())


def test_all_scripts_together_are_small(shortened):
    sizes = {path.name: path.stat().st_size for path in shortened}
    assert set(sizes) == {path.name for path in SCRIPTS.glob("*.js")}
    assert sum(sizes.values()) < MOST, sizes


def test_the_site_holds_the_scripts_as_they_are_shortened(shortened):
    for short in shortened:
        text = short.read_text("utf-8")
        assert (ROOT / text.splitlines()[0].split()[-1]).samefile(SCRIPTS / short.name)
        assert (SITE / explorables.SCRIPTS / short.name).read_text("utf-8") == text
