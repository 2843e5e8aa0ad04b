"""Token-priority graphs against the transitive closure of all edges the papers define."""

import numpy as np
import pytest
import reference
from hypothesis import given
from margins import answer
from numpy.testing import assert_array_equal
from problems import any_problem, l24, regimes

import ntpnb
from ntpnb import NextTokenData, NotSeparableError, token_priority
from ntpnb.margin import other_norms, solve
from ntpnb.problem import order as order_module
from ntpnb.problem.equivalent import listed_weights, strict_weights
from ntpnb.problem.order import _distinct_pairs


def check_order(data):
    order = token_priority(data)
    V = data.vocab_size
    brute = reference.reachable(data)
    assert order.groups.tolist() == sorted(brute)
    assert order.shape == order.components.shape == (len(brute), V)
    ties = []
    num_components = 0
    for g, label in zip(sorted(brute), order.components, strict=True):
        reaches = brute[g] & ~np.eye(V, dtype=bool)
        # The smallest token of each one's component stands for it.
        first = (reaches & reaches.T | np.eye(V, dtype=bool)).argmax(1)
        ties += [[g, first[v], v] for v in range(V) if first[v] != v]
        named = data.candidates[data.context_groups == g].any(0)
        num_components += len(set(first[named].tolist()))
        assert_array_equal(label == -1, ~named)
        is_same = (label[:, None] == label)[named][:, named]
        assert_array_equal(is_same, (first[:, None] == first)[named][:, named])
        implied = np.zeros((V, V), dtype=bool)
        for _, i, j in order.equal[order.equal[:, 0] == g].tolist():
            implied[i, j] = implied[j, i] = True
        for _, i, j in order.strict[order.strict[:, 0] == g].tolist():
            assert (first[i], first[j]) == (i, j)
            assert i != j
            implied[i, j] = True
        implied = reference.transitive_closure(implied) & ~np.eye(V, dtype=bool)
        assert_array_equal(implied, reaches)
    assert sorted(order.equal.tolist()) == ties
    named = order.components >= 0
    assert len(np.unique(order.components[named])) == num_components  # no label in two groups
    for pairs in (order.equal, order.strict):
        assert pairs.shape == (len(pairs), 3)
        assert pairs.dtype == np.intp
        assert len({tuple(row) for row in pairs.tolist()}) == len(pairs)
    assert order.num_strict == len(order.strict)
    listed = order.sparse_components.tocoo()
    assert_array_equal(order.components[listed.row, listed.col], listed.data)
    named[listed.row, listed.col] = False  # what is left are candidates that tie with none
    alone = order.components[named].tolist()
    assert len(set(alone) - set(listed.data.tolist())) == len(alone)
    k, i, j = order.pairs
    together = np.column_stack([order.groups[k], i, j])
    assert_array_equal(together, np.concatenate([order.equal, order.strict]))


@pytest.mark.parametrize("name", regimes())
def test_order_is_the_closure_of_all_edges(name):
    check_order(regimes()[name])


@given(any_problem())
def test_order_of_any_problem(data):
    check_order(data)


def test_figure_2_of_the_attention_paper():
    data = ntpnb.datasets.figure2()
    check_order(data)
    first, second = reference.reachable(data).values()
    rank = [2, 1, 3, 0]  # 3 ⇒ 2 ⇒ 4 ⇒ 1 in the paper's numbers
    beats = np.triu(np.ones((4, 4), dtype=bool), 1)
    assert_array_equal(first[np.ix_(rank, rank)], beats)
    assert_array_equal(second, [[True] * 4] * 3 + [[False] * 4])  # 1, 2, 3 above 4


def test_pairs_without_weight_are_left_out():
    order = token_priority(ntpnb.datasets.toy())
    weights = np.array([3.0, 0.0])
    for found in (
        strict_weights(order, np.array([1, 0]), np.array([2, 0]), weights),
        listed_weights(order, np.array([3, 0]), weights),
    ):
        assert (found.positions.tolist(), found.weights.tolist()) == ([3], [1.0])


def test_pairs_of_nodes_keep_apart_where_indices_have_32_bits():
    """As in a browser: 2^20 nodes have 2^40 pairs."""
    size = 2**20
    above = np.array([5, size - 1, 5, 7, size - 1], dtype=np.int32)
    below = np.array([2**19, size - 2, 2**19, 7, 3], dtype=np.int32)
    expected = [[5, 2**19], [size - 1, 3], [size - 1, size - 2]]
    assert _distinct_pairs(above, below, size).tolist() == expected


# -- an order at hand -----------------------------------------------------------------------------


def weights(data, **options):
    """The multipliers of the max-margin solution, or the certificate that there is none."""
    found = answer(data, **options)
    return found.certificate if isinstance(found, NotSeparableError) else found.multipliers


USES = {
    "direction": weights,
    "direction in another norm": lambda data, **order: weights(data, norm="max", **order),
    "verdict": ntpnb.is_separable,
    "tied subspace": lambda data, **order: ntpnb.equal_subspace(data, **order).dim,
    "restriction": lambda data, **order: ntpnb.restrict(data, **order).candidates,
    "finite part": lambda data, **order: ntpnb.finite_part(data, **order).W,
}
BY_USE = pytest.mark.parametrize("use", USES.values(), ids=USES)


@BY_USE
@pytest.mark.parametrize("is_separable", [True, False])
def test_it_is_taken(monkeypatch, use, is_separable):
    data = l24(4001, cyclic=True) if is_separable else NextTokenData([[1.0], [2.0]], np.eye(2))
    assert ntpnb.is_separable(data) is is_separable
    order = token_priority(data)
    expected = use(data)
    for module in (solve, other_norms, order_module):
        monkeypatch.delattr(module, "token_priority")
    assert_array_equal(use(data, order=order), expected)


@BY_USE
def test_one_of_other_data_is_refused(use):
    data = NextTokenData(np.eye(3), np.eye(3))
    others = [
        NextTokenData(np.eye(3), np.eye(4)[:3]),
        NextTokenData(np.eye(2), np.eye(3)[:2]),
        data.replace(context_groups=[5, 6, 7]),
    ]
    for other in others:
        order = token_priority(other)
        message = r"^order is of . groups and . tokens; that of data with 3"
        with pytest.raises(ValueError, match=message):
            use(data, order=order)
        with pytest.raises(TypeError, match=r"^data is of type str; NextTokenData is needed$"):
            use("data", order=order)
