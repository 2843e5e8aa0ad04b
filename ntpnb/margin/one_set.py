"""The solvers of one set: the active set, and the interior point where its guesses do not settle.

The primal-dual active set method takes a few exact Newton steps. The interior-point method takes
about ten, twenty at the edge of separability: ordered constraints get slack variables ``s > 0``
beside their multipliers ``λ = −A > 0``, with ``slack(W, c) = s``, and the products ``s λ`` are
driven to zero together (Mehrotra 1992).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ntpnb.basics.tolerances import EPS, PROX, STOP
from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.margin.normal_form import GuessSolver, Iterate, MarginProgram

PATIENCE = 3
"""Rounds in a row that may be no better than those before."""

FIRST_ACCURACY = 1e-5
"""Relative error at which an active set is tried; then again after every two digits more."""

MOST_STEPS = 80
"""Of the interior point; a problem at the edge of separability took about twenty."""

INSIDE = 0.995
"""Share of the longest step that keeps ``s`` and ``λ`` positive."""


def solve_set(program: MarginProgram, dual: FloatArray, tight: BoolArray) -> Iterator[Iterate]:
    """The steps on one set, until it is solved as well as rounding allows.

    The active set first; if it gives up, the interior point. They end where a settled iterate
    misses nothing but rounding, or hardly more and some in a row were no better.
    """
    best = np.inf
    stalled = 0
    for method in (active_set(program, dual, tight), interior_point(program)):
        for iterate in method:
            yield iterate
            if not iterate.settled:
                continue
            error = error_on_set(program, iterate)
            stalled = stalled + 1 if error > best / 2 else 0
            best = min(best, error)
            if best <= STOP or (best <= 10 * STOP and stalled >= PATIENCE):
                return


def error_on_set(program: MarginProgram, iterate: Iterate) -> float:
    """What an iterate misses of its set's constraints and complementarity, relative to ``W``."""
    weights = program.weights(iterate.dual)
    slack = program.slack(weights, iterate.common)
    multipliers = np.where(program.ordered, np.abs(iterate.dual), 0.0)
    missed = np.where(program.tied, np.abs(slack), -slack).max()
    total = float(multipliers.sum()) or 1.0
    complementarity = float((multipliers * np.abs(slack)).sum()) / total
    size = max(1.0, float(np.linalg.norm(weights)))
    return max(float(missed), complementarity) / size


# -- the active set -------------------------------------------------------------------------------


def active_set(program: MarginProgram, dual: FloatArray, tight: BoolArray) -> Iterator[Iterate]:
    """Guess the tight constraints, solve their equations, exchange all that are wrong.

    Where the program is rough, so are guesses as long as some are wrong: equations are solved and
    guesses judged to the relative accuracy ``program.rough``.

    The equations have a proximal term, which makes them definite (see ``PROX``). Once no guess is
    wrong, the term's centre moves to the solution of the equations, and they are solved again: this
    refines the solution to the last digit, mostly the first time already, and nothing is yielded as
    a solution before. Without one, each such move goes about as far as the one before it, and its
    direction tends to a certificate.

    It ends after :data:`PATIENCE` rounds without progress. Progress is fewer wrong guesses than
    ever before; where none is wrong, it is the first time, or a move of the centre less than half
    as far as any before.

    Parameters
    ----------
    program : MarginProgram
    dual : ndarray
        Where to begin, and the first centre.
    tight : ndarray of bool
        The first guess; all tied entries are in it.
    """
    centre = dual
    common = program.zero_common()
    solver: GuessSolver | None = None
    rough = program.rough
    pulled = True
    fewest_wrong = len(program) + 1
    smallest_move = np.inf
    rounds_stalled = 0

    while rounds_stalled < PATIENCE:
        if solver is None:
            solver = program.guess_solver(tight)
            dual = np.where(tight, dual, 0.0)
        accuracy = max(rough, EPS * np.sqrt(len(program))) * max(1.0, np.abs(dual).max())
        residual = program.slack_of(dual, common) - PROX * (dual - centre)
        for _ in range(2):  # the second time what the first left, where the system is near-singular
            newton = solver(residual, -program.column_sums(dual), accuracy)
            dual = dual + newton.step
            common = common + newton.common
            slack = program.slack_of(dual, common)
            residual = slack - PROX * (dual - centre)
            noise = max(rough, 0.1 * STOP) * max(1.0, np.abs(dual).max())
            if np.abs(residual[tight]).max(initial=0.0) <= noise:
                break

        wrong_sign = tight & (dual > noise)
        # Where the dual is zero, slack + PROX * centre is minus the gradient of the dual problem
        # with its proximal term. If it is negative, descent leads below zero: the constraint is
        # tight.
        violated = ~tight & (slack + PROX * centre < -noise)
        wrong = program.ordered & (wrong_sign | violated)
        num_wrong = int(np.count_nonzero(wrong))
        move = float(np.abs(dual - centre).max())
        if pulled and num_wrong == 0:
            # With the centre there, the term pulls by little more than rounding.
            pulled = False
            rough = 0.0
            centre = dual
            continue

        if num_wrong:
            yield Iterate(dual, common, direction=None)
            progress = num_wrong < fewest_wrong
            fewest_wrong = min(fewest_wrong, num_wrong)
            tight = tight ^ wrong
            solver = None
            pulled = True
        else:
            yield Iterate(dual, common, direction=dual - centre, settled=True)
            progress = bool(move < smallest_move / 2)
            fewest_wrong = 0
            smallest_move = min(smallest_move, move)
            centre = dual
        rounds_stalled = 0 if progress else rounds_stalled + 1


# -- the interior point ---------------------------------------------------------------------------


class Point(NamedTuple):
    """A dual ``A = −λ``, common scores and slack variables ``s``; or a change of all of them.

    Slack variables and multipliers count on ordered entries only.
    """

    dual: FloatArray
    common: FloatArray
    slack: FloatArray


def interior_point(program: MarginProgram) -> Iterator[Iterate]:
    """Predictor-corrector steps with a proximal term, finished by an active set."""
    ordered = program.ordered
    if not ordered.any():  # a set of ties alone
        return
    # Each token that an entry stands for begins with one; all products s λ begin with one, too.
    dual = np.where(ordered, -program.roots, 0.0)
    point = Point(dual, program.zero_common(), np.where(ordered, 1 / program.roots, 1.0))
    growth = dual  # since zero, as there has been no step yet
    wanted_accuracy = FIRST_ACCURACY
    for _ in range(MOST_STEPS):
        dual, common, s = point
        yield Iterate(dual, common, direction=growth)

        weights = program.weights(dual)
        products = -(s * dual)[ordered]
        residual = program.slack(weights, common) - np.where(ordered, s, 0.0)
        size = np.maximum(1.0, np.linalg.norm(weights))
        error = np.maximum(np.abs(residual).max() / size, products.mean() / size**2)
        if error < wanted_accuracy:
            wanted_accuracy *= 1e-2
            tight = program.tied | (ordered & (-dual > s))  # one of the two tends to zero
            yield from active_set(program, dual, tight)

        share, change = _corrected_step(program, point, residual)
        point = Point(*(old + share * new for old, new in zip(point, change, strict=True)))
        growth = change.dual


def _corrected_step(
    program: MarginProgram, point: Point, residual: FloatArray
) -> tuple[float, Point]:
    """How far to go, and the direction in which to go, from a point whose constraints miss so much.

    The Newton system has ``s / λ`` on the diagonal and a proximal term.
    """
    ordered = program.ordered
    s = point.slack
    lam = np.where(ordered, -point.dual, 1.0)
    diagonal = np.where(ordered, s / lam, 0.0) + 10 * PROX
    solver = program.kkt_solver(np.full(len(program), True), diagonal)
    imbalance = -program.column_sums(point.dual)

    def direction(target: float | FloatArray) -> Point:
        """The direction that meets all constraints, and ``s λ = target`` to first order.

        The latter says ``Δs = (s / λ) ΔA − pull``, which leaves a Newton system for ``ΔA`` alone.
        """
        pull = np.where(ordered, s - target / lam, 0.0)
        newton = solver(residual + pull, imbalance)
        change = np.where(ordered, s / lam * newton.step - pull, 0.0)
        return Point(newton.step, newton.common, change)

    def longest_step(change: Point) -> float:
        """The share of a direction, at most one, that leaves ``s`` and ``λ`` nonnegative."""
        shrinking_s = (-change.slack / s).max()
        shrinking_lam = (change.dual / lam)[ordered].max()
        return float(1 / max(1.0, shrinking_s, shrinking_lam))

    # Predict how far the products s λ can shrink, then aim there, corrected to second order.
    predicted = direction(0.0)
    share = longest_step(predicted)
    left = ((s + share * predicted.slack) * (lam - share * predicted.dual))[ordered].mean()
    mean_product = (s * lam)[ordered].mean()
    shrinkage = left / mean_product
    target = mean_product * shrinkage**3 + predicted.slack * predicted.dual  # − Δs Δλ
    corrected = direction(target)
    return INSIDE * longest_step(corrected), corrected
