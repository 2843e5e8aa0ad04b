"""The Newton system of a penalised max-margin problem by supports, token by token.

It minimises, over ``W`` and the common scores ``c``,

    τ/2 ‖W − W₀‖² + ½ Σ_(v,j)∈T (ρ_vj + (w_v − w₀_v) · u_j − a_v c_j)²

for a set ``T`` of entries, those of the constraints that are penalised, and the tokens' roots
``a_v``, which are one where a token stands for itself alone. For token ``v`` let ``J``
be the contexts with ``(v, j)`` in ``T``, ``U_J`` their rows and ``M_v = (U_J U_Jᵀ + τ)⁻¹``. Given
``c`` the rows of ``W`` decouple, and what is left is a system in ``c`` alone:

    w_v = w₀_v − U_Jᵀ M_v (ρ_v − a_v c)_J    and so    (Σ_v a_v² M_v) c = Σ_v a_v M_v ρ_v,

where ``M_v`` stands for a matrix of all contexts with zeros outside ``J``. Where ``J`` has more
contexts than dimensions, ``M_v`` comes from the smaller matrix ``K_v = U_Jᵀ U_J + τ`` (Woodbury):
``M_v = (1 − U_J K_v⁻¹ U_Jᵀ) / τ`` and ``U_Jᵀ M_v = K_v⁻¹ U_Jᵀ``, which does not cancel.

Unlike :mod:`ntpnb.margin.row_system`, which has a diagonal per entry and works in ``m × m``, this
costs what the smaller of ``|J|`` and ``d`` asks for. Both sums above are formed where contexts are
few; else the system is solved by conjugate gradients, which need products with ``U`` only.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.factorization import inverses_of_products, upper_factor
from ntpnb.threads import product

MOST_CONTEXTS = 8192
"""Number of contexts up to which the matrix of the common scores may be formed (512 MiB)."""

ITERATIONS = 60
"""Conjugate gradient steps that one solve is expected to take where methods are compared."""

ACCURACY = 1e-13
"""Relative residual of conjugate gradients; their result is as good as a factorisation's."""

MOST_STEPS = 2000
"""Conjugate gradient steps after which the system is given up as too ill-conditioned."""


@dataclass(frozen=True, eq=False)
class PenaltyMinimum:
    """Where the quadratic is smallest: the change of ``W``, and ``c`` itself."""

    weights_change: FloatArray
    common: FloatArray


class PenaltySystem(Protocol):
    """The system for one set ``T`` and one ``τ``."""

    def solve(self, rho: FloatArray) -> PenaltyMinimum:
        """Minimise the quadratic for ``ρ``, shape (V, m), which is read on ``T`` only."""
        ...

    def weights_change(self, rest: FloatArray) -> FloatArray:
        """Minimise over ``W`` alone for ``ρ − a c``, shape (V, m); return ``W − W₀``."""
        ...


def penalty_system(
    directions: FloatArray, active: BoolArray, tau: float, roots: float | FloatArray = 1.0
) -> PenaltySystem:
    """Factor the system for the entries ``active``, every context of which has at least one.

    Parameters
    ----------
    directions : ndarray, shape (m, d)
        ``U``, whose rows have length one or zero.
    active : ndarray of bool, shape (V, m)
        ``T``.
    tau : float
        ``τ > 0``.
    roots : float or ndarray of shape (V, 1), optional
        ``a``. Default: one.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not definite in floating point.
    """
    num_contexts, dim = directions.shape
    if num_contexts <= MOST_CONTEXTS:
        entries = active.sum(1, dtype=np.float64)
        factored = (entries**2 * np.minimum(entries, dim)).sum() + num_contexts**3 / 3
        iterative = ITERATIONS * 4.0 * active.size * dim
        if factored <= iterative:
            return FactoredSystem(directions, active, tau, roots)
    return IterativeSystem(directions, active, tau, roots)


@dataclass(frozen=True, eq=False)
class ShortRow:
    """A token with no more entries than dimensions: ``M_v`` itself."""

    entries: IntArray
    rows: FloatArray  # U_J
    inverse: FloatArray  # M_v

    def product(self, vector: FloatArray) -> FloatArray:
        """``M_v x``."""
        product: FloatArray = self.inverse @ vector
        return product

    def weights_change(self, rest: FloatArray) -> FloatArray:
        """``−U_Jᵀ M_v x``."""
        change: FloatArray = -(self.inverse @ rest) @ self.rows
        return change


@dataclass(frozen=True, eq=False)
class LongRow:
    """A token with more entries than dimensions: the factor of ``K_v``."""

    entries: IntArray
    rows: FloatArray  # U_J
    factor: FloatArray  # K_v = Rᵀ R
    tau: float

    @property
    def inverse(self) -> FloatArray:
        """``M_v = (1 − Bᵀ B) / τ`` with ``B = R⁻ᵀ U_Jᵀ``; it is not kept, since ``J`` is large."""
        half = lapack.dtrtrs(self.factor, self.rows.T, trans=1)[0]
        matrix: FloatArray = half.T @ half
        np.negative(matrix, out=matrix)
        matrix.flat[:: len(matrix) + 1] += 1.0
        matrix /= self.tau
        return matrix

    def product(self, vector: FloatArray) -> FloatArray:
        """``M_v x``."""
        product: FloatArray = (vector + self.rows @ self.weights_change(vector)) / self.tau
        return product

    def weights_change(self, rest: FloatArray) -> FloatArray:
        """``−U_Jᵀ M_v x = −K_v⁻¹ U_Jᵀ x``."""
        change: FloatArray = -lapack.dpotrs(self.factor, self.rows.T @ rest)[0]
        return change


class FactoredSystem:
    """The system with ``Σ_v M_v`` as one matrix of all contexts, see :func:`penalty_system`."""

    def __init__(
        self,
        directions: FloatArray,
        active: BoolArray,
        tau: float,
        roots: float | FloatArray = 1.0,
    ) -> None:
        self._num_contexts = len(directions)
        self._roots = np.broadcast_to(roots, (len(active), 1))
        self._tokens = [_token_row(directions, mask, tau) for mask in active]

    @cached_property
    def _sum_of_inverses(self) -> "_ScaledFactor":
        total = np.zeros((self._num_contexts, self._num_contexts))
        for root, token in zip(self._roots, self._tokens, strict=True):
            total[np.ix_(token.entries, token.entries)] += root**2 * token.inverse
        # Contexts differ in how many entries they have: scaled to a unit diagonal.
        scale = 1 / np.sqrt(total.diagonal())
        total *= scale
        total *= scale[:, None]
        return _ScaledFactor(scale, upper_factor(total))

    def solve(self, rho: FloatArray) -> PenaltyMinimum:
        """Minimise over ``W`` and ``c``, see :class:`PenaltySystem`."""
        rhs = np.zeros(self._num_contexts)
        for row, token in enumerate(self._tokens):
            rhs[token.entries] += self._roots[row] * token.product(rho[row, token.entries])
        common = self._sum_of_inverses.solve(rhs)
        return PenaltyMinimum(self.weights_change(rho - self._roots * common), common)

    def weights_change(self, rest: FloatArray) -> FloatArray:
        """Minimise over ``W`` alone, see :class:`PenaltySystem`."""
        rows = enumerate(self._tokens)
        return np.array([token.weights_change(rest[row, token.entries]) for row, token in rows])


@dataclass(frozen=True, eq=False)
class _ScaledFactor:
    """A matrix ``A`` as ``D⁻¹ Rᵀ R D⁻¹`` with diagonal ``D``."""

    scale: FloatArray
    factor: FloatArray

    def solve(self, rhs: FloatArray) -> FloatArray:
        solution: FloatArray = self.scale * lapack.dpotrs(self.factor, self.scale * rhs)[0]
        return solution


def _token_row(directions: FloatArray, mask: BoolArray, tau: float) -> ShortRow | LongRow:
    entries = mask.nonzero()[0]
    rows = directions[entries]
    dim = directions.shape[1]
    if len(entries) > dim:
        return LongRow(entries, rows, upper_factor(product(rows.T, rows), tau), tau)
    if len(entries) == 0:
        return ShortRow(entries, rows, np.zeros((0, 0)))
    lower = upper_factor(product(rows, rows.T), tau).T
    return ShortRow(entries, rows, inverses_of_products(lower[None])[0])


class IterativeSystem:
    """The system solved by preconditioned conjugate gradients, see :func:`penalty_system`."""

    def __init__(
        self,
        directions: FloatArray,
        active: BoolArray,
        tau: float,
        roots: float | FloatArray = 1.0,
    ) -> None:
        self._directions = directions
        self._roots = np.broadcast_to(roots, (len(active), 1))
        self._mask = active.astype(np.float64)
        self._tau = tau
        dim = directions.shape[1]
        inverses = []
        leverage = np.zeros(len(directions))
        for root, mask in zip(self._roots, active, strict=True):
            rows = directions[mask]
            inverse = np.linalg.inv(rows.T @ rows + tau * np.eye(dim))
            # trace(U_J K⁻¹ U_Jᵀ) = d − τ trace(K⁻¹), here shared evenly among the entries
            share = (dim - tau * np.trace(inverse)) / max(1, len(rows))
            leverage[mask] += root**2 * share
            inverses.append(inverse)
        self._inverses = np.array(inverses)  # K_v⁻¹
        self._counts = (self._roots**2 * self._mask).sum(0)
        self._preconditioner = self._tau / np.maximum(self._counts - leverage, tau)

    def solve(self, rho: FloatArray) -> PenaltyMinimum:
        """Minimise over ``W`` and ``c``, see :class:`PenaltySystem`."""
        num_contexts = len(self._directions)
        rhs = self._sum_of_products(self._mask * rho)
        matrix = LinearOperator(
            (num_contexts, num_contexts),
            matvec=lambda z: self._sum_of_products(self._mask * (self._roots * z.ravel())),
            dtype=np.float64,
        )
        precondition = LinearOperator(
            (num_contexts, num_contexts),
            matvec=lambda z: self._preconditioner * z.ravel(),
            dtype=np.float64,
        )
        common, not_converged = cg(matrix, rhs, rtol=ACCURACY, maxiter=MOST_STEPS, M=precondition)
        if not_converged:
            raise np.linalg.LinAlgError("conjugate gradients did not converge")
        return PenaltyMinimum(self.weights_change(rho - self._roots * common), common)

    def weights_change(self, rest: FloatArray) -> FloatArray:
        """Minimise over ``W`` alone, see :class:`PenaltySystem`."""
        return -self._solve_tokens(self._mask * rest)

    def _solve_tokens(self, entries: FloatArray) -> FloatArray:
        """``K_v⁻¹ U_Jᵀ x_v`` of every token, shape (V, d)."""
        pulled = entries @ self._directions
        solved: FloatArray = np.matmul(self._inverses, pulled[:, :, None])[:, :, 0]
        return solved

    def _sum_of_products(self, entries: FloatArray) -> FloatArray:
        """``Σ_v a_v M_v x_v``, shape (m,)."""
        solved = self._solve_tokens(entries)
        explained = self._mask * (solved @ self._directions.T)
        total: FloatArray = (self._roots * (entries - explained)).sum(0) / self._tau
        return total
