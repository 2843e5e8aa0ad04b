"""Several versions of the book at one address: the newest, and each release below its name.

A page's foot names its version. Where a site holds more than one, `assemble` turns these words into
links to the same page of the others. It changes finished pages, so that a version that was built
years ago leads to those that came later.
"""

import os
import re
import shutil
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path

from packaging.version import Version

from ntpnb_book import output

_NAMED = re.compile(r'<span class="versions" data-version="([^"]*)">.*?</span>')


class VersionsError(ValueError):
    """Pages of a release that nothing leads to any more; the message has one line for each."""


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


def _pages(site: Path, left_out: Collection[str]) -> set[str]:
    """Find the pages of one version, by their addresses in it, without some of its folders."""
    paths = [path.relative_to(site) for path in site.rglob("*.html")]
    return {path.as_posix() for path in paths if path.parts[0] not in left_out}


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
        Where a page of a release is no longer there, nor a page that says where it is now.
    """
    tags = sorted((path.stem for path in releases.glob("*.zip")), key=Version, reverse=True)
    for tag in tags:
        shutil.unpack_archive(releases / f"{tag}.zip", site / tag)
    pages = {folder: _pages(site / folder, {"_static", *tags}) for folder in ("", *tags)}
    gone = [
        f"{page} of {tag} is gone: `book/moved.yml` has to say where it is now"
        for tag in tags
        for page in sorted(pages[tag] - pages[""])
    ]
    if gone:
        raise VersionsError("\n".join(gone))
    newest = _NAMED.search((site / "index.html").read_text(encoding="utf-8"))[1]
    for folder, own in pages.items():
        for page in own:
            path = site / folder / page
            links = []
            for other in pages:
                if other != folder:
                    same = page if page in pages[other] else "index.html"
                    address = os.path.relpath(site / other / same, path.parent)
                    words = other or f"{newest}, the newest"
                    links.append(f'<a href="{escape(address)}">{escape(words)}</a>')
            text = path.read_text(encoding="utf-8")
            found = _NAMED.search(text)
            if found:
                output.write(path, text.replace(found[0], named(found[1], links)))
    return tags
