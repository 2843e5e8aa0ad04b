"""Threshold formulas against closed forms; the search against a full scan."""

import io
import os
import signal
import sys

import numpy as np
import pytest
from joblib import parallel_config

import ntpnb
from ntpnb import thresholds


def test_thresholds_in_closed_form():
    assert thresholds.separability_threshold(2, 1) == pytest.approx(1 / 2, abs=1e-14)
    for S in range(1, 12):
        one = thresholds.separability_threshold(S + 1, S)  # one token outside: tied half the time
        assert one == pytest.approx((S - 1 / 2) / S, abs=1e-13)
        two = (S - np.arcsin(1 / (S + 1)) / np.pi) / (S + 1)  # two: a plane, hence an arcsine
        assert thresholds.separability_threshold(S + 2, S) == pytest.approx(two, abs=1e-13)
        assert thresholds.separability_threshold(S + 1, S + 1) == 1
        assert thresholds.compatibility_threshold(S + 1, S) == pytest.approx((S - 1) / S)
    assert thresholds.transition_width(2, 1, 100) == pytest.approx(0.05, abs=1e-13)


def test_unequal_supports_are_averaged_and_spread_wider():
    mixed = {1: 0.25, 4: 0.75}
    for f in (thresholds.separability_threshold, thresholds.compatibility_threshold):
        assert f(6, mixed) == pytest.approx(0.25 * f(6, 1) + 0.75 * f(6, 4))
        assert f(6, {3: 1.0}) == f(6, {3: 1.0, 5: 0.0}) == f(6, 3)
    within = [thresholds.transition_width(6, S, 9) ** 2 for S in (1, 4)]
    means = [thresholds.separability_threshold(6, S) for S in (1, 4)]
    between = 0.25 * 0.75 * (means[1] - means[0]) ** 2 / 9
    expected = np.sqrt(0.25 * within[0] + 0.75 * within[1] + between)
    assert thresholds.transition_width(6, mixed, 9) == pytest.approx(expected)


def test_integers_of_other_types_are_the_same_sizes():
    expected = thresholds.separability_threshold(7, 3)
    assert thresholds.separability_threshold(7.0, {np.uint8(3): 1}) == expected
    assert thresholds.random_data(np.random.default_rng(0), 7.0, 3.0, 4.0).shape == (7, 4)


def test_random_data_have_the_sizes_asked_for():
    rng = np.random.default_rng(0)
    assert (thresholds.random_data(rng, 6, 4, 50).support.sum(1) == 4).all()
    sizes = thresholds.random_data(rng, 6, {1: 0.3, 5: 0.7}, 400).support.sum(1)
    assert set(sizes) == {1, 5}
    assert abs((sizes == 5).mean() - 0.7) < 4 * np.sqrt(0.21 / 400)


@pytest.mark.parametrize("top", [1, 2, 7, 30])
def test_search_finds_every_first_from_every_start(top):
    for first in range(1, top + 2):
        for guess, step in ((0, 1), (top / 2, 3), (2 * top, 0.1), (first, 5)):
            found = thresholds.first_true(lambda d, f=first: d >= f, top, guess, step)
            assert found == (first - 1, first)


@pytest.mark.parametrize(
    ("first", "guess", "step", "expected"),
    [
        (22, 1, 4, [1, 5, 13, 29, 21, 25, 23, 22]),
        (9, 1, 8, [1, 9, 5, 7, 8]),
        (3, 20, 2, [20, 18, 14, 6, 1, 3, 2]),
        (4, 1, 0.5, [1, 2, 4, 3]),
    ],
)
def test_search_doubles_its_steps_until_it_has_seen_both_verdicts_and_then_bisects(
    first, guess, step, expected
):
    asked = []

    def holds(d):
        asked.append(d)
        return d >= first

    assert thresholds.first_true(holds, top=100, guess=guess, step=step) == (first - 1, first)
    assert asked == expected


def test_undecided_dimensions_widen_the_bracket_only():
    def holds(d):
        if d in (2, 11, 12, 17):
            raise ntpnb.ConvergenceError("undecided", 1.0)
        return d >= 12

    for guess in (1, 11, 12, 30):
        assert thresholds.first_true(holds, top=20, guess=guess, step=2) == (10, 13)


def verdicts_in_every_dimension(data, holds):
    H = data.context_embeddings
    return [
        holds(ntpnb.NextTokenData(H[:, :d], data.target_probs)) for d in range(1, H.shape[1] + 1)
    ]


def test_a_single_token_is_separated_in_the_first_dimension():
    with np.errstate(all="raise"):
        found = thresholds.first_dimension(ntpnb.NextTokenData([[1.0, 2.0]], [[1.0]]))
    assert found == (0, 1)


def test_first_dimension_keeps_candidates_and_token_embeddings():
    data = ntpnb.NextTokenData([[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    apart = data.replace(candidate_counts=[[1, 0, 1], [0, 1, 1]])
    assert thresholds.first_dimension(apart) == (0, 1)  # the two targets never compete
    on_a_line = data.replace(token_embeddings=[[1.0], [2.0], [-1.0]])
    assert thresholds.first_dimension(on_a_line) == (2, 3)  # the first target lies between others


@pytest.mark.parametrize("sizes", [1, pytest.param(3, marks=pytest.mark.slow), {1: 0.5, 2: 0.5}])
@pytest.mark.parametrize("holds", [ntpnb.is_separable, thresholds.independent_equations])
def test_first_dimension_is_that_of_a_full_scan_and_verdicts_are_monotone(sizes, holds):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        data = thresholds.random_data(rng, vocab_size=4, support_size=sizes, num_contexts=10)
        verdicts = verdicts_in_every_dimension(data, holds)
        assert verdicts == sorted(verdicts)
        first = verdicts.index(True) + 1
        assert thresholds.first_dimension(data, holds) == (first - 1, first)


@pytest.mark.slow
def test_independent_equations_are_compatibility_of_random_laws():
    for seed in range(24):
        data = thresholds.random_data(np.random.default_rng(seed), 4, {2: 0.5, 3: 0.5}, 5)
        compatible = verdicts_in_every_dimension(
            data, lambda part: ntpnb.finite_part(part).compatible
        )
        independent = verdicts_in_every_dimension(data, thresholds.independent_equations)
        assert independent == compatible


@pytest.mark.slow
def test_cover_law_of_two_tokens():
    """One-hot labels of two tokens: P(D <= d) is binomial, for every finite number of contexts."""
    num_contexts, num_draws = 6, 200
    [brackets] = thresholds.sweep([(2, 1, num_contexts)], num_draws, seed=3)
    first = brackets[:, 1]
    deviation = np.sqrt((num_contexts - 1) / 4)
    assert abs(first.mean() - (num_contexts + 1) / 2) < 4 * deviation / np.sqrt(num_draws)
    assert 0.8 < first.std() / deviation < 1.2  # four standard errors of 200 draws


@pytest.mark.parametrize(("named", "seed"), [({}, 0), ({"seed": 1}, 1)])
def test_sweep_draws_each_dataset_from_the_seed_and_its_number(named, seed):
    cells = [(3, 1, 6), (4, 2, 5)]
    found = np.concatenate(thresholds.sweep(cells, 3, **named))
    for number, bracket in enumerate(found):
        data = thresholds.random_data(np.random.default_rng([seed, number]), *cells[number // 3])
        assert tuple(bracket) == thresholds.first_dimension(data)


def test_sweep_shows_in_a_terminal_how_many_of_all_datasets_are_done(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    thresholds.sweep([(3, 1, 6), (4, 2, 5)], trials=2)
    assert "| 4/4 [" in terminal.getvalue()


CELLS = [(3, 1, 12), (4, {1: 0.5, 3: 0.5}, 16)]
TRIALS = (5, 3)


@pytest.mark.slow
def test_sweep_does_not_depend_on_the_number_of_jobs():
    alone = thresholds.sweep(CELLS, TRIALS, seed=1)
    parallel = thresholds.sweep(CELLS, TRIALS, seed=1, n_jobs=2)
    assert [len(brackets) for brackets in alone] == list(TRIALS)
    np.testing.assert_array_equal(np.concatenate(alone), np.concatenate(parallel))


def assert_as_in_one_process(brackets):
    alone = thresholds.sweep(CELLS, TRIALS, seed=1)
    np.testing.assert_array_equal(np.concatenate(brackets), np.concatenate(alone))


# The page on scaling out shows this test and the next one.


@pytest.mark.slow
def test_sweep_runs_on_a_dask_cluster(cluster):
    with parallel_config(backend="dask"):
        brackets = thresholds.sweep(CELLS, TRIALS, seed=1)
    assert len(cluster.scheduler_info()["workers"]) == 2
    assert_as_in_one_process(brackets)


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_datasets_a_second_try(cluster):
    worker, _ = cluster.run(os.getpid).values()
    left = [worker]

    def kill_it(_):
        if left:
            os.kill(left.pop(), signal.SIGKILL)

    with parallel_config(backend="dask"):
        brackets = thresholds.sweep(CELLS, TRIALS, seed=1, progress=kill_it)
    assert worker not in cluster.run(os.getpid).values()
    assert_as_in_one_process(brackets)
