"""Staleness: what a notebook can reach, and that an edit there, and no other, makes it stale."""

import ast
import re
import shutil
from pathlib import Path

import jupytext
import pytest
import tiny_project
from tiny_project import edit

from ntpnb_book import output
from publishing import keys, project, staleness
from publishing.dependencies import PACKAGES, Packages
from publishing.syntax import normal_form, shows_docstrings

NAMES = sorted(project.names())


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A copy of the real project, of which every notebook is up to date."""
    root = tmp_path_factory.mktemp("book")
    for place in ("ntpnb", "ntpnb_book", "notebooks", "book/claims", "publishing"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(output.ROOT / place, root / place, ignore=ignore)
    shutil.copy(output.ROOT / "requirements.lock", root)
    shutil.copy(output.ROOT / "book/statements.yml", root / "book")
    for name in NAMES:
        tiny_project.write(project.executed(name, root), '{"metadata": {}, "cells": [{}]}')
    sources = staleness.Sources(root)
    for name in NAMES:
        keys.record(name, sources.key(name), root)
    assert stale(root) == []
    return root


@pytest.fixture
def edited(book):
    """Edit files of the book, and put them back afterwards."""
    with tiny_project.edits(book) as edit:
        yield edit


def stale(root):
    return sorted(staleness.outdated(project.names(root), root))


def other_words(text):
    """Write a module anew: other docstrings, other comments, other line breaks, the same code."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if bare and isinstance(node.value.value, str):
            node.value.value = "Other words."
    return f"# Another comment.\n\n\n{ast.unparse(tree)}\n"


def other_result(text):
    """Change one expression of a module: what one of its functions returns."""
    tree = ast.parse(text)
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
    returns[0].value = ast.List([returns[0].value], ast.Load())
    return ast.unparse(tree)


def naming(use):
    """Notebooks in whose code this pattern occurs, by their text alone."""
    found = []
    for name in NAMES:
        cells = jupytext.read(project.source(name)).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        if re.search(use, code):
            found.append(name)
    assert 0 < len(found) < len(NAMES)
    return found


def test_other_docstrings_comments_and_line_breaks_make_nothing_stale(book, edited):
    modules = sorted(path for name in PACKAGES for path in (book / name).rglob("*.py"))
    assert len(modules) > 20
    for path in modules:
        edited(path, other_words)
    assert stale(book) == []


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("ntpnb/thresholds.py", r"from ntpnb import .*\bthresholds\b|ntpnb\.thresholds\b"),
        ("ntpnb/reporting/analysis.py", r"ntpnb\.report\("),
        ("ntpnb/training/path.py", r"ntpnb\.(regularization|ridge)_path\("),
        ("ntpnb/training/flow.py", r"ntpnb\.(gradient_flow|report)\(|\blate_joint_flow\b"),
        ("ntpnb/attention.py", r"from ntpnb import .*\battention\b|from ntpnb\.attention import"),
    ],
)
def test_another_expression_makes_those_stale_that_import_it(book, edited, path, use):
    expected = naming(use)
    edited(path, other_result)
    assert stale(book) == expected


@pytest.mark.parametrize(
    "path",
    [
        "ntpnb/problem/loss.py",
        "ntpnb/problem/data.py",
        "ntpnb_book/figures.py",
        "ntpnb_book/ledger.py",
    ],
)
def test_what_every_notebook_needs_makes_all_stale(book, edited, path):
    edited(path, other_result)
    assert stale(book) == NAMES


@pytest.mark.parametrize("path", ["requirements.lock", "ntpnb/data_files/genesis.txt"])
def test_the_environment_and_the_data_make_all_stale(book, edited, path):
    edited(path, lambda text: f"{text}\n# more\n")
    assert stale(book) == NAMES


def test_its_own_text_makes_a_notebook_stale(book, edited):
    edited("notebooks/02_entropy.md", lambda text: f"{text}\nOne more sentence.\n")
    assert stale(book) == ["02_entropy"]


@pytest.mark.parametrize(
    ("pattern", "instead", "expected"),
    [
        (r'statement: "', 'statement: "Really, ', []),
        (r"because: \"", 'because: "surely ', []),
        (r'where: "', 'where: "Near ', []),
        (r"^  show: .*$", "  show: .1f", ["01_toy"]),
        (r"expect: \{near: [0-9.]+", "expect: {near: 4711", ["01_toy"]),
        (r"^- id: t24\.", "- id: l24.", ["01_toy"]),
    ],
)
def test_of_a_claim_only_what_check_reads_counts(book, edited, pattern, instead, expected):
    def change(text):
        return re.sub(pattern, instead, text, count=1, flags=re.MULTILINE)

    edited("book/claims/01_toy.yml", change)
    assert stale(book) == expected


@pytest.mark.parametrize(
    "path", ["publishing/pages.py", "publishing/execute.py", "book/statements.yml"]
)
def test_what_only_builds_pages_makes_nothing_stale(book, edited, path):
    edited(path, lambda text: f"{text}\n# more\n")
    assert stale(book) == []


def test_a_file_that_an_editor_left_makes_nothing_stale(book):
    for name in ("loss.py.orig", ".loss.py.swp", "#loss.py#", "loss-old.py"):
        tiny_project.write(book / "ntpnb/problem" / name, "x = 1\n")
    assert stale(book) == []


def test_the_code_of_every_real_notebook_is_read_as_jupytext_reads_it():
    for name in NAMES:
        cells = jupytext.read(project.source(name)).cells
        code = [cell.source.strip() for cell in cells if cell.cell_type == "code"]
        assert project.code_cells(name) == code


PACKAGE = {
    "__init__": '"""A package."""\nfrom ntpnb import one\nfrom ntpnb.sub.two import double\n'
    "__version__ = str(1)\n__all__ = ['double', 'one']\n",
    "one": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ntpnb.unused\n",
    "unused": "x = 1\n",
    "later": "def f():\n    from ntpnb.sub import double\n    return double\n",
    "relative": "from .sub import three\n",
    "sub/__init__": "from ntpnb.sub.two import double\n",
    "sub/two": "def double(x):\n    return 2 * x\n",
    "sub/three": "import numpy\n",
    "lively/__init__": "from ntpnb.sub import three\nprint(three)\n",
    "lively/four": "y = 4\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in PACKAGE.items():
        tiny_project.write(tmp_path / f"ntpnb/{name}.py", text)
    return Packages(tmp_path)


def modules(package, *cells):
    """Modules that are reached and have code, without the name of the package."""
    return {
        name.removeprefix("ntpnb.")
        for name in package.reach(cells).modules
        if package.modules[name].code.body
    }


EVERYTHING = {"one", "unused", "later", "relative", "sub.two", "sub.three", "lively", "lively.four"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy", set()),
        ("import ntpnb", set()),
        ("import ntpnb\nntpnb.__version__", set()),
        ("import ntpnb\nntpnb.double(2).shape", {"sub.two"}),
        ("import ntpnb as n\nn.one.x", {"one"}),
        ("import ntpnb.sub.three as t", {"sub.three"}),
        ("import ntpnb.sub.three\nntpnb.sub.double", {"sub.two"}),
        ("from ntpnb import one", {"one"}),
        ("from ntpnb import double as d", {"sub.two"}),
        ("from ntpnb import sub as s\ns.double", {"sub.two"}),
        ("from ntpnb.sub import three", {"sub.three"}),
        ("from ntpnb.later import f", {"later", "sub.two"}),
        ("from ntpnb import relative", {"relative", "sub.three"}),
        ("from ntpnb.lively import four", {"lively", "lively.four", "sub.three"}),
        ("from ntpnb.one import *", {"one"}),
        ("def f():\n    import ntpnb\n    return [ntpnb.double]", {"sub.two"}),
        ("from ntpnb import sub\nuse(sub)", {"sub.two", "sub.three"}),
        ("import ntpnb\nuse(ntpnb)", EVERYTHING),
        ("import ntpnb\ngetattr(ntpnb, name)", EVERYTHING),
        ("import ntpnb\nntpnb.nobody_knows", EVERYTHING),
        ("from ntpnb import *", EVERYTHING),
        ("from importlib import import_module\nimport_module(name)", EVERYTHING),
        ("%run other.py", EVERYTHING),
        ("!python other.py", EVERYTHING),
        ("get_ipython().run_line_magic('run', 'other.py')", EVERYTHING),
    ],
)
def test_what_code_reaches(package, code, expected):
    assert modules(package, "x = 1", code) == expected


def test_an_import_in_one_cell_serves_the_others(package):
    assert modules(package, "ntpnb.double(1)", "import ntpnb") == {"sub.two"}


def test_a_name_that_moves_to_another_definition_is_noticed(package, tmp_path):
    reached = package.reach(["from ntpnb import double"]).definitions
    edit(tmp_path / "ntpnb/__init__.py", "import double", "import treble as double")
    assert Packages(tmp_path).reach(["from ntpnb import double"]).definitions != reached


SAMPLE = '''
"""A module."""

import numpy as np  # the usual

LIMIT = 1_000
"""How many."""


class Pair(tuple[int, str], metaclass=type):
    """Two."""

    def __init__(self, *names: str, sep="é\\\\n", **rest) -> None:
        """Make one."""
        self.text = f"{names!r:>{LIMIT}} and" f" {{}} {sep}"

    async def run(self, /, x: float | None = None, *, y=1e-3):
        match x:
            case None | {"a": [1, *_]} if y > 0:
                pass
            case Pair(text=t):
                return not t
        return [a async for a in x if a], {**x}, x[1:, ...], 2j, b"b", True
'''


def test_the_normal_form_is_the_same_on_every_python():
    # Written on Python 3.11; whatever another version's parser adds must not show.
    assert normal_form(ast.parse(SAMPLE)) == (Path(__file__).parent / "normal_form.txt").read_text(
        encoding="utf-8"
    ).strip("\n")


def test_what_other_versions_add_to_a_tree_does_not_show():
    function = ast.parse("def f(): return f'a{x}b'").body[0]
    before = normal_form(function)
    function.type_params = []
    function._fields = (*function._fields, "type_params", "not_known_yet")
    function.not_known_yet = None
    text = function.body[0].value
    [head, value, tail] = text.values
    value.format_spec = ast.JoinedStr([])
    text.values = [ast.Constant(""), head, value, ast.Constant(""), tail]
    head.kind = "u"
    assert normal_form(function) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("x = [None, 1]", "x = [1, None]"),
        ("f(**a)", "f(*a)"),
        ("{**a, 'b': 1}", "{'b': 1, **a}"),
        ("def f(a, *, b): x", "def f(a, b): x"),
        ("def f(*, a=1, b): x", "def f(*, a, b=1): x"),
        ("f'{x}'", "f'{x!r}'"),
        ("f'{x}'", "f'{x:2}'"),
        ("x = y = 1", "x = 1; y = 1"),
        ("a - (b - c)", "a - b - c"),
        ("def f() -> int: x", "def f() -> float: x"),
        ("if a: b\nelse: c", "if a: b\nc"),
        ("return_ = 'doc'", "return_ = 'dog'"),
    ],
)
def test_other_code_has_another_normal_form(one, other):
    assert normal_form(ast.parse(one)) != normal_form(ast.parse(other))


def test_docstrings_count_where_they_may_be_shown():
    one = ast.parse("def f():\n    'One.'\n    return 1")
    other = ast.parse("def f():\n    'Other.'\n    return 1")
    assert normal_form(one) == normal_form(other)
    assert normal_form(one, docstrings=True) != normal_form(other, docstrings=True)
    assert shows_docstrings("help(f)")
    assert shows_docstrings("print(f.__doc__)")
    assert shows_docstrings("f?  # help of IPython")
    assert not shows_docstrings("f()  # help")


def test_the_file_of_keys_is_sorted_and_read_line_by_line(tmp_path):
    for name, digit in (("02_b", "b"), ("01_a", "a"), ("03_c", "c")):
        keys.record(name, 64 * digit, tmp_path)
    keys.forget("03_c", tmp_path)
    path = tmp_path / "book/nb/keys.txt"
    none = 64 * "0"  # there are no executed notebooks here
    assert path.read_text() == f"01_a {64 * 'a'} {none}\n02_b {64 * 'b'} {none}\n"
    assert keys.recorded(tmp_path) == {"01_a": 64 * "a", "02_b": 64 * "b"}


def test_a_key_in_a_conflict_of_two_branches_counts_for_nothing(tmp_path):
    ours, theirs, same = (f"{name} {64 * digit} {64 * '0'}\n" for name, digit in
                          (("01_a", "a"), ("01_a", "b"), ("02_b", "c")))  # fmt: skip
    conflict = f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> other\n{same}"
    tiny_project.write(tmp_path / "book/nb/keys.txt", conflict)
    assert keys.recorded(tmp_path) == {"02_b": 64 * "c"}


def test_nothing_vouches_for_a_notebook_that_was_edited_by_hand(tmp_path):
    root = tiny_project.make(tmp_path)
    tiny_project.pretend(root, "01_tiny", [{"id": "t24.fig1.sum", "value": 12.0}])
    assert stale(root) == []
    tiny_project.edit(project.executed("01_tiny", root), "12.0", "12.4")
    assert stale(root) == ["01_tiny"]
    keys.record("02_other", 64 * "a", root)  # what is written beside it does not vouch for it
    assert stale(root) == ["01_tiny"]
