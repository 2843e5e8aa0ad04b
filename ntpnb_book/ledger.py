"""The claims ledger: what a notebook measures, against what the papers print and we expect."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ntpnb.basics.errors import needs_extra
from ntpnb_book.comparisons import Value, comparison, describe, met
from ntpnb_book.output import ROOT, is_checkout, publish, show

# Stands before the MIME type of what is not shown here, but elsewhere on the page.
_HIDDEN = "application/papermill.record/"


def shown(claim: Mapping[str, Any], value: Value) -> str:
    """Format a value with the claim's ``show``: a format such as ``.4f`` or ``{:.4f} nats``.

    Examples
    --------
    >>> from ntpnb_book.ledger import shown
    >>> shown({"show": "{:.2f} nats"}, 0.8811)
    '0.88 nats'
    """
    if isinstance(value, list):
        return ", ".join(shown(claim, one) for one in value)
    template: str = claim["show"]
    if "{" in template:
        return template.format(value)
    return format(value, template)


def outcome(claim: Mapping[str, Any], value: Value, sweep: Iterable[bool] = ()) -> str:
    """Compute a claim's outcome from a value that meets its expectation; it is never typed.

    Parameters
    ----------
    claim : mapping
        The claim.
    value : bool, int, float or str
        What was measured.
    sweep : iterable of bool
        Whether the print is met under other choices of a setting that the paper does not print.
        Where they do not all agree with this claim's own choice, the text decides nothing.

    Examples
    --------
    >>> from ntpnb_book.ledger import outcome
    >>> claim = {"id": "t24.fig1.loss", "printed": {"near": 2, "within": 0.5}}
    >>> outcome(claim, 2.1)
    'reproduced'
    >>> outcome(claim, 2.1, sweep=[True, False])
    'undecided by the text'
    >>> outcome(claim | {"evidence": "by construction"}, 2.1)
    'holds by construction'
    >>> outcome(claim | {"authors": {"value": 2.9}}, 2.8)  # what the authors' own file holds
    'the text departs from file and run'
    """
    printed = comparison(claim.get("printed"))
    erratum = claim["id"].startswith("erratum.")
    if erratum and not printed:
        return "a gap in the argument"
    verdict = not printed or met(printed, value)
    if verdict and claim.get("evidence") == "by construction":
        return "holds by construction"
    if not printed:
        return "holds"
    if any(other != verdict for other in sweep):
        return "undecided by the text"
    if verdict:
        return "reproduced with a stated change" if "change" in claim else "reproduced"
    if erratum:
        return "wrong as printed"
    if "authors" in claim and not met(printed, claim["authors"]["value"]):
        return "the text departs from file and run"
    return "does not reproduce"


def _plain(value: object, name: str) -> Value:
    """Turn a measured value, or one for each horizon, into what JSON can hold exactly."""
    if isinstance(value, list) and len(value) > 1:
        return [_plain(one, name) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise TypeError(f"{name}: one number, truth value or text is needed, found {value!r:.80}")
    if isinstance(value, float) and not math.isfinite(value):
        return {"not_finite": str(value)}  # JSON has no such number, and it never passes
    return value


def _line(id: str, value: Value, root: Path) -> str:
    """Write what `check` prints of a measured value."""
    if not is_checkout(root):
        return (
            f"? {id}   measured {value}; check compares this with the book's claims, "
            "which are in a checkout of the repository, and none was found around this package"
        )
    with needs_extra("notebook", "check"):
        from ntpnb_book.claims import load
    claim = load(root).get(id)
    if claim is None:
        return f"? {id}   not listed in book/claims: add it there (measured {value})"
    expect = comparison(claim["expect"])
    if not met(expect, value):
        return f"✗ {id}   expected {describe(expect)}, measured {value}"
    if "show" in claim:
        return f"✓ {id}   {shown(claim, value)}   (expected {describe(expect)})"
    return f"✓ {id}   {describe(expect)}"


def check(id: str, value: object, *, root: Path = ROOT) -> None:
    """Measure a claim: print one rounded line and keep the exact value in its metadata.

    The line shows only what survives another CPU: the value in the claim's ``show`` format, or
    the comparison alone. A value that misses its expectation (a parameter was changed) is
    reported, and the notebook carries on; `publishing.collect` then fails. Outside a checkout of
    the book there are no expectations, and the line says so.

    Parameters
    ----------
    id : str
        Id of the claim in ``book/claims/``.
    value : bool, int, float or str, or a list of them
        What was measured; numpy scalars are welcome. A claim with horizons needs a list, with one
        value for each.
    root : path_like
        The checkout whose claims are read.

    Raises
    ------
    TypeError
        Where `value` is an array or any other object, or a list of fewer than two values.
    ImportError
        Where the packages of the extra ``notebook``, which read claims, are missing.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import check
    >>> check("my.own.claim", round(ntpnb.datasets.toy().entropy, 4))  # doctest: +ELLIPSIS
    ? my.own.claim   ...
    """
    value = _plain(value, id)
    show({"text/plain": _line(id, value, Path(root))}, {"id": id, "value": value})


def glue(name: str, text: str) -> None:
    """Keep a formatted number for the prose of the same page (``{glue:text}`name```).

    Parameters
    ----------
    name : str
        Key.
    text : str
        The number as it is to be read; floats would be compared to their last digit.

    Raises
    ------
    TypeError
        Where `text` is not a text.

    Notes
    -----
    The output is the one that myst-nb reads (its documentation calls it glue, after scrapbook), so
    that a notebook runs where no program that builds books is installed.

    Examples
    --------
    >>> from ntpnb_book import glue
    >>> glue("loss", 0.1)
    Traceback (most recent call last):
    TypeError: glue 'loss': a formatted string is needed, found 0.1
    """
    if not isinstance(text, str):
        raise TypeError(f"glue {name!r}: a formatted string is needed, found {text!r:.80}")
    content = {f"{_HIDDEN}text/plain": repr(text)}
    publish(content, {"scrapbook": {"name": name, "mime_prefix": _HIDDEN}})
