"""The finite part against closed forms, dense optimisation and 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import slow
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, l24, regimes, t24
from scipy.optimize import minimize

import ntpnb
from ntpnb import NextTokenData, finite
from ntpnb.finite import finite_part, restrict


def reach(W, data):
    """Largest product of norms that a score is made of: the scale of its rounding."""
    T = data.token_embeddings
    longest = 1.0 if T is None else np.linalg.norm(T, axis=1).max()
    h = np.linalg.norm(data.context_embeddings, axis=1).max()
    return 1 + longest * np.linalg.norm(W) * h


def tied_tokens(data):
    """For each row, its in-support tokens and what ties with them, by the slow closure."""
    closure = slow.reachable(data)
    for j, p in enumerate(data.target_probs):
        R, z = closure[int(data.context_groups[j])], int(p.argmax())
        tied = {z} | {v for v in range(len(p)) if R[z, v] and R[v, z]}
        counts = np.ones(len(p)) if data.candidate_counts is None else data.candidate_counts[j]
        yield j, sorted(v for v in tied if counts[v] > 0), counts


def restricted_loss(W, data):
    """−Σ_j π_j Σ_z p_jz log softmax over the tokens tied with row j's support."""
    T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
    total, slope = 0.0, np.zeros_like(W)
    for j, tied, counts in tied_tokens(data):
        h, p = data.context_embeddings[j], data.target_probs[j, tied]
        score = T[tied] @ (W @ h) + np.log(counts[tied])
        log_q = score - score.max() - np.log(np.exp(score - score.max()).sum())
        total -= data.context_probs[j] * p @ log_q
        slope += data.context_probs[j] * np.outer((np.exp(log_q) - p) @ T[tied], h)
    return total, slope


def exact_minimiser(data, start, basis):
    """Newton's method on the restricted loss with 50 digits, in coordinates of a basis of F."""
    mpf = mpmath.mpf
    T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
    flat = mpmath.matrix(basis.reshape(len(basis), -1).tolist())
    rows = []
    for j, tied, counts in tied_tokens(data):
        if len(tied) > 1:
            h = mpmath.matrix(data.context_embeddings[j].tolist())
            X = mpmath.matrix(len(tied), len(basis))
            for a, v in enumerate(tied):
                for i, B in enumerate(basis):
                    X[a, i] = (mpmath.matrix([T[v].tolist()]) * mpmath.matrix(B.tolist()) * h)[0]
            p = [mpf(x) for x in data.target_probs[j, tied].tolist()]
            p = [x / mpmath.fsum(p) for x in p]
            rows.append((mpf(float(data.context_probs[j])), p, counts[tied].tolist(), X))
    u = flat * mpmath.matrix(start.ravel().tolist())
    for _ in range(50):
        gradient, hessian = mpmath.matrix(len(basis), 1), mpmath.matrix(len(basis))
        for pi, p, c, X in rows:
            weight = [x * mpmath.exp(s) for x, s in zip(c, X * u, strict=True)]
            q = [x / mpmath.fsum(weight) for x in weight]
            gradient += pi * (X.T * mpmath.matrix([a - b for a, b in zip(q, p, strict=True)]))
            mean = X.T * mpmath.matrix(q)
            hessian += pi * (X.T * mpmath.diag(q) * X - mean * mean.T)
        step = mpmath.lu_solve(hessian, gradient)
        u -= step
        if mpmath.norm(step) <= mpmath.norm(u) * mpf(10) ** -30:
            return np.array([float(x) for x in flat.T * u]).reshape(start.shape)
    raise AssertionError("the reference did not converge")


def worst_log_odds(data, D):
    """Largest difference, in nats, that ``D`` makes between two tied tokens' scores."""
    pairs = slow.pair_matrices(data, slow.equal_pairs(data))
    return np.abs(pairs @ D.ravel()).max(initial=0)


# -- closed forms ---------------------------------------------------------------------------------


def test_toy():
    """The smallest solution of T24's Eq. (4) for the toy, by 50-digit least squares."""
    data = ntpnb.datasets.toy()
    fin = finite_part(data)
    pairs = slow.equal_pairs(data)
    with mpmath.workdps(50):
        A = mpmath.matrix(slow.pair_matrices(data, [x for x in pairs if x[1] < x[2]]).tolist())
        # of three tied tokens two differences are independent: drop every third, (j, 2nd, 3rd)
        keep = [0, 1, 3, 4, 6, 7]
        A = mpmath.matrix([[A[k, i] for i in range(A.cols)] for k in keep])
        P = data.target_probs
        kept = [[x for x in pairs if x[1] < x[2]][k] for k in keep]
        y = mpmath.matrix(
            [mpmath.log(mpmath.mpf(P[g, i]) / mpmath.mpf(P[g, j])) for g, i, j in kept]
        )
        W = A.T * mpmath.lu_solve(A * A.T, y)
        expected = np.array([float(x) for x in W]).reshape(5, 2)
    assert np.abs(fin.W - expected).max() <= 1e-14  # six equations with a condition number near 3
    assert abs(np.linalg.norm(fin.W) - 2.1990) <= 5e-5  # METHODS Sec. 2 gives four decimals
    assert fin.compatible
    assert fin.residual <= 1e-14  # log-odds of size one, as above
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


def test_one_context_is_the_centred_log_law():
    p, h = np.array([0.5, 0.3, 0.2, 0.0]), np.array([3.0, -4.0])
    fin = finite_part(NextTokenData([h], [p]))
    centred = np.zeros(4)
    centred[:3] = np.log(p[:3]) - np.log(p[:3]).mean()
    assert np.abs(fin.W - np.outer(centred, h) / 25).max() <= 1e-15  # entries below one half
    assert fin.compatible


def test_candidate_counts_shift_the_log_odds():
    data = NextTokenData([[2.0]], [[0.5, 0.5, 0]], candidate_counts=[[3, 1, 7]])
    fin = finite_part(data)
    gap = -np.log(3) / 2  # 3 e^{2 w₀} = e^{2 w₁}
    assert np.abs(fin.W - [[gap / 2], [-gap / 2], [0]]).max() <= 1e-15
    assert fin.compatible


def test_orthonormal_contexts_decouple():
    data = t24(3, V=6, m=5, d=5, size=(1, 4))
    data = NextTokenData(np.eye(5), data.target_probs, data.context_probs)
    fin = finite_part(data)
    expected = np.zeros(data.shape)
    for j, p in enumerate(data.target_probs):
        S = p > 0
        expected[S, j] = np.log(p[S]) - np.log(p[S]).mean()
    assert np.abs(fin.W - expected).max() <= 1e-14  # logarithms of size ten at most
    assert fin.compatible


def test_uniform_laws_need_nothing():
    data = t24(4, size=(2, 4))
    uniform = data.support / data.support.sum(1, keepdims=True)
    fin = finite_part(NextTokenData(data.context_embeddings, uniform, data.context_probs))
    assert np.abs(fin.W).max() <= 1e-14
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


def test_parallel_contexts_with_different_laws_have_a_finite_minimiser():
    # log-odds x of context 1 and 2x of context 2: a monotone equation in one unknown
    a, b = 0.8, 0.4
    data = NextTokenData([[1.0], [2.0]], [[a, 1 - a], [b, 1 - b]])
    fin = finite_part(data)

    def slope(x):
        return (1 / (1 + mpmath.exp(-x)) - a) + 2 * (1 / (1 + mpmath.exp(-2 * x)) - b)

    with mpmath.workdps(30):
        x = float(mpmath.findroot(slope, 0.1))
    assert np.abs(fin.W - [[x / 2], [-x / 2]]).max() <= 1e-15 * 4
    assert not fin.compatible
    logit = np.log([a / (1 - a), b / (1 - b)])
    assert abs(fin.residual - np.abs(np.array([x, 2 * x]) - logit).max()) <= 1e-14


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


def test_more_dimensions_than_contexts_are_always_compatible():
    """T24 Lemma 1, first half: independent embeddings meet any laws."""
    for seed in range(20):
        fin = finite_part(t24(seed, V=6, m=5, d=5 + seed % 4, size=(1, 5)))
        assert fin.compatible
        assert fin.residual <= 1e-11  # five Gaussians: condition numbers up to 1e3 in 20 draws


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


# -- against general optimisation -----------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in regimes() if "decades" not in n])
def test_minimiser_matches_a_general_optimiser(name):
    data = regimes()[name]
    fin = finite_part(data)
    basis = slow.equal_basis(data)
    if not len(basis):
        assert not fin.W.any()
        return

    def f(u):
        loss, slope = restricted_loss((basis.T @ u).reshape(data.shape), data)
        return loss, basis @ slope.ravel()

    found = minimize(f, np.zeros(len(basis)), jac=True, method="BFGS", options={"gtol": 1e-9})
    # BFGS stops where rounding of the loss hides progress: near 1e-7 in its own unknowns
    loss = f(basis @ fin.W.ravel())[0]
    assert loss <= found.fun + 1e-14 * (1 + found.fun)
    assert loss >= found.fun - 1e-9
    slope = restricted_loss(fin.W, data)[1]
    assert np.linalg.norm(slope) <= 1e-13 * reach(fin.W, data)
    assert np.abs(fin.subspace.reject(fin.W)).max() <= 1e-12 * np.abs(fin.W).max(initial=1)
    assert abs(fin.gradient_norm - np.linalg.norm(slope)) <= 1e-13 * reach(fin.W, data)
    if np.linalg.cond(numerical_hessian(f, found.x)) < 1e4:
        assert np.abs(basis @ fin.W.ravel() - found.x).max() <= 1e-4


def numerical_hessian(f, u, h=1e-5):
    rows = [(f(u + h * e)[1] - f(u - h * e)[1]) / (2 * h) for e in np.eye(len(u))]
    return np.array(rows)


MAKERS = {
    "T24, d < m": lambda seed, norms: t24(seed, V=4, m=6, d=2, size=(2, 3), norms=norms),
    "T24, d > m": lambda seed, norms: t24(seed, V=4, m=4, d=5, size=(2, 3), norms=norms),
    "T24, groups": lambda seed, norms: t24(seed, m=6, d=3, size=(1, 3), norms=norms, rows=3),
    "L24": lambda seed, norms: l24(seed, K=4, d=5, n=8, cyclic=True, norms=norms),
    "L24, d < K": lambda seed, norms: l24(seed, K=5, d=2, n=9, T=3, cyclic=True, norms=norms),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("norms", "spread"), [(0, 1.0), (3, 1e3), (6, 1e6)])
@pytest.mark.parametrize("seed", [1, 2])
def test_minimiser_matches_newton_with_50_digits(name, norms, spread, seed):
    data = MAKERS[name](seed, norms)
    fin = finite_part(data)
    with mpmath.workdps(50):
        expected = exact_minimiser(data, fin.W, fin.subspace.basis)
    # W as doubles gives scores that are rounded relative to the norms they are products of, and
    # the gradient's rounding comes from the longest embeddings, its use for the shortest
    tolerance = 1e-14 * max(reach(fin.W, data), spread)
    assert worst_log_odds(data, fin.W - expected) <= tolerance


@given(any_problem() | any_problem(norms=6))
def test_the_restricted_gradient_vanishes(data):
    fin = finite_part(data)
    scale = data.context_probs @ np.linalg.norm(data.context_embeddings, axis=1)
    scale = scale * np.sqrt(data._squared_diameters().max(initial=0))
    # relative to the largest gradient that the embeddings allow
    assert fin.gradient_norm <= 1e-14 * reach(fin.W, data) * scale
    slope = restricted_loss(fin.W, data)[1]
    assert np.linalg.norm(slope) <= 1e-14 * reach(fin.W, data) * scale + 1e-300
    outside = fin.subspace.reject(fin.W)
    assert np.linalg.norm(outside) <= 1e-9 * np.linalg.norm(fin.W)


@given(any_problem())
def test_no_other_matrix_does_better(data):
    fin = finite_part(data)
    tied = restrict(data)
    best = ntpnb.cross_entropy(fin.W, tied)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 10.0):
        other = fin.W + size * rng.standard_normal(data.shape)
        assert ntpnb.cross_entropy(other, tied) >= best - 1e-14 * (1 + best)


# -- restriction ----------------------------------------------------------------------------------


@given(any_problem())
def test_restriction_keeps_what_ties(data):
    tied = restrict(data)
    for j, tokens, counts in tied_tokens(data):
        assert np.flatnonzero(tied.candidates[j]).tolist() == tokens
        assert tied.candidate_counts[j, tokens].tolist() == counts[tokens].tolist()
    W = np.random.default_rng(1).standard_normal(data.shape)
    loss = restricted_loss(W, data)[0]
    assert abs(ntpnb.cross_entropy(W, tied) - loss) <= 1e-13 * (1 + loss)  # sums of a few dozen
    inside = finite_part(data).subspace.project(W)
    # the restricted loss sees the tied subspace only
    assert abs(ntpnb.cross_entropy(inside, tied) - loss) <= 1e-9 * (1 + loss)


# -- invariances ----------------------------------------------------------------------------------


@given(any_problem(), st.integers(0, 99))
def test_rotation_permutation_scaling_and_splitting(data, seed):
    rng = np.random.default_rng(seed)
    V, q = data.vocab_size, data.shape[1]
    H, P, pi = data.context_embeddings, data.target_probs, data.context_probs
    T, C, g = data.token_embeddings, data.candidate_counts, data.context_groups
    fin = finite_part(data)
    # ill-conditioned draws have large W, and differ in as many digits
    close = {"rtol": 0, "atol": 1e-10 * reach(fin.W, data) ** 2}

    Q = np.linalg.qr(rng.standard_normal((q, q)))[0]
    rotated = NextTokenData((data.group_embeddings @ Q)[data.group_index], P, pi, T, C, g)
    np.testing.assert_allclose(finite_part(rotated).W, fin.W @ Q, **close)

    tokens = rng.permutation(V)
    moved = NextTokenData(
        H,
        P[:, tokens],
        pi,
        None if T is None else T[tokens],
        None if C is None else C[:, tokens],
        g,
    )
    expected = fin.W[tokens] if T is None else fin.W
    np.testing.assert_allclose(finite_part(moved).W, expected, **close)

    for c in (1e-8, 1e8):
        scaled = finite_part(NextTokenData(c * H, P, pi, T, C, g))
        np.testing.assert_allclose(c * scaled.W, fin.W, **close)
        assert scaled.compatible == fin.compatible

    split = NextTokenData(
        np.repeat(H, 2, 0),
        np.repeat(P, 2, 0),
        np.repeat(pi / 2, 2),
        T,
        None if C is None else np.repeat(C, 2, 0),
        np.repeat(g, 2),
    )
    again = finite_part(split)
    np.testing.assert_allclose(again.W, fin.W, **close)
    assert again.compatible == fin.compatible


# -- failure --------------------------------------------------------------------------------------


def test_an_unfinished_iteration_says_so(monkeypatch):
    monkeypatch.setattr(finite, "NEWTON_STEPS", 1)
    with pytest.raises(ntpnb.ConvergenceError, match="1e-09 is needed") as caught:
        finite_part(t24(2, V=4, m=9, d=2, size=(2, 3)))
    assert caught.value.residual > 1e-9
