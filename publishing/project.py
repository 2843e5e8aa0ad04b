"""Where the files of the book lie, and how its notebooks are read.

A notebook's name is its path below ``notebooks/`` without the suffix: ``05_gradient_descent`` is a
chapter, ``evidence/gd_theorem`` a page of evidence that a chapter leads to.
"""

import ast
import csv
import fcntl
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntpnb_book.output import ROOT, outputs

_CODE_CELL = re.compile(r"^(`{3,})\{code-cell\}[^\n]*\n(.*?)^\1`*[ ]*$", re.MULTILINE | re.DOTALL)
_IN_CONTENTS = re.compile(r"^ *- file: ([\w/-]+)$", re.MULTILINE)
_OPTIONS = re.compile(r"\A(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


EVIDENCE = "evidence"
"""Folder of the pages of evidence, below ``notebooks``, ``book/claims`` and ``book/nb``."""


COMMITTED, HERE = "book/nb", "_build/nb"
"""Folders of executed notebooks: those that the book shows, and what this clone's own runs gave."""


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes, by which files and outputs are told apart."""
    return hashlib.sha256(content).hexdigest()


def names(root: Path = ROOT) -> list[str]:
    """Names of the notebooks, in the book's order: the chapters, then the pages of evidence."""
    return chapters(root) + evidence_pages(root)


def select(typed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Turn what a reader typed (``01_toy``, ``01``, ``gd_theorem`` or a path) into names.

    Where nothing was typed, all are meant.

    Raises
    ------
    ValueError
        Where no notebook has that name.
    """
    known = names(root)
    pages = {Path(name).name: name for name in known}
    chosen: set[str] = set()
    for text in typed:
        chosen.update(pages[page] for page in beginning("notebook", Path(text).stem, pages))
    return [name for name in known if name in chosen] or known


def beginning(kind: str, typed: str, known: Iterable[str]) -> list[str]:
    """List the names that are or begin with what a reader typed: ``01`` means ``01_toy``.

    Dashes may stand for underscores.

    Raises
    ------
    ValueError
        Where there is no such name; it lists those there are.
    """
    begin = f"{typed}_".replace("-", "_")
    found = [name for name in known if f"{name}_".startswith(begin)]
    if not found:
        raise ValueError(f"no {kind} {typed!r}; there are: {', '.join(known) or 'none'}")
    return found


def chapters(root: Path = ROOT) -> list[str]:
    """Names of the chapters, in the book's order: the stems of ``notebooks/NN_name.md``."""
    return sorted(path.stem for path in Path(root).glob("notebooks/[0-9][0-9]_*.md"))


def evidence_pages(root: Path = ROOT) -> list[str]:
    """Names of the pages of evidence, in the order of the contents; those not listed come last."""
    found = sorted(path.stem for path in Path(root).glob(f"notebooks/{EVIDENCE}/[a-z]*.md"))
    pages = [f"{EVIDENCE}/{stem}" for stem in found]
    listed = [of_page(page) for page in contents(root)]
    return sorted(pages, key=[*listed, *pages].index)


def executed_names(root: Path = ROOT) -> list[str]:
    """Names of the notebooks of which an executed file is there, whether or not their text is."""
    folder = Path(root) / COMMITTED
    paths = [*folder.glob("*.ipynb"), *folder.glob(f"{EVIDENCE}/*.ipynb")]
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in paths)


def of_page(docname: str) -> str:
    """Name of the notebook that a page of the book shows; empty where it shows none.

    Parameters
    ----------
    docname : str
        The page as Sphinx names it, such as ``nb/evidence/gd_theorem``.
    """
    folder, _, name = docname.partition("/")
    return name if folder == "nb" else ""


def contents(root: Path) -> list[str]:
    """List the pages of the table of contents, in its order."""
    listed = Path(root) / "book" / "_toc.yml"
    return _IN_CONTENTS.findall(listed.read_text(encoding="utf-8")) if listed.exists() else []


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


def executed(name: str, root: Path = ROOT, folder: str = COMMITTED) -> Path:
    """Path of the executed notebook that the book shows and the tests compare, or of another."""
    return Path(root) / folder / f"{name}.ipynb"


def read_executed(name: str, root: Path = ROOT, folder: str = COMMITTED) -> Any:
    """Read an executed notebook as nbformat does; a notebook never executed has no cells."""
    from nbformat import v4

    path = executed(name, root, folder)
    if not path.exists():
        return v4.new_notebook()
    try:
        return v4.reads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error}); run it again") from None


def glued(name: str, root: Path = ROOT) -> dict[str, str]:
    """Read what an executed notebook glued: texts by their names."""
    return {
        shown["metadata"]["scrapbook"]["name"]: ast.literal_eval(*shown["data"].values())
        for shown in outputs(read_executed(name, root))
        if "scrapbook" in shown.get("metadata", {})
    }


def seconds(root: Path = ROOT) -> dict[str, str]:
    """Read how long each notebook took, where ``python -m benchmarks.notebooks`` measured it."""
    return {row["notebook"]: row["seconds"] for row in results("notebooks", root)}


def results(name: str, root: Path = ROOT) -> list[dict[str, str]]:
    """Read the rows that a benchmark wrote, such as ``browser``; none where it never ran."""
    path = Path(root) / f"benchmarks/results/{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def alone(root: Path = ROOT) -> Iterator[None]:
    """Keep other commands from writing to a checkout; wait for the end of one that does already.

    The lock is the system's, which lifts it however a program ends.
    """
    lock = Path(root) / "_build/.writing"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build of this folder runs; this one begins at its end", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep(root: Path = ROOT) -> None:
    """Remove the temporary files of `write` that a killed run left behind."""
    for folder in ("_build", "book", "figures"):
        for path in (Path(root) / folder).rglob(".*.tmp"):
            path.unlink(missing_ok=True)
