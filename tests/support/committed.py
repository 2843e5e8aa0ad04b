"""What belongs to the repository, in a checkout as well as in an unpacked archive."""

import shutil
import subprocess
from pathlib import Path

from ntpnb_book.output import ROOT


def ask_git(root: Path, *arguments: str) -> str:
    """What git prints about the checkout at `root`; empty where that is not a checkout.

    An archive may be unpacked inside another project's checkout, which is no answer for it.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    try:
        top = git("rev-parse", "--show-toplevel").strip()
        own = top != "" and Path(top).resolve() == root.resolve()
        return git(*arguments) if own else ""
    except FileNotFoundError:  # an unpacked archive on a machine without git
        return ""


def files(root: Path = ROOT) -> list[str]:
    """Names of the committed files, as they lie there; of an archive, all but what is made here."""
    listed = ask_git(root, "ls-files", "-z")
    if listed:
        return [name for name in listed.strip("\0").split("\0") if (root / name).is_file()]
    ignored = (root / ".gitignore").read_text("utf-8").splitlines()
    patterns = [line.rstrip("/") for line in ignored if line and not line.startswith("#")]

    def is_made_here(path: Path) -> bool:
        parts = (path, *path.parents)
        return any(part.match(pattern) for part in parts for pattern in patterns)

    paths = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return [path.as_posix() for path in paths if not is_made_here(path)]


def copy_to(root: Path) -> Path:
    """Copy what a fresh clone would hold, with what is not committed yet."""
    for name in files():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    return root
