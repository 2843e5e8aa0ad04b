"""Closing the ledger: from the executed notebooks to `_build/claims.json` and the generated pages.

Whatever is wrong is reported together: a claim that no notebook measures, a measured id that is
not listed, a value outside its expectation, and the rest of `problems`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ntpnb_book import ledger, output
from ntpnb_book.claims import Claim, covers, load, statements, sweeps
from ntpnb_book.comparisons import Value, comparison, describe, met
from publishing import manifest, pages, project
from publishing import statements as index

_MISSED = (
    "does not reproduce",
    "the text departs from file and run",
    "undecided by the text",
)
_ERRATA = ("wrong as printed", "a gap in the argument")
_PLAIN = ("reproduced", "holds", "holds by construction")


class CollectError(ValueError):
    """The ledger does not close; the message has one line for each problem."""


class Measured(NamedTuple):
    """What a call of `check` left in an executed notebook."""

    notebook: str
    id: str
    value: Value


def measured(root: Path = output.ROOT) -> list[Measured]:
    """List what the executed notebooks measured, in the book's order."""
    return [
        Measured(name, record["id"], record["value"])
        for name in project.names(root)
        for record in output.records(project.read_executed(name, root), "id")
    ]


def entries(claims: Mapping[str, Claim], values: Mapping[str, Value]) -> list[dict[str, Any]]:
    """Give every measured claim its value, its outcome and, by its sweep, what explains it.

    Parameters
    ----------
    claims : mapping
        The claims by id.
    values : mapping
        What was measured of them, by id.
    """
    verdicts: dict[str, list[bool]] = {}
    explained: dict[str, str] = {}
    for members in sweeps(claims).values():
        found = [
            met(comparison(claims[id]["printed"]), values[id]) for id in members if id in values
        ]
        verdicts |= dict.fromkeys(members, found)
        places = [claims[id]["explained"] for id in members if "explained" in claims[id]]
        explained |= dict.fromkeys(members, places[0]) if places else {}
    listed = []
    for id, value in values.items():
        entry: dict[str, Any] = {"where": None, "printed": None} | claims[id]
        if id in explained:
            entry.setdefault("explained", explained[id])
        outcome = ledger.outcome(entry, value, verdicts.get(id, ()))
        listed.append(entry | {"value": value, "outcome": outcome})
    return listed


def _wrong_with_values(listed: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the measured values of listed claims."""
    for entry in listed:
        id, outcome, expect = entry["id"], entry["outcome"], comparison(entry["expect"])
        if not met(expect, entry["value"]):
            yield f"{id}: expected {describe(expect)}, measured {entry['value']}"
        elif covers("erratum", id) and outcome not in _ERRATA:
            yield f"{id}: an erratum, but the value {entry['value']} meets what is printed"
        elif outcome not in _PLAIN and "explained" not in entry:
            yield f"{id}: the outcome is '{outcome}'; `explained` must link to the reason"
        elif outcome in _MISSED and entry.get("evidence", "printed") != "printed":
            yield f"{id}: the outcome is '{outcome}', so the evidence is `printed`, and counts"


def _wrong_with_files(root: Path) -> Iterator[str]:
    """Yield which executed notebooks are missing or left over."""
    names = project.names(root)
    for name in names:
        if not project.executed(name, root).exists():
            yield f"{name}: never executed; run `python -m publishing run`"
    for name in project.executed_names(root):
        if name not in names:
            yield f"{name}.ipynb: executed, but notebooks/{name}.md does not exist"


def _wrong_with_measuring(claims: dict[str, Claim], found: Iterable[Measured]) -> Iterator[str]:
    """Yield where what was measured and what is listed do not match, or a value does not fit."""
    seen: dict[str, Value] = {}
    for name, id, value in found:
        if id not in claims:
            yield f"{id}: measured by {name}, but not listed in book/claims"
        elif claims[id]["notebook"] != name:
            yield f"{id}: measured by {name}, but listed in {claims[id]['notebook']}.yml"
        elif id in seen:
            yield f"{id}: measured twice by {name}"
        else:
            seen[id] = value
    yield from _wrong_with_values(entries(claims, seen))
    for id, claim in claims.items():
        if id not in seen:
            yield f"{id}: listed in {claim['notebook']}.yml, but no notebook measures it"


def _wrong_with_errata(claims: dict[str, Claim], papers: Iterable[str]) -> Iterator[str]:
    """Yield the errata of no paper, which no page would list, and those without what is meant."""
    papers = sorted(papers)
    errata = [claim for id, claim in claims.items() if covers("erratum", id)]
    told = {claim.get("explained") for claim in errata if "meant" in claim}
    for claim in errata:
        if claim["id"].removeprefix("erratum.").partition("-")[0] not in papers:
            yield f"{claim['id']}: after erratum. the paper is needed: {' or '.join(papers)}, and -"
        if claim.get("explained") not in told:
            yield f"{claim['id']}: an erratum needs `meant` and `affects`, here or beside it"


def _wrong_with_figures(root: Path) -> Iterator[str]:
    """Yield the names under which more than one figure was saved."""
    saved = Counter(row["figure"] for row in manifest.figures(root))
    for name in sorted(saved):
        if saved[name] > 1:
            yield f"{name}: a figure saved more than once"


def problems(root: Path = output.ROOT) -> Iterator[str]:
    """Yield, as one line each, everything that keeps the ledger from closing."""
    claims = load(root)
    listed = statements(root)
    prefixes = ("beyond", "erratum", *listed)
    yield from _wrong_with_files(root)
    yield from _wrong_with_measuring(claims, measured(root))
    for id in claims:
        if not any(covers(prefix, id) for prefix in prefixes):
            yield f"{id}: starts with no id of book/statements.yml, nor with beyond. or erratum."
    yield from _wrong_with_errata(claims, {id.partition(".")[0] for id in listed})
    yield from _wrong_with_figures(root)
    yield from index.problems(listed, claims)


def collect(root: Path = output.ROOT) -> list[dict[str, Any]]:
    """Close the ledger: write `_build/claims.json`, the figures' drawings and the generated pages.

    Returns
    -------
    list of dict
        One entry a claim: ``id``, ``evidence``, ``where``, ``statement``, ``printed``, ``expect``,
        ``value``, ``outcome`` and ``notebook``, with ``show``, ``change``, ``unprinted``,
        ``authors`` and ``explained`` where they are given.

    Raises
    ------
    CollectError
        With one line for each problem; nothing is written.
    """
    found = list(problems(root))
    if found:
        raise CollectError("\n".join(found))
    manifest.unpack(root)
    claims = load(root)
    listed = entries(claims, {id: value for _, id, value in measured(root)})
    text = json.dumps(listed, indent=1, ensure_ascii=False)
    output.write(Path(root) / "_build/claims.json", text + "\n")
    generated = pages.generate(listed, statements(root), manifest.figures(root), root)
    for name, page in generated.items():
        path = Path(root) / "book" / name
        # Sphinx goes by times, and would write the pages of a file anew that is only written again.
        if not path.exists() or path.read_bytes() != page.encode():
            output.write(path, page)
    return listed
