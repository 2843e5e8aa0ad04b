"""Tokens that are never a target, of which one stands for all: the same answers as without.

Where an order is given, nothing is collapsed, which is what answers are compared with.
"""

import numpy as np
import problems
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margins import answer, prove_enclosed, prove_same
from numpy.testing import assert_allclose, assert_array_equal
from peak import allocates_less_than
from scipy.sparse import csr_array

import ntpnb
from ntpnb import (
    NextTokenData,
    NotSeparableError,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.basics import validation
from ntpnb.margin import support_program
from ntpnb.problem.equivalent import collapsed, strict_weights


def with_others(data, num_others, seed=0, sparse=False):
    """The data with tokens that are never a target, at random places among the others."""
    rng = np.random.default_rng([91, seed])
    V = data.vocab_size + num_others
    place = np.sort(rng.permutation(V)[: data.vocab_size])
    probs = np.zeros((data.num_contexts, V))
    probs[:, place] = data.target_probs
    return problems.changed(data, target_probs=csr_array(probs) if sparse else probs)


def small(seed, **options):
    """Data of which at least half of the tokens are never a target, separable or not."""
    rng = np.random.default_rng([92, seed])
    sizes = {"V": 4, "m": int(rng.integers(3, 12)), "d": int(rng.integers(2, 8)), "size": (1, 2)}
    return with_others(problems.t24(seed, **(sizes | options)), int(rng.integers(5, 12)), seed)


@given(seed=st.integers(0, 10**6))
def test_answers_are_those_without_a_collapse(seed):
    data = small(seed)
    assert not collapsed(data).is_trivial
    prove_same(data, answer(data), answer(data, order=priority(data)))


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_large_data_enclose_what_is_found_without_a_collapse(monkeypatch, seed):
    """As if they had too many contexts for a matrix of them."""
    data = small(seed)
    expected = answer(data, order=priority(data))
    monkeypatch.setattr(support_program, "WHOLE", 0)
    found = answer(data, gap=1e-3)
    if isinstance(expected, NotSeparableError):
        prove_same(data, found, expected)
        return
    assert is_separable(data)
    prove_enclosed(data, found, expected)
    assert found.margin_gap <= 1e-3


def test_groups_in_any_order_and_sparse_laws():
    data = with_others(problems.t24(3, V=4, m=5, d=6, size=(1, 2)), 9, sparse=True)
    data = problems.changed(data, context_groups=[7, 2, 9, 0, 4])
    shared, alone = answer(data), answer(data, order=priority(data))
    prove_same(data, shared, alone)
    assert_allclose(shared.multipliers, alone.multipliers, rtol=0, atol=1e-8)
    assert_allclose(shared.equal_multipliers, alone.equal_multipliers, atol=1e-8)
    order = priority(data)
    found = shared.strict_multipliers.pair_weights(data)
    assert_array_equal(order.strict[found.positions], found.pairs)
    kept = collapsed(data).kept
    is_alone = np.bincount(kept)[kept[order.strict[:, 2]]] == 1
    shares = shared.multipliers / shared.multipliers.sum()
    assert_allclose(found.dense()[is_alone], shares[is_alone], rtol=0, atol=1e-12)
    assert found.weights.sum() == pytest.approx(1.0)


def test_what_is_collapsed():
    few = with_others(problems.t24(0, V=4, m=9, d=3, size=2), 3)
    data = with_others(few, np.count_nonzero(few.support.any(0)))
    whole = collapsed(data)
    assert_array_equal(whole.multiplicity[:-1], 1)
    assert whole.multiplicity.sum() == data.vocab_size
    assert_array_equal(whole.data.target_probs[:, whole.kept], data.target_probs)
    for other in (
        few,
        problems.changed(data, token_embeddings=np.eye(data.vocab_size)),
        problems.changed(data, candidate_counts=np.ones(data.target_probs.shape)),
        ntpnb.datasets.figure2(),
        NextTokenData([[1.0], [2.0]], [[1, 0], [1, 0]]),
    ):
        assert collapsed(other).is_trivial


def test_a_large_vocabulary_with_few_targets_is_cheap():
    """Nothing is formed of the size of contexts times tokens, nor of pairs."""
    V = 50_257
    rng = np.random.default_rng(8)
    winner = rng.permutation(V)[:40][rng.integers(0, 40, 120)]
    row = np.arange(120)
    laws = csr_array((np.ones(120), (row, winner)), shape=(120, V))
    data = NextTokenData(rng.standard_normal((120, 30)), laws)
    with allocates_less_than(120 * V * 8):  # one table of all scores
        svm = max_margin(data)
    assert svm.kkt_residual <= 1e-10
    scores = data.context_embeddings @ svm.W.T
    margins = scores[row, winner][:, None] - scores
    margins[row, winner] = np.inf
    assert margins.min() == pytest.approx(1.0, abs=1e-9)
    assert np.linalg.norm(svm.W) ** 2 == pytest.approx(svm.strict_multipliers.total, rel=1e-9)


def test_multipliers_that_tokens_share_are_listed_only_where_memory_is_enough(monkeypatch):
    data = small(0)
    svm = max_margin(data)
    contexts, tokens = data.target_probs.shape
    held = svm.strict_multipliers.table.nnz
    assert repr(svm.strict_multipliers) == f"SharedMultipliers({held} numbers, {contexts} contexts)"
    monkeypatch.setattr(validation, "DENSE_LIMIT", contexts * tokens - 1)
    refused = rf"^multipliers needs a dense array of {contexts} × {tokens} .* smaller vocabulary$"
    with pytest.raises(ValueError, match=refused):
        _ = svm.multipliers
    monkeypatch.setattr(validation, "DENSE_LIMIT", contexts * tokens)
    assert svm.multipliers.sum() == pytest.approx(svm.total_multiplier, rel=1e-13)


def test_weights_by_context_and_loser_are_the_order_s():
    """However they are listed, and whatever the groups are called."""
    data = with_others(problems.t24(4, V=5, m=6, d=3, size=(1, 3)), 3)
    order = priority(problems.changed(data, context_groups=[5, 3, 8, 1, 0, 2]))
    shuffled = np.random.default_rng(0).permutation(len(order.strict))[:12]
    loser = order.strict[shuffled, 2]
    found = strict_weights(order, order.positions(order.strict)[shuffled], loser, 1.0 + shuffled)
    places = np.sort(shuffled)
    assert_array_equal(found.positions, places)
    assert_array_equal(found.pairs, order.strict[places])
    assert_allclose(found.weights, (1 + places) / (1 + places).sum(), rtol=1e-15)
    assert found.num_strict == len(order.strict)
