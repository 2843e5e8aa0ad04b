"""The curvature of the bowl at its floor, in several norms, and the lemma that uses it."""

import numpy as np
import pytest

import ntpnb
from ntpnb.basics.matrix_norms import norm_named
from ntpnb_book import (
    bowl_curvature_in_norm,
    curvatures,
    drawn_problems,
    matrix_norm,
    smoothness_in_norm,
)

PROBLEMS = drawn_problems(1, 6, (6, 5, 5, 2))
NORMS = ("frobenius", "max", "sum", "spectral", "nuclear")


def _excess_over_tangent(data, W, move):
    """What the loss exceeds its tangent by, twice, for a move of that size."""
    rise = ntpnb.cross_entropy(W + move, data) - ntpnb.cross_entropy(W, data)
    return 2 * (rise - np.vdot(ntpnb.gradient(W, data), move))


@pytest.mark.parametrize("seed", PROBLEMS)
def test_in_the_frobenius_norm_it_is_the_top_curvature_of_the_bowl(seed):
    data = PROBLEMS[seed]
    top = curvatures(ntpnb.finite_part(data), data)[0]
    assert bowl_curvature_in_norm(data, "frobenius") == pytest.approx(top, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", PROBLEMS)
def test_it_is_at_most_the_smoothness_and_no_random_move_bends_more(seed, norm):
    data = PROBLEMS[seed]
    curvature = bowl_curvature_in_norm(data, norm)
    assert 0 < curvature <= smoothness_in_norm(data, norm)
    # Far along W^mm the probabilities are those of the floor; moves of 1e-3 bend by 1e-6.
    W = ntpnb.finite_part(data).W + 30 * ntpnb.max_margin(data).W
    rng = np.random.default_rng(seed)
    for _ in range(20):
        move = rng.standard_normal(data.shape)
        move = 1e-3 * norm_named(norm).steepest(move)
        bend = _excess_over_tangent(data, W, move) / matrix_norm(move, norm) ** 2
        # Third derivatives and rounding: 1e-3 relative, and 1e-15 over 1e-6.
        assert bend <= curvature * 1.01 + 1e-8


@pytest.mark.parametrize("norm", ["max", "spectral"])
def test_it_is_attained_by_a_move_of_that_norm(norm):
    # One context h = (3, -4), tokens at odds 1 : 1: scores ± h·δ with a variance of (h·δ)².
    data = ntpnb.NextTokenData([[3.0, -4.0]], [[0.5, 0.5, 0.0]])
    expected = {"max": 7.0**2, "spectral": 5.0**2 / 2}[norm]
    assert bowl_curvature_in_norm(data, norm) == pytest.approx(expected, rel=1e-9)


def test_one_hot_labels_have_no_bowl():
    data = ntpnb.NextTokenData([[3.0, -4.0]], [[1.0, 0.0, 0.0]])
    assert bowl_curvature_in_norm(data, "max") == 0.0
