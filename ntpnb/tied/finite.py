"""The finite part: where training converges on the tied tokens (T24's W*, L24's W^cyc)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from ntpnb.basics.saving import Result
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import HALF_THE_DIGITS, NEGLIGIBLE
from ntpnb.basics.validation import FloatArray, require_type
from ntpnb.basics.watch import Watch
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import (
    as_weights,
    bilinear_scores,
    excess_loss,
    gradient,
    log_target_probs,
    logits,
    pull_back,
)
from ntpnb.problem.order import TokenPriority, order_of, row_components
from ntpnb.tied.large import LargeSubspace, evidence, is_large, large_finite_part
from ntpnb.tied.newton import RestrictedLoss, minimise, not_settled
from ntpnb.tied.subspace import EqualSubspace, equal_subspace


@dataclass(frozen=True, eq=False, repr=False)
class FinitePart(Result):
    """The minimiser ``W*`` over the tied subspace F of the loss restricted to tied tokens.

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
        Whether ``W`` meets every row's distribution: ``residual`` is at most 1e-8 and no tied
        token of a row is without target probability (T24 Def. 1; for L24 true only when S_cyc is
        {0}).
    subspace : EqualSubspace
        The tied subspace that contains ``W``. Of large data it costs nothing until it is used.

    References
    ----------
    T24 (002) Def. 1 and Eq. (4); L24 (004) Lemma 2.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.finite_part(ntpnb.datasets.toy())
    >>> found.compatible, found.subspace.dim, found.residual < 1e-12
    (True, 6, True)
    """

    W: FloatArray
    gradient_norm: float
    residual: float
    compatible: bool
    subspace: EqualSubspace

    def _checked(self) -> "FinitePart":
        """The finite part that a file describes, measured anew on its data."""
        data = self.subspace._data
        as_weights("FinitePart.W", self.W, data)
        longest = data.context_lengths.max()
        outside = longest * np.linalg.norm(self.subspace.reject(self.W))
        if not outside <= HALF_THE_DIGITS * max(1.0, longest * np.linalg.norm(self.W)):
            raise ValueError("FinitePart.W lies outside the tied subspace")
        if is_large(data):
            return _measured_large(self.W, data)
        return _measured(self.W, restrict(data), self.subspace)


def restrict(data: NextTokenData, order: TokenPriority | None = None) -> NextTokenData:
    """Drop from each row the candidates that its in-support tokens strictly dominate.

    For L24 this is the cyclic subdataset; for T24 each row keeps its support.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already.

    Returns
    -------
    NextTokenData
        The same rows with smaller candidate sets. Rows with a single candidate have zero loss.

    Raises
    ------
    TypeError, ValueError
        ``data`` is no dataset, or ``order`` none of its groups and tokens.

    References
    ----------
    L24 (004) Def. 1.

    Examples
    --------
    >>> import ntpnb
    >>> tied = ntpnb.restrict(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
    >>> tied.candidates.tolist()
    [[True, True, False]]
    """
    order = order_of(data, order)
    labels, own = row_components(data, order)
    tied = data.candidates & (labels == own)
    return data.replace(candidate_counts=np.where(tied, counts_or_ones(data), 0.0))


@one_thread
def finite_part(
    data: NextTokenData,
    *,
    order: TokenPriority | None = None,
    seconds: float | None = None,
    progress: Callable[[str], object] | None = None,
) -> FinitePart:
    """Minimise the restricted cross-entropy over the tied subspace F.

    Where the data are compatible this solves T24's log-odds equations. In general it is the
    finite maximum-likelihood estimate of a choice model on every component, which exists and is
    unique because a component is strongly connected (Ford's condition).

    Data with one-hot tokens, no candidate counts, a group for each row, and contexts times tokens
    of at least 2²⁰ are solved from their supports alone: tokens that can meet any odds are set
    aside, Newton's method fits those that are left, and conjugate gradients find the smallest
    ``W`` with the log-odds that result.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already. Large data need none.
    seconds : float, optional
        Time limit of the iterations. Default: none.
    progress : callable, optional
        Called with a line of text that says what is known; what it raises ends the iteration.

    Returns
    -------
    FinitePart

    Raises
    ------
    TypeError
        ``data`` is no dataset, ``seconds`` no number, or ``progress`` cannot be called.
    ValueError
        The tied subspace is too large, or undecided, see :func:`ntpnb.equal_subspace`; or contexts,
        which the message names, are so nearly dependent that ``W`` might be off it by 1e-8 of its
        norm; or ``seconds`` is negative.
    ConvergenceError
        The gradient's norm stayed above 1e-9, or time was over. The norm reached is its
        ``residual``, in coordinates in which the embeddings have no scale: an error of the
        probabilities. Its ``point`` is the best ``W`` that was reached, in F.

    References
    ----------
    T24 (002) Eq. (4)–(5) and Thm 2; L24 (004) Def. 3, Lemma 2 and Lemma 7. L. R. Ford (1957),
    Solution of a ranking problem from binary comparisons.

    Examples
    --------
    One context with odds of four to one, which the scores of its two tokens share evenly:

    >>> import ntpnb
    >>> found = ntpnb.finite_part(ntpnb.NextTokenData([[1.0]], [[0.8, 0.2, 0.0]]))
    >>> found.W.round(6).tolist()  # ± ½ log 4
    [[0.693147], [-0.693147], [0.0]]
    """
    require_type("data", data, NextTokenData)
    watch = Watch(seconds, progress)
    if is_large(data):
        return _measured_large(large_finite_part(data, watch), data)
    order = order_of(data, order)
    F = equal_subspace(data, order)
    tied = restrict(data, order)
    W = np.zeros(data.shape)
    if F.dim:
        F.weakest.require(HALF_THE_DIGITS, data)
        W = F.fit(_pooled_log_odds(tied))
        if not _all_tied_occur(tied) or _largest_log_odds_error(W, tied) > HALF_THE_DIGITS:
            W = _minimise(tied, F, W, watch)
    return _measured(W, tied, F)


def _measured(W: FloatArray, tied: NextTokenData, F: EqualSubspace) -> FinitePart:
    """A finite part with the residuals that it has on the restricted data."""
    residual = _largest_log_odds_error(W, tied)
    return FinitePart(
        W=W,
        gradient_norm=float(np.linalg.norm(gradient(W, tied))),
        residual=residual,
        compatible=bool(_all_tied_occur(tied) and residual <= HALF_THE_DIGITS),
        subspace=F,
    )


def _measured_large(W: FloatArray, data: NextTokenData) -> FinitePart:
    """A finite part of large data with the residuals on the entries of their distributions."""
    gradient_norm, residual = evidence(W, data)
    return FinitePart(W, gradient_norm, residual, residual <= HALF_THE_DIGITS, LargeSubspace(data))


def _all_tied_occur(tied: NextTokenData) -> bool:
    return not (tied.candidates & ~tied.support).any()


def _largest_log_odds_error(W: FloatArray, data: NextTokenData) -> float:
    """Largest deviation of an in-support log-odds of a row from its target, in nats."""
    errors = logits(W, data) - log_target_probs(data)
    in_support = np.where(data.support, errors, np.nan)
    spread = np.nanmax(in_support, axis=1) - np.nanmin(in_support, axis=1)
    return float(spread.max())


def _pooled_log_odds(tied: NextTokenData) -> FloatArray:
    """Target log-odds of each group's rows pooled, shape (G, V): exact where a group is one row."""
    assert tied.candidate_counts is not None  # restricted data have counts
    # The logarithms of tokens that do not tie are infinite, and `fit` does not read them.
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(_pool_rows(tied, tied.target_probs))
        log_c = np.log(_pool_rows(tied, tied.candidate_counts))
        return log_p - log_c


def _pool_rows(data: NextTokenData, rows: FloatArray) -> FloatArray:
    """Sum the rows of each group, weighted by their context probabilities, shape (G, V)."""
    total = np.zeros((len(data.group_names), data.vocab_size))
    np.add.at(total, data.group_index, data.context_probs[:, None] * rows)
    return total


# -- Newton's method ------------------------------------------------------------------------------


class _DenseLoss(RestrictedLoss):
    """The restricted loss, from tables with an entry for each context and token."""

    def __init__(self, tied: NextTokenData, F: EqualSubspace) -> None:
        self._tied = tied
        self._whitening = F._whitening()

    def loss(self, W: FloatArray) -> float:
        """Restricted loss of one matrix, less the entropy."""
        return float(excess_loss(W, self._tied))

    def gradient(self, W: FloatArray) -> FloatArray:
        return gradient(W, self._tied)

    def curvature(self, W: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Hessian at ``W``: a change of W changes the residuals ``π_j q_jv``, pulled back to W."""
        tied = self._tied
        Q = softmax(logits(W, tied), axis=1)
        frequencies = tied.context_probs[:, None] * Q

        def hessian(direction: FloatArray) -> FloatArray:
            S = bilinear_scores(direction, tied)
            residuals = frequencies * (S - (Q * S).sum(-1, keepdims=True))
            return pull_back(residuals, tied)

        return hessian

    def whiten(self, G: FloatArray) -> FloatArray:
        return self._whitening(G)


def _minimise(tied: NextTokenData, F: EqualSubspace, start: FloatArray, watch: Watch) -> FloatArray:
    """Minimise the restricted loss by Newton's method, or say how near to the minimum it came."""
    problem = _DenseLoss(tied, F)
    zero = np.zeros(tied.shape)
    # The fit may saturate the probabilities, and then its gradient says nothing; zero does not.
    W = start if problem.loss(start) < problem.loss(zero) else zero
    best = minimise(problem, W, watch)
    W = F.project(best.point)
    if best.error > NEGLIGIBLE:
        raise not_settled(best.error, W, watch, F.weakest.contexts(tied))
    return W
