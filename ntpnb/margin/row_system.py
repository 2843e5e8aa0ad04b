"""The Newton system of a program by supports: by factors, token by token, or by iterations.

It asks for ``D``, zero outside a mask, and ``e`` with ``(D G)_vj + θ_vj D_vj − a_v e_j = r_vj`` on
the mask and ``Σ_v a_v D_vj = q_j``, where ``G = U Uᵀ`` is the Gram matrix of the contexts and
``a_v`` the root of token ``v``. Let ``J`` be the contexts ``j`` with ``(v, j)`` in the mask,
``U_J`` their rows and ``K_v = U_J U_Jᵀ + diag(θ_vJ)``. Given ``e``, the tokens decouple:

    D_v = K_v⁻¹ (r_v + a_v e)_J    and so    (Σ_v a_v² K_v⁻¹) e = q − Σ_v a_v K_v⁻¹ r_v,

where ``K_v⁻¹`` stands for a matrix of all contexts with zeros outside ``J``. The matrix on the left
is definite, since tied entries are always in the mask and every context has some.

An inverse costs what the smaller of two matrices asks for: that of a token's own entries, or one in
``d × d`` where it has more entries than dimensions (Woodbury's formula). Tokens with about as many
entries are solved together, padded with entries that are always zero.

Where there are no more contexts than dimensions, contexts in general position are linearly
independent, and the system is well-conditioned. Some tens of products of ``G`` with a table of
contexts and tokens then solve it for a guess of the active set, all tokens at once, where tokens
have so many entries that their factors would be more work (:class:`IteratedSystem`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from ntpnb.basics.linear_systems import (
    conjugate_gradient_steps,
    diagonals,
    finite,
    inverses_of_products,
    upper_factor,
    woodbury_factors,
)
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import PROX, VANISHES
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray
from ntpnb.margin.normal_form import KKTSolver, NewtonStep
from ntpnb.problem.table import BLOCK

if TYPE_CHECKING:
    from ntpnb.margin.support_program import SupportProgram


ALIKE = 1.1
"""Tokens whose numbers of entries differ by less than this factor are solved together."""

MOST_ITERATIONS = 1000
"""Conjugate gradient steps for the common scores, where contexts are too many for a factor."""

MOST_PRODUCTS = 150
"""Of ``G`` with a table. Factors solve systems that ask for more, of contexts that nearly agree."""


@dataclass(frozen=True, eq=False)
class Inverses(ABC):
    """The inverses ``K_v⁻¹`` of ``b`` tokens with about as many entries, at most ``k``.

    Attributes
    ----------
    positions, contexts : ndarray of int, shape (b, k)
        The program's entries of each token, and their contexts. Padding has the number of all
        entries for its position, and the number of all contexts.
    squared_roots : ndarray, shape (b,)
        ``a_v²``.
    """

    positions: IntArray
    contexts: IntArray
    squared_roots: FloatArray

    @abstractmethod
    def matrices(self) -> FloatArray:
        """The inverses themselves, shape (b, k, k)."""

    @abstractmethod
    def diagonals(self) -> FloatArray:
        """The inverses' diagonals, shape (b, k)."""

    @abstractmethod
    def times(self, vectors: FloatArray) -> FloatArray:
        """The inverses times one vector each, shape (b, k)."""

    def add_matrices(self, total: FloatArray) -> None:
        """Add ``Σ a_v² K_v⁻¹`` to a matrix of all contexts, and one row and column for padding."""
        where = self.contexts[:, :, None] * len(total) + self.contexts[:, None, :]
        weighted = self.squared_roots[:, None, None] * self.matrices()
        np.add.at(total.ravel(), where.ravel(), weighted.ravel())

    def add_diagonals(self, total: FloatArray) -> None:
        """Add the diagonal of the same sum to a vector of all contexts, and one for padding."""
        np.add.at(total, self.contexts, self.squared_roots[:, None] * self.diagonals())

    def solve(self, rhs: FloatArray, solution: FloatArray) -> None:
        """Write ``K_v⁻¹ rhs`` to the tokens' entries of ``solution``; the last is for padding."""
        solution[self.positions] = self.times(rhs[self.positions])


@dataclass(frozen=True, eq=False)
class ByEntries(Inverses):
    """Inverses of matrices of a token's own entries, held as they are."""

    inverses: FloatArray  # (b, k, k)

    def matrices(self) -> FloatArray:
        """The inverses themselves."""
        return self.inverses

    def diagonals(self) -> FloatArray:
        """The inverses' diagonals."""
        return diagonals(self.inverses)

    def times(self, vectors: FloatArray) -> FloatArray:
        """The inverses times one vector each."""
        products: FloatArray = (self.inverses @ vectors[:, :, None])[:, :, 0]
        return products


@dataclass(frozen=True, eq=False)
class InDimensions(Inverses):
    """Inverses ``Θ⁻¹ − F Fᵀ`` by Woodbury's formula: see ``woodbury_factors``."""

    diagonal: FloatArray  # Θ⁻¹, (b, k)
    factors: FloatArray  # F, (b, k, d)

    def matrices(self) -> FloatArray:
        """The inverses themselves."""
        matrices = -product(self.factors, self.factors.transpose(0, 2, 1))
        diagonals(matrices)[:] += self.diagonal
        return matrices

    def diagonals(self) -> FloatArray:
        """The inverses' diagonals."""
        diagonals: FloatArray = self.diagonal - (self.factors**2).sum(axis=2)
        return diagonals

    def times(self, vectors: FloatArray) -> FloatArray:
        """The inverses times one vector each."""
        inner = vectors[:, None] @ self.factors
        low_rank = (self.factors @ inner.transpose(0, 2, 1))[:, :, 0]
        products: FloatArray = self.diagonal * vectors - low_rank
        return products


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
        self._batches: list[Inverses] = []
        theta = np.append(np.broadcast_to(diagonal, mask.shape), 1.0)
        entries = np.flatnonzero(mask)
        counts = np.bincount(program.token[entries], minlength=program.pairs.vocab_size)
        by_token = entries[np.argsort(program.token[entries], kind="stable")]
        starts = np.cumsum(counts) - counts
        for tokens in self._alike(counts):
            within = np.arange(counts[tokens].max())
            where = np.minimum(starts[tokens][:, None] + within, len(by_token) - 1)
            positions = by_token[where]
            positions[within >= counts[tokens][:, None]] = len(mask)
            self._batches.append(self._inverses(positions, theta))

        self._solve_common = self._factored() if program.pairs.fits else self._iterated()

    def _factored(self) -> Callable[[FloatArray, float], FloatArray]:
        """Solver of the system of the common scores by its factor."""
        num_contexts = self._program.num_columns
        total = np.zeros((num_contexts + 1, num_contexts + 1))
        for batch in self._batches:
            batch.add_matrices(total)
        factor = upper_factor(np.ascontiguousarray(total[:-1, :-1]))
        return lambda rhs, accuracy: lapack.dpotrs(factor, rhs)[0]

    def _iterated(self) -> Callable[[FloatArray, float], FloatArray]:
        """Solver of the system of the common scores by conjugate gradients, without a matrix."""
        program = self._program
        diagonal = np.zeros(program.num_columns + 1)
        for batch in self._batches:
            batch.add_diagonals(diagonal)

        def times(common: FloatArray) -> FloatArray:
            return program.column_sums(self.solve_rows(program.spread(common)))

        def solve(rhs: FloatArray, accuracy: float) -> FloatArray:
            enough = max(VANISHES * float(np.linalg.norm(rhs)), accuracy)
            steps = conjugate_gradient_steps(times, rhs, lambda error: error / diagonal[:-1])
            for found in islice(steps, MOST_ITERATIONS):
                if np.linalg.norm(found.error) <= enough:
                    break
            return found.point  # what steps are left to do, the next residual tells

        return solve

    def __call__(
        self, residual: FloatArray, imbalance: FloatArray, accuracy: float = 0.0
    ) -> NewtonStep:
        """Solve for ``r = residual`` and ``q = imbalance``, whose norm may be missed by so much."""
        program = self._program
        alone = self.solve_rows(residual)
        missing = imbalance - program.column_sums(alone)
        common = self._solve_common(missing, accuracy)
        spread = self.solve_rows(program.spread(common))
        return NewtonStep(alone + spread, common)

    def solve_rows(self, rhs: FloatArray) -> FloatArray:
        """``K_v⁻¹ rhs_v`` of every token, shape (n,)."""
        masked = np.append(np.where(self._mask, rhs, 0.0), 0.0)
        solution = np.zeros(len(masked))
        for batch in self._batches:
            batch.solve(masked, solution)
        return np.where(self._mask, solution[:-1], 0.0)

    def _alike(self, sizes: IntArray) -> Iterator[IntArray]:
        """Tokens that have entries, those with about as many together."""
        tokens = np.flatnonzero(sizes)
        tokens = tokens[np.argsort(sizes[tokens], kind="stable")]
        sorted_sizes = sizes[tokens]
        dim = self._program.pairs.directions.shape[1]
        first = 0
        while first < len(tokens):
            longest = int(sorted_sizes[first] * ALIKE) + 1
            end = int(np.searchsorted(sorted_sizes, longest, side="right"))
            size = int(sorted_sizes[end - 1])
            most = max(1, BLOCK // (size * max(size, dim)))
            for start in range(first, end, most):
                yield tokens[start : min(end, start + most)]
            first = end

    def _inverses(self, positions: IntArray, theta: FloatArray) -> Inverses:
        """Invert the systems of some tokens, by their entries or in dimensions."""
        program = self._program
        contexts = np.append(program.column, program.num_columns)[positions]
        squared_roots = program.roots[positions[:, 0]] ** 2
        padded = program.pairs.padded_directions
        theta = theta[positions]
        num_entries = positions.shape[1]
        if num_entries > padded.shape[1]:
            factors = woodbury_factors(padded[contexts], theta)
            return InDimensions(positions, contexts, squared_roots, 1 / theta, factors)
        matrices = program.pairs.products_of(contexts)
        diagonals(matrices)[:] += theta
        inverses = inverses_of_products(finite(np.linalg.cholesky(matrices)))
        return ByEntries(positions, contexts, squared_roots, inverses)


class IteratedSystem:
    """The Newton system of a guess by conjugate gradients, called as ``system(r, q, accuracy)``.

    With one number ``θ`` on the diagonal the system says that ``D``, zero outside the mask,
    minimises

        ½⟨D, G D⟩ + ½ θ ‖D‖² − ⟨r, D⟩   subject to   Σ_v a_v D_jv = q_j,

    and that ``−e`` are the multipliers of these sums. So it is solved from a ``D`` that has these
    sums, along directions whose own sums are zero.

    Tables have a row for each context and a column for each token, of all that there are.

    Parameters
    ----------
    program : SupportProgram
    mask : ndarray of bool, shape (n,)
        The guess.
    """

    def __init__(self, program: "SupportProgram", mask: BoolArray) -> None:
        self._program = program
        self._mask = mask
        self._keys = program.keys[mask]
        self._inside = self._table(np.ones(len(self._keys)))
        self._roots = program.pairs.roots * self._inside
        self._square_sums = np.vecdot(self._roots, self._roots)

    def __call__(self, residual: FloatArray, imbalance: FloatArray, accuracy: float) -> NewtonStep:
        """Solve for ``r = residual`` and ``q = imbalance``; see :data:`GuessSolver`."""
        rhs = self._table(residual[self._mask])
        start = self._roots * (imbalance / self._square_sums)[:, None]
        missing = rhs - self._times_system(start)
        target = self._without_common(missing)
        steps = conjugate_gradient_steps(
            lambda table: self._without_common(self._times_system(table)), target
        )
        for found in islice(steps, MOST_PRODUCTS):
            if np.linalg.norm(found.error) <= accuracy:
                table = start + found.point
                step = np.zeros(len(self._mask))
                step[self._mask] = table.ravel()[self._keys]
                return NewtonStep(step, self._common_part(self._times_system(table) - rhs))
        return self._by_factors(residual, imbalance)

    @cached_property
    def _by_factors(self) -> KKTSolver:
        """The solver of the same system by factors."""
        return self._program.kkt_solver(self._mask, PROX)

    def _times_system(self, table: FloatArray) -> FloatArray:
        """``(G + θ)`` times a table, in the mask."""
        gram = self._program.pairs.padded_gram[:-1, :-1]
        return self._inside * (product(gram, table) + PROX * table)

    def _table(self, values: FloatArray) -> FloatArray:
        """The table of values of the entries in the mask, with zeros elsewhere."""
        table = np.zeros(self._program.pairs.shape)
        table.ravel()[self._keys] = values
        return table

    def _common_part(self, table: FloatArray) -> FloatArray:
        """The number of each context whose multiple of the roots comes nearest to its entries."""
        common: FloatArray = np.vecdot(table, self._roots) / self._square_sums
        return common

    def _without_common(self, table: FloatArray) -> FloatArray:
        """A table less such multiples of the roots, so that its sums by the roots are zero."""
        without: FloatArray = table - self._roots * self._common_part(table)[:, None]
        return without
