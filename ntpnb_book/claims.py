"""The claims of the book: their files, their schema, and reading them.

`book/claims/NN_name.yml` lists the claims of the chapter of that name, and
`book/claims/evidence/name.yml` those of the page of evidence. What may stand in
``printed`` and ``expect`` is in `ntpnb_book.comparisons`.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import fastjsonschema
import yaml

from ntpnb_book.comparisons import HORIZONS, comparison
from ntpnb_book.output import ROOT

Claim: TypeAlias = dict[str, Any]
"""A claim as its file lists it; the schema below says what stands in it."""

EVIDENCE = {
    "printed": "a number or comparison that a paper prints",
    "proof-step": "a step of a proof, an identity or a bound of a paper, recomputed",
    "property": "a statement tested over many random problems",
    "illustration": "shown on data built for it",
    "prediction": "this book's own expectation or result",
    "by construction": "follows from how data or objects are made; no run can differ",
}
"""The kinds of evidence that a claim gives, with their meaning."""

_NUMBER: dict[str, Any] = {"type": "number"}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_COMPARISONS: dict[str, Any] = {
    "near": _NUMBER,
    "within": {"type": "number", "minimum": 0},
    "at_most": _NUMBER,
    "at_least": _NUMBER,
    "below": _NUMBER,
    "above": _NUMBER,
    "between": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2},
    "equals": {"type": ["boolean", "integer", "string"]},
}
_BOUNDS = ("near", "at_most", "at_least", "below", "above")  # may differ from horizon to horizon
_HORIZONS = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 3}
_AT_HORIZONS = {
    word: {"anyOf": [kind, {"type": "array", "items": kind}]} if word in _BOUNDS else kind
    for word, kind in _COMPARISONS.items()
}
_SCHEMA = {
    "type": "object",
    "required": ["id", "evidence", "statement", "expect"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": r"^[a-z0-9]+(\.[A-Za-z0-9_-]+)+$"},
        "evidence": {"enum": list(EVIDENCE)},
        "where": _TEXT,
        "statement": _TEXT,
        "printed": {
            "type": "object",
            "required": ["text"],
            "additionalProperties": False,
            "properties": {"text": _TEXT, **_COMPARISONS},
        },
        "expect": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"because": _TEXT, HORIZONS: _HORIZONS, **_AT_HORIZONS},
        },
        "show": _TEXT,
        "change": _TEXT,
        "unprinted": {
            "type": "object",
            "required": ["settings", "sweep"],
            "additionalProperties": False,
            "properties": {
                "settings": _TEXT,
                "sweep": {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True},
            },
        },
        "authors": {
            "type": "object",
            "required": ["value", "table", "curve", "step"],
            "additionalProperties": False,
            "properties": {
                "value": _NUMBER,
                "table": _TEXT,
                "curve": _TEXT,
                "step": {"type": "integer", "minimum": 0},
                "compared": _TEXT,
            },
        },
        "meant": _TEXT,
        "affects": {"enum": ["statement", "proof", "text"]},
        "explained": {"type": "string", "pattern": r"^nb/([0-9]{2}_|evidence/)\w+\.ipynb#[\w.-]+$"},
    },
}
_fits_schema = fastjsonschema.compile(_SCHEMA)


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times quicker, where it is


class _Loader(_Base):  # type: ignore[misc]  # which of the two is known only here
    """YAML 1.2 where PyYAML is not: ``1e-6`` is a number, and a key that comes twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping, whose last entry of two under one key would otherwise count."""
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} comes twice", node.start_mark
                )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _wrong_with_horizons(horizons: list[float], expect: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the horizons of an expectation, and with its lists of bounds."""
    if any(later < 10 * earlier for earlier, later in itertools.pairwise(horizons)):
        yield f"each of the horizons is at least ten times the one before, found {horizons}"
    for word in _BOUNDS:
        bound = expect.get(word)
        if isinstance(bound, list) and len(bound) != len(horizons):
            yield f"{word} has {len(bound)} entries, for {len(horizons)} horizons"


def _complaints(claim: Claim) -> Iterator[str]:
    """Yield what is wrong with a claim that fits the schema."""
    expect = comparison(claim["expect"])
    horizons = expect.pop(HORIZONS, [])
    printed = comparison(claim.get("printed"))
    for block, compare in (("expect", expect), ("printed", printed)):
        a_range = compare.keys() == {"near", "within"}
        half_a_range = bool(compare.keys() & {"near", "within"}) and not a_range
        if half_a_range or (len(compare) > 1 and not a_range):
            yield f"{block} needs one comparison, found {compare}"
    if not expect:
        yield "expect needs a comparison"
    yield from _wrong_with_horizons(horizons, expect)
    if horizons and printed:
        yield "a print is compared with one value, not with several horizons"
    if "equals" not in expect and "because" not in claim["expect"]:
        yield "expect needs `because`, the reason for its tolerance or bound"
    if covers("erratum", claim["id"]) and "printed" not in claim:
        yield "an erratum needs what is printed"
    if covers("erratum", claim["id"]) and not printed and claim.get("affects") != "proof":
        yield "an erratum without a comparison in printed is a gap, and affects a proof"
    if ("meant" in claim) != ("affects" in claim):
        yield "`meant` and `affects` belong together"
    if "change" in claim and not printed:
        yield "a stated change needs a comparison in printed"
    if claim.get("evidence") == "printed" and not printed:
        yield "the evidence `printed` needs a comparison in printed"
    for word in ("unprinted", "authors"):
        if word in claim and not printed:
            yield f"`{word}` needs a comparison in printed"
    if "where" not in claim and not covers("beyond", claim["id"]):
        yield "`where` is missing"


def _wrong_with_sweeps(claims: dict[str, Claim]) -> Iterator[str]:
    """Yield where a sweep over an unprinted setting names a claim that cannot be a part of it."""
    for id, claim in claims.items():
        for other in claim.get("unprinted", {}).get("sweep", ()):
            if other == id:
                yield f"{id}: its sweep names the claim itself"
            elif other not in claims:
                yield f"{id}: its sweep names {other}, which is not listed in book/claims"
            elif comparison(claims[other].get("printed")) != comparison(claim["printed"]):
                yield f"{id}: its sweep names {other}, which compares with another print, or none"


def _validate(claim: Any, where: str) -> None:
    """Raise ValueError, naming file and claim, unless the claim is well formed."""
    name = claim.get("id", "a claim without id") if isinstance(claim, dict) else "an entry"
    try:
        _fits_schema(claim)
    except fastjsonschema.JsonSchemaValueException as error:
        message = error.message.removeprefix("data.")
        raise ValueError(f"{where}: {name}: {message}, found {error.value!r:.60}") from None
    for complaint in _complaints(claim):
        raise ValueError(f"{where}: {name}: {complaint}")


def read(path: Path) -> list[Claim]:
    """Read and validate the claims of one file, as they stand in it now.

    Raises
    ------
    ValueError
        Naming file and claim, for bad YAML or a malformed claim.
    """
    path = Path(path)
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: not YAML: {error}") from None
    if not isinstance(entries, list):
        raise ValueError(f"{path.name}: a list of claims is needed")
    for claim in entries:
        _validate(claim, path.name)
    return entries


@functools.cache
def load(root: Path = ROOT) -> dict[str, Claim]:
    """Load and validate every claim.

    Returns
    -------
    dict
        Claim by id, each with the name of its ``notebook`` added.

    Raises
    ------
    ValueError
        Naming file and claim, for bad YAML, a malformed claim, an id listed twice, or a sweep that
        names what cannot be a part of it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ntpnb_book.claims import load
    >>> load(Path("/nowhere"))
    {}
    """
    claims: dict[str, Claim] = {}
    folder = Path(root) / "book" / "claims"
    for path in [*sorted(folder.glob("*.yml")), *sorted(folder.glob("evidence/*.yml"))]:
        for claim in read(path):
            if claim["id"] in claims:
                raise ValueError(f"{path.name}: {claim['id']}: listed twice")
            notebook = path.relative_to(folder).with_suffix("").as_posix()
            claims[claim["id"]] = claim | {"notebook": notebook}
    for complaint in _wrong_with_sweeps(claims):
        raise ValueError(f"book/claims: {complaint}")
    return claims


def sweeps(claims: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Group the claims that measure one printed comparison under several unprinted settings.

    Returns
    -------
    dict
        For each claim with `unprinted`, the first of its group only: its own id and those of its
        sweep, and of the sweeps of claims in it.

    Examples
    --------
    >>> from ntpnb_book.claims import sweeps
    >>> sweeps({"a": {"unprinted": {"settings": "scale", "sweep": ["b"]}}, "b": {}, "c": {}})
    {'a': ['a', 'b']}
    """
    groups: dict[str, list[str]] = {}
    for id, claim in claims.items():
        if "unprinted" in claim:
            members = [id, *claim["unprinted"]["sweep"]]
            for first in [first for first, of in groups.items() if not set(of).isdisjoint(members)]:
                members = groups.pop(first) + members
            members = list(dict.fromkeys(members))
            groups[members[0]] = members
    return groups


def statements(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Read `book/statements.yml`: every numbered statement, figure and number of the papers.

    Returns
    -------
    dict
        Id (such as ``t24.thm2``) to its ``where``, ``what`` and, optionally, ``also``.
    """
    papers = yaml.load((Path(root) / "book/statements.yml").read_text(encoding="utf-8"), _Loader)
    return {
        f"{paper}.{name}": entry
        for paper, entries in papers.items()
        for name, entry in entries.items()
    }


def covers(prefix: str, id: str) -> bool:
    """Say whether a claim's id is a statement's id or continues it after a dot.

    Examples
    --------
    >>> from ntpnb_book.claims import covers
    >>> covers("t24.thm1", "t24.thm1.angle")
    True
    >>> covers("t24.thm1", "t24.thm10")
    False
    """
    return id == prefix or id.startswith(f"{prefix}.")
