"""Comparisons: what a claim says of a number, and whether a measured value meets it.

A comparison is a small mapping, as it stands in a claims file: ``near`` with ``within``,
``at_most``, ``at_least``, ``below``, ``above``, ``between: [low, high]``, or ``equals`` (a truth
value, an integer or a text). With ``horizons`` the same quantity is measured at several lengths of
training: one comparison then holds for all of them, or a list in it has one entry for each.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

Comparison: TypeAlias = Mapping[str, Any]
"""One comparison; `ntpnb_book.claims` checks the types of what stands in it."""

Value: TypeAlias = bool | int | float | str | Mapping[str, str] | list[Any]
"""A measured value as JSON holds it: a number that is not finite is a mapping, see `ledger`.

A list has one value for each horizon.
"""

OPERATORS = ("near", "within", "at_most", "at_least", "below", "above", "between", "equals")
"""The words that a comparison is made of."""

HORIZONS = "horizons"
"""The word that lists at which lengths of training, in steps or in time, a claim is measured."""

_SIGNS = {"at_most": "≤", "at_least": "≥", "below": "<", "above": ">", "equals": "="}


def comparison(block: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the comparison inside a ``printed`` or ``expect`` block; empty where there is none.

    Examples
    --------
    >>> from ntpnb_book.comparisons import comparison
    >>> comparison({"at_most": 3, "because": "a bound"})
    {'at_most': 3}
    """
    words = (*OPERATORS, HORIZONS)
    return {key: value for key, value in (block or {}).items() if key in words}


def horizons(compare: Comparison) -> str:
    """Write the horizons of a comparison as a reader reads them.

    Examples
    --------
    >>> from ntpnb_book.comparisons import horizons
    >>> horizons({"horizons": [2e4, 2e5, 2e6], "above": 0.5})
    '2e+04, 2e+05, 2e+06'
    """
    return ", ".join(f"{at:.3g}" for at in compare[HORIZONS])


def at_horizons(compare: Comparison) -> list[Comparison]:
    """Divide a comparison into one for each of its horizons; itself, where it has none.

    Examples
    --------
    >>> from ntpnb_book.comparisons import at_horizons
    >>> at_horizons({"horizons": [10, 100, 1000], "at_least": [0, 1, 2]})
    [{'at_least': 0}, {'at_least': 1}, {'at_least': 2}]
    """
    words = {key: bound for key, bound in compare.items() if key != HORIZONS}
    return [
        {
            key: bound[number] if isinstance(bound, list) and key != "between" else bound
            for key, bound in words.items()
        }
        for number in range(len(compare.get(HORIZONS, [0])))
    ]


def met(compare: Comparison, value: Value) -> bool:
    """Say whether a measured value meets a comparison, at each horizon where it has several.

    Only finite numbers meet numerical comparisons: never NaN, an infinity or a truth value.

    Raises
    ------
    ValueError
        Where `compare` is no comparison.

    Examples
    --------
    >>> from ntpnb_book.comparisons import met
    >>> met({"near": 2.0, "within": 0.5}, 2.4)
    True
    >>> met({"at_least": 0}, float("inf"))
    False
    """
    if HORIZONS in compare:
        each = at_horizons(compare)
        if not isinstance(value, list) or len(value) != len(each):
            return False
        return all(met(one, measured) for one, measured in zip(each, value, strict=True))
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
    >>> from ntpnb_book.comparisons import describe
    >>> describe({"at_most": 3e-05})
    '≤ 3e-05'
    """
    if HORIZONS in compare:
        each = [describe(one) for one in at_horizons(compare)]
        bounds = each[:1] if len(set(each)) == 1 else each
        return f"{', '.join(bounds)} at {horizons(compare)}"
    match compare:
        case {"near": target, "within": tolerance}:
            return f"{target!r} ± {tolerance!r}"
        case {"between": [low, high]}:
            return f"in [{low!r}, {high!r}]"
    [(operator, bound)] = compare.items()
    return f"{_SIGNS[operator]} {bound}"
