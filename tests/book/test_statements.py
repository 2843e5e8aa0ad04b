"""The statement index, the map drawn from it, and the sum at the head of the scoreboard."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import tiny_project

from ntpnb_book import claims
from publishing import collect, layered, pages, statement_map
from publishing import statements as index

LISTED = claims.statements()


def numbers(where):
    """Numbers of the equations that a `where` names: (6a–b) is 6, (22)–(23) both."""
    for first, last in re.findall(r"\((\d+)[a-z–]*\)(?:–\((\d+)\))?", where):
        yield from range(int(first), int(last or first) + 1)


@pytest.mark.parametrize(("paper", "last"), [("t24", 30), ("l24", 35)])
def test_every_numbered_equation_has_one_row(paper, last):
    listed = [
        number
        for id, entry in LISTED.items()
        if id.startswith(paper)
        for number in numbers(entry["where"])
    ]
    assert sorted(listed) == list(range(1, last + 1))


def test_the_real_entries_are_sound():
    assert list(index.problems(LISTED, claims.load())) == []


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, "not in the book"),
        ({"quoted": "01_tiny#why"}, "quoted"),
        ({"by": ["l24.lemma1"]}, "executed"),
        ({"by": ["l24.lemma1"], "part": "the rest"}, "in part"),
        ({"by": ["l24.lemma1"], "quoted": "01_tiny#why"}, "executed"),
    ],
)
def test_a_status_follows_from_the_claims(entry, expected):
    assert index.status("t24.eq1", entry, ["l24.lemma1.bound", "t24.eq10.x"]) == expected
    assert index.status("t24.eq1", entry, ["t24.eq10.x"]) in ("quoted", "not in the book")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fig2: {", "fig2: {by: [t24.fig3], ", "t24.fig2: no claim begins with t24.fig3"),
        ("fig2: {", "fig2: {errata: [erratum.t24-x], ", "no claim begins with erratum.t24-x"),
        ("fig2: {", "fig2: {part: all of it, ", "but no claim executes any of it"),
        ("fig2: {", "fig2: {uses: [fig1], ", "uses t24.fig1, which is not on the map"),
        ("fig2: {", "fig2: {uses: [fig2], ", "t24.fig2: uses itself"),
        ("fig2: {", "fig2: {quote: why, ", "the field `quote` means nothing"),
        (', what: "nothing yet"', "", "t24.fig2: `what` is missing"),
    ],
)
def test_a_false_entry_keeps_the_ledger_from_closing(tmp_path, old, new, message):
    root = tiny_project.make(tmp_path)
    tiny_project.edit(root / "book/statements.yml", old, new)
    tiny_project.pretend(root, "01_tiny", [{"id": "t24.fig1.sum", "value": 12.0}])
    with pytest.raises(collect.CollectError, match=re.escape(message)):
        collect.collect(root)


def test_a_quotation_that_is_there_is_linked(tmp_path):
    root = tiny_project.make(tmp_path)
    tiny_project.edit(root / "book/statements.yml", "fig2: {", "fig2: {quoted: 01_tiny#why, ")
    tiny_project.pretend(root, "01_tiny", [{"id": "t24.fig1.sum", "value": 12.0}])
    collect.collect(root)
    assert "{ref}`quoted <why>`" in (root / "book/statements.md").read_text(encoding="utf-8")


def test_every_statement_is_in_the_book():
    found = {id: index.status(id, entry, claims.load()) for id, entry in LISTED.items()}
    assert "not in the book" not in found.values()


def erratum(id, where, **more):
    """An erratum as `collect` lists it."""
    place = {"explained": f"nb/01_tiny.ipynb#{id.replace('.', '-')}"}
    return {"id": id, "where": where, "notebook": "01_tiny"} | place | more


GRAPH = {
    "t24.def1": {"where": "Def. 1", "what": "", "uses": []},
    "t24.lemma1": {
        "where": "Lemma 1, Eq. (2)",
        "what": "",
        "uses": ["def1"],
        "errata": ["erratum.t24-a"],
    },
    "t24.lemma2": {"where": "Lemma 2", "what": "", "uses": ["def1"], "errata": ["erratum.t24-c"]},
    "t24.thm1": {
        "where": "Thm 1",
        "what": "",
        "uses": ["lemma1", "def1"],
        "part": "the end",
        "errata": ["erratum.t24-b"],
    },
    "t24.thm2": {"where": "Thm 2", "what": "", "uses": ["thm1"], "conjecture": True},
    "t24.fig1": {"where": "Fig. 1", "what": "", "errata": ["erratum.t24-b"]},
    "l24.lemma1": {"where": "Lemma 1", "what": "", "uses": []},
}
ENTRIES = [
    {"id": "t24.def1.a", "notebook": "01_tiny"},
    {"id": "t24.lemma1.a", "notebook": "01_tiny"},
    {"id": "t24.thm1.a", "notebook": "01_tiny"},
    erratum("erratum.t24-a", "Lemma 1, all versions", affects="statement"),
    erratum("erratum.t24-b", "proof of Thm 1, after Lemma 1; Fig. 1", affects="proof"),
    erratum("erratum.t24-c", "Sec. 2", affects="proof"),
]


def test_each_erratum_is_named_by_what_it_concerns():
    named = {erratum for entry in LISTED.values() for erratum in entry.get("errata", ())}
    assert named == {id for id in claims.load() if id.startswith("erratum.")}


def test_the_map_says_what_is_false_and_what_rests_on_it():
    found = {node.name: node for node in statement_map.nodes("t24", GRAPH, ENTRIES)}
    assert {name: node.kind for name, node in found.items()} == {
        "Def. 1": "executed",
        "Lemma 1": "corrected",
        "Lemma 2": "not in the book",
        "Thm 1": "in part",
        "Thm 2": "conjecture",
    }
    assert [name for name, node in found.items() if node.affected] == ["Thm 1", "Thm 2"]


def test_the_map_is_drawn_with_links_and_repeated_as_text():
    text = pages._map("t24", GRAPH, ENTRIES)
    drawing = text[text.index("<svg") : text.index("</svg>") + 6]
    tree = ElementTree.fromstring(drawing)
    assert tree.findtext("title") == "What rests on what in Thrampoulidis (T24): the linear decoder"
    links = {link.get("href"): link for link in tree.iter("a")}
    assert list(links) == [
        f"statements.html#index-t24-{name}" for name in ("def1", "lemma1", "lemma2", "thm1", "thm2")
    ]
    assert links["statements.html#index-t24-lemma1"].get("class") == "corrected"
    assert "1 slip in the errata" in links["statements.html#index-t24-lemma1"].findtext("title")
    classes = [path.get("class") for path in tree.findall("path")]
    assert classes.count("carries") == 2  # from Lemma 1 to Theorem 1 to Theorem 2
    assert classes.count("rests") == 3
    rows = [line for line in text.splitlines() if line.startswith("- ")]
    assert rows[3] == (
        "- {ref}`Thm 1 <index-t24-thm1>`, executed in part; 1 slip in the errata; rests on a "
        "statement that is false as stated. Rests on {ref}`Lemma 1 <index-t24-lemma1>`, "
        "{ref}`Def. 1 <index-t24-def1>`. Slips: {ref}`1 <erratum-t24-b>`."
    )
    assert text == pages._map("t24", GRAPH, ENTRIES)


def test_a_layout_has_arrows_downwards_and_nothing_on_top_of_a_box():
    for paper in ("t24", "l24"):
        above = {
            id: index.rests_on(id, entry)
            for id, entry in LISTED.items()
            if id.startswith(paper) and "uses" in entry
        }
        placed = layered.layout(above)
        assert placed.nodes.keys() == above.keys()
        assert placed.edges.keys() == {(b, a) for a, upper in above.items() for b in upper}
        assert min(x for x, _ in placed.nodes.values()) >= 0
        for (upper, lower), points in placed.edges.items():
            assert [points[0], points[-1]] == [placed.nodes[upper], placed.nodes[lower]]
            assert all(b[1] == a[1] + 1 for a, b in pairwise(points))
            for x, row in points[1:-1]:  # an eighth of a box is what an edge takes on each side
                boxes = [place for place, at in placed.nodes.values() if at == row]
                assert all(abs(x - place) >= 0.5 + 0.12 for place in boxes)
        for row in range(placed.rows):
            boxes = sorted(x for x, at in placed.nodes.values() if at == row)
            assert all(b - a >= 0.999 for a, b in pairwise(boxes))


def test_a_layout_avoids_crossings_that_need_not_be():
    above = {"a": [], "b": [], "c": [], "d": ["c"], "e": ["b"], "f": ["a"]}
    placed = layered.layout(above)
    x = {node: place for node, (place, _) in placed.nodes.items()}
    alone = layered.layout({"a": [], "b": []})
    assert alone.nodes == {"a": (0, 0), "b": (1, 0)}
    assert [x["a"], x["b"], x["c"]] == pytest.approx([x["f"], x["e"], x["d"]])


def claim(id, evidence, outcome, **more):
    """A claim as the scoreboard counts it."""
    explained = {"explained": f"nb/01_tiny.ipynb#{id}"} if outcome != "holds" else {}
    printed = None if outcome == "holds" else {"text": f"words of {id}"}
    claimed = {"id": id, "evidence": evidence, "outcome": outcome, "printed": printed}
    return claimed | explained | more


def test_the_scoreboard_s_first_line_is_the_sum():
    same = {"printed": {"text": "words of t24.fig1.e"}}
    entries = [
        claim("t24.fig1.a", "printed", "reproduced"),
        claim("t24.fig1.b", "printed", "reproduced"),
        claim("t24.fig1.c", "printed", "reproduced with a stated change"),
        claim("t24.fig1.d", "printed", "does not reproduce"),
        claim("t24.fig1.e", "printed", "undecided by the text"),
        claim("t24.fig1.f", "printed", "reproduced", **same),
        claim("l24.fig1.f", "printed", "reproduced", **same),
        claim("t24.fig1.g", "by construction", "holds by construction"),
        claim("erratum.t24-a", "printed", "wrong as printed"),
        claim("erratum.t24-b", "by construction", "wrong as printed"),
        claim("erratum.t24-c", "illustration", "a gap in the argument"),
        claim("t24.thm1.a", "proof-step", "holds"),
        claim("t24.thm1.b", "proof-step", "holds"),
        claim("t24.thm1.c", "property", "holds"),
        claim("t24.fig2.a", "illustration", "holds"),
        claim("beyond.a", "prediction", "holds"),
    ]
    first = pages._in_sum(entries)
    assert first.startswith(
        "**Of 6 sentences of the papers that print a number or a comparison and that we measure, 3 "
        "are met as printed, 1 after a stated change, 1 are not met, and 1 are undecided by the "
        "text.** 2 more lines are shown to be wrong as printed, and 1 to leave a gap."
    )
    kinds = [pages.group(entry) for entry in entries[6:11]]
    assert kinds == ["printed", "by construction", "erratum", "erratum", "erratum"]


@pytest.mark.parametrize(
    ("file", "run", "words"),
    [
        (2, 2, "all three agree; file and run agree within chance"),
        (3, 3, "the text departs from file and run; file and run agree within chance"),
        (2, 3, "our run departs from text and file; file and run agree within chance"),
        (3, 2, "the text agrees with our run, not with the file; file and run agree"),
    ],
)
def test_three_ways_to_a_verdict(file, run, words):
    curve = {"id": "l24.fig1.curve", "expect": {"at_most": 4}}
    authors = {"value": file, "compared": "l24.fig1.curve"}
    printed = {"text": "2", "near": 2, "within": 0.5}
    entry = claim("l24.fig1.a", "printed", "reproduced", authors=authors, value=run)
    found = pages.verdict(entry | {"printed": printed}, {"l24.fig1.curve": curve})
    assert found.startswith(words)
    differ = curve | {"expect": {"above": 4}}
    found = pages.verdict(entry | {"printed": printed}, {"l24.fig1.curve": differ})
    assert found.endswith("file and run differ")


def test_the_sums_of_the_real_scoreboard_agree():
    """Claims by evidence, printed sentences by outcome, and both in the text."""
    listed = claims.load()
    values = {id: value for _, id, value in collect.measured() if id in listed}
    entries = collect.entries(listed, values)
    rows = pages._evidence(entries)
    table = {name: (claims, sentences, out) for name, _, claims, sentences, out in rows}
    total = table.pop("all")[0]
    assert int(total) == sum(int(claims) for claims, _, _ in table.values()) == len(entries)
    for claims_of_kind, sentences, outcomes in table.values():
        counted = claims_of_kind if sentences == "–" else sentences
        assert int(counted) == sum(map(int, re.findall(r"\d+", outcomes)))
    said = list(map(int, re.findall(r"\d+", pages._in_sum(entries))))
    assert said[0] == sum(said[1:5]) == int(table["printed"][1])
    assert said[5] + said[6] == int(table["erratum"][1])


def swept(root, value_of_other):
    """Write a tiny project with a claim that depends on a setting, and measure it twice."""
    text = tiny_project.CLAIMS
    other = text.replace("t24.fig1.sum", "t24.fig1.other").replace(
        "expect: {near: 12.0, within: 1e-9", "expect: {between: [0, 99]"
    )
    unprinted = "  unprinted: {settings: the scale, sweep: [t24.fig1.other]}\n"
    explained = "  explained: 'nb/01_tiny.ipynb#why'\n"
    tiny_project.write(root / "book/claims/01_tiny.yml", text + unprinted + explained + other)
    values = {"t24.fig1.sum": 12.0, "t24.fig1.other": value_of_other}
    records = [{"id": id, "value": value} for id, value in values.items()]
    tiny_project.pretend(root, "01_tiny", records)
    collect.collect(root)
    return json.loads((root / "_build/claims.json").read_text(encoding="utf-8"))


def test_where_a_setting_decides_the_text_is_undecided(tmp_path):
    root = tiny_project.make(tmp_path)
    entries = swept(root, 20.0)
    assert [entry["outcome"] for entry in entries] == ["undecided by the text"] * 2
    board = (root / "book/scoreboard.md").read_text(encoding="utf-8")
    assert (
        "Of 1 sentences of the papers that print a number or a comparison and that we measure, 0 "
        "are met as printed" in board
    )
    assert "and 1 are undecided by the text" in board
    assert board.count("undecided by the text; why: {ref}`Tiny <why>`") == 2
    assert "Not printed: the scale; varied in one more claim." in board
    assert [entry["outcome"] for entry in swept(root, 12.1)] == ["reproduced"] * 2
