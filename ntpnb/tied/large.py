"""The finite part of a linear decoder at real sizes: nothing as large as contexts × tokens.

Its ties are pairs of a context and one of its next tokens. A token whose contexts have linearly
independent embeddings can be given any scores in them. So it meets its target probabilities
whatever the others do, and the others settle as if it did not exist: with ``v`` set aside, a
context's divergence is that of ``p_kv`` from ``q_kv``, which vanishes, plus ``1 − p_kv`` times the
divergence of what is left. Contexts with a single token left are dropped, which leaves other tokens
fewer contexts; and so on. What remains is the core. Without one, the data are compatible (T24
Def. 1). In text the core consists of a few frequent tokens.

The smallest W with prescribed log-odds of the ties is the one in the tied subspace F, so that it is
``W = Σ λ_kv e_v h_kᵀ`` with ``Σ_v λ_kv = 0`` in each context. Conjugate gradients in λ, begun at
zero, never leave F. With the inner products ``G_v`` of the embeddings of token v's contexts, one
step costs as much as the smaller of ``G_v`` and the embeddings themselves.

Given the scores that the tokens of each context have in common, the tokens do not depend on each
other. Where these common scores are few enough for a dense factor, they make a preconditioner with
which ten steps or so suffice. They are few where many contexts hold a frequent token: its row of W
gives the common score of all its contexts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as sla
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import splu

from ntpnb.basics.linear_systems import finite
from ntpnb.basics.tolerances import ACCEPT, HELD, NEGLIGIBLE, STOP, UNCLEAR, decomposition_error
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray, require_dense
from ntpnb.basics.watch import Watch
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import LARGE, combined_at, entries_of, row_slices, scores_at
from ntpnb.tied.newton import RestrictedLoss, conjugate_gradients, minimise, not_settled
from ntpnb.tied.subspace import (
    KEEPS_DIGITS,
    NO_DEPENDENCE,
    EqualSubspace,
    Whitening,
    by_error,
    equal_subspace,
    thin_svd,
)

# Positions of entries, shape (tokens, n), and a matrix for each token, shape (tokens, n, n).
_Blocks = list[tuple[IntArray, FloatArray]]


def is_large(data: NextTokenData) -> bool:
    """Whether the finite part of these data is found by :func:`large_finite_part`.

    Tokens are one-hot and all of them candidates, every row is a group of its own, and contexts
    times tokens are at least 2²⁰.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    bool

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import is_large
    >>> is_large(ntpnb.datasets.toy())
    False
    """
    return data.is_linear_decoder and data.num_contexts * data.vocab_size >= LARGE


def large_finite_part(data: NextTokenData, watch: Watch) -> FloatArray:
    """Find the finite part from the supports alone.

    The core of the ties is fitted by Newton's method; every other token meets its target
    probabilities. That gives the log-odds of all ties, and the smallest W that has them is the
    finite part. Whether it is one is then asked of the data themselves.

    Parameters
    ----------
    data : NextTokenData
        With one-hot tokens, no candidate counts, and each row a group of its own.
    watch : Watch

    Returns
    -------
    ndarray, shape (V, q)
        ``W``, see :class:`ntpnb.FinitePart`.

    Raises
    ------
    ConvergenceError
        The proof was not reached in time, or not at all. The error's ``residual`` is the norm of
        the whitened gradient at its ``point``, a matrix in F.
    ValueError
        ``W`` would have more than 2**28 entries.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import large_finite_part
    >>> from ntpnb.basics.watch import Watch
    >>> W = large_finite_part(ntpnb.NextTokenData([[1.0]], [[0.8, 0.2, 0.0]]), Watch())
    >>> W.round(6).tolist()  # ± ½ log 4
    [[0.693147], [-0.693147], [0.0]]
    """
    require_dense("W", data.shape, "use fewer dimensions, or a smaller vocabulary")
    entries = tie_entries(data)
    core = core_of(entries)
    watch.say(
        f"{len(entries.token)} entries of {entries.num_contexts} contexts tie; "
        f"{np.count_nonzero(core)} of them may have odds out of reach"
    )
    log_odds = np.log(entries.probs)
    known = np.zeros(data.shape)
    problem = CoreLoss(entries, core) if core.any() else None
    if problem is not None:
        problem.weakest.require(UNCLEAR, data)
        best = minimise(problem, np.zeros((len(problem.tokens), data.shape[1])), watch)
        known[problem.tokens] = best.point
        log_odds[core] = problem.log_probs(best.point)
        problem.rows.release()  # little is asked of the loss any more
    W = SmallestFit(entries, core)(log_odds, known, watch)
    slope = _slope(W, entries, core, problem)
    watch.say(f"the gradient's norm, relative to the embeddings, is {slope:.1e}")
    if slope > NEGLIGIBLE:
        nearest = "" if problem is None else problem.weakest.contexts(data)
        raise not_settled(slope, W, watch, nearest)
    return W


# -- the ties -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TieEntries:
    """The entries of the supports from which ties are made, in the order of their tokens.

    A context with one in-support token ties nothing, and one with the embedding zero depends on no
    ``W``. Both are left out, and the other contexts are numbered anew.

    Attributes
    ----------
    vocab_size : int
    token, context : ndarray of int, shape (n,)
        Token and context of each entry; tokens increase.
    probs : ndarray, shape (n,)
        The target probabilities ``p_kv``.
    context_probs : ndarray, shape (K,)
        ``π_k`` of the tied contexts.
    directions : ndarray, shape (K, q)
        Their embeddings, of length one.
    lengths : ndarray, shape (K,)
        The lengths that these embeddings have in the data.
    rows : ndarray of int, shape (K,)
        Their rows there.
    """

    vocab_size: int
    token: IntArray
    context: IntArray
    probs: FloatArray
    context_probs: FloatArray
    directions: FloatArray
    lengths: FloatArray
    rows: IntArray

    @property
    def num_contexts(self) -> int:
        """Number of tied contexts ``K``."""
        return len(self.lengths)

    def scores(self, W: FloatArray) -> FloatArray:
        """Scores ``w_v · h_k`` of the entries, shape (n,)."""
        units = scores_at(self.directions, W, self.context, self.token)
        return self.lengths[self.context] * units


def tie_entries(data: NextTokenData) -> TieEntries:
    """Collect the tie entries of data with one-hot tokens whose rows are groups of their own.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    TieEntries

    Examples
    --------
    The second context has one next token and ties nothing:

    >>> import ntpnb
    >>> from ntpnb.tied.large import tie_entries
    >>> data = ntpnb.NextTokenData([[3.0], [1.0]], [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    >>> entries = tie_entries(data)
    >>> entries.token.tolist(), entries.context.tolist(), entries.lengths.tolist()
    ([0, 2], [0, 0], [3.0])
    """
    table = data.sparse_target_probs
    lengths = data.context_lengths
    tied = np.flatnonzero((np.diff(table.indptr) > 1) & (lengths > 0))
    by_token = csc_array(table[tied])
    by_token.sort_indices()
    counts = np.diff(by_token.indptr)
    directions = data.context_embeddings[tied]
    directions /= lengths[tied, None]
    return TieEntries(
        vocab_size=data.vocab_size,
        token=np.repeat(np.arange(data.vocab_size), counts),
        context=by_token.indices.astype(np.intp),
        probs=by_token.data,
        context_probs=data.context_probs[tied],
        directions=directions,
        lengths=lengths[tied],
        rows=tied,
    )


def log_softmax(scores: FloatArray, context: IntArray) -> FloatArray:
    """Logarithms of the probabilities of each context's entries, shape (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.large import log_softmax
    >>> log_q = log_softmax(np.array([5.0, 1.0, 1.0]), np.array([0, 1, 1]))
    >>> np.exp(log_q).round(6).tolist()
    [1.0, 0.5, 0.5]
    """
    largest = np.full(context.max(initial=-1) + 1, -np.inf)
    np.maximum.at(largest, context, scores)
    centred = scores - largest[context]
    log_q: FloatArray = centred - np.log(np.bincount(context, np.exp(centred)))[context]
    return log_q


def centred(x: FloatArray, context: IntArray) -> FloatArray:
    """Numbers of entries, less their mean in each context, shape (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.large import centred
    >>> centred(np.array([1.0, 5.0, 2.0]), np.array([0, 1, 0])).tolist()
    [-0.5, 0.0, 0.5]
    """
    sizes = np.bincount(context)
    mean = np.bincount(context, x) / np.maximum(sizes, 1)
    rest: FloatArray = x - mean[context]
    return rest


def places_by_count(token: IntArray) -> list[IntArray]:
    """Positions of increasing tokens, those with equally many in one array of shape (tokens, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.large import places_by_count
    >>> [places.tolist() for places in places_by_count(np.array([0, 2, 2, 3, 5, 5]))]
    [[[0], [3]], [[1, 2], [4, 5]]]
    """
    _, starts, counts = np.unique(token, return_index=True, return_counts=True)
    return [starts[counts == count][:, None] + np.arange(count) for count in np.unique(counts)]


def gram_matrices(directions: FloatArray, contexts: IntArray) -> FloatArray:
    """Inner products of the embeddings of each token's contexts, shape (tokens, n, n).

    Parameters
    ----------
    directions : ndarray, shape (K, q)
    contexts : ndarray of int, shape (tokens, n)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.large import gram_matrices
    >>> gram_matrices(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[0, 1]])).tolist()
    [[[1.0, 0.6], [0.6, 1.0]]]
    """
    num_tokens, count = contexts.shape
    grams = np.empty((num_tokens, count, count))
    for part in row_slices((num_tokens, count, directions.shape[1])):
        rows = directions[contexts[part]]
        grams[part] = rows @ rows.transpose(0, 2, 1)
    return grams


class GatheredRows:
    """The embeddings of each token's contexts, gathered once where they fit into memory.

    Parameters
    ----------
    embeddings : ndarray, shape (K, q)
    contexts : list of ndarray of int
        The contexts of each token.
    """

    def __init__(self, embeddings: FloatArray, contexts: list[IntArray]) -> None:
        self._embeddings = embeddings
        self._contexts = contexts
        self._kept: dict[int, FloatArray] = {}
        num_kept = 0
        for i, rows in enumerate(contexts):
            num_kept += len(rows) * embeddings.shape[1]
            if num_kept > HELD:
                break
            self._kept[i] = embeddings[rows]

    def __len__(self) -> int:
        return len(self._contexts)

    def __getitem__(self, i: int) -> FloatArray:
        """Embeddings of the contexts of the token at position ``i``, one a row."""
        kept = self._kept.get(i)
        return self._embeddings[self._contexts[i]] if kept is None else kept

    def release(self) -> None:
        """Make room: from now on they are gathered each time."""
        self._kept.clear()


# -- the core -------------------------------------------------------------------------------------


def core_of(entries: TieEntries) -> BoolArray:
    """Mark the entries that belong to the core, shape (n,).

    Parameters
    ----------
    entries : TieEntries

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    Token 2 can have any score in its only context, and so can token 1 there. In the other two,
    whose embeddings are parallel, tokens 0 and 1 cannot:

    >>> import ntpnb
    >>> from ntpnb.tied.large import core_of, tie_entries
    >>> P = [[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5]]
    >>> data = ntpnb.NextTokenData([[1.0], [2.0], [3.0]], P)
    >>> entries = tie_entries(data)
    >>> inside = core_of(entries)
    >>> entries.token[inside].tolist(), entries.context[inside].tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    """
    left = np.ones(len(entries.token), dtype=bool)
    while True:
        left_in_context = np.bincount(entries.context[left], minlength=entries.num_contexts)
        left &= left_in_context[entries.context] > 1
        is_free = np.zeros(entries.vocab_size, dtype=bool)
        remaining = np.flatnonzero(left)
        for positions in places_by_count(entries.token[remaining]):
            places = remaining[positions]
            token = entries.token[places[:, 0]]
            is_free[token] = _independent(entries.directions, entries.context[places])
        if not is_free.any():
            return left
        left &= ~is_free[entries.token]


def _independent(directions: FloatArray, contexts: IntArray) -> BoolArray:
    """Whether each token's contexts, shape (tokens, n), have independent embeddings."""
    num_tokens, num_contexts = contexts.shape
    if num_contexts > directions.shape[1]:
        return np.zeros(num_tokens, dtype=bool)
    least = np.linalg.eigvalsh(gram_matrices(directions, contexts))[:, 0]
    independent: BoolArray = UNCLEAR * least > decomposition_error(num_contexts)
    return independent


class CoreLoss(RestrictedLoss):
    """The loss of the core alone: its tokens' rows of W, and contexts without their other tokens.

    Context ``k`` has the weight ``π_k P_k``, with ``P_k`` the target probability of its tokens in
    the core, and the target probabilities ``p_kv / P_k``.

    Parameters
    ----------
    entries : TieEntries
    core : ndarray of bool, shape (n,)
        Which entries belong to the core.

    Attributes
    ----------
    tokens : ndarray of int, shape (C,)
        The core's tokens, increasing. A matrix here has one row for each of them.
    rows : GatheredRows
        The embeddings of their contexts.
    weakest : NearDependence
        What is nearest to a dependence among the contexts of one token.
    """

    def __init__(self, entries: TieEntries, core: BoolArray) -> None:
        self.tokens, first = np.unique(entries.token[core], return_index=True)
        contexts, self._context = np.unique(entries.context[core], return_inverse=True)
        self._mass = np.bincount(self._context, entries.probs[core])
        self._targets = entries.probs[core] / self._mass[self._context]
        weights = entries.context_probs[contexts] * self._mass
        self._weights = weights[self._context]
        embeddings = entries.lengths[contexts, None] * entries.directions[contexts]
        self.rows = GatheredRows(embeddings, np.split(self._context, first[1:]))
        self._parts = np.split(np.arange(len(self._context)), first[1:])
        self._whitenings: list[FloatArray] = []
        self.weakest = NO_DEPENDENCE
        for i, part in enumerate(self._parts):
            svd = thin_svd(np.sqrt(self._weights[part])[:, None] * self.rows[i])
            self._whitenings.append((svd.Vt.T / svd.s) @ svd.Vt)
            near = svd.weakest(entries.rows[contexts[self._context[part]]])
            self.weakest = max(self.weakest, near, key=by_error)

    def loss(self, W: FloatArray) -> float:
        """Divergence of the targets from the probabilities, averaged over the contexts."""
        errors = np.log(self._targets) - self._log_probs(W)
        return float(self._weights @ (self._targets * errors))

    def gradient(self, W: FloatArray) -> FloatArray:
        """``Σ_k π_k P_k (q_kv − p_kv / P_k) h_k`` in the row of token ``v``."""
        return self.pull_back(self._weights * (np.exp(self._log_probs(W)) - self._targets))

    def curvature(self, W: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Hessian at ``W``, from the covariances of the probabilities in each context."""
        q = np.exp(self._log_probs(W))
        frequencies = self._weights * q

        def hessian(direction: FloatArray) -> FloatArray:
            s = self._scores(direction)
            mean = np.bincount(self._context, q * s)
            return self.pull_back(frequencies * (s - mean[self._context]))

        return hessian

    def whiten(self, G: FloatArray) -> FloatArray:
        """Row by row, ``(Σ_k π_k P_k h_k h_kᵀ)^(−1/2)`` over the contexts of a token."""
        return np.stack([A @ g for A, g in zip(self._whitenings, G, strict=True)])

    def log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the best probabilities among all tokens of a context, shape (c,)."""
        return self._log_probs(W) + np.log(self._mass)[self._context]

    def _log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the core's own probabilities ``q_kv``, shape (c,)."""
        return log_softmax(self._scores(W), self._context)

    def _scores(self, W: FloatArray) -> FloatArray:
        """Scores ``w_v · h_k`` of the core's entries, shape (c,)."""
        return np.concatenate([self.rows[i] @ w for i, w in enumerate(W)])

    def pull_back(self, residuals: FloatArray) -> FloatArray:
        """Turn derivatives along the scores, shape (c,), into ones along W, shape (C, q)."""
        return np.stack([residuals[part] @ self.rows[i] for i, part in enumerate(self._parts)])


# -- the smallest W with given log-odds -----------------------------------------------------------


class SmallestFit:
    """The map from log-odds that some W has to the smallest W that has them.

    Tokens of the core that share contexts in all directions have rows whose differences the
    log-odds determine: these differences are known from any W that meets them. Such tokens are
    made one, the hub, whose row is the mean of theirs. Without such tokens the hub is the token
    with the most contexts.

    Parameters
    ----------
    entries : TieEntries
    core : ndarray of bool, shape (n,)
        The entries that belong to the core.

    Attributes
    ----------
    hub : ndarray of int
        The tokens that are made one, increasing; empty where nothing ties.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.tied.large import SmallestFit, core_of, tie_entries
    >>> from ntpnb.basics.watch import Watch
    >>> data = ntpnb.NextTokenData([[2.0]], [[0.5, 0.5]])
    >>> entries = tie_entries(data)
    >>> fit = SmallestFit(entries, core_of(entries))
    >>> fit(np.array([1.0, -3.0]), np.zeros((2, 1)), Watch()).round(6).tolist()
    [[1.0], [-1.0]]
    """

    def __init__(self, entries: TieEntries, core: BoolArray) -> None:
        self._entries = entries
        self.hub = _rigid_tokens(entries, core)
        in_hub = np.isin(entries.token, self.hub)
        self._in_hub = np.flatnonzero(in_hub)
        single = np.flatnonzero(~in_hub)
        hub_contexts = np.unique(entries.context[in_hub])
        # A context whose tokens are all in the hub ties nothing any more.
        num_left = np.bincount(
            np.append(entries.context[single], hub_contexts), minlength=entries.num_contexts
        )
        self._single = single[num_left[entries.context[single]] > 1]
        self._hub_contexts = hub_contexts[num_left[hub_contexts] > 1]
        self._ties = _Ties(
            directions=entries.directions,
            token=entries.token[self._single],
            context=entries.context[self._single],
            hub_contexts=self._hub_contexts,
            hub_size=max(1, len(self.hub)),
        )
        self._products = _InnerProducts(self._ties)
        self._precondition = _preconditioner(self._ties)

    def __call__(self, log_odds: FloatArray, known: FloatArray, watch: Watch) -> FloatArray:
        """Fit log-odds that can be met.

        Parameters
        ----------
        log_odds : ndarray, shape (n,)
            A wanted score of each entry; only differences within a context count.
        known : ndarray, shape (V, q)
            A matrix whose rows of the hub's tokens meet the log-odds among these tokens.
        watch : Watch

        Returns
        -------
        ndarray, shape (V, q)
            A matrix in F, also where it does not meet the log-odds yet.
        """
        W = self._fit(log_odds, known, watch)
        missing = self._missing(log_odds, W)
        while np.abs(missing).max(initial=0.0) > ACCEPT and not watch.expired:
            better = W + self._fit(missing, np.zeros_like(W), watch)
            still_missing = self._missing(log_odds, better)
            if np.abs(still_missing).max() > np.abs(missing).max() / 2:
                break
            W = better
            missing = still_missing
        return W

    def _missing(self, log_odds: FloatArray, W: FloatArray) -> FloatArray:
        """What the scores of ``W`` lack, less its mean in each context, in nats, shape (n,)."""
        return centred(log_odds - self._entries.scores(W), self._entries.context)

    def _fit(self, log_odds: FloatArray, known: FloatArray, watch: Watch) -> FloatArray:
        """:meth:`__call__` without corrections."""
        entries = self._entries
        wanted = log_odds / entries.lengths[entries.context]
        deviations = known[self.hub]
        if len(self.hub):
            deviations = deviations - deviations.mean(axis=0)
        wanted_of_hub = self._wanted_of_hub(wanted, deviations)
        duals = self._solve(np.append(wanted[self._single], wanted_of_hub), watch)
        of_single, of_hub = np.split(duals, [len(self._single)])
        places = (entries.token[self._single], entries.context[self._single])
        shape = (entries.vocab_size, entries.num_contexts)
        W: FloatArray = csr_array((of_single, places), shape=shape) @ entries.directions
        if len(self.hub):
            mean_row = of_hub @ entries.directions[self._hub_contexts] / len(self.hub)
            W[self.hub] = mean_row + deviations
        return W

    def _wanted_of_hub(self, wanted: FloatArray, deviations: FloatArray) -> FloatArray:
        """Wanted score of the hub's mean row in each context of the hub.

        Each token of the hub asks for the same there, up to rounding: what is wanted of it, less
        what its row's deviation from the mean row scores.
        """
        entries = self._entries
        context = entries.context[self._in_hub]
        position = np.searchsorted(self.hub, entries.token[self._in_hub])
        asked = wanted[self._in_hub]
        asked = asked - scores_at(entries.directions, deviations, context, position)
        total = np.bincount(context, asked, entries.num_contexts)
        count = np.bincount(context, minlength=entries.num_contexts)
        mean: FloatArray = total[self._hub_contexts] / count[self._hub_contexts]
        return mean

    def _solve(self, wanted: FloatArray, watch: Watch) -> FloatArray:
        """Multipliers ``λ`` whose ``W`` has the wanted scores, up to a constant in each context."""
        contexts = self._ties.all_contexts
        lengths = self._entries.lengths[contexts]

        def scores(duals: FloatArray) -> FloatArray:
            return centred(self._products(duals), contexts)

        def precondition(errors: FloatArray) -> FloatArray:
            return centred(self._precondition(errors), contexts)

        def in_nats(errors: FloatArray) -> float:
            """Largest error of a score, instead of in multiples of the embedding's length."""
            largest = float(np.abs(lengths * errors).max(initial=0.0))
            watch.say(f"smallest W: its log-odds are right to within {largest:.1e} nats")
            return largest

        target = centred(wanted, contexts)
        duals = conjugate_gradients(scores, target, STOP, watch, precondition, in_nats)
        return centred(duals, contexts)


@dataclass(frozen=True, eq=False)
class _Ties:
    """The entries that are left when some tokens are made one: those of others, then the hub's.

    Attributes
    ----------
    directions : ndarray, shape (K, q)
    token, context : ndarray of int, shape (n,)
        The entries of other tokens, which increase.
    hub_contexts : ndarray of int, shape (h,)
        The contexts of the hub.
    hub_size : int
        How many tokens the hub stands for.
    """

    directions: FloatArray
    token: IntArray
    context: IntArray
    hub_contexts: IntArray
    hub_size: int

    @cached_property
    def all_contexts(self) -> IntArray:
        """The contexts of all entries, those of the hub last, shape (n + h,)."""
        return np.append(self.context, self.hub_contexts)

    @cached_property
    def hub_rows(self) -> FloatArray:
        """The embeddings of the hub's contexts, shape (h, q)."""
        return self.directions[self.hub_contexts]

    @cached_property
    def other_contexts(self) -> IntArray:
        """The contexts of the entries that the hub does not have."""
        return np.setdiff1d(self.context, self.hub_contexts)

    @cached_property
    def places_by_count(self) -> list[IntArray]:
        """Positions of the entries, tokens with equally many in one array of shape (tokens, n)."""
        return places_by_count(self.token)

    def gram_matrices(self, places: IntArray) -> FloatArray:
        """The matrices ``G_v`` of the tokens with these entries, shape (tokens, n, n)."""
        return gram_matrices(self.directions, self.context[places])


class _InnerProducts:
    """The product of each token's multipliers with ``G_v``; the hub's row is shared by many."""

    def __init__(self, ties: _Ties) -> None:
        self._ties = ties
        # Tokens of few contexts with all their G_v, and tokens of many.
        self._few: _Blocks = []
        self._many: list[IntArray] = []
        for places in ties.places_by_count:
            if places.shape[1] <= ties.directions.shape[1]:
                self._few.append((places, ties.gram_matrices(places)))
            else:
                self._many.extend(places)
        self._rows = GatheredRows(ties.directions, [ties.context[places] for places in self._many])

    def __call__(self, duals: FloatArray) -> FloatArray:
        """Scores of the ``W`` that the multipliers of all entries stand for."""
        scores = np.empty_like(duals)
        _apply(self._few, duals, scores)
        for i, places in enumerate(self._many):
            rows = self._rows[i]
            scores[places] = rows @ (duals[places] @ rows)
        ties = self._ties
        num_single = len(ties.token)
        hub_row = duals[num_single:] @ ties.hub_rows / ties.hub_size
        scores[num_single:] = ties.hub_rows @ hub_row
        return scores


def _apply(blocks: _Blocks, values: FloatArray, products: FloatArray) -> None:
    """Write each token's product with its entries' values into ``products``, in their places."""
    for places, matrices in blocks:
        columns = values[places].reshape(*places.shape, -1)
        products[places] = (matrices @ columns).reshape(values[places].shape)


# -- preconditioner -------------------------------------------------------------------------------


def _preconditioner(ties: _Ties) -> Callable[[FloatArray], FloatArray]:
    """Approximate inverse of the inner products, where one is affordable; else the identity."""
    num_squares = sum(places.size * places.shape[1] for places in ties.places_by_count)
    # Of the factor of a text's system about a quarter is not zero. The inverses are held twice,
    # the second time with the places of their entries.
    if num_squares == 0 or max(len(ties.other_contexts) ** 2 / 4, 4 * num_squares) > HELD:
        return np.copy
    return _CommonScores(ties)


class _CommonScores:
    """The inverse by way of the scores that the tokens of each context have in common.

    Unknown are the hub's row of W, which gives them in its contexts, and one number for each other
    context. Given these, token v has the multipliers ``G_v⁻¹`` times the scores that are missing,
    and the common scores are those for which the multipliers of each context sum to zero.

    A ``G_v`` of more contexts than dimensions is singular. What is added to it before it is
    inverted, 1e-4, is a compromise: less of it magnifies rounding, and more needs more steps.
    """

    def __init__(self, ties: _Ties) -> None:
        self._ties = ties
        self._inverses: _Blocks = []
        for places in ties.places_by_count:
            regular = ties.gram_matrices(places) + 1e-4 * np.eye(places.shape[1])
            self._inverses.append((places, finite(np.linalg.inv(regular))))
        own, self._across = self._sums_of_hub_row()
        # Half as many digits take half the time, and are enough for an approximate inverse.
        self._others = splu(
            self._sums_of_others().astype(np.float32),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0,
            options={"SymmetricMode": True},
        )
        self._others_per_row: FloatArray = self._others.solve(self._across.astype(np.float32))
        self._own_factor = sla.cho_factor(own - self._across.T @ self._others_per_row)

    def __call__(self, errors: FloatArray) -> FloatArray:
        ties = self._ties
        num_contexts = len(ties.directions)
        of_single, of_hub = np.split(errors, [len(ties.token)])
        errors_of_hub = np.zeros(num_contexts)
        errors_of_hub[ties.hub_contexts] = of_hub
        missing = of_single - errors_of_hub[ties.context]

        total = np.bincount(ties.context, self._inverse(missing), num_contexts)
        # Block elimination: first the other contexts, whose system is sparse.
        others = -self._others.solve(total[ties.other_contexts].astype(np.float32))
        sum_of_hub = total[ties.hub_contexts] @ ties.hub_rows + others @ self._across
        row = -sla.cho_solve(self._own_factor, sum_of_hub, check_finite=False)
        common = np.zeros(num_contexts)
        common[ties.hub_contexts] = ties.hub_rows @ row
        common[ties.other_contexts] = others - self._others_per_row @ row

        duals = self._inverse(missing + common[ties.context])
        total = np.bincount(ties.context, duals, num_contexts)
        return np.append(duals, -total[ties.hub_contexts])

    def _inverse(self, scores: FloatArray) -> FloatArray:
        """Multipliers that give each token alone these scores, shape (n,) or (n, c)."""
        duals = np.empty_like(scores)
        _apply(self._inverses, scores, duals)
        return duals

    def _sums_of_hub_row(self) -> tuple[FloatArray, FloatArray]:
        """Two blocks of the system: what the hub's row adds to its own sums, and to the others."""
        ties = self._ties
        num_contexts, dim = ties.directions.shape
        num_entries = len(ties.context)
        in_hub = np.isin(ties.context, ties.hub_contexts)[:, None]
        places = (ties.context, np.arange(num_entries))
        in_contexts = csr_array((np.ones(num_entries), places), shape=(num_contexts, num_entries))
        own = ties.hub_size * np.eye(dim)
        across = np.empty((len(ties.other_contexts), dim))
        for part in row_slices((dim, num_entries)):
            common = np.where(in_hub, ties.directions[ties.context, part], 0)
            total = in_contexts @ self._inverse(common)
            own[:, part] += ties.hub_rows.T @ total[ties.hub_contexts]
            across[:, part] = total[ties.other_contexts]
        return own, across

    def _sums_of_others(self) -> csc_array:
        """The third block: what the number of one other context adds to the sum of another."""
        ties = self._ties
        num_others = len(ties.other_contexts)
        number = np.full(len(ties.directions), -1)
        number[ties.other_contexts] = np.arange(num_others)
        pairs = []  # by all tokens that two contexts share
        values = []
        for places, inverses in self._inverses:
            contexts = number[ties.context[places]]
            both = (contexts[:, :, None] >= 0) & (contexts[:, None, :] >= 0)
            token, first, second = np.nonzero(both)
            pairs.append((contexts[token, first], contexts[token, second]))
            values.append(inverses[both])
        places = np.concatenate(pairs, axis=1)
        return csc_array((np.concatenate(values), places), shape=(num_others, num_others))


# -- the hub --------------------------------------------------------------------------------------


def _rigid_tokens(entries: TieEntries, core: BoolArray) -> IntArray:
    """Tokens whose rows differ by what their ties determine, increasing; one if there are no two.

    Two tokens of the core that share contexts in all directions are such, and so is each further
    one that shares contexts in all directions with those found before.
    """
    count = np.bincount(entries.token, minlength=entries.vocab_size)
    if not count.any():
        return np.zeros(0, dtype=int)
    contexts = np.split(entries.context, np.cumsum(count)[:-1])
    waiting = set(entries.token[core].tolist())
    rigid = {max(waiting or range(len(count)), key=count.__getitem__)}
    found: set[int] = set()
    touched = np.zeros(entries.num_contexts, dtype=bool)
    while rigid:
        found |= rigid
        waiting -= rigid
        for token in rigid:
            touched[contexts[token]] = True
        shared = {token: contexts[token][touched[contexts[token]]] for token in waiting}
        rigid = {token for token in waiting if _span_all(entries.directions, shared[token])}
    return np.array(sorted(found))


def _span_all(directions: FloatArray, contexts: IntArray) -> bool:
    """Whether the directions of some contexts span the whole space, and do so safely."""
    dim = directions.shape[1]
    if len(contexts) < dim:
        return False
    rows = directions[contexts]
    try:
        sla.cholesky(rows.T @ rows - KEEPS_DIGITS * np.eye(dim))
    except np.linalg.LinAlgError:
        return False
    return True


# -- proof ----------------------------------------------------------------------------------------


def _slope(W: FloatArray, entries: TieEntries, core: BoolArray, problem: CoreLoss | None) -> float:
    """Bound of the gradient's norm in coordinates in which the embeddings have no scale.

    A gradient that comes from errors of the probabilities ``q_kv`` is, in these coordinates, at
    most as long as the errors times ``√π_k``. Errors outside the core vanish, and are bounded so.
    """
    errors = np.exp(log_softmax(entries.scores(W), entries.context)) - entries.probs
    context_probs = entries.context_probs[entries.context]
    slope = float(np.linalg.norm((np.sqrt(context_probs) * errors)[~core]))
    if problem is not None:
        of_core = problem.pull_back((context_probs * errors)[core])
        slope += float(np.linalg.norm(problem.whiten(of_core)))
    return slope


def evidence(W: FloatArray, data: NextTokenData) -> tuple[float, float]:
    """Gradient norm and residual of :class:`ntpnb.FinitePart`, from the data themselves."""
    table = data.sparse_target_probs
    several = np.flatnonzero(np.diff(table.indptr) > 1)
    if not len(several):
        return 0.0, 0.0
    position, token, probs = entries_of(table[several])
    context = several[position]
    log_q = log_softmax(scores_at(data.context_embeddings, W, context, token), position)

    errors = data.context_probs[context] * (np.exp(log_q) - probs)
    gradient = combined_at(errors, context, token, data.context_embeddings, data.vocab_size)
    log_odds_errors = log_q - np.log(probs)
    starts = np.flatnonzero(np.diff(position, prepend=-1))
    highest = np.maximum.reduceat(log_odds_errors, starts)
    lowest = np.minimum.reduceat(log_odds_errors, starts)
    return float(np.linalg.norm(gradient)), float((highest - lowest).max())


# -- the tied subspace ----------------------------------------------------------------------------


class LargeSubspace(EqualSubspace):
    """The tied subspace F of a large linear decoder; nothing is computed before it is needed.

    Projections take conjugate gradients and fit at any size. The dimension, a basis, a fit of
    targets and the whitening come from dense factors, and are refused where these are too large.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import LargeSubspace
    >>> F = LargeSubspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))
    >>> F.project([[3.0], [1.0]]).round(6).tolist()
    [[1.0], [-1.0]]
    """

    def _checked(self) -> "LargeSubspace":
        if not self._data.is_linear_decoder:
            raise ValueError("LargeSubspace needs data of a linear decoder")
        return LargeSubspace(self._data)

    @property
    def dim(self) -> int:
        """Dimension of the subspace."""
        return self._dense.dim

    def fit(self, targets: FloatArray) -> FloatArray:
        """Fit targets of shape (m, V), see :meth:`EqualSubspace.fit`."""
        return self._dense.fit(targets)

    def _project(self, W: FloatArray) -> FloatArray:
        each = np.vectorize(self._project_one, signature="(p,q)->(p,q)")
        projected: FloatArray = each(W)
        return projected

    def _project_one(self, W: FloatArray) -> FloatArray:
        """The smallest matrix with the same scores of tied tokens, up to common ones."""
        scores = self._entries.scores(W)
        size = float(np.abs(scores).max(initial=0.0))
        if size == 0:
            return np.zeros_like(W)
        # The fit's accuracy is absolute, in scores.
        return size * self._smallest(scores / size, W / size, Watch())

    def _whitening(self) -> Whitening:
        return self._dense._whitening()

    def _basis(self) -> FloatArray:
        return self._dense._basis()

    @cached_property
    def _entries(self) -> TieEntries:
        return tie_entries(self._data)

    @cached_property
    def _smallest(self) -> SmallestFit:
        return SmallestFit(self._entries, core_of(self._entries))

    @cached_property
    def _dense(self) -> EqualSubspace:
        """The same subspace with dense factors."""
        data = self._data
        num_tied = int(np.count_nonzero(np.diff(data.sparse_target_probs.indptr) > 1))
        num_entries = num_tied * max(num_tied, data.vocab_size)
        if num_entries > HELD:
            raise ValueError(
                f"the dense factors of the tied subspace of {num_tied} contexts and "
                f"{data.vocab_size} tokens have {num_entries} entries, more than {HELD}; "
                "use project and reject, which need none"
            )
        return equal_subspace(data)
