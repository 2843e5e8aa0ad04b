"""Comparisons: what a claim says of a number, and whether a measured value meets it.

A comparison is a small mapping, as it stands in a claims file: ``near`` with ``within``,
``at_most``, ``at_least``, ``below``, ``above``, ``between: [low, high]``, or ``equals`` (a truth
value, an integer or a text).
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

Comparison: TypeAlias = Mapping[str, Any]
"""One comparison; `ntpnb.notebook.claims` checks the types of what stands in it."""

Value: TypeAlias = bool | int | float | str | Mapping[str, str]
"""A measured value as JSON holds it: a number that is not finite is a mapping, see `ledger`."""

OPERATORS = ("near", "within", "at_most", "at_least", "below", "above", "between", "equals")
"""The words that a comparison is made of."""

_SIGNS = {"at_most": "≤", "at_least": "≥", "below": "<", "above": ">", "equals": "="}


def comparison(block: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the comparison inside a ``printed`` or ``expect`` block; empty where there is none.

    Examples
    --------
    >>> from ntpnb.notebook.comparisons import comparison
    >>> comparison({"at_most": 3, "because": "a bound"})
    {'at_most': 3}
    """
    return {key: value for key, value in (block or {}).items() if key in OPERATORS}


def met(compare: Comparison, value: Value) -> bool:
    """Say whether a measured value meets a comparison.

    Only finite numbers meet numerical comparisons: never NaN, an infinity or a truth value.

    Raises
    ------
    ValueError
        Where `compare` is no comparison.

    Examples
    --------
    >>> from ntpnb.notebook.comparisons import met
    >>> met({"near": 2.0, "within": 0.5}, 2.4)
    True
    >>> met({"at_least": 0}, float("inf"))
    False
    """
    if "equals" in compare:
        return type(value) is type(compare["equals"]) and value == compare["equals"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    match compare:
        case {"near": target, "within": tolerance}:
            return bool(abs(value - target) <= tolerance)
        case {"at_most": bound}:
            return bool(value <= bound)
        case {"at_least": bound}:
            return bool(value >= bound)
        case {"below": bound}:
            return bool(value < bound)
        case {"above": bound}:
            return bool(value > bound)
        case {"between": [low, high]}:
            return bool(low <= value <= high)
    raise ValueError(f"not a comparison: {compare}")


def describe(compare: Comparison) -> str:
    """Write a comparison as a reader reads it.

    Examples
    --------
    >>> from ntpnb.notebook.comparisons import describe
    >>> describe({"at_most": 3e-05})
    '≤ 3e-05'
    """
    match compare:
        case {"near": target, "within": tolerance}:
            return f"{target!r} ± {tolerance!r}"
        case {"between": [low, high]}:
            return f"in [{low!r}, {high!r}]"
    [(operator, bound)] = compare.items()
    return f"{_SIGNS[operator]} {bound}"
