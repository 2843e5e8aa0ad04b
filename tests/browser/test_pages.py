"""Every page of the built book in a real browser: light on a desktop, dark on a phone."""

import pytest
from checks import SITE

# Where nothing is built there is still one test, whose fixture says what to do.
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")) or ["index.html"]


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("_static/")])
def test_page(page, visitor):
    assert visitor.visit(page) == []


@pytest.mark.parametrize("word", ["entropy", "NTP-SVM"])
def test_search_finds_a_word(word, visitor):
    tab = visitor.open(f"search.html?q={word}", "light", 1280)
    tab.wait_for_selector("ul.search li a")


def test_figures_keep_their_colours_in_dark_mode(visitor):
    tab = visitor.open("index.html", "dark", 1280)
    style = "getComputedStyle(document.querySelector('article figure img')).filter"
    assert tab.evaluate(style) == "none"
