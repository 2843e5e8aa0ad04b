"""Runs of gradient methods, recorded along the way, on one problem or on many of one shape."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ntpnb.array_types import FloatArray, IntArray
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import LARGEST, as_weights, cross_entropy, excess_loss
from ntpnb.training.large_batch import AnyBatch, batch_of
from ntpnb.training.optimizers import GD, NGD, SGD, Adam, Optimizer, SteepestDescent
from ntpnb.training.trace import Trace
from ntpnb.validation import as_indices, as_integer, require_dense

RECORDS_PER_RUN = 200


def descend(
    data: NextTokenData | Sequence[NextTokenData],
    method: Optimizer,
    steps: int,
    init: npt.ArrayLike | None = None,
    record: npt.ArrayLike | None = None,
) -> Trace:
    """Run a gradient method on the cross-entropy.

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

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        No problem at all, problems of different shapes, an ``init`` of the wrong shape, ``steps``
        that are no nonnegative integer, an unusable ``record``, records of more than 2**28 entries,
        SGD on data that are too large for it, or a step so large that an entry of ``W`` exceeds
        1e151.
    TypeError
        Something else than data, than a method, or, as ``steps``, than a number.

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
    single = not isinstance(data, Sequence)
    problems = list(data) if isinstance(data, Sequence) else [data]
    problem = batch_of(problems)
    grid = record_grid(steps, record)
    W = iterate(problem, method, grid, start_at(problems, init, single))
    loss = np.stack([cross_entropy(w, d) for w, d in zip(W, problems, strict=True)])
    excess = np.stack([excess_loss(w, d) for w, d in zip(W, problems, strict=True)])
    norm = np.linalg.norm(W, axis=(-2, -1))
    if single:
        return Trace(grid, W[0], loss[0], excess[0], norm[0])
    return Trace(grid, W, loss, excess, norm)


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


def iterate(problem: AnyBatch, method: Optimizer, record: IntArray, W: FloatArray) -> FloatArray:
    """Move ``W`` in place through all steps and return the recorded matrices.

    Parameters
    ----------
    problem : ProblemBatch or LargeBatch
    method : GD, NGD, Adam, SGD or SteepestDescent
    record : ndarray of int, shape (r,)
        Steps to record, increasing.
    W : ndarray, shape (n, p, q)
        Where to begin; on return, where the last recorded step ended.

    Returns
    -------
    ndarray, shape (n, r, p, q)

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
    >>> iterate(problem, ntpnb.GD(step=0.5), np.array([0, 3]), np.zeros((1, 5, 2))).shape
    (1, 2, 5, 2)
    """
    if not isinstance(method, GD | NGD | Adam | SGD | SteepestDescent):
        raise TypeError(
            f"method is of type {type(method).__name__}; one of GD, NGD, Adam, SGD or "
            "SteepestDescent is needed"
        )
    shape = (len(record), *W.shape)
    require_dense("the record of a run", shape, "give record= fewer steps")
    recorded = np.empty(shape)
    done = 0
    with np.errstate(all="ignore"):  # a step that is too large overflows, and is refused below
        advance = method._begin(problem, W)
    for r, until in enumerate(record):
        with np.errstate(all="ignore"):
            advance(done, until)
        largest = np.abs(W).max()
        if not largest <= LARGEST:  # NaN too
            raise ValueError(
                f"step is {method.step:g}, too large: after {until} steps W has the entry "
                f"{largest:g}; none may be larger than {LARGEST:g}"
            )
        recorded[r] = W
        done = until
    return np.swapaxes(recorded, 0, 1)


def log_grid(steps: int) -> IntArray:
    """Increasing integers from 0 to ``steps``, about 200 of them, evenly spaced in log(1 + k).

    Parameters
    ----------
    steps : int

    Returns
    -------
    ndarray of int, shape (r,)

    Examples
    --------
    >>> from ntpnb.training.descent import log_grid
    >>> log_grid(10_000)[[0, 1, 2, -2, -1]]
    array([    0,     1,     2,  9548, 10000])
    """
    grid = np.expm1(np.linspace(0, np.log1p(steps), RECORDS_PER_RUN))
    return np.unique(np.rint(grid).astype(np.int64))


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
    increasing = grid.ndim == 1 and grid.size > 0 and bool((np.diff(grid) > 0).all())
    if not (increasing and grid[0] >= 0 and grid[-1] <= steps):
        raise ValueError(f"record must be increasing integers between 0 and steps = {steps}")
    return grid
