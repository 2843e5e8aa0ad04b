"""A chapter's code as a reader would copy it: public names only, and nothing thrown away."""

import ast
import importlib
import inspect
import json
import re

import jupytext
import lint
import pytest
import tiny_project
from public_names import exported

import ntpnb
from publishing import folding, project
from publishing.keys import PACKAGES

NAMES = project.names()


def cells(name):
    """Syntax trees of a chapter's code cells."""
    return [ast.parse(code) for code in project.code_cells(name)]


def is_public(module):
    """Whether a chapter may import from a module of ours: a package, or one that it exports."""
    package, *parts = module.split(".")
    return not parts or (
        len(parts) == 1
        and (
            parts[0] in importlib.import_module(package).__all__
            or hasattr(importlib.import_module(module), "__all__")
        )
    )


def not_public(tree):
    """Our names that a cell imports or reaches for, without being meant to be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(("ntpnb.", "ntpnb_book.")):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in PACKAGES:
            if not is_public(node.module):
                yield node.module
                continue
            offered = exported(importlib.import_module(node.module))
            yield from (alias.name for alias in node.names if alias.name not in offered)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ntpnb":
            if node.attr not in ntpnb.__all__:
                yield f"ntpnb.{node.attr}"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).removeprefix("ntpnb.")
            module = getattr(ntpnb, owner) if owner in ntpnb.__all__ else None
            if inspect.ismodule(module) and node.attr not in exported(module):
                yield ast.unparse(node)


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_uses_public_names_only(name):
    assert [found for tree in cells(name) for found in not_public(tree)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_assigns_nothing_to_an_underscore(name):
    """Only the value of a cell's last expression is shown, so a call needs no assignment."""
    thrown_away = [
        ast.unparse(node)
        for tree in cells(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "_" for target in node.targets)
    ]
    assert thrown_away == []


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_shows_little_code_and_says_what_is_folded(name):
    assert list(lint.code_shown(name)) == []


@pytest.mark.parametrize("name", project.chapters())
def test_a_chapter_leaves_its_idea_open(name):
    """A few lines stand open in every chapter: what it is about, as one would write it oneself."""
    tags = [cell.metadata.get("tags", []) for cell in jupytext.read(project.source(name)).cells]
    assert [folding.IDEA] in tags


LINE = "x = 1\n"
OPENED = ":tags: [idea]\n\n"


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([OPENED + 12 * LINE, f"# Add\n\n{39 * LINE}"], []),
        ([OPENED + LINE, 41 * LINE.replace("x", "# x")], ["[2]: 41 lines, at most 40"]),
        ([OPENED + LINE, LINE], ["[2]: folded code begins with a comment"]),
        ([OPENED + 13 * LINE], ["Tiny: 13 lines of code stand open, at most 12"]),
        ([OPENED + 7 * LINE, OPENED + 6 * LINE], ["Tiny: 13 lines of code stand open"]),
        ([OPENED + 7 * LINE, "## Next", OPENED + 6 * LINE], []),
        ([41 * LINE], []),  # a chapter not yet written for folding
    ],
)
def test_too_much_code_is_told_apart(tmp_path, cells, found):
    root = tiny_project.make(tmp_path)
    header, *_ = tiny_project.NOTEBOOK.partition("```")
    for cell in cells:
        is_code = not cell.startswith("## ")
        header += f"```{{code-cell}} ipython3\n{cell}```\n\n" if is_code else f"{cell}\n\n"
    tiny_project.write(project.source("01_tiny", root), header)
    said = list(lint.code_shown("01_tiny", root))
    assert len(said) == len(found)
    assert all(message in line for message, line in zip(found, said, strict=True))


def test_a_page_of_evidence_says_what_is_folded(tmp_path):
    root = tiny_project.make_with_evidence(tmp_path)
    said = list(lint.code_shown("evidence/sums", root))
    assert [line.partition(":")[0] for line in said] == [
        f"evidence/sums, cell [{number}]"
        for number in (2, 3)  # the first holds parameters
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_types_no_value_that_it_measures(name):
    assert [*lint.constants(name), *lint.typed_numbers(name)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('check("t24.x", 0.5)', ["01_tiny, cell [1]: a typed value in check('t24.x', 0.5)"]),
        ('check("t24.x", -1 / 2)', ["01_tiny, cell [1]: a typed value in check('t24.x', -1 / 2)"]),
        ('glue("x", "0.5")', ["01_tiny, cell [1]: a typed value in glue('x', '0.5')"]),
        ('check("t24.x", x)\nglue("x", f"{x:.2f}")\nprint("check", 0.5)', []),
    ],
)
def test_a_typed_value_is_told_apart(tmp_path, code, found):
    tiny_project.only(tiny_project.make(tmp_path), code)
    assert list(lint.constants("01_tiny", tmp_path)) == found


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("It is 0.881.", True),
        ("It is $0.881$.", True),
        ("It is {glue:text}`total`, `0.881`.", False),
        ("It is 0.8811 or 10.881 or 0.88.", False),
        ("```{code-cell} ipython3\nx = 0.881\n```", False),
    ],
)
def test_a_number_typed_into_the_prose_is_told_apart(tmp_path, prose, found):
    root = tiny_project.make(tmp_path)
    shown = {"metadata": {"scrapbook": {"name": "total"}}, "data": {"text/plain": "'0.881 nats'"}}
    cells = [{"cell_type": "code", "metadata": {}, "source": "", "outputs": [shown]}]
    notebook = json.dumps({"metadata": {}, "cells": cells})
    tiny_project.write(project.executed("01_tiny", root), notebook)
    tiny_project.write(project.source("01_tiny", root), f"# Tiny\n\n{prose}\n")
    assert (list(lint.typed_numbers("01_tiny", root)) != []) is found


@pytest.mark.parametrize(
    ("expect", "found"),
    [
        ({"near": 2, "within": 1, "because": "measured 2.1; a standard error is 0.3"}, True),
        ({"between": [1, 3], "because": "99 % interval from this book's own runs"}, True),
        ({"near": 2, "within": 1, "because": "the run of 2000 others"}, True),
        ({"near": 0.881086899, "within": 1, "because": "a sum"}, True),
        ({"near": 0.8810869, "within": 1, "because": "a sum; four measures of it"}, False),
        ({"near": -1e-12, "within": 1, "because": "rounding in runs of 100 steps"}, False),
        ({"equals": True}, False),
    ],
)
def test_a_reason_that_is_the_run_is_told_apart(expect, found):
    assert (list(lint.reasons({"t24.x": {"expect": expect}})) != []) is found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from ntpnb.training.coordinates import Coordinates", ["ntpnb.training.coordinates"]),
        ("from ntpnb.training import Coordinates", []),
        ("from ntpnb.training import FEW", ["FEW"]),
        ("from ntpnb.attention import attention_mass, _softmax", ["_softmax"]),
        ("from ntpnb.basics.validation import as_floats", ["ntpnb.basics.validation"]),
        ("import ntpnb.tied.finite", ["ntpnb.tied.finite"]),
        ("import ntpnb\nntpnb.tied.restrict(data)", ["ntpnb.tied"]),
        ("from ntpnb import scores, datasets\nntpnb.datasets.toy()", []),
        ("from ntpnb import attention\nattention._softmax(x)", ["attention._softmax"]),
        ("from ntpnb_book import check, figures, glue", []),
        ("from ntpnb_book import shown", ["shown"]),
    ],
)
def test_what_is_public_is_told_apart(code, found):
    assert list(not_public(ast.parse(code))) == found


def test_the_two_limits_of_a_theorem_are_named_and_not_numbered():
    """Numbered, the limit of the direction was the first on one page, and the second on another."""
    texts = [*project.ROOT.glob("book/*.md"), *project.ROOT.glob("notebooks/**/*.md")]
    texts += project.ROOT.glob("book/claims/**/*.yml")
    numbered = re.compile(r"\b(first|second)\s+limit\b", re.IGNORECASE)
    assert [t.name for t in texts if numbered.search(t.read_text("utf-8"))] == []


SUM_OF_TWO = re.compile(
    r"W_?\{?k\}?\$?[^$|]{0,20}(≈|\\approx)[^$|]{0,60}W(\^|<[^>]*>)*\{?(\\star|\*|★|⋆)"
)
"""W_k as about W* plus more: true relative to its norm, and false as a sum.

It sees this one way of writing it, the one that stood in the second edition, and no words.
"""


def test_nowhere_are_the_two_limits_added_up_but_where_the_print_is_discussed():
    texts = [*project.ROOT.glob("book/**/*.md"), *project.ROOT.glob("notebooks/**/*.md")]
    texts += [*project.ROOT.glob("*.md"), *project.ROOT.glob("book/images/*.svg")]
    texts += [*project.ROOT.glob("ntpnb*/**/*.py"), *project.ROOT.glob("book/_static/**/*.js")]
    drawn = re.compile(r"</?tspan[^>]*>")  # letters of a formula in a drawing
    found = [t.name for t in texts if SUM_OF_TWO.search(drawn.sub("", t.read_text("utf-8")))]
    assert sorted(found) == ["errata.md", "gd_theorem.md"]  # which say what it leaves out
