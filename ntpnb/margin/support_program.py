"""Programs of two-level orders on one-hot tokens: one entry for each token of a context.

In each context (group) one component of tied tokens, T24's support, wins over all other tokens. One
of the tied tokens, the anchor, stands for them in the order's pairs. The entry of token ``v`` in
column ``j`` is named ``j V + v``; ``φ_vj(W) = w_v · u_j`` with row ``w_v`` of ``W`` and the context
``u_j = h_j / ‖h_j‖``, and ``c_j`` is the common score of the tied tokens. Since ``φ_vj`` involves
one row of ``W`` only, the rows are coupled by the ``c_j`` alone (:mod:`ntpnb.margin.row_system`).
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE
from ntpnb.basics.validation import AnyPrecision, BoolArray, FloatArray, IntArray
from ntpnb.margin.normal_form import (
    FEW,
    AllPairs,
    GuessSolver,
    MarginProgram,
    PairMultipliers,
    positive_norms,
)
from ntpnb.margin.pair_program import EveryPair
from ntpnb.margin.row_system import IteratedSystem, RowSystem
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import listed_weights, strict_weights
from ntpnb.problem.order import TokenPriority
from ntpnb.problem.table import combined_at, row_slices, scores_at

ROUGH = 1e-4
"""Relative accuracy of the systems of guesses while some are wrong."""

PRODUCTS_OF_A_GUESS = 20
"""The iterations of a guess take about as long as so many products of all contexts with a table."""


class SupportPairs(AllPairs):
    """All pairs of a dataset with such an order.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, of two levels, with strict pairs.
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each one stands for; one where it is ever a target. Default: ones.

    Attributes
    ----------
    directions : ndarray, shape (m, d)
        The rows ``u_j`` of the groups that have pairs.
    lengths, goals : ndarray, shape (m,)
        ``‖h_j‖``, and ``b_j``: the margin that is asked for, at most one where there are strict
        pairs.
    roots : ndarray, shape (V,)
        ``a_v``.
    groups : ndarray of int, shape (m,)
        Row of each column's group among all groups.
    anchors, equal : ndarray of int
        Keys of each column's anchor, and of the equal pairs' other tokens in the order's order.
    listed : ndarray of int, or None
        Keys of the strict pairs in the order's order; None where in each column all tokens lose
        that do not tie.
    """

    def __init__(
        self, data: NextTokenData, order: TokenPriority, multiplicity: IntArray | None = None
    ) -> None:
        self.data = data
        self.order = order
        self.vocab_size = data.vocab_size
        self.roots = np.ones(data.vocab_size)
        if multiplicity is not None:
            self.roots = np.sqrt(multiplicity)
        if order.is_over_all_others:
            table = order.sparse_components
            self.groups = np.arange(len(order.groups))
            anchors = table.indices[table.indptr[:-1]]
            self.listed = None
        else:
            position, winner, loser = order.pairs
            self.groups, first, column = np.unique(position, return_index=True, return_inverse=True)
            anchors = winner[first]
            self.listed = (column * self.vocab_size + loser)[len(order.equal) :]
        self.anchors = np.arange(len(self.groups)) * self.vocab_size + anchors
        column = np.searchsorted(self.groups, order.positions(order.equal))
        self.equal = column * self.vocab_size + order.equal[:, 2]
        self._ties = np.sort(np.append(self.anchors, self.equal))
        self.num_strict = order.num_strict

        embeddings = data.group_embeddings[self.groups]
        self.lengths = positive_norms(embeddings)
        self.directions = embeddings / self.lengths[:, None]
        self.unit = float(self.lengths[self._has_strict].min())
        self.goals = self.unit / self.lengths
        num_contexts = len(self.groups)
        # One matrix of contexts and contexts is held, and some tables of contexts and tokens.
        self.fits = num_contexts * max(num_contexts // 4, self.vocab_size) <= WHOLE
        self.num_weights = self.vocab_size * embeddings.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of columns and of tokens, ``(m, V)``."""
        return len(self.groups), self.vocab_size

    @cached_property
    def _has_strict(self) -> BoolArray:
        """The columns that have strict pairs."""
        if self.listed is None:
            num_ties = np.bincount(self._ties // self.vocab_size)
            return np.asarray(num_ties < self.vocab_size)
        return np.bincount(self.listed // self.vocab_size, minlength=len(self.groups)) > 0

    @property
    def is_in_general_position(self) -> bool:
        """Whether contexts may be linearly independent, and tables of all entries held."""
        num_contexts, dim = self.directions.shape
        return self.fits and num_contexts <= dim

    @cached_property
    def padded_gram(self) -> FloatArray:
        """Inner products of all contexts, and of one more of zeros, shape (m + 1, m + 1)."""
        return product(self.padded_directions, self.padded_directions.T)

    @cached_property
    def padded_directions(self) -> FloatArray:
        """The contexts and one more of zeros, which pads, shape (m + 1, d)."""
        return np.vstack([self.directions, np.zeros(self.directions.shape[1])])

    def products_of(self, contexts: IntArray) -> FloatArray:
        """Inner products of some contexts, shape (b, k, k) for (b, k); the last is for padding."""
        if self.is_in_general_position:  # all of them take no more memory than the contexts
            return self.padded_gram[contexts[:, :, None], contexts[:, None, :]]
        rows = self.padded_directions[contexts]
        return product(rows, rows.transpose(0, 2, 1))

    def program(self, strict: IntArray) -> "SupportProgram":
        """The program of some strict pairs."""
        keys = np.sort(np.concatenate([self._ties, strict]), kind="stable")
        return SupportProgram(self, keys)

    def everything(self) -> "SupportProgram":
        """The program of all strict pairs."""
        if self.listed is not None:
            return self.program(self.listed)
        return SupportProgram(self, np.arange(len(self.groups) * self.vocab_size))

    def tied_among(self, keys: IntArray) -> BoolArray:
        """Which of some increasing keys, all ties among them, are ties."""
        tied = np.zeros(len(keys), dtype=bool)
        tied[np.searchsorted(keys, self._ties)] = True
        return tied

    def missed(
        self,
        program: MarginProgram,
        weights: FloatArray,
        common: FloatArray,
        by: float,
        most: int | None = None,
    ) -> IntArray:
        """Keys of strict pairs outside a program's set with a slack below ``−by``.

        Of each context there are at most so many, the worst, where that is given.
        """
        found = []
        for block in self._blocks_of_margins(weights, common - self.goals):
            slack = block.margins
            slack.ravel()[block.places_of(program.keys)] = np.inf
            is_missed = slack < -by
            if most is not None:
                crowded = np.flatnonzero(np.count_nonzero(is_missed, axis=1) > most)
                worst = np.argpartition(slack[crowded], most)[:, :most]
                is_missed[crowded] = False
                is_missed[crowded[:, None], worst] = True
            found.append(block.first_key + np.flatnonzero(is_missed))
        return np.concatenate(found)

    def least_margin(self, weights: FloatArray, common: FloatArray) -> float:
        """The smallest ``c_j − w_v · u_j / a_v`` of all strict pairs."""
        blocks = self._blocks_of_margins(weights, common)
        return min(float((block.margins / self.roots).min()) for block in blocks)

    def _blocks_of_margins(
        self, weights: FloatArray, common: FloatArray
    ) -> Iterator["BlockOfMargins"]:
        """``a_v c_j − w_v · u_j`` of strict pairs, by one product for some columns at a time."""
        downward = np.column_stack([-weights, self.roots])
        for columns in row_slices(self.shape):
            contexts = np.column_stack([self.directions[columns], common[columns]])
            margins = product(contexts, downward.T)
            block = BlockOfMargins(columns.start * self.vocab_size, margins)
            if self.listed is None:
                margins.ravel()[block.places_of(self._ties)] = np.inf
            else:
                is_strict = np.zeros(margins.size, dtype=bool)
                is_strict[block.places_of(self.listed[self._by_key])] = True
                margins.ravel()[~is_strict] = np.inf
            yield block

    def multipliers(self, program: MarginProgram, dual: FloatArray) -> PairMultipliers:
        """The multipliers of the data's pairs that a program's dual stands for."""
        totals = -program.roots * dual / (self.unit * self.lengths[program.column])
        equal = totals[np.searchsorted(program.keys, self.equal)]
        used = program.ordered & (dual < 0)
        column, token = np.divmod(program.keys[used], self.vocab_size)
        if self.listed is None:
            pointers = np.searchsorted(column, np.arange(len(self.groups) + 1))
            table = csr_array((totals[used], token, pointers), shape=self.shape)
            return PairMultipliers(table, equal)
        strict = np.zeros(len(self.listed))
        strict[self._places(program.keys[used])] = totals[used]
        return PairMultipliers(strict, equal)

    def entries_of_strict(self, program: MarginProgram) -> IntArray:
        """Positions, among a program's entries, of the strict pairs that an order lists."""
        assert self.listed is not None
        return np.searchsorted(program.keys, self.listed)

    @cached_property
    def _by_key(self) -> IntArray:
        """Places of the listed strict pairs in the order's ``strict``, by increasing keys."""
        assert self.listed is not None
        return np.argsort(self.listed)

    def _places(self, keys: IntArray) -> IntArray:
        """Where keys of listed strict pairs are in the order's ``strict``."""
        assert self.listed is not None
        return self._by_key[np.searchsorted(self.listed, keys, sorter=self._by_key)]

    @cached_property
    def _single_tokens(self) -> "SupportPairs":
        """The same pairs where each token stands for itself alone."""
        return self if (self.roots == 1).all() else SupportPairs(self.data, self.order)

    def for_single_tokens(self, program: MarginProgram) -> MarginProgram:
        """The program of a set where each token stands for itself alone."""
        if self._single_tokens is self:
            return program
        return self._single_tokens.program(program.keys[program.ordered])

    def pair_weights(self, program: MarginProgram, dual: FloatArray) -> PairWeights:
        """The strict pairs that a dual weighs, with their shares."""
        used = program.ordered & (dual < 0)
        keys = program.keys[used]
        weights = -dual[used] / self.lengths[program.column[used]]
        if self.listed is not None:
            return listed_weights(self.order, self._places(keys), weights)
        column, token = np.divmod(keys, self.vocab_size)
        return strict_weights(self.order, column, token, weights)


class BlockOfMargins(NamedTuple):
    """Margins of some columns' strict pairs, infinite at all other entries, shape (b, V)."""

    first_key: int
    margins: FloatArray

    def places_of(self, keys: IntArray) -> IntArray:
        """Places in the raveled block of those of some increasing keys that are in it."""
        inside = slice(*np.searchsorted(keys, [self.first_key, self.first_key + self.margins.size]))
        return keys[inside] - self.first_key


class SupportProgram(MarginProgram):
    """The program by supports on a set; the module's text says of which orders.

    Parameters
    ----------
    pairs : SupportPairs
    keys : ndarray of int
        Increasing, all ties among them.
    """

    def __init__(self, pairs: SupportPairs, keys: IntArray) -> None:
        self.pairs = pairs
        column, self.token = np.divmod(keys, pairs.vocab_size)
        self._is_whole = len(keys) == math.prod(pairs.shape)  # then it is the table, row by row
        tied = pairs.tied_among(keys)
        roots = pairs.roots[self.token]
        super().__init__(
            keys=keys,
            tied=tied,
            rhs=np.where(tied, 0.0, roots * pairs.goals[column]),
            roots=roots,
            column=column,
            num_columns=len(pairs.groups),
        )
        if pairs.is_in_general_position and pairs.num_strict > FEW:
            self.rough = ROUGH

    def weights(self, dual: AnyPrecision) -> AnyPrecision:
        """``w_v = Σ_j A_vj u_j`` for every row of ``W``, shape (V, d)."""
        directions = self._directions_in(dual.dtype)
        if self._is_whole:
            return product(dual.reshape(self.pairs.shape).T, directions)
        return combined_at(dual, self.column, self.token, directions, self.pairs.vocab_size)

    def scores(self, weights: AnyPrecision) -> AnyPrecision:
        """``w_v · u_j`` of the entries."""
        directions = self._directions_in(weights.dtype)
        if self._is_whole:
            return product(directions, weights.T).ravel()
        return scores_at(directions, weights, self.column, self.token)

    def scores_of(self, dual: AnyPrecision) -> AnyPrecision:
        """The scores of a dual's ``W``, by one product where all contexts' products are held."""
        if self._is_whole and self.pairs.is_in_general_position:
            gram = self.pairs.padded_gram[:-1, :-1].astype(dual.dtype, copy=False)
            return product(gram, dual.reshape(self.pairs.shape)).ravel()
        return super().scores_of(dual)

    def _directions_in(self, dtype: np.dtype[np.floating]) -> AnyPrecision:
        return self.pairs.directions.astype(dtype, copy=False)

    def kkt_solver(self, mask: BoolArray, diagonal: float | FloatArray) -> RowSystem:
        """Factor the Newton system, see :meth:`MarginProgram.kkt_solver`."""
        return RowSystem(self, mask, diagonal)

    def guess_solver(self, tight: BoolArray) -> GuessSolver:
        """The Newton system of a guess, by factors where these are less work, or by iterations."""
        if self.rough and not self._has_small_factors(tight):
            return IteratedSystem(self, tight)
        return super().guess_solver(tight)

    def _has_small_factors(self, tight: BoolArray) -> bool:
        """Whether tokens' factors may be held, and take less time than iterations."""
        sizes = np.bincount(self.token[tight]).astype(float)
        num_contexts, vocab_size = self.pairs.shape
        work_of_iterations = PRODUCTS_OF_A_GUESS * num_contexts**2 * vocab_size
        return bool((sizes**2).sum() <= WHOLE and (sizes**3).sum() <= work_of_iterations)


def all_pairs(
    data: NextTokenData, order: TokenPriority, multiplicity: IntArray | None = None
) -> AllPairs:
    """Return the max-margin problem of a dataset in normal form.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with at least one strict pair.
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each token of a linear decoder stands for. Default: ones.

    Returns
    -------
    AllPairs

    Examples
    --------
    The toy has five tokens in three contexts:

    >>> import ntpnb
    >>> from ntpnb.margin.support_program import all_pairs
    >>> data = ntpnb.datasets.toy()
    >>> len(all_pairs(data, ntpnb.token_priority(data)).everything())
    15
    """
    if has_two_levels(data, order):
        return SupportPairs(data, order, multiplicity)
    return EveryPair(data, order)


def has_two_levels(data: NextTokenData, order: TokenPriority) -> bool:
    """Whether tokens are one-hot and, in each group, one component wins over all other tokens."""
    if data.token_embeddings is not None:
        return False
    if order.is_over_all_others:
        return True
    group, winner, _ = order.pairs
    # Every pair begins with the token that stands for its component. So the order has two levels
    # iff all pairs of a group, equal ones included, begin with one token.
    anchor = np.zeros(len(order.groups), dtype=int)
    anchor[group] = winner
    return bool((anchor[group] == winner).all())
