"""Penalised max-margin problems by supports, and their minimum by a semismooth Newton method.

A constraint of the program (see :mod:`ntpnb.margin.normal_form`) is missed by
``g_vj = w_v · u_j − a_v c_j + b_vj``, where that is positive, with the token's root ``a_v`` (one,
where it stands for itself alone); a tie is missed by any ``g_vj ≠ 0``. For
a given push ``p`` and a centre ``W₀`` this module minimises, over ``W`` and ``c``,

    τ/2 ‖W − W₀‖² + ½ ‖r‖²   with   r = p + g on ties,  max(p + g, 0) on ordered entries.

The function is convex and piecewise quadratic. Newton's method solves the quadratic of the entries
that are penalised at present (:mod:`ntpnb.margin.penalty_system`) and searches on the line to its
minimum, exactly, since the derivative there is piecewise linear. At the minimum the columns of
``r`` sum to zero, by the roots, and ``r U = −τ (W − W₀)``: with ``W₀ = 0``, ``A = −r/τ`` is a dual
whose weights are ``W``.
"""

from dataclasses import dataclass

import numpy as np

from ntpnb.array_types import BoolArray, FloatArray
from ntpnb.margin.penalty_system import penalty_system
from ntpnb.margin.support_program import SupportProgram

MOST_STEPS = 150
"""Newton steps for one minimum: a dozen are the rule, a hundred the edge of separability needs."""

SHORTEST_STEP = 1e-9
"""Share of a Newton step below which rounding decides on the line."""

SEARCHES = 30
"""Points that are tried on one line; five are the rule."""


@dataclass(frozen=True, eq=False)
class PenaltyPoint:
    """A point ``(W, c)`` of a penalised problem.

    Attributes
    ----------
    weights : ndarray, shape (V, d)
    common : ndarray, shape (m,)
    shortfall : ndarray, shape (V, m)
        ``g``, and zero outside the program's domain.
    """

    weights: FloatArray
    common: FloatArray
    shortfall: FloatArray


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where Newton's method ended.

    Attributes
    ----------
    point : PenaltyPoint
    residual : ndarray, shape (V, m)
        ``r``.
    steps : int
        Newton steps that were taken.
    exact : bool
        Whether the last step ended at the minimum of the very quadratic that it solved.
    """

    point: PenaltyPoint
    residual: FloatArray
    steps: int
    exact: bool


def point_at(program: SupportProgram, weights: FloatArray, common: FloatArray) -> PenaltyPoint:
    """The point with these weights and common scores."""
    return PenaltyPoint(weights, common, -program.slack(weights, common))


def penalty_residual(program: SupportProgram, pushed: FloatArray) -> FloatArray:
    """``r`` for ``p + g``."""
    cut = np.where(program.ordered, np.maximum(pushed, 0.0), pushed)
    return np.where(program.domain, cut, 0.0)


def penalised(program: SupportProgram, pushed: FloatArray) -> BoolArray:
    """The entries that are penalised where ``p + g`` is ``pushed``."""
    return program.tied | (program.ordered & (pushed > 0))


def with_fixed_scores(
    program: SupportProgram, point: PenaltyPoint, tau: float, steps: int
) -> PenaltyPoint:
    """A few Newton steps with ``p = W₀ = 0`` and the common scores as they are: rows decouple.

    From zero weights most constraints are missed, unless common scores keep them. With scores that
    may move at once, the first quadratic would have almost all entries.
    """
    rest = program.rhs - program.roots * point.common
    for _ in range(steps):
        active = penalised(program, point.shortfall)
        system = penalty_system(program.directions, active, tau, program.roots)
        weights = system.weights_change(rest)
        point = point_at(program, weights, point.common)
    return point


def minimise(
    program: SupportProgram,
    start: PenaltyPoint,
    push: FloatArray | float,
    centre: FloatArray,
    tau: float,
    *,
    accuracy: float = 0.0,
    relative_accuracy: float = 0.0,
) -> Minimum:
    """Minimise from a start.

    Parameters
    ----------
    program : SupportProgram
    start : PenaltyPoint
    push : ndarray of shape (V, m), or zero
        ``p``.
    centre : ndarray, shape (V, d)
        ``W₀``.
    tau : float
        ``τ > 0``.
    accuracy, relative_accuracy : float
        The norm of the gradient that is enough: the first, or the second times the pull
        ``τ ‖W − W₁‖`` of the start ``W₁``.

    Raises
    ------
    numpy.linalg.LinAlgError
        A Newton system has no factor in floating point.
    """
    directions = program.directions
    target = push + program.rhs + centre @ directions.T  # ρ
    point = start
    before: BoolArray | None = None
    for step in range(MOST_STEPS):
        program.between_steps()
        pushed = push + point.shortfall
        active = penalised(program, pushed)
        if before is not None and (active == before).all():
            return Minimum(point, penalty_residual(program, pushed), step, exact=True)
        residual = penalty_residual(program, pushed)
        gradient = tau * (point.weights - centre) + residual @ directions
        imbalance = program.column_sums(residual)
        size = np.hypot(np.linalg.norm(gradient), np.linalg.norm(imbalance))
        pull = tau * float(np.linalg.norm(point.weights - start.weights))
        if size <= max(accuracy, relative_accuracy * pull):
            return Minimum(point, residual, step, exact=False)

        newton = penalty_system(directions, active, tau, program.roots).solve(target)
        move = centre + newton.weights_change - point.weights
        common_move = newton.common - point.common
        score_move = move @ directions.T - program.roots * common_move
        shortfall_move = np.where(program.domain, score_move, 0.0)
        line = Line(
            value=pushed[program.tied],
            value_move=shortfall_move[program.tied],
            ordered=pushed[program.ordered],
            ordered_move=shortfall_move[program.ordered],
            pull=tau * float(np.vdot(point.weights - centre, move)),
            curvature=tau * float(np.vdot(move, move)),
        )
        share = line.lowest_point()
        if share < SHORTEST_STEP:
            return Minimum(point, residual, step, exact=False)
        point = point_at(program, point.weights + share * move, point.common + share * common_move)
        before = active if share == 1.0 else None
    residual = penalty_residual(program, push + point.shortfall)
    return Minimum(point, residual, MOST_STEPS, exact=False)


@dataclass(frozen=True, eq=False)
class Line:
    """The function on the line to a Newton step's end, whose share of the step is ``t``."""

    value: FloatArray
    value_move: FloatArray
    ordered: FloatArray
    ordered_move: FloatArray
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
        tied = self.value + share * self.value_move
        ordered = self.ordered + share * self.ordered_move
        missed = ordered > 0
        missed_move = self.ordered_move[missed]
        slope = self.pull + share * self.curvature
        slope += float(tied @ self.value_move + ordered[missed] @ missed_move)
        bend = self.curvature
        bend += float(self.value_move @ self.value_move + missed_move @ missed_move)
        return slope, bend
