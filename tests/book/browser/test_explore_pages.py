"""What all pages that can be explored have: time, addresses, views, and a still picture."""

from itertools import pairwise, product

import numpy as np
import pytest
from built_site import SITE
from checks import VIEWS, pale_letters
from explored import ATTENTION, WORDS, frames, middle, places, settle, unit

PAGES = (WORDS, ATTENTION)


@pytest.fixture(params=PAGES, ids=lambda page: page.script)
def explorable(request):
    return request.param


# -- fingers and time -----------------------------------------------------------------------------


def test_a_finger_drags_a_point(explorable, opened, address):
    handle, far, end = explorable.dragged
    tab = opened(address, width=390, has_touch=True, is_mobile=True)
    (x, y), size = middle(tab, handle), unit(tab)
    touch = tab.context.new_cdp_session(tab)
    for kind, share in [("Start", 0), ("Move", 0.3), ("Move", 0.7), ("Move", 1), ("End", 1)]:
        points = [] if kind == "End" else [{"x": x + far * share * size, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    assert places(tab, explorable.places)[int(handle[1])] == pytest.approx(end, abs=2)


@pytest.mark.parametrize("explorable", PAGES[:1])  # one script moves time on all of them
def test_training_runs_through_time(tab):
    tab.locator(".play").click()
    tab.wait_for_timeout(1000)
    between = float(tab.locator(".when").input_value())
    tab.wait_for_function("document.querySelector('.when').value === '12'")
    assert 0 < between < 12


@pytest.mark.slow
def test_a_frame_of_dragging_fits_sixty_in_a_second(explorable, tab):
    # The clock runs while other programs have the processor; a tenth of the frames have it alone.
    assert np.quantile(frames(tab, f"{explorable.places}1"), 0.1) < 1000 / 60


# -- the address ----------------------------------------------------------------------------------


def test_an_address_shows_the_same_again(explorable, opened, site):
    tabs = [opened(site, explorable.own) for _ in range(2)]
    shown = [tab.locator(".panes").inner_html() for tab in tabs]
    assert shown[0] == shown[1]
    tabs[0].bring_to_front()
    settle(tabs[0])
    assert tabs[0].url.endswith(explorable.own)
    assert "step = 3.2·10⁷" in tabs[0].locator(".reading").inner_text()


# A page opens what its address names by the same function that follows a changed address.
FOLLOW = """(fragment) => new Promise((done) => {
  addEventListener("hashchange", () => done(), { once: true });
  location.hash = fragment;
})"""


def test_an_address_opens_an_example(explorable, opened, address):
    first, *others = explorable.examples
    tab = opened(address, f"#preset-{others[0]}")
    for before, example in pairwise([first, *others, first]):
        if example != others[0]:
            tab.evaluate(FOLLOW, f"#preset-{example}")
        assert tab.locator(".explore .note").is_hidden()
        assert tab.locator(".preset").input_value() == example
        shown = tab.locator(".panes").inner_html()
        tab.select_option(".preset", before)
        assert tab.locator(".panes").inner_html() != shown
        tab.select_option(".preset", example)
        assert tab.locator(".panes").inner_html() == shown


def test_a_link_on_the_page_changes_the_example(explorable, tab):
    other = explorable.examples[2]
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.evaluate(f"location.hash = 'preset-{other}'")
    tab.wait_for_function(f"document.querySelector('.preset').value === '{other}'")
    settle(tab)
    assert tab.url.endswith(f"#preset-{other}")  # the state is named, until something is moved
    tab.wait_for_function(  # the page glides there
        "() => { const box = document.querySelector('svg.main').getBoundingClientRect();"
        " return box.top >= 0 && box.bottom <= 1000; }"
    )
    tab.locator(f"[data-handle={explorable.places}0]").press("ArrowDown")
    assert len(places(tab, explorable.places)) > 1
    tab.locator(".reset").click()
    assert tab.locator(".preset").input_value() == other


def test_a_bad_address_is_ignored_with_a_word(explorable, opened, address):
    first = next(iter(explorable.bad))
    tab = opened(address, first)
    note = tab.locator(".explore .note")
    for fragment, word in explorable.bad.items():
        if fragment != first:
            tab.evaluate(FOLLOW, fragment)
        assert note.is_visible(), fragment
        assert word in note.inner_text()
        assert tab.locator(".preset").input_value() == explorable.first


def test_a_heading_in_the_address_is_no_state(explorable, opened, address):
    tab = opened(address, "#five-questions")
    assert not tab.locator(".explore .note").is_visible()
    assert tab.locator(".preset").input_value() == explorable.first
    values = tab.locator(".preset option").evaluate_all("all => all.map(one => one.value)")
    assert tuple(values) == ("", *explorable.examples)  # so that all of them are tried


def test_nothing_is_not_a_number(explorable, tab):
    for state, settings in product(explorable.degenerate, explorable.settings):
        tab.evaluate(FOLLOW, f"#{state}&{settings}")
        assert tab.locator(".explore .note").is_hidden()
        assert tab.locator(".preset").input_value() == ""  # no example: it is what was asked for
        assert tab.locator(".verdicts b").count() == 2
        for part in (".panes", ".handles", ".reading"):
            assert "NaN" not in tab.locator(part).inner_html()
            assert "Infinity" not in tab.locator(part).inner_html()


# -- views, and without a script ------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "width"), VIEWS)
def test_letters_stand_out_and_nothing_leaves_the_screen(mode, width, explorable, opened, address):
    tab = opened(address, explorable.full, width=width, color_scheme=mode)
    tab.set_viewport_size({"width": width, "height": 3000})
    tab.evaluate("document.body.replaceChildren(document.querySelector('.explore'))")
    for preset in ["", *explorable.examples]:
        if preset:
            tab.select_option(".preset", preset)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("svg.main").bounding_box()["width"] > 300
        assert pale_letters(tab) == [], preset
        tab.evaluate("document.querySelectorAll('svg *').forEach(one => one.style.visibility = '')")


def test_without_a_script_and_on_paper_there_is_a_still_picture(explorable, lend, opened, site):
    picture = f".explore-{explorable.script} img:visible"
    still = lend(site, java_script_enabled=False)
    still.goto(site + explorable.page)
    assert still.locator(picture).bounding_box()["height"] > 100
    assert not still.locator(".explore").count()
    tab = opened(site)
    assert not tab.locator(picture).is_visible()
    tab.emulate_media(media="print")
    tab.locator(picture).wait_for(state="visible")  # it is loaded once it is needed
    assert not tab.locator(".explore").is_visible()


def test_the_scripts_are_loaded_where_they_are_used():
    own = {page.page: page.script for page in PAGES}
    asked = {
        (page, script): f"explore/{script}.js" in (SITE / page).read_text("utf-8")
        for page in (*own, "changelog.html")
        for script in ("mathematics", "explorable", *own.values())
    }
    wanted = {(page, s) for page in own for s in ("mathematics", "explorable", own[page])}
    assert {one for one, is_there in asked.items() if is_there} == wanted
