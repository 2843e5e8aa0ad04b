"""Types of ntpnb: the checker accepts the package and a user's program, and reveals real types."""

import ast
import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import public_names
import pytest

import ntpnb

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")


def attribute_types():
    """What public classes say that their attributes are, by dotted name."""
    found = {}
    for name, thing in public_names.public_things().items():
        if inspect.isclass(thing):
            found |= {f"{name}.{each}": hint for each, hint in get_type_hints(thing).items()}
    for name, member in public_names.public_members().items():
        if not member.is_method:
            of_class = inspect.getattr_static(member.owner, member.name)
            function = of_class.fget if isinstance(of_class, property) else of_class.func
            found[name] = get_type_hints(function)["return"]
    return found


def names_used(source):
    """Every ``x`` of an ``ntpnb.x`` in a source text."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if ast.unparse(node.value) == "ntpnb"}


@pytest.mark.slow
def test_the_checker_accepts_the_package_and_a_users_program():
    command = [sys.executable, "-m", "mypy", "--strict", "ntpnb", "ntpnb_book", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_users_program_runs():
    runpy.run_path(str(PROGRAM), run_name="__main__")


def test_the_users_program_uses_every_public_name():
    assert set(ntpnb.__all__) - names_used(PROGRAM.read_text(encoding="utf-8")) == set()


def test_the_type_of_every_public_attribute_is_known():
    found = attribute_types()
    assert len(found) > 200
    assert [name for name, hint in found.items() if hint is Any] == []
