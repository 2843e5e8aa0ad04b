"""What the pages of the book cite, and the bibliography."""

import re
from pathlib import Path

from ntpnb_book.output import ROOT
from publishing import project

_ENTRY = re.compile(r"^@\w+\{(\w+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s+(\w+)\s*=\s*\{(.*)\},?$", re.MULTILINE)


def cited(name):
    """Keys of the bibliography that a notebook cites."""
    text = project.source(name).read_text(encoding="utf-8")
    roles = re.findall(r"\{cite:[pt]\}`([^`]+)`", text)
    return {key.strip() for role in roles for key in role.split(",")}


def references(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Read `book/references.bib`, of which every field stands on a line of its own.

    Returns
    -------
    dict
        By the key of an entry its fields; none where the file is missing.
    """
    path = Path(root) / "book/references.bib"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {key: dict(_FIELD.findall(entry)) for key, entry in _ENTRY.findall(text)}
