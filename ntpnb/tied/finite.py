"""The finite part: where training converges on the tied tokens (T24's W*, L24's W^cyc)."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import softmax

from ntpnb.array_types import FloatArray
from ntpnb.errors import ConvergenceError
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import (
    bilinear_scores,
    excess_loss,
    gradient,
    log_target_probs,
    logits,
    pull_back,
)
from ntpnb.problem.order import TokenPriority, row_components, token_priority
from ntpnb.tied.subspace import EqualSubspace, Whitening, equal_subspace

COMPATIBLE = 1e-8  # nats of log-odds: far above rounding, far below any effect
SLOPE = 1e-9  # largest norm of the gradient, in coordinates where it is an error in probabilities
NEWTON_STEPS = 100
SUFFICIENT_DECREASE = 1e-4  # the share of the linear prediction that a step must reach (Armijo)
SHORTEST_STEP = 1e-10
LOSS_NOISE = 1e-14  # nats that rounding may add to a loss


@dataclass(frozen=True, eq=False)
class FinitePart:
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
        The tied subspace that contains ``W``.

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
    TypeError
        ``data`` is no dataset.

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
    if order is None:
        order = token_priority(data)
    labels, own = row_components(data, order)
    tied = data.candidates & (labels == own)
    return data.replace(candidate_counts=np.where(tied, counts_or_ones(data), 0.0))


def finite_part(data: NextTokenData, *, order: TokenPriority | None = None) -> FinitePart:
    """Minimise the restricted cross-entropy over the tied subspace F.

    Where the data are compatible this solves T24's log-odds equations. In general it is the
    finite maximum-likelihood estimate of a choice model on every component, which exists and is
    unique because a component is strongly connected (Ford's condition).

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
    TypeError
        ``data`` is no dataset.
    ValueError
        The tied subspace is too large, see :func:`ntpnb.equal_subspace`.
    ConvergenceError
        The gradient's norm stayed above 1e-9; the norm reached is its ``residual``. It is measured
        in coordinates in which the embeddings have no scale.

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
    if order is None:
        order = token_priority(data)
    F = equal_subspace(data, order)
    tied = restrict(data, order)
    W = np.zeros(data.shape)
    all_tied_occur = not (tied.candidates & ~data.support).any()
    if F.dim:
        W = F.fit(_pooled_log_odds(tied))
        if not all_tied_occur or _largest_log_odds_error(W, tied) > COMPATIBLE:
            W = _minimise(tied, F, W)
    residual = _largest_log_odds_error(W, tied)
    return FinitePart(
        W=W,
        gradient_norm=float(np.linalg.norm(gradient(W, tied))),
        residual=residual,
        compatible=bool(all_tied_occur and residual <= COMPATIBLE),
        subspace=F,
    )


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


def _minimise(tied: NextTokenData, F: EqualSubspace, start: FloatArray) -> FloatArray:
    """Damped Newton with conjugate gradients, in coordinates in which no context is small."""
    whiten = F.whitening()
    zero = np.zeros(tied.shape)
    # The fit may saturate the probabilities, and then its gradient says nothing; zero does not.
    W = start if _loss(start, tied) < _loss(zero, tied) else zero
    slope = gradient(W, tied)
    white_slope = whiten(slope)
    for _ in range(NEWTON_STEPS):
        direction = whiten(_newton_direction(W, tied, white_slope, whiten, 10 * F.dim))
        trial = W - _step_length(W, direction, slope, tied) * direction
        trial_slope = gradient(trial, tied)
        trial_white_slope = whiten(trial_slope)
        size = np.linalg.norm(white_slope)
        trial_size = np.linalg.norm(trial_white_slope)
        no_digit_left_to_gain = trial_size >= size / 2
        if size <= SLOPE and no_digit_left_to_gain:
            return F.project(W)
        W = trial
        slope = trial_slope
        white_slope = trial_white_slope
    raise ConvergenceError(
        f"the finite part's gradient norm, relative to the embeddings, stayed at {size:.1e}; "
        f"{SLOPE:.0e} is needed. Nearly parallel context embeddings are the usual cause",
        float(size),
    )


def _loss(W: FloatArray, tied: NextTokenData) -> float:
    """Restricted loss of one matrix, less the entropy."""
    return float(excess_loss(W, tied))


def _step_length(
    W: FloatArray, direction: FloatArray, slope: FloatArray, tied: NextTokenData
) -> float:
    """Halve the Newton step until the loss decreases as much as its slope lets expect (Armijo)."""
    loss = _loss(W, tied)
    enough = SUFFICIENT_DECREASE * np.vdot(direction, slope)
    step = 1.0
    while step > SHORTEST_STEP:
        if _loss(W - step * direction, tied) <= loss - step * enough + LOSS_NOISE:
            break
        step /= 2
    return step


def _newton_direction(
    W: FloatArray,
    tied: NextTokenData,
    white_slope: FloatArray,
    whiten: Whitening,
    max_iterations: int,
) -> FloatArray:
    """Solve Newton's equations, as accurately as the slope makes worthwhile.

    The solution is in white coordinates: whitened once more, it is a change of W. The Hessian
    of the loss maps a change of W to that of the residuals ``π_j q_jv``, pulled back to W.
    """
    Q = softmax(logits(W, tied), axis=1)
    frequencies = tied.context_probs[:, None] * Q

    def white_hessian(flat: FloatArray) -> FloatArray:
        white = flat.reshape(white_slope.shape)
        S = bilinear_scores(whiten(white), tied)
        residuals = frequencies * (S - (Q * S).sum(-1, keepdims=True))
        curved = whiten(pull_back(residuals, tied))
        never_singular = curved + 1e-16 * white
        return never_singular.ravel()

    num_entries = white_slope.size
    operator = LinearOperator((num_entries, num_entries), matvec=white_hessian, dtype=np.float64)
    # Superlinear convergence: the accuracy grows as the slope falls.
    accuracy = np.clip(np.sqrt(np.linalg.norm(white_slope)), 1e-8, 0.1)
    # Rare contexts alone leave a slope whose square underflows: solve for it at size one.
    size = np.abs(white_slope).max() or 1.0
    scaled = white_slope.ravel() / size
    step: FloatArray = cg(operator, scaled, rtol=accuracy, maxiter=max_iterations)[0]
    direction: FloatArray = size * step.reshape(white_slope.shape)
    return direction
