"""Whether a release is ready: every place that names its version says the same, and where it lives.

The version stands in ``pyproject.toml``. What archives and citation managers read cannot take it
from there, so that `disagreements` compares them: the changelog's newest version, ``CITATION.cff``,
``.zenodo.json`` and ``codemeta.json``.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ntpnb.notebook import output

_VERSION = re.compile(r"^## (\S+) – (\d{4}-\d\d-\d\d)$", re.MULTILINE)
_UNRELEASED = re.compile(r"^## Unreleased$", re.MULTILINE)
_DOI = "https://doi.org/"


def _read(root: Path) -> dict[str, dict[str, Any]]:
    """Read what each file says of version, date, title, description, licence, words and papers."""
    root = Path(root)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    zenodo = json.loads((root / ".zenodo.json").read_text(encoding="utf-8"))
    codemeta = json.loads((root / "codemeta.json").read_text(encoding="utf-8"))
    newest = _VERSION.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    papers = [paper["identifiers"][0]["value"] for paper in citation["references"]]
    return {
        "pyproject.toml": {
            "version": project["version"],
            "licence": project["license"],
            "keywords": project["keywords"],
        },
        "CHANGELOG.md": {
            "version": newest[1] if newest else None,
            "date": newest[2] if newest else None,
        },
        "CITATION.cff": {
            "version": citation.get("version"),
            "date": str(citation.get("date-released")),
            "title": citation["title"],
            "description": " ".join(citation["abstract"].split()),
            "licence": citation["license"],
            "keywords": citation["keywords"],
            "authors": [author["name"] for author in citation["authors"]],
            "papers": papers,
        },
        ".zenodo.json": {
            "version": zenodo["version"],
            "date": zenodo["publication_date"],
            "title": zenodo["title"],
            "description": zenodo["description"],
            "licence": zenodo["license"],
            "keywords": zenodo["keywords"],
            "authors": [creator["name"] for creator in zenodo["creators"]],
            "papers": [entry["identifier"] for entry in zenodo["related_identifiers"]],
        },
        "codemeta.json": {
            "version": codemeta["version"],
            "date": codemeta["datePublished"],
            "title": codemeta["name"],
            "description": codemeta["description"],
            "licence": codemeta["license"].removeprefix("https://spdx.org/licenses/"),
            "keywords": codemeta["keywords"],
            "authors": [author["name"] for author in codemeta["author"]],
            "papers": [
                paper["identifier"].removeprefix(_DOI).replace("10.48550/arXiv.", "arXiv:")
                for paper in codemeta["referencePublication"]
            ],
        },
    }


def disagreements(root: Path = output.ROOT) -> Iterator[str]:
    """Yield, as one line each, what two of these files say otherwise.

    Parameters
    ----------
    root : Path
        The checkout.
    """
    said = _read(root)
    fields = dict.fromkeys(field for file in said.values() for field in file)
    for field in fields:
        sayings = {file: fields_of[field] for file, fields_of in said.items() if field in fields_of}
        first, *others = sayings
        for file in others:
            if sayings[file] != sayings[first]:
                yield f"{field}: {first} says {sayings[first]!r}, {file} {sayings[file]!r}"


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
    yield from disagreements(root)
    if _UNRELEASED.search((Path(root) / "CHANGELOG.md").read_text(encoding="utf-8")):
        yield "CHANGELOG.md: what is unreleased needs its version and date"
    text = (Path(root) / "pyproject.toml").read_text(encoding="utf-8")
    project: Mapping[str, Any] = tomllib.loads(text)["project"]
    if tag != f"v{project['version']}":
        yield f"the tag is {tag}, but pyproject.toml has the version {project['version']}"
    if repository is not None and project.get("urls", {}).get("Source") != repository:
        yield f'pyproject.toml: [project.urls] needs Source = "{repository}"'
