"""L24's random trials and Fig. 2, beyond sizes and kinds: laws, counts, and what they lead to."""

import collections

import numpy as np
import pytest
import reference
from scipy.stats import chisquare, kstest

import ntpnb
from ntpnb import datasets
from ntpnb.datasets import attention_trials, figure2
from ntpnb.tied.finite import restrict


def tokens_of(data, j):
    """Tokens of row j, numbered from one as in the paper."""
    return set((np.flatnonzero(data.candidates[j]) + 1).tolist())


# -- Fig. 2 ---------------------------------------------------------------------------------------


def test_figure_2_s_last_sample_is_the_paper_s_example():
    """O = {3}, R = {1, 3}: its label is its third token, and ties with the first one only."""
    data = figure2()
    assert tokens_of(data, 6) == {1, 2, 4}
    assert data.target_probs[6].argmax() + 1 == data.context_groups[6] + 1 == 2
    assert tokens_of(restrict(data), 6) == {1, 2}


def test_figure_2_s_cyclic_subdataset():
    kept = restrict(figure2())
    assert [tokens_of(kept, j) for j in range(3)] == [{3}, {2}, {4}]  # nothing left to choose
    assert set().union(*(tokens_of(kept, j) for j in range(3, 7))) == {1, 2, 3}
    graph = reference.reachable(kept)[1]
    assert graph[:3, :3][~np.eye(3, dtype=bool)].all()


def test_figure_2_s_solutions_by_hand():
    data = figure2()
    svm, fin = ntpnb.max_margin(data), ntpnb.finite_part(data)
    # G(1) spreads four ranks one apart, ±½ and ±3/2: squares add up to 5. G(2) holds three tied
    # tokens one above the fourth: ¼ and −¾, squares 3/16 + 9/16.
    assert svm.norm**2 == pytest.approx(5 + 0.75, rel=1e-12)
    column = svm.W[:, 0]
    np.testing.assert_allclose(column, [-1.5, 0.5, 1.5, -0.5], atol=1e-12)
    np.testing.assert_allclose(svm.W[:, 1], [0.25, 0.25, 0.25, -0.75], atol=1e-12)
    # the choices among {1, 2, 3} are met by strengths that solve Luce's equations: 1, 1, 4 say
    strength = np.exp(fin.W[:3, 1])
    rows = range(3, 7)
    wins = sum(data.target_probs[j, :3] for j in rows)
    expected = sum(
        np.where(data.candidates[j, :3], strength, 0) / strength[data.candidates[j, :3]].sum()
        for j in rows
    )
    np.testing.assert_allclose(expected, wins, atol=1e-12)
    np.testing.assert_allclose(strength / strength[0], [1, 1, 4], rtol=1e-10)


# -- random trials --------------------------------------------------------------------------------


def test_embeddings_are_uniform_on_the_sphere():
    E = np.concatenate([d.token_embeddings for d in attention_trials(200, "any", dim=3).data])
    # on the sphere in three dimensions every coordinate is uniform (Archimedes); one fixed outcome
    for x in (*E.T, E @ np.full(3, 3**-0.5)):
        assert kstest(x, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_tokens_and_labels_are_uniform():
    trials = attention_trials(400, "any", vocab_size=5, num_sequences=3, length=3)
    assert trials.degenerate == 0  # else what follows would be conditional
    sets, labels = collections.Counter(), collections.Counter()
    for data in trials.data:
        for row, p, last in zip(
            data.candidates, data.target_probs, data.context_groups, strict=True
        ):
            sets[tuple(np.flatnonzero(row))] += 1
            labels[int(np.flatnonzero(row).searchsorted(p.argmax())), int(last) == p.argmax()] += 1
    assert len(sets) == 10  # 5 choose 3
    assert chisquare(list(sets.values())).pvalue > 1e-3  # one fixed outcome
    # among the smallest, middle and largest token, and last or not: 1/3 · (1/3, 2/3)
    cells = [(k, is_last) for k in range(3) for is_last in (True, False)]
    expected = 1200 / 9 * np.array([1, 2] * 3)
    assert chisquare([labels[c] for c in cells], expected).pvalue > 1e-3


def test_priority_labels_follow_one_order_in_each_trial():
    for data in attention_trials(30, labels="priority", tokens="independent").data:
        wins = np.zeros((8, 8), dtype=bool)
        for row, p in zip(data.candidates, data.target_probs, strict=True):
            wins[p.argmax(), np.flatnonzero(row)] = True
        np.fill_diagonal(wins, False)
        above = reference.transitive_closure(wins)
        assert not above.diagonal().any()  # no token above itself, over all last tokens together


def test_degenerate_draws_are_counted_and_left_out():
    trials = attention_trials(
        30, "any", vocab_size=3, dim=3, num_sequences=2, length=2, tokens="independent"
    )
    assert trials.degenerate > 0
    assert trials.rejected == 0
    assert trials.drawn == 30 + trials.degenerate
    assert all(len(ntpnb.token_priority(d).strict) for d in trials.data)


def test_no_trials_are_no_trials():
    assert attention_trials(0) == datasets.TrialSet((), 0, 0, 0)


def test_impossible_sizes_are_refused(monkeypatch):
    monkeypatch.setattr(datasets, "DRAWS", 50)
    with pytest.raises(ValueError, match=r"50 draws gave no 'cyclic' dataset .* need other values"):
        attention_trials(1, "cyclic", num_sequences=1)
