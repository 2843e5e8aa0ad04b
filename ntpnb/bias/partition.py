"""Which strict pairs of data that are not separable can be won, and which stay finite.

Newton's method minimises the loss. Where a pair can be won, every late step divides its loser's
probability by e, while all other probabilities settle; such losers are dropped from the loss, and
the loss of the others is minimised to its end. That is a guess, which two proofs then decide: the
gradient that vanishes at the minimum is a certificate that is positive on every pair that was kept,
and a max-margin solution wins every pair that was dropped. Where no such solution exists, its
refusal names dropped pairs that stay finite; these are kept for good, and the minimum is looked for
again. By the theorem of the alternative exactly one partition has both proofs.

At the minimum the probabilities ``q`` have the gradient zero, ``Σ_j π_j Σ_v (q_jv − p_jv) t_v
h_jᵀ = 0``. Written by pairs, this is the certificate.
"""

import math
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, pinvh
from scipy.special import log_softmax

from ntpnb.basics.errors import ConvergenceError, NotSeparableError
from ntpnb.basics.linear_systems import inverses_of_products, unit_rows
from ntpnb.basics.threads import MUCH_WORK
from ntpnb.basics.tolerances import EPS, HALF_THE_DIGITS, HELD, STOP
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray
from ntpnb.basics.watch import OutOfTime, Watch
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import bilinear_scores, candidate_logits, pull_back
from ntpnb.problem.order import TokenPriority, row_components, token_priority
from ntpnb.tied.newton import conjugate_gradients
from ntpnb.tied.subspace import flat_outer_products

MOST_WORK = 2**38
"""Multiply-adds of what is not begun unasked, or not at all where time cannot end it: a minute."""

MOST_PRODUCTS = 2**12
"""Products with the curvature that a search may take: some hundreds are the rule."""

USUAL_STEPS = 2**4
"""Newton steps that a search is expected to take; few take less."""

SETTLED = 1e-2
"""Change of a log-probability in a Newton step that counts as none, where others change by one."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The strict pairs that stay finite, and both proofs.

    Attributes
    ----------
    contradiction : Contradiction
        That the pairs which stay finite cannot be won.
    correction : float
        Newton's method would change no weight by more than this share.
    twin : NextTokenData
        The data with the targets ``q``.
    order : TokenPriority
        The order of ``twin``.
    svm : MarginSolution
        Its max-margin solution.

    Notes
    -----
    What a residual ``ε`` proves: let ``G = Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ`` be what is left
    over. For every ``W`` that meets the ties, ``−⟨G, W⟩ = Σ_j π_j Σ_v q_jv margin_jv(W)``, where
    ``v`` runs over the losers that are kept. So the mean of their margins, with the certificate's
    weights, is at most ``ε ‖W‖`` times that of ``‖h_j‖ max_u ‖t_u‖``: no ``W`` keeps all of them
    above that. Smaller margins are not ruled out, and that there are none is a reading: the bound
    on ``ε``, 1e-8, lies between a margin that counts as clear, 1e-6, and what is left over as a
    rule, below 1e-12.
    """

    contradiction: "Contradiction"
    correction: float
    twin: NextTokenData
    order: TokenPriority
    svm: MarginSolution


def partition_pairs(data: NextTokenData, order: TokenPriority, watch: Watch) -> Partition:
    """Tell the strict pairs that can be won from those that stay finite, with proofs.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``.
    watch : Watch

    Returns
    -------
    Partition

    Raises
    ------
    ConvergenceError
        No partition was proved, or not in time.

    Examples
    --------
    Two contexts on a line contradict each other about the tokens 0 and 1. Both are above token 2:

    >>> import ntpnb
    >>> from ntpnb.bias.partition import partition_pairs
    >>> from ntpnb.basics.watch import Watch
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 1, 0]])
    >>> order = ntpnb.token_priority(data)
    >>> order.strict.tolist()
    [[0, 0, 1], [0, 0, 2], [1, 1, 0], [1, 1, 2]]
    >>> partition_pairs(data, order, Watch()).contradiction.certificate.round(6).tolist()
    [0.5, 0.0, 0.5, 0.0]
    """
    try:
        return _guess_and_prove(data, order, watch)
    except OutOfTime:
        raise _undecided(watch.over) from None
    except np.linalg.LinAlgError as error:
        raise _undecided(f"a Newton system has no solution ({error})") from None


def require_memory(data: NextTokenData) -> None:
    """Raise ``ConvergenceError`` where tables of a search cannot be held, before one is formed.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.bias.partition import require_memory
    >>> require_memory(ntpnb.datasets.toy())
    """
    largest_table = data.num_contexts * data.vocab_size
    if _is_for_least_squares(data):
        largest_table *= math.prod(data.shape)
    if largest_table > HELD:
        raise ConvergenceError(
            f"which pairs can be won is not looked for: {data.num_contexts} contexts of "
            f"{data.vocab_size} tokens ask for tables of {largest_table} numbers, more than "
            f"{HELD}; use fewer contexts or tokens",
            np.inf,
        )


def expected_work(data: NextTokenData) -> int:
    """Multiply-adds that a search takes as a rule: 2**33 take about a second.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.bias.partition import expected_work
    >>> expected_work(ntpnb.datasets.toy()) < 2**33
    True
    """
    if _is_for_least_squares(data):
        return USUAL_STEPS * _work_of_least_squares(data)
    dim = data.shape[1]
    forming_blocks = data.num_contexts * data.vocab_size * dim**2
    inverting_them = data.vocab_size * dim**3
    return USUAL_STEPS * (forming_blocks + inverting_them)


def _undecided(reason: str, residual: float = np.inf) -> ConvergenceError:
    return ConvergenceError(f"which pairs can be won is undecided: {reason}", residual)


def _guess_and_prove(data: NextTokenData, order: TokenPriority, watch: Watch) -> Partition:
    """Drop what seems to be won, and take back what a proof says stays finite.

    Each round takes back for good at least one candidate, so that the rounds end.
    """
    newton = _Newton(data, watch, may_fall=pair_of_entries(data, order) >= 0)
    while True:
        newton.minimise()
        twin = data.replace(target_probs=newton.probs())
        twin_order = token_priority(twin)
        _refuse_many_ties(twin, twin_order)
        try:
            svm = max_margin(twin, order=twin_order, seconds=watch.left, progress=watch.say)
        except NotSeparableError as error:
            contradicts = np.append(error.certificate > 0, False)  # the last: of what is no pair
            pair_of = pair_of_entries(twin, twin_order)
            newton.take_back(contradicts[pair_of])
        else:
            break
    found = contradiction(data, order, twin.target_probs)
    if found.residual > HALF_THE_DIGITS:
        raise _undecided(
            "the weights of those that stay finite leave a sum of "
            f"{found.residual:.1e}, and not zero",
            found.residual,
        )
    return Partition(found, newton.correction, twin, twin_order, svm)


def _refuse_many_ties(twin: NextTokenData, order: TokenPriority) -> None:
    """Raise where pairs are won beside more ties than the max-margin problem is solved with."""
    ties_of_token = np.bincount(twin.sparse_target_probs.indices)
    if order.has_strict_pairs and (ties_of_token**3.0).sum() > MOST_WORK:
        raise ConvergenceError(
            f"in which direction W grows is not looked for: beside {order.num_strict} pairs that "
            f"seem to be won, {len(order.equal)} are tied, too many to solve for; use fewer "
            "contexts, or dimensions enough to separate them",
            np.inf,
        )


# -- the guess: a minimum by Newton's method ------------------------------------------------------


class _Newton:
    """Newton's method on the loss of those candidates that are kept.

    Parameters
    ----------
    data : NextTokenData
    watch : Watch
    may_fall : ndarray of bool, shape (m, V)
        The candidates that may be dropped.

    Attributes
    ----------
    kept : ndarray of bool, shape (m, V)
        At first all candidates.
    correction : float
        Largest relative change of a kept probability in the last step.
    """

    def __init__(self, data: NextTokenData, watch: Watch, may_fall: BoolArray) -> None:
        self._data = data
        self._watch = watch
        self._may_fall = may_fall
        self._W = np.zeros(data.shape)
        self._system = _system_for(data, watch)
        self._numbers = count(1)
        self.kept = data.candidates.copy()
        self.correction = np.inf

    def probs(self) -> FloatArray:
        """Probabilities of the kept candidates, shape (m, V)."""
        return np.exp(self._log_probs(self._W))

    def take_back(self, finite: BoolArray) -> None:
        """Begin again at zero, and keep for good candidates that are proved to stay finite."""
        self._W = np.zeros(self._data.shape)
        self._may_fall = self._may_fall & ~finite
        self.kept |= finite

    def minimise(self) -> None:
        """Minimise, and drop what falls without end, until all that is left has settled.

        Raises
        ------
        ConvergenceError
            It did not settle.
        OutOfTime
            The time is over.
        """
        while (fallen := self._descend()).any():
            self.kept &= ~fallen

    def _descend(self) -> BoolArray:
        """Take Newton steps until some candidates fall, which are returned, or all have settled.

        A step improves something if it lowers the loss, or if it is at most half as long as all
        before it.
        """
        shortest = np.inf
        for number in self._numbers:
            self._watch.check()
            step, change = self._newton_step()
            self.correction = float(np.abs(change).max())
            self._watch.say(
                f"Newton step {number}: probabilities change by a share of {self.correction:.1e}"
            )
            lowers_loss = self._walk(step)
            improves = lowers_loss or self.correction <= shortest / 2
            shortest = min(shortest, self.correction)
            fallen = self._fallen(change, in_doubt=not improves)
            if fallen.any():
                return fallen
            if self.correction <= (HALF_THE_DIGITS if improves else SETTLED):
                return self._vanished()
            if not improves:
                break
        raise _undecided(
            f"after {number} Newton steps nothing improves, and some probability still changes by "
            f"a share of {self.correction:.1e}",
            self.correction,
        )

    def _newton_step(self) -> tuple[FloatArray, FloatArray]:
        """A Newton step, and the change of each log-probability that it predicts, shape (m, V)."""
        probs = self.probs()
        step = self._system(probs)
        change = centred(bilinear_scores(step, self._data), probs)
        return step, np.where(self.kept, change, 0.0)

    def _fallen(self, change: FloatArray, in_doubt: bool) -> BoolArray:
        """Candidates whose probabilities fall, where all others have settled, or are in doubt."""
        falls = self._may_fall & (change < -0.5)  # nearer to -1 than to 0
        others = np.abs(change[~falls]).max(initial=0.0)
        if in_doubt or others <= SETTLED:
            return falls
        return np.zeros_like(falls)

    def _walk(self, step: FloatArray) -> bool:
        """Halve the step until the loss does not grow; tell whether it falls."""
        before = self._loss(self._W)
        rounding = STOP * max(1.0, before)
        share = 1.0
        after = self._loss(self._W + step)
        while share > 0 and not after <= before + rounding:
            share /= 2
            after = self._loss(self._W + share * step)
        self._W = self._W + share * step
        return after < before - rounding

    def _vanished(self) -> BoolArray:
        """Candidates that may fall, and whose probabilities are rounding of one.

        Raises
        ------
        ConvergenceError
            The probability of one that is kept for good is zero in floating point.
        """
        probs = self.probs()
        if (probs[self.kept & ~self._may_fall] == 0).any():
            raise _undecided(
                "the probability of a token that stays positive tends to less than 1e-308",
                self.correction,
            )
        return self.kept & self._may_fall & (probs < np.finfo(float).eps)

    def _log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the kept candidates' probabilities; −inf for all others."""
        logits = np.where(self.kept, candidate_logits(W, self._data), -np.inf)
        log_probs: FloatArray = log_softmax(logits, axis=1)
        return log_probs

    def _loss(self, W: FloatArray) -> float:
        targets = self._data.target_probs
        log_probs = np.where(targets > 0, self._log_probs(W), 0.0)
        of_context = (targets * log_probs).sum(1)
        return -float(self._data.context_probs @ of_context)


def centred(scores: FloatArray, probs: FloatArray) -> FloatArray:
    """Scores less their mean in each context."""
    means: FloatArray = (probs * scores).sum(1, keepdims=True)
    return scores - means


# -- Newton's equations ---------------------------------------------------------------------------


def _system_for(data: NextTokenData, watch: Watch) -> "_LeastSquares | _ConjugateGradients":
    """What makes a step of probabilities, shape (m, V)."""
    if _is_for_least_squares(data):
        return _LeastSquares(data)
    return _ConjugateGradients(data, watch)


def _is_for_least_squares(data: NextTokenData) -> bool:
    """Whether tokens are not one-hot, or so few that least squares are little work."""
    return data.token_embeddings is not None or _work_of_least_squares(data) < MUCH_WORK


def _work_of_least_squares(data: NextTokenData) -> int:
    num_rows = data.num_contexts * data.vocab_size
    num_columns = math.prod(data.shape)
    return num_rows * num_columns * min(num_rows, num_columns)


class _LeastSquares:
    """Weighted least squares, which square no condition number."""

    def __init__(self, data: NextTokenData) -> None:
        self._data = data
        T = data.token_embeddings
        self._tokens = np.eye(data.vocab_size) if T is None else T
        # What changes no score is left out once: weights may hide that its features are rounding.
        row, token = np.nonzero(data.candidates)
        units = unit_rows(self._features(row, token, data.anchors))
        _, sizes, rows = np.linalg.svd(units, full_matrices=False)
        self._basis = rows[sizes > max(units.shape) * EPS * sizes[0]]

    def _features(self, row: IntArray, token: IntArray, base: IntArray) -> FloatArray:
        """What each score has of ``W``, relative to that of one base token for each context."""
        apart = self._tokens[token] - self._tokens[base[row]]
        return flat_outer_products(apart, self._data.context_embeddings[row])

    def __call__(self, probs: FloatArray) -> FloatArray:
        """The step whose centred scores, weighted by ``π q``, are nearest to ``p/q − 1``."""
        data = self._data
        mass = data.context_probs[:, None] * probs
        row, token = np.nonzero(mass)
        q = probs[row, token]
        roots = np.sqrt(mass[row, token])
        excess = data.context_probs[row] * (data.target_probs[row, token] - q)
        # Relative to the likeliest token's, features keep their digits where it has all but little.
        features = self._features(row, token, probs.argmax(axis=1)) @ self._basis.T
        first = np.flatnonzero(np.diff(row, prepend=-1))
        means = np.add.reduceat(q[:, None] * features, first)
        centred = features - means[row]
        # Singular values below eps, times the longer side, are rounding: numpy's own choice.
        found = np.linalg.lstsq(roots[:, None] * centred, excess / roots)[0]
        step: FloatArray = (found @ self._basis).reshape(data.shape)
        return step


class _ConjugateGradients:
    """Conjugate gradients for one-hot tokens, preconditioned by one block for each token."""

    def __init__(self, data: NextTokenData, watch: Watch) -> None:
        self._data = data
        self._watch = watch
        self._products_left = MOST_PRODUCTS

    def __call__(self, probs: FloatArray) -> FloatArray:
        """The step along which the slope vanishes, the more accurate the smaller the slope is."""
        data = self._data
        H = data.context_embeddings
        pi = data.context_probs[:, None]
        mass = pi * probs
        inverses = _inverse_blocks(H, mass * (1 - probs))

        def times(direction: FloatArray) -> FloatArray:
            self._count_product()
            change = centred(H @ direction.T, probs)
            return _without_common_row((mass * change).T @ H)

        def precondition(residual: FloatArray) -> FloatArray:
            improved: FloatArray = (inverses @ residual[..., None])[..., 0]
            return improved

        ahead = _without_common_row(-pull_back(pi * (probs - data.target_probs), data))
        size = max(0.0, float(np.vdot(ahead, precondition(ahead)))) ** 0.5 or 1.0
        # Superlinear convergence: the accuracy grows as the slope falls.
        accuracy = float(np.clip(size, HALF_THE_DIGITS, 0.1))
        step = conjugate_gradients(
            times, ahead / size, accuracy, self._watch, precondition, most_steps=ahead.size
        )
        return size * step

    def _count_product(self) -> None:
        self._watch.check()
        self._products_left -= 1
        if self._products_left < 0:
            raise _undecided(
                f"the data are so near the edge of separability that {MOST_PRODUCTS} products with "
                "the loss's curvature are not enough; fewer dimensions ask for less"
            )


def _inverse_blocks(H: FloatArray, weights: FloatArray) -> FloatArray:
    """Inverses of ``Σ_j weights_jv h_j h_jᵀ``, shape (V, d, d)."""
    inverses = np.empty((weights.shape[1], H.shape[1], H.shape[1]))
    for token, roots in enumerate(np.sqrt(weights).T):
        rows = roots[:, None] * H
        inverses[token] = _inverse(rows.T @ rows)
    return inverses


def _inverse(block: FloatArray) -> FloatArray:
    """Inverse of a symmetric matrix, without what is rounding.

    A Cholesky factor gives it where its pivots show that the matrix is far from singular; else the
    eigenvalues tell what is rounding.
    """
    # Transposed, the row-major lower triangle is LAPACK's column-major upper one.
    factor, failed = lapack.dpotrf(block.T, lower=0)
    pivots = np.diagonal(factor) ** 2
    if failed or pivots.min() <= HALF_THE_DIGITS * pivots.max():
        pseudo_inverse: FloatArray = pinvh(block, check_finite=False)
        return pseudo_inverse
    inverse: FloatArray = inverses_of_products(factor.T[None])[0]
    return inverse


def _without_common_row(G: FloatArray) -> FloatArray:
    """A gradient without the rounding along what changes no probability, a row common to all."""
    common: FloatArray = G.mean(0)
    return G - common


# -- the proof that the pairs that are kept contradict each other ---------------------------------


class Contradiction(NamedTuple):
    """That the finite pairs contradict each other, see :class:`ntpnb.bias.Twin`."""

    certificate: FloatArray
    residual: float


def contradiction(data: NextTokenData, order: TokenPriority, probs: FloatArray) -> Contradiction:
    """Weigh the pairs that stay finite, where training tends to probabilities of shape (m, V).

    Each weight is the mass that the pair's loser has, summed over the contexts. The residual is the
    gradient at the probabilities, relative to the largest that the losers' mass can have.
    """
    pi = data.context_probs[:, None]
    pair_of = pair_of_entries(data, order)
    loses = pair_of >= 0
    mass = np.where(loses, pi * probs, 0.0)
    sums = np.bincount(pair_of[loses], weights=mass[loses])
    slope = pull_back(pi * (probs - data.target_probs), data)
    left_over = float(np.linalg.norm(slope))
    largest = largest_gradient(data, mass.sum(1))
    residual = left_over / largest if largest > 0 else 0.0
    return Contradiction(sums / (sums.sum() or 1.0), residual)


def largest_gradient(data: NextTokenData, mass: FloatArray) -> float:
    """``Σ_j mass_j ‖h_j‖ max_v ‖t_v‖``, which no gradient exceeds that moves so much mass."""
    T = data.token_embeddings
    longest = 1.0 if T is None else float(np.linalg.norm(T, axis=1).max())
    return longest * float(mass @ data.context_lengths)


def pair_of_entries(data: NextTokenData, order: TokenPriority) -> IntArray:
    """Row of ``order.strict`` of each context's support over each token, shape (m, V).

    It is −1 for tokens that tie with the support and for those that are no candidates.
    """
    labels, own = row_components(data, order)
    position = order.positions(order.strict)
    _, winner, loser = order.strict.T
    above = order.components[position, winner]
    below = order.components[position, loser]
    size = order.components.max() + 1
    codes = above * size + below
    by_code = np.argsort(codes, kind="stable")
    loses = data.candidates & (labels != own)
    pair = np.full(labels.shape, -1)
    asked = (own * size + labels)[loses]
    pair[loses] = by_code[np.searchsorted(codes, asked, sorter=by_code)]
    return pair
