"""Near-duplicate contexts: found as by comparing all pairs, and merged without a change of loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from problems import rearranged, t24

from ntpnb import NextTokenData
from ntpnb.basics import validation
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
        assert_allclose(duplicates.distances, expected, rtol=0, atol=4 * EPS)


def test_zero_embeddings_agree_with_each_other_only():
    H = np.zeros((4, 3))
    H[1] = 1e-40
    data = NextTokenData(H, np.eye(4))
    assert [rows.rows.tolist() for rows in data.near_duplicates(0.1)] == [[0, 2, 3]]


def test_rows_that_agree_to_a_millionth_are_found_unasked():
    data = NextTokenData([[1.0, 0.0], [1.0, 9e-7], [1.0, 2e-6]], np.eye(3))
    assert [rows.rows.tolist() for rows in data.near_duplicates()] == [[0, 1]]


@pytest.mark.parametrize("tolerance", [-1e-9, 0.2, np.nan, np.inf])
def test_tolerances_out_of_range_are_refused(tolerance):
    with pytest.raises(ValueError, match=r"tolerance is .* it must lie between 0 and 0\.1"):
        t24(0).near_duplicates(tolerance)
    with pytest.raises(ValueError, match=r"merge_tolerance is .* it must lie between 0 and 0\.1"):
        t24(0).replace(merge_tolerance=tolerance)
    with pytest.raises(TypeError, match="merge_tolerance is of type str"):
        t24(0).replace(merge_tolerance="a")


# -- merging --------------------------------------------------------------------------------------


@given(st.integers(0, 9999), st.sampled_from([0.0, 1e-8]), st.booleans(), st.sampled_from([0, 100]))
def test_rows_of_one_context_are_merged_into_their_means(seed, noise, candidates, named_from):
    rng = np.random.default_rng(seed)
    whole = t24(seed, m=6, candidates=candidates)
    # Each context as one to three rows anywhere, with other frequencies and laws.
    rows = rng.permutation(np.repeat(np.arange(6), rng.integers(1, 4, 6)))
    apart = rearranged(whole, rows)
    H = apart.context_embeddings
    shift = rng.standard_normal(H.shape)
    shift *= noise * apart.context_lengths[:, None] / np.linalg.norm(shift, axis=1, keepdims=True)
    pi = rng.uniform(1, 2, len(rows))
    laws = apart.target_probs * rng.uniform(1, 2, apart.target_probs.shape)
    apart = apart.replace(
        context_embeddings=H + shift,
        target_probs=laws / laws.sum(1, keepdims=True),
        context_probs=pi / pi.sum(),
        context_groups=np.arange(len(rows)) + named_from,
    )
    merged = apart.replace(merge_tolerance=1e-6)
    which = list(dict.fromkeys(rows.tolist()))
    assert merged.merged_rows == tuple(tuple(np.flatnonzero(rows == j).tolist()) for j in which)
    if noise == 0:
        assert_array_equal(merged.context_embeddings, whole.context_embeddings[which])
    for k, some in enumerate(map(list, merged.merged_rows)):
        # Default names are counted anew.
        assert merged.context_groups[k] == (named_from + some[0] if named_from else k)
        if candidates:
            assert_array_equal(merged.candidate_counts[k], apart.candidate_counts[some[0]])
        pi = apart.context_probs[some]
        assert abs(merged.context_probs[k] - pi.sum()) <= 4 * EPS
        for name in ("context_embeddings", "target_probs"):
            mean = pi @ getattr(apart, name)[some] / pi.sum()
            atol = 10 * EPS * np.abs(mean).max()
            assert_allclose(getattr(merged, name)[k], mean, rtol=0, atol=atol)


def test_nothing_to_merge_leaves_the_data_as_they_are():
    data = t24(5)
    merged = data.replace(merge_tolerance=1e-6)
    assert merged.merged_rows == tuple((j,) for j in range(6))
    assert_array_equal(merged.context_embeddings, data.context_embeddings)
    assert data.merged_rows is None
    assert merged.replace(context_probs=None).merged_rows == merged.merged_rows


def test_rows_of_one_group_are_not_merged():
    data = t24(13, m=9, rows=3, size=(1, 2))
    twice = rearranged(data, np.repeat(np.arange(9), 2))
    assert twice.replace(merge_tolerance=1e-9).merged_rows == tuple((j,) for j in range(18))


def test_rows_with_different_candidates_are_not_merged():
    counts = [[1, 1, 0], [1, 1, 1], [1, 2, 0]]
    with pytest.raises(ValueError, match="one context of rows 0 and 2, whose candidate"):
        NextTokenData(
            [[1.0], [2.0], [1.0]],
            [[1, 0, 0]] * 3,
            candidate_counts=counts,
            merge_tolerance=0.01,
        )


@pytest.mark.parametrize("name", ["target_probs", "candidate_counts"])
def test_tables_of_merged_rows_keep_their_names_in_errors(name, monkeypatch):
    counts = [[1, 1], [1, 1], [2, 1]]
    merged = NextTokenData(
        [[1.0], [1.0], [2.0]], np.eye(2)[[0, 0, 1]], candidate_counts=counts, merge_tolerance=0
    )
    monkeypatch.setattr(validation, "DENSE_LIMIT", 3)
    with pytest.raises(ValueError, match=rf"^{name} needs .* 2 × 2 = 4 .*; use sparse_{name},"):
        getattr(merged, name)


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


def test_merged_laws_sum_to_one_and_the_others_stay_to_the_last_bit():
    """Laws may sum to one within 1e-8 only: a mean is normalised, a row that stays is not."""
    off = 1 + 5e-9
    laws = np.array([[0.7, 0.3 * off], [0.2 * off, 0.8], [0.6, 0.4 * off]])
    given_contexts = Contexts(
        embeddings=np.array([[1.0], [1.0 + 1e-9], [3.0]]),
        laws=table.as_table("target_probs", laws),
        probs=np.full(3, 1 / 3),
        counts=None,
        groups=np.arange(3),
    )
    merged, rows = merge(given_contexts, tolerance=1e-6)
    assert rows == ((0, 1), (2,))
    assert abs(merged.laws.dense[0].sum() - 1) <= 2 * EPS
    assert_array_equal(merged.laws.dense[1], laws[2])


def test_equal_contexts_are_found_without_a_tolerance():
    H = np.random.default_rng(0).standard_normal((4, 30))[[0, 1, 0, 2]]
    (found,) = near_duplicates(H, np.arange(4), tolerance=0.0)
    assert found.rows.tolist() == [0, 2]
    assert found.distances.tolist() == [0.0, 0.0]
