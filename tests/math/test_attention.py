"""General heads and losses, pseudo graphs, and what batches share, against slow loops."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from problems import l24, start, t24

from ntpnb import GD, NGD, Adam
from ntpnb.attention import (
    attention_mass,
    cross_entropy,
    descend_head,
    pseudo_data,
    softmax_squared,
    squared,
)

# As printed, of the outputs o and their softmax p, at the label y.
LOSSES = {
    squared: lambda o, p, y: (1 - o[y]) ** 2,
    softmax_squared: lambda o, p, y: (1 - p[y]) ** 2,
    cross_entropy: lambda o, p, y: -mp.log(p[y]),
}


def normalized(masses):
    return [mass / mp.fsum(masses) for mass in masses]


def random_head(data, seed=1):
    return np.random.default_rng(seed).standard_normal(data.token_embeddings.shape)


def risk_by_loops(W, data, loss, head):
    """Mean over rows of the loss of ``C Eᵀ q_j``, number by number, as L24 prints it."""
    E, V = data.token_embeddings, data.vocab_size
    total = 0.0
    for j, pi in enumerate(data.context_probs):
        q = reference.model_probs(W, data, j)
        x = sum(q[v] * E[v] for v in range(V))  # Xᵀ s
        o = [float(c @ x) for c in head]
        y = int(data.target_probs[j].argmax())
        total += pi * float(LOSSES[loss](o, normalized([mp.exp(x) for x in o]), y))
    return total


def central_differences(f, W, h=1e-5):
    G = np.zeros(W.shape)
    for at in np.ndindex(W.shape):
        E = np.zeros(W.shape)
        E[at] = h
        G[at] = (f(W + E) - f(W - E)) / (2 * h)
    return G


# -- training with a head -------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("default", [False, True], ids=["a head", "the embeddings"])
@pytest.mark.parametrize("loss", LOSSES)
def test_risk_and_gradient(loss, default, repeats):
    data = l24(50, K=5, d=3, n=4, T=4, repeats=repeats)
    head = data.token_embeddings if default else random_head(data)
    W = start(data)
    run = descend_head(
        data, loss, GD(1.0), 1, init=W, record=[0, 1], head=None if default else head
    )
    # sums of a few products of numbers of size one
    assert abs(run.loss[0] - risk_by_loops(W, data, loss, head)) <= 1e-13
    assert abs(run.loss[1] - risk_by_loops(run.W[1], data, loss, head)) <= 1e-12
    numeric = central_differences(lambda w: risk_by_loops(w, data, loss, head), W)
    # central differences: h² of a third derivative, and rounding over h
    assert np.abs(W - run.W[1] - numeric).max() <= 1e-7
    np.testing.assert_array_equal(run.norm, np.linalg.norm(run.W, axis=(1, 2)))
    np.testing.assert_array_equal(run.W[0], W)


@pytest.mark.parametrize("size", [1e3, 1e6])
@pytest.mark.parametrize("loss", [softmax_squared, cross_entropy])
def test_losses_of_huge_outputs_are_finite(loss, size):
    o = np.array([[[0.0], [size]]])
    for y, worst in ((0, {softmax_squared: 1.0, cross_entropy: size}[loss]), (1, 0.0)):
        value, slope = loss(o, np.array([[[y]]]))
        assert value[0, 0] == worst
        assert np.isfinite(slope).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1, 10, 40])
def test_gradients_keep_their_digits_when_attention_saturates(loss, scale):
    data = l24(57, K=5, d=6, n=1, T=4)  # one row: no other hides its rounding
    W = scale * start(data)
    E, [h], [counts] = data.token_embeddings, data.context_embeddings, data.candidate_counts
    y = int(data.target_probs.argmax())

    def risk(*scores):
        q = normalized([c * mp.exp(x) for c, x in zip(counts, scores, strict=True)])
        o = mp.matrix((E @ E.T).tolist()) * mp.matrix(q)  # c_k · e_v
        return LOSSES[loss](o, normalized([mp.exp(x) for x in o]), y)

    with mp.workdps(600):  # differences of numbers down to e^(−400)
        scores = list(mp.matrix(E.tolist()) * (mp.matrix(W.tolist()) * mp.matrix(h.tolist())))
        slopes = [mp.diff(risk, tuple(scores), tuple(row)) for row in np.eye(5, dtype=int)]
        direction = np.array([float(slope / mp.norm(slopes)) for slope in slopes])
    direction = np.outer(E.T @ direction, h)
    run = descend_head(data, loss, NGD(1.0), 1, init=W, record=[1])
    # scores of size 40 times ten, whose exponentials carry that many roundings
    expected = direction / np.linalg.norm(direction)
    assert np.abs(W - run.W[0] - expected).max() <= 1e-11


@pytest.mark.parametrize("method", [GD(0.3), NGD(0.05), Adam(0.02)], ids=["GD", "NGD", "Adam"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_is_each_problem_alone(loss, method):
    problems = [l24(s, K=5, d=3, n=4, T=4, repeats=s == 1) for s in range(3)]
    init = np.stack([start(d, s) for s, d in enumerate(problems)])
    heads = np.stack([random_head(d, s) for s, d in enumerate(problems)])
    batch = descend_head(problems, loss, method, 30, init=init, record=[0, 30], head=heads)
    shared = descend_head(problems, loss, method, 30, init=init, record=[0, 30], head=heads[0])
    assert batch.W.shape == (3, 2, 3, 3)
    assert batch.loss.shape == batch.norm.shape == (3, 2)
    for i, data in enumerate(problems):
        for run, head in ((batch, heads[i]), (shared, heads[0])):
            alone = descend_head(data, loss, method, 30, init=init[i], record=[0, 30], head=head)
            # thirty steps of size at most one, in another summation order
            assert np.abs(run.W[i] - alone.W).max() <= 1e-11
            assert np.abs(run.loss[i] - alone.loss).max() <= 1e-12


def test_training_starts_at_zero_and_lowers_the_risk():
    data = l24(52)
    run = descend_head(data, cross_entropy, GD(0.01), 200)
    assert not run.W[0].any()
    assert run.steps[[0, -1]].tolist() == [0, 200]
    assert (np.diff(run.loss) < 0).all()


# -- attention and its pseudo graphs --------------------------------------------------------------


@pytest.mark.parametrize("data", [l24(53, repeats=True), t24(53, candidates=True, tokens=3)])
def test_mass_is_the_law_of_each_row(data):
    W = start(data)
    mass = attention_mass(W, data)
    for j in range(len(mass)):
        miss = mass[j] - reference.model_probs(W, data, j)
        assert np.abs(miss).max() <= 1e-14  # rounding of one softmax
    np.testing.assert_array_equal(attention_mass(np.stack([W, 0 * W]), data)[0], mass)
    assert (attention_mass(1e6 * W, data).sum(1) == pytest.approx(1, abs=1e-14)) is True


THRESHOLDS = [{}, {"threshold": 0.15, "ignore_below": 0.15}, {"ignore_below": 1e-5}]


@given(st.integers(0, 999), st.floats(0.1, 30), st.sampled_from(THRESHOLDS))
def test_pseudo_data_partition_every_row(seed, scale, options):
    data = l24(seed, repeats=seed % 2 == 0)
    W = scale * start(data, seed)
    mass, found = attention_mass(W, data), pseudo_data(W, data, **options)
    threshold, below = options.get("threshold", 1e-2), options.get("ignore_below", 9e-3)
    is_unclear = (below < mass) & (mass <= threshold)
    np.testing.assert_array_equal(found.support, mass > threshold)
    expected = np.where(is_unclear, 0, data.candidate_counts)
    np.testing.assert_array_equal(found.candidate_counts, expected)
    kept = np.where(mass > threshold, mass, 0)
    np.testing.assert_allclose(found.target_probs, kept / kept.sum(1, keepdims=True), rtol=1e-14)
    # sixths that are added up and divided by their sum again
    np.testing.assert_allclose(found.context_probs, data.context_probs, rtol=1e-15)
    for name in ("context_embeddings", "token_embeddings", "context_groups"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name))
