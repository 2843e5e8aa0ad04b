"""Scores, cross-entropy, its gradient, and its excess over the entropy without cancellation.

Sums over contexts take a block of contexts at a time where the table of all scores would be large.
The exponentials and logarithms that everything rests on come last.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.threads import one_thread, product
from ntpnb.basics.validation import FloatArray, as_matrices, require_dense, require_type
from ntpnb.problem import table
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import RowBlock

Rows = NextTokenData | RowBlock  # all contexts, or some of them

LARGEST = 1e151  # entry of W: with the longest embeddings it scores what floats can hold

# eˣ − 1 − x = x² Σ_k xᵏ/(k+2)!. Below the bound the first dropped term is less than one unit
# roundoff; above it the difference itself keeps its digits.
SERIES_BOUND = 0.3
_SERIES = [1 / math.factorial(k + 2) for k in reversed(range(12))]


def as_weights(name: str, W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Return ``W`` as a finite float64 array of shape (..., p, q), or explain."""
    require_type("data", data, NextTokenData)
    weights = as_matrices(name, W, data.shape)
    if not np.isfinite(weights).all():
        raise ValueError(f"{name} has entries that are not finite")
    largest = np.abs(weights).max(initial=0.0)
    if largest > LARGEST:
        raise ValueError(f"{name} has the entry {largest:g}; none may be larger than {LARGEST:g}")
    return weights


def scores(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Bilinear scores ``s_jv = t_v · W h_j`` of all tokens in all contexts.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    ndarray, shape (..., m, V)

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite, or the result more than 2**28 entries.

    References
    ----------
    T24 (002) Sec. 2; L24 (004) Eq. (1).

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0, 2.0]], [[0.5, 0.5, 0.0]])
    >>> ntpnb.scores([[1, 0], [0, 1], [1, 1]], data).tolist()
    [[1.0, 2.0, 3.0]]
    """
    return bilinear_scores(as_weights("W", W, data), data)


def logits(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Scores plus ``log c_jv``, whose softmax over a row is the model's distribution.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    ndarray, shape (..., m, V)
        ``−inf`` where a token is no candidate.

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite, or the result more than 2**28 entries.

    References
    ----------
    T24 (002) Sec. 2; L24 (004) Sec. 4.2, where occurrences of one token add up.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0]], [[1, 0, 0]], candidate_counts=[[1, 2, 0]])
    >>> ntpnb.logits([[0.0], [0.0], [5.0]], data).round(4).tolist()
    [[0.0, 0.6931, -inf]]
    """
    return candidate_logits(as_weights("W", W, data), data)


@one_thread
def cross_entropy(W: ArrayLike, data: NextTokenData) -> float | FloatArray:
    """Next-token cross-entropy ``−Σ_j π_j Σ_z p_jz log q_jz(W)`` in nats.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    float, or ndarray of shape (...) for a stack of matrices

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.

    References
    ----------
    T24 (002) Eq. (2); L24 (004) (ERM) with the log-loss.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> data = ntpnb.datasets.toy()
    >>> zero = np.zeros(data.shape)
    >>> round(float(ntpnb.cross_entropy(zero, data)), 6)  # log 5: all tokens are equally likely
    1.609438
    """
    weights = as_weights("W", W, data)
    mean_log_q = _for_each_context(_mean_log_probs, weights, data)
    return _float_if_single(0.0 - mean_log_q @ data.context_probs)  # a zero has no sign


@one_thread
def gradient(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Gradient ``Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ`` of the cross-entropy.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    ndarray, shape (..., p, q)

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.

    References
    ----------
    T24 (002) App. E; L24 (004) Eq. (19).

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> ntpnb.gradient([[0.0], [0.0]], data).tolist()
    [[-1.0], [1.0]]
    """
    weights = as_weights("W", W, data)
    if math.prod(weights.shape[:-2]) * math.prod(data.block_shape) <= table.BLOCK:
        return _gradient(weights, data)  # without a second array of the size of W
    stack = weights.reshape(-1, *data.shape)
    total = np.zeros_like(stack)
    for part in parts(len(stack), data):
        total[part.matrices] += _gradient(stack[part.matrices], part.rows)
    return total.reshape(weights.shape)


@one_thread
def excess_loss(W: ArrayLike, data: NextTokenData) -> float | FloatArray:
    """``CE(W) − H`` in nats, as a sum of nonnegative terms.

    With ``δ`` the in-support values of ``logit − log p``, centred by their ``p``-mean, and
    ``φ(x) = eˣ − 1 − x``, row ``j`` contributes ``π_j`` times
    ``log1p(Σ_z p_z φ(δ_z)) + log1p(exp(LSE_out − LSE_in))``: the divergence inside the support
    plus the cost of the mass outside it. Nothing is subtracted, so the result keeps its digits
    long after ``cross_entropy(W, data) − data.entropy`` has lost them all. Rounding of ``W``
    itself limits the first term to about 1e-28 where some support has two or more tokens.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    float, or ndarray of shape (...) for a stack of matrices

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.

    References
    ----------
    T24 (002) Sec. 3: the entropy bounds the loss from below.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]])
    >>> excess = ntpnb.excess_loss([[100.0], [-100.0]], data)
    >>> f"{excess:.4e}"  # log(1 + e^−200), which the loss alone could not show
    '1.3839e-87'
    """
    weights = as_weights("W", W, data)
    rows = _for_each_context(_excess_of_each, weights, data)
    return _float_if_single(rows @ data.context_probs)


def excess_of_logits(L: FloatArray, data: NextTokenData) -> float | FloatArray:
    """:func:`excess_loss` from logits of shape (..., m, V)."""
    return _float_if_single(_excess_of_each(L.copy(), data) @ data.context_probs)


def bilinear_scores(W: FloatArray, data: Rows) -> FloatArray:
    """:func:`scores` of weights that are known to fit."""
    T = data.token_embeddings
    num_contexts = len(data.context_embeddings)
    vocab_size = W.shape[-2] if T is None else len(T)
    require_dense(
        "the table of scores",
        (*W.shape[:-2], num_contexts, vocab_size),
        "use fewer matrices, contexts or tokens at one time; losses and gradients need no table",
    )
    S = product(data.context_embeddings, np.swapaxes(W, -1, -2))
    return S if T is None else product(S, T.T)


def candidate_logits(W: FloatArray, data: Rows) -> FloatArray:
    """:func:`logits` of weights that are known to fit."""
    S = bilinear_scores(W, data)
    if data.candidate_counts is None:
        return S
    with np.errstate(divide="ignore"):  # log 0 = −inf is what is meant
        return S + np.log(data.candidate_counts)


def pull_back(residuals: FloatArray, data: Rows) -> FloatArray:
    """Turn derivatives along the scores, shape (..., m, V), into ones along W, (..., p, q)."""
    R = np.swapaxes(residuals, -1, -2)
    if data.token_embeddings is not None:
        R = product(data.token_embeddings.T, R)
    return product(R, data.context_embeddings)


def log_target_probs(data: NextTokenData) -> FloatArray:
    """``log p_jz`` on the supports and zero elsewhere, shape (m, V)."""
    P = data.target_probs
    return np.log(P, out=np.zeros_like(P), where=data.support)


# -- by blocks where a table of all scores would be large -----------------------------------------


class Part(NamedTuple):
    """Some matrices of a stack, and all contexts or some of them."""

    matrices: slice
    contexts: slice
    rows: Rows


def parts(num_matrices: int, data: NextTokenData) -> Iterator[Part]:
    """Divide matrices and contexts so that the scores of a part fit a block.

    All contexts are taken together where they fit: products with fewer of them may round
    differently.
    """
    shape = data.block_shape
    if math.prod(shape) <= table.BLOCK:
        for matrices in table.row_slices((num_matrices, *shape)):
            yield Part(matrices, slice(None), data)
        return
    for contexts in table.row_slices(shape):
        block = data.block(contexts)
        for i in range(num_matrices):
            yield Part(slice(i, i + 1), contexts, block)


def _for_each_context(
    of_logits: Callable[[FloatArray, Rows], FloatArray], W: FloatArray, data: NextTokenData
) -> FloatArray:
    """Let a function of logits, which may write over them, give each context a number."""
    stack = W.reshape(-1, *data.shape)
    values = np.empty((len(stack), data.num_contexts))
    for part in parts(len(stack), data):
        L = candidate_logits(stack[part.matrices], part.rows)
        values[part.matrices, part.contexts] = of_logits(L, part.rows)
    return values.reshape(*W.shape[:-2], data.num_contexts)


# -- from the logits of some contexts, which are written over where memory matters ----------------


def _laws(data: Rows) -> table.Table:
    """The next-token distributions as their entries."""
    return data.laws if isinstance(data, RowBlock) else data._laws


def _mean_log_probs(L: FloatArray, data: Rows) -> FloatArray:
    """Mean log-probability of the next token of each context, shape (..., m)."""
    row, token, p = data.entries
    log_q = L[..., row, token] - log_sum_exp(L)[..., row]
    return _laws(data).sums_in_rows(p * log_q)


def _gradient(W: FloatArray, data: Rows) -> FloatArray:
    """:func:`gradient` of weights that are known to fit."""
    residuals = candidate_logits(W, data)
    residuals -= log_sum_exp(residuals)[..., None]
    np.exp(residuals, out=residuals)
    row, token, p = data.entries
    residuals[..., row, token] -= p
    residuals *= data.context_probs[:, None]
    # Rows of the residuals sum to zero. Taken from the others' sum, the likeliest token's entry
    # keeps its digits as its probability nears one.
    likeliest = np.arange(len(data.context_probs)), _laws(data).largest_tokens
    residuals[..., *likeliest] = 0.0
    residuals[..., *likeliest] = -residuals.sum(-1)
    return pull_back(residuals, data)


def _excess_of_each(L: FloatArray, data: Rows) -> FloatArray:
    """Cross-entropy minus entropy of each context, shape (..., m)."""
    return _divergence_on_support(L, data) + _cost_of_mass_outside(L, data)


def _divergence_on_support(L: FloatArray, data: Rows) -> FloatArray:
    """KL divergence of each row's p̂ from the model conditioned on its support, shape (..., m)."""
    laws = _laws(data)
    row, token, p = data.entries
    log_p = np.log(p)
    delta = L[..., row, token] - log_p
    delta -= laws.sums_in_rows(p * delta)[..., row]
    with np.errstate(over="ignore"):
        divergence = np.log1p(laws.sums_in_rows(p * exp_minus_linear(delta)))
    overflowed = np.isinf(divergence)
    if overflowed.any():
        divergence[overflowed] = _log_sum_exp_in_rows(delta + log_p, data)[overflowed]
    return divergence


def _cost_of_mass_outside(L: FloatArray, data: Rows) -> FloatArray:
    """``−log`` of the model's probability of each row's support, shape (..., m)."""
    row, token, _ = data.entries
    inside = _log_sum_exp_in_rows(L[..., row, token], data)
    L[..., row, token] = -np.inf
    with np.errstate(over="ignore"):
        # log1p(exp(·)) that neither overflows nor rounds
        cost: FloatArray = np.logaddexp(0.0, log_sum_exp(L) - inside)
    return cost


def _log_sum_exp_in_rows(values: FloatArray, data: Rows) -> FloatArray:
    """``log Σ exp`` of numbers for each row's entries, (..., n), shape (..., m)."""
    laws = _laws(data)
    largest = laws.largest_in_rows(values)
    relative = np.exp(values - largest[..., data.entries.row])
    total: FloatArray = np.log(laws.sums_in_rows(relative)) + largest
    return total


def _float_if_single(x: FloatArray) -> float | FloatArray:
    return float(x) if np.ndim(x) == 0 else x


# -- exponentials and their logarithms ------------------------------------------------------------


def exp_minus_linear(x: FloatArray) -> FloatArray:
    """``φ(x) = eˣ − 1 − x`` to full relative accuracy.

    Parameters
    ----------
    x : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.loss import exp_minus_linear
    >>> exp_minus_linear(np.array([1e-10]))
    array([5.e-21])
    """
    series = x * x * np.polyval(_SERIES, x)
    return np.where(np.abs(x) < SERIES_BOUND, series, np.expm1(x) - x)


def log_sum_exp(x: FloatArray) -> FloatArray:
    """``log Σ exp`` along the last axis, to full relative accuracy where one entry outweighs all.

    It computes what ``scipy.special.logsumexp`` does, operation by operation. That one serves
    several kinds of arrays and axes, which on small arrays takes several times as long.

    Parameters
    ----------
    x : ndarray, shape (..., n)
        ``-inf`` is the logarithm of zero.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.loss import log_sum_exp
    >>> log_sum_exp(np.array([[1000.0, 1000.0], [0.0, -np.inf]])).round(4)
    array([1000.6931,    0.    ])
    """
    largest = x.max(axis=-1, keepdims=True)
    is_largest = x == largest
    count = is_largest.sum(axis=-1, keepdims=True, dtype=x.dtype)
    # All entries may be -inf: then nothing is taken from them.
    others = x - np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.exp(others, out=others)
        np.copyto(others, 0.0, where=is_largest)
        relative_sum = others.sum(axis=-1, keepdims=True) / count
        total = np.log1p(relative_sum) + np.log(count) + largest
    return np.asarray(total[..., 0])
