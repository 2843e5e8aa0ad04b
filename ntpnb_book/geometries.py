"""What the chapter on other geometries measures: visible norms, shares of the largest margin.

Tokens are one-hot throughout. A vector that is added to all rows of ``W`` changes no probability;
the visible norm is the smallest norm that ``W`` can have with such a vector added.
"""

import numpy as np

from ntpnb import datasets
from ntpnb.basics.errors import NotSeparableError
from ntpnb.basics.matrix_norms import norm_named
from ntpnb.basics.validation import FloatArray
from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.tied.subspace import equal_subspace
from ntpnb_book.vocabulary import margin

__all__ = [
    "bowl_curvature_in_norm",
    "drawn_problems",
    "dual_norm",
    "margin_share",
    "matrix_norm",
    "smoothness_in_norm",
    "visible_norm",
]


def matrix_norm(W: FloatArray, norm: str) -> FloatArray:
    """``N(W)``, shape (...) for matrices of shape (..., p, q).

    Parameters
    ----------
    W : ndarray, shape (..., p, q)
    norm : str
        ``"frobenius"``, ``"max"``, ``"sum"``, ``"spectral"`` or ``"nuclear"``.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import matrix_norm
    >>> float(matrix_norm(np.array([[3.0, -4.0]]), "spectral"))
    5.0
    """
    return norm_named(norm).of(W)


def dual_norm(M: FloatArray, norm: str) -> FloatArray:
    """``N_*(M) = max { ⟨M, W⟩ : N(W) ≤ 1 }``, shape (...) for matrices of shape (..., p, q).

    Parameters
    ----------
    M : ndarray, shape (..., p, q)
    norm : str
        The name of ``N``, as in :func:`matrix_norm`.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import dual_norm
    >>> float(dual_norm(np.array([[3.0, -4.0]]), "max"))
    7.0
    """
    return norm_named(norm).dual(M)


def visible_norm(W: FloatArray, norm: str) -> FloatArray:
    """Smallest ``N(W − 1 cᵀ)`` over vectors ``c``, shape (...) for matrices of shape (..., V, q).

    In the max norm the best ``c`` is midway between the extremes of each column, in the sum norm
    their median, and in norms of singular values their mean, since centring is a projection.

    Parameters
    ----------
    W : ndarray, shape (..., V, q)
    norm : str
        The name of ``N``, as in :func:`matrix_norm`.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import visible_norm
    >>> W = np.array([[5.0], [6.0], [9.0]])
    >>> [float(visible_norm(W, norm)) for norm in ("max", "sum")]
    [2.0, 4.0]
    """
    if norm == "max":
        common = (W.max(axis=-2, keepdims=True) + W.min(axis=-2, keepdims=True)) / 2
    elif norm == "sum":
        common = np.median(W, axis=-2, keepdims=True)
    else:
        common = W.mean(axis=-2, keepdims=True)
    return norm_named(norm).of(W - common)


def margin_share(W: FloatArray, data: NextTokenData, norm: str, largest: float) -> FloatArray:
    """Margin of ``W``, without its ties, over its visible norm and over the largest possible one.

    Parameters
    ----------
    W : ndarray, shape (..., V, q)
        With something outside the tied subspace.
    data : NextTokenData
    norm : str
    largest : float
        The largest margin of a matrix of norm one that ties the equal pairs.

    Returns
    -------
    ndarray, shape (...)
        At most one, up to rounding; negative where a strict pair is ordered the wrong way.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import margin_share
    >>> toy = ntpnb.datasets.toy()
    >>> svm = ntpnb.max_margin(toy)
    >>> print(margin_share(3 * svm.W, toy, "frobenius", 1 / svm.norm).round(9))
    1.0
    """
    free = equal_subspace(data).reject(W)
    share: FloatArray = margin(free, data) / visible_norm(free, norm) / largest
    return share


def smoothness_in_norm(data: NextTokenData, norm: str) -> float:
    """An ``L`` with ``CE(W + Δ) ≤ CE(W) + ⟨∇CE(W), Δ⟩ + L/2 · N(Δ)²`` for all ``W`` and ``Δ``.

    The second derivative along ``Δ`` is the mean over contexts of the variance of ``Δ h_j`` over
    the tokens. A variance is at most a quarter of the squared range, and the range is at most
    ``N(Δ)`` times the dual norm of ``(e_1 − e_2) h_jᵀ``, whichever two tokens are the extremes.

    Parameters
    ----------
    data : NextTokenData
    norm : str
        The name of ``N``, as in :func:`matrix_norm`.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import smoothness_in_norm
    >>> data = ntpnb.NextTokenData([[3.0, -4.0]], [[1.0, 0.0]])
    >>> smoothness_in_norm(data, "max"), round(smoothness_in_norm(data, "spectral"), 9)
    (49.0, 12.5)
    """
    H = data.context_embeddings
    difference = np.array([1.0, -1.0])
    matrices = difference[:, None] * H[:, None, :]
    ranges = norm_named(norm).dual(matrices)
    return float(data.context_probs @ ranges**2 / 4)


def bowl_curvature_in_norm(
    data: NextTokenData, norm: str, *, starts: int = 20, rounds: int = 60
) -> float:
    """Largest second derivative at the floor of the bowl along a ``Δ`` with ``N(Δ) = 1``.

    There each context has its target probabilities, and the derivative is the mean over contexts of
    the variance of ``Δ h_j``. It is convex in ``Δ``, so that going to where its gradient points
    never lowers it. The result is the best of many such climbs: exact in the Frobenius norm up to
    rounding, in other norms attained, so never too large.

    Parameters
    ----------
    data : NextTokenData
        Compatible, so that the floor has the target probabilities.
    norm : str
        The name of ``N``, as in :func:`matrix_norm`.
    starts : int
        Climbs, from random matrices.
    rounds : int
        Moves of each.

    Examples
    --------
    >>> from ntpnb import NextTokenData
    >>> from ntpnb_book import bowl_curvature_in_norm
    >>> data = NextTokenData([[3.0, -4.0]], [[0.5, 0.5, 0.0]])
    >>> round(bowl_curvature_in_norm(data, "frobenius"), 9), bowl_curvature_in_norm(data, "max")
    (12.5, 49.0)
    """
    ruler = norm_named(norm)
    H = data.context_embeddings
    law = data.target_probs.T
    weights = data.context_probs * law

    def deviations(moves: FloatArray) -> FloatArray:
        """Scores along the moves, less their means, shape (starts, V, m)."""
        scores = moves @ H.T
        centred: FloatArray = scores - (law * scores).sum(axis=1, keepdims=True)
        return centred

    moves = np.random.default_rng(0).standard_normal((starts, *data.shape))
    for _ in range(rounds):
        moves = ruler.steepest((weights * deviations(moves)) @ H)
    return float((weights * deviations(moves) ** 2).sum(axis=(1, 2)).max())


def drawn_problems(
    first_seed: int, count: int, shape: tuple[int, int, int, int], *, heard: bool = True
) -> dict[int, NextTokenData]:
    """The first random problems that are separable, by seed.

    Parameters
    ----------
    first_seed : int
    count : int
    shape : tuple of int
        Vocabulary, contexts, dimensions, support; see :func:`ntpnb.datasets.overparameterized`.
    heard : bool
        Whether every token has to follow some context.

    Returns
    -------
    dict of NextTokenData

    Examples
    --------
    >>> from ntpnb_book import drawn_problems
    >>> list(drawn_problems(1, 3, (5, 4, 6, 2)))
    [1, 3, 4]
    """
    problems: dict[int, NextTokenData] = {}
    seed = first_seed
    while len(problems) < count:
        data = datasets.overparameterized(seed, *shape)
        if not heard or data.support.any(axis=0).all():
            try:
                max_margin(data)
                problems[seed] = data
            except NotSeparableError:
                pass
        seed += 1
    return problems
