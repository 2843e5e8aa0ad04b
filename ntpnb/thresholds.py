"""How many dimensions data need: two formulas for random data, a search, and exact numbers.

The formulas rest on the law of how many tokens the nearest separated scores tie, for vocabularies
of any size. The search finds the first dimension in which a condition holds on data, such as random
ones. For given supports maximum flows say exactly from how many dimensions on all distributions on
them are compatible, where embeddings are in general position.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from scipy.special import erfcx, gamma, log_ndtr, ndtr, wofz, xlog1py, xlogy

from ntpnb.basics.errors import ConvergenceError, needs_extra
from ntpnb.basics.saving import Result, make_read_only
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import (
    SUM_TOLERANCE,
    BoolArray,
    FloatArray,
    IntArray,
    Sparse,
    as_array,
    as_indices,
    as_integer,
    as_integers,
    counted,
    read_array,
    require_function,
    require_number,
    require_type,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import as_table, entries_of
from ntpnb.tied.subspace import equal_subspace

__all__ = [
    "Bracket",
    "CompatibleDimension",
    "compatibility_threshold",
    "compatible_dimension",
    "first_dimension",
    "first_true",
    "independent_equations",
    "pooled_law",
    "random_data",
    "separability_threshold",
    "sweep",
    "transition_width",
]

MOST_OUTSIDE = 10**6  # tokens outside a support: the accuracy was measured up to here
LOG_NEGLIGIBLE = -45.0  # logarithm of a probability that is left out: of less than 1e-19
# Widths are those of a normal density with the same curvature at the peak.
NODES_PER_WIDTH = 4
REACH = np.sqrt(-2 * LOG_NEGLIGIBLE)  # widths from the peak, where a normal density is negligible
STIRLING_SERIES = (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)

SupportSize = int | Mapping[int, float]  # one size, or the share of each
Condition = Callable[[NextTokenData], bool]


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
    make_read_only(probs)
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

    With ``n`` tokens outside a support of ``S`` tokens and ``w = S + k``, ``k`` of them are tied
    with probability ``binom(n, k) A_k B_k``. With ``g(t) = exp(t²/2) Φ(−t) = erfcx(t/√2) / 2``:

        A_k = √(w/2π) ∫ exp(S z²/2) g(z)^k du,  z = a − iu,    for every real a,
        B_k = √(w/2π) ∫ exp(−w x²/2) Φ(x)^(n−k) dx.

    The first integrand has no pole, so that its line of integration may be moved; on the line
    through the saddle point ``a`` it hardly oscillates. The second has a single peak, at ``b``.
    Both are analytic and fall at least as fast as a normal density: equally spaced nodes converge
    geometrically.

    Parameters
    ----------
    outside, support_size : int
        ``n ≥ 0`` and ``S ≥ 1``.

    Returns
    -------
    LevelLaw

    References
    ----------
    The level probabilities of the simple tree order: Robertson, Wright & Dykstra (1988), Order
    Restricted Statistical Inference, Ch. 2. They are the intrinsic volumes of a convex cone, whose
    tails McCoy & Tropp (2014) bound: From Steiner formulas for cones to concentration of intrinsic
    volumes, Discrete & Computational Geometry 51.
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
    small = np.minimum(k, start)
    directly = np.log(gamma(small + 1) * (np.e / np.maximum(small, 1)) ** small)
    remainder: FloatArray = np.where(k < start, directly, from_series)
    return remainder


# -- random data, and the first dimension in which a condition holds ------------------------------


class Bracket(NamedTuple):
    """Where a condition that is monotone in ``d = 1 … top`` begins to hold.

    Attributes
    ----------
    largest_false : int
        The largest ``d`` where it fails; 0 if there is none.
    smallest_true : int
        The smallest ``d`` where it holds; ``top + 1`` if there is none. Only undecided ``d`` lie
        between the two.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> thresholds.Bracket(largest_false=3, smallest_true=4).smallest_true
    4
    """

    largest_false: int
    smallest_true: int


def random_data(
    rng: np.random.Generator, vocab_size: int, support_size: SupportSize, num_contexts: int
) -> NextTokenData:
    """Draw standard normal embeddings in as many dimensions as contexts, and random supports.

    Parameters
    ----------
    rng : numpy.random.Generator
    vocab_size : int
    support_size : int or dict
        The size of all supports, or the share of each size, see :func:`separability_threshold`;
        sizes are then drawn independently. Probabilities are uniform on the support's simplex.
    num_contexts : int

    Returns
    -------
    NextTokenData

    Raises
    ------
    TypeError
        ``rng`` is no generator.
    TypeError, ValueError
        As :func:`separability_threshold`.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb import thresholds
    >>> data = thresholds.random_data(np.random.default_rng(0), 5, 2, num_contexts=7)
    >>> data.shape, data.support.sum(1).tolist()
    ((5, 7), [2, 2, 2, 2, 2, 2, 2])
    """
    require_type("rng", rng, np.random.Generator, "a numpy.random.Generator")
    mix = support_mix(vocab_size, support_size)
    num_contexts = as_integer("num_contexts", num_contexts, least=1)
    H = rng.standard_normal((num_contexts, num_contexts))
    place = rng.random((num_contexts, mix.vocab_size)).argsort(axis=1)
    sizes = rng.choice(mix.sizes, num_contexts, p=mix.shares)
    in_support = place < sizes[:, None]
    P = np.where(in_support, rng.standard_exponential(place.shape), 0.0)
    return NextTokenData(H, P / P.sum(1, keepdims=True))


@one_thread
def independent_equations(data: NextTokenData) -> bool:
    """Whether the equations of T24's Definition 1 are independent.

    Then data with any probabilities on these supports are compatible.

    Parameters
    ----------
    data : NextTokenData
        One-hot tokens, each context its own group.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        ``data`` is no dataset.

    References
    ----------
    T24 (002) Def. 1 and Lemma 1.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.thresholds.independent_equations(ntpnb.datasets.toy())
    True
    """
    require_type("data", data, NextTokenData)
    num_equations = (data.support.sum(1) - 1).sum()
    return bool(equal_subspace(data).dim == num_equations)


def first_dimension(data: NextTokenData, holds: Condition = is_separable) -> Bracket:
    """Find the first ``d`` where a condition holds on the first ``d`` coordinates of embeddings.

    The condition must be monotone in ``d``, as separability and independent equations are: a
    solution in few coordinates is one in more. The search starts where the formula puts it and
    widens in steps of the conjectured width, so that four or five verdicts are enough for one-hot
    tokens that are all candidates.

    Parameters
    ----------
    data : NextTokenData
        Embeddings in as many dimensions as are to be tried; all else stays as it is.
    holds : callable
        From data to a verdict. A ``ConvergenceError`` leaves one ``d`` undecided.

    Returns
    -------
    Bracket
        A pair of integers, ``largest_false`` and ``smallest_true``.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``holds`` cannot be called.

    References
    ----------
    T24 (002) Sec. 7, first open question.

    Examples
    --------
    One coordinate puts both contexts on the same side, the second one parts them:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0, 1.0], [1.0, -1.0]], [[1, 0], [0, 1]])
    >>> ntpnb.thresholds.first_dimension(data)
    Bracket(largest_false=1, smallest_true=2)
    """
    require_type("data", data, NextTokenData)
    require_function("holds", holds)
    codimensions = [codimension(data.vocab_size, int(size)) for size in data.support.sum(1)]
    mean, variance = np.sum(codimensions, axis=0)
    H = data.context_embeddings
    others = max(data.vocab_size - 1, 1)  # of one token alone the formula is 0/0

    def holds_in(d: int) -> bool:
        return holds(data.replace(context_embeddings=H[:, :d]))

    return first_true(
        holds_in,
        top=H.shape[1],
        guess=mean / others,
        step=np.sqrt(variance) / others,
    )


def first_true(holds: Callable[[int], bool], top: int, guess: float, step: float) -> Bracket:
    """Bracket the first of 1 … top where a monotone condition holds.

    From ``guess`` the search gallops in doubling steps until it has seen both verdicts, and then
    bisects. The bracket depends neither on ``guess`` nor on the first ``step``.

    Parameters
    ----------
    holds : callable
        From an integer to a verdict. A ``ConvergenceError`` leaves it undecided.
    top : int
    guess, step : float

    Returns
    -------
    Bracket

    Raises
    ------
    TypeError
        ``holds`` cannot be called, or an argument is no number.
    ValueError
        ``top`` is no nonnegative integer, ``guess`` is not finite, or ``step`` negative.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> thresholds.first_true(lambda d: d * d >= 50, top=100, guess=10, step=2)
    Bracket(largest_false=7, smallest_true=8)
    """
    require_function("holds", holds)
    require_number("guess", guess, lambda _: True, "be a finite number")
    require_number("step", step, lambda step: step >= 0, "be a nonnegative number")
    largest_false = 0
    smallest_true = as_integer("top", top, 0) + 1
    undecided: set[int] = set()
    target = guess
    step = max(1.0, step)
    while True:
        between = range(largest_false + 1, smallest_true)
        untried = [d for d in between if d not in undecided]
        if not untried:
            return Bracket(largest_false, smallest_true)
        d = min(untried, key=lambda candidate: (abs(candidate - target), candidate))
        try:
            verdict = holds(d)
        except ConvergenceError:
            undecided.add(d)
            continue
        if verdict:
            smallest_true = d
        else:
            largest_false = d
        if largest_false > 0 and smallest_true <= top:
            target = (largest_false + smallest_true) / 2  # bracketed: bisect
        else:
            target = d - step if verdict else d + step  # not yet: gallop
            step *= 2


def sweep(
    cells: Sequence[tuple[object, ...]],
    trials: int | Sequence[int],
    seed: int = 0,
    holds: Condition = is_separable,
    draw: Callable[..., NextTokenData] = random_data,
    n_jobs: int | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> list[IntArray]:
    """First dimension of many random datasets, in parallel.

    Parameters
    ----------
    cells : sequence of tuples
        Arguments of ``draw``: (vocab_size, support_size, num_contexts).
    trials : int or sequence of int
        Datasets in each cell.
    seed : int
        Dataset ``i``, counted through all cells, is drawn from ``default_rng([seed, i])``: the
        result is the same for every number of jobs and on every joblib backend.
    holds : callable
        The condition, as in :func:`first_dimension`.
    draw : callable
        From a generator and a cell to data.
    n_jobs : int, optional
        As in joblib; None takes what ``joblib.parallel_config`` says, or one.
    seconds : float, optional
        Time limit; what is at work when it is over is still finished. Default: none.
    progress : callable, optional
        Called with a line of text after each dataset; what it raises ends the sweep.

    Returns
    -------
    list of ndarray of int, shape (trials, 2)
        For each cell the brackets of :func:`first_dimension`. In a terminal a bar shows the
        progress.

    Raises
    ------
    ImportError
        joblib or tqdm is missing: the extra ``sweep`` brings both.
    TypeError, ValueError
        ``cells`` is no sequence, ``trials`` are no nonnegative integers or not one for each cell,
        or another argument cannot be used.
    ConvergenceError
        The time is over. ``.point`` is what would be returned, with the datasets that were done:
        the last cells have fewer rows, or none. ``.residual`` is ``inf``.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> [brackets] = thresholds.sweep([(3, 1, 8)], trials=4)
    >>> brackets.shape
    (4, 2)
    """
    with needs_extra("sweep", "thresholds.sweep"):
        from joblib import Parallel, delayed
        from tqdm import tqdm

    watch = Watch(seconds, progress)
    require_type("cells", cells, Collection, "a sequence of tuples")
    for i, cell in enumerate(cells):
        require_type(f"cells[{i}]", cell, Collection, "a tuple")
    seed = as_integer("seed", seed, 0)
    require_function("draw", draw)
    counts = as_integers("trials", trials)
    if counts.shape not in [(), (len(cells),)] or counts.min(initial=0) < 0:
        raise ValueError(
            f"trials is {trials}; a nonnegative integer is needed, or one for each of the "
            f"{len(cells)} cells"
        )
    counts = np.broadcast_to(counts, len(cells))
    cell_of_trial = np.repeat(np.arange(len(cells)), counts)
    jobs = (
        delayed(_trial)(draw, cells[cell], holds, [seed, i])
        for i, cell in enumerate(cell_of_trial.tolist())
    )
    results = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
    total = len(cell_of_trial)
    found: list[Bracket] = []
    for bracket in tqdm(results, total=total, disable=None):
        found.append(bracket)
        watch.say(f"sweep: {len(found)} of {total} datasets")
        if watch.expired:
            break
    first_of_next_cell = np.cumsum(counts)[:-1]
    brackets = np.split(np.array(found, dtype=int).reshape(-1, 2), first_of_next_cell)
    if len(found) < total:
        results.close()
        raise ConvergenceError(
            f"{watch.stopped}: {len(found)} of {total} datasets are done; "
            ".point has their brackets",
            np.inf,
            brackets,
        )
    return brackets


def _trial(
    draw: Callable[..., NextTokenData],
    cell: tuple[object, ...],
    holds: Condition,
    seed: list[int],
) -> Bracket:
    return first_dimension(draw(np.random.default_rng(seed), *cell), holds)


# -- exactly, for given supports ------------------------------------------------------------------

# A context with support ``S_j`` asks for ``|S_j| − 1`` log-odds, linear equations for the ``V × d``
# matrix ``W``. With generic embeddings (all outside a set of measure zero) these are independent,
# and so every choice of distributions on the supports is compatible (T24 Def. 1), if and only if
# ``e(F) ≤ d (|F| − 1)`` for every nonempty set ``F`` of tokens. Here ``e(F)`` counts the equations
# among the tokens of ``F``, and the right-hand side the coordinates of their score differences: the
# sets of equations that obey are the independent sets of Whiteley's matroid.


@dataclass(frozen=True, eq=False, repr=False)
class CompatibleDimension(Result):
    """The smallest dimension in which generic embeddings make data compatible, and who needs it.

    Attributes
    ----------
    dim : int
        Zero where every context is followed by one token only.
    tokens : ndarray of int, shape (n,)
        A set ``F`` of tokens that does not fit into fewer: ``e(F) > (dim − 1) (n − 1)``. Empty
        where ``dim`` is zero.
    equations : int
        ``e(F) = Σ_j max(|S_j ∩ F| − 1, 0)``, how many log-odds the contexts ask of these tokens.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.thresholds.compatible_dimension([[True, True, False], [True, True, True]])
    >>> found.dim, found.tokens.tolist(), found.equations
    (2, [0, 1, 2], 3)
    """

    dim: int
    tokens: IntArray
    equations: int

    def _checked(self) -> Self:
        """The dimension that a file describes, if its tokens need it."""
        num_tokens = len(as_indices("CompatibleDimension.tokens", self.tokens))
        others = max(num_tokens - 1, 0)
        needs_it = max(self.dim - 1, 0) * others < self.equations <= self.dim * others
        if not needs_it and (self.dim, num_tokens, self.equations) != (0, 0, 0):
            raise ValueError(
                f"CompatibleDimension.dim is {self.dim}; {self.equations} log-odds of "
                f"{num_tokens} tokens need another one"
            )
        return self


def compatible_dimension(
    support: npt.ArrayLike | Sparse | NextTokenData,
) -> CompatibleDimension:
    """Find the smallest ``d`` at which generic embeddings make data with these supports compatible.

    ``dim = max_F ⌈e(F) / (|F| − 1)⌉`` over the sets ``F`` of two or more tokens, where
    ``e(F) = Σ_j max(|S_j ∩ F| − 1, 0)`` counts the log-odds that the contexts ask of the tokens of
    ``F``, and ``d (|F| − 1)`` the coordinates of their score differences. Exact: the maximum is
    found by maximum flows, at most one per token for each of a few values of ``d``.

    Generic means: for all embeddings outside a set of measure zero, so with probability one for
    random embeddings with a density, in ``dim`` or more dimensions every choice of distributions on
    the supports is compatible; in fewer dimensions almost no choice is.

    Parameters
    ----------
    support : NextTokenData, array_like of bool or scipy sparse, shape (m, V)
        Which tokens follow which context: data, or a table such as ``data.support``. In a sparse
        matrix of any type these are the entries that are not zero.

    Returns
    -------
    CompatibleDimension

    Raises
    ------
    ValueError
        ``support`` is neither data nor a table of truth values.

    References
    ----------
    T24 (002) Def. 1. W. Whiteley, *A matroid on hypergraphs, with applications in scene analysis
    and geometry*, Discrete & Computational Geometry 4 (1989); a proof is on the page of
    evidence on the compatible dimension.

    Examples
    --------
    Three contexts that ask for all three differences of three tokens need two dimensions, since the
    differences add up to zero:

    >>> import ntpnb
    >>> support = [[True, True, False], [True, False, True], [False, True, True]]
    >>> found = ntpnb.thresholds.compatible_dimension(support)
    >>> found.dim, found.tokens.tolist(), found.equations
    (2, [0, 1, 2], 3)
    """
    positive = _positive_entries(support)
    names, column = np.unique(positive.indices, return_inverse=True)  # the tokens that follow any
    ones = np.ones(len(column), dtype=np.intp)
    shape = (positive.shape[0], len(names))
    table = csr_array((ones, column, positive.indptr), shape=shape)
    dim = 0
    tokens = np.arange(len(names))
    crowded = tokens
    equations = _count_equations(table, tokens)
    needed = equations
    # Every pass raises the dimension to what the crowded tokens need, so that it ends.
    while needed > dim * max(len(crowded) - 1, 0):
        dim = -(-needed // (len(crowded) - 1))  # rounded up
        tokens = crowded
        equations = needed
        crowded = _crowded_tokens(table, dim)
        needed = _count_equations(table, crowded)
    if dim == 0:
        tokens = tokens[:0]
    return CompatibleDimension(dim, names[tokens].astype(np.intp), equations)


def _positive_entries(support: npt.ArrayLike | Sparse | NextTokenData) -> csr_array:
    """Return a sparse matrix with an entry for each token that follows a context, or explain."""
    if isinstance(support, NextTokenData):
        return support.sparse_target_probs
    if issparse(support):
        return as_table("support", support).sparse
    needed = "a table of truth values with one row per context and one column per token"
    table = read_array("support", support, needed)
    if table.ndim != 2 or table.dtype != np.bool_:
        raise ValueError(
            f"support has dtype {table.dtype} and {counted(table.ndim, 'dimension')}; "
            f"it must be {needed}"
        )
    return csr_array(table)


def _count_equations(support: csr_array, tokens: IntArray) -> int:
    """Count the equations ``e(F)`` among the tokens ``F``."""
    is_counted = np.zeros(support.shape[1], dtype=np.intp)
    is_counted[tokens] = 1
    sizes = support @ is_counted
    return int(np.maximum(sizes - 1, 0).sum())


def _crowded_tokens(support: csr_array, dim: int) -> IntArray:
    """Find tokens ``F`` with ``e(F) > dim (|F| − 1)``; the result is empty where there are none.

    Whether there are none is a question of flows. Let each context leave out one of its tokens and
    charge one equation to each of the others. ``e(F) ≤ d (|F| − 1)`` holds for all ``F`` with
    ``r ∈ F`` if and only if the contexts can choose so that token ``r`` is never charged and no
    token more than ``d`` times (Hall's theorem). So every context of ``r`` leaves out ``r``, and
    every other token ``v`` must be left out by ``degree(v) − d`` of its contexts, or more.
    """
    core = _core(support, dim)
    if len(core) == 0:
        return core
    shared = support[:, core]
    shared = shared[shared.sum(axis=1) > 1]
    demand = shared.sum(axis=0) - dim
    crowded = _in_the_way(shared, demand)  # e(F) > dim |F|
    for root in range(len(core)):
        if crowded.any():
            break
        of_root = demand.copy()
        of_root[root] += dim
        crowded = _in_the_way(shared, of_root)  # root is in F, and e(F) > dim (|F| − 1)
    return core[crowded]


def _core(support: csr_array, dim: int) -> IntArray:
    """Drop tokens that share at most ``dim`` contexts with the others, until none does.

    Without such a token, ``e(F)`` falls by no more than ``dim (|F| − 1)`` does.
    """
    kept = np.ones(support.shape[1], dtype=bool)
    while kept.any():
        is_shared = support @ kept.astype(np.intp) > 1
        degree = support.T @ is_shared.astype(np.intp)
        light = kept & (degree <= dim)
        if not light.any():
            break
        kept &= ~light
    return np.flatnonzero(kept)


def _in_the_way(support: csr_array, demand: IntArray) -> BoolArray:
    """Let each context leave out one token and each token be left out ``demand`` times.

    Return the tokens that prevent it, none where nothing does. The choices are unit flows from a
    source to tokens to contexts to a sink; where these fall short, the tokens in the way are those
    on the source's side of a minimum cut.
    """
    num_contexts, num_tokens = support.shape
    source = num_tokens + num_contexts
    context, token, _ = entries_of(support)
    contexts = num_tokens + np.arange(num_contexts)
    tail = np.concatenate([token, contexts, np.full(num_tokens, source)])
    head = np.concatenate(
        [num_tokens + context, np.full(num_contexts, source + 1), np.arange(num_tokens)]
    )
    capacity = np.concatenate([np.ones(len(token) + num_contexts), demand]).astype(np.int32)
    network = csr_array((capacity, (tail, head)), shape=(source + 2, source + 2))
    flow = maximum_flow(network, source, source + 1)
    crowded = np.zeros(num_tokens, dtype=bool)
    if flow.flow_value < demand.sum():
        residual = csr_array(network - flow.flow)
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, source, return_predecessors=False)
        crowded[reached[reached < num_tokens]] = True
    return crowded
