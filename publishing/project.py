"""Where the files of the book lie, and how the generated ones are read."""

import json
from pathlib import Path

from ntpnb.notebook.output import ROOT


def names(root=ROOT):
    """Names of the notebooks, in the book's order: the stems of ``notebooks/NN_name.md``."""
    return sorted(path.stem for path in Path(root).glob("notebooks/[0-9][0-9]_*.md"))


def source(name, root=ROOT):
    """Path of a notebook's hand-written text."""
    return Path(root) / "notebooks" / f"{name}.md"


def title(name, root=ROOT):
    """Title of a notebook: the first heading of its text."""
    lines = source(name, root).read_text(encoding="utf-8").splitlines()
    return next((line[2:].strip() for line in lines if line.startswith("# ")), name)


def executed(name, root=ROOT):
    """Path of the executed notebook that the book shows and the tests compare."""
    return Path(root) / "book" / "nb" / f"{name}.ipynb"


def read_executed(name, root=ROOT):
    """Read an executed notebook as plain JSON; a notebook never executed has no cells."""
    path = executed(name, root)
    notebook = read_json(path, {"metadata": {}, "cells": []})
    if not (isinstance(notebook, dict) and {"metadata", "cells"} <= notebook.keys()):
        raise ValueError(f"{path}: not a notebook; delete it and run again")
    return notebook


def read_json(path, missing):
    """Read a generated JSON file; give `missing` where it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else missing
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error}); delete it and run again") from None


def sweep(root=ROOT):
    """Remove the temporary files of `write` that a killed run left behind."""
    for folder in ("_build", "_build/nb", "book", "book/nb", "figures"):
        for path in (Path(root) / folder).glob(".*.tmp"):
            path.unlink(missing_ok=True)
