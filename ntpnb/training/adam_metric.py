"""The metric in which Adam maximises the margin, from its bouncing in the bowl: nothing is trained.

On the tied subspace F the loss is a bowl, and near its floor ``W*`` a quadratic one, with a Hessian
A. Adam divides each entry of a step by the root mean square of that entry's gradients, so that it
ignores any factor that all gradients have in common. With ε = 0 and steps ``s_k`` that are fixed
and small, or decay like ``k^-a`` with ``a < 1``, the rescaled distance ``y = (W − W*)/s_k`` on F
therefore moves as Adam with step one does on ``½⟨y, A y⟩``, up to what vanishes with ``s_k`` and
``1/k``. As far as this process forgets its start and what vanishes, which is a hypothesis, the root
mean square D of its gradients depends on contexts, supports, odds and betas alone. That what Adam
adds outside F tends to the separating matrix of least ``Σ D W²`` is a conjecture, and measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Result
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import WHOLE
from ntpnb.basics.validation import (
    BoolArray,
    FloatArray,
    Seed,
    as_array,
    as_integer,
    as_seed,
    require_number,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.bias import ImplicitBias
from ntpnb.problem.data import NextTokenData
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.coordinates import bias_within
from ntpnb.training.descent import paced
from ntpnb.training.optimizers import Adam

STARTS = 2  # the fewest that can disagree; they share each step's products


@dataclass(frozen=True, eq=False, repr=False)
class AdamMetric(Result):
    """The metric of Adam's bouncing in the bowl, and how well it is known.

    Attributes
    ----------
    D : ndarray, shape (V, d)
        Root mean square, entry by entry, of the gradients of Adam with unit step on the quadratic
        bowl, divided by its largest entry. An entry is zero exactly where the tied tokens give it
        no gradient at all: a token that is nowhere one of several, or a coordinate that is zero in
        all contexts of such tokens.
    error : float
        Standard error of ``log D``, root mean square over the positive entries: the larger one of
        that from four blocks, two halves of two starts, and that from the two starts. The first
        measures how much longer the run should have been, the second whether the two starts end in
        the same process. Where a bowl has two processes, as some have with betas 0 and 0.9, the two
        starts agree by chance about half the time, and the error does not tell.
    betas : ndarray, shape (2,)
        Those of Adam.
    steps : int
        Of each start, the forgotten ones included.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.adam_metric(ntpnb.datasets.toy(), betas=(0.9, 0.99), steps=4000)
    >>> found.D.shape, found.D.max(), found.error < 0.02
    ((5, 2), np.float64(1.0), True)
    """

    D: FloatArray
    error: float
    betas: FloatArray
    steps: int

    def _checked(self) -> Self:
        """The metric that a file describes, if it could be one."""
        as_array("AdamMetric.D", self.D, ndim=2)
        require_number("AdamMetric.error", self.error, lambda x: x >= 0, "be a nonnegative number")
        _marks(_unit_adam(self.betas), self.steps)
        return self


@one_thread
def adam_metric(
    data: NextTokenData | ImplicitBias,
    betas: Sequence[float] = (0.9, 0.999),
    steps: int = 40_000,
    seed: Seed = 0,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> AdamMetric:
    r"""Predict the metric of Adam with ε = 0 and small or decaying steps, without training.

    At the floor of the bowl context ``j`` has the probabilities ``q_j`` of
    ``implicit_bias(data).twin``: the targets themselves where the data are compatible. There the
    gradient is linear, ``G(y) = Σ_j π_j (diag q_j − q_j q_jᵀ) y h_j h_jᵀ``, and sees of ``y`` only
    its part on F. Two random starts take ``steps`` steps of :class:`Adam` with ``step=1`` and
    ``epsilon=0`` down this gradient, and never rest; once both have forgotten where they began,
    ``D`` is the root of the mean of ``G²``.

    Where all entries of ``D`` are positive, Adam's limit is ``W^D``, the separating matrix of least
    ``Σ D_vi W_vi²``. That is a conjecture, measured and proved in special cases: the book's page
    "Adam's limit without training" says which. Where an entry of ``D`` is zero there is no ``W^D``:
    the steps of such an entry stay of full length while all others bounce, so that it outruns them.

    As ``beta2`` tends to one, ``D`` comes near the diagonal matrix of least trace above the Hessian
    of the bowl, whatever ``beta1``; the same page derives this by averaging, and measures it.

    Data that are not separable have a bowl too, of all pairs that stay finite; then ``D`` is the
    metric of the twin, in which the pairs are won that can be.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
        Of a linear decoder, that is, without token embeddings.
    betas : two floats
        ``beta1`` and ``beta2`` of Adam, in [0, 1).
    steps : int
        At least 16 memories of ``1/(1 − β)`` steps, with the larger β; the first 8 are left out of
        ``D``. Default: 40,000, four fifths of which are measured with ``beta2 = 0.999``: an error
        of two or three thousandths on random problems, in a few seconds.
    seed : int or sequence of int
        Of the starts, standard normal on F: a step's length from the floor.
    seconds : float, optional
        Time limit; it includes what is computed of the theory, unless ``data`` is a bias, which has
        a limit of its own. Default: none.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the computation.

    Returns
    -------
    AdamMetric

    Raises
    ------
    TypeError
        Something else than data or a bias, or an argument of the wrong type.
    ValueError
        F is {0}, so that there is no bowl; token embeddings; contexts × tokens of more than 2²⁴;
        or an argument out of range, such as too few steps for the betas.
    ConvergenceError
        The time is over; the twin is undecided, see :attr:`ImplicitBias.twin`; or Adam came to
        rest at the floor, which rounding can do where F has one dimension.

    References
    ----------
    T24 (002) Sec. 7 asks for the bias of Adam; ``D`` is the metric of Theorem 2's gradient descent
    that takes its place.

    Examples
    --------
    One context with two next tokens: gradients are multiples of one matrix, and D is its size.

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[2.0, -1.0]], [[0.7, 0.3]])
    >>> ntpnb.adam_metric(data).D.round(6)
    array([[1. , 0.5],
           [1. , 0.5]])
    """
    watch = Watch(seconds, progress)
    seed = as_seed("seed", seed)
    method = _unit_adam(betas)
    marks = _marks(method, as_integer("steps", steps, 1))
    bias = bias_within(data, watch)
    _require_linear_decoder(bias.data)
    twin = bias.twin
    _require_bowl(twin.data)
    bowl = _Bowl(twin.data)
    draws = np.random.default_rng(seed).standard_normal((STARTS, *twin.data.shape))
    # Only the part on F bounces, and rounding spares it most where it is all that there is.
    y = twin.equal_subspace.project(draws)
    advance = method._begin(bowl, y)
    taken = []
    for step in paced(advance, np.array(marks), watch, "bowl of Adam"):
        if step not in marks:
            raise ConvergenceError(f"{watch.stopped}: {step} of {marks.end} steps", np.inf)
        taken.append(bowl.squares / (marks.end - marks.half))
        bowl.squares[...] = 0.0
    halves = np.stack(taken[1:])  # the first mark ends what is forgotten
    _require_bouncing(np.concatenate(halves))
    root = np.sqrt(halves.mean(axis=(0, 1)))
    return AdamMetric(
        D=root / root.max(),
        error=_error_of_logs(halves[:, :, root > 0]),
        betas=np.array([method.beta1, method.beta2]),
        steps=marks.end,
    )


class _Bowl(ProblemBatch):
    """The quadratic bowl at the floor of the loss, for several starts; it notes what it is asked.

    Parameters
    ----------
    twin : NextTokenData
        Whose targets are met at the floor.
    """

    def __init__(self, twin: NextTokenData) -> None:
        H = twin.context_embeddings
        # Adam ignores a factor of the gradient, and without it the squares are of ordinary size.
        super().__init__([twin.replace(context_embeddings=H / np.abs(H).max())] * STARTS)
        self.squares = np.zeros((STARTS, *twin.shape))  # of the gradients so far

    def gradient(
        self, W: FloatArray, pi: FloatArray | None = None, target: FloatArray | None = None
    ) -> FloatArray:
        """``Σ_j π_j (diag q_j − q_j q_jᵀ) W h_j h_jᵀ`` of each start, shape (n, V, d)."""
        scores = self.scores(W)
        means = (self.P * scores).sum(axis=1, keepdims=True)
        G = self.pull_back(self.target * (scores - means))
        self.squares += G**2
        return G


class _Marks(NamedTuple):
    """Steps at which the start is forgotten, the first half of the rest ends, and the second."""

    forgotten: int
    half: int
    end: int


def _marks(method: Adam, steps: int) -> _Marks:
    """Divide the steps, or explain why they are too few."""
    memory = 1 / (1 - max(method.beta1, method.beta2))
    # After eight memories e⁻⁸ of the start is left, 0.03 per cent: less than the error of the usual
    # number of steps.
    forgotten = round(8 * memory)
    if steps < 2 * forgotten:
        raise ValueError(
            f"steps is {steps}; with betas {method.beta1:g} and {method.beta2:g} it must be at "
            f"least {2 * forgotten}, the first half of which Adam needs to forget its start"
        )
    half = (steps - forgotten) // 2
    return _Marks(forgotten, forgotten + half, forgotten + 2 * half)


def _unit_adam(betas: ArrayLike) -> Adam:
    """Adam with step one and ε = 0, or an explanation of what is wrong with the betas."""
    beta1, beta2 = as_array("betas", betas, ndim=1, shape=(2,)).tolist()
    return Adam(1.0, beta1, beta2, epsilon=0.0)


def _require_linear_decoder(data: NextTokenData) -> None:
    if data.token_embeddings is not None:
        raise ValueError(
            "data have token embeddings; adam_metric needs a linear decoder, without them"
        )
    num_entries = data.num_contexts * data.vocab_size
    if num_entries > WHOLE:
        raise ValueError(
            f"data are too large for adam_metric: contexts times tokens are {num_entries}; at "
            f"most {WHOLE} are possible"
        )


def _require_bowl(twin: NextTokenData) -> None:
    several: BoolArray = (twin.target_probs > 0).sum(axis=1) > 1
    if not twin.context_embeddings[several].any():
        raise ValueError(
            "data have no bowl, F is {0}: adam_metric needs a context with two next tokens and an "
            "embedding that is not zero; without one Adam's gradients vanish"
        )


def _require_bouncing(blocks: FloatArray) -> None:
    moves: BoolArray = blocks > 0
    if not (moves == moves[0]).all() or not moves.any():
        raise ConvergenceError(
            "Adam came to rest at the floor of the bowl, which is rounding; use another seed, or a "
            "smaller beta2",
            np.inf,
        )


def _error_of_logs(mean_squares: FloatArray) -> float:
    """Standard error of log D from mean squares, shape (halves, starts, entries)."""
    logs = np.log(mean_squares) / 2
    logs -= logs.mean(axis=2, keepdims=True)  # D is known up to a factor
    blocks = logs.reshape(-1, logs.shape[2])
    starts = logs.mean(axis=0)
    return max(_standard_error(blocks), _standard_error(starts))


def _standard_error(samples: FloatArray) -> float:
    """Of the mean of some samples of each entry, shape (n, entries): root mean square."""
    return float(np.sqrt(samples.var(axis=0, ddof=1).mean() / len(samples)))
