"""Whether a release is ready: its tag is the version, its changes are named, its source is known.

The version stands in ``pyproject.toml``; that every other file says the same is tested.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from ntpnb_book import output


def problems(tag: str, repository: str | None, root: Path = output.ROOT) -> Iterator[str]:
    """Yield, as one line each, what is in the way of releasing the checkout under a tag.

    Parameters
    ----------
    tag : str
        Such as ``v1.0.0rc1``.
    repository : str, optional
        Address of the repository; what is released has to say it, so that a reader of the package's
        page finds the source.
    root : Path
        The checkout.
    """
    if "\n## Unreleased\n" in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield "CHANGELOG.md: what is unreleased needs its version and date"
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]
    if tag != f"v{declared['version']}":
        yield f"the tag is {tag}, but pyproject.toml has the version {declared['version']}"
    if repository is not None and declared.get("urls", {}).get("Source") != repository:
        yield f'pyproject.toml: [project.urls] needs Source = "{repository}"'
