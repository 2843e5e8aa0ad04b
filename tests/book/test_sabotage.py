"""False edits of a copy of the book, each with the check that notices it.

A check that notices nothing proves nothing. Every edit here is small, deliberate and plausible; the
named check must say something of the edited copy that it does not say of the honest one. Other
tables of such edits stand where their checks are tested: `test_verify` of executed notebooks whose
hash was forged as well, `test_notebooks` of printed digits, `test_faults` of damaged files,
`test_release` of what files say of version and papers, `test_explored` of what a page computes.

What no check of this repository can notice: a sentence whose falsehood involves no measured number;
a formula quoted wrongly, for want of a form that all versions share; a benchmark's seconds, edited
in `results.json` as well as in its table, since they belong to a machine that is not here; and any
lie that is also written to `book/accepted.txt`, which is why that file is read in every review.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys

import accepted
import lint
import named_places
import pytest
import tiny_project
import yaml

from ntpnb_book import claims, figures, output, saving
from publishing import collect, keys, project

pytestmark = pytest.mark.slow

TOY = "01_toy"
TESTS = "tests/math/test_loss.py"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Copy what the checks read; every executed notebook is vouched for, as after an honest run."""
    root = tmp_path_factory.mktemp("book")
    ignore = shutil.ignore_patterns("__pycache__")
    for place in ("ntpnb", "ntpnb_book", "notebooks", "book/claims", "book/nb"):
        shutil.copytree(output.ROOT / place, root / place, ignore=ignore)
    (root / "tests/math").mkdir(parents=True)
    pages = ("book/_toc.yml", "book/equations.md", "book/references.bib", "README.md", TESTS)
    pages += ("book/elsewhere.yml",)
    for place in ("book/statements.yml", "requirements.lock", *pages):
        shutil.copy(output.ROOT / place, root / place)
    for name in project.names(root):
        keys.record(name, keys.Key(outputs=64 * "0", text=64 * "0"), root)
    accepted.accept(root=root)
    return root


@pytest.fixture
def edited(book):
    """Edit files of the copy, and put them back afterwards."""
    with tiny_project.edits(book) as edit:
        yield edit


def ledger(root):
    """What keeps the ledger from closing."""
    try:
        return list(collect.problems(root))
    except ValueError as error:  # a claim or a file that is malformed
        return [str(error)]


def acceptance(root):
    """What differs from `book/accepted.txt`, and quotations that were not looked up."""
    return [*accepted.changed(root), *accepted.unfounded(root)]


def typed(root):
    """Values and numbers that were typed."""
    return [
        line
        for name in project.names(root)
        for check in (lint.constants, lint.typed_numbers)
        for line in check(name, root)
    ]


def named(root):
    """Places that explain or quote, and are not where they are said to be."""
    return list(named_places.problems(root))


def unchecked(root):
    """Cells that nbval is told not to compare."""
    return [line for name in project.names(root) for line in lint.unchecked(name, root)]


def reasons(root):
    """Expectations that are what the run gave."""
    return list(lint.reasons(claims.load(root)))


def not_vouched(root):
    """Executed notebooks that are not as a run wrote them."""
    return [f"{name}: edited" for name in project.names(root) if name not in keys.recorded(root)]


@functools.cache
def honest(check, root):
    """What a check says of the honest copy."""
    return frozenset(check(root))


def claim(id, **changes):
    """Change the fields of a claim in a claims file; written ``a__b``, field b of field a."""

    def of_file(text):
        entries = yaml.load(text, claims._Loader)
        [entry] = [entry for entry in entries if entry["id"] == id]
        for field, value in changes.items():
            outer, _, inner = field.rpartition("__")
            (entry[outer] if outer else entry)[inner] = value
        return json.dumps(entries)

    return of_file


def without(id):
    """Remove a claim from a claims file."""

    def of_file(text):
        entries = yaml.load(text, claims._Loader)
        return json.dumps([entry for entry in entries if entry["id"] != id])

    return of_file


def instead(old, new):
    """Replace the first match of a pattern."""
    return lambda text: re.sub(old, lambda _: new, text, count=1, flags=re.MULTILINE)


def records(change):
    """Change the records that the outputs of an executed notebook keep."""

    def of_file(text):
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            cell["outputs"] = [
                shown
                for shown in cell.get("outputs", [])
                if change(shown.get("metadata", {}).get("ntpnb", {})) is not False
            ]
        return json.dumps(notebook)

    return of_file


def remeasured(id, value):
    """Change a measured value where the ledger reads it."""
    return records(lambda record: record.update(value=value) if record.get("id") == id else None)


CLAIMS = f"book/claims/{TOY}.yml"
CHAPTER = f"notebooks/{TOY}.md"
EXECUTED = f"book/nb/{TOY}.ipynb"
ERRATUM = "erratum.t24-strictly-convex"
PATH = "book/claims/evidence/path_theorem.yml"
GD_PROOF = "book/claims/evidence/gd_proof.yml"
REVERSED = "erratum.t24-epsilon"
PATH_PROOF = "book/claims/evidence/path_proof.yml"
ENTROPY = "t24.fig1.entropy"
ELSEWHERE = "book/elsewhere.yml"

EDITS = {
    "an expectation is widened": (
        {CLAIMS: claim(ENTROPY, expect__within=0.1)},
        acceptance,
        f"{ENTROPY}: promises",
    ),
    "an expectation is the run's own output, and says so": (
        {CLAIMS: claim(ENTROPY, expect__because="measured on two machines")},
        reasons,
        f"{ENTROPY}: 'measured' is no reason",
    ),
    "an expectation is the run's own output, to all digits": (
        {CLAIMS: claim(ENTROPY, expect__near=0.88108689913)},
        reasons,
        f"{ENTROPY}: 0.88108689913 has 11 digits",
    ),
    "the print is bent until the value meets it": (
        {CLAIMS: claim(ENTROPY, printed__within=0.05)},
        acceptance,
        f"{ENTROPY}: promises",
    ),
    "a claim counts as printed that compares with no print": (
        {CLAIMS: claim("t24.def1.toy", evidence="printed")},
        ledger,
        "t24.def1.toy: the evidence `printed` needs a comparison in printed",
    ),
    "a second expectation hides the first": (
        {CLAIMS: instead(r"^  expect: ", "  expect: {equals: true}\n  expect: ")},
        ledger,
        "the key 'expect' comes twice",
    ),
    "a sweep blames an unprinted setting with another print": (
        {CLAIMS: claim(ENTROPY, unprinted={"settings": "scale", "sweep": ["t24.fig2.equal"]})},
        ledger,
        "t24.fig2.equal, which compares with another print",
    ),
    "a claim is removed that a chapter measures": (
        {CLAIMS: without("t24.def1.toy")},
        ledger,
        "t24.def1.toy: measured by 01_toy, but not listed",
    ),
    "a claim is removed with its check and its value": (
        {
            CLAIMS: without("t24.fig2.orthogonal"),
            EXECUTED: records(lambda record: record.get("id") != "t24.fig2.orthogonal"),
        },
        acceptance,
        "t24.fig2.orthogonal: was accepted, and is no longer there",
    ),
    "a claim is removed that the statement index names": (
        {PATH: without("t24.thm1.downhill")},
        ledger,
        "t24.eq24: no claim begins with t24.thm1.downhill",
    ),
    "an erratum's explanation is removed": (
        {"notebooks/evidence/path_proof.md": instead(r"^\(erratum-t24-strictly-convex\)=$", "")},
        named,
        "no (erratum-t24-strictly-convex)= stands there",
    ),
    "an erratum's quotation is invented": (
        {PATH_PROOF: claim(ERRATUM, printed__text="maximizing a concave function")},
        acceptance,
        f"{ERRATUM}: promises",
    ),
    "a quotation in the box of an erratum is invented": (
        {
            "notebooks/evidence/graph_svm_theorem.md": instead(
                "Consider any dataset", "For any data"
            )
        },
        acceptance,
        "'For any data', accepted was 'Consider any dataset'",
    ),
    "an erratum's correction has its inequality reversed": (
        {GD_PROOF: instead("epsilon < 1/2", "epsilon > 1/2")},
        acceptance,
        f"words {REVERSED}: promises",
    ),
    "a claim says something else of what it measures": (
        {CLAIMS: claim(ENTROPY, statement="The toy's entropy of tokens.")},
        acceptance,
        f"words {ENTROPY}: promises",
    ),
    "a claim names another place of the paper": (
        {CLAIMS: claim(ENTROPY, where="Fig. 2")},
        acceptance,
        f"words {ENTROPY}: promises",
    ),
    "a claim counts as other evidence": (
        {CLAIMS: claim("t24.def1.toy", evidence="property")},
        acceptance,
        "words t24.def1.toy: promises",
    ),
    "the pages of a reference are forged": (
        {"book/references.bib": instead("3420--3428", "3402--3428")},
        acceptance,
        "reference nacson2019convergence: promises",
    ),
    "a link with the right label leads elsewhere": (
        {"README.md": instead(r"\[CITATION.cff\]\(CITATION.cff\)", "[CITATION.cff](LICENSE)")},
        acceptance,
        "README.md: [CITATION.cff](LICENSE): was never accepted",
    ),
    "a file of tests is emptied": (
        {TESTS: lambda text: '"""Nothing."""\n'},
        acceptance,
        f"{TESTS}: 0 tests, accepted were ",
    ),
    "a test is removed": (
        {TESTS: instead(r"^def test_", "def _test_")},
        acceptance,
        f"{TESTS}: ",
    ),
    "a test is skipped": (
        {TESTS: instead(r"^def test_", "@pytest.mark.skip\ndef test_")},
        acceptance,
        f"{TESTS}: ",
    ),
    "a test may fail": (
        {TESTS: instead(r"^def test_", "@pytest.mark.xfail(strict=False)\ndef test_")},
        acceptance,
        f"{TESTS}: ",
    ),
    "more may differ on another processor": (
        {ELSEWHERE: instead(r"t24.thm1.lbfgs: 1.0e-7", "t24.thm1.lbfgs: 0.5")},
        acceptance,
        "elsewhere within t24.thm1.lbfgs: ",
    ),
    "a statement counts as quoted where it is not": (
        {"book/statements.yml": instead(r'quoted: "[^"]*"', 'quoted: "05#x"')},
        named,
        "quoted at 05#x, but no such label",
    ),
    "a quotation on a plain page is removed": (
        {"book/equations.md": instead(r"^\(equations-l24-14\)=$", "")},
        named,
        "quoted at equations#equations-l24-14, but no such label",
    ),
    "a constant is checked instead of a value": (
        {
            CHAPTER: instead(
                r'check\("t24.fig1.entropy", .*\)$', 'check("t24.fig1.entropy", 0.8811)'
            )
        },
        typed,
        "01_toy, cell",
    ),
    "a comment keeps nbval from comparing a cell": (
        {CHAPTER: instead(r"^(?=check\()", "# NBVAL_IGNORE_OUTPUT\n")},
        unchecked,
        "01_toy: NBVAL_IGNORE_OUTPUT keeps nbval from comparing",
    ),
    "a comment does it by the name that nbval had before": (
        {CHAPTER: instead(r"^(?=check\()", "# PYTEST_VALIDATE_IGNORE_OUTPUT\n")},
        unchecked,
        "01_toy: PYTEST_VALIDATE_IGNORE_OUTPUT keeps nbval from comparing",
    ),
    "a tag does it": (
        {CHAPTER: instead(r"\[parameters\]", "[parameters, nbval-skip]")},
        unchecked,
        "01_toy: nbval-skip keeps nbval from comparing",
    ),
    "a measured value is edited by hand in an executed notebook": (
        {EXECUTED: remeasured("t24.fig2.orthogonal", 1e-13)},
        not_vouched,
        "01_toy: edited",
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_false_edit_is_noticed(book, edited, what):
    edits, check, message = EDITS[what]
    before = honest(check, book)
    for path, change in edits.items():
        edited(path, change)
    said = [line for line in check(book) if line not in before]
    assert any(message in line for line in said), said


def test_more_tests_than_accepted_are_welcome(book, edited):
    before = honest(acceptance, book)
    edited(TESTS, lambda text: f"{text}\n\ndef test_more():\n    assert True\n")
    assert set(acceptance(book)) == before


def test_a_claim_reworded_keeps_its_quotation_s_place_in_the_papers(book, edited):
    edited("book/accepted.txt", instead(r"\t0.8811\t\w+$", "\t0.8811\t002"))
    edited(CLAIMS, claim(ENTROPY, statement="The toy's entropy of tokens."))
    accepted.accept(root=book)
    assert "\t0.8811\t002\n" in (book / "book/accepted.txt").read_text(encoding="utf-8")


def test_an_invented_quotation_stays_unfounded_until_it_is_looked_up(book, edited):
    edited(PATH_PROOF, claim(ERRATUM, printed__text="maximizing a concave function"))
    edited("book/accepted.txt", lambda text: text + "\n")  # so that it is put back
    said = accepted.accept(root=book)
    assert any(line.startswith(f"{ERRATUM}: unread in the papers: maximizing") for line in said)
    paper = {"002": "we are minimizing a strictly convex function over a ball"}
    assert accepted.look_up("minimizing a strictly convex function", paper) == "002"
    assert accepted.look_up("maximizing a concave function", paper) == "absent"
    assert accepted.look_up("≈ 0.987", paper) == "formula"


def test_papers_are_looked_up_across_lines_and_formulas(tmp_path):
    for version in accepted.VERSIONS:
        text = (
            "All the pa-\nrameter\n\n<sup>2</sup> A note.\n\nnorm $W$ ﬁnally grows with the number."
        )
        (tmp_path / f"{version}_x.txt").write_text(text, encoding="utf-8")
    papers = accepted.read_papers(tmp_path)
    assert accepted.look_up("the parameter norm … finally grows with", papers) == "000,001,002,004"
    assert accepted.look_up("the parameter norm … with the letter", papers) == "absent"
    (tmp_path / "001_x.txt").unlink()
    with pytest.raises(ValueError, match=r"has no 001\*.txt"):
        accepted.read_papers(tmp_path)


def glued_numbers(name, book):
    """Numbers with three decimals that a chapter has measured for its prose."""
    glued = re.compile(r'^glue\("(\w+)", f"\{[^}]*:\.3f\}"\)$', re.MULTILINE)
    keys = glued.findall(project.source(name, book).read_text(encoding="utf-8"))
    shown = project.glued(name, book)
    return [shown[key].lstrip("-−") for key in keys]


def test_a_measured_digit_typed_into_the_prose_is_noticed(book, edited):
    name, number = next(
        (name, number)
        for name in project.names(book)
        for number in glued_numbers(name, book)
        # fewer digits may be typed for other reasons
        if len(number.replace(".", "").lstrip("0")) > 2
    )
    before = honest(typed, book)
    edited(f"notebooks/{name}.md", lambda text: f"{text}\nIt is {number}.\n")
    [line] = [line for line in typed(book) if line not in before]
    assert line.startswith(f"{name}: {number} stands in the prose")


def test_a_figure_drawn_from_other_data_than_its_csv_is_noticed(
    book, edited, tmp_path, monkeypatch
):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path))
    kept = []
    monkeypatch.setattr("ntpnb_book.output.show", lambda _, record: kept.append(record))
    saved = [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    for drawn in (saved, [0.9 * height for height in saved]):
        fig, ax = figures.plt.subplots()
        ax.plot(range(len(drawn)), drawn)
        saving.save(fig, "toy_time", {"loss": saved}, 0)
    assert [record["curves"] for record in kept] == [[1, 0], [1, 1]]
    assert kept[0]["data"] == kept[1]["data"]  # the CSV is the same, and so is its hash

    def shows(record):
        return records(lambda old: old.update(record) if old.get("figure") == "toy_time" else None)

    edited(EXECUTED, shows(kept[0]))
    edited("book/accepted.txt", lambda text: text + "\n")  # so that it is put back
    accepted.accept(root=book)
    assert not any("figure toy_time" in line for line in acceptance(book))
    edited(EXECUTED, shows(kept[1]))
    assert (
        "figure toy_time: promises '1 curves, 1 not in its data', "
        "accepted was '1 curves, 0 not in its data'"
    ) in acceptance(book)


def test_a_seed_changed_after_the_run_is_noticed(book, edited):
    name = "13_one_problem"  # the toy has no seed
    keys.record(name, keys.key(name, book), book)
    assert keys.outdated([name], book) == {}
    edited(f"notebooks/{name}.md", instead(r"\bseed = \d+", "seed = 424242"))
    assert list(keys.outdated([name], book)) == [name]


def test_a_flipped_sign_in_the_gradient_is_noticed(tmp_path):
    """By the example in its docstring; `test_notebooks` shows that a chapter notices, too."""
    tiny_project.copy_package("ntpnb", tmp_path)
    module = "ntpnb.training.batch"
    examples = f"import doctest, {module} as m; raise SystemExit(doctest.testmod(m).failed)"
    command = [sys.executable, "-c", examples]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def run():
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    assert run() == (0, "")
    batch = tmp_path / "ntpnb/training/batch.py"
    text = batch.read_text(encoding="utf-8")
    line = "            R -= self._likeliest * (self._ones @ R)\n        return R\n"
    assert text.count(line) == 1
    batch.write_text(text.replace(line, line.replace("return R", "return -R")), encoding="utf-8")
    failed, said = run()
    assert failed > 0
    assert f"{module}.ProblemBatch.residuals" in said
