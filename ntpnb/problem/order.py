"""Token-priority graphs: which tokens must tie and which must win, context by context."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ntpnb.problem.data import require_data


@dataclass(frozen=True, eq=False)
class TokenPriority:
    """The order that a dataset imposes on its tokens' scores, group by group.

    Attributes
    ----------
    groups : ndarray, shape (G,)
        Names of the context groups, increasing.
    components : ndarray of int, shape (G, V)
        Strongly connected component (SCC) of each token in each group's graph; −1 where the
        token is no candidate. Two tokens of one row share a component iff their labels are equal.
    equal : ndarray of int, shape (n, 3)
        Rows ``(group, i, j)`` with ``i ≍ j``: ``i`` stands for the component, ``j`` runs over its
        other tokens.
    strict : ndarray of int, shape (n, 3)
        Rows ``(group, i, j)`` with ``i ⇒ j``, both standing for their components. The closure of
        ``equal`` and ``strict`` is the whole order.
    """

    groups: np.ndarray
    components: np.ndarray
    equal: np.ndarray
    strict: np.ndarray

    def positions(self, pairs):
        """Row of each pair's group in ``groups``, shape (n,)."""
        return np.searchsorted(self.groups, pairs[:, 0])

    @cached_property
    def pairs(self):
        """``(positions, i, j)`` of all pairs, the equal ones first: three arrays of shape (n,)."""
        pairs = np.concatenate([self.equal, self.strict])
        return self.positions(pairs), pairs[:, 1].copy(), pairs[:, 2].copy()


def token_priority(data):
    """Token-priority graphs (TPGs) of a dataset and the order they impose (L24 Sec. 3.1).

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
    """
    require_data("data", data)
    G, V = len(data.group_names), data.vocab_size
    row_start = data.group_index[:, None] * V  # node (group, token) is group · V + token
    anchor = data.support.argmax(1)[:, None]
    rows, tokens = np.nonzero(data.candidates)
    heads = row_start[rows, 0] + tokens
    anchors = (row_start + anchor)[rows, 0]
    back = data.support[rows, tokens]
    if G == len(data.support):  # every row is its own group, so its support is one component
        labels = np.arange(G * V)
        labels[heads[back]] = anchors[back]
    else:
        # A star around one in-support token, with edges back from the others, has the same closure
        # as all |S_j| · V edges.
        tail = np.concatenate([anchors, heads[back]])
        head = np.concatenate([heads, anchors[back]])
        graph = coo_matrix((np.ones(len(tail), np.int8), (tail, head)), shape=(G * V, G * V))
        labels = connected_components(graph, connection="strong")[1]

    components = np.full(G * V, -1)
    components[heads] = labels[heads]
    nodes = np.nonzero(components >= 0)[0]
    representative = np.full(labels.max() + 1, G * V)
    np.minimum.at(representative, labels[nodes], nodes)

    followers = nodes[representative[labels[nodes]] != nodes]
    equal = np.stack([representative[labels[followers]], followers], axis=1)
    above, below = representative[labels[anchors]], representative[labels[heads]]
    # Pairs of nodes as single numbers, which sort much faster than rows.
    codes = np.sort((above * (G * V) + below)[above != below], kind="stable")
    codes = codes[np.diff(codes, prepend=-1) > 0]
    strict = np.stack(np.divmod(codes, G * V), axis=1)

    def named(pairs):
        group, i = np.divmod(pairs[:, 0], V)
        return np.stack([data.group_names[group], i, pairs[:, 1] % V], axis=1)

    return TokenPriority(data.group_names, components.reshape(G, V), named(equal), named(strict))


def row_components(data, order):
    """Component labels of all tokens in each row, shape (m, V), and of its support, (m, 1)."""
    labels = order.components[data.group_index]
    return labels, np.take_along_axis(labels, data.support.argmax(1)[:, None], axis=1)


def dominated(data, order):
    """Candidates that are not tied with their row's in-support tokens, shape (m, V), bool."""
    labels, own = row_components(data, order)
    return data.candidates & (labels != own)
