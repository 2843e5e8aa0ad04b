"""What each step of the max-margin method promises, whatever a dataset asks for in the end."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import problems
import pytest
from margins import (
    active_set_from_all,
    answer,
    dense_rows,
    made,
    separable,
    sets,
    solvable,
    without_solution,
)
from numpy.testing import assert_allclose, assert_array_equal
from peak import allocates_less_than

import ntpnb
from ntpnb import token_priority as priority
from ntpnb.basics.tolerances import PROX
from ntpnb.margin import growing_set as module
from ntpnb.margin import one_set
from ntpnb.margin.growing_set import (
    DualSteps,
    Projection,
    all_tight,
    first_steps,
    growing_set,
    largest_eigenvalue,
)
from ntpnb.margin.normal_form import Iterate
from ntpnb.margin.one_set import active_set, error_on_set, interior_point
from ntpnb.margin.pair_program import EveryPair
from ntpnb.margin.separation import refutation, separates
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import all_pairs


def pairs_of(data, by_pair=False):
    """All pairs of a dataset, in the form that is chosen or by pair."""
    return (EveryPair if by_pair else all_pairs)(data, priority(data))


def kkt_residual(data, program, dual):
    return certify(data, priority(data), pairs_of(data).multipliers(program, dual)).kkt_residual


# -- the active set -------------------------------------------------------------------------------


class Round(NamedTuple):
    """A guess of the active set, and what it leaves."""

    program: Any
    mask: Any
    centre: Any
    iterate: Any
    slack: Any
    rounding: float


def rounds(seed, by_pair):
    """The guesses for a program in few or in many dimensions; some have no solution."""
    d = (3, 8)[seed % 2]
    data = problems.t24(5600 + seed, V=5, m=6, d=d, size=(1, 3), candidates=seed % 3 == 0)
    program = pairs_of(data, by_pair).everything()
    masks, solver = [], program.kkt_solver

    def recorded(mask, diagonal):
        masks.append(mask)
        return solver(mask, diagonal)

    program.kkt_solver = recorded
    centre = np.zeros(len(program))
    # A solve with so small a θ is right to n eps/θ, and the second one to what that leaves of it.
    share = len(program) * (np.finfo(float).eps / PROX) ** 2
    rounding = 0.0  # of the largest dual so far, from which the next one is a step
    for iterate in active_set_from_all(program):
        slack = program.slack(program.weights(iterate.dual), iterate.common)
        rounding = max(rounding, 1e-12, share * np.abs(iterate.dual).max())
        if iterate.settled:
            centre = iterate.dual - iterate.direction
        yield Round(program, masks[-1], centre, iterate, slack, rounding)
        if iterate.settled:
            centre = iterate.dual


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_meets_the_equations_of_every_guess_and_settles_where_none_is_wrong(by_pair):
    """No slack but the proximal term's where a guess says tight, and no multipliers elsewhere."""
    settled = 0
    for seed in range(12):
        for program, mask, centre, iterate, slack, rounding in rounds(seed, by_pair):
            missed = slack - PROX * (iterate.dual - centre)
            assert np.abs(missed[mask]).max(initial=0.0) <= rounding
            assert not iterate.dual[~mask].any()
            assert np.abs(program.column_sums(iterate.dual)).max(initial=0.0) <= rounding
            assert mask[program.tied].all()
            assert iterate.settled == (iterate.direction is not None)
            if iterate.settled:
                settled += 1
                assert not (iterate.dual > rounding)[program.ordered].any()
                assert not (slack + PROX * centre < -rounding)[~mask].any()
    assert settled >= 12


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_exchanges_all_that_is_wrong(by_pair):
    """The next guess: where a multiplier or a violation is positive (primal-dual active set)."""
    exchanges = 0
    for seed in range(24):
        for now, after in itertools.pairwise(rounds(seed, by_pair)):
            if now.iterate.settled:
                assert after.mask is now.mask
                continue
            decision = np.where(now.mask, -now.iterate.dual, -now.slack)
            is_clear = np.abs(decision) > 1e-9 * max(1, np.abs(decision).max())
            clear = now.program.ordered & is_clear
            assert_array_equal(after.mask[clear], (decision > 0)[clear])
            exchanges += 1
    assert exchanges >= 10


def test_the_active_set_needs_no_guess_when_it_begins_with_the_right_one():
    """The first iterate solves the problem, from any dual: the term's centre has moved there."""
    solved = 0
    for seed in range(5):
        for data, program in separable(seed):
            *_, last = active_set_from_all(program)
            if kkt_residual(data, program, last.dual) > 1e-12:
                continue
            solved += 1
            tight = program.tied | (last.dual < 0)
            far = np.random.default_rng(seed).standard_normal(len(program))
            for start in (np.zeros(len(program)), last.dual, far):
                first = next(active_set(program, start, tight))
                assert first.settled
                assert kkt_residual(data, program, first.dual) <= 1e-12
    assert solved >= 12


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_ends_when_its_patience_does(monkeypatch, by_pair):
    """No last round of a longer patience is better; so a longer patience only adds rounds."""
    for seed in range(12):
        program = next(rounds(seed, by_pair)).program
        counts = []
        for patience in (1, 2, 3):
            monkeypatch.setattr(one_set, "PATIENCE", patience)
            counts.append(len(list(active_set_from_all(program))))
        assert 1 < counts[0] <= counts[1] <= counts[2] <= 60
        assert counts[0] < counts[2]


# -- the interior point ---------------------------------------------------------------------------


def own_steps(program):
    """The interior point's own iterates, without those of the active set that it tries."""
    for iterate in interior_point(program):
        if iterate.direction is not None and not iterate.settled:
            yield iterate


def test_the_interior_point_gets_there_by_itself():
    """Without the active set that ends it sooner: about eight steps, with positive multipliers."""
    counts = []
    for seed in range(6):
        for data, program in separable(seed):
            counts.append(0)
            for iterate in own_steps(program):
                counts[-1] += 1
                assert (iterate.dual[program.ordered] < 0).all()
                if kkt_residual(data, program, iterate.dual) <= 1e-8:
                    break
    assert len(counts) >= 18
    assert max(counts) <= 16
    assert np.mean(counts) <= 9


def test_the_interior_point_hands_on_what_is_tight_at_the_solution(monkeypatch):
    """At the third accuracy at the latest, 1e-9: multipliers may be small."""
    programs = [program for seed in range(3) for _, program in separable(seed)]
    for program in programs:
        guesses = []

        def record(program, dual, tight, to=guesses):
            to.append(tight)
            return ()

        with monkeypatch.context() as patch:
            patch.setattr(one_set, "active_set", record)
            steps = interior_point(program)
            while len(guesses) < 3:
                next(steps)
        *_, best = active_set_from_all(program)
        assert_array_equal(guesses[-1], program.tied | (best.dual < 0))


@pytest.mark.parametrize("alike", [1.0, 1e-3])
def test_the_interior_point_tries_the_active_set_after_every_two_digits_more(monkeypatch, alike):
    """Relative to ``W``, which is long where contexts are alike; and to its square in products."""
    data = solvable(5109)
    H = data.context_embeddings[0] + alike * data.context_embeddings
    program = pairs_of(problems.changed(data, context_embeddings=H)).everything()
    corrected_step = one_set._corrected_step
    errors, tried = [], []

    def measured(program, point, missed):
        size = max(1.0, np.linalg.norm(program.weights(point.dual)))
        products = -(point.slack * point.dual)[program.ordered]
        errors.append(max(np.abs(missed).max() / size, products.mean() / size**2))
        return corrected_step(program, point, missed)

    monkeypatch.setattr(one_set, "_corrected_step", measured)
    monkeypatch.setattr(one_set, "active_set", lambda *_: tried.append(len(errors)) or ())
    list(itertools.islice(interior_point(program), 25))
    expected, wanted = [], one_set.FIRST_ACCURACY
    for step, error in enumerate(errors):
        if error < wanted:
            expected.append(step)
            wanted /= 100
    assert tried == expected
    assert len(tried) >= 4


def test_a_set_of_ties_alone_is_left_to_the_active_set():
    ties = pairs_of(problems.t24(3, size=(2, 3))).program(np.zeros(0, dtype=int))
    assert list(interior_point(ties)) == []
    *_, last = active_set_from_all(ties)
    assert last.settled
    assert not ties.weights(last.dual).any()


# -- the first set --------------------------------------------------------------------------------


def dual_value(program, dual):
    return np.linalg.norm(program.weights(dual)) ** 2 / 2 + program.rhs @ dual


def curvature(program):
    """The largest eigenvalue of all ``⟨φ_k, φ_l⟩``."""
    return np.linalg.norm(dense_rows(program), 2) ** 2


def duals(program, lipschitz):
    """The dual after each of four hundred steps."""
    steps = DualSteps(program, lipschitz)
    for _ in range(400):
        steps.take(1)
        yield steps.dual


@pytest.mark.parametrize("kind", ["supports", "candidates", "pairs"])
def test_dual_steps_are_as_fast_as_their_theorem(kind):
    """Beck & Teboulle (2009), Thm 4.4: ``f(A_k) − f* ≤ 2 L ‖A_0 − A*‖² / (k + 1)²``.

    Contexts are so similar that gradients without momentum are slow.
    """
    data, pairs = made(kind, 5109, m=9, d=12)
    H = data.context_embeddings[0] + 0.3 * data.context_embeddings
    alike = problems.changed(data, context_embeddings=H)
    program = type(pairs)(alike, priority(alike)).everything()
    *_, best = active_set_from_all(program)
    lowest, lipschitz = dual_value(program, best.dual), curvature(program)
    start = 2 * lipschitz * np.linalg.norm(best.dual) ** 2
    for k, dual in enumerate(duals(program, lipschitz), start=1):
        assert kind == "pairs" or dual.dtype == np.float32  # pairs have token rows of doubles
        assert (dual[program.ordered] <= 0).all()
        sums = program.column_sums(dual)
        assert np.abs(sums).max(initial=0.0) <= 1e-5 * np.abs(dual).max()
        gap = dual_value(program, dual.astype(float)) - lowest
        assert -1e-5 * abs(lowest) <= gap <= start / (k + 1) ** 2 + 1e-5 * abs(lowest)


def test_dual_steps_restart_where_momentum_points_uphill():
    """So the gap shrinks linearly on a problem with a unique solution: it does not ripple."""
    program = pairs_of(solvable(5109)).everything()
    *_, best = active_set_from_all(program)
    *_, found = duals(program, curvature(program))
    assert np.linalg.norm(found - best.dual) <= 1e-4 * np.linalg.norm(best.dual)


def test_the_estimate_of_the_largest_eigenvalue_makes_steps_long_that_still_descend():
    """They would ascend from twice the inverse of the eigenvalue on."""
    for seed in range(6):
        for data, _ in separable(seed):
            for by_pair in (False, True):
                program = pairs_of(data, by_pair).everything()
                assert 0.5 < largest_eigenvalue(program) / curvature(program) <= 1.1 + 1e-6


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("kind", ["supports", "candidates", "copies", "pairs"])
def test_projections_are_the_nearest_duals(kind, share):
    """They cut off what one multiple of the roots for each column leaves, and have its sum zero.

    From any guess of the entries that stay below their bounds.
    """
    for _, program, rng in sets(kind, [share] * 10, 5700):
        y = rng.standard_normal(len(program)).astype(np.float32)
        found, below = Projection(program)(y, program.tied | (rng.random(len(y)) < 0.5))
        assert found.dtype == np.float32
        tolerance = 30 * np.finfo(np.float32).eps * max(1.0, np.abs(y).max(initial=0))
        sums = program.column_sums(found.astype(float))
        assert_allclose(sums, 0, rtol=0, atol=10 * tolerance)
        left = y
        if program.num_columns:  # the ties of a column show its multiple
            shift = np.zeros(program.num_columns)
            shift[program.column[program.tied]] = ((y - found) / program.roots)[program.tied]
            left = y - program.spread(shift)
        expected = np.where(program.ordered, np.minimum(left, 0.0), left)
        assert_allclose(found, expected, rtol=0, atol=tolerance)
        assert_array_equal(below, program.tied | (found < 0))


def test_first_steps_separate_wide_margins_and_are_steps_of_the_method(monkeypatch):
    """With more dimensions than contexts, the first ones do, before anything is solved."""
    monkeypatch.setattr(module, "FEW", 0)
    pairs = pairs_of(problems.t24(3, V=8, m=20, d=60, size=(1, 3)))
    first = list(first_steps(pairs))
    assert separates(pairs, first[0])
    for step, again in zip(first, growing_set(pairs), strict=False):
        assert step.iterate.direction is None
        assert not step.iterate.settled
        assert_array_equal(step.iterate.dual, again.iterate.dual)


def test_the_first_set_has_most_of_the_pairs_that_matter_and_few_others(monkeypatch):
    monkeypatch.setattr(module, "FEW", 0)
    for seed in range(4):
        pairs = pairs_of(problems.t24(seed, V=30, m=60, d=24, size=(1, 3)))
        *_, start = first_steps(pairs)
        first = start.program
        *_, (program, iterate) = growing_set(pairs)
        tight = program.keys[program.ordered & (iterate.dual < 0)]
        assert np.isin(tight, first.keys).mean() > 0.9
        assert np.isin(first.keys[first.ordered], tight).mean() > 0.5


def test_first_steps_on_small_sets_are_hardly_behind_those_on_all_pairs(monkeypatch):
    """By less than half a round of three; without their momentum, or what is missed, by more."""
    monkeypatch.setattr(module, "FEW", 0)
    found, allowed = 0.0, 0.0  # relative distances to the least value of the dual, of all problems
    for seed in range(8):
        pairs = pairs_of(problems.t24(seed, V=12, m=60, d=24, size=1))
        *_, best = growing_set(pairs)
        lowest = dual_value(best.program, best.iterate.dual)
        _, of_all, second, third, *_ = first_steps(pairs)
        assert max(len(second.program), len(third.program)) < len(of_all.program) / 2
        on_all = DualSteps(pairs.everything(), largest_eigenvalue(pairs.everything()))
        on_all.take(5 * module.ROUND // 2)
        found += dual_value(third.program, third.iterate.dual) / abs(lowest) + 1
        allowed += dual_value(on_all.program, on_all.dual.astype(float)) / abs(lowest) + 1
    assert found <= allowed


# -- sets that grow -------------------------------------------------------------------------------


def strict_keys(pairs):
    everything = pairs.everything()
    return everything.keys[everything.ordered]


def begin_with(program_of):
    """A first set of one's own, all of it taken for tight."""

    def first(pairs, check):
        yield all_tight(program_of(pairs))

    return first


FIRST_SETS = {
    "ties": begin_with(lambda pairs: pairs.program(np.zeros(0, dtype=int))),
    "one pair": begin_with(lambda pairs: pairs.program(strict_keys(pairs)[-1:])),
    "a third": begin_with(lambda pairs: pairs.program(strict_keys(pairs)[::3])),
    "all pairs": begin_with(lambda pairs: pairs.everything()),
}


def last_step(pairs):
    """The last step, of sets that grow, each solved before the next."""
    *_, first = module.first_steps(pairs, lambda: None)
    steps = list(growing_set(pairs, start=first))
    for before, after in itertools.pairwise(steps):
        assert np.isin(before.program.keys, after.program.keys).all()
        if len(after.program) > len(before.program):
            assert before.iterate.settled
    return steps[-1]


def error_on_all(pairs, step):
    """What a step misses of the constraints and complementarity of all pairs."""
    everything = pairs.everything()
    dual = everything.values_of(step.program, step.iterate.dual)
    return error_on_set(everything, Iterate(dual, step.iterate.common, direction=None))


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_error_on_a_set_is_the_most_that_is_missed(by_pair):
    for seed in range(6):
        program = next(rounds(seed, by_pair)).program
        rng = np.random.default_rng(seed)
        for size in (0.0, 0.1, 10.0):
            dual = size * rng.standard_normal(len(program))
            common = rng.standard_normal(program.num_columns)
            W = program.weights(dual)
            slack = program.slack(W, common)
            missed = [*np.abs(slack[program.tied]), *-slack[program.ordered], 0.0]
            weights = np.abs(dual[program.ordered])
            products = weights @ np.abs(slack[program.ordered]) / (weights.sum() or 1.0)
            expected = max(*missed, products) / max(1.0, np.linalg.norm(W))
            found = error_on_set(program, Iterate(dual, common, direction=None))
            assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_last_step_solves_the_problem_of_all_pairs_from_any_first_set(monkeypatch, seed):
    """By supports and by pair the same."""
    monkeypatch.setattr(module, "FEW", 0)
    for data, _ in separable(seed):
        order = priority(data)
        solutions = []
        for by_pair, first in itertools.product((False, True), (first_steps, *FIRST_SETS.values())):
            if first is FIRST_SETS["ties"] and not len(order.equal):
                continue
            monkeypatch.setattr(module, "first_steps", first)
            pairs = pairs_of(data, by_pair)
            step = last_step(pairs)
            assert error_on_all(pairs, step) <= 1e-13
            found = certify(data, order, pairs.multipliers(step.program, step.iterate.dual))
            assert found.kkt_residual <= 1e-12
            solutions.append(found.W)
        for W in solutions:
            assert_allclose(W, solutions[0], atol=1e-10 * np.abs(W).max())


def test_the_interior_point_solves_a_set_where_the_active_set_gives_up(monkeypatch):
    monkeypatch.setattr(one_set, "active_set", lambda program, dual, tight: iter(()))
    for data, _ in separable(1):
        pairs = pairs_of(data)
        assert error_on_all(pairs, last_step(pairs)) <= 1e-13


@pytest.mark.parametrize(("error", "settled"), [(1e-14, 1), (3e-13, 4)])
def test_a_set_is_solved_where_rounding_is_left_or_nothing_gets_better(monkeypatch, error, settled):
    monkeypatch.setattr(one_set, "error_on_set", lambda program, iterate: error)
    monkeypatch.setattr(module, "first_steps", FIRST_SETS["all pairs"])
    steps = growing_set(pairs_of(solvable(5001)))
    found = [step.iterate.settled for step in steps]
    assert sum(found) == settled
    assert found[-1]


def test_a_set_that_is_solved_with_a_larger_error_is_left_to_the_interior_point(monkeypatch):
    """However often the active set settles, and though nothing gets better."""
    monkeypatch.setattr(one_set, "error_on_set", lambda program, iterate: 1e-11)
    monkeypatch.setattr(module, "first_steps", FIRST_SETS["all pairs"])
    steps = growing_set(pairs_of(solvable(5001)))
    settled = 0
    for step in steps:
        settled += step.iterate.settled
        if step.iterate.direction is not None and not step.iterate.settled:
            break  # the interior point's own
    else:
        pytest.fail("the interior point was not asked")
    assert settled > one_set.PATIENCE


def test_a_larger_set_begins_with_what_the_last_one_had_and_with_what_it_missed(monkeypatch):
    """These are taken for tight, and no other pair is."""
    solve_set = module.solve_set
    begun, ended = [], []

    def recorded(program, dual, tight):
        begun.append((program, dual, tight))
        *_, last = solve_set(program, dual, tight)
        ended.append(last)
        yield last

    monkeypatch.setattr(module, "solve_set", recorded)
    monkeypatch.setattr(module, "first_steps", FIRST_SETS["a third"])
    without_multiplier = 0
    for data, _ in separable(0):
        begun.clear()
        ended.clear()
        list(growing_set(pairs_of(data)))
        for (before, *_), last, (after, dual, tight) in zip(begun, ended, begun[1:], strict=False):
            assert last.settled
            assert_array_equal(dual, after.values_of(before, last.dual))
            had = after.values_of(before, (last.dual < 0).astype(float)) > 0
            joined = ~np.isin(after.keys, before.keys)
            assert_array_equal(tight, after.tied | had | joined)
            without_multiplier += np.count_nonzero(~tight)
    assert without_multiplier > 0


@pytest.mark.parametrize("settled", [True, False])
def test_a_set_ends_at_its_last_settled_step_or_where_none_is_at_its_last(monkeypatch, settled):
    """Steps that follow a solution, as of another method, do not replace it."""
    begun = []

    def two_steps(program, dual, tight):
        begun.append((program, dual))
        for size, is_settled in ((0.001, settled), (0.002, False)):
            small = np.where(program.ordered, -size, 0.0)
            yield Iterate(small, program.zero_common(), direction=None, settled=is_settled)

    monkeypatch.setattr(module, "solve_set", two_steps)
    monkeypatch.setattr(module, "first_steps", FIRST_SETS["one pair"])
    steps = growing_set(pairs_of(solvable(5001)))
    assert len(list(itertools.islice(steps, 4))) == 4  # a guess, two steps, one on the next set
    (first, _), (second, dual) = begun
    expected = second.values_of(first, np.where(first.ordered, -0.001 if settled else -0.002, 0.0))
    assert_array_equal(dual, expected)


@pytest.mark.parametrize("first", ["all pairs", "one pair"])
def test_sets_grow_until_one_has_a_certificate_where_there_is_no_solution(monkeypatch, first):
    monkeypatch.setattr(module, "first_steps", FIRST_SETS[first])
    for seed, by_pair in itertools.product(range(4), (False, True)):
        data = without_solution(5500 + seed)
        pairs = pairs_of(data, by_pair)
        found = (
            refutation(pairs, step.program, step.iterate.direction) for step in growing_set(pairs)
        )
        weights = next(weights for weights in found if weights is not None)
        assert_array_equal(priority(data).strict[weights.positions], weights.pairs)


@pytest.mark.parametrize("last", [3, module.ROUND + 3], ids=["all pairs", "a set"])
def test_what_a_check_raises_ends_the_first_steps(monkeypatch, last):
    monkeypatch.setattr(module, "FEW", 0)
    calls = []

    def check():
        calls.append(None)
        if len(calls) == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(growing_set(pairs_of(problems.t24(5109, V=6, m=9, d=12)), check))
    assert len(calls) == last


@pytest.mark.parametrize("dim", [40, 16])
def test_hundreds_of_sequences_take_little_memory(dim):
    """400 sequences of ten tokens out of 300, labelled at random; in few dimensions, in vain."""
    rng = np.random.default_rng(0)
    E = rng.standard_normal((300, dim))
    X = rng.integers(0, 300, (400, 10))
    y = X[np.arange(400), rng.integers(0, 10, 400)]
    data = ntpnb.NextTokenData.from_attention(E, X, y)
    all_products = 8 * len(priority(data).strict) ** 2
    with allocates_less_than(all_products):
        found = answer(data)
    if dim == 16:
        assert found.certificate.min() >= 0
    else:
        assert found.kkt_residual <= 1e-12
        assert found.min_margin == pytest.approx(1, abs=1e-9)
