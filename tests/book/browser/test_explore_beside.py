"""Explorables inside chapters: every sentence sets the state, and nothing moves the text."""

import pytest
from checks import RENDERED

CHAPTERS = ("01_toy", "05_gradient_descent", "08_token_priority", "12_automaton")
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
SENTENCES = ".beside a.explore-here"
# All layout shifts that no input excuses: more than a page's score, which takes the worst moment.
SHIFTS = """() => {
  window.shifts = 0;
  new PerformanceObserver((seen) => {
    for (const one of seen.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
  }).observe({ type: "layout-shift", buffered: true });
}"""
SHOWN = "document.querySelector('.beside .explore .preset')?.value"


def press(tab, link, hand):
    """Follow a sentence's link by mouse, by keyboard or with a finger."""
    link.scroll_into_view_if_needed()
    if hand == "mouse":
        link.click()
    elif hand == "keyboard":
        link.focus()
        tab.keyboard.press("Enter")
    else:
        link.tap()


def sets_the_state(tab, hand):
    """Follow every sentence; yield each once what it says is shown."""
    links = tab.locator(SENTENCES).all()
    assert 2 <= len(links) <= 4
    page = tab.url.partition("#")[0]
    for link in links:
        preset = link.get_attribute("href").partition("#preset-")[2]
        press(tab, link, hand)
        tab.wait_for_function(f"{SHOWN} === '{preset}'", timeout=10_000)
        assert tab.url.partition("#")[0] == page
        yield link


@pytest.fixture
def chapter(lend, address):
    """Open a chapter and scroll to what can be explored, which is built meanwhile."""

    def open_chapter(name, viewport, **settings):
        tab = lend(address, viewport=viewport, **settings)
        tab.goto(f"{address}nb/{name}.html")
        tab.evaluate(RENDERED)
        assert tab.locator(".beside .explore").count() == 0  # not before it is near
        tab.evaluate(SHIFTS)
        tab.evaluate("window.shifts = 0")
        far = "document.querySelector('.beside').getBoundingClientRect().top"
        for _ in range(60):
            if tab.evaluate(far) < 0:
                break
            tab.mouse.wheel(0, 400)
            tab.wait_for_timeout(40)
        tab.wait_for_selector(".beside .live svg.main", state="attached")
        tab.wait_for_timeout(200)
        assert tab.evaluate("window.shifts") < 0.05
        return tab

    return open_chapter


@pytest.mark.parametrize("name", CHAPTERS)
def test_on_a_wide_screen_it_stays_beside_each_sentence_that_sets_its_state(name, chapter):
    tab = chapter(name, WIDE)
    for link in sets_the_state(tab, "mouse"):
        plane, sentence = tab.locator(".beside svg.main").bounding_box(), link.bounding_box()
        assert plane["x"] > sentence["x"] + sentence["width"]
        assert plane["y"] < WIDE["height"]
        assert plane["y"] + plane["height"] > 0
    for _ in sets_the_state(tab, "keyboard"):
        pass


@pytest.mark.parametrize("name", CHAPTERS)
def test_on_a_phone_it_stands_in_the_flow_and_follows_a_finger(name, chapter):
    tab = chapter(name, PHONE, has_touch=True, is_mobile=True)
    assert tab.locator(".beside svg.main").bounding_box()["width"] <= PHONE["width"]
    place = "getComputedStyle(document.querySelector('.beside > .container')).position"
    assert tab.evaluate(place) == "static"
    for _ in sets_the_state(tab, "touch"):
        pass
