"""What theory and floating point ask of every gradient run."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, regimes, start

import ntpnb
from ntpnb import GD, NGD, NextTokenData, descend

EPS = np.finfo(float).eps


# -- theory that every run must obey --------------------------------------------------------------


@given(any_problem(), st.floats(0.05, 1.0), st.integers(0, 99))
def test_descent_lemma(data, fraction, seed):
    """CE(W₊) ≤ CE(W) − η(1 − ηL/2)‖∇‖² for steps up to 1/L (T24 Lemma 2, L24 Lemma 5)."""
    if data.smoothness == 0:
        return
    step = fraction / data.smoothness
    run = descend(data, GD(step), 10, init=start(data, seed), record=range(11))
    slopes = ntpnb.gradient(run.W[:-1], data)
    drop = step * (1 - fraction / 2) * (slopes**2).sum((1, 2))
    # the rounding of a loss of that size
    assert (run.loss[1:] <= run.loss[:-1] - drop + 100 * EPS * (1 + run.loss[:-1])).all()


# -- normalized gradient descent ------------------------------------------------------------------


def test_a_zero_gradient_is_a_zero_step():
    single = NextTokenData([[3.0]], [[0, 1]], candidate_counts=[[0, 2]])
    assert not descend(single, NGD(0.1), 5).W.any()
    # at its minimum from the start, and in a batch the others move on
    pair = [NextTokenData([[3.0]], [[0.5, 0.5]]), NextTokenData([[3.0]], [[1.0, 0.0]])]
    run = descend(pair, NGD(0.1), 5)
    assert not run.W[0].any()
    assert abs(run.norm[1, -1] - 0.5) <= 1e-15


# a finite minimum, which steps of length one overshoot for ever: gradients stay large
BESIDE = NextTokenData(np.eye(3), [[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])


@pytest.mark.parametrize("others", [[], [BESIDE]], ids=["alone", "beside a large one"])
def test_normalized_descent_keeps_its_direction_when_the_gradient_is_tiny(others):
    """Orthonormal one-hot contexts: by symmetry W_k is a multiple of I − 1/3 for ever.

    The losses pass 1e-16, where q − p cancels, and 1e-154, where squares underflow.
    """
    run = descend([NextTokenData(np.eye(3), np.eye(3)), *others], NGD(1.0), 1000)
    direction = np.eye(3) - 1 / 3
    expected = run.steps[:, None, None] * direction / np.linalg.norm(direction)
    assert run.excess[0, -1] < 1e-300
    assert (run.excess[1:] > 1e-3).all()
    # one rounding of entries below 1000 in each of 1000 steps
    assert np.abs(run.W[0] - expected).max() <= 1e-11


# -- large scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e8])
@pytest.mark.parametrize(
    "name", ["d < m", "groups of several rows", "candidates, groups, tokens", "attention, cyclic"]
)
def test_large_scores_neither_overflow_nor_mislead(name, scale):
    data = regimes()[name]
    W = scale * np.stack([start(data, seed) for seed in range(3)])
    for init in (W[:1], W):
        run = descend([data] * len(init), GD(1.0), 1, init=init)
        expected = init - ntpnb.gradient(init, data)
        # the step rounds W; scores of that size shift probabilities by their own rounding
        assert np.abs(run.W[:, -1] - expected).max() <= 1e-12 * scale


@pytest.mark.parametrize(
    ("data", "W"),
    [
        # scores that are all low still have a softmax
        (NextTokenData([[1.0]], [[0.5, 0.3, 0.2]]), np.array([[0.5], [-0.25], [1.0]]) + level)
        for level in (-1e3, -1e6)
    ]
    + [
        # tokens that are no candidates may score highest
        (NextTokenData([[1.0]], [[1, 0, 0]], candidate_counts=[[1, 2, 0]]), [[0.5], [-0.25], [top]])
        for top in (10.0, 1e3, 1e6)
    ],
)
def test_only_differences_between_candidates_count(data, W):
    moved = W - descend(data, GD(1.0), 1, init=W).W[-1]
    rounding = 2 * EPS * np.abs(W).max()
    np.testing.assert_allclose(moved, reference.gradient(np.array(W), data), atol=rounding)
