"""The papers' datasets: what is printed about them, and that seeds mean what they say."""

import numpy as np
import pytest
import reference
from problems import same_data
from scipy.stats import kstest

import ntpnb
from ntpnb.datasets import (
    attention_trials,
    figure2,
    lecun_init,
    overparameterized,
    toy,
    uniform_init,
)

# -- T24 ------------------------------------------------------------------------------------------


def test_toy_is_the_paper_s():
    data = toy()
    supports = [set((np.flatnonzero(s) + 1).tolist()) for s in data.support]
    assert supports == [{2, 3, 4}, {1, 4, 5}, {1, 2, 5}]
    assert data.shape == (5, 2)
    assert data.context_probs.tolist() == [1 / 3] * 3
    assert abs(data.entropy - 0.8811) < 5e-5  # Fig. 1 prints four digits
    # the origin is strictly inside the triangle of the embeddings: positive weights cancel it
    A = np.vstack([data.context_embeddings.T, np.ones(3)])
    assert (np.linalg.solve(A, [0, 0, 1]) > 0).all()
    assert ntpnb.finite_part(data).compatible


def test_overparameterized_has_the_paper_s_sizes_and_entropy():
    data = overparameterized()
    assert data.target_probs.shape == (50, 10)
    assert data.shape == (10, 60)
    assert (data.support.sum(1) == 6).all()
    assert f"{data.entropy:.3f}" == "1.445"  # App. A of 002 prints three digits
    assert data.context_probs.tolist() == [1 / 50] * 50
    assert np.linalg.matrix_rank(data.context_embeddings) == 50


def test_overparameterized_entropy_is_chosen_by_its_seed():
    # few seeds round to the printed number, so that the default one does is no evidence for the law
    rounds = [f"{overparameterized(seed, dim=1).entropy:.3f}" == "1.445" for seed in range(400)]
    assert 0 < sum(rounds) < 20


def test_overparameterized_laws_are_as_stated():
    sets = [overparameterized(seed, num_contexts=200, dim=20) for seed in range(5)]
    H = np.concatenate([d.context_embeddings.ravel() for d in sets])
    # with fixed seeds this is one fixed outcome; a wrong law fails by many orders of magnitude
    assert kstest(H, "norm").pvalue > 1e-3
    # uniform on the simplex of 6: one probability is Beta(1, 5)
    p = np.concatenate([d.target_probs[np.arange(200), d.support.argmax(1)] for d in sets])
    assert kstest(p, "beta", args=(1, 5)).pvalue > 1e-3
    counts = sum(d.support.sum(0) for d in sets)
    assert np.abs(counts / 1000 - 0.6).max() <= 5 * np.sqrt(0.24 / 1000)  # five deviations


def test_seeds_repeat_and_differ():
    assert same_data(overparameterized(3), overparameterized(3))
    assert not same_data(overparameterized(3), overparameterized(4))
    data = toy()
    for init in (lecun_init, uniform_init):
        np.testing.assert_array_equal(init(data, 5), init(data, 5))
        assert (init(data, 5) != init(data, 6)).all()
        assert init(data, 5).shape == data.shape


def test_initializations_have_their_laws():
    data = overparameterized(dim=400)
    scaled = lecun_init(data, 1) * 20
    assert kstest(scaled.ravel(), "norm").pvalue > 1e-3  # one fixed outcome, as above
    scaled = uniform_init(data, 1) * 20
    assert np.abs(scaled).max() <= 1
    assert kstest(scaled.ravel(), "uniform", args=(-1, 2)).pvalue > 1e-3


def test_all_tokens_may_be_in_every_support():
    assert overparameterized(support_size=10).support.all()


# -- L24 ------------------------------------------------------------------------------------------


def test_figure_2_has_the_stated_embeddings_and_last_tokens():
    """Counted from one, as the caption does.

    Its graphs are in `test_priority`; its cyclic rows and its solutions in `test_trials`.
    """
    data = figure2()
    np.testing.assert_array_equal(data.token_embeddings, np.eye(4))
    assert (data.context_groups + 1).tolist() == [1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("kind", "sizes"), [("acyclic", (8, 8, 4, 6)), ("cyclic", (6, 8, 6, 4)), ("any", (8, 8, 4, 6))]
)
def test_trials_are_of_their_kind(kind, sizes):
    K, d, n, T = sizes
    trials = attention_trials(20, kind)
    assert len(trials.data) == 20
    assert trials.drawn == 20 + trials.rejected + trials.degenerate
    assert (kind == "any") == (trials.rejected == 0)
    for data in trials.data:
        assert data.token_embeddings.shape == (K, d)
        assert data.target_probs.shape == (n, K)
        # on the unit sphere, to the rounding of a norm
        assert np.abs(np.linalg.norm(data.token_embeddings, axis=1) - 1).max() <= 1e-15
        assert (data.candidate_counts.sum(1) == T).all()
        assert data.candidate_counts.max() == 1
        assert reference.strict_pairs(data)
        if kind != "any":
            assert bool(reference.equal_pairs(data)) == (kind == "cyclic")


def test_a_trial_does_not_depend_on_how_many_there_are():
    few, many = attention_trials(3, "cyclic", seed=7), attention_trials(6, "cyclic", seed=7)
    assert all(map(same_data, few.data, many.data))
    assert not same_data(few.data[0], attention_trials(1, "cyclic", seed=8).data[0])
    assert not same_data(few.data[0], few.data[1])


def test_laws_of_tokens_and_labels():
    independent = attention_trials(20, "any", tokens="independent")
    assert max(d.candidate_counts.max() for d in independent.data) > 1
    assert all((d.candidate_counts.sum(1) == 6).all() for d in independent.data)
