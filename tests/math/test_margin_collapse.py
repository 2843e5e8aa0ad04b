"""Tokens that are never a target, of which one stands for all: the same answers as without.

Where an order is given, nothing is collapsed, which is what answers are compared with.
"""

import numpy as np
import problems
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margins import answer, prove_optimal, prove_refused
from peak import allocates_less_than
from scipy.sparse import csr_array
from slow_clock import Clock

import ntpnb
from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.basics import watch
from ntpnb.basics.tolerances import PROX
from ntpnb.margin import support_program
from ntpnb.margin.growing_set import Projection
from ntpnb.margin.pair_program import EveryPair
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import SupportPairs
from ntpnb.problem.collapse import collapsed, strict_weights


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


def prove_equal(data, found, expected):
    """Both are proved from the data, and say the same."""
    assert type(found) is type(expected)
    if isinstance(found, NotSeparableError):
        prove_refused(data, found)
        order = priority(data)
        weights = found.pair_weights
        np.testing.assert_array_equal(order.strict[weights.positions], weights.pairs)
        assert weights.num_strict == len(order.strict)
        assert str(len(order.strict)) in str(found)
        return
    prove_optimal(data, found, 1e-9)
    np.testing.assert_allclose(found.W, expected.W, rtol=0, atol=1e-8 * expected.norm)
    assert found.norm == pytest.approx(np.linalg.norm(found.W), rel=1e-13)
    assert found.multipliers.shape == (len(priority(data).strict),)
    assert found.equal_multipliers.shape == (len(priority(data).equal),)
    # A margin is known up to the residuals, which are relative to the norms of W and a context.
    reach = max(1.0, found.norm * np.linalg.norm(data.context_embeddings, axis=1).max())
    rel = 1e-9 + reach * (found.kkt_residual + expected.kkt_residual)
    assert found.margin_bounds == pytest.approx(expected.margin_bounds, rel=rel)


@given(seed=st.integers(0, 10**6))
def test_answers_are_those_without_a_collapse(seed):
    data = small(seed)
    assert not collapsed(data).is_trivial
    expected = answer(data, order=priority(data))
    prove_equal(data, answer(data), expected)
    assert is_separable(data) == (not isinstance(expected, NotSeparableError))


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_large_data_enclose_what_is_found_without_a_collapse(seed):
    """As if they had too many contexts for a matrix of them."""
    data = small(seed)
    expected = answer(data, order=priority(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support_program, "WHOLE", 0)
        found = answer(data, gap=1e-3)
        assert is_separable(data) == (not isinstance(expected, NotSeparableError))
    if isinstance(expected, NotSeparableError):
        prove_equal(data, found, expected)
        return
    below, above = found.margin_bounds
    assert below * (1 - 1e-9) <= 1 / expected.norm <= above * (1 + 1e-9)
    assert found.margin_gap <= 1e-3


def test_groups_in_any_order_and_sparse_laws():
    data = problems.t24(3, V=4, m=5, d=6, size=(1, 2))
    names = [7, 2, 9, 0, 4]
    named = problems.changed(with_others(data, 9, sparse=True), context_groups=names)
    prove_equal(named, answer(named), answer(named, order=priority(named)))
    shared = answer(named)
    alone = answer(named, order=priority(named))
    np.testing.assert_allclose(shared.multipliers, alone.multipliers, rtol=0, atol=1e-8)
    np.testing.assert_allclose(shared.equal_multipliers, alone.equal_multipliers, atol=1e-8)


def test_what_is_collapsed():
    few = with_others(problems.t24(0, V=4, m=9, d=3, size=2), 3)
    targets = np.count_nonzero(few.support.any(0))
    assert collapsed(few).is_trivial
    data = with_others(few, targets)
    whole = collapsed(data)
    np.testing.assert_array_equal(whole.multiplicity[:-1], 1)
    assert whole.multiplicity.sum() == data.vocab_size
    np.testing.assert_array_equal(whole.data.target_probs[:, whole.kept], data.target_probs)
    for other in (
        problems.changed(data, token_embeddings=np.eye(data.vocab_size)),
        problems.changed(data, candidate_counts=np.ones(data.target_probs.shape)),
        ntpnb.datasets.figure2(),
    ):
        assert collapsed(other).is_trivial
    one_of_two = NextTokenData([[1.0], [2.0]], [[1, 0], [1, 0]])
    assert collapsed(one_of_two).is_trivial


def test_a_collapsed_search_that_is_out_of_time_has_a_point_of_the_data(monkeypatch):
    data = with_others(problems.t24(7, V=4, m=9, d=4, size=(1, 2)), 12)  # takes many steps
    clock = Clock()
    monkeypatch.setattr(watch.time, "monotonic", clock.monotonic)
    exact = max_margin(data, seconds=1e9)
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, seconds=clock.now - 1)
    point = caught.value.point
    assert point.W.shape == data.shape
    assert point.multipliers.shape == exact.multipliers.shape
    below, above = point.margin_bounds
    assert below * (1 - 1e-9) <= 1 / exact.norm <= above * (1 + 1e-9)


# -- the parts, against copies --------------------------------------------------------------------


def pairs_and_copies(seed, d=3):
    """Pairs with a token that stands for several, those with copies, and which is whose copy."""
    whole = collapsed(with_others(problems.t24(seed, V=4, m=7, d=d, size=(1, 2)), 5))
    assert not whole.is_trivial
    pairs = SupportPairs(whole.data, priority(whole.data), whole.multiplicity)
    return whole, pairs, SupportPairs(whole.whole, priority(whole.whole))


def copied(whole, values):
    """What each copy has of one value for each context and kept token."""
    return values.reshape(whole.data.target_probs.shape)[:, whole.kept].ravel()


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("d", [3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_a_program_counts_copies(seed, d, fits):
    whole, pairs, all_copies = pairs_and_copies(seed, d)
    pairs.fits = all_copies.fits = fits
    program, copies = pairs.everything(), all_copies.everything()
    rng = np.random.default_rng(seed)
    scaled = rng.standard_normal(len(program))
    dual = copied(whole, scaled / program.roots)
    weights = program.weights(scaled)
    of_copies = (weights / pairs.roots[:, None])[whole.kept]
    np.testing.assert_allclose(of_copies, copies.weights(dual), atol=1e-13)
    assert np.linalg.norm(weights) == pytest.approx(np.linalg.norm(of_copies))
    np.testing.assert_allclose(program.column_sums(scaled), copies.column_sums(dual), atol=1e-12)
    common = rng.standard_normal(program.num_columns)
    slack = copied(whole, program.slack(weights, common) / program.roots)
    np.testing.assert_allclose(slack, copies.slack(of_copies, common), atol=1e-12)
    least = pairs.least_margin(weights, common)
    assert least == pytest.approx(all_copies.least_margin(of_copies, common))

    for theta in (0.3, PROX) if d > 7 else (0.3,):  # with fewer dimensions PROX is all there is
        mask = program.tied | (rng.random(len(program)) < 0.7)
        residual = np.where(mask, rng.standard_normal(mask.shape), 0.0)
        imbalance = rng.standard_normal(program.num_columns)
        found = program.kkt_solver(mask, theta)(residual, imbalance)
        solver = copies.kkt_solver(copied(whole, mask), theta)
        expected = solver(copied(whole, residual / program.roots), imbalance)
        size = np.abs(expected.step).max()
        np.testing.assert_allclose(found.common, expected.common, rtol=0, atol=1e-10 * size)
        step = copied(whole, found.step / program.roots)
        np.testing.assert_allclose(step, expected.step, rtol=0, atol=1e-10 * size)

    everywhere = np.full(len(program), True)
    projected, _ = Projection(program)(scaled.astype(np.float32), everywhere)
    expected, _ = Projection(copies)(dual.astype(np.float32), copied(whole, everywhere))
    np.testing.assert_allclose(copied(whole, projected / program.roots), expected, atol=1e-5)


@pytest.mark.parametrize("by_pair", [False, True])
def test_multipliers_combine_to_the_weights_of_their_dual(by_pair):
    whole, pairs, _ = pairs_and_copies(2)
    if by_pair:
        pairs = EveryPair(whole.data, priority(whole.data))
    program = pairs.everything()
    dual = np.random.default_rng(0).standard_normal(len(program))
    dual[program.ordered] = -np.abs(dual[program.ordered])
    if not by_pair:
        num_tied = np.bincount(program.column, program.tied)
        dual -= program.tied * (program.column_sums(dual) / num_tied)[program.column]
    copies = None if by_pair else whole.multiplicity
    solution = certify(whole.data, pairs.order, pairs.multipliers(program, dual), copies)
    weights = program.weights(dual) / pairs.unit
    if not by_pair:
        weights /= pairs.roots[:, None]
    np.testing.assert_allclose(solution.W, weights, rtol=0, atol=1e-12 * solution.norm)


def test_weights_by_context_and_loser_are_the_order_s():
    data = problems.changed(
        with_others(problems.t24(4, V=5, m=6, d=3, size=(1, 3)), 3),
        context_groups=[5, 3, 8, 1, 0, 2],
    )
    order = priority(data)
    rng = np.random.default_rng(0)
    positions = np.sort(rng.permutation(len(order.strict))[:12])
    group, _, loser = order.strict[positions].T
    shuffled = rng.permutation(12)
    row = np.searchsorted(order.groups, group)
    found = strict_weights(order, row[shuffled], loser[shuffled], shuffled + 1.0)
    np.testing.assert_array_equal(found.positions, positions)
    np.testing.assert_array_equal(found.pairs, order.strict[positions])
    np.testing.assert_allclose(found.weights, np.arange(1, 13) / 78, rtol=1e-15)
    assert found.num_strict == len(order.strict)


def test_a_large_vocabulary_with_few_targets_is_cheap():
    """Nothing is formed of the size of contexts times tokens, nor of pairs."""
    V = 50_257
    rng = np.random.default_rng(8)
    targets = rng.permutation(V)[:40]
    row = np.arange(120)
    laws = csr_array((np.ones(120), (row, targets[rng.integers(0, 40, 120)])), shape=(120, V))
    data = NextTokenData(rng.standard_normal((120, 30)), laws)
    with allocates_less_than(120 * V * 8):  # one table of all scores
        svm = max_margin(data)
    assert svm.W.shape == (V, 30)
    assert svm.kkt_residual <= 1e-10
    scores = data.context_embeddings @ svm.W.T
    winner = laws.indices
    margins = scores[row, winner][:, None] - scores
    margins[row, winner] = np.inf
    assert margins.min() == pytest.approx(1.0, abs=1e-9)
    assert np.linalg.norm(svm.W) ** 2 == pytest.approx(svm.strict_multipliers.total, rel=1e-9)


def test_shared_multipliers_name_each_pair_once():
    data = with_others(problems.t24(6, V=4, m=5, d=6, size=(1, 2)), 20)
    data = problems.changed(data, context_groups=[3, 1, 9, 0, 5])
    svm = max_margin(data)
    found = svm.strict_multipliers.pair_weights(data)
    order = priority(data)
    np.testing.assert_array_equal(order.strict[found.positions], found.pairs)
    kept = collapsed(data).kept
    loser = order.strict[:, 2]
    alone = np.bincount(kept)[kept[loser]] == 1
    shares = svm.multipliers / svm.multipliers.sum()
    np.testing.assert_allclose(found.dense()[alone], shares[alone], rtol=0, atol=1e-12)
    assert found.weights.sum() == pytest.approx(1.0)
