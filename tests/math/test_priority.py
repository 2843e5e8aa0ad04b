"""Token-priority graphs against the transitive closure of all edges the papers define."""

import numpy as np
import pytest
import reference
from hypothesis import given
from problems import any_problem, regimes

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem.order import _distinct_pairs


def closure(order, V):
    """{group: (ties, priorities)}, each (V, V) bool, that the reduced relations imply."""
    implied = {}
    for g in order.groups.tolist():
        equal = [(i, j) for name, i, j in order.equal.tolist() if name == g]
        strict = [(i, j) for name, i, j in order.strict.tolist() if name == g]
        R = np.zeros((V, V), dtype=bool)
        for i, j in [*equal, *[(j, i) for i, j in equal], *strict]:
            R[i, j] = True
        for k in range(V):
            R |= R[:, k : k + 1] & R[k : k + 1, :]
        np.fill_diagonal(R, False)
        implied[g] = R & R.T, R & ~R.T
    return implied


def check_order(data):
    order = ntpnb.token_priority(data)
    V = data.vocab_size
    implied, brute = closure(order, V), reference.reachable(data)
    assert sorted(implied) == sorted(brute) == order.groups.tolist()
    for at, g in enumerate(order.groups.tolist()):
        R = brute[g] & ~np.eye(V, dtype=bool)
        ties, priorities = implied[g]
        np.testing.assert_array_equal(ties, R & R.T)
        np.testing.assert_array_equal(priorities, R & ~R.T)
        label = order.components[at]
        rows = data.context_groups == g
        np.testing.assert_array_equal(label >= 0, data.candidates[rows].any(0))
        assert (label[label < 0] == -1).all()
        same = (label[:, None] == label) & (label >= 0)[:, None] & ~np.eye(V, dtype=bool)
        np.testing.assert_array_equal(same, R & R.T)
    # reduced: one representative, the smallest token, for each component; no pair twice
    components = [set(row[row >= 0].tolist()) for row in order.components]
    named = sum(map(len, components))
    assert named == len(set().union(*components))  # labels of different groups differ
    assert len(order.equal) == (order.components >= 0).sum() - named
    smallest = {}
    for g, row in zip(order.groups.tolist(), order.components.tolist(), strict=True):
        for token, label in enumerate(row):
            smallest.setdefault((g, label), token)
    position = {g: i for i, g in enumerate(order.groups.tolist())}
    for g, i, j in order.equal.tolist():
        assert i == smallest[g, order.components[position[g], j]] < j
    for g, i, j in order.strict.tolist():
        for token in (i, j):
            assert token == smallest[g, order.components[position[g], token]]
    for pairs in (order.equal, order.strict):
        assert pairs.shape == (len(pairs), 3)
        assert pairs.dtype == np.intp
        assert len({tuple(row) for row in pairs.tolist()}) == len(pairs)
        assert [order.groups[k] for k in order.positions(pairs)] == pairs[:, 0].tolist()
    assert order.shape == order.components.shape
    listed = order.sparse_components
    for at, label in enumerate(order.components):
        entries = slice(listed.indptr[at], listed.indptr[at + 1])
        np.testing.assert_array_equal(label[listed.indices[entries]], listed.data[entries])
        others = np.delete(label, listed.indices[entries])
        others = others[others >= 0]  # candidates that tie with none
        assert len(set(others.tolist()) - set(listed.data.tolist())) == len(others)
    k, i, j = order.pairs
    together = np.column_stack([order.groups[k], i, j])
    np.testing.assert_array_equal(together, np.concatenate([order.equal, order.strict]))


@pytest.mark.parametrize("name", regimes())
def test_order_is_the_closure_of_all_edges(name):
    check_order(regimes()[name])


@given(any_problem())
def test_order_of_any_problem(data):
    check_order(data)


def test_figure_2_of_the_attention_paper():
    order = ntpnb.token_priority(ntpnb.datasets.figure2())
    assert order.groups.tolist() == [0, 1]
    first, second = order.components
    assert len(set(first.tolist())) == 4
    assert len(set(second[:3].tolist())) == 1
    assert second[3] not in second[:3]
    priorities = closure(order, 4)
    rank = [2, 1, 3, 0]  # 3 ⇒ 2 ⇒ 4 ⇒ 1 in the paper's numbers
    beats = np.zeros((4, 4), dtype=bool)
    for a in range(4):
        beats[rank[a], rank[a + 1 :]] = True
    np.testing.assert_array_equal(priorities[0][1], beats)
    assert np.argwhere(priorities[1][1]).tolist() == [[0, 3], [1, 3], [2, 3]]


def test_data_without_any_pair():
    for data in (
        NextTokenData([[1.0], [2.0]], [[1.0], [1.0]]),
        NextTokenData([[1.0]], [[0, 1, 0]], candidate_counts=[[0, 3, 0]]),
        NextTokenData.from_attention(np.eye(2), [(1, 1)], [1]),
    ):
        order = ntpnb.token_priority(data)
        assert order.equal.shape == order.strict.shape == (0, 3)


def test_pairs_of_nodes_keep_apart_where_indices_have_32_bits():
    """As in a browser: 2^20 nodes have 2^40 pairs."""
    size = 2**20
    above = np.array([5, size - 1, 5, 7, size - 1], dtype=np.int32)
    below = np.array([2**19, size - 2, 2**19, 7, 3], dtype=np.int32)
    expected = [[5, 2**19], [size - 1, 3], [size - 1, size - 2]]
    assert _distinct_pairs(above, below, size).tolist() == expected


@pytest.mark.parametrize(
    "function", [ntpnb.max_margin, ntpnb.is_separable, ntpnb.equal_subspace, ntpnb.restrict]
)
def test_an_order_of_other_data_is_refused(function):
    data = NextTokenData(np.eye(3), np.eye(3))
    others = [
        NextTokenData(np.eye(3), np.eye(4)[:3]),
        NextTokenData(np.eye(2), np.eye(3)[:2]),
        data.replace(context_groups=[5, 6, 7]),
    ]
    for other in others:
        with pytest.raises(
            ValueError, match=r"^order is of . groups and . tokens; that of data with 3"
        ):
            function(data, order=ntpnb.token_priority(other))
