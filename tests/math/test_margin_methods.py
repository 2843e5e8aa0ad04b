"""What each max-margin method promises of its steps, whatever a dataset asks for in the end."""

import itertools

import numpy as np
import problems
import pytest
from margins import separable, without_solution

from ntpnb import max_margin
from ntpnb import token_priority as priority
from ntpnb.margin.active_set import active_set
from ntpnb.margin.fista import INTERVAL, fista
from ntpnb.margin.interior_point import interior_point
from ntpnb.margin.normal_form import PROX
from ntpnb.margin.pair_program import PairProgram
from ntpnb.margin.program import margin_program
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import SupportProgram


def kkt_residual(data, program, dual):
    return certify(data, priority(data), program.pair_multipliers(dual), "none").kkt_residual


def narrow(seed, by_pair):
    """A program in few or in many dimensions, so that some have no solution."""
    d = (3, 8)[seed % 2]
    data = problems.t24(5600 + seed, V=5, m=6, d=d, size=(1, 3), candidates=seed % 3 == 0)
    return recorded(data, by_pair)


def recorded(data, by_pair=False):
    """A program that remembers the masks and precisions that a method asked it for."""
    base = PairProgram if by_pair else SupportProgram

    class Recorded(base):
        def kkt_solver(self, mask, diagonal, previous=None):
            self.masks.append(mask)
            return super().kkt_solver(mask, diagonal, previous)

        def gradient_step(self, dual):
            self.precisions.append(dual.dtype)
            return super().gradient_step(dual)

    program = Recorded(data, priority(data))
    program.masks = []
    program.precisions = []
    return program


def rounding(dual):
    """What rounding may leave of an equation of the active set."""
    return 1e-12 * max(1.0, np.abs(dual).max())


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_meets_the_equations_of_every_guess(by_pair):
    """No slack but the proximal term's where a guess says tight, and no multipliers elsewhere."""
    for seed in range(12):
        program = narrow(seed, by_pair)
        centre = np.zeros(program.rhs.shape)
        tolerance = 0.0  # rounding of the largest dual so far, from which the next one is a step
        for iterate in active_set(program):
            tolerance = max(tolerance, rounding(iterate.dual))
            mask = program.masks[-1]
            slack = program.slack(program.weights(iterate.dual), iterate.common)
            missed = slack - PROX * (iterate.dual - centre)
            assert np.abs(missed[mask]).max(initial=0.0) <= tolerance
            assert not iterate.dual[~mask].any()
            sums = program.column_sums(iterate.dual)
            assert np.abs(sums).max(initial=0.0) <= tolerance
            assert mask[program.tied].all()
            if iterate.settled:
                centre = iterate.dual


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_settles_only_where_no_guess_is_wrong(by_pair):
    settled = 0
    for seed in range(12):
        program = narrow(seed, by_pair)
        centre = np.zeros(program.rhs.shape)
        for iterate in active_set(program):
            slack = program.slack(program.weights(iterate.dual), iterate.common)
            tolerance = rounding(iterate.dual)
            wrong_sign = (iterate.dual > tolerance)[program.ordered].any()
            outside = program.domain & ~program.masks[-1]
            violated = (slack + PROX * centre < -tolerance)[outside].any()
            assert iterate.settled == (iterate.direction is not None)
            if iterate.settled:
                settled += 1
                assert not wrong_sign
                assert not violated
                np.testing.assert_array_equal(iterate.direction, iterate.dual - centre)
                centre = iterate.dual
    assert settled >= 12


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_exchanges_all_that_is_wrong(by_pair):
    """The next guess: where a multiplier or a violation is positive (primal-dual active set)."""
    exchanges = 0
    for seed in range(24):
        program = narrow(seed, by_pair)
        guesses = [(program.masks[-1], iterate) for iterate in active_set(program)]
        for (mask, iterate), (following, _) in itertools.pairwise(guesses):
            if iterate.settled:
                assert following is mask
                continue
            slack = program.slack(program.weights(iterate.dual), iterate.common)
            decision = np.where(mask, -iterate.dual, -slack)
            clear = program.ordered & (np.abs(decision) > 1e-9 * max(1, np.abs(decision).max()))
            np.testing.assert_array_equal(following[clear], (decision > 0)[clear])
            exchanges += 1
    assert exchanges >= 10


def test_the_active_set_needs_no_guess_when_it_begins_with_the_right_one():
    """One Newton step solves the problem, from any dual; two more find nothing left to refine."""
    for seed in range(5):
        for data, program in separable(seed):
            *_, last = active_set(program)
            if kkt_residual(data, program, last.dual) > 1e-12:
                continue
            tight = program.tied | (last.dual < 0)
            far = np.random.default_rng(seed).standard_normal(last.dual.shape) * program.domain
            for start in (None, last.dual, far):
                first, *more = active_set(program, start, tight, patience=2)
                assert first.settled
                assert kkt_residual(data, program, first.dual) <= 1e-6
                assert kkt_residual(data, program, more[-1].dual) <= 1e-12


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_active_set_ends_when_its_patience_does(by_pair):
    """No last round of a longer patience is better; so a longer patience only adds rounds."""
    for seed in range(12):
        program = narrow(seed, by_pair)
        rounds = [len(list(active_set(program, patience=patience))) for patience in (1, 2, 3)]
        assert 1 < rounds[0] <= rounds[1] <= rounds[2] <= 60
        assert rounds[0] < rounds[2]


def own_steps(program, max_steps=80):
    """The interior point's own iterates, without those of the active set that it tries."""
    for iterate in interior_point(program, max_steps):
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


@pytest.mark.parametrize("by_pair", [False, True])
def test_the_interior_point_goes_along_its_directions_and_stays_inside(by_pair):
    """A step takes one share of its direction, and never more than 99.5 % of a multiplier."""
    for seed in range(12):
        data = problems.t24(5800 + seed, V=5, m=6, d=(3, 8, 6)[seed % 3], size=(1, 3), norms=1)
        program = margin_program(data, priority(data), by_pair)
        steps = list(own_steps(program, max_steps=8))
        for before, after in itertools.pairwise(steps):
            taken = after.dual - before.dual
            share = np.vdot(taken, after.direction) / np.vdot(after.direction, after.direction)
            assert 0 < share <= 0.995 + 1e-8
            size = np.abs(before.dual).max() + np.abs(after.dual).max()
            assert np.abs(taken - share * after.direction).max() <= 1e-8 * size
            kept = after.dual[program.ordered] / before.dual[program.ordered]
            assert kept.min() >= 0.005 - 1e-9


def test_the_interior_point_balances_columns_by_the_share_of_each_step():
    """They are linear equations, and Newton's direction meets these at once."""
    for seed in range(12):
        data = problems.t24(5800 + seed, V=5, m=6, d=(3, 8, 6)[seed % 3], size=(1, 3), norms=1)
        program = margin_program(data, priority(data))
        for before, after in itertools.pairwise(own_steps(program, max_steps=6)):
            taken = after.dual - before.dual
            share = np.vdot(taken, after.direction) / np.vdot(after.direction, after.direction)
            left = program.column_sums(after.dual)
            expected = (1 - share) * program.column_sums(before.dual)
            tolerance = 1e-7 * max(1.0, np.abs(after.dual).max())
            np.testing.assert_allclose(left, expected, rtol=0, atol=tolerance)


def test_interior_directions_become_certificates_where_there_is_no_solution():
    """Relative to its multipliers, what a direction leaves of W gets smaller and smaller."""
    for seed in range(3):
        data = without_solution(5500 + seed)
        program = margin_program(data, priority(data))
        left = []
        for iterate in itertools.islice(own_steps(program), 12):
            size = np.abs(iterate.direction[program.ordered]).sum()
            left.append(np.linalg.norm(program.weights(iterate.direction)) / size)
        assert min(left) <= 1e-5 * left[0]


def dual_value(program, dual):
    return np.linalg.norm(program.weights(dual)) ** 2 / 2 + np.vdot(program.rhs, dual)


def nearly_parallel(candidates):
    """Contexts so similar that gradients without momentum are slow."""
    data = problems.t24(5109, V=6, m=9, d=12, size=(1, 4), candidates=candidates)
    H = data.context_embeddings[0] + 0.3 * data.context_embeddings
    return problems.changed(data, context_embeddings=H)


@pytest.mark.parametrize("candidates", [False, True])
def test_fista_is_as_fast_as_its_theorem(candidates):
    """Beck & Teboulle (2009), Thm 4.4: ``f(A_k) − f* ≤ 2 L ‖A_0 − A*‖² / (k + 1)²``."""
    data = nearly_parallel(candidates)
    program = margin_program(data, priority(data))
    svm = max_margin(data, "active-set")
    U = data.group_embeddings / np.linalg.norm(data.group_embeddings, axis=1, keepdims=True)
    lipschitz = np.linalg.norm(U, 2) ** 2
    *_, best = active_set(program)
    assert kkt_residual(data, program, best.dual) <= 1e-10
    assert svm.norm**2 == pytest.approx(-2 * dual_value(program, best.dual) / program.unit**2)
    start = 2 * lipschitz * np.linalg.norm(best.dual) ** 2

    own = [iterate for iterate in fista(program) if iterate.direction is not None]
    own = [iterate for iterate in own if not iterate.settled]
    assert len(own) == 200 // INTERVAL
    for k, iterate in enumerate(own, 1):
        gap = dual_value(program, iterate.dual) - dual_value(program, best.dual)
        rounding = 1e-6 * abs(dual_value(program, best.dual)) if k == 1 else 1e-9
        assert -rounding <= gap <= start / (k * INTERVAL + 1) ** 2 + rounding

    plain = np.zeros(program.rhs.shape)
    for _ in range(len(own) * INTERVAL):
        plain = program.project(program.gradient_step(plain), program.domain).dual
    gap = dual_value(program, plain) - dual_value(program, best.dual)
    assert gap > 2 * (dual_value(program, own[-1].dual) - dual_value(program, best.dual))


@pytest.mark.parametrize("candidates", [False, True])
def test_fista_s_iterates_are_allowed_and_its_directions_point_forward(candidates):
    data = nearly_parallel(candidates)
    program = recorded(data)
    own = [step for step in fista(program) if step.direction is not None and not step.settled]
    for iterate in own:
        assert iterate.dual.dtype == np.float64
        assert (iterate.dual[program.ordered] <= 0).all()
        assert not iterate.dual[~program.domain].any()
        tolerance = 1e-5 * np.abs(iterate.dual).max()  # the first in single precision
        assert np.abs(program.column_sums(iterate.dual)).max() <= tolerance
        assert np.linalg.norm(iterate.direction) <= 0.5 * np.linalg.norm(iterate.dual)
    assert np.abs(program.column_sums(own[-1].dual)).max() <= 1e-12 * np.abs(own[-1].dual).max()


def test_fista_begins_in_single_precision_and_ends_in_double():
    program = recorded(nearly_parallel(candidates=False))
    list(fista(program))
    precisions = program.precisions
    assert precisions[0] == np.float32
    assert precisions[-1] == np.float64
    changes = [first != second for first, second in itertools.pairwise(precisions)]
    assert sum(changes) == 1


def test_fista_stays_single_where_its_steps_were_double_all_along():
    """By pair there is nothing to gain from single precision."""
    program = recorded(problems.l24(4000, cyclic=False), by_pair=True)
    list(fista(program))
    assert set(program.precisions[1:]) == {np.dtype(np.float64)}


def test_fista_restarts_where_momentum_points_uphill():
    """So the gap shrinks linearly on a problem with a unique solution: it does not ripple."""
    data = problems.t24(5109, V=6, m=9, d=12, size=(1, 4))
    program = margin_program(data, priority(data))
    *_, best = active_set(program)
    own = [step for step in fista(program) if step.direction is not None and not step.settled]
    distance = [np.linalg.norm(step.dual - best.dual) for step in own]
    assert distance[-1] <= 1e-9 * np.linalg.norm(best.dual)
