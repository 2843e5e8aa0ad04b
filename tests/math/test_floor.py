"""The floor of the loss: its bounds, their proofs computed again, and other minimisers."""

import math
from dataclasses import replace

import margins
import numpy as np
import problems
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from saved import again
from scipy.optimize import minimize

import ntpnb
from ntpnb import NextTokenData, bias, loss_floor
from ntpnb.basics.watch import OutOfTime, Watch
from ntpnb.bias import floor as module
from ntpnb.problem.sums import ContextSums, shares


def not_separable(seed, m=24, d=3, size=2, **options):
    """More contexts than W can tell apart."""
    return problems.t24(seed, m=m, d=d, size=size, **options)


def all_of(floor, data):
    return floor.distributions(slice(0, data.num_contexts))


def lower_bound(Q, data):
    """The bound and what its moments miss, from the definition, from rounded terms."""
    C = reference.candidate_counts(data)
    terms = [
        pi * (-q * np.log(q) if q > 0 else 0.0) + pi * (q - p) * (np.log(c) if c > 0 else 0.0)
        for pi, q_row, p_row, c_row in zip(data.context_probs, Q, data.target_probs, C, strict=True)
        for q, p, c in zip(q_row, p_row, c_row, strict=True)
    ]
    T = reference.token_embeddings(data)
    missed = np.einsum(
        "j,jv,vp,jd->pd", data.context_probs, Q - data.target_probs, T, data.context_embeddings
    )
    return math.fsum(terms), np.linalg.norm(missed)


CASES = [
    *(not_separable(seed) for seed in range(3)),
    not_separable(4, m=9, size=3),
    problems.t24(7, V=6, m=14, d=4),
    *(problems.l24(seed, d=4, n=14, T=5, repeats=True) for seed in range(4)),
]


@pytest.mark.parametrize("data", CASES, ids=range(len(CASES)))
def test_both_bounds_are_what_their_definitions_say(data):
    floor = loss_floor(data)
    assert floor.upper == ntpnb.cross_entropy(floor.W, data)
    assert 0 <= floor.upper - floor.lower <= 1e-6 * floor.upper
    assert floor.gap <= 1e-6
    assert floor.ended == "the gap is reached"
    Q = all_of(floor, data)
    assert (Q >= 0).all()
    assert_allclose(Q.sum(1), 1, rtol=0, atol=1e-14)
    assert (Q[~data.candidates] == 0).all()
    bound, missed = lower_bound(Q, data)
    taken_off = 2 * missed * np.linalg.norm(floor.W) + 1e-12
    assert bound - taken_off <= floor.lower <= bound
    T = data.token_embeddings
    longest = 1.0 if T is None else np.linalg.norm(T, axis=1).max()
    lengths = np.linalg.norm(data.context_embeddings, axis=1)
    assert missed <= 1e-12 * longest * (data.context_probs @ lengths)


@pytest.mark.parametrize("data", CASES, ids=range(len(CASES)))
def test_an_independent_minimiser_ends_between_the_bounds(data):
    def loss(x):
        W = x.reshape(data.shape)
        return ntpnb.cross_entropy(W, data), ntpnb.gradient(W, data).ravel()

    floor = loss_floor(data, gap=1e-9)
    options = {"maxiter": 20_000, "gtol": 1e-9}
    other = minimize(loss, np.zeros(floor.W.size), jac=True, method="BFGS", options=options).fun
    assert other >= floor.lower - 1e-12
    assert floor.upper <= other + 1e-9


def test_a_bound_that_is_too_high_would_be_noticed():
    """The floor itself is known between bounds much nearer than that."""
    assert loss_floor(not_separable(0), gap=1e-11).gap < 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_a_floor_above_the_entropy_refutes_what_the_margin_refutes(seed, monkeypatch):
    """And its certificate is one: its pairs, and ties, combine to nothing."""
    monkeypatch.setattr(bias, "MOST_WORK", 0)  # so that the floor is asked
    data = not_separable(seed, m=12, V=4, size=1 + seed % 2, d=2 + seed % 3)
    asked = ntpnb.implicit_bias(data)
    assert asked.separable == ntpnb.is_separable(data)
    assert not asked.separable
    if not asked.finite_part.compatible:
        assert "contradict each other" in str(asked.refusal)
        return
    assert "for every loss is at least" in str(asked.refusal)
    assert asked.refusal.pair_weights is None
    weights = asked.refusal.certificate
    margins.prove_refused(data, asked.refusal)
    said = str(ntpnb.report(asked))
    assert f"the loss stays above {asked.floor.lower:.4g} nats" in said
    assert again(asked).refusal.certificate.tolist() == weights.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_floor_refutes_nothing_that_is_separable(seed, monkeypatch):
    monkeypatch.setattr(bias, "MOST_WORK", 0)
    asked = ntpnb.implicit_bias(problems.t24(seed, V=6, m=7, d=6))
    assert asked.separable == ntpnb.is_separable(asked.data)
    assert asked.floor.refutes is False


@pytest.mark.parametrize("seed", range(3))
def test_separable_data_have_their_entropy_for_a_floor(seed):
    soft = problems.t24(seed, V=6, m=5, d=8)
    floor = loss_floor(soft)
    assert floor.lower == pytest.approx(soft.entropy, abs=1e-12)
    assert floor.gap <= 1e-6
    labels = np.eye(4)[np.arange(6) % 4]
    hard = NextTokenData(np.random.default_rng(seed).standard_normal((6, 8)), labels)
    floor = loss_floor(hard)
    assert floor.lower == 0
    assert floor.upper == 0
    assert floor.residual == 0
    assert_array_equal(all_of(floor, hard), labels)


@pytest.mark.parametrize("count", [1.0, 1e29])
def test_rounding_lifts_no_small_bound_above_the_infimum(count):
    data = NextTokenData(
        [[1.0], [1.0]], np.eye(2), [1 - 1e-6, 1e-6], candidate_counts=np.full((2, 2), count)
    )
    often, seldom = data.context_probs  # equal contexts: the infimum is the entropy of these
    infimum = -often * np.log1p(-seldom) - seldom * np.log(seldom)
    floor = loss_floor(data, gap=1e-9)
    assert infimum * (1 - 1e-8) < floor.lower < infimum


def test_moments_of_a_rare_context_are_not_rounding_beside_those_of_a_frequent_one(tmp_path):
    # Separable, so that the infimum is zero; the second context's moments are 1e-21 of the first's.
    data = NextTokenData([[1e3, 0.0], [0.0, 1e-4]], np.eye(2), [1 - 1e-14, 1e-14])
    floor = loss_floor(data)
    assert floor.lower == 0
    assert not floor.refutes
    forged = replace(floor, lower=5e-15, _distributions=module.Distributions(floor.W, 0.0))
    forged.save(tmp_path / "forged.npz")
    with pytest.raises(ValueError, match="do not have the moments of its data"):
        ntpnb.load(tmp_path / "forged.npz")


def test_where_all_embeddings_are_zero_every_matrix_has_the_floor():
    data = NextTokenData(np.zeros((2, 3)), [[1, 0, 0], [0.5, 0.5, 0]])
    floor = loss_floor(data)
    assert floor.upper == pytest.approx(np.log(3))
    assert floor.lower == pytest.approx(np.log(3))
    assert floor.W.shape == data.shape


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_contexts_of_length_zero_lift_the_floor_though_the_others_meet_their_targets(gap):
    """No W changes what they cost, and the one other context has the odds that it asks for."""
    laws = [[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]]
    counts = [[1, 1, 1, 1], [2, 1, 0, 1], [1, 1, 1, 1]]
    data = NextTokenData([[-1.0], [0.0], [0.0]], laws, candidate_counts=counts)
    costs = [-sum(p * np.log(p) for p in laws[0]), np.log(4 / 2), np.log(4)]
    floor = loss_floor(data, gap)
    assert floor.ended == "the gap is reached"
    assert floor.lower <= np.mean(costs) <= floor.upper * (1 + 1e-15)
    assert floor.lower == pytest.approx(np.mean(costs), rel=1e-12)
    bound, missed = lower_bound(all_of(floor, data), data)
    assert bound == pytest.approx(floor.lower, rel=1e-12)
    assert np.abs(missed).max() <= 1e-15
    assert again(floor).lower == floor.lower


def test_blocks_and_single_precision_say_the_same(monkeypatch):
    data = not_separable(6, m=40, V=8)
    whole = loss_floor(data, gap=1e-9)
    monkeypatch.setattr("ntpnb.problem.table.BLOCK", 60)
    by_blocks = loss_floor(data, gap=1e-9)
    assert by_blocks.lower == pytest.approx(whole.lower, abs=1e-9)
    assert len(shares(data)) > 1
    states = data.context_embeddings.astype(np.float32)
    single = NextTokenData(states, data.target_probs, data.context_probs)
    assert loss_floor(single).upper == pytest.approx(whole.upper, rel=1e-4)


def test_where_inverses_take_too_much_memory_the_whitening_serves(monkeypatch):
    data = not_separable(7)
    expected = loss_floor(data)
    monkeypatch.setattr(module, "HELD", 0)
    found = loss_floor(data)
    assert found.gap <= 1e-6
    assert found.lower == pytest.approx(expected.lower, abs=2e-6 * expected.upper)


def time_for(num_checks):
    """What a watch checks so many times before the time is over."""
    left = iter(range(num_checks))

    def check():
        if next(left, None) is None:
            raise OutOfTime

    return check


def test_time_that_is_over_leaves_the_best_bounds():
    data = not_separable(8)
    floor = loss_floor(data, seconds=0)
    assert floor.ended == "0 seconds are over"
    assert floor.lower == data.entropy
    assert floor.upper == ntpnb.cross_entropy(floor.W, data)
    stopped = module.FloorSearch(data, ContextSums(data), Watch())
    stopped.watch.check = time_for(9)
    with pytest.raises(OutOfTime):
        stopped.run(1e-6)
    assert 0 < stopped.upper == ntpnb.cross_entropy(stopped.W, data)
    lines = []
    loss_floor(data, progress=lines.append)
    assert "the floor lies between" in lines[0]


def test_a_floor_that_a_file_forges_is_refused(tmp_path):
    floor = loss_floor(not_separable(9))
    forged = [
        replace(floor, lower=floor.lower + 1e-9),
        replace(floor, upper=floor.upper - 1e-9),
        replace(floor, _distributions=replace(floor._distributions, corrections=())),
        replace(floor, _data=not_separable(8)),
    ]
    for k, one in enumerate(forged):
        one.save(tmp_path / f"{k}.npz")
        with pytest.raises(ValueError, match="LossFloor"):
            ntpnb.load(tmp_path / f"{k}.npz")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None,), TypeError, "data is"),
        ((CASES[0], 0.0), ValueError, "gap is 0.0; it must be positive"),
    ],
)
def test_bad_input_is_explained(arguments, error, message):
    with pytest.raises(error, match=message):
        loss_floor(*arguments)
