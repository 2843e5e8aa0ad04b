"""What the built pages came from, told by content: the times of files lie.

A file that is restored, or taken from an archive, may be older than the page that was built from
what lay there before. `make book` builds every page anew where what makes them has another `stamp`;
of the pages themselves this Sphinx extension has those read that changed.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ntpnb.notebook import output

if TYPE_CHECKING:  # the command line does without Sphinx, which is slow to load
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

MACHINERY = (
    "_config.yml",
    "benchmarks/results",
    "book",
    "figures",
    "ntpnb",
    "publishing",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "requirements.lock",
)
"""What pages show or are made by; of ``book``, all but its pages."""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _counts(path: Path) -> bool:
    """Say whether a file of the machinery, named from the root, can change a page."""
    hidden = any(part.startswith((".", "__pycache__")) for part in path.parts)
    is_page = path.parts[0] == "book" and path.suffix == ".md"
    return not hidden and not is_page


def stamp(root: Path = output.ROOT) -> str:
    """Hash the contents and names of what makes the pages; 64 hexadecimal digits."""
    root = Path(root)
    found: list[Path] = []
    for place in MACHINERY:
        path = root / place
        found += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    files = {path.relative_to(root): path for path in found}
    lines = [f"{name} {_digest(path)}\n" for name, path in sorted(files.items()) if _counts(name)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file(app: "Sphinx") -> Path:
    """Where the contents of the pages that were built are noted."""
    return Path(app.doctreedir) / "contents.json"


def _contents(env: "BuildEnvironment") -> dict[str, str]:
    """Hash every page by its name."""
    return {name: _digest(Path(env.doc2path(name))) for name in sorted(env.found_docs)}


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
