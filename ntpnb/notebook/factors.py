"""Attention whose matrix is a product of keys and queries, ``W = K Qᵀ``: training, and its goal.

`descend_factors` trains ``K`` and ``Q``. The least ``(‖K‖² + ‖Q‖²)/2`` of all factors of a matrix
is its nuclear norm, so that Graph-SVM with this norm is where the direction should tend;
`nuclear_margin` solves it, with a bound that proves how well.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.errors import ConvergenceError
from ntpnb.extras import needs_extra
from ntpnb.notebook.vocabulary import pair_matrices
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy
from ntpnb.problem.order import token_priority
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.descent import iterate, record_grid
from ntpnb.training.optimizers import NGD
from ntpnb.validation import as_floats

__all__ = ["FactorsTrace", "NuclearMargin", "descend_factors", "nuclear_margin"]


@dataclass(frozen=True)
class FactorsTrace:
    """Recorded factors of training ``W = K Qᵀ``, n problems at once.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
    K, Q : ndarray, shapes (n, r, p, k) and (n, r, q, k)
    W : ndarray, shape (n, r, p, q)
    loss : ndarray, shape (n, r)
        In nats.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.notebook import descend_factors
    >>> data = ntpnb.datasets.figure2()
    >>> run = descend_factors([data], 0.1, 5, np.ones((1, 8, 2)), [5])
    >>> run.K.shape, run.Q.shape, run.W.shape
    ((1, 1, 4, 2), (1, 1, 4, 2), (1, 1, 4, 4))
    """

    steps: IntArray
    K: FloatArray
    Q: FloatArray
    W: FloatArray
    loss: FloatArray


def descend_factors(
    problems: Sequence[NextTokenData],
    step: float,
    steps: int,
    init: ArrayLike,
    record: ArrayLike | None = None,
) -> FactorsTrace:
    """Train the factors of ``W = K Qᵀ`` on the cross-entropy by normalized gradient descent.

    The gradient along both factors together is divided by its norm. Since only its direction
    counts, it is computed from attention on a logarithmic scale, relative to the largest attention
    off the labels: training goes on where that is smaller than any floating-point number.

    Parameters
    ----------
    problems : sequence of n NextTokenData from ``from_attention``, of equal shapes
    step : float
        Length of every step, positive.
    steps : int
    init : array_like, shape (n, p + q, k)
        The rows of ``K`` and below them those of ``Q``. Zero is a stationary point.
    record : increasing sequence of int, optional
        Default: about 200 steps on a logarithmic grid.

    Returns
    -------
    FactorsTrace

    Raises
    ------
    ValueError
        No problem, problems of different shapes, data without token embeddings or one-hot labels,
        or an ``init`` of the wrong shape.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.notebook import descend_factors
    >>> data = ntpnb.datasets.figure2()
    >>> start = np.random.default_rng(0).standard_normal((1, 8, 4))
    >>> run = descend_factors([data], 0.1, 50, start)
    >>> print(run.loss[0, -1] < run.loss[0, 0])
    True
    """
    batch = _FactorsBatch(problems)
    start = as_floats("init", init)
    p, q = problems[0].shape
    if start.ndim != 3 or start.shape[:2] != (len(problems), p + q):
        raise ValueError(f"init has shape {start.shape}; it needs ({len(problems)}, {p + q}, rank)")
    grid = record_grid(steps, record)
    recorded = iterate(batch, NGD(step), grid, start.copy())
    K = recorded[..., :p, :]
    Q = recorded[..., p:, :]
    W = K @ np.swapaxes(Q, -1, -2)
    loss = np.stack([cross_entropy(w, data) for w, data in zip(W, problems, strict=True)])
    return FactorsTrace(grid, K, Q, W, loss)


class _FactorsBatch(ProblemBatch):
    """Same-shaped attention problems; keys and queries stand below each other."""

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        super().__init__(problems)
        if self.T is None or not (self.P.max(1) == 1).all():
            raise ValueError("problems need token_embeddings and one label per row")
        self.is_label: BoolArray = self.P == 1
        counts = np.ones_like(self.P) if self.counts is None else self.counts
        with np.errstate(divide="ignore"):  # log 0 = −inf is what is meant
            self.log_weights: FloatArray = np.log(counts)
        self.log_pi: FloatArray = np.log(self.pi)

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """Gradient along the stacked factors, shape (n, p + q, k), up to a factor per problem."""
        assert pi is None  # no SGD
        assert target is None
        p = W.shape[1] - self.H.shape[2]
        K = W[:, :p]
        Q = W[:, p:]
        S = self.scores(K @ np.swapaxes(Q, 1, 2)) + self.log_weights
        S -= S.max(1, keepdims=True)
        log_mass = S - np.log(np.exp(S).sum(1, keepdims=True)) + self.log_pi
        log_mass[self.is_label] = -np.inf
        R = np.exp(log_mass - log_mass.max((1, 2), keepdims=True))
        R -= np.where(self.is_label, R.sum(1, keepdims=True), 0.0)
        G = self.pull_back(R)
        return np.concatenate([G @ Q, np.swapaxes(G, 1, 2) @ K], axis=1)


@dataclass(frozen=True)
class NuclearMargin:
    """Least nuclear norm under Graph-SVM's constraints, with what proves it.

    Attributes
    ----------
    W : ndarray, shape (p, q)
        Not always the only solution.
    norm : float
        Its nuclear norm, the sum of the singular values.
    min_margin : float
        Smallest lead over the strict pairs, at least 1 up to rounding.
    max_tie : float
        Largest lead, in size, over the equal pairs: zero up to rounding.
    multipliers : ndarray, shape (number of strict pairs,)
        Nonnegative.
    dual : ndarray, shape (p, q)
        ``G = Σ λ_k D_k`` over the strict pairs plus any combination of the equal ones.
    bound : float
        ``Σ λ / max(1, ‖G‖)`` with the spectral norm: no matrix that meets the constraints has a
        smaller nuclear norm.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.notebook import nuclear_margin
    >>> svm = nuclear_margin(ntpnb.datasets.figure2())
    >>> print(round(svm.norm, 4), abs(svm.norm - svm.bound) < 1e-6)
    3.0809 True
    """

    W: FloatArray
    norm: float
    min_margin: float
    max_tie: float
    multipliers: FloatArray
    dual: FloatArray
    bound: float


def nuclear_margin(data: NextTokenData) -> NuclearMargin:
    """Solve ``min ‖W‖_*`` under Graph-SVM's constraints, as a semidefinite program by cvxpy.

    Where ``W = K Qᵀ``, the least ``(‖K‖² + ‖Q‖²)/2`` of the factors is this norm.

    Parameters
    ----------
    data : NextTokenData
        Small: the program has ``(p + q)²`` entries.

    Returns
    -------
    NuclearMargin

    Raises
    ------
    ConvergenceError
        The solver found no solution.
    ImportError
        cvxpy is missing; it comes with the extra ``reference``.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis, Oymak, Transformers as support vector machines
    (arXiv:2308.16898), Att-SVM with the nuclear norm.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.notebook import nuclear_margin
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(2), [[0, 1]], [0])
    >>> print(nuclear_margin(data).W.round(4) + 0.0)
    [[ 0.   0.5]
     [ 0.  -0.5]]
    """
    with needs_extra("reference", "nuclear_margin"):
        import cvxpy as cp

    order = token_priority(data)
    num_entries = data.shape[0] * data.shape[1]
    strict = pair_matrices(data, order.strict).reshape(len(order.strict), num_entries)
    equal = pair_matrices(data, order.equal).reshape(len(order.equal), num_entries)
    W = cp.Variable(data.shape)
    entries = cp.vec(W, order="C")
    leads = strict @ entries >= 1
    ties = equal @ entries == 0
    problem = cp.Problem(cp.Minimize(cp.normNuc(W)), [leads, ties] if len(equal) else [leads])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": the bound says how far
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    if problem.status not in cp.settings.SOLUTION_PRESENT:
        raise ConvergenceError(f"the nuclear-norm problem ended as {problem.status}", np.inf)
    multipliers = np.maximum(leads.dual_value, 0.0)
    G = multipliers @ strict
    if len(equal):
        G = G - ties.dual_value @ equal
    G = G.reshape(data.shape)
    solution = np.asarray(W.value)
    return NuclearMargin(
        W=solution,
        norm=float(np.linalg.norm(solution, "nuc")),
        min_margin=float((strict @ solution.ravel()).min()),
        max_tie=float(np.abs(equal @ solution.ravel()).max(initial=0.0)),
        multipliers=multipliers,
        dual=G,
        bound=float(multipliers.sum() / max(1.0, np.linalg.norm(G, 2))),
    )
