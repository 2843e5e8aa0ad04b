"""Attention with several heads: training, and what any number of heads can reach.

A layer with H heads returns the mean of their outputs, each with its own matrix ``W_h``. Under
``C Eᵀ = I`` (L24, Assumption 4) the label's probability is then the mean over the heads of the
attention on it, and the loss is ``−log`` of that mean. `descend_heads` trains it, and
`ranking_floor` bounds the loss of any number of heads from below.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ntpnb.attention import attention_mass, pseudo_data
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray, as_floats, as_integer
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import candidate_logits
from ntpnb.problem.order import token_priority
from ntpnb.tied.finite import restrict
from ntpnb.training.batch import require_equal_shapes
from ntpnb.training.descent import iterate, record_grid
from ntpnb.training.optimizers import GD, NGD, Adam
from ntpnb_book.labelled_batch import LabelledBatch, labels_of, runs_last

__all__ = [
    "HeadsTrace",
    "RankingFloor",
    "descend_heads",
    "heads_loss",
    "ranking_floor",
    "served_data",
]

MOST_RANKED = 7  # tokens of one query that may tie; they have 5040 rankings


# -- several heads --------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadsTrace:
    """Recorded matrices of training with several heads, n problems at once.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
    W : ndarray, shape (n, r, H, p, q)
    loss : ndarray, shape (n, r)
        In nats.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import descend_heads
    >>> data = ntpnb.datasets.figure2()
    >>> run = descend_heads([data], ntpnb.GD(0.1), 5, np.zeros((1, 2, 4, 4)), [0, 5])
    >>> run.W.shape, run.loss.shape
    ((1, 2, 2, 4, 4), (1, 2))
    """

    steps: IntArray
    W: FloatArray
    loss: FloatArray


def descend_heads(
    problems: Sequence[NextTokenData],
    method: GD | NGD | Adam,
    steps: int,
    init: ArrayLike,
    record: ArrayLike | None = None,
) -> HeadsTrace:
    """Train all heads together on ``−log`` of their mean attention on the label.

    A layer that adds its heads, instead of taking the mean, has the same gradient.

    Parameters
    ----------
    problems : sequence of n NextTokenData from ``from_attention``, of equal shapes
    method : GD, NGD or Adam
        NGD divides by the norm of the gradient along all heads together.
    steps : int
    init : array_like, shape (n, H, p, q)
        Heads that begin equal stay equal.
    record : increasing sequence of int, optional
        Default: about 200 steps on a logarithmic grid.

    Returns
    -------
    HeadsTrace

    Raises
    ------
    ValueError
        No problem, problems of different shapes, data without token embeddings or one-hot labels,
        or an ``init`` of the wrong shape.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import descend_heads
    >>> data = ntpnb.datasets.figure2()
    >>> one = descend_heads([data], ntpnb.GD(0.1), 9, np.zeros((1, 1, 4, 4)), [9])
    >>> print(np.allclose(one.W[0, 0, 0], ntpnb.descend(data, ntpnb.GD(0.1), 9).W[-1]))
    True
    """
    require_equal_shapes(problems)
    start = as_floats("init", init)
    shape = (len(problems), *problems[0].shape)
    if start.ndim != 4 or (start.shape[0], *start.shape[2:]) != shape:
        n, p, q = shape
        raise ValueError(f"init has shape {start.shape}; it needs ({n}, number of heads, {p}, {q})")
    n, num_heads, p, q = start.shape
    batch = _HeadsBatch(problems, num_heads)
    grid = record_grid(steps, record)
    below_each_other = runs_last(start.reshape(n, num_heads * p, q))
    recorded = iterate(batch, method, grid, below_each_other.transpose(2, 0, 1)).W
    W = recorded.reshape(n, len(grid), num_heads, p, q)
    loss = np.stack([heads_loss(w, data) for w, data in zip(W, problems, strict=True)])
    return HeadsTrace(grid, W, loss)


def heads_loss(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Loss of heads: ``−Σ_j π_j log ((1/H) Σ_h s_hj)``, with ``s_hj`` the attention on the label.

    Parameters
    ----------
    W : array_like, shape (..., H, p, q)
    data : NextTokenData
        With token embeddings and one-hot labels.

    Returns
    -------
    ndarray, shape (...)
        In nats.

    Raises
    ------
    ValueError
        Data without token embeddings or one-hot labels.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import heads_loss
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
    >>> print(heads_loss(np.zeros((2, 3, 3)), data).round(4))  # log 3
    1.0986
    """
    label = labels_of(data)
    logits = candidate_logits(as_floats("W", W), data)
    own = logits[..., np.arange(len(label)), label] - logsumexp(logits, axis=-1)
    num_heads = own.shape[-2]
    mixed = logsumexp(own, axis=-2) - np.log(num_heads)
    losses: FloatArray = -(mixed @ data.context_probs)
    return losses


class _HeadsBatch(LabelledBatch):
    """Same-shaped attention problems; the matrices of their heads stand below each other."""

    def __init__(self, problems: Sequence[NextTokenData], num_heads: int) -> None:
        super().__init__(problems)
        self.num_heads = num_heads

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """Gradient along the stacked heads, shape (n, H p, q).

        Each head has the gradient of the log-loss, in which a row counts by the head's share in the
        label's probability.
        """
        assert pi is None  # no SGD
        assert target is None
        n, _, q = W.shape
        S = self.relative_scores(W.transpose(1, 2, 0).reshape(self.num_heads, -1, q, n))
        Q = np.exp(S)
        total = Q.sum(2, keepdims=True)
        Q /= total
        log_own = np.where(self.is_label, S, 0.0).sum(2, keepdims=True) - np.log(total)
        share = np.exp(log_own - log_own.max(0))
        share /= share.sum(0)
        Q *= share * self.row_probs
        gradient = self.pulled_back(np.where(self.is_label, 0.0, Q))
        return gradient.reshape(-1, q, n).transpose(2, 0, 1)


def served_data(W: ArrayLike, data: NextTokenData, threshold: float = 1e-2) -> NextTokenData:
    """Keep what one head selects in the rows whose label it attends to; empty the other rows.

    A row whose label has at most ``threshold`` of the head's attention is left to other heads: only
    its label remains a candidate, so that it orders nothing. In the others the tokens that the head
    selects take the place of the label, as in :func:`ntpnb.attention.pseudo_data`.

    Parameters
    ----------
    W : array_like, shape (p, q)
    data : NextTokenData
        With one-hot labels.
    threshold : float

    Returns
    -------
    NextTokenData

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import served_data
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2], [1, 0, 2]], [0, 1])
    >>> W = [[0, 0, 9], [0, 0, 0], [0, 0, 0]]  # attention to the token 0, the label of row 0 only
    >>> served_data(W, data).candidates.tolist()
    [[True, True, True], [False, True, False]]
    """
    selected = pseudo_data(W, data, threshold, 0.9 * threshold)
    label = data.target_probs == 1
    serves = (attention_mass(W, data)[label] > threshold)[:, None]
    return data.replace(
        target_probs=np.where(serves, selected.target_probs, label),
        candidate_counts=np.where(serves, counts_or_ones(selected), label),
    )


# -- what any number of heads can reach -----------------------------------------------------------


@dataclass(frozen=True)
class RankingFloor:
    """A bound from below on the loss of any number of heads.

    Attributes
    ----------
    loss : float
        Infimum over mixtures of rankings of the tied tokens, in nats.
    gap : float
        By how much the infimum can be smaller than ``loss``: a duality gap, at least zero up to
        rounding.
    label_probs : ndarray, shape (m,)
        Probability of each row's label under the best mixture.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import ranking_floor
    >>> cycle = [[0, 1, 3], [1, 2, 3], [2, 0, 3]]
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(4), cycle, [0, 1, 2])
    >>> floor = ranking_floor(data)
    >>> print(round(floor.loss - np.log(1.5), 6), floor.label_probs.round(4))
    0.0 [0.6667 0.6667 0.6667]
    """

    loss: float
    gap: float
    label_probs: FloatArray


def ranking_floor(data: NextTokenData, steps: int = 20_000) -> RankingFloor:
    """Bound the loss of any number of heads from below, by a mixture of rankings.

    Attention on the tokens of a sequence is a law of choice that comes from random rankings: add
    independent Gumbel noise to the scores of one query, and take the sequence's token with the
    highest sum. A mean of heads is then a mixture of rankings too, one law for all sequences with
    the same query, and the best mixture bounds the loss of every number of heads. Tokens that the
    label strictly dominates are left out, which can only raise the label's share. The best mixture
    is found by expectation maximization, and its gap follows from the optimality conditions: with
    ``A`` the wins of all rankings and ``u`` the label's probabilities, ``max_ρ Σ_j π_j A_ρj / u_j``
    is 1 there and otherwise bounds how far the loss can still fall, by its logarithm.

    Parameters
    ----------
    data : NextTokenData
        With token embeddings, one-hot labels, candidate counts 0 or 1, and at most seven tied
        tokens of a query.
    steps : int
        Of expectation maximization, at least one; it stops at a gap of 1e-9.

    Returns
    -------
    RankingFloor

    Raises
    ------
    TypeError, ValueError
        Data without token embeddings or one-hot labels, repeated tokens, more than seven tied
        tokens, or ``steps`` that are no positive integer.

    References
    ----------
    Luce & Suppes, Preference, utility, and subjective probability (1965), for random rankings; the
    double exponential law that makes them a softmax is in Yellott (1977).

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import ranking_floor
    >>> print(round(ranking_floor(ntpnb.datasets.figure2()).loss, 3))
    0.321
    """
    if data.candidate_counts is not None and (np.asarray(data.candidate_counts) > 1).any():
        raise ValueError("data has rows in which a token occurs twice; each may occur once")
    label = labels_of(data)
    steps = as_integer("steps", steps, 1)
    tied = restrict(data)
    components = token_priority(data).components[data.group_index, label]
    probs = np.ones(data.num_contexts)
    gap = 0.0
    for group, component in set(zip(data.group_index.tolist(), components.tolist(), strict=True)):
        rows = np.flatnonzero((data.group_index == group) & (components == component))
        wins = _ranking_wins(tied.candidates[rows], label[rows])
        weight = data.context_probs[rows]
        share, excess = _best_mixture(wins, weight / weight.sum(), steps)
        probs[rows] = share
        gap += float(weight.sum()) * excess
    return RankingFloor(float(-data.context_probs @ np.log(probs)), gap, probs)


def _ranking_wins(candidates: BoolArray, label: IntArray) -> FloatArray:
    """Which labels come first, for each ranking of the tokens: shape (rankings, rows)."""
    tokens = np.flatnonzero(candidates.any(0))
    if len(tokens) > MOST_RANKED:
        raise ValueError(
            f"data ties {len(tokens)} tokens of one query; at most {MOST_RANKED} may tie"
        )
    place = np.array(list(permutations(range(len(tokens)))))  # of each token, 0 comes first
    seen = np.where(candidates[None][..., tokens], place[:, None], len(tokens))
    first = tokens[seen.argmin(2)]
    wins: FloatArray = np.unique(first == label, axis=0).astype(float)
    return wins


def _best_mixture(wins: FloatArray, weight: FloatArray, steps: int) -> tuple[FloatArray, float]:
    """Most likely mixture of rankings: the labels' probabilities, and a bound on the rest."""
    mixture = np.full(len(wins), 1 / len(wins))
    for _ in range(steps):
        probs = mixture @ wins
        factor = wins @ (weight / probs)
        gap = np.log(factor.max())
        if gap < 1e-9:
            break
        mixture *= factor
    return probs, float(gap)
