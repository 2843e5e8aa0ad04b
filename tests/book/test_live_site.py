"""What pages that run in a browser are made of: the lock, what is put beside a site, the button."""

import gzip
import json
import re
import zipfile

import pytest
from built_site import SITE, soup

from ntpnb_book.output import ROOT
from publishing import live, project
from publishing.live import runtime

PAGES = project.names()


def a_lock(content=b"abc"):
    return {
        "carrier": {"requirement": "carrier==1", "sha256": "0" * 64, "folder": "assets"},
        "files": {"one.js": project.digest(content)},
    }


def a_carrier(folder, content=b"abc"):
    path = folder / "carrier.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("assets/one.js", content)
    return path


@pytest.fixture
def project_folder(tmp_path):
    """A repository with one chapter, and a site with its page and another one."""
    for name in ("notebooks", "book/nb", "book/claims", "requirements", "ntpnb", "ntpnb_book"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ntpnb/py.typed").touch()
    (tmp_path / runtime.LOCK).write_text(json.dumps(a_lock()))
    (tmp_path / "notebooks/01_one.md").write_text("# One\n\n{glue:text}`x` and {glue:text}`y`\n")
    record = {"metadata": {"ntpnb": {"id": "a.claim", "value": 1}}, "output_type": "display_data"}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# One"]},
        {
            "cell_type": "code",
            "metadata": {"tags": ["parameters"]},
            "source": ["steps = 10_000  # of GD; smaller: 100\n", "kinds = ('a', 'b')"],
            "outputs": [],
        },
        {"cell_type": "code", "metadata": {}, "source": ["check()"], "outputs": [record]},
    ]
    notebook = {"metadata": {}, "cells": cells}
    (tmp_path / "book/nb/01_one.ipynb").write_text(json.dumps(notebook))
    site = tmp_path / "_build/html"
    (site / "nb").mkdir(parents=True)
    page = '<html lang="en">\n<body><div class="article-header-buttons"></div></body>\n</html>'
    (site / "nb/01_one.html").write_text(page)
    (site / "index.html").write_text(page)
    return tmp_path


@pytest.fixture
def with_runtime(project_folder):
    """The same, with the files of a runtime that is not one."""
    folder = project_folder / runtime.FOLDER
    folder.mkdir(parents=True)
    (folder / "one.js.gz").write_bytes(gzip.compress(b"abc", mtime=0))
    (folder / runtime.STAMP).write_text(runtime.made_from(project_folder))
    return project_folder


def place(folder):
    return live.place(folder / "_build/html", folder)


def test_without_a_runtime_pages_are_as_before_and_the_reason_is_said(project_folder):
    page = project_folder / "_build/html/nb/01_one.html"
    before = page.read_bytes()
    with pytest.raises(runtime.NoRuntimeError, match="is empty or out of date; `make live`"):
        place(project_folder)
    assert page.read_bytes() == before
    assert not (project_folder / "_build/html/live").exists()


def test_what_a_button_starts_goes_when_the_runtime_does(with_runtime):
    assert place(with_runtime) == 1
    assert (with_runtime / "_build/html/live").exists()
    (with_runtime / runtime.FOLDER / runtime.STAMP).write_text("older")
    with pytest.raises(runtime.NoRuntimeError, match="out of date"):
        place(with_runtime)
    assert not (with_runtime / "_build/html/live").exists()


def test_only_pages_with_cells_have_the_button_and_a_second_time_changes_nothing(with_runtime):
    site = with_runtime / "_build/html"
    place(with_runtime)
    first = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    place(with_runtime)
    assert first == {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    assert b"data-live-start" in (site / "nb/01_one.html").read_bytes()
    assert b"live" not in (site / "index.html").read_bytes()


def test_a_page_is_described_by_its_cells_claims_and_quotes(project_folder):
    described = live.describe("01_one", project_folder)
    parameters, checks = described["cells"]
    assert parameters["parameters"] == [
        {"name": "steps", "value": "10_000", "label": "of GD", "smaller": "100"},
        {"name": "kinds", "value": "('a', 'b')", "label": "", "smaller": ""},
    ]
    assert checks["claims"] == ["a.claim"]
    assert (described["title"], described["quotes"]) == ("One", ["x", "y"])


def test_parts_are_listed_with_their_hashes(with_runtime):
    place(with_runtime)
    folder = with_runtime / "_build/html/live"
    parts = json.loads((folder / "parts.json").read_text())
    assert {part["file"] for part in parts} == {"book.zip", "one.js.gz"}
    for part in parts:
        content = (folder / part["file"]).read_bytes()
        assert (part["sha256"], part["bytes"]) == (project.digest(content), len(content))


def test_a_file_that_is_altered_is_refused(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    complaint = r"one\.js: SHA-256 a52d159f\w+ in carrier\.whl, ba7816bf\w+ in"
    with pytest.raises(runtime.NoRuntimeError, match=complaint):
        runtime.unpack(a_carrier(tmp_path, b"abd"), a_lock(), folder)
    assert not any(folder.iterdir())


def test_the_locked_files_are_unpacked(tmp_path):
    runtime.unpack(a_carrier(tmp_path), a_lock(), tmp_path)
    assert (tmp_path / "one.js").read_bytes() == b"abc"


def test_a_carrier_that_cannot_be_had_leaves_nothing_behind(project_folder, monkeypatch):
    monkeypatch.setattr(runtime.sys, "executable", "no-such-python")
    with pytest.raises(runtime.NoRuntimeError, match="no-such-python is not installed"):
        runtime.fetch(project_folder)
    assert [path.name for path in (project_folder / "_build").iterdir()] == ["html"]


def test_packing_that_fails_leaves_what_was_kept(with_runtime, monkeypatch):
    (with_runtime / runtime.FOLDER / runtime.STAMP).write_text("older")
    before = sorted((with_runtime / runtime.FOLDER).iterdir())
    monkeypatch.setattr(runtime, "_download", lambda lock, folder: a_carrier(folder))
    lock = a_lock() | {"package_list": {}}
    (with_runtime / runtime.LOCK).write_text(json.dumps(lock))
    with pytest.raises(runtime.NoRuntimeError, match="could not be packed"):
        runtime.fetch(with_runtime)
    assert sorted((with_runtime / runtime.FOLDER).iterdir()) == before


def test_what_is_kept_is_made_anew_once_the_lock_changes(with_runtime):
    assert runtime.fetch(with_runtime) == with_runtime / runtime.FOLDER
    (with_runtime / runtime.LOCK).write_text(json.dumps(a_lock(b"other")))
    with pytest.raises(runtime.NoRuntimeError, match="out of date"):
        runtime.kept(with_runtime)


def test_the_lock_has_a_hash_for_each_file():
    lock = runtime.read_lock(ROOT)
    assert set(runtime.LOADED) - {runtime.PACKAGE_LIST} <= lock["files"].keys()
    for value in (*lock["files"].values(), lock["carrier"]["sha256"]):
        assert re.fullmatch(r"[0-9a-f]{64}", value)


@pytest.mark.parametrize("name", PAGES)
def test_a_pages_cells_quotes_and_claims_are_found_on_it(name):
    """By these the script tells what stands where."""
    path = SITE / f"nb/{name}.html"
    if not path.exists():
        pytest.fail("there is no built book in _build/html; run `make book` first")
    page, described = soup(path), live.describe(name)
    shown = [pre.get_text().strip() for pre in page.select(".bd-article .cell_input pre")]
    cells = [cell["code"].strip() for cell in described["cells"]]
    assert [code for code in cells if code in shown] == shown
    quoted = [span.get_text() for span in page.select(".bd-article .pasted-text")]
    assert len(quoted) == len(described["quotes"])
    for cell in described["cells"]:
        for id in cell["claims"]:
            anchor = f"claim-{re.sub('[._]', '-', id).lower()}"
            assert page.find(id=anchor) is not None, id


def test_a_page_grows_by_less_than_a_kilobyte():
    """Nothing else is loaded before the click, and the button is the same on every page."""
    name = PAGES[0]
    page = (SITE / f"nb/{name}.html").read_text(encoding="utf-8")
    page = page.replace("data-live-start", "")  # as if it had none, where it has one already
    sizes = [len(gzip.compress(text.encode())) for text in (live.with_button(page, name), page)]
    assert 0 < sizes[0] - sizes[1] < 500
