"""Both constructors against counters and hand examples."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntpnb import NextTokenData

EPS = np.finfo(float).eps

# -- from_sequences -------------------------------------------------------------------------------


def one_hot_last(context, V=6):
    return np.eye(V)[context[-1]]


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=6),
    st.sampled_from([None, 1, 2, 3]),
)
def test_from_sequences_counts_like_a_counter(sequences, length):
    pairs = Counter()
    for s in sequences:
        for end in range(1, len(s)):
            if length is None:
                pairs[tuple(s[:end]), s[end]] += 1
            elif end >= length:
                pairs[tuple(s[end - length : end]), s[end]] += 1
    if not pairs:
        with pytest.raises(ValueError, match="sequences holds no context followed by a token"):
            NextTokenData.from_sequences(sequences, one_hot_last, context_length=length)
        return
    data = NextTokenData.from_sequences(sequences, one_hot_last, context_length=length)
    seen = list(dict.fromkeys(context for context, _ in pairs))
    assert data.contexts == tuple(seen)
    assert data.vocab_size == 1 + max(max(s) for s in sequences if s)
    assert data.context_embeddings.tolist() == [one_hot_last(c).tolist() for c in seen]
    counts = np.array([[pairs[c, z] for z in range(data.vocab_size)] for c in seen])
    sums = counts.sum(1)
    # quotients of small integers, each rounded at most twice
    np.testing.assert_allclose(data.context_probs, sums / sums.sum(), rtol=2 * EPS)
    np.testing.assert_allclose(data.target_probs, counts / sums[:, None], rtol=2 * EPS)


def test_long_sequences_of_short_contexts_fit_in_memory():
    data = NextTokenData.from_sequences([[0] * 40_000], one_hot_last, context_length=2)
    assert data.num_contexts == 1


# -- from_attention -------------------------------------------------------------------------------


def test_from_attention_by_hand():
    E = [[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]
    data = NextTokenData.from_attention(E, [(0, 2, 1), (1, 1, 2, 1), (0,)], [2, 1, 0])
    assert data.context_embeddings.tolist() == [[0, 2], [0, 2], [1, 0]]  # the last tokens'
    assert data.target_probs.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert data.candidate_counts.tolist() == [[1, 1, 1], [0, 3, 1], [1, 0, 0]]
    assert data.context_groups.tolist() == [1, 1, 0]
    assert data.token_embeddings.tolist() == E
    assert data.context_probs.tolist() == [1 / 3] * 3
    assert data.shape == (2, 2)
    assert str(data.entropy) == "0.0"  # and not −0.0
