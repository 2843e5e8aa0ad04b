"""Stochastic gradients: what is drawn, and for whom."""

import numpy as np
import pytest
from problems import l24, t24

import ntpnb
from ntpnb import SGD, descend

OVER = ["contexts", "sequences"]


MAKE = {
    "T24": lambda s: t24(s, V=4, m=5, d=3),
    "candidates": lambda s: t24(s, V=4, m=6, d=3, rows=2, candidates=True),
    "L24": l24,
}


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("make", MAKE)
def test_each_problem_of_a_batch_has_its_own_draws(make, over):
    """A step goes along the gradient of a dataset that has the frequencies of the sample."""
    problems = [MAKE[make](s) for s in range(3)]
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
            every = data.candidate_counts
            sample = ntpnb.NextTokenData(
                data.context_embeddings[drawn],
                target[drawn] / pi[drawn, None],
                pi[drawn],
                data.token_embeddings,
                None if every is None else every[drawn],
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
