"""Linear decoders with too many contexts for a matrix of them: proximal steps, and their bounds.

Small problems take their way where ``WHOLE`` is one. Every answer is judged from the data
(``margins``), or by the way of those that fit.
"""

import itertools
import pickle
from contextlib import suppress

import numpy as np
import problems
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import answer, prove_enclosed, prove_refused, prove_same, some_of
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from quick import slow_but
from scipy.sparse import csr_array

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.basics.tolerances import ACCEPT
from ntpnb.margin import narrow, proximal, solve, support_program
from ntpnb.margin.normal_form import PairMultipliers
from ntpnb.margin.proximal import Point, _minimum, _with_missed, lowest_point, proximal_steps
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import SupportPairs, all_pairs
from ntpnb.problem.equivalent import collapsed
from ntpnb.problem.order import TokenPriority


@pytest.fixture
def as_if_large(monkeypatch):
    """Let small data take the way of the largest."""
    monkeypatch.setattr(support_program, "WHOLE", 1)


def planted(seed, V=8, m=60, d=4, others=0):
    """Data with one or two next tokens that some ``W`` makes tie and win by a clear margin.

    The embeddings of two that tie lie in the hyperplane on which they do.
    """
    rng = np.random.default_rng([95, seed])
    W = rng.standard_normal((V, d))
    H, chosen = [], []
    while len(H) < m:
        pair = rng.permutation(V)[: rng.integers(1, 3)]
        difference = W[pair[0]] - W[pair[-1]]
        h = rng.standard_normal(d) * 2.0 ** rng.integers(-1, 2)
        if len(pair) == 2:
            h -= difference * (difference @ h) / (difference @ difference)
        scores = W @ h
        if scores[pair].min() > np.delete(scores, pair).max() + 0.2:
            H.append(h)
            chosen.append(pair)
    place = rng.permutation(V + others)
    P = np.zeros((m, V + others))
    for row, pair in zip(P, chosen, strict=True):
        row[place[pair]] = 1 / len(pair)
    return NextTokenData(np.array(H), P, context_groups=rng.permutation(m))


# -- the steps ------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_the_lowest_point_of_a_line_is_that_of_its_function(seed):
    """Its derivative vanishes there, or is still negative at the end."""
    rng = np.random.default_rng(seed)
    pushed, move = rng.standard_normal((2, 8)) * 10.0 ** rng.integers(-2, 3, (2, 1))
    tied = rng.random(8) < 0.3

    def slope(t):
        there = pushed + t * move
        return pull + curvature * t + np.where(tied, there, np.maximum(there, 0)) @ move

    curvature, pull = rng.random(), 0.0
    pull = -np.abs(slope(0.0)) * rng.uniform(1, 3) - curvature * rng.random()
    t = lowest_point(pushed, move, tied, pull, curvature)
    assert 0 <= t <= 1
    rounding = 1e-10 * (np.abs(pull) + curvature + (np.abs(pushed) + move**2).sum())
    assert abs(slope(t)) <= rounding or (slope(t) < 0 and t == 1)


def test_a_line_that_overflows_has_no_lowest_point():
    with pytest.raises(np.linalg.LinAlgError, match=r"^a Newton step overflows$"):
        lowest_point(np.array([np.inf]), np.ones(1), np.array([True]), 0.0, 0.0)


def some_point(seed, others, share=0.6):
    """All pairs of a decoder, and a point with random multipliers of some of them."""
    data = collapsed(planted(seed, V=4, m=12, d=3, others=others))
    assert data.is_trivial == (others == 0)
    pairs = SupportPairs(data.data, priority(data.data), data.multiplicity)
    pairs.fits = False
    rng = np.random.default_rng(seed)
    program = some_of(pairs, share, rng)
    centre = rng.standard_normal(len(program))
    centre = np.where(program.ordered, -np.abs(centre), centre)
    weights = rng.standard_normal((pairs.vocab_size, 3))
    return pairs, Point(program, centre, weights, rng.standard_normal(12))


def residual_of_all(pairs, start, tau, point):
    """``r`` of all pairs, by its definition."""
    everything = pairs.everything()
    centre = everything.values_of(start.program, start.centre)
    pushed = -tau * centre - everything.slack(point.weights, point.common)
    return everything, np.where(everything.tied, pushed, np.maximum(pushed, 0.0))


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    others=st.sampled_from([0, 9]),
    tau=st.sampled_from([0.2, 1e-2, 1e-3]),
    growth=st.sampled_from([1e-9, 0.25]),
    fixed=st.booleans(),
)
def test_the_minimum_of_a_proximal_step_is_that_of_all_pairs(seed, others, tau, growth, fixed):
    """From any start with any multipliers, however few pairs may join at one time."""
    pairs, start = some_point(seed, others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proximal, "GROWTH", growth)
        patch.setattr(proximal, "ACCURACY", 1e-9)
        point = _minimum(start, tau, lambda: None, fixed_scores=fixed)
    everything, residual = residual_of_all(pairs, start, tau, point)
    size = np.abs(residual).max() + np.linalg.norm(point.weights)
    gradient = tau * point.weights + everything.weights(residual)
    assert_allclose(gradient, 0, rtol=0, atol=1e-7 * size)
    if fixed:
        assert_array_equal(point.common, start.common)
    else:
        sums = everything.column_sums(residual)
        assert_allclose(sums, 0, rtol=0, atol=1e-7 * size)
    found = everything.values_of(point.program, point.dual(tau))
    assert_allclose(-tau * found, residual, rtol=0, atol=1e-9 * size)
    kept = everything.values_of(point.program, point.centre)
    assert_array_equal(kept, everything.values_of(start.program, start.centre))


def test_a_minimum_needs_no_more_accuracy_than_is_asked_for(monkeypatch):
    pairs, start = some_point(0, others=0)
    missed = []
    for accuracy in (0.5, 1e-9):
        monkeypatch.setattr(proximal, "ACCURACY", accuracy)
        point = _minimum(start, 0.03, lambda: None)
        everything, residual = residual_of_all(pairs, start, 0.03, point)
        gradient = point.weights + everything.weights(residual) / 0.03
        moved = np.linalg.norm(point.weights - start.weights)
        missed.append(np.linalg.norm(gradient))
        assert missed[-1] <= accuracy * moved + 1e-10
    assert missed[0] > 1e-3 * moved


def found_in(start, tau, **options):
    """The minimum, and how often a Newton step was asked for."""
    steps = itertools.count()
    return _minimum(start, tau, lambda: next(steps), **options), next(steps)


@pytest.mark.parametrize("accuracy", [0.5, 1e-9])
def test_a_minimum_takes_few_newton_steps(accuracy, monkeypatch):
    """Fewer where common scores are fixed, and from where only rounding is left."""
    monkeypatch.setattr(proximal, "ACCURACY", accuracy)
    free, fixed, again = 0, 0, 0
    for seed in range(6):
        _, start = some_point(seed, others=9 * (seed % 2))
        minimum, number = found_in(start, 0.03)
        assert number <= proximal.NEWTON_STEPS / 10
        free += number
        fixed += found_in(start, 0.03, fixed_scores=True)[1]
        again += found_in(minimum, 0.03)[1]
    assert fixed < free
    assert again < free


def test_pairs_that_push_nowhere_leave_the_set_and_all_that_are_missed_join_it(monkeypatch):
    """After a step of length zero from a centre of zero, slacks alone decide, of all pairs."""
    monkeypatch.setattr(proximal, "GROWTH", 1e9)
    pairs, start = some_point(0, others=0)
    start = start._replace(centre=np.zeros(len(start.program)))
    still = np.zeros_like(start.weights), np.zeros_like(start.common)
    point, has_all = _with_missed(start, start.dual(0.03), *still)
    everything = pairs.everything()
    is_missed = everything.slack(start.weights, start.common) < 0
    assert has_all
    assert_array_equal(point.program.keys, everything.keys[everything.tied | is_missed])
    assert not np.isin(start.program.keys, point.program.keys).all()


@pytest.mark.parametrize("seed", [3, 32, 77, 500])
def test_steps_come_closer_steadily(seed):
    """Not so where digits cancel or minima end too early: they then drift away at the end."""
    data = problems.t24(seed, V=30, m=90, d=24, size=(1, 3))
    order = priority(data)
    exact = max_margin(data, order=order)
    pairs = all_pairs(data, order)
    distance = []
    for program, iterate in proximal_steps(pairs):
        found = certify(data, order, pairs.multipliers(program, iterate.dual))
        assert found.margin_bounds[1] * exact.norm >= 1 - 1e-9
        distance.append(np.linalg.norm(found.W - exact.W) / exact.norm)
        if distance[-1] <= 1e-6:
            break
    assert len(distance) <= 20
    closing = np.array(distance)[np.argmax(np.array(distance) < 0.5) :]
    assert_array_less(closing[2:], 0.7 * closing[:-2])


# -- answers --------------------------------------------------------------------------------------


TWO_LEVELS = {
    name: data
    for name, data in problems.regimes().items()
    if len(priority(data).strict) and isinstance(all_pairs(data, priority(data)), SupportPairs)
}


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_answers_in_every_regime_are_those_of_data_that_fit(monkeypatch, name):
    data = TWO_LEVELS[name]
    expected = answer(data)
    monkeypatch.setattr(support_program, "WHOLE", 1)
    prove_same(data, answer(data), expected)


@pytest.mark.parametrize("others", [0, 20])
def test_a_gap_is_an_enclosure_of_the_exact_margin(monkeypatch, others):
    for seed in range(2):
        data = planted(seed, V=5, m=25, d=3, others=others)
        exact = max_margin(data, order=priority(data))
        monkeypatch.setattr(support_program, "WHOLE", 1)
        steps = []
        for gap in (0.3, 1e-3):
            told = []
            svm = max_margin(data, gap=gap, progress=told.append)
            assert svm.margin_gap <= gap
            assert svm.min_margin == pytest.approx(1.0, rel=1e-9)
            prove_enclosed(data, svm, exact)
            steps.append(len(told))
        assert steps[0] < steps[-1]
        assert is_separable(data)
        monkeypatch.undo()


@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_reached_without_a_gap_too(monkeypatch, seed, others):
    """To the accuracy that is promised, and not only as far as the smallest weight allows."""
    data = planted(seed, others=others)
    expected = max_margin(data).norm
    monkeypatch.setattr(support_program, "WHOLE", 1)
    found = max_margin(data)
    assert found.kkt_residual <= ACCEPT
    assert found.meets_ties
    assert found.norm == pytest.approx(expected, rel=10 * ACCEPT)


@pytest.mark.parametrize("short", [1e-7, 1e-8, 1e-9])
def test_pairs_that_are_missed_by_little_are_found(monkeypatch, short):
    """A context is added in which the solution of the others has nearly the margin it needs."""
    for seed in range(6):
        rng = np.random.default_rng([5, seed])
        H = rng.standard_normal((14, 8))
        laws = np.eye(12)[rng.integers(0, 12, 14)]
        W = max_margin(NextTokenData(H, laws)).W
        h = rng.standard_normal(8)
        *_, second, first = np.sort(W @ h)
        h *= (1 - short) / (first - second)
        one_more = NextTokenData(np.vstack([H, h]), np.vstack([laws, np.eye(12)[(W @ h).argmax()]]))
        exact = max_margin(one_more)
        with monkeypatch.context() as patch:
            patch.setattr(support_program, "WHOLE", 1)
            prove_same(one_more, max_margin(one_more), exact)


def test_bounds_hold_where_the_ties_are_ill_conditioned(as_if_large):
    """What is left of the ties would raise the lower bound by more than rounding."""
    for seed in range(6):
        data = problems.t24(9800 + seed, V=4, m=9, d=8, size=(1, 2))
        exact = answer(data, order=priority(data))
        if not isinstance(exact, NotSeparableError):
            below, above = max_margin(data, gap=0.05).margin_bounds
            assert below * (1 - 1e-11) <= 1 / exact.norm <= above * (1 + 1e-11)


def test_weights_of_zero_enclose_nothing():
    """Multipliers that cancel to the last bit: the largest margin is at most zero."""
    data = NextTokenData([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [[1, 0], [0, 1], [0, 1]])
    multipliers = PairMultipliers(np.array([0.5, 0.0, 0.5]), np.zeros(0))
    found = certify(data, priority(data), multipliers)
    assert (found.norm, found.margin_bounds, found.margin_gap) == (0, (0.0, 0.0), 1)
    for gap in (0.0, 0.1):
        prove_refused(data, answer(data, gap=gap))


def test_dense_laws_and_all_strict_pairs_are_never_asked_for(as_if_large, monkeypatch):
    data = planted(2, V=12, m=20, d=4)
    sparse = problems.changed(data, target_probs=csr_array(data.target_probs))
    expected = max_margin(data, gap=1e-2)
    monkeypatch.setattr(TokenPriority, "_strict_over_all_others", None)
    monkeypatch.setattr(NextTokenData, "support", None)
    assert_array_equal(max_margin(sparse, gap=1e-2).W, expected.W)
    assert is_separable(sparse)


@pytest.mark.parametrize(("angle", "is_decided"), [(1e-5, True), (1e-6, False)])
def test_a_margin_too_small_to_see_is_decided_by_the_last_step(
    angle, is_decided, as_if_large, monkeypatch
):
    """Its residual is measured where no ``W`` on the way separates clearly."""
    monkeypatch.setattr(narrow, "ENTRIES", 0)
    H = [[1.0, 0.0], [np.cos(angle), np.sin(angle)], [0.3, -1.0]]
    data = NextTokenData(H, np.eye(3)[[0, 1, 0]])
    if is_decided:
        assert is_separable(data)
        return
    with pytest.raises(ConvergenceError) as undecided:
        is_separable(data)
    assert np.isfinite(undecided.value.residual)


# -- what ends a search ---------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [-0.1, 1.0, np.nan])
def test_a_gap_lies_between_zero_and_one(gap):
    with pytest.raises(ValueError, match=r"^gap "):
        max_margin(planted(0), gap=gap)


@pytest.mark.parametrize("others", [0, 12])
def test_what_is_known_when_the_time_is_over(as_if_large, slow_clock, others):
    data = planted(0, V=5, m=25, d=3, others=others)
    exact = max_margin(data, gap=1e-5, seconds=1e9)
    seconds = slow_clock.now - 3
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, gap=1e-5, seconds=seconds)
    error = pickle.loads(pickle.dumps(caught.value))
    below, above = error.point.margin_bounds
    assert str(error) == (
        f"undecided: {seconds:g} seconds are over; the largest margin of a W of norm at most one "
        f"is {below:.6g} to {above:.6g}"
    )
    assert error.residual == error.point.kkt_residual
    assert error.point.W.shape == data.shape
    prove_enclosed(data, error.point, exact)


@pytest.mark.parametrize("function", [max_margin, is_separable])
def test_time_may_be_over_before_anything_is_known(as_if_large, function):
    with pytest.raises(ConvergenceError, match=r"^undecided: 0 seconds are over$") as caught:
        function(planted(0), seconds=0)
    assert caught.value.point is None


class Interruption(Exception):
    """Something that a caller's ``progress`` may raise and no method does."""


ERRORS = [
    Interruption,
    KeyboardInterrupt,
    RuntimeError,
    StopIteration,
    np.linalg.LinAlgError,  # which the method itself raises where it runs out of digits
]


def with_a_gap(data, **limits):
    return max_margin(data, gap=0.3, **limits)


@pytest.mark.parametrize("error", slow_but([Interruption, np.linalg.LinAlgError], ERRORS))
@pytest.mark.parametrize("whole", [1, 2**24])
@pytest.mark.parametrize("function", [with_a_gap, max_margin, is_separable])
def test_what_progress_raises_ends_the_search(monkeypatch, function, whole, error):
    """With any line that it is told, also where a method would go on with less."""
    monkeypatch.setattr(support_program, "WHOLE", whole)
    for data in (planted(3, V=12, m=30, d=3), problems.t24(9048, V=4, m=10, d=4, size=(1, 2))):
        lines = []
        with suppress(NotSeparableError, ConvergenceError):
            function(data, progress=lines.append)
        for line in dict.fromkeys([*lines[:2], *lines[-1:]]):
            told = []

            def progress(text, line=line, told=told):
                told.append(text)
                if text == line:
                    raise error("enough")

            with pytest.raises(error, match="enough"):
                function(data, progress=progress)
            assert told[-1] == line


def test_contradictory_data_are_refused_or_left_undecided(as_if_large, monkeypatch):
    data = problems.t24(1, V=6, m=30, d=3, size=(1, 2))
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data, gap=1e-3)
    prove_refused(data, caught.value)
    assert not is_separable(data)
    monkeypatch.setattr(solve, "refutation", lambda pairs, program, direction: None)
    monkeypatch.setattr(solve, "linear_programs", lambda data, order, watch: iter(()))
    monkeypatch.setattr(proximal, "NEWTON_STEPS", 12)
    message = r"^undecided: the search reached a KKT residual of .*, not small enough, and found "
    with pytest.raises(ConvergenceError, match=message) as caught:
        max_margin(data)
    below, above = caught.value.point.margin_bounds
    assert below == 0
    assert above < 1e-2 / np.linalg.norm(data.context_embeddings, axis=1).min()
    assert caught.value.residual == caught.value.point.kkt_residual
    with pytest.raises(ConvergenceError, match=message):
        is_separable(data)
