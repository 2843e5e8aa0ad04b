"""What pages fold away: code by default, and what `check` measured, on one line a section."""

import os
import subprocess
import sys

import nbformat
import pytest
import tiny_project
from built_site import SITE, soup
from nbformat import v4

from publishing import folding, project

CLAIMS = """
- {id: t24.fig1.sum, evidence: property, where: "Fig. 1", statement: "The sum is $6.$",
   expect: {equals: true}}
"""


def measured(line):
    """An output as `check` leaves it."""
    return v4.new_output("display_data", data={"text/plain": line})


def code(source, *lines, tags=()):
    """A cell with what `check` printed in it."""
    cell = v4.new_code_cell(source, execution_count=1, outputs=[measured(line) for line in lines])
    cell.metadata["tags"] = list(tags)
    return cell


CELLS = [
    v4.new_markdown_cell("# Tiny\n\n[there](#claim-t24-fig1-sum)"),
    code("# draw the valley.\nplot()", "✓ t24.fig1.sum   = True", "a result"),
    code("total = 1"),
    v4.new_markdown_cell("Words.\n\n(second)=\n## Second\n\nWords."),
    code("W = W - step * gradient", "✓ my.own   ≤ 1e-06", tags=["idea"]),
    v4.new_markdown_cell("Words in between."),
    code("# Compare", "✗ my.second   expected ≤ 1, measured 2", "? my.third   not listed"),
    v4.new_markdown_cell("### Third\n\nNothing."),
]
CONF = """
extensions = ["myst_nb", "publishing.folding", "publishing.evidence"]
nb_execution_mode = "off"
root_doc = "nb/01_tiny"
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Build a page of these cells with a builder of Sphinx; give the text of its file."""
    root = tmp_path_factory.mktemp("folding")
    notebook = v4.new_notebook(cells=CELLS)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    path = project.executed("01_tiny", root)
    tiny_project.write(path, nbformat.writes(notebook))
    tiny_project.write(root / "book/claims/01_tiny.yml", CLAIMS)
    tiny_project.write(root / "book/conf.py", CONF)

    def built(builder, file):
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", builder]
        places = [str(root / "book"), str(root / builder)]
        subprocess.run([*command, *places], check=True, env=os.environ)
        return root / builder / file

    return built


@pytest.fixture(scope="module")
def page(build):
    return soup(build("html", "nb/01_tiny.html"))


def said(page, kind):
    """What the summaries of the folds of one kind say."""
    return [fold.summary.text for fold in page.select(f"details.fold.{kind}")]


def test_code_is_folded_unless_it_is_the_idea(page):
    assert said(page, "code") == ["Draw the valley", "Code", "Compare"]
    [open_cell] = page.select("div.cell.tag_idea")
    assert open_cell.find_parent("details") is None
    assert "gradient" in open_cell.select_one(".cell_input").text


def test_results_that_are_no_checks_stay_where_they_are(page):
    [result] = page.select(".cell_output")
    assert result.text.strip() == "a result"
    assert result.find_parent("details") is None


def test_checks_stand_at_the_end_of_their_section_on_one_line(page):
    assert said(page, "checked") == [
        "1 claim measured, as expected",
        "3 claims measured, 2 not as expected",
    ]
    first, second = page.select("details.fold.checked")
    assert [first.has_attr("open"), second.has_attr("open")] == [False, True]
    assert first.find_parent("section")["id"] == "tiny"
    assert first.find_next_sibling("section")["id"] == "second"
    assert second.find_next_sibling("section")["id"] == "third"
    assert second.find_previous_sibling("div").text.strip().startswith("Compare")


def test_a_check_says_what_was_claimed_and_can_be_linked_to(page):
    first, *others = page.select("ul.checked > li")
    assert first["id"] == folding.anchor("t24.fig1.sum")
    assert [first.code.text, first.select_one(".math").text] == ["t24.fig1.sum", r"\(6.\)"]
    assert "True" not in first.text
    assert first.select_one("p.basis").text == "property"
    assert [item.p.text[0] for item in others] == ["✓", "✗", "?"]
    assert "expected ≤ 1, measured 2" in others[1].text


def test_a_claim_s_basis_is_its_kind_its_expectation_and_the_print():
    claimed = {"id": "t24.a", "evidence": "printed", "printed": {"text": "at W^mm"}}
    expect = {"at_most": 1, "because": "it is so"}
    words = folding._basis({**claimed, "expect": expect})
    assert words == r"printed; expected ≤ 1; printed: at $W^{\mathrm{mm}}$"


def test_on_paper_folded_code_is_left_out_and_what_was_measured_is_not(build):
    page = soup(build("singlehtml", "nb/01_tiny.html"))
    assert said(page, "code") == []
    assert "plot()" not in page.text
    assert "W - step * gradient" in page.text
    assert len(page.select("ul.checked > li")) == 4


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("# draw the valley", "Draw the valley"),
        ("#: five lines.\nx = 1", ": five lines"),
        ("x = 1  # one", "Code"),
        ("#!/bin/sh", "Code"),
        ("\n", "Code"),
    ],
)
def test_words_of_a_fold(source, words):
    assert folding.words(source) == words


def test_no_page_of_the_book_shows_a_check_outside_of_its_line():
    for name in project.names():
        page = soup(SITE / f"nb/{name}.html")
        assert page.select("details.hide.above-input") == []
        for output in page.select(".cell_output .text_plain"):
            assert folding._CHECKED.fullmatch(output.text.strip()) is None, name


def test_chapters_are_numbered_and_their_figures_by_chapter():
    for name in project.names():
        page = soup(SITE / f"nb/{name}.html")
        chapter = name[:2].lstrip("0") if name in project.chapters() else ""
        if not chapter:
            chapter = f"E{project.evidence_pages().index(name) + 1}"
            assert page.select_one("section > h1").select(".section-number") == []
        else:
            assert page.select_one("section > h1 > .section-number").text.strip() == chapter
        numbers = [number.text.split()[1] for number in page.select("figure .caption-number")]
        assert numbers == [f"{chapter}.{k}" for k in range(1, len(numbers) + 1)]
        assert page.select(":is(h2, h3) .section-number") == []
