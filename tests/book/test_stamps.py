"""Pages are built anew because of what is in a file, not because of when it was written."""

import os
import pickle
from pathlib import Path

import pytest
from tiny_project import edits, write

from ntpnb_book.output import ROOT
from publishing import stamps

OLD = (1_000_000_000, 1_000_000_000)
FILES = ("_config.yml", "book/images/a.png", "figures/a.svg", "ntpnb/a.py")


@pytest.fixture
def project(tmp_path):
    for name in (*FILES, "book/index.md", "ntpnb/__pycache__/a.pyc", "book/.a.swp", "tests/a.py"):
        write(tmp_path / name, "one")
    return tmp_path


def changed(before, now):
    """What differs between the contents of two times."""
    return {name for name in before | now if before.get(name) != now.get(name)}


@pytest.mark.parametrize("name", FILES)
def test_what_is_in_a_file_counts_and_not_its_time(name, project):
    before = stamps.contents(project)
    os.utime(project / name)
    assert stamps.contents(project) == before
    with edits(project) as edit:
        edit(name, lambda text: "two")
        os.utime(project / name, OLD)
        assert changed(before, stamps.contents(project)) == {name}
    assert stamps.contents(project) == before
    (project / name).rename((project / name).with_name("b"))
    other = f"{name.rpartition('/')[0]}/b".lstrip("/")
    assert changed(before, stamps.contents(project)) == ({name, other} if "/" in name else {name})
    assert not stamps.is_page(name)


def test_words_of_a_notebook_are_a_pages_and_its_outputs_are_for_every_page(project):
    name = "book/nb/01_a.ipynb"
    write(project / name, '{"cells": [{"source": "one"}, {"outputs": ["one"]}]}')
    before = stamps.contents(project)
    write(project / "book/nb/keys.txt", "another key")
    assert stamps.contents(project) == before
    write(project / name, '{"cells": [{"source": "two"}, {"outputs": ["one"]}]}')
    reworded = stamps.contents(project)
    assert changed(before, reworded) == {name}
    write(project / name, '{"cells": [{"source": "two"}, {"outputs": ["two"]}]}')
    assert changed(reworded, stamps.contents(project)) == {name, f"{name}: outputs"}
    assert [stamps.is_page(n) for n in (name, f"{name}: outputs", "book/a.md")] == [1, 0, 1]


def test_the_address_of_the_book_counts(project):
    address = {"GITHUB_REPOSITORY": "someone/ntpnb"}
    branch = address | {"GITHUB_REF_NAME": "v1.0.0"}
    found = [stamps.contents(project, environ) for environ in ({}, address, branch)]
    assert changed(found[0], found[1]) == changed(found[1], found[2]) == {"address"}


@pytest.mark.parametrize("name", ["ntpnb/__pycache__/a.pyc", "book/.a.swp"])
def test_what_programs_leave_behind_does_not_count(name, project):
    before = stamps.contents(project)
    write(project / name, "two")
    assert stamps.contents(project) == before


def test_everything_that_a_real_page_includes_is_stamped():
    for place in stamps.MACHINERY:
        assert (ROOT / place).exists() or place == "figures", place


def test_no_page_is_made_of_a_file_that_is_not_stamped():
    with (ROOT / "_build/.doctrees/environment.pickle").open("rb") as file:
        env = pickle.load(file)
    files = {name for names in env.dependencies.values() for name in names}
    files |= {*env.images, *env.dlfiles}
    paths = {(Path(env.srcdir) / name).resolve() for name in files}
    own = {path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT)}
    assert own
    taken_from_notebooks = ("_build/jupyter_execute", ".venv")
    for path in own:
        known = (*stamps.MACHINERY, *taken_from_notebooks)
        assert any(path.is_relative_to(place) for place in known), path
