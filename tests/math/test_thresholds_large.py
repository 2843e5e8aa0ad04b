"""Thresholds of large vocabularies: against many digits, identities and simulated distances."""

import time

import mpmath
import numpy as np
import pytest
from exact_levels import by_definition, by_shifted_lines
from peak import allocates_less_than
from quick import slow_but
from scipy.special import ndtr
from scipy.stats import binom

from ntpnb import thresholds
from ntpnb.thresholds import common_score, level_law, stirling_remainder

MILLION = 10**6


def promised(outside):
    """Relative error of each probability that the docstring allows."""
    return 1e-13 + 1e-15 * outside


@pytest.mark.parametrize("support_size", [1, 3])
def test_every_probability_of_few_tokens_is_its_definition(support_size):
    law = thresholds.pooled_law(7, support_size)
    exact = [float(by_definition(7, support_size, k)) for k in range(8)]
    np.testing.assert_allclose(law, exact, rtol=promised(7), atol=0)


def test_lines_beside_the_saddle_point_give_the_definition():
    for k in (0, 4, 7):
        exact = by_definition(7, 2, k)
        assert abs(by_shifted_lines(7, 2, k) / exact - 1) < 1e-20


QUICK = [(100, 1), (1000, 30), (50_256, 1), (500_000, 500_000)]
SIZES = [
    *QUICK,
    (40, 20),
    (1000, 1),
    (1000, 1000),
    (1000, MILLION - 1000),
    (50_237, 20),
    (MILLION - 1, 1),
    (MILLION - 3, 3),
    (MILLION - 1000, 1000),
    (MILLION, MILLION // 10),
    (MILLION, MILLION),
]


@pytest.mark.parametrize("sizes", slow_but(QUICK, SIZES))
def test_probabilities_have_the_digits_that_are_promised(sizes):
    outside, support_size = sizes
    law = thresholds.pooled_law(outside, support_size)
    k = np.arange(outside + 1)
    mean = law @ k
    deviation = np.sqrt(law @ (k - mean) ** 2)
    for shift in (-5, -2, 0, 2, 5):
        at = max(0, int(mean + shift * deviation))
        exact = by_shifted_lines(outside, support_size, at)
        assert abs(law[at] / exact - 1) < promised(outside)


@pytest.mark.parametrize("support_size", [1, 2, 30, 1000, 10**5, MILLION])
@pytest.mark.parametrize("outside", [1, 2, 17, 100, 1000, 50_256, MILLION])
def test_even_and_odd_numbers_of_tied_tokens_are_equally_likely(outside, support_size):
    """The Gauss-Bonnet theorem for intrinsic volumes of a cone that is no subspace."""
    law = thresholds.pooled_law(outside, support_size)
    tolerance = 1e-12 if outside <= 1000 else 1e-10
    assert law.shape == (outside + 1,)
    assert law.min() >= 0
    assert not law.flags.writeable
    assert law[::2].sum() == pytest.approx(1 / 2, abs=tolerance / 2)
    assert law[1::2].sum() == pytest.approx(1 / 2, abs=tolerance / 2)


def test_a_single_label_is_the_largest_of_all_equally_often():
    for outside in (1, 5, 100, 1000, 50_256, MILLION):
        law = thresholds.pooled_law(outside, 1)
        assert law[0] == pytest.approx(1 / (outside + 1), rel=promised(outside))


def test_ties_with_a_very_large_support_are_independent():
    """Its mean is nearly zero: each token is above it or not, but for terms of order n² / S."""
    outside = 100
    support_size = 2**30
    law = thresholds.pooled_law(outside, support_size)
    independent = binom(outside, 0.5).pmf(np.arange(outside + 1))
    np.testing.assert_allclose(law, independent, rtol=outside**2 / support_size)


def test_without_tokens_outside_the_support_none_is_tied():
    law = level_law(0, 3)
    assert (law.first, law.probs.tolist()) == (0, [1.0])
    assert thresholds.pooled_law(0, 3).tolist() == [1.0]


@pytest.mark.parametrize(
    ("outside", "support_size"), [(100, 1), (1000, 30), (50_256, 1), (MILLION, 1000)]
)
def test_what_is_left_out_lies_beyond_probabilities_that_are_negligible(outside, support_size):
    law = level_law(outside, support_size)
    before, behind = law.first, outside + 1 - law.first - len(law.probs)
    for left_out, inwards in ((before, law.probs), (behind, law.probs[::-1])):
        if left_out:
            assert inwards[0] < 1e-19
            assert (np.diff(inwards[:5]) > 0).all()


@pytest.mark.parametrize("support_size", [1, 2, 100, 10**4, MILLION])
def test_the_limit_of_large_sizes_is_just_below_the_mean(support_size):
    """The window of probabilities that are computed is centred there, and relies on it."""
    for outside in (1, 10, 1000, 10**5, MILLION):
        law = level_law(outside, support_size)
        mean = law.probs @ (law.first + np.arange(len(law.probs)))
        limit = outside * ndtr(-common_score(outside, support_size))
        assert -1e-9 * limit - 1e-9 < mean - limit < 1


def test_stirling_remainder_has_all_digits():
    sizes = [0, 1, 2, 7, 15, 16, 17, 40, 1000, MILLION]
    with mpmath.workdps(40):
        exact = [float(mpmath.loggamma(k + 1) - (k * mpmath.log(k or 1) - k)) for k in sizes]
    np.testing.assert_allclose(stirling_remainder(np.array(sizes)), exact, rtol=2e-15, atol=0)


@pytest.mark.parametrize(("V", "S", "draws"), [(1000, 1, 3000), (1000, 40, 3000), (10_000, 3, 500)])
def test_thresholds_meet_simulated_distances(V, S, draws):
    """Mean and spread of the distance, and the number of tied tokens, without any formula."""
    rng = np.random.default_rng([V, S])
    g = rng.standard_normal((draws, V))
    inside = g[:, :S]
    outside = -np.sort(-g[:, S:], axis=1)
    sums = np.cumsum(np.column_stack([inside.sum(axis=1), outside]), axis=1)
    c = (sums / np.arange(S, V + 1)).max(axis=1, keepdims=True)
    above = np.maximum(outside - c, 0)
    distances = ((inside - c) ** 2).sum(axis=1) + (above**2).sum(axis=1)
    numbers = S - 1 + np.count_nonzero(above, axis=1)
    threshold = thresholds.separability_threshold(V, S)
    for sample in (distances, numbers):
        error = np.std(sample) / np.sqrt(draws)
        assert abs(np.mean(sample) - threshold * (V - 1)) < 4 * error
    # The variance of a nearly normal sample has a relative standard error of √(2 / draws).
    width = thresholds.transition_width(V, S, num_contexts=7) * np.sqrt(7) * (V - 1)
    assert abs(np.var(numbers) / width**2 - 1) < 5 * np.sqrt(2 / draws)


def test_a_million_tokens_take_seconds_and_megabytes():
    begun = time.process_time()
    with allocates_less_than(50e6):
        thresholds.separability_threshold(MILLION - 7, {1: 0.5, 3: 0.25, 500_000: 0.25})
    assert time.process_time() - begun < 5
