"""Only what pages use: the parts of MathJax, and of the other files those that something names.

Themes and extensions bring all they have, fifteen times as much as the pages load.
"""

import re
import shutil
from importlib import util
from pathlib import Path

from sphinx.application import Sphinx

MATHJAX = (
    "startup.js",
    "core.js",
    "input/tex-base.js",
    "input/tex/extensions/ams.js",
    "input/tex/extensions/boldsymbol.js",
    "output/chtml.js",
    "output/chtml/fonts/**/*.*",
    "a11y/assistive-mml.js",
)
"""Files of MathJax; `_config.yml` lists the same for its loader."""

UNUSED = (
    "locales",
    "scripts/fontawesome.*",
    "vendor",
    "**/*.map",
    "**/*.LICENSE.txt",
    "*-macros.html",
)
"""What no page asks for, in `_static`: `book/_static/icons.css` stands in for Font Awesome."""

_ALL_ICONS = re.compile(r'(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}')
"""The rules of the theme's style sheet that name the letters of Font Awesome's fonts."""


def copy_mathjax(static: Path) -> None:
    """Copy what pages load of MathJax."""
    source = Path(util.find_spec("sphinx-mathjax-offline").origin).parent / "static/mathjax"
    for pattern in MATHJAX:
        for path in source.glob(pattern):
            target = static / "mathjax" / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def remove_unused(site: Path) -> None:
    """Remove the files and the icons of a built site that no page asks for."""
    for pattern in UNUSED:
        for path in list((site / "_static").glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    theme = site / "_static/styles/pydata-sphinx-theme.css"
    theme.write_text(_ALL_ICONS.sub("", theme.read_text(encoding="utf-8")), encoding="utf-8")


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Complete and clean the site once all pages are written; Sphinx calls this."""
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    copy_mathjax(site / "_static")
    if app.builder.name == "html":
        remove_unused(site)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
