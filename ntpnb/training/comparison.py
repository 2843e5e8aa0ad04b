"""How recorded matrices compare with what the theory predicts for them."""

from dataclasses import dataclass

import numpy as np

from ntpnb.bias import implicit_bias
from ntpnb.problem.loss import as_weights


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
        Cosine between ``W_k − W*`` and ``W^mm``.
    finite_error : ndarray
        ``‖P_F W_k − W*‖``, absolute.
    """

    alignment: np.ndarray
    angle: np.ndarray
    corrected_alignment: np.ndarray
    finite_error: np.ndarray


def compare(W, data):
    """Compare matrices with what the theory predicts for a dataset.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData or ImplicitBias

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.
    NotSeparableError, ConvergenceError
        No max-margin direction exists, or it is undecided whether one does.
    """
    bias = implicit_bias(data)
    return compare_with(as_weights("W", W, bias.data), bias.finite_part, bias.require_max_margin())


def compare_with(W, finite, svm, inside=None):
    """Compare a stack ``W``, shape (..., p, q), with a finite part and a max-margin solution.

    ``inside`` is ``P_F W`` where the caller knows it better than the rounded ``W`` does.
    """
    shifted = W - finite.W
    inside = (finite.subspace.project(W) if inside is None else inside) - finite.W
    return Comparison(
        np.cos(_angle(W, svm.W)),
        _angle(W, svm.W),
        np.cos(_angle(shifted, svm.W)),
        np.linalg.norm(inside, axis=(-2, -1)),
    )


def _angle(W, direction):
    """Angle in radians between matrices, shape (...); Kahan's formula, accurate near 0 and π."""
    a, b = (np.linalg.norm(x, axis=(-2, -1), keepdims=True) for x in (W, direction))
    with np.errstate(divide="ignore", invalid="ignore"):
        u, v = W / a, direction / b
    return 2 * np.arctan2(
        np.linalg.norm(u - v, axis=(-2, -1)), np.linalg.norm(u + v, axis=(-2, -1))
    )
