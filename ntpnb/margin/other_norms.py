"""The max-margin problem in other norms than Frobenius', and its proof.

For a norm ``N`` the problem is to minimise ``½ N(W)²`` while equal pairs tie and strict pairs keep
a margin of at least one. Each pair ``k = (g, i, j)`` stands for the matrix
``D_k = (t_i − t_j) h_gᵀ``, and ``M = Σ_strict λ_k D_k + Σ_equal μ_k D_k``. The dual problem is

    maximise Σ λ_k − ½ N_*(M)²  subject to  λ ≥ 0,

because ``Σ λ_k ≤ ⟨M, W⟩ ≤ N(W) N_*(M)`` for every ``W`` that meets the constraints, with equality
at the optimum. Solvers are asked for the largest margin of a ``W`` of norm one
(:mod:`ntpnb.norms.largest_margin`), which exists whether or not the data are separable. What they
return is not believed: the solution is measured from the data, the matrix and the multipliers
alone.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Result
from ntpnb.basics.tolerances import VANISHES
from ntpnb.basics.validation import FloatArray, as_array
from ntpnb.margin.pair_program import EveryPair, require_listable
from ntpnb.norms.largest_margin import SOLVERS, PairRows, Solved, with_ties_met
from ntpnb.norms.matrix_norms import MatrixNorm, norm_named
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
        A key of :data:`~ntpnb.norms.largest_margin.SOLVERS`.
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
    if not order.has_strict_pairs:
        nothing = Solved(
            W=np.zeros(data.shape),
            equal_multipliers=np.zeros(len(order.equal)),
            multipliers=np.zeros(0),
            solver="no strict pairs",
        )
        return _measured(data, order, nothing, norm_named(norm))
    rows = pair_rows(data, order)
    solved = with_ties_met(SOLVERS[norm](rows), rows)
    num_ties = len(order.equal)
    solved = replace(
        solved,
        equal_multipliers=solved.equal_multipliers / rows.lengths[:num_ties],
        multipliers=np.maximum(solved.multipliers / rows.lengths[num_ties:], 0.0),
    )
    solution = _scaled(_measured(data, order, solved, norm_named(norm)), order)
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


def _scaled(found: NormMarginSolution, order: TokenPriority) -> NormMarginSolution:
    """The same with ``W`` scaled to margin one and the multipliers to the dual optimum."""
    norm = norm_named(found.norm_name)
    W = found.W / (found.min_margin if found.min_margin > 0 else 1.0)
    scale = float(norm.of(W)) / found.dual_norm if found.dual_norm > 0 else 0.0
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
