"""The method: an active set, or else an interior point, on a growing set of pairs.

Of the strict pairs only few are tight at the solution, about as many as ``W`` has free numbers.
Cheap steps on the dual name most of them. The problem of this set, with all ties, is solved to the
last digit, and all pairs are looked at: those that the set's solution misses join it. Where none is
missed, the set's solution is the solution. Later sets differ by few pairs, so that the active set,
which begins at what the last set had, settles at once; if it does not, the interior point begins
anew.

Why it is right does not depend on any of this: a set's certificate is one for all pairs, and what
is returned is measured on all pairs, from the data alone (:mod:`ntpnb.margin.solution`).
"""

from collections.abc import Callable, Iterator

import numpy as np

from ntpnb.basics.tolerances import STOP
from ntpnb.basics.validation import AnyPrecision, BoolArray, FloatArray, IntArray
from ntpnb.margin.normal_form import FEW, AllPairs, Iterate, MarginProgram, SetStep
from ntpnb.margin.one_set import solve_set

ROUND = 40
"""Steps on the dual between two looks at all pairs."""


def growing_set(
    pairs: AllPairs,
    check: Callable[[], object] = lambda: None,
    start: SetStep | None = None,
) -> Iterator[SetStep]:
    """The steps of the method, set after set.

    Parameters
    ----------
    pairs : AllPairs
    check : callable
        Called between steps that yield nothing; what it raises ends the search.
    start : SetStep, optional
        The first set, and a guess on it, of which the signs of the multipliers count. Default: the
        last of :func:`first_steps`, which are then steps of the method too.

    Raises
    ------
    numpy.linalg.LinAlgError
        A Newton system has no factor in floating point.
    """
    if start is None:
        for step in first_steps(pairs, check):
            yield step
        start = step
    program = start.program
    tight = program.tied | (start.iterate.dual < 0)
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


def first_steps(pairs: AllPairs, check: Callable[[], object] = lambda: None) -> Iterator[SetStep]:
    """Cheap steps, the last of which is on the first set, and guesses its multipliers.

    Where pairs are few, all of them have one. Else a round of steps on all pairs names a set, on
    which a step costs much less as a rule. There the steps go on, and after each round the set
    becomes what still has a multiplier and what was missed. They end where nothing is missed, or no
    less than two rounds before (it goes up and down), as where nothing separates. All pairs are the
    set where guesses may be iterated, which takes tables of all pairs.

    The ``W`` of such a step solves nothing, but it may separate the data already; so one is shown
    in each round.
    """
    everything = pairs.everything()
    if pairs.num_strict <= FEW:
        yield all_tight(everything)
        return
    steps = DualSteps(everything, largest_eigenvalue(everything))
    for _ in range(2):  # where margins are wide, half a round is enough
        steps.take(ROUND // 2, check)
        yield steps.guess()
    if everything.rough:
        return
    steps.go_on(pairs.program(steps.named))
    two_rounds_before = last = pairs.num_strict
    done = False
    while not done:
        steps.take(ROUND, check)
        missed = steps.missed(pairs)
        done = len(missed) == 0 or len(missed) >= two_rounds_before
        two_rounds_before, last = last, len(missed)
        steps.go_on(pairs.program(np.union1d(steps.named, missed)))
        yield steps.guess()


def all_tight(program: MarginProgram) -> SetStep:
    """The guess that every pair of a set has a multiplier."""
    return guess(program, np.where(program.ordered, -program.roots, 0.0))


def guess(program: MarginProgram, dual: FloatArray) -> SetStep:
    """A step to a dual that is no candidate for the solution."""
    return SetStep(program, Iterate(dual, program.zero_common(), direction=None))


class DualSteps:
    """Accelerated projected gradient steps on the dual of a program, few of whose digits count.

    Beck & Teboulle (2009), with the restarts of O'Donoghue & Candès (2015). They begin at zero.

    Parameters
    ----------
    program : MarginProgram
    lipschitz : float
        About the largest eigenvalue of all ``⟨φ_k, φ_l⟩``.

    Attributes
    ----------
    program : MarginProgram
    dual : ndarray, shape (n,)
        In single precision; but products with the pairs of :class:`PairProgram` are doubles.
    """

    def __init__(self, program: MarginProgram, lipschitz: float) -> None:
        self._step_size = np.float32(1 / lipschitz)
        self._momentum = 1.0
        self._begin(program, np.zeros(len(program)), np.zeros(len(program)))

    def _begin(self, program: MarginProgram, dual: FloatArray, extrapolated: FloatArray) -> None:
        self.program = program
        self.dual: AnyPrecision = dual.astype(np.float32)
        self._extrapolated: AnyPrecision = extrapolated.astype(np.float32)
        self._below = np.full(len(program), True)
        self._shift = self._step_size * program.rhs.astype(np.float32)
        self._project = Projection(program)

    def go_on(self, program: MarginProgram) -> None:
        """Go on with another set of the same problem, with the same momentum."""
        dual = program.values_of(self.program, self.dual)
        extrapolated = program.values_of(self.program, self._extrapolated)
        self._begin(program, dual, extrapolated)

    def take(self, number: int, check: Callable[[], object] = lambda: None) -> None:
        """Take so many steps, and call ``check`` before each."""
        for _ in range(number):
            check()
            scores = self.program.scores_of(self._extrapolated)
            descended = self._extrapolated - self._step_size * scores - self._shift
            before = self.dual
            self.dual, self._below = self._project(descended, self._below)
            move = self.dual - before
            if np.vdot(self._extrapolated - self.dual, move) > 0:  # uphill
                self._momentum = 1.0
            momentum = (1 + (1 + 4 * self._momentum**2) ** 0.5) / 2
            self._extrapolated = self.dual + np.float32((self._momentum - 1) / momentum) * move
            self._momentum = momentum

    def guess(self) -> SetStep:
        """The dual as a step of the method."""
        return guess(self.program, self.dual.astype(np.float64))

    @property
    def named(self) -> IntArray:
        """Keys of the strict pairs that have a multiplier."""
        return self.program.keys[self.program.ordered & (self.dual < 0)]

    def missed(self, pairs: AllPairs) -> IntArray:
        """Keys of strict pairs outside the set whose margin is too small at the dual's ``W``."""
        program = self.program
        common = program.zero_common()
        weights = program.weights(self.dual.astype(np.float64))
        ties = pairs.ties
        if ties.num_columns > 0:  # a column's common score is, of tied tokens, about the mean
            common = np.bincount(ties.column, ties.scores(weights)) / np.bincount(ties.column)
        return pairs.missed(program, weights, common, 0.0)


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
