"""Dense references for small max-margin problems, sharing no algorithm with the fast methods.

Generators of iterates as in ``_margin_methods``; both need a ``PairProgram``.
"""

import numpy as np
from scipy.linalg import lstsq, svd
from scipy.optimize import nnls

from ntpnb._margin_methods import active_set


def least_distance(P):
    """Nonnegative least squares (Lawson & Hanson 1974, Ch. 23), refined by an active set.

    With ``R`` the generators off the span of the ties, ``min ‖W‖`` with ``R W ≥ b`` follows from
    ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``; a residual of zero makes ``y`` a certificate.
    """
    ties, rows, b = *_generators(P), P.need[P.ordered]
    R = rows
    if len(ties):
        _, s, Vt = svd(ties, full_matrices=False)
        Vt = Vt[s > 1e-11 * s[0]]
        R = rows - rows @ Vt.T @ Vt
    y, _ = nnls(np.vstack([R.T, b]), np.append(np.zeros(R.shape[1]), 1.0))
    y /= max(1 - b @ y, 1e-8)  # bounded for a certificate
    z = lstsq(ties.T, (R - rows).T @ y)[0] if len(ties) else np.zeros(0)
    yield (start := _iterate(P, z, y))
    yield from active_set(P, start[0], P.tied | (start[0] < 0))


def clarabel(P):
    """Run cvxpy with Clarabel, one constraint per reduced pair.

    Where Clarabel finds no solution, look for the point of the hull of the generators that is
    nearest to zero modulo the ties: a certificate if that distance vanishes.
    """
    import cvxpy as cp

    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-13)
    ties, rows = _generators(P)
    x = cp.Variable(rows.shape[1])
    constraints = [rows @ x >= P.need[P.ordered]] + [ties @ x == 0] * bool(len(ties))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) / 2), constraints)
    problem.solve(solver=cp.CLARABEL, **tight)
    if problem.status in cp.settings.SOLUTION_PRESENT:
        y, *z = (constraint.dual_value for constraint in constraints)
        yield _iterate(P, -z[0] if z else np.zeros(0), y)
        return
    y, z = cp.Variable(len(rows), nonneg=True), cp.Variable(len(ties))
    distance = cp.sum_squares(rows.T @ y + ties.T @ z if len(ties) else rows.T @ y)
    cp.Problem(cp.Minimize(distance), [cp.sum(y) == 1]).solve(solver=cp.CLARABEL, **tight)
    yield _iterate(P, z.value if len(ties) else np.zeros(0), y.value)


def _generators(P):
    left = P.left.toarray() if hasattr(P.left, "toarray") else P.left
    rows = -np.einsum("kp,kq->kpq", left, P.right).reshape(len(left), -1)
    return rows[P.tied], rows[P.ordered]


def _iterate(P, z, y):
    A = np.zeros(len(P.need))
    A[P.tied], A[P.ordered] = -z, -np.maximum(y, 0.0)
    W = P.weights(A)
    return A, W, P.slack(W, 0.0), A
