"""The smallest W that gives the tied tokens of a linear decoder prescribed log-odds.

The smallest W is the one in the tied subspace F, so that it is ``W = Σ λ_kv e_v h_kᵀ`` with
``Σ_v λ_kv = 0`` in each context. Conjugate gradients in λ, begun at zero, never leave F. With the
inner products ``G_v`` of the embeddings of token v's contexts, one step costs as much as the
smaller of ``G_v`` and the embeddings themselves.

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
from scipy.sparse import csr_array

from ntpnb.basics.factors import finite
from ntpnb.basics.tolerances import ACCEPT, HELD, STOP
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray
from ntpnb.basics.watch import Watch
from ntpnb.problem.products import scores_at
from ntpnb.tied.entries import (
    GatheredRows,
    TieEntries,
    centred,
    gram_matrices,
    places_by_count,
)
from ntpnb.tied.newton import conjugate_gradients
from ntpnb.tied.subspace import KEEPS_DIGITS

# Positions of entries, shape (tokens, n), and a matrix for each token, shape (tokens, n, n).
_Blocks = list[tuple[IntArray, FloatArray]]


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
    >>> from ntpnb.tied.entries import core_of
    >>> from ntpnb.tied.entries import tie_entries
    >>> from ntpnb.tied.smallest import SmallestFit
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

    @property
    def num_unknowns(self) -> int:
        """Number of entries of the hub's row and of contexts without it."""
        num_entries: int = self.directions.shape[1]
        return num_entries + len(self.other_contexts)

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
        products[places] = (matrices @ values[places][:, :, None])[:, :, 0]


# -- preconditioner -------------------------------------------------------------------------------


def _preconditioner(ties: _Ties) -> Callable[[FloatArray], FloatArray]:
    """Approximate inverse of the inner products, where one is affordable; else the identity."""
    num_squares = sum(places.size * places.shape[1] for places in ties.places_by_count)
    # The inverses, where their entries belong, and the system.
    if num_squares == 0 or max(ties.num_unknowns**2, 4 * num_squares) > HELD:
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
        self._factor = sla.cho_factor(self._system(), lower=True, overwrite_a=True)

    def __call__(self, errors: FloatArray) -> FloatArray:
        ties = self._ties
        num_contexts = len(ties.directions)
        of_single, of_hub = np.split(errors, [len(ties.token)])
        errors_of_hub = np.zeros(num_contexts)
        errors_of_hub[ties.hub_contexts] = of_hub
        missing = of_single - errors_of_hub[ties.context]

        total = np.bincount(ties.context, self._inverse(missing), num_contexts)
        sums = np.append(total[ties.hub_contexts] @ ties.hub_rows, total[ties.other_contexts])
        unknowns = -sla.cho_solve(self._factor, sums, check_finite=False)
        row, others = np.split(unknowns, [ties.directions.shape[1]])
        common = np.zeros(num_contexts)
        common[ties.hub_contexts] = ties.hub_rows @ row
        common[ties.other_contexts] = others

        duals = self._inverse(missing + common[ties.context])
        total = np.bincount(ties.context, duals, num_contexts)
        return np.append(duals, -total[ties.hub_contexts])

    def _inverse(self, scores: FloatArray) -> FloatArray:
        """Multipliers that give each token alone these scores, shape (n,)."""
        duals = np.empty_like(scores)
        _apply(self._inverses, scores, duals)
        return duals

    def _system(self) -> FloatArray:
        """The matrix that takes the unknowns to the sums of multipliers."""
        ties = self._ties
        pairs = []  # of contexts, for each entry of the inverses
        for places, _ in self._inverses:
            contexts = ties.context[places]
            both = np.broadcast_arrays(contexts[:, :, None], contexts[:, None, :])
            pairs.append(np.reshape(both, (2, -1)))
        values = [inverses.ravel() for _, inverses in self._inverses]
        # What the score of one context adds to the multipliers of another, by all tokens.
        table = csr_array(
            (np.concatenate(values), np.concatenate(pairs, axis=1)),
            shape=2 * (len(ties.directions),),
        )
        of_hub = table[:, ties.hub_contexts] @ ties.hub_rows
        row = ties.hub_size * np.eye(of_hub.shape[1]) + ties.hub_rows.T @ of_hub[ties.hub_contexts]
        across = of_hub[ties.other_contexts]
        others = table[ties.other_contexts][:, ties.other_contexts].toarray()
        return np.block([[row, across.T], [across, others]])


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
        sla.cholesky(rows.T @ rows - KEEPS_DIGITS * np.eye(dim), check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True
