"""Norms of matrices: their values, their duals, and the directions of steepest descent.

A norm ``N`` has the dual norm ``N_*(M) = max { ⟨M, W⟩ : N(W) ≤ 1 }``. Steepest descent in the norm
``N`` moves against a matrix ``Δ`` at which the maximum is attained for ``M`` the gradient.
"""

from abc import ABC, abstractmethod

import numpy as np

from ntpnb.basics.tolerances import ACCEPT, VANISHES
from ntpnb.basics.validation import FloatArray, require_choice

MATRIX_AXES = (-2, -1)


class MatrixNorm(ABC):
    """A norm of matrices, for stacks of them.

    Attributes
    ----------
    name : str
        What a caller asks for.
    dual_name : str
        The name of the dual norm.
    """

    name: str
    dual_name: str

    @abstractmethod
    def of(self, W: FloatArray) -> FloatArray:
        """``N(W)``, shape (...) for matrices of shape (..., p, q)."""

    @abstractmethod
    def steepest(self, G: FloatArray) -> FloatArray:
        """A ``Δ`` with ``N(Δ) = 1`` and ``⟨G, Δ⟩ = N_*(G)``; zero where ``G`` is zero.

        Parameters
        ----------
        G : ndarray, shape (..., p, q)

        Returns
        -------
        ndarray, shape (..., p, q)
        """

    def dual(self, M: FloatArray) -> FloatArray:
        """``N_*(M)``, shape (...) for matrices of shape (..., p, q)."""
        return NORMS[self.dual_name].of(M)


class FrobeniusNorm(MatrixNorm):
    """The root of the sum of squares, its own dual."""

    name = "frobenius"
    dual_name = "frobenius"

    def of(self, W: FloatArray) -> FloatArray:
        """``(Σ W_vi²)^½``."""
        largest = _largest_entry(W)
        relative = _divided(W, largest)  # so that squares stay normal
        return np.asarray(largest * np.linalg.norm(relative, axis=MATRIX_AXES))

    def steepest(self, G: FloatArray) -> FloatArray:
        """``G / ‖G‖``."""
        return _divided(G, self.of(G))


class MaxNorm(MatrixNorm):
    """The largest entry in absolute value; descent in this norm is sign descent."""

    name = "max"
    dual_name = "sum"

    def of(self, W: FloatArray) -> FloatArray:
        """``max |W_vi|``."""
        return _largest_entry(W)

    def steepest(self, G: FloatArray) -> FloatArray:
        """The signs of the entries."""
        return np.sign(G)


class SumNorm(MatrixNorm):
    """The sum of the entries' absolute values; descent in it moves one entry at a time."""

    name = "sum"
    dual_name = "max"

    def of(self, W: FloatArray) -> FloatArray:
        """``Σ |W_vi|``."""
        return np.asarray(np.abs(W).sum(axis=MATRIX_AXES))

    def steepest(self, G: FloatArray) -> FloatArray:
        """The sign of the largest entry, the first of them where several are equal up to rounding.

        They often are: of two tokens in all contexts, one's gradient is minus the other's.
        """
        flat = G.reshape(*G.shape[:-2], -1)
        sizes = np.abs(flat)
        is_largest = sizes >= (1 - VANISHES) * sizes.max(axis=-1, keepdims=True)
        largest = is_largest.argmax(axis=-1)[..., None]
        direction = np.zeros_like(flat)
        signs = np.sign(np.take_along_axis(flat, largest, axis=-1))
        np.put_along_axis(direction, largest, signs, axis=-1)
        return direction.reshape(G.shape)


class SpectralNorm(MatrixNorm):
    """The largest singular value; descent in it is what Muon does, apart from its momentum."""

    name = "spectral"
    dual_name = "nuclear"

    def of(self, W: FloatArray) -> FloatArray:
        """``max σ_i(W)``."""
        return np.asarray(np.linalg.svd(W, compute_uv=False).max(axis=-1))

    def steepest(self, G: FloatArray) -> FloatArray:
        """``U Vᵀ`` of the singular value decomposition ``U diag(σ) Vᵀ``, σ > 0."""
        U, sigma, Vt = np.linalg.svd(_divided(G, _largest_entry(G)), full_matrices=False)
        nonzero = sigma > ACCEPT * sigma[..., :1]
        return np.asarray((U * nonzero[..., None, :]) @ Vt)


class NuclearNorm(MatrixNorm):
    """The sum of the singular values."""

    name = "nuclear"
    dual_name = "spectral"

    def of(self, W: FloatArray) -> FloatArray:
        """``Σ σ_i(W)``."""
        return np.asarray(np.linalg.svd(W, compute_uv=False).sum(axis=-1))

    def steepest(self, G: FloatArray) -> FloatArray:
        """``u vᵀ`` of the largest singular value."""
        U, sigma, Vt = np.linalg.svd(_divided(G, _largest_entry(G)), full_matrices=False)
        U = U[..., :, :1] * (sigma[..., None, :1] > 0)
        return np.asarray(U @ Vt[..., :1, :])


NORMS: dict[str, MatrixNorm] = {
    norm.name: norm
    for norm in (FrobeniusNorm(), MaxNorm(), SumNorm(), SpectralNorm(), NuclearNorm())
}
"""All norms by name."""


def norm_named(name: str) -> MatrixNorm:
    """The norm of that name, or an error that lists the names.

    Parameters
    ----------
    name : str
        ``"frobenius"``, ``"max"``, ``"sum"``, ``"spectral"`` or ``"nuclear"``.

    Returns
    -------
    MatrixNorm

    Raises
    ------
    ValueError
        Another name.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.matrix_norms import norm_named
    >>> W = np.array([[3.0, 0.0], [0.0, -4.0]])
    >>> {name: float(norm_named(name).of(W)) for name in ("max", "frobenius", "sum")}
    {'max': 4.0, 'frobenius': 5.0, 'sum': 7.0}
    >>> norm_named("max").steepest(W).tolist()
    [[1.0, 0.0], [0.0, -1.0]]
    """
    require_choice("norm", name, NORMS)
    return NORMS[name]


def _largest_entry(W: FloatArray) -> FloatArray:
    return np.asarray(np.abs(W).max(axis=MATRIX_AXES))


def _divided(G: FloatArray, size: FloatArray) -> FloatArray:
    """``G / size``, and zero where the size is zero."""
    return np.asarray(G / np.where(size > 0, size, np.inf)[..., None, None])
