"""Chapter 13's lemma: data train exactly like their twin, the laws of the trained model."""

import numpy as np
from hypothesis import given
from numpy.testing import assert_array_equal
from problems import any_problem

import ntpnb
from ntpnb_book import twin


@given(any_problem())
def test_the_twin_has_the_same_gradients_ties_and_finite_part(data):
    fin = ntpnb.finite_part(data)
    other = twin(data)
    W = np.random.default_rng(0).standard_normal((5, *data.shape))
    # the finite part's own gradient, and rounding of scores that its W makes
    tolerance = 1e-9 + 1e-13 * (1 + np.linalg.norm(fin.W)) ** 2
    gap = ntpnb.gradient(W, data) - ntpnb.gradient(W, other)
    assert np.abs(gap).max() <= tolerance
    assert np.ptp(ntpnb.cross_entropy(W, data) - ntpnb.cross_entropy(W, other)) <= 100 * tolerance
    a, b = ntpnb.token_priority(data), ntpnb.token_priority(other)
    assert_array_equal(a.equal, b.equal)
    assert_array_equal(a.strict, b.strict)
    assert ntpnb.finite_part(other).compatible
