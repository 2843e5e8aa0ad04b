"""Problems with the same answers that are smaller, or easier to compute with.

One token stands for all that are never a target in the max-margin problem. In a linear decoder
every token that follows no context has the same constraints: in each context it scores below the
support. The problem does not change when such tokens are exchanged, and its solution is unique, so
that their rows of ``W`` are equal. One row, counted as often as there are tokens, gives the same
solution; of ``V`` rows with ``k`` targets remain ``k + 1``. What the small problem knows is said of
the whole one here. Each of the tokens has an equal share of the multipliers of the one that stands
for them. A certificate needs one of them only.

There are coordinates in which contexts point everywhere alike, for what does not depend on
coordinates. Hidden states of a trained model have much in common, and differ little in most
directions. Whether a ``W`` separates them does not depend on that: with ``h = A u`` for an
invertible ``A``, ``W`` has the scores on ``h`` that ``W A`` has on ``u``, and the length of a
context does not matter either.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla
from scipy.sparse import csr_array

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.linear_systems import unit_rows
from ntpnb.basics.saving import register
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE, decomposition_error
from ntpnb.basics.validation import FloatArray, IntArray, require_dense
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority, listed_tokens, over_losers, token_priority
from ntpnb.problem.table import entries_of

LEAST_SHARE = 0.5
"""Share of tokens that are never a target from which on one of them stands for all.

Below it no more than half of the work would be saved.
"""


# -- one token for all that are never a target ----------------------------------------------------


@register
@dataclass(frozen=True, eq=False)
class SharedMultipliers:
    """Multipliers of the strict pairs of a linear decoder, by context and kept token.

    Attributes
    ----------
    table : csr_array, shape (m, k)
        A row for each group, in the order of their names, and a column for each kept token, with
        the ``λ`` of one of the tokens that it stands for.
    kept : ndarray of int, shape (V,)
        The kept token that stands for each token.
    winners : csr_array, shape (m, V)
        Its entries are the tokens that win, the supports; they have no multipliers.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from ntpnb.problem.equivalent import SharedMultipliers
    >>> winners = csr_array(np.array([[1.0, 0.0, 0.0]]))
    >>> table = csr_array(np.array([[0.0, 0.5]]))
    >>> shared = SharedMultipliers(table, np.array([0, 1, 1]), winners)
    >>> shared.dense().tolist(), shared.total
    ([0.5, 0.5], 1.0)
    """

    table: csr_array
    kept: IntArray
    winners: csr_array

    def __repr__(self) -> str:
        return f"SharedMultipliers({self.table.nnz} numbers, {self.table.shape[0]} contexts)"

    @property
    def total(self) -> float:
        """Sum over all strict pairs."""
        return float((self.table @ np.bincount(self.kept)).sum())

    def dense(self) -> FloatArray:
        """One multiplier for each strict pair, in the order of ``token_priority``.

        Raises
        ------
        ValueError
            There are more than 2**28 contexts times tokens.
        """
        require_dense("multipliers", self.winners.shape, "use a smaller vocabulary")
        loses = np.ones(self.winners.shape, dtype=bool)
        wins = entries_of(self.winners)
        loses[wins.row, wins.token] = False
        multipliers: FloatArray = self.table.toarray()[:, self.kept][loses]
        return multipliers

    def pair_weights(self, data: NextTokenData) -> PairWeights:
        """What is not zero, by pairs of the data, as shares of all.

        Of tokens that share multipliers the first stands for all, with their sum.
        """
        group, token, value = entries_of(self.table)
        tokens, first, counts = np.unique(self.kept, return_index=True, return_counts=True)
        which = np.searchsorted(tokens, token)
        return strict_weights(token_priority(data), group, first[which], value * counts[which])


@dataclass(frozen=True, eq=False)
class Collapse:
    """A dataset, and the same problem with one token in place of those that are never a target.

    Attributes
    ----------
    whole : NextTokenData
    data : NextTokenData
        Its tokens are the targets, in their order, and then the one that stands for the others. It
        is ``whole`` itself where nothing is collapsed.
    targets : ndarray of int, shape (k,)
        The tokens of ``whole`` that stand for themselves, increasing.
    """

    whole: NextTokenData
    data: NextTokenData
    targets: IntArray

    @property
    def is_trivial(self) -> bool:
        """Whether nothing is collapsed."""
        return self.data is self.whole

    @cached_property
    def multiplicity(self) -> IntArray | None:
        """How many tokens each token of ``data`` stands for; None where each stands for itself."""
        if self.is_trivial:
            return None
        num_others = self.whole.vocab_size - len(self.targets)
        return np.append(np.ones_like(self.targets), num_others)

    @cached_property
    def kept(self) -> IntArray:
        """The token of ``data`` that stands for each token of ``whole``, of shape (V,)."""
        kept = np.full(self.whole.vocab_size, len(self.targets))
        kept[self.targets] = np.arange(len(self.targets))
        return kept

    @property
    def first_of_kept(self) -> IntArray:
        """The first token of ``whole`` that each token of ``data`` stands for, shape (k + 1,).

        From the targets alone: a vocabulary may be too large for an array of all tokens.
        """
        others_before = self.targets - np.arange(len(self.targets))
        return np.append(self.targets, np.searchsorted(others_before, 1))

    def shared_multipliers(self, table: csr_array) -> SharedMultipliers:
        """Multipliers of the strict pairs of the whole, from those of one token of each kind."""
        return SharedMultipliers(table, self.kept, token_priority(self.whole).sparse_components)

    def pair_weights(self, found: PairWeights) -> PairWeights:
        """Weights of strict pairs of ``data`` as ones of the whole, on one token each."""
        if self.is_trivial:
            return found
        group, _, loser = found.pairs.T
        position = np.searchsorted(self.data.group_names, group)
        return strict_weights(
            token_priority(self.whole), position, self.first_of_kept[loser], found.weights
        )


def collapsed(data: NextTokenData) -> Collapse:
    """Let one token stand for all that are never a target, where they are many.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    Collapse

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.equivalent import collapsed
    >>> small = collapsed(ntpnb.NextTokenData([[1.0], [2.0]], [[0, 1, 0, 0], [0, 1, 0, 0]]))
    >>> small.data.target_probs.tolist(), small.multiplicity.tolist()
    ([[1.0, 0.0], [1.0, 0.0]], [1, 3])
    """
    if not data.is_linear_decoder:
        return not_collapsed(data)
    laws = data.sparse_target_probs
    targets = np.unique(laws.indices).astype(np.intp)
    num_others = data.vocab_size - len(targets)
    if num_others < max(2, LEAST_SHARE * data.vocab_size):
        return not_collapsed(data)
    shape = (data.num_contexts, len(targets) + 1)
    columns = np.searchsorted(targets, laws.indices)
    small_laws = csr_array((laws.data, columns, laws.indptr), shape=shape)
    return Collapse(data, data.replace(target_probs=small_laws), targets)


def not_collapsed(data: NextTokenData) -> Collapse:
    """Let each token stand for itself."""
    return Collapse(data, data, np.arange(data.vocab_size))


# -- weights of strict pairs ----------------------------------------------------------------------


def listed_weights(order: TokenPriority, places: IntArray, weights: FloatArray) -> PairWeights:
    """Weights of some of an order's strict pairs, given by their places, as shares of all."""
    used = _used_by_place(places, weights)
    places = places[used]
    shares = weights[used] / weights[used].sum()
    return PairWeights(order.strict[places], shares, places, len(order.strict))


def _used_by_place(places: IntArray, weights: FloatArray) -> IntArray:
    """Which weights are not zero, in the order of their places."""
    used = np.flatnonzero(weights > 0)
    by_place: IntArray = used[np.argsort(places[used], kind="stable")]
    return by_place


def places_of(order: TokenPriority, position: IntArray, loser: IntArray) -> IntArray:
    """Places in ``order.strict`` of pairs given by their groups and losers.

    Of an order in which all tokens lose that are not listed.
    """
    vocab_size = order.shape[1]
    table = order.sparse_components
    outside = vocab_size - np.diff(table.indptr)  # strict pairs of each group
    first = np.cumsum(outside) - outside
    # Listed tokens that come before the loser, from sorted keys (group, token).
    listed = listed_tokens(order)
    keys = listed.position * vocab_size + listed.token
    before = np.searchsorted(keys, position * vocab_size + loser) - table.indptr[position]
    places: IntArray = first[position] + loser - before
    return places


def strict_weights(
    order: TokenPriority, position: IntArray, loser: IntArray, weights: FloatArray
) -> PairWeights:
    """Weights by group and losing token, as shares, where all tokens lose that are not listed.

    The pairs and their places follow from the listed tokens alone; the others are not formed.

    Parameters
    ----------
    order : TokenPriority
    position, loser : ndarray of int, shape (n,)
        Rows of groups, and tokens that lose there.
    weights : ndarray, shape (n,)
        Nonnegative; what is not zero is kept, and divided by its sum.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.problem.equivalent import strict_weights
    >>> order = ntpnb.token_priority(ntpnb.datasets.toy())
    >>> found = strict_weights(order, np.array([1]), np.array([2]), np.array([3.0]))
    >>> found.pairs.tolist(), found.weights.tolist(), found.positions.tolist()
    ([[1, 0, 2]], [1.0], [3])
    >>> order.strict[3].tolist()
    [1, 0, 2]
    """
    places = places_of(order, position, loser)
    used = _used_by_place(places, weights)
    return PairWeights(
        pairs=over_losers(order, position[used], loser[used]),
        weights=weights[used] / weights[used].sum(),
        positions=places[used],
        num_strict=order.num_strict,
    )


# -- coordinates in which contexts point everywhere alike -----------------------------------------


class Whitened(NamedTuple):
    """The same problem in other coordinates.

    Attributes
    ----------
    data : NextTokenData
        With contexts whose second moments are the identity; the data themselves where nothing is
        gained, or too many digits would be lost.
    condition : float
        By what factor the contexts' directions reach further in some coordinates than in others.
    """

    data: NextTokenData
    condition: float


def whitened(data: NextTokenData) -> Whitened:
    """Bring the directions of a linear decoder's contexts into such coordinates.

    Nothing is gained where contexts are no more than dimensions, and may be independent. Contexts
    that ask for more memory than a table may stay as they are, and so do those that reach further
    by more than seven digits in some coordinates than in others, where rounding decides.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    Whitened

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.equivalent import whitened
    >>> H = [[10.0, 1.0], [10.0, -1.0], [10.0, 1.0]]
    >>> found = whitened(ntpnb.NextTokenData(H, [[1, 0], [0, 1], [1, 0]]))
    >>> H = found.data.context_embeddings
    >>> (H.T @ H / 3).round(9).tolist()
    [[1.0, -0.0], [-0.0, 1.0]]
    """
    num_contexts, dim = data.num_contexts, data.shape[1]
    if not (data.is_linear_decoder and dim < num_contexts <= WHOLE // dim):
        return Whitened(data, 1.0)
    directions = unit_rows(data.context_embeddings)
    values, vectors = sla.eigh(product(directions.T, directions) / num_contexts)
    rounding = decomposition_error(dim)
    kept = values > rounding * values[-1]
    left_out = product(directions, vectors[:, ~kept])
    if not kept.any() or np.abs(left_out).max(initial=0.0) > rounding:
        return Whitened(data, 1.0)
    contexts = product(directions, vectors[:, kept] / np.sqrt(values[kept]))
    condition = float(np.sqrt(values[-1] / values[kept][0]))
    return Whitened(data.replace(context_embeddings=contexts), condition)
