"""A chapter's code as a reader would copy it: public names only, and nothing thrown away."""

import ast
import importlib
import inspect

import jupytext
import pytest

import ntpnb
from publishing import project

NAMES = project.names()


def cells(name):
    """Syntax trees of a chapter's code cells."""
    notebook = jupytext.read(project.source(name))
    return [ast.parse(cell.source) for cell in notebook.cells if cell.cell_type == "code"]


def public_names(module):
    """What a module offers: its ``__all__``, or else what it defines without an underscore."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.getmodule(value) is module
    }


def is_public(module):
    """Whether a chapter may import from a module of ours: the package, or one that it exports."""
    parts = module.split(".")
    return len(parts) == 1 or (
        len(parts) == 2
        and (parts[1] in ntpnb.__all__ or hasattr(importlib.import_module(module), "__all__"))
    )


def not_public(tree):
    """Our names that a cell imports or reaches for, without being meant to be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("ntpnb."):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "ntpnb":
            if not is_public(node.module):
                yield node.module
                continue
            offered = public_names(importlib.import_module(node.module))
            yield from (alias.name for alias in node.names if alias.name not in offered)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ntpnb":
            if node.attr not in ntpnb.__all__:
                yield f"ntpnb.{node.attr}"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).removeprefix("ntpnb.")
            module = getattr(ntpnb, owner) if owner in ntpnb.__all__ else None
            if inspect.ismodule(module) and node.attr not in public_names(module):
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


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from ntpnb.training.coordinates import Coordinates", ["ntpnb.training.coordinates"]),
        ("from ntpnb.training import Coordinates", []),
        ("from ntpnb.training import FEW", ["FEW"]),
        ("from ntpnb.attention import attention_mass, _softmax", ["_softmax"]),
        ("from ntpnb.validation import as_floats", ["ntpnb.validation"]),
        ("import ntpnb.tied.finite", ["ntpnb.tied.finite"]),
        ("import ntpnb\nntpnb.tied.restrict(data)", ["ntpnb.tied"]),
        ("from ntpnb import scores, datasets\nntpnb.datasets.toy()", []),
        ("from ntpnb import attention\nattention._softmax(x)", ["attention._softmax"]),
        ("from ntpnb.notebook import check, figures, glue", []),
    ],
)
def test_what_is_public_is_told_apart(code, found):
    assert list(not_public(ast.parse(code))) == found
