"""Which cases of a long test run every day, and which only in `make test`."""

from collections.abc import Hashable, Iterable

import pytest


def slow_but(quick: Iterable[Hashable], names: Iterable[Hashable]) -> list:
    """Names as parameters of a test; all that are not ``quick`` are marked slow."""
    quick = set(quick)
    names = list(names)
    assert quick <= set(names)
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
