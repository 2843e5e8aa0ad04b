"""What the built pages came from, told by content: the times of files lie.

A file that is restored, or taken from an archive, may be older than the page that was built from
what lay there before. `make book` builds all pages anew where what makes them has another `stamp`,
and none where that and the stamp of their texts are the same. Otherwise this Sphinx extension has
those pages read that changed.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ntpnb_book import output
from publishing import keys, project
from publishing.address import find_repository

if TYPE_CHECKING:  # the command line does without Sphinx, which is slow to load
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

MACHINERY = (
    "_config.yml",
    "benchmarks/results",
    "book",
    "figures",
    "ntpnb",
    "ntpnb_book",
    "publishing",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "requirements.lock",
    "tests/math/test_thresholds.py",  # one page shows a part of it
)
"""What pages show or are made by, and in ``book`` their texts."""


def _is_page(path: Path) -> bool:
    """Say whether a file, named from the root, is a page: a text or an executed notebook."""
    return path.parts[0] == "book" and path.suffix in (".md", ".ipynb")


def _outputs(path: Path) -> str:
    """Hash a notebook's outputs, whose numbers and figures other pages show, without its words."""
    cells = project.read_json(path, {})["cells"]
    return project.digest(json.dumps([cell.get("outputs") for cell in cells]).encode())


def stamp(root: Path = output.ROOT, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Hash the contents and names of what makes the pages, and those of their texts.

    Parameters
    ----------
    root : Path
        The checkout.
    environ : mapping of str to str
        The environment: beside git it tells the address, to which pages lead.

    Returns
    -------
    machinery, pages : str
        64 hexadecimal digits each.
    """
    root = Path(root)
    found: list[Path] = []
    for place in MACHINERY:
        path = root / place
        found += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    machinery = [f"{find_repository(root, environ)} {environ.get('GITHUB_REF_NAME')}\n"]
    pages = []
    for path in sorted(found):
        name = path.relative_to(root)
        if any(part.startswith((".", "__pycache__")) for part in name.parts):
            continue  # programs leave it behind
        if name == keys.FILE:
            continue  # no page shows it
        if path.suffix == ".ipynb":
            machinery.append(f"{name} {_outputs(path)}\n")
        lines = pages if _is_page(name) else machinery
        lines.append(f"{name} {project.digest(path.read_bytes())}\n")
    return project.digest("".join(machinery).encode()), project.digest("".join(pages).encode())


def _file(app: "Sphinx") -> Path:
    """Where the contents of the pages that were built are noted."""
    return Path(app.doctreedir) / "contents.json"


def _contents(env: "BuildEnvironment") -> dict[str, str]:
    """Hash every page by its name."""
    return {
        name: project.digest(Path(env.doc2path(name)).read_bytes())
        for name in sorted(env.found_docs)
    }


def changed(
    app: "Sphinx", env: "BuildEnvironment", added: set[str], later: set[str], removed: set[str]
) -> Iterable[str]:
    """Name the pages that are not what was built, whenever they were written; Sphinx calls this."""
    file = _file(app)
    built = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.unlink(missing_ok=True)  # a build that fails vouches for nothing
    return [name for name, content in _contents(env).items() if built.get(name) != content]


def note(app: "Sphinx", error: Exception | None) -> None:
    """Note what the pages were built from; Sphinx calls this at the end."""
    if error is None:
        output.write(_file(app), json.dumps(_contents(app.env)))


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register the extension; Sphinx calls this."""
    app.connect("env-get-outdated", changed)
    app.connect("build-finished", note)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
