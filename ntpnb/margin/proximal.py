"""The method where contexts are too many for a matrix of contexts: proximal steps on a growing set.

A proximal step asks, for a weight ``τ`` and a centre ``A₀`` with multipliers ``λ = −A₀``, for the
minimum over ``W`` and ``c`` of

    τ/2 ‖W‖² + ½ ‖r‖²   with   r = τ λ − slack  on ties,  max(τ λ − slack, 0)  on strict pairs,

which is convex and piecewise quadratic. ``−r/τ`` is the next centre; the centres tend to the
solution of the dual (Rockafellar 1976), the faster the smaller ``τ``; but they have the rounding of
``r``, divided by ``τ``. So ``τ`` falls until nothing but rounding is left, and then rises again,
which takes a few steps more and leaves little of it. Each minimum is found by
Newton's method on the pairs that are penalised at present, with an exact search on the line. All
pairs are looked at after every Newton step: those that are missed join the set, and those that
neither push nor are missed leave it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from ntpnb.basics.tolerances import EPS, NEWTON_STEPS
from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.margin.normal_form import Iterate, NewtonStep, SetStep
from ntpnb.margin.support_program import SupportPairs, SupportProgram

FIRST_WEIGHT = 0.03
"""The first ``τ``. The larger it is, the more pairs are penalised, and the easier systems are."""

LEAST_WEIGHT = 1e-5
"""The smallest ``τ``: with smaller ones multipliers lose their digits."""

FALL = 10**0.5
"""Factor by which ``τ`` falls where a step missed more than :data:`ENOUGH` of the last one.

By the same factor it rises in the end, with each step.
"""

ENOUGH = 0.25
"""Share of what a step missed that the next one may miss."""

GROWTH = 0.25
"""Pairs that may join at one time, as a share of the free numbers in ``W``.

About as many are tight in the end; the first steps may end where nearly all are missed.
"""

ACCURACY = 0.05
"""Gradient that a minimum may leave, relative to how far ``W`` has moved.

Also the share of its own gradient that a Newton step may leave.
"""

COMMON_START = 2.5
"""Common scores at the start, in those of contexts at the corners of a simplex."""


class Point(NamedTuple):
    """A point ``(W, c)``, the set that matters there, and the centre's dual on it."""

    program: SupportProgram
    centre: FloatArray
    weights: FloatArray
    common: FloatArray

    def pushed(self, tau: float) -> FloatArray:
        """``τ λ − slack``; strict pairs count where it is positive."""
        slack = self.program.slack(self.weights, self.common)
        pushed: FloatArray = -tau * self.centre - slack
        return pushed

    def dual(self, tau: float) -> FloatArray:
        """``−r/τ``, which is the next centre where the point is the minimum."""
        pushed = self.pushed(tau)
        counts = self.program.tied | (pushed > 0)
        return np.where(counts, -pushed / tau, 0.0)


def proximal_steps(
    pairs: SupportPairs, check: Callable[[], object] = lambda: None
) -> Iterator[SetStep]:
    """One step for each proximal step, whose dual is the next centre.

    The first is from weights that meet most constraints for fixed common scores, where tokens
    decouple. With common scores that may move at once, the first quadratic would let them fall,
    since ties are all that it has.

    Raises
    ------
    numpy.linalg.LinAlgError
        A Newton system has no factor in floating point.
    """
    ties = pairs.program(np.zeros(0, dtype=np.intp))
    num_tied = np.bincount(ties.column)
    common = COMMON_START * pairs.goals * (1 - num_tied / (pairs.roots**2).sum())
    zero = np.zeros((pairs.vocab_size, pairs.directions.shape[1]))
    start = Point(ties, np.zeros(len(ties)), zero, common)
    point = _minimum(start, FIRST_WEIGHT, check, fixed_scores=True)
    dual = point.dual(FIRST_WEIGHT)
    tau = FIRST_WEIGHT
    missed_before = np.inf
    rises = False
    for _ in range(NEWTON_STEPS):
        point = _minimum(point._replace(centre=dual), tau, check)
        dual = point.dual(tau)
        growth = dual - point.centre
        missed = tau * float(np.linalg.norm(growth))
        yield SetStep(point.program, Iterate(dual, point.common, growth, settled=rises))
        if rises:
            tau *= FALL
        elif tau == LEAST_WEIGHT and missed >= missed_before:  # what is left is rounding
            rises = True
        elif missed > ENOUGH * missed_before:
            tau = max(tau / FALL, LEAST_WEIGHT)
        if tau > FIRST_WEIGHT:
            return
        missed_before = missed


def _minimum(
    start: Point, tau: float, check: Callable[[], object], *, fixed_scores: bool = False
) -> Point:
    """Minimise over all pairs; common scores may be held fixed.

    A pair that is penalised at neither end of a Newton step is so nowhere between them, since the
    slack is linear there: the line search on the set is the one of all pairs. The method does not
    stop before all that were missed joined.
    """
    point = start
    has_all_missed = False
    for _ in range(NEWTON_STEPS):
        check()
        program = point.program
        dual = point.dual(tau)
        away = point.weights - program.weights(dual)  # τ times this is the gradient by W
        sums = program.zero_common() if fixed_scores else program.column_sums(dual)  # and by c
        size = float(np.hypot(np.linalg.norm(away), np.linalg.norm(sums)))
        moved = float(np.linalg.norm(point.weights - start.weights))
        rounding = EPS * np.sqrt(len(program)) / tau * float(np.linalg.norm(point.weights))
        enough = max(ACCURACY * moved, rounding)
        if has_all_missed and size <= enough:
            break

        # Newton's step, on the penalised pairs alone.
        system = program.kkt_solver(program.tied | (dual < 0), tau)
        rest = program.scores(away)
        if fixed_scores:
            newton = NewtonStep(system.solve_rows(rest), program.zero_common())
        else:
            newton = system(rest, -sums, max(0.3 * enough, ACCURACY * size))
        del system  # before the next one is made, which is as large
        move = program.weights(dual + newton.step) - point.weights

        point, has_all_missed = _with_missed(point, dual, move, newton.common)
        share = lowest_point(
            pushed=point.pushed(tau),
            move=-point.program.margins(move, newton.common),
            tied=point.program.tied,
            pull=tau * float(np.vdot(point.weights, move)),
            curvature=tau * float(np.vdot(move, move)),
        )
        length = share * float(np.hypot(np.linalg.norm(move), np.linalg.norm(newton.common)))
        reached = float(np.hypot(np.linalg.norm(point.weights), np.linalg.norm(point.common)))
        if length <= EPS * reached and has_all_missed:  # rounding decides on the line
            break
        point = point._replace(
            weights=point.weights + share * move, common=point.common + share * newton.common
        )
    return point


def _with_missed(
    point: Point, dual: FloatArray, move: FloatArray, common_move: FloatArray
) -> tuple[Point, bool]:
    """The point on the set that a Newton step asks for, and whether it has all missed pairs.

    Those join that the step's end misses, the worst of each context if they are many; those leave
    that push neither here nor at the centre.
    """
    program = point.program
    pairs = program.pairs
    most = max(1, int(GROWTH * pairs.num_weights / pairs.shape[0]))
    kept = pairs.program(program.keys[program.ordered & ((dual < 0) | (point.centre < 0))])
    missed = pairs.missed(kept, point.weights + move, point.common + common_move, 0.0, most)
    largest_share = np.bincount(missed // pairs.vocab_size, minlength=1).max()
    larger = pairs.program(np.union1d(kept.keys[kept.ordered], missed))
    centre = larger.values_of(program, point.centre)
    return point._replace(program=larger, centre=centre), bool(largest_share < most)


def lowest_point(
    pushed: FloatArray, move: FloatArray, tied: BoolArray, pull: float, curvature: float
) -> float:
    """The share ``t`` of a step, at most one, where a piecewise quadratic function is smallest.

    It is ``pull t + curvature t²/2 + ½ ‖r‖²`` with ``r = pushed + t move``, cut off at zero where
    not tied. Its derivative increases, and is linear between the shares at which a pair begins or
    ceases to count.
    """

    def slope(share: float) -> float:
        there = pushed + share * move
        counts = tied | (there > 0)
        return pull + share * curvature + float(there @ np.where(counts, move, 0.0))

    end = slope(1.0)
    if not np.isfinite(end):
        raise np.linalg.LinAlgError("a Newton step overflows")
    if end <= 0:
        return 1.0
    if slope(0.0) >= 0:
        return 0.0
    return float(brentq(slope, 0.0, 1.0))
