"""Dense references for small max-margin programs: slow, and sure where the engine is in doubt."""

import numpy as np
from scipy import optimize

from ntpnb._margin_methods import active_set


def nnls(P):
    """Nonnegative least squares (Lawson & Hanson 1974, Ch. 23), refined by an active set.

    ``min ‖W‖`` with ``R W ≥ b`` follows from ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``, ties
    entering with both signs; a residual of zero makes ``y`` a certificate.
    """
    R, b, n = _generators(P), P.need[P.ordered], np.count_nonzero(P.tied)
    ties = R[P.tied]
    rows = np.column_stack([np.vstack([R[P.ordered], ties, -ties]), np.append(b, np.zeros(2 * n))])
    y = optimize.nnls(rows.T, np.append(np.zeros(R.shape[1]), 1.0))[0]
    y, z = np.split(y / max(1 - b @ y[: len(b)], 1e-8), [len(b)])  # bounded for a certificate
    yield (start := _iterate(P, y, z[:n] - z[n:]))
    yield from active_set(P, start[0], P.tied | (start[0] < 0))


def cvxpy(P):
    """Run cvxpy with Clarabel, one constraint per pair; it refuses by ``nnls``."""
    import cvxpy as cp

    R = _generators(P)
    x = cp.Variable(R.shape[1])
    constraints = [R[P.ordered] @ x >= P.need[P.ordered], R[P.tied] @ x == 0]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) / 2), constraints)
    for accuracy in (1e-13, 1e-9):  # it gives up where it cannot reach the first
        try:
            names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
            problem.solve(solver=cp.CLARABEL, **dict.fromkeys(names, accuracy))
            break
        except cp.SolverError as error:
            failure = str(error)
    else:
        raise np.linalg.LinAlgError(failure)
    if problem.status in cp.settings.SOLUTION_PRESENT:
        yield _iterate(P, constraints[0].dual_value, -constraints[1].dual_value)
    else:
        yield next(nnls(P))


def _generators(P):
    return -np.stack([P.weights(e).ravel() for e in np.eye(len(P.need))])


def _iterate(P, y, z):
    A = np.zeros(len(P.need))
    A[P.ordered], A[P.tied] = -np.maximum(y, 0.0), -z
    W = P.weights(A)
    return A, W, P.slack(W, 0.0), A
