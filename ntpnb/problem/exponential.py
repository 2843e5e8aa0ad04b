"""The exponential without its linear part, on which the excess loss rests."""

from math import factorial

import numpy as np

from ntpnb.array_types import FloatArray

# eˣ − 1 − x = x² Σ_k xᵏ/(k+2)!. Below the bound the first dropped term is less than one unit
# roundoff; above it the difference itself keeps its digits.
SERIES_BOUND = 0.3
_SERIES = [1 / factorial(k + 2) for k in reversed(range(12))]


def exp_minus_linear(x: FloatArray) -> FloatArray:
    """``φ(x) = eˣ − 1 − x`` to full relative accuracy.

    Parameters
    ----------
    x : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.exponential import exp_minus_linear
    >>> exp_minus_linear(np.array([1e-10]))
    array([5.e-21])
    """
    series = x * x * np.polyval(_SERIES, x)
    return np.where(np.abs(x) < SERIES_BOUND, series, np.expm1(x) - x)
