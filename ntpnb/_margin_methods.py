"""Methods for a max-margin program, each a generator of iterates that someone else judges.

An iterate is ``(A, W, slack, D)``: multipliers ``−A``, ``W = weights(A)``, the slack, and where
the method has settled the direction ``D`` in which ``A`` grows (a certificate if there is no
solution), else None.
"""

import numpy as np
from scipy.linalg import eigvalsh


def active_set(P, A=None, T=None, patience=3, eps=1e-10):
    """Primal-dual active set steps on the proximally regularised dual.

    Guess which ordered entries are tight, solve the equations exactly, exchange all entries of
    the wrong sign; once none is left move the proximal centre, which also refines the solution.
    Ends when the number of exchanges stalls.
    """
    A = np.zeros(P.need.shape) if A is None else A
    T = P.active if T is None else T
    centre, c, fewest, last, stalls, system = A, 0.0, np.inf, np.inf, 0, None
    while stalls < patience:
        if system is None:
            system, A = P.system(T, eps), np.where(T, A, 0.0)
        r = P.slack(P.weights(A), c) - eps * (A - centre)
        D, e = system.solve(r, -P.imbalance(A))
        A, c = A + D, c + e
        W = P.weights(A)
        slack = P.slack(W, c)
        noise = 1e-14 * max(1.0, np.abs(A).max())
        wrong = P.ordered & np.where(T, A > noise, slack + eps * centre < -noise)
        count = np.count_nonzero(wrong)
        yield A, W, slack, None if count else A - centre
        if count:
            stalls = 0 if count < fewest else stalls + 1
            fewest = min(fewest, count)
            T, system = T ^ wrong, None
        else:
            now = residual(P, A, W, slack)
            stalls = 0 if now < 0.5 * last else stalls + 1
            centre, last, fewest = A, now, np.inf


def interior_point(P, steps=80, eps=1e-9):
    """Predictor-corrector steps (Mehrotra) with a proximal term, finished by ``active_set``."""
    out, n = P.ordered, np.count_nonzero(P.ordered)
    s, lam = np.ones(out.shape), np.ones(out.shape)
    A, c, accuracy = np.where(out, -1.0, 0.0), 0.0, 1e-5
    step = A
    for _ in range(steps):
        W = P.weights(A)
        slack = P.slack(W, c)
        yield A, W, slack, step
        mu = (s * lam)[out].sum() / n
        size = max(1.0, np.linalg.norm(W))
        r = slack - np.where(out, s, 0.0)
        if max(np.abs(r).max() / size, mu / size**2) < accuracy:
            accuracy *= 1e-2
            yield from active_set(P, A, P.tied | out & (lam > s), patience=2)
        system = P.system(P.active, np.where(out, s / lam, 0.0) + eps)
        pull, q = np.where(out, s, 0.0), -P.imbalance(A)
        D, _ = system.solve(r + pull, q)
        ds = np.where(out, s / lam * D - s, 0.0)
        t = min(_longest(s, ds), _longest(lam, -D * out))
        ahead = ((s + t * ds) * (lam - t * D))[out].sum() / n
        pull -= np.where(out, (mu * (ahead / mu) ** 3 + ds * D) / lam, 0.0)
        D, e = system.solve(r + pull, q)
        ds = np.where(out, s / lam * D - pull, 0.0)
        t = min(1.0, 0.995 * min(_longest(s, ds), _longest(lam, -D * out)))
        step = t * D
        A, c, s = A + step, c + t * e, s + t * ds
        lam = np.where(out, -A, 1.0)


def _longest(x, dx):
    # step to the boundary of x > 0
    shrinking = dx < 0
    return np.min(-x[shrinking] / dx[shrinking], initial=1.0)


def fista(P, steps=None):
    """Accelerated projected gradient on the dual, restarted where momentum points uphill.

    For supports only. Needs no factorisation, and the memory of a few copies of ``A``; tries to
    finish by ``active_set`` at growing intervals. References: Beck & Teboulle (2009); O'Donoghue
    & Candès (2015).
    """
    m, d = P.U.shape
    top = eigvalsh(P.gram, subset_by_index=[m - 1, m - 1])[0] or 1.0
    A = Y = unknown = np.zeros(P.need.shape)
    momentum, polish = 1.0, max(40, m // 3)
    for step in range(1, (steps or 4 * m) + 1):
        scores = Y @ P.gram if m < 2 * d else P.weights(Y) @ P.U.T
        X = _project(P, Y - (scores + P.need) / top)
        if step % 20 == 0 or step == polish:
            W, tight = P.weights(X), P.tied | (X < 0)
            free = P.slack(W, 0.0)
            c = -np.where(tight, free, 0.0).sum(0) / tight.sum(0)
            yield X, W, P.slack(W, c), unknown
        if step == polish:
            polish *= 4
            yield from active_set(P, X, tight, patience=2)
        if np.vdot(Y - X, X - A) > 0:
            momentum, Y = 1.0, X
        else:
            follow = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            Y, momentum = X + (momentum - 1) / follow * (X - A), follow
        A = X


def _project(P, Y):
    """Nearest columns with zero sums and nonpositive ordered entries.

    Column ``j`` shifts by the mean of its tied entries and of the ordered ones below the shift:
    Newton's method on a concave function, so it ends after a few passes.
    """
    below, changed = P.tied, True
    while changed:
        shift = np.where(below, Y, 0.0).sum(0) / below.sum(0)
        previous, below = below, P.tied | (P.ordered & (Y < shift))
        changed = (below != previous).any()
    return np.where(below, Y - shift, 0.0)


def residual(P, A, W, slack):
    """Violation of the optimality conditions, in the units of ``MarginSolution.kkt_residual``."""
    off = slack * P.norm / np.maximum(P.unit, np.linalg.norm(W) * P.reach)
    lam, off_out = -A[P.ordered], off[P.ordered]
    return max(
        np.abs(off[P.tied]).max(initial=0.0),
        -off_out.min(),
        np.abs(lam * off_out).sum() / np.abs(lam).sum(),
        max(-lam.min(), np.abs(P.imbalance(A)).max(initial=0.0)) / np.abs(lam).max(),
    )


def certificate(P, D, trust=1e-3, tolerance=1e-12):
    """Refine ``D`` to nonnegative multipliers whose ``W`` vanishes, or return None.

    Newton steps towards ``weights(D) = 0`` in a metric that keeps small multipliers positive;
    those no larger than the error of ``D`` itself are dropped.
    """
    lam = np.where(P.ordered, np.maximum(-D, 0.0), 0.0)
    error = np.linalg.norm(P.weights(D))
    if not error < trust * (lam * P.need).sum():
        return None
    kept = lam > 10 * error
    D, lam = np.where(P.tied | kept, D, 0.0) / lam.max(), lam / lam.max()
    metric = np.divide(1e-8, lam**2, out=np.full(lam.shape, 1e-8), where=kept)
    system = P.system(P.tied | kept, metric)
    for _ in range(4):
        D = D + system.solve(P.slack(P.weights(D), 0.0) + P.need, -P.imbalance(D))[0]
        D = np.where(P.ordered, np.minimum(D, 0.0), D)
        rest = np.linalg.norm(P.weights(D)) + np.linalg.norm(P.imbalance(D))
        if rest <= tolerance * np.abs(D[P.ordered]).sum():
            return D
    return None


def separates(P, W, slack, tolerance=1e-9):
    """Whether the least change of W that meets all ties leaves a positive margin everywhere."""
    size = np.linalg.norm(W)
    if (slack + P.need)[P.ordered].min() <= tolerance * size:
        return False
    c, still = 0.0, 0.0 * P.imbalance(slack)
    if P.tied.any():
        system = P.system(P.tied, 1e-10)
        for _ in range(3):
            D, e = system.solve(P.slack(W, c) + P.need, still)
            W, c = W + P.weights(D), c + e
    margin = P.slack(W, c) + P.need
    met = np.abs(margin[P.tied]).max(initial=0.0) <= 1e-3 * tolerance * size
    return bool(met and margin[P.ordered].min() > tolerance * size)
