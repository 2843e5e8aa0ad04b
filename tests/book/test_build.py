"""Which pages are built: all, those that changed, or none."""

import os
import subprocess

import pytest
from tiny_project import write

from publishing import __main__ as command_line
from publishing import build, runner

OLD = 1_000_000_000
PAGE, MACHINERY = "book/one.md", "_config.yml"


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """Build a page of these files with a builder that ends with this status; say what it built."""
    site = tmp_path / build.SITE
    site.mkdir(parents=True)

    def built(machinery, text, status=0, *, has_site=True):
        commands = []

        def run(command, **options):
            assert options["cwd"] == tmp_path
            commands.append(command)
            return subprocess.CompletedProcess(command, status)

        monkeypatch.setattr(subprocess, "run", run)
        site.mkdir(exist_ok=True)
        for name, content in {MACHINERY: machinery, PAGE: text}.items():
            write(tmp_path / name, content)
            os.utime(tmp_path / name, (OLD, OLD))  # as if it came from an archive
        dropped = site / "dropped.html"
        dropped.write_text("A page of another build.")
        (site / "index.html").unlink(missing_ok=True)
        if has_site:
            (site / "index.html").write_text("The first page.")
        assert build.pages(tmp_path) == (status == 0)
        if not commands:
            return "nothing"
        [command] = commands
        everything = command[-1] == "--all"
        assert dropped.exists() != everything
        is_touched = (tmp_path / PAGE).stat().st_mtime > OLD
        assert is_touched != everything
        return "everything" if everything else "what changed"

    return built


def test_every_page_is_built_where_its_sources_or_the_last_build_say_so(builds, capsys):
    assert builds("1", "a") == "everything"
    assert builds("1", "a") == "nothing"
    assert "the pages are those of these sources" in capsys.readouterr().out
    assert builds("1", "b") == "what changed"
    assert builds("2", "b") == "everything"
    assert builds("2", "c", status=1) == "what changed"
    assert builds("2", "c") == "everything"  # the last build failed
    assert builds("2", "c") == "nothing"
    assert builds("2", "c", has_site=False) == "everything"


def test_a_failed_notebook_or_page_ends_the_build(monkeypatch):
    done = []
    monkeypatch.setattr(runner, "run", lambda names, jobs: done.append(jobs) or ["01_toy"])
    assert command_line.main(["build", "--jobs", "3"]) == 1
    assert done == [3]
    monkeypatch.setattr(runner, "run", lambda names, jobs: [])
    monkeypatch.setattr(command_line.collect, "collect", list)
    monkeypatch.setattr(build, "pages", lambda: False)
    assert command_line.main(["build"]) == 1
