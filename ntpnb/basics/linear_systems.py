"""Linear systems: lengths of rows, Cholesky factors, inverses by them, conjugate gradients.

Factors have the form that LAPACK's triangular routines take. Conjugate gradients go step by step;
whoever asks for a solution says when one is good enough.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from ntpnb.basics.threads import product, threads_for
from ntpnb.basics.validation import AnyPrecision, FloatArray


def finite(result: AnyPrecision) -> FloatArray:
    """Return what ``numpy.linalg`` computed, if it could be.

    In a browser processors set no flags that numpy could read: it returns NaN where it raises an
    error elsewhere.

    Raises
    ------
    numpy.linalg.LinAlgError
        The result is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.linear_systems import finite
    >>> finite(np.linalg.inv(np.eye(2) * 4)).diagonal().tolist()
    [0.25, 0.25]
    """
    if not np.isfinite(result).all():
        raise np.linalg.LinAlgError("a matrix is singular, or not positive, in floating point")
    return result


def nonzero_norms(rows: FloatArray) -> FloatArray:
    """Norm of each row, or one where that is zero, so that a row can be divided by it."""
    lengths = np.linalg.norm(rows, axis=1)
    return np.where(lengths > 0, lengths, 1.0)


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of length one, and zero rows as they are."""
    return rows / nonzero_norms(rows)[:, None]


def diagonals(matrices: FloatArray) -> FloatArray:
    """The diagonals of stacked matrices, shape (n, k) for (n, k, k), to be written into."""
    found: FloatArray = np.einsum("nii->ni", matrices)
    return found


def upper_factor(matrix: FloatArray, diagonal: float | FloatArray = 0.0) -> FloatArray:
    """Upper triangular ``R`` with ``Rᵀ R = matrix + diagonal``, from the lower triangle alone.

    ``matrix``, a temporary one of the caller's, is overwritten. Transposed, its row-major lower
    triangle is LAPACK's column-major upper one, without a copy.

    Raises
    ------
    numpy.linalg.LinAlgError
        The sum is not positive definite in floating point.
    """
    matrix.flat[:: len(matrix) + 1] += diagonal
    if len(matrix) == 0:  # LAPACK's may not be empty
        return matrix
    factor: FloatArray
    with threads_for(len(matrix) ** 3 / 6):
        factor, failed = lapack.dpotrf(matrix.T, lower=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the matrix is not positive definite in floating point")
    return factor


def woodbury_factors(rows: FloatArray, diagonal: FloatArray) -> FloatArray:
    """``F`` with ``(R Rᵀ + Θ)⁻¹ = Θ⁻¹ − F Fᵀ``, by Woodbury's formula.

    It is ``F = Θ⁻¹ R L⁻ᵀ`` with ``L Lᵀ = 1 + Rᵀ Θ⁻¹ R``, and asks for a factor as large as ``R``
    has columns.

    Parameters
    ----------
    rows : ndarray, shape (n, k, d)
        ``R`` of each of ``n`` systems.
    diagonal : ndarray, shape (n, k)
        ``Θ > 0``.

    Returns
    -------
    ndarray, shape (n, k, d)

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite in floating point.
    """
    factors: FloatArray = rows / diagonal[:, :, None]
    matrices = product(factors.transpose(0, 2, 1), rows)
    diagonals(matrices)[:] += 1.0
    for matrix, lower in zip(factors, finite(np.linalg.cholesky(matrices)), strict=True):
        # Transposed, row-major arrays are BLAS's column-major ones: L⁻¹ Bᵀ.
        matrix[:] = blas.dtrsm(1.0, lower.T, matrix.T, trans_a=1, overwrite_b=1).T
    return factors


def inverses_of_products(lower: FloatArray) -> FloatArray:
    """Inverses of ``L Lᵀ`` for lower triangular ``L``, shape (n, k, k), which are overwritten."""
    for factor in lower:
        # Transposed, a row-major lower triangle is LAPACK's column-major upper one.
        factor[:] = lapack.dpotri(factor.T, overwrite_c=1)[0].T
    inverses: FloatArray = lower + lower.transpose(0, 2, 1)
    diagonals(inverses)[:] /= 2
    return inverses


# -- conjugate gradients --------------------------------------------------------------------------


class Approximation(NamedTuple):
    """A point on the way to the solution, and what it leaves of the target.

    Attributes
    ----------
    size : float
        The norm of the error that the approximate inverse gives.
    """

    point: FloatArray
    error: FloatArray
    size: float


def conjugate_gradient_steps(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    precondition: Callable[[FloatArray], FloatArray] | None = None,
) -> Iterator[Approximation]:
    """Approximate the solution of a symmetric system, from zero on.

    The system may be singular, and its unknowns an array of any shape. The steps end by themselves
    only where the error, or the curvature along the next step, is nothing but rounding.

    Parameters
    ----------
    product : callable
        The product with the matrix, which is positive semidefinite.
    target : ndarray
    precondition : callable, optional
        An approximate inverse, symmetric too. Default: the identity.

    Yields
    ------
    Approximation
        The first is zero. None of the arrays is changed later.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.linear_systems import conjugate_gradient_steps
    >>> product = np.array([[2.0, 1.0], [1.0, 2.0]]).__matmul__
    >>> _, _, last = conjugate_gradient_steps(product, np.array([3.0, 0.0]))
    >>> last.point.round(6).tolist()
    [2.0, -1.0]
    """
    point = direction = np.zeros_like(target)
    error = target
    descent_before = 1.0
    while True:
        ahead = error if precondition is None else precondition(error)
        descent = float(np.vdot(error, ahead))
        yield Approximation(point, error, float(np.sqrt(np.maximum(descent, 0.0))))
        direction = ahead + descent / descent_before * direction
        change = product(direction)
        curvature = float(np.vdot(direction, change))
        if not min(descent, curvature) > 0:
            return
        share = descent / curvature
        point = point + share * direction
        error = error - share * change
        descent_before = descent
