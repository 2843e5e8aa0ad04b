"""Max-margin problems of linear decoders, without forming their table of contexts and tokens.

Of all pairs of a context and a token only few decide the solution. This module keeps a working set
of them, the supports and the pairs that have a multiplier or are missed, and solves the penalised
problems of :mod:`ntpnb.margin.penalty` for all pairs with arrays that have one entry for each pair
of the set. Every Newton step ends with a screening of all pairs, a block of tokens at a time: those
that are missed there join the set, and those that count no more leave it.

Entries are sorted by token, and in each token by context. ``a_v`` is the root of a token's
multiplicity, see :mod:`ntpnb.margin.normal_form`, and ``u_j`` the embedding ``h_j`` of length one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.factorization import inverses_of_products
from ntpnb.margin.penalty import Line

GATHERED = 2**20
"""Numbers that are gathered from the embeddings at one time (8 MiB, which caches hold)."""

SCREENED = 2**22
"""Scores of all contexts that are formed at one time (32 MiB)."""

SLACK = 1.1
"""Tokens whose numbers of entries differ by less than this are solved together."""

MOST_ITERATIONS = 1000
"""Conjugate gradient steps for one system."""

MOST_NEW = 64
"""Contexts by which a token's part of the working set grows at one time.

The first steps may end where almost all pairs are missed.
"""

MOST_NEWTON_STEPS = 150
"""Newton steps for one minimum; five are the rule, fifteen are many."""

SYSTEM_ACCURACY = 0.03
"""Share of the gradient that a Newton step may leave."""

ROUNDING = 1e-13
"""Gradient, relative to the norm of the weights, that is rounding of the shortfalls."""


class NoFactor(np.linalg.LinAlgError):
    """A Newton system has no factor in floating point; never what a caller's function raised."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """A linear decoder in the program's units.

    Attributes
    ----------
    directions : ndarray, shape (m, d)
        ``u_j``.
    goals : ndarray, shape (m,)
        ``b_j``: the margin that is asked for, at most one.
    roots : ndarray, shape (V,)
        ``a_v``.
    supports : csr_array, shape (V, m)
        Its entries are the pairs that tie.
    """

    directions: FloatArray
    goals: FloatArray
    roots: FloatArray
    supports: csr_array

    @property
    def num_contexts(self) -> int:
        """Number of contexts ``m``."""
        return len(self.directions)

    @property
    def vocab_size(self) -> int:
        """Number of tokens ``V``."""
        return len(self.roots)

    def token_blocks(self) -> Iterator[slice]:
        """Divide the tokens so that their scores in all contexts are a block."""
        step = max(1, SCREENED // self.num_contexts)
        for start in range(0, self.vocab_size, step):
            yield slice(start, min(start + step, self.vocab_size))

    def tied_in(self, tokens: slice) -> tuple[IntArray, IntArray]:
        """Positions of the supports in a block of tokens: rows of the block, and contexts."""
        pointers = self.supports.indptr[tokens.start : tokens.stop + 1]
        row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        return row, self.supports.indices[pointers[0] : pointers[-1]]


class WorkingSet:
    """Some pairs of tokens and contexts, all supports among them.

    Parameters
    ----------
    decoder : Decoder
    keys : ndarray of int, shape (n,)
        Increasing numbers ``v m + j``.
    """

    def __init__(self, decoder: Decoder, keys: IntArray) -> None:
        self.decoder = decoder
        self.keys = keys
        self.token, self.context = np.divmod(keys, decoder.num_contexts)
        self.tied = np.zeros(len(keys), dtype=bool)
        self.tied[np.searchsorted(keys, support_keys(decoder))] = True
        self.roots = decoder.roots[self.token]
        self.rhs = np.where(self.tied, 0.0, self.roots * decoder.goals[self.context])

    def __len__(self) -> int:
        return len(self.keys)

    def weights(self, values: FloatArray) -> FloatArray:
        """``Σ_j x_vj u_j`` for every token, shape (V, d)."""
        decoder = self.decoder
        shape = (decoder.vocab_size, decoder.num_contexts)
        counts = np.bincount(self.token, minlength=decoder.vocab_size)
        pointers = np.concatenate([[0], np.cumsum(counts)])
        table = csr_array((values, self.context, pointers), shape=shape)
        W: FloatArray = table @ decoder.directions
        return W

    def shortfall(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``w_v · u_j − a_v c_j + a_v b_j``, without ``b`` on supports."""
        scores = self.products(weights)
        missed: FloatArray = scores - self.roots * common[self.context] + self.rhs
        return missed

    def products(self, weights: FloatArray) -> FloatArray:
        """``w_v · u_j`` of the entries."""
        directions = self.decoder.directions
        products = np.empty(len(self))
        step = max(1, GATHERED // directions.shape[1])
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            rows = weights[self.token[part]]
            products[part] = np.einsum("nd,nd->n", rows, directions[self.context[part]])
        return products

    def column_sums(self, values: FloatArray) -> FloatArray:
        """Sum over the entries of each context, by the roots, shape (m,)."""
        sums = np.bincount(self.context, self.roots * values, self.decoder.num_contexts)
        return np.asarray(sums, dtype=np.float64)

    def only(self, chosen: BoolArray) -> "WorkingSet":
        """The set of some of its pairs, all supports among them."""
        return WorkingSet(self.decoder, self.keys[chosen])

    def grown(self, keys: IntArray) -> "WorkingSet":
        """The set with more pairs."""
        both = np.sort(np.concatenate([self.keys, keys]), kind="stable")
        is_first = np.diff(both, prepend=-1) > 0
        return WorkingSet(self.decoder, both[is_first])

    def carried(self, values: FloatArray, larger: "WorkingSet") -> FloatArray:
        """Values of the entries as ones of a larger set, which has zeros elsewhere."""
        carried = np.zeros(len(larger))
        carried[np.searchsorted(larger.keys, self.keys)] = values
        return carried


def support_keys(decoder: Decoder) -> IntArray:
    """Numbers ``v m + j`` of the supports, increasing."""
    supports = decoder.supports
    token = np.repeat(np.arange(decoder.vocab_size), np.diff(supports.indptr))
    keys: IntArray = token * decoder.num_contexts + supports.indices
    return keys


# -- Newton systems -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Batch:
    """Tokens with about as many entries, padded with one that is always zero.

    Either the inverses ``M_v`` of their own entries are kept, or, where entries are more than
    dimensions, ``K_v⁻¹`` (see :mod:`ntpnb.margin.penalty_system`).
    """

    positions: IntArray  # (tokens, entries), the last position for padding
    contexts: IntArray  # (tokens, entries), the last context for padding
    inverses: FloatArray
    is_short: bool


class BatchedSystem:
    """The Newton system of a penalised problem on some entries of a working set.

    Parameters
    ----------
    part : WorkingSet
        The entries ``T``.
    tau : float
    """

    def __init__(self, part: WorkingSet, tau: float) -> None:
        self._part = part
        self._tau = tau
        directions = part.decoder.directions
        self._padded = np.vstack([directions, np.zeros(directions.shape[1])])
        diagonal = np.zeros(len(self._padded))
        self._batches = []
        self._own_roots = np.append(part.roots, 0.0)
        for positions, contexts in _padded_positions(part):
            batch, own_diagonal = self._factored(positions, contexts)
            self._batches.append(batch)
            own_diagonal = own_diagonal * self._own_roots[positions] ** 2
            diagonal += np.bincount(contexts.ravel(), own_diagonal.ravel(), len(diagonal))
        self._preconditioner = 1 / diagonal[:-1]

    def _factored(self, positions: IntArray, contexts: IntArray) -> tuple[_Batch, FloatArray]:
        """A batch, and the diagonals of its ``M_v``."""
        rows = self._padded[contexts]
        num_entries, dim = rows.shape[1:]
        every_entry = np.arange(num_entries)
        if num_entries <= dim:
            matrices = rows @ rows.transpose(0, 2, 1)
            matrices[:, every_entry, every_entry] += self._tau
            inverses = _inverses(matrices)
            return _Batch(positions, contexts, inverses, True), inverses[
                :, every_entry, every_entry
            ]
        matrices = rows.transpose(0, 2, 1) @ rows
        every_dim = np.arange(dim)
        matrices[:, every_dim, every_dim] += self._tau
        inverses = _inverses(matrices)
        diagonal = (1 - np.einsum("bsd,bsd->bs", rows @ inverses, rows)) / self._tau
        return _Batch(positions, contexts, inverses, False), diagonal

    def solve(self, rho: FloatArray, sums: FloatArray, accuracy: float) -> FloatArray:
        """The common scores ``c`` with ``Σ a² M c = Σ a M ρ + s``, to a residual of that norm."""
        num_contexts = self._part.decoder.num_contexts

        def product(common: FloatArray) -> FloatArray:
            spread = self._part.roots * common.ravel()[self._part.context]
            return self._part.column_sums(self.multipliers(spread))

        matrix = LinearOperator((num_contexts, num_contexts), matvec=product, dtype=np.float64)
        precondition = LinearOperator(
            (num_contexts, num_contexts),
            matvec=lambda z: self._preconditioner * z.ravel(),
            dtype=np.float64,
        )
        rhs = self._part.column_sums(self.multipliers(rho)) + sums
        common, _ = cg(matrix, rhs, rtol=0, atol=accuracy, maxiter=MOST_ITERATIONS, M=precondition)
        return np.asarray(common, dtype=np.float64)

    def multipliers(self, rest: FloatArray) -> FloatArray:
        """``M_v x_v`` of every token, shape (n,)."""
        padded = np.append(rest, 0.0)
        products = np.zeros(len(padded))
        for batch in self._batches:
            x = padded[batch.positions][:, :, None]
            if batch.is_short:
                y = batch.inverses @ x
            else:
                rows = self._padded[batch.contexts]
                y = (x - rows @ (batch.inverses @ (rows.transpose(0, 2, 1) @ x))) / self._tau
            products[batch.positions] = y[:, :, 0]
        return products[:-1]


def _inverses(matrices: FloatArray) -> FloatArray:
    """Inverses of symmetric definite matrices, shape (n, k, k)."""
    try:
        factors = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError as error:
        raise NoFactor(str(error)) from None
    return inverses_of_products(np.asarray(factors, dtype=np.float64))


def _padded_positions(part: WorkingSet) -> Iterator[tuple[IntArray, IntArray]]:
    """Positions and contexts of the entries of tokens with about as many of them."""
    counts = np.bincount(part.token, minlength=part.decoder.vocab_size)
    starts = np.cumsum(counts) - counts
    tokens = np.argsort(counts, kind="stable")
    tokens = tokens[counts[tokens] > 0]
    sorted_counts = counts[tokens]
    contexts = np.append(part.context, part.decoder.num_contexts)
    dim = part.decoder.directions.shape[1]
    first = 0
    while first < len(tokens):
        longest = int(sorted_counts[first] * SLACK)
        end = int(np.searchsorted(sorted_counts, longest, side="right"))
        size = int(sorted_counts[end - 1])
        most = max(1, GATHERED // (size * max(size, dim)))
        for start in range(first, end, most):
            chosen = tokens[start : min(end, start + most)]
            positions = starts[chosen][:, None] + np.arange(size)
            positions[np.arange(size) >= counts[chosen][:, None]] = len(part)
            yield positions, contexts[positions]
        first = end


# -- penalised problems ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SetPoint:
    """A point of the problem of all pairs, told on those that matter there.

    Attributes
    ----------
    part : WorkingSet
        Every pair outside it has no multiplier.
    multipliers : ndarray, shape (n,)
        Those that push.
    weights : ndarray, shape (V, d)
    common : ndarray, shape (m,)
    """

    part: WorkingSet
    multipliers: FloatArray
    weights: FloatArray
    common: FloatArray


@dataclass(frozen=True, eq=False)
class SetMinimum:
    """Where Newton's method ended, and the residual ``r`` there, shape (n,)."""

    point: SetPoint
    residual: FloatArray


def minimise_on_sets(
    start: SetPoint,
    tau: float,
    *,
    relative_accuracy: float,
    fixed_scores: bool = False,
    say: Callable[[str], object] = lambda text: None,
    between_steps: Callable[[], object] = lambda: None,
) -> SetMinimum:
    """Minimise ``τ/2 ‖W‖² + ½ ‖r‖²`` over all pairs, see :mod:`ntpnb.margin.penalty`.

    The push is ``p = τ λ`` with the multipliers ``λ`` of the start. A Newton step solves the
    quadratic of the pairs that are penalised at present. All pairs are screened where it ends. One
    that is penalised at neither end of the step is so nowhere between them, since ``p + g`` is
    linear there; so the line search is the one of all pairs, and there is no other limit to the
    working set than :data:`MOST_NEW`. The method does not stop before all that were missed joined.

    Parameters
    ----------
    start : SetPoint
    tau : float
        ``τ > 0``.
    relative_accuracy : float
        The norm of the gradient that is enough, relative to ``τ`` times the distance of ``W`` from
        the start.
    fixed_scores : bool
        Whether the common scores stay as they are.
    say : callable
        Told a line of text after every step.
    between_steps : callable
        Called before every step; what it raises ends the search.

    Raises
    ------
    NoFactor
    """
    part, multipliers = start.part, start.multipliers
    weights, common = start.weights, start.common
    shortfall = part.shortfall(weights, common)
    is_whole = False
    for step in range(MOST_NEWTON_STEPS + 1):
        between_steps()
        pushed = tau * multipliers + shortfall
        active = part.tied | (pushed > 0)
        residual = np.where(active, pushed, 0.0)
        gradient = tau * weights + part.weights(residual)
        sums = np.zeros(len(common)) if fixed_scores else part.column_sums(residual)
        size = float(np.hypot(np.linalg.norm(gradient), np.linalg.norm(sums)))
        moved = float(np.linalg.norm(weights - start.weights))
        rounding = ROUNDING * float(np.linalg.norm(weights))
        enough = max(relative_accuracy * tau * moved, rounding)
        point = SetPoint(part, multipliers, weights, common)
        if (is_whole and size <= enough) or step == MOST_NEWTON_STEPS:
            break

        penalised = part.only(active)
        accuracy = max(0.3 * enough, SYSTEM_ACCURACY * size)
        move = _newton_move(penalised, gradient, None if fixed_scores else sums, tau, accuracy)

        matters = active | (multipliers > 0)
        kept = part.only(matters)
        found = screen(kept, weights + move.weights, common + move.common, MOST_NEW)
        is_whole = found.num_missed == len(found.worst)
        part = kept.grown(found.worst)
        multipliers = kept.carried(multipliers[matters], part)
        say(
            f"working set of {len(part)} pairs, Newton step {step + 1}: {found.num_missed} others "
            "were missed"
        )

        shortfall = part.shortfall(weights, common)
        shortfall_move = part.shortfall(move.weights, move.common) - part.rhs
        pushed = tau * multipliers + shortfall
        line = Line(
            value=pushed[part.tied],
            value_move=shortfall_move[part.tied],
            ordered=pushed[~part.tied],
            ordered_move=shortfall_move[~part.tied],
            pull=tau * float(np.vdot(weights, move.weights)),
            curvature=tau * float(np.vdot(move.weights, move.weights)),
        )
        share = line.lowest_point()
        if share == 0:  # rounding decides on the line
            break
        weights = weights + share * move.weights
        common = common + share * move.common
        shortfall = shortfall + share * shortfall_move
    return SetMinimum(point, residual)


@dataclass(frozen=True, eq=False)
class _Move:
    """A Newton step: what weights and common scores gain."""

    weights: FloatArray
    common: FloatArray


def _newton_move(
    penalised: WorkingSet,
    gradient: FloatArray,
    sums: FloatArray | None,
    tau: float,
    accuracy: float,
) -> _Move:
    """The step to the minimum of the quadratic of the penalised pairs.

    It is found from the gradient, so that no digits cancel where that is small: ``r/τ`` grows by
    ``M (−a Δc − ∇ U / τ)`` on the entries, which takes the sums of columns to zero.

    Parameters
    ----------
    penalised : WorkingSet
    gradient : ndarray, shape (V, d)
        ``∇ = τ W + r U``.
    sums : ndarray, shape (m,), or None
        Sums of the columns of ``r``; None for common scores that stay.
    tau : float
    accuracy : float
        What may be left of the sums.
    """
    system = BatchedSystem(penalised, tau)
    common = np.zeros(penalised.decoder.num_contexts)
    rest = -penalised.products(gradient / tau)
    if sums is not None:
        common = system.solve(rest, sums / tau, accuracy / tau)
    growth = system.multipliers(rest - penalised.roots * common[penalised.context])
    return _Move(-gradient / tau - penalised.weights(growth), common)


# -- all pairs ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Screening:
    """What a pass over all pairs found outside a working set.

    Attributes
    ----------
    worst : ndarray of int
        Numbers ``v m + j`` of ordered pairs that are missed, the worst of each token, increasing.
    num_missed : int
        How many are missed in all.
    """

    worst: IntArray
    num_missed: int


def screen(part: WorkingSet, weights: FloatArray, common: FloatArray, most: int) -> Screening:
    """Find pairs outside a set that are missed, in single precision, ``most`` of each token."""
    decoder = part.decoder
    across = decoder.directions.T.astype(np.float32)
    room = (common - decoder.goals).astype(np.float32)
    worst = []
    num_missed = 0
    for tokens in decoder.token_blocks():
        shortfall = weights[tokens].astype(np.float32) @ across
        shortfall -= decoder.roots[tokens, None].astype(np.float32) * room
        first = tokens.start * decoder.num_contexts
        inside = slice(*np.searchsorted(part.keys, [first, first + shortfall.size]))
        shortfall.flat[part.keys[inside] - first] = -np.inf
        missed = shortfall > 0
        counts = missed.sum(1)
        num_missed += int(counts.sum())
        crowded = np.flatnonzero(counts > most)
        if len(crowded):
            chosen = np.argpartition(shortfall[crowded], -most, axis=1)[:, -most:]
            missed[crowded] = False
            missed[crowded[:, None], chosen] = True
        worst.append(first + np.flatnonzero(missed))
    return Screening(np.concatenate(worst), num_missed)


def highest_outside(decoder: Decoder, weights: FloatArray) -> FloatArray:
    """Largest score ``w_v · u_j / a_v`` of a token outside each context's support, shape (m,)."""
    highest = np.full(decoder.num_contexts, -np.inf)
    for tokens in decoder.token_blocks():
        scores = (weights[tokens] / decoder.roots[tokens, None]) @ decoder.directions.T
        scores[decoder.tied_in(tokens)] = -np.inf
        np.maximum(highest, scores.max(0), out=highest)
    return highest
