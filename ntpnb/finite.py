"""The finite part: where training converges on the tied tokens (T24's W*, L24's W^cyc)."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.data import NextTokenData
from ntpnb.errors import ConvergenceError
from ntpnb.loss import gradient, logits, scores
from ntpnb.priority import token_priority
from ntpnb.subspace import EqualSubspace, equal_subspace

COMPATIBLE = 1e-8  # nats of log-odds: far above rounding, far below any effect
NEWTON_STEPS = 100


@dataclass(frozen=True, eq=False)
class FinitePart:
    """The minimiser over the tied subspace of the loss restricted to tied tokens.

    Attributes
    ----------
    W : ndarray, shape (p, q)
        The minimiser; zero when the subspace is {0}.
    gradient_norm : float
        Norm of the restricted loss's gradient at ``W``, ``‖∇ CE(W; restrict(data))‖``.
    residual : float
        Largest deviation, in nats, of an in-support log-odds
        ``log(q_jz/q_jz') − log(p_jz/p_jz')`` from zero over all rows.
    compatible : bool
        Whether every row's law is met by ``W``: ``residual`` at most 1e-8 and no tied token of a
        row without target probability (T24 Def. 1; for L24 true only when S_cyc is {0}).
    subspace : EqualSubspace
        The tied subspace that contains ``W``.
    """

    W: np.ndarray
    gradient_norm: float
    residual: float
    compatible: bool
    subspace: EqualSubspace


def restrict(data, order=None):
    """Drop from each row the candidates that its in-support tokens strictly dominate.

    For L24 this is the cyclic subdataset (004 Def. 1); for T24 each row keeps its support.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional

    Returns
    -------
    NextTokenData
        The same rows with smaller candidate sets. Rows with a single candidate have zero loss.
    """
    order = token_priority(data) if order is None else order
    labels = order.components[data.group_index]
    own = np.take_along_axis(labels, data.support.argmax(1)[:, None], axis=1)
    counts = np.ones(labels.shape) if data.candidate_counts is None else data.candidate_counts
    return NextTokenData(
        data.context_embeddings,
        data.target_probs,
        data.context_probs,
        data.token_embeddings,
        np.where(data.candidates & (labels == own), counts, 0.0),
        data.context_groups,
    )


def finite_part(data):
    """Minimise the restricted cross-entropy over the tied subspace.

    Where the data are compatible this solves T24's log-odds equations; in general it is the
    finite maximum-likelihood estimate of a choice model on every component (Ford's connectivity
    condition holds inside an SCC, so it exists and is unique).

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    FinitePart

    Raises
    ------
    ConvergenceError
        The gradient stayed above its rounding level; the norm reached is attached.

    References
    ----------
    T24 (002) Eq. (4)–(5) and Thm 2; L24 (004) Def. 3, Lemma 2 and Lemma 7.
    """
    order = token_priority(data)
    F = equal_subspace(data, order)
    tied = restrict(data, order)
    W = np.zeros(data.shape)
    if F.dim:
        W = _minimise(tied, F.fit(_log_odds(tied)))
    slope = float(np.linalg.norm(gradient(W, tied)))
    L = logits(W, tied)
    P, support = data.target_probs, data.support
    off = np.where(support, L - np.log(P, out=np.zeros_like(P), where=support), np.nan)
    residual = float((np.nanmax(off, axis=1) - np.nanmin(off, axis=1)).max())
    met = residual <= COMPATIBLE and not (tied.candidates & ~support).any()
    return FinitePart(W, slope, residual, bool(met), F)


def _log_odds(tied):
    """Target log-odds of each group's rows pooled, shape (G, V): exact where a group is one row."""
    rows = (np.arange(len(tied.group_names))[:, None] == tied.group_index) * tied.context_probs
    counts = tied.candidates if tied.candidate_counts is None else tied.candidate_counts
    with np.errstate(divide="ignore", invalid="ignore"):  # untied tokens, which nobody reads
        return np.log(rows @ tied.target_probs) - np.log(rows @ counts)


def _minimise(tied, W):
    """Damped Newton with conjugate gradients; the gradient never leaves the tied subspace."""
    radius = np.linalg.norm(tied.context_embeddings, axis=1)
    floor = 1e-15 * float(tied.context_probs @ radius) * np.sqrt(tied._squared_diameters().max())
    g = gradient(W, tied)
    size = np.linalg.norm(g)
    for _ in range(NEWTON_STEPS):
        if size <= floor:
            break
        step = _newton_direction(W, tied, g, floor)
        t = 1.0
        while t > 1e-10:
            trial = gradient(W - t * step, tied)
            if np.linalg.norm(trial) <= (1 - 1e-4 * t) * size:
                break
            t /= 2
        else:
            break  # no digit of the gradient is left to gain
        W, g, size = W - t * step, trial, np.linalg.norm(trial)
    if size > 1e5 * floor:
        raise ConvergenceError(
            f"the finite part's gradient norm stayed at {size:.1e}; {1e5 * floor:.1e} is needed. "
            "Nearly parallel context embeddings are the usual cause",
            size,
        )
    return W


def _newton_direction(W, tied, g, floor):
    L = logits(W, tied)
    Q = np.exp(L - L.max(-1, keepdims=True))
    Q /= Q.sum(-1, keepdims=True)
    weights = tied.context_probs[:, None]
    T = tied.token_embeddings

    def hessian(flat):
        S = scores(flat.reshape(g.shape), tied)
        R = weights * Q * (S - (Q * S).sum(-1, keepdims=True))
        R = R.T if T is None else T.T @ R.T
        return (R @ tied.context_embeddings).ravel()

    operator = LinearOperator((g.size, g.size), matvec=hessian, dtype=np.float64)
    forcing = min(0.1, np.sqrt(np.linalg.norm(g)))  # superlinear; below the floor is only rounding
    step, _ = cg(operator, g.ravel(), rtol=forcing, atol=floor / 4, maxiter=10 * g.size)
    return step.reshape(g.shape)
