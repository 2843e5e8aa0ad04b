"""Loss, gradient and excess loss against loops and differences, and at the edges of floats."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, regimes, start, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem.loss import LARGEST, log_sum_exp, logits

EPS = np.finfo(float).eps


def weights_of_mild_scores(data):
    """A matrix whose scores are of size one, whatever the embeddings' norms."""
    W = start(data, 7)
    largest = np.abs(logits(W, data)[data.candidates]).max()
    return W / max(1.0, largest)


def gradient_scale(data):
    """Bound of one row's gradient: the scale of its rounding."""
    return (
        data.context_probs
        @ np.linalg.norm(data.context_embeddings, axis=1)
        * np.sqrt(data._squared_diameters().max() + 1)
    )


# -- against the formulas as loops ----------------------------------------------------------------


def test_the_logarithm_of_a_sum_with_what_is_no_number_is_none():
    found = log_sum_exp(np.array([[np.nan, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [np.nan, np.log(2)], rtol=1e-15)


def test_a_loss_of_zero_has_no_sign():
    assert (
        str(ntpnb.cross_entropy([[1000.0], [0.0]], ntpnb.NextTokenData([[1.0]], [[1, 0]]))) == "0.0"
    )


@pytest.mark.parametrize("name", regimes())
def test_loss_and_gradient_match_slow_loops(name):
    data = regimes()[name]
    W = weights_of_mild_scores(data)
    loss = reference.cross_entropy(W, data)
    # scores of size one: tens of roundings in each, hundreds in the sums
    assert abs(ntpnb.cross_entropy(W, data) - loss) <= 1e-13 * (1 + loss)
    difference = ntpnb.gradient(W, data) - reference.gradient(W, data)
    assert np.abs(difference).max() <= 1e-13 * gradient_scale(data)


@pytest.mark.parametrize("name", ["candidates, groups, tokens", "attention, cyclic"])
def test_the_gradient_is_the_slope_of_the_loss(name):
    data = regimes()[name]
    W, direction = start(data, 1), start(data, 2)
    step = 1e-5 * direction
    change = ntpnb.cross_entropy(W + step, data) - ntpnb.cross_entropy(W - step, data)
    # rounding of losses below ten, and third derivatives times the step's cube
    assert np.vdot(ntpnb.gradient(W, data), 2 * step) == pytest.approx(change, abs=1e-13)


@given(any_problem(), st.integers(0, 99), st.sampled_from([1.0, 1e3]))
def test_a_stack_is_each_matrix_alone(data, seed, scale):
    rng = np.random.default_rng(seed)
    W = scale * rng.standard_normal((2, 3, *data.shape))
    for f in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient):
        whole = f(W, data)
        each = np.array([[f(w, data) for w in row] for row in W])
        assert whole.shape == each.shape
        # the same sums, in an order that BLAS chooses
        np.testing.assert_allclose(whole, each, rtol=1e-12, atol=1e-13 * scale)


def test_one_matrix_gives_a_float():
    data = t24(1)
    for f in (ntpnb.cross_entropy, ntpnb.excess_loss):
        assert type(f(np.zeros(data.shape), data)) is float
        assert f(np.zeros((4, *data.shape)), data).shape == (4,)


# -- properties -----------------------------------------------------------------------------------


@given(any_problem(), st.integers(0, 99), st.sampled_from([1e-300, 0.1, 1.0, 30.0, 1e8, 1e150]))
def test_excess_is_loss_minus_entropy_and_not_negative(data, seed, scale):
    W = scale * start(data, seed)
    loss, excess = ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)
    assert excess >= 0
    # the difference carries the rounding of scores as large as the loss
    reach = np.abs(logits(W, data)[data.candidates]).max()
    assert abs(excess - (loss - data.entropy)) <= 100 * EPS * (1 + reach)
    assert np.isfinite([loss, excess, *ntpnb.gradient(W, data).ravel()]).all()


# -- extreme and odd input ------------------------------------------------------------------------


def test_single_tokens_and_candidates_cost_nothing():
    one_token = NextTokenData([[2.0]], [[1.0]])
    one_candidate = NextTokenData([[2.0]], [[0, 1, 0]], candidate_counts=[[0, 5, 0]])
    for data in (one_token, one_candidate):
        W = start(data, 4)
        assert ntpnb.cross_entropy(W, data) == ntpnb.excess_loss(W, data) == 0.0
        assert not ntpnb.gradient(W, data).any()


def test_lists_and_strided_matrices_are_taken():
    data = t24(7)
    W = start(data, 5)
    for same in (W.tolist(), np.asfortranarray(W), np.repeat(W, 2, axis=1)[:, ::2]):
        # BLAS may sum another layout in another order
        assert abs(ntpnb.cross_entropy(same, data) - ntpnb.cross_entropy(W, data)) <= 1e-14


def test_the_largest_matrix_is_still_scored():
    data = t24(0)
    W = LARGEST * np.sign(start(data, 6))
    assert np.isfinite([ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)]).all()
    assert np.isfinite(ntpnb.gradient(W, data)).all()
