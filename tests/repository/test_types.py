"""Types of ntpnb: a checker accepts the package, its examples and a user's program."""

import doctest
import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import public_names
import pytest

import ntpnb

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
THINGS = public_names.public_things()
MEMBERS = public_names.public_members()


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_checker_accepts_the_package_and_a_users_program():
    mypy("--strict", "ntpnb", "ntpnb_book", PROGRAM)


@pytest.mark.slow
def test_the_users_program_runs():
    runpy.run_path(str(PROGRAM), run_name="__main__")


@pytest.mark.slow
def test_the_checker_accepts_the_examples_of_what_users_import(tmp_path):
    docstrings = {name: inspect.getdoc(thing) or "" for name, thing in THINGS.items()}
    docstrings |= {name: member.docstring for name, member in MEMBERS.items()}
    for name, docstring in docstrings.items():
        if name.startswith("ntpnb.") and name.split(".")[1] in ntpnb.__all__:
            examples = doctest.DocTestParser().get_examples(docstring)
            code = "".join(example.source for example in examples)
            (tmp_path / f"{name.replace('.', '_')}.py").write_text(code, "utf-8")
    assert len(list(tmp_path.iterdir())) > 150
    # Examples are no programs: they annotate nothing, and know what is there on their data.
    loosely = ("--config-file=", "--check-untyped-defs", "--no-strict-optional")
    mypy(*loosely, "--ignore-missing-imports", tmp_path)


def said_types():
    """What public attributes say that they are, and functions and methods that they return."""
    for name, thing in THINGS.items():
        if inspect.isclass(thing):
            for attribute, hint in inspect.get_annotations(thing).items():
                yield f"{name}.{attribute}", hint
        elif inspect.isfunction(thing):
            yield name, thing.__annotations__["return"]
    for name, member in MEMBERS.items():
        function = inspect.getattr_static(member.owner, member.name)
        for inner in ("fget", "func", "__func__"):  # of properties and class methods
            function = getattr(function, inner, function)
        yield name, function.__annotations__["return"]


def test_whatever_is_public_has_a_type_that_says_something():
    found = dict(said_types())
    assert len(found) > 300
    unsaid = [name for name, hint in found.items() if hint in (Any, "Any")]
    assert unsaid == ["ntpnb.load"]  # which gives back whatever was saved
