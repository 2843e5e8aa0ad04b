"""Gradient methods against textbook loops, alone and in batches; what a run records."""

import numpy as np
import pytest
import reference
from problems import l24, regimes, start, t24

import ntpnb
from ntpnb import GD, NGD, Adam, NextTokenData, descend
from ntpnb.training.batch import ProblemBatch

SAMPLE = {
    name: regimes()[name]
    for name in (
        "d < m",
        "groups of several rows",
        "candidates, groups, tokens",
        "attention, cyclic",
        "attention, one token",
        "all embeddings zero",
    )
} | {"many tokens": t24(12, V=40, m=5, d=4, size=(1, 30))}


# -- textbook loops -------------------------------------------------------------------------------


def plain_gd(data, W, step, steps, normalized=False):
    for _ in range(steps):
        g = reference.gradient(W, data)
        if normalized:
            g = g / (np.linalg.norm(g) or 1.0)
        W = W - step * g
    return W


def plain_adam(data, W, step, steps, beta1=0.9, beta2=0.999):
    """Kingma & Ba 2015, Algorithm 1, entry by entry."""
    W = W.copy()
    m, v = np.zeros(W.shape), np.zeros(W.shape)
    for t in range(1, steps + 1):
        g = reference.gradient(W, data)
        for entry in np.ndindex(W.shape):
            m[entry] = beta1 * m[entry] + (1 - beta1) * g[entry]
            v[entry] = beta2 * v[entry] + (1 - beta2) * g[entry] ** 2
            m_hat = m[entry] / (1 - beta1**t)
            v_hat = v[entry] / (1 - beta2**t)
            W[entry] -= step * m_hat / (v_hat**0.5 + 1e-8)
    return W


METHODS = {
    "GD": (GD(step=0.1), plain_gd, {}),
    "NGD": (NGD(step=0.05), plain_gd, {"normalized": True}),
    "Adam": (Adam(step=0.02), plain_adam, {}),
    "Adam, T24": (Adam(0.02, beta1=0.8, beta2=0.99), plain_adam, {"beta1": 0.8, "beta2": 0.99}),
    "Adam without memory": (Adam(0.02, beta1=0, beta2=0), plain_adam, {"beta1": 0, "beta2": 0}),
}


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("method", METHODS)
def test_runs_match_textbook_loops(method, name):
    data = SAMPLE[name]
    ours, textbook, options = METHODS[method]
    run = descend(data, ours, 20, init=start(data), record=[0, 1, 7, 20])
    assert run.steps.tolist() == [0, 1, 7, 20]
    assert run.W.shape == (4, *data.shape)
    for k, W in zip(run.steps, run.W, strict=True):
        # 20 steps of size at most one, in another summation order; Adam's division by small
        # second moments magnifies rounding of tiny gradient entries
        expected = textbook(data, start(data), ours.step, int(k), **options)
        assert np.abs(W - expected).max() <= 1e-12
    np.testing.assert_array_equal(run.W[0], start(data))


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m, *_ in METHODS.values()], ids=list(METHODS))
@pytest.mark.parametrize(
    "make",
    [
        lambda s: t24(s, V=5, m=7, d=4),
        lambda s: t24(s, V=5, m=7, d=4, rows=1 + s % 2, candidates=s % 2 == 1),
        lambda s: t24(s, V=4, m=5, d=6, tokens=3, candidates=s == 2),
        lambda s: l24(s, K=6, d=5, n=7, T=4),
    ],
    ids=["T24", "some with counts", "token embeddings", "L24"],
)
def test_a_batch_is_each_problem_alone(method, make):
    problems = [make(s) for s in range(4)]
    init = np.stack([start(d, s) for s, d in enumerate(problems)])
    batch = descend(problems, method, 50, init=init, record=[0, 10, 50])
    assert batch.steps.tolist() == [0, 10, 50]
    for i, data in enumerate(problems):
        alone = descend(data, method, 50, init=init[i], record=[0, 10, 50])
        for field in ("W", "loss", "excess", "norm"):
            found, expected = getattr(batch, field), getattr(alone, field)
            assert found.shape == (4, *expected.shape)
            # fifty steps of size at most 0.1, in another summation order
            assert np.abs(found[i] - expected).max() <= 1e-12


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_problem_that_is_not_learned_hides_no_digits_of_one_that_is(others):
    """The likeliest token of the last has all but ``e^-60``: one, in floating point."""
    data = NextTokenData([[1.0]], [[1.0, 0.0]])
    W = np.zeros((others + 1, 2, 1))
    W[-1, 0] = 60.0
    found = ProblemBatch([data] * (others + 1)).gradient(W)[-1]
    np.testing.assert_allclose(found.ravel(), [-np.exp(-60.0), np.exp(-60.0)], rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        ntpnb.SteepestDescent(0.25, "max", normalized=True),
        Adam(0.25, beta1=0.5, beta2=0.5, epsilon=0.0),
    ],
    ids=["signs", "Adam"],
)
def test_a_context_that_bounces_hides_none_that_is_nearly_learned(method):
    # The second context bounces around its odds; the first one's likeliest token goes on growing
    # as its others fall, also where its probability rounds to one.
    data = NextTokenData(np.eye(2), [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    init = [[0.0, 0.3], [0.0, 0.05], [0.0, 0.0]]
    W = descend(data, method, 300, init, record=[300]).W[0]
    [in_batch] = descend([data, data], method, 300, [init, init], record=[300]).W[0]
    np.testing.assert_allclose(W, in_batch, rtol=1e-9)
    np.testing.assert_allclose(W[0, 0], -W[1:, 0], rtol=1e-12)


@pytest.mark.parametrize(
    ("embeddings", "laws"),
    [
        ([[0.0, 0.0]], [[0.6, 0.4, 0.0]]),
        ([[0.0, 1e-40]], [[0.6, 0.4, 0.0]]),
        ([[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    ],
    ids=["zero", "short", "contradicting"],
)
def test_contexts_that_can_not_be_learned_hide_none_that_is(embeddings, laws):
    # Normalized steps depend on the direction of the gradient alone: on that of the last context,
    # whose likeliest token has all but e^-40, since the others' gradients are next to nothing.
    init = [[0.0, 20.0], [0.0, 0.0], [-800.0, 0.0]]
    method = NGD(0.1)
    learned = NextTokenData([[0.0, 2.0]], [[1.0, 0.0, 0.0]])
    data = NextTokenData([*embeddings, [0.0, 2.0]], [*laws, [1.0, 0.0, 0.0]])
    W = descend(data, method, 5, init, [5]).W[0]
    alone = descend(learned, method, 5, init, [5]).W[0]
    np.testing.assert_allclose(W, alone, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-200])
def test_a_tiny_epsilon_is_no_other_than_none(epsilon):
    # At the start gradients are 1e-174, whose squares are zero in floating point.
    data = NextTokenData([[1.0]], [[1.0, 0.0]])
    init = [[200.0], [-200.0]]
    runs = [descend(data, Adam(1.0, epsilon=e), 3, init).W for e in (epsilon, 0.0)]
    np.testing.assert_allclose(*runs, rtol=1e-12)


def test_a_tiny_epsilon_is_as_large_as_a_gradient_of_its_size():
    # The first step is g / (|g| + ε): half a step where ε is the gradient's own size, e^-400.
    data = NextTokenData([[1.0]], [[1.0, 0.0]])
    W = descend(data, Adam(1.0, epsilon=np.exp(-400)), 1, init=[[200.0], [-200.0]]).W
    np.testing.assert_allclose(W[1] - W[0], [[0.5], [-0.5]], rtol=1e-12)


@pytest.mark.parametrize(
    ("data", "is_cheaper"),
    [(t24(0, m=7, d=4), True), (t24(0, m=8, d=4), False), (t24(0, m=7, d=4, tokens=3), False)],
    ids=["few contexts", "many contexts", "token embeddings"],
)
def test_descent_is_prepared_on_scores_where_that_is_cheaper(data, is_cheaper):
    gram = ProblemBatch([data]).gram
    if is_cheaper:
        H = data.context_embeddings
        np.testing.assert_allclose(gram, [H @ H.T], atol=1e-13)  # sums of four products
    else:
        assert gram is None


def test_a_batch_of_one_keeps_its_axis():
    data = t24(6)
    assert descend((data,), GD(0.1), 3, record=[3]).W.shape == (1, 1, *data.shape)


# -- what a trace holds ---------------------------------------------------------------------------


def test_a_trace_describes_its_matrices():
    for data in (t24(7), l24(7)):
        run = descend(data, GD(0.2), 100)
        np.testing.assert_array_equal(run.loss, ntpnb.cross_entropy(run.W, data))
        np.testing.assert_array_equal(run.excess, ntpnb.excess_loss(run.W, data))
        np.testing.assert_array_equal(run.norm, np.linalg.norm(run.W, axis=(1, 2)))
        assert not run.W[0].any()  # the default start


@pytest.mark.parametrize("steps", [0, 1, 5, 1000, 10_000])
def test_the_default_grid_is_logarithmic_with_both_ends(steps):
    grid = descend(NextTokenData([[1.0]], [[1.0, 0.0]]), GD(0.1), steps).steps
    assert grid.tolist()[:5] == list(range(min(steps + 1, 5)))
    assert grid[-1] == steps
    assert (np.diff(grid) > 0).all()
    assert min(steps, 130) <= len(grid) <= 200
    gaps = np.diff(np.log(grid[grid > 1000]))
    # whole numbers cannot be evenly spaced in log
    assert gaps.max(initial=0.0) <= 1.5 * gaps.min(initial=np.inf)


def test_a_record_may_stop_early_and_be_a_single_step():
    data = t24(8)
    whole = descend(data, GD(0.1), 250, record=range(251))
    for k in (4, 230):  # before and after the scores are made anew
        part = descend(data, GD(0.1), 250, record=[k])
        np.testing.assert_array_equal(part.W[0], whole.W[k])


def test_gd_reaches_a_finite_minimum_to_the_last_digits():
    data = ntpnb.datasets.toy()
    turned = NextTokenData(
        data.context_embeddings * [[-1.0], [1.0], [1.0]], data.target_probs
    )  # not separable
    last = descend(turned, GD(0.5), 20_000, record=[20_000]).W[0]
    # rounding of the gradient's own terms, which are of order one
    assert np.linalg.norm(ntpnb.gradient(last, turned)) <= 1e-14


def test_the_start_is_left_alone():
    data = t24(9)
    W = start(data)
    run = descend(data, GD(0.1), 2, init=W)
    run.W[0] = 0
    np.testing.assert_array_equal(W, start(data))
    np.testing.assert_array_equal(descend(data, GD(0.1), 2, init=W.tolist()).W[1:], run.W[1:])


# -- what is refused ------------------------------------------------------------------------------


def test_a_step_that_overflows_is_refused_in_words_and_warns_of_nothing():
    data = NextTokenData([[1e39]], [[0.3, 0.7]])
    with np.errstate(all="raise"):
        assert not descend(data, GD(1e250), 0).W.any()
        for problem, method in [(data, GD(1e250)), (t24(0), NGD(1e308)), (t24(0), Adam(1e308))]:
            with pytest.raises(ValueError, match="too large: after 1 step"):
                descend(problem, method, 1)
