"""Figures that move: by keyboard, from a file as well as from a server, and without a script."""

from itertools import cycle

import pytest
from built_site import SITE

PAGES = [
    path.relative_to(SITE).as_posix()
    for path in sorted(SITE.rglob("*.html"))
    if 'class="frames"' in path.read_text(encoding="utf-8")
] or ["nb/01_toy.html"]

SHOWN = "image => image.decode().then(() => image.currentSrc)"

FOCUSED = "slider => slider === document.activeElement"


# Each page once, in turn from a server and from a file.
EVERY_PAGE = pytest.mark.parametrize(
    ("page", "site"), [*zip(PAGES, cycle(["server", "file"]))], indirect=["site"]
)


@EVERY_PAGE
def test_arrow_keys_move_the_picture(page, lend, site):
    tab = lend(site)
    tab.goto(site + page)
    figures = tab.locator("figure:has(.frames)").all()
    assert figures
    for figure in figures:
        control = figure.locator(".frames")
        image, output = figure.locator("img:visible"), control.locator("output")
        image.scroll_into_view_if_needed()  # until then it is not loaded, and never decoded
        name = image.get_attribute("data-strip").split("/")[-1].removesuffix("_frames.svg")
        slider = control.get_by_role("slider", name=control.locator("label").inner_text())
        still, words, number = image.bounding_box(), output.inner_text(), slider.input_value()
        assert image.evaluate(SHOWN).endswith(f"{name}.svg")

        # Back from the caption's first link, past its formulas, the Tab key finds the slider.
        figure.locator("figcaption a").first.focus()
        for _ in range(10):
            tab.keyboard.press("Shift+Tab")
            if slider.evaluate(FOCUSED):
                break
        assert slider.evaluate(FOCUSED)

        seen = []
        for key in ("ArrowRight", "ArrowLeft", "Home", "End"):
            tab.keyboard.press(key)
            assert image.evaluate(SHOWN).endswith("_frames.svg")
            assert slider.get_attribute("aria-valuetext") == output.inner_text()
            seen.append((slider.input_value(), output.inner_text(), image.screenshot()))
        assert all(len(set(column)) == 4 for column in zip(*seen, strict=True))
        assert seen[1][:2] == (number, words)
        assert (seen[2][0], seen[3][0]) == (
            slider.get_attribute("min"),
            slider.get_attribute("max"),
        )

        moved = image.bounding_box()
        assert moved["width"] == pytest.approx(still["width"], abs=1)
        assert moved["height"] == pytest.approx(still["height"], abs=1)
    tab.emulate_media(media="print")
    assert not any(figure.locator(".frames").is_visible() for figure in figures)


@EVERY_PAGE
def test_without_a_script_the_figure_is_there_and_no_dead_slider(page, lend, site):
    tab = lend(site, java_script_enabled=False)
    tab.goto(site + page)
    figures = tab.locator("figure:has(.frames)").all()
    assert figures
    for figure in figures:
        assert not figure.locator(".frames").is_visible()
        assert figure.locator("img:visible").bounding_box()["height"] > 100
        assert figure.locator('a[href$="_frames.svg"]').is_visible()
