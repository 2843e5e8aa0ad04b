"""Max-margin logits where features train too: the smallest nuclear norm with margin one.

Let ``L`` be a table of logits, contexts × tokens, with no embeddings fixed. The problem is

    minimise ``‖L‖_*``  subject to  ``L_jz = L_jz'``  and  ``L_jz − L_jv ≥ 1``

for in-support tokens ``z, z'`` and out-of-support tokens ``v`` of each context ``j``. Its dual is

    maximise ``⟨A, S⟩``  subject to  ``Σ_v A_jv = 0``, ``A_jv ≤ 0`` out of support, ``‖A‖_op ≤ 1``

with ``S`` the table of supports; ``−A_jv`` are the multipliers of the margins. Any ``A`` that meets
the three conditions bounds the norm from below, since
``‖L‖_* ≥ ⟨A, L⟩ ≥ Σ_j Σ_v −A_jv = ⟨A, S⟩`` for every feasible ``L``. So a pair of an ``L`` and an
``A`` is its own proof.

The method: Newton's on the dual with logarithmic barriers, down to weights that float64 bears, then
Gauss–Newton on the optimality conditions of the pairs and singular values that turned out active.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import lstsq

from ntpnb.basics.saving import Result
from ntpnb.basics.tolerances import ACCEPT, NEGLIGIBLE
from ntpnb.basics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    as_floats,
    counted,
    first_index,
)
from ntpnb_book.features.spectral_ball import (
    Derivatives,
    barrier_gradient,
    last_centre,
    orthogonal_to,
    require_gap,
    require_small,
)

POLISHED_GAP = 1e-6  # duality gap relative to the norm, with which logits are accepted

__all__ = ["CentredSupport", "LogitMargin", "centred_support", "logit_margin"]


@dataclass(frozen=True, eq=False, repr=False)
class LogitMargin(Result):
    """Logits of smallest nuclear norm with margin one, and their proof.

    Both sides are feasible up to rounding, so that ``bound ≤ ‖L‖_*min ≤ norm``.

    Attributes
    ----------
    logits : ndarray, shape (m, V)
        ``L``; each row sums to zero.
    norm : float
        Its nuclear norm, the sum of its singular values.
    min_margin : float
        Smallest ``L_jz − L_jv`` over in-support ``z`` and out-of-support ``v``; ``inf`` where no
        token is out of a support.
    tie_residual : float
        Largest ``|L_jz − L_jz'|`` of two in-support tokens.
    certificate : ndarray, shape (m, V)
        ``A``. The multiplier of the pair of context ``j`` and out-of-support token ``v`` is
        ``−A_jv``.
    operator_norm : float
        The largest singular value of ``A``: at most one, up to rounding.
    sign_residual : float
        Largest out-of-support entry of ``A``, or zero where all are negative.
    row_residual : float
        Largest ``|Σ_v A_jv|``.
    bound : float
        ``⟨A, S⟩ / max(1, ‖A‖_op)``: no feasible logits have a smaller nuclear norm.
    duality_gap : float
        ``1 − bound / norm``, zero where the norm is.

    References
    ----------
    Zhao, Behnia, Vakilian and Thrampoulidis (arXiv:2408.15417) state the problem.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> best = features.logit_margin(ntpnb.datasets.toy().support)
    >>> round(best.norm, 6), best.duality_gap < 1e-9
    (2.965938, True)
    """

    logits: FloatArray
    norm: float
    min_margin: float
    tie_residual: float
    certificate: FloatArray
    operator_norm: float
    sign_residual: float
    row_residual: float
    bound: float
    duality_gap: float


@dataclass(frozen=True, eq=False, repr=False)
class CentredSupport(Result):
    """The centred support matrix, and whether it is the nuclear-norm max-margin solution.

    The matrix is feasible, and all its margins are one. With its singular value decomposition
    ``U Σ Vᵀ`` it is a solution if and only if some ``U Vᵀ + Z`` with ``Uᵀ Z = 0``, ``Z V = 0``,
    ``‖Z‖_op ≤ 1`` and rows that sum to zero has no positive entry out of support. Hence it is one
    if ``U Vᵀ`` has none, and the only one if all entries are negative there. Supports with all
    tokens count for nothing in what follows. If the matrix has as many independent rows as there
    are distinct supports, or one independent column less than there are distinct columns of
    supports, then only ``Z = 0`` is left, and the condition decides.

    Attributes
    ----------
    logits : ndarray, shape (m, V)
        ``S − |S_j| / V``, the Frobenius max-margin logits.
    norm : float
        Its nuclear norm.
    certificate : ndarray, shape (m, V)
        ``U Vᵀ``.
    largest_outside : float
        Its largest entry out of support; ``-inf`` where no token is out of a support.
    decisive : bool
        Whether ``Z = 0`` is the only choice.
    is_solution : bool or None
        None where ``largest_outside`` is positive and does not decide. Entries up to 1e-9 count as
        zero.

    References
    ----------
    Zhao et al. (arXiv:2408.15417) use the matrix as a proxy of the solution. For one-hot labels
    Thrampoulidis, Kini, Vakilian and Behnia (arXiv:2208.05512) show that it is the solution.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> features.centred_support(ntpnb.datasets.toy().support).is_solution
    True
    >>> features.centred_support([[0, 0, 1, 1], [0, 1, 0, 0], [0, 1, 0, 1]]).is_solution
    False
    """

    logits: FloatArray
    norm: float
    certificate: FloatArray
    largest_outside: float
    decisive: bool
    is_solution: bool | None


@dataclass(frozen=True)
class _Classes:
    """Supports without repetitions: equal rows and equal columns are one each.

    Some solution is equal on equal rows and on equal columns (every one is, see the proof in the
    book), so nothing is lost. With multiplicities ``n`` and ``c`` its nuclear norm is that of the
    table of classes with entries scaled by ``√(n_k c_l)``.

    Attributes
    ----------
    support : ndarray of bool, shape (K, C)
        Without rows where every token is in support, for which logits are zero.
    scale : ndarray, shape (K, C)
        ``√(n_k c_l)``.
    row_class : ndarray of int, shape (m,)
        -1 for the rows left out.
    column_class : ndarray of int, shape (V,)
    column_count : ndarray, shape (C,)
    """

    support: BoolArray
    scale: FloatArray
    row_class: IntArray
    column_class: IntArray
    column_count: FloatArray

    @classmethod
    def of(cls, support: BoolArray) -> "_Classes":
        """Find the classes of a table of supports."""
        partial = ~support.all(axis=1)
        rows, row_of, n = np.unique(
            support[partial], axis=0, return_inverse=True, return_counts=True
        )
        columns, column_of, c = np.unique(rows, axis=1, return_inverse=True, return_counts=True)
        row_class = np.full(len(support), -1)
        row_class[partial] = row_of.ravel()
        scale = np.sqrt(np.outer(n, c))
        return cls(columns, scale, row_class, column_of.ravel(), c.astype(float))

    def spread(self, table: FloatArray) -> FloatArray:
        """Table of classes, scaled, to one of contexts and tokens; left-out rows are zero."""
        full = (table / self.scale)[self.row_class][:, self.column_class]
        full[self.row_class < 0] = 0.0
        return full

    def centred(self) -> FloatArray:
        """The centred supports of the classes, scaled."""
        mean = self.support @ self.column_count / self.column_count.sum()
        centred: FloatArray = self.scale * (self.support - mean[:, None])
        return centred


def as_support(name: str, value: npt.ArrayLike) -> BoolArray:
    """Return ``value`` as a table of supports with no empty row, or explain.

    Parameters
    ----------
    name : str
        The argument's name.
    value : array_like, shape (m, V)
        Zeros and ones.

    Returns
    -------
    ndarray of bool, shape (m, V)

    Raises
    ------
    ValueError
        Another number of dimensions, other numbers, or a row without a token.
    """
    table = as_floats(name, value)
    if table.ndim != 2:
        raise ValueError(
            f"{name} has {counted(table.ndim, 'dimension')}; it needs 2, contexts × tokens"
        )
    odd = (table != 0) & (table != 1)
    if odd.any():
        where = first_index(odd)
        raise ValueError(f"{name}{list(where)} is {table[where]:g}; entries must be 0 or 1")
    support: BoolArray = table == 1
    empty = ~support.any(axis=1)
    if empty.any():
        raise ValueError(f"{name} row {int(np.argmax(empty))} is all zero; its support is empty")
    return support


def centred_support(support: npt.ArrayLike) -> CentredSupport:
    """Centre the supports, and decide where possible whether that solves the nuclear-norm problem.

    Parameters
    ----------
    support : array_like of bool, shape (m, V)
        Which tokens may follow each context; no row is empty.

    Returns
    -------
    CentredSupport

    Raises
    ------
    ValueError
        Another shape, entries other than 0 and 1, or an empty row.

    Examples
    --------
    >>> from ntpnb_book import features
    >>> features.centred_support([[1, 0], [0, 1]]).logits.tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    table = as_support("support", support)
    logits = table - table.mean(axis=1, keepdims=True)
    left, values, right = np.linalg.svd(logits, full_matrices=False)
    rank = int(np.sum(values > ACCEPT * max(1.0, values.max(initial=0.0))))
    certificate = left[:, :rank] @ right[:rank]
    classes = _Classes.of(table)
    num_rows, num_columns = classes.support.shape
    decisive = rank == min(num_rows, num_columns - 1) or rank == 0
    largest = float(certificate[~table].max(initial=-np.inf))
    meets_signs = largest <= NEGLIGIBLE
    return CentredSupport(
        logits=logits,
        norm=float(values.sum()),
        certificate=certificate,
        largest_outside=largest,
        decisive=decisive,
        is_solution=meets_signs if meets_signs or decisive else None,
    )


def logit_margin(support: npt.ArrayLike) -> LogitMargin:
    """Solve for the logits of smallest nuclear norm with equal in-support scores and margin one.

    A solution always exists: the centred support matrix is feasible. Contexts with equal supports
    have equal logits in every solution.

    Parameters
    ----------
    support : array_like of bool, shape (m, V)
        Which tokens may follow each context; no row is empty.

    Returns
    -------
    LogitMargin

    Raises
    ------
    ValueError
        Another shape, entries other than 0 and 1, an empty row, or more than 1500 pairs of a
        distinct support and a distinct column, for which this dense method is too slow.
    ConvergenceError
        The duality gap stayed above 1e-6.

    References
    ----------
    The problem: Zhao, Behnia, Vakilian and Thrampoulidis, arXiv:2408.15417.

    Examples
    --------
    Four words, three contexts; the nuclear norm shrinks where logits are not the centred supports:

    >>> from ntpnb_book import features
    >>> support = [[0, 0, 1, 1], [0, 1, 0, 0], [0, 1, 0, 1]]
    >>> best = features.logit_margin(support)
    >>> plain = features.centred_support(support)
    >>> round(best.norm, 4), round(plain.norm, 4)
    (2.633, 2.6583)
    """
    table = as_support("support", support)
    classes = _Classes.of(table)
    if classes.support.size == 0:
        zeros = np.zeros(table.shape)
        return _certified(table, zeros, zeros)
    rows, columns = classes.support.shape
    require_small(
        f"support has {rows} distinct rows and {columns} distinct columns", (rows, columns)
    )
    point = _central_point(classes)
    found = _certified(table, classes.spread(point.logits), classes.spread(point.dual))
    best = None
    while best is None or found.duality_gap < best.duality_gap:
        best = found
        point = _polished(classes, point)
        found = _certified(table, classes.spread(point.logits), classes.spread(point.dual))
    require_gap(best.duality_gap, POLISHED_GAP, best)
    return best


@dataclass(frozen=True)
class _Point:
    """A primal and a dual table of classes, both scaled, and the factors of the primal one.

    Attributes
    ----------
    logits : ndarray, shape (K, C)
    dual : ndarray, shape (K, C)
    left, right : ndarray, shapes (K, r) and (C, r)
        With ``logits = left rightᵀ``.
    active : ndarray of bool, shape (K, C)
        In-support tokens, and out-of-support ones of margin one.
    """

    logits: FloatArray
    dual: FloatArray
    left: FloatArray
    right: FloatArray
    active: BoolArray


def _central_point(classes: _Classes) -> _Point:
    """Follow the barriers' central path to its last weight, and read off what is active there."""
    support, scale = classes.support, classes.scale
    basis = orthogonal_to(np.sqrt(classes.column_count))
    outside = ~support

    def entries(A: FloatArray, weight: float) -> Derivatives | None:
        # <A, S> + μ Σ log(−A_kl) over pairs out of support
        multipliers = -A[outside]
        if multipliers.min() <= 0:
            return None
        first = scale * support
        first[outside] = -weight / multipliers
        second = np.zeros(A.shape)
        second[outside] = -weight / multipliers**2
        return Derivatives(first, second)

    start = classes.centred() @ basis
    B, mu = last_centre(entries, start / (2 * np.linalg.norm(start, 2)), basis)
    dual = B @ basis.T
    logits = mu * barrier_gradient(B) @ basis.T
    left, values, right = np.linalg.svd(logits, full_matrices=False)
    # A singular value of L is alive where it exceeds how far that of A is from one.
    dual_values = np.linalg.svd(dual, compute_uv=False)
    alive = values > 1 - dual_values
    root = np.sqrt(values[alive])
    # The barrier makes margins exceed one by μ over the multiplier, in units of the scale.
    active = support | (-dual * scale > np.sqrt(mu))
    return _Point(logits, dual, left[:, alive] * root, right[alive].T * root, active)


def _polished(classes: _Classes, point: _Point) -> _Point:
    """One Gauss–Newton step on ``X = A Y``, ``Y = Aᵀ X``, ``A √c = 0`` and the active margins.

    The unknowns are the factors ``X Yᵀ`` of the scaled logits, the active entries of ``A``, and
    each row's in-support score ``b``. Factors are determined up to a rotation; the smallest step
    is taken.
    """
    X, Y, scale = point.left, point.right, classes.scale
    num_rows = len(scale)
    rank = X.shape[1]
    rows, columns = np.nonzero(point.active)
    A = np.where(point.active, point.dual, 0.0)
    root = np.sqrt(classes.column_count)
    scores = (X @ Y.T)[rows, columns] / scale[rows, columns]
    outside = ~classes.support[rows, columns]
    b = np.array([np.mean((scores + outside)[rows == k]) for k in range(num_rows)])

    ends = np.cumsum([X.size, Y.size, len(rows), num_rows])
    of_X = np.arange(ends[0]).reshape(X.shape)
    of_Y = np.arange(ends[0], ends[1]).reshape(Y.shape)
    of_A = np.arange(ends[1], ends[2])
    of_b = np.arange(ends[2], ends[3])
    system = np.zeros((ends[3], ends[3]))
    # X − A Y = 0
    system[of_X, of_X] = 1.0
    for i in range(rank):
        system[np.ix_(of_X[:, i], of_Y[:, i])] = -A
        system[np.ix_(of_Y[:, i], of_X[:, i])] = -A.T
        system[of_X[rows, i], of_A] = -Y[columns, i]
        system[of_Y[columns, i], of_A] = -X[rows, i]
    # Y − Aᵀ X = 0
    system[of_Y, of_Y] = 1.0
    # x_k · y_l = scale (b_k − outside), one for each active entry
    for i in range(rank):
        system[of_A, of_X[rows, i]] = Y[columns, i]
        system[of_A, of_Y[columns, i]] = X[rows, i]
    system[of_A, of_b[rows]] = -scale[rows, columns]
    # Σ_l A_kl √c_l = 0
    system[of_b[rows], of_A] = root[columns]
    weights = scale[rows, columns]
    residual = np.concatenate(
        [
            (X - A @ Y).ravel(),
            (Y - A.T @ X).ravel(),
            weights * (scores - b[rows] + outside),
            A @ root,
        ]
    )
    step = lstsq(system, -residual, cond=1e-11, lapack_driver="gelsy")[0]
    left = X + step[of_X]
    right = Y + step[of_Y]
    dual = A.copy()
    dual[rows, columns] += step[of_A]
    return _Point(left @ right.T, dual, left, right, point.active)


def _certified(support: BoolArray, logits: FloatArray, dual: FloatArray) -> LogitMargin:
    """Make both sides feasible, and measure them from the supports alone."""
    L = _feasible_logits(support, logits)
    A = _feasible_dual(support, dual)
    norm = float(np.linalg.norm(L, "nuc")) if L.size else 0.0
    operator_norm = float(np.linalg.norm(A, 2)) if A.size else 0.0
    bound = float(np.sum(A[support])) / max(1.0, operator_norm)
    inside_low = np.where(support, L, np.inf).min(axis=1)
    inside_high = np.where(support, L, -np.inf).max(axis=1)
    outside_high = np.where(support, -np.inf, L).max(axis=1)
    return LogitMargin(
        logits=L,
        norm=norm,
        min_margin=float((inside_low - outside_high).min(initial=np.inf)),
        tie_residual=float((inside_high - inside_low).max(initial=0.0)),
        certificate=A,
        operator_norm=operator_norm,
        sign_residual=float(A[~support].max(initial=0.0)),
        row_residual=float(np.abs(A.sum(axis=1)).max(initial=0.0)),
        bound=bound,
        duality_gap=1 - bound / norm if norm > 0 else 0.0,
    )


def _feasible_logits(support: BoolArray, logits: FloatArray) -> FloatArray:
    """Average the ties, scale up to margin one, centre the rows."""
    size = support.sum(axis=1, keepdims=True)
    mean = np.where(support, logits, 0.0).sum(axis=1, keepdims=True) / size
    tied = np.where(support, mean, logits)
    margins = (mean - tied)[~support]
    if margins.size and margins.min() > 0:
        tied = tied / margins.min()
    centred: FloatArray = tied - tied.mean(axis=1, keepdims=True)
    return centred


def _feasible_dual(support: BoolArray, dual: FloatArray) -> FloatArray:
    """Drop positive entries out of support, let rows sum to zero, scale into the ball."""
    A = np.where(support, dual, np.minimum(dual, 0.0))
    missing = A.sum(axis=1, keepdims=True) / support.sum(axis=1, keepdims=True)
    A = np.where(support, A - missing, A)
    if A.size:
        A = A / max(1.0, float(np.linalg.norm(A, 2)))
    return A
