"""How many dimensions given supports need: the generic rank of the log-odds equations.

A context with support ``S_j`` asks for ``|S_j| − 1`` log-odds, linear equations for the ``V × d``
matrix ``W``. With generic embeddings (all outside a set of measure zero) these are independent,
and so every choice of distributions on the supports is compatible (T24 Def. 1), if and only if for
every nonempty set ``F`` of tokens

    ``e(F) ≤ d (|F| − 1)``,   where ``e(F) = Σ_j max(|S_j ∩ F| − 1, 0)``

counts the equations among the tokens of ``F``, and the right-hand side the coordinates of their
score differences: the sets of equations that obey are the independent sets of Whiteley's matroid.

Whether all ``F`` obey is a question of flows. Let each context leave out one of its tokens and
charge one equation to each of the others. The inequality holds for all ``F`` with ``r ∈ F`` if and
only if the contexts can choose so that token ``r`` is never charged and no token more than ``d``
times (Hall's theorem). So every context of ``r`` leaves out ``r``, and every other token ``v`` must
be left out by ``degree(v) − d`` of its contexts, or more.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from ntpnb.basics.saving import Result
from ntpnb.basics.validation import BoolArray, IntArray, Sparse, as_indices, read_array
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import as_table, entries_of


@dataclass(frozen=True, eq=False, repr=False)
class CompatibleDimension(Result):
    """The smallest dimension in which generic embeddings make data compatible, and who needs it.

    Attributes
    ----------
    dim : int
        Zero where every context is followed by one token only.
    tokens : ndarray of int, shape (n,)
        A set ``F`` of tokens that does not fit into fewer: ``e(F) > (dim − 1) (n − 1)``. Empty
        where ``dim`` is zero.
    equations : int
        ``e(F) = Σ_j max(|S_j ∩ F| − 1, 0)``, how many log-odds the contexts ask of these tokens.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.thresholds.compatible_dimension([[True, True, False], [True, True, True]])
    >>> found.dim, found.tokens.tolist(), found.equations
    (2, [0, 1, 2], 3)
    """

    dim: int
    tokens: IntArray
    equations: int

    def _checked(self) -> Self:
        """The dimension that a file describes, if its tokens need it."""
        num_tokens = len(as_indices("CompatibleDimension.tokens", self.tokens))
        others = max(num_tokens - 1, 0)
        needs_it = max(self.dim - 1, 0) * others < self.equations <= self.dim * others
        if not needs_it and (self.dim, num_tokens, self.equations) != (0, 0, 0):
            raise ValueError(
                f"CompatibleDimension.dim is {self.dim}; {self.equations} log-odds of "
                f"{num_tokens} tokens need another one"
            )
        return self


def compatible_dimension(
    support: npt.ArrayLike | Sparse | NextTokenData,
) -> CompatibleDimension:
    """Find the smallest ``d`` at which generic embeddings make data with these supports compatible.

    ``dim = max_F ⌈e(F) / (|F| − 1)⌉`` over the sets ``F`` of two or more tokens, where
    ``e(F) = Σ_j max(|S_j ∩ F| − 1, 0)`` counts the log-odds that the contexts ask of the tokens of
    ``F``, and ``d (|F| − 1)`` the coordinates of their score differences. Exact: the maximum is
    found by maximum flows, at most one per token for each of a few values of ``d``.

    Generic means: for all embeddings outside a set of measure zero, so with probability one for
    random embeddings with a density, in ``dim`` or more dimensions every choice of distributions on
    the supports is compatible; in fewer dimensions almost no choice is.

    Parameters
    ----------
    support : NextTokenData, array_like of bool or scipy sparse, shape (m, V)
        Which tokens follow which context: data, or a table such as ``data.support``. In a sparse
        matrix of any type these are the entries that are not zero.

    Returns
    -------
    CompatibleDimension

    Raises
    ------
    ValueError
        ``support`` is neither data nor a table of truth values.

    References
    ----------
    T24 (002) Def. 1. W. Whiteley, *A matroid on hypergraphs, with applications in scene analysis
    and geometry*, Discrete & Computational Geometry 4 (1989); a proof is on the page of
    evidence on the compatible dimension.

    Examples
    --------
    Three contexts that ask for all three differences of three tokens need two dimensions, since the
    differences add up to zero:

    >>> import ntpnb
    >>> support = [[True, True, False], [True, False, True], [False, True, True]]
    >>> found = ntpnb.thresholds.compatible_dimension(support)
    >>> found.dim, found.tokens.tolist(), found.equations
    (2, [0, 1, 2], 3)
    """
    positive = _positive_entries(support)
    names, column = np.unique(positive.indices, return_inverse=True)  # the tokens that follow any
    ones = np.ones(len(column), dtype=np.intp)
    shape = (positive.shape[0], len(names))
    table = csr_array((ones, column, positive.indptr), shape=shape)
    dim = 0
    tokens = np.arange(len(names))
    crowded = tokens
    equations = _count_equations(table, tokens)
    needed = equations
    # Every pass raises the dimension to what the crowded tokens need, so that it ends.
    while needed > dim * max(len(crowded) - 1, 0):
        dim = -(-needed // (len(crowded) - 1))  # rounded up
        tokens = crowded
        equations = needed
        crowded = _crowded_tokens(table, dim)
        needed = _count_equations(table, crowded)
    if dim == 0:
        tokens = tokens[:0]
    return CompatibleDimension(dim, names[tokens].astype(np.intp), equations)


def _positive_entries(support: npt.ArrayLike | Sparse | NextTokenData) -> csr_array:
    """Return a sparse matrix with an entry for each token that follows a context, or explain."""
    if isinstance(support, NextTokenData):
        return support.sparse_target_probs
    if issparse(support):
        return as_table("support", support).sparse
    needed = "a table of truth values with one row per context and one column per token"
    table = read_array("support", support, needed)
    if table.ndim != 2 or table.dtype != np.bool_:
        raise ValueError(
            f"support has dtype {table.dtype} and {table.ndim} dimensions; it must be {needed}"
        )
    return csr_array(table)


def _count_equations(support: csr_array, tokens: IntArray) -> int:
    """Count the equations ``e(F)`` among the tokens ``F``."""
    is_counted = np.zeros(support.shape[1], dtype=np.intp)
    is_counted[tokens] = 1
    sizes = support @ is_counted
    return int(np.maximum(sizes - 1, 0).sum())


def _crowded_tokens(support: csr_array, dim: int) -> IntArray:
    """Find tokens ``F`` with ``e(F) > dim (|F| − 1)``; the result is empty where there are none."""
    core = _core(support, dim)
    if len(core) == 0:
        return core
    shared = support[:, core]
    shared = shared[shared.sum(axis=1) > 1]
    network = _Network(shared, dim)
    crowded = network.crowded_without_root()
    for root in range(len(core)):
        if crowded.any():
            break
        crowded = network.crowded_with(root)
    return core[crowded]


def _core(support: csr_array, dim: int) -> IntArray:
    """Drop tokens that share at most ``dim`` contexts with the others, until none does.

    Without such a token, ``e(F)`` falls by no more than ``dim (|F| − 1)`` does.
    """
    kept = np.ones(support.shape[1], dtype=bool)
    while kept.any():
        is_shared = support @ kept.astype(np.intp) > 1
        degree = support.T @ is_shared.astype(np.intp)
        light = kept & (degree <= dim)
        if not light.any():
            break
        kept &= ~light
    return np.flatnonzero(kept)


class _Network:
    """Which context leaves out which token, as unit flows from tokens to contexts to a sink.

    Parameters
    ----------
    support : csr_array of int, shape (m, n)
        Ones. Every token has more than ``dim`` contexts, every context more than one token.
    dim : int
    """

    def __init__(self, support: csr_array, dim: int) -> None:
        support.sort_indices()
        self._dim = dim
        self._context, self._token, _ = entries_of(support)
        self._num_contexts, self._num_tokens = support.shape
        self._degree = support.sum(axis=0)
        self._left_out = np.full(self._num_contexts, -1)  # by each context; −1: not yet chosen

    def crowded_without_root(self) -> BoolArray:
        """Let contexts leave out each token ``degree − dim`` times; tokens that prevent it.

        Those are ``F`` with ``e(F) > dim |F|``. Where there are none, the choice is kept.
        """
        flow, crowded = self._send(self._degree - self._dim)
        if not crowded.any():
            arcs = flow.tocoo()
            chosen = (arcs.row < self._num_tokens) & (arcs.col < self._source) & (arcs.data > 0)
            self._left_out[arcs.col[chosen] - self._num_tokens] = arcs.row[chosen]
        return crowded

    def crowded_with(self, root: int) -> BoolArray:
        """Let ``root`` be left out by all its contexts, ``dim`` more; tokens that prevent it.

        Those are ``F`` with ``root`` in ``F`` and ``e(F) > dim (|F| − 1)``.
        """
        demand = np.zeros(self._num_tokens, dtype=np.intp)
        demand[root] = self._dim
        return self._send(demand)[1]

    def _send(self, demand: IntArray) -> tuple[csr_array, BoolArray]:
        """Change the present choice until each token is left out ``demand`` more times.

        Return the flow, and the tokens on the source's side of a minimum cut where it falls short.
        """
        capacities = self._capacities(demand)
        flow = maximum_flow(capacities, self._source, self._sink)
        crowded = np.zeros(self._num_tokens, dtype=bool)
        if flow.flow_value < demand.sum():
            residual = csr_array(capacities - flow.flow)
            residual.eliminate_zeros()
            reached = breadth_first_order(residual, self._source, return_predecessors=False)
            crowded[reached[reached < self._num_tokens]] = True
        return flow.flow, crowded

    @property
    def _source(self) -> int:
        return int(self._num_tokens + self._num_contexts)

    @property
    def _sink(self) -> int:
        return self._source + 1

    def _capacities(self, demand: IntArray) -> csr_array:
        """Residual capacities, given the present choice: tokens, contexts, source and sink."""
        contexts = self._num_tokens + np.arange(self._num_contexts)
        context = contexts[self._context]
        used = self._left_out[self._context] == self._token
        free = self._left_out < 0
        tokens = np.arange(self._num_tokens)
        source = np.full(self._num_tokens, self._source)
        sink = np.full(self._num_contexts, self._sink)
        tail = np.concatenate([self._token, context, contexts, source])
        head = np.concatenate([context, self._token, sink, tokens])
        capacity = np.concatenate([~used, used, free, demand]).astype(np.int32)
        num_nodes = self._sink + 1
        return csr_array((capacity, (tail, head)), shape=(num_nodes, num_nodes))
