"""Token-priority graphs: which tokens must tie and which must win, context by context."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ntpnb.array_types import BoolArray, IntArray
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.table import row_slices
from ntpnb.saving import Result, state_without_caches
from ntpnb.validation import require_dense


class TokenPairs(NamedTuple):
    """Pairs of tokens, each in one group, as three arrays of shape (n,).

    Attributes
    ----------
    position : ndarray of int
        Row of the pair's group in :attr:`TokenPriority.groups`.
    i, j : ndarray of int
        The tokens: ``i ≍ j`` or ``i ⇒ j``.
    """

    position: IntArray
    i: IntArray
    j: IntArray


class RowComponents(NamedTuple):
    """The components that matter for each row (see :func:`row_components`).

    Attributes
    ----------
    labels : ndarray of int, shape (m, V)
        Component of each token in the graph of the row's group; −1 where it is in none.
    own : ndarray of int, shape (m, 1)
        The component that holds the row's support.
    """

    labels: IntArray
    own: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class TokenPriority(Result):
    """The order that a dataset imposes on its tokens' scores, group by group.

    Attributes
    ----------
    groups : ndarray of int, shape (G,)
        Names of the context groups, increasing.
    components : ndarray of int, shape (G, V)
        Strongly connected component (SCC) of each token in each group's graph; −1 where the
        token is no candidate. Two tokens of one row share a component iff their labels are equal,
        and no label occurs in two groups.
    equal : ndarray of int, shape (n, 3)
        Rows ``(group, i, j)`` with ``i ≍ j``: ``i`` stands for the component, ``j`` runs over its
        other tokens.
    strict : ndarray of int, shape (n, 3)
        Rows ``(group, i, j)`` with ``i ⇒ j``, both standing for their components. The closure of
        ``equal`` and ``strict`` is the whole order.

    References
    ----------
    L24 (004) Sec. 3.1: token-priority graphs, ≍ and ⇒.

    Examples
    --------
    >>> import ntpnb
    >>> order = ntpnb.token_priority(ntpnb.datasets.figure2())
    >>> order.groups.tolist()
    [0, 1]
    >>> order.equal.tolist()  # in the graph of token 1, the tokens 0, 1 and 2 tie ...
    [[1, 0, 1], [1, 0, 2]]
    >>> order.strict[order.strict[:, 0] == 1].tolist()  # ... above token 3
    [[1, 0, 3]]
    """

    groups: IntArray
    components: IntArray
    equal: IntArray
    strict: IntArray

    def __getstate__(self) -> dict[str, Any]:
        return state_without_caches(self)

    def positions(self, pairs: IntArray) -> IntArray:
        """Row of each pair's group in ``groups``.

        Parameters
        ----------
        pairs : ndarray of int, shape (n, 3)
            Such as ``equal`` or ``strict``.

        Returns
        -------
        ndarray of int, shape (n,)

        Examples
        --------
        >>> import ntpnb
        >>> order = ntpnb.token_priority(ntpnb.datasets.figure2())
        >>> order.positions(order.equal).tolist()
        [1, 1]
        """
        return np.searchsorted(self.groups, pairs[:, 0])

    @cached_property
    def pairs(self) -> TokenPairs:
        """All pairs, the equal ones first, as arrays to index with.

        Examples
        --------
        >>> import ntpnb
        >>> order = ntpnb.token_priority(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
        >>> order.pairs.i.tolist(), order.pairs.j.tolist()
        ([0, 0], [1, 2])
        """
        pairs = np.concatenate([self.equal, self.strict])
        return TokenPairs(self.positions(pairs), pairs[:, 1].copy(), pairs[:, 2].copy())


def order_of(data: NextTokenData, order: TokenPriority | None) -> TokenPriority:
    """Return the order that a caller has at hand, or else that of the data.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority or None

    Returns
    -------
    TokenPriority

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``order`` something else.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import order_of
    >>> order_of(ntpnb.datasets.toy(), None).strict.shape
    (6, 3)
    """
    require_data("data", data)
    if order is None:
        return token_priority(data)
    if not isinstance(order, TokenPriority):
        raise TypeError(
            f"order is of type {type(order).__name__}; what token_priority(data) returns is needed"
        )
    return order


def token_priority(data: NextTokenData) -> TokenPriority:
    """Token-priority graphs (TPGs) of a dataset and the order they impose.

    In a group's graph every in-support token of every row points at all other candidates of that
    row. Tokens that reach each other tie (``i ≍ j``); otherwise reachability is priority
    (``i ⇒ j``). For T24's data, where each row is its own group, the components are the supports
    and ``strict`` puts each support over the tokens outside it (T24 Def. 2).

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    TokenPriority
        Reduced: one representative (the smallest token) per component.

    Raises
    ------
    TypeError
        ``data`` is no dataset.
    ValueError
        The groups and tokens have more than 2**28 components.

    References
    ----------
    L24 (004) Sec. 3.1; T24 (002) Defs 1 and 2.

    Examples
    --------
    >>> import ntpnb
    >>> order = ntpnb.token_priority(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
    >>> order.equal.tolist(), order.strict.tolist()
    ([[0, 0, 1]], [[0, 0, 2]])
    """
    require_data("data", data)
    num_groups = len(data.group_names)
    vocab_size = data.vocab_size
    require_dense(
        "token_priority",
        (num_groups, vocab_size),
        "use fewer contexts or a smaller vocabulary",
    )
    if np.array_equal(data.group_index, np.arange(data.num_contexts)):
        return _order_of_separate_contexts(data)
    num_nodes = num_groups * vocab_size  # the node (group, token) is group · V + token
    edges = _star_edges(data)
    if num_groups == data.num_contexts:  # each row's support is one component
        labels = np.arange(num_nodes)
        labels[edges.in_support] = edges.anchor_of_in_support
    else:
        labels = _strong_components(edges, num_nodes)

    components = np.full(num_nodes, -1)
    components[edges.candidate] = labels[edges.candidate]
    nodes = np.nonzero(components >= 0)[0]
    smallest_node = np.full(labels.max() + 1, num_nodes)
    np.minimum.at(smallest_node, labels[nodes], nodes)
    representative = smallest_node[labels]  # of each node; read for nodes in a graph only

    followers = nodes[representative[nodes] != nodes]
    equal = np.stack([representative[followers], followers], axis=1)
    strict = _distinct_pairs(
        above=representative[edges.anchor], below=representative[edges.candidate], size=num_nodes
    )
    return TokenPriority(
        groups=data.group_names,
        components=components.reshape(num_groups, vocab_size),
        equal=_named_pairs(equal, data),
        strict=_named_pairs(strict, data),
    )


def row_components(data: NextTokenData, order: TokenPriority) -> RowComponents:
    """Look up each row's components: those of all tokens, and the one that holds its support.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        ``token_priority(data)``.

    Returns
    -------
    RowComponents

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import row_components
    >>> data = ntpnb.NextTokenData([[1.0]], [[0.0, 0.5, 0.5]])
    >>> labels, own = row_components(data, ntpnb.token_priority(data))
    >>> (labels == own).tolist()
    [[False, True, True]]
    """
    shape = (data.num_contexts, data.vocab_size)
    require_dense("row_components", shape, "use fewer contexts or a smaller vocabulary")
    labels = order.components[data.group_index]
    return RowComponents(labels, np.take_along_axis(labels, data.anchors[:, None], axis=1))


def dominated(data: NextTokenData, order: TokenPriority) -> BoolArray:
    """Candidates that are not tied with their row's in-support tokens.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        ``token_priority(data)``.

    Returns
    -------
    ndarray of bool, shape (m, V)

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import dominated
    >>> data = ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]])
    >>> dominated(data, ntpnb.token_priority(data)).tolist()
    [[False, False, True]]
    """
    labels, own = row_components(data, order)
    is_elsewhere: BoolArray = labels != own
    return data.candidates & is_elsewhere


# -- contexts that are groups of their own ---------------------------------------------------------


def _order_of_separate_contexts(data: NextTokenData) -> TokenPriority:
    """The order where no two rows share a group: each support is one component, over all others.

    Its first token, the anchor, stands for it. Memory is little more than the order's own.
    """
    shape = (data.num_contexts, data.vocab_size)
    anchors = data.anchors
    in_support = data._laws.entries(slice(0, shape[0]))
    components = np.arange(shape[0] * shape[1]).reshape(shape)
    components[in_support.row, in_support.token] = components[
        in_support.row, anchors[in_support.row]
    ]
    is_other = in_support.token != anchors[in_support.row]
    row = in_support.row[is_other]
    equal = np.stack([data.group_names[row], anchors[row], in_support.token[is_other]], axis=1)

    counts = data._counts
    num_candidates = shape[0] * shape[1] if counts is None else int(counts.num_entries().sum())
    strict = np.empty((num_candidates - len(in_support.row), 3), dtype=np.int64)
    end = 0
    for rows in row_slices(shape):
        block = data.block(rows)
        is_losing = ~block.support
        if block.candidate_counts is not None:
            is_candidate = block.candidate_counts > 0
            is_losing &= is_candidate
            components[rows][~is_candidate] = -1
        row, token = np.nonzero(is_losing)
        row += rows.start
        start = end
        end += len(row)
        strict[start:end, 0] = data.group_names[row]
        strict[start:end, 1] = anchors[row]
        strict[start:end, 2] = token
    return TokenPriority(data.group_names, components, equal, strict)


# -- the graph ------------------------------------------------------------------------------------


class _StarEdges(NamedTuple):
    """Edges ``anchor → candidate`` and ``in_support → anchor_of_in_support`` between nodes."""

    anchor: IntArray
    candidate: IntArray
    in_support: IntArray
    anchor_of_in_support: IntArray


def _star_edges(data: NextTokenData) -> _StarEdges:
    """Edges with the closure of all |S_j| · V edges of each row j, and far fewer.

    Each row contributes a star around one of its in-support tokens, the anchor, with edges back
    from the other in-support tokens.
    """
    if data._counts is None:
        rows, tokens = np.nonzero(data.candidates)
    else:
        rows, tokens, _ = data._counts.entries(slice(0, data.num_contexts))
    row_start = data.group_index * data.vocab_size
    row_anchor = row_start + data.anchors
    candidate = row_start[rows] + tokens
    anchor = row_anchor[rows]
    is_in_support = data._laws.at(rows, tokens) > 0
    return _StarEdges(anchor, candidate, candidate[is_in_support], anchor[is_in_support])


def _strong_components(edges: _StarEdges, num_nodes: int) -> IntArray:
    """Label of each node's strongly connected component, shape (num_nodes,)."""
    tail = np.concatenate([edges.anchor, edges.in_support])
    head = np.concatenate([edges.candidate, edges.anchor_of_in_support])
    weights = np.ones(len(tail), np.int8)
    graph = coo_matrix((weights, (tail, head)), shape=(num_nodes, num_nodes))
    labels: IntArray = connected_components(graph, connection="strong")[1]
    return labels


def _distinct_pairs(above: IntArray, below: IntArray, size: int) -> IntArray:
    """Sorted distinct rows ``(above, below)`` without those of two equal nodes, shape (n, 2)."""
    # Pairs of nodes as single numbers, which sort much faster than rows.
    codes = above * size + below
    codes = np.sort(codes[above != below], kind="stable")
    is_first = np.diff(codes, prepend=-1) > 0
    return np.stack(np.divmod(codes[is_first], size), axis=1)


def _named_pairs(pairs: IntArray, data: NextTokenData) -> IntArray:
    """Rows ``(group name, i, j)`` of pairs of nodes, shape (n, 3)."""
    group, i = np.divmod(pairs[:, 0], data.vocab_size)
    j = pairs[:, 1] % data.vocab_size
    return np.stack([data.group_names[group], i, j], axis=1)
