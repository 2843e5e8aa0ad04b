"""A few pages of Markdown, built by Sphinx in this process with some of the book's extensions."""

import io
import os
from pathlib import Path

from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

SETTINGS = {
    "html_theme": "basic",
    "master_doc": "index",
    "myst_enable_extensions": ["colon_fence", "dollarmath"],
    "myst_heading_anchors": 3,
    "numfig": True,
}


def build(
    folder: Path,
    pages: dict[str, str],
    *extensions: str,
    everything: bool = True,
    written: float | None = None,
    builder: str = "html",
    **settings,
) -> tuple[Path, str]:
    """Build pages; returns the folder of the site and what Sphinx warned of.

    Parameters
    ----------
    folder : Path
        An empty folder.
    pages : dict
        Markdown by the page's name; those other than ``index`` need no table of contents.
    extensions : str
        Sphinx extensions besides ``myst_parser``.
    everything : bool
        Whether all pages are built, or only those that Sphinx takes for changed.
    written : float, optional
        When the pages claim to have been written, in seconds since 1970; by default now.
    builder : str
        What Sphinx calls the form of the site.
    """
    for name, text in pages.items():
        path = folder / "book" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        head = "" if name == "index" else "---\norphan: true\n---\n"
        path.write_text(head + text, encoding="utf-8")
        if written is not None:
            os.utime(path, (written, written))
    site, warnings = folder / "site", io.StringIO()
    overrides = SETTINGS | settings | {"extensions": ["myst_parser", *extensions]}
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            folder / "book",
            None,
            site,
            folder / "doctrees",
            builder,
            confoverrides=overrides,
            status=None,
            warning=warnings,
        )
        app.build(force_all=everything)
    return site, warnings.getvalue()


def parsed(path: Path) -> BeautifulSoup:
    """A page of the site, parsed."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
