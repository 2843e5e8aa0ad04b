"""From the executed notebooks to `_build/claims.json` and the generated pages.

Whatever is wrong is reported together: a claim that no notebook measures, a measured id that is
not listed, a value outside its expectation, and the rest of `problems`.
"""

import hashlib
import json
from pathlib import Path

from ntpnb.notebook import ledger, output
from ntpnb.notebook.claims import comparison, covers, load, statements
from publishing import pages, project


class CollectError(ValueError):
    """The ledger does not close; the message has one line for each problem."""


def figures(root=output.ROOT):
    """List the figures that the executed notebooks saved: name, notebook, seed and data hash."""
    return [
        {"figure": record["figure"], "notebook": name, **record}
        for name in project.names(root)
        for record in output.records(project.read_executed(name, root), "figure")
    ]


def data_hash(figure, root=output.ROOT):
    """Hash the data of a figure as they lie in `figures/`."""
    return hashlib.sha256((Path(root) / f"figures/{figure}.csv").read_bytes()).hexdigest()


def read_manifest(root=output.ROOT):
    """Read `figures/manifest.json`; empty where no figure was drawn yet."""
    return project.read_json(Path(root) / "figures/manifest.json", {})


def write_manifest(names, root=output.ROOT):
    """Note in `figures/manifest.json` what the notebooks that just ran have drawn.

    For each figure: its notebook, its seed, the sha256 of its data as this machine computed them,
    and the key of the notebook (see `publishing.execute.key`).
    """
    rows = {}
    for row in figures(root):
        figure, name = row.pop("figure"), row["notebook"]
        if name in names:
            stored = project.read_executed(name, root)["metadata"]["ntpnb"]
            rows[figure] = {k: row[k] for k in ("notebook", "seed")}
            rows[figure] |= {"data": data_hash(figure, root), "key": stored["key"]}
        elif figure in (old := read_manifest(root)):
            rows[figure] = old[figure]
    output.write(
        Path(root) / "figures/manifest.json", json.dumps(rows, indent=1, sort_keys=True) + "\n"
    )


def measured(root=output.ROOT):
    """List what the executed notebooks measured: notebook, id and value, in the book's order."""
    return [
        (name, record["id"], record["value"])
        for name in project.names(root)
        for record in output.records(project.read_executed(name, root), "id")
    ]


def _of_claim(claim, prefixes, root):
    """Yield what is wrong with a listed claim, whatever was measured."""
    id = claim["id"]
    if not any(covers(prefix, id) for prefix in prefixes):
        yield f"{id}: starts with no id of book/statements.yml, nor with beyond. or erratum."
    if "explained" in claim:
        page, label = claim["explained"].split("#")
        text = project.source(Path(page).stem, root)
        if not text.exists() or f"({label})=" not in text.read_text(encoding="utf-8"):
            yield f"{id}: explained at {claim['explained']}, but no ({label})= stands there"


def _of_value(claim, value):
    """Yield what is wrong with a measured value."""
    id, expect = claim["id"], comparison(claim["expect"])
    if not ledger.met(expect, value):
        yield f"{id}: expected {ledger.describe(expect)}, measured {value}"
        return
    outcome = ledger.outcome(claim, value)
    if claim["kind"] == "erratum" and outcome != "wrong as printed":
        yield f"{id}: an erratum, but the value {value} meets what is printed"
    elif outcome not in ("reproduced", "holds") and "explained" not in claim:
        yield f"{id}: the outcome is '{outcome}'; `explained` must link to the reason"


def problems(root=output.ROOT):
    """Yield, as one line each, everything that keeps the ledger from closing."""
    claims, values = load(root), {}
    names = project.names(root)
    for name in names:
        if not project.executed(name, root).exists():
            yield f"{name}: never executed; run `python -m publishing run`"
    for path in sorted(Path(root).glob("book/nb/*.ipynb")):
        if path.stem not in names:
            yield f"{path.name}: executed, but notebooks/{path.stem}.md does not exist"
    for name, id, value in measured(root):
        if id not in claims:
            yield f"{id}: measured by {name}, but not listed in book/claims"
        elif claims[id]["notebook"] != name:
            yield f"{id}: measured by {name}, but listed in {claims[id]['notebook']}.yml"
        elif id in values:
            yield f"{id}: measured twice by {name}"
        else:
            values[id] = value
            yield from _of_value(claims[id], value)
    prefixes = ("beyond", "erratum", *statements(root))
    for id, claim in claims.items():
        yield from _of_claim(claim, prefixes, root)
        if id not in values:
            yield f"{id}: listed in {claim['notebook']}.yml, but no notebook measures it"
    errata = [claim for claim in claims.values() if claim["kind"] == "erratum"]
    told = {claim.get("explained") for claim in errata if "meant" in claim}
    for claim in errata:
        if claim.get("explained") not in told:
            yield f"{claim['id']}: an erratum needs `meant` and `affects`, here or beside it"
    saved = [row["figure"] for row in figures(root)]
    for name in sorted({name for name in saved if saved.count(name) > 1}):
        yield f"{name}: a figure saved more than once"


def collect(root=output.ROOT):
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
    entries = [
        {"where": None, "printed": None}
        | claims[id]
        | {"value": value, "outcome": ledger.outcome(claims[id], value)}
        for _, id, value in measured(root)
    ]
    output.write(
        Path(root) / "_build/claims.json", json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    )
    for name, text in pages.generate(entries, statements(root), figures(root), root).items():
        output.write(Path(root) / "book" / name, text)
    return entries
