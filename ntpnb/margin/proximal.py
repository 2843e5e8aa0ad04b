"""The method where contexts are too many for a matrix of contexts: proximal steps on a growing set.

A proximal step asks, for a weight ``τ`` and a centre ``A₀`` with multipliers ``λ = −A₀``, for the
minimum over ``W`` and ``c`` of

    τ/2 ‖W‖² + ½ ‖r‖²   with   r = τ λ − slack  on ties,  max(τ λ − slack, 0)  on strict pairs,

which is convex and piecewise quadratic. ``−r/τ`` is the next centre; the centres tend to the
solution of the dual (Rockafellar 1976), the faster the smaller ``τ``. Each minimum is found by
Newton's method on the pairs that are penalised at present, with an exact search on the line. All
pairs are looked at after every Newton step: those that are missed join the set, and those that
neither push nor are missed leave it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.normal_form import Iterate, SetStep
from ntpnb.margin.support_program import SupportPairs, SupportProgram

FIRST_WEIGHT = 0.03
"""The first ``τ``. The larger it is, the more pairs are penalised, and the easier systems are."""

LAST_WEIGHT = 1e-5
"""The last ``τ``: with smaller ones multipliers lose their digits."""

FALL = 10**0.5
"""Factor by which ``τ`` falls where a step missed more than :data:`ENOUGH` of the last one."""

ENOUGH = 0.25
"""Share of what a step missed that the next one may miss."""

MOST_STEPS = 60
"""Proximal steps; ten are the rule."""

MOST_NEWTON_STEPS = 150
"""Newton steps for one minimum; five are the rule, fifteen are many."""

GROWTH = 0.25
"""Pairs that may join at one time, as a share of the free numbers in ``W``.

About as many are tight in the end; the first steps may end where nearly all are missed.
"""

ACCURACY = 0.05
"""Gradient that a minimum may leave, relative to the pull of the start."""

SYSTEM_ACCURACY = 0.03
"""Share of the gradient that a Newton step may leave."""

COMMON_START = 2.5
"""Common scores at the start, in those of contexts at the corners of a simplex."""

SEARCHES = 30
"""Points that are tried on one line; five are the rule."""


class Point(NamedTuple):
    """A point ``(W, c)``, the set that matters there, and the centre's dual on it."""

    program: SupportProgram
    centre: FloatArray
    weights: FloatArray
    common: FloatArray


class Minimum(NamedTuple):
    """Where Newton's method ended, and the dual ``−r/τ`` there."""

    point: Point
    dual: FloatArray


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
    ties = pairs.program(np.zeros(0, dtype=np.int64))
    num_tied = np.bincount(ties.column)
    common = COMMON_START * pairs.goals * (1 - num_tied / (pairs.roots**2).sum())
    zero = np.zeros((pairs.vocab_size, pairs.directions.shape[1]))
    start = Point(ties, np.zeros(len(ties)), zero, common)
    point, dual = _minimise(start, FIRST_WEIGHT, check, fixed_scores=True)
    tau = FIRST_WEIGHT
    missed_before = np.inf
    for _ in range(MOST_STEPS):
        point, dual = _minimise(point._replace(centre=dual), tau, check)
        growth = dual - point.centre
        yield SetStep(point.program, Iterate(dual, point.common, direction=growth))
        missed = tau * float(np.linalg.norm(growth))
        if missed > ENOUGH * missed_before:
            tau = max(tau / FALL, LAST_WEIGHT)
        missed_before = missed


def _minimise(
    start: Point, tau: float, check: Callable[[], object], *, fixed_scores: bool = False
) -> Minimum:
    """Minimise over all pairs; common scores may be held fixed.

    A pair that is penalised at neither end of a Newton step is so nowhere between them, since the
    slack is linear there: the line search on the set is the one of all pairs. The method does not
    stop before all that were missed joined.
    """
    program, centre, weights, common = start
    pairs = program.pairs
    most = max(1, int(GROWTH * pairs.num_weights / pairs.shape[0]))
    slack = program.slack(weights, common)
    is_whole = False
    for step in range(MOST_NEWTON_STEPS + 1):
        check()
        pushed = -tau * centre - slack
        active = program.tied | (pushed > 0)
        dual = np.where(active, -pushed / tau, 0.0)
        away = weights - program.weights(dual)  # the gradient over τ
        sums = np.zeros(len(common)) if fixed_scores else program.column_sums(dual)
        size = float(np.hypot(np.linalg.norm(away), np.linalg.norm(sums)))
        moved = float(np.linalg.norm(weights - start.weights))
        rounding = 1e-13 / tau * float(np.linalg.norm(weights))
        enough = max(ACCURACY * moved, rounding)
        if (is_whole and size <= enough) or step == MOST_NEWTON_STEPS:
            break

        # Newton's step, on the penalised pairs alone.
        system = program.kkt_solver(active, tau)
        rest = program.scores(away)
        if fixed_scores:
            growth = system.solve_rows(rest)
            common_move = np.zeros(len(common))
        else:
            accuracy = max(0.3 * enough, SYSTEM_ACCURACY * size)
            growth, common_move = system(rest, -sums, accuracy)
        move = program.weights(dual + growth) - weights
        kept = pairs.program(program.keys[program.ordered & (active | (centre < 0))])
        missed = pairs.missed(kept, weights + move, common + common_move, 0.0, most)
        is_whole = _largest_share(missed, pairs.vocab_size) < most
        larger = pairs.program(np.union1d(kept.keys[kept.ordered], missed))
        centre = larger.values_of(program, centre)
        program = larger

        slack = program.slack(weights, common)
        slack_move = program.margins(move, common_move)
        line = Line(
            pushed=-tau * centre - slack,
            move=-slack_move,
            tied=program.tied,
            pull=tau * float(np.vdot(weights, move)),
            curvature=tau * float(np.vdot(move, move)),
        )
        share = line.lowest_point()
        if share == 0 and is_whole:  # rounding decides on the line
            break
        weights = weights + share * move
        common = common + share * common_move
        slack = slack + share * slack_move
    pushed = -tau * centre - slack
    dual = np.where(program.tied | (pushed > 0), -pushed / tau, 0.0)
    return Minimum(Point(program, centre, weights, common), dual)


def _largest_share(keys: IntArray, vocab_size: int) -> int:
    """The largest number of keys in one column."""
    return int(np.bincount(keys // vocab_size, minlength=1).max())


@dataclass(frozen=True, eq=False)
class Line:
    """The function on the line to a Newton step's end, whose share of the step is ``t``."""

    pushed: FloatArray
    move: FloatArray
    tied: BoolArray
    pull: float
    curvature: float

    def lowest_point(self) -> float:
        """The share, at most one, where the derivative vanishes.

        Newton steps on the derivative, which increases and is piecewise linear, with a bracket that
        every point narrows.
        """
        low = 0.0
        high = 1.0
        share = 1.0
        for _ in range(SEARCHES):
            slope, bend = self._derivatives(share)
            if slope <= 0:
                low = share
            else:
                high = share
            if share == 1.0 and slope <= 1e-12 * bend:
                return 1.0
            next_share = share - slope / bend
            if abs(next_share - share) <= 1e-12:
                return share
            if not low < next_share < high:
                next_share = (low + high) / 2
            share = next_share
        return low

    def _derivatives(self, share: float) -> tuple[float, float]:
        """First and second derivative at a share of the step."""
        pushed = self.pushed + share * self.move
        counts = self.tied | (pushed > 0)
        move = np.where(counts, self.move, 0.0)
        slope = self.pull + share * self.curvature + float(pushed @ move)
        return slope, self.curvature + float(move @ move)
