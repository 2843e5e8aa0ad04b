"""Where the files of the book lie, and how they are read and written."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository root, found from the installed package: the working directory plays no part."""


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


def records(notebook, kind):
    """Yield what ``check`` (kind ``id``) or ``figures.save`` (kind ``figure``) left in the outputs.

    Both keep their exact values in the metadata of the output they show.
    """
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            record = output.get("metadata", {}).get("ntpnb", {})
            if kind in record:
                yield record


def show(data, record):
    """Show one output in a notebook, with `record` in its metadata; outside one, print its text.

    Parameters
    ----------
    data : dict
        Contents by MIME type; ``text/plain`` is required.
    record : dict
        JSON-safe record that `records` finds again.
    """
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        print(data["text/plain"])
    else:
        display(data, raw=True, metadata={"ntpnb": record})


def write(path, content):
    """Write text or bytes to a temporary file and rename it: readers never see half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process number keeps two notebooks that run at the same time apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sweep(root=ROOT):
    """Remove the temporary files of `write` that a killed run left behind."""
    for folder in ("_build", "_build/nb", "book", "book/nb", "figures"):
        for path in (Path(root) / folder).glob(".*.tmp"):
            path.unlink(missing_ok=True)
