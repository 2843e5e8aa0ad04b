"""The augmented Lagrangian method: for programs by supports with far more contexts than dimensions.

Each step minimises a penalised problem (:mod:`ntpnb.margin.penalty`) whose push are the multipliers
so far, and whose residual are the next ones. That costs a few Newton systems in ``d × d``, whatever
the number of contexts. Once the constraints hold to some digits, an active set refines the answer.

Where no ``W`` meets the constraints, the multipliers grow without bound, along a certificate. The
method notices that early, from ``κ = ‖G U‖ / ‖G‖`` of their growth ``G``, which tends to zero then,
and turns to the problem without a push (:func:`contradiction`), which is faster to find it.
"""

from collections.abc import Iterator

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.margin.active_set import active_set
from ntpnb.margin.iterate import Iterate
from ntpnb.margin.normal_form import MarginProgram
from ntpnb.margin.penalty import Minimum, PenaltyPoint, minimise, point_at, with_fixed_scores
from ntpnb.margin.support_program import SupportProgram

FIRST_WEIGHT = 1e-2
"""The first ``τ``."""

LAST_WEIGHT = 1e-5
"""The last ``τ`` of the augmented Lagrangian: below it ``r/τ`` loses its digits."""

FEW_STEPS = 12
"""Newton steps for one minimum up to which ``τ`` falls tenfold; else by a factor of √10."""

MANY_STEPS = 50
"""Newton steps for one minimum above which ``τ`` stays as it is."""

MOST_STEPS = 40
"""Steps of the augmented Lagrangian; a dozen are the rule."""

LOW_GROWTH = 3e-3
"""``κ`` below which the constraints are taken to contradict each other.

It was .05 and more where data are separable, and fell tenfold with every ``τ`` where not.
"""

FURTHER = 0.1
"""Share of its last value below which ``κ`` lets :func:`contradiction` be asked once more."""

ACCURACY = 0.01
"""Accuracy of a minimum, relative to the pull of the start."""

FIRST_ACCURACY = 1e-5
"""Shortfall, relative to ``‖W‖``, at which an active set is tried; then after two digits more."""

MOST_CENTRES = 60
"""Centres of :func:`contradiction`; a dozen are the rule."""

SMALLEST_WEIGHT = 1e-8
"""The least ``τ`` of :func:`contradiction`.

Weights grow by ``‖r U‖ / τ`` from centre to centre. Where few contexts contradict each other and
the others are separable by a hair, they have a long way to go.
"""

SAFE_WEIGHT = 1e-6
"""The ``τ`` to go back to, and not below, where a Newton system of a smaller one has no factor."""

FEASIBLE = 1e-2
"""Share of the first residual below which the constraints are taken to be met after all.

It hardly falls where they contradict each other.
"""

COMMON_START = 2.5
"""Common scores at the start, relative to the margins that are asked for; see :func:`_start`."""


def augmented_lagrangian(program: MarginProgram) -> Iterator[Iterate]:
    """Steps of the augmented Lagrangian, finished by an active set or by a certificate.

    Parameters
    ----------
    program : MarginProgram
        By supports: no other has the structure that the Newton systems exploit.
    """
    assert isinstance(program, SupportProgram)
    multipliers = np.zeros(program.rhs.shape)
    no_centre = np.zeros((len(program.rhs), program.directions.shape[1]))
    point = _start(program)
    wanted_accuracy = FIRST_ACCURACY
    low_growth = LOW_GROWTH
    tau = FIRST_WEIGHT
    for step in range(MOST_STEPS):
        push = tau * multipliers
        minimum = minimise(program, point, push, no_centre, tau, relative_accuracy=ACCURACY)
        point = minimum.point
        growth = minimum.residual / tau - multipliers
        multipliers = minimum.residual / tau
        yield Iterate(-multipliers, point.common, direction=-growth)

        error = _relative_shortfall(program, point)
        if error < wanted_accuracy:
            wanted_accuracy = 1e-2 * error
            tight = program.tied | (multipliers > 0)
            yield from active_set(program, -multipliers, tight, patience=2)
        growth_of_weights = float(np.linalg.norm(growth @ program.directions))
        growth_of_multipliers = float(np.linalg.norm(growth))
        if step > 0 and growth_of_weights < low_growth * growth_of_multipliers:
            yield from contradiction(program, point, multipliers, tau)
            # It found none: it is not asked again before κ has fallen further.
            low_growth = FURTHER * growth_of_weights / growth_of_multipliers
        tau = max(_next_weight(tau, minimum), LAST_WEIGHT)


def contradiction(
    program: MarginProgram,
    point: PenaltyPoint | None = None,
    multipliers: FloatArray | None = None,
    tau: float = FIRST_WEIGHT,
    feasible: float = FEASIBLE,
) -> Iterator[Iterate]:
    """Minimise what the constraints miss, by steps from centre to centre.

    The limit of the residuals is zero where some ``W`` meets the constraints; then this ends. Else
    it is a certificate: it is nonnegative, its columns sum to zero, and ``r U = −τ (W − W₀)`` tends
    to zero as the centres ``W₀`` settle.

    Parameters
    ----------
    program : MarginProgram
        By supports.
    point : PenaltyPoint, optional
        Where to begin. Default: common scores that most tokens keep below.
    multipliers : ndarray, shape (V, m), optional
        ``λ`` with ``W = −λ U`` at that point. Default: zero, for weights that are zero.
    tau : float
        The first ``τ``.
    feasible : float
        See :data:`FEASIBLE`.
    """
    assert isinstance(program, SupportProgram)
    if point is None or multipliers is None:
        start = _start(program)
        multipliers = np.zeros(program.rhs.shape)
        point = point_at(program, np.zeros(start.weights.shape), start.common)
    first_size: float | None = None
    smallest = SMALLEST_WEIGHT
    for _ in range(MOST_CENTRES):
        centre = point.weights
        try:
            minimum = minimise(program, point, 0.0, centre, tau, relative_accuracy=ACCURACY)
        except np.linalg.LinAlgError:
            if tau >= SAFE_WEIGHT:
                raise
            smallest = SAFE_WEIGHT
            tau = SAFE_WEIGHT
            continue
        point = minimum.point
        multipliers = multipliers + minimum.residual / tau
        yield Iterate(-multipliers, point.common, direction=-minimum.residual)

        size = float(np.linalg.norm(minimum.residual))
        if first_size is None:
            first_size = size
        if size <= feasible * first_size:
            return
        tau = max(_next_weight(tau, minimum), smallest)


def _next_weight(tau: float, minimum: Minimum) -> float:
    """The ``τ`` after a minimum: the more steps that took, the smaller the change."""
    if minimum.steps <= FEW_STEPS:
        return tau / 10
    if minimum.steps <= MANY_STEPS:
        return tau / 10**0.5
    return tau


def _start(program: SupportProgram) -> PenaltyPoint:
    """Weights that meet most constraints for fixed common scores.

    A context whose support is small lets few tokens lift its common score, and asks for a higher
    one. The factor was found by trial; it decides how fast the first steps are, and nothing else.
    """
    vocab_size = len(program.rhs)
    num_tokens = np.broadcast_to(np.square(program.roots), (vocab_size, 1))
    outside = (num_tokens * program.ordered).sum(0) / num_tokens.sum()
    common = COMMON_START * (program.rhs / program.roots).max(0) * outside
    zero = np.zeros((vocab_size, program.directions.shape[1]))
    return with_fixed_scores(program, point_at(program, zero, common), FIRST_WEIGHT, steps=4)


def _relative_shortfall(program: SupportProgram, point: PenaltyPoint) -> float:
    """What constraints miss, at most, relative to the weights' norm."""
    missed = np.where(program.tied, np.abs(point.shortfall), point.shortfall)
    size = max(1.0, float(np.linalg.norm(point.weights)))
    return float(missed[program.domain].max()) / size
