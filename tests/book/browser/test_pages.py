"""Every page of the built book in a real browser: light on a desktop, dark on a phone."""

import re

import pytest
from built_site import SITE
from checks import RENDERED, VIEWS, accessibility, pale_letters

from ntpnb_book.output import ROOT

# Where nothing is built there is still one test, whose fixture says what to do.
FOUND = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")) or ["index.html"]
PAGES = [page for page in FOUND if not page.startswith("_static/")]


@pytest.mark.parametrize("page", PAGES)
def test_page(page, visitor):
    assert visitor.visit(page) == []


@pytest.mark.stress
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("mode", "width"), VIEWS)
def test_what_is_not_looked_at_is_sound_as_well(page, mode, width, visitor):
    """`test_page` looks at one text of each kind, for speed; this test looks at all of them."""
    tab = visitor.open(page, mode, width)
    assert tab.evaluate(RENDERED) == []
    assert accessibility(tab, everything=True) == []


# An opaque card; on dark pages a filter exchanges light and dark, which test_figure_views measures.
FIGURES = [*sorted((ROOT / "figures").glob("*.svg")), ROOT / "book/images/scaling.svg"]


@pytest.fixture(scope="module")
def drawing(tabs):
    """A tab for one drawing after the other."""
    with tabs.lend(ROOT.as_uri()) as tab:
        yield tab


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_letters_in_a_figure_stand_out(path, drawing):
    tab = drawing
    tab.bring_to_front()
    tab.goto(path.as_uri())
    side = "document.documentElement.getBoundingClientRect()"
    size = {name: int(tab.evaluate(f"{side}.{name}")) for name in ("width", "height")}
    tab.set_viewport_size(size)
    assert pale_letters(tab) == []


@pytest.mark.parametrize(("mode", "width"), VIEWS)
def test_letters_in_the_diagram_stand_out(mode, width, visitor):
    tab = visitor.open("index.html", mode, width)
    tab.evaluate("document.body.replaceChildren(document.querySelector('svg.diagram'))")
    assert pale_letters(tab) == []


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_hurried_print_two_sheets(paper, visitor):
    tab = visitor.open("summary.html", "light", 1280)
    assert tab.evaluate(RENDERED) == []
    printed = tab.pdf(format=paper, margin=dict.fromkeys(("top", "right", "bottom", "left"), "1cm"))
    assert len(re.findall(rb"/Type /Page\b", printed)) == 2
