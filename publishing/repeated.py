"""Which executed notebooks this clone has already executed a second time.

A fresh clone executes every notebook for its figures, and `publishing.verify` compares what that
gave. So nbval, which would execute it once more and compare less, has nothing left to do.
"""

from pathlib import Path

from ntpnb_book import output
from publishing import keys, project


def executed_here(name: str, root: Path = output.ROOT) -> Path:
    """Where this clone's own execution of a notebook lies, while the committed one is kept."""
    return Path(root) / "_build" / "nb" / f"{name}.ipynb"


def _key_file(name: str, root: Path) -> Path:
    return executed_here(name, root).with_suffix(".key")


def note(name: str, key: str, root: Path = output.ROOT) -> None:
    """Record that the sources with this key gave what lies at `executed_here`."""
    output.write(_key_file(name, root), f"{key}\n")


def forget(name: str, root: Path = output.ROOT) -> None:
    """Remove the key of an execution that is about to be replaced."""
    _key_file(name, root).unlink(missing_ok=True)


def has_same_bytes(name: str, root: Path = output.ROOT) -> bool:
    """Whether this clone's execution of a notebook gave the committed one byte for byte."""
    here, committed = executed_here(name, root), project.executed(name, root)
    return here.exists() and here.read_bytes() == committed.read_bytes()


def is_comparable(name: str, root: Path = output.ROOT) -> bool:
    """Whether this clone has executed a notebook from the sources that the committed one came from.

    What it gave lies at `executed_here`.
    """
    key_file = _key_file(name, root)
    if not key_file.exists():
        return False
    executed_from = key_file.read_text(encoding="utf-8").strip()
    return executed_from == keys.recorded(root).get(name)


def remaining(root: Path = output.ROOT) -> list[Path]:
    """Return the executed notebooks that nbval has to compare with a new execution.

    Left out is a notebook that this clone has executed from the sources that the committed one came
    from, which `publishing.verify` compares.
    """
    root = Path(root)
    return [
        project.executed(name, root)
        for name in project.names(root)
        if not is_comparable(name, root)
    ]
