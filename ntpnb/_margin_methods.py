"""Methods for a max-margin program, each a generator of iterates that someone else judges.

An iterate is ``(A, W, slack, D)``: multipliers ``−A``, ``W = weights(A)``, its slack, and where
the method has settled the direction ``D`` in which ``A`` grows, a certificate if there is no
solution; else None.
"""

import numpy as np
from scipy.linalg import eigvalsh

from ntpnb._margin_programs import PROX

SINGLE = 40  # steps of FISTA in single precision


def active_set(P, A=None, T=None, patience=3):
    """Primal-dual active set steps, until the number of wrong guesses stalls.

    Guess which ordered entries are tight, solve the equations with a proximal term, exchange all
    entries of the wrong sign. Once none is left, move the proximal centre, which also refines.
    """
    A = np.zeros(P.need.shape) if A is None else A
    T = P.active if T is None else T
    centre, c, system, solved = A, 0.0, None, None
    fewest, least, stalls, idle = np.inf, np.inf, 0, 0
    while max(stalls, idle) < patience:
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
            idle = 0 if now < 0.5 * least else idle + 1
            centre, least, fewest, stalls = A, min(now, least), np.inf, 0


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
    double = np.eye(m) - P.gram / top, P.U, P.need / top
    single = [X.astype(np.float32) for X in double]  # as good at first, and twice as fast
    A, below = _project(P, -single[2], P.active)
    Y, momentum, polish = A, 1.0, max(SINGLE, m // 5)
    for k in range(1, max(200, 2 * m) + 1):
        step, U, lift = single if k <= SINGLE else double
        Z = Y @ step if m < 2 * d else Y - (Y @ U) @ (U.T / top)
        X, below = _project(P, Z - lift, below)
        if k % 50 == 0 or k == polish:
            W = P.weights(X)
            c = -np.where(below, P.slack(W, 0.0), 0.0).sum(0) / below.sum(0)
            yield X, W, P.slack(W, c), np.zeros(X.shape)
        if k == polish:
            polish *= 4
            yield from active_set(P, X.astype(float), below, patience=2)
        move = X - A
        if np.vdot(Y - X, move) > 0:
            momentum, Y = 1.0, X
        else:
            follow = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            Y, momentum = X + (momentum - 1) / follow * move, follow
        A = X


def _project(P, Y, below):
    """Nearest columns with zero sums and nonpositive ordered entries, and what is below its bound.

    Column ``j`` shifts by the mean of its entries below their bounds: Newton's method on a concave
    function, so it ends after a few passes from any guess ``below``.
    """
    for _ in range(len(Y) + 1):  # rounding may go back and forth between two guesses
        shift = np.einsum("vj,vj->j", below, Y) / below.sum(0, dtype=Y.dtype)
        X = np.minimum(Y - shift, P.bound) * P.active
        before, below = below, X < P.bound
        if (below == before).all():
            break
    return X, below


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
    if P.tied.any():
        D, e = P.ties()(np.where(P.tied, slack, 0.0), 0.0)
        W, c = W + P.weights(D), c + e
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
