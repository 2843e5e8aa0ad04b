"""Where the project and its pages are published, where that is known.

The address of the repository comes from the build's environment, from the package's metadata or
from the checkout, in this order.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

HOSTED = re.compile(r"(?:https://|git@|ssh://git@)(github\.com|gitlab\.com)[:/](.+?)(?:\.git)?/?")


def repository_url(environ: Mapping[str, str], declared: Sequence[str], remote: str) -> str | None:
    """Return the public https address of the repository, or None where it is not known.

    Parameters
    ----------
    environ : mapping of str to str
        The environment; a GitHub Actions run sets ``GITHUB_REPOSITORY`` to ``owner/name``.
    declared : sequence of str
        The package's ``Project-URL`` metadata, each ``label, address``.
    remote : str
        What ``git remote get-url origin`` prints, or the empty string.
    """
    candidates = []
    if environ.get("GITHUB_REPOSITORY"):
        candidates.append(f"https://github.com/{environ['GITHUB_REPOSITORY']}")
    for line in declared:
        _, _, address = line.partition(",")
        candidates.append(address.strip())
    candidates.append(remote.strip())
    for candidate in candidates:
        match = HOSTED.fullmatch(candidate)
        if match:
            return f"https://{match[1]}/{match[2]}"
    return None


def ask_git(root: Path, *arguments: str) -> str:
    """Return what git prints about the checkout at `root`; empty where that is not a checkout.

    An archive may be unpacked inside another project's checkout, which is no answer for it.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    try:
        top = git("rev-parse", "--show-toplevel").strip()
        own = top != "" and Path(top).resolve() == Path(root).resolve()
        return git(*arguments) if own else ""
    except FileNotFoundError:  # an unpacked archive on a machine without git
        return ""


def find_repository(root: Path, environ: Mapping[str, str]) -> str | None:
    """Find the address of the project at `root`, as `repository_url` gives it."""
    workspace = environ.get("GITHUB_WORKSPACE")
    if workspace and Path(workspace).resolve() != Path(root).resolve():
        environ = {}  # the workflow is another project's, which only builds this one
    declared = metadata.metadata("ntpnb").get_all("Project-URL") or []
    return repository_url(environ, declared, ask_git(root, "remote", "get-url", "origin"))


def pages_url(repository: str) -> str:
    """Return the address at which GitHub or GitLab publishes a repository's pages."""
    match = re.fullmatch(r"https://(\w+)\.com/(.+)/([^/]+)", repository)
    if match is None:
        raise ValueError(
            f"{repository}: an address such as https://github.com/owner/name is needed"
        )
    host, owner, name = match.groups()
    return f"https://{owner.lower().replace('/', '.')}.{host}.io/{name}/"
