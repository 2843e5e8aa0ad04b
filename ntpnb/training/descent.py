"""Runs of gradient methods, recorded along the way, on one problem or on many of one shape."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Recorded
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    as_indices,
    as_integer,
    counted,
    require_dense,
    require_increasing,
    require_type,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.bias import ImplicitBias
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import LARGEST, as_weights, cross_entropy, excess_loss
from ntpnb.tied.finite import FinitePart
from ntpnb.training.batch import ProblemBatch, batch_of
from ntpnb.training.comparison import Comparison, compare_with
from ntpnb.training.optimizers import GD, Advance, Optimizer

LOOK_AT_THE_CLOCK = 0.05  # seconds between two looks, where steps are shorter


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Recorded):
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
            Or an ImplicitBias (or a list of n), which holds both parts.
        svm : MarginSolution, or a list of n for a batch
            Needed beside a finite part; beside a bias it takes the place of the bias's own.

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
        theory: list[Any] = [finite] if svm is None else [finite, svm]
        lengths = [len(part) if isinstance(part, Sequence) else None for part in theory]
        needed = None if is_single else len(self.W)
        if lengths != [needed] * len(theory):
            runs = "one run" if is_single else f"a batch of {needed} runs"
            raise ValueError(
                f"finite and svm have lengths {lengths} (None: not a list) for {runs}; "
                "give one of each per problem"
            )
        if is_single:
            return compare_with(self.W, *theory)
        each = [compare_with(W, *parts) for W, *parts in zip(self.W, *theory, strict=True)]
        return Comparison(
            **{name: np.stack([getattr(one, name) for one in each]) for name in vars(each[0])}
        )


@one_thread
def descend(
    data: NextTokenData | Sequence[NextTokenData],
    method: Optimizer,
    steps: int,
    init: npt.ArrayLike | None = None,
    record: npt.ArrayLike | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Run a gradient method on the cross-entropy.

    A run that goes up in place of down says so, in a ``RuntimeWarning``: where the loss at the last
    record is above ten times the larger of that at the start and that of zero weights. Steps of GD
    up to ``2/L``, with ``L = data.smoothness``, never increase the loss; many that are longer
    converge all the same.

    Parameters
    ----------
    data : NextTokenData, or a list of n with equal shapes
        A list runs as one batched computation.
    method : GD, NGD, Adam, SGD or SteepestDescent
    steps : int
        Number of iterations.
    init : array_like, shape (p, q), or (n, p, q) for a list, optional
        Default: zeros.
    record : increasing sequence of int in 0…steps, optional
        When to record. Default: about 200 steps on a logarithmic grid, both ends included.
    seconds : float, optional
        After so many the run ends with a ``ConvergenceError``. Default: no limit.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the run.

    Returns
    -------
    Trace

    Raises
    ------
    ConvergenceError
        The time is over. ``.point`` is the trace of the records that were reached; its last is the
        step at which the run was stopped. ``.residual`` is the loss above the entropy there, the
        largest of a batch.
    ValueError
        No problem at all, problems of different shapes, an ``init`` of the wrong shape, ``steps``
        that are no nonnegative integer, an unusable ``record``, records of more than 2**28 entries,
        SGD on data that are too large for it, or a step so large that an entry of ``W`` exceeds
        1e151.
    TypeError
        Something else than data, than a method, or, as ``steps`` or ``seconds``, than a number.

    References
    ----------
    T24 (002) Sec. 5 and App. A; L24 (004) Sec. 5.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.datasets.toy()
    >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), 1000, record=[0, 10, 1000])
    >>> run.excess.round(4)
    array([0.7284, 0.3024, 0.0057])
    >>> batch = ntpnb.descend([data, data], ntpnb.NGD(step=0.01), 100, record=[100])
    >>> batch.W.shape
    (2, 1, 5, 2)
    """
    watch = Watch(seconds, progress)
    single = not isinstance(data, Sequence)
    problems = list(data) if isinstance(data, Sequence) else [data]
    problem = batch_of(problems)
    grid = record_grid(steps, record)
    start = start_at(problems, init, single)
    now = start.copy()
    losses: list[FloatArray] = []

    def take_losses_in_time() -> None:
        if seconds is not None:  # the time that losses take counts
            losses.append(_losses(now[:, None], problems))

    run = iterate(problem, method, grid, now, watch, take_losses_in_time)
    if seconds is None:
        losses.append(_losses(run.W, problems))
    loss, excess = np.concatenate(losses, axis=2)
    norm = np.linalg.norm(run.W, axis=(-2, -1))
    _warn_of_ascent(problems, method, start, run.steps, loss)
    which = 0 if single else slice(None)
    trace = Trace(run.steps, run.W[which], loss[which], excess[which], norm[which])
    require_all_steps(watch, trace.steps, grid, trace.excess, trace)
    return trace


def _losses(W: FloatArray, problems: Sequence[NextTokenData]) -> FloatArray:
    """The loss, and then the loss above the entropy, of matrices (n, r, p, q): shape (2, n, r)."""
    each = [(cross_entropy(w, d), excess_loss(w, d)) for w, d in zip(W, problems, strict=True)]
    return np.swapaxes(np.array(each), 0, 1)


def _warn_of_ascent(
    problems: Sequence[NextTokenData],
    method: Optimizer,
    start: FloatArray,
    steps: IntArray,
    loss: FloatArray,
) -> None:
    """Warn where a run of a batch ended far above where it began."""
    for i, data in enumerate(problems):
        first, last = float(loss[i, 0]), float(loss[i, -1])
        if steps[0] > 0:
            first = float(cross_entropy(start[i], data))
        # Steps somewhat above 2/L may lead into a cycle, whose loss is not far above the start's.
        if last <= 10 * first or last <= 10 * float(cross_entropy(np.zeros(data.shape), data)):
            continue
        rule = "a smaller step is needed"
        if isinstance(method, GD):
            safe = 2 / data.smoothness
            rule = (
                f"the step is {method.step / safe:.3g} times 2/L = {safe:.3g}, up to which "
                "gradient descent never increases the loss"
            )
        where = "" if len(problems) == 1 else f"data[{i}]: "
        warnings.warn(
            f"{where}{method} does not descend: the loss went from {first:.3g} to {last:.3g} nats "
            f"in {steps[-1]} steps; {rule}",
            RuntimeWarning,
            stacklevel=4,  # past `descend` and what limits its threads
        )
        return


def start_at(
    problems: Sequence[NextTokenData], init: npt.ArrayLike | None, single: bool
) -> FloatArray:
    """Return fresh starting points, or explain what is wrong with ``init``.

    Parameters
    ----------
    problems : sequence of n NextTokenData
    init : array_like, shape (p, q) or (n, p, q), or None for zeros
    single : bool
        Whether ``init`` is that of one problem, without an axis for the batch.

    Returns
    -------
    ndarray, shape (n, p, q)

    Raises
    ------
    ValueError
        ``init`` has another shape or is not finite.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.descent import start_at
    >>> start_at([ntpnb.datasets.toy()], None, single=True).shape
    (1, 5, 2)
    """
    shape = (len(problems), *problems[0].shape)
    require_dense("W", shape, "use fewer dimensions, or a smaller vocabulary")
    W = np.zeros(shape)
    if init is not None:
        given = as_weights("init", init, problems[0])
        needed = W.shape[1:] if single else W.shape
        if given.shape != needed:
            raise ValueError(f"init has shape {given.shape}; it needs {needed}")
        W += given
    return W


class Records(NamedTuple):
    """Steps that were recorded, shape (r,), and the matrices there, shape (n, r, p, q)."""

    steps: IntArray
    W: FloatArray


def iterate(
    problem: ProblemBatch,
    method: Optimizer,
    record: IntArray,
    W: FloatArray,
    watch: Watch | None = None,
    at_record: Callable[[], object] | None = None,
) -> Records:
    """Move ``W`` in place through all steps, and record it on the way.

    Parameters
    ----------
    problem : ProblemBatch
    method : GD, NGD, Adam, SGD or SteepestDescent
    record : ndarray of int, shape (r,)
        Steps to record, increasing.
    W : ndarray, shape (n, p, q)
        Where to begin; on return, where the last recorded step ended.
    watch : Watch, optional
        Where its time is over, the step that was reached is the last one. It is told of progress.
    at_record : callable, optional
        Called at each record, once ``W`` is there.

    Returns
    -------
    Records
        One step at least.

    Raises
    ------
    TypeError
        A ``method`` of another type.
    ValueError
        A step so large that an entry of ``W`` exceeds 1e151, above which scores might overflow, or
        records of more than 2**28 entries.

    Examples
    --------
    >>> import ntpnb
    >>> import numpy as np
    >>> from ntpnb.training.batch import ProblemBatch
    >>> from ntpnb.training.descent import iterate
    >>> problem = ProblemBatch([ntpnb.datasets.toy()])
    >>> iterate(problem, ntpnb.GD(step=0.5), np.array([0, 3]), np.zeros((1, 5, 2))).W.shape
    (1, 2, 5, 2)
    """
    shape = (len(record), *W.shape)
    require_dense("the record of a run", shape, "give record= fewer steps")
    advance = stepper(problem, method, W)
    steps: list[int] = []
    recorded = np.swapaxes(np.empty(shape), 0, 1)
    for step in paced(advance, record, watch or Watch(), type(method).__name__):
        recorded[:, len(steps)] = W
        steps.append(step)
        if at_record is not None:
            at_record()
    return Records(np.array(steps), recorded[:, : len(steps)])


def stepper(problem: ProblemBatch, method: Optimizer, W: FloatArray) -> Advance:
    """Return what moves ``W`` in place through the steps ``done + 1 … until``, called with these.

    Parameters
    ----------
    problem : ProblemBatch
    method : GD, NGD, Adam, SGD or SteepestDescent
    W : ndarray, shape (n, p, q)
        Where to begin.

    Returns
    -------
    callable
        It raises a ``ValueError`` where a step was so large that an entry of ``W`` exceeds 1e151,
        above which scores might overflow.

    Raises
    ------
    TypeError
        A ``method`` of another type.

    Examples
    --------
    >>> import ntpnb
    >>> import numpy as np
    >>> from ntpnb.training.batch import ProblemBatch
    >>> from ntpnb.training.descent import stepper
    >>> W = np.zeros((1, 5, 2))
    >>> advance = stepper(ProblemBatch([ntpnb.datasets.toy()]), ntpnb.GD(0.5), W)
    >>> advance(0, 10)
    >>> bool(W.any())
    True
    """
    require_type("method", method, Optimizer, "one of GD, NGD, Adam, SGD or SteepestDescent")
    with np.errstate(all="ignore"):  # a step that is too large overflows, and is refused below
        begun = method._begin(problem, W)

    def advance(done: int, until: int) -> None:
        with np.errstate(all="ignore"):
            begun(done, until)
        require_small_step(method.step, until, "W", np.abs(W).max(), LARGEST)

    return advance


def paced(advance: Advance, record: IntArray, watch: Watch, name: str) -> Iterator[int]:
    """Take all steps, and name each one to record once it is taken.

    Parameters
    ----------
    advance : callable
        Takes the steps ``done + 1 … until``, of ``done`` and ``until``.
    record : ndarray of int, shape (r,)
        Steps to record, increasing.
    watch : Watch
        Where its time is over, the step that was reached is the last one. It is told of progress.
    name : str
        What takes the steps.

    Yields
    ------
    int
        One step at least.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.training.descent import paced
    >>> from ntpnb.basics.watch import Watch
    >>> list(paced(print, np.array([2, 7]), Watch(), "GD"))
    0 2
    2 7
    [2, 7]
    """
    done = 0
    last = int(record[-1])
    at_once = 1 if watch.is_needed else last
    for until in record.tolist():
        while done < until:
            if watch.expired:
                if done not in record:
                    yield done
                return
            began = time.monotonic()
            reach = min(until, done + at_once)
            advance(done, reach)
            done = reach
            if watch.is_needed:
                if time.monotonic() - began < LOOK_AT_THE_CLOCK:
                    at_once = 2 * at_once
                else:
                    at_once = max(1, at_once // 2)
                    watch.say(f"{name}: {done} of {last} steps")
        yield until


def require_small_step(step: float, steps: int, what: str, largest: float, limit: float) -> None:
    """Raise where a step was so large that what is trained might overflow.

    Parameters
    ----------
    step : float
    steps : int
        How many were taken.
    what : str
        What is trained.
    largest : float
        Its largest entry in absolute value.
    limit : float
        What no entry may exceed.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from ntpnb.training.descent import require_small_step
    >>> require_small_step(2.0, 10, "W", 3e8, 1e8)
    Traceback (most recent call last):
    ...
    ValueError: step is 2, too large: after 10 steps W has the entry 3e+08; ...
    """
    if not largest <= limit:  # NaN too
        raise ValueError(
            f"step is {step:g}, too large: after {counted(steps, 'step')} {what} has the entry "
            f"{largest:g}; none may be larger than {limit:g}"
        )


def require_all_steps(
    watch: Watch,
    steps: IntArray,
    grid: IntArray,
    losses: FloatArray,
    point: object,
    above: str = " nats above the entropy",
) -> None:
    """Raise where the time was over before the last step of a run, with the run so far.

    Parameters
    ----------
    watch : Watch
    steps, grid : ndarray of int
        Those that were recorded, and those that were to be.
    losses : ndarray, shape (..., r)
        At each record; of several runs the largest is said.
    point : object
        The run so far.
    above : str
        What the losses are above, with their unit.

    Raises
    ------
    ConvergenceError

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.training.descent import require_all_steps
    >>> from ntpnb.basics.watch import Watch
    >>> require_all_steps(Watch(seconds=1), np.array([10]), np.array([20]), np.array([0.5]), None)
    Traceback (most recent call last):
    ...
    ntpnb.basics.errors.ConvergenceError: stopped after 1 second: 10 of 20 steps are done, ...
    """
    if steps[-1] == grid[-1]:
        return
    worst = float(losses[..., -1].max())
    raise ConvergenceError(
        f"{watch.stopped}: {steps[-1]} of {grid[-1]} steps are done, and "
        f"the loss is {worst:.3g}{above}; .point is the run so far",
        worst,
        point,
    )


def log_grid(steps: int) -> IntArray:
    """Increasing integers from 0 to ``steps``, about 200, evenly spaced in log(1 + k).

    Parameters
    ----------
    steps : int

    Returns
    -------
    ndarray of int, shape (r,)
        Fewer where several round to the same.

    Examples
    --------
    >>> from ntpnb.training.descent import log_grid
    >>> log_grid(10_000)[[0, 1, 2, -2, -1]]
    array([    0,     1,     2,  9548, 10000])
    """
    grid = np.expm1(np.linspace(0, np.log1p(steps), 200))
    return np.unique(np.rint(grid).astype(np.intp))


def record_grid(steps: int, record: npt.ArrayLike | None = None) -> IntArray:
    """Return the steps to record, or explain what is wrong with the two arguments.

    Parameters
    ----------
    steps : int
        Number of iterations.
    record : increasing sequence of int in 0…steps, optional
        Default: :func:`log_grid`.

    Returns
    -------
    ndarray of int, shape (r,)

    Raises
    ------
    TypeError, ValueError
        ``steps`` is no nonnegative integer, or ``record`` no such sequence.

    Examples
    --------
    >>> from ntpnb.training.descent import record_grid
    >>> record_grid(10, [0, 5, 10])
    array([ 0,  5, 10])
    """
    steps = as_integer("steps", steps, 0)
    if record is None:
        return log_grid(steps)
    grid = as_indices("record", record)
    require_increasing("record", grid)
    if grid[0] < 0 or grid[-1] > steps:
        outside = grid[0] if grid[0] < 0 else grid[-1]
        raise ValueError(f"record has the step {outside}; all must lie in 0…{steps}")
    return grid
