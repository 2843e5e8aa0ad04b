"""Conjugate gradients, step by step; whoever asks for a solution says when one is good enough."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ntpnb.basics.validation import FloatArray


class Approximation(NamedTuple):
    """A point on the way to the solution, and what it leaves of the target.

    Attributes
    ----------
    size : float
        The norm of the error that the approximate inverse gives.
    """

    point: FloatArray
    error: FloatArray
    size: float


def conjugate_gradient_steps(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    precondition: Callable[[FloatArray], FloatArray] | None = None,
) -> Iterator[Approximation]:
    """Approximate the solution of a symmetric system, from zero on.

    The system may be singular, and its unknowns an array of any shape. The steps end by themselves
    only where the error, or the curvature along the next step, is nothing but rounding.

    Parameters
    ----------
    product : callable
        The product with the matrix, which is positive semidefinite.
    target : ndarray
    precondition : callable, optional
        An approximate inverse, symmetric too. Default: the identity.

    Yields
    ------
    Approximation
        The first is zero. None of the arrays is changed later.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.conjugate import conjugate_gradient_steps
    >>> product = np.array([[2.0, 1.0], [1.0, 2.0]]).__matmul__
    >>> _, _, last = conjugate_gradient_steps(product, np.array([3.0, 0.0]))
    >>> last.point.round(6).tolist()
    [2.0, -1.0]
    """
    point = direction = np.zeros_like(target)
    error = target
    descent_before = 1.0
    while True:
        ahead = error if precondition is None else precondition(error)
        descent = float(np.vdot(error, ahead))
        yield Approximation(point, error, float(np.sqrt(np.maximum(descent, 0.0))))
        direction = ahead + descent / descent_before * direction
        change = product(direction)
        curvature = float(np.vdot(direction, change))
        if not min(descent, curvature) > 0:
            return
        share = descent / curvature
        point = point + share * direction
        error = error - share * change
        descent_before = descent
