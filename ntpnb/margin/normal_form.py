"""The max-margin problem in normal form, which is all that a method may ask of a dataset.

The data ask for the smallest ``W`` with ``(t_i − t_j) · W h_g = 0`` on equal pairs ``(g, i, j)``
and ``≥ 1`` on strict ones. Two programs bring this into one form. By pair, each pair is an entry.
By supports, where in each context the tied tokens win over all others, each token of a context is
an entry, and what the tied tokens of column ``j`` agree on, their common score ``c_j``, is an
unknown of its own. Either way the problem is

    minimise ½‖W‖²  subject to  φ_k(W) = a_k c_k          on tied entries,
                                φ_k(W) ≤ a_k c_k − b_k    on ordered entries,

where ``c_k`` is the common score of the column of ``k``; by pair there are no columns, and
``c = 0``. Every ``φ_k`` is linear of norm one, on ordered entries the larger the worse, and
``b ≤ 1`` where roots are one, so that embeddings of any length are treated alike: a ``W`` of the
program is one of the data's times ``unit``. Below, ``φ_k`` is also the matrix with
``φ_k(W) = ⟨φ_k, W⟩``.

A token of the data may stand for ``n`` equal ones (:mod:`ntpnb.problem.equivalent`). Their rows of
``W`` are then equal, and the program's row is ``√n`` times each, so that norms count all of them.
That is the token's root ``a_k``; where every token stands for itself, the roots are one.

Let ``−A`` be the Lagrange multipliers of the constraints. The Lagrangian is stationary in ``W`` if
``W = Σ_k A_k φ_k``, and in ``c`` if ``Σ_k a_k A_k = 0`` over every column. So the dual problem is

    minimise ½‖Σ_k A_k φ_k‖² + Σ_k b_k A_k  subject to  A_k ≤ 0 on ordered entries,
                                                        columns of A sum to zero, by the roots.

Its gradient at ``A`` is ``φ(W) + b`` with ``W = Σ_k A_k φ_k``: the slack with ``c = 0``, negated.
Where no ``W`` meets the constraints, the dual problem is unbounded along a certificate: an ``A``
that meets the dual's constraints with ``Σ_k A_k φ_k = 0`` and ``Σ_k b_k A_k < 0`` (Farkas' lemma).

Of the ordered entries only few are tight at the solution. So there are two classes for each form:
:class:`AllPairs`, which lists no pairs unless the data do, and :class:`MarginProgram`, the problem
of all ties and of some strict pairs, its *set*. A certificate on a set is one for all pairs; a
solution on a set is the solution as soon as no pair outside is missed.

In the code ``A`` is called ``dual``, ``c`` ``common``, ``b`` ``rhs``, and ``W`` ``weights``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.tolerances import PROX
from ntpnb.basics.validation import AnyPrecision, BoolArray, FloatArray, IntArray

FEW = 2**9
"""Strict pairs that are solved for at once, by factors: steps would take longer than these."""


class NewtonStep(NamedTuple):
    """The solution of a Newton system: what to add to the dual (step) and to the common scores."""

    step: FloatArray
    common: FloatArray


KKTSolver = Callable[[FloatArray, FloatArray], NewtonStep]
"""A factored Newton system, see :meth:`MarginProgram.kkt_solver`.

Its arguments are what constraints (residual) and column sums (imbalance) have to gain.
"""

GuessSolver = Callable[[FloatArray, FloatArray, float], NewtonStep]
"""The Newton system of a guess, see :meth:`MarginProgram.guess_solver`.

It also takes the norm of what constraints may still miss.
"""


class MarginProgram(ABC):
    """The max-margin problem of all ties and of a set of strict pairs.

    Duals, masks and the attributes below have shape (n,), one entry for each tie and each pair of
    the set, in the order of ``keys``.

    Attributes
    ----------
    keys : ndarray of int
        Increasing names of the entries, the same in every set of one problem.
    tied, ordered : ndarray of bool
        The entries of ties, and those of strict pairs.
    rhs : ndarray
        ``b``: positive on ordered entries, at most the root, and zero on ties.
    roots : ndarray
        ``a``.
    column : ndarray of int
        The column of each entry, which does not decrease.
    num_columns : int
        Number of common scores; zero by pair.
    rough : float
        Accuracy, relative to the dual, that is enough to see which guesses are wrong; zero where
        all systems are solved to the last digit at once.
    """

    rough = 0.0

    def __init__(
        self,
        keys: IntArray,
        tied: BoolArray,
        rhs: FloatArray,
        roots: FloatArray,
        column: IntArray,
        num_columns: int,
    ) -> None:
        self.keys = keys
        self.tied = tied
        self.ordered = ~tied
        self.rhs = rhs
        self.roots = roots
        self.column = column
        self.num_columns = num_columns

    def __len__(self) -> int:
        return len(self.keys)

    @abstractmethod
    def weights(self, dual: AnyPrecision) -> AnyPrecision:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""

    @abstractmethod
    def scores(self, weights: AnyPrecision) -> AnyPrecision:
        """``φ_k(W)``, shape (n,)."""

    def scores_of(self, dual: AnyPrecision) -> AnyPrecision:
        """``φ_k(W)`` of the ``W`` that a dual stands for, shape (n,)."""
        return self.scores(self.weights(dual))

    @abstractmethod
    def kkt_solver(self, mask: BoolArray, diagonal: float | FloatArray) -> KKTSolver:
        """Factor the Newton system of a guess of the tight constraints.

        ``solver(r, q)`` returns ``D`` (``.step``), zero outside ``mask``, and ``e`` (``.common``)
        with ``φ(weights(D)) + θ D − a e = r`` on ``mask``, ``column_sums(D) = q``. Without ``θ``,
        a slack that is ``r`` before the step is zero after it.

        Parameters
        ----------
        mask : ndarray of bool
            The entries of the dual that may move; all tied ones are among them.
        diagonal : float or ndarray, shape (n,)
            ``θ > 0``.

        Raises
        ------
        numpy.linalg.LinAlgError
            The system is not definite in floating point.
        """

    def guess_solver(self, tight: BoolArray) -> GuessSolver:
        """The Newton system of a guess of the tight constraints, with the proximal term."""
        solver = self.kkt_solver(tight, PROX)
        return lambda residual, imbalance, accuracy: solver(residual, imbalance)

    def margins(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``a_k c_k − φ_k(W)``: to be zero on ties, else at least ``b_k``."""
        return self.spread(common) - self.scores(weights)

    def slack(self, weights: FloatArray, common: FloatArray) -> FloatArray:
        """``a_k c_k − φ_k(W) − b_k``: to be zero on ties, else nonnegative."""
        return self.margins(weights, common) - self.rhs

    def slack_of(self, dual: FloatArray, common: FloatArray) -> FloatArray:
        """The same of the ``W`` that a dual stands for."""
        return self.spread(common) - self.scores_of(dual) - self.rhs

    def spread(self, common: FloatArray) -> FloatArray:
        """``a_k c_k`` of the entries; zeros where there are no columns."""
        if self.num_columns == 0:
            return np.zeros(len(self))
        return self.roots * common[self.column]

    def column_sums(self, dual: FloatArray) -> FloatArray:
        """Sum of each column of a dual by the roots, shape (num_columns,); to be zero."""
        if self.num_columns == 0:
            return np.zeros(0)
        return np.asarray(np.add.reduceat(self.roots * dual, self.first_of_column))

    @cached_property
    def first_of_column(self) -> IntArray:
        """Position of the first entry of each column; every column has one, a tie."""
        return np.searchsorted(self.column, np.arange(self.num_columns))

    def zero_common(self) -> FloatArray:
        """Zero for each column: common scores to begin with, or sums that shall not change."""
        return np.zeros(self.num_columns)

    def values_of(self, other: "MarginProgram", values: FloatArray) -> FloatArray:
        """Values of another set's entries as ones of this set's, zero where it has others."""
        where = np.minimum(np.searchsorted(self.keys, other.keys), len(self) - 1)
        shared = self.keys[where] == other.keys
        mine = np.zeros(len(self))
        mine[where[shared]] = values[shared]
        return mine


class PairMultipliers(NamedTuple):
    """Multipliers of the data's pairs, whose ``W`` is the data's.

    Attributes
    ----------
    strict : ndarray or csr_array
        Of all strict pairs in the order's order; or a table of groups and losers, shape (G, V),
        where in each group all tokens lose that do not tie. Where a token stands for several, it is
        the sum of theirs.
    equal : ndarray
        Those of all equal pairs, in the order's order.
    """

    strict: FloatArray | csr_array
    equal: FloatArray


class AllPairs(ABC):
    """The max-margin problem of all pairs of a dataset, from which sets are chosen.

    Attributes
    ----------
    unit : float
        A ``W`` of a program is one of the data's times ``unit``.
    num_strict, num_weights : int
        Numbers of strict pairs and of entries of ``W``.
    fits : bool
        Whether all pairs may be held at one time, and a matrix of contexts and contexts.
    """

    unit: float
    num_strict: int
    num_weights: int
    fits: bool

    @abstractmethod
    def everything(self) -> MarginProgram:
        """The program of all strict pairs."""

    @abstractmethod
    def program(self, strict: IntArray) -> MarginProgram:
        """The program of some strict pairs, given by their increasing keys."""

    @cached_property
    def ties(self) -> MarginProgram:
        """The program of the ties alone."""
        return self.program(np.zeros(0, dtype=np.intp))

    @cached_property
    def ties_solver(self) -> KKTSolver:
        """The solver that moves tied entries only, which is what it takes to meet the ties."""
        return self.ties.kkt_solver(self.ties.tied, PROX)

    @abstractmethod
    def missed(
        self, program: MarginProgram, weights: FloatArray, common: FloatArray, by: float
    ) -> IntArray:
        """Increasing keys of strict pairs outside a program's set with a slack below ``−by``."""

    @abstractmethod
    def least_margin(self, weights: FloatArray, common: FloatArray) -> float:
        """The smallest ``c_k − φ_k(W) / a_k`` of all strict pairs."""

    @abstractmethod
    def entries_of_strict(self, program: MarginProgram) -> IntArray:
        """Positions, among a program's entries, of the strict pairs that an order lists."""

    @abstractmethod
    def multipliers(self, program: MarginProgram, dual: FloatArray) -> PairMultipliers:
        """The multipliers of the data's pairs that a program's dual stands for.

        These are ``λ`` and ``μ`` of :class:`~ntpnb.margin.solution.MarginSolution`: for the data's
        ``W``, whose pairs have their own norms and the opposite sign.
        """

    def for_single_tokens(self, program: MarginProgram) -> MarginProgram:
        """The program of a set where each token stands for itself alone."""
        return program

    @abstractmethod
    def pair_weights(self, program: MarginProgram, dual: FloatArray) -> PairWeights:
        """The strict pairs that a dual weighs, with their shares; see :meth:`for_single_tokens`."""


@dataclass(frozen=True, eq=False)
class Iterate:
    """A step of a method on a :class:`MarginProgram`, for others to judge.

    Attributes
    ----------
    dual : ndarray
        ``A``, which may still miss its constraints.
    common : ndarray
        ``c``, the common scores that go with it; zeros where the method works without them.
    direction : ndarray or None
        The direction in which ``dual`` grows. If the problem has no solution, the dual is unbounded
        and this direction tends to a certificate of it. None while the method is still guessing:
        then ``dual`` is no candidate for the solution, nor is its growth one for a certificate. Its
        ``W`` may separate the data all the same.
    settled : bool
        Whether the method takes ``dual`` for the solution, but for rounding. A claim, to be
        checked.
    """

    dual: FloatArray
    common: FloatArray
    direction: FloatArray | None
    settled: bool = False


class SetStep(NamedTuple):
    """A step of the method: the program of the set that it is at, and the iterate."""

    program: MarginProgram
    iterate: Iterate


def positive_norms(rows: FloatArray) -> FloatArray:
    """Norm of each row, and for a zero row the smallest of the others, or one if all are zero.

    The constraint of a zero row is impossible where it is strict. With the smallest norm it has the
    largest right-hand side, so that nothing hides it.
    """
    return without_zeros(np.linalg.norm(rows, axis=1))


def without_zeros(norms: FloatArray) -> FloatArray:
    """Norms of rows, with zero replaced as :func:`positive_norms` says."""
    nonzero = norms[norms > 0]
    smallest = nonzero.min() if len(nonzero) else 1.0
    positive: FloatArray = np.where(norms > 0, norms, smallest)
    return positive
