"""The ledger: comparisons, outcomes, claims files, `check`, and a ledger that must close."""

import hashlib
import json
import math
import re

import accepted
import lint
import numpy as np
import pytest
import tiny_project
from small_site import build, parsed

from ntpnb_book import claims, comparisons, ledger, output
from publishing import collect, pages, project, symbols

NEAR = {"near": 2.0, "within": 0.5}
PRINTED = {"printed": {"text": "2", **NEAR}}
MEASURED = {"id": "t24.fig1.sum", "value": 12.0}
GOOD = {
    "id": "t24.fig1.sum",
    "evidence": "prediction",
    "where": "Fig. 1",
    "statement": "A sum.",
    "expect": {"at_most": 3, "because": "ours"},
}


@pytest.fixture
def root(tmp_path):
    """A tiny book that is not executed."""
    return tiny_project.make(tmp_path)


@pytest.mark.parametrize(
    ("compare", "inside", "outside"),
    [
        (NEAR, [1.5, 2, 2.5], [1.4, 2.6]),
        ({"at_most": 1}, [1, 0.5], [1.1]),
        ({"at_least": 1}, [1, 1.5], [0.9]),
        ({"below": 1}, [0.9], [1]),
        ({"above": 1}, [1.1], [1]),
        ({"between": [1, 2]}, [1, 1.5, 2], [0.9, 2.1]),
        ({"equals": True}, [True], [False, 1, 1.0, "True"]),
        ({"equals": 5}, [5], [4, 5.0, "5"]),
        ({"equals": "active set"}, ["active set"], ["", True]),
    ],
)
def test_comparisons(compare, inside, outside):
    assert all(comparisons.met(compare, value) for value in inside)
    assert not any(comparisons.met(compare, value) for value in outside)


@pytest.mark.parametrize("compare", [NEAR, {"at_least": 0}, {"at_most": 0}, {"between": [0, 9]}])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "2", {"not_finite": "inf"}])
def test_only_finite_numbers_meet_a_numerical_comparison(compare, value):
    assert not comparisons.met(compare, value)


@pytest.mark.parametrize(
    ("extra", "value", "expected"),
    [
        ({}, 1, "holds"),
        ({"printed": {"text": "two"}}, 1, "holds"),
        (PRINTED, 2, "reproduced"),
        (PRINTED, 3, "does not reproduce"),
        (
            {**PRINTED, "change": "a smaller step"},
            2,
            "reproduced with a stated change",
        ),
        ({"id": "erratum.t24-x", **PRINTED}, 3, "wrong as printed"),
        ({"id": "erratum.t24-x", "printed": {"text": "so"}}, 3, "a gap in the argument"),
        ({"evidence": "by construction"}, 1, "holds by construction"),
        (
            {"evidence": "by construction", **PRINTED, "change": "ours"},
            2,
            "holds by construction",
        ),
        (
            {"evidence": "by construction", **PRINTED},
            3,
            "does not reproduce",
        ),
        (
            {**PRINTED, "authors": {"value": 3.5}},
            3,
            "the text departs from file and run",
        ),
        (
            {**PRINTED, "authors": {"value": 2}},
            3,
            "does not reproduce",
        ),
        ({**PRINTED, "authors": {"value": 3.5}}, 2, "reproduced"),
    ],
)
def test_outcome(extra, value, expected):
    assert ledger.outcome(GOOD | extra, value) == expected


@pytest.mark.parametrize(
    ("value", "sweep", "expected"),
    [
        (2, [], "reproduced"),
        (2, [True, True], "reproduced"),
        (2, [True, False], "undecided by the text"),
        (3, [False], "does not reproduce"),
        (3, [True], "undecided by the text"),
    ],
)
def test_a_setting_that_is_not_printed_may_leave_the_text_undecided(value, sweep, expected):
    assert ledger.outcome(GOOD | PRINTED, value, sweep) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "Fig 1"}, "id"),
        ({"evidence": "lemma"}, "lemma"),
        ({"evidence": "printed"}, "evidence `printed` needs a comparison in printed"),
        ({"evidence": "printed", "printed": {"text": "three"}}, "needs a comparison in printed"),
        ({"unprinted": {"settings": "scale", "sweep": ["t24.x"]}}, "`unprinted` needs"),
        ({"unprinted": {"settings": "scale", "sweep": []}}, "sweep"),
        ({"authors": {"value": 2, "table": "t", "curve": "c", "step": 1}}, "`authors` needs"),
        ({"authors": {"value": 2}}, "authors"),
        ({"unprinted": {"sweep": ["t24.x"]}}, "settings"),
        ({"statment": "x"}, "statment"),
        ({"where": ""}, "where"),
        ({"where": None}, "where"),
        ({"expect": {}}, "expect needs a comparison"),
        ({"expect": {"at_most": "3", "because": "x"}}, "at_most"),
        ({"expect": {"at_most": 3}}, "because"),
        ({"expect": {"near": 3, "because": "x"}}, "one comparison"),
        ({"expect": {"at_most": 3, "at_least": 1, "because": "x"}}, "one comparison"),
        ({"expect": {"near": 3, "within": -1, "because": "x"}}, "within"),
        ({"printed": {"near": 3, "within": 1}}, "text"),
        ({"id": "erratum.t24-sum"}, "an erratum needs what is printed"),
        ({"id": "erratum.t24-sum", "printed": {"text": "three"}}, "is a gap, and affects a proof"),
        ({"meant": "the sum"}, "belong together"),
        ({"meant": "the sum", "affects": "everything"}, "affects"),
        ({"change": "a smaller step"}, "change"),
        ({"explained": "errata.md"}, "explained"),
    ],
)
def test_a_malformed_claim_is_named_with_its_file(tmp_path, change, message):
    tiny_project.list_claims(tmp_path, GOOD | change)
    with pytest.raises(ValueError, match=message) as error:
        claims.load(tmp_path)
    assert "01_tiny.yml" in str(error.value)
    assert (GOOD | change)["id"] in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {id: a, id: b}", "not YAML: the key 'id' comes twice"),
        ("- id: [", "not YAML"),
        ("id: x", "a list"),
        ("- x", "an entry"),
        ("", "a list"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, text, message):
    tiny_project.write(tmp_path / "book/claims/01_bad.yml", text)
    with pytest.raises(ValueError, match=rf"01_bad.yml.*{message}"):
        claims.load(tmp_path)


def test_an_id_listed_twice_is_refused(tmp_path):
    for name in ("01_one", "02_two"):
        tiny_project.list_claims(tmp_path, GOOD, name=name)
    with pytest.raises(ValueError, match=r"02_two.yml: t24.fig1.sum: listed twice"):
        claims.load(tmp_path)


SWEPT = [
    GOOD | {"id": "t24.fig1.a", **PRINTED},
    GOOD | {"id": "t24.fig1.b", "printed": {"text": "3", "near": 3.0, "within": 0.5}},
    GOOD | {"id": "t24.fig1.c"},
]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("t24.fig1.a", "the claim itself"),
        ("t24.fig1.b", "t24.fig1.b, which compares with another print"),
        ("t24.fig1.c", "t24.fig1.c, which compares with another print, or none"),
        ("t24.fig1.d", "t24.fig1.d, which is not listed"),
    ],
)
def test_a_sweep_names_claims_about_the_same_print(tmp_path, other, message):
    unprinted = {"settings": "the scale", "sweep": [other]}
    entries = [SWEPT[0] | {"unprinted": unprinted}, *SWEPT[1:]]
    tiny_project.list_claims(tmp_path, *entries)
    with pytest.raises(ValueError, match=f"t24.fig1.a: its sweep names {message}"):
        claims.load(tmp_path)


def test_sweeps_that_share_a_claim_are_one():
    def swept(*others):
        return {"unprinted": {"settings": "scale", "sweep": list(others)}}

    found = claims.sweeps({"a": swept("b"), "b": {}, "c": swept("d"), "d": swept("c", "e")})
    assert found == {"a": ["a", "b"], "c": ["c", "d", "e"]}


def test_claims_and_figures_promise_what_was_accepted():
    assert list(accepted.changed()) == [], "run `make accept` if this is meant"


def test_every_quotation_was_found_in_the_papers():
    assert list(accepted.unfounded()) == []


def test_quotations_in_the_box_of_an_erratum_are_looked_up_in_its_paper(tmp_path):
    root = tiny_project.make(tmp_path / "book")
    box = (
        ':::{admonition} Wrong as printed: L24, Lemma 1\n:class: erratum\n\n"any\ndata" (1), "x"\n'
    )
    other = ':::{admonition} A note\n:class: note\n\n"ours"\n:::\n'
    tiny_project.write(project.source("01_tiny", root), f'{box}:::\n\n"outside"\n\n{other}')
    said = [("l24", "any data"), ("l24", "x")]
    assert accepted.boxed("01_tiny", root) == said
    for version in accepted.VERSIONS:
        words = "prove it for any data there is" if version == "004" else "another paper"
        tiny_project.write(tmp_path / f"papers/{version}.txt", words)
    found = accepted.accept(tmp_path / "papers", root)
    assert [line for line in found if line.startswith("box ")] == []
    tiny_project.edit(project.source("01_tiny", root), '"any\ndata"', '"for all data there is"')
    assert "box 01_tiny 1: absent in the papers: for all data there is" in accepted.accept(
        tmp_path / "papers", root
    )


def test_no_expectation_is_the_run_s_own_output():
    assert list(lint.reasons(claims.load())) == []


def test_a_short_exponent_is_a_number(tmp_path):
    tiny_project.write(tmp_path / "book/claims/01_tiny.yml", tiny_project.CLAIMS)
    assert claims.load(tmp_path)["t24.fig1.sum"]["expect"]["within"] == 1e-9


@pytest.fixture
def listed(tmp_path):
    entries = [
        GOOD | {"show": ".2f"},
        GOOD | {"id": "t24.fig1.units", "show": "{:.1f} nats"},
        GOOD | {"id": "t24.fig1.bare"},
        GOOD | {"id": "t24.fig1.yes", "expect": {"equals": True}},
    ]
    tiny_project.list_claims(tmp_path, *entries)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("id", "value", "line"),
    [
        ("t24.fig1.sum", np.float64(1.23456), "✓ t24.fig1.sum   1.23   (expected ≤ 3)"),
        ("t24.fig1.units", 1, "✓ t24.fig1.units   1.0 nats   (expected ≤ 3)"),
        ("t24.fig1.bare", np.float32(0.1), "✓ t24.fig1.bare   ≤ 3"),
        ("t24.fig1.yes", np.True_, "✓ t24.fig1.yes   = True"),
        ("t24.fig1.bare", 3.5, "✗ t24.fig1.bare   expected ≤ 3, measured 3.5"),
        (
            "t24.fig1.bare",
            -np.inf,
            "✗ t24.fig1.bare   expected ≤ 3, measured {'not_finite': '-inf'}",
        ),
        ("t24.new", 1, "? t24.new   not listed in book/claims: add it there (measured 1)"),
    ],
)
def test_check_prints_one_line_and_carries_on(listed, capsys, id, value, line):
    assert ledger.check(id, value, root=listed) is None
    assert capsys.readouterr().out == line + "\n"


def test_outside_a_checkout_check_says_what_it_is_for(tmp_path, capsys):
    ledger.check("t24.fig1.sum", 1.5, root=tmp_path)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "? t24.fig1.sum   measured 1.5; check compares this with the book's claims"
    )
    assert line.endswith("none was found around this package")


@pytest.mark.parametrize("value", [np.ones(2), np.array(1.0), [1.0], None, 1j, np.complex128(1)])
def test_check_refuses_what_is_not_one_number(listed, value):
    with pytest.raises(TypeError, match=r"t24.fig1.sum: one number"):
        ledger.check("t24.fig1.sum", value, root=listed)


def test_glue_refuses_numbers():
    with pytest.raises(TypeError, match="glue 'loss': a formatted string"):
        ledger.glue("loss", 0.1)


@pytest.mark.parametrize(
    ("records", "edit", "message"),
    [
        ([], None, "t24.fig1.sum: listed in 01_tiny.yml, but no notebook measures it"),
        ([("t24.fig1.sum", 12.0)] * 2, None, "t24.fig1.sum: measured twice by 01_tiny"),
        ([("t24.fig1.sum", 12.1)], None, "t24.fig1.sum: expected 12.0 ± 1e-09, measured 12.1"),
        ([("t24.fig1.sum", {"not_finite": "nan"})], None, "measured {'not_finite': 'nan'}"),
        (
            [("t24.fig1.sum", 12.0), ("t24.x", 1)],
            None,
            "t24.x: measured by 01_tiny, but not listed",
        ),
        (
            [("t24.fig1.sum", 12.0)],
            ("near: 12, ", "near: 11, "),
            "'does not reproduce'; `explained`",
        ),
        ([("erratum.t24-a", 12.0)], ("t24.fig1.sum", "erratum.t24-a"), "an erratum, but the value"),
        ([("erratum.t42-a", 12.0)], ("t24.fig1.sum", "erratum.t42-a"), "the paper is needed: t24"),
        ([("erratum.t24x", 12.0)], ("t24.fig1.sum", "erratum.t24x"), "the paper is needed: t24"),
        ([("t24.fig1.sum", 12.0)], ("fig1.sum", "fig12"), "t24.fig12: starts with no id"),
    ],
)
def test_a_ledger_that_does_not_close_is_reported(root, records, edit, message):
    if edit:
        assert edit[0] in tiny_project.CLAIMS
        tiny_project.write(root / "book/claims/01_tiny.yml", tiny_project.CLAIMS.replace(*edit))
    kept = [{"id": id, "value": value} for id, value in records]
    tiny_project.pretend(root, "01_tiny", kept)
    with pytest.raises(collect.CollectError) as error:
        collect.collect(root)
    assert message in str(error.value)
    assert not (root / "_build").exists()
    assert list(root.glob("book/*.md")) == []


def test_a_print_that_is_missed_cannot_be_filed_under_other_evidence(root):
    text = tiny_project.CLAIMS.replace("near: 12, ", "near: 11, ")
    text = text.replace("evidence: printed", "evidence: illustration")
    text += "  explained: 'nb/01_tiny.ipynb#why'\n"
    tiny_project.write(root / "book/claims/01_tiny.yml", text)
    tiny_project.pretend(root, "01_tiny", [MEASURED])
    [problem] = collect.problems(root)
    assert problem.startswith("t24.fig1.sum: the outcome is 'does not reproduce', so the evidence")


def test_a_claim_measured_by_another_notebook_is_reported(root):
    tiny_project.write(root / "notebooks/02_other.md", tiny_project.NOTEBOOK)
    tiny_project.pretend(root, "01_tiny", [])
    tiny_project.pretend(root, "02_other", [MEASURED])
    assert "t24.fig1.sum: measured by 02_other, but listed in 01_tiny.yml" in collect.problems(root)


def test_executed_notebooks_and_their_sources_must_match(root):
    tiny_project.pretend(root, "09_gone", [])
    found = "\n".join(collect.problems(root))
    assert "01_tiny: never executed" in found
    assert "09_gone.ipynb: executed, but notebooks/09_gone.md does not exist" in found


def test_a_figure_saved_twice_is_reported(root):
    figure = {"figure": "tiny", "seed": 0, "data": "0"}
    tiny_project.pretend(root, "01_tiny", [figure, figure])
    assert "tiny: a figure saved more than once" in collect.problems(root)


def test_a_ledger_that_closes_gives_claims_and_pages(root):
    data = hashlib.sha256(b"1\n").hexdigest()
    figure = {"figure": "tiny", "seed": 0, "data": data}
    tiny_project.pretend(root, "01_tiny", [MEASURED, figure])
    tiny_project.write(root / "figures/tiny.csv", "1\n")  # offered where it lies
    [entry] = collect.collect(root)
    assert json.loads((root / "_build/claims.json").read_text()) == [entry]
    assert entry["outcome"] == "reproduced"
    assert (entry["value"], entry["notebook"]) == (12.0, "01_tiny")
    pages = {path.stem: path.read_text() for path in (root / "book").glob("*.md")}
    assert pages.keys() == {"scoreboard", "statements", "reproducibility"}
    assert (root / "book/errata_l24.txt").exists()
    assert (root / "book/map_l24.txt").exists()
    assert entry["evidence"] == "printed"
    assert r"a sum \| W\* and W\*" in pages["statements"]
    assert "Of 2 numbered statements" in pages["statements"]
    assert "1 are executed, 0 in part, 0 quoted and 1 not in the book" in pages["statements"]
    assert "{doc}`nb/01_tiny` (1 check)" in pages["statements"]
    assert f"`{data[:16]}`" in pages["reproducibility"]
    assert "{download}`CSV <../figures/tiny.csv>`" in pages["reproducibility"]
    assert "* - {doc}`nb/01_tiny`\n  - 1\n  - reproduced: 1" in pages["scoreboard"]
    collect.collect(root)
    assert pages == {path.stem: path.read_text() for path in (root / "book").glob("*.md")}


def test_the_statement_index_leads_to_where_a_statement_is_quoted(root):
    source = root / "notebooks/01_tiny.md"
    quoted = "\n:::{prf:theorem} 1\n:label: t24-fig1\n:::\n"
    tiny_project.write(source, source.read_text(encoding="utf-8") + quoted)
    figure = {"figure": "tiny", "seed": 0, "data": "0"}
    tiny_project.pretend(root, "01_tiny", [MEASURED, figure])
    collect.collect(root)
    index = (root / "book/statements.md").read_text(encoding="utf-8")
    linked = "- (index-t24-fig1)=\n    {prf:ref}`Fig. 1 <t24-fig1>` "
    assert f"{linked}(also the first arXiv version: Fig. 1) `t24.fig1`\n" in index
    assert "- (index-t24-fig2)=\n    Fig. 2 `t24.fig2`\n" in index


def test_what_differs_from_the_print_stands_before_the_chapters(root):
    claims_file = tiny_project.CLAIMS.replace("near: 12, ", "near: 11, ")
    claims_file += "  explained: 'nb/01_tiny.ipynb#why'\n"
    tiny_project.write(root / "book/claims/01_tiny.yml", claims_file)
    tiny_project.pretend(root, "01_tiny", [MEASURED])
    collect.collect(root)
    text = (root / "book/scoreboard.md").read_text()
    row = "does not reproduce; why: {ref}`Tiny <why>`"
    assert text.index("## Where") < text.index(row) < text.index("## Page by page")
    assert r"$2 \cdot 6$" in text
    assert "12.0000" in text
    assert "  - 1\n  - does not reproduce: 1" in text


def test_figures_of_the_papers_come_first_with_seed_and_seconds(root):
    statements = tiny_project.STATEMENTS.replace('{where: "Fig. 2"', '{where: "Fig. 2", drawn: odd')
    tiny_project.write(
        root / "book/statements.yml", statements + "  fig3: {where: Fig. 3, what: x}"
    )
    seconds = "notebook,seconds,MiB\n01_tiny,1.5,80\n"
    tiny_project.write(root / "benchmarks/results/notebooks.csv", seconds)
    figures = [
        {"figure": name, "seed": seed, "data": "0" * 64}
        for name, seed in (("other", 7), ("t24_fig1_toy", [1, 2, 3]), ("odd", None))
    ]
    tiny_project.pretend(root, "01_tiny", [MEASURED, *figures])
    collect.collect(root)
    text = (root / "book/reproducibility.md").read_text()
    papers, others = text.split("## All other figures")
    cells = [line.strip(" *-") for line in papers.splitlines() if " - " in line][6:]
    rows = [cells[i : i + 5] for i in range(0, len(cells), 6)]
    notebook = "{doc}`nb/01_tiny`"
    assert rows == [
        ["T24, Fig. 1", "`t24_fig1_toy`", notebook, "1–3", "1.5"],
        ["T24, Fig. 2", "`odd`", notebook, "none", "1.5"],
        ["T24, Fig. 3", "not yet", "—", "—", "—"],
    ]
    assert "`other`" in others
    assert "`odd`" not in others


def test_where_the_time_goes_is_shown_once_it_was_measured(root):
    heading = "## Where the time goes"
    assert heading not in pages._reproducibility([], {}, root)
    stages = "stage,seconds\nthe pages,40\nall,40\n"
    tiny_project.write(root / "benchmarks/results/build.csv", stages)
    tiny_project.write(root / "benchmarks/results/build_machine.csv", ",here\ncores,2\n")
    page = pages._reproducibility([], {}, root)
    _, section = page.split(heading)
    section, _ = section.split("(compare-figures)=")
    assert "* - cores\n  - 2\n" in section
    assert "* - the pages\n  - 40\n* - all\n  - 40\n" in section


def test_every_figure_of_the_papers_is_drawn():
    texts = "".join(path.read_text("utf-8") for path in output.ROOT.glob("notebooks/**/*.md"))
    saved = set(re.findall(r'figures\.save\(\s*fig,\s*"(\w+)"', texts))
    for id, entry in claims.statements().items():
        if ".fig" in id:
            name = id.replace(".", "_")
            named = [figure for figure in saved if f"{figure}_".startswith(f"{name}_")]
            assert named or entry.get("drawn") in saved, id
            assert not (named and "drawn" in entry), id


@pytest.mark.parametrize(
    ("value", "expect", "statement", "words"),
    [
        (True, {"equals": True}, "It grows.", "holds"),
        (False, {"equals": False}, "It grows.", "does not hold"),
        (False, {"equals": False}, "Does it grow?", "no"),
        (
            2e-16,
            {"at_most": 1e-12, "because": "rounding"},
            "Error.",
            "2\u00a0·\u00a010⁻¹⁶",
        ),
        (
            2e-16,
            {"near": 0, "within": 1e-9, "because": "solved"},
            "",
            "2\u00a0·\u00a010⁻¹⁶",
        ),
        (
            2e-24,
            {"above": 0, "because": "positive; rounding cannot change it"},
            "",
            "2\u00a0·\u00a010⁻²⁴",
        ),
        (2e-21, {"at_most": 1e-18, "because": "e^-50"}, "Left.", "2\u00a0·\u00a010⁻²¹"),
        (1e-5, {"at_most": 1e-4, "because": "a bound"}, "Left.", "10⁻⁵"),
        (-0.12345, {"at_least": -1, "because": "a bound"}, "Loss.", "−0.123"),
        (7, {"equals": 7}, "How many.", "7"),
        ("a > b", {"equals": "a > b"}, "Order.", r"a \> b"),
    ],
)
def test_the_scoreboard_says_values_in_words_a_reader_understands(value, expect, statement, words):
    claim = {"id": "t24.fig1.x", "value": value, "expect": expect, "statement": statement}
    assert pages._value(claim) == words


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("W^mm's norm, 1/‖W^mm‖", r"$W^{\mathrm{mm}}$'s norm, 1/‖$W^{\mathrm{mm}}$‖"),
        ("‖P_⊥W‖ and P_F(W*)", r"‖$P_\perp$W‖ and $P_{\mathcal{F}}$($W^\star$)"),
        ("e^−γ, e^u_2 and e^1000", r"$e^{-\gamma }$, $e^{u_2}$ and $e^{1000}$"),
        ("κ_flow² and W_k", r"$\kappa _{\mathrm{flow}}$² and $W_k$"),
        ("at t = 1e100, from -3", "at t = 10¹⁰⁰, from −3"),
        ("$W_k$ by `max_margin`, a max_margin", "$W_k$ by `max_margin`, a max_margin"),
    ],
)
def test_symbols_of_a_claim_are_set_as_mathematics(typed, written):
    assert symbols.symbols(typed) == written


# What begins a comment, a label, a heading, a list, a rule, a block or a fence; and what is markup.
TYPED = (
    "% of all tokens",
    "(x)= y",
    "(x)=",
    "# of steps",
    "### three",
    "#",
    "- 3",
    "+ 3",
    "* 3",
    "---",
    "--- 3",
    "===",
    "+++",
    "1. one",
    "12) twelve",
    "> 3",
    ":::{note}",
    "~~~",
    "```{note}",
    "| a | b |",
    "[x](y) and ![x](y)",
    "<b>x</b> & y",
    "<script>alert(1)</script>",
    "{doc} 'x'",
    "a_b_c *d* \\e",
    "3.5 and -3.5",
)


def test_whatever_a_claim_begins_with_a_table_shows_it_as_typed(tmp_path):
    table = (
        '{% from "table.md" import table, rows %}# Book\n\n'
        '{% call table("1 1", "AB") %}{{ rows(typed) }}{% endcall %}'
    )
    rows = [(pages.plain(text), pages.plain(text)) for text in TYPED]
    page = pages.TEMPLATES.from_string(table).render(typed=rows)
    site, warnings = build(tmp_path, {"index": page}, smartquotes=False)
    assert warnings == ""
    shown = parsed(site / "index.html").select("table.ledger tbody tr")
    cells = [[cell.get_text().strip() for cell in row.select("td")] for row in shown]
    assert cells == [[text, text] for text in TYPED]


def test_an_erratum_of_two_claims_has_a_paragraph_for_each_place(root):
    printed = {"text": "$a$", "near": 1, "within": 0}
    common = {"explained": "nb/01_tiny.ipynb#x", "printed": printed, "affects": "text"}
    entries = [
        {"id": "erratum.t24-a", "where": "Eq. (1)", "meant": "One.", **common},
        {"id": "erratum.t24-b", "where": "Eq. (2)", "meant": "Two.", **common},
    ]
    text = pages._errata(entries, "t24", root)
    assert "* - Eq. (1)\n\n    Eq. (2)\n  - $a$\n  - One.\n\n    Two.\n" in text
