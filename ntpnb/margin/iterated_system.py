"""The Newton system of a guess by conjugate gradients, all tokens at once and without a factor.

Where there are no more contexts than dimensions, contexts in general position are linearly
independent, and the system of :mod:`ntpnb.margin.row_system` is well-conditioned. Some tens of
products of the Gram matrix ``G`` with a table of contexts and tokens then solve it, where factors
would take a matrix for each token.

With one number ``θ`` on the diagonal the system says that ``D``, zero outside the mask, minimises

    ½⟨D, G D⟩ + ½ θ ‖D‖² − ⟨r, D⟩   subject to   Σ_v a_v D_jv = q_j,

and that ``−e`` are the multipliers of these sums. So it is solved from a ``D`` that has these sums,
along directions whose own sums are zero.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ntpnb.basics.array_types import BoolArray, FloatArray
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import PROX
from ntpnb.margin.normal_form import KKTSolver, NewtonStep

if TYPE_CHECKING:
    from ntpnb.margin.support_program import SupportProgram

MOST_ITERATIONS = 150
"""Steps for one system. Factors solve systems that ask for more, of contexts that nearly agree."""


class IteratedSystem:
    """The Newton system of a guess, called as ``system(r, q, accuracy)``.

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
        """Solve for ``r = residual`` and ``q = imbalance``; see :class:`GuessSolver`."""
        matrix = self._program.pairs.system_of_all
        solution = self._roots * (imbalance / self._square_sums)[:, None]
        missing = self._table(residual[self._mask])
        if imbalance.any():
            missing -= self._inside * product(matrix, solution)
        common = -self._common_part(missing)
        missing += self._roots * common[:, None]
        direction = missing.copy()
        square = float(np.vdot(missing, missing))
        for _ in range(MOST_ITERATIONS):
            if square <= accuracy**2:
                step = np.zeros(len(self._mask))
                step[self._mask] = solution.ravel()[self._keys]
                return NewtonStep(step, common)
            change = product(matrix, direction)
            share = square / float(np.vdot(direction, change))
            common_change = self._common_part(change)
            change *= self._inside
            change -= self._roots * common_change[:, None]
            solution += share * direction
            common += share * common_change
            missing -= share * change
            before, square = square, float(np.vdot(missing, missing))
            direction *= square / before
            direction += missing
        return self._by_factors(residual, imbalance)

    @cached_property
    def _by_factors(self) -> KKTSolver:
        """The solver of the same system by factors."""
        return self._program.kkt_solver(self._mask, PROX)

    def _table(self, values: FloatArray) -> FloatArray:
        """The table of values of the entries in the mask, with zeros elsewhere."""
        table = np.zeros(self._program.pairs.shape)
        table.ravel()[self._keys] = values
        return table

    def _common_part(self, table: FloatArray) -> FloatArray:
        """The number of each context whose multiple of the roots comes nearest to its entries."""
        common: FloatArray = np.vecdot(table, self._roots) / self._square_sums
        return common
