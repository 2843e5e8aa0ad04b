"""Newton's method for concave functions of a matrix whose singular values stay below one.

Both nuclear-norm problems of this package have a dual of this form, see
:mod:`ntpnb_book.features.nuclear` and :mod:`ntpnb_book.features.path`. The function is a sum over
entries, so that its second derivatives are one number an entry; the barrier ``μ log det(I − A Aᵀ)``
couples them. Its gradient ``−2μ (I − A Aᵀ)⁻¹ A`` is the primal matrix: at the maximum the
derivatives of the entries equal it, up to what is orthogonal to the subspace.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.linear_systems import finite
from ntpnb.basics.tolerances import NEWTON_STEPS
from ntpnb.basics.validation import FloatArray

MOST_ENTRIES = 1500  # of a table of contexts and tokens: Newton's matrix has about as many rows
LAST_WEIGHT = 1e-8  # of the barriers; near it, float64 loses one minus a singular value
SMALL_DECREMENT = 1e-10  # squared and relative to μ, at which a maximum counts as found


@dataclass(frozen=True)
class Derivatives:
    """First and second derivatives of a sum over entries, each of the matrix's shape."""

    first: FloatArray
    second: FloatArray


EntrySum = Callable[[FloatArray, float], Derivatives | None]
"""Derivatives of the function at a matrix, for a barrier's weight; None outside its domain."""


def require_small(table: str, shape: tuple[int, int]) -> None:
    """Raise ``ValueError`` where Newton's matrix of a table would be too large.

    Parameters
    ----------
    table : str
        How many rows and columns it has: so begins the message.
    shape : tuple of int
    """
    if math.prod(shape) > MOST_ENTRIES:
        raise ValueError(
            f"{table}; their product must be at most {MOST_ENTRIES} for this dense method"
        )


def require_gap(gap: float, needed: float, found: object) -> None:
    """Raise ``ConvergenceError``, with what was found, where its duality gap is too large."""
    if not gap <= needed:
        raise ConvergenceError(
            f"the nuclear norm is known to a relative {gap:.1e} only; {needed:g} is needed",
            gap,
            found,
        )


def orthogonal_to(vector: FloatArray) -> FloatArray:
    """Orthonormal columns that span what is orthogonal to a vector, shape (c, c − 1)."""
    return np.linalg.svd(vector[None])[2][1:].T


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


class Centre(NamedTuple):
    """A maximum ``B``, and the weight ``μ`` of the barriers that it belongs to."""

    B: FloatArray
    mu: float


def last_centre(entries: EntrySum, start: FloatArray, basis: FloatArray) -> Centre:
    """Follow the maxima while the barriers' weight falls from one, as far as float64 bears.

    Parameters
    ----------
    entries, start, basis
        As for :func:`maximize`.

    Returns
    -------
    Centre
    """
    centre = Centre(start, 1.0)
    weight = 1.0
    while weight > LAST_WEIGHT:
        B = maximize(entries, centre.B, basis, weight)
        if B is None:
            break
        centre = Centre(B, weight)
        weight /= 5
    return centre


def maximize(
    entries: EntrySum, start: FloatArray, basis: FloatArray, mu: float
) -> FloatArray | None:
    """Maximise ``f(B Qᵀ) + μ log det(I − B Bᵀ)`` over matrices ``B``.

    Parameters
    ----------
    entries : callable
        Derivatives of the concave ``f``, which may hold a barrier of weight ``μ`` itself.
    start : ndarray, shape (k, r)
        A ``B`` inside: all singular values below one, all entries of ``B Qᵀ`` in the domain.
    basis : ndarray, shape (c, r)
        ``Q``, with orthonormal columns.
    mu : float
        The barrier's weight.

    Returns
    -------
    ndarray, shape (k, r), or None
        None where rounding ends the search before the maximum is found.
    """
    B = start
    here = entries(B @ basis.T, mu)
    assert here is not None, "the starting point is not inside"
    for _ in range(NEWTON_STEPS):
        gradient = here.first @ basis - mu * barrier_gradient(B)
        try:
            step = finite(np.linalg.solve(_negative_hessian(here, B, basis, mu), gradient.ravel()))
        except np.linalg.LinAlgError:
            return None
        direction = step.reshape(B.shape)
        slope = float(np.sum(direction * gradient))
        if not slope > SMALL_DECREMENT * mu:
            return B
        length = 1.0
        while True:
            ahead = B + length * direction
            if np.array_equal(ahead, B):
                return None
            there = entries(ahead @ basis.T, mu)
            if there is not None and np.linalg.norm(ahead, 2) < 1:
                end = there.first @ basis - mu * barrier_gradient(ahead)
                if np.sum(direction * end) >= -slope:  # else the maximum lies far behind
                    break
            length /= 2
        B, here = ahead, there
    return None


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
