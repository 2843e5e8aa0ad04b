"""The max-margin engine against its own definition, two other solvers and Farkas' lemma.

Nothing here trusts the engine's residuals: every answer is judged on all pairs of the papers'
definitions (`slow`), by bounds on the optimal norm from both sides, or by another solver.
"""

import cvxpy as cp
import numpy as np
import problems
import pytest
import slow
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import svd
from scipy.optimize import linprog

from ntpnb import NextTokenData, NotSeparableError, datasets, is_separable, max_margin
from ntpnb import token_priority as priority

REGIMES = problems.regimes()


def complement(data):
    """Orthogonal projector away from the tied subspace, from all tied pairs."""
    rows = slow.pair_matrices(data, slow.equal_pairs(data), unit=True)
    if not len(rows):
        return np.eye(rows.shape[1])
    _, s, V = svd(rows, full_matrices=False)
    V = V[s > 1e-10 * s[0]]
    return np.eye(rows.shape[1]) - V.T @ V


def relative_sum(data, multipliers):
    """``(I − P_F) Σ λ (t_i − t_j) h_gᵀ`` and the sum of its terms' norms."""
    terms = slow.pair_matrices(data, priority(data).strict.tolist())
    return complement(data) @ (multipliers @ terms), multipliers @ np.linalg.norm(terms, axis=1)


def feasible(W, equal, strict):
    """``W`` moved as little as ties and missing margins take, so that only its rounding is left.

    ``W`` over its least margin would be feasible too, but longer by what the longest pair misses.
    """
    for _ in range(3):  # what one pair gains another may lose
        rows = np.concatenate([equal, strict[strict @ W < 1]])
        miss = np.repeat([0.0, 1.0], [len(equal), len(rows) - len(equal)]) - rows @ W
        scale = 1 / np.maximum(np.linalg.norm(rows, axis=1), np.finfo(float).tiny)
        W = W + np.linalg.lstsq(rows * scale[:, None], miss * scale, rcond=1e-12)[0]
    return W


def prove_optimal(data, svm, tolerance):
    """Ties met, and the optimal norm enclosed: by a feasible W from above, by λ from below."""
    W, norm = svm.W.ravel(), np.linalg.norm(svm.W)
    reach = np.maximum(1.0, norm * np.linalg.norm(data.context_embeddings, axis=1).max())
    equal = slow.pair_matrices(data, slow.equal_pairs(data))
    strict = slow.pair_matrices(data, slow.strict_pairs(data))
    assert np.abs(equal @ W).max(initial=0.0) <= tolerance * reach
    assert svm.min_margin == pytest.approx((strict @ W).min(initial=np.inf), rel=1e-9)
    assert svm.multipliers.min(initial=0.0) >= 0
    combined, _ = relative_sum(data, svm.multipliers)
    below = 2 * svm.multipliers.sum() - combined @ combined  # of the squared optimal norm
    assert below == pytest.approx(norm**2, rel=1e-9)
    above = feasible(W, equal, strict)
    assert ((strict @ above - 1) / np.linalg.norm(strict, axis=1)).min(initial=0.0) >= -1e-14 * norm
    assert np.linalg.norm(above) == pytest.approx(norm, rel=1e-9)
    assert svm.norm == pytest.approx(norm, rel=1e-12)


def prove_refused(data, error):
    """Farkas: nonnegative weights, not all zero, whose combination vanishes."""
    weights = error.certificate
    assert weights.shape == (len(priority(data).strict),)
    assert weights.min() >= 0
    combined, size = relative_sum(data, weights)
    assert size > 0 or weights.sum() > 0
    assert np.linalg.norm(combined) <= 1e-9 * size


def test_the_toy_is_exact():
    exact = np.array([[-3, -24], [27, 16], [2, 16], [-23, 16], [-3, -24]]) / 25
    svm = max_margin(datasets.toy())
    np.testing.assert_allclose(svm.W, exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(svm.W[0], svm.W[4], rtol=0, atol=1e-12)


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
    m, d = [(12, 18), (12, 12), (12, 11)][i % 3]
    return problems.t24(1000 + i, V, m, d, size, norms=6 * (i % 7 == 0), parallel=0)


def twins(i):
    """Contexts that share an embedding and a support: different rows of one direction."""
    data = problems.t24(2000 + i, 6, 8, 14, (1, 5))
    H = np.concatenate([data.context_embeddings, data.context_embeddings[:4]])
    return NextTokenData(H, np.concatenate([data.target_probs, data.target_probs[:4]]))


@pytest.mark.parametrize("block", range(10))
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


def with_cvxpy(data):
    """The problem in cvxpy, solved by OSQP to its last digits."""
    strict = slow.pair_matrices(data, priority(data).strict.tolist())
    equal = slow.pair_matrices(data, priority(data).equal.tolist())
    W = cp.Variable(strict.shape[1])
    constraints = [strict @ W >= 1] + ([equal @ W == 0] if len(equal) else [])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2), constraints)
    problem.solve(solver="OSQP", eps_abs=1e-10, eps_rel=1e-10, max_iter=200_000, polishing=True)
    return W.value.reshape(data.shape)


@pytest.mark.parametrize("paper", ["t24", "l24"])
@pytest.mark.parametrize("block", range(5))
def test_cvxpy_agrees(paper, block):
    for i in range(10 * block, 10 * block + 10):
        if paper == "t24":
            data = problems.t24(3000 + i, 5, 6, 8, (1, 4))
        else:
            data = problems.l24(4000 + i, cyclic=bool(i % 2))
        svm = max_margin(data)
        assert svm.kkt_residual <= 1e-10
        if len(priority(data).strict):
            np.testing.assert_allclose(svm.W, with_cvxpy(data), rtol=0, atol=1e-9 * (1 + svm.norm))


@pytest.mark.parametrize("solver", ["active-set", "interior-point", "fista", "nnls", "cvxpy"])
def test_all_methods_give_one_answer(solver):
    tolerance = {"cvxpy": 1e-6}.get(solver, 1e-9)  # Clarabel's own tolerance is 1e-8
    for seed in range(5):
        data = problems.t24(5000 + seed, 6, 9, 12, (1, 4))
        best, other = max_margin(data), max_margin(data, solver=solver)
        assert other.solver.startswith(solver)
        np.testing.assert_allclose(other.W, best.W, rtol=0, atol=tolerance * best.norm)


def test_an_unknown_solver_is_refused():
    with pytest.raises(ValueError, match="solver is 'simplex'; it must be one of"):
        max_margin(datasets.toy(), solver="simplex")


def test_without_strict_pairs_there_is_nothing_to_win():
    svm = max_margin(REGIMES["every token in every support"])
    assert (svm.norm, svm.min_margin) == (0.0, np.inf)
    assert svm.multipliers.shape == (0,)


def separable_by_linear_program(data):
    """Largest margin of a W in the unit box, by HiGHS; pairs of norm one."""
    strict = slow.pair_matrices(data, priority(data).strict.tolist(), unit=True)
    equal = slow.pair_matrices(data, priority(data).equal.tolist(), unit=True)
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


@pytest.mark.parametrize("block", range(10))
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


@pytest.mark.parametrize("block", range(10))
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
    rows, tokens = rng.permutation(len(data.target_probs)), rng.permutation(data.vocab_size)
    T, C = data.token_embeddings, data.candidate_counts
    renamed = NextTokenData(
        data.context_embeddings[rows],
        data.target_probs[np.ix_(rows, tokens)],
        data.context_probs[rows],
        None if T is None else T[tokens],
        None if C is None else C[np.ix_(rows, tokens)],
        data.context_groups[rows],
    )
    try:
        W = max_margin(data).W
    except NotSeparableError:
        with pytest.raises(NotSeparableError):
            max_margin(renamed)
        return
    W = W[tokens] if T is None else W
    size = np.linalg.norm(W)
    np.testing.assert_allclose(max_margin(renamed).W, W, rtol=0, atol=1e-8 * size)
