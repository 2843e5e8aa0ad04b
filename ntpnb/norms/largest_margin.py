"""The largest margin of a matrix of norm one: linear programs, and norms of the singular values.

Strict and equal rows are matrices, flat. Asked for is the ``W`` with ``N(W) ≤ 1`` whose products
with the equal rows vanish and whose smallest product ``s`` with a strict row is largest. It exists
whether or not ``s`` is positive. Multipliers prove how large ``s`` is; that they do, whoever asked
has to measure, as :mod:`ntpnb.margin.other_norms` does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.linalg import orth
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.tolerances import ACCEPT, CLEAR_MARGIN
from ntpnb.basics.validation import FloatArray, require_dense
from ntpnb.norms.singular_values import largest_margin_of_singular_values

STEPS_EACH = 20
"""Simplex steps for each constraint and unknown, of which one or two are usual.

At the edge of separability HiGHS went on for more than an hour.
"""


@dataclass(frozen=True, eq=False)
class Solved:
    """What a solver returns: ``W`` of norm at most one, and the rows' multipliers in any scale."""

    W: FloatArray
    equal_multipliers: FloatArray
    multipliers: FloatArray
    solver: str


@dataclass(frozen=True, eq=False)
class PairRows:
    """The matrices ``D_k`` of the pairs as flat rows of length one.

    Attributes
    ----------
    equal, strict : csr_array, shapes (·, p q)
    lengths : ndarray, shape (n,)
        ``‖D_k‖`` of all, the equal ones first: what the rows have been divided by.
    shape : tuple of int
        (p, q).
    """

    equal: csr_array
    strict: csr_array
    lengths: FloatArray
    shape: tuple[int, int]

    @property
    def goals(self) -> FloatArray:
        """``b_k`` of the strict rows: a margin is the product with a row, divided by this.

        It is in units of the shortest, so that it is at most one.
        """
        lengths = self.lengths[self.equal.shape[0] :]
        goals: FloatArray = lengths.min() / lengths
        return goals


Solver = Callable[[PairRows], Solved]


# -- solvers --------------------------------------------------------------------------------------


def largest_margin_in_max_norm(
    rows: PairRows, tolerance: float = ACCEPT, seconds: float | None = None
) -> Solved:
    """Maximise ``s`` with ``|W_vi| ≤ 1``, by linear programming, in so many seconds at most.

    The unknowns are the entries of ``W`` and ``s``.
    """
    num_weights = rows.strict.shape[1]
    margins = _margins_at_least_s(-rows.strict, rows.goals)
    ties = _without_s(rows.equal)
    result = _linear_program(
        margins, ties, [(-1.0, 1.0)] * num_weights, tolerance=tolerance, seconds=seconds
    )
    return Solved(
        W=result.x[:-1].reshape(rows.shape),
        equal_multipliers=result.eqlin.marginals,
        multipliers=-result.ineqlin.marginals,
        solver="highs",
    )


def largest_margin_in_sum_norm(rows: PairRows) -> Solved:
    """Maximise ``s`` with ``Σ |W_vi| ≤ 1``, by linear programming.

    The unknowns are the positive parts of the entries of ``W``, their negative parts, and ``s``.
    """
    num_weights = rows.strict.shape[1]
    both_parts = sparse.hstack([rows.strict, -rows.strict])
    size = csr_array(np.append(np.ones(2 * num_weights), 0.0)[None])
    margins = sparse.vstack([_margins_at_least_s(-both_parts, rows.goals), size])
    ties = _without_s(sparse.hstack([rows.equal, -rows.equal]))
    result = _linear_program(margins, ties, [(0.0, None)] * (2 * num_weights), largest_sum=1.0)
    positive, negative = result.x[:-1].reshape(2, *rows.shape)
    return Solved(
        W=positive - negative,
        equal_multipliers=result.eqlin.marginals,
        multipliers=-result.ineqlin.marginals[:-1],
        solver="highs",
    )


def largest_margin_by_singular_values(
    norm: Literal["spectral", "nuclear"], rows: PairRows
) -> Solved:
    """Maximise ``s`` with the largest singular value of ``W`` at most one, or their sum.

    Where ``W = K Qᵀ``, the least ``(‖K‖² + ‖Q‖²)/2`` of the factors is the nuclear norm, so that
    this is the problem of attention with keys and queries (Tarzanagh, Li, Thrampoulidis & Oymak
    2023, arXiv:2308.16898, Att-SVM).

    It is solved by an interior point. Whether the data are separable at all is asked of the linear
    program first, which answers that to more digits. Solved for is ``Z`` in ``W = Q_p Z Q_qᵀ``,
    where the orthonormal columns of ``Q_p`` and ``Q_q`` span what the pairs' matrices reach, but
    for half of the digits: what a ``W`` has besides changes no margin, and leaving it out makes no
    singular value larger.
    """
    left, right = _spanning(rows)
    shape = (left.shape[1], right.shape[1])
    size = sum(shape)
    require_dense("this norm's program", (math.prod(shape), size, size), 'use norm="frobenius"')
    in_max_norm = largest_margin_in_max_norm(rows)
    if not (rows.strict @ in_max_norm.W.ravel() / rows.goals).min() > CLEAR_MARGIN:
        return in_max_norm  # too near to what no W separates; its bounds will say so
    reached = np.kron(left, right)
    strict, equal = rows.strict @ reached, rows.equal @ reached
    found = largest_margin_of_singular_values(strict, rows.goals, equal, shape, norm)
    missing = found.combination.ravel() - strict.T @ found.multipliers
    return Solved(
        W=left @ found.Z @ right.T,
        equal_multipliers=np.linalg.lstsq(equal.T, missing)[0],
        multipliers=found.multipliers,
        solver="interior point",
    )


SOLVERS: dict[str, Solver] = {
    "max": largest_margin_in_max_norm,
    "sum": largest_margin_in_sum_norm,
    "spectral": partial(largest_margin_by_singular_values, "spectral"),
    "nuclear": partial(largest_margin_by_singular_values, "nuclear"),
}
"""Solvers by the name of the norm; each takes the pairs' rows and nothing else."""


def _spanning(rows: PairRows) -> tuple[FloatArray, FloatArray]:
    """Orthonormal bases of the columns, and of the rows, of all pairs' matrices together."""
    p, q = rows.shape
    entries = sparse.coo_array(sparse.vstack([rows.equal, rows.strict]))
    num_rows = entries.shape[0]
    i, j = np.divmod(entries.col, q)
    columns = csr_array((entries.data, (entries.row * q + j, i)), shape=(num_rows * q, p))
    of_rows = csr_array((entries.data, (entries.row * p + i, j)), shape=(num_rows * p, q))
    return orth((columns.T @ columns).toarray()), orth((of_rows.T @ of_rows).toarray())


def _margins_at_least_s(negated: csr_array, goals: FloatArray) -> csr_array:
    """Rows of ``b_k s − ⟨D_k, W⟩ ≤ 0`` with the goals ``b_k``."""
    return csr_array(sparse.hstack([negated, goals[:, None]]))


def _without_s(rows: csr_array) -> csr_array:
    """Rows in which the last unknown, ``s``, does not occur."""
    return csr_array(sparse.hstack([rows, csr_array((rows.shape[0], 1))]))


def _linear_program(
    margins: csr_array,
    ties: csr_array,
    bounds: Sequence[tuple[float, float | None]],
    largest_sum: float | None = None,
    tolerance: float = ACCEPT,
    seconds: float | None = None,
) -> OptimizeResult:
    """Maximise the last unknown, ``s``.

    Parameters
    ----------
    margins, ties : csr_array
        Rows whose products with the unknowns are at most zero, or zero. Where ``largest_sum`` is
        given, it takes the place of zero in the last row of ``margins``.
    bounds : sequence of tuple
        Of all unknowns but ``s``.
    tolerance : float
        By which constraints, and the dual's, may be missed. HiGHS takes none smaller than the
        default, 1e-10; what it gives is measured anyway.
    seconds : float, optional
        After which it ends without an answer, as it does after :data:`STEPS_EACH`. Default: never.

    Raises
    ------
    ConvergenceError
        HiGHS has no answer.
    """
    objective = np.append(np.zeros(margins.shape[1] - 1), -1.0)
    limits = np.zeros(margins.shape[0])
    if largest_sum is not None:
        limits[-1] = largest_sum
    result = linprog(
        objective,
        A_ub=margins,
        b_ub=limits,
        A_eq=ties,
        b_eq=np.zeros(ties.shape[0]),
        bounds=[*bounds, (0.0, None)],
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
            "maxiter": STEPS_EACH * sum(margins.shape),
            "time_limit": seconds,
        },
    )
    stopped = result.status == 1  # by one of its limits, at a point that proves nothing
    if result.x is None or stopped:
        raise ConvergenceError(f"undecided: HiGHS says {result.message}", np.inf)
    return result


def with_ties_met(solved: Solved, rows: PairRows) -> Solved:
    """The nearest ``W`` that ties the equal pairs, which solvers meet to their tolerance only."""
    if rows.equal.shape[0] == 0:
        return solved
    flat = solved.W.ravel()
    correction = lsqr(rows.equal, -(rows.equal @ flat), atol=1e-15, btol=1e-15)[0]
    return replace(solved, W=(flat + correction).reshape(rows.shape))
