"""Where the files of the book lie, and how its notebooks are read."""

import json
import re
from pathlib import Path
from typing import Any

from ntpnb.notebook.output import ROOT

_CODE_CELL = re.compile(r"^(`{3,})\{code-cell\}[^\n]*\n(.*?)^\1`*[ ]*$", re.MULTILINE | re.DOTALL)
_OPTIONS = re.compile(r"\A(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


def names(root: Path = ROOT) -> list[str]:
    """Names of the notebooks, in the book's order: the stems of ``notebooks/NN_name.md``."""
    return sorted(path.stem for path in Path(root).glob("notebooks/[0-9][0-9]_*.md"))


def source(name: str, root: Path = ROOT) -> Path:
    """Path of a notebook's hand-written text."""
    return Path(root) / "notebooks" / f"{name}.md"


def claims(name: str, root: Path = ROOT) -> Path:
    """Path of a notebook's claims."""
    return Path(root) / "book" / "claims" / f"{name}.yml"


def code_cells(name: str, root: Path = ROOT) -> list[str]:
    """Read the code of a notebook's cells from its text, as jupytext does, which is slow to load.

    Options at the head of a cell are left out.
    """
    text = source(name, root).read_text(encoding="utf-8")
    return [_OPTIONS.sub("", match[2], count=1).strip() for match in _CODE_CELL.finditer(text)]


def title(name: str, root: Path = ROOT) -> str:
    """Title of a notebook: the first heading of its text."""
    lines = source(name, root).read_text(encoding="utf-8").splitlines()
    return next((line[2:].strip() for line in lines if line.startswith("# ")), name)


def executed(name: str, root: Path = ROOT) -> Path:
    """Path of the executed notebook that the book shows and the tests compare."""
    return Path(root) / "book" / "nb" / f"{name}.ipynb"


def read_executed(name: str, root: Path = ROOT) -> dict[str, Any]:
    """Read an executed notebook as plain JSON; a notebook never executed has no cells."""
    path = executed(name, root)
    notebook = read_json(path, {"metadata": {}, "cells": []})
    if not (isinstance(notebook, dict) and {"metadata", "cells"} <= notebook.keys()):
        raise ValueError(f"{path}: not a notebook; delete it and run again")
    return notebook


def read_json(path: Path, missing: Any) -> Any:
    """Read a generated JSON file; give `missing` where it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else missing
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error}); delete it and run again") from None


def sweep(root: Path = ROOT) -> None:
    """Remove the temporary files of `write` that a killed run left behind."""
    for folder in ("_build", "_build/nb", "book", "book/nb", "figures"):
        for path in (Path(root) / folder).glob(".*.tmp"):
            path.unlink(missing_ok=True)
