"""The keys of the executed notebooks, in one committed file: `book/nb/keys.txt`.

Each line, ``NAME SHA256``, says that the executed notebook of this name came from the sources with
this key (`publishing.staleness.key`). A line is removed before its notebook is replaced and written
after, so that a run that stops in between leaves a notebook that nothing vouches for.
"""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntpnb.notebook import output


def _file(root: Path) -> Path:
    return Path(root) / "book" / "nb" / "keys.txt"


def recorded(root: Path = output.ROOT) -> dict[str, str]:
    """Read the keys by the name of the notebook.

    Lines of another form, as a conflict of two branches leaves them, count for nothing: their
    notebooks run again.
    """
    path = _file(root)
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    rows = re.findall(r"^(\w+) ([0-9a-f]{64})$", text, re.MULTILINE)
    keys = dict(rows)
    ambiguous = {name for name, key in rows if keys[name] != key}
    return {name: key for name, key in keys.items() if name not in ambiguous}


def record(name: str, key: str, root: Path = output.ROOT) -> None:
    """Note the key of the notebook that was just written."""
    with _alone(root):
        _write(recorded(root) | {name: key}, root)


def forget(name: str, root: Path = output.ROOT) -> None:
    """Remove the key of a notebook that is about to be replaced."""
    with _alone(root):
        keys = recorded(root)
        if keys.pop(name, None) is not None:
            _write(keys, root)


def _write(keys: dict[str, str], root: Path) -> None:
    lines = [f"{name} {key}\n" for name, key in sorted(keys.items())]
    output.write(_file(root), "".join(lines))


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep other processes from changing the file between our reading and our writing it."""
    lock = Path(root) / "_build" / "keys.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a kill
        yield
