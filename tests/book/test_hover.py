"""What is put into a page for the panels of its references."""

import pytest
from small_site import build, parsed

PIXEL = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="2" height="2"/></svg>'

WORDS = """
# Words

:::{glossary}
margin
  By how much $z$ wins, as {eq}`eq-score` says; see {term}`norm`.

norm
  The length:
  $$ n = 1 $$ (eq-norm)
:::

$$ s = w h $$ (eq-score)

:::{figure} dot.svg
:name: fig-dot
:alt: A dot.

A dot. {download}`Data <words.md>` and more.
:::
"""

CHAPTER = """
# Chapter

The {term}`margin` of {eq}`eq-score` and {ref}`fig-dot`, in {doc}`../words`.
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hover")
    (folder / "book").mkdir()
    (folder / "book" / "dot.svg").write_text(PIXEL, encoding="utf-8")
    pages = {"index": "# Book\n\nNothing.\n", "words": WORDS, "nb/chapter": CHAPTER}
    site, warnings = build(folder, pages, "sphinx.ext.mathjax", "publishing.hover")
    assert warnings == ""
    return site


def panels(page):
    return {panel["data-hover"]: panel for panel in parsed(page).select("template")}


def test_a_page_carries_what_its_references_lead_to_once_each(site):
    found = panels(site / "nb" / "chapter.html")
    assert list(found) == [
        "../words.html#term-margin",
        "../words.html#equation-eq-score",
        "../words.html#fig-dot",
    ]
    links = {link["href"] for link in parsed(site / "nb" / "chapter.html").select("a.reference")}
    assert set(found) <= links


def test_a_panel_has_words_and_formulas_but_no_links_or_anchors(site):
    margin, formula, figure = panels(site / "nb" / "chapter.html").values()
    text = " ".join(margin.get_text(" ", strip=True).split())
    assert text.startswith("margin By how much")
    assert "s = w h" in formula.get_text()
    assert not formula.select(".eqno")
    assert figure.img["alt"] == "A dot."
    assert (site / "nb" / figure.img["src"]).resolve().exists()
    assert figure.get_text(" ", strip=True) == "A dot."
    for panel in (margin, formula, figure):
        assert not panel.select("a, [id]")


def test_every_page_loads_what_typesets_formulas(site):
    def scripts(name):
        return " ".join(tag.get("src", "") for tag in parsed(site / name).select("script"))

    # The first page has none, but titles in the side bar and panels may have.
    assert "mathjax" in scripts("nb/chapter.html").lower()
    assert "mathjax" in scripts("index.html").lower()
