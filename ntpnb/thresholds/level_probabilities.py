"""The law of how many tokens the nearest separated scores tie, for vocabularies of any size.

With ``n`` tokens outside a support of ``S`` tokens and ``w = S + k``, ``k`` of them are tied with
probability ``binom(n, k) A_k B_k``. With ``g(t) = exp(t²/2) Φ(−t) = erfcx(t/√2) / 2``:

    A_k = √(w/2π) ∫ exp(S z²/2) g(z)^k du,  z = a − iu,    for every real a,
    B_k = √(w/2π) ∫ exp(−w x²/2) Φ(x)^(n−k) dx.

The first integrand has no pole, so that its line of integration may be moved; on the line through
the saddle point ``a`` it hardly oscillates. The second has a single peak, at ``b``. Both are
analytic and fall at least as fast as a normal density: equally spaced nodes converge geometrically.

References
----------
The level probabilities of the simple tree order: Robertson, Wright & Dykstra (1988), Order
Restricted Statistical Inference, Ch. 2. They are the intrinsic volumes of a convex cone, whose
tails McCoy & Tropp (2014) bound: From Steiner formulas for cones to concentration of intrinsic
volumes, Discrete & Computational Geometry 51.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, gamma, log_ndtr, ndtr, wofz, xlog1py, xlogy

from ntpnb.basics.array_types import FloatArray, IntArray

MOST_OUTSIDE = 10**6  # tokens outside a support: the accuracy was measured up to here
LOG_NEGLIGIBLE = -45.0  # logarithm of a probability that is left out: of less than 1e-19
# Widths are those of a normal density with the same curvature at the peak.
NODES_PER_WIDTH = 4
REACH = np.sqrt(-2 * LOG_NEGLIGIBLE)  # widths from the peak, where a normal density is negligible
STIRLING_FROM = 16  # from here on five terms of the series have an error below 2e-16
STIRLING_SERIES = (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
ROWS = 512  # numbers of tied tokens in one block, to stay within a processor's cache


class LevelLaw(NamedTuple):
    """Probabilities of ``first, first + 1, …`` tied tokens; elsewhere they are negligible.

    Attributes
    ----------
    first : int
    probs : ndarray
        What is left out sums to less than 1e-19.
    """

    first: int
    probs: FloatArray


class _Peak(NamedTuple):
    """Where integrands are stationary on the real axis, and their logarithms' curvature there."""

    place: FloatArray
    curvature: FloatArray


def level_law(outside: int, support_size: int) -> LevelLaw:
    """Probabilities of all numbers of tied tokens that are not negligible.

    Parameters
    ----------
    outside, support_size : int
        ``n ≥ 0`` and ``S ≥ 1``.

    Returns
    -------
    LevelLaw
    """
    if outside > MOST_OUTSIDE:
        raise ValueError(f"{outside} tokens are out of support; there may be 0 to {MOST_OUTSIDE}")
    if outside == 0:
        return LevelLaw(0, np.ones(1))
    first, last = _window(outside, support_size)
    blocks = []
    for start in range(first, last + 1, ROWS):
        k = np.arange(start, min(start + ROWS, last + 1))
        blocks.append(_probabilities(k, outside, support_size))
    return LevelLaw(first, np.concatenate(blocks))


def _window(n: int, S: int) -> tuple[int, int]:
    """First and last number of tied tokens outside of which less than 1e-19 is left.

    The number of tied tokens deviates from its mean by ``λ`` to either side with probability at
    most ``exp(−(λ²/4) / (s + λ/3))``, where ``s`` is the smaller of ``S − 1 + E k`` and ``n − E k``
    (McCoy & Tropp). The mean is estimated by the limit for large sizes, below which it never was,
    and above which it was never by more than 0.87, for any size up to a million.
    """
    centre = n * ndtr(-common_score(n, S))
    smaller = min(S + centre, n + 1 - centre)
    third = -LOG_NEGLIGIBLE * 2 / 3
    deviation = 1 + third + np.sqrt(third**2 - 4 * LOG_NEGLIGIBLE * smaller)
    first = max(0, int(centre - deviation))
    last = min(n, int(centre + deviation) + 1)
    return first, last


def common_score(n: int, S: int) -> float:
    """Return the ``c`` at which ``S c = n E max(g − c, 0)``, with ``g`` standard normal.

    This is the common score of the tied tokens as the sizes grow. There ``a = b = c``, and a share
    ``Φ(−c)`` of the tokens outside the support is tied.
    """

    def excess(c: float) -> float:
        density = np.exp(-(c**2) / 2) / np.sqrt(2 * np.pi)
        return float(S * c - n * (density - c * ndtr(-c)))

    return float(brentq(excess, 0.0, n))  # at c = n the expectation is below one


def _probabilities(k: IntArray, n: int, S: int) -> FloatArray:
    """Probability of each number ``k`` of tied tokens."""
    rest = n - k
    w = S + k
    a = _peak(w, k, side=-1)
    b = _peak(w, rest, side=1)
    # log binom(n, k) is −k log(k/n) − (n−k) log(1 − k/n) and the remainders of Stirling's formula.
    # Each of the two joins the power that it nearly cancels: for a million tokens they reach 10⁵,
    # and added up first they would cost digits.
    log_share = xlogy(k, k / n)
    log_other_share = xlog1py(rest, -k / n)
    log_pooled = S * a.place**2 / 2 + k * np.log(_scaled_tail(a.place)) - log_share
    log_below = -w * b.place**2 / 2 + rest * log_ndtr(b.place) - log_other_share
    log_ways = stirling_remainder(np.array(n)) - stirling_remainder(k) - stirling_remainder(rest)
    integrals = _pooled_integral(k, S, a) * _below_integral(w, rest, b)
    log_values = log_ways + log_pooled + log_below
    probs: FloatArray = w / (2 * np.pi) * np.exp(log_values) * integrals
    return probs


def _peak(weight: IntArray, count: IntArray, side: Literal[-1, 1]) -> _Peak:
    """Solve ``weight · x = count · φ(side · x) / Φ(side · x)`` for ``x ≥ 0``.

    The difference of the two sides is concave and increasing (for ``side = −1`` because ``count``
    is less than ``weight``): Newton's method climbs from zero to its root, and ends where it comes
    no nearer. Any point near the root would serve.
    """
    x = np.zeros(len(weight))
    missed = np.inf
    while True:
        # φ/Φ in this form neither underflows nor cancels.
        ratio = np.sqrt(2 / np.pi) / erfcx(-side * x / np.sqrt(2))
        difference = weight * x - count * ratio
        curvature = weight + side * count * ratio * (ratio + side * x)
        missed_before = missed
        missed = np.abs(difference).max()
        if missed >= missed_before:
            return _Peak(x, curvature)
        x = x - difference / curvature


def _pooled_integral(k: IntArray, S: int, peak: _Peak) -> FloatArray:
    """Integral along ``z = a − iu`` of ``exp(S z²/2) g(z)^k``, relative to the value at ``u = 0``.

    The modulus is at most ``exp(−S u²/2)``, since ``g`` is the Laplace transform of a positive
    function; values at ``u`` and ``−u`` are conjugate.
    """
    step = 1 / (NODES_PER_WIDTH * np.sqrt(peak.curvature))
    num_nodes = int(np.ceil(REACH / (np.sqrt(S) * step.min())))
    u = step[:, None] * np.arange(num_nodes + 1)
    a = peak.place[:, None]
    tail = wofz((u + 1j * a) / np.sqrt(2)) / 2  # g(a − iu)
    log_ratio = np.log(tail / _scaled_tail(a))
    values = np.exp(-S * u**2 / 2 - 1j * S * a * u + k[:, None] * log_ratio).real
    total: FloatArray = step * (2 * values.sum(1) - values[:, 0])
    return total


def _below_integral(w: IntArray, rest: IntArray, peak: _Peak) -> FloatArray:
    """Integral of ``exp(−w x²/2) Φ(x)^(n−k)``, relative to the value at ``x = b``.

    The logarithm's curvature falls from left to right, but not below ``w``.
    """
    step = 1 / (NODES_PER_WIDTH * np.sqrt(peak.curvature))
    num_left = int(np.ceil(NODES_PER_WIDTH * REACH))
    num_right = int(np.ceil((REACH / (np.sqrt(w) * step)).max()))
    b = peak.place[:, None]
    x = b + step[:, None] * np.arange(-num_left, num_right + 1)
    log_density = -w[:, None] * (x - b) * (x + b) / 2
    log_power = rest[:, None] * (log_ndtr(x) - log_ndtr(b))
    total: FloatArray = step * np.exp(log_density + log_power).sum(1)
    return total


def _scaled_tail(t: FloatArray) -> FloatArray:
    """Return ``g(t) = exp(t²/2) Φ(−t)``."""
    scaled: FloatArray = erfcx(t / np.sqrt(2)) / 2
    return scaled


def stirling_remainder(k: IntArray) -> FloatArray:
    """Return ``log k! − (k log k − k)``, without cancellation for large ``k``."""
    large = np.maximum(k, STIRLING_FROM).astype(float)
    series = np.polyval(STIRLING_SERIES, 1 / large**2) / large
    from_series = np.log(2 * np.pi * large) / 2 + series
    small = np.minimum(k, STIRLING_FROM).astype(float)
    directly = np.log(gamma(small + 1) * (np.e / np.maximum(small, 1)) ** small)
    remainder: FloatArray = np.where(k < STIRLING_FROM, directly, from_series)
    return remainder
