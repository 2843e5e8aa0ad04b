"""Near-duplicate contexts: found as by comparing all pairs, and merged without a change of loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import rearranged, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem import table
from ntpnb.problem.duplicates import Contexts, merge, near_duplicates

EPS = np.finfo(float).eps


def relative_distance(a, b):
    """Distance relative to the longer of two vectors."""
    longer = max(np.linalg.norm(a), np.linalg.norm(b))
    return np.linalg.norm(a - b) / longer if longer else 0.0


def found_by_comparing_all(H, groups, tolerance):
    """Each context claims those after it that agree with it; rows of a group are one context."""
    first_rows = sorted({groups.tolist().index(g) for g in groups})
    claimed = set()
    found = []
    for i in first_rows:
        if i in claimed:
            continue
        agreeing = [
            k
            for k in first_rows
            if k > i and k not in claimed and relative_distance(H[k], H[i]) <= tolerance
        ]
        claimed.update(agreeing)
        if agreeing:
            names = {groups[k] for k in [i, *agreeing]}
            found.append([j for j in range(len(H)) if groups[j] in names])
    return found


def planted(seed, num_contexts, dim, tolerance):
    """Embeddings over six decades of length, some of them copies of others within a few tolerances.

    Copies lie clearly within one tolerance or clearly outside it, so that rounding decides nothing.
    """
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((num_contexts, dim)) * 10.0 ** rng.uniform(-3, 3, (num_contexts, 1))
    for j in range(1, num_contexts):
        if rng.random() < 0.5:
            original = H[rng.integers(j)]
            direction = rng.standard_normal(dim)
            direction *= np.linalg.norm(original) / np.linalg.norm(direction)
            H[j] = original + rng.choice([0, 0.3, 0.9, 1.1, 3.0]) * tolerance * direction
    return H


@given(
    st.integers(0, 9999),
    st.integers(1, 25),
    st.sampled_from([1, 2, 5, 40]),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-2, 0.1]),
    st.booleans(),
)
def test_the_same_rows_as_by_comparing_all(seed, num_contexts, dim, tolerance, grouped):
    H = planted(seed, num_contexts, dim, tolerance)
    groups = np.arange(num_contexts)[::-1].copy()  # names, not positions
    if grouped:
        groups = np.random.default_rng(seed).integers(0, max(1, num_contexts // 2), num_contexts)
        for g in np.unique(groups):
            H[groups == g] = H[np.argmax(groups == g)]
    data = NextTokenData(H, np.ones((num_contexts, 1)), context_groups=groups)
    found = data.near_duplicates(tolerance)
    assert [rows.rows.tolist() for rows in found] == found_by_comparing_all(H, groups, tolerance)
    for duplicates in found:
        first = H[duplicates.rows[0]]
        expected = [relative_distance(H[j], first) for j in duplicates.rows]
        # Differences of vectors that agree to the tolerance: rounding of the vectors themselves.
        np.testing.assert_allclose(duplicates.distances, expected, rtol=0, atol=4 * EPS)


def test_zero_embeddings_agree_with_each_other_only():
    H = np.zeros((4, 3))
    H[1] = 1e-40
    data = NextTokenData(H, np.eye(4))
    assert [rows.rows.tolist() for rows in data.near_duplicates(0.1)] == [[0, 2, 3]]


@pytest.mark.parametrize("tolerance", [-1e-9, 0.2, np.nan, np.inf])
def test_tolerances_out_of_range_are_refused(tolerance):
    with pytest.raises(ValueError, match=r"tolerance is .* it must lie between 0 and 0\.1"):
        t24(0).near_duplicates(tolerance)
    with pytest.raises(ValueError, match=r"merge_tolerance is .* it must lie between 0 and 0\.1"):
        t24(0).replace(merge_tolerance=tolerance)
    with pytest.raises(TypeError, match="merge_tolerance is of type str"):
        t24(0).replace(merge_tolerance="a")


# -- merging --------------------------------------------------------------------------------------


def split(data, noise, seed=0):
    """Each context as one to three rows with a part of its frequency each, and noisy embeddings."""
    rng = np.random.default_rng(seed)
    copies = rng.integers(1, 4, data.num_contexts).astype(np.intp)
    rows = np.repeat(np.arange(data.num_contexts), copies)
    pi = data.context_probs[rows] * rng.uniform(1, 2, len(rows))
    pi /= pi.sum()
    H = data.context_embeddings[rows]
    lengths = np.linalg.norm(H, axis=1, keepdims=True)
    shift = rng.standard_normal(H.shape)
    shift *= lengths / np.linalg.norm(shift, axis=1, keepdims=True)
    laws = data.target_probs[rows] + 0.5 * rng.dirichlet(np.ones(data.vocab_size), len(rows))
    laws /= laws.sum(1, keepdims=True)
    return rows, NextTokenData(H + noise * shift, laws, pi, data.token_embeddings)


def test_equal_contexts_are_merged_without_a_change_of_loss():
    whole = t24(3, m=7)
    rows, apart = split(whole, noise=0.0)
    merged = apart.replace(merge_tolerance=0.0)
    assert [set(rows[list(some)]) for some in merged.merged_rows] == [{j} for j in range(7)]
    np.testing.assert_array_equal(merged.context_embeddings, whole.context_embeddings)
    W = np.random.default_rng(9).standard_normal(apart.shape)
    # The loss is linear in the joint frequencies of context and token: sums in another order.
    expected = ntpnb.cross_entropy(W, apart)
    assert abs(ntpnb.cross_entropy(W, merged) - expected) <= 100 * EPS * expected


def test_means_are_weighted_by_frequency_and_other_rows_stay_to_the_last_bit():
    _, apart = split(t24(4, m=6), noise=1e-8, seed=2)
    merged = apart.replace(merge_tolerance=1e-6)
    assert sorted(j for some in merged.merged_rows for j in some) == list(range(len(apart.support)))
    sizes = {len(some) for some in merged.merged_rows}
    assert sizes == {1, 2, 3}
    for k, some in enumerate(merged.merged_rows):
        rows = list(some)
        if len(rows) == 1:
            for name in ("context_embeddings", "target_probs"):
                np.testing.assert_array_equal(
                    getattr(merged, name)[k], getattr(apart, name)[rows[0]]
                )
            continue
        pi = apart.context_probs[rows]
        assert abs(merged.context_probs[k] - pi.sum()) <= 4 * EPS
        for name in ("context_embeddings", "target_probs"):
            mean = pi @ getattr(apart, name)[rows] / pi.sum()
            size = np.abs(mean).max()
            np.testing.assert_allclose(getattr(merged, name)[k], mean, rtol=0, atol=10 * EPS * size)


def test_nothing_to_merge_leaves_the_data_as_they_are():
    data = t24(5)
    merged = data.replace(merge_tolerance=1e-6)
    assert merged.merged_rows == tuple((j,) for j in range(6))
    np.testing.assert_array_equal(merged.context_embeddings, data.context_embeddings)
    assert data.merged_rows is None
    assert merged.replace(context_probs=None).merged_rows == merged.merged_rows


def test_groups_and_equal_candidates_are_kept():
    data = t24(13, m=9, rows=3, size=(1, 2))
    twice = rearranged(data, np.repeat(np.arange(9), 2))
    assert twice.replace(merge_tolerance=1e-9).merged_rows == tuple((j,) for j in range(18))
    names = np.arange(18)
    merged = twice.replace(context_groups=names, merge_tolerance=1e-9)
    for k, rows in enumerate(merged.merged_rows):
        assert merged.context_groups[k] == rows[0]
    counted = t24(20, V=6, m=10, candidates=True)
    doubled = rearranged(counted, np.repeat(np.arange(10), 2)).replace(context_groups=np.arange(20))
    again = doubled.replace(merge_tolerance=0.0)
    np.testing.assert_array_equal(again.candidate_counts, counted.candidate_counts)
    np.testing.assert_allclose(again.target_probs, counted.target_probs, rtol=10 * EPS)


def test_rows_with_different_candidates_are_not_merged():
    counts = [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    with pytest.raises(ValueError, match="one context of rows 0 and 2, whose candidate"):
        NextTokenData(
            [[1.0], [2.0], [1.0]],
            [[1, 0, 0]] * 3,
            candidate_counts=counts,
            merge_tolerance=0.01,
        )


def test_contexts_of_sequences_are_merged():
    def embed(context):
        return [1.0 + 1e-9 * context[-1], 1.0] if context[-1] < 2 else [0.0, 1.0]

    sequences = [[0, 2, 1, 0], [1, 2, 2]]
    data = NextTokenData.from_sequences(
        sequences, embed, context_length=1, vocab_size=4, merge_tolerance=1e-6
    )
    assert data.contexts == ((0,), (2,))  # the second stands for (1,), too
    assert data.merged_rows == ((0, 2), (1,))
    assert data.target_probs[0].tolist() == [1 / 3, 0, 2 / 3, 0]


# -- what changed code showed to be untested ------------------------------------------------------


def contexts_with(laws, embeddings, counts=None):
    m = len(laws)
    if counts is not None:
        counts = table.as_table("candidate_counts", counts)
    laws = table.as_table("target_probs", laws)
    return Contexts(np.array(embeddings), laws, np.full(m, 1 / m), counts, np.arange(m))


def test_merged_laws_sum_to_one_and_the_others_stay_to_the_last_bit():
    """Laws may sum to one within 1e-8 only: a mean is normalised, a row that stays is not."""
    off = 1 + 5e-9
    laws = np.array([[0.7, 0.3 * off], [0.2 * off, 0.8], [0.6, 0.4 * off]])
    given_contexts = contexts_with(laws, [[1.0], [1.0 + 1e-9], [3.0]])
    merged, rows = merge(given_contexts, tolerance=1e-6)
    assert rows == ((0, 1), (2,))
    assert abs(merged.laws.dense[0].sum() - 1) <= 2 * EPS
    np.testing.assert_array_equal(merged.laws.dense[1], laws[2])


def test_equal_contexts_are_found_without_a_tolerance():
    H = np.random.default_rng(0).standard_normal((4, 30))[[0, 1, 0, 2]]
    (found,) = near_duplicates(H, np.arange(4), tolerance=0.0)
    assert found.rows.tolist() == [0, 2]
    assert found.distances.tolist() == [0.0, 0.0]


def test_a_context_between_two_duplicates_may_have_other_candidates():
    counts = [[1, 1, 0], [0, 1, 1], [1, 1, 0]]
    laws = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    merged, rows = merge(contexts_with(laws, [[1.0], [2.0], [1.0]], counts), tolerance=1e-9)
    assert rows == ((0, 2), (1,))
    np.testing.assert_array_equal(merged.counts.dense, [[1, 1, 0], [0, 1, 1]])
