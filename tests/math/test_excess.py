"""Tiny losses and gradients against 400-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from exact import exact_excess
from problems import regimes, start, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem.loss import exp_minus_linear, logits

EPS = np.finfo(float).eps


@pytest.mark.parametrize("size", [2.3, 7.0, 20.0, 36.0, 70.0, 140.0, 230.0, 460.0])
@pytest.mark.parametrize("name", ["one-hot next tokens", "attention, acyclic"])
def test_tiny_excess_keeps_its_digits_when_one_token_is_right(name, size):
    """DESIGN Sec. 3: relative accuracy 1e-8 down to 1e-200 when S = 1."""
    data = regimes()[name]
    W = size * ntpnb.max_margin(data).W + 0.1 * start(data)
    value, expected = ntpnb.excess_loss(W, data), exact_excess(W, data)
    assert 1 < expected / mpmath.exp(-size) < 3
    # scores near 460 are rounded at 1e-13, and the excess is their exponential
    assert abs(value - expected) <= 1e-11 * expected


@pytest.mark.parametrize("margin", [2.0, 20.0, 60.0, 400.0])
def test_excess_with_wide_supports_stops_at_the_rounding_of_the_scores(margin):
    """With S > 1 the law inside the support is met to rounding only: a floor, shown as one."""
    data = t24(5, V=6, m=5, d=7, size=(2, 4))
    finite = ntpnb.finite_part(data)
    centred = data.support / data.support.sum(1, keepdims=True) - 1 / data.vocab_size
    direction = finite.subspace.reject(np.linalg.lstsq(data.context_embeddings, centred)[0].T)
    W = finite.W + margin * direction
    value, expected = ntpnb.excess_loss(W, data), exact_excess(W, data)
    # an error ε in a score moves δ by ε, and δ²/2 by δε + ε²/2
    error = 20 * EPS * (1 + np.abs(logits(W, data)).max())
    tolerance = 1e-11 * expected + error * mpmath.sqrt(2 * expected) + error**2
    assert abs(value - expected) <= tolerance
    if margin == 400.0:
        # what is left is δ² of the rounded W and scores: near 1e-28, not the e^{-100} of the gaps
        assert 1e-34 < expected < 1e-25
        assert value < 1e-25


@pytest.mark.parametrize("x", [1e-150, 1e-12, 1e-6, 0.01, 0.299, 0.301, 3.0, 300.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_phi_keeps_its_digits(x, sign):
    with mpmath.workdps(400):
        expected = mpmath.exp(mpmath.mpf(sign * x)) - 1 - mpmath.mpf(sign * x)
    # the series to its last bits; from 0.3 on the difference loses a factor below ten
    assert abs(exp_minus_linear(sign * x) - expected) <= 10 * EPS * expected


def test_tiny_excess_at_a_subnormal_and_beyond():
    data = NextTokenData(np.eye(2), np.eye(2))
    for margin in (740.0, 800.0):
        value = ntpnb.excess_loss(margin * np.eye(2), data)  # the target's score, beside zero
        # below 1e-308 doubles lose digits one by one, and below 5e-324 there is only zero
        assert abs(value - float(mpmath.exp(-margin))) <= 2 * 5e-324


@pytest.mark.parametrize("gap", [1.0, 30.0, 45.0, 200.0, 600.0])
def test_tiny_gradient_keeps_its_digits_when_one_token_is_right(gap):
    """q − p at the target is minus the others' sum, also where q rounds to one."""
    data = NextTokenData([[1.0, 2.0]], [[0.0, 1.0, 0.0]])
    W = gap * np.outer([0.0, 1.0, 0.0], [0.2, 0.4]) + np.array([[0.0, 0.0], [0, 0], [0.5, 0]])
    with mpmath.workdps(400):
        score = mpmath.matrix(W.tolist()) * mpmath.matrix([1, 2])
        mass = [mpmath.exp(x) for x in score]
        others = [mass[0], -(mass[0] + mass[2]), mass[2]]  # q − p, times the sum of the masses
        residual = [float(x / mpmath.fsum(mass)) for x in others]
    expected = np.outer(residual, [1.0, 2.0])
    # scores up to 600 are rounded at 1e-13, and the gradient is their exponential
    np.testing.assert_allclose(ntpnb.gradient(W, data), expected, rtol=1e-12)
    moves = ntpnb.descend(data, ntpnb.GD(step=1.0), 1, init=W)
    near = W - expected  # what one step gives; the step itself rounds W
    np.testing.assert_allclose(moves.W[-1], near, rtol=2 * EPS)
