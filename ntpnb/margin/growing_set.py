"""The method: an active set, or else an interior point, on a growing set of pairs.

Of the strict pairs only few are tight at the solution, about as many as ``W`` has free numbers. A
few cheap steps on the dual of all pairs name most of them. The problem of this set, with all ties,
is solved to the last digit, and all pairs are looked at: those that the set's solution misses join
it. Where none is missed, the set's solution is the solution. Later sets differ by few pairs, so
that the active set, which begins at what the last set had, settles at once; if it does not, the
interior point begins anew.

Why it is right does not depend on any of this: a set's certificate is one for all pairs, and what
is returned is measured on all pairs, from the data alone (:mod:`ntpnb.margin.solution`).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ntpnb.basics.tolerances import STOP
from ntpnb.basics.validation import AnyPrecision, BoolArray, IntArray
from ntpnb.margin.normal_form import FEW, AllPairs, Iterate, MarginProgram, SetStep
from ntpnb.margin.one_set import solve_set

ON_ALL = 40
"""Steps on all pairs, at most."""

INTERVAL = 20
"""Steps over which a set is watched."""

STILL_CHANGING = 0.02
"""Share of a set that may change over :data:`INTERVAL` steps when these end."""

ON_SET = 400
"""Steps on those pairs that had a multiplier then, at most."""


def growing_set(
    pairs: AllPairs,
    check: Callable[[], object] = lambda: None,
    start: "FirstSet | None" = None,
) -> Iterator[SetStep]:
    """The steps of the method, set after set.

    Parameters
    ----------
    pairs : AllPairs
    check : callable
        Called between steps that yield nothing; what it raises ends the search.
    start : FirstSet, optional
        Where to begin. Default: :func:`first_set`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A Newton system has no factor in floating point.
    """
    program, tight = start or first_set(pairs, check)
    dual = np.zeros(len(program))
    while True:
        # The last iterate that was taken for the set's solution, or else the last of all: at the
        # edge of separability a set may have no solution in floating point, and still grows by what
        # that one misses.
        reached: Iterate | None = None
        for iterate in solve_set(program, dual, tight):
            yield SetStep(program, iterate)
            if iterate.settled or reached is None or not reached.settled:
                reached = iterate
        assert reached is not None  # every method yields once at least
        weights = program.weights(reached.dual)
        rounding = STOP * max(1.0, float(np.linalg.norm(weights)))
        missed = pairs.missed(program, weights, reached.common, rounding)
        if len(missed) == 0:
            return
        larger = pairs.program(np.union1d(program.keys[program.ordered], missed))
        dual = larger.values_of(program, reached.dual)
        tight = larger.tied | (dual < 0) | np.isin(larger.keys, missed, assume_unique=True)
        program = larger


# -- the first set --------------------------------------------------------------------------------


class FirstSet(NamedTuple):
    """A program to begin with, and the first guess of its tight constraints, shape (n,)."""

    program: MarginProgram
    tight: BoolArray


def first_set(pairs: AllPairs, check: Callable[[], object] = lambda: None) -> FirstSet:
    """The program of the strict pairs that have a multiplier after some steps.

    There are three cases. Where pairs are few, all of them are the set, and all are guessed to be
    tight. Where guesses may be iterated, which takes tables of all pairs, all are the set, and
    those are guessed to be tight that have a multiplier after steps on all pairs. Else the set are
    those that have one after more steps, on those that had one after steps on all.
    """
    everything = pairs.everything()
    if pairs.num_strict <= FEW:
        return FirstSet(everything, np.full(len(everything), True))
    lipschitz = largest_eigenvalue(everything)
    steps = DualSteps(everything, lipschitz, np.zeros(len(everything), dtype=np.float32))
    steps.run(ON_ALL, check)
    if everything.rough:
        return FirstSet(everything, everything.tied | (steps.dual < 0))
    program = pairs.program(steps.used())
    if not steps.is_settled:
        dual = program.values_of(everything, steps.dual).astype(np.float32)
        steps = DualSteps(program, lipschitz, dual)
        steps.run(ON_SET, check)
        program = pairs.program(steps.used())
    return FirstSet(program, np.full(len(program), True))


class DualSteps:
    """Accelerated projected gradient steps on the dual of a program, in single precision.

    Beck & Teboulle (2009), with the restarts of O'Donoghue & Candès (2015).

    Parameters
    ----------
    program : MarginProgram
    lipschitz : float
        About the largest eigenvalue of all ``⟨φ_k, φ_l⟩``.
    dual : ndarray of float32, shape (n,)
        Where to begin.

    Attributes
    ----------
    dual : ndarray of float32, shape (n,)
    is_settled : bool
        Whether the pairs with multipliers have hardly changed in the last steps.
    """

    def __init__(self, program: MarginProgram, lipschitz: float, dual: AnyPrecision) -> None:
        self.program = program
        self.dual = dual
        self.is_settled = False
        self._step_size = np.float32(1 / lipschitz)
        self._shift = self._step_size * program.rhs.astype(np.float32)
        self._project = Projection(program)

    def run(self, most_steps: int, check: Callable[[], object]) -> None:
        """Take so many steps, or until the set has settled."""
        previous = extrapolated = self.dual
        below = np.full(len(self.dual), True)
        momentum = 1.0
        guess = self.dual < 0
        for step in range(1, most_steps + 1):
            check()
            gradient = self.program.scores_of(extrapolated)
            descended = extrapolated - self._step_size * gradient - self._shift
            dual, below = self._project(descended, below)
            if step % INTERVAL == 0:
                before, guess = guess, dual < 0
                num_changed = np.count_nonzero(before != guess)
                self.is_settled = bool(num_changed <= STILL_CHANGING * np.count_nonzero(guess))
                if self.is_settled:
                    break
            move = dual - previous
            if np.vdot(extrapolated - dual, move) > 0:  # uphill
                momentum = 1.0
            next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            extrapolated = dual + np.float32((momentum - 1) / next_momentum) * move
            momentum = next_momentum
            previous = dual
        self.dual = dual

    def used(self) -> IntArray:
        """Keys of the strict pairs that have a multiplier."""
        return self.program.keys[self.program.ordered & (self.dual < 0)]


def largest_eigenvalue(program: MarginProgram) -> float:
    """Estimate, from below, of the largest eigenvalue of all ``⟨φ_k, φ_l⟩``, by power iterations.

    It may be too small by a third, which the steps bear: nothing that they name is believed.
    """
    vector = np.cos(np.arange(len(program))).astype(np.float32)
    size = 1.0
    for _ in range(5):
        vector = program.scores_of(vector / size)
        size = float(np.linalg.norm(vector)) or 1.0
    return 1.1 * size


class Projection:
    """The nearest dual with nonpositive ordered entries and zero column sums.

    It shifts each column by one number times the roots, and cuts ordered entries off at zero. The
    number is where the column's sum after the cut vanishes, a concave function of the shift, on
    which Newton's method takes a few passes from any guess of the entries that stay below zero.
    """

    def __init__(self, program: MarginProgram) -> None:
        self._program = program
        self._upper = np.where(program.tied, np.inf, 0.0).astype(np.float32)
        self._roots = program.roots.astype(np.float32)
        self._sizes = np.diff(np.append(program.first_of_column, len(program)))

    def __call__(self, dual: AnyPrecision, below: BoolArray) -> tuple[AnyPrecision, BoolArray]:
        """The nearest dual, and where it is below its upper bounds, of which a guess is given."""
        if self._program.num_columns == 0:
            projected = np.minimum(dual, self._upper)
            return projected, projected < self._upper
        first = self._program.first_of_column
        for _ in range(10):  # rounding may go back and forth between two guesses
            counted = self._roots * below
            sums = np.add.reduceat(counted * dual, first)
            shift = sums / np.add.reduceat(counted * self._roots, first)
            projected = np.minimum(dual - self._roots * np.repeat(shift, self._sizes), self._upper)
            guess = below
            below = projected < self._upper
            if (below == guess).all():
                break
        return projected, below
