"""Versions of the book beside one another, and pages that have moved."""

import zipfile

import pytest
from built_site import broken_links
from packaging.version import InvalidVersion
from small_site import build, parsed
from sphinx.errors import ExtensionError
from tiny_project import write

from ntpnb_book.output import ROOT
from publishing import moved, versions


def site(folder, version, *pages):
    """Write pages whose foot names a version."""
    for page in ("index", *pages):
        text = f"<html><body>A page.<footer>{versions.named(version)}</footer></body></html>"
        write(folder / f"{page}.html", text)
    write(folder / "_static/theme.html", "no page")
    return folder


def archive(folder, tag, *pages):
    """Write the archive of a release's pages."""
    built = site(folder / "built" / tag, tag.removeprefix("v"), *pages)
    with zipfile.ZipFile(folder / f"{tag}.zip", "w") as target:
        for path in sorted(built.rglob("*.html")):
            target.write(path, path.relative_to(built))


def foot(page):
    """What the foot of a page says, and where its links lead."""
    said = parsed(page).select_one("span.versions")
    return said.get_text(), [link["href"] for link in said.select("a")]


@pytest.fixture
def newest(tmp_path):
    return site(tmp_path / "site", "2.0.0", "nb/one", "new")


def test_each_page_leads_to_itself_in_the_other_versions(newest, tmp_path):
    archive(tmp_path / "old", "v1.0.0", "nb/one")
    archive(tmp_path / "old", "v1.10.0", "nb/one")
    assert versions.assemble(newest, tmp_path / "old") == ["v1.10.0", "v1.0.0"]
    assert foot(newest / "nb/one.html") == (
        "Version 2.0.0. Others: v1.10.0, v1.0.0.",
        ["../v1.10.0/nb/one.html", "../v1.0.0/nb/one.html"],
    )
    assert foot(newest / "v1.0.0/nb/one.html") == (
        "Version 1.0.0. Others: 2.0.0, the newest, v1.10.0.",
        ["../../nb/one.html", "../../v1.10.0/nb/one.html"],
    )
    assert foot(newest / "new.html")[1] == ["v1.10.0/index.html", "v1.0.0/index.html"]
    assert broken_links(newest) == []


def test_a_later_version_replaces_what_the_foot_said_of_earlier_ones(newest, tmp_path):
    archive(tmp_path / "old", "v1.0.0")
    versions.assemble(newest, tmp_path / "old")
    with zipfile.ZipFile(tmp_path / "old/v2.0.0.zip", "w") as target:
        target.write(newest / "index.html", "index.html")
    later = site(tmp_path / "later", "3.0.0")
    assert versions.assemble(later, tmp_path / "old") == ["v2.0.0", "v1.0.0"]
    assert foot(later / "v2.0.0/index.html") == (
        "Version 2.0.0. Others: 3.0.0, the newest, v1.0.0.",
        ["../index.html", "../v1.0.0/index.html"],
    )


def test_candidates_come_before_their_release(newest, tmp_path):
    for tag in ("v1.0.0", "v1.0.0rc2", "v1.0.0rc10", "v0.9.0", "v1.0.1rc1"):
        archive(tmp_path / "old", tag)
    found = versions.assemble(newest, tmp_path / "old")
    assert found == ["v1.0.1rc1", "v1.0.0", "v1.0.0rc10", "v1.0.0rc2", "v0.9.0"]


def test_a_tag_that_is_no_version_is_refused(newest, tmp_path):
    archive(tmp_path / "old", "latest")
    with pytest.raises(InvalidVersion, match="'latest'"):
        versions.assemble(newest, tmp_path / "old")


def test_without_releases_nothing_changes(newest, tmp_path):
    (tmp_path / "old").mkdir()
    before = (newest / "index.html").read_bytes()
    assert versions.assemble(newest, tmp_path / "old") == []
    assert (newest / "index.html").read_bytes() == before


def test_a_page_of_a_release_that_is_gone_is_refused(newest, tmp_path):
    archive(tmp_path / "old", "v1.0.0", "nb/one", "gone")
    with pytest.raises(versions.VersionsError, match=r"^gone.html of v1.0.0 is gone: `book/moved"):
        versions.assemble(newest, tmp_path / "old")


PAGES = {"index": "# Book\n", "nb/new": "# New\n\n(part)=\n## Part\n"}


def moving(folder, text):
    write(folder / "book/moved.yml", text)
    return build(folder, PAGES, "publishing.moved")


def test_an_old_address_leads_to_the_new_one(tmp_path):
    built, warnings = moving(tmp_path, "old: nb/new#part\nevidence/deep: index\n")
    assert warnings == ""
    page = parsed(built / "old.html")
    assert page.select_one("meta[http-equiv=refresh]")["content"] == "0; url=nb/new.html#part"
    assert page.a["href"] == page.select_one("link[rel=canonical]")["href"] == "nb/new.html#part"
    assert parsed(built / "evidence/deep.html").a["href"] == "../index.html"
    assert broken_links(built) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nb/new: index\n", "moved.yml: nb/new has moved, but is still there"),
        ("old: nowhere\n", "moved.yml: old has moved to nowhere, which is not there"),
    ],
)
def test_a_move_that_cannot_be_is_refused(tmp_path, text, message):
    with pytest.raises(ExtensionError, match=message):
        moving(tmp_path, text)


def test_the_list_of_the_book_itself_is_read():
    assert (ROOT / "book/moved.yml").exists()
    assert all(isinstance(new, str) for new in moved.listed(ROOT / "book").values())
