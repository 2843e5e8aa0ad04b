"""The explorables inside chapters: every sentence that sets one does so, by any means."""

import pytest
from explored import ATTENTION, WORDS, middle, places, settle, unit

CHAPTERS = (
    WORDS._replace(page="nb/01_toy.html", examples=("inseparable", "toy")),
    WORDS._replace(page="nb/05_gradient_descent.html", first="moved", examples=("toy", "moved")),
    ATTENTION._replace(
        page="nb/08_token_priority.html", first="acyclic", examples=("cycle", "acyclic", "fig2")
    ),
    ATTENTION._replace(
        page="nb/12_automaton.html", first="automaton", examples=("automaton", "silent")
    ),
)
HERE = 'a[href^="#preset-"]'
MEANS = ("mouse", "keyboard", "touch")


@pytest.fixture(params=CHAPTERS, ids=lambda chapter: chapter.page)
def explorable(request):
    return request.param


def follow(tab, link, means):
    """Open what hides the link, and follow it."""
    link.evaluate("link => link.closest('details')?.setAttribute('open', '')")
    link.scroll_into_view_if_needed()
    if means == "mouse":
        link.click()
    elif means == "touch":
        link.tap()
    else:
        link.focus()
        tab.keyboard.press("Enter")


@pytest.mark.parametrize("means", MEANS)
def test_every_sentence_sets_the_explorable_beside_it(explorable, means, opened, address):
    options = {"has_touch": True, "is_mobile": True, "width": 390} if means == "touch" else {}
    tab = opened(address, **options)
    assert tab.locator(".preset").input_value() == explorable.first
    links = tab.locator(HERE)
    asked = [link.get_attribute("href").removeprefix("#preset-") for link in links.all()]
    assert set(asked) == set(explorable.examples)
    for link, example in zip(links.all(), asked, strict=True):
        follow(tab, link, means)
        tab.wait_for_function(
            "example => document.querySelector('.explore .preset').value === example", arg=example
        )
        assert tab.locator(".explore .note").is_hidden()
        assert tab.locator(".explore svg.main").is_visible()


def test_points_are_dragged_in_a_chapter_too(explorable, opened, address):
    tab = opened(address)
    tab.locator(".explore svg.main").scroll_into_view_if_needed()
    (x, y), size = middle(tab, explorable.dragged[0]), unit(tab)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 0.2 * size, y, steps=4)
    tab.mouse.up()
    settle(tab)
    assert len(places(tab, explorable.places)) >= 3
    assert tab.locator(".preset").input_value() == ""


def test_odds_are_asked_for_where_the_text_says_so(opened, address, explorable):
    sliders = opened(address).locator(".explore .sliders input")
    wanted = "05_gradient" in explorable.page
    assert any(slider.is_visible() for slider in sliders.all()) == wanted


def test_a_verdict_is_in_words_and_its_numbers_behind_a_door(opened, address, explorable):
    if explorable.script != "words":
        pytest.skip("one of the two is enough")
    tab = opened(address, "#preset-inseparable")
    verdict = tab.locator(".verdicts dd").first
    assert " wants " in verdict.inner_text()
    assert "cannot" in verdict.inner_text()
    door = verdict.locator("details")
    assert "sum to zero" not in verdict.inner_text()
    door.locator("summary").click()
    assert "sum to zero" in verdict.inner_text()


def test_what_comes_does_not_push_the_text(explorable, opened, address):
    """Its room is kept before the script runs: layout shift stays under .05."""
    tab = opened(address)
    shift = tab.evaluate(
        """() => new Promise((done) => {
          let sum = 0;
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
          }).observe({ type: "layout-shift", buffered: true });
          setTimeout(() => done(sum), 500);
        })"""
    )
    assert shift < 0.05
