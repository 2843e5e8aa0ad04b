"""The record of a gradient run, of one problem or of many."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.saving import Result
from ntpnb.bias import ImplicitBias
from ntpnb.margin.solution import MarginSolution
from ntpnb.tied.finite import FinitePart
from ntpnb.training.comparison import Comparison, compare_trace


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Result):
    """Recorded matrices of a run, of one problem or of a batch.

    Shapes are those of one problem. Of a batch of n, every array but ``steps`` has a leading axis
    of length n.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
        Iterations that were done before each record.
    W : ndarray, shape (r, p, q)
    loss : ndarray, shape (r,)
        Cross-entropy in nats.
    excess : ndarray, shape (r,)
        Cross-entropy minus entropy in nats, without cancellation.
    norm : ndarray, shape (r,)
        Frobenius norm of ``W``.

    Examples
    --------
    >>> import ntpnb
    >>> run = ntpnb.descend(ntpnb.datasets.toy(), ntpnb.GD(step=0.5), 100, record=[0, 10, 100])
    >>> run.steps, run.W.shape
    (array([  0,  10, 100]), (3, 5, 2))
    >>> run.loss.round(3)
    array([1.609, 1.183, 0.929])
    """

    steps: IntArray
    W: FloatArray
    loss: FloatArray
    excess: FloatArray
    norm: FloatArray

    @overload
    def compare(self, finite: ImplicitBias | Sequence[ImplicitBias]) -> Comparison: ...

    @overload
    def compare(
        self,
        finite: FinitePart | Sequence[FinitePart],
        svm: MarginSolution | Sequence[MarginSolution],
    ) -> Comparison: ...

    def compare(
        self,
        finite: ImplicitBias | FinitePart | Sequence[ImplicitBias] | Sequence[FinitePart],
        svm: MarginSolution | Sequence[MarginSolution] | None = None,
    ) -> Comparison:
        """Compare each record with the theory.

        Parameters
        ----------
        finite : FinitePart, or a list of n for a batch
            Or an ImplicitBias (or a list of n), which holds both parts; ``svm`` is then left out.
        svm : MarginSolution, or a list of n for a batch
            Needed beside a finite part.

        Returns
        -------
        Comparison
            With arrays of shape (r,), or (n, r) for a batch.

        Raises
        ------
        ValueError
            A list of the wrong length, or one of the two is a list and the other is not.
        TypeError
            A finite part without a max-margin solution.
        NotSeparableError, ConvergenceError
            The refusal of a bias that has no max-margin solution.

        References
        ----------
        T24 (002) Thm 2; L24 (004) Thms 3 and 4.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.datasets.toy()
        >>> bias = ntpnb.implicit_bias(data)
        >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000, record=[10, 1000])
        >>> run.compare(bias).alignment.round(2)
        array([0.72, 0.96])
        """
        if self.W.ndim == 3:
            if isinstance(finite, Sequence) or isinstance(svm, Sequence):
                raise ValueError(self._what_does_not_fit(finite, svm))
            return compare_trace(self.W, None, finite, svm)
        runs = len(self.W)
        if not isinstance(finite, Sequence) or len(finite) != runs:
            raise ValueError(self._what_does_not_fit(finite, svm))
        parts: Sequence[ImplicitBias | FinitePart] = finite
        solutions: Sequence[MarginSolution | None]
        if svm is None:
            solutions = [None] * runs
        elif isinstance(svm, Sequence) and len(svm) == runs:
            solutions = svm
        else:
            raise ValueError(self._what_does_not_fit(finite, svm))
        each = [
            compare_trace(W, None, part, solution)
            for W, part, solution in zip(self.W, parts, solutions, strict=True)
        ]
        return Comparison(
            alignment=np.stack([one.alignment for one in each]),
            angle=np.stack([one.angle for one in each]),
            corrected_alignment=np.stack([one.corrected_alignment for one in each]),
            finite_error=np.stack([one.finite_error for one in each]),
        )

    def _what_does_not_fit(self, finite: object, svm: object) -> str:
        lengths = [len(x) if isinstance(x, Sequence) else None for x in (finite, svm)]
        runs = "one run" if self.W.ndim == 3 else f"a batch of {len(self.W)} runs"
        return (
            f"finite and svm have lengths {lengths} (None: not a list) for {runs}; "
            "give one of each per problem"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ExactTrace(Result):
    """Matrices of a curve that is known beyond what ``W`` can hold, such as a flow or a path.

    Attributes
    ----------
    W : ndarray, shape (r, p, q)
    """

    W: FloatArray
    _inside: FloatArray = field(repr=False)  # P_F W, whose digits W itself loses as it grows

    def compare(
        self, finite: FinitePart | ImplicitBias, svm: MarginSolution | None = None
    ) -> Comparison:
        """Compare every point with the theory, as a run's :meth:`Trace.compare` does.

        Parameters
        ----------
        finite : FinitePart or ImplicitBias
            A bias holds both parts; ``svm`` is then left out.
        svm : MarginSolution, optional
            Needed beside a finite part.

        Returns
        -------
        Comparison

        Raises
        ------
        TypeError
            A finite part without a max-margin solution.
        NotSeparableError, ConvergenceError
            The refusal of a bias that has no max-margin solution.

        References
        ----------
        T24 (002) Thms 1 and 2; L24 (004) Thms 1 to 4.

        Examples
        --------
        >>> import ntpnb
        >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
        >>> ntpnb.gradient_flow(bias, [10.0, 1000.0]).compare(bias).angle.round(3)
        array([0.155, 0.001])
        >>> ntpnb.regularization_path(bias, [10.0, 1e4]).compare(bias).angle.round(2)
        array([0.22, 0.  ])
        """
        return compare_trace(self.W, self._inside, finite, svm)
