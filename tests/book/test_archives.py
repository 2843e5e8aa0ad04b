"""What readers can take home: whole, the same on every build, and linked from the pages."""

import os
import subprocess
import sys
import zipfile

import pytest
import tiny_project
from built_site import SITE, soup
from tiny_project import write

from ntpnb_book.output import ROOT
from publishing import archives


@pytest.fixture
def book(tmp_path):
    root = tiny_project.make(tmp_path / "book")
    tiny_project.pretend(root, "01_tiny", [])
    beside = ("LICENSE", "LICENSE-BOOK", "CITATION.cff", "requirements/readers.lock")
    made = ("figures/tiny.csv", "figures/tiny.svg", "figures/.half", "_build/claims.json")
    for name in (*beside, *made):
        write(root / name, name)
    return root


def names(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def test_readers_get_notebooks_figures_and_claims(book, tmp_path):
    written = archives.publish(tmp_path / "site", book)
    assert [path.name for path in written] == ["claims.json", "figures.zip", "notebooks.zip"]
    claims, figures, notebooks = written
    assert claims.read_text() == "_build/claims.json"
    assert names(figures) == ["figures/tiny.csv", "figures/tiny.svg"]
    listed = names(notebooks)
    imported = [name for name in listed if name.startswith("ntpnb/ntpnb_book/")]
    assert {f"ntpnb/ntpnb_book/{name}" for name in ("ledger.py", "pyproject.toml")} <= {*imported}
    assert [name for name in listed if name not in imported] == [
        "ntpnb/CITATION.cff",
        "ntpnb/LICENSE",
        "ntpnb/LICENSE-BOOK",
        "ntpnb/book/claims/01_tiny.yml",
        "ntpnb/book/nb/01_tiny.ipynb",
        "ntpnb/notebooks/01_tiny.md",
        "ntpnb/requirements/readers.lock",
    ]


def test_a_notebook_of_the_archive_finds_what_it_imports_and_checks(book, tmp_path):
    *_, archive = archives.publish(tmp_path / "site", book)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path)
    home = tmp_path / "ntpnb"
    code = "from ntpnb_book import check; check('t24.fig1.sum', 12.0)"
    paths = os.pathsep.join([str(home), str(ROOT)])  # the second for the theory
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home / "notebooks",
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("✓ t24.fig1.sum   12.0000"), done.stderr


def test_an_archive_has_the_same_bytes_whenever_its_files_were_written(book, tmp_path):
    first = [path.read_bytes() for path in archives.publish(tmp_path / "site", book)]
    os.utime(book / "figures/tiny.svg", (1e9, 1e9))
    (book / "notebooks/01_tiny.md").chmod(0o600)
    assert [path.read_bytes() for path in archives.publish(tmp_path / "site", book)] == first
    write(book / "figures/tiny.svg", "another")
    assert [path.read_bytes() for path in archives.publish(tmp_path / "site", book)] != first


def test_an_older_pdf_goes_with_the_pages_that_it_was_made_from(book, tmp_path):
    write(tmp_path / "site" / archives.PDF, "old")
    archives.publish(tmp_path / "site", book)
    assert not (tmp_path / "site" / archives.PDF).exists()


def test_the_pages_lead_to_everything_that_can_be_taken_home():
    there = {f"{archives.FOLDER}/{path.name}" for path in (SITE / archives.FOLDER).iterdir()}
    links = {link["href"] for link in soup(SITE / "run.html").select("a[href]")}
    assert len(there) >= 3
    assert there - {archives.PDF} <= links
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"cp _build/ntpnb.pdf _build/html/{archives.FOLDER}/" in makefile
