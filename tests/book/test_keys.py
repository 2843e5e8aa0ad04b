"""The key of a notebook: what runs it again, what gives it new words, and what does neither."""

import ast
import re

import pytest
import tiny_project
from tiny_project import contents, edit, write

from ntpnb_book import output
from publishing import keys, project, runner

NAME = "01_tiny"
CODE = "its code, its claims, what it imports or the environment changed"
MODULES = {
    "ntpnb/used": '"""A module."""\nfrom ntpnb import deeper\n\n\ndef f():\n    """Two."""\n'
    "    import ntpnb.late\n    return 2  # the number\n",
    "ntpnb/deeper": "x = 1\n",
    "ntpnb/late": "x = 1\n",
    "ntpnb/unused": "x = 1\n",
    "ntpnb/sub/__init__": "x = 1\n",
    "ntpnb/sub/inner": "x = 1\n",
}


IMPORTS = "import ntpnb.used\nimport ntpnb.sub.inner\nimport ntpnb_book.authors_runs\n"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A tiny book that is up to date, whose notebook imports a few modules of its own."""
    root = tiny_project.make(tmp_path_factory.mktemp("book"))
    for name, text in MODULES.items():
        write(root / f"{name}.py", text)
    write(root / "ntpnb/data_files/words.txt", "some words\n")
    write(root / "ntpnb_book/authors_runs.py", "x = 1\n")
    write(root / "ntpnb_book/authors_files/curve.csv", "0.5\n")
    edit(root / "notebooks/01_tiny.md", "import os\n", IMPORTS)
    tiny_project.pretend(root, NAME, [])
    assert keys.outdated([NAME], root) == {}
    return root


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("ntpnb/used.py", "return 2", "return 2.0", CODE),
        ("ntpnb/deeper.py", "x = 1", "x = True", CODE),
        ("ntpnb/late.py", "x = 1", "x = 2", CODE),
        ("ntpnb/sub/__init__.py", "x = 1", "x = 2", CODE),
        ("ntpnb/sub/inner.py", "x = 1", "x = 2", CODE),
        ("ntpnb_book/ledger.py", "import math", "import os, math", CODE),
        ("notebooks/01_tiny.md", "scale = 2.0", "scale = 3.0", CODE),
        ("notebooks/01_tiny.md", "np.arange(4)).sum", "np.arange(5)).sum", CODE),
        ("notebooks/01_tiny.md", "import ntpnb.used", "import ntpnb.unused", CODE),
        ("book/claims/01_tiny.yml", "near: 12.0", "near: 13.0", CODE),
        ("book/claims/01_tiny.yml", '".4f"', '".1f"', CODE),
        ("requirements.lock", "numpy==", "numpy== ", CODE),
        ("ntpnb/data_files/words.txt", "some", "other", CODE),
        ("ntpnb_book/authors_files/curve.csv", "0.5", "0.6", CODE),
        ("notebooks/01_tiny.md", "Four numbers.", "Just four numbers.", keys.REWORDED),
        ("notebooks/01_tiny.md", "caption: Numbers.", "caption: Four.", keys.REWORDED),
        ("ntpnb/used.py", "A module", "Other words", None),
        ("ntpnb/used.py", "Two", "Other words", None),
        ("ntpnb/used.py", "the number", "of course", None),
        ("ntpnb/used.py", "return 2", "\n\n    return (\n        2\n    )", None),
        ("ntpnb/unused.py", "x = 1", "x = 2", None),
        ("book/claims/01_tiny.yml", "The numbers add", "Numbers add", None),
        ("publishing/execute.py", "import logging", "import logging, abc", None),
    ],
)
def test_what_changes_makes_a_notebook_stale_or_not(book, path, old, new, expected):
    with tiny_project.edits(book) as change:
        change(path, lambda text: text.replace(old, new))
        assert keys.outdated([NAME], book).get(NAME) == expected
    assert keys.outdated([NAME], book) == {}


def test_a_file_that_an_editor_left_changes_nothing(book):
    for name in ("used.py.orig", ".used.py.swp", "used-old.py"):
        write(book / "ntpnb" / name, "x = 1\n")
    assert keys.outdated([NAME], book) == {}


def test_a_sentence_stands_in_the_executed_notebook_without_a_run(tmp_path, capfd):
    book = tiny_project.make(tmp_path)
    assert runner.run(root=book) == []
    edit(book / "notebooks/01_tiny.md", "Four numbers.", "Just four numbers.")
    edit(book / "notebooks/01_tiny.md", "caption: Numbers.", "caption: Four.")
    capfd.readouterr()
    assert runner.run(root=book) == []
    said = capfd.readouterr().err
    assert f"{NAME}: {keys.REWORDED}; outputs kept" in said
    assert "0 executed" in said
    reworded = project.executed(NAME, book).read_bytes()
    assert b"Just four numbers." in reworded
    assert keys.outdated([NAME], book) == {}
    before = contents(book, "figures")
    assert runner.run(force=True, root=book) == []
    assert "1 executed" in capfd.readouterr().err
    assert contents(book, "figures") == before
    assert project.executed(NAME, book).read_bytes() == reworded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 'a'", "x = b'a'"),
        ("x = [None, 1]", "x = [1, None]"),
        ("def f(*, a=1, b): x", "def f(*, a, b=1): x"),
        ("f'{x}'", "f'{x!r}'"),
        ("if a: b\nelse: c", "if a: b\nc"),
        ("def f() -> int: x", "def f() -> float: x"),
    ],
)
def test_other_code_has_another_normal_form(one, other):
    assert keys.read_code(one).digest != keys.read_code(other).digest


def test_what_other_versions_of_python_add_to_a_tree_does_not_show():
    function = ast.parse("def f(x): return x").body[0]
    before = keys.normal_form(function)
    function.type_params = []
    function._fields = (*function._fields, "type_params", "not_known_yet")
    function.not_known_yet = None
    assert keys.normal_form(function) == before


def test_what_a_key_leaves_out_matters_to_no_notebook():
    """A docstring that a cell shows, a tag by which a cell is left out, a relative import."""
    for name in project.names():
        text = project.source(name).read_text(encoding="utf-8")
        assert not re.search(r"__doc__|\bhelp\(|\binspect\b|raises-exception|skip-execution", text)
    for package in keys.PACKAGES:
        for path in (output.ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*from \.|__doc__|\bimport inspect\b", text, re.MULTILINE)


def test_the_code_of_every_real_notebook_is_read_as_jupytext_reads_it():
    import jupytext

    for name in project.names():
        cells = jupytext.read(project.source(name)).cells
        code = [cell.source.strip() for cell in cells if cell.cell_type == "code"]
        assert project.code_cells(name) == code


def test_the_file_of_keys_is_sorted_and_read_line_by_line(tmp_path):
    for name, digit in (("02_b", "b"), ("01_a", "a")):
        keys.record(name, keys.Key(64 * digit, 64 * "e"), tmp_path)
    rest = f"{64 * 'e'} {64 * '0'}"  # there are no executed notebooks here
    path = tmp_path / "book/nb/keys.txt"
    assert path.read_text() == f"01_a {64 * 'a'} {rest}\n02_b {64 * 'b'} {rest}\n"
    assert keys.recorded(tmp_path).keys() == {"01_a", "02_b"}


def test_in_a_conflict_of_two_branches_the_key_counts_whose_notebook_lies_there(tmp_path):
    ours, theirs, same = f"01_a {64 * 'a'}", f"01_a {64 * 'b'}", f"02_b {64 * 'c'}"
    there, elsewhere = (f"{64 * 'e'} {64 * digit}" for digit in "01")
    lines = f"<<<<<<< HEAD\n{ours} {there}\n=======\n{theirs} {elsewhere}\n>>>>>>> other\n"
    write(tmp_path / "book/nb/keys.txt", f"{lines}{same} {there}\n")
    expected = {"01_a": keys.Key(64 * "a", 64 * "e"), "02_b": keys.Key(64 * "c", 64 * "e")}
    assert keys.recorded(tmp_path) == expected
    # Nor does one, where what lies there is of neither branch.
    write(tmp_path / "book/nb/01_a.ipynb", "<<<<<<< HEAD\n{}\n=======\n[]\n>>>>>>> other\n")
    assert keys.recorded(tmp_path).keys() == {"02_b"}


def test_nothing_vouches_for_a_notebook_that_was_edited_by_hand(book):
    tiny_project.pretend(book, NAME, [{"id": "t24.fig1.sum", "value": 12.0}])
    assert keys.outdated([NAME], book) == {}
    edit(project.executed(NAME, book), "12.0", "12.4")
    stale = {NAME: "not known to be executed from these sources"}
    assert keys.outdated([NAME], book) == stale
    # What is written beside it does not vouch for it.
    keys.record("02_other", keys.Key(64 * "a", 64 * "a"), book)
    assert keys.outdated([NAME], book) == stale
