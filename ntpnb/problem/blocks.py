"""Some contexts of a dataset, and their losses: for where the table of all scores would be large.

Beside the scores of the block's contexts no second table of their size is formed: what the losses
know of the next tokens are the positive entries of the contexts' distributions.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ntpnb.basics.array_types import BoolArray, FloatArray, IntArray
from ntpnb.problem.exponential import exp_minus_linear
from ntpnb.problem.table import Entries


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some contexts of a dataset.

    Attributes
    ----------
    context_embeddings : ndarray, shape (k, q)
    context_probs : ndarray, shape (k,)
        Their frequencies among all contexts.
    token_embeddings : ndarray, shape (V, p), or None
    candidate_counts : ndarray, shape (k, V), or None
    entries : Entries
        The positive entries of their next-token distributions, with rows counted from the block's
        first.
    vocab_size : int

    Examples
    --------
    >>> import ntpnb
    >>> block = ntpnb.datasets.toy().block(slice(1, 3))
    >>> block.entries.row.tolist(), block.entries.token.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 3, 4, 0, 1, 4])
    """

    context_embeddings: FloatArray
    context_probs: FloatArray
    token_embeddings: FloatArray | None
    candidate_counts: FloatArray | None
    entries: Entries
    vocab_size: int

    @cached_property
    def support(self) -> BoolArray:
        """Tokens with positive target probability, shape (k, V)."""
        support = np.zeros((len(self.context_probs), self.vocab_size), dtype=bool)
        support[self.entries.row, self.entries.token] = True
        return support

    @cached_property
    def target_probs(self) -> FloatArray:
        """The next-token distributions, shape (k, V)."""
        P = np.zeros((len(self.context_probs), self.vocab_size))
        P[self.entries.row, self.entries.token] = self.entries.value
        return P

    @cached_property
    def first_entry(self) -> IntArray:
        """Position of each row's first entry among all, shape (k,)."""
        every_row = np.arange(len(self.context_probs))
        return np.searchsorted(self.entries.row, every_row)

    @cached_property
    def likeliest(self) -> IntArray:
        """The first of each row's likeliest next tokens, shape (k,)."""
        row, token, p = self.entries
        is_largest = p == np.maximum.reduceat(p, self.first_entry)[row]
        first_of_row = np.unique(row[is_largest], return_index=True)[1]
        likeliest: IntArray = token[is_largest][first_of_row]
        return likeliest


def mean_log_probs(W: FloatArray, block: RowBlock) -> FloatArray:
    """Mean log-probability of the next token of each context.

    Parameters
    ----------
    W : ndarray, shape (p, q)
    block : RowBlock

    Returns
    -------
    ndarray, shape (k,)

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.problem.blocks import mean_log_probs
    >>> data = ntpnb.datasets.toy()
    >>> mean_log_probs(np.zeros(data.shape), data.block(slice(0, 2))).round(6)  # −log 5
    array([-1.609438, -1.609438])
    """
    split = _split_at_support(W, block)
    log_total = np.logaddexp(_log_sum_exp(split.inside, block), split.log_outside)
    log_q = split.inside - log_total[block.entries.row]
    return _sum_in_rows(block.entries.value * log_q, block)


def excess_of_each(W: FloatArray, block: RowBlock) -> FloatArray:
    """Cross-entropy minus entropy of each context, as in :func:`ntpnb.excess_loss`.

    Parameters
    ----------
    W : ndarray, shape (p, q)
    block : RowBlock

    Returns
    -------
    ndarray, shape (k,)

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.problem.blocks import excess_of_each
    >>> data = ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]])
    >>> excess_of_each(np.array([[0.0], [0.0]]), data.block(slice(0, 1))).round(6)  # log 2
    array([0.693147])
    """
    split = _split_at_support(W, block)
    row, _, p = block.entries
    log_p = np.log(p)
    delta = split.inside - log_p
    delta -= _sum_in_rows(p * delta, block)[row]
    with np.errstate(over="ignore"):
        divergence = np.log1p(_sum_in_rows(p * exp_minus_linear(delta), block))
    overflowed = np.isinf(divergence)
    divergence[overflowed] = _log_sum_exp(delta + log_p, block)[overflowed]
    # log1p(exp(·)) that neither overflows nor rounds
    cost = np.logaddexp(0.0, split.log_outside - _log_sum_exp(split.inside, block))
    return divergence + cost


def gradient_of(W: FloatArray, block: RowBlock) -> FloatArray:
    """What some contexts contribute to the gradient of the cross-entropy.

    Parameters
    ----------
    W : ndarray, shape (p, q)
    block : RowBlock

    Returns
    -------
    ndarray, shape (p, q)

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.problem.blocks import gradient_of
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> gradient_of(np.zeros((2, 1)), data.block(slice(0, 1))).tolist()
    [[-1.0], [1.0]]
    """
    residuals = _scores(W, block)
    counts = block.candidate_counts
    if counts is not None:
        residuals[counts == 0] = -np.inf
    residuals -= residuals.max(axis=1, keepdims=True)
    np.exp(residuals, out=residuals)
    if counts is not None:
        residuals *= counts
    residuals *= (block.context_probs / residuals.sum(axis=1))[:, None]
    row, token, p = block.entries
    residuals[row, token] -= block.context_probs[row] * p
    # Rows of the residuals sum to zero. Taken from the others' sum, the likeliest token's entry
    # keeps its digits as its probability nears one.
    every_row = np.arange(len(residuals))
    residuals[every_row, block.likeliest] = 0.0
    residuals[every_row, block.likeliest] = -residuals.sum(axis=1)
    along_tokens = residuals.T
    if block.token_embeddings is not None:
        along_tokens = block.token_embeddings.T @ along_tokens
    gradient: FloatArray = along_tokens @ block.context_embeddings
    return gradient


@dataclass(frozen=True, eq=False)
class _SplitLogits:
    """Logits of the support's tokens, and the others' logarithm of the sum of exponentials."""

    inside: FloatArray  # of each entry
    log_outside: FloatArray  # of each row, −inf where no candidate is outside


def _split_at_support(W: FloatArray, block: RowBlock) -> _SplitLogits:
    logits = _scores(W, block)
    if block.candidate_counts is not None:
        with np.errstate(divide="ignore"):  # log 0 = −inf is what is meant
            logits += np.log(block.candidate_counts)
    row, token, _ = block.entries
    inside = logits[row, token]
    logits[row, token] = -np.inf
    largest = logits.max(axis=1)
    finite_largest = np.where(np.isfinite(largest), largest, 0.0)
    logits -= finite_largest[:, None]
    np.exp(logits, out=logits)
    with np.errstate(divide="ignore"):
        log_outside = finite_largest + np.log(logits.sum(axis=1))
    return _SplitLogits(inside, log_outside)


def _scores(W: FloatArray, block: RowBlock) -> FloatArray:
    """Scores of all tokens in the block's contexts, a fresh array of shape (k, V)."""
    scores: FloatArray = block.context_embeddings @ W.T
    if block.token_embeddings is not None:
        scores = scores @ block.token_embeddings.T
    return scores


def _sum_in_rows(values: FloatArray, block: RowBlock) -> FloatArray:
    """Sum of the entries' values in each row, shape (k,)."""
    sums: FloatArray = np.add.reduceat(values, block.first_entry)
    return sums


def _log_sum_exp(values: FloatArray, block: RowBlock) -> FloatArray:
    """Logarithm of the sum of the exponentials of the entries' values in each row, shape (k,)."""
    largest = np.maximum.reduceat(values, block.first_entry)
    total = _sum_in_rows(np.exp(values - largest[block.entries.row]), block)
    log_total: FloatArray = largest + np.log(total)
    return log_total
