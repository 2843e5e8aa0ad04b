"""Which strict pairs of data that are not separable can be won, and which stay finite.

Newton's method on the loss itself tells them apart. Where a pair can be won, its loser's
probability falls by about a factor of e in every late step; every other probability settles. That
is a guess, and is never taken for more. The pairs that fall are dropped, and the loss of the others
is minimised to its end. Two proofs then decide, each for one side:

- At the minimum the probabilities ``q`` have the gradient zero, ``Σ_j π_j Σ_v (q_jv − p_jv) t_v
  h_jᵀ = 0``. Written by pairs, this is a certificate that is positive on every pair that was kept.
- A max-margin solution of the data with the targets ``q``, whose strict pairs are those dropped.

Where the second proof fails, its certificate names pairs to keep, and the minimum is looked for
again. By the theorem of the alternative exactly one partition has both proofs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, lstsq
from scipy.special import log_softmax

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.factors import inverses_of_products
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import bilinear_scores, candidate_logits, pull_back
from ntpnb.problem.order import TokenPriority, row_components, token_priority
from ntpnb.watch import OutOfTime, Watch

LARGEST_TABLE = 2**22
"""Contexts × tokens up to which probabilities are held in tables."""

LARGEST_BLOCKS = 2**27
"""Tokens × dimension² up to which a block for each token is factored."""

LARGEST_WORK = 2**34
"""Contexts × tokens × dimension² up to which that is done: about a minute and a half in all."""

LARGEST_FEATURES = 2**23
"""Candidates × entries of ``W`` up to which the features are one matrix, and systems are direct."""

DIRECT_WORK = 2**30
"""Operations, candidates × (entries of ``W``)², up to which that is the quicker way."""

RANK = 1e-13
"""Relative singular values below this are rounding. Dropped pairs weigh √q, about 1e-5, by then."""

SMALLEST_PROB = 1e-20
"""Of a pair that is kept: smaller ones weigh too little to be told from rounding."""

VANISHES = 1e-8
"""``Partition.residual`` up to which what is left over is taken for rounding of zero.

What a residual ``ε`` proves: let ``G = Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ`` be what is left over.
For every ``W`` that meets the ties, ``−⟨G, W⟩ = Σ_j π_j Σ_v q_jv margin_jv(W)``, where ``v`` runs
over the losers that are kept. So the mean of their margins, with the certificate's weights, is at
most ``ε ‖W‖`` times that of ``‖h_j‖ max_u ‖t_u‖``: no ``W`` keeps all of them above that. Smaller
margins are not ruled out, and that there are none is a reading: the bound lies between a margin
that counts as clear, 1e-6, and what is left over as a rule, below 1e-12.
"""

SMALLEST_EIGENVALUE = 1e-14
"""Of a block, relative to its largest: below it there is rounding."""

PRODUCTS_AT_ONCE = 512
"""Entries of all blocks that one matrix product forms."""

SAFE_PIVOTS = 1e-8
"""Smallest pivot of a block's Cholesky factor, relative to the largest, that rules that out."""

MOST_STEPS = 100
"""Newton steps for one minimum; twenty to forty are the rule."""

PATIENCE = 60
"""Newton steps after which pairs are dropped though others have not settled."""

WINDOW = 4
"""Full Newton steps over which a probability is watched."""

FALLS = -1.0
"""Change of a log-probability over the window that counts as falling; it is −4 as a rule."""

SETTLED = 1e-2
"""Change of a log-probability over the window that counts as none."""

MOST_CORRECTION = 1e-8
"""Relative change of probabilities in a Newton step that is small enough to end with."""

STALLED_CORRECTION = 1e-2
"""The same, where it does not fall any more: probabilities of 1e-12 have few digits."""

STALLED_STEPS = 8
"""Newton steps in a row after which that is taken for granted."""

MOST_ROUNDS = 20
"""Minima that are looked for; one or two are the rule."""

MOST_INNER_STEPS = 400
"""Conjugate gradients of one Newton step."""

MOST_WORK = 4e11
"""Operations of conjugate gradients in all, about a minute: at the edge of separability few end."""

MOST_TIED = 2**38
"""Sum of the cubes of each token's ties up to which a twin with winning pairs is solved.

The methods' systems have all ties of a token; above this they take minutes.
"""

SUFFICIENT_DECREASE = 1e-4  # the share of the linear prediction that a step must reach (Armijo)
LOSS_NOISE = 1e-14  # nats that rounding may add to a loss
SHORTEST_STEP = 2.0**-60


@dataclass(frozen=True, eq=False)
class Partition:
    """The strict pairs that stay finite, and both proofs.

    Attributes
    ----------
    certificate : ndarray, shape (len(order.strict),)
        ``λ ≥ 0`` with sum one, and zero exactly where a pair can be won. All zero where every pair
        can.
    residual : float
        What the weights leave over: ``‖Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ‖``, over the sum of
        ``π_j q_jv ‖h_j‖ max_u ‖t_u‖`` over losers ``v``. Zero where every pair can be won.
    correction : float
        Newton's method would change no weight by more than this share.
    twin : NextTokenData
        The data with the targets ``q``.
    order : TokenPriority
        The order of ``twin``.
    svm : MarginSolution
        Its max-margin solution.
    """

    certificate: FloatArray
    residual: float
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
        The data are too large, or no partition was proved, or not in time.

    Examples
    --------
    Two contexts on a line contradict each other about the tokens 0 and 1. Both are above token 2:

    >>> import ntpnb
    >>> from ntpnb.partition import partition_pairs
    >>> from ntpnb.watch import Watch
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 1, 0]])
    >>> order = ntpnb.token_priority(data)
    >>> order.strict.tolist()
    [[0, 0, 1], [0, 0, 2], [1, 1, 0], [1, 1, 2]]
    >>> partition_pairs(data, order, Watch()).certificate.round(6).tolist()
    [0.5, 0.0, 0.5, 0.0]
    """
    require_affordable(data)
    try:
        return _search(data, order, watch)
    except OutOfTime:
        raise ConvergenceError(
            f"which pairs can be won is undecided: {watch.over}", np.inf
        ) from None
    except np.linalg.LinAlgError as error:
        raise ConvergenceError(
            f"which pairs can be won is undecided: a Newton system has no solution ({error})",
            np.inf,
        ) from None


def require_affordable(data: NextTokenData) -> None:
    """Raise ``ConvergenceError`` where the data are too large, before anything is formed.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.partition import require_affordable
    >>> require_affordable(ntpnb.datasets.toy())
    """
    p, q = data.shape
    what = f"{data.num_contexts} contexts of {data.vocab_size} tokens in {q} dimensions"
    if data.token_embeddings is not None:
        num_entries = data.num_contexts * data.vocab_size
        too_large = num_entries * p * q > LARGEST_FEATURES
    else:
        too_large = (
            data.num_contexts * data.vocab_size > LARGEST_TABLE
            or data.vocab_size * q**2 > LARGEST_BLOCKS
            or data.num_contexts * data.vocab_size * q**2 > LARGEST_WORK
        )
    if too_large:
        raise ConvergenceError(
            f"which pairs can be won is not looked for: {what} are too many for Newton's method; "
            "use fewer contexts or dimensions",
            np.inf,
        )


def _refuse_many_ties(twin: NextTokenData, order: TokenPriority) -> None:
    """Raise where some pairs are won beside so many ties that no method ends."""
    ties_of_token = np.bincount(twin.sparse_target_probs.indices).astype(np.float64)
    if len(order.strict) and (ties_of_token**3).sum() > MOST_TIED:
        raise ConvergenceError(
            f"in which direction W grows is not looked for: beside {len(order.strict)} pairs that "
            f"seem to be won, {len(order.equal)} are tied, too many to solve for; use fewer "
            "contexts, or dimensions enough to separate them",
            np.inf,
        )


def _search(data: NextTokenData, order: TokenPriority, watch: Watch) -> Partition:
    """Minimise, prove, and repair what was guessed wrongly."""
    pair_of = _pair_of_entries(data, order)
    newton = _Newton(data, watch, may_fall=pair_of >= 0)
    for _ in range(MOST_ROUNDS):
        newton.settle()
        twin = data.replace(target_probs=newton.probs())
        twin_order = token_priority(twin)
        _refuse_many_ties(twin, twin_order)
        try:
            svm = max_margin(twin, order=twin_order, seconds=watch.left, progress=watch.say)
        except NotSeparableError as error:
            contradicting = error.certificate > 0
            back = _pair_of_entries(twin, twin_order)
            newton.restart((back >= 0) & contradicting[back])
            continue
        found = contradiction(data, order, newton.probs())
        if found.residual > VANISHES:
            raise ConvergenceError(
                "which pairs can be won is undecided: the weights of those that stay finite leave "
                f"a sum of {found.residual:.1e}, and not zero",
                found.residual,
            )
        return Partition(
            certificate=found.certificate,
            residual=found.residual,
            correction=newton.correction,
            twin=twin,
            order=twin_order,
            svm=svm,
        )
    raise ConvergenceError(
        f"which pairs can be won is undecided: no guess was right in {MOST_ROUNDS} rounds", np.inf
    )


class Contradiction(NamedTuple):
    """That the finite pairs contradict each other, see :class:`ntpnb.bias.Twin`."""

    certificate: FloatArray
    residual: float


def contradiction(data: NextTokenData, order: TokenPriority, probs: FloatArray) -> Contradiction:
    """Weigh the pairs that stay finite, where training tends to probabilities of shape (m, V)."""
    pair_of = _pair_of_entries(data, order)
    return Contradiction(
        _by_pair(data, probs, pair_of, len(order.strict)), _residual(data, probs, pair_of >= 0)
    )


def _pair_of_entries(data: NextTokenData, order: TokenPriority) -> IntArray:
    """Row of ``order.strict`` of each context's support over each token, shape (m, V).

    It is −1 for tokens that tie with the support and for those that are no candidates.
    """
    labels, own = row_components(data, order)
    position = order.positions(order.strict)
    above = order.components[position, order.strict[:, 1]]
    below = order.components[position, order.strict[:, 2]]
    size = int(order.components.max()) + 1
    codes = above * size + below
    by_code = np.argsort(codes, kind="stable")
    loses = data.candidates & (labels != own)
    pair = np.full(labels.shape, -1)
    asked = (own * size + labels)[loses]
    pair[loses] = by_code[np.searchsorted(codes, asked, sorter=by_code)]
    return pair


def _by_pair(
    data: NextTokenData, probs: FloatArray, pair_of: IntArray, num_strict: int
) -> FloatArray:
    """Mass that each pair's loser has, summed over the contexts, as weights with sum one."""
    mass = data.context_probs[:, None] * probs
    loses = pair_of >= 0
    sums = np.bincount(pair_of[loses], weights=mass[loses], minlength=num_strict)
    weights = np.asarray(sums, dtype=np.float64)  # numpy's stubs take every count for an integer
    total = float(weights.sum())
    return weights / total if total > 0 else weights


def _residual(data: NextTokenData, probs: FloatArray, loses: BoolArray) -> float:
    """Gradient at the probabilities, relative to the mass of the losers and their embeddings."""
    frequencies = data.context_probs[:, None]
    left_over = np.linalg.norm(pull_back(frequencies * (probs - data.target_probs), data))
    mass = (np.where(loses, frequencies * probs, 0.0)).sum(1)
    T = data.token_embeddings
    token_length = 1.0 if T is None else float(np.linalg.norm(T, axis=1).max())
    scale = float(mass @ np.linalg.norm(data.context_embeddings, axis=1)) * token_length
    return float(left_over) / scale if scale > 0 else 0.0


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
        self._targets = data.target_probs
        self._frequencies = data.context_probs[:, None]
        self._W = np.zeros(data.shape)
        self._system = _system_for(data)
        self.kept = data.candidates.copy()
        self.correction = np.inf

    def probs(self) -> FloatArray:
        """Probabilities of the kept candidates at the last point, shape (m, V)."""
        probs: FloatArray = np.exp(self._log_probs(self._W))
        return probs

    def restart(self, finite: BoolArray) -> None:
        """Begin again at zero, and keep candidates that are proved to stay finite."""
        self._W = np.zeros(self._data.shape)
        self._may_fall = self._may_fall & ~finite
        self.kept |= finite

    def settle(self) -> None:
        """Minimise, and drop what falls without end, until all that is left has settled.

        Raises
        ------
        ConvergenceError
            It did not settle.
        OutOfTime
            The time is over.
        """
        recent: list[FloatArray] = []  # log-probabilities before the last full steps
        stalled = 0
        self.correction = np.inf
        for number in range(1, MOST_STEPS + 1):
            self._watch.check()
            log_probs = self._log_probs(self._W)
            step = self._direction(log_probs)
            change = np.where(self.kept, _centred(step.scores, np.exp(log_probs)), 0.0)
            self.correction = float(np.abs(change).max())
            self._watch.say(
                f"Newton step {number}: probabilities change by a share of {self.correction:.1e}"
            )
            stalled = stalled + 1 if self.correction <= STALLED_CORRECTION else 0
            if self.correction <= MOST_CORRECTION or stalled == STALLED_STEPS:
                self._take_last(step)
                if not self._drop_tiny():
                    return
                stalled = 0
                recent = []
                continue
            share = self._step_length(step)
            self._W = self._W + share * step.W
            recent = [*recent[-WINDOW + 1 :], log_probs] if share == 1.0 else []
            if len(recent) == WINDOW and not stalled:
                fallen = self._fallen(recent[0], in_doubt=number >= PATIENCE)
                if fallen.any():
                    self.kept &= ~fallen
                    recent = []
        raise ConvergenceError(
            f"which pairs can be won is undecided: after {MOST_STEPS} Newton steps some "
            f"probability still changes by a share of {self.correction:.1e} in each",
            self.correction,
        )

    def _drop_tiny(self) -> bool:
        """Drop candidates whose probabilities are too small to be sure that they stay positive.

        Those that are proved to do so are kept.

        Raises
        ------
        ConvergenceError
            One of these is zero in floating point.
        """
        probs = self.probs()
        if (probs[self.kept & ~self._may_fall] == 0).any():
            raise ConvergenceError(
                "which pairs can be won is undecided: the probability of a token that stays "
                "positive tends to less than 1e-308",
                self.correction,
            )
        tiny = self.kept & self._may_fall & (probs < SMALLEST_PROB)
        self.kept &= ~tiny
        return bool(tiny.any())

    def _fallen(self, long_ago: FloatArray, in_doubt: bool) -> BoolArray:
        """Candidates whose probabilities fall while all others have settled, or are in doubt."""
        now = self._log_probs(self._W)
        change = np.where(self.kept, now, 0.0) - np.where(self.kept, long_ago, 0.0)
        falls = self.kept & self._may_fall & (change < FALLS)
        settled = np.abs(change[~falls]).max(initial=0.0) < SETTLED
        if settled or in_doubt:
            return falls
        return np.zeros_like(falls)

    def _log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the kept candidates' probabilities; −inf for all others."""
        logits = np.where(self.kept, candidate_logits(W, self._data), -np.inf)
        log_probs: FloatArray = log_softmax(logits, axis=1)
        return log_probs

    def _loss(self, W: FloatArray) -> float:
        in_support = self._targets > 0
        log_probs = np.where(in_support, self._log_probs(W), 0.0)
        return -float(self._data.context_probs @ (self._targets * log_probs).sum(1))

    def _take_last(self, step: "_NewtonStep") -> None:
        """Take a step that hardly changes anything, unless it is rounding: then the slope grows."""
        moved = self._W + step.W
        before, after = (np.exp(self._log_probs(W)) for W in (self._W, moved))
        if np.linalg.norm(self._slope(after)) < np.linalg.norm(self._slope(before)):
            self._W = moved

    def _slope(self, probs: FloatArray) -> FloatArray:
        slope: FloatArray = pull_back(self._frequencies * (probs - self._targets), self._data)
        return slope

    def _direction(self, log_probs: FloatArray) -> "_NewtonStep":
        probs = np.exp(log_probs)
        slope = self._slope(probs)
        W = self._system(self._frequencies * probs, probs, self._targets, slope)
        return _NewtonStep(W, bilinear_scores(W, self._data), float(np.vdot(slope, W)))

    def _step_length(self, step: "_NewtonStep") -> float:
        """Halve the step until the loss decreases as much as its slope lets expect (Armijo)."""
        loss = self._loss(self._W)
        share = 1.0
        while share > SHORTEST_STEP:
            expected = SUFFICIENT_DECREASE * share * step.slope
            if self._loss(self._W + share * step.W) <= loss + expected + LOSS_NOISE:
                break
            share /= 2
        return share


@dataclass(frozen=True, eq=False)
class _NewtonStep:
    """A step, the scores that it adds, and the loss's derivative along it."""

    W: FloatArray
    scores: FloatArray
    slope: float


def _centred(scores: FloatArray, probs: FloatArray) -> FloatArray:
    """Scores less their mean in each context."""
    centred: FloatArray = scores - (probs * scores).sum(1, keepdims=True)
    return centred


# -- Newton's equations ---------------------------------------------------------------------------

# From π_j q_jv, q_jv and p_jv, shape (m, V), and the loss's gradient, to the step, shape (p, q).
_System = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]


def _system_for(data: NextTokenData) -> _System:
    """Least squares where that is affordable, and else conjugate gradients."""
    num_candidates = np.count_nonzero(data.candidates)
    size = data.shape[0] * data.shape[1]
    is_small = num_candidates * size <= LARGEST_FEATURES
    if is_small and (num_candidates * size**2 <= DIRECT_WORK or data.token_embeddings is not None):
        return _DirectSystem(data)
    return _IterativeSystem(data)


class _DirectSystem:
    """Newton's equations as weighted least squares, which square no condition number."""

    def __init__(self, data: NextTokenData) -> None:
        self._shape = data.shape
        self._row, self._token = np.nonzero(data.candidates)
        self._first = np.flatnonzero(np.diff(self._row, prepend=-1))
        T = data.token_embeddings
        tokens = np.eye(data.vocab_size) if T is None else T
        features = np.einsum("np,nq->npq", tokens[self._token], data.context_embeddings[self._row])
        self._features = features.reshape(len(self._row), -1)

    def __call__(
        self, mass: FloatArray, probs: FloatArray, targets: FloatArray, slope: FloatArray
    ) -> FloatArray:
        del slope  # follows from the others
        at = (self._row, self._token)
        means = np.add.reduceat(probs[at][:, None] * self._features, self._first)
        weights = np.sqrt(mass[at])
        is_kept = weights > 0
        wanted = np.zeros(len(weights))
        wanted[is_kept] = targets[at][is_kept] / probs[at][is_kept] - 1
        centred = self._features - means[self._row]
        found: FloatArray = lstsq(
            weights[:, None] * centred, weights * wanted, cond=RANK, check_finite=True
        )[0]
        return found.reshape(self._shape)


class _IterativeSystem:
    """Conjugate gradients for one-hot tokens, preconditioned by one block for each token."""

    def __init__(self, data: NextTokenData) -> None:
        self._embeddings = data.context_embeddings
        self._work_left = MOST_WORK

    def __call__(
        self, mass: FloatArray, probs: FloatArray, targets: FloatArray, slope: FloatArray
    ) -> FloatArray:
        del targets
        precondition = self._preconditioner(mass * (1 - probs))
        H = self._embeddings
        W = np.zeros_like(slope)
        residual = _without_common_row(-slope)
        direction = precondition(residual)
        ahead = direction
        size = first_size = float(np.vdot(residual, ahead))
        # Superlinear convergence: the accuracy grows as the slope falls.
        accuracy = float(np.clip(np.sqrt(abs(first_size)), 1e-7, 0.1))
        work_of_a_step = 4.0 * mass.size * H.shape[1]
        for _ in range(MOST_INNER_STEPS):
            if not size > accuracy**2 * first_size:
                break
            self._work_left -= work_of_a_step
            if self._work_left < 0:
                raise ConvergenceError(
                    "which pairs can be won is undecided: the data are too near the edge of "
                    "separability for the work that was allowed; fewer dimensions ask for less",
                    np.inf,
                )
            curved = (mass * _centred(H @ direction.T, probs)).T @ H
            curvature = float(np.vdot(direction, curved))
            if not curvature > 0:  # nothing but rounding is left
                break
            share = size / curvature
            W = W + share * direction
            residual = _without_common_row(residual - share * curved)
            ahead = precondition(residual)
            before = size
            size = float(np.vdot(residual, ahead))
            direction = ahead + (size / before) * direction
        return W

    def _preconditioner(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Inverses of ``Σ_j weights_jv h_j h_jᵀ``, without what is rounding."""
        H = self._embeddings
        num_tokens, dim = weights.shape[1], H.shape[1]
        row, column = np.tril_indices(dim)
        by_token = np.ascontiguousarray(weights.T)
        triangles = np.empty((num_tokens, len(row)))
        for start in range(0, len(row), PRODUCTS_AT_ONCE):
            some = slice(start, start + PRODUCTS_AT_ONCE)
            triangles[:, some] = by_token @ (H[:, row[some]] * H[:, column[some]])
        inverses = np.zeros((num_tokens, dim, dim))
        for token in range(num_tokens):
            inverses[token, row, column] = triangles[token]
            inverses[token] = _inverse_of_block(inverses[token])

        def precondition(R: FloatArray) -> FloatArray:
            ahead: FloatArray = np.matmul(inverses, R[:, :, None])[:, :, 0]
            return ahead

        return precondition


def _inverse_of_block(block: FloatArray) -> FloatArray:
    """Inverse of a symmetric matrix by its lower triangle, without what is rounding.

    A Cholesky factor gives it where its pivots show that the matrix is far from singular; else the
    eigenvalues tell what is rounding.
    """
    # Transposed, the row-major lower triangle is LAPACK's column-major upper one.
    factor, failed = lapack.dpotrf(block.T, lower=0)
    pivots = np.square(np.diagonal(factor))
    if failed == 0 and pivots.min() > SAFE_PIVOTS * pivots.max():
        inverse: FloatArray = inverses_of_products(factor.T[None])[0]
        return inverse
    values, vectors = np.linalg.eigh(block)
    counts = values > SMALLEST_EIGENVALUE * values[-1]
    reciprocals = np.divide(1.0, values, out=np.zeros_like(values), where=counts)
    pseudo_inverse: FloatArray = (vectors * reciprocals) @ vectors.T
    return pseudo_inverse


def _without_common_row(G: FloatArray) -> FloatArray:
    """A gradient without the rounding along what changes no probability, a row common to all."""
    clean: FloatArray = G - G.mean(0)
    return clean
