"""What a chapter leaves behind: outputs that carry exact values, and files written as a whole."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
"""The folder around the package: the repository root in a checkout, whatever the working directory.

Of an installed wheel it is the environment's folder of packages; `is_checkout` tells the two apart.
"""


def is_checkout(root: Path = ROOT) -> bool:
    """Say whether a folder holds the book: the chapters' texts and their claims.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ntpnb_book.output import is_checkout
    >>> is_checkout(Path("/nowhere"))
    False
    """
    root = Path(root)
    return (root / "notebooks").is_dir() and (root / "book" / "claims").is_dir()


def show(data: Mapping[str, str], record: Mapping[str, object]) -> None:
    """Show one output in a notebook, with `record` in its metadata; outside one, print its text.

    Parameters
    ----------
    data : mapping of str to str
        Contents by MIME type; ``text/plain`` is required.
    record : mapping
        JSON-safe record that `records` finds again.

    Examples
    --------
    >>> from ntpnb_book.output import show
    >>> show({"text/plain": "Figure toy"}, {"figure": "toy"})
    Figure toy
    """
    if _in_notebook():
        publish(data, {"ntpnb": dict(record)})
    else:
        print(data["text/plain"])


def publish(data: Mapping[str, str], metadata: Mapping[str, object]) -> None:
    """Put one output below the cell that runs; outside a notebook nothing happens.

    Parameters
    ----------
    data : mapping of str to str
        Contents by MIME type.
    metadata : mapping
        What the output carries unseen, safe for JSON.
    """
    if not _in_notebook():
        return
    from IPython import display

    send: Callable[..., None] = display.publish_display_data
    send(dict(data), metadata=dict(metadata))


def _in_notebook() -> bool:
    """Say whether IPython runs this code; it then is loaded already."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def outputs(notebook: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all outputs of an executed notebook, or of some of its ``cells``, in their order.

    Parameters
    ----------
    notebook : mapping
        As JSON.

    Examples
    --------
    >>> from ntpnb_book.output import outputs
    >>> list(outputs({"cells": [{"outputs": [{"text": "1"}]}, {"source": "a sentence"}]}))
    [{'text': '1'}]
    """
    for cell in notebook["cells"]:
        yield from cell.get("outputs", [])


def records(notebook: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """Yield what ``check`` (kind ``id``) or ``figures.save`` (kind ``figure``) left in the outputs.

    Both keep their exact values in the metadata of the output they show.

    Parameters
    ----------
    notebook : mapping
        An executed notebook as JSON, or a part of one with some of its ``cells``.
    kind : str
        Key that the wanted records have.

    Examples
    --------
    >>> from ntpnb_book.output import records
    >>> output = {"metadata": {"ntpnb": {"id": "t24.thm1", "value": 0.5}}}
    >>> list(records({"cells": [{"outputs": [output]}]}, "id"))
    [{'id': 't24.thm1', 'value': 0.5}]
    """
    for output in outputs(notebook):
        record = output.get("metadata", {}).get("ntpnb", {})
        if kind in record:
            yield record


def write(path: Path, content: str | bytes) -> None:
    """Write text or bytes to a temporary file and rename it: readers never see half a file.

    Folders on the way are made.

    Parameters
    ----------
    path : Path
        The file to write or to replace.
    content : str or bytes
        Text is written as UTF-8.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process number keeps two notebooks that run at the same time apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
