"""Gradient descent on word and context vectors together: logits ``L = H Wᵀ``, both factors free."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ntpnb.basics.saving import Recorded, Result
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    Seed,
    as_array,
    as_floats,
    as_integer,
    as_seed,
    require_dense,
    require_number,
    require_type,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import excess_of_logits
from ntpnb.training.descent import paced, record_grid, require_all_steps, require_small_step

# Of a factor: where entries are larger, logits are rounded by more than one, and the step that led
# there was too large.
LARGEST_ENTRY = float(np.finfo(float).eps ** -0.5)


@dataclass(frozen=True, eq=False, repr=False)
class JointTrace(Recorded):
    """Recorded vectors and logits of joint runs.

    Shapes are those of one run. Of n runs at once, every array but ``steps`` has a leading axis
    of length n.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
        Iterations that were done before each record.
    W : ndarray, shape (r, V, d)
        Word vectors.
    H : ndarray, shape (r, m, d)
        Context vectors.
    logits : ndarray, shape (r, m, V)
        ``H Wᵀ`` with rows that sum to zero, which changes no probability.
    excess : ndarray, shape (r,)
        Cross-entropy minus entropy in nats, without cancellation.
    gradient : ndarray, shape (r, m, V)
        Of the cross-entropy in the logits: ``π_j (q_jv − p_jv)``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> data = ntpnb.datasets.toy()
    >>> start = features.joint_init(data, dim=5, scale=0.1, seed=1)
    >>> run = features.descend_jointly(data, 0.5, 1000, start, record=[0, 1000])
    >>> run.logits.shape, run.excess.round(3).tolist()
    ((2, 3, 5), [0.73, 0.001])
    """

    steps: IntArray
    W: FloatArray
    H: FloatArray
    logits: FloatArray
    excess: FloatArray
    gradient: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class JointStart(Result):
    """Vectors to begin with.

    Attributes
    ----------
    W : ndarray, shape (V, d), or (n, V, d) for n runs
    H : ndarray, shape (m, d), or (n, m, d)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import features
    >>> features.JointStart(W=np.eye(5), H=np.eye(3, 5)).H.shape
    (3, 5)
    """

    W: FloatArray
    H: FloatArray


def joint_init(
    data: NextTokenData, dim: int, scale: float, seed: Seed, runs: int | None = None
) -> JointStart:
    """Draw independent normal word and context vectors.

    Parameters
    ----------
    data : NextTokenData
    dim : int
        ``d``. From ``min(m, V)`` on, every table of logits has factors.
    scale : float
        Standard deviation of an entry of ``W`` and ``H``, times ``√d``: the typical length of a
        vector.
    seed : int or sequence of int
    runs : int, optional
        ``n`` independent starts. Default: one, without an axis for it.

    Returns
    -------
    JointStart

    Raises
    ------
    ValueError
        A size below one, or a scale that is not positive.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> start = features.joint_init(ntpnb.datasets.toy(), dim=4, scale=0.1, seed=1, runs=3)
    >>> start.W.shape, start.H.shape
    ((3, 5, 4), (3, 3, 4))
    """
    require_type("data", data, NextTokenData)
    dim = as_integer("dim", dim, 1)
    require_number("scale", scale, lambda x: x > 0, "be positive")
    lead = () if runs is None else (as_integer("runs", runs, 1),)
    rng = np.random.default_rng(as_seed("seed", seed))
    num_contexts, vocab_size = data.support.shape
    W = rng.standard_normal((*lead, vocab_size, dim)) * (scale / np.sqrt(dim))
    H = rng.standard_normal((*lead, num_contexts, dim)) * (scale / np.sqrt(dim))
    return JointStart(W, H)


@one_thread
def descend_jointly(
    data: NextTokenData | Sequence[NextTokenData],
    step: float,
    steps: int,
    init: JointStart,
    record: npt.ArrayLike | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> JointTrace:
    """Run gradient descent on ``CE(H Wᵀ)`` over both factors.

    Parameters
    ----------
    data : NextTokenData, or a list of n with equal numbers of contexts and tokens
        Only ``target_probs`` and ``context_probs`` count: the embeddings are what is trained.
    step : float
        Of both factors.
    steps : int
        Number of iterations.
    init : JointStart
        With a leading axis of length n, n runs are one batched computation: of one problem from n
        starts, or of n problems from one start each.
    record : increasing sequence of int in 0…steps, optional
        When to record. Default: about 200 steps on a logarithmic grid, both ends included.
    seconds : float, optional
        Time limit. Default: none.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the run.

    Returns
    -------
    JointTrace

    Raises
    ------
    TypeError
        ``data`` is no dataset, ``init`` no ``JointStart``, or a limit of the wrong type.
    ConvergenceError
        The time is over. ``.point`` is the trace up to the step that was reached, and ``.residual``
        the largest loss above the entropy there.
    ValueError
        No problem, problems of different sizes, or other than a linear decoder's, an ``init`` that
        does not fit, an unusable ``step`` or ``record``, or a step so large that an entry of a
        factor exceeds 6.7e7.

    References
    ----------
    T24 (002) Sec. 7, where unconstrained features are proposed.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> data = ntpnb.datasets.toy()
    >>> start = features.joint_init(data, dim=5, scale=0.1, seed=1, runs=4)
    >>> features.descend_jointly(data, 0.5, 100, start, record=[100]).logits.shape
    (4, 1, 3, 5)
    """
    watch = Watch(seconds, progress)
    problems = list(data) if isinstance(data, Sequence) else [data]
    laws = [free_laws(problem) for problem in problems]
    shapes = sorted({law.shape for law in laws})
    if len(shapes) != 1:
        raise ValueError(f"data have target_probs of the shapes {shapes}; exactly one is needed")
    targets = np.stack(laws)
    frequencies = np.stack([problem.context_probs for problem in problems])[..., None]
    require_number("step", step, lambda x: x > 0, "be positive")
    grid = record_grid(steps, record)
    W, H, single = start_of_runs(targets, init)
    if isinstance(data, Sequence) and single:
        raise ValueError("init has no axis for the runs; data is a list, so it needs one")
    recorded = np.empty((len(W), len(grid), W.shape[1] + H.shape[1], W.shape[2]))
    require_dense("the record of a run", recorded.shape, "give record= fewer steps")

    def advance(done: int, until: int) -> None:
        nonlocal W, H
        with np.errstate(all="ignore"):  # a step that is too large overflows, and is refused below
            for _ in range(done, until):
                pull = step * frequencies * (targets - _softmax(H @ W.mT))
                W, H = W + pull.mT @ H, H + pull @ W
        largest = max(np.abs(W).max(), np.abs(H).max())
        require_small_step(step, until, "a vector", largest, LARGEST_ENTRY)

    reached: list[int] = []
    for until in paced(advance, grid, watch, "joint descent"):
        recorded[:, len(reached)] = np.concatenate([W, H], axis=1)
        reached.append(until)
    recorded = recorded[:, : len(reached)]
    trace = _trace(np.array(reached), problems, targets, frequencies, recorded, single)
    require_all_steps(watch, trace.steps, grid, trace.excess, trace)
    return trace


def logit_excess(logits: FloatArray, data: NextTokenData) -> float | FloatArray:
    """Cross-entropy of logits minus the entropy of the data in nats, without cancellation.

    Parameters
    ----------
    logits : ndarray, shape (..., m, V)
    data : NextTokenData

    Returns
    -------
    float or ndarray, shape (...)

    Raises
    ------
    ValueError
        Other data than a linear decoder's, or logits of another shape or that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> data = ntpnb.datasets.toy()
    >>> excess = features.logit_excess(np.zeros((3, 5)), data)
    >>> bool(abs(excess - (np.log(5) - data.entropy)) < 1e-15)
    True
    """
    needed = free_laws(data).shape
    given = as_floats("logits", logits)
    if given.shape[-2:] != needed or not np.isfinite(given).all():
        raise ValueError(
            f"logits has shape {given.shape}; finite numbers are needed, and {needed} as its last "
            "two axes"
        )
    return excess_of_logits(given, data)


def free_laws(data: NextTokenData) -> FloatArray:
    """Return the laws of a linear decoder's data, or explain why there is none."""
    require_type("data", data, NextTokenData)
    if not data.is_linear_decoder:
        raise ValueError(
            "data has token_embeddings, candidate_counts or rows that share a context group; "
            "joint training needs a linear decoder"
        )
    return np.asarray(data.target_probs)


def start_of_runs(
    targets: FloatArray, init: JointStart, name: str = "init"
) -> tuple[FloatArray, FloatArray, bool]:
    """Return word vectors, context vectors, and whether there is no axis of runs."""
    require_type(name, init, JointStart)
    single = np.ndim(init.W) == 2
    W = np.atleast_3d(as_array(f"{name}.W", init.W, ndim=2 if single else 3))
    H = np.atleast_3d(as_array(f"{name}.H", init.H, ndim=2 if single else 3))
    if single:
        W, H = W.reshape(1, *np.shape(init.W)), H.reshape(1, *np.shape(init.H))
    num_problems, num_contexts, vocab_size = targets.shape
    runs, _, dim = W.shape
    needed = [(runs, vocab_size, dim), (runs, num_contexts, dim)]
    if [W.shape, H.shape] != needed or num_problems not in (1, runs):
        raise ValueError(
            f"{name} has shapes {W.shape} and {H.shape} for {num_problems} problem(s) of "
            f"{num_contexts} contexts and {vocab_size} tokens; it needs {needed}, "
            "and as many runs as problems"
        )
    return W, H, single


def _softmax(logits: FloatArray) -> FloatArray:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs: FloatArray = shifted / shifted.sum(axis=-1, keepdims=True)
    return probs


def _trace(
    grid: IntArray,
    problems: list[NextTokenData],
    targets: FloatArray,
    frequencies: FloatArray,
    recorded: FloatArray,
    single: bool,
) -> JointTrace:
    vocab_size = targets.shape[-1]
    W, H = recorded[:, :, :vocab_size], recorded[:, :, vocab_size:]
    logits = H @ W.mT
    logits = logits - logits.mean(axis=-1, keepdims=True)
    problem_of_run = problems * (len(logits) // len(problems))
    of_runs = zip(logits, problem_of_run, strict=True)
    excess = np.stack([np.asarray(excess_of_logits(L, data)) for L, data in of_runs])
    gradient = frequencies[:, None] * (_softmax(logits) - targets[:, None])
    if single:
        return JointTrace(grid, W[0], H[0], logits[0], excess[0], gradient[0])
    return JointTrace(grid, W, H, logits, excess, gradient)
