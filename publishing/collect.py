"""Closing the ledger: from the executed notebooks to `_build/claims.json` and the generated pages.

Whatever is wrong is reported together: a claim that no notebook measures, a measured id that is
not listed, a value outside its expectation, and the rest of `problems`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ntpnb.notebook import ledger, output
from ntpnb.notebook.claims import Claim, covers, load, statements
from ntpnb.notebook.comparisons import Value, comparison, describe, met
from publishing import manifest, pages, project


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


def _wrong_with_claim(claim: Claim, prefixes: Iterable[str], root: Path) -> Iterator[str]:
    """Yield what is wrong with a listed claim, whatever was measured."""
    id = claim["id"]
    if not any(covers(prefix, id) for prefix in prefixes):
        yield f"{id}: starts with no id of book/statements.yml, nor with beyond. or erratum."
    if "explained" in claim:
        page, label = claim["explained"].split("#")
        text = project.source(Path(page).stem, root)
        if not text.exists() or f"({label})=" not in text.read_text(encoding="utf-8"):
            yield f"{id}: explained at {claim['explained']}, but no ({label})= stands there"


def _wrong_with_value(claim: Claim, value: Value) -> Iterator[str]:
    """Yield what is wrong with a measured value."""
    id = claim["id"]
    expect = comparison(claim["expect"])
    if not met(expect, value):
        yield f"{id}: expected {describe(expect)}, measured {value}"
        return
    outcome = ledger.outcome(claim, value)
    if claim["kind"] == "erratum" and outcome != "wrong as printed":
        yield f"{id}: an erratum, but the value {value} meets what is printed"
    elif outcome not in ("reproduced", "holds") and "explained" not in claim:
        yield f"{id}: the outcome is '{outcome}'; `explained` must link to the reason"


def _wrong_with_files(root: Path) -> Iterator[str]:
    """Yield which executed notebooks are missing or left over."""
    names = project.names(root)
    for name in names:
        if not project.executed(name, root).exists():
            yield f"{name}: never executed; run `python -m publishing run`"
    for path in sorted(Path(root).glob("book/nb/*.ipynb")):
        if path.stem not in names:
            yield f"{path.name}: executed, but notebooks/{path.stem}.md does not exist"


def _wrong_with_measuring(claims: dict[str, Claim], found: Iterable[Measured]) -> Iterator[str]:
    """Yield where what was measured and what is listed do not match, or a value does not fit."""
    seen = set()
    for name, id, value in found:
        if id not in claims:
            yield f"{id}: measured by {name}, but not listed in book/claims"
        elif claims[id]["notebook"] != name:
            yield f"{id}: measured by {name}, but listed in {claims[id]['notebook']}.yml"
        elif id in seen:
            yield f"{id}: measured twice by {name}"
        else:
            seen.add(id)
            yield from _wrong_with_value(claims[id], value)
    for id, claim in claims.items():
        if id not in seen:
            yield f"{id}: listed in {claim['notebook']}.yml, but no notebook measures it"


def _wrong_with_errata(claims: dict[str, Claim]) -> Iterator[str]:
    """Yield the errata of which nobody says what is meant."""
    errata = [claim for claim in claims.values() if claim["kind"] == "erratum"]
    told = {claim.get("explained") for claim in errata if "meant" in claim}
    for claim in errata:
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
    prefixes = ("beyond", "erratum", *statements(root))
    yield from _wrong_with_files(root)
    yield from _wrong_with_measuring(claims, measured(root))
    for claim in claims.values():
        yield from _wrong_with_claim(claim, prefixes, root)
    yield from _wrong_with_errata(claims)
    yield from _wrong_with_figures(root)


def collect(root: Path = output.ROOT) -> list[dict[str, Any]]:
    """Close the ledger: write `_build/claims.json` and the generated pages.

    Returns
    -------
    list of dict
        One entry a claim: ``id``, ``kind``, ``where``, ``statement``, ``printed``, ``expect``,
        ``value``, ``outcome`` and ``notebook``, with ``show``, ``change`` and ``explained`` where
        they are given.

    Raises
    ------
    CollectError
        With one line for each problem; nothing is written.
    """
    found = list(problems(root))
    if found:
        raise CollectError("\n".join(found))
    claims = load(root)
    entries = []
    for _, id, value in measured(root):
        entry = {"where": None, "printed": None} | claims[id]
        entries.append(entry | {"value": value, "outcome": ledger.outcome(claims[id], value)})
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    output.write(Path(root) / "_build/claims.json", text + "\n")
    generated = pages.generate(entries, statements(root), manifest.figures(root), root)
    for name, page in generated.items():
        output.write(Path(root) / "book" / name, page)
    return entries
