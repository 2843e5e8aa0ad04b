"""What several files say of the project and of the two papers, and where they say it otherwise.

What archives and citation managers read cannot take the version from ``pyproject.toml``, so that
`disagreements` compares them: ``ntpnb_book/pyproject.toml``, the changelog's newest version and
``CITATION.cff``; and what that, the README and the bibliography say of the papers.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import citations
import yaml

from ntpnb_book import output

_VERSION = re.compile(r"^## (\S+) – (\d{4}-\d\d-\d\d)$", re.MULTILINE)
_PAPER = re.compile(
    r"- \*\*[TL]24\*\*, [^:]+: (.+?), \*(.+?)\*, \w+ (\d{4}), "
    r"\[arXiv:([\d.]+)\]\(https://arxiv\.org/abs/([\d.]+)\)"
)
_ARXIV = re.compile(r"(?:arXiv:|arxiv\.org/abs/)(\d{4}\.\d{5})")


def _read(root: Path) -> dict[str, dict[str, Any]]:
    """Read what each file says of version, date, licence, words and papers."""
    root = Path(root)
    declared, of_book = (
        tomllib.loads((root / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name in ("", "ntpnb_book")
    )
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    newest = _VERSION.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    papers = citation["references"]
    listed = citations.references(root)
    cited = [listed[key] for key in ("T24", "L24")]
    described, on_index = (
        _PAPER.findall(" ".join((root / page).read_text(encoding="utf-8").split()))
        for page in ("README.md", "DESCRIPTION.md")
    )
    return {
        "pyproject.toml": {
            "version": declared["version"],
            "licence": declared["license"],
            "keywords": declared["keywords"],
        },
        "ntpnb_book/pyproject.toml": {
            "version": of_book["version"],
            "licence": of_book["license"],
        },
        "CHANGELOG.md": {
            "version": newest[1] if newest else None,
            "date": newest[2] if newest else None,
        },
        "CITATION.cff": {
            "version": citation.get("version"),
            "date": str(citation.get("date-released")),
            "licence": citation["license"],
            "keywords": citation["keywords"],
            "papers": [paper["identifiers"][0]["value"] for paper in papers],
            "their titles": [paper["title"] for paper in papers],
            "their authors": [
                [author["family-names"] for author in paper["authors"]] for paper in papers
            ],
            "their years": [str(paper["year"]) for paper in papers],
            "their volumes": [str(paper["volume"]) for paper in papers],
            "their pages": [f"{paper['start']}--{paper['end']}" for paper in papers],
        },
        "references.bib": {
            "papers": [f"arXiv:{_ARXIV.findall(paper['note'])[0]}" for paper in cited],
            "their titles": [paper["title"] for paper in cited],
            "their authors": [
                [author.partition(",")[0] for author in paper["author"].split(" and ")]
                for paper in cited
            ],
            "their years": [paper["year"] for paper in cited],
            "their volumes": [paper["volume"] for paper in cited],
            "their pages": [paper["pages"] for paper in cited],
        },
        "README.md": {
            "papers": [f"arXiv:{label}" for *_, label, _ in described],
            "their titles": [title for _, title, *_ in described],
            "their authors": [
                [author.rpartition(" ")[2] for author in authors.split(", ")]
                for authors, *_ in described
            ],
            "their years": [year for _, _, year, *_ in described],
        },
        "README.md, in its links": {"papers": [f"arXiv:{target}" for *_, target in described]},
        "DESCRIPTION.md": {"papers": [f"arXiv:{label}" for *_, label, _ in on_index]},
        "DESCRIPTION.md, in its links": {"papers": [f"arXiv:{target}" for *_, target in on_index]},
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
    for key, entry in citations.references(root).items():
        found = set(_ARXIV.findall(f"{entry.get('note')} {entry.get('url')}"))
        if len(found) > 1:
            yield f"references.bib: {key} has two identifiers: {' and '.join(sorted(found))}"
