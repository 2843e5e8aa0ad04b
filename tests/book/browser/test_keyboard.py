"""Whatever a mouse can do on a page, the keyboard can: on a page of each kind, on either screen."""

import pytest
from checks import RENDERED, VIEWS, mouse_only

PAGES = ["index.html", "nb/01_toy.html", "scoreboard.html", "search.html?q=entropy"]


@pytest.mark.parametrize(("mode", "width"), VIEWS)
@pytest.mark.parametrize("page", PAGES)
def test_tab_reaches_every_control(page, mode, width, visitor):
    tab = visitor.open(page, mode, width)
    tab.evaluate(RENDERED)
    if page.startswith("search"):  # results come one after the other
        tab.wait_for_function("/ found /.test(document.querySelector('.search-summary').innerText)")
    for host in tab.locator(".beside :is(.explore-words, .explore-attention)").all():
        host.scroll_into_view_if_needed()  # built when it is near: not in the middle of the walk
        host.locator(".explore").wait_for()
    tab.evaluate("scrollTo(0, 0)")
    assert mouse_only(tab) == []


def press(tab, control, key="Enter"):
    tab.locator(control).locator("visible=true").first.focus()
    tab.keyboard.press(key)


def test_enter_does_what_a_click_does(visitor):
    tab = visitor.open("nb/01_toy.html", "light", 1280)
    tab.evaluate(RENDERED)
    seen = set()
    for _ in range(3):
        press(tab, ".theme-switch-button")
        seen.add(tab.evaluate("document.documentElement.dataset.mode"))
    assert seen == {"light", "dark", "auto"}

    press(tab, ".search-button__button")
    tab.keyboard.type("entropy")
    assert tab.evaluate("document.activeElement.value") == "entropy"
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog[open]").count()

    for kind in ("details.fold.code", "details.fold.checked", "details.sd-dropdown"):
        folded = tab.locator(f"{kind}:not([open])").count()
        assert folded
        press(tab, f"{kind}:not([open]) > summary")
        assert tab.locator(f"{kind}:not([open])").count() == folded - 1

    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    press(tab, ".tag_idea button.copybtn")
    tab.wait_for_selector("button.copybtn.success")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("def contrast(j, z, v):")
    shown = tab.locator(".highlight:has(button.copybtn.success) pre").inner_text()
    assert copied.strip() == shown.strip()

    with tab.expect_download() as download:
        press(tab, "figcaption a[href$='.svg']")
    assert download.value.suggested_filename == "toy.svg"
