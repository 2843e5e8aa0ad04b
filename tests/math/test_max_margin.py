"""The max-margin engine against its own definition, two other solvers and Farkas' lemma.

Nothing here trusts the engine's residuals: every answer is judged on all pairs of the papers'
definitions (`slow`), by bounds on the optimal norm from both sides, or by another solver.
"""

import re
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import problems
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import svd
from scipy.optimize import brentq, linprog

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    datasets,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.margin import methods, solve
from ntpnb.margin import program as programs
from ntpnb.margin.program import program

REGIMES = problems.regimes()
BLOCKS = range(10 if settings().max_examples >= 100 else 1)  # one in haste


def complement(data):
    """Orthogonal projector away from the tied subspace, from all tied pairs."""
    rows = reference.pair_matrices(data, reference.equal_pairs(data), unit=True)
    if not len(rows):
        return np.eye(rows.shape[1])
    _, s, V = svd(rows, full_matrices=False)
    V = V[s > 1e-10 * s[0]]
    return np.eye(rows.shape[1]) - V.T @ V


def relative_sum(data, multipliers):
    """``(I − P_F) Σ λ (t_i − t_j) h_gᵀ`` and the sum of its terms' norms."""
    terms = reference.pair_matrices(data, priority(data).strict.tolist())
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
    equal = reference.pair_matrices(data, reference.equal_pairs(data))
    strict = reference.pair_matrices(data, reference.strict_pairs(data))
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


@pytest.mark.parametrize("block", BLOCKS)
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
    strict = reference.pair_matrices(data, priority(data).strict.tolist())
    equal = reference.pair_matrices(data, priority(data).equal.tolist())
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
    tolerance = {"cvxpy": 1e-6}.get(solver, 1e-9)  # Clarabel stops at 1e-11, of squares
    for seed in range(5):
        for data, _ in separable(seed):
            best, other = max_margin(data), max_margin(data, solver=solver)
            assert other.solver == solver
            np.testing.assert_allclose(other.W, best.W, rtol=0, atol=tolerance * best.norm)


def test_methods_settle_in_the_steps_their_names_promise():
    """Random problems with d > m; every method ends in an active set, or in no step at all."""
    most = {"active-set": 6, "interior-point": 9, "fista": 4, "nnls": 1}
    for solver, bound in most.items():
        for seed in range(10):
            told = []
            data = problems.t24(5000 + seed, 6, 9, 12, (1, 4))
            max_margin(data, solver=solver, progress=told.append)
            form = rf"{solver}, step (\d+): best KKT residual (\S+)"
            steps, best = zip(*(re.fullmatch(form, line).groups() for line in told), strict=True)
            assert 1 <= int(steps[0])
            assert int(steps[-1]) <= bound
            assert float(best[-1]) <= 1e-13


def separable(seed):
    """Programs of several kinds that have a solution: by supports and by pairs, most with ties."""
    for data in (
        problems.t24(5000 + seed, 6, 9, 12, (1, 4)),
        problems.t24(5000 + seed, 6, 9, 12, 1),
        problems.t24(5000 + seed, 6, 9, 12, (1, 4), candidates=True),
        problems.t24(5000 + seed, 6, 5, 12, (2, 4), tokens=4),
        problems.l24(4000 + seed, cyclic=bool(seed % 2)),
    ):
        order = priority(data)
        if len(order.strict) and is_separable(data):
            yield data, program(data, order)


def judged(data, P, A):
    return solve._proven(data, priority(data), -A[P.entries] / (P.unit * P.norm[P.entries]), "none")


def test_the_interior_point_gets_there_by_itself(monkeypatch):
    """Without the active set that ends it sooner: about eight steps, with positive multipliers."""
    monkeypatch.setattr(methods, "active_set", lambda *arguments, **options: ())
    counts = []
    for seed in range(20):
        for data, P in separable(seed):
            counts.append(0)
            for A, _, _ in methods.interior_point(P):
                counts[-1] += 1
                assert (A[P.ordered] < 0).all()
                if judged(data, P, A).kkt_residual <= 1e-8:
                    break
    assert len(counts) >= 60
    assert max(counts) <= 16
    assert np.mean(counts) <= 9


def dense(P):
    """Every ``φ_k``, and how each entry of ``A`` unbalances the columns."""
    units = np.eye(P.need.size).reshape(-1, *P.need.shape)
    rows = np.stack([P.weights(unit).ravel() for unit in units])
    return rows, np.stack([P.imbalance(unit) for unit in units])


@pytest.mark.parametrize("zero", [0, 1, 6])
def test_programs_are_in_normal_form(zero):
    """Rows and margins of norm one, whatever the embeddings' length, also where some are zero."""
    for seed in range(6):
        data = problems.t24(5700 + seed, 6, 6, 8, (1, 4), zero=zero, candidates=bool(seed % 2))
        if seed >= 4:
            data = problems.t24(5700 + seed, 6, 6, 8, (1, 4), zero=zero, tokens=4)
        for by_pair in (False, True):
            P, rng = program(data, priority(data), by_pair), np.random.default_rng(seed)
            rows, _ = dense(P)
            length = np.linalg.norm(rows[P.active.ravel()], axis=1)
            np.testing.assert_allclose(length[length > 0], 1.0, rtol=1e-12)
            assert (length == 0).any() == (zero > 0)
            assert (length > 0).any() == (zero < 6)
            assert P.need.max() == 1
            assert (P.need > 0)[P.ordered].all()
            assert not P.need[~P.ordered].any()
            W = rng.standard_normal(P.weights(P.need).shape)
            c = rng.standard_normal(P.imbalance(P.need).shape)
            c = c if len(c) else 0.0  # by pairs there are no columns to balance
            slack = np.where(P.active, c - (rows @ W.ravel()).reshape(P.need.shape) - P.need, 0.0)
            np.testing.assert_allclose(P.slack(W, c), slack, rtol=0, atol=1e-12)
            for scale in (2.0**-20, 2.0**20):
                other = problems.rotated(data, scale * np.eye(8))
                np.testing.assert_array_equal(program(other, priority(other), by_pair).need, P.need)


def plain_active_set(P, theta, A, T, patience):
    """The guesses, exchanges and proximal centres that the method's text promises, densely."""
    R, C = dense(P)
    T, ordered, b = T.ravel(), P.ordered.ravel(), P.need.ravel()
    A = centre = A.ravel()
    fewest, least, stalls = np.inf, np.inf, 0
    while stalls < patience:
        K = np.block([[R[T] @ R[T].T, -C[T]], [C[T].T, np.zeros((C.shape[1],) * 2)]])
        K[: T.sum(), : T.sum()] += theta * np.eye(T.sum())
        x = np.linalg.solve(K, np.append(theta * centre[T] - b[T], np.zeros(C.shape[1])))
        A = np.zeros(len(b))
        A[T], c = x[: T.sum()], x[T.sum() :]
        slack = C @ c - R @ (A @ R) - b
        wrong = ordered & np.where(T, A > 1e-12, slack + theta * centre < -1e-12)
        move, count = np.abs(A - centre).max(), wrong.sum()
        yield A, slack, None if count else A - centre
        better = count < fewest or (not count and move < least / 2)
        stalls, fewest = 0 if better else stalls + 1, min(fewest, count)
        T = T ^ wrong
        if not count:
            centre, least = A, min(move, least)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_takes_the_promised_steps(monkeypatch, by_pair, warm):
    """With a proximal term so large that nothing hides in it, until the moves are rounding."""
    monkeypatch.setattr(methods, "PROX", 0.1)
    settled, ended = 0, 0
    for seed in range(16):
        d, candidates = (3, 8)[seed % 2], seed % 3 == 0 and not by_pair
        data = problems.t24(5600 + seed, 5, 6, d, (1, 3), candidates=candidates)
        P, rng = program(data, priority(data), by_pair), np.random.default_rng(seed)
        A, T, patience, begin = np.zeros(P.need.shape), P.active, 3, ()
        if warm:
            A = rng.random(A.shape) * (1.0 * P.tied - P.ordered)
            T, patience = P.tied | P.ordered & (rng.random(A.shape) < 0.5), 2
            begin = A, T, patience
        found = list(methods.active_set(P, *begin))
        expected = list(plain_active_set(P, 0.1, A, T, patience))
        moves = (np.inf if D is None else np.abs(D).max() for _, _, D in expected)
        last = next((k for k, move in enumerate(moves) if move <= 1e-9), None)
        settled, ended = settled + (last is not None), ended + (last is None)
        assert len(found) == len(expected) or (last is not None and len(found) > last)
        for (A, c, D), (B, slack, E) in list(zip(found, expected, strict=False))[:last]:
            scale = 1e-9 * max(1.0, np.abs(B).max())  # the systems' condition is below a thousand
            assert np.abs(A.ravel() - B).max() <= scale
            rest = P.slack(P.weights(A), c).ravel() - slack
            assert np.abs(rest[P.active.ravel()]).max() <= scale
            assert (D is None) == (E is None)
            assert D is None or np.abs(D.ravel() - E).max() <= scale
    assert ended >= 8
    assert settled >= 2


def plain_interior_point(P, theta):
    """Mehrotra's (1992) steps from ones, each a dense system in all its unknowns."""
    R, C = dense(P)
    on, out, b = P.active.ravel(), P.ordered.ravel(), P.need.ravel()
    A, c, s = np.where(out, -1.0, 0.0), np.zeros(C.shape[1]), np.ones(out.sum())
    D = A
    n, m = len(A), len(c)
    while True:
        lam, slack, T = -A[out], C @ c - R @ (A @ R) - b, on.copy()
        r, T[out] = slack.copy(), lam > s
        r[out] -= s
        mu, size = s @ lam / len(s), max(1.0, np.linalg.norm(A @ R))
        yield A, slack, D, T, max(np.abs(r[on]).max() / size, mu / size**2)
        K = np.zeros((n + m + len(s),) * 2)
        K[:n, :n] = np.where(on[:, None] & on, R @ R.T, 0.0) + np.diag(np.where(on, theta, 1.0))
        K[:n, n : n + m] = -C * on[:, None]
        K[n : n + m, :n] = C.T
        K[:n, n + m :][out] = np.eye(len(s))  # φ(W) grows by as much as c − s does, up to r
        K[n + m :, :n][:, out] = -np.diag(s / lam)  # rows over λ, which may be tiny
        K[n + m :, n + m :] = np.eye(len(s))
        aim = second = 0.0
        for _ in range(2):
            right = np.concatenate([r * on, -C.T @ A, (aim + second) / lam - s])
            D, e, ds = np.split(np.linalg.solve(K, right), [n, n + m])
            t = 1 / max(1.0, (-ds / s).max(), (D[out] / lam).max())
            after = (s + t * ds) @ (lam - t * D[out]) / len(s)
            aim, second = mu * (after / mu) ** 3, ds * D[out]
        A, c, s = A + 0.995 * t * D, c + 0.995 * t * e, s + 0.995 * t * ds


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_interior_point_takes_mehrotra_s_steps(monkeypatch, by_pair):
    """Until the systems' condition leaves few digits; then it tries the active set, ever later."""
    tried = []
    monkeypatch.setattr(methods, "PROX", 0.001)
    monkeypatch.setattr(methods, "active_set", lambda P, A, T, patience: tried.append((A, T)) or ())
    count = 0
    for seed in range(24):
        d, candidates = (3, 8, 6)[seed % 3], seed % 4 == 0 and not by_pair
        data = problems.t24(5800 + seed, 5, 6, d, (1, 3), norms=1, candidates=candidates)
        P, accuracy, tries = program(data, priority(data), by_pair), 1e-5, []
        tried.clear()
        steps = zip(methods.interior_point(P), plain_interior_point(P, 0.01), strict=False)
        for ((A, c, D), (B, slack, E, T, rest)), _ in zip(steps, range(16), strict=False):
            lost = -B[P.ordered.ravel()].max() < 1e-15  # the dense system loses so small a λ
            if lost or rest < 1e-10 or np.abs(B).max() > 100:  # solved, or without a solution
                break
            scale = 1e-6 * max(1.0, np.abs(B).max())  # mostly 1e-15, 1e-8 where λ is near that
            np.testing.assert_allclose(A.ravel(), B, rtol=0, atol=scale)
            np.testing.assert_allclose(D.ravel(), E, rtol=0, atol=scale)
            found = P.slack(P.weights(A), c)[P.active]
            np.testing.assert_allclose(found, slack[P.active.ravel()], rtol=0, atol=scale)
            assert len(tried) == len(tries)
            if rest < accuracy:
                accuracy *= 1e-2
                tries.append((A, T))
        count += len(tries)
        for (A, found), (B, T) in zip(tried, tries, strict=True):
            assert A is B
            assert (found.ravel() == T).all()
    assert count >= 10


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("m", "d", "theta"), [(6, 9, "prox"), (6, 9, "own"), (9, 6, "own")])
def test_newton_systems_solve_their_equations(monkeypatch, m, d, theta, seed):
    """As the module states them, anew and from a system whose rows agree but for one."""
    factored = []
    factor = programs._factor
    monkeypatch.setattr(programs, "_factor", lambda *x, **y: factored.append(x) or factor(*x, **y))
    data = problems.t24(5200 + seed, 7, m, d, (2, 6))
    for by_pair in (False, True):
        P, rng = program(data, priority(data), by_pair), np.random.default_rng(seed)
        share = rng.choice([0.1, 0.6, 0.95])  # of the ordered entries
        T = P.tied | P.ordered & (rng.random(P.need.shape) < share)
        moved = T.copy()
        moved[2] = P.tied[2] | P.ordered[2] & ~T[2]
        weight = programs.PROX if theta == "prox" else rng.uniform(0.1, 1, P.need.shape)
        r, old = rng.standard_normal(P.need.shape), None
        q = rng.standard_normal(P.imbalance(r).shape)
        for mask in (T, moved):
            factored.clear()
            system = P.system(mask, weight, old)
            assert by_pair or old is None or len(factored) <= 3  # one row's two, and the common one
            D, e = system(r, q)
            assert not D[~mask].any()
            found = -P.slack(P.weights(D), e) - P.need + weight * D
            assert np.abs((found - r)[mask]).max() <= 1e-9 * (1 + np.abs(D).max())
            assert np.abs(P.imbalance(D) - q).max(initial=0) <= 1e-9 * (1 + np.abs(D).max())
            old = system if not by_pair else None


@pytest.mark.parametrize("size", [1e-4, 1.0, None])
@pytest.mark.parametrize("seed", range(10))
def test_residuals_are_those_of_their_definition(seed, size):
    """Far from a solution, where none of them is zero, and so near to one that norms excuse."""
    near = problems.t24(5300 + seed, 6, 7, 8, (2, 5), tokens=6)
    for data in (
        problems.t24(5300 + seed, 6, 7, 8, (1, 4), norms=2),
        near,
        problems.changed(near, token_embeddings=0.2 * near.token_embeddings),
        problems.l24(5300 + seed, cyclic=bool(seed % 2)),
    ):
        order, rng = priority(data), np.random.default_rng(seed)
        n, pairs = len(order.equal), np.concatenate([order.equal, order.strict])
        if not len(order.strict):  # the others have a solution, in as many dimensions as tokens
            continue
        y = (size or 1.0) * rng.standard_normal(len(pairs))
        if size is None:
            svm = max_margin(data)
            y = np.append(svm.equal_multipliers, svm.multipliers) * (1 + 1e-3 * y)
        svm = solve._proven(data, order, y.copy(), "none")
        y[n:] = np.maximum(y[n:], 0.0)
        lam, terms = y[n:], reference.pair_matrices(data, pairs.tolist())
        W, h = y @ terms, np.linalg.norm(data.group_embeddings, axis=1)[order.positions(pairs)]
        w, norm = terms @ W, np.linalg.norm(W)
        _, i, j = pairs.T
        T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
        sigma = np.maximum(1.0, norm * h * np.minimum(1.0, np.linalg.norm(T[i] - T[j], axis=1)))
        miss = np.append(np.abs(w)[:n], (1 - w)[n:])
        parts = [*miss / sigma, *miss - 0.1]
        parts.append(lam @ np.abs((w - 1) / sigma)[n:] / lam.sum())
        np.testing.assert_allclose(svm.W.ravel(), W, rtol=0, atol=1e-12 * norm)
        np.testing.assert_array_equal(svm.equal_multipliers, y[:n])
        np.testing.assert_array_equal(svm.multipliers, lam)
        gap = abs(norm**2 - lam.sum()) / (norm**2 / 2)
        found = svm.norm, svm.min_margin, svm.kkt_residual, svm.duality_gap
        np.testing.assert_allclose(found, [norm, w[n:].min(), max(parts), gap], rtol=1e-9)
        assert svm.solver == "none"


def certified():
    """Programs without a solution, by the interior point's directions, and a certificate each."""
    for seed in range(20):
        data = problems.t24(7000 + seed, V=5, m=10, d=2 + seed % 3, size=(1, 3))
        P = program(data, priority(data))
        steps = (D for _, _, D in methods.interior_point(P) if D is not None)
        tries = (methods.certificate(P, D) for D in steps)
        found = next((D for D in tries if D is not None), None)
        if found is not None:
            yield data, P, found / np.abs(found).max()


def test_a_certificate_is_refined_from_a_rough_one():
    refined, rng = 0, np.random.default_rng(0)
    for _, P, found in certified():
        refined += 1
        size = np.abs(found[P.ordered]).sum()
        for scale, noise, kept in [
            (1, 0, 1),
            (1e6, 1e-8, 1),
            (1e-6, 1e-7, 1),
            (1, 0.1, 0),
            (-1, 0, 0),
        ]:
            rough = found + noise * size * rng.standard_normal(found.shape) * (found != 0)
            again = methods.certificate(P, scale * rough)
            assert (again is not None) == kept, (scale, noise)
            if kept:
                assert (again[P.ordered] <= 0).all()
                assert not again[~P.active].any()
                total = np.abs(again[P.ordered]).sum()
                assert np.linalg.norm(P.weights(again)) <= 1e-11 * total
                assert np.abs(P.imbalance(again)).max() <= 1e-11 * total
        assert methods.certificate(P, 0 * found) is None
    assert refined >= 10


def test_what_separates_is_recognised():
    """At any size but zero and whatever ``c``, with ties missed only as far as one step mends."""
    for seed in range(10):
        for data, P in separable(seed):
            *_, (A, c, _) = methods.active_set(P)
            if judged(data, P, A).kkt_residual > 1e-10:
                continue
            size, rng = np.linalg.norm(P.weights(A)), np.random.default_rng(seed)
            tied = np.where(P.tied, rng.standard_normal(A.shape), 0.0)
            if len(P.imbalance(A)):
                tied -= P.tied * tied.sum(0) / P.tied.sum(0)
            tied *= 1e-3 * size / max(np.linalg.norm(P.weights(tied)), 1e-300)
            far = not np.any(tied)  # else the proximal term leaves 1e-10 of 1e4 times the size
            for t, off, separates in [
                (1, 0, True),
                (1e3, 0, True),
                (1e-5 / size, 0, True),
                (1e-7 / size, 0, False),
                (-1, 0, False),
                (1, 1, True),
                (1, 1e7, far),
                (0, 1, False),
            ]:
                for common in (t * c, 0.0, size * rng.standard_normal(np.shape(c))):
                    assert methods.separates(P, t * A + off * tied, common) == separates


def test_separability_is_settled_at_the_first_proof(monkeypatch):
    """By the interior point alone, and in fewer of its steps than the solution takes."""
    taken, method = [], methods.interior_point
    monkeypatch.setattr(
        solve, "METHODS", {"interior-point": lambda P: (taken.append(x) or x for x in method(P))}
    )
    fewer, verdicts = 0, 0
    for seed in range(10):
        for size in (1, (1, 3)):
            data = problems.t24(5000 + seed, 6, 9, 12, size)
            taken.clear()
            assert is_separable(data)
            few = len(taken)
            max_margin(data, "interior-point")
            assert few <= len(taken) - few
            fewer, verdicts = fewer + (few < len(taken) - few), verdicts + 1
    assert fewer > verdicts / 2


@pytest.mark.parametrize("near", [3e-5, 1e-5, 1e-6, 1e-8])
def test_what_nearly_cancels_is_no_certificate(near):
    """Embeddings that cancel, moved by ``near`` in directions of their own: separable by that."""
    refused = 0
    for data, _, rough in certified():
        refused += 1
        H = np.hstack([data.context_embeddings, near * np.eye(10)])
        data = problems.changed(data, context_embeddings=H)
        P = program(data, priority(data))
        assert methods.certificate(P, rough) is None
    assert refused >= 10


def nearest(P, Y):
    """Columns nearest to those of ``Y`` with zero sums, nonpositive where ordered; by bisection."""
    X = np.zeros(Y.shape)
    for j, y in enumerate(Y.T):
        on = P.active[:, j]
        bound = np.where(P.ordered[on, j], 0.0, np.inf)

        def total(shift, y=y[on], bound=bound):
            return np.minimum(y - shift, bound).sum()

        shift = brentq(total, y[on].min() - 1, np.abs(y).sum() + 1, xtol=1e-15)
        X[on, j] = np.minimum(y[on] - shift, bound)
    return X


def plain_fista(P, U, steps):
    """Beck & Teboulle (2009) from one step at zero; restarts by O'Donoghue & Candès (2015)."""
    G = U @ U.T
    L = np.linalg.norm(G, 2)
    X = Y = nearest(P, -P.need / L)
    t, found = 1.0, {}
    for k in range(1, steps + 1):
        X, last = nearest(P, Y - (Y @ G + P.need) / L), X
        if np.vdot(Y - X, X - last) > 0:
            t = 1.0
        t, s = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        Y = X + (s - 1) / t * (X - last)
        found[k] = X
    return found


@pytest.mark.parametrize("candidates", [False, True])
@pytest.mark.parametrize(("m", "d"), [(9, 12), (8, 8), (9, 7), (12, 5)])
def test_fista_takes_the_textbook_s_steps(monkeypatch, m, d, candidates):
    """Without the active set that ends it sooner; the first forty steps are in single precision."""
    tried, kinds = [], []
    monkeypatch.setattr(methods, "active_set", lambda P, A, T, patience: tried.append((A, T)) or ())
    data = problems.t24(5100 + m, 6, m, d, (1, 4), candidates=candidates)
    P = program(data, priority(data))
    assert P.active.all() != candidates
    U = data.group_embeddings / np.linalg.norm(data.group_embeddings, axis=1)[:, None]
    expected, descend = plain_fista(P, U, 200), P.descend
    P.descend = lambda Y: kinds.append(Y.dtype.char) or descend(Y)
    found = list(methods.fista(P))
    assert "".join(kinds) == "f" * 41 + "d" * 160  # one to begin with
    for k, (X, _, D) in zip((40, 80, 120, 160, 200), found, strict=True):
        scale = np.abs(expected[k]).max()
        assert np.abs(X - expected[k]).max() <= 1e-5 * scale
        np.testing.assert_allclose(D, expected[k] - expected[k - 1], rtol=0, atol=1e-5 * scale)
    assert [A.dtype for A, _ in tried] == [float] * 4
    first = 20 + int((6 * m) ** 0.5) // 3
    for k, (A, T) in zip(first * 2 ** np.arange(4), tried, strict=True):
        assert np.abs(A - expected[k]).max() <= 1e-5 * np.abs(expected[k]).max()
        assert (T == (P.active & (A < np.where(P.ordered, 0.0, np.inf)))).all()


@pytest.mark.parametrize("solver", ["interior-point", "fista", "nnls", "cvxpy"])
def test_all_methods_refuse_with_a_certificate(solver):
    for seed in range(3):
        data = problems.t24(5500 + seed, V=5, m=10, d=2, size=(1, 3))
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
    monkeypatch.delattr(methods, "nnls")
    for data, _ in separable(0):
        assert max_margin(data, "cvxpy").solver == "cvxpy"


def test_an_unknown_solver_is_refused():
    message = "solver is 'simplex'; it must be one of auto, active-set, interior-point, fista, "
    with pytest.raises(ValueError, match=message):
        max_margin(datasets.toy(), solver="simplex")


@pytest.mark.parametrize(("m", "first"), [(200, "active-set"), (201, "fista")])
def test_many_pairs_begin_with_fista(m, first):
    told = []
    svm = max_margin(problems.t24(1, 4, m, m + 5, (1, 3)), progress=told.append)
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


def test_undecided_says_how_close_it_came(monkeypatch):
    """Every method proves nothing here; the dense one is the last resort of small problems."""
    data = problems.t24(5000, 6, 9, 12, (1, 4))
    poor = SimpleNamespace(kkt_residual=1.1e-10)
    monkeypatch.setattr(solve, "_proven", lambda *answer: poor)
    monkeypatch.setattr(methods, "certificate", lambda *direction: None)
    auto = "active-set and interior-point and nnls"
    for solver, names in [("auto", auto), *((name, name) for name in solve.METHODS)]:
        told = []
        with pytest.raises(ConvergenceError) as caught:
            max_margin(data, solver=solver, progress=told.append)
        assert told[-1].startswith(f"{names.split()[-1]}, step ")
        assert caught.value.residual == 1.1e-10
        assert str(caught.value) == (
            f"undecided: {names} reached a KKT residual of 1.1e-10, not small enough, and found "
            "no certificate that the data are not separable"
        )
    monkeypatch.setattr(solve, "DENSE", 1000)
    with pytest.raises(ConvergenceError, match=r"^undecided: active-set and interior-point r"):
        max_margin(data)
    close = SimpleNamespace(kkt_residual=1e-10)
    monkeypatch.setattr(solve, "_proven", lambda *answer: close)
    assert max_margin(data) is close


def test_a_reference_that_gives_up_leaves_it_undecided(monkeypatch):
    def fail(*_, **__):
        raise cp.SolverError("no progress")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    with pytest.raises(ConvergenceError, match=r"^undecided: cvxpy reached a KKT residual of inf,"):
        max_margin(datasets.toy(), "cvxpy")


def test_without_strict_pairs_there_is_nothing_to_win():
    svm = max_margin(REGIMES["every token in every support"])
    assert (svm.norm, svm.min_margin) == (0.0, np.inf)
    assert (svm.kkt_residual, svm.duality_gap) == (0.0, 0.0)
    assert svm.solver == "no strict pairs"
    assert svm.multipliers.shape == (0,)


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


@pytest.mark.parametrize("block", BLOCKS)
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


@pytest.mark.parametrize("block", BLOCKS)
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
