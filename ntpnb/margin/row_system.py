"""The Newton system of a program by supports, solved token by token.

It asks for ``D``, zero outside a mask, and ``e`` with ``(D G)_vj + θ_vj D_vj − a_v e_j = r_vj`` on
the mask and ``Σ_v a_v D_vj = q_j``, where ``G = U Uᵀ`` is the Gram matrix of the contexts and
``a_v`` the root of token ``v``. Let ``J`` be the contexts ``j`` with ``(v, j)`` in the mask,
``U_J`` their rows and ``K_v = U_J U_Jᵀ + diag(θ_vJ)``. Given ``e``, the tokens decouple:

    D_v = K_v⁻¹ (r_v + a_v e)_J    and so    (Σ_v a_v² K_v⁻¹) e = q − Σ_v a_v K_v⁻¹ r_v,

where ``K_v⁻¹`` stands for a matrix of all contexts with zeros outside ``J``. The matrix on the left
is definite, since tied entries are always in the mask and every context has some.

An inverse costs what the smallest of three matrices asks for: that of a token's own entries; in
``d × d``, where it has more entries than dimensions (Woodbury); or that of the entries it *lacks*,
where contexts are independent, the mask is nearly full, and ``θ`` is the same everywhere. Tokens
with about as many entries are solved together, padded with entries that are always zero.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.factors import inverses_of_products, times_inverse_transposes, upper_factor
from ntpnb.margin.normal_form import NewtonStep
from ntpnb.problem.table import BLOCK
from ntpnb.threads import product
from ntpnb.tolerances import PROX

if TYPE_CHECKING:
    from ntpnb.margin.support_program import SupportProgram


ALIKE = 1.1
"""Tokens whose numbers of entries differ by less than this factor are solved together."""

CLOSE = 1e-12
"""Relative residual of conjugate gradients."""

MOST_ITERATIONS = 1000
"""Conjugate gradient steps for one system."""


class Batch(Protocol):
    """The inverses of tokens with about as many entries."""

    def add_inverses(self, total: FloatArray) -> None:
        """Add ``Σ a_v² K_v⁻¹`` to a matrix of all contexts, and one row and column for padding."""

    def add_diagonals(self, total: FloatArray) -> None:
        """Add the diagonals of ``Σ a_v² K_v⁻¹`` alone."""

    def solve(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the batch's entries of ``solution``; the last is for padding."""


@dataclass(frozen=True, eq=False)
class OwnEntries:
    """Inverses by the tokens' own entries: ``K_v⁻¹`` itself.

    ``positions`` and ``contexts`` have shape (b, k); padding has the last position and context.
    """

    positions: IntArray
    contexts: IntArray
    squared_roots: FloatArray  # (b,)
    inverses: FloatArray  # (b, k, k)

    def add_inverses(self, total: FloatArray) -> None:
        """Add ``Σ a_v² K_v⁻¹``; see :class:`Batch`."""
        weighted = self.squared_roots[:, None, None] * self.inverses
        _add_at(total, self.contexts, weighted)

    def add_diagonals(self, total: FloatArray) -> None:
        """Add the diagonals alone."""
        diagonals = np.diagonal(self.inverses, axis1=1, axis2=2)
        np.add.at(total, self.contexts, self.squared_roots[:, None] * diagonals)

    def solve(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the entries of the tokens."""
        x = rhs[self.positions]
        solution[self.positions] = (self.inverses @ x[:, :, None])[:, :, 0]


@dataclass(frozen=True, eq=False)
class InDimensions:
    """Inverses in ``d × d``: ``K_v⁻¹ = Θ⁻¹ − F Fᵀ`` with ``F = Θ⁻¹ U_J L⁻ᵀ``, shape (b, k, d).

    ``L Lᵀ = 1 + U_Jᵀ Θ⁻¹ U_J``.
    """

    positions: IntArray
    contexts: IntArray
    squared_roots: FloatArray
    diagonal: FloatArray  # Θ⁻¹, (b, k)
    factors: FloatArray

    def add_inverses(self, total: FloatArray) -> None:
        """Add ``Σ a_v² K_v⁻¹``; see :class:`Batch`."""
        for root, contexts, diagonal, factor in zip(
            self.squared_roots, self.contexts, self.diagonal, self.factors, strict=True
        ):
            inverse = -root * product(factor, factor.T)
            inverse.flat[:: len(inverse) + 1] += root * diagonal
            _add_at(total, contexts[None], inverse[None])

    def add_diagonals(self, total: FloatArray) -> None:
        """Add the diagonals alone."""
        diagonals = self.diagonal - np.einsum("bkd,bkd->bk", self.factors, self.factors)
        np.add.at(total, self.contexts, self.squared_roots[:, None] * diagonals)

    def solve(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the entries of the tokens."""
        x = rhs[self.positions]
        inner = x[:, None] @ self.factors
        y = self.diagonal * x - (self.factors @ inner.transpose(0, 2, 1))[:, :, 0]
        solution[self.positions] = y


@dataclass(frozen=True, eq=False)
class MissingEntries:
    """Inverses by the entries that tokens lack: ``K_v⁻¹ = Q − F Fᵀ`` with ``Q = (G + θ)⁻¹``.

    With ``M`` the missing contexts, ``F = Q_·M L⁻ᵀ`` and ``L Lᵀ = Q_MM``. Here ``positions`` has a
    column for every context; ``factors`` holds ``Fᵀ``, shape (b, |M|, m).
    """

    positions: IntArray
    squared_roots: FloatArray
    full_inverse: FloatArray
    factors: FloatArray

    def add_inverses(self, total: FloatArray) -> None:
        """Add ``Σ a_v² K_v⁻¹``; see :class:`Batch`."""
        rows = np.sqrt(self.squared_roots)[:, None, None] * self.factors
        rows = rows.reshape(-1, rows.shape[2])
        inverse = self.squared_roots.sum() * self.full_inverse - product(rows.T, rows)
        total[:-1, :-1] += inverse

    def add_diagonals(self, total: FloatArray) -> None:
        """Add the diagonals alone."""
        rows = np.sqrt(self.squared_roots)[:, None, None] * self.factors
        diagonal = self.squared_roots.sum() * np.diagonal(self.full_inverse)
        total[:-1] += diagonal - (rows**2).sum(axis=(0, 1))

    def solve(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the entries of the tokens."""
        x = rhs[self.positions]
        inner = self.factors @ x[:, :, None]
        y = product(x, self.full_inverse) - (inner.transpose(0, 2, 1) @ self.factors)[:, 0]
        solution[self.positions] = y


class RowSystem:
    """A factored Newton system, called as ``system(r, q)``.

    Parameters
    ----------
    program : SupportProgram
    mask : ndarray of bool, shape (n,)
    diagonal : float or ndarray of shape (n,)
        ``θ``.
    """

    def __init__(
        self, program: "SupportProgram", mask: BoolArray, diagonal: float | FloatArray
    ) -> None:
        self._program = program
        self._mask = mask
        self._batches: list[Batch] = []
        theta = np.append(np.broadcast_to(diagonal, mask.shape), 1.0)
        is_prox = isinstance(diagonal, float) and diagonal == PROX
        inverse = program.pairs.full_inverse if is_prox else None
        entries = np.flatnonzero(mask)
        counts = np.bincount(program.token[entries], minlength=program.pairs.vocab_size)
        lacking = program.num_columns - counts
        is_nearly_full = np.full(len(counts), inverse is not None) & (counts > 2 * lacking)
        if inverse is not None and is_nearly_full.any():
            position = np.full((len(counts), program.num_columns), len(mask))
            position[program.token[entries], program.column[entries]] = entries
            for tokens in self._alike(lacking, is_nearly_full):
                self._batches.append(self._by_missing(tokens, position[tokens], inverse))
        by_token = entries[np.argsort(program.token[entries], kind="stable")]
        starts = np.cumsum(counts) - counts
        for tokens in self._alike(counts, (counts > 0) & ~is_nearly_full):
            within = np.arange(counts[tokens].max())
            where = np.minimum(starts[tokens][:, None] + within, len(by_token) - 1)
            positions = by_token[where]
            positions[within >= counts[tokens][:, None]] = len(mask)
            self._batches.append(self._by_own(positions, theta))

        self._solve_common = self._factored() if program.pairs.fits else self._iterated()

    def _factored(self) -> Callable[[FloatArray, float], FloatArray]:
        """Solver of the system of the common scores by its factor."""
        num_contexts = self._program.num_columns
        total = np.zeros((num_contexts + 1, num_contexts + 1))
        for batch in self._batches:
            batch.add_inverses(total)
        factor = upper_factor(np.ascontiguousarray(total[:-1, :-1]))
        return lambda rhs, accuracy: lapack.dpotrs(factor, rhs)[0]

    def _iterated(self) -> Callable[[FloatArray, float], FloatArray]:
        """Solver of the system of the common scores by conjugate gradients, without a matrix."""
        program = self._program
        shape = (program.num_columns, program.num_columns)
        diagonal = np.zeros(program.num_columns + 1)
        for batch in self._batches:
            batch.add_diagonals(diagonal)

        def times(common: FloatArray) -> FloatArray:
            spread = program.roots * common.ravel()[program.column]
            return program.column_sums(self.solve_rows(spread))

        matrix = LinearOperator(shape, matvec=times, dtype=np.float64)
        precondition = LinearOperator(
            shape, matvec=lambda z: z.ravel() / diagonal[:-1], dtype=np.float64
        )

        def solve(rhs: FloatArray, accuracy: float) -> FloatArray:
            found, _ = cg(
                matrix, rhs, rtol=CLOSE, atol=accuracy, maxiter=MOST_ITERATIONS, M=precondition
            )
            return np.asarray(found, dtype=np.float64)

        return solve

    def __call__(
        self, residual: FloatArray, imbalance: FloatArray, accuracy: float = 0.0
    ) -> NewtonStep:
        """Solve for ``r = residual`` and ``q = imbalance``, whose norm may be missed by so much."""
        program = self._program
        alone = self.solve_rows(residual)
        missing = imbalance - program.column_sums(alone)
        common = self._solve_common(missing, accuracy)
        spread = self.solve_rows(program.roots * common[program.column])
        return NewtonStep(alone + spread, common)

    def solve_rows(self, rhs: FloatArray) -> FloatArray:
        """``K_v⁻¹ rhs_v`` of every token, shape (n,)."""
        masked = np.append(np.where(self._mask, rhs, 0.0), 0.0)
        solution = np.zeros(len(masked))
        for batch in self._batches:
            batch.solve(masked, solution)
        return np.where(self._mask, solution[:-1], 0.0)

    def _alike(self, sizes: IntArray, chosen: BoolArray) -> Iterator[IntArray]:
        """Tokens that are chosen, those of about the same size together."""
        tokens = np.flatnonzero(chosen)
        tokens = tokens[np.argsort(sizes[tokens], kind="stable")]
        sorted_sizes = sizes[tokens]
        dim = self._program.pairs.directions.shape[1]
        first = 0
        while first < len(tokens):
            longest = int(sorted_sizes[first] * ALIKE) + 1
            end = int(np.searchsorted(sorted_sizes, longest, side="right"))
            size = max(1, int(sorted_sizes[end - 1]))
            most = max(1, BLOCK // (size * max(size, dim)))
            for start in range(first, end, most):
                yield tokens[start : min(end, start + most)]
            first = end

    def _by_own(self, positions: IntArray, theta: FloatArray) -> Batch:
        """Invert the systems of some tokens by their own entries or in dimensions."""
        program = self._program
        contexts = np.append(program.column, program.num_columns)[positions]
        squared_roots = program.roots[positions[:, 0]] ** 2
        padded = program.pairs.padded_directions
        theta = theta[positions]
        num_entries = positions.shape[1]
        if num_entries <= padded.shape[1]:
            matrices = program.pairs.products_of(contexts)
            every = np.arange(num_entries)
            matrices[:, every, every] += theta
            inverses = inverses_of_products(np.asarray(np.linalg.cholesky(matrices), np.float64))
            return OwnEntries(positions, contexts, squared_roots, inverses)
        rows = padded[contexts]
        scaled = rows / theta[:, :, None]
        matrices = scaled.transpose(0, 2, 1) @ rows
        every = np.arange(padded.shape[1])
        matrices[:, every, every] += 1.0
        lower = np.linalg.cholesky(matrices)
        factors = times_inverse_transposes(scaled, lower)
        return InDimensions(positions, contexts, squared_roots, 1 / theta, factors)

    def _by_missing(self, tokens: IntArray, positions: IntArray, inverse: FloatArray) -> Batch:
        """Invert the systems of some tokens by the entries that they lack."""
        lacks = positions == len(self._mask)
        most = int(lacks.sum(axis=1).max())
        missing = np.argsort(~lacks, axis=1, kind="stable")[:, :most]
        is_padding = ~np.take_along_axis(lacks, missing, axis=1)
        among = inverse[missing[:, :, None], missing[:, None, :]]
        among[is_padding] = 0.0
        among.transpose(0, 2, 1)[is_padding] = 0.0
        every = np.arange(most)
        among[:, every, every] += is_padding
        rows = inverse[missing]
        rows[is_padding] = 0.0
        factors = np.linalg.solve(np.linalg.cholesky(among), rows)
        return MissingEntries(positions, self._program.pairs.roots[tokens] ** 2, inverse, factors)


def _add_at(total: FloatArray, contexts: IntArray, blocks: FloatArray) -> None:
    """Add blocks, shape (b, k, k), to the rows and columns of a matrix that contexts name."""
    where = contexts[:, :, None] * len(total) + contexts[:, None, :]
    np.add.at(total.ravel(), where.ravel(), blocks.ravel())
