"""Each browser check finds the fault it is there for, on a page that has nothing else wrong."""

import pytest
from built_site import served
from checks import Visitor, mouse_only, pale_letters

from ntpnb_book import figures, saving

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><style>:root { background: Canvas; }</style></head>
<body><main><h1>A page</h1><p>Nothing is wrong here.</p>%s</main></body></html>"""

# One pixel.
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"

FAULTS = {
    "image without alt text": f'<img src="{DOT}">',
    "image not loaded": '<img src="missing.png" alt="A figure that is not there">',
    "dark: image recoloured": f'<img src="{DOT}" alt="One pixel" class="dimmed"><style>'
    "@media (prefers-color-scheme: dark) {.dimmed {filter: brightness(0.8)}}</style>",
    "status 404": '<img src="missing.png" alt="A figure that is not there">',
    "console: unhappy": "<script>console.error('unhappy')</script>",
    "exception": "<script>throw new Error('unhappy')</script>",
    "light: scrolls sideways": '<div style="width: 1300px">wide</div>',
    "dark: scrolls sideways: 4": '<div style="width: 400px">wide</div>',
    # Of formulas of a kind axe looks at the first; this is the second.
    "light: scrolls sideways: 1": "<p><mjx-container>x</mjx-container><p><mjx-container>"
    "<span style='display: inline-block; width: 1300px'>x</span></mjx-container>",
    "request to another host": '<script src="https://example.org/script.js"></script>',
    "MathJax did not start": r'<span class="math">\(x\)</span>',
    "not typeset": "<script>MathJax = {startup: {promise: 1}}</script><span class='math'>x</span>",
    "TeX error": "<mjx-merror>Undefined control sequence</mjx-merror>",
    "raw TeX": r"<p>Here \(x\) stayed as it was.</p>",
    "dark: the page behind": "<style>:root { background: #fff; color: #000; }</style>",
    "light: axe color-contrast": '<p style="color: #aaa; background: #fff">pale words</p>',
    # Of texts of a kind only the first is measured; these are of another kind than the text above.
    "axe color-contrast (serious): <i": "<i>dark</i> <i style='color: #999'>pale</i>",
    "axe color-contrast (serious): <b": "<b>dark</b> <p style='background: #888'><b>dark</b></p>"
    "<style>b { color: #444; }</style>",
    "light: axe color-contrast (serious): <s": "<s>dark</s><style>@media (min-width: 600px) "
    "and (prefers-color-scheme: light) { s { color: #aaa; } }</style>",
    "axe color-contrast (serious): <td": "<table><tr><td>dark<tr><td>pale</table>"
    "<style>tr:nth-child(2) { opacity: 0.4; }</style>",
}


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with served(folder) as address:
        visitor = Visitor(browser, address)

        def visit(body):
            (folder / "page.html").write_text(PAGE % body, encoding="utf-8")
            return visitor.visit("page.html")

        yield visit


def test_a_sound_page_passes(visit):
    assert visit("") == []


@pytest.mark.parametrize("complaint", FAULTS)
def test_fault_is_found(complaint, visit):
    assert any(complaint in found for found in visit(FAULTS[complaint]))


LETTERS = {
    "on [252. 252. 250.]: 2.2": {"color": "#aaaaaa"},
    "on [252. 252. 250.]: 3.9": {"color": "black", "alpha": 0.5},
    "on [  0.   0. 128.]: 1.3": {"color": "black", "backgroundcolor": "navy"},
    "the page behind shows through": {},
}


@pytest.mark.parametrize("complaint", [None, *LETTERS])
def test_pale_letters_are_found(complaint, lend, tmp_path, book_style):
    fig = figures.plt.figure(facecolor="none" if LETTERS.get(complaint) == {} else None)
    _ = fig.text(0.2, 0.5, "Word $x_2$", size=20, **LETTERS.get(complaint, {}))
    path = tmp_path / "figure.svg"
    path.write_bytes(saving.render(fig, "svg"))
    figures.plt.close(fig)
    tab = lend(path.as_uri(), viewport={"width": 720, "height": 510})
    tab.goto(path.as_uri())
    found = pale_letters(tab)
    assert (complaint is None) == (not found)
    assert complaint is None or any(complaint in one for one in found), found


CONTROLS = {
    '<a href="#top">A link</a> <button>A button</button> <details><summary>More</summary></details>'
    '<button disabled>No button</button> <a href="#top" hidden>No link</a>': 0,
    '<a href="#top" tabindex="-1">A link</a>': 1,
    '<button tabindex="-1">A button</button>': 1,
    '<span onclick="alert()">Press me</span>': 1,
    '<div style="cursor: pointer">Press <b>me</b></div>': 2,
}


@pytest.mark.parametrize("controls", CONTROLS)
def test_what_needs_a_mouse_is_found(controls, lend):
    tab = lend("about:blank")
    tab.set_content(PAGE % controls)
    found = mouse_only(tab)
    assert len(found) == CONTROLS[controls], found
