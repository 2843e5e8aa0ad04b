"""Max-margin problems of linear decoders whose table of contexts and tokens is too large to form.

Of all pairs of a context and a token only few decide the solution. This module keeps a working set
of them, the supports and the pairs that scored highest, and solves the penalised problems of
:mod:`ntpnb.margin.penalty` on it: the same augmented Lagrangian, with arrays that have one entry
for each pair of the set. After every minimum all pairs are screened, a block of tokens at a time,
and those that are missed join the set. A solution is judged by all pairs.

Entries are sorted by token, and in each token by context. ``a_v`` is the root of a token's
multiplicity, see :mod:`ntpnb.margin.normal_form`, and ``u_j`` the embedding ``h_j`` of length one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.array_types import BoolArray, FloatArray, IntArray

GATHERED = 2**22
"""Numbers that are gathered from the embeddings at one time (32 MiB)."""

SCREENED = 2**23
"""Scores of all contexts that are formed at one time (64 MiB)."""

SLACK = 1.1
"""Tokens whose numbers of entries differ by less than this are solved together."""

MOST_ITERATIONS = 1000
"""Conjugate gradient steps for one system."""

FIRST_PER_TOKEN = 32
"""Contexts beside its supports that a token begins with; a quarter of the dimension if more."""

MOST_NEW = 64
"""Contexts by which a token's part of the working set grows at one time."""


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
        self.tied = np.isin(keys, support_keys(decoder), assume_unique=True)
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
        scores = self._products(weights)
        missed: FloatArray = scores - self.roots * common[self.context] + self.rhs
        return missed

    def _products(self, weights: FloatArray) -> FloatArray:
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

    def grown(self, keys: IntArray) -> "WorkingSet":
        """The set with more pairs."""
        return WorkingSet(self.decoder, np.union1d(self.keys, keys))

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
            inverses = np.linalg.inv(matrices)
            return _Batch(positions, contexts, inverses, True), inverses[
                :, every_entry, every_entry
            ]
        matrices = rows.transpose(0, 2, 1) @ rows
        every_dim = np.arange(dim)
        matrices[:, every_dim, every_dim] += self._tau
        inverses = np.linalg.inv(matrices)
        diagonal = (1 - np.einsum("bsd,bsd->bs", rows @ inverses, rows)) / self._tau
        return _Batch(positions, contexts, inverses, False), diagonal

    def solve(self, target: FloatArray, start: FloatArray, accuracy: float) -> FloatArray:
        """The common scores ``c`` with ``Σ a² M c = Σ a M ρ``, to a residual of that norm."""
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
        rhs = self._part.column_sums(self.multipliers(target))
        common, _ = cg(
            matrix, rhs, x0=start, rtol=0, atol=accuracy, maxiter=MOST_ITERATIONS, M=precondition
        )
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
    """A point of a penalised problem on a working set, and its residual ``r``."""

    weights: FloatArray
    common: FloatArray
    shortfall: FloatArray
    residual: FloatArray
    steps: int = 0


def start_at(part: WorkingSet, weights: FloatArray, common: FloatArray) -> SetPoint:
    """The point with these weights and common scores."""
    shortfall = part.shortfall(weights, common)
    return SetPoint(weights, common, shortfall, np.zeros(len(part)))


def minimise_on(
    part: WorkingSet,
    start: SetPoint,
    push: FloatArray,
    tau: float,
    *,
    relative_accuracy: float,
    most_steps: int,
    fixed_scores: bool = False,
    between_steps: Callable[[], object] = lambda: None,
) -> SetPoint:
    """Minimise ``τ/2 ‖W‖² + ½ ‖r‖²`` on a working set, see :mod:`ntpnb.margin.penalty`.

    Parameters
    ----------
    part : WorkingSet
    start : SetPoint
    push : ndarray, shape (n,)
    tau : float
    relative_accuracy : float
        The norm of the gradient that is enough, relative to ``τ`` times the distance of ``W`` from
        the start.
    most_steps : int
    fixed_scores : bool
        Whether the common scores stay as they are.
    between_steps : callable
    """
    target = push + part.rhs
    weights, common, shortfall = start.weights, start.common, start.shortfall
    active_before: BoolArray | None = None
    for step in range(most_steps + 1):
        between_steps()
        pushed = push + shortfall
        active = part.tied | (pushed > 0)
        residual = np.where(active, pushed, 0.0)
        gradient = tau * weights + part.weights(residual)
        imbalance = 0.0 if fixed_scores else np.linalg.norm(part.column_sums(residual))
        size = float(np.hypot(np.linalg.norm(gradient), imbalance))
        enough = relative_accuracy * tau * float(np.linalg.norm(weights - start.weights))
        settled = active_before is not None and bool((active == active_before).all())
        if size <= enough or settled or step == most_steps:
            return SetPoint(weights, common, shortfall, residual, step)

        entries = np.flatnonzero(active)
        active_part = WorkingSet(part.decoder, part.keys[entries])
        system = BatchedSystem(active_part, tau)
        new_common = common
        if not fixed_scores:
            # Columns then miss a sum of zero by τ times what the system's residual is.
            new_common = system.solve(target[entries], common, max(0.3 * enough, 0.02 * size) / tau)
        rest = target[entries] - active_part.roots * new_common[active_part.context]
        move = -active_part.weights(system.multipliers(rest)) - weights
        common_move = new_common - common
        shortfall_move = part.shortfall(move, common_move) - part.rhs
        pull = tau * float(np.vdot(weights, move))
        curvature = tau * float(np.vdot(move, move))
        share = _lowest_point(pushed, shortfall_move, part.tied, pull, curvature)
        if share == 0:
            return SetPoint(weights, common, shortfall, residual, step)
        weights = weights + share * move
        common = common + share * common_move
        shortfall = shortfall + share * shortfall_move
        active_before = active if share == 1.0 and fixed_scores else None
    raise AssertionError("the last step returns")


def _lowest_point(
    value: FloatArray, move: FloatArray, tied: BoolArray, pull: float, curvature: float
) -> float:
    """Share of a step, at most one, where the function on the line is lowest.

    Its derivative increases and is piecewise linear; a bracket closes on its zero.
    """
    low, high, share = 0.0, 1.0, 1.0
    for _ in range(30):
        there = value + share * move
        counted = tied | (there > 0)
        moved = move[counted]
        slope = pull + share * curvature + float(there[counted] @ moved)
        bend = curvature + float(moved @ moved)
        if slope <= 0:
            low = share
        else:
            high = share
        if share == 1.0 and slope <= 1e-12 * bend:
            return 1.0
        next_share = share - slope / bend
        if abs(next_share - share) <= 1e-9:
            return share
        if not low < next_share < high:
            next_share = (low + high) / 2
        share = next_share
    return low


# -- all pairs ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Screening:
    """What a pass over all pairs found.

    Attributes
    ----------
    missed : ndarray of int
        Numbers ``v m + j`` of ordered pairs that are missed, the worst of each token.
    num_missed : int
        How many are missed in all.
    """

    missed: IntArray
    num_missed: int


def screen(decoder: Decoder, weights: FloatArray, common: FloatArray, most: int) -> Screening:
    """Find ordered pairs that are missed, ``most`` of each token at most, in single precision."""
    across = decoder.directions.T.astype(np.float32)
    room = (common - decoder.goals).astype(np.float32)
    missed = []
    num_missed = 0
    for tokens in decoder.token_blocks():
        shortfall = weights[tokens].astype(np.float32) @ across
        shortfall -= decoder.roots[tokens, None].astype(np.float32) * room
        shortfall[decoder.tied_in(tokens)] = -np.inf
        token, context = np.nonzero(shortfall > 0)
        num_missed += len(token)
        worst_first = np.lexsort((-shortfall[token, context], token))
        token = token[worst_first]
        context = context[worst_first]
        rank = np.arange(len(token)) - np.searchsorted(token, token)
        kept = rank < most
        missed.append((tokens.start + token[kept]) * decoder.num_contexts + context[kept])
    return Screening(np.sort(np.concatenate(missed)), num_missed)


def highest_scoring(
    decoder: Decoder, weights: FloatArray, common: FloatArray, number: int
) -> IntArray:
    """Numbers ``v m + j`` of each token's contexts in which it scores highest but does not tie."""
    number = min(number, decoder.num_contexts)
    found = []
    for tokens in decoder.token_blocks():
        scores = weights[tokens] @ decoder.directions.T - decoder.roots[tokens, None] * common
        scores[decoder.tied_in(tokens)] = -np.inf
        highest = np.argpartition(scores, -number, axis=1)[:, -number:]
        token = np.arange(tokens.start, tokens.stop)[:, None]
        found.append((token * decoder.num_contexts + highest).ravel())
    return np.unique(np.concatenate(found))


def highest_outside(decoder: Decoder, weights: FloatArray) -> FloatArray:
    """Largest score ``w_v · u_j / a_v`` of a token outside each context's support, shape (m,)."""
    highest = np.full(decoder.num_contexts, -np.inf)
    for tokens in decoder.token_blocks():
        scores = (weights[tokens] / decoder.roots[tokens, None]) @ decoder.directions.T
        scores[decoder.tied_in(tokens)] = -np.inf
        np.maximum(highest, scores.max(0), out=highest)
    return highest
