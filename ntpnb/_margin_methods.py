"""Methods for a max-margin program, each a generator of iterates that someone else judges.

An iterate is ``(A, W, slack, D)``: multipliers ``−A``, ``W = weights(A)``, its slack, and where
the method has settled the direction ``D`` in which ``A`` grows, a certificate if there is no
solution; else None.
"""

import numpy as np
from scipy.linalg import eigvalsh
from scipy.optimize import nnls

from ntpnb._margin_programs import PROX


def active_set(P, A=None, T=None, patience=3):
    """Primal-dual active set steps, until the number of wrong guesses stalls.

    Guess which ordered entries are tight, solve the equations with a proximal term, exchange all
    entries of the wrong sign. Once none is left, move the proximal centre, which also refines.
    """
    A = np.zeros(P.need.shape) if A is None else A
    T = P.active if T is None else T
    centre, c, fewest, last, stalls, system, solved = A, 0.0, np.inf, np.inf, 0, None, None
    while stalls < patience:
        if T is not solved:
            system, solved, A = P.system(T, PROX, system), T, np.where(T, A, 0.0)
        D, e = system(P.slack(P.weights(A), c) - PROX * (A - centre), -P.imbalance(A))
        A, c = A + D, c + e
        W = P.weights(A)
        slack = P.slack(W, c)
        noise = 1e-14 * max(1.0, np.abs(A).max())
        wrong = P.ordered & np.where(T, A > noise, slack + PROX * centre < -noise)
        count = np.count_nonzero(wrong)
        yield A, W, slack, None if count else A - centre
        if count:
            stalls = 0 if count < fewest else stalls + 1
            fewest, T = min(fewest, count), T ^ wrong
        else:
            now = residual(P, A, W, slack)
            stalls = 0 if now < 0.5 * last else stalls + 1
            centre, last, fewest = A, now, np.inf


def interior_point(P, steps=80):
    """Predictor-corrector steps (Mehrotra 1992) with a proximal term, finished by an active set."""
    out, n = P.ordered, np.count_nonzero(P.ordered)
    A = step = np.where(out, -1.0, 0.0)
    s, c, accuracy = np.ones(out.shape), 0.0, 1e-5
    for _ in range(steps):
        W, lam = P.weights(A), np.where(out, -A, 1.0)
        slack = P.slack(W, c)
        yield A, W, slack, step
        mu, size = (s * lam)[out].sum() / n, max(1.0, np.linalg.norm(W))
        r, q = slack - np.where(out, s, 0.0), -P.imbalance(A)
        if max(np.abs(r).max() / size, mu / size**2) < accuracy:
            accuracy *= 1e-2
            yield from active_set(P, A, P.tied | out & (lam > s), patience=2)
        system = P.system(P.active, np.where(out, s / lam, 0.0) + 10 * PROX)
        pull = np.where(out, s, 0.0)
        D, _ = system(r + pull, q)
        ds = np.where(out, s / lam * D - s, 0.0)
        t = 1 / max(1.0, (-ds / s).max(), (D / lam)[out].max())  # as far as s and λ stay positive
        ahead = ((s + t * ds) * (lam - t * D))[out].sum() / n
        pull -= np.where(out, (mu * (ahead / mu) ** 3 + ds * D) / lam, 0.0)
        D, e = system(r + pull, q)
        ds = np.where(out, s / lam * D - pull, 0.0)
        t = 0.995 / max(1.0, (-ds / s).max(), (D / lam)[out].max())
        A, c, s, step = A + t * D, c + t * e, s + t * ds, t * D


def fista(P):
    """Accelerated projected gradient on the dual (Beck & Teboulle 2009), for supports only.

    Momentum restarts where it points uphill (O'Donoghue & Candès 2015); a few copies of ``A`` is
    all the memory it needs. Tries to finish by an active set, ever more rarely.
    """
    m, d = P.U.shape
    top = eigvalsh(P.gram, subset_by_index=[m - 1, m - 1])[0] or 1.0
    step, lift, unknown = np.eye(m) - P.gram / top, P.need / top, np.zeros(P.need.shape)
    A, below = _project(P, -P.need, P.active)
    Y, momentum, polish = A, 1.0, max(40, m // 5)
    for k in range(1, max(200, 2 * m) + 1):
        Z = Y @ step if m < 2 * d else Y - P.weights(Y) @ (P.U.T / top)
        X, below = _project(P, Z - lift, below)
        if k % 50 == 0 or k == polish:
            W = P.weights(X)
            c = -np.where(below, P.slack(W, 0.0), 0.0).sum(0) / below.sum(0)
            yield X, W, P.slack(W, c), unknown
        if k == polish:
            polish *= 4
            yield from active_set(P, X, below, patience=2)
        move = X - A
        if np.vdot(Y - X, move) > 0:
            momentum, Y = 1.0, X
        else:
            follow = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            Y, momentum = X + (momentum - 1) / follow * move, follow
        A = X


def _project(P, Y, below):
    """Nearest columns with zero sums and nonpositive ordered entries, and what is below its bound.

    Column ``j`` shifts by the mean of its entries below their bounds: Newton's method on a concave
    function, so it ends after a few passes from any guess ``below``.
    """
    previous = None
    while previous is None or (below != previous).any():
        shift = np.einsum("vj,vj->j", below, Y) / below.sum(0)
        X = np.minimum(Y - shift, P.bound) * P.active
        previous, below = below, X < P.bound
    return X, below


def least_distance(P):
    """Nonnegative least squares (Lawson & Hanson 1974, Ch. 23), refined by an active set.

    ``min ‖W‖`` with ``R W ≥ b`` follows from ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``, ties
    entering with both signs; a residual of zero makes ``y`` a certificate.
    """
    R, b, n = _generators(P), P.need[P.ordered], np.count_nonzero(P.tied)
    ties = R[P.tied]
    rows = np.column_stack([np.vstack([R[P.ordered], ties, -ties]), np.append(b, np.zeros(2 * n))])
    y = nnls(rows.T, np.append(np.zeros(R.shape[1]), 1.0))[0]
    y, z = np.split(y / max(1 - b @ y[: len(b)], 1e-8), [len(b)])  # bounded for a certificate
    yield (start := _iterate(P, y, z[:n] - z[n:]))
    yield from active_set(P, start[0], P.tied | (start[0] < 0))


def clarabel(P):
    """Run cvxpy with Clarabel, one constraint per pair; it refuses by ``least_distance``."""
    import cvxpy as cp

    R = _generators(P)
    x = cp.Variable(R.shape[1])
    constraints = [R[P.ordered] @ x >= P.need[P.ordered], R[P.tied] @ x == 0]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) / 2), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    if problem.status in cp.settings.SOLUTION_PRESENT:
        yield _iterate(P, constraints[0].dual_value, -constraints[1].dual_value)
    else:
        yield next(least_distance(P))


def _generators(P):
    return -np.stack([P.weights(e).ravel() for e in np.eye(len(P.need))])


def _iterate(P, y, z):
    A = np.zeros(len(P.need))
    A[P.ordered], A[P.tied] = -np.maximum(y, 0.0), -z
    W = P.weights(A)
    return A, W, P.slack(W, 0.0), A


METHODS = {"active-set": active_set, "interior-point": interior_point, "fista": fista}
METHODS |= {"nnls": least_distance, "cvxpy": clarabel}


def residual(P, A, W, slack):
    """Violation of the optimality conditions, in the units of ``MarginSolution.kkt_residual``."""
    miss = slack * P.norm / np.maximum(P.unit, np.linalg.norm(W) * P.reach)
    ties, room, lam = np.abs(miss[P.tied]), miss[P.ordered], -A[P.ordered]
    signs = max(-lam.min(), np.abs(P.imbalance(A)).max(initial=0.0)) / np.abs(A).max()
    complementarity = np.abs(lam * room).sum() / np.abs(lam).sum()
    return max(ties.max(initial=0.0), -room.min(), complementarity, signs)


def separates(P, W, slack):
    """Whether W, moved until all ties are met, has a clearly positive margin everywhere."""
    c = slack - P.slack(W, 0.0)
    for _ in range(3):
        margin, size = slack + P.need, np.linalg.norm(W)
        if np.abs(margin[P.tied]).max(initial=0.0) <= 1e-9 * size:
            return size > 1e-6 and margin[P.ordered].min() >= 1e-6 * size  # not W = 0
        D, e = P.ties()(np.where(P.tied, slack, 0.0), 0.0)
        W, c = W + P.weights(D), c + e
        slack = P.slack(W, c)
    return False


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
        if size < 1e-3:  # of one at first: it only shrinks towards zero
            return None
        if rest < 1e-12 * size:
            return D
    return None
