"""Data from a model's hidden states: what is read, what is merged, and what it is called."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import same_data

import ntpnb
from ntpnb import NextTokenData

HIDDEN = [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]
NEXT = [2, 0, 1]


class Tensor:
    """An array of another library, which gives itself to numpy."""

    def __init__(self, array):
        self._array = np.asarray(array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype=dtype)


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.5))
def test_it_is_what_counting_by_hand_gives(seed, share_ignored):
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((4, 3))
    which = rng.integers(0, 4, (3, 5))
    tokens = rng.integers(0, 6, (3, 5))
    tokens[rng.random((3, 5)) < share_ignored] = -100
    tokens[0, 0] = 5
    data = NextTokenData.from_hidden_states(states[which], tokens, vocab_size=7)

    kept = tokens != -100
    counts = np.zeros((4, 7))
    np.add.at(counts, (which[kept], tokens[kept]), 1)
    order = list(dict.fromkeys(which[kept].tolist()))
    assert same_data(data, NextTokenData.from_counts(states[order], counts[order]))
    positions = [np.flatnonzero(kept & (which == context)) for context in order]
    assert data.merged_rows == tuple(tuple(places.tolist()) for places in positions)


@pytest.mark.parametrize(
    "given_as",
    [
        np.array(HIDDEN, dtype=np.float32),
        np.asfortranarray(HIDDEN),
        Tensor(np.array(HIDDEN, dtype=np.float32)),
        tuple(map(tuple, HIDDEN)),
        np.array(HIDDEN, dtype=object),
    ],
    ids=["single", "fortran", "tensor", "tuples", "object"],
)
def test_anything_that_numpy_reads(given_as):
    expected = NextTokenData.from_hidden_states(HIDDEN, NEXT)
    assert same_data(NextTokenData.from_hidden_states(given_as, NEXT), expected)
    assert same_data(NextTokenData.from_hidden_states(given_as, Tensor(NEXT)), expected)


def test_rounding_of_single_precision_is_one_context():
    # One layer, computed for all positions at once and for each alone, in single precision.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 256)).astype(np.float32)
    layers = rng.standard_normal((4, 256, 256)).astype(np.float32) / 16
    together, alone = x, x
    for layer in layers:
        together = np.tanh(together @ layer)
        alone = np.stack([np.tanh((row[::-1] * layer[::-1].T).sum(1)) for row in alone])
    assert not np.array_equal(together, alone)
    tokens = np.tile(np.arange(50), 2)
    data = NextTokenData.from_hidden_states(np.concatenate([together, alone]), tokens)
    assert data.merged_rows == tuple((j, j + 50) for j in range(50))
    for tolerance in (0, None):
        apart = NextTokenData.from_hidden_states(
            np.concatenate([together, alone]), tokens, merge_tolerance=tolerance
        )
        assert apart.num_contexts > 50


def test_signed_zeros_are_equal():
    data = NextTokenData.from_hidden_states([[0.0, 1.0], [-0.0, 1.0]], [0, 1], merge_tolerance=0)
    assert data.merged_rows == ((0, 1),)


def test_states_that_differ_in_small_entries_only_are_two_contexts():
    """They are compared by their own lengths: beside one, both would be nothing."""
    tiny = [[1e-20, 0.0], [0.0, 1e-20]]
    assert NextTokenData.from_hidden_states(tiny, [0, 1]).merged_rows == ((0,), (1,))


def test_what_is_left_out_may_be_anything():
    hidden = [[1.0, 0.0], [np.nan, np.inf], [0.0, 1.0]]
    data = NextTokenData.from_hidden_states(hidden, [0, -100, 1])
    assert data.merged_rows == ((0,), (2,))


def test_a_token_that_never_comes_next_counts():
    assert NextTokenData.from_hidden_states(HIDDEN, NEXT).vocab_size == 3
    large = NextTokenData.from_hidden_states(HIDDEN, NEXT, vocab_size=50_257)
    assert large.vocab_size == 50_257
    assert large.shape == (50_257, 2)


# -- labels ---------------------------------------------------------------------------------------

NAMES = ["the cat", "a dog", "The cat"]


def test_contexts_are_called_by_the_label_of_the_first_position_that_counts():
    data = NextTokenData.from_hidden_states(HIDDEN, NEXT, labels=NAMES)
    assert data.labels == ("the cat", "a dog")
    later = NextTokenData.from_hidden_states(HIDDEN, [-100, 0, 1], labels=np.array(NAMES))
    assert later.labels == ("a dog", "The cat")
    assert NextTokenData.from_hidden_states(HIDDEN, NEXT).labels is None


def test_labels_of_a_batch_are_a_batch():
    hidden = [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 1e-7], [0.8, 0.6]]]  # the first states are one
    labels = [["we", "we see"], ["We", "We hear"]]
    data = NextTokenData.from_hidden_states(hidden, [[1, 0], [2, 1]], labels=labels)
    assert data.labels == ("we", "we see", "We hear")
    apart = NextTokenData.from_hidden_states(
        hidden, [[1, 0], [2, 1]], labels=labels, merge_tolerance=None
    )
    assert apart.labels == ("we", "we see", "We", "We hear")


def test_labels_stay_with_data_that_are_changed_saved_and_copied(tmp_path):
    data = NextTokenData.from_hidden_states(HIDDEN, NEXT, labels=NAMES)
    data.save(tmp_path / "data.npz")
    for again in (
        ntpnb.load(tmp_path / "data.npz"),
        pickle.loads(pickle.dumps(data)),
        data.replace(context_embeddings=2 * data.context_embeddings),
    ):
        assert again.labels == data.labels
    assert data.replace(context_groups=[7, 7], context_embeddings=[[1.0], [1.0]]).labels
    one = {"context_embeddings": [[1.0]], "target_probs": [[1.0, 0.0]]}
    assert data.replace(**one, context_probs=None, context_groups=None).labels is None


@pytest.mark.parametrize("labels", [("a",), ("a", 2), ["a", "b"]])
def test_a_file_has_a_label_for_each_context(tmp_path, labels):
    data = NextTokenData.from_hidden_states(HIDDEN, NEXT, labels=NAMES)
    data.labels = labels
    data.save(tmp_path / "data.npz")
    with pytest.raises(ValueError, match=r"NextTokenData\.labels needs a str for each of 2"):
        ntpnb.load(tmp_path / "data.npz")


def test_a_report_names_contexts_by_their_labels():
    hidden = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    labels = ["not yet", "not yet", "always"]
    data = NextTokenData.from_hidden_states(hidden, [0, 1, 2], labels=labels)
    found = ntpnb.report(data, W=np.ones((3, 2)), words=["a", "b", "c"])
    assert [found.context_name(k) for k in range(2)] == ["'not yet'", "'always'"]
    assert [found.row_name(k) for k in range(2)] == ["'not yet'", "'always'"]
    assert "after 'not yet'" in str(found)
    assert "context row" not in str(found)


def test_nearly_dependent_contexts_are_named_by_their_labels():
    hidden = [[1.0, 0.0], [1.0, 0.0], [1.0, 1e-12], [1.0, 1e-12]]
    names = ["w", "x", "y", "z"]
    data = NextTokenData.from_hidden_states(
        hidden, [0, 1, 0, 1], labels=names, merge_tolerance=None
    )
    with pytest.raises(ValueError, match="the embeddings of contexts 'w', 'y' are linearly"):
        ntpnb.equal_subspace(data)


def test_an_error_names_contexts_by_their_labels():
    angle = 1e-9
    hidden = [[1.0, 0.0], [np.cos(angle), np.sin(angle)]]
    names = ["the cat", "the cats"]
    data = NextTokenData.from_hidden_states(hidden, [0, 1], 3, labels=names, merge_tolerance=None)
    refusal = ntpnb.implicit_bias(data, seconds=0).refusal
    assert "contexts 'the cat' and 'the cats' are followed by different tokens" in str(refusal)
