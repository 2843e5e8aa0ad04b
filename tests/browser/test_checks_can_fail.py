"""Each browser check finds the fault it is there for, on a page that has nothing else wrong."""

import pytest
from checks import Visitor, served

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><script>
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
</script></head>
<body><main><h1>A page</h1><p>Nothing is wrong here.</p>%s</main></body></html>"""

# One pixel.
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"

FAULTS = {
    "image without alt text": f'<img src="{DOT}">',
    "image not loaded": '<img src="missing.png" alt="A figure that is not there">',
    "status 404": '<img src="missing.png" alt="A figure that is not there">',
    "console: unhappy": "<script>console.error('unhappy')</script>",
    "exception": "<script>throw new Error('unhappy')</script>",
    "light: scrolls sideways": '<div style="width: 700px">wide</div>',
    "request to another host": '<script src="https://example.org/script.js"></script>',
    "MathJax did not start": r'<span class="math">\(x\)</span>',
    "not typeset": "<script>MathJax = {startup: {promise: 1}}</script><span class='math'>x</span>",
    "TeX error": "<mjx-merror>Undefined control sequence</mjx-merror>",
    "raw TeX": r"<p>Here \(x\) stayed as it was.</p>",
    "dark: the theme is light": "<script>document.documentElement.dataset.theme = 'light'</script>",
    "light: axe color-contrast": '<p style="color: #aaa; background: #fff">pale words</p>',
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
