"""What the built pages came from, told by content: the times of files lie.

A file that is restored, or taken from an archive, may be older than the page that was built from
what lay there before.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ntpnb_book import output
from publishing import keys, project
from publishing.address import find_repository

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


def is_page(name: str) -> bool:
    """Say whether a file, named from the root, is a page: a text or an executed notebook."""
    return name.startswith("book/") and name.endswith((".md", ".ipynb"))


def _outputs(path: Path) -> str:
    """Hash a notebook's outputs, whose numbers and figures other pages show, without its words."""
    cells = json.loads(path.read_bytes())["cells"]
    return project.digest(json.dumps([cell.get("outputs") for cell in cells]).encode())


def contents(root: Path = output.ROOT, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Hash what makes the pages, and their texts.

    Parameters
    ----------
    root : Path
        The checkout.
    environ : mapping of str to str
        The environment, which tells the address to which pages lead.

    Returns
    -------
    dict
        Hashes by the file's name, those of a notebook's outputs by ``NAME: outputs``.
    """
    root = Path(root)
    found = {"address": f"{find_repository(root, environ)} {environ.get('GITHUB_REF_NAME')}"}
    for place in MACHINERY:
        for path in [root / place, *(root / place).rglob("*")]:
            name = path.relative_to(root)
            left_behind = any(part.startswith((".", "__pycache__")) for part in name.parts)
            if not path.is_file() or left_behind or name.name == keys.FILE:  # no page shows these
                continue
            found[name.as_posix()] = project.digest(path.read_bytes())
            if path.suffix == ".ipynb":
                found[f"{name.as_posix()}: outputs"] = _outputs(path)
    return found
