"""What belongs to the repository, in a checkout as well as in an unpacked archive."""

from pathlib import Path

from ntpnb_book.output import ROOT
from publishing.address import ask_git


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
