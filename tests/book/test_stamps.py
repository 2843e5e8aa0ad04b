"""Pages are built anew because of what is in a file, not because of when it was written."""

import os
import pickle
from pathlib import Path

import pytest
from small_site import build, parsed
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


@pytest.mark.parametrize("name", FILES)
def test_the_stamp_knows_what_is_in_a_file_and_not_its_time(name, project):
    before, pages = stamps.stamp(project)
    os.utime(project / name)
    assert stamps.stamp(project) == (before, pages)
    with edits(project) as edit:
        edit(name, lambda text: "two")
        os.utime(project / name, OLD)
        changed, same = stamps.stamp(project)
        assert changed != before
        assert same == pages
    assert stamps.stamp(project) == (before, pages)
    (project / name).rename((project / name).with_name("b"))
    assert stamps.stamp(project)[0] != before


def test_the_text_of_a_page_has_a_stamp_of_its_own(project):
    before, pages = stamps.stamp(project)
    write(project / "book/index.md", "two")
    assert stamps.stamp(project)[0] == before
    assert stamps.stamp(project)[1] != pages


def test_words_of_a_notebook_are_a_pages_and_its_outputs_are_for_every_page(project):
    notebook = project / "book/nb/01_a.ipynb"
    write(notebook, '{"cells": [{"source": "one"}, {"outputs": ["one"]}]}')
    before, pages = stamps.stamp(project)
    write(project / "book/nb/keys.txt", "another key")
    assert stamps.stamp(project) == (before, pages)
    write(notebook, '{"cells": [{"source": "two"}, {"outputs": ["one"]}]}')
    machinery, reworded = stamps.stamp(project)
    assert machinery == before
    assert reworded != pages
    write(notebook, '{"cells": [{"source": "two"}, {"outputs": ["two"]}]}')
    assert stamps.stamp(project)[0] != before


def test_the_stamp_knows_the_address_of_the_book(project):
    address = {"GITHUB_REPOSITORY": "someone/ntpnb"}
    branch = address | {"GITHUB_REF_NAME": "v1.0.0"}
    found = [stamps.stamp(project, environ) for environ in ({}, address, branch)]
    assert len({machinery for machinery, _ in found}) == 3
    assert len({pages for _, pages in found}) == 1


@pytest.mark.parametrize("name", ["ntpnb/__pycache__/a.pyc", "book/.a.swp"])
def test_what_programs_leave_behind_does_not_count(name, project):
    before = stamps.stamp(project)
    write(project / name, "two")
    assert stamps.stamp(project) == before


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


def shown(folder, text, written, *extensions):
    """Build a page where it changed, and return its sentence."""
    page = {"index": f"# Book\n\n{text}\n"}
    site, _ = build(folder, page, *extensions, everything=False, written=written)
    return parsed(site / "index.html").select_one("section p").get_text()


def test_a_page_restored_with_an_old_time_is_built_anew(tmp_path):
    extension = "publishing.stamps"
    assert shown(tmp_path, "First.", 2e9, extension) == "First."
    assert shown(tmp_path, "Second.", 1e9, extension) == "Second."
    assert shown(tmp_path, "First.", 1e9, extension) == "First."


def test_sphinx_alone_would_keep_the_old_page(tmp_path):
    assert shown(tmp_path, "First.", 2e9) == "First."
    assert shown(tmp_path, "Second.", 1e9) == "First."
