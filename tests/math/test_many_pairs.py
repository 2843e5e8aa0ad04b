"""Graph-SVM with thousands of pairs of embedded tokens, against the program for few of them."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import l24, t24

import ntpnb
from ntpnb.margin import program as program_module
from ntpnb.margin import solve
from ntpnb.margin.many_pairs import ManyPairsProgram
from ntpnb.margin.normal_form import PROX
from ntpnb.margin.pair_program import PairProgram


def embedded(seed):
    """Problems of either paper whose tokens have embeddings."""
    yield l24(seed, K=9, d=5, n=14, T=4, repeats=True)
    yield l24(seed, K=9, d=12, n=14, T=4, cyclic=True, norms=2)
    yield t24(seed, V=6, m=8, d=5, size=(1, 3), tokens=4, rows=3, zero=1, candidates=True)


@pytest.mark.parametrize("seed", range(4))
def test_the_program_is_that_of_few_pairs(seed):
    rng = np.random.default_rng(seed)
    for data in embedded(seed):
        order = ntpnb.token_priority(data)
        few = PairProgram(data, order)
        many = ManyPairsProgram(data, order)
        dual = rng.standard_normal(few.rhs.shape)
        W = rng.standard_normal(data.shape)
        none = few.zero_common()
        np.testing.assert_allclose(many.weights(dual), few.weights(dual), rtol=0, atol=1e-13)
        np.testing.assert_allclose(many.slack(W, none), few.slack(W, none), rtol=0, atol=1e-13)
        # The first step is −b/L. The estimate of L is no smaller than it, and no bound needed.
        largest = np.linalg.norm(few.rows(), 2) ** 2
        step = np.linalg.norm(many.gradient_step(np.zeros_like(dual)))
        assert 0.95 / largest <= step / np.linalg.norm(few.rhs) <= 1 / largest
        for diagonal in (PROX, rng.uniform(0.1, 1, dual.shape)):
            mask = few.tied | (rng.random(dual.shape) < 0.4)
            found = many.kkt_solver(mask, diagonal)(dual, none).step
            assert not found[~mask].any()
            scores = few.margins(few.weights(found), none)
            missed = (-scores + diagonal * found - dual)[mask]
            assert np.abs(missed).max() <= 1e-9 * (1 + np.abs(found).max())


def decided(data):
    """The verdict, and the solution or the certificate."""
    try:
        return ntpnb.max_margin(data)
    except ntpnb.NotSeparableError as error:
        return error


@given(
    st.integers(0, 9999),
    st.integers(2, 10),
    st.integers(2, 24),
    st.integers(2, 6),
    st.sampled_from([0, 1]),
)
def test_many_pairs_are_decided_as_few_are(seed, d, n, T, norms):
    data = l24(seed, K=8, d=d, n=n, T=T, norms=norms)
    few = decided(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_module, "MANY", 0)
        patch.setattr(solve, "FEW", 0)
        many = decided(data)
        separable = ntpnb.is_separable(data)
    assert type(few) is type(many)
    assert separable == isinstance(few, ntpnb.MarginSolution)
    if separable:
        assert many.kkt_residual <= 1e-10
        assert many.norm == pytest.approx(few.norm, rel=1e-8)
        return
    order = ntpnb.token_priority(data)
    assert many.certificate.min() >= 0
    E = data.token_embeddings
    position = order.positions(order.strict)
    sizes = np.linalg.norm(E[order.strict[:, 1]] - E[order.strict[:, 2]], axis=1)
    sizes *= np.linalg.norm(data.group_embeddings[position], axis=1)
    pushes = sum(
        weight * np.outer(E[i] - E[j], data.group_embeddings[g])
        for weight, g, (_, i, j) in zip(many.certificate, position, order.strict, strict=True)
    )
    pushed = ntpnb.equal_subspace(data).reject(pushes)
    assert np.linalg.norm(pushed) <= 1e-9 * (many.certificate @ sizes)


def thousand_sequences(dim):
    """1000 sequences of ten tokens out of 500, labelled at random, in so many dimensions."""
    rng = np.random.default_rng(0)
    E = rng.standard_normal((500, dim))
    X = rng.integers(0, 500, (1000, 10))
    return ntpnb.NextTokenData.from_attention(E, X, X[np.arange(1000), rng.integers(0, 10, 1000)])


@pytest.mark.parametrize("dim", [64, 32])
def test_a_thousand_sequences_take_little_memory(dim):
    data = thousand_sequences(dim)
    order = ntpnb.token_priority(data)
    tracemalloc.start()
    try:
        found = decided(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(order.strict) > 8000  # of which a table of all pairs has 600 MB
    assert peak < 250 * 2**20
    if dim == 64:
        assert found.kkt_residual <= 1e-12
        assert found.duality_gap <= 1e-12
        assert found.min_margin == pytest.approx(1, abs=1e-9)
    else:
        assert isinstance(found, ntpnb.NotSeparableError)
        assert found.certificate.min() >= 0
