"""The book as it is once its address is known: built with one, and shown below its path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from built_site import broken_links, path_prefix, served
from checks import Visitor

from ntpnb.notebook.output import ROOT

CONTENTS = """
format: jb-book
root: index
chapters:
  - file: nb/01_toy
  - file: changelog
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two pages of the book, and the page for missing addresses."""
    folder = tmp_path_factory.mktemp("published")
    contents = folder / "toc.yml"
    contents.write_text(CONTENTS, encoding="utf-8")
    program = Path(sys.executable).with_name("jupyter-book")
    command = [str(program), "build", "book", "--all"]
    command += ["--toc", str(contents), "--path-output", str(folder)]
    address = {"GITHUB_REPOSITORY": "owner/name", "GITHUB_WORKSPACE": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | address, capture_output=True)
    assert not done.returncode, done.stderr.decode()[-3000:]
    return folder / "_build" / "html"


@pytest.fixture(scope="module")
def visitor(site, browser):
    with served(site, path_prefix(site)) as address:
        yield Visitor(browser, address)


@pytest.mark.slow
def test_its_pages_say_where_they_are_published(site):
    assert path_prefix(site) == "/name/"
    assert "https://owner.github.io/name/nb/01_toy.html" in (site / "sitemap.xml").read_text()


@pytest.mark.slow
def test_no_link_leads_out_of_its_path(site):
    assert broken_links(site, "/name/") == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index.html", "nb/01_toy.html", "404.html"])
def test_its_pages_are_sound(page, visitor):
    assert visitor.visit(page) == []


@pytest.mark.slow
def test_a_chapter_has_its_buttons(visitor):
    tab = visitor.open("nb/01_toy.html", "light", 1280)
    targets = [link.get_attribute("href") for link in tab.locator(".bd-header-article a").all()]
    repository = "https://github.com/owner/name"
    assert repository in targets
    assert f"{repository}/issues/new" in " ".join(targets)
    assert "https://mybinder.org/v2/gh/owner/name/" in " ".join(targets)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["no-such-page.html", "nb/deep/er/no-such-page.html"])
def test_a_missing_address_shows_a_page_with_style_and_a_way_back(missing, visitor):
    visitor.noted.clear()
    tab = visitor.open(missing, "dark", 1280)
    refused = f"status 404: {visitor.address}{missing}"
    others = [note for note in visitor.noted if note != refused and "console:" not in note]
    assert refused in visitor.noted
    assert others == []
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.locator("a.navbar-brand").first.click()
    tab.wait_for_url(f"{visitor.address}index.html")  # loaded too, for the sake of the next test
