"""Methods for a max-margin program, each a generator of iterates that someone else judges.

An iterate is ``(A, c, D)``: multipliers ``−A`` with ``W = weights(A)``, common scores, and where
the method has settled the direction ``D`` in which ``A`` grows, a certificate if there is no
solution; else None. ``nnls`` and ``cvxpy`` are dense, and references for small programs by pair.
"""

import numpy as np
from scipy import optimize

from ntpnb.margin.program import PROX

SINGLE = 40  # steps of FISTA in single precision (by support): as good at first, twice as fast


def active_set(P, A=None, T=None, patience=3):
    """Primal-dual active set steps, until neither wrong guesses nor moves get fewer.

    Guess which ordered entries are tight, solve the equations with a proximal term, exchange all
    entries of the wrong sign. Once none is left, move the proximal centre, which also refines.
    """
    A, T = (np.zeros(P.need.shape), P.active) if A is None else (A, T)
    centre, c, system, solved = A, 0.0, None, None
    fewest, least, stalls = np.inf, np.inf, 0
    while stalls < patience:
        if T is not solved:
            system, solved, A = P.system(T, PROX, system), T, np.where(T, A, 0.0)
        D, e = system(P.slack(P.weights(A), c) - PROX * (A - centre), -P.imbalance(A))
        A, c = A + D, c + e
        slack, noise = P.slack(P.weights(A), c), 1e-14 * max(1.0, np.abs(A).max())
        wrong = P.ordered & np.where(T, A > noise, slack + PROX * centre < -noise)
        count, move = np.count_nonzero(wrong), np.abs(A - centre).max()
        yield A, c, None if count else A - centre
        stalls = 0 if count < fewest or (not count and move < least / 2) else stalls + 1
        if count:
            fewest, T = min(fewest, count), T ^ wrong
        else:
            fewest, centre, least = 0, A, min(move, least)


def interior_point(P, steps=80):
    """Predictor-corrector steps (Mehrotra 1992) with a proximal term, finished by an active set."""
    strict, n = P.ordered, np.count_nonzero(P.ordered)
    A = step = np.where(strict, -1.0, 0.0)
    s, c, accuracy = np.ones(strict.shape), 0.0, 1e-5
    for _ in range(steps):
        yield A, c, step
        W, lam = P.weights(A), np.where(strict, -A, 1.0)
        mu, size = (s * lam)[strict].sum() / n, max(1.0, np.linalg.norm(W))
        r, q = P.slack(W, c) - np.where(strict, s, 0.0), -P.imbalance(A)
        if max(np.abs(r).max() / size, mu / size**2) < accuracy:
            accuracy *= 1e-2
            yield from active_set(P, A, P.tied | strict & (lam > s), patience=2)
        system = P.system(P.active, np.where(strict, s / lam, 0.0) + 10 * PROX)
        aim = D = ds = 0.0
        for _ in range(2):  # predict how far the gap can shrink, then correct for it
            pull = np.where(strict, s - (aim + ds * D) / lam, 0.0)
            D, e = system(r + pull, q)
            ds = np.where(strict, s / lam * D - pull, 0.0)
            t = 1 / max(1.0, (-ds / s).max(), (D / lam)[strict].max())  # s and λ stay positive
            aim = mu * (((s + t * ds) * (lam - t * D))[strict].sum() / (n * mu)) ** 3
        A, c, s, step = A + 0.995 * t * D, c + 0.995 * t * e, s + 0.995 * t * ds, D


def fista(P):
    """Accelerated projected gradient on the dual (Beck & Teboulle 2009), finished by an active set.

    Momentum restarts where it points uphill (O'Donoghue & Candès 2015). The active set is tried
    ever more rarely; but for it, a few copies of ``A`` are all the memory that is needed.
    """
    n = int(P.need.size**0.5)
    A, below = P.project(P.descend(np.zeros(P.need.shape, "f4")), P.active)
    Y, momentum, polish = A, 1.0, 20 + n // 3
    for k in range(1, max(200, 4 * n) + 1):
        X, below = P.project(P.descend(Y), below)
        X = X.astype(float) if k == SINGLE else X
        if k % SINGLE == 0:
            yield X, 0.0, X - A
        if k == polish:
            polish *= 2
            yield from active_set(P, X.astype(float), below, patience=2)
        momentum = 1.0 if np.vdot(Y - X, X - A) > 0 else momentum
        follow = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        A, Y, momentum = X, X + (momentum - 1) / follow * (X - A), follow


def nnls(P):
    """Nonnegative least squares (Lawson & Hanson 1974, Ch. 23), refined by an active set.

    ``min ‖W‖`` with ``R W ≥ b`` follows from ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``, ties
    entering with both signs; a residual of zero makes ``y`` a certificate.
    """
    R, b, n = -P.rows(), P.need, np.count_nonzero(P.tied)
    rows = np.column_stack([np.vstack([R, -R[:n]]), np.append(b, np.zeros(n))])
    y = optimize.nnls(rows.T, np.append(np.zeros(R.shape[1]), 1.0))[0]
    y, minus = np.split(y / max(1 - b @ y[: len(b)], 1e-8), [len(b)])  # bounded for a certificate
    y[:n] -= minus
    yield -y, 0.0, -y
    yield from active_set(P, -y, P.tied | (y > 0))


def cvxpy(P):
    """Run cvxpy with Clarabel, one constraint per pair; it refuses by ``nnls``."""
    import cvxpy as cp

    R, n = -P.rows(), np.count_nonzero(P.tied)
    x = cp.Variable(R.shape[1])
    tied, above = R[:n] @ x == 0, R[n:] @ x >= P.need[n:]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) / 2), [tied, above])
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    except cp.SolverError as error:
        raise np.linalg.LinAlgError(str(error)) from error
    if problem.status in cp.settings.SOLUTION_PRESENT:
        A = np.append(tied.dual_value, -np.maximum(above.dual_value, 0.0))
        yield A, 0.0, A
    else:
        yield next(nnls(P))


def separates(P, A, c):
    """Whether ``weights(A)``, moved until all ties are met, has a clearly positive margin."""
    if P.tied.any():
        D, e = P.ties()(np.where(P.tied, P.slack(P.weights(A), c), 0.0), 0.0)
        A, c = A + D, c + e
    W = P.weights(A)
    margin, size = P.slack(W, c) + P.need, np.linalg.norm(W)
    met = np.abs(margin[P.tied]).max(initial=0.0) <= 1e-9 * size
    return met and size > 1e-6 and margin[P.ordered].min() >= 1e-6 * size  # not W = 0


def certificate(P, D):
    """Refine ``D`` to nonnegative multipliers whose ``W`` vanishes, or return None.

    Newton steps towards ``weights(D) = 0`` in a metric that keeps small multipliers positive;
    those no larger than the error of ``D`` itself are dropped.
    """
    lam = np.where(P.ordered, np.maximum(-D, 0.0), 0.0)
    error = np.linalg.norm(P.weights(D))
    if not error < 1e-4 * (lam * P.need).sum():
        return None
    kept = lam > 10 * error
    D, lam = np.where(P.tied | kept, D, 0.0) / lam.max(), lam / lam.max()
    metric = np.divide(1e-12, lam**2, out=np.full(lam.shape, 1e-12), where=kept)
    system = P.system(P.tied | kept, metric)
    rest, last = np.linalg.norm(P.weights(D)), np.inf
    while rest < 0.5 * last:
        D = D + system(P.slack(P.weights(D), 0.0) + P.need, -P.imbalance(D))[0]
        D = np.where(P.ordered, np.minimum(D, 0.0), D)
        rest, last = np.linalg.norm(P.weights(D)) + np.linalg.norm(P.imbalance(D)), rest
        size = np.abs(D[P.ordered]).sum()
        if size < 1e-3 or rest < 1e-12 * size:  # of one at first, it must not shrink towards zero
            return D if size >= 1e-3 else None
    return None
