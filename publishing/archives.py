"""What a reader can take home from the published book: notebooks, figures and the ledger.

Written beside the pages, with the same bytes whenever the contents are the
same.
"""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ntpnb_book import output
from publishing import project

FOLDER = "downloads"
PDF = f"{FOLDER}/ntpnb.pdf"
"""The book on paper, which `make pdf` adds to pages that are there."""


def write_zip(target: Path, files: Mapping[str, Path]) -> None:
    """Write an archive that depends on names and contents alone.

    Parameters
    ----------
    target : Path
        The archive.
    files : mapping
        The files by their names in the archive.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(name)  # of the earliest time that an archive can name
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def notebooks(root: Path = output.ROOT) -> dict[str, Path]:
    """List what `notebooks.zip` holds: all that a notebook needs beside the theory.

    That is its text, what a run made of it, what it imports, its claims, and how to install and
    cite.
    """
    beside = ("LICENSE", "LICENSE-BOOK", "CITATION.cff", "requirements/readers.lock")
    paths = [root / name for name in beside]
    for pattern in ("**/*.py", "*.toml", "data_files/*", "authors_files/*"):
        paths += (root / "ntpnb_book").glob(pattern)
    paths += (root / "book/claims").rglob("*.yml")
    for name in project.names(root):
        paths += [project.source(name, root), project.executed(name, root)]
    return {f"ntpnb/{path.relative_to(root).as_posix()}": path for path in paths}


def figures(root: Path = output.ROOT) -> dict[str, Path]:
    """List what `figures.zip` holds: every figure in all its files, with the data behind it."""
    paths = sorted((root / "figures").iterdir())
    return {f"figures/{path.name}": path for path in paths if not path.name.startswith(".")}


def publish(site: Path, root: Path = output.ROOT) -> list[Path]:
    """Write the archives into a built site; what was there before, such as an older PDF, goes.

    Parameters
    ----------
    site : Path
        The built pages.
    root : Path
        The checkout.

    Returns
    -------
    list of Path
        What was written.
    """
    folder = site / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_zip(folder / "notebooks.zip", notebooks(root))
    write_zip(folder / "figures.zip", figures(root))
    shutil.copyfile(root / "_build/claims.json", folder / "claims.json")
    return sorted(folder.iterdir())
