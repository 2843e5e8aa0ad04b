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
from ntpnb.basics.validation import (
    BoolArray,
    IntArray,
    Sparse,
    as_indices,
    counted,
    read_array,
)
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
            f"support has dtype {table.dtype} and {counted(table.ndim, 'dimension')}; "
            f"it must be {needed}"
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
    demand = shared.sum(axis=0) - dim
    crowded = _in_the_way(shared, demand)  # e(F) > dim |F|
    for root in range(len(core)):
        if crowded.any():
            break
        of_root = demand.copy()
        of_root[root] += dim
        crowded = _in_the_way(shared, of_root)  # root is in F, and e(F) > dim (|F| − 1)
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


def _in_the_way(support: csr_array, demand: IntArray) -> BoolArray:
    """Let each context leave out one token and each token be left out ``demand`` times.

    Return the tokens that prevent it, none where nothing does. The choices are unit flows from a
    source to tokens to contexts to a sink; where these fall short, the tokens in the way are those
    on the source's side of a minimum cut.
    """
    num_contexts, num_tokens = support.shape
    source = num_tokens + num_contexts
    context, token, _ = entries_of(support)
    contexts = num_tokens + np.arange(num_contexts)
    tail = np.concatenate([token, contexts, np.full(num_tokens, source)])
    head = np.concatenate(
        [num_tokens + context, np.full(num_contexts, source + 1), np.arange(num_tokens)]
    )
    capacity = np.concatenate([np.ones(len(token) + num_contexts), demand]).astype(np.int32)
    network = csr_array((capacity, (tail, head)), shape=(source + 2, source + 2))
    flow = maximum_flow(network, source, source + 1)
    crowded = np.zeros(num_tokens, dtype=bool)
    if flow.flow_value < demand.sum():
        residual = csr_array(network - flow.flow)
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, source, return_predecessors=False)
        crowded[reached[reached < num_tokens]] = True
    return crowded
