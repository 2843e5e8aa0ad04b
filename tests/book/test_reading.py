"""Minutes, the line at the head of a chapter, and routes, on pages of a known length."""

import pytest
from docutils import nodes
from small_site import build, parsed

from ntpnb_book.output import ROOT
from publishing import reading
from publishing.folding import Fold

TEMPLATES = [str(ROOT / "book" / "_templates")]

WORDS = "word " * 240  # two minutes

CHAPTER = f"""
# Five words

:::{{needs}}
The [opening](../index.md), and $x$.
:::

{WORDS}

(five-next)=
## Next

$$ x = 1 $$

{WORDS}
"""

INDEX = """
# A book

:::{needs}
:::

:::{route} nb/05_words:five-next nb/07_short
:::
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reading")
    pages = {"index": INDEX, "nb/05_words": CHAPTER, "nb/07_short": "# Short\n\nIt is.\n"}
    folder, warnings = build(folder, pages, "publishing.reading", templates_path=TEMPLATES)
    assert warnings == ""
    return folder


def test_a_chapter_says_what_it_needs_and_how_long_it_takes(site):
    line = parsed(site / "nb/05_words.html").select_one("p.needs")
    assert line.get_text(" ", strip=True).startswith("You need: The opening , and")
    assert line.get_text().endswith(" · 5 minutes")
    assert line.a["href"].endswith("index.html")


def test_a_page_that_needs_nothing_says_its_minutes(site):
    assert parsed(site / "index.html").select_one("p.needs").get_text() == "1 minute"


def test_a_route_lists_pages_or_their_openings_and_adds_up_what_it_shows(site):
    page = parsed(site / "index.html")
    stops = [
        stop.get_text(" ", strip=True).replace(" ,", ",") for stop in page.select("ul.route li")
    ]
    assert stops == ["5 Five words, its first part 2 minutes", "7 Short 1 minute"]
    assert page.select_one(".route-sum").get_text() == "Together 3 minutes."
    links = [link["href"] for link in page.select("ul.route a")]
    assert links == ["nb/05_words.html", "nb/07_short.html"]


def test_a_stop_leads_to_the_next_one(site):
    lines = [
        parsed(site / f"{page}.html").select_one("p.stop-of-evening")
        for page in ("index", "nb/05_words", "nb/07_short")
    ]
    assert lines[0] is None
    first = "One evening, 1 of 2: 2 minutes of this page · next: Short: 1 minute"
    assert " ".join(lines[1].get_text().split()) == first
    assert lines[1].a["href"] == "07_short.html"
    assert " ".join(lines[2].get_text().split()) == "One evening, 2 of 2: 1 minute of this page"


def test_where_the_route_leaves_a_page_it_says_where_it_goes_on(site):
    [line] = parsed(site / "nb/05_words.html").select("p.leaves")
    assert line.get_text() == (
        "The evening leaves this chapter here. It goes on with Short; what follows can wait."
    )
    assert line.a["href"] == "07_short.html"
    assert line.find_next_sibling("section")["id"] == "next"
    assert parsed(site / "nb/07_short.html").select("p.leaves") == []


@pytest.mark.parametrize("stop", ["nb/06_missing", "nb/05_words:no-label"])
def test_a_route_that_leads_nowhere_is_a_warning(stop, tmp_path):
    index = f"# A book\n\n:::{{route}} {stop}\n:::\n"
    pages = {"index": index, "nb/05_words": "# Five\n"}
    _, warnings = build(tmp_path, pages, "publishing.reading", templates_path=TEMPLATES)
    assert f"a route leads to {stop}" in warnings


def test_what_is_folded_takes_no_time():
    prose = nodes.paragraph("", WORDS)
    code = nodes.literal_block("", WORDS)
    folded = nodes.container("", nodes.paragraph("", WORDS), design_component="dropdown")
    hidden = nodes.container("", code.deepcopy(), nb_element="cell_code", classes=["cell"])
    shown = nodes.container("", code.deepcopy(), nb_element="cell_code", classes=["tag_idea"])
    claims = Fold("", nodes.paragraph("", WORDS), summary="3 claims measured")
    page = nodes.section("", prose, code, folded, hidden, shown, claims)
    assert reading.minutes(page)[""] == pytest.approx(2 + 0.5)


def test_a_figure_takes_time_and_its_caption_too():
    figure = nodes.figure("", nodes.image(), nodes.caption("", WORDS))
    output = nodes.container("", figure, nb_element="cell_code_output")
    assert reading.minutes(figure)[""] == reading.minutes(output)[""] == pytest.approx(2.5)
