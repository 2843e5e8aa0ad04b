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
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.tied.entries import BLOCK, GatheredRows, TieEntries, sampled_products
from ntpnb.watch import Watch

RIGID = 1e-8  # least eigenvalue of Σ u uᵀ over shared contexts, where two tokens are made one
NEVER_SINGULAR = 1e-4  # added to the G_v, of unit rows, before they are inverted
DENSE = 6000  # unknowns for which the preconditioner is factored (275 MiB)
ACCURATE = 1e-11  # nats of log-odds at which the fit is left as it is
ROUNDING = 1e-14  # errors of this size, relative to the multipliers, are rounding
UNIT_ROUNDOFF = 1e-15  # errors of this size, relative to what is wanted, are rounding too
MOST_STEPS = 20_000
LEAST_STEPS = 20  # that are taken even if no time is left, so that there is an answer
LOOK_ALWAYS = 20  # steps after each of which the error is looked at
LOOK_EVERY = 10  # steps between two looks from then on
PATIENCE = 2000  # steps in which the error must halve
MAGNIFIED = 1e6  # growth of the error that shows that rounding is being magnified


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
    >>> from ntpnb.tied.core import core_of
    >>> from ntpnb.tied.entries import tie_entries
    >>> from ntpnb.tied.smallest import SmallestFit
    >>> from ntpnb.watch import Watch
    >>> data = ntpnb.NextTokenData([[2.0]], [[0.5, 0.5]])
    >>> entries = tie_entries(data, data.sparse_target_probs)
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
        while np.abs(missing).max(initial=0.0) > ACCURATE and not watch.expired:
            better = W + self._fit(missing, np.zeros_like(W), watch)
            still_missing = self._missing(log_odds, better)
            if np.abs(still_missing).max() > np.abs(missing).max() / 2:
                break
            W = better
            missing = still_missing
        return W

    def _missing(self, log_odds: FloatArray, W: FloatArray) -> FloatArray:
        """What the scores of ``W`` lack, less its mean in each context, in nats, shape (n,)."""
        entries = self._entries
        missing = log_odds - entries.scores(W)
        mean = np.bincount(entries.context, missing, entries.num_contexts) / entries.sizes()
        centred: FloatArray = missing - mean[entries.context]
        return centred

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
        asked = asked - sampled_products(deviations, entries.directions, position, context)
        total = np.bincount(context, asked, entries.num_contexts)
        count = np.bincount(context, minlength=entries.num_contexts)
        mean: FloatArray = total[self._hub_contexts] / count[self._hub_contexts]
        return mean

    def _solve(self, wanted: FloatArray, watch: Watch) -> FloatArray:
        """Multipliers ``λ`` whose ``W`` has the wanted scores, up to a constant in each context."""
        centred = self._ties.centred
        target = centred(wanted)
        shape = (len(target), len(target))

        def scores(duals: FloatArray) -> FloatArray:
            return centred(self._products(duals))

        def precondition(errors: FloatArray) -> FloatArray:
            return centred(self._precondition(errors))

        operator = LinearOperator(shape, matvec=scores, dtype=np.float64)
        lengths = self._entries.lengths[self._ties.all_contexts]
        observer = _Observer(operator, target, lengths, watch)
        try:
            # Where nothing but rounding is left, products vanish that are divided by.
            with np.errstate(divide="raise", invalid="raise"):
                duals, _ = cg(
                    operator,
                    target,
                    rtol=UNIT_ROUNDOFF,
                    atol=ACCURATE / (2 * lengths.max()) if len(lengths) else 0.0,
                    maxiter=MOST_STEPS,
                    M=LinearOperator(shape, matvec=precondition, dtype=np.float64),
                    callback=observer,
                )
        except _Enough:
            duals = observer.best
        except FloatingPointError:
            duals = observer.latest
        return centred(duals)


class _Enough(Exception):
    """Ends conjugate gradients between two steps."""


class _Observer:
    """Looks at conjugate gradients from time to time and ends them where they no longer gain."""

    def __init__(
        self, operator: LinearOperator, target: FloatArray, lengths: FloatArray, watch: Watch
    ) -> None:
        self._operator = operator
        self._target = target
        self._lengths = lengths
        self._watch = watch
        self._step = 0
        self._smallest = self._largest_nats(target)
        self._to_halve = self._smallest
        self._last_gain = 0  # the step at which the error had halved
        self.best = np.zeros_like(target)
        self.latest = self.best

    def __call__(self, duals: FloatArray) -> None:
        self._step += 1
        self.latest = duals
        out_of_time = self._step >= LEAST_STEPS and self._watch.expired
        if self._step > LOOK_ALWAYS and self._step % LOOK_EVERY and not out_of_time:
            return
        error = self._target - self._operator @ duals
        nats = self._largest_nats(error)
        if nats < self._smallest:
            self._smallest = nats
            self.best = duals.copy()
        if nats <= self._to_halve / 2:
            self._to_halve = nats
            self._last_gain = self._step
        if self._step % LOOK_EVERY == 0:
            self._watch.say(
                f"smallest W, step {self._step}: its log-odds are right to within {nats:.1e} nats"
            )
        is_rounding = np.linalg.norm(error) <= ROUNDING * np.linalg.norm(duals)
        only_magnified = nats > MAGNIFIED * self._smallest
        stalled = self._step - self._last_gain > PATIENCE
        if out_of_time or is_rounding or only_magnified or stalled:
            raise _Enough

    def _largest_nats(self, errors: FloatArray) -> float:
        """Largest error of a score, in nats instead of in multiples of the embedding's length."""
        return float(np.abs(self._lengths * errors).max(initial=0.0))


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

    def centred(self, x: FloatArray) -> FloatArray:
        """Numbers of all entries, less their mean in each context, shape (n + h,)."""
        mean = np.bincount(self.all_contexts, x, len(self.directions)) / self._sizes
        centred: FloatArray = x - mean[self.all_contexts]
        return centred

    @cached_property
    def _sizes(self) -> IntArray:
        """Number of entries of each context; one where there are none, to divide by."""
        sizes = np.bincount(self.all_contexts, minlength=len(self.directions))
        return np.maximum(sizes, 1)

    def places_by_count(self) -> list[IntArray]:
        """Positions of the entries, tokens with equally many in one array of shape (tokens, n)."""
        _, starts, counts = np.unique(self.token, return_index=True, return_counts=True)
        return [starts[counts == count][:, None] + np.arange(count) for count in np.unique(counts)]


class _InnerProducts:
    """The product of each token's multipliers with ``G_v``; the hub's row is shared by many."""

    def __init__(self, ties: _Ties) -> None:
        self._ties = ties
        # Tokens of few contexts with all their G_v, and tokens of many.
        self._few: list[tuple[IntArray, FloatArray]] = []
        self._many: list[IntArray] = []
        for places in ties.places_by_count():
            if places.shape[1] <= ties.directions.shape[1]:
                self._few.append((places, _gram_matrices(ties, places)))
            else:
                self._many.extend(places)
        self._rows = GatheredRows(ties.directions, [ties.context[places] for places in self._many])

    def __call__(self, duals: FloatArray) -> FloatArray:
        """Scores of the ``W`` that the multipliers of all entries stand for."""
        scores = np.empty_like(duals)
        for places, grams in self._few:
            scores[places] = (grams @ duals[places][:, :, None])[:, :, 0]
        for i, places in enumerate(self._many):
            rows = self._rows[i]
            scores[places] = rows @ (duals[places] @ rows)
        ties = self._ties
        num_single = len(ties.token)
        hub_row = duals[num_single:] @ ties.hub_rows / ties.hub_size
        scores[num_single:] = ties.hub_rows @ hub_row
        return scores


# -- preconditioner -------------------------------------------------------------------------------


def _preconditioner(ties: _Ties) -> Callable[[FloatArray], FloatArray]:
    """Approximate inverse of the inner products, where one is affordable; else the identity."""
    num_squares = sum(places.size * places.shape[1] for places in ties.places_by_count())
    if ties.num_unknowns > DENSE or num_squares > DENSE**2:
        return np.copy
    try:
        return _CommonScores(ties)
    except np.linalg.LinAlgError:
        return np.copy


class _CommonScores:
    """The inverse by way of the scores that the tokens of each context have in common.

    Unknown are the hub's row of W, which gives them in its contexts, and one number for each other
    context. Given these, token v has the multipliers ``G_v⁻¹`` times the scores that are missing,
    and the common scores are those for which the multipliers of each context sum to zero.

    A ``G_v`` of more contexts than dimensions is singular. What is added to it before it is
    inverted is a compromise: less of it magnifies rounding, and more needs more steps.
    """

    def __init__(self, ties: _Ties) -> None:
        self._ties = ties
        self._inverses: list[tuple[IntArray, FloatArray]] = []
        for places in ties.places_by_count():
            regular = _gram_matrices(ties, places) + NEVER_SINGULAR * np.eye(places.shape[1])
            inverses = np.asarray(np.linalg.inv(regular), dtype=np.float64)
            self._inverses.append((places, inverses))
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
        for places, inverses in self._inverses:
            duals[places] = (inverses @ scores[places][:, :, None])[:, :, 0]
        return duals

    def _system(self) -> FloatArray:
        """Lower triangle of the matrix that takes the unknowns to the sums of multipliers."""
        ties = self._ties
        dim = ties.directions.shape[1]
        system = np.zeros((ties.num_unknowns, ties.num_unknowns))
        system[:dim, :dim] = ties.hub_size * np.eye(dim)
        # The unknown of each context outside the hub; −1 in the hub, where a row gives the score.
        unknown = np.full(len(ties.directions), -1)
        unknown[ties.other_contexts] = dim + np.arange(len(ties.other_contexts))
        for places, inverses in self._inverses:
            block = max(1, BLOCK // (places.shape[1] * dim))
            for start in range(0, len(places), block):
                some = slice(start, start + block)
                numbers = unknown[ties.context[places[some]]]
                rows = ties.directions[ties.context[places[some]]]
                rows[numbers >= 0] = 0.0
                _add_tokens(system, inverses[some], rows, numbers)
        return system


def _add_tokens(
    system: FloatArray, inverses: FloatArray, rows: FloatArray, numbers: IntArray
) -> None:
    """Add some tokens' part of the system of common scores, in place.

    ``inverses`` has the shape (tokens, n, n); ``rows``, (tokens, n, q), are embeddings where the
    context belongs to the hub; ``numbers``, (tokens, n), are unknowns where it does not.
    """
    dim = rows.shape[2]
    products = inverses @ rows
    system[:dim, :dim] += rows.reshape(-1, dim).T @ products.reshape(-1, dim)

    is_other = numbers >= 0
    others = numbers[is_other]
    places = (others, np.arange(len(others)))
    shape = (len(system), len(others))
    system[:, :dim] += csr_array((np.ones(len(others)), places), shape=shape) @ products[is_other]

    both = is_other[:, :, None] & is_other[:, None, :]
    i = np.broadcast_to(numbers[:, :, None], both.shape)[both]
    j = np.broadcast_to(numbers[:, None, :], both.shape)[both]
    np.add.at(system.reshape(-1), i * len(system) + j, inverses[both])


def _gram_matrices(ties: _Ties, places: IntArray) -> FloatArray:
    """Inner products of the embeddings of each token's contexts, shape (tokens, n, n)."""
    num_tokens, count = places.shape
    grams = np.empty((num_tokens, count, count))
    block = max(1, BLOCK // (count * ties.directions.shape[1]))
    for start in range(0, num_tokens, block):
        rows = ties.directions[ties.context[places[start : start + block]]]
        grams[start : start + block] = rows @ rows.transpose(0, 2, 1)
    return grams


# -- the hub --------------------------------------------------------------------------------------


def _rigid_tokens(entries: TieEntries, core: BoolArray) -> IntArray:
    """Tokens whose rows differ by what their ties determine, increasing; one if there are no two.

    Two tokens of the core that share contexts in all directions are such, and so is each further
    one that shares contexts in all directions with those found before.
    """
    count = np.bincount(entries.token, minlength=entries.vocab_size)
    if not count.any():
        return np.zeros(0, dtype=int)
    of_core = np.unique(entries.token[core])
    waiting = of_core[np.argsort(-count[of_core], kind="stable")].tolist()
    first = waiting.pop(0) if waiting else int(count.argmax())
    ends = np.cumsum(count)
    found = [first]
    touched = np.zeros(entries.num_contexts, dtype=bool)
    touched[entries.context[ends[first] - count[first] : ends[first]]] = True
    grew = True
    while grew:
        grew = False
        for token in list(waiting):
            contexts = entries.context[ends[token] - count[token] : ends[token]]
            if _span_all(entries.directions, contexts[touched[contexts]]):
                found.append(token)
                waiting.remove(token)
                touched[contexts] = True
                grew = True
    return np.sort(found)


def _span_all(directions: FloatArray, contexts: IntArray) -> bool:
    """Whether the directions of some contexts span the whole space, and do so safely."""
    dim = directions.shape[1]
    if len(contexts) < dim:
        return False
    rows = directions[contexts]
    try:
        sla.cholesky(rows.T @ rows - RIGID * np.eye(dim), check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True
