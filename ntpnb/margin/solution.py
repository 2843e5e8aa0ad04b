"""Max-margin solutions, whose residuals are computed from the data and the multipliers alone."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from ntpnb.basics.saving import Result
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import VANISHES
from ntpnb.basics.validation import FloatArray, IntArray, as_array, first_index
from ntpnb.margin.normal_form import PairMultipliers
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import (
    Collapse,
    SharedMultipliers,
    collapsed,
    not_collapsed,
)
from ntpnb.problem.order import TokenPriority, over_losers, token_priority
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
from ntpnb.problem.table import entries_of, row_slices

METHOD = "growing-set"
"""What :attr:`MarginSolution.solver` says of a solution that :func:`max_margin` found."""


@dataclass(frozen=True, eq=False, repr=False)
class MarginSolution(Result):
    """The smallest ``W`` with margin one, and its proof.

    With multipliers ``λ_k ≥ 0`` of the strict pairs ``k = (g, i, j)`` and ``μ_k`` of the equal
    ones, ``W = Σ_strict λ_k (t_i − t_j) h_gᵀ + Σ_equal μ_k (t_i − t_j) h_gᵀ``. This holds by
    construction, to the last digit; that ``W`` is optimal holds up to ``kkt_residual``. At the
    optimum the second sum makes the ties hold, so that
    ``W = (I − P_F) Σ_strict λ_k (t_i − t_j) h_gᵀ`` with ``P_F`` the projection onto the span of the
    equal pairs' ``(t_i − t_j) h_gᵀ``.

    Residuals are relative. Let ``w_k = (t_i − t_j) · W h_g`` be the margin of a pair and
    ``σ_k = max(1, ‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖))`` its scale: up to a small factor, the size of the
    products in ``w_k``, which are rounded relative to it. Long ``t_i − t_j`` are granted no more.

    Attributes
    ----------
    W : ndarray, shape (p, q)
    norm : float
        Frobenius norm of ``W``, or ``‖W‖_D`` in a metric.
    min_margin : float
        Smallest ``w_k`` over strict pairs; ``inf`` where there are none.
    kkt_residual : float
        The largest of ``e_k / σ_k`` and ``e_k − 0.1``, where ``e_k`` is ``|w_k|`` for equal and
        ``1 − w_k`` for strict pairs, and of ``Σ λ_k |w_k − 1| / σ_k / Σ λ_k``. As ``σ_k`` grows
        with ``‖W‖``, it is the second that forbids a large ``W`` to miss a constraint by more than
        a tenth, however long the embeddings are.
    duality_gap : float
        ``|‖W‖² − Σ λ_k| / (‖W‖²/2)``: primal minus dual value, relative to the primal one.
    tie_residual : float
        The largest ``|w_k|`` of an equal pair, relative to ``‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖)``.
    relative_margin : float
        The smallest ``w_k`` of a strict pair, relative to the same; ``inf`` where there are none.
    solver : str
        The method that found it, or ``"no strict pairs"``.
    strict_multipliers : ndarray, shape (len(order.strict),), or SharedMultipliers
        :attr:`multipliers`, or what they are formed from where data list no strict pairs.
    equal_multipliers : ndarray, shape (len(order.equal),)
        ``μ``, one per row of the order's ``equal``.
    metric : ndarray, shape (p, q), or None
        ``D``, where ``W`` is the smallest in the length ``‖W‖_D = (Σ D_vi W_vi²)^½``. Then ``W`` is
        what the multipliers combine to, divided by ``D`` entry by entry, and ``‖W‖_D`` stands for
        ``‖W‖`` wherever bounds and values are compared; in ``σ_k`` it is Frobenius' norm.

    References
    ----------
    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM.

    Examples
    --------
    >>> import ntpnb
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
    >>> svm.W.shape
    (5, 2)
    >>> round(svm.min_margin, 6)
    1.0
    >>> svm.kkt_residual < 1e-10
    True
    """

    W: FloatArray
    norm: float
    min_margin: float
    kkt_residual: float
    duality_gap: float
    tie_residual: float
    relative_margin: float
    solver: str
    strict_multipliers: FloatArray | SharedMultipliers
    equal_multipliers: FloatArray
    metric: FloatArray | None
    _data: NextTokenData

    def _checked(self) -> "MarginSolution":
        """The solution that a file describes, measured anew on its data; see ``measured_on``."""
        return measured_on(self._data, self)

    @cached_property
    def multipliers(self) -> FloatArray:
        """``λ ≥ 0``, one per row of the order's ``strict``, shape (len(order.strict),).

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.NextTokenData([[1.0]], [[1, 0, 0]]))
        >>> svm.multipliers.round(6).tolist()  # their sum is ‖W‖²
        [0.333333, 0.333333]
        """
        if isinstance(self.strict_multipliers, SharedMultipliers):
            return self.strict_multipliers.dense()
        return self.strict_multipliers

    @property
    def total_multiplier(self) -> float:
        """``Σ λ_k`` over all strict pairs, which is ``‖W‖²`` at the optimum.

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
        >>> round(svm.total_multiplier / svm.norm**2, 9)
        1.0
        """
        strict = self.strict_multipliers
        return strict.total if isinstance(strict, SharedMultipliers) else float(strict.sum())

    @property
    def margin_bounds(self) -> tuple[float, float]:
        """A lower and an upper bound of the largest margin of a ``W'`` of norm at most one.

        That is the margin of ``W^mm / ‖W^mm‖``, and zero where nothing separates the data.

        ``W`` itself has the margin ``min_margin / ‖W‖``, which counts where it :attr:`meets_ties`;
        else the lower bound is zero. No ``W'`` that ties the equal pairs has more than
        ``‖W‖ / Σ λ_k``, since ``Σ λ_k`` times its margin is at most ``⟨W', W⟩ ≤ ‖W‖``. Both hold
        for any multipliers, also for those of a search that was stopped: the upper one up to
        rounding, the lower one up to what ``W`` misses of the ties.

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
        >>> [round(bound, 6) for bound in svm.margin_bounds], round(1 / svm.norm, 6)
        ([0.441942, 0.441942], 0.441942)
        """
        total = self.total_multiplier
        return margin_bounds(self.norm, self.norm, total, self.min_margin, ties_met=self.meets_ties)

    @property
    def meets_ties(self) -> bool:
        """Whether some ``W`` near this one meets all ties and has positive margins.

        It does unless ties are independent by less than 1e-8: their matrices of norm one have a
        singular value that is smaller, and not zero. Such ties count as dependent.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.max_margin(ntpnb.datasets.toy()).meets_ties
        True
        """
        return ties_are_met(self.tie_residual, self.relative_margin)

    @property
    def margin_gap(self) -> float:
        """How much the margin's bounds differ, relative to the upper one; one if the lower is zero.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.max_margin(ntpnb.datasets.toy()).margin_gap < 1e-12
        True
        """
        return relative_gap(self.margin_bounds)


def certify(
    data: NextTokenData,
    order: TokenPriority,
    multipliers: PairMultipliers,
    multiplicity: IntArray | None = None,
    metric: FloatArray | None = None,
) -> MarginSolution:
    """Compute the ``W`` of the multipliers of all pairs, and how far it is from the solution.

    Nothing else is taken over from the method that found the multipliers. They are feasible for the
    dual once negative ones count as zero, and ``W`` is stationary by construction; so the
    constraints and complementarity are all that the residuals have to measure.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``.
    multipliers : PairMultipliers
        Negative ones of strict pairs count as zero.
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each one-hot token stands for. Multipliers are then sums over these, rows
        of ``W`` what each of them has, and the norm counts all. Default: ones.
    metric : ndarray, shape (p, q), optional
        What the squares of the entries of ``W`` are weighted by, where each token stands for
        itself. Default: ones.

    Returns
    -------
    MarginSolution
        Its ``strict_multipliers`` are of the kind of the multipliers given.
    """
    mu = multipliers.equal
    strict = multipliers.strict
    if isinstance(strict, csr_array):
        position, loser, value = entries_of(strict)
        order = order.with_strict(over_losers(order, position, loser))
        lam = np.maximum(value, 0.0)
    else:
        lam = strict = np.maximum(strict, 0.0)
    weights: FloatArray | IntArray | float = 1.0  # of the squares of the entries of W
    if multiplicity is not None:
        weights = multiplicity[:, None]
    if metric is not None:
        weights = metric
    W = combined_pairs(data, order, np.append(mu, lam)) / weights
    if isinstance(strict, csr_array):
        order, lam = _with_worst_pairs(data, order, W, lam)

    num_ties = len(order.equal)
    norm = np.linalg.norm(W * np.sqrt(weights))
    size = norm if metric is None else np.linalg.norm(W)
    margins = pair_margins(data, order, W)
    missed = np.append(np.abs(margins[:num_ties]), 1 - margins[num_ties:])
    sizes = margin_sizes(data, order, float(size))
    relative = missed / np.maximum(1.0, sizes)
    by_size = relative_margins(margins, sizes, num_ties)
    violation = float(relative.max(initial=0.0))
    beyond_tenth = float(missed.max(initial=0.0)) - 0.1
    total = float(lam.sum())
    complementarity = float(lam @ np.abs(relative[num_ties:])) / (total or 1.0)
    # The primal value is ‖W‖²/2, the dual one Σ λ_k − ‖W‖²/2.
    squared_norm = norm**2
    gap = abs(squared_norm - total) / (squared_norm / 2 or 1.0)
    return MarginSolution(
        W=W,
        norm=float(norm),
        min_margin=float(margins[num_ties:].min(initial=np.inf)),
        kkt_residual=max(violation, beyond_tenth, complementarity),
        duality_gap=float(gap),
        tie_residual=by_size.of_ties,
        relative_margin=by_size.of_strict,
        solver=METHOD,
        strict_multipliers=strict,
        equal_multipliers=mu,
        metric=metric,
        _data=data,
    )


def as_metric(name: str, metric: ArrayLike | None, data: NextTokenData) -> FloatArray | None:
    """Return a metric as an array of positive numbers, shape (p, q), or None where there is none.

    Raises
    ------
    TypeError, ValueError
        It is none.
    """
    if metric is None:
        return None
    D = as_array(name, metric, ndim=2, shape=data.shape)
    if not (D > 0).all():
        row, column = first_index(D <= 0)
        raise ValueError(f"{name}[{row}, {column}] is {D[row, column]:g}; it must be positive")
    return D


def measured_on(data: NextTokenData, solution: MarginSolution) -> MarginSolution:
    """Measure a solution anew, of which only ``W`` and the multipliers are taken over.

    Raises
    ------
    ValueError
        They do not fit the data, or each other.
    """
    as_array("MarginSolution.W", solution.W, ndim=2, shape=data.shape)
    metric = as_metric("MarginSolution.metric", solution.metric, data)
    stored = solution.strict_multipliers
    mu = solution.equal_multipliers
    collapse = not_collapsed(data)
    if isinstance(stored, SharedMultipliers) and stored.table.shape[1] < data.vocab_size:
        collapse = collapsed(data)
    order = token_priority(collapse.data)
    strict = stored.table if isinstance(stored, SharedMultipliers) else stored
    require_multipliers("MarginSolution", order, strict, mu)
    if isinstance(strict, csr_array):
        strict = csr_array(strict.multiply(np.bincount(collapse.kept)))
    multipliers = PairMultipliers(strict, mu)
    found = certify(collapse.data, order, multipliers, collapse.multiplicity, metric)
    again = restored(found, collapse)
    longest = float(np.linalg.norm(data.group_embeddings, axis=1).max())
    terms = max(1.0, longest) * (again.total_multiplier + float(np.abs(mu).sum()))
    difference = again.W - solution.W
    if metric is not None:
        difference = difference * metric
    if not np.abs(difference).max() <= VANISHES * terms:
        raise ValueError("MarginSolution.W is not what its multipliers combine to")
    if isinstance(stored, SharedMultipliers):
        stored = collapse.shared_multipliers(stored.table)
    return replace(again, W=solution.W, solver=solution.solver, strict_multipliers=stored)


def _with_worst_pairs(
    data: NextTokenData, order: TokenPriority, W: FloatArray, lam: FloatArray
) -> tuple[TokenPriority, FloatArray]:
    """The strict pairs that have multipliers and the worst of each group, with all multipliers.

    The others have no part in ``W``, and margins at least as large.
    """
    num_groups, vocab_size = order.shape
    table = order.sparse_components
    worst = np.empty(num_groups, dtype=np.intp)
    for rows in row_slices(order.shape):
        scores = product(data.group_embeddings[rows], W.T)
        listed = slice(table.indptr[rows.start], table.indptr[rows.stop])
        row = np.repeat(np.arange(len(scores)), np.diff(table.indptr[rows.start : rows.stop + 1]))
        scores[row, table.indices[listed]] = -np.inf
        worst[rows] = scores.argmax(axis=1)
    open_groups = np.flatnonzero(np.diff(table.indptr) < vocab_size)
    position = np.append(order.positions(order.strict), open_groups)
    keys = position * vocab_size + np.append(order.strict[:, 2], worst[open_groups])
    keys, first = np.unique(keys, return_index=True)  # of two with one name the first counts
    lam = np.append(lam, np.zeros(len(open_groups)))[first]
    return order.with_strict(over_losers(order, *np.divmod(keys, vocab_size))), lam


def restored(solution: MarginSolution, collapse: Collapse) -> MarginSolution:
    """The solution of the whole problem that one of the collapsed problem stands for."""
    table = solution.strict_multipliers
    if not isinstance(table, csr_array):
        return solution
    counts = np.bincount(collapse.kept)[table.indices]
    each = csr_array((table.data / counts, table.indices, table.indptr), shape=table.shape)
    return replace(
        solution,
        W=solution.W[collapse.kept],
        strict_multipliers=collapse.shared_multipliers(each),
        _data=collapse.whole,
    )
