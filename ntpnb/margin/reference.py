"""Dense reference methods for small programs by pair: two solvers that others wrote.

``nnls`` and ``cvxpy`` are generators of iterates like all methods, named like the ``solver`` that a
caller asks for; they call ``scipy.optimize.nnls`` and the package ``cvxpy``.
"""

from collections.abc import Iterator

import numpy as np
from scipy import optimize

from ntpnb.extras import needs_extra
from ntpnb.margin.active_set import active_set
from ntpnb.margin.iterate import Iterate
from ntpnb.margin.pair_program import PairProgram


def nnls(program: PairProgram) -> Iterator[Iterate]:
    """Nonnegative least squares (Lawson & Hanson 1974, Ch. 23), refined by an active set."""
    start = nnls_start(program)
    yield start
    tight = program.tied | (start.dual < 0)
    yield from active_set(program, start.dual, tight)


def nnls_start(program: PairProgram) -> Iterate:
    """Solve by nonnegative least squares alone.

    ``min ‖W‖`` subject to ``R W ≥ b``, with rows ``−φ_k`` in ``R``, follows from
    ``min ‖[Rᵀ; bᵀ] y − e‖`` over ``y ≥ 0``, where ``e`` is the last unit vector; ties enter with
    both signs. With ``rest = 1 − b · y``, the multipliers are ``y / rest``. If the minimum is zero,
    then ``Rᵀ y = 0`` and ``b · y = 1``: ``y`` is a certificate, and so a direction in which duals
    grow.

    Raises
    ------
    RuntimeError
        The least-squares solver reached its limit of steps.
    """
    R = -program.rows()
    num_pairs = len(R)
    num_ties = np.count_nonzero(program.tied)
    both_signs = np.vstack([R, -R[:num_ties]])
    both_rhs = np.append(program.rhs, np.zeros(num_ties))
    matrix = np.column_stack([both_signs, both_rhs]).T
    goal = np.append(np.zeros(R.shape[1]), 1.0)
    y = optimize.nnls(matrix, goal)[0]
    rest = 1 - program.rhs @ y[:num_pairs]
    scaled = y / max(rest, 1e-8)  # bounded where y is a certificate
    multipliers = scaled[:num_pairs]
    multipliers[:num_ties] -= scaled[num_pairs:]
    dual = -multipliers
    return Iterate(dual, program.zero_common(), direction=dual, settled=True)


def cvxpy(program: PairProgram) -> Iterator[Iterate]:
    """One step: cvxpy with Clarabel, one constraint per pair.

    Clarabel's word that there is no solution is no proof; one is then sought by ``nnls_start``.

    Raises
    ------
    numpy.linalg.LinAlgError
        Clarabel gave up.
    """
    with needs_extra("reference", 'solver="cvxpy"'):
        import cvxpy as cp

    R = -program.rows()
    num_ties = np.count_nonzero(program.tied)
    W = cp.Variable(R.shape[1])
    ties = R[:num_ties] @ W == 0
    margins = R[num_ties:] @ W >= program.rhs[num_ties:]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2), [ties, margins])
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    except cp.SolverError as error:
        raise np.linalg.LinAlgError(str(error)) from error
    if problem.status in cp.settings.SOLUTION_PRESENT:
        dual = np.append(ties.dual_value, -np.maximum(margins.dual_value, 0.0))
        yield Iterate(dual, program.zero_common(), direction=dual, settled=True)
    else:
        yield nnls_start(program)
