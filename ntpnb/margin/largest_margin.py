"""The max-margin problem in other norms: linear programs, and norms of the singular values.

For a norm ``N`` the problem is to minimise ``½ N(W)²`` while equal pairs tie and strict pairs keep
a margin of at least one. Each pair ``k = (g, i, j)`` stands for the matrix
``D_k = (t_i − t_j) h_gᵀ``, and ``M = Σ_strict λ_k D_k + Σ_equal μ_k D_k``. The dual problem is

    maximise Σ λ_k − ½ N_*(M)²  subject to  λ ≥ 0,

because ``Σ λ_k ≤ ⟨M, W⟩ ≤ N(W) N_*(M)`` for every ``W`` that meets the constraints, with equality
at the optimum. Solvers are asked for the largest margin of a ``W`` of norm one, which exists
whether or not the data are separable. What they return is not believed: the solution is measured
from the data, the matrix and the multipliers alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.linalg import orth
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse.linalg import lsqr

from ntpnb.basics.array_types import FloatArray
from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.matrix_norms import MatrixNorm, norm_named
from ntpnb.basics.saving import Result
from ntpnb.basics.tolerances import ACCEPT
from ntpnb.basics.validation import as_array
from ntpnb.margin.pair_program import EveryPair, require_listable
from ntpnb.margin.separation import CLEAR_MARGIN
from ntpnb.margin.singular_values import largest_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.problem.pairs import (
    combined_pairs,
    margin_bounds,
    margin_scales,
    pair_margins,
    relative_gap,
    require_multipliers,
)

STEPS_EACH = 20
"""Simplex steps for each constraint and unknown, of which one or two are usual.

At the edge of separability HiGHS went on for more than an hour.
"""

LARGEST_GAP = 1e-6
"""Relative gap between the bounds of the largest margin that a solution may have."""


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
        The largest ``|(t_i − t_j) · W h_g|`` of an equal pair, relative to the larger of one and
        ``‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖)`` with Frobenius' ``‖W‖``.
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

        ``W`` itself has the margin ``min_margin / N(W)``, which counts where ties are met to 1e-9;
        no ``W'`` that ties the equal pairs has more than ``N_*(M) / Σ λ_k``, for any multipliers.

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.datasets.toy(), norm="sum")
        >>> [round(bound, 9) for bound in svm.margin_bounds], round(1 / 5.4, 9)
        ([0.185185185, 0.185185185], 0.185185185)
        """
        total = float(self.multipliers.sum())
        return margin_bounds(self.norm, self.dual_norm, total, self.min_margin, self.tie_residual)

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


@dataclass(frozen=True, eq=False)
class Solved:
    """What a solver returns: ``W`` of norm at most one, and the pairs' multipliers in any scale."""

    W: FloatArray
    equal_multipliers: FloatArray
    multipliers: FloatArray
    solver: str


@dataclass(frozen=True, eq=False)
class PairRows:
    """The matrices ``D_k`` of the pairs as flat rows, divided by the length of the longest.

    Attributes
    ----------
    equal, strict : csr_array, shapes (·, p q)
    shape : tuple of int
        (p, q).
    """

    equal: sparse.csr_array
    strict: sparse.csr_array
    shape: tuple[int, int]


Solver = Callable[[PairRows], Solved]


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
        An unknown norm, or pairs whose matrices have more than 2**28 entries.
    ConvergenceError
        The solver's bounds differ by more than 1e-6, as they do where data are not separable;
        ``.point`` is its solution.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.margin.largest_margin import max_margin_in_norm
    >>> max_margin_in_norm(ntpnb.datasets.toy(), "sum", None).solver
    'highs'
    """
    if norm not in SOLVERS:
        raise ValueError(f"norm is {norm!r}; it must be one of frobenius, {', '.join(SOLVERS)}")
    if order is None:
        order = token_priority(data)
    if len(order.strict) == 0:
        nothing = Solved(
            W=np.zeros(data.shape),
            equal_multipliers=np.zeros(len(order.equal)),
            multipliers=np.zeros(0),
            solver="no strict pairs",
        )
        return _scaled(data, order, nothing, norm_named(norm))
    rows = pair_rows(data, order)
    solved = with_ties_met(SOLVERS[norm](rows), rows)
    solution = _scaled(data, order, solved, norm_named(norm))
    if not solution.margin_gap <= LARGEST_GAP:
        raise ConvergenceError(
            f"undecided: {solution.solver} left the largest margin between "
            f"{solution.margin_bounds[0]:.6g} and {solution.margin_bounds[1]:.6g}",
            solution.margin_gap,
            solution,
        )
    return solution


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
    >>> from ntpnb.margin.largest_margin import pair_rows
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> pair_rows(data, ntpnb.token_priority(data)).strict.toarray().round(6).tolist()
    [[0.707107, -0.707107]]
    """
    require_listable(data, order, "this norm's program", 'use norm="frobenius"')
    pairs = EveryPair(data, order)
    rows = pairs.rows(np.arange(len(pairs.norms))) * (-1 / pairs.norms.max())
    num_ties = len(order.equal)
    return PairRows(rows[:num_ties], rows[num_ties:], data.shape)


# -- solvers --------------------------------------------------------------------------------------


def largest_margin_in_max_norm(
    rows: PairRows, tolerance: float = ACCEPT, seconds: float | None = None
) -> Solved:
    """Maximise ``s`` with ``|W_vi| ≤ 1``, by linear programming, in so many seconds at most.

    The unknowns are the entries of ``W`` and ``s``.
    """
    num_weights = rows.strict.shape[1]
    margins = _margins_at_least_s(-rows.strict)
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
    size = sparse.csr_array(np.append(np.ones(2 * num_weights), 0.0)[None])
    margins = sparse.vstack([_margins_at_least_s(-both_parts), size])
    ties = _without_s(sparse.hstack([rows.equal, -rows.equal]))
    result = _linear_program(margins, ties, [(0.0, None)] * (2 * num_weights), largest_sum=1.0)
    positive, negative = result.x[:-1].reshape(2, *rows.shape)
    return Solved(
        W=positive - negative,
        equal_multipliers=result.eqlin.marginals,
        multipliers=-result.ineqlin.marginals[:-1],
        solver="highs",
    )


def largest_margin_in_spectral_norm(rows: PairRows) -> Solved:
    """Maximise ``s`` with all singular values of ``W`` at most one."""
    return _largest_margin_of_singular_values(rows, "spectral")


def largest_margin_in_nuclear_norm(rows: PairRows) -> Solved:
    """Maximise ``s`` where the singular values of ``W`` sum to at most one.

    Where ``W = K Qᵀ``, the least ``(‖K‖² + ‖Q‖²)/2`` of the factors is this norm, so that this is
    the problem of attention with keys and queries (Tarzanagh, Li, Thrampoulidis & Oymak 2023,
    arXiv:2308.16898, Att-SVM).
    """
    return _largest_margin_of_singular_values(rows, "nuclear")


def _largest_margin_of_singular_values(
    rows: PairRows, norm: Literal["spectral", "nuclear"]
) -> Solved:
    """Maximise ``s`` with the norm of ``W`` at most one, by an interior point.

    Whether the data are separable at all is asked of the linear program first, which answers that
    to more digits. Solved for is ``Z`` in ``W = Q_p Z Q_qᵀ``, where the orthonormal columns of
    ``Q_p`` and ``Q_q`` span what the pairs' matrices reach: what a ``W`` has besides changes no
    margin, and leaving it out makes no singular value larger.
    """
    in_max_norm = largest_margin_in_max_norm(rows)
    if not (rows.strict @ in_max_norm.W.ravel()).min() > CLEAR_MARGIN:
        return in_max_norm  # too near to what no W separates; its bounds will say so
    left, right = _spanning(rows)
    reached = np.kron(left, right)
    strict, equal = rows.strict @ reached, rows.equal @ reached
    found = largest_margin(strict, equal, (left.shape[1], right.shape[1]), norm)
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
    "spectral": largest_margin_in_spectral_norm,
    "nuclear": largest_margin_in_nuclear_norm,
}
"""Solvers by the name of the norm; each takes the pairs' rows and nothing else."""


def _spanning(rows: PairRows) -> tuple[FloatArray, FloatArray]:
    """Orthonormal bases of the columns, and of the rows, of all pairs' matrices together."""
    p, q = rows.shape
    stacked = sparse.vstack([rows.equal, rows.strict]).toarray().reshape(-1, p, q)
    columns = np.swapaxes(stacked, 1, 2).reshape(-1, p)
    return orth(columns.T @ columns), orth(np.einsum("npq,npr->qr", stacked, stacked))


def _margins_at_least_s(negated: sparse.csr_array) -> sparse.csr_array:
    """Rows of ``s − ⟨D_k, W⟩ ≤ 0``."""
    ones = np.ones((negated.shape[0], 1))
    return sparse.csr_array(sparse.hstack([negated, ones]))


def _without_s(rows: sparse.csr_array) -> sparse.csr_array:
    """Rows in which the last unknown, ``s``, does not occur."""
    return sparse.csr_array(sparse.hstack([rows, sparse.csr_array((rows.shape[0], 1))]))


def _linear_program(
    margins: sparse.csr_array,
    ties: sparse.csr_array,
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
        By which constraints, and the dual's, may be missed. HiGHS takes no smaller one than the
        default; what it gives is measured anyway.
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


# -- what is measured of a solution ---------------------------------------------------------------


def with_ties_met(solved: Solved, rows: PairRows) -> Solved:
    """The nearest ``W`` that ties the equal pairs, which solvers meet to their tolerance only."""
    if rows.equal.shape[0] == 0:
        return solved
    flat = solved.W.ravel()
    correction = lsqr(rows.equal, -(rows.equal @ flat), atol=1e-15, btol=1e-15)[0]
    return replace(solved, W=(flat + correction).reshape(rows.shape))


def _scaled(
    data: NextTokenData, order: TokenPriority, solved: Solved, norm: MatrixNorm
) -> NormMarginSolution:
    """Scale ``W`` to margin one and the multipliers to the dual optimum, and measure both."""
    num_ties = len(order.equal)
    W = solved.W
    smallest = float(pair_margins(data, order, W)[num_ties:].min(initial=np.inf))
    if np.isfinite(smallest) and smallest > 0:
        W = W / smallest
    lam = np.maximum(solved.multipliers, 0.0)
    mu = solved.equal_multipliers
    dual_norm = float(norm.dual(combined_pairs(data, order, np.append(mu, lam))))
    scale = float(norm.of(W)) / dual_norm if dual_norm > 0 else 0.0
    return _measured(data, order, Solved(W, scale * mu, scale * lam, solved.solver), norm)


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
    scales = margin_scales(data, order, float(np.linalg.norm(W)))
    missed = np.abs(margins[:num_ties]) / scales[:num_ties]
    return NormMarginSolution(
        W=W,
        norm_name=norm.name,
        norm=size,
        min_margin=float(margins[num_ties:].min(initial=np.inf)),
        tie_residual=float(missed.max(initial=0.0)),
        dual_norm=dual_norm,
        duality_gap=float(gap),
        solver=solved.solver,
        multipliers=lam,
        equal_multipliers=mu,
        _data=data,
    )
