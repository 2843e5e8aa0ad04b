"""The book as it is once its address is known: built with one, and shown below its path."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from built_site import broken_links, path_prefix, served
from checks import Visitor
from small_site import parsed

from ntpnb_book.output import ROOT

REPOSITORY = "https://github.com/owner/name"
PUBLIC = "https://owner.github.io/name/"

CONTENTS = """
format: jb-book
root: index
chapters:
  - file: nb/01_toy
  - file: nb/evidence/toy_figures
  - file: explore_words
  - file: changelog
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A page of each kind, the search page, and the one for missing addresses."""
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


PAGES = ["index", "nb/01_toy", "nb/evidence/toy_figures", "explore_words", "changelog"]


def inside(site, address):
    """The file of the site that a public address leads to."""
    assert address.startswith(PUBLIC), address
    return site / address.removeprefix(PUBLIC)


@pytest.mark.slow
def test_its_pages_say_where_they_are_published(site):
    assert path_prefix(site) == "/name/"
    listed = re.findall(r"<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert {f"{PUBLIC}{page}.html" for page in PAGES} <= set(listed)
    assert [address for address in listed if not inside(site, address).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_shared_has_a_card_with_a_picture(page, site):
    head = parsed(site / f"{page}.html").head
    card = {tag["property"]: tag["content"] for tag in head.select("meta[property^='og:']")}
    assert card["og:url"] == f"{PUBLIC}{page}.html"
    assert head.select_one("link[rel=canonical]")["href"] == card["og:url"]
    assert inside(site, card["og:image"]).stat().st_size > 10_000
    for field in ("og:title", "og:description", "og:image:alt"):
        assert len(card[field]) > 2
    assert not re.search(r"[\\{}]|^You need|^Evidence for", card["og:description"])


@pytest.mark.slow
def test_no_link_leads_out_of_its_path(site):
    assert broken_links(site, "/name/") == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index.html", "nb/01_toy.html", "explore_words.html", "404.html"])
def test_its_pages_are_sound(page, visitor):
    assert visitor.visit(page) == []


BUTTONS = (
    r"https://mybinder\.org/v2/gh/owner/name/main\?urlpath=lab/tree/(.+)",
    r"https://colab\.research\.google\.com/github/owner/name/blob/main/(.+)",
)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["nb/01_toy", "nb/evidence/toy_figures"])
def test_a_notebook_has_its_buttons_and_they_open_what_is_there(page, site):
    links = parsed(site / f"{page}.html").select(".bd-header-article a[href]")
    targets = [link["href"] for link in links]
    assert REPOSITORY in targets
    assert f"{REPOSITORY}/issues/new" in " ".join(targets)
    for pattern in BUTTONS:
        [opened] = [found[1] for found in (re.fullmatch(pattern, t) for t in targets) if found]
        assert opened == f"book/{page}.ipynb"
        assert (ROOT / opened).exists()


@pytest.mark.slow
def test_a_page_that_runs_nothing_has_no_launch_button(site):
    assert "mybinder.org/v2" not in (site / "changelog.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_foot_leads_to_the_book_on_paper_and_to_the_repository(site):
    links = parsed(site / "nb/01_toy.html").select(".extra_footer a")
    targets = {link.get_text(): link["href"] for link in links}
    assert targets["The book as a PDF"] == "../downloads/ntpnb.pdf"
    assert targets["Report an error"] == f"{REPOSITORY}/issues"


@pytest.mark.slow
def test_search_finds_pages_below_the_path(visitor):
    visitor.noted.clear()
    tab = visitor.open("search.html?q=entropy", "light", 1280)
    tab.wait_for_selector("ul.search li a")
    tab.locator("ul.search li a").first.click()
    tab.wait_for_url(lambda url: url.startswith(visitor.address) and "search.html" not in url)
    tab.wait_for_load_state("networkidle")
    assert visitor.noted == []


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
