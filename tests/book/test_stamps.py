"""Pages are built anew because of what is in a file, not because of when it was written."""

import os
import shutil
import subprocess

import pytest
from small_site import build, parsed
from tiny_project import edits, write

from ntpnb.notebook.output import ROOT
from publishing import stamps

OLD = (1_000_000_000, 1_000_000_000)
FILES = ("_config.yml", "book/nb/01_a.ipynb", "book/images/a.png", "figures/a.svg", "ntpnb/a.py")


@pytest.fixture
def project(tmp_path):
    for name in (*FILES, "book/index.md", "ntpnb/__pycache__/a.pyc", "book/.a.swp", "tests/a.py"):
        write(tmp_path / name, "one")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_the_stamp_knows_what_is_in_a_file_and_not_its_time(name, project):
    before = stamps.stamp(project)
    os.utime(project / name)
    assert stamps.stamp(project) == before
    with edits(project) as edit:
        edit(name, lambda text: "two")
        os.utime(project / name, OLD)
        assert stamps.stamp(project) != before
    assert stamps.stamp(project) == before
    (project / name).rename((project / name).with_name("b"))
    assert stamps.stamp(project) != before


@pytest.mark.parametrize("name", ["book/index.md", "ntpnb/__pycache__/a.pyc", "book/.a.swp"])
def test_pages_and_what_programs_leave_behind_do_not_count(name, project):
    before = stamps.stamp(project)
    write(project / name, "two")
    assert stamps.stamp(project) == before


def test_everything_that_a_real_page_includes_is_stamped():
    for place in stamps.MACHINERY:
        assert (ROOT / place).exists() or place == "figures", place


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


FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$*" in *stamp*) cat {stamp};; *build*) exit $(cat {status});; esac
"""


def test_make_builds_every_page_where_the_stamp_or_the_last_build_says_so(tmp_path):
    tools, log = tmp_path / "venv/bin", tmp_path / "log"
    places = {name: tmp_path / name for name in ("log", "stamp", "status")}
    for name in ("python", "jupyter-book"):
        write(tools / name, FAKE.format(**places))
        (tools / name).chmod(0o755)
    for name in (".locked", ".ready"):
        (tmp_path / "venv" / name).touch()
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = {"VENV": "venv", "BUILT": "built", "SITE": "site"}
    settings = [f"{name}={tmp_path}/{place}" for name, place in made.items()]
    command = [shutil.which("make"), "book", *settings]
    dropped = tmp_path / "site/dropped.html"

    def builds(stamp, status=0):
        write(dropped, "A page of another build.")
        write(tmp_path / "stamp", stamp)
        write(tmp_path / "status", str(status))
        log.unlink(missing_ok=True)
        done = subprocess.run(command, cwd=ROOT, env=shell, capture_output=True, text=True)
        assert (done.returncode == 0) == (status == 0), done.stderr
        [line] = [line for line in log.read_text().splitlines() if line.startswith("jupyter")]
        assert dropped.exists() != line.endswith(" --all")
        return "everything" if line.endswith(" --all") else "what changed"

    assert builds("1") == "everything"
    assert builds("1") == "what changed"
    assert builds("2") == "everything"
    assert builds("2", status=1) == "what changed"
    assert builds("2") == "everything"  # the last build failed
