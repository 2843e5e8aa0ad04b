"""Every page of the built book in a real browser, light and dark, on a desktop and on a phone."""

import pytest
from checks import SITE

# Where nothing is built there is still one test, whose fixture says what to do.
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")) or ["index.html"]
PAGES = [page for page in PAGES if not page.startswith("_static/")]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_page(page, mode, request):
    assert request.getfixturevalue(mode).visit(page) == []


def test_search_finds_a_word(light):
    light.page.goto(light.address + "search.html?q=entropy")
    light.page.wait_for_selector("ul.search li a")


def test_figures_keep_their_colours_in_dark_mode(dark):
    dark.page.goto(dark.address + "index.html")
    style = "getComputedStyle(document.querySelector('article figure img')).filter"
    assert dark.page.evaluate(style) == "none"
