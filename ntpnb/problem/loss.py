"""Scores, cross-entropy, its gradient, and its excess over the entropy without cancellation."""

from math import factorial

import numpy as np
from scipy.special import logsumexp

from ntpnb.problem.data import require_data
from ntpnb.validation import as_floats

LARGEST = 1e151  # entry of W: with the longest embeddings it scores what floats can hold
# e^x − 1 − x = x² Σ_k x^k/(k+2)!; at |x| < 0.3 the first dropped term is below one unit roundoff
_PHI_SERIES = [1 / factorial(k + 2) for k in range(12)][::-1]


def as_weights(name, W, data):
    """Return ``W`` as a finite float64 array of shape (..., p, q), or explain."""
    require_data("data", data)
    W = as_floats(name, W)
    if W.ndim < 2 or W.shape[-2:] != data.shape:
        raise ValueError(f"{name} has shape {W.shape}; its last two axes must be {data.shape}")
    if not np.isfinite(W).all():
        raise ValueError(f"{name} has entries that are not finite")
    if (largest := np.abs(W).max(initial=0.0)) > LARGEST:
        raise ValueError(f"{name} has the entry {largest:g}; none may be larger than {LARGEST:g}")
    return W


def scores(W, data):
    """Bilinear scores ``s_jv = t_v · W h_j``, shape (..., m, V), for ``W`` of shape (..., p, q)."""
    S = data.context_embeddings @ np.swapaxes(W, -1, -2)
    return S if data.token_embeddings is None else S @ data.token_embeddings.T


def logits(W, data):
    """Scores plus ``log c_jv``, shape (..., m, V); ``−inf`` where a token is no candidate."""
    S = scores(W, data)
    if data.candidate_counts is not None:
        with np.errstate(divide="ignore"):
            S = S + np.log(data.candidate_counts)
    return S


def cross_entropy(W, data):
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
    """
    L = logits(as_weights("W", W, data), data)
    log_q = L - logsumexp(L, axis=-1, keepdims=True)
    log_q = np.where(data.support, log_q, 0.0)
    return _plain(-((data.target_probs * log_q).sum(-1) @ data.context_probs))


def gradient(W, data):
    """Gradient ``Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ`` of the cross-entropy, shape (..., p, q).

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.

    References
    ----------
    T24 (002) App. E; L24 (004) Eq. (19).
    """
    L = logits(as_weights("W", W, data), data)
    Q = np.exp(L - logsumexp(L, axis=-1, keepdims=True))
    R = data.context_probs[:, None] * (Q - data.target_probs)
    # Rows of R sum to zero: so taken, the likeliest token's entry keeps its digits as q nears one.
    likeliest = np.arange(data.vocab_size) == data.target_probs.argmax(1)[:, None]
    R = np.where(likeliest, 0.0, R)
    R = np.where(likeliest, -R.sum(-1, keepdims=True), R)
    R = np.swapaxes(R, -1, -2) if data.token_embeddings is None else _left(data, R)
    return R @ data.context_embeddings


def excess_loss(W, data):
    """``CE(W) − H`` in nats, as a sum of nonnegative terms.

    With ``δ`` the in-support values of ``logit − log p``, centred by their ``p``-mean, and
    ``φ(x) = eˣ − 1 − x``, row ``j`` contributes ``π_j`` times
    ``log1p(Σ_z p_z φ(δ_z)) + log1p(exp(LSE_out − LSE_in))``: the divergence inside the support
    plus the cost of the mass outside it. Nothing is subtracted, so the result keeps its digits
    long after ``cross_entropy(W, data) − data.entropy`` has lost them all. Rounding of ``W``
    itself limits the first term to about 1e-28 where some support has two or more tokens.

    Returns
    -------
    float, or ndarray of shape (...) for a stack of matrices

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.
    """
    return excess_of_logits(logits(as_weights("W", W, data), data), data)


def excess_of_logits(L, data):
    """:func:`excess_loss` from logits of shape (..., m, V)."""
    P, support = data.target_probs, data.support
    log_p = np.log(P, out=np.zeros_like(P), where=support)
    delta = np.where(support, L - log_p, 0.0)
    delta = np.where(support, delta - (P * delta).sum(-1, keepdims=True), 0.0)
    with np.errstate(over="ignore", divide="ignore"):
        inside = np.log1p((P * _phi(delta)).sum(-1))
        far = np.isinf(inside)
        if far.any():
            inside[far] = logsumexp(delta + np.log(P), axis=-1)[far]
        into = logsumexp(np.where(support, L, -np.inf), axis=-1)
        out = logsumexp(np.where(support, -np.inf, L), axis=-1)
        outside = np.logaddexp(0.0, out - into)  # log1p(exp(·)) that neither overflows nor rounds
    return _plain((inside + outside) @ data.context_probs)


def _left(data, R):
    return data.token_embeddings.T @ np.swapaxes(R, -1, -2)


def _phi(x):
    """``eˣ − 1 − x`` to full relative accuracy."""
    return np.where(np.abs(x) < 0.3, x * x * np.polyval(_PHI_SERIES, x), np.expm1(x) - x)


def _plain(x):
    return float(x) if np.ndim(x) == 0 else x
