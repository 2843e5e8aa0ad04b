"""What a chapter leaves behind: outputs that carry exact values, and files written as a whole."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository root, found from the installed package: the working directory plays no part."""


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


def records(notebook, kind):
    """Yield what ``check`` (kind ``id``) or ``figures.save`` (kind ``figure``) left in the outputs.

    Both keep their exact values in the metadata of the output they show.
    """
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            record = output.get("metadata", {}).get("ntpnb", {})
            if kind in record:
                yield record


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
