"""How recorded matrices compare with what the theory predicts for them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ntpnb.array_types import FloatArray
from ntpnb.bias import ImplicitBias, implicit_bias
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import as_weights
from ntpnb.tied.finite import FinitePart


@dataclass(frozen=True, eq=False)
class Comparison:
    """How recorded matrices ``W_k`` compare with the theory, arrays shaped like ``run.loss``.

    Attributes
    ----------
    alignment : ndarray
        Cosine between ``W_k`` and ``W^mm``; nan where ``W_k`` or ``W^mm`` is zero and has none.
    angle : ndarray
        The same angle in radians, accurate near zero where the cosine is not.
    corrected_alignment : ndarray
        Cosine between ``W_k − W*`` and ``W^mm``; nan where one of the two is zero.
    finite_error : ndarray
        ``‖P_F W_k − W*‖``, the Frobenius norm; not relative to ``‖W*‖``.

    References
    ----------
    T24 (002) Thm 2 and Figs 1–3; L24 (004) Figs 3 and 4.

    Examples
    --------
    >>> import ntpnb
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> found = ntpnb.compare(bias.finite_part.W + 2 * bias.max_margin.W, bias)
    >>> found.corrected_alignment.round(6), found.finite_error.round(6)
    (np.float64(1.0), np.float64(0.0))
    """

    alignment: FloatArray
    angle: FloatArray
    corrected_alignment: FloatArray
    finite_error: FloatArray


def compare(W: npt.ArrayLike, data: NextTokenData | ImplicitBias) -> Comparison:
    """Compare matrices with what the theory predicts for a dataset.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData or ImplicitBias

    Returns
    -------
    Comparison
        With arrays of shape (...).

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.
    TypeError
        ``data`` is neither data nor a bias.
    NotSeparableError
        No max-margin direction exists.
    ConvergenceError
        It is undecided whether one exists, or the finite part was not found.

    References
    ----------
    T24 (002) Thm 2; L24 (004) Thms 3 and 4.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.datasets.toy()
    >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000)
    >>> ntpnb.compare(run.W[-1], data).angle.round(2)
    np.float64(0.3)
    """
    bias = implicit_bias(data)
    matrices = as_weights("W", W, bias.data)
    return compare_with(matrices, bias.finite_part, bias.require_max_margin())


def compare_with(
    W: FloatArray, finite: FinitePart, svm: MarginSolution, inside: FloatArray | None = None
) -> Comparison:
    """Compare matrices with a finite part and a max-margin solution.

    Parameters
    ----------
    W : ndarray, shape (..., p, q)
    finite : FinitePart
    svm : MarginSolution
    inside : ndarray, shape (..., p, q), optional
        ``P_F W`` where the caller knows it better than the rounded ``W`` does.

    Returns
    -------
    Comparison
        With arrays of shape (...).

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.comparison import compare_with
    >>> data = ntpnb.datasets.toy()
    >>> svm = ntpnb.max_margin(data)
    >>> compare_with(-svm.W, ntpnb.finite_part(data), svm).angle.round(6)
    np.float64(3.141593)
    """
    angle = _angle(W, svm.W)
    shifted = W - finite.W
    if inside is None:
        inside = finite.subspace.project(W)
    return Comparison(
        alignment=np.cos(angle),
        angle=angle,
        corrected_alignment=np.cos(_angle(shifted, svm.W)),
        finite_error=np.linalg.norm(inside - finite.W, axis=(-2, -1)),
    )


def compare_trace(
    W: FloatArray,
    inside: FloatArray | None,
    finite: FinitePart | ImplicitBias,
    svm: MarginSolution | None,
) -> Comparison:
    """Compare a trace's matrices with a bias, or with a finite part and a max-margin solution.

    Parameters
    ----------
    W : ndarray, shape (r, p, q)
    inside : ndarray, shape (r, p, q), or None
        ``P_F W`` where the caller knows it better than the rounded ``W`` does.
    finite : FinitePart or ImplicitBias
        A bias holds both parts; ``svm`` is then left out.
    svm : MarginSolution or None

    Returns
    -------
    Comparison

    Raises
    ------
    NotSeparableError, ConvergenceError
        The refusal of a bias that has no max-margin solution.
    TypeError
        A finite part without a max-margin solution.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.comparison import compare_trace
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> W = bias.max_margin.W[None]
    >>> compare_trace(W, None, bias, None).alignment
    array([1.])
    """
    if isinstance(finite, ImplicitBias):
        return compare_with(W, finite.finite_part, finite.require_max_margin(), inside)
    if svm is None:
        raise TypeError("svm is missing; give a finite part and a max-margin solution, or a bias")
    return compare_with(W, finite, svm, inside)


def _angle(W: FloatArray, direction: FloatArray) -> FloatArray:
    """Angle in radians between matrices, shape (...); Kahan's formula, accurate near 0 and π."""
    W_norm = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    direction_norm = np.linalg.norm(direction, axis=(-2, -1), keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = W / W_norm
        v = direction / direction_norm
    twice_sine_of_half = np.linalg.norm(u - v, axis=(-2, -1))
    twice_cosine_of_half = np.linalg.norm(u + v, axis=(-2, -1))
    angle: FloatArray = 2 * np.arctan2(twice_sine_of_half, twice_cosine_of_half)
    return angle
