"""The program by pair where there are thousands of pairs of embedded tokens.

Pairs of one group share their context: what its pairs combine to is a sum of token rows first, and
a matrix only then. The only table of pairs and pairs is the factor of a Newton system, of those
pairs that a settled guess takes for tight.
"""

from functools import cached_property

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from ntpnb.array_types import BoolArray, FloatArray
from ntpnb.margin.normal_form import KKTSolver
from ntpnb.margin.pair_program import PairProgram, PairSystem
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority
from ntpnb.problem.table import row_slices

MANY = 1500
"""Number of pairs above which this program takes less time than the one with a row for each."""

RAISED = 1.02
"""Factor of the estimate of the largest eigenvalue, which is too small by 1e-3 at most."""


class ManyPairsProgram(PairProgram):
    """The program by pair of tokens that have embeddings, see the module's text.

    Parameters
    ----------
    data : NextTokenData
        With token embeddings.
    order : TokenPriority
        The order of ``data``, with strict pairs.
    """

    has_dear_factors = True

    def __init__(self, data: NextTokenData, order: TokenPriority) -> None:
        super().__init__(data, order)
        position = order.pairs.position
        _, first, self._group = np.unique(position, return_index=True, return_inverse=True)
        self._directions = self._context_rows[first]
        self._by_group = np.argsort(self._group, kind="stable")
        self._start = np.append(0, np.cumsum(np.bincount(self._group)))

    def weights(self, dual: FloatArray) -> FloatArray:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""
        shape = (len(self._directions), len(dual))
        shares = csr_array((dual[self._by_group], self._by_group, self._start), shape=shape)
        W: FloatArray = (shares @ self._token_rows).T @ self._directions
        return W

    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``−φ_k(W) − b_k``; there are no common scores."""
        along_tokens = (self._directions @ weights.T)[self._group]
        slack: FloatArray = -np.einsum("kp,kp->k", self._token_rows, along_tokens) - self.rhs
        return slack

    def kkt_solver(
        self,
        mask: BoolArray,
        diagonal: float | FloatArray,
        previous: KKTSolver | None = None,
    ) -> PairSystem:
        """Factor the Newton system, see :meth:`MarginProgram.kkt_solver`, in the matrix's place."""
        tight = mask.nonzero()[0]
        token_rows = self._token_rows[tight]
        context_rows = self._context_rows[tight]
        matrix = token_rows @ token_rows.T
        for rows in row_slices(matrix.shape):
            matrix[rows] *= context_rows[rows] @ context_rows.T
        matrix.flat[:: len(matrix) + 1] += np.broadcast_to(diagonal, mask.shape)[tight]
        # LAPACK reads the transpose of a row-major matrix without a copy; this one is symmetric.
        factor, info = lapack.dpotrf(matrix.T, overwrite_a=True, clean=False)
        if info:
            raise np.linalg.LinAlgError("the system of the tight pairs has no factor")
        return PairSystem(len(mask), tight, factor)

    @cached_property
    def _lipschitz(self) -> float:
        """Estimate of the largest eigenvalue of all ``⟨φ_k, φ_l⟩``.

        It is far below the bound by the contexts' part, where thousands of pairs share some
        hundreds of contexts. If it were too small, FISTA would not converge; nothing else asks.
        """
        size = len(self.rhs)

        def times(dual: FloatArray) -> FloatArray:
            return -self.margins(self.weights(dual), self.zero_common())  # φ(W)

        operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
        [largest] = eigsh(operator, k=1, v0=np.ones(size), tol=1e-3, return_eigenvectors=False)
        return RAISED * float(largest) or 1.0
