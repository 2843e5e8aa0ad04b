"""The interior-point method: about ten Newton steps, twenty at the edge of separability.

Ordered constraints get slack variables ``s > 0`` beside their multipliers ``λ = −A > 0``, with
``slack(W, c) = s``. The products ``s λ`` are driven to zero together: Mehrotra (1992).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ntpnb.basics.array_types import BoolArray, FloatArray
from ntpnb.basics.tolerances import PROX
from ntpnb.margin.active_set import active_set
from ntpnb.margin.normal_form import Iterate, KKTSolver, MarginProgram

FIRST_ACCURACY = 1e-5
"""Relative error at which an active set is tried; then again after every two digits more."""

INSIDE = 0.995
"""Share of the longest step that keeps ``s`` and ``λ`` positive."""


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of the dual ``A = −λ``, the common scores and the slack variables."""

    dual: FloatArray
    common: FloatArray
    slack: FloatArray


@dataclass(frozen=True, eq=False)
class Linearization:
    """The optimality conditions, linearised at a point.

    Attributes
    ----------
    ordered : ndarray of bool
        The entries that have a slack variable.
    s, lam : ndarray
        Slack variables and multipliers; one on other entries, where they don't count.
    residual, imbalance : ndarray
        What the constraints and the column sums miss.
    solver : KKTSolver
        For all entries, with ``s / λ`` on the diagonal and a proximal term.
    """

    ordered: BoolArray
    s: FloatArray
    lam: FloatArray
    residual: FloatArray
    imbalance: FloatArray
    solver: KKTSolver

    def direction(self, target: float | FloatArray) -> Direction:
        """The direction that meets all constraints, and ``s λ = target`` to first order.

        The latter says ``Δs = (s / λ) ΔA − pull``, which leaves a Newton system for ``ΔA`` alone.
        """
        pull = np.where(self.ordered, self.s - target / self.lam, 0.0)
        newton = self.solver(self.residual + pull, self.imbalance)
        change = np.where(self.ordered, self.s / self.lam * newton.step - pull, 0.0)
        return Direction(newton.step, newton.common, change)

    def longest_step(self, direction: Direction) -> float:
        """The share of a direction, at most one, that leaves ``s`` and ``λ`` nonnegative."""
        shrinking_s = (-direction.slack / self.s).max()
        shrinking_lam = (direction.dual / self.lam)[self.ordered].max()
        return float(1 / max(1.0, shrinking_s, shrinking_lam))

    def sum_of_products(self, direction: Direction, share: float) -> float:
        """Sum of ``s λ`` over ordered entries after a share of a direction."""
        s = self.s + share * direction.slack
        lam = self.lam - share * direction.dual
        return float((s * lam)[self.ordered].sum())


def interior_point(program: MarginProgram, max_steps: int = 80) -> Iterator[Iterate]:
    """Predictor-corrector steps with a proximal term, finished by an active set.

    Parameters
    ----------
    program : MarginProgram
    max_steps : int
        A problem at the edge of separability took about twenty.
    """
    ordered = program.ordered
    num_ordered = np.count_nonzero(ordered)
    if num_ordered == 0:  # a set of ties alone
        return
    # Each token that an entry stands for begins with one; all products s λ begin with one, too.
    dual = np.where(ordered, -program.roots, 0.0)
    common = program.zero_common()
    s = np.where(ordered, 1 / program.roots, 1.0)
    growth = dual  # since zero, as there has been no step yet
    wanted_accuracy = FIRST_ACCURACY
    for _ in range(max_steps):
        yield Iterate(dual, common, direction=growth)

        weights = program.weights(dual)
        lam = np.where(ordered, -dual, 1.0)
        mean_product = (s * lam)[ordered].sum() / num_ordered
        residual = program.slack(weights, common) - np.where(ordered, s, 0.0)
        size = np.maximum(1.0, np.linalg.norm(weights))
        error = np.maximum(np.abs(residual).max() / size, mean_product / size**2)
        if error < wanted_accuracy:
            wanted_accuracy *= 1e-2
            tight = program.tied | (ordered & (lam > s))  # one of the two tends to zero
            yield from active_set(program, dual, tight)

        diagonal = np.where(ordered, s / lam, 0.0) + 10 * PROX
        linearization = Linearization(
            ordered=ordered,
            s=s,
            lam=lam,
            residual=residual,
            imbalance=-program.column_sums(dual),
            solver=program.kkt_solver(np.full(len(program), True), diagonal),
        )
        # Predict how far the products s λ can shrink, then aim there, corrected to second order.
        predicted = linearization.direction(0.0)
        share = linearization.longest_step(predicted)
        predicted_sum = linearization.sum_of_products(predicted, share)
        shrinkage = predicted_sum / (num_ordered * mean_product)
        target = mean_product * shrinkage**3 + predicted.slack * predicted.dual  # − Δs Δλ
        corrected = linearization.direction(target)
        share = INSIDE * linearization.longest_step(corrected)
        dual = dual + share * corrected.dual
        common = common + share * corrected.common
        s = s + share * corrected.slack
        growth = corrected.dual
