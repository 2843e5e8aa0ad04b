"""Separable or not, and the largest margin, against rational numbers.

Embeddings are small whole numbers, where contexts and pairs depend on each other and margins vanish
exactly; and the same with a little more, from 4e-3 down to 7e-12, where margins are its products.
There a verdict may be missing, as it is for one problem in three thousand at first and for one in
forty at the end, and none may be wrong.
"""

import math

import exact
import mpmath
import problems
import pytest
from margins import prove_refused

from ntpnb import ConvergenceError, NextTokenData, NotSeparableError, is_separable, max_margin
from ntpnb.margin.other_norms import SOLVERS

EXPONENTS = [None, -8, -12, -20, -26, -32, -37]
"""Of two, for how much is added to whole numbers; None: nothing."""

SEEDS = [range(start, start + 8) for start in range(0, 80, 8)]
MORE = [range(start, start + 80) for start in range(80, 2880, 80)]
BLOCKS = [*SEEDS, *(pytest.param(seeds, marks=pytest.mark.stress) for seeds in MORE)]
"""With seven exponents and sequences 640 problems always, and 23,040 under `make stress`."""

TIES_MET = MARGIN_EXCLUDED = 1e-12  # as `is_separable` and `max_margin` say

BOUNDS = 1e-9  # relative: a solution's norm, margin and multipliers are sums of tens of products


def verdict(data):
    """True, False, or None where none was reached."""
    try:
        return is_separable(data)
    except ConvergenceError:
        return None


def is_right(data, found):
    """Whether a verdict is right, or as wrong as its documentation allows.

    Where data separate though the verdict is that they do not, all margins of all ``W`` of length
    one are below 1e-12. Where they do not separate though the verdict is that they do, ties that
    are met to 1e-12 leave room for it.
    """
    if found == exact.is_separable(data):
        return True
    if found:
        return exact.is_nearly_separable(data, margin=0.0, miss=TIES_MET)
    # entries of this size make a W that is no longer than one
    longest = math.prod(data.shape) ** -0.5
    return not exact.is_nearly_separable(data, MARGIN_EXCLUDED, longest=longest)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_verdict_is_wrong(seeds, exponent):
    for seed in seeds:
        data = problems.whole_numbers(seed, exponent)
        found = verdict(data)
        if found is None:
            assert exponent is not None, seed
        else:
            assert is_right(data, found), seed


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_verdict_on_sequences_is_wrong(seeds):
    """In as few dimensions as make three of four problems contradict themselves."""
    for seed in seeds:
        data = problems.l24(seed, K=5, d=1 + seed % 3, n=6)
        assert is_separable(data) == exact.is_separable(data), seed


def test_the_oracle_tells_apart_what_a_tie_forbids():
    """One context ties two tokens and another orders them, a hundredth of a radian away."""
    laws = [[0.5, 0.5], [1.0, 0.0]]
    for angle in (0.0, 1e-2):
        data = NextTokenData([[1.0, 0.0], [1.0, angle]], laws)
        assert exact.is_separable(data) == (angle > 0)
        assert exact.is_nearly_separable(data, 1e-3) == (angle > 0)
        assert not exact.is_nearly_separable(data, 0.1)
        assert exact.is_nearly_separable(data, 1e-3, miss=1e-2)


@pytest.mark.parametrize("norm", ["frobenius", *sorted(SOLVERS)])
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_bounds_of_the_margin_hold_in_many_digits(seeds, norm):
    """From ``W`` and the multipliers alone, so that no residual of the package is believed."""
    with mpmath.workdps(40):
        for seed in seeds:
            data = problems.whole_numbers(seed, -8)
            try:
                svm = max_margin(data, norm=norm)
            except NotSeparableError as error:
                assert not exact.is_separable(data)
                prove_refused(data, error)
                continue
            if svm.multipliers.size == 0:
                continue
            lower, upper = exact.margin_bounds(data, svm, norm)
            assert 0 < lower <= upper * (1 + mpmath.mpf(10) ** -38)  # of 40 digits
            assert svm.margin_bounds == pytest.approx((float(lower), float(upper)), rel=BOUNDS)
