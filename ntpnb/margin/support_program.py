"""The program of two-level orders on one-hot tokens: one entry per token and context.

In each context (group) one component of tied tokens, T24's support, wins over all other tokens. One
of the tied tokens, the anchor, stands for them in the order's pairs. ``A`` has a row per token and
a column per context, ``φ_vj(W) = w_v · h_j / ‖h_j‖`` with ``w_v`` row ``v`` of ``W``, and ``c_j``
is the common score of the tied tokens of context ``j``. Since ``φ_vj`` involves one row of ``W``
only, the rows are coupled by the ``c_j`` alone. The memory is O(V m + m²).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigvalsh

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.margin.normal_form import (
    AnyPrecision,
    KKTSolver,
    MarginProgram,
    Projection,
    positive_norms,
)
from ntpnb.margin.row_system import RowSystem
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority
from ntpnb.threads import product

MOSTLY_TIGHT = 2 / 3
"""Share of entries in a mask from which it is worthwhile to invert the system without a mask."""

INEFFICIENCY = 15
"""Operations of a gradient step in the time of one that factors or solves a row's small system."""

WELL_CONDITIONED = 1e5
"""Largest entry of an inverse of which differences may be taken: they lose up to five digits."""


class SupportProgram(MarginProgram):
    """The program by supports; the module's text says of which orders.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, of two levels, with strict pairs.
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each one stands for; one where it is ever a target. Default: ones.

    Attributes
    ----------
    directions : ndarray, shape (m, q)
        The rows ``h_j / ‖h_j‖``.
    """

    def __init__(
        self, data: NextTokenData, order: TokenPriority, multiplicity: IntArray | None = None
    ) -> None:
        group, anchor, token = order.pairs
        columns, column = np.unique(group, return_inverse=True)
        embeddings = data.group_embeddings[columns]
        norms = positive_norms(embeddings)
        domain = np.zeros((data.vocab_size, len(columns)), dtype=bool)
        domain[anchor, column] = True
        domain[token, column] = True
        super().__init__(
            domain=domain,
            entries=(token, column),  # an anchor's entry follows from its column's sum
            norms=np.broadcast_to(norms, domain.shape),
            num_ties=len(order.equal),
            num_columns=len(columns),
            roots=1.0 if multiplicity is None else np.sqrt(multiplicity)[:, None],
        )
        self._anchors = (anchor, column)
        self.directions = embeddings / norms[:, None]
        self._inverses: dict[float, FloatArray | None] = {}
        self._step_matrices: dict[npt.DTypeLike, _StepMatrices] = {}

    @cached_property
    def _gram(self) -> FloatArray:
        """Inner products of all contexts, shape (m, m)."""
        return product(self.directions, self.directions.T)

    def weights(self, dual: FloatArray) -> FloatArray:
        """``w_v = Σ_j A_vj h_j / ‖h_j‖`` for every row of ``W``, shape (V, q)."""
        return product(dual, self.directions)

    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``c_j − w_v · h_j / ‖h_j‖ − b_vj``, zero outside the domain."""
        slack = self.roots * common - product(weights, self.directions.T) - self.rhs
        return np.where(self.domain, slack, 0.0)

    def column_sums(self, dual: FloatArray) -> FloatArray:
        """Sum over the tokens of each context, by the roots, shape (m,)."""
        sums: FloatArray = dual.sum(0) if self.is_plain else (self.roots * dual).sum(0)
        return sums

    @property
    def is_plain(self) -> bool:
        """Whether every token stands for itself alone."""
        return isinstance(self.roots, float)

    def dual_of(self, pair_multipliers: FloatArray) -> FloatArray:
        """The inverse of ``pair_multipliers``: anchors' entries follow from the sums."""
        column = self.entries[1]
        totals = np.zeros(self.domain.shape)
        totals[self.entries] = -self.unit * self.norms[self.entries] * pair_multipliers
        totals[self._anchors] = -totals.sum(0)[column]
        dual: FloatArray = totals / self.roots
        return dual

    def kkt_solver(
        self,
        mask: BoolArray,
        diagonal: float | FloatArray,
        previous: KKTSolver | None = None,
    ) -> RowSystem:
        """Factor the Newton system, see :meth:`MarginProgram.kkt_solver`."""
        full_inverse = None
        # One inverse without a mask serves all rows only where they have one diagonal.
        if isinstance(diagonal, float) and mask.mean() > MOSTLY_TIGHT:
            full_inverse = self._well_conditioned_inverse(diagonal)
        same_kind = previous if isinstance(previous, RowSystem) else None
        return RowSystem(self._gram, mask, diagonal, full_inverse, same_kind, self.roots)

    def _well_conditioned_inverse(self, diagonal: float) -> FloatArray | None:
        """``(G + θ)⁻¹``, or None where differences of its entries would cancel."""
        if diagonal not in self._inverses:
            regularized = self._gram + diagonal * np.eye(self.num_columns)
            inverse = np.asarray(np.linalg.inv(regularized), dtype=np.float64)
            accurate = np.abs(inverse).max() < WELL_CONDITIONED
            self._inverses[diagonal] = inverse if accurate else None
        return self._inverses[diagonal]

    def newton_cost(self, mask: BoolArray) -> int:
        """About how many gradient steps take as long as :meth:`kkt_solver` of a mask."""
        num_contexts, dim = self.directions.shape
        entries_per_row = mask.sum(1, dtype=np.float64)
        newton = INEFFICIENCY * float((entries_per_row**3).sum())
        gradient = 2.0 * mask.size * min(num_contexts, 2 * dim)
        return min(int(newton / gradient), super().newton_cost(mask))

    def gradient_step(self, dual: AnyPrecision) -> AnyPrecision:
        """``A − (A G + b) / L``, by the cheaper of two orders of multiplication.

        The common scores are left out: they shift whole columns, which the projection undoes.
        """
        step = self._step_matrices_in(dual.dtype)
        num_contexts, dim = self.directions.shape
        if num_contexts < 2 * dim:
            return dual @ step.damping - step.shift
        return dual - dual @ step.directions @ step.scaled - step.shift

    def _step_matrices_in(self, dtype: npt.DTypeLike) -> "_StepMatrices":
        if dtype not in self._step_matrices:
            self._step_matrices[dtype] = self._double_step_matrices.astype(dtype)
        return self._step_matrices[dtype]

    @cached_property
    def _double_step_matrices(self) -> "_StepMatrices":
        last = self.num_columns - 1
        lipschitz = eigvalsh(self._gram, subset_by_index=[last, last])[0] or 1.0
        return _StepMatrices(
            damping=np.eye(self.num_columns) - self._gram / lipschitz,
            directions=self.directions,
            scaled=self.directions.T / lipschitz,
            shift=self.rhs / lipschitz,
        )

    def project(self, dual: AnyPrecision, below: BoolArray) -> Projection:
        """Nearest columns with zero sums and nonpositive ordered entries.

        The projection shifts each column by one number and cuts ordered entries off at zero. The
        number is the mean of the entries that end up below their upper bounds. It is where the
        column's sum after the cut vanishes, a concave function of the shift, on which Newton's
        method takes a few passes from any guess of those entries. Where tokens stand for several,
        entries count, and are shifted, by their roots.
        """
        for _ in range(10):  # rounding may go back and forth between two guesses
            if self.is_plain:
                shift = np.einsum("vj,vj->j", below, dual) / below.sum(0, dtype=dual.dtype)
            else:
                roots = np.asarray(self.roots, dtype=dual.dtype)
                counted = roots * below
                shift = roots * (np.einsum("vj,vj->j", counted, dual) / (roots.T @ counted))
            projected = np.minimum(dual - shift, self.upper) * self.domain
            guess = below
            below = projected < self.upper
            if (below == guess).all():
                break
        return Projection(projected, below)


@dataclass(frozen=True, eq=False)
class _StepMatrices:
    """What a gradient step multiplies by and subtracts, in single or double precision."""

    damping: AnyPrecision  # I − G / L
    directions: AnyPrecision  # U, whose Gram matrix is G
    scaled: AnyPrecision  # Uᵀ / L
    shift: AnyPrecision  # b / L

    def astype(self, dtype: npt.DTypeLike) -> "_StepMatrices":
        return _StepMatrices(
            damping=self.damping.astype(dtype),
            directions=self.directions.astype(dtype),
            scaled=self.scaled.astype(dtype),
            shift=self.shift.astype(dtype),
        )
