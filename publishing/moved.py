"""Pages that have moved: what stands at the old address leads to the new one.

`book/moved.yml` lists them, ``old: new``, named as in the table of contents; a new place may be a
section, ``page#label``. This Sphinx extension writes a page at each old address.
"""

from html import escape
from pathlib import Path

import yaml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from ntpnb_book import output

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={address}">
<link rel="canonical" href="{address}">
</head>
<body>
<main><h1>This page has moved</h1><p><a href="{address}">To where it is now</a></p></main>
</body>
</html>
"""


def listed(source: Path) -> dict[str, str]:
    """Read the pages that have moved.

    Parameters
    ----------
    source : Path
        The folder of the pages.
    """
    return yaml.safe_load((source / "moved.yml").read_text(encoding="utf-8"))


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each old address once all others are there; Sphinx calls this.

    Raises
    ------
    ExtensionError
        Where an old page is still there, or a new one is not.
    """
    if error is not None or app.builder.name != "html":
        return
    for old, new in listed(Path(app.srcdir)).items():
        page, mark, label = new.partition("#")
        if old in app.env.found_docs:
            raise ExtensionError(f"moved.yml: {old} has moved, but is still there")
        if page not in app.env.found_docs:
            raise ExtensionError(f"moved.yml: {old} has moved to {page}, which is not there")
        address = app.builder.get_relative_uri(old, page) + mark + label
        text = _PAGE.format(address=escape(address))
        output.write(Path(app.outdir) / f"{old}.html", text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
