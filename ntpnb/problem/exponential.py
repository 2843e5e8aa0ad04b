"""Exponentials and their logarithms, on which the loss rests."""

from math import factorial

import numpy as np

from ntpnb.basics.validation import FloatArray

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


def log_sum_exp(x: FloatArray) -> FloatArray:
    """``log Σ exp`` along the last axis, to full relative accuracy where one entry outweighs all.

    It computes what ``scipy.special.logsumexp`` does, operation by operation. That one serves
    several kinds of arrays and axes, which on small arrays takes several times as long.

    Parameters
    ----------
    x : ndarray, shape (..., n)
        ``-inf`` is the logarithm of zero.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.exponential import log_sum_exp
    >>> log_sum_exp(np.array([[1000.0, 1000.0], [0.0, -np.inf]])).round(4)
    array([1000.6931,    0.    ])
    """
    largest = x.max(axis=-1, keepdims=True)
    is_largest = x == largest
    count = is_largest.sum(axis=-1, keepdims=True, dtype=x.dtype)
    # All entries may be -inf: then nothing is taken from them.
    others = x - np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.exp(others, out=others)
        np.copyto(others, 0.0, where=is_largest)
        relative_sum = others.sum(axis=-1, keepdims=True) / count
        total = np.log1p(relative_sum) + np.log(count) + largest
    return np.asarray(total[..., 0])
