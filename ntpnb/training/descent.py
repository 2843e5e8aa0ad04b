"""Gradient methods, recorded along the way, on one problem or on many of the same shape."""

from dataclasses import dataclass, field

import numpy as np

from ntpnb.problem.loss import LARGEST, as_weights, cross_entropy, excess_loss
from ntpnb.tied.finite import FinitePart
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.comparison import Comparison, compare_with
from ntpnb.validation import as_indices, as_integer, require_number

RECORDS_PER_RUN = 200
RESYNC = 100  # steps
SAFE_SQUARE = 1e-280  # a sum of squares above it has lost nothing to underflow


@dataclass(frozen=True)
class GD:
    """Gradient descent, ``W ← W − step · ∇`` (T24 Sec. 5; L24 Algo-GD)."""

    step: float

    def __post_init__(self):
        _require_positive_step(self.step)

    def _start(self, problem, W):
        if problem.gram is None:
            return _each(W, lambda k: self.step * problem.gradient(W))
        # The scores move by R G: one product a step instead of two, and W can wait for a record.
        gram, start, scores = self.step * problem.gram, W.copy(), problem.scores(W)
        R, total = np.empty_like(scores), np.zeros_like(scores)

        def settle():
            np.subtract(start, self.step * problem.pull_back(total), out=W)

        def advance(done, until):
            for k in range(done, until):
                if k % RESYNC == 0:  # or rounding would drive the scores away from those of W
                    settle()
                    start[...], scores[...], total[...] = W, problem.scores(W), 0.0
                np.add(total, problem.residuals(scores, R), out=total)
                np.subtract(scores, R @ gram, out=scores)
            settle()

        return advance


@dataclass(frozen=True)
class NGD:
    """Normalized gradient descent, ``W ← W − step · ∇/‖∇‖``; a zero gradient is a zero step."""

    step: float

    def __post_init__(self):
        _require_positive_step(self.step)

    def _start(self, problem, W):
        def move(k):
            gradient = problem.gradient(W)
            square = np.einsum("npq,npq->n", gradient, gradient)
            if square.min() < SAFE_SQUARE:
                largest = np.abs(gradient).max(axis=(1, 2), keepdims=True)
                gradient /= np.where(largest > 0, largest, np.inf)
                square = np.einsum("npq,npq->n", gradient, gradient)
                square[square == 0] = np.inf
            gradient *= (self.step / np.sqrt(square))[:, None, None]
            return gradient

        return _each(W, move)


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma & Ba 2015, Algorithm 1) and ``epsilon = 1e-8``."""

    step: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = field(default=1e-8, repr=False)

    def __post_init__(self):
        _require_positive_step(self.step)
        for name in ("beta1", "beta2"):
            require_number(name, getattr(self, name), lambda x: 0 <= x < 1, "lie in [0, 1)")
        require_number("epsilon", self.epsilon, lambda x: x > 0, "be positive")

    def _start(self, problem, W):
        first, second = np.zeros_like(W), np.zeros_like(W)

        def move(k):
            gradient = problem.gradient(W)
            first.__imul__(self.beta1).__iadd__((1 - self.beta1) * gradient)
            second.__imul__(self.beta2).__iadd__((1 - self.beta2) * gradient**2)
            rate = self.step / (1 - self.beta1**k)
            return rate * first / (np.sqrt(second / (1 - self.beta2**k)) + self.epsilon)

        return _each(W, move)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with batches drawn with replacement (T24 002, footnote 8).

    ``over="sequences"`` draws (context, next token) pairs from ``π_j p_jz``, as training on the
    raw sequences does; ``over="contexts"`` draws contexts from ``π_j`` and uses their whole law.
    Problem ``i`` of a batch draws from ``default_rng([seed, i])``.
    """

    step: float
    batch_size: int = 1
    seed: int = 0
    over: str = "contexts"

    def __post_init__(self):
        _require_positive_step(self.step)
        as_integer("batch_size", self.batch_size, 1)
        as_integer("seed", self.seed, 0)
        if not isinstance(self.over, str) or self.over not in ("contexts", "sequences"):
            raise ValueError(f'over is {self.over!r}; it must be "contexts" or "sequences"')

    def _start(self, problem, W):
        draws = [self._draws(i, *x) for i, x in enumerate(zip(problem.pi, problem.P, strict=True))]

        def move(k):
            pi, target = (np.stack(x) for x in zip(*map(next, draws), strict=True))
            return self.step * problem.gradient(W, pi, target)

        return _each(W, move)

    def _draws(self, i, pi, P, block=256):
        """Yield the batch's context frequencies, shape (1, m), and targets, shape (V, m)."""
        rng = np.random.default_rng([int(self.seed), i])
        law = pi if self.over == "contexts" else pi * P
        while True:
            counts = rng.multinomial(int(self.batch_size), law.ravel() / law.sum(), size=block)
            for drawn in counts.reshape(block, *law.shape) / self.batch_size:
                context = drawn.sum(0, keepdims=True)
                yield context, context * P if self.over == "contexts" else drawn


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded matrices of a run; for a batch of n problems every array but ``steps`` leads with n.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
    W : ndarray, shape (r, p, q)
    loss : ndarray, shape (r,)
        Cross-entropy in nats.
    excess : ndarray, shape (r,)
        Cross-entropy minus entropy in nats, without cancellation.
    norm : ndarray, shape (r,)
        Frobenius norm of ``W``.
    """

    steps: np.ndarray
    W: np.ndarray
    loss: np.ndarray
    excess: np.ndarray
    norm: np.ndarray

    def compare(self, finite, svm):
        """Compare each record with the theory.

        Parameters
        ----------
        finite : FinitePart, or a list of n for a batch
        svm : MarginSolution, or a list of n for a batch

        Returns
        -------
        Comparison

        Raises
        ------
        ValueError
            A list of the wrong length, or one of the two is a list and the other is not.
        """
        if self.W.ndim == 3 and isinstance(finite, FinitePart):
            return compare_with(self.W, finite, svm)
        n = len(self.W)
        lengths = [len(x) if isinstance(x, list | tuple) else None for x in (finite, svm)]
        if self.W.ndim == 3 or lengths != [n, n]:
            raise ValueError(
                f"finite and svm have lengths {lengths} (None: not a list) for "
                f"{'one run' if self.W.ndim == 3 else f'a batch of {n} runs'}; "
                "give one of each per problem"
            )
        each = [compare_with(W, f, s) for W, f, s in zip(self.W, finite, svm, strict=True)]
        return Comparison(*(np.stack([getattr(c, f) for c in each]) for f in vars(each[0])))


def descend(data, method, steps, init=None, record=None):
    """Run a gradient method on the cross-entropy.

    Parameters
    ----------
    data : NextTokenData, or a list of n with equal shapes
        A list runs as one batched computation.
    method : GD, NGD, Adam or SGD
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
        Problems of different shapes, an ``init`` of the wrong shape, or an unusable ``record``.

    References
    ----------
    T24 (002) Sec. 5 and App. A; L24 (004) Sec. 5.
    """
    single = not isinstance(data, list | tuple)
    problems = [data] if single else list(data)
    problem = ProblemBatch(problems)
    record = record_grid(steps, record)
    kept = iterate(problem, method, record, start_at(problems, init, single))
    loss, excess = (
        np.stack([f(w, d) for w, d in zip(kept, problems, strict=True)])
        for f in (cross_entropy, excess_loss)
    )
    norm = np.linalg.norm(kept, axis=(-2, -1))
    if single:
        kept, loss, excess, norm = kept[0], loss[0], excess[0], norm[0]
    return Trace(record, kept, loss, excess, norm)


def start_at(problems, init, single):
    """Return fresh starting points, shape (n, p, q), or explain what is wrong with ``init``."""
    W = np.zeros((len(problems), *problems[0].shape))
    if init is not None:
        init = as_weights("init", init, problems[0])
        needed = W.shape[1:] if single else W.shape
        if init.shape != needed:
            raise ValueError(f"init has shape {init.shape}; it needs {needed}")
        W += init
    return W


def iterate(problem, method, record, W):
    """Move ``W``, shape (n, p, q), in place; the recorded matrices, shape (n, r, p, q)."""
    kept = np.empty((len(record), *W.shape))
    if not isinstance(method, GD | NGD | Adam | SGD):
        raise TypeError(
            f"method is of type {type(method).__name__}; one of GD, NGD, Adam or SGD is needed"
        )
    with np.errstate(all="ignore"):
        advance, done = method._start(problem, W), 0
    for r, until in enumerate(record):
        with np.errstate(all="ignore"):
            advance(done, until)
        if not (largest := np.abs(W).max()) <= LARGEST:  # NaN too
            raise ValueError(
                f"step is {method.step:g}, too large: after {until} steps W has the entry "
                f"{largest:g}; none may be larger than {LARGEST:g}"
            )
        kept[r], done = W, until
    return np.swapaxes(kept, 0, 1)


def _each(W, move):
    """From ``move(k)``, the decrement of step ``k``, a function that takes many steps."""

    def advance(done, until):
        for k in range(done + 1, until + 1):
            np.subtract(W, move(k), out=W)

    return advance


def log_grid(steps):
    """Increasing integers from 0 to ``steps``, about 200 of them, evenly spaced in log(1 + k)."""
    grid = np.expm1(np.linspace(0, np.log1p(steps), RECORDS_PER_RUN))
    return np.unique(np.rint(grid).astype(np.int64))


def record_grid(steps, record=None):
    """Return the steps to record, shape (r,), or explain what is wrong with the two arguments."""
    steps = as_integer("steps", steps, 0)
    if record is None:
        return log_grid(steps)
    record = as_indices("record", record)
    good = record.ndim == 1 and record.size
    if not (good and (np.diff(record) > 0).all() and record[0] >= 0 and record[-1] <= steps):
        raise ValueError(f"record must be increasing integers between 0 and steps = {steps}")
    return record


def _require_positive_step(step):
    require_number("step", step, lambda x: x > 0, "be positive and finite")
