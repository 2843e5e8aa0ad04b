"""The finite part where a closed form exists, and what "compatible" means."""

import numpy as np
import pytest
from problems import l24, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.tied.finite import finite_part

# -- closed forms ---------------------------------------------------------------------------------


def test_toy():
    """That it is the smallest solution of T24's Eq. (4), `test_finite.py` says of all data."""
    fin = finite_part(ntpnb.datasets.toy())
    assert abs(np.linalg.norm(fin.W) - 2.1990) <= 5e-5  # METHODS Sec. 2 gives four decimals
    assert fin.compatible
    assert fin.residual <= 1e-14  # log-odds of size one, met by six equations of condition three
    assert fin.gradient_norm <= 1e-15


def test_three_sequences_by_hand():
    """Of three sequences of tokens 0 and 1, two go on with 1: log-odds log 2, split evenly."""
    E = np.eye(3)
    data = NextTokenData.from_attention(E, [(0, 1, 2), (1, 0, 2), (1, 0, 2)], [0, 1, 1])
    fin = finite_part(data)
    expected = np.zeros((3, 3))
    expected[:2, 2] = [-np.log(2) / 2, np.log(2) / 2]
    assert np.abs(fin.W - expected).max() <= 1e-15  # one logarithm, halved
    assert not fin.compatible
    assert fin.subspace.dim == 1
    assert fin.residual == 0.0  # one-hot laws have no in-support log-odds


def test_candidate_counts_shift_the_log_odds():
    data = NextTokenData([[2.0]], [[0.5, 0.5, 0]], candidate_counts=[[3, 1, 7]])
    fin = finite_part(data)
    gap = -np.log(3) / 2  # 3 e^{2 w₀} = e^{2 w₁}
    assert np.abs(fin.W - [[gap / 2], [-gap / 2], [0]]).max() <= 1e-15
    assert fin.compatible


def test_no_ties_give_exactly_zero():
    for data in (t24(5, size=1), l24(6, cyclic=False), t24(7, V=1, size=1), t24(8, zero=6)):
        fin = finite_part(data)
        assert fin.subspace.dim == 0
        assert not fin.W.any()
    assert finite_part(t24(5, size=1)).compatible
    assert finite_part(l24(6, cyclic=False)).compatible


# -- parallel contexts ----------------------------------------------------------------------------


def test_equal_contexts_with_different_laws_meet_in_the_middle():
    """Not compatible: the residual says by how much, and the minimiser fits the average law."""
    p, r, weight = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.2, 0.6]), 0.25
    data = NextTokenData([[1.0, 1.0]] * 2, [p, r], [weight, 1 - weight])
    fin = finite_part(data)
    mean = np.log(weight * p + (1 - weight) * r)
    expected = np.outer(mean - mean.mean(), [0.5, 0.5])
    assert np.abs(fin.W - expected).max() <= 1e-14  # Newton to rounding; entries of size one
    assert not fin.compatible
    missed = [np.ptp(mean - np.log(law)) for law in (p, r)]
    assert abs(fin.residual - max(missed)) <= 1e-13
    assert fin.gradient_norm <= 1e-14


def test_parallel_contexts_with_matching_laws_are_compatible():
    law = np.array([0.8, 0.2])
    double = law**2 / (law**2).sum()  # twice the log-odds for twice the embedding
    fin = finite_part(NextTokenData([[1.0, 1.0], [2.0, 2.0]], [law, double]))
    assert fin.compatible
    assert fin.residual <= 1e-14


@pytest.mark.parametrize(("off", "compatible"), [(1e-10, True), (1e-6, False)])
def test_compatible_means_log_odds_met_to_1e_8(off, compatible):
    p = np.array([0.8, 0.2])
    fin = finite_part(NextTokenData([[1.0], [1.0]], [p, [0.8 + off, 0.2 - off]]))
    assert fin.compatible is compatible
    # each law misses the mean by half of off·(1/p₀ + 1/p₁), or all of it falls on one
    assert 0.4 * off * 6.25 <= fin.residual <= 1.1 * off * 6.25


def test_in_a_group_only_equal_laws_are_compatible():
    E = [[1.0, 2.0]] * 2
    same = [[0.5, 0.3, 0.2]] * 2
    assert finite_part(NextTokenData(E, same, context_groups=[0, 0])).compatible
    other = [[0.5, 0.3, 0.2], [0.5, 0.2, 0.3]]
    assert not finite_part(NextTokenData(E, other, context_groups=[0, 0])).compatible
    # {0, 1} and {1, 2} tie all three, and neither row gives the third token its due
    chained = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    fin = finite_part(NextTokenData(E, chained, context_groups=[0, 0]))
    assert not fin.compatible
    assert fin.subspace.dim == 2


def test_attention_is_compatible_only_without_cycles():
    for seed in range(10):
        assert not finite_part(l24(seed, n=10, cyclic=True)).compatible
        assert finite_part(l24(seed, n=10, T=3, cyclic=False)).compatible
