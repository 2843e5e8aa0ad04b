"""The Newton system of a program by supports, solved row by row.

It asks for ``D``, zero outside a mask, and ``e`` with ``(D G)_vj + θ_vj D_vj − a_v e_j = r_vj`` on
the mask and ``Σ_v a_v D_vj = q_j``, where ``G`` is the Gram matrix of the normalised contexts and
``a_v`` the root of token ``v``, one where it stands for itself alone. Let ``J`` be the contexts
``j`` with ``(v, j)`` in the mask and ``K_v = G_JJ + diag(θ_vJ)``. Given ``e``, the rows decouple:

    D_v = K_v⁻¹ (r_v + a_v e)_J    and so    (Σ_v a_v² K_v⁻¹) e = q − Σ_v a_v K_v⁻¹ r_v,

where ``K_v⁻¹`` stands for a matrix of all contexts with zeros outside ``J``. The matrix on the left
is definite, since tied entries are always in the mask and every context has some.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.factorization import upper_factor
from ntpnb.margin.normal_form import NewtonStep

KEEP = 2**25
"""Entries of factors kept between solves (256 MiB); more than that are computed in each solve."""


@dataclass(frozen=True, eq=False)
class PatternBlock:
    """A row's inverse by its own entries: ``K_v⁻¹ = F Fᵀ`` on the pattern ``J``, ``F`` upper."""

    pattern: IntArray
    factor: FloatArray

    def add_inverse(self, total: FloatArray, factor: float) -> None:
        """Add the lower triangle of ``K_v⁻¹``, times a factor, to a matrix of all contexts."""
        num_contexts = len(total)
        if len(self.pattern) == 0:
            return
        # Whole rows are added: where contexts are few or the pattern is nearly complete, this is
        # faster than indexing a submatrix.
        rows = np.zeros((len(self.pattern), num_contexts))
        rows[:, self.pattern] = factor * lapack.dlauum(self.factor)[0].T
        total[self.pattern] += rows

    def solve_row(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the row's entries of ``solution``, whatever it holds."""
        solution[self.pattern] = self.factor @ (rhs[self.pattern] @ self.factor)


@dataclass(frozen=True, eq=False)
class ComplementBlock:
    """A row's inverse by the few entries that it lacks: ``K_v⁻¹ = Q − F Fᵀ`` on its own entries.

    ``Q = (G + θ)⁻¹`` is the inverse without a mask, and ``F`` has a column per missing entry: with
    ``M`` the missing ones, ``K_v⁻¹ = Q_JJ − Q_JM (Q_MM)⁻¹ Q_MJ``. Outside ``J``, ``Q − F Fᵀ`` is
    zero but for rounding.
    """

    full_inverse: FloatArray
    factor: FloatArray

    def add_inverse(self, total: FloatArray, factor: float) -> None:
        """Add ``K_v⁻¹``, times a factor, to a matrix of all contexts."""
        inverse = self.full_inverse - self.factor @ self.factor.T
        total += inverse if factor == 1 else factor * inverse

    def solve_row(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Turn ``Q rhs``, which ``solution`` holds, into ``K_v⁻¹ rhs``."""
        solution -= self.factor @ (rhs @ self.factor)


class RowSystem:
    """A factored Newton system, called as ``system(r, q)``.

    Parameters
    ----------
    gram : ndarray, shape (m, m)
        ``G``.
    mask : ndarray of bool, shape (V, m)
    diagonal : float or ndarray of shape (V, m)
        ``θ``.
    full_inverse : ndarray of shape (m, m), optional
        ``(G + θ)⁻¹`` for a single number ``θ``: rows that are nearly complete are then solved by
        the entries that they lack.
    previous : RowSystem, optional
        A system with the same ``gram``, ``diagonal`` and ``full_inverse``; the factors of rows
        whose mask is the same are taken over.
    roots : float or ndarray of shape (V, 1), optional
        ``a``. Default: one.
    """

    def __init__(
        self,
        gram: FloatArray,
        mask: BoolArray,
        diagonal: float | FloatArray,
        full_inverse: FloatArray | None = None,
        previous: "RowSystem | None" = None,
        roots: float | FloatArray = 1.0,
    ) -> None:
        self._roots = roots
        self._gram = gram
        self._mask = mask
        self._diagonal = np.broadcast_to(diagonal, mask.shape)
        self._full_inverse = full_inverse
        self._blocks: dict[int, PatternBlock | ComplementBlock] = {}
        if previous is not None and previous._full_inverse is full_inverse:
            for row, block in previous._blocks.items():
                if (mask[row] == previous._mask[row]).all():
                    self._blocks[row] = block

        sum_of_inverses = np.zeros(gram.shape)
        squared_roots = np.broadcast_to(np.square(roots), (len(mask), 1))[:, 0]
        for row in range(len(mask)):
            self._block(row).add_inverse(sum_of_inverses, float(squared_roots[row]))
        self._factor_for_common = upper_factor(sum_of_inverses)

    def __call__(self, residual: FloatArray, imbalance: FloatArray) -> NewtonStep:
        """Solve for ``r = residual`` and ``q = imbalance``."""
        alone = self._solve_rows(residual)
        own = (self._roots * alone).sum(0)
        common = lapack.dpotrs(self._factor_for_common, imbalance - own)[0]
        return NewtonStep(alone + self._solve_rows(self._roots * common), common)

    def _solve_rows(self, rhs: FloatArray) -> FloatArray:
        """``K_v⁻¹ rhs_v`` of every row; a ``rhs`` of one dimension is the same for all rows."""
        masked = np.where(self._mask, rhs, 0.0)
        # Blocks by missing entries begin with Q rhs, the others overwrite it.
        if self._full_inverse is None:
            solution = np.zeros(masked.shape)
        else:
            solution = masked @ self._full_inverse
        for row in range(len(masked)):
            self._block(row).solve_row(masked[row], solution[row])
        return np.where(self._mask, solution, 0.0)

    def _block(self, row: int) -> PatternBlock | ComplementBlock:
        """The row's inverse, from memory where it is kept."""
        block = self._blocks.get(row)
        if block is None:
            block = self._factored_block(row)
            if self._keeps_blocks:
                self._blocks[row] = block
        return block

    @cached_property
    def _keeps_blocks(self) -> bool:
        """Whether the factors of all rows, by their own entries or by those they lack, are kept."""
        per_row = np.full(len(self._mask), float(len(self._gram)) ** 2)
        if self._full_inverse is None:
            per_row = self._mask.sum(1, dtype=np.float64) ** 2
        return float(per_row.sum()) <= KEEP

    def _factored_block(self, row: int) -> PatternBlock | ComplementBlock:
        pattern = self._mask[row].nonzero()[0]
        missing = (~self._mask[row]).nonzero()[0]
        Q = self._full_inverse
        few_entries = len(pattern) <= 2 * len(missing)
        if Q is None or few_entries:
            K = self._gram.take(pattern, 0).take(pattern, 1)
            R = upper_factor(K, self._diagonal[row, pattern])
            return PatternBlock(pattern, upper_inverse(R))
        R = upper_factor(Q.take(missing, 0).take(missing, 1))
        return ComplementBlock(Q, Q[:, missing] @ upper_inverse(R))


def upper_inverse(factor: FloatArray) -> FloatArray:
    """Inverse of an upper triangular matrix, which may be empty (LAPACK's may not)."""
    if len(factor) == 0:
        return factor
    inverse: FloatArray = lapack.dtrtri(factor)[0]
    return inverse
