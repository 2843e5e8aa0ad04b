"""Where the project and its pages are published, where that is known.

A workflow of GitHub says so in its environment, and the package in its metadata.
"""

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_HOSTED = re.compile(r"https://(github|gitlab)\.com/(.+)/([^/]+)")


def find_repository(root: Path, environ: Mapping[str, str]) -> str | None:
    """Find the address of the project at `root`, or None where it is not known.

    Parameters
    ----------
    root : Path
        The checkout. A workflow of another project, which only builds this one, says nothing of it.
    environ : mapping of str to str
        The environment; a GitHub Actions run sets ``GITHUB_REPOSITORY`` to ``owner/name``.
    """
    workspace = Path(environ.get("GITHUB_WORKSPACE", root))
    if environ.get("GITHUB_REPOSITORY") and workspace.resolve() == Path(root).resolve():
        return f"https://github.com/{environ['GITHUB_REPOSITORY']}"
    lines = metadata.metadata("ntpnb").get_all("Project-URL") or []
    declared = dict(line.split(", ", 1) for line in lines).get("Source", "")
    return declared if _HOSTED.fullmatch(declared) else None


def pages_url(repository: str) -> str:
    """Return the address at which GitHub or GitLab publishes a repository's pages.

    Parameters
    ----------
    repository : str
        What `find_repository` found.
    """
    host, owner, name = _HOSTED.fullmatch(repository).groups()
    return f"https://{owner.lower().replace('/', '.')}.{host}.io/{name}/"
