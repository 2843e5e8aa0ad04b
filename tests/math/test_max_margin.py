"""The max-margin engine against its own definition, two other solvers and Farkas' lemma.

Nothing here trusts the engine's residuals: every answer is judged on all pairs of the papers'
definitions (``margins``), by bounds on the optimal norm from both sides, or by another solver.
"""

import re

import cvxpy as cp
import numpy as np
import problems
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import prove_optimal, prove_refused, separable, without_solution
from scipy.optimize import linprog

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    datasets,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.margin import reference as dense_methods
from ntpnb.margin import solve
from ntpnb.margin.solve import methods_to_try

REGIMES = problems.regimes()
BLOCKS = range(10 if settings().max_examples >= 30 else 1)  # one for each of thousands of mutants
SLOW_BLOCKS = [pytest.param(block, marks=[pytest.mark.slow] if block else []) for block in BLOCKS]


def test_the_toy_is_exact():
    exact = np.array([[-3, -24], [27, 16], [2, 16], [-23, 16], [-3, -24]]) / 25
    svm = max_margin(datasets.toy())
    np.testing.assert_allclose(svm.W, exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(svm.W[0], svm.W[4], rtol=0, atol=1e-12)


# -- answers and refusals on random problems ------------------------------------------------------


@pytest.mark.parametrize("name", REGIMES)
def test_every_regime_ends_in_a_proof(name):
    data = REGIMES[name]
    try:
        svm = max_margin(data)
    except NotSeparableError as error:
        prove_refused(data, error)
        assert not is_separable(data)
    else:
        assert is_separable(data)
        assert svm.kkt_residual <= 1e-10
        prove_optimal(data, svm, 1e-10)


def decoder(i):
    """Separable problems with d > m, d = m and d < m; mixed, one-hot and widest supports."""
    V = 4 + i % 5
    size = [(1, V - 1), 1, V - 1, (1, 2)][i % 4]
    d = [18, 12, 11][i % 3]
    return problems.t24(1000 + i, V=V, m=12, d=d, size=size, norms=6 * (i % 7 == 0))


def twins(i):
    """Contexts that share an embedding and a support: different rows of one direction."""
    data = problems.t24(2000 + i, V=6, m=8, d=14, size=(1, 5))
    H = np.concatenate([data.context_embeddings, data.context_embeddings[:4]])
    return NextTokenData(H, np.concatenate([data.target_probs, data.target_probs[:4]]))


@pytest.mark.parametrize("block", SLOW_BLOCKS)
def test_two_hundred_random_problems(block):
    solved = 0
    for i in range(20 * block, 20 * block + 20):
        data = twins(i) if i % 5 == 4 else decoder(i)
        try:
            svm = max_margin(data)
        except NotSeparableError as error:
            prove_refused(data, error)
            continue
        solved += 1
        assert svm.kkt_residual <= 1e-10
        prove_optimal(data, svm, 1e-10)
    assert solved >= 12


@pytest.mark.parametrize("block", SLOW_BLOCKS)
def test_every_refusal_carries_a_valid_certificate(block):
    refused = 0
    for i in range(80 * block, 80 * block + 80):
        if i % 4 == 3:
            data = problems.l24(7000 + i, K=6, d=1 + i % 2, n=10)
        else:
            data = problems.t24(7000 + i, V=5, m=10, d=2 + i % 4, size=(1, 3))
        try:
            max_margin(data)
        except NotSeparableError as error:
            prove_refused(data, error)
            refused += 1
    assert refused >= 30  # 300 over the ten blocks


def test_without_strict_pairs_there_is_nothing_to_win():
    data = REGIMES["every token in every support"]
    svm = max_margin(data)
    assert svm.norm == 0
    assert svm.min_margin == np.inf
    assert svm.kkt_residual == 0
    assert svm.duality_gap == 0
    assert svm.solver == "no strict pairs"
    assert svm.multipliers.shape == (0,)
    assert is_separable(data)


# -- against other solvers ------------------------------------------------------------------------


def with_cvxpy(data):
    """The problem in cvxpy, solved by OSQP to its last digits."""
    strict = reference.pair_matrices(data, priority(data).strict.tolist())
    equal = reference.pair_matrices(data, priority(data).equal.tolist())
    W = cp.Variable(strict.shape[1])
    constraints = [strict @ W >= 1] + ([equal @ W == 0] if len(equal) else [])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2), constraints)
    problem.solve(solver="OSQP", eps_abs=1e-10, eps_rel=1e-10, max_iter=200_000, polishing=True)
    return W.value.reshape(data.shape)


@pytest.mark.parametrize("paper", ["t24", "l24"])
@pytest.mark.parametrize("block", SLOW_BLOCKS[:5])
def test_cvxpy_agrees(paper, block):
    for i in range(10 * block, 10 * block + 10):
        if paper == "t24":
            data = problems.t24(3000 + i, V=5, m=6, d=8, size=(1, 4))
        else:
            data = problems.l24(4000 + i, cyclic=bool(i % 2))
        svm = max_margin(data)
        assert svm.kkt_residual <= 1e-10
        if len(priority(data).strict):
            np.testing.assert_allclose(svm.W, with_cvxpy(data), rtol=0, atol=1e-9 * (1 + svm.norm))


def separable_by_linear_program(data):
    """Largest margin of a W in the unit box, by HiGHS; pairs of norm one."""
    strict = reference.pair_matrices(data, priority(data).strict.tolist(), unit=True)
    equal = reference.pair_matrices(data, priority(data).equal.tolist(), unit=True)
    n = strict.shape[1]
    if not len(strict):
        return True
    result = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([-strict, np.ones(len(strict))]),
        b_ub=np.zeros(len(strict)),
        A_eq=np.column_stack([equal, np.zeros(len(equal))]) if len(equal) else None,
        b_eq=np.zeros(len(equal)) if len(equal) else None,
        bounds=[(-1, 1)] * n + [(None, None)],
        method="highs",
    )
    return -result.fun > 1e-7  # HiGHS meets constraints to 1e-7


@pytest.mark.parametrize("block", SLOW_BLOCKS)
def test_a_linear_program_gives_the_same_verdict(block):
    verdicts = []
    for i in range(100 * block, 100 * block + 100):
        if i % 4 == 3:
            data = problems.l24(6000 + i, K=6, d=1 + i % 3, n=10)
        else:
            data = problems.t24(6000 + i, V=4 + i % 3, m=8, d=2 + i % 5, size=(1, 3))
        verdicts.append((is_separable(data), separable_by_linear_program(data)))
    assert all(ours == theirs for ours, theirs in verdicts)
    assert 10 < sum(ours for ours, _ in verdicts) < 90


@pytest.mark.parametrize("seed", [504, 1691, 2740, 3193])
def test_multipliers_that_all_vanish_certify_nothing(seed):
    """Separable by a hair: refining a false certificate ends in zero, which cancels trivially."""
    rng = np.random.default_rng(seed)
    E = rng.standard_normal((42, 3))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    X = np.arange(42).reshape(21, 2)
    data = NextTokenData.from_attention(E, X, X[np.arange(21), rng.integers(0, 2, 21)])
    assert is_separable(data)
    assert max_margin(data).min_margin >= 1 - 1e-9


# -- every method ---------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["active-set", "interior-point", "fista", "nnls", "cvxpy"])
def test_all_methods_give_one_answer(solver):
    tolerance = {"cvxpy": 1e-6}.get(solver, 1e-9)  # Clarabel stops at 1e-11, of squares
    for seed in range(3):
        for data, _ in separable(seed):
            best = max_margin(data)
            other = max_margin(data, solver=solver)
            assert other.solver == solver
            np.testing.assert_allclose(other.W, best.W, rtol=0, atol=tolerance * best.norm)


MOST_STEPS = {"active-set": 6, "interior-point": 9, "fista": 4, "nnls": 1}


@pytest.mark.parametrize("solver", MOST_STEPS)
def test_methods_settle_in_the_steps_their_names_promise(solver):
    """Random problems with d > m; every method ends in an active set, or in no step at all."""
    for seed in range(10):
        told = []
        data = problems.t24(5000 + seed, V=6, m=9, d=12, size=(1, 4))
        max_margin(data, solver=solver, progress=told.append)
        form = rf"{solver}, step (\d+): best KKT residual (\S+)"
        steps, residuals = zip(*(re.fullmatch(form, line).groups() for line in told), strict=True)
        assert 1 <= int(steps[0])
        assert int(steps[-1]) <= MOST_STEPS[solver]
        assert float(residuals[-1]) <= 1e-13


@pytest.mark.parametrize("solver", ["interior-point", "fista", "nnls", "cvxpy"])
def test_all_methods_refuse_with_a_certificate(solver):
    for seed in (5502, 5505, 5508):  # in two dimensions
        data = without_solution(seed)
        with pytest.raises(NotSeparableError) as caught:
            max_margin(data, solver=solver)
        prove_refused(data, caught.value)
        weights = caught.value.certificate
        assert weights.sum() == pytest.approx(1.0, rel=1e-12)
        assert str(caught.value) == (
            f"no W keeps all {len(weights)} strict pairs at a positive margin: weighted as "
            f".certificate says, {np.count_nonzero(weights)} of them contradict each other"
        )


def test_cvxpy_needs_no_nonnegative_least_squares_where_it_solves(monkeypatch):
    monkeypatch.delattr(dense_methods, "nnls_start")
    for data, _ in separable(0):
        assert max_margin(data, "cvxpy").solver == "cvxpy"


def test_a_reference_that_gives_up_leaves_it_undecided(monkeypatch):
    def fail(*_, **__):
        raise cp.SolverError("no progress")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    with pytest.raises(ConvergenceError, match=r"^undecided: cvxpy reached a KKT residual of inf,"):
        max_margin(datasets.toy(), "cvxpy")


def test_an_unknown_solver_is_refused():
    message = "solver is 'simplex'; it must be one of auto, active-set, interior-point, fista, "
    with pytest.raises(ValueError, match=message):
        max_margin(datasets.toy(), solver="simplex")


# -- the choice of methods ------------------------------------------------------------------------


def chosen(num_pairs, num_weights=1000, one_hot=True, only_separability=False):
    return methods_to_try(
        num_pairs, num_weights, one_hot=one_hot, only_separability=only_separability
    )


def test_few_pairs_begin_with_the_active_set_and_many_with_fista():
    assert chosen(num_pairs=600) == ["active-set", "interior-point", "nnls"]
    assert chosen(num_pairs=601) == ["fista", "interior-point", "nnls"]


def test_separability_of_one_hot_tokens_is_left_to_the_interior_point():
    assert chosen(num_pairs=601, only_separability=True) == ["interior-point", "nnls"]
    general = chosen(num_pairs=601, only_separability=True, one_hot=False)
    assert general == ["fista", "interior-point", "nnls"]


def test_the_interior_point_is_left_out_where_its_factor_is_too_large():
    assert chosen(2**14, one_hot=False) == ["fista", "interior-point"]
    assert chosen(2**14 + 1, one_hot=False) == ["fista"]
    assert chosen(2**14 + 1) == ["fista", "interior-point"]


def test_nnls_is_tried_only_where_it_fits_and_first_where_weights_are_few():
    assert "nnls" in chosen(num_pairs=2**12, num_weights=2**10)
    assert "nnls" not in chosen(num_pairs=2**12 + 1, num_weights=2**10)
    assert chosen(num_pairs=8 * 50, num_weights=50)[-1] == "nnls"
    assert chosen(num_pairs=8 * 50 + 1, num_weights=50)[0] == "nnls"


@pytest.mark.parametrize(("m", "first"), [(200, "active-set"), (201, "fista")])
def test_the_first_choice_is_what_solves(m, first):
    told = []
    data = problems.t24(1, V=4, m=m, d=m + 5, size=(1, 3))
    svm = max_margin(data, progress=told.append)
    assert svm.solver == first
    assert told[0].startswith(f"{first}, step ")


def test_nnls_begins_where_pairs_are_many_and_weights_few():
    rng = np.random.default_rng(0)
    H = rng.standard_normal((60, 2))  # 120 pairs against 6 entries of W
    data = NextTokenData(H, np.eye(3)[(H @ rng.standard_normal((2, 3))).argmax(1)])
    told = []
    svm = max_margin(data, progress=told.append)
    assert svm.solver == "nnls"
    assert told[0].startswith("nnls, step 1:")
    prove_optimal(data, svm, 1e-10)
    assert is_separable(data)


def test_an_order_at_hand_is_taken(monkeypatch):
    data = problems.t24(5000, V=6, m=9, d=12, size=(1, 4))
    order = priority(data)
    expected = max_margin(data)
    monkeypatch.delattr(solve, "token_priority")
    np.testing.assert_array_equal(max_margin(data, order=order).W, expected.W)
    assert is_separable(data, order=order)


@pytest.mark.parametrize("function", [max_margin, is_separable])
def test_an_order_at_hand_does_not_excuse_wrong_data(function):
    order = priority(datasets.toy())
    with pytest.raises(TypeError, match=r"^data is of type str; NextTokenData is needed$"):
        function("toy", order=order)


# -- where the search ends ------------------------------------------------------------------------


class Interruption(Exception):
    """Something that a caller's ``progress`` may raise and no method does."""


RAISED = [Interruption, KeyboardInterrupt, RuntimeError, np.linalg.LinAlgError, StopIteration]


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("solver", ["auto", "active-set", "interior-point", "fista", "nnls"])
def test_what_progress_raises_reaches_the_caller(solver, error):
    """Also what methods themselves raise where they run out of digits."""
    told = []

    def progress(line):
        told.append(line)
        raise error("enough")

    with pytest.raises(error, match="enough"):
        max_margin(datasets.toy(), solver=solver, progress=progress)
    with pytest.raises(error, match="enough"):
        max_margin(without_solution(5502), solver=solver, progress=progress)
    assert len(told) == 2


def test_separability_is_settled_at_the_first_proof(monkeypatch):
    """In fewer steps of the interior point than the solution takes, and never in more."""
    interior_point = solve.METHODS["interior-point"]
    taken = []

    def counted(program):
        for iterate in interior_point(program):
            taken.append(iterate)
            yield iterate

    monkeypatch.setitem(solve.METHODS, "interior-point", counted)
    fewer = 0
    for seed in range(10):
        for size in (1, (1, 3)):
            data = problems.t24(5000 + seed, V=6, m=9, d=12, size=size)
            taken.clear()
            assert is_separable(data)
            for_verdict = len(taken)
            taken.clear()
            max_margin(data, "interior-point")
            assert for_verdict <= len(taken)
            fewer += for_verdict < len(taken)
    assert fewer > 10


@pytest.mark.parametrize("solver", ["active-set", "interior-point", "fista", "nnls", "cvxpy"])
def test_undecided_says_how_close_it_came(monkeypatch, solver):
    """With a tolerance that nothing meets."""
    monkeypatch.setattr(solve, "STOP", -1.0)
    monkeypatch.setattr(solve, "ACCEPT", -1.0)
    data = problems.t24(5000, V=6, m=9, d=12, size=(1, 4))
    told = []
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, solver=solver, progress=told.append)
    residual = caught.value.residual
    assert told[-1].startswith(f"{solver}, step ")
    assert told[-1].endswith(f": best KKT residual {residual:.1e}")
    assert 0 <= residual <= (1e-6 if solver == "cvxpy" else 1e-13)
    assert str(caught.value) == (
        f"undecided: {solver} reached a KKT residual of {residual:.1e}, not small enough, and "
        "found no certificate that the data are not separable"
    )


def test_undecided_names_all_methods_that_were_tried(monkeypatch):
    monkeypatch.setattr(solve, "STOP", -1.0)
    monkeypatch.setattr(solve, "ACCEPT", -1.0)
    told = []
    message = "^undecided: active-set and interior-point and nnls reached a KKT residual of "
    with pytest.raises(ConvergenceError, match=message):
        max_margin(problems.t24(5000, V=6, m=9, d=12, size=(1, 4)), progress=told.append)
    names = [line.split(", ")[0] for line in told]
    assert list(dict.fromkeys(names)) == ["active-set", "interior-point", "nnls"]


def test_what_is_close_enough_is_accepted_once_a_method_has_ended(monkeypatch):
    monkeypatch.setattr(solve, "STOP", -1.0)
    told = []
    data = problems.t24(5000, V=6, m=9, d=12, size=(1, 4))
    svm = max_margin(data, progress=told.append)
    assert svm.solver == "active-set"
    assert all(line.startswith("active-set, ") for line in told)
    assert svm.kkt_residual <= 1e-10


@pytest.mark.parametrize("solver", ["active-set", "fista"])
def test_a_method_that_does_not_settle_claims_nothing(solver):
    """``auto`` goes on and finds a proof."""
    data = problems.t24(9, V=7, m=10, d=4, size=1)
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, solver=solver)
    assert caught.value.residual > 1e-10
    prove_optimal(data, max_margin(data), 1e-10)


# -- the same problem in other words --------------------------------------------------------------


@given(problems.any_problem(), st.integers(0, 99), st.sampled_from([1e-3, 1.0, 1e4]))
def test_rotating_and_scaling_the_embeddings(data, seed, scale):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((data.shape[1],) * 2))[0]
    turned = problems.rotated(data, scale * Q)
    try:
        W = max_margin(data).W
    except NotSeparableError:
        with pytest.raises(NotSeparableError):
            max_margin(turned)
        return
    size = np.linalg.norm(W)
    np.testing.assert_allclose(scale * max_margin(turned).W @ Q.T, W, rtol=0, atol=1e-8 * size)


@given(problems.any_problem(), st.integers(0, 99))
def test_renaming_tokens_and_reordering_contexts(data, seed):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data.target_probs))
    tokens = rng.permutation(data.vocab_size)
    other = problems.renamed(problems.rearranged(data, rows), tokens)
    try:
        W = max_margin(data).W
    except NotSeparableError:
        with pytest.raises(NotSeparableError):
            max_margin(other)
        return
    W = W[tokens] if data.token_embeddings is None else W
    size = np.linalg.norm(W)
    np.testing.assert_allclose(max_margin(other).W, W, rtol=0, atol=1e-8 * size)
