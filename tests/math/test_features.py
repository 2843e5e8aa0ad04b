"""Features that train too: the nuclear-norm problem, its path, joint descent and its late flow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ntpnb
from ntpnb import NextTokenData, datasets
from ntpnb_book import cosine, features


def supports(seed, contexts=None, tokens=None):
    """A random table of supports without empty rows."""
    rng = np.random.default_rng([18, seed])
    m = rng.integers(2, 8) if contexts is None else contexts
    V = rng.integers(3, 8) if tokens is None else tokens
    table = rng.random((m, V)) < rng.uniform(0.2, 0.7)
    table[np.arange(m), rng.integers(0, V, m)] = True
    return table


def problem(seed, contexts=4, tokens=5):
    """Random laws and frequencies on random supports; the embeddings do not count."""
    rng = np.random.default_rng([19, seed])
    table = supports(seed, contexts, tokens)
    laws = np.where(table, rng.uniform(0.2, 1, table.shape), 0)
    laws /= laws.sum(axis=1, keepdims=True)
    return NextTokenData(np.eye(contexts), laws, rng.dirichlet(np.full(contexts, 5.0)))


def ring(tokens, size):
    """Each context is followed by neighbours on a ring of words."""
    offset = (np.arange(tokens) - np.arange(tokens)[:, None]) % tokens
    return offset < size


# -- the margin problem ----------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_certificate_can_be_recomputed(seed):
    table = supports(seed)
    best = features.logit_margin(table)
    A, L = best.certificate, best.logits
    for row, support in zip(L, table, strict=True):  # primal: ties, and margins of at least one
        assert np.ptp(row[support]) <= 1e-12
        assert (row[support][0] - row[~support] >= 1 - 1e-12).all()
    assert np.linalg.norm(A, 2) <= 1 + 1e-12  # dual: in the ball, no wrong sign, balanced rows
    assert (A[~table] <= 0).all()
    assert np.abs(A.sum(axis=1)).max() <= 1e-12
    primal, dual = np.linalg.norm(L, "nuc"), A[table].sum()
    assert dual <= primal * (1 + 1e-12)
    assert primal - dual <= 1e-6 * max(1, primal)
    assert best.duality_gap == pytest.approx(1 - dual / primal if primal else 0.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_equal_supports_have_equal_logits_and_those_of_all_words_have_none(seed):
    table = supports(seed)
    all_words = np.ones((1, table.shape[1]))
    best = features.logit_margin(np.vstack([table, table[:1], table, all_words]))
    np.testing.assert_array_equal(best.logits[0], best.logits[len(table)])
    np.testing.assert_array_equal(best.logits[-1], 0)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_criterion_says_when_the_centred_supports_are_the_solution(seed):
    table = supports(seed)
    plain, best = features.centred_support(table), features.logit_margin(table)
    assert best.norm <= plain.norm * (1 + 1e-6)
    if plain.is_solution:
        assert plain.norm <= best.norm * (1 + 1e-6)
    if plain.is_solution is False and plain.largest_outside > 0.02:
        assert plain.norm > best.norm * (1 + 1e-6)


@pytest.mark.parametrize("counts", [(1, 1, 1), (5, 1, 2), (1, 9, 9, 3)])
def test_one_hot_supports_centred_are_the_solution_whatever_their_frequencies(counts):
    table = np.repeat(np.eye(len(counts)), counts, axis=0)
    assert features.centred_support(table).is_solution
    best = features.logit_margin(table)
    np.testing.assert_allclose(best.logits, features.centred_support(table).logits, atol=1e-6)


def test_frozen_orthonormal_features_end_at_the_centred_supports():
    data = problem(3)  # its context embeddings are unit vectors
    logits = ntpnb.scores(ntpnb.max_margin(data).W, data)
    np.testing.assert_allclose(logits, features.centred_support(data.support).logits, atol=1e-9)


def test_ring_of_words_loses_its_finest_waves():
    best, plain = features.logit_margin(ring(8, 3)), features.centred_support(ring(8, 3))
    assert plain.is_solution is False
    assert plain.largest_outside == pytest.approx(1 / 8)
    assert best.norm == pytest.approx(4 + 3 * np.sqrt(2), rel=1e-9)


# -- the ridge path --------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_path_certificate_is_the_gradient(seed):
    data = problem(seed)
    path = features.nuclear_path(data, [-3.0, -12.0])
    for depth, L, A, norm in zip((3, 12), path.logits, path.certificate, path.norm, strict=True):
        probs = np.exp(L) / np.exp(L).sum(axis=1, keepdims=True)
        gradient = data.context_probs[:, None] * (probs - data.target_probs)
        np.testing.assert_allclose(A, -gradient * np.exp(depth), atol=1e-8)
        assert np.linalg.norm(A, 2) <= 1
        assert np.sum(A * L) >= norm * (1 - 1e-5)
        assert norm == pytest.approx(np.linalg.norm(L, "nuc"), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_path_ends_at_the_margin_solution_and_the_log_odds(seed):
    data = problem(seed)
    path, best = features.nuclear_path(data, [-1e6]), features.logit_margin(data.support)
    assert path.norm[0] / 1e6 == pytest.approx(best.norm, rel=1e-4)
    for L, law in zip(path.logits[0], data.target_probs, strict=True):
        inside = law > 0
        shift = L[inside] - np.log(law[inside])
        np.testing.assert_allclose(shift, shift[0], atol=1e-8)


def test_path_refuses_frequencies_that_vanish():
    for rare in ([[1e-151, 1.0]], [[0.5, 0.5], [1e-150, 1.0]]):
        with pytest.raises(ValueError, match=r"the frequency \S+e-151; at least 1e-150 is needed$"):
            features.nuclear_path(NextTokenData(np.eye(len(rare)), rare), [-5])


# -- joint descent ---------------------------------------------------------------------------------


def test_descent_is_gradient_descent():
    data = problem(2)
    start = features.joint_init(data, dim=3, scale=1.0, seed=5)
    run = features.descend_jointly(data, 0.3, 1, start)
    shape = start.W.shape

    def loss(x):  # the package's own loss, with the context vectors as embeddings
        W, H = x[: start.W.size].reshape(shape), x[start.W.size :].reshape(start.H.shape)
        trained = NextTokenData(H, data.target_probs, data.context_probs)
        return ntpnb.cross_entropy(W, trained)

    x = np.concatenate([start.W.ravel(), start.H.ravel()])
    moved = np.concatenate([run.W[1].ravel(), run.H[1].ravel()])
    slope = [(loss(x + h) - loss(x - h)) / 2e-5 for h in 1e-5 * np.eye(len(x))]
    np.testing.assert_allclose(moved - x, -0.3 * np.array(slope), atol=1e-8)
    excess = [loss(x) - data.entropy, loss(moved) - data.entropy]
    np.testing.assert_allclose(run.excess, excess, rtol=1e-12)


def test_batches_are_single_runs():
    problems = [problem(seed) for seed in (1, 2)]
    starts = [features.joint_init(p, 4, 0.5, 7) for p in problems]
    both = features.JointStart(np.stack([s.W for s in starts]), np.stack([s.H for s in starts]))
    batch = features.descend_jointly(problems, 0.5, 50, both, record=[0, 50])
    for i, (data, start) in enumerate(zip(problems, starts, strict=True)):
        alone = features.descend_jointly(data, 0.5, 50, start, record=[0, 50])
        np.testing.assert_allclose(batch.logits[i], alone.logits, atol=1e-12)


def test_excess_does_not_cancel():
    data = datasets.toy()
    L = features.nuclear_path(data, [-80.0]).logits[0]
    probs = np.exp(L - L.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    lost = np.sum(data.context_probs @ np.where(data.support, 0, probs))
    assert features.logit_excess(L, data) == pytest.approx(lost, rel=1e-9)


@pytest.mark.parametrize("logits", [np.zeros((5, 3)), np.zeros(5), np.full((3, 5), -np.inf), [1]])
def test_excess_refuses_what_is_no_table_of_logits(logits):
    message = r"^logits has shape .*; finite numbers are needed, and \(3, 5\) as its last two axes$"
    with pytest.raises(ValueError, match=message):
        features.logit_excess(logits, datasets.toy())


# -- the late flow ---------------------------------------------------------------------------------


def handed_over(data, steps, seed):
    start = features.joint_init(data, 5, 0.5, seed)
    run = features.descend_jointly(data, 0.5, steps, start, record=[steps // 10, steps])
    return run, features.JointStart(run.W[0], run.H[0])


def test_flow_continues_descent():
    data = datasets.toy()
    steps = 40_000
    run, early = handed_over(data, steps, seed=1)
    flow = features.late_joint_flow(data, early, np.log(steps / 20), [np.log(steps / 2)])
    # Ties settle like 1/t, and a step of descent is no flow: both are below 1/t at the handover.
    np.testing.assert_allclose(flow.logits[-1], run.logits[-1], atol=20 / steps)
    gradient = -flow.certificate[-1] * 2 / steps
    np.testing.assert_allclose(gradient, run.gradient[-1], atol=1e-3 * abs(gradient).max())


@pytest.mark.parametrize("seed", range(3))
def test_flow_tends_to_the_margin_solution(seed):
    data = datasets.toy()
    _, early = handed_over(data, 20_000, seed)
    flow = features.late_joint_flow(data, early, np.log(1000), [10.0, 3000.0])
    best = features.logit_margin(data.support)
    early_angle, late_angle = np.arccos(cosine(flow.logits, best.logits))
    assert late_angle < 0.01 < early_angle
    A = flow.certificate[-1] / np.linalg.norm(flow.certificate[-1], 2)
    assert A[data.support].sum() == pytest.approx(best.norm, rel=0.01)
