"""The max-margin problem in other norms than Frobenius', and its proof.

For a norm ``N`` the problem is to minimise ``½ N(W)²`` while equal pairs tie and strict pairs keep
a margin of at least one. Each pair ``k = (g, i, j)`` stands for the matrix
``D_k = (t_i − t_j) h_gᵀ``, and ``M = Σ_strict λ_k D_k + Σ_equal μ_k D_k``. The dual problem is

    maximise Σ λ_k − ½ N_*(M)²  subject to  λ ≥ 0,

because ``Σ λ_k ≤ ⟨M, W⟩ ≤ N(W) N_*(M)`` for every ``W`` that meets the constraints, with equality
at the optimum. Solvers are asked for the largest margin of a ``W`` of norm one, which exists
whether or not the data are separable: strict and equal rows are matrices, flat, and sought is the
``W`` with ``N(W) ≤ 1`` whose products with the equal rows vanish and whose smallest product ``s``
with a strict row is largest. Linear programs find it, and for norms of the singular values an
interior point (:mod:`ntpnb.margin.singular_values`). What they return is not believed: the solution
is measured from the data, the matrix and the multipliers alone.
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
from ntpnb.basics.matrix_norms import NORMS, MatrixNorm, norm_named
from ntpnb.basics.saving import Result
from ntpnb.basics.tolerances import ACCEPT, CLEAR_MARGIN, VANISHES
from ntpnb.basics.validation import FloatArray, as_array, require_dense
from ntpnb.margin.pair_program import EveryPair, require_listable
from ntpnb.margin.singular_values import largest_margin_of_singular_values
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.problem.pairs import (
    combined_pairs,
    margin_bounds,
    margin_sizes,
    pair_margins,
    relative_gap,
    relative_margins,
    require_multipliers,
    ties_are_met,
)

LARGEST_GAP = 1e-6
"""Relative gap between the bounds of the largest margin that a solution may have."""

STEPS_EACH = 20
"""Simplex steps for each constraint and unknown, of which one or two are usual.

At the edge of separability HiGHS went on for more than an hour.
"""


@dataclass(frozen=True, eq=False, repr=False)
class NormMarginSolution(Result):
    """A ``W`` of least norm with margin one, in a norm other than Frobenius', and its proof.

    With ``M = Σ_strict λ_k (t_i − t_j) h_gᵀ + Σ_equal μ_k (t_i − t_j) h_gᵀ``, every ``W'`` that
    ties all equal pairs and has the margin ``s`` on all strict ones obeys
    ``s Σ λ_k ≤ ⟨M, W'⟩ ≤ N_*(M) N(W')``, where ``N_*`` is the dual norm. This bounds its margin,
    and ``W`` attains the bound up to ``duality_gap``. The solution need not be unique, because
    these norms are not strictly convex.

    Attributes
    ----------
    W : ndarray, shape (p, q)
    norm_name : str
        ``"max"``, ``"sum"``, ``"spectral"`` or ``"nuclear"``.
    norm : float
        ``N(W)``.
    min_margin : float
        Smallest ``(t_i − t_j) · W h_g`` over strict pairs; ``inf`` where there are none.
    tie_residual : float
        The largest ``|(t_i − t_j) · W h_g|`` of an equal pair, relative to
        ``‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖)`` with Frobenius' ``‖W‖``.
    relative_margin : float
        The smallest margin of a strict pair, relative to the same; ``inf`` where there are none.
    dual_norm : float
        ``N_*(M)``; the multipliers are scaled so that it equals ``norm``.
    duality_gap : float
        ``|½ N(W)² + ½ N_*(M)² − Σ λ_k| / (½ N(W)²)``: primal minus dual value, relative to the
        primal one.
    solver : str
        ``"highs"``, ``"interior point"`` or ``"no strict pairs"``.
    multipliers : ndarray, shape (len(order.strict),)
        ``λ ≥ 0``, one per row of the order's ``strict``.
    equal_multipliers : ndarray, shape (len(order.equal),)
        ``μ``, one per row of the order's ``equal``.

    References
    ----------
    T24 (002) Eq. (6) with another norm; Fan, Schmidt & Thrampoulidis 2025 for one-hot labels.

    Examples
    --------
    >>> import ntpnb
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy(), norm="max")
    >>> round(svm.norm, 9), round(svm.min_margin, 9), svm.duality_gap < 1e-9
    (1.0, 1.0, True)
    """

    W: FloatArray
    norm_name: str
    norm: float
    min_margin: float
    tie_residual: float
    relative_margin: float
    dual_norm: float
    duality_gap: float
    solver: str
    multipliers: FloatArray
    equal_multipliers: FloatArray
    _data: NextTokenData

    def _checked(self) -> "NormMarginSolution":
        """The solution that a file describes, measured anew on its data."""
        order = token_priority(self._data)
        as_array("NormMarginSolution.W", self.W, ndim=2, shape=self._data.shape)
        require_multipliers("NormMarginSolution", order, self.multipliers, self.equal_multipliers)
        solved = Solved(self.W, self.equal_multipliers, self.multipliers, self.solver)
        return _measured(self._data, order, solved, norm_named(self.norm_name))

    @property
    def margin_bounds(self) -> tuple[float, float]:
        """A lower and an upper bound of the largest margin of a ``W'`` with ``N(W') ≤ 1``.

        ``W`` itself has the margin ``min_margin / N(W)``, which counts where it is more than
        rounding, a :attr:`relative_margin` above 1e-12, and :attr:`tie_residual` is at most 1e-12,
        and 1e-8 of that. No ``W'`` that ties the equal pairs has more than ``N_*(M) / Σ λ_k``, for
        any multipliers.

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.datasets.toy(), norm="sum")
        >>> [round(bound, 9) for bound in svm.margin_bounds], round(1 / 5.4, 9)
        ([0.185185185, 0.185185185], 0.185185185)
        """
        total = float(self.multipliers.sum())
        ties_met = ties_are_met(self.tie_residual, self.relative_margin)
        counts = ties_met and self.relative_margin > VANISHES
        return margin_bounds(self.norm, self.dual_norm, total, self.min_margin, ties_met=counts)

    @property
    def margin_gap(self) -> float:
        """How much the margin's bounds differ, relative to the upper one; one if the lower is zero.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.max_margin(ntpnb.datasets.toy(), norm="sum").margin_gap < 1e-9
        True
        """
        return relative_gap(self.margin_bounds)


def max_margin_in_norm(
    data: NextTokenData, norm: str, order: TokenPriority | None
) -> NormMarginSolution:
    """Minimise ``N(W)`` while equal pairs tie and strict pairs keep a margin of at least one.

    Parameters
    ----------
    data : NextTokenData
    norm : str
        A key of :data:`SOLVERS`.
    order : TokenPriority or None
        The order of ``data``, where it is at hand already.

    Returns
    -------
    NormMarginSolution
        With ``W = 0`` where there are no strict pairs.

    Raises
    ------
    ValueError
        Pairs whose matrices have more than 2**28 entries.
    ConvergenceError
        The solver's bounds differ by more than 1e-6, or its margins are rounding, as they are where
        data are not separable; ``.point`` is its solution.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.margin.other_norms import max_margin_in_norm
    >>> max_margin_in_norm(ntpnb.datasets.toy(), "sum", None).solver
    'highs'
    """
    if order is None:
        order = token_priority(data)
    kind = NORMS[norm]
    if not order.has_strict_pairs:
        nothing = Solved(
            W=np.zeros(data.shape),
            equal_multipliers=np.zeros(len(order.equal)),
            multipliers=np.zeros(0),
            solver="no strict pairs",
        )
        return _measured(data, order, nothing, kind)
    rows = pair_rows(data, order)
    solved = with_ties_met(SOLVERS[norm](rows), rows)
    num_ties = len(order.equal)
    solved = replace(
        solved,
        equal_multipliers=solved.equal_multipliers / rows.lengths[:num_ties],
        multipliers=np.maximum(solved.multipliers / rows.lengths[num_ties:], 0.0),
    )
    solution = _scaled(_measured(data, order, solved, kind), order)
    if not solution.margin_gap <= LARGEST_GAP:
        raise ConvergenceError(
            f"undecided: {solution.solver} left the largest margin between "
            f"{solution.margin_bounds[0]:.6g} and {solution.margin_bounds[1]:.6g}",
            solution.margin_gap,
            solution,
        )
    return solution


# -- what solvers are given, and what is made of their answers ------------------------------------


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


def pair_rows(data: NextTokenData, order: TokenPriority) -> PairRows:
    """The matrices of all pairs as rows of sparse matrices.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with strict pairs.

    Returns
    -------
    PairRows

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.margin.other_norms import pair_rows
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> pair_rows(data, ntpnb.token_priority(data)).strict.toarray().round(6).tolist()
    [[0.707107, -0.707107]]
    """
    require_listable(data, order, "this norm's program", 'use norm="frobenius"')
    pairs = EveryPair(data, order)
    lengths = pairs.norms
    rows = sparse.diags_array(-1 / lengths) @ pairs.rows(np.arange(len(lengths)))
    num_ties = len(order.equal)
    return PairRows(rows[:num_ties], rows[num_ties:], lengths, data.shape)


@dataclass(frozen=True, eq=False)
class Solved:
    """What a solver returns: ``W`` of norm at most one, and the rows' multipliers in any scale."""

    W: FloatArray
    equal_multipliers: FloatArray
    multipliers: FloatArray
    solver: str


def with_ties_met(solved: Solved, rows: PairRows) -> Solved:
    """The nearest ``W`` that ties the equal pairs, which solvers meet to their tolerance only."""
    flat = solved.W.ravel()
    correction = lsqr(rows.equal, -(rows.equal @ flat), atol=1e-15, btol=1e-15)[0]
    return replace(solved, W=(flat + correction).reshape(rows.shape))


def _scaled(found: NormMarginSolution, order: TokenPriority) -> NormMarginSolution:
    """The same with ``W`` scaled to margin one and the multipliers to the dual optimum.

    Multipliers stay as they are beside a ``W`` of zero, or where they combine to zero: a bound of
    the margin is the same in any scale.
    """
    norm = NORMS[found.norm_name]
    W = found.W / (found.min_margin if found.min_margin > 0 else 1.0)
    size = float(norm.of(W))
    scale = size / found.dual_norm if min(size, found.dual_norm) > 0 else 1.0
    mu = scale * found.equal_multipliers
    lam = scale * found.multipliers
    return _measured(found._data, order, Solved(W, mu, lam, found.solver), norm)


def _measured(
    data: NextTokenData, order: TokenPriority, solved: Solved, norm: MatrixNorm
) -> NormMarginSolution:
    """A solution with all that is measured of it."""
    num_ties = len(order.equal)
    W = solved.W
    lam = solved.multipliers
    mu = solved.equal_multipliers
    margins = pair_margins(data, order, W)
    size = float(norm.of(W))
    dual_norm = float(norm.dual(combined_pairs(data, order, np.append(mu, lam))))
    gap = abs(size**2 / 2 + dual_norm**2 / 2 - float(lam.sum())) / (size**2 / 2 or 1.0)
    sizes = margin_sizes(data, order, float(np.linalg.norm(W)))
    by_size = relative_margins(margins, sizes, num_ties)
    return NormMarginSolution(
        W=W,
        norm_name=norm.name,
        norm=size,
        min_margin=float(margins[num_ties:].min(initial=np.inf)),
        tie_residual=by_size.of_ties,
        relative_margin=by_size.of_strict,
        dual_norm=dual_norm,
        duality_gap=float(gap),
        solver=solved.solver,
        multipliers=lam,
        equal_multipliers=mu,
        _data=data,
    )


# -- solvers --------------------------------------------------------------------------------------

Solver = Callable[[PairRows], Solved]


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
    size = _without_s(csr_array(np.ones((1, 2 * num_weights))))
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
