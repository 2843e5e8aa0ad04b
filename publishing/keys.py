"""The keys of the executed notebooks, in one committed file: `book/nb/keys.txt`.

Each line, ``NAME KEY CONTENT``, says that the executed notebook of this name came from the sources
with this key (`publishing.staleness.key`) and had this content (its sha256): nothing vouches for a
notebook that was edited by hand. A line is removed before its notebook is replaced and written
after, so that nothing vouches for what a run leaves that stops in between, either.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntpnb_book import output
from publishing import project


def _file(root: Path) -> Path:
    return Path(root) / "book" / "nb" / "keys.txt"


def _content(name: str, root: Path) -> str:
    """Hash an executed notebook; zeros for one that is not there."""
    path = project.executed(name, root)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else 64 * "0"


def _lines(root: Path) -> dict[str, tuple[str, str]]:
    """Read key and content by the name of the notebook, whatever lies there now."""
    path = _file(root)
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    rows = re.findall(r"^([\w/]+) ([0-9a-f]{64}) ([0-9a-f]{64})$", text, re.MULTILINE)
    lines = {name: (key, content) for name, key, content in rows}
    ambiguous = {name for name, *line in rows if lines[name] != tuple(line)}
    return {name: line for name, line in lines.items() if name not in ambiguous}


def recorded(root: Path = output.ROOT) -> dict[str, str]:
    """Read the keys by the name of the notebook, of those that lie there as they were written.

    Lines of another form, as a conflict of two branches leaves them, count for nothing: their
    notebooks run again.
    """
    return {
        name: key
        for name, (key, content) in _lines(root).items()
        if content == _content(name, root)
    }


def record(name: str, key: str, root: Path = output.ROOT) -> None:
    """Note the key of the notebook that was just written."""
    with _alone(root):
        _write(_lines(root) | {name: (key, _content(name, root))}, root)


def forget(name: str, root: Path = output.ROOT) -> None:
    """Remove the key of a notebook that is about to be replaced."""
    with _alone(root):
        lines = _lines(root)
        if lines.pop(name, None) is not None:
            _write(lines, root)


def _write(keys: dict[str, tuple[str, str]], root: Path) -> None:
    lines = [f"{name} {key} {content}\n" for name, (key, content) in sorted(keys.items())]
    output.write(_file(root), "".join(lines))


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep other processes from changing the file between our reading and our writing it."""
    folder = _file(root).parent
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)  # the folder itself, so that nothing is left behind
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when it is closed, also by a kill
        yield
    finally:
        os.close(lock)
