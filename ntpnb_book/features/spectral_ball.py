"""Newton's method for concave functions of a matrix whose singular values stay below one.

Both nuclear-norm problems of this package have a dual of this form, see
:mod:`ntpnb_book.features.nuclear` and :mod:`ntpnb_book.features.path`. The function is a sum over
entries, so that its second derivatives are one number an entry; the barrier ``μ log det(I − A Aᵀ)``
couples them. Its gradient ``−2μ (I − A Aᵀ)⁻¹ A`` is the primal matrix: at the maximum the
derivatives of the entries equal it, up to what is orthogonal to the subspace.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ntpnb.array_types import FloatArray

NEWTON_STEPS = 200
SETTLED = 1e-10  # Newton decrement, squared and relative to μ, at which a maximum counts as found
OVERSHOT = -0.5  # a step is halved while the slope at its end is below this multiple of the first
SHORTEST_STEP = 1e-12


@dataclass(frozen=True)
class Derivatives:
    """First and second derivatives of a sum over entries, each of the matrix's shape."""

    first: FloatArray
    second: FloatArray


EntrySum = Callable[[FloatArray], Derivatives | None]
"""Derivatives of the function at a matrix; None where an entry has left the function's domain."""


def barrier_gradient(A: FloatArray) -> FloatArray:
    """``2 (I − A Aᵀ)⁻¹ A``, the gradient of ``−log det(I − A Aᵀ)``.

    Parameters
    ----------
    A : ndarray, shape (k, r)
        All singular values below one.

    Returns
    -------
    ndarray, shape (k, r)
    """
    left, values, right = np.linalg.svd(A, full_matrices=False)
    gradient: FloatArray = (left * (2 * values / ((1 - values) * (1 + values)))) @ right
    return gradient


def maximize(entries: EntrySum, start: FloatArray, basis: FloatArray, mu: float) -> FloatArray:
    """Maximise ``f(B Qᵀ) + μ log det(I − B Bᵀ)`` over matrices ``B``.

    Parameters
    ----------
    entries : callable
        Derivatives of the concave ``f``.
    start : ndarray, shape (k, r)
        A ``B`` inside: all singular values below one, all entries of ``B Qᵀ`` in the domain.
    basis : ndarray, shape (c, r)
        ``Q``, with orthonormal columns.
    mu : float
        The barrier's weight.

    Returns
    -------
    ndarray, shape (k, r)
        The last ``B``. Where rounding ends the search early, its caller's residuals say so.
    """
    B = start
    here = entries(B @ basis.T)
    assert here is not None, "the starting point is not inside"
    for _ in range(NEWTON_STEPS):
        gradient = here.first @ basis - mu * barrier_gradient(B)
        try:
            step = np.linalg.solve(_negative_hessian(here, B, basis, mu), gradient.ravel())
        except np.linalg.LinAlgError:  # the barrier's weight is at the edge of float64
            return B
        direction = step.reshape(B.shape)
        slope = float(np.sum(direction * gradient))
        if not slope > SETTLED * mu:
            return B
        length = 1.0
        while True:
            ahead = B + length * direction
            there = entries(ahead @ basis.T)
            if there is not None and np.linalg.norm(ahead, 2) < 1:
                end = there.first @ basis - mu * barrier_gradient(ahead)
                if np.sum(direction * end) >= OVERSHOT * slope:
                    break
            length /= 2
            if length < SHORTEST_STEP:
                return B
        B, here = ahead, there
    return B


def _negative_hessian(here: Derivatives, B: FloatArray, basis: FloatArray, mu: float) -> FloatArray:
    """Minus the second derivatives of the function and its barrier, shape (k·r, k·r).

    With ``M = (I − B Bᵀ)⁻¹`` and ``N = (I − Bᵀ B)⁻¹``, the barrier's are
    ``D ↦ 2 μ (M D N + M B Dᵀ M B)``.
    """
    rows, columns = B.shape
    M = np.linalg.inv(np.eye(rows) - B @ B.T)
    N = np.linalg.inv(np.eye(columns) - B.T @ B)
    MB = M @ B
    # Indices (a, c, b, d): entry (a, c) of the result of the direction with a one at (b, d).
    hessian = np.einsum("ab,cd->acbd", M, N)
    hessian += np.einsum("ad,bc->acbd", MB, MB)
    hessian *= 2 * mu
    for k in range(rows):  # entries of different rows do not meet in f
        hessian[k, :, k, :] -= (basis.T * here.second[k]) @ basis
    flat: FloatArray = hessian.reshape(rows * columns, rows * columns)
    return flat
