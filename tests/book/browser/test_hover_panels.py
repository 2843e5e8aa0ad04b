"""Panels of references: by pointer, keyboard and touch, on a server and from a file."""

import pytest
from built_site import SITE

TERM = 'a.internal[href="notation.html#term-finite-part"]'

# Width, colours, and where the book is.
READERS = [(1280, "light", "server"), (390, "dark", "file")]


@pytest.fixture(params=READERS)
def tab(request, address, lend):
    width, scheme, place = request.param
    site = address if place == "server" else f"{SITE.as_uri()}/"
    screen = {"width": width, "height": 900}
    tab = lend(site, viewport=screen, color_scheme=scheme, has_touch=width < 600)
    tab.goto(f"{site}summary.html")
    tab.evaluate("MathJax.startup.promise")
    return tab


@pytest.fixture
def panel(tab):
    return tab.locator(".hover-panel")


def test_pointing_at_a_term_shows_its_definition_until_the_pointer_leaves_both(tab, panel):
    assert panel.is_hidden()
    tab.locator(TERM).hover()
    panel.locator("mjx-container").first.wait_for()
    assert "minimizes the cross-entropy" in panel.inner_text()
    box, width = panel.bounding_box(), tab.viewport_size["width"]
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    panel.hover()
    tab.wait_for_timeout(400)
    assert panel.is_visible()
    tab.mouse.move(1, 1)
    panel.wait_for(state="hidden")


def test_the_keyboard_opens_and_closes_it_and_readers_of_the_screen_are_told(tab, panel):
    link = tab.locator(TERM)
    tab.keyboard.press("Tab")  # the focus is then known to come from the keyboard
    link.focus()
    panel.wait_for()
    assert link.get_attribute("aria-describedby") == panel.get_attribute("id")
    assert panel.get_attribute("role") == "tooltip"
    tab.keyboard.press("Escape")
    assert panel.is_hidden()
    assert link.get_attribute("aria-describedby") is None


@pytest.mark.parametrize("tab", READERS[1:], indirect=True)
def test_a_touch_shows_it_and_a_second_one_follows_the_link(tab, panel):
    tab.locator(TERM).tap()
    panel.wait_for()
    assert tab.url.endswith("summary.html")
    tab.locator(TERM).tap()
    tab.wait_for_url("**/notation.html#term-finite-part")
