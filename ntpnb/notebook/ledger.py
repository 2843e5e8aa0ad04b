"""The claims ledger: what a notebook measures, against what the papers print and we expect."""

import math

import numpy as np

from ntpnb.notebook.claims import comparison, load
from ntpnb.notebook.output import ROOT, show


def met(compare, value):
    """Say whether a measured value meets a comparison.

    Only finite numbers meet numerical comparisons: never NaN, an infinity or a truth value.
    """
    if "equals" in compare:
        return type(value) is type(compare["equals"]) and value == compare["equals"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    match compare:
        case {"near": target, "within": tolerance}:
            return abs(value - target) <= tolerance
        case {"at_most": bound}:
            return value <= bound
        case {"at_least": bound}:
            return value >= bound
        case {"below": bound}:
            return value < bound
        case {"above": bound}:
            return value > bound
        case {"between": [low, high]}:
            return low <= value <= high
    raise ValueError(f"not a comparison: {compare}")


def describe(compare):
    """Write a comparison as a reader reads it, for example ``≤ 3e-05``."""
    match compare:
        case {"near": target, "within": tolerance}:
            return f"{target!r} ± {tolerance!r}"
        case {"between": [low, high]}:
            return f"in [{low!r}, {high!r}]"
    [(operator, bound)] = compare.items()
    signs = {"at_most": "≤", "at_least": "≥", "below": "<", "above": ">", "equals": "="}
    return f"{signs[operator]} {bound}"


def shown(claim, value):
    """Format a value with the claim's ``show``: a format such as ``.4f`` or ``{:.4f} nats``."""
    template = claim["show"]
    return template.format(value) if "{" in template else format(value, template)


def outcome(claim, value):
    """Compute a claim's outcome from a value that meets its expectation; it is never typed."""
    printed = comparison(claim.get("printed"))
    if not printed:
        return "holds"
    if met(printed, value):
        return "reproduced with a stated change" if "change" in claim else "reproduced"
    return "wrong as printed" if claim["kind"] == "erratum" else "does not reproduce"


def _plain(value, name):
    """Turn a measured value into what JSON can hold exactly."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise TypeError(f"{name}: one number, truth value or text is needed, found {value!r:.80}")
    if isinstance(value, float) and not math.isfinite(value):
        return {"not_finite": str(value)}  # JSON has no such number, and it never passes
    return value


def check(id, value, *, root=ROOT):
    """Measure a claim: print one rounded line and keep the exact value in its metadata.

    The line shows only what survives another CPU: the value in the claim's ``show`` format, or
    the comparison alone. A value that misses its expectation (a parameter was changed) is
    reported, and the notebook carries on; `publishing.collect` then fails.

    Parameters
    ----------
    id : str
        Id of the claim in ``book/claims/``.
    value : bool, int, float or str
        What was measured; numpy scalars are welcome.

    Raises
    ------
    TypeError
        Where `value` is an array or any other object.
    """
    value = _plain(value, id)
    claim = load(root).get(id)
    if claim is None:
        line = f"? {id}   not listed in book/claims: add it there (measured {value})"
    else:
        expected = describe(comparison(claim["expect"]))
        if not met(comparison(claim["expect"]), value):
            line = f"✗ {id}   expected {expected}, measured {value}"
        elif "show" in claim:
            line = f"✓ {id}   {shown(claim, value)}   (expected {expected})"
        else:
            line = f"✓ {id}   {expected}"
    show({"text/plain": line}, {"id": id, "value": value})


def glue(name, text):
    """Keep a formatted number for the prose of the same page (``{glue:text}`name```).

    Parameters
    ----------
    name : str
        Key.
    text : str
        The number as it is to be read; floats would be compared to their last digit.
    """
    import myst_nb

    if not isinstance(text, str):
        raise TypeError(f"glue {name!r}: a formatted string is needed, found {text!r:.80}")
    myst_nb.glue(name, text, display=False)
