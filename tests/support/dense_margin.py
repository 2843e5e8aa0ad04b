"""Two solvers of the max-margin problem that others wrote, for small data.

They are given a dense row for each pair (``reference``) and share nothing with ``ntpnb.margin``.
"""

import cvxpy as cp
import numpy as np
import reference
from scipy import optimize


def rows_and_goals(data, order):
    """Rows of norm one of the equal and of the strict pairs, what these are to reach, and a unit.

    Goals are at most one: a ``W`` of these rows is one of the data's times the unit. A pair of norm
    zero is asked for one, which it cannot reach.
    """
    equal = reference.pair_matrices(data, order.equal, unit=True)
    strict = reference.pair_matrices(data, order.strict)
    norms = np.linalg.norm(strict, axis=1)
    unit = norms[norms > 0].min() if norms.any() else 1.0
    norms[norms == 0] = unit
    return equal, strict / norms[:, None], unit / norms, unit


def by_nnls(data, order):
    """The solution, or a certificate, which has a weight for each strict pair; the other is None.

    ``min ‖W‖`` subject to ``R W ≥ b`` follows from ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``, where
    ``e`` is the last unit vector; ties enter with both signs (Lawson & Hanson 1974, Ch. 23). With
    ``rest = 1 − b · y``, ``W = Rᵀ y / rest``. If the minimum is zero, then ``Rᵀ y = 0`` and
    ``b · y = 1``: ``y`` is a certificate.
    """
    equal, strict, goals, unit = rows_and_goals(data, order)
    rows = np.vstack([equal, -equal, strict])
    rhs = np.append(np.zeros(2 * len(equal)), goals)
    y = optimize.nnls(np.column_stack([rows, rhs]).T, np.eye(rows.shape[1] + 1)[-1])[0]
    rest = 1 - rhs @ y
    if rest < 1e-10:
        weights = y[2 * len(equal) :] * goals  # of pairs of their own lengths
        return None, np.where(weights < 1e-12 * weights.max(), 0.0, weights)  # but rounding
    return (y @ rows / rest / unit).reshape(data.shape), None


def by_cvxpy(data, order):
    """The solution by Clarabel, or None where it says that there is none."""
    equal, strict, goals, unit = rows_and_goals(data, order)
    W = cp.Variable(strict.shape[1])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2), [equal @ W == 0, strict @ W >= goals])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return None if W.value is None else (W.value / unit).reshape(data.shape)
