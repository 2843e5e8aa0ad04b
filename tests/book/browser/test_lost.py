"""The page for missing addresses of a book that does not know where it is published."""

import pytest
from built_site import served
from small_site import build

from ntpnb_book.output import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lost")
    settings = {
        "templates_path": [str(ROOT / "book" / "_templates")],
        "notfound_template": "lost.html",
        "notfound_urls_prefix": "/",
    }
    site, warnings = build(folder, {"index": "# Book\n"}, "notfound.extension", **settings)
    assert warnings == ""
    return site


@pytest.mark.parametrize("prefix", ["/", "/some/where/"])
def test_it_leads_back_below_any_path(prefix, site, lend):
    with served(site, prefix) as address:
        tab = lend(address)
        for missing in ("no.html", "nb/deep/er/no.html"):
            tab.goto(address + missing)
            tab.get_by_role("link", name="beginning").click()
            tab.wait_for_url(f"{address}index.html")
