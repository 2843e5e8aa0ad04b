"""Two formulas for how many dimensions random data need, and the laws behind them."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from ntpnb.basics.array_types import FloatArray
from ntpnb.basics.validation import SUM_TOLERANCE, as_array, as_integer
from ntpnb.thresholds.level_probabilities import level_law

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
            f"support sizes are {sorted(sizes)} for {vocab_size} tokens; there must be at least "
            "two tokens, and sizes between 1 and their number"
        )
    if not (shares >= 0).all() or abs(shares.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"shares of support sizes are {shares}; they must be >= 0 and sum to one")
    return SupportMix(vocab_size, sizes, shares)
