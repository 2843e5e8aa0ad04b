"""Training of attention whose matrix is a product of keys and queries, ``W = K Qᵀ``.

The least ``(‖K‖² + ‖Q‖²)/2`` of all factors of a matrix is its nuclear norm, so that Graph-SVM with
this norm is where the direction should tend: ``ntpnb.max_margin(data, norm="nuclear")``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.validation import FloatArray, IntArray, as_floats
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy
from ntpnb.training.descent import iterate, record_grid
from ntpnb.training.optimizers import NGD
from ntpnb_book.labelled_batch import LabelledBatch, runs_last

__all__ = ["FactorsTrace", "descend_factors"]


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
    >>> from ntpnb_book import descend_factors
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
    >>> from ntpnb_book import descend_factors
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
    recorded = iterate(batch, NGD(step), grid, runs_last(start).transpose(2, 0, 1)).W
    K = recorded[..., :p, :]
    Q = recorded[..., p:, :]
    W = K @ np.swapaxes(Q, -1, -2)
    loss = np.stack([cross_entropy(w, data) for w, data in zip(W, problems, strict=True)])
    return FactorsTrace(grid, K, Q, W, loss)


class _FactorsBatch(LabelledBatch):
    """Same-shaped attention problems; keys and queries stand below each other."""

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        super().__init__(problems)
        # Of what is lost to other tokens than the labels.
        self.log_probs: FloatArray = np.where(self.is_label, -np.inf, np.log(self.row_probs))

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """Gradient along the stacked factors, shape (n, p + q, k), up to a factor per problem."""
        assert pi is None  # no SGD
        assert target is None
        p = self.tokens.shape[1]
        factors = W.transpose(1, 2, 0)
        K = factors[:p]
        Q = factors[p:]
        S = self.relative_scores(np.einsum("pkn,qkn->pqn", K, Q))
        S -= np.log(np.exp(S).sum(1, keepdims=True))
        log_mass = S + self.log_probs
        G = self.pulled_back(np.exp(log_mass - log_mass.max((0, 1))))
        along_K = np.einsum("pqn,qkn->pkn", G, Q)
        along_Q = np.einsum("pqn,pkn->qkn", G, K)
        return np.concatenate([along_K, along_Q]).transpose(2, 0, 1)
