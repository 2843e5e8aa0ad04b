"""The max-margin problem in normal form, which is all that a method may ask of a dataset.

The data ask for the smallest ``W`` with ``(t_i − t_j) · W h_g = 0`` on tied pairs ``(g, i, j)`` and
``≥ 1`` on ordered ones. In normal form each pair is an entry ``k`` of an array (ties may have one
entry more, see ``support_program``), and

    minimise ½‖W‖²  subject to  φ_k(W) = c_k        on tied entries,
                                φ_k(W) ≤ c_k − b_k  on ordered entries,

where every ``φ_k`` is linear of norm one and ``max b = 1``, so that embeddings of any length are
treated alike. The ``c_k`` are unknown too: the common score of the tied tokens of a column. A
program by pair has no columns, and then ``c = 0``.

Let ``−A`` be the Lagrange multipliers of the constraints. The Lagrangian is stationary in ``W`` if
``W = Σ_k A_k φ_k``, and in ``c`` if every column of ``A`` sums to zero. So the dual problem is

    minimise ½‖Σ_k A_k φ_k‖² + Σ_k b_k A_k  subject to  A_k ≤ 0 on ordered entries,
                                                        columns of A sum to zero.

In the code ``A`` is called ``dual``, ``c`` ``common``, ``b`` ``rhs``, and ``W`` ``weights``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ntpnb.array_types import BoolArray, FloatArray, IntArray

PROX = 1e-10
"""Weight of the proximal term that makes every system definite; the methods refine it away."""

AnyPrecision = npt.NDArray[np.floating[Any]]
"""A dual in single or double precision: FISTA begins in single precision."""


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """The solution of a Newton system: what to add to the dual and to the common scores."""

    step: FloatArray
    common: FloatArray


class KKTSolver(Protocol):
    """A factored Newton system, see :meth:`MarginProgram.kkt_solver`."""

    def __call__(self, residual: FloatArray, imbalance: FloatArray) -> NewtonStep:
        """Solve for one right-hand side."""
        ...


@dataclass(frozen=True, eq=False)
class Projection:
    """A dual that meets its constraints, and where it stays below its upper bound."""

    dual: AnyPrecision
    below: BoolArray


class MarginProgram(ABC):
    """A max-margin problem in normal form.

    Duals, masks and the attributes below share one shape: ``(V, m)`` by supports, ``(n,)`` by pair.

    Parameters
    ----------
    domain : ndarray of bool
        The entries that carry a constraint; duals are zero elsewhere.
    entries : tuple of integer ndarrays
        ``dual[entries]`` are the entries of the order's pairs, the equal ones first.
    norms : ndarray
        Norm of each ``φ_k`` before it was scaled to one.
    num_ties : int
        Number of equal pairs.
    num_columns : int
        Number of common scores; zero by pair.

    Attributes
    ----------
    domain, entries, norms, num_columns
        The parameters.
    ordered, tied : ndarray of bool
        The entries of strict pairs, and the rest of the domain.
    unit : float
        A ``W`` of the program is one of the data's times ``unit``.
    rhs : ndarray
        ``b``: positive on ordered entries, at most one, and zero elsewhere.
    upper : ndarray of float32
        Upper bounds of the dual: zero, and ``inf`` on tied entries. Single precision holds them
        exactly and does not turn single-precision duals into double ones.
    """

    def __init__(
        self,
        domain: BoolArray,
        entries: tuple[IntArray, ...],
        norms: FloatArray,
        num_ties: int,
        num_columns: int,
    ) -> None:
        self.domain = domain
        self.entries = entries
        self.norms = norms
        self.num_columns = num_columns
        self.ordered = np.zeros(domain.shape, dtype=bool)
        self.ordered[tuple(index[num_ties:] for index in entries)] = True
        self.tied = domain & ~self.ordered
        self.unit = float(norms[self.ordered].min())
        self.rhs = np.where(self.ordered, self.unit / norms, 0.0)
        self.upper = np.where(self.tied, np.inf, 0.0).astype(np.float32)

    @abstractmethod
    def weights(self, dual: FloatArray) -> FloatArray:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""

    @abstractmethod
    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``c_k − φ_k(W) − b_k``, zero outside the domain: to be zero on ties, else nonnegative."""

    @abstractmethod
    def column_sums(self, dual: FloatArray) -> FloatArray:
        """Sum of each column of a dual, shape (num_columns,); to be zero."""

    @abstractmethod
    def kkt_solver(
        self,
        mask: BoolArray,
        diagonal: float | FloatArray,
        previous: KKTSolver | None = None,
    ) -> KKTSolver:
        """Factor the Newton system of a guess of the tight constraints.

        ``solver(r, q)`` returns ``D`` (``.step``), zero outside ``mask``, and ``e`` (``.common``)
        with ``φ(weights(D)) + θ D − e = r`` on ``mask`` and ``column_sums(D) = q``.

        Parameters
        ----------
        mask : ndarray of bool
            The entries of the dual that may move; all tied ones are among them.
        diagonal : float or ndarray
            ``θ > 0``.
        previous : KKTSolver, optional
            A solver of this program for another mask and the same ``diagonal``, whose factors are
            taken over where they still hold.

        Raises
        ------
        numpy.linalg.LinAlgError
            The system is not definite in floating point.
        """

    @abstractmethod
    def gradient_step(self, dual: AnyPrecision) -> AnyPrecision:
        """``A − ∇/L``, where ``∇`` is the dual problem's gradient and ``L`` its Lipschitz constant.

        Outside the domain its entries mean nothing.
        """

    @abstractmethod
    def project(self, dual: AnyPrecision, below: BoolArray) -> Projection:
        """Nearest dual that meets its constraints.

        Parameters
        ----------
        dual : ndarray
        below : ndarray of bool
            A guess of the result's ``below``, from which a search may begin.
        """

    @cached_property
    def ties_solver(self) -> KKTSolver:
        """The solver that moves tied entries only."""
        return self.kkt_solver(self.tied, PROX)

    def zero_common(self) -> FloatArray:
        """Common scores to begin with."""
        return np.zeros(self.num_columns)

    def pair_multipliers(self, dual: FloatArray) -> FloatArray:
        """Multipliers of the data's pairs, the equal ones first, shape (n,)."""
        scale = -self.unit * self.norms[self.entries]
        multipliers: FloatArray = dual[self.entries] / scale
        return multipliers


def positive_norms(rows: FloatArray) -> FloatArray:
    """Norm of each row, and for a zero row the smallest of the others, or one if all are zero.

    The constraint of a zero row is impossible where it is strict. With the smallest norm it has the
    largest right-hand side, so that nothing hides it.
    """
    norms = np.linalg.norm(rows, axis=1)
    nonzero = norms[norms > 0]
    smallest = nonzero.min() if len(nonzero) else 1.0
    positive: FloatArray = np.where(norms > 0, norms, smallest)
    return positive
