"""The record of a gradient run, of one problem or of many."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Result
from ntpnb.basics.watch import Watch
from ntpnb.bias import ImplicitBias
from ntpnb.margin.solution import MarginSolution
from ntpnb.tied.finite import FinitePart
from ntpnb.training.comparison import Comparison, compare_with


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
        is_single = self.W.ndim == 3
        lengths = [len(x) if isinstance(x, Sequence) else None for x in (finite, svm)]
        needed = None if is_single else len(self.W)
        if lengths[0] != needed or (svm is not None and lengths[1] != needed):
            runs = "one run" if is_single else f"a batch of {needed} runs"
            raise ValueError(
                f"finite and svm have lengths {lengths} (None: not a list) for {runs}; "
                "give one of each per problem"
            )
        theory: list[Any] = [finite] if svm is None else [finite, svm]
        if is_single:
            return compare_with(self.W, *theory)
        each = [compare_with(W, *parts) for W, *parts in zip(self.W, *theory, strict=True)]
        return Comparison(
            **{name: np.stack([getattr(one, name) for one in each]) for name in vars(each[0])}
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
        return compare_with(self.W, finite, svm, inside=self._inside)


def require_all_reached(
    watch: Watch, what: str, asked: int, trace: ExactTrace, residuals: FloatArray
) -> None:
    """Raise where the time was over before the end of a curve, with the points so far.

    Parameters
    ----------
    watch : Watch
    what : str
        What the points are, in the plural.
    asked : int
        How many were asked for.
    trace : ExactTrace
        Those that were reached.
    residuals : ndarray, shape (r,)
        Of each of them.

    Raises
    ------
    ConvergenceError
        With the trace as its ``point``, None where no point was reached.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.watch import Watch
    >>> from ntpnb.training.trace import require_all_reached
    >>> flow = ntpnb.gradient_flow(ntpnb.datasets.toy(), [0.0, 1.0])
    >>> require_all_reached(Watch(seconds=9), "times", 3, flow, flow.excess)
    Traceback (most recent call last):
    ...
    ntpnb.basics.errors.ConvergenceError: stopped after 9 seconds: 2 of 3 times were reached; ...
    """
    reached = len(trace.W)
    if reached == asked:
        return
    message = f"{watch.stopped}: {reached} of {asked} {what} were reached"
    if not reached:
        raise ConvergenceError(message, np.inf)
    raise ConvergenceError(f"{message}; .point is the trace so far", float(residuals[-1]), trace)
