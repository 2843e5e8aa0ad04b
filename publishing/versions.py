"""Several versions of the book at one address: the newest, and each release below its name.

A page's foot names its version. Where a site holds more than one, `assemble` turns these words into
links to the same page of the others. It changes finished pages, so that a version that was built
years ago leads to those that came later.
"""

import os
import re
import zipfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ntpnb_book import output

_NAMED = re.compile(r'<span class="versions" data-version="([^"]*)">.*?</span>')


class VersionsError(ValueError):
    """Sites that cannot stand side by side; the message has one line for each problem."""


def named(version: str, links: Sequence[str] = ()) -> str:
    """Write how the foot of a page names its version, and what leads to others.

    Parameters
    ----------
    version : str
        Such as 1.0.0.
    links : sequence of str
        Links to this page in other versions, as HTML.
    """
    also = f" Others: {', '.join(links)}." if links else ""
    version = escape(version)
    return f'<span class="versions" data-version="{version}">Version {version}.{also}</span>'


def version_of(site: Path) -> str:
    """Read the version of a built site from the foot of its first page.

    Raises
    ------
    VersionsError
        Where no version stands there.
    """
    found = _NAMED.search((site / "index.html").read_text(encoding="utf-8"))
    if found is None:
        raise VersionsError(f"{site}: the foot of index.html names no version")
    return found[1]


def _pages(site: Path, others: list[str]) -> dict[str, Path]:
    """Find the pages of one version by their addresses in it, without those of other versions."""
    return {
        path.relative_to(site).as_posix(): path
        for path in sorted(site.rglob("*.html"))
        if path.relative_to(site).parts[0] not in ("_static", *others)
    }


def _version(tag: str) -> Version:
    """Read a tag as a version, which knows what comes before what."""
    try:
        return Version(tag)
    except InvalidVersion:
        raise VersionsError(f"{tag}.zip: {tag!r} is no version; v1.0.0 or v1.0.0rc1 is") from None


def assemble(site: Path, releases: Path) -> list[str]:
    """Put releases of the book below the newest version, and let all lead to one another.

    Parameters
    ----------
    site : Path
        The newest version, built; it is changed.
    releases : Path
        A folder with one archive ``TAG.zip`` for each release, of its built pages.

    Returns
    -------
    list of str
        The tags, newest first; a release candidate is older than its release.

    Raises
    ------
    VersionsError
        Where a tag is no version, or a page of a release is no longer there, nor a page that says
        where it is now.
    """
    tags = [path.stem for path in releases.glob("*.zip")]
    tags.sort(key=_version, reverse=True)
    for tag in tags:
        with zipfile.ZipFile(releases / f"{tag}.zip") as archive:
            archive.extractall(site / tag)
    folders = ["", *tags]
    pages = {folder: _pages(site / folder, tags if folder == "" else []) for folder in folders}
    gone = [
        f"{page} of {folder} is gone: `book/moved.yml` has to say where it is now"
        for folder, own in pages.items()
        for page in own
        if page not in pages[""]
    ]
    if gone:
        raise VersionsError("\n".join(gone))
    words = {folder: folder or f"{version_of(site)}, the newest" for folder in folders}
    for folder, own in pages.items():
        for page, path in own.items():
            links = []
            for other in folders:
                if other != folder:
                    same = page if page in pages[other] else "index.html"
                    address = os.path.relpath(site / other / same, path.parent)
                    links.append(f'<a href="{escape(address)}">{escape(words[other])}</a>')
            text = path.read_text(encoding="utf-8")
            found = _NAMED.search(text)
            if found:
                output.write(path, text.replace(found[0], named(found[1], links)))
    return tags
