"""Stochastic gradients: what is drawn, for whom, and that it averages to the gradient."""

import numpy as np
import pytest
from problems import l24, start, t24

import ntpnb
from ntpnb import SGD, descend

OVER = ["contexts", "sequences"]


def stochastic_gradients(data, W, n, **options):
    """Successive gradients of one run whose steps are too small to leave W: good to 1e-5."""
    run = descend(data, SGD(1e-9, **options), n, init=W, record=range(n + 1))
    return -np.diff(run.W, axis=0) / 1e-9


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize(
    "data", [t24(60, V=4, m=5, d=3), t24(60, V=4, m=6, d=3, rows=2, candidates=True), l24(60)]
)
def test_stochastic_gradients_average_to_the_gradient(data, over):
    W = start(data)
    n = 4000
    steps = stochastic_gradients(data, W, n, batch_size=2, seed=3, over=over)
    error = steps.mean(0) - ntpnb.gradient(W, data)
    # five standard deviations of a mean, and how well the steps are known
    assert (np.abs(error) <= 5 * steps.std(0) / np.sqrt(n) + 1e-5).all()
    assert steps.std(0).max() > 1e-3


def test_variance_falls_with_the_batch_and_with_whole_laws():
    data = t24(61, V=4, m=5, d=3, size=3)
    W = start(data)

    def variance(**options):
        return stochastic_gradients(data, W, 2000, seed=1, **options).var(0).sum()

    # variances of 2000 draws are known to about five percent
    for over in OVER:
        assert variance(over=over) == pytest.approx(
            16 * variance(over=over, batch_size=16), rel=0.2
        )
    # a context's whole law is the mean of its next tokens: averaging cannot add variance
    assert variance(over="contexts") < variance(over="sequences")


@pytest.mark.parametrize("over", OVER)
def test_each_problem_of_a_batch_has_its_own_draws(over):
    problems = [t24(s, V=4, m=5, d=3) for s in range(3)]
    method = SGD(0.2, batch_size=4, seed=9, over=over)
    run = descend(problems, method, 10, record=[10])
    for i, data in enumerate(problems):
        W, rng = np.zeros(data.shape), np.random.default_rng([9, i])
        joint = (data.context_probs[:, None] * data.target_probs).T
        law = data.context_probs if over == "contexts" else joint.ravel()
        for _ in range(10):
            counts = rng.multinomial(4, law / law.sum()) / 4
            if over == "contexts":
                target = counts[:, None] * data.target_probs
            else:
                target = counts.reshape(joint.shape).T
            pi = target.sum(1)
            drawn = pi > 0
            sample = ntpnb.NextTokenData(
                data.context_embeddings[drawn], target[drawn] / pi[drawn, None], pi[drawn]
            )
            W = W - 0.2 * ntpnb.gradient(W, sample)
        # ten steps of size at most one
        assert np.abs(run.W[i, 0] - W).max() <= 1e-12


@pytest.mark.parametrize("over", OVER)
def test_what_is_recorded_does_not_change_what_is_drawn(over):
    data = t24(62)
    method = SGD(0.1, seed=4, over=over)
    whole = descend(data, method, 600, record=range(601)).W  # beyond one block of draws
    some = descend(data, method, 600, record=[3, 256, 257, 600]).W
    np.testing.assert_array_equal(some, whole[[3, 256, 257, 600]])
    assert (np.abs(np.diff(whole, axis=0)).max(axis=(1, 2)) > 0).all()
