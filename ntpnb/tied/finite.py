"""The finite part: where training converges on the tied tokens (T24's W*, L24's W^cyc)."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import softmax

from ntpnb.errors import ConvergenceError
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import excess_loss, gradient, logits, scores
from ntpnb.problem.order import row_components, token_priority
from ntpnb.tied.subspace import EqualSubspace, equal_subspace

COMPATIBLE = 1e-8  # nats of log-odds: far above rounding, far below any effect
SLOPE = 1e-9  # of a gradient whose size is that of an error in probabilities
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
    labels, own = row_components(data, order)
    counts = np.ones(labels.shape) if data.candidate_counts is None else data.candidate_counts
    return NextTokenData(
        data.context_embeddings,
        data.target_probs,
        data.context_probs,
        data.token_embeddings,
        np.where(data.candidates & (labels == own), counts, 0.0),
        data.context_groups,
    )


def finite_part(data, *, order=None):
    """Minimise the restricted cross-entropy over the tied subspace.

    Where the data are compatible this solves T24's log-odds equations; in general it is the
    finite maximum-likelihood estimate of a choice model on every component (Ford's connectivity
    condition holds inside an SCC, so it exists and is unique).

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already.

    Returns
    -------
    FinitePart

    Raises
    ------
    ConvergenceError
        The gradient stayed above 1e-9; the norm reached is attached. It is measured in
        coordinates in which the embeddings have no scale.

    References
    ----------
    T24 (002) Eq. (4)–(5) and Thm 2; L24 (004) Def. 3, Lemma 2 and Lemma 7.
    """
    order = token_priority(data) if order is None else order
    F = equal_subspace(data, order)
    tied = restrict(data, order)
    W = np.zeros(data.shape)
    possible = not (tied.candidates & ~data.support).any()
    if F.dim:
        W = F.fit(_log_odds(tied))
        if not possible or _residual(W, tied) > COMPATIBLE:
            W = _minimise(tied, F, W)
    slope = float(np.linalg.norm(gradient(W, tied)))
    residual = _residual(W, tied)
    return FinitePart(W, slope, residual, bool(possible and residual <= COMPATIBLE), F)


def _residual(W, data):
    """Largest deviation of an in-support log-odds of a row from its target, in nats."""
    P, support = data.target_probs, data.support
    log_p = np.log(P, out=np.zeros_like(P), where=support)
    off = np.where(support, logits(W, data) - log_p, np.nan)
    return float((np.nanmax(off, axis=1) - np.nanmin(off, axis=1)).max())


def _log_odds(tied):
    """Target log-odds of each group's rows pooled, shape (G, V): exact where a group is one row."""
    with np.errstate(divide="ignore", invalid="ignore"):  # untied tokens, which nobody reads
        p, c = (np.log(_pooled(tied, x)) for x in (tied.target_probs, tied.candidate_counts))
        return p - c


def _pooled(data, rows):
    """Sum the rows of each group with their context probabilities, shape (G, V)."""
    total = np.zeros((len(data.group_names), data.vocab_size))
    np.add.at(total, data.group_index, data.context_probs[:, None] * rows)
    return total


def _minimise(tied, F, W):
    """Damped Newton with conjugate gradients, in coordinates in which no context is small."""
    whiten = F.whitening()
    zero = np.zeros(tied.shape)
    W = min(zero, W, key=lambda start: excess_loss(start, tied))  # neither start is saturated
    slope = whiten(gradient(W, tied))
    for _ in range(NEWTON_STEPS):
        direction = whiten(_newton_direction(W, tied, slope, whiten, 10 * F.dim))
        enough = 1e-4 * np.vdot(direction, gradient(W, tied))
        loss, t = excess_loss(W, tied), 1.0
        while t > 1e-10 and excess_loss(W - t * direction, tied) > loss - t * enough + 1e-14:
            t /= 2
        trial = W - t * direction
        trial_slope = whiten(gradient(trial, tied))
        size, trial_size = np.linalg.norm(slope), np.linalg.norm(trial_slope)
        if size <= SLOPE and trial_size >= size / 2:
            return F.project(W)  # no digit is left to gain
        W, slope = trial, trial_slope
    raise ConvergenceError(
        f"the finite part's gradient norm, relative to the embeddings, stayed at {size:.1e}; "
        f"{SLOPE:.0e} is needed. Nearly parallel context embeddings are the usual cause",
        float(size),
    )


def _newton_direction(W, tied, slope, whiten, iterations):
    Q = softmax(logits(W, tied), axis=1)
    weights = tied.context_probs[:, None]
    T = tied.token_embeddings

    def hessian(flat):
        y = flat.reshape(slope.shape)
        S = scores(whiten(y), tied)
        R = weights * Q * (S - (Q * S).sum(-1, keepdims=True))
        R = R.T if T is None else T.T @ R.T
        return (whiten(R @ tied.context_embeddings) + 1e-16 * y).ravel()  # never singular

    operator = LinearOperator((slope.size, slope.size), matvec=hessian, dtype=np.float64)
    forcing = np.clip(np.sqrt(np.linalg.norm(slope)), 1e-8, 0.1)  # superlinear convergence
    size = np.abs(slope).max() or 1.0  # rare contexts alone leave a slope whose square underflows
    step, _ = cg(operator, slope.ravel() / size, rtol=forcing, maxiter=iterations)
    return size * step.reshape(slope.shape)
