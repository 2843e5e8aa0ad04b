"""How long an iteration of this folder goes on: until it is accurate, gains no more, or is late."""

from collections.abc import Callable

import numpy as np

from ntpnb.basics.array_types import FloatArray
from ntpnb.basics.watch import Watch

LEAST_STEPS = 20
"""Steps that are taken before an iteration is asked what it gains, and what the time is.

Most are done by then, so that there is an answer even where no time is left.
"""

FRUITLESS = 2000
"""Steps in which conjugate gradients must halve their error.

Where 10 n steps are fewer, for n unknowns, these are waited for. Without rounding n would suffice.
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
    best : ndarray
        The point with the smallest error.
    error : float
        The error there.
    step : int
        How many steps were taken.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.iteration import Gains
    >>> gains = Gains(np.zeros(1), error=1.0, least=2)
    >>> for error in [0.4, 0.3, 0.5, 0.35, 0.3]:
    ...     gains.take(np.array([error]), error)
    >>> gains.best.tolist(), gains.halved, gains.stalled
    ([0.3], False, True)
    """

    def __init__(self, point: FloatArray, error: float, least: int = LEAST_STEPS) -> None:
        self.best = point
        self.error = error
        self.step = 0
        self._least = least
        self._to_halve = error
        self._last_gain = 0  # the step at which the error had halved

    def take(self, point: FloatArray, error: float) -> None:
        """Note one more step: where it led, and the error there."""
        self.step += 1
        if error < self.error:
            self.best = point
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


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    accuracy: float,
    watch: Watch,
    precondition: Callable[[FloatArray], FloatArray] = np.copy,
    size: Callable[[FloatArray], float] = norm,
) -> FloatArray:
    """Solve a symmetric system from zero, as well as rounding and the time allow.

    The system may be singular. It cannot meet what rounding then adds to the target: errors grow
    in the end, so that the best point is returned and not the last.

    Parameters
    ----------
    product : callable
        The product with the matrix, which is positive semidefinite.
    target : ndarray, shape (n,)
    accuracy : float
        The error that is small enough, relative to that of zero where this is above one.
    watch : Watch
    precondition : callable, optional
        An approximate inverse, of a matrix that is symmetric too. Default: the identity.
    size : callable, optional
        What an error is measured by. Default: its norm.

    Returns
    -------
    ndarray, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.iteration import conjugate_gradients
    >>> from ntpnb.basics.watch import Watch
    >>> product = np.array([[2.0, 1.0], [1.0, 2.0]]).__matmul__
    >>> conjugate_gradients(product, np.array([3.0, 0.0]), 1e-12, Watch()).round(6).tolist()
    [2.0, -1.0]
    """
    point = direction = np.zeros_like(target)
    error: FloatArray = target
    gains = Gains(point, size(error), min(FRUITLESS, 10 * len(target)))
    enough = accuracy * max(1.0, gains.error)
    last_descent = 1.0
    while gains.error > enough and not gains.stalled:
        if gains.step >= LEAST_STEPS and watch.expired:
            break
        improved = precondition(error)
        descent = float(error @ improved)
        direction = improved + descent / last_descent * direction
        change = product(direction)
        curvature = float(direction @ change)
        if not min(descent, curvature) > 0:
            break  # nothing but rounding is left
        step = descent / curvature
        point = point + step * direction
        error = error - step * change
        gains.take(point, size(error))
        last_descent = descent
    return gains.best
