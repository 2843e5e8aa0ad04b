"""Damped Newton's method and conjugate gradients, each until it gains no more, or is late."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.linear_systems import Approximation, conjugate_gradient_steps
from ntpnb.basics.tolerances import EPS, NEGLIGIBLE, STOP, decomposition_error
from ntpnb.basics.validation import FloatArray
from ntpnb.basics.watch import Watch

LEAST_STEPS = 20
"""Steps that are taken before an iteration is asked what it gains, and what the time is.

Most are done by then, so that there is an answer even where no time is left.
"""


def norm(errors: FloatArray) -> float:
    """Euclidean norm of an array, whatever its shape."""
    return float(np.linalg.norm(errors))


class Gains:
    """The best point of an iteration so far, and whether the iteration still improves.

    It has stalled when its error has not halved for ``least`` steps and as many more as all
    halvings so far have taken. So what gains nothing costs little more than what was gained.

    Parameters
    ----------
    point : ndarray
        Where the iteration begins.
    error : float
        Its error there.
    least : int
        Steps without a halving that are always waited for.

    Attributes
    ----------
    point : ndarray
        The one with the smallest error.
    error : float
        The error there.
    step : int
        How many steps were taken.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.newton import Gains
    >>> gains = Gains(np.zeros(1), error=1.0, least=2)
    >>> for error in [0.4, 0.3, 0.5, 0.35, 0.3]:
    ...     gains.take(np.array([error]), error)
    >>> gains.point.tolist(), gains.halved, gains.stalled
    ([0.3], False, True)
    """

    def __init__(self, point: FloatArray, error: float, least: int = LEAST_STEPS) -> None:
        self.point = point
        self.error = error
        self.step = 0
        self._least = least
        self._to_halve = error
        self._last_gain = 0  # the step at which the error had halved

    def take(self, point: FloatArray, error: float) -> None:
        """Note one more step: where it led, and the error there."""
        self.step += 1
        if error < self.error:
            self.point = point
            self.error = error
        if error <= self._to_halve / 2:
            self._to_halve = error
            self._last_gain = self.step

    @property
    def halved(self) -> bool:
        """Whether the last step was one that completed a halving of the error."""
        return self._last_gain == self.step

    @property
    def stalled(self) -> bool:
        """Whether no halving is to be waited for any longer."""
        return self.step > 2 * self._last_gain + self._least


class RestrictedLoss(ABC):
    """A loss to minimise, with a linear map to coordinates in which no context is small."""

    @abstractmethod
    def loss(self, W: FloatArray) -> float:
        """Loss of one matrix, up to a constant."""

    @abstractmethod
    def gradient(self, W: FloatArray) -> FloatArray:
        """Gradient of the loss."""

    @abstractmethod
    def curvature(self, W: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Hessian at ``W``, as a map from changes of ``W`` to changes of the gradient."""

    @abstractmethod
    def whiten(self, G: FloatArray) -> FloatArray:
        """Apply the symmetric map ``A`` for which the Hessian in ``A⁻¹ W`` has size one."""


def minimise(problem: RestrictedLoss, start: FloatArray, watch: Watch) -> Gains:
    """Minimise a restricted loss from a starting point.

    Parameters
    ----------
    problem : RestrictedLoss
    start : ndarray
    watch : Watch

    Returns
    -------
    Gains
        With the ``point`` that has the smallest gradient, and the norm of the whitened gradient
        there, an ``error`` in probabilities: at most ``NEGLIGIBLE`` unless time was over or further
        steps improved nothing.

    Examples
    --------
    The core of two parallel contexts whose odds, 1 and 4, no ``W`` meets at once:

    >>> import numpy as np, ntpnb
    >>> from ntpnb.tied.large import CoreLoss, core_of, tie_entries
    >>> from ntpnb.tied.newton import minimise
    >>> from ntpnb.basics.watch import Watch
    >>> data = ntpnb.NextTokenData([[1.0], [2.0]], [[0.5, 0.5], [0.8, 0.2]])
    >>> entries = tie_entries(data)
    >>> problem = CoreLoss(entries, core_of(entries))
    >>> best = minimise(problem, np.zeros((2, 1)), Watch())
    >>> best.error < 1e-9, bool(np.abs(problem.gradient(best.point)).max() < 1e-12)
    (True, True)
    """
    W = start
    slope = problem.gradient(W)
    white_slope = problem.whiten(slope)
    gains = Gains(W, norm(white_slope))
    while True:
        watch.say(
            f"Newton step {gains.step}: the gradient's norm, relative to the embeddings, is "
            f"{gains.error:.1e}; {NEGLIGIBLE:.0e} is needed"
        )
        no_digit_left = gains.error <= STOP or (gains.error <= NEGLIGIBLE and not gains.halved)
        if no_digit_left or gains.stalled or watch.expired:
            return gains
        direction = problem.whiten(_newton_direction(problem, W, white_slope, watch))
        W = W - _step_length(problem, W, direction, slope) * direction
        slope = problem.gradient(W)
        white_slope = problem.whiten(slope)
        gains.take(W, norm(white_slope))


def not_settled(slope: float, W: FloatArray, watch: Watch, nearest: str) -> ConvergenceError:
    """The error that says how far the finite part is from proved, with the point reached.

    ``nearest`` names the contexts whose embeddings are nearest to dependent, where known.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.newton import not_settled
    >>> from ntpnb.basics.watch import Watch
    >>> str(not_settled(1e-3, np.zeros((2, 1)), Watch(seconds=0), ""))[:29]
    'stopped after 0 seconds: the '
    """
    known = (
        f"the finite part's gradient norm, relative to the embeddings, is {slope:.1e}; "
        f"{NEGLIGIBLE:.0e} is needed"
    )
    if watch.expired:
        return ConvergenceError(f"{watch.stopped}: {known}", slope, W)
    return ConvergenceError(
        f"{known}. Nearly dependent embeddings, of contexts or tokens, are the usual cause"
        + (f", and those of {nearest} are nearest to that" if nearest else ""),
        slope,
        W,
    )


def _step_length(
    problem: RestrictedLoss, W: FloatArray, direction: FloatArray, slope: FloatArray
) -> float:
    """Halve the Newton step until the loss decreases as much as its slope lets expect (Armijo)."""
    loss = problem.loss(W)
    enough = 1e-4 * np.vdot(direction, slope)  # a share of what the slope predicts
    noise = decomposition_error(1) * max(1.0, loss)
    step = 1.0
    while step > 0 and not problem.loss(W - step * direction) <= loss - step * enough + noise:
        step /= 2
    return step


def _newton_direction(
    problem: RestrictedLoss, W: FloatArray, white_slope: FloatArray, watch: Watch
) -> FloatArray:
    """Solve Newton's equations, as accurately as the slope makes worthwhile.

    The solution is in white coordinates: whitened once more, it is a change of W.
    """
    hessian = problem.curvature(W)

    def white_hessian(white: FloatArray) -> FloatArray:
        curved = problem.whiten(hessian(problem.whiten(white)))
        return curved + EPS * white  # never singular

    # Superlinear convergence: the accuracy grows as the slope falls.
    accuracy = float(np.clip(np.sqrt(norm(white_slope)), 1e-8, 0.1))
    # Rare contexts alone leave a slope whose square underflows: solve for it at size one.
    size = np.abs(white_slope).max() or 1.0
    ahead = white_slope / size
    step = conjugate_gradients(white_hessian, ahead, accuracy, watch)
    if not step.any():  # the curvature is rounding, as where a rare context's law is saturated
        step = ahead / EPS
    direction: FloatArray = size * step
    return direction


# -- conjugate gradients --------------------------------------------------------------------------


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    accuracy: float,
    watch: Watch,
    precondition: Callable[[FloatArray], FloatArray] | None = None,
    size: Callable[[FloatArray], float] | None = None,
    most_steps: float = np.inf,
) -> FloatArray:
    """Solve a symmetric system from zero, as well as rounding and the time allow.

    The system may be singular. It cannot meet what rounding then adds to the target: errors grow
    in the end, so that the best point is returned and not the last.

    Parameters
    ----------
    product : callable
        The product with the matrix, which is positive semidefinite.
    target : ndarray
        Of any shape, like all that follow from it.
    accuracy : float
        The error that is small enough, relative to that of zero where this is above one.
    watch : Watch
    precondition : callable, optional
        An approximate inverse, of a matrix that is symmetric too. Default: the identity.
    size : callable, optional
        What an error is measured by. Default: the norm that the approximate inverse gives.
    most_steps : float, optional
        How many products are worth their time. Default: those that gain anything.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.newton import conjugate_gradients
    >>> from ntpnb.basics.watch import Watch
    >>> product = np.array([[2.0, 1.0], [1.0, 2.0]]).__matmul__
    >>> conjugate_gradients(product, np.array([3.0, 0.0]), 1e-12, Watch()).round(6).tolist()
    [2.0, -1.0]
    """
    steps = conjugate_gradient_steps(product, target, precondition)
    first = next(steps)

    def error_size(found: Approximation) -> float:
        return found.size if size is None else size(found.error)

    # Without rounding as many steps as unknowns would suffice.
    gains = Gains(first.point, error_size(first), min(2000, 10 * target.size))
    enough = accuracy * max(1.0, gains.error)
    while gains.error > enough and not gains.stalled and gains.step < most_steps:
        if gains.step >= LEAST_STEPS and watch.expired:
            break
        found = next(steps, None)
        if found is None:
            break  # nothing but rounding is left
        gains.take(found.point, error_size(found))
    return gains.point
