"""The max-margin problem in normal form, which is all that a method may ask of a dataset.

The data ask for the smallest ``W`` with ``(t_i − t_j) · W h_g = 0`` on equal pairs ``(g, i, j)``
and ``≥ 1`` on strict ones. Two programs bring this into one form. By pair, each pair is an entry
``k`` of an array of shape (n,). By supports, where in each context the tied tokens win over all
others, each token of a context is an entry of an array of shape (V, m), and what the tied tokens of
column ``j`` agree on, their common score ``c_j``, is an unknown of its own. Either way the problem
is

    minimise ½‖W‖²  subject to  φ_k(W) = c_k        on tied entries,
                                φ_k(W) ≤ c_k − b_k  on ordered entries,

where ``c_k`` is the common score of the column of ``k``; by pair there are no columns, and
``c = 0``. Every ``φ_k`` is linear of norm one, on ordered entries the larger the worse, and
``max b = 1``, so that embeddings of any length are treated alike: a ``W`` of the program is one of
the data's times ``unit``. Below, ``φ_k`` is also the matrix with ``φ_k(W) = ⟨φ_k, W⟩``.

A token of the data may stand for ``n`` equal ones (:mod:`ntpnb.margin.collapse`). Their rows of
``W`` are then equal, and the program's row is ``√n`` times each, so that norms count all of them.
By supports this multiplies ``c_k`` and ``b_k`` by the token's root ``√n``, and that columns sum to
zero means ``Σ_k √n_k A_k = 0``. Where every token stands for itself, the roots are one.

Let ``−A`` be the Lagrange multipliers of the constraints. The Lagrangian is stationary in ``W`` if
``W = Σ_k A_k φ_k``, and in ``c`` if every column of ``A`` sums to zero. So the dual problem is

    minimise ½‖Σ_k A_k φ_k‖² + Σ_k b_k A_k  subject to  A_k ≤ 0 on ordered entries,
                                                        columns of A sum to zero.

Its gradient at ``A`` is ``φ(W) + b`` with ``W = Σ_k A_k φ_k``: the slack with ``c = 0``, negated.
Where no ``W`` meets the constraints, the dual problem is unbounded along a certificate: an ``A``
that meets the dual's constraints with ``Σ_k A_k φ_k = 0`` and ``Σ_k b_k A_k < 0`` (Farkas' lemma).

In the code ``A`` is called ``dual``, ``c`` ``common``, ``b`` ``rhs``, and ``W`` ``weights``.
Entries may be masked *in*: a mask holds the entries of the dual that may differ from zero, which
are those of the constraints taken for tight.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ntpnb.array_types import BoolArray, FloatArray, IntArray

PROX = 1e-10
"""Weight ``θ`` of a term ``½ θ ‖A − centre‖²`` that is added to the dual problem.

It makes every system definite. Its pull ends where the centre reaches the solution, so it costs no
accuracy: the active set moves the centre there, and the interior point takes its current dual for
it.
"""

AnyPrecision = npt.NDArray[np.floating[Any]]
"""An array in single or double precision: FISTA begins in single precision."""


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """The solution of a Newton system: what to add to the dual (step) and to the common scores."""

    step: FloatArray
    common: FloatArray


class KKTSolver(Protocol):
    """A factored Newton system, see :meth:`MarginProgram.kkt_solver`."""

    def __call__(self, residual: FloatArray, imbalance: FloatArray) -> NewtonStep:
        """Solve for what constraints (residual) and column sums (imbalance) have to gain."""
        ...


@dataclass(frozen=True, eq=False)
class Projection:
    """A dual that meets its constraints, and where it stays below its upper bound.

    By complementarity, ``below`` is a guess of the tight constraints.
    """

    dual: AnyPrecision
    below: BoolArray


class MarginProgram(ABC):
    """A max-margin problem in normal form.

    Duals, masks and the attributes below share one shape: ``(V, m)`` by supports, where ``m``
    counts the groups that have pairs, and ``(n,)`` by pair.

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
    roots : float or ndarray, optional
        Default: one.

    Attributes
    ----------
    domain, entries, norms, num_columns
        The parameters.
    ordered, tied : ndarray of bool
        The entries of strict pairs, and the rest of the domain: those of equal pairs and, by
        supports, one more in each column, the token that stands for the tied ones.
    unit : float
        A ``W`` of the program is one of the data's times ``unit``.
    rhs : ndarray
        ``b``: positive on ordered entries, at most one, and zero elsewhere.
    upper : ndarray of float32
        Upper bounds of the dual: zero, and ``inf`` on tied entries. Single precision holds them
        exactly and does not turn single-precision duals into double ones.
    roots : float or ndarray
        ``√n_k`` of each entry, to be broadcast; one by pair, whose ``φ_k`` account for it.
    has_dear_factors : bool
        Whether a Newton system costs as much as hundreds of gradient steps.
    between_steps : callable
        Called by methods whose steps are long; what it raises ends them. Nothing happens there
        until it is set.
    """

    has_dear_factors = False

    def __init__(
        self,
        domain: BoolArray,
        entries: tuple[IntArray, ...],
        norms: FloatArray,
        num_ties: int,
        num_columns: int,
        roots: float | FloatArray = 1.0,
    ) -> None:
        self.between_steps: Callable[[], object] = _go_on
        self.domain = domain
        self.entries = entries
        self.norms = norms
        self.num_columns = num_columns
        self.ordered = np.zeros(domain.shape, dtype=bool)
        self.ordered[tuple(index[num_ties:] for index in entries)] = True
        self.tied = domain & ~self.ordered
        self.unit = float(norms[self.ordered].min())
        self.roots = roots
        self.rhs = np.where(self.ordered, roots * (self.unit / norms), 0.0)
        self.upper = np.where(self.tied, np.inf, 0.0).astype(np.float32)

    @abstractmethod
    def weights(self, dual: FloatArray) -> FloatArray:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""

    @abstractmethod
    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``c_k − φ_k(W) − b_k``, zero outside the domain: to be zero on ties, else nonnegative."""

    def margins(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``c_k − φ_k(W)``, zero outside the domain: to be zero on ties, else at least ``b_k``."""
        return self.slack(weights, common) + self.rhs

    @abstractmethod
    def column_sums(self, dual: FloatArray) -> FloatArray:
        """Sum of each column of a dual by the roots, shape (num_columns,); to be zero."""

    @abstractmethod
    def kkt_solver(
        self,
        mask: BoolArray,
        diagonal: float | FloatArray,
        previous: KKTSolver | None = None,
    ) -> KKTSolver:
        """Factor the Newton system of a guess of the tight constraints.

        ``solver(r, q)`` returns ``D`` (``.step``), zero outside ``mask``, and ``e`` (``.common``)
        with ``φ(weights(D)) + θ D − √n e = r`` on ``mask``, ``column_sums(D) = q``. Without ``θ``,
        a slack that is ``r`` before the step is zero after it.

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
        """Nearest dual with nonpositive ordered entries and zero column sums.

        Parameters
        ----------
        dual : ndarray
        below : ndarray of bool
            A guess of the result's ``below``, from which a search may begin.
        """

    def newton_cost(self, mask: BoolArray) -> int:
        """About how many gradient steps take as long as :meth:`kkt_solver` of a mask."""
        del mask
        return int(self.rhs.size**0.5) // 3  # a third of the side, if the dual were square

    @cached_property
    def ties_solver(self) -> KKTSolver:
        """The solver that moves tied entries only, which is what it takes to meet the ties."""
        return self.kkt_solver(self.tied, PROX)

    def zero_common(self) -> FloatArray:
        """Zero for each column: common scores to begin with, or sums that shall not change."""
        return np.zeros(self.num_columns)

    def pair_multipliers(self, dual: FloatArray) -> FloatArray:
        """Multipliers of the data's pairs, the equal ones first, shape (n,).

        These are ``λ`` and ``μ`` of :class:`~ntpnb.margin.solution.MarginSolution`: for the data's
        ``W``, whose pairs have their own norms and the opposite sign. The multiplier of a pair
        whose loser stands for several tokens is the sum of theirs.
        """
        scale = -self.unit * self.norms[self.entries]
        multipliers: FloatArray = (self.roots * dual)[self.entries] / scale
        return multipliers

    @abstractmethod
    def dual_of(self, pair_multipliers: FloatArray) -> FloatArray:
        """The dual that :meth:`pair_multipliers` turns into these; its columns sum to zero."""


def _go_on() -> None:
    """Do nothing between two steps."""


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
