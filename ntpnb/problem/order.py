"""Token-priority graphs: which tokens must tie and which must win, context by context."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_matrix, csr_array
from scipy.sparse.csgraph import connected_components

from ntpnb.basics.saving import Result
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import BoolArray, IntArray, require_dense, require_type
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import entries_of


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


class TokenLabels(NamedTuple):
    """Labels of some tokens in some groups, as three arrays of shape (n,).

    Attributes
    ----------
    position : ndarray of int
        Row of the group in :attr:`TokenPriority.groups`.
    token, label : ndarray of int
    """

    position: IntArray
    token: IntArray
    label: IntArray


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
    sparse_components : csr_array of int, shape (G, V)
        The labels of ``components`` that the data name one by one, zeros included: those of all
        candidates, or, where every token is one, those of the tokens in a support.
    equal : ndarray of int, shape (n, 3)
        Rows ``(group, i, j)`` with ``i ≍ j``: ``i`` stands for the component, ``j`` runs over its
        other tokens.

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
    sparse_components: csr_array
    equal: IntArray
    # None where every token is a candidate: one component a group, above all tokens not in it.
    _listed_strict: IntArray | None

    def _checked(self) -> "TokenPriority":
        """Raise ``ValueError`` unless the rows that a file has name groups and tokens."""
        if self.groups.shape != self.shape[:1] or (np.diff(self.groups) <= 0).any():
            raise ValueError(f"TokenPriority.groups needs {self.shape[0]} names that increase")
        for name in ("equal", "_listed_strict"):
            rows = getattr(self, name)
            if rows is None:
                continue
            if rows.ndim != 2 or rows.shape[1] != 3 or not np.isin(rows[:, 0], self.groups).all():
                raise ValueError(f"TokenPriority.{name} needs rows (group, i, j) of its groups")
            if ((rows[:, 1:] < 0) | (rows[:, 1:] >= self.shape[1])).any():
                raise ValueError(f"TokenPriority.{name} names tokens that there are not")
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups and of tokens, ``(G, V)``.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.token_priority(ntpnb.datasets.figure2()).shape
        (2, 4)
        """
        num_groups, vocab_size = self.sparse_components.shape
        return int(num_groups), int(vocab_size)

    @property
    def is_over_all_others(self) -> bool:
        """Whether in each group the listed tokens tie, and win over all tokens not listed.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.token_priority(ntpnb.datasets.toy()).is_over_all_others
        True
        """
        return self._listed_strict is None

    def with_strict(self, pairs: IntArray) -> "TokenPriority":
        """The order in which only some of the strict pairs are asked for.

        Parameters
        ----------
        pairs : ndarray of int, shape (n, 3)
            Rows of ``strict``.

        Returns
        -------
        TokenPriority

        Examples
        --------
        >>> import ntpnb
        >>> order = ntpnb.token_priority(ntpnb.datasets.toy())
        >>> order.with_strict(order.strict[:1]).strict.tolist()
        [[0, 1, 0]]
        """
        return replace(self, _listed_strict=pairs)

    @property
    def has_strict_pairs(self) -> bool:
        """Whether some token wins over another.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.token_priority(ntpnb.datasets.toy()).has_strict_pairs
        True
        """
        return self.num_strict > 0

    @property
    def num_strict(self) -> int:
        """Number of rows of ``strict``, which may be too many to be listed.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.token_priority(ntpnb.datasets.toy()).num_strict
        6
        """
        if self._listed_strict is not None:
            return len(self._listed_strict)
        return math.prod(self.shape) - int(self.sparse_components.nnz)

    @cached_property
    def components(self) -> IntArray:
        """Strongly connected component (SCC) of each token in each group's graph, shape (G, V).

        It is −1 where the token is no candidate. Two tokens of one row share a component iff their
        labels are equal, and no label occurs in two groups. The array is made when it is first
        asked for; of more than 2**28 entries a ValueError says so.

        Examples
        --------
        >>> import ntpnb
        >>> order = ntpnb.token_priority(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
        >>> order.components.tolist()
        [[0, 0, 2]]
        """
        require_dense("components", self.shape, "use sparse_components")
        if self.is_over_all_others:  # a token that is not listed is a component of its own
            components = np.arange(math.prod(self.shape)).reshape(self.shape)
        else:
            components = np.full(self.shape, -1)
        position, token, label = listed_tokens(self)
        components[position, token] = label
        return components

    @cached_property
    def strict(self) -> IntArray:
        """Rows ``(group, i, j)`` with ``i ⇒ j``, both standing for their components, shape (n, 3).

        The closure of ``equal`` and ``strict`` is the whole order. Where every token is a
        candidate, which makes some ``G·V`` pairs, the array is made when it is first asked for; of
        more than 2**28 groups times tokens a ValueError says so.

        Examples
        --------
        >>> import ntpnb
        >>> order = ntpnb.token_priority(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
        >>> order.strict.tolist()
        [[0, 0, 2]]
        """
        if self._listed_strict is not None:
            return self._listed_strict
        require_dense(
            "strict",
            self.shape,
            "use sparse_components: in each group the listed tokens win over all others",
        )
        return self._strict_over_all_others()

    def _strict_over_all_others(self) -> IntArray:
        """The first listed token of each group over all tokens that are not listed."""
        position, token, _ = listed_tokens(self)
        is_losing = np.ones(self.shape, dtype=bool)
        is_losing[position, token] = False
        return over_losers(self, *np.nonzero(is_losing))

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


def listed_tokens(order: TokenPriority) -> TokenLabels:
    """The stored entries of an order's ``sparse_components``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import listed_tokens
    >>> order = ntpnb.token_priority(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
    >>> listed_tokens(order).token.tolist()
    [0, 1]
    """
    return TokenLabels(*entries_of(order.sparse_components))


def over_losers(order: TokenPriority, position: IntArray, loser: IntArray) -> IntArray:
    """Rows ``(group, i, j)`` of strict pairs by groups' positions and losers, shape (n, 3).

    In each group of the order all tokens lose that are not listed; the first listed one stands for
    the winners.
    """
    table = order.sparse_components
    pairs = np.empty((len(loser), 3), dtype=np.intp)
    pairs[:, 0] = order.groups[position]
    pairs[:, 1] = table.indices[table.indptr[position]]
    pairs[:, 2] = loser
    return pairs


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
    TypeError, ValueError
        ``data`` is no dataset, or ``order`` none of its groups and tokens.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import order_of
    >>> order_of(ntpnb.datasets.toy(), None).strict.shape
    (6, 3)
    """
    require_type("data", data, NextTokenData)
    require_order(order, data)
    return token_priority(data) if order is None else order


def require_order(order: object, data: NextTokenData) -> None:
    """Raise unless ``order`` is one of these groups and tokens, or None where it is to be computed.

    That it is the order of these data is not checked: to find that out takes as long as the order.

    Parameters
    ----------
    order : TokenPriority or None
    data : NextTokenData

    Raises
    ------
    TypeError
        It is no order.
    ValueError
        It is one of other groups, or of another number of tokens.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.order import require_order
    >>> require_order(3, ntpnb.datasets.toy())
    Traceback (most recent call last):
    ...
    TypeError: order is of type int; what token_priority(data) returns is needed
    """
    if order is None:
        return
    require_type("order", order, TokenPriority, "what token_priority(data) returns")
    assert isinstance(order, TokenPriority)
    shape = (len(data.group_names), data.vocab_size)
    if order.shape != shape or not np.array_equal(order.groups, data.group_names):
        raise ValueError(
            f"order is of {order.shape[0]} groups and {order.shape[1]} tokens; that of data with "
            f"{shape[0]} groups and {shape[1]} tokens, by the same names, is needed"
        )


@one_thread
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
        Reduced: one representative (the smallest token) per component. What it takes to find it,
        and to hold it, grows with the entries of the data's tables that are not zero. A function
        with an argument ``order`` believes one of as many tokens and the same groups: that of
        other data of this shape gives it the answer for those.

    Raises
    ------
    TypeError
        ``data`` is no dataset.

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
    require_type("data", data, NextTokenData)
    if data._counts is None:
        return _order_of_all_tokens(data)
    return _order_of_candidates(data)


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
    require_dense("row_components", data._laws.shape, "use fewer contexts or a smaller vocabulary")
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


# -- where every token is a candidate ------------------------------------------------------------


def _order_of_all_tokens(data: NextTokenData) -> TokenPriority:
    """The order where a group's supports reach each other: together they are one component.

    Its first token stands for it, and it wins over each token in none of them.
    """
    row, token, _ = data.entries
    nodes = np.unique(_node(data, row, token))
    first_of_group = np.unique(nodes // data.vocab_size, return_index=True)[1]
    representative = np.repeat(nodes[first_of_group], np.diff(first_of_group, append=len(nodes)))
    return TokenPriority(
        groups=data.group_names,
        sparse_components=_labelled(nodes, representative, data),
        equal=_followers(nodes, representative, data),
        _listed_strict=None,
    )


# -- where tokens are candidates of some contexts only --------------------------------------------


def _order_of_candidates(data: NextTokenData) -> TokenPriority:
    """The order by the components of a graph whose nodes are the candidates of each group."""
    edges = _star_edges(data)
    if len(data.group_names) == data.num_contexts:  # each row's support is one component
        labels = edges.nodes.copy()
        labels[edges.in_support] = edges.nodes[edges.anchor_of_in_support]
    else:
        labels = _strong_components(edges)
    # Nodes increase, so that a component's first one is its smallest token.
    _, first, component = np.unique(labels, return_index=True, return_inverse=True)
    representative = first[component]
    strict = _distinct_pairs(
        above=representative[edges.anchor],
        below=representative[edges.candidate],
        size=len(edges.nodes),
    )
    return TokenPriority(
        groups=data.group_names,
        sparse_components=_labelled(edges.nodes, labels, data),
        equal=_followers(edges.nodes, edges.nodes[representative], data),
        _listed_strict=_named_pairs(edges.nodes[strict], data),
    )


class _StarEdges(NamedTuple):
    """Edges ``anchor → candidate`` and ``in_support → anchor_of_in_support``.

    They are positions among ``nodes``, which are distinct and increase.
    """

    nodes: IntArray
    anchor: IntArray
    candidate: IntArray
    in_support: IntArray
    anchor_of_in_support: IntArray


def _star_edges(data: NextTokenData) -> _StarEdges:
    """Edges with the closure of all |S_j| · |candidates| edges of each row j, and far fewer.

    Each row contributes a star around one of its in-support tokens, the anchor, with edges back
    from the other in-support tokens.
    """
    assert data._counts is not None
    row, token, _ = data._counts.entries
    nodes, candidate = np.unique(_node(data, row, token), return_inverse=True)
    every_row = np.arange(data.num_contexts)
    anchor = np.searchsorted(nodes, _node(data, every_row, data.anchors))[row]
    is_in_support = data._laws.has(row, token)
    return _StarEdges(nodes, anchor, candidate, candidate[is_in_support], anchor[is_in_support])


def _strong_components(edges: _StarEdges) -> IntArray:
    """Label of each node's strongly connected component, shape (len(nodes),)."""
    num_nodes = len(edges.nodes)
    tail = np.concatenate([edges.anchor, edges.in_support])
    head = np.concatenate([edges.candidate, edges.anchor_of_in_support])
    weights = np.ones(len(tail), np.int8)
    graph = coo_matrix((weights, (tail, head)), shape=(num_nodes, num_nodes))
    labels: IntArray = connected_components(graph, connection="strong")[1]
    return labels.astype(np.intp)


def _distinct_pairs(above: IntArray, below: IntArray, size: int) -> IntArray:
    """Sorted distinct rows ``(above, below)`` without those of two equal nodes, shape (n, 2)."""
    # Pairs of nodes as single numbers, which sort much faster than rows; in 64 bits, where indices
    # have 32 in a browser.
    codes = above.astype(np.int64) * size + below
    codes = np.sort(codes[above != below], kind="stable")
    is_first = np.diff(codes, prepend=-1) > 0
    return np.stack(np.divmod(codes[is_first], size), axis=1).astype(np.intp)


# -- nodes ----------------------------------------------------------------------------------------


def _node(data: NextTokenData, row: IntArray, token: IntArray) -> IntArray:
    """A token in the group of a row as one number, ``group · V + token``."""
    return data.group_index[row] * data.vocab_size + token


def _labelled(nodes: IntArray, labels: IntArray, data: NextTokenData) -> csr_array:
    """Labels of increasing nodes as a table of groups and tokens, zeros included."""
    shape = (len(data.group_names), data.vocab_size)
    group, token = np.divmod(nodes, data.vocab_size)
    start = np.searchsorted(group, np.arange(shape[0] + 1))
    return csr_array((labels, token, start), shape=shape)


def _followers(nodes: IntArray, representative: IntArray, data: NextTokenData) -> IntArray:
    """Rows ``(group name, representative, other)`` for each other node of a component."""
    is_other = representative != nodes
    return _named_pairs(np.stack([representative[is_other], nodes[is_other]], axis=1), data)


def _named_pairs(pairs: IntArray, data: NextTokenData) -> IntArray:
    """Rows ``(group name, i, j)`` of pairs of nodes, shape (n, 3)."""
    group, i = np.divmod(pairs[:, 0], data.vocab_size)
    j = pairs[:, 1] % data.vocab_size
    return np.stack([data.group_names[group], i, j], axis=1)
