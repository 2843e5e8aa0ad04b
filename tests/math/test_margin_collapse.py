"""Tokens that are never a target, of which one stands for all: the same answers as without.

Where an order is given, nothing is collapsed, which is what answers are compared with.
"""

import tracemalloc

import numpy as np
import problems
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margins import prove_optimal, prove_refused
from scipy.sparse import csr_array

import ntpnb
from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.margin import solve
from ntpnb.margin.augmented_lagrangian import contradiction
from ntpnb.margin.collapse import collapsed, rows_of, strict_weights
from ntpnb.margin.penalty import minimise, point_at
from ntpnb.margin.penalty_system import FactoredSystem, IterativeSystem
from ntpnb.margin.program import margin_program
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import SupportProgram


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


def answer(data, **arguments):
    """The solution, or the error that refuses the data."""
    try:
        return max_margin(data, **arguments)
    except NotSeparableError as error:
        return error


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
    assert found.margin_bounds == pytest.approx(expected.margin_bounds, rel=1e-9)


@given(seed=st.integers(0, 10**6))
def test_answers_are_those_without_a_collapse(seed):
    data = small(seed)
    assert not collapsed(data).is_trivial
    expected = answer(data, order=priority(data))
    prove_equal(data, answer(data), expected)
    assert is_separable(data) == (not isinstance(expected, NotSeparableError))


@given(seed=st.integers(0, 10**6))
def test_answers_of_large_data_are_those_without_a_collapse(seed):
    """As if they were large, by the augmented Lagrangian and the search among few tokens."""
    data = small(seed, d=2)
    expected = answer(data, order=priority(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "LARGE", 1)
        prove_equal(data, answer(data), expected)
        assert is_separable(data) == (not isinstance(expected, NotSeparableError))


SOLVERS = ["active-set", "interior-point", "fista", "augmented-lagrangian", "nnls", "cvxpy"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(6))
def test_every_method_solves_the_collapsed_problem(solver, seed):
    data = small(seed, norms=1)
    expected = answer(data, order=priority(data))
    try:
        found = answer(data, solver=solver)
    except ConvergenceError:
        assert solver in ("active-set", "fista")  # which need not settle
        return
    prove_equal(data, found, expected)


@pytest.mark.parametrize("seed", range(4))
def test_an_independent_solver_of_the_whole_problem_agrees(seed):
    data = with_others(problems.t24(seed, V=4, m=5, d=6, size=(1, 2)), 30, seed)
    order = priority(data)
    expected = answer(data, order=order, solver="cvxpy")
    prove_equal(data, answer(data), expected)


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


def test_a_result_that_is_shared_lasts(tmp_path):
    svm = max_margin(with_others(problems.t24(1, V=4, m=5, d=6, size=1), 20))
    expected = svm.multipliers
    for name in ("result.npz", "result.json"):
        svm.save(tmp_path / name)
        again = ntpnb.load(tmp_path / name)
        np.testing.assert_array_equal(again.multipliers, expected)
        assert again.margin_bounds == svm.margin_bounds


def test_bounds_and_time_of_a_collapsed_search(monkeypatch):
    monkeypatch.setattr(solve, "LARGE", 1)
    data = with_others(problems.t24(5, V=4, m=9, d=8, size=(1, 2)), 12)
    exact = max_margin(data)
    rough = max_margin(data, gap=0.1)
    below, above = rough.margin_bounds
    assert below * (1 - 1e-9) <= 1 / exact.norm <= above * (1 + 1e-9)
    assert rough.W.shape == data.shape
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, seconds=0)
    assert caught.value.point is None or caught.value.point.W.shape == data.shape


# -- the parts, against copies --------------------------------------------------------------------


def program_and_copies(seed, num_copies=5):
    """A program with a token that stands for several, the one with copies, and their entries."""
    whole = collapsed(with_others(problems.t24(seed, V=4, m=7, d=3, size=(1, 2)), num_copies))
    assert not whole.is_trivial
    program = SupportProgram(whole.data, priority(whole.data), whole.multiplicity)
    copies = SupportProgram(whole.whole, priority(whole.whole))
    return program, copies, whole.kept


@pytest.mark.parametrize("seed", range(3))
def test_a_program_counts_copies(seed):
    program, copies, kept = program_and_copies(seed)
    rng = np.random.default_rng(seed)
    scaled = np.where(program.domain, rng.standard_normal(program.domain.shape), 0.0)
    dual = (scaled / program.roots)[kept]
    weights = program.weights(scaled)
    np.testing.assert_allclose((weights / program.roots)[kept], copies.weights(dual), atol=1e-13)
    assert np.linalg.norm(weights) == pytest.approx(np.linalg.norm(copies.weights(dual)))
    np.testing.assert_allclose(program.column_sums(scaled), copies.column_sums(dual), atol=1e-12)
    common = rng.standard_normal(program.num_columns)
    slack = program.slack(weights, common) / program.roots
    np.testing.assert_allclose(slack[kept], copies.slack(copies.weights(dual), common), atol=1e-12)

    mask = program.tied | (rng.random(program.domain.shape) < 0.7)
    residual = np.where(mask, rng.standard_normal(mask.shape), 0.0)
    imbalance = rng.standard_normal(program.num_columns)
    step = program.kkt_solver(mask, 0.3)(residual, imbalance)
    expected = copies.kkt_solver(mask[kept], 0.3)((residual / program.roots)[kept], imbalance)
    np.testing.assert_allclose(step.common, expected.common, atol=1e-10)
    np.testing.assert_allclose((step.step / program.roots)[kept], expected.step, atol=1e-10)

    projected = program.project(scaled, program.domain)
    of_copies = copies.project(dual, copies.domain)
    np.testing.assert_allclose(
        (projected.dual / program.roots)[kept], of_copies.dual, rtol=0, atol=1e-12
    )
    stepped = program.gradient_step(projected.dual) / program.roots
    np.testing.assert_allclose(stepped[kept], copies.gradient_step(of_copies.dual), atol=1e-12)


@pytest.mark.parametrize("by_pair", [False, True])
def test_multipliers_and_duals_are_inverse_to_each_other(by_pair):
    whole = collapsed(with_others(problems.t24(2, V=4, m=7, d=3, size=(1, 2)), 6))
    order = priority(whole.data)
    program = margin_program(whole.data, order, by_pair, whole.multiplicity)
    multipliers = np.random.default_rng(0).standard_normal(len(order.pairs.i))
    dual = program.dual_of(multipliers)
    np.testing.assert_allclose(program.pair_multipliers(dual), multipliers, atol=1e-14)
    np.testing.assert_allclose(program.column_sums(dual), 0, atol=1e-12)
    lam = np.abs(multipliers)
    solution = certify(whole.data, order, lam, "none", whole.multiplicity)
    weights = program.weights(program.dual_of(lam)) / program.unit
    size = np.linalg.norm(weights)
    assert solution.norm == pytest.approx(size, rel=1e-12)


@pytest.mark.parametrize("kind", [FactoredSystem, IterativeSystem])
def test_penalty_systems_count_copies(kind):
    program, copies, kept = program_and_copies(1)
    rng = np.random.default_rng(3)
    active = program.tied | (program.ordered & (rng.random(program.domain.shape) < 0.6))
    rho = rng.standard_normal(active.shape)
    found = kind(program.directions, active, 0.2, program.roots).solve(rho)
    expected = kind(copies.directions, active[kept], 0.2).solve((rho / program.roots)[kept])
    np.testing.assert_allclose(found.common, expected.common, atol=1e-10)
    changes = (found.weights_change / program.roots)[kept]
    np.testing.assert_allclose(changes, expected.weights_change, atol=1e-10)


def test_a_penalised_minimum_counts_copies():
    program, copies, kept = program_and_copies(2)
    shape = (program.rhs.shape[0], program.directions.shape[1])
    start = point_at(program, np.zeros(shape), np.zeros(program.num_columns))
    found = minimise(program, start, 0.0, np.zeros(shape), 0.1)
    many = (len(kept), shape[1])
    start = point_at(copies, np.zeros(many), np.zeros(program.num_columns))
    expected = minimise(copies, start, 0.0, np.zeros(many), 0.1)
    weights = (found.point.weights / program.roots)[kept]
    np.testing.assert_allclose(weights, expected.point.weights, atol=1e-10)
    np.testing.assert_allclose(found.point.common, expected.point.common, atol=1e-10)
    assert next(iter(contradiction(program))).dual.shape == program.rhs.shape


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
    found = strict_weights(data, rows_of(data, group)[shuffled], loser[shuffled], shuffled + 1.0)
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
    tracemalloc.start()
    svm = max_margin(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120 * V * 8  # one table of all scores
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
