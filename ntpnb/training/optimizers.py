"""Gradient methods, from GD to Adam and steepest descent: their settings and their steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from ntpnb.basics.matrix_norms import norm_named
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE
from ntpnb.basics.validation import (
    FloatArray,
    as_integer,
    require_choice,
    require_number,
    require_type,
)
from ntpnb.training.batch import BlockBatch, ProblemBatch

# A sum of squares above it has lost less than rounding to underflow.
SAFE_SQUARE = np.finfo(float).tiny / np.finfo(float).eps

SMALL_EPSILON = 1e-100  # Adam's, below which gradients whose squares underflow are not negligible

# Takes the steps done + 1 … until, and leaves W at the last of them.
Advance = Callable[[int, int], None]
# What step k takes away from W.
Decrement = Callable[[int], FloatArray]


@dataclass(frozen=True)
class Optimizer(ABC):
    """What all methods have in common: a step size, and one loop that takes steps.

    Parameters
    ----------
    step : float
        Step size, positive.

    Raises
    ------
    TypeError, ValueError
        A step that is no positive finite number.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.optimizers import Optimizer
    >>> isinstance(ntpnb.GD(step=0.5), Optimizer)
    True
    """

    step: float

    def __post_init__(self) -> None:
        require_number("step", self.step, lambda x: x > 0, "be positive and finite")

    def _begin(self, problem: ProblemBatch, W: FloatArray) -> Advance:
        """Return the function that moves ``W``, shape (n, p, q), in place from step to step."""
        decrement = self._decrements(problem, W)

        def advance(done: int, until: int) -> None:
            for k in range(done + 1, until + 1):
                np.subtract(W, decrement(k), out=W)

        return advance

    @abstractmethod
    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        """Return the function that computes each step's decrement from ``W`` as it then is."""


@dataclass(frozen=True)
class GD(Optimizer):
    """Gradient descent, ``W ← W − step · ∇``.

    Parameters
    ----------
    step : float
        Step size, positive.

    Raises
    ------
    TypeError, ValueError
        A step that is no positive finite number.

    References
    ----------
    T24 (002) Sec. 5; L24 (004) Algo-GD.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> ntpnb.descend(data, ntpnb.GD(step=0.5), 1).W[-1].ravel()
    array([ 0.5, -0.5])
    """

    def _begin(self, problem: ProblemBatch, W: FloatArray) -> Advance:
        if problem.gram is not None:
            return _descend_on_scores(self.step, problem.gram, problem, W)
        return super()._begin(problem, W)

    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        return lambda k: self.step * problem.gradient(W)


@dataclass(frozen=True)
class NGD(Optimizer):
    """Normalized gradient descent, ``W ← W − step · ∇/‖∇‖``; a zero gradient is a zero step.

    Parameters
    ----------
    step : float
        Length of every step, positive.

    Raises
    ------
    TypeError, ValueError
        A step that is no positive finite number.

    References
    ----------
    T24 (002) App. A; L24 (004) Sec. 5.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> ntpnb.descend(data, ntpnb.NGD(step=0.5), 4).norm.round(6)
    array([0. , 0.5, 1. , 1.5, 2. ])
    """

    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        problem.look_at_each_context()

        def decrement(k: int) -> FloatArray:
            gradient = problem.gradient(W)
            square = np.einsum("npq,npq->n", gradient, gradient)
            if square.min() < SAFE_SQUARE:  # bring the entries to size one before they are squared
                largest = np.abs(gradient).max(axis=(1, 2), keepdims=True)
                gradient /= np.where(largest > 0, largest, np.inf)
                square = np.einsum("npq,npq->n", gradient, gradient)
                square[square == 0] = np.inf  # a zero gradient is a zero step
            gradient *= (self.step / np.sqrt(square))[:, None, None]
            return gradient

        return decrement


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with bias correction.

    Parameters
    ----------
    step : float
        Step size, positive.
    beta1, beta2 : float
        How much of the running means of the gradient and of its square is kept, in [0, 1).
    epsilon : float
        Added to the root of the mean square, nonnegative. With zero, or less than 1e-100, the root
        is computed without squares, so that it loses nothing to underflow; with zero, an entry
        whose gradients have all been zero stays where it is.
    decay : float
        Step ``k`` has the size ``step / k**decay``; nonnegative. Default: 0, all alike.

    Raises
    ------
    TypeError, ValueError
        A setting outside its range.

    References
    ----------
    Kingma & Ba 2015, Algorithm 1. T24 (002) App. A uses it in experiments, with ``beta2 = 0.99``
    in place of the default here.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> ntpnb.descend(data, ntpnb.Adam(step=0.5), 1).W[-1].ravel().round(6)
    array([ 0.5, -0.5])
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = field(default=1e-8, repr=False)
    decay: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            require_number(name, getattr(self, name), lambda x: 0 <= x < 1, "lie in [0, 1)")
        for name in ("epsilon", "decay"):
            require_number(name, getattr(self, name), lambda x: x >= 0, "be nonnegative")

    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        problem.look_at_each_context()
        mean = np.zeros_like(W)
        # Of the mean square, or with next to no ε its root: squares underflow below 1e-154.
        size = np.zeros_like(W)

        def decrement(k: int) -> FloatArray:
            nonlocal mean, size
            gradient = problem.gradient(W)
            mean *= self.beta1
            mean += (1 - self.beta1) * gradient
            rate = _step_size(self, k) / (1 - self.beta1**k)  # bias correction of the mean
            bias = 1 - self.beta2**k  # of the mean square
            if self.epsilon < SMALL_EPSILON:
                size *= sqrt(self.beta2)
                np.hypot(size, sqrt(1 - self.beta2) * gradient, out=size)
                rate *= sqrt(bias)
                divisor = size + sqrt(bias) * self.epsilon
                divisor = np.where(divisor > 0, divisor, np.inf)
            else:
                size *= self.beta2
                size += (1 - self.beta2) * gradient**2
                divisor = np.sqrt(size / bias) + self.epsilon
            step: FloatArray = rate * mean / divisor
            return step

        return decrement


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with batches drawn with replacement.

    ``over="sequences"`` draws (context, next token) pairs from ``π_j p_jz``, as training on the
    raw sequences does (T24's Eq. (1)); ``over="contexts"`` draws contexts from ``π_j`` and uses
    their whole next-token distribution (Eq. (2)). Problem ``i`` of a batch draws from
    ``default_rng([seed, i])``.

    Parameters
    ----------
    step : float
        Step size, positive.
    batch_size : int
        Draws in each step, positive.
    seed : int
        Nonnegative.
    over : "contexts" or "sequences"

    Raises
    ------
    TypeError, ValueError
        A setting outside its range.

    References
    ----------
    T24 (002) Eqs (1)–(2) and footnote 8.

    Examples
    --------
    >>> import ntpnb
    >>> run = ntpnb.descend(ntpnb.datasets.toy(), ntpnb.SGD(step=0.1, seed=3), 50, record=[0, 50])
    >>> bool(run.loss[1] < run.loss[0])
    True
    """

    batch_size: int = 1
    seed: int = 0
    over: str = "contexts"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_integer("batch_size", self.batch_size, 1)
        as_integer("seed", self.seed, 0)
        require_choice("over", self.over, ("contexts", "sequences"))

    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        if isinstance(problem, BlockBatch):
            raise ValueError(
                f"data are too large for SGD: its samples are tables of all contexts and tokens, "
                f"with more than {WHOLE} entries; use GD, NGD or Adam"
            )
        samples = self._samples(problem)
        return lambda k: self.step * problem.gradient(W, *next(samples))

    def _samples(self, problem: ProblemBatch) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Endless mini-batches of all problems, as :meth:`ProblemBatch.gradient` takes them."""
        whole_distributions = self.over == "contexts"
        laws = problem.pi if whole_distributions else problem.target
        generators = [np.random.default_rng([int(self.seed), i]) for i in range(len(laws))]
        probabilities = [law.ravel() / law.sum() for law in laws]
        drawn = list(zip(generators, probabilities, strict=True))
        while True:
            counts = [rng.multinomial(int(self.batch_size), law) for rng, law in drawn]
            frequency = np.reshape(counts, laws.shape) / self.batch_size
            # Over the tokens; a frequency of whole distributions has one row only and stays.
            contexts = frequency.sum(1, keepdims=True)
            yield contexts, contexts * problem.P if whole_distributions else frequency


@dataclass(frozen=True)
class SteepestDescent(Optimizer):
    """Steepest descent in a norm ``N`` of matrices, ``W ← W − s_k Δ_k``.

    ``Δ_k`` is a matrix with ``N(Δ_k) = 1`` whose inner product with the gradient is as large as the
    norm allows, that is, equal to the dual norm ``N_*(∇)``; a zero gradient is a zero step. The
    length of step ``k`` is ``s_k = step · N_*(∇) / k**decay``, or, normalized, ``step / k**decay``.

    In the max norm, ``Δ`` holds the signs of the gradient's entries; in the spectral norm it is the
    product ``U Vᵀ`` of its singular vectors, which with momentum is Muon; in the Frobenius norm the
    method is GD, and normalized it is NGD.

    Parameters
    ----------
    step : float
        Positive.
    norm : str
        ``"frobenius"``, ``"max"``, ``"sum"``, ``"spectral"`` or ``"nuclear"``.
    normalized : bool
        Whether the length of a step is independent of the gradient's. Default: False.
    decay : float
        Nonnegative. Default: 0.
    momentum : float
        How much of a running mean of the gradients is kept, in [0, 1); the mean takes the place of
        the gradient. Default: 0.

    Raises
    ------
    TypeError, ValueError
        A setting outside its range.

    References
    ----------
    Gunasekar, Lee, Soudry & Srebro 2018; normalized: Fan, Schmidt & Thrampoulidis 2025.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0, 1.0]], [[1.0, 0.0]])
    >>> signs = ntpnb.SteepestDescent(0.25, "max", normalized=True)
    >>> ntpnb.descend(data, signs, 2).W[-1].tolist()
    [[0.5, 0.5], [-0.5, -0.5]]
    """

    norm: str
    normalized: bool = False
    decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        norm_named(self.norm)
        require_type("normalized", self.normalized, bool, "True or False")
        require_number("decay", self.decay, lambda x: x >= 0, "be nonnegative")
        require_number("momentum", self.momentum, lambda x: 0 <= x < 1, "lie in [0, 1)")

    def _decrements(self, problem: ProblemBatch, W: FloatArray) -> Decrement:
        problem.look_at_each_context()
        norm = norm_named(self.norm)
        mean = np.zeros_like(W)

        def decrement(k: int) -> FloatArray:
            nonlocal mean
            gradient = problem.gradient(W)
            if self.momentum:
                mean = self.momentum * mean + (1 - self.momentum) * gradient
            else:
                mean = gradient
            direction = norm.steepest(mean)
            length = _step_size(self, k)
            if self.normalized:
                return length * direction
            dual_norm: FloatArray = np.einsum("npq,npq->n", mean, direction)
            return (length * dual_norm[:, None, None]) * direction

        return decrement


def _descend_on_scores(
    step: float, gram: FloatArray, problem: ProblemBatch, W: FloatArray
) -> Advance:
    """Gradient descent on the scores of one-hot tokens: one product a step instead of two.

    A step moves the scores by ``−η R G``, with the residuals ``R`` and the inner products ``G`` of
    the contexts' embeddings. ``W`` is needed only where it is recorded: it is the start minus η
    times the pulled back sum of all residuals since.
    """
    step_gram = step * gram
    start = W.copy()
    scores = problem.scores(W)
    buffer = np.empty_like(scores)
    residual_sum = np.zeros_like(scores)

    def write_weights() -> None:
        np.subtract(start, step * problem.pull_back(residual_sum), out=W)

    def advance(done: int, until: int) -> None:
        for k in range(done, until):
            if k % 100 == 0:  # or rounding would drive the scores away from those of W
                write_weights()
                start[...] = W
                scores[...] = problem.scores(W)
                residual_sum[...] = 0.0
            residuals = problem.residuals(scores, buffer)
            np.add(residual_sum, residuals, out=residual_sum)
            np.subtract(scores, product(residuals, step_gram), out=scores)
        write_weights()

    return advance


def _step_size(method: Adam | SteepestDescent, k: int) -> float:
    """``step / k**decay``."""
    return float(method.step / k**method.decay)
