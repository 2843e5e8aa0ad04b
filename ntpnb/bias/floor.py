"""The floor of the loss, on separable data or not, between two bounds that prove themselves.

Every ``W`` bounds the infimum of the cross-entropy from above. From below it is bounded by
distributions ``q_j`` over the candidates of each context that have the same moments as the targets,

    Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ = 0 :

with ``log Σ_v c_v e^{s_v} ≥ Σ_v q_v (s_v + log c_v) + H(q)`` in each context, no ``W`` has a loss
below ``Σ_j π_j (H(q_j) + Σ_v (q_jv − p_jv) log c_jv)``. The targets themselves are such
distributions, and give the entropy. Better ones are made from the probabilities of a ``W`` near the
minimum: one step of Newton's method changes them to first order, by ``q_jv (x_jv − Σ_u q_ju x_ju)``
with the step's scores ``x``, and this meets the moments exactly, since that is what Newton's
equations ask for.

Neither needs more than a block of contexts at one time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sla
from scipy.optimize import minimize
from scipy.sparse import dia_array, diags_array

from ntpnb.basics.saving import Result, register
from ntpnb.basics.threads import one_thread, product
from ntpnb.basics.tolerances import EPS, HALF_THE_DIGITS, HELD, STOP, VANISHES, decomposition_error
from ntpnb.basics.validation import FloatArray, require_dense, require_number, require_type
from ntpnb.basics.watch import OutOfTime, Progress, Watch
from ntpnb.bias.partition import centred, contradiction, largest_gradient
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import (
    LARGEST,
    Rows,
    as_weights,
    bilinear_scores,
    candidate_logits,
    cross_entropy,
    pull_back,
)
from ntpnb.problem.order import token_priority
from ntpnb.problem.sums import ContextSums
from ntpnb.problem.table import row_slices
from ntpnb.tied.newton import conjugate_gradients, norm

SHARE_OF_GAP = 0.25
"""Share of the gap that probabilities may cost which are set to zero for the lower bound."""

MOST_CORRECTIONS = 2
"""Of the distributions: one is the rule, and a second one mends what it lost to rounding."""

REMEMBERED = 30
"""Steps that L-BFGS remembers, where memory allows.

With scipy's ten it took fifty times as many steps on a separable text, and half as many with a
hundred, which cost more where data are not separable.
"""

MOST_PRODUCTS = 200
"""Of the curvature with a step: some tens are the rule, and what takes more is ill-conditioned."""


@register
@dataclass(frozen=True, eq=False)
class Distributions:
    """Distributions over the candidates of each context, kept as what they are made from.

    Attributes
    ----------
    W : ndarray, shape (p, q)
        Whose probabilities they begin with.
    threshold : float
        Below it, probabilities of tokens that do not follow are set to zero.
    corrections : tuple of ndarray, shape (p, q)
        Newton's steps, one after the other.
    """

    W: FloatArray
    threshold: float
    corrections: tuple[FloatArray, ...] = ()

    def of(self, block: Rows) -> FloatArray:
        """The distributions of a block of contexts, shape (k, V)."""
        q = candidate_logits(self.W, block)
        to_probabilities(q)
        row, token, _ = block.entries
        following = q[row, token]
        q[q < self.threshold] = 0.0
        q[row, token] = following
        q /= q.sum(1, keepdims=True)
        for step in self.corrections:
            change = centred(bilinear_scores(step, block), q)
            change += 1.0
            q *= np.maximum(change, 0.0, out=change)
            q /= q.sum(1, keepdims=True)  # one but for rounding, and for what would be negative
        return q

    def _residuals(self, block: Rows) -> FloatArray:
        """``q_jv − p_jv`` of a block, shape (k, V)."""
        residuals = self.of(block)
        row, token, p = block.entries
        residuals[row, token] -= p
        return residuals

    # The next five give a block's part of what is summed over all contexts.

    def moments(self, block: Rows) -> tuple[FloatArray]:
        """``Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ``, shape (p, q)."""
        residuals = self._residuals(block)
        residuals *= block.context_probs[:, None]
        return (pull_back(residuals, block),)

    def moved(self, block: Rows) -> tuple[float]:
        """``Σ_j π_j ‖h_j‖ Σ_v |q_jv − p_jv| ‖t_v‖``, what the terms of the moments sum up to."""
        residuals = self._residuals(block)
        T = block.token_embeddings
        of_tokens = np.ones(block.vocab_size) if T is None else np.linalg.norm(T, axis=1)
        lengths = np.linalg.norm(block.context_embeddings, axis=1)
        return (float((block.context_probs * lengths) @ (np.abs(residuals) @ of_tokens)),)

    def curvature(self, block: Rows, step: FloatArray) -> tuple[FloatArray]:
        """``Σ_j π_j Σ_v q_jv (x_jv − Σ_u q_ju x_ju) t_v h_jᵀ`` with a step's scores ``x``."""
        q = self.of(block)
        change = centred(bilinear_scores(step, block), q)
        change *= q
        change *= block.context_probs[:, None]
        return (pull_back(change, block),)

    def token_curvatures(self, block: Rows) -> tuple[FloatArray]:
        """``Σ_j π_j q_jv (1 − q_jv) h_j h_jᵀ`` of each one-hot token, shape (V, d, d)."""
        q = self.of(block)
        q *= 1.0 - q
        q *= block.context_probs[:, None]
        H = block.context_embeddings
        curvatures = np.empty((q.shape[1], H.shape[1], H.shape[1]))
        for tokens in row_slices((q.shape[1], *H.shape)):
            weighted = q.T[tokens, :, None] * H
            curvatures[tokens] = product(weighted.swapaxes(1, 2), H)
        return (curvatures,)

    def bound(self, block: Rows) -> tuple[float]:
        """``Σ_j π_j (H(q_j) + Σ_v (q_jv − p_jv) log c_jv)`` in nats."""
        q = self.of(block)
        log_q = np.log(q, out=np.zeros_like(q), where=q > 0)
        entropies = -np.vecdot(q, log_q)
        counts = block.candidate_counts
        if counts is not None:
            log_counts = np.log(counts, out=np.zeros_like(counts), where=counts > 0)
            # Relative to the targets' mean: what counts have in common shall not be rounded.
            log_counts -= np.vecdot(block.target_probs, log_counts)[:, None]
            entropies += np.vecdot(q, log_counts)
        return (float(block.context_probs @ entropies),)


@register
@dataclass(frozen=True, eq=False)
class TargetsButForZeros(Distributions):
    """The targets, and in contexts of length zero what every ``W`` gives; here ``W`` is zero.

    They have the targets' moments to the last bit. What other distributions move may be rounding
    where only contexts of length zero keep the loss above the entropy, and then proves nothing.
    """

    def of(self, block: Rows) -> FloatArray:
        """The distributions of a block of contexts, shape (k, V)."""
        q = candidate_logits(self.W, block)
        to_probabilities(q)
        has_length = block.context_embeddings.any(axis=1)
        q[has_length] = block.target_probs[has_length]
        return q


@dataclass(frozen=True, eq=False, repr=False)
class LossFloor(Result):
    """Bounds of the infimum over all ``W`` of the cross-entropy, in nats.

    Attributes
    ----------
    lower, upper : float
    W : ndarray, shape (p, q)
        Whose loss is ``upper``: ``ntpnb.cross_entropy(W, data)``.
    residual : float
        How much the moments of the distributions behind ``lower`` miss those of the targets, in
        norm and relative to ``Σ_j π_j ‖h_j‖ max_v ‖t_v‖``: at most 1e-12, which is rounding, and
        also at most 1e-8 of what the moments' terms ``π_j (q_jv − p_jv) t_v h_j`` sum up to. What
        they miss, times the norm of ``W``, and the rounding of sums are taken off ``lower``; so a
        ``W'`` lies below it by no more than what they miss times ``‖W'‖ − ‖W‖``. Zero where
        ``lower`` is the entropy, whose distributions are the targets.
    ended : str
        Why it ended: ``"the gap is reached"``, or the time was over, or rounding left nothing to
        improve.

    Examples
    --------
    >>> import ntpnb
    >>> H = [[1.0], [2.0], [3.0]]
    >>> floor = ntpnb.loss_floor(ntpnb.NextTokenData(H, [[1, 0], [0, 1], [1, 0]]))
    >>> floor.lower <= floor.upper, round(floor.upper, 4), floor.gap <= 1e-6
    (True, 0.6443, True)
    """

    lower: float
    upper: float
    W: FloatArray
    residual: float
    ended: str
    _data: NextTokenData
    _distributions: Distributions | None

    def _checked(self) -> "LossFloor":
        """The floor that a file describes, with bounds that are computed again."""
        as_weights("LossFloor.W", self.W, self._data)
        upper = float(cross_entropy(self.W, self._data))
        found = self._distributions
        lower = self._data.entropy
        if found is not None:
            for matrix in (found.W, *found.corrections):
                as_weights("LossFloor's distributions", matrix, self._data)
            size = largest_gradient(self._data, self._data.context_probs)
            sums = ContextSums(self._data)
            (moments,) = sums(found.moments)
            if not have_vanished(moments, found, size, sums):
                raise ValueError("LossFloor's distributions do not have the moments of its data")
            (lower,) = sums(found.bound)
        if not (self.lower <= lower and abs(upper - self.upper) <= STOP * upper):
            raise ValueError("LossFloor's bounds are not those of its matrices")
        return self

    @property
    def gap(self) -> float:
        """``(upper − lower) / upper``, and zero where both are zero.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.loss_floor(ntpnb.NextTokenData([[1.0]], [[1, 0]])).gap
        0.0
        """
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def distributions(self, rows: slice) -> FloatArray:
        """The distributions ``q_j`` of some contexts, from which ``lower`` is computed.

        Parameters
        ----------
        rows : slice
            As for :meth:`NextTokenData.block`.

        Returns
        -------
        ndarray, shape (k, V)

        Examples
        --------
        >>> import ntpnb
        >>> H = [[1.0], [2.0], [3.0]]
        >>> floor = ntpnb.loss_floor(ntpnb.NextTokenData(H, [[1, 0], [0, 1], [1, 0]]))
        >>> floor.distributions(slice(0, 1)).shape
        (1, 2)
        """
        block = self._data.block(rows)
        return block.target_probs if self._distributions is None else self._distributions.of(block)

    @property
    def refutes(self) -> bool:
        """Whether data that are compatible cannot be separable, since their loss has a floor.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
        >>> ntpnb.loss_floor(data).refutes
        True
        """
        return self.lower - self._data.entropy > HALF_THE_DIGITS * self.upper

    def dense(self) -> FloatArray:
        """Weigh all strict pairs by the mass that the distributions give to their losers.

        Returns
        -------
        ndarray, shape (num_strict,)
            Shares of all, a certificate that data are not separable where they are compatible and
            the floor :attr:`refutes`; zeros where no loser has any mass.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
        >>> ntpnb.loss_floor(data).dense().round(6).tolist()
        [0.5, 0.5]
        """
        data = self._data
        probs = self.distributions(slice(0, data.num_contexts))
        return contradiction(data, token_priority(data), probs).certificate


@one_thread
def loss_floor(
    data: NextTokenData,
    gap: float = 1e-6,
    seconds: float | None = None,
    progress: Progress | None = None,
    n_jobs: int | None = 1,
) -> LossFloor:
    """Enclose the infimum over ``W`` of the cross-entropy, whether or not data are separable.

    It is what an output layer or a linear probe can reach at best: ``cross_entropy(W, data)`` of
    one that was trained, less ``lower``, is the most that more training can gain.

    Parameters
    ----------
    data : NextTokenData
        Of any size of which ``W`` and a block of contexts can be held.
    gap : float
        How far the bounds may lie apart, relative to the upper one: positive, less than one.
    seconds : float, optional
        After so many the best bounds so far are returned. Where contexts have much in common,
        ``lower`` is then the entropy for a long time after ``upper`` has settled. Default: no
        limit.
    progress : callable, optional
        Called with a line of text that says what is known; what it raises ends the search.
    n_jobs : int, optional
        How many workers sum over the contexts where these are too many for one block, as in
        joblib; None takes what ``joblib.parallel_config`` says. The result is the same for every
        number, up to rounding where their BLAS, or its number of threads, is another.

    Returns
    -------
    LossFloor
        Its ``gap`` is at most the one that was asked for, or ``ended`` says why not.

    Raises
    ------
    TypeError
        ``data`` is no dataset, a number is none, or ``progress`` cannot be called.
    ValueError
        ``gap`` or ``seconds`` out of range, ``n_jobs`` zero or a fraction, or ``W`` would have more
        than 2**28 entries.
    ImportError
        Another ``n_jobs`` than one, and joblib is missing: the extra ``sweep`` brings it.

    References
    ----------
    T24 (002) Sec. 3: the entropy bounds the loss from below, and is its infimum where data are
    separable and compatible. The bound is the dual problem of maximum likelihood, the maximum of
    entropy with given moments: S. Della Pietra, V. Della Pietra & J. Lafferty (1997), Inducing
    features of random fields. The minimum is found by L-BFGS: R. H. Byrd, P. Lu, J. Nocedal &
    C. Zhu (1995).

    Examples
    --------
    Equal contexts that ask for different tokens cannot be told apart:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
    >>> floor = ntpnb.loss_floor(data)
    >>> round(floor.lower, 6), round(floor.upper, 6), data.entropy  # log 2
    (0.693147, 0.693147, 0.0)
    """
    require_type("data", data, NextTokenData)
    require_number("gap", gap, lambda number: 0 < number < 1, "be positive and less than 1")
    require_dense("loss_floor", data.shape, "use fewer tokens or dimensions")
    watch = Watch(seconds, progress)
    with ContextSums(data, n_jobs) as sums:
        search = FloorSearch(data, sums, watch)
        try:
            search.run(gap)
        except OutOfTime:
            return search.best(watch.over)
    return search.best("the gap is reached" if search.is_reached(gap) else "nothing improves")


def have_vanished(
    moments: FloatArray, found: Distributions, size: float, sums: ContextSums
) -> bool:
    """Whether what moments of distributions leave over, shape (p, q), is rounding.

    It has to be small beside the largest gradient of all, the size, and also beside what the
    distributions move: where that is next to nothing, because they are nearly the targets, no
    moments are large, and to be small beside the size proves nothing.
    """
    (moved,) = sums(found.moved)
    left = float(np.linalg.norm(moments))
    return left <= VANISHES * size and left <= HALF_THE_DIGITS * moved


class FloorSearch:
    """The search for better bounds, and the best ones so far.

    Parameters
    ----------
    data : NextTokenData
    sums : ContextSums
        Over the contexts of ``data``.
    watch : Watch
    """

    def __init__(self, data: NextTokenData, sums: ContextSums, watch: Watch) -> None:
        self.data = data
        self.sums = sums
        self.watch = watch
        self.scale = Whitening(data, sums)
        self.W = np.zeros(data.shape)
        self.upper = float(cross_entropy(self.W, data))
        self.lower = data.entropy
        self.residual = 0.0
        self.proof: Distributions | None = None
        self.size = largest_gradient(data, data.context_probs)
        if (data.context_lengths == 0).any():
            self._take(TargetsButForZeros(np.zeros(data.shape), 0.0))

    def best(self, ended: str) -> LossFloor:
        """The bounds so far."""
        return LossFloor(
            lower=self.lower,
            upper=self.upper,
            W=self.W,
            residual=self.residual,
            ended=ended,
            _data=self.data,
            _distributions=self.proof,
        )

    def is_reached(self, gap: float) -> bool:
        """Whether the bounds are near enough."""
        return self.upper - self.lower <= gap * self.upper

    def run(self, gap: float) -> None:
        """Improve both bounds in turn, until they are near enough or rounding ends it."""
        tolerance = 0.1 * gap * self.upper
        while not self.is_reached(gap):
            loss_before = self.upper
            self._lower_the_loss(tolerance)
            self._go(self.W)
            if not self.is_reached(gap):
                self._raise_the_bound(gap)
            self.watch.say(f"the floor lies between {self.lower:.9g} and {self.upper:.9g} nats")
            tolerance = 0.1 * min(tolerance, gap * self.upper)
            if tolerance < EPS * self.upper and self.upper >= loss_before:
                return

    def _lower_the_loss(self, tolerance: float) -> None:
        """Minimise from the best ``W``, until a step lowers the loss by less than the tolerance.

        Where all embeddings are zero there is nothing to choose.
        """
        if not self.scale.size:
            return

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            self.watch.check()
            W = self.scale.weights(x)
            value, slope = self.sums(loss_and_gradient, W)
            if value < self.upper:
                self.W = W
                self.upper = value
            return value, self.scale.slope(slope)

        start = self.scale.coordinates(self.W)
        remembered = max(1, min(REMEMBERED, HELD // (2 * self.scale.size)))
        options = {"ftol": tolerance, "gtol": 0.0, "maxcor": remembered}
        try:
            minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        finally:  # also where the time is over: the same sum, rounded as everybody else's
            self.upper = float(cross_entropy(self.W, self.data))

    def _go(self, move: FloatArray) -> None:
        """Go on a way, twice as far each time, as long as the loss falls.

        Where tokens can be lost there are ways on which it falls without end.
        """
        while self.upper > 0 and np.abs(self.W + move).max() < LARGEST:
            self.watch.check()
            value = float(cross_entropy(self.W + move, self.data))
            if value >= self.upper:
                return
            self.W = self.W + move
            self.upper = value
            move = 2 * move

    def _raise_the_bound(self, gap: float) -> None:
        """Make distributions with the targets' moments from the probabilities of ``W``."""
        allowed = SHARE_OF_GAP * gap * self.upper / self.data.vocab_size
        # −τ log τ ≤ allowed for each token at most
        threshold = allowed / max(1.0, -np.log(allowed))
        found = Distributions(self.W, threshold)
        (left,) = self.sums(found.moments)
        for _ in range(MOST_CORRECTIONS):
            step = self._newton_step(found, left)
            if not found.corrections:
                self._go(step)
            found = replace(found, corrections=(*found.corrections, step))
            before = left
            (left,) = self.sums(found.moments)
            if have_vanished(left, found, self.size, self.sums):
                self._take(found, float(np.linalg.norm(left)))
                return
            if np.linalg.norm(left) > 10 * HALF_THE_DIGITS * np.linalg.norm(before):
                return  # too much was cut off, or the step is none: a better W is needed first

    def _take(self, found: Distributions, left: float = 0.0) -> None:
        """Take the bound of distributions whose moments leave over so much, if it is higher."""
        (bound,) = self.sums(found.bound)
        bound -= left * float(np.linalg.norm(self.W))
        # A probability near one is rounded by EPS, and so is −q log q, however small.
        bound -= STOP * bound + 8 * EPS
        if bound > self.lower:
            self.lower = bound
            self.residual = left / (self.size or 1.0)
            self.proof = found

    def _newton_step(self, found: Distributions, moments: FloatArray) -> FloatArray:
        """The step along which the moments of the distributions vanish, as far as it is found."""

        def times(step: FloatArray) -> FloatArray:
            self.watch.check()
            curved: FloatArray
            (curved,) = self.sums(found.curvature, step)
            return curved

        return conjugate_gradients(
            times,
            -moments,
            0.5 * VANISHES,
            self.watch,
            self._preconditioner(found),
            lambda left: norm(left) / self.size,
            MOST_PRODUCTS,
        )

    def _preconditioner(self, found: Distributions) -> Callable[[FloatArray], FloatArray]:
        """The curvature's inverse, token by token where tokens are one-hot, or the whitening."""
        vocab_size, dim = self.data.shape
        if self.data.token_embeddings is not None or vocab_size * dim**2 > HELD:
            return lambda G: self.scale.weights(self.scale.slope(G))
        self.watch.check()
        (inverses,) = self.sums(found.token_curvatures)
        for tokens in row_slices(inverses.shape):
            self.watch.check()
            inverses[tokens] = np.linalg.pinv(inverses[tokens], hermitian=True)
        return lambda G: (inverses @ G[:, :, None])[:, :, 0]


class Whitening:
    """Coordinates of ``W`` in which the loss is curved about alike in all directions.

    At ``W = 0`` with tokens about as likely as the targets say, it is curved as ``K ⊗ G``, the
    second moments of token and context embeddings.

    Parameters
    ----------
    data : NextTokenData
    sums : ContextSums
        Over the contexts of ``data``.
    """

    def __init__(self, data: NextTokenData, sums: ContextSums) -> None:
        frequencies = data.sparse_target_probs.T @ data.context_probs
        frequencies = (frequencies + 1 / data.vocab_size) / 2  # not zero for any token
        (moments,) = sums(second_moments)
        self._contexts = inverse_root(moments)
        T = data.token_embeddings
        self._tokens: FloatArray | dia_array = diags_array(1 / np.sqrt(frequencies))
        self._tokens_inverted: FloatArray | dia_array = diags_array(np.sqrt(frequencies))
        if T is not None:
            self._tokens = inverse_root((T.T * frequencies) @ T)
            self._tokens_inverted = np.linalg.pinv(self._tokens)
        self.shape = (self._tokens.shape[1], self._contexts.shape[1])
        self.size = self.shape[0] * self.shape[1]

    def weights(self, x: FloatArray) -> FloatArray:
        """The ``W`` of coordinates, shape (p, q) for (size,)."""
        W: FloatArray = self._tokens @ (x.reshape(self.shape) @ self._contexts.T)
        return W

    def slope(self, gradient: FloatArray) -> FloatArray:
        """The derivatives along the coordinates of a gradient, shape (size,) for (p, q)."""
        slope: FloatArray = self._tokens.T @ (gradient @ self._contexts)
        return slope.ravel()

    def coordinates(self, W: FloatArray) -> FloatArray:
        """The coordinates of a ``W`` that has some, shape (size,)."""
        x: FloatArray = self._tokens_inverted @ (W @ np.linalg.pinv(self._contexts).T)
        return x.ravel()


def second_moments(block: Rows) -> tuple[FloatArray]:
    """The block's part of ``Σ_j π_j h_j h_jᵀ``, shape (q, q)."""
    H = block.context_embeddings
    return (product(H.T * block.context_probs, H),)


def inverse_root(moments: FloatArray) -> FloatArray:
    """``R`` with ``R Rᵀ`` the pseudo-inverse of a matrix of second moments."""
    values, vectors = sla.eigh(moments)
    kept = values > decomposition_error(len(values)) * values[-1]
    root: FloatArray = vectors[:, kept] / np.sqrt(values[kept])
    return root


def loss_and_gradient(block: Rows, W: FloatArray) -> tuple[float, FloatArray]:
    """The block's part of the cross-entropy, and of its gradient, in one pass."""
    q = candidate_logits(W, block)
    row, token, p = block.entries
    logits = q[row, token]
    log_sums = to_probabilities(q)
    weighted = block.context_probs[row] * p
    loss = float(weighted @ (log_sums[row] - logits))
    q *= block.context_probs[:, None]
    q[row, token] -= weighted
    return loss, pull_back(q, block)


def to_probabilities(logits: FloatArray) -> FloatArray:
    """Turn logits, shape (k, V), into probabilities, and return ``log Σ exp`` of each row."""
    largest = logits.max(axis=1, keepdims=True)
    logits -= largest
    np.exp(logits, out=logits)
    totals = logits.sum(axis=1, keepdims=True)
    logits /= totals
    log_sums: FloatArray = (largest + np.log(totals))[:, 0]
    return log_sums
