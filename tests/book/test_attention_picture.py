"""How the chapters on attention draw: ranks follow the order, and nothing leaves its axes."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Circle

import ntpnb
from ntpnb_book import attention_picture, reachable

PLACES = [[-0.3, 1.15], [0.6, 0.7], [0.9, -0.6], [-0.9, -0.5]]
AFTER_FOUR = [[0, 1, 3], [1, 3], [2, 3]]


@pytest.fixture
def ax():
    return Figure().subplots()


def toy(sequences, labels):
    return ntpnb.NextTokenData.from_attention(PLACES, sequences, labels)


def test_a_component_stands_below_all_that_point_at_it():
    data = toy(AFTER_FOUR, [0, 1, 2])
    assert attention_picture.ranks(data, 3) == [[[0], [2]], [[1]], [[3]]]


@pytest.mark.parametrize("kind", ["acyclic", "cyclic"])
def test_ranks_hold_every_token_once_and_follow_the_order(kind):
    for data in ntpnb.datasets.attention_trials(5, kind, seed=3).data:
        for group in data.group_names:
            ranks = attention_picture.ranks(data, group)
            rank = {v: r for r, row in enumerate(ranks) for tokens in row for v in tokens}
            nodes = data.candidates[data.context_groups == group].any(0)
            assert sorted(rank) == np.flatnonzero(nodes).tolist()
            assert sum(len(m) for row in ranks for m in row) == len(rank)
            reach = reachable(data, group)
            for i, j in np.argwhere(reach & ~reach.T).tolist():
                assert rank[i] < rank[j]
            for row in ranks:
                for tokens in row:
                    assert reach[np.ix_(tokens, tokens)].all()


@pytest.mark.parametrize("covers", [False, True])
def test_every_circle_of_a_graph_lies_within_its_axes(ax, covers):
    data = toy([[0, 1, 3], [0, 1, 3], [0, 2, 3]], [0, 1, 0])
    attention_picture.draw_graph(ax, data, 3, covers=covers)
    left, right = ax.get_xlim()
    low, high = ax.get_ylim()
    circles = [patch for patch in ax.patches if isinstance(patch, Circle)]
    assert len(circles) == 4 + 3 + 1  # tokens, components, and the ring of the query
    for circle in circles:
        (x, y), r = circle.center, circle.radius
        assert left <= x - r
        assert x + r <= right
        assert low <= y - r
        assert y + r <= high


def test_sequences_end_under_each_other_with_their_last_token_ringed(ax):
    attention_picture.draw_sequences(ax, AFTER_FOUR, [0, 1, 2], kept=np.eye(4)[[0, 1, 2]] > 0)
    rings = [patch for patch in ax.patches if not patch.get_fill()]
    assert len({ring.center[0] for ring in rings}) == 1
    assert [ring.center[1] for ring in rings] == [0, -1, -2]
    tokens = [text.get_text() for text in ax.texts if text.get_text()]
    assert tokens[:5] == ["(1)", "1", "2", "4", "1"]


def test_the_line_of_equal_score_is_across_the_arrow(ax):
    direction = np.array([1.0, 2.0])
    attention_picture.draw_plane(ax, PLACES, 3, direction, name="w", levels=[1], pale=[2])
    assert "w" in [text.get_text() for text in ax.texts]
    line = ax.lines[-1]
    first, second = np.array(line.get_xy1()), np.array(line.get_xy2())
    np.testing.assert_allclose((second - first) @ direction, 0, atol=1e-12)
    np.testing.assert_allclose(first, PLACES[1])
