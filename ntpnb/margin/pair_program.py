"""The program of any order on any token embeddings: one entry per pair.

``φ_k(W) = −(t_i − t_j) · W h_g / (‖t_i − t_j‖ ‖h_g‖)`` for the pair ``k = (g, i, j)``. There are no
columns and no common scores. A Newton system takes a dense matrix of the pairs in its mask.
"""

from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.factorization import upper_factor
from ntpnb.margin.normal_form import (
    AnyPrecision,
    KKTSolver,
    MarginProgram,
    NewtonStep,
    Projection,
    positive_norms,
)
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority


class PairProgram(MarginProgram):
    """The program by pair.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with strict pairs.
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each one-hot token stands for. Its embedding then has the length ``1/√n``:
        its row of ``W`` is ``√n`` times what each of them has. Default: ones.
    """

    def __init__(
        self, data: NextTokenData, order: TokenPriority, multiplicity: IntArray | None = None
    ) -> None:
        group, winner, loser = order.pairs
        num_pairs = len(group)
        self._one_hot = data.token_embeddings is None
        if data.token_embeddings is None:
            lengths = np.ones(data.vocab_size)
            if multiplicity is not None:
                lengths = 1 / np.sqrt(multiplicity)
            tokens = sparse.diags_array(lengths).tocsr()
            differences = tokens[loser] - tokens[winner]
            token_norms = np.sqrt(lengths[winner] ** 2 + lengths[loser] ** 2)
        else:
            differences = data.token_embeddings[loser] - data.token_embeddings[winner]
            token_norms = positive_norms(differences)
        embeddings = data.group_embeddings[group]
        context_norms = positive_norms(embeddings)
        super().__init__(
            domain=np.full(num_pairs, True),
            entries=(np.arange(num_pairs),),
            norms=token_norms * context_norms,
            num_ties=len(order.equal),
            num_columns=0,
        )
        # φ_k is the outer product of a row of each; the token rows are sparse where one-hot.
        self._token_rows = sparse.diags_array(1 / token_norms) @ differences
        self._context_rows = embeddings / context_norms[:, None]

    def rows(self) -> FloatArray:
        """Every ``φ_k`` as a flat row, shape (n, p·q); only for small problems."""
        token_rows = sparse.csr_array(self._token_rows).toarray()
        outer = token_rows[:, :, None] * self._context_rows[:, None]
        rows: FloatArray = outer.reshape(len(outer), -1)
        return rows

    def weights(self, dual: FloatArray) -> FloatArray:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""
        W: FloatArray = self._token_rows.T @ (dual[:, None] * self._context_rows)
        return W

    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``−φ_k(W) − b_k``; there are no common scores."""
        scores = ((self._token_rows @ weights) * self._context_rows).sum(1)
        slack: FloatArray = -scores - self.rhs
        return slack

    def column_sums(self, dual: FloatArray) -> FloatArray:
        """Nothing: there are no columns."""
        return np.zeros(0)

    def dual_of(self, pair_multipliers: FloatArray) -> FloatArray:
        """The inverse of ``pair_multipliers``."""
        return -self.unit * self.norms * pair_multipliers

    def kkt_solver(
        self,
        mask: BoolArray,
        diagonal: float | FloatArray,
        previous: KKTSolver | None = None,
    ) -> "PairSystem":
        """Factor the Newton system, see :meth:`MarginProgram.kkt_solver`; always anew."""
        tight = mask.nonzero()[0]
        matrix = self._token_rows[tight] @ self._token_rows[tight].T
        if self._one_hot:
            matrix = matrix.toarray()
        matrix *= self._context_rows[tight] @ self._context_rows[tight].T
        factor = upper_factor(matrix, np.broadcast_to(diagonal, mask.shape)[tight])
        return PairSystem(len(mask), tight, factor)

    def gradient_step(self, dual: AnyPrecision) -> AnyPrecision:
        """``A − ∇/L``, in double precision."""
        double = np.asarray(dual, dtype=np.float64)
        descent = self.slack(self.weights(double), self.zero_common())
        return double + descent / self._lipschitz

    @cached_property
    def _lipschitz(self) -> float:
        """Bound of the largest eigenvalue of all ``⟨φ_k, φ_l⟩``: that of the contexts' part.

        The matrix is the entrywise product of those of the token rows and of the context rows, and
        token rows are no longer than one (Schur).
        """
        return float(np.linalg.norm(self._context_rows.T @ self._context_rows, 2)) or 1.0

    def project(self, dual: AnyPrecision, below: BoolArray) -> Projection:
        """Cut ordered entries off at zero; no guess is needed."""
        return Projection(np.minimum(dual, self.upper), dual < self.upper)


class PairSystem:
    """A factored Newton system of the pairs in a mask, called as ``system(r, q)``."""

    def __init__(self, num_pairs: int, tight: IntArray, factor: FloatArray) -> None:
        self._num_pairs = num_pairs
        self._tight = tight
        self._factor = factor

    def __call__(self, residual: FloatArray, imbalance: FloatArray) -> NewtonStep:
        """Solve for ``r = residual``; ``q`` is empty, as the common scores are."""
        step = np.zeros(self._num_pairs)
        step[self._tight] = lapack.dpotrs(self._factor, residual[self._tight])[0]
        return NewtonStep(step, imbalance)
