"""Two formulas for how many dimensions random data need, and the law that one of them rests on.

The law says how many tokens the nearest separated scores tie, for vocabularies of any size.
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

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, gamma, log_ndtr, ndtr, wofz, xlog1py, xlogy

from ntpnb.basics.validation import SUM_TOLERANCE, FloatArray, IntArray, as_array, as_integer

MOST_OUTSIDE = 10**6  # tokens outside a support: the accuracy was measured up to here
LOG_NEGLIGIBLE = -45.0  # logarithm of a probability that is left out: of less than 1e-19
# Widths are those of a normal density with the same curvature at the peak.
NODES_PER_WIDTH = 4
REACH = np.sqrt(-2 * LOG_NEGLIGIBLE)  # widths from the peak, where a normal density is negligible
STIRLING_SERIES = (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)

SupportSize = int | Mapping[int, float]  # one size, or the share of each


def pooled_law(outside: int, support_size: int) -> FloatArray:
    """Distribution of the number of out-of-support tokens that the nearest separated scores tie.

    Let ``g ~ N(0, I)`` be the scores of a context. The nearest scores that separate it have a
    common in-support score ``c``, which minimises ``Σ_in (g − c)² + Σ_out max(g − c, 0)²``, and
    the out-of-support tokens with ``g > c`` are moved to ``c``: they are pooled with the support.
    That there are ``k`` of them has probability ``binom(n, k) A_k B_k``. With ``w = S + k`` and
    ``x ~ N(0, 1)``: ``A_k = E Φ(i x / √w)^k`` (those k and the support are pooled),
    ``B_k = E Φ(x / √w)^(n − k)`` (the others lie below).

    Parameters
    ----------
    outside, support_size : int
        ``n ≤ 10**6`` and ``S ≥ 1``.

    Returns
    -------
    ndarray of shape (n + 1,)
        Probabilities, read-only, each with a relative error of at most ``1e-13 + 1e-15 n`` as
        measured against thirty digits; those of ``k`` far from the mean, which sum to less than
        1e-19, are zero. All sum to one, and for ``n ≥ 1`` those of even and of odd ``k`` to one
        half each (the Gauss–Bonnet theorem), within 1e-12 for n ≤ 1000 and 1e-10 for all n.

    Raises
    ------
    TypeError
        A size is not a number.
    ValueError
        A size is not an integer, ``outside`` is not between 0 and 10**6, or ``support_size`` is
        not positive.

    References
    ----------
    The level probabilities of the simple tree order: Robertson, Wright & Dykstra (1988), Order
    Restricted Statistical Inference, Ch. 2.

    Examples
    --------
    A single token outside is above the support's mean half the time:

    >>> from ntpnb import thresholds
    >>> thresholds.pooled_law(1, 3).round(9).tolist()
    [0.5, 0.5]

    A label among the 50,257 tokens of a language model ties with about fourteen others:

    >>> law = thresholds.pooled_law(50_256, 1)
    >>> round(float(law @ range(50_257)), 2)
    14.45
    """
    outside = as_integer("outside", outside, least=0)
    support_size = as_integer("support_size", support_size, least=1)
    law = level_law(outside, support_size)
    probs = np.zeros(outside + 1)
    probs[law.first : law.first + len(law.probs)] = law.probs
    probs.flags.writeable = False
    return probs


def separability_threshold(vocab_size: int, support_size: SupportSize) -> float:
    """Ratio ``d/m`` above which random data are separable and below which they are not.

    For two tokens this is a theorem, and for supports of more than one token a conjecture; with
    one token per context it follows from asymptotics of a published kind.

    ``E min_c [Σ_{z∈S} (g_z − c)² + Σ_{v∉S} max(g_v − c, 0)²] / (V − 1)`` with ``g ~ N(0, I_V)``:
    the share of all dimensions that the cone of separated scores lacks. Equal to
    ``(S − 1 + E k) / (V − 1)`` with ``k`` from :func:`pooled_law`; ``1/2`` for two tokens and
    one-hot labels (Cover). Where every support holds all tokens, ``W = 0`` separates in any
    dimension, and the value, one, says nothing.

    Parameters
    ----------
    vocab_size : int
        At most 10**6 tokens may be out of a support.
    support_size : int or dict
        The size of every support, or the share of each size: ``{1: 0.5, 3: 0.5}``.
        Sizes lie between 1 and ``vocab_size``.

    Returns
    -------
    float
        With a relative error of at most 1e-12 for up to 900 tokens, and 1e-9 for up to a million,
        as that of :func:`pooled_law`.

    Raises
    ------
    TypeError
        A size is not a number.
    ValueError
        Impossible sizes, shares that do not sum to one, or more than 10**6 tokens out of support.

    References
    ----------
    T24 (002) Remark 1 and Sec. 7, first open question. Amelunxen, Lotz, McCoy & Tropp (2014).
    Loureiro et al. (2021).

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.separability_threshold(2, 1), 9)
    0.5

    Among the 50,257 tokens of a language model, 768 random dimensions separate some 2.7 million
    contexts with one continuation each; with twenty in a fifth of the contexts, some 760,000:

    >>> one = thresholds.separability_threshold(50_257, 1)
    >>> mixed = thresholds.separability_threshold(50_257, {1: 0.8, 20: 0.2})
    >>> round(768 / one), round(768 / mixed)
    (2671459, 760652)
    """
    mix = support_mix(vocab_size, support_size)
    means = [codimension(mix.vocab_size, size).mean for size in mix.sizes]
    return float(mix.shares @ means) / (mix.vocab_size - 1)


def compatibility_threshold(vocab_size: int, support_size: SupportSize) -> float:
    """Limit of ``d/m`` from which random distributions are compatible: ``E (S − 1) / (V − 1)``.

    Compatibility asks for ``Σ_j (S_j − 1)`` equations in ``d (V − 1)`` unknowns. That their count
    decides, as ``m`` grows, holds for supports that are drawn independently and treat all tokens
    alike; for given supports :func:`compatible_dimension` is exact.

    Parameters
    ----------
    vocab_size : int
    support_size : int or dict
        As in :func:`separability_threshold`.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        As :func:`separability_threshold`.

    References
    ----------
    T24 (002) Def. 1 and Lemma 1.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.compatibility_threshold(5, {1: 0.5, 3: 0.5}), 9)
    0.25
    """
    mix = support_mix(vocab_size, support_size)
    num_equations = np.subtract(mix.sizes, 1)
    return float(mix.shares @ num_equations) / (mix.vocab_size - 1)


def transition_width(vocab_size: int, support_size: SupportSize, num_contexts: int) -> float:
    """Conjectured standard deviation, over datasets, of the ``d/m`` where separability sets in.

    ``√(Var(S − 1 + k) / m) / (V − 1)``, where supports of unequal sizes are drawn independently.

    Parameters
    ----------
    vocab_size : int
    support_size : int or dict
        As in :func:`separability_threshold`.
    num_contexts : int
        ``m``.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        As :func:`separability_threshold`, or ``num_contexts`` is not a positive integer.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.transition_width(2, 1, num_contexts=100), 9)
    0.05
    """
    mix = support_mix(vocab_size, support_size)
    num_contexts = as_integer("num_contexts", num_contexts, least=1)
    means, variances = np.transpose([codimension(mix.vocab_size, size) for size in mix.sizes])
    variance = mix.shares @ (variances + (means - mix.shares @ means) ** 2)
    return float(np.sqrt(variance / num_contexts) / (mix.vocab_size - 1))


class _Moments(NamedTuple):
    mean: float
    variance: float


@cache
def codimension(vocab_size: int, support_size: int) -> _Moments:
    """Moments of ``S − 1 + k``: how many dimensions the face of the nearest scores lacks."""
    law = level_law(vocab_size - support_size, support_size)
    k = law.first + np.arange(len(law.probs))
    mean = law.probs @ k
    return _Moments(float(support_size - 1 + mean), float(law.probs @ (k - mean) ** 2))


class SupportMix(NamedTuple):
    """A size of the vocabulary, sizes of supports in it, and the share of each, shape (n,)."""

    vocab_size: int
    sizes: list[int]
    shares: FloatArray


def support_mix(vocab_size: int, support_size: SupportSize) -> SupportMix:
    """Sizes of supports with their shares, or an error that says what is wrong with them."""
    vocab_size = as_integer("vocab_size", vocab_size)
    if isinstance(support_size, Mapping):
        sizes = [as_integer("a size in support_size", size) for size in support_size]
        shares = as_array("the shares in support_size", list(support_size.values()), ndim=1)
    else:
        sizes = [as_integer("support_size", support_size)]
        shares = np.ones(1)
    if vocab_size < 2 or not all(1 <= size <= vocab_size for size in sizes):
        raise ValueError(
            f"support_size is {support_size} and vocab_size {vocab_size}; there must be at least "
            "two tokens, and sizes between 1 and their number"
        )
    if not (shares >= 0).all() or abs(shares.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"support_size is {support_size}; shares must be >= 0 and sum to one")
    return SupportMix(vocab_size, sizes, shares)


# -- the law of how many tokens are tied ----------------------------------------------------------


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
    rows = 512  # in one block, to stay within a processor's cache
    for start in range(first, last + 1, rows):
        k = np.arange(start, min(start + rows, last + 1))
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
    start = 16  # from here on five terms of the series have an error below 2e-16
    large = np.maximum(k, start).astype(float)
    series = np.polyval(STIRLING_SERIES, 1 / large**2) / large
    from_series = np.log(2 * np.pi * large) / 2 + series
    small = np.minimum(k, start).astype(float)
    directly = np.log(gamma(small + 1) * (np.e / np.maximum(small, 1)) ** small)
    remainder: FloatArray = np.where(k < start, directly, from_series)
    return remainder
