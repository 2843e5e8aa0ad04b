"""The claims of the book: their files, their schema, and reading them.

`book/claims/NN_name.yml` lists the claims of the notebook of that name. A comparison, in
``printed`` or ``expect``, is one of ``near`` with ``within``, ``at_most``, ``at_least``, ``below``,
``above``, ``between: [low, high]`` and ``equals`` (a truth value, an integer or a text).
"""

import functools
import re
from pathlib import Path

import fastjsonschema
import yaml

from ntpnb.notebook.output import ROOT

_NUMBER, _TEXT = {"type": "number"}, {"type": "string", "minLength": 1}
_COMPARISONS = {
    "near": _NUMBER,
    "within": {"type": "number", "minimum": 0},
    "at_most": _NUMBER,
    "at_least": _NUMBER,
    "below": _NUMBER,
    "above": _NUMBER,
    "between": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2},
    "equals": {"type": ["boolean", "integer", "string"]},
}
_SCHEMA = {
    "type": "object",
    "required": ["id", "kind", "statement", "expect"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": r"^[a-z0-9]+(\.[A-Za-z0-9_-]+)+$"},
        "kind": {"enum": ["theorem", "figure", "number", "erratum", "beyond"]},
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
            "properties": {"because": _TEXT, **_COMPARISONS},
        },
        "show": _TEXT,
        "change": _TEXT,
        "meant": _TEXT,
        "affects": {"enum": ["statement", "proof", "text"]},
        "explained": {"type": "string", "pattern": r"^nb/[0-9]{2}_\w+\.ipynb#[\w.-]+$"},
    },
}
_fits_schema = fastjsonschema.compile(_SCHEMA)


class _Loader(yaml.SafeLoader):
    """YAML where ``1e-6`` is a number, as in YAML 1.2 (PyYAML wants ``1.0e-6``)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def comparison(block):
    """Return the comparison inside a ``printed`` or ``expect`` block; empty where there is none."""
    return {key: value for key, value in (block or {}).items() if key in _COMPARISONS}


def _validate(claim, where):
    """Raise ValueError, naming file and claim, unless the claim is well formed."""
    name = claim.get("id", "a claim without id") if isinstance(claim, dict) else "an entry"
    try:
        _fits_schema(claim)
    except fastjsonschema.JsonSchemaValueException as error:
        message = error.message.removeprefix("data.")
        raise ValueError(f"{where}: {name}: {message}, found {error.value!r:.60}") from None
    printed, expect = comparison(claim.get("printed")), comparison(claim["expect"])
    for block, compare in (("expect", expect), ("printed", printed)):
        if compare.keys() != {"near", "within"} and (
            len(compare) > 1 or compare.keys() & {"near", "within"}
        ):
            raise ValueError(f"{where}: {name}: {block} needs one comparison, found {compare}")
    for missing, needed in (
        (not expect, "expect needs a comparison"),
        (
            "equals" not in expect and "because" not in claim["expect"],
            "expect needs `because`, the reason for its tolerance or bound",
        ),
        (claim["kind"] == "erratum" and not printed, "an erratum needs a comparison in printed"),
        (("meant" in claim) != ("affects" in claim), "`meant` and `affects` belong together"),
        ("change" in claim and not printed, "a stated change needs a comparison in printed"),
        ("where" not in claim and claim["kind"] != "beyond", "`where` is missing"),
    ):
        if missing:
            raise ValueError(f"{where}: {name}: {needed}")


@functools.cache
def load(root=ROOT):
    """Load and validate every claim.

    Returns
    -------
    dict
        Claim by id, each with the name of its ``notebook`` added.

    Raises
    ------
    ValueError
        Naming file and claim, for bad YAML, a malformed claim or an id listed twice.
    """
    claims = {}
    for path in sorted(Path(root).glob("book/claims/*.yml")):
        try:
            entries = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        except yaml.YAMLError as error:
            raise ValueError(f"{path.name}: not YAML: {error}") from None
        if not isinstance(entries, list):
            raise ValueError(f"{path.name}: a list of claims is needed")
        for claim in entries:
            _validate(claim, path.name)
            if claim["id"] in claims:
                raise ValueError(f"{path.name}: {claim['id']}: listed twice")
            claims[claim["id"]] = claim | {"notebook": path.stem}
    return claims


def statements(root=ROOT):
    """Read `book/statements.yml`: every numbered statement, figure and number of the papers.

    Returns
    -------
    dict
        Id (such as ``t24.thm2``) to its ``where``, ``what`` and, optionally, ``also``.
    """
    papers = yaml.safe_load((Path(root) / "book/statements.yml").read_text(encoding="utf-8"))
    return {
        f"{paper}.{name}": entry
        for paper, entries in papers.items()
        for name, entry in entries.items()
    }


def covers(prefix, id):
    """Say whether a claim's id is a statement's id or continues it after a dot."""
    return id == prefix or id.startswith(f"{prefix}.")
