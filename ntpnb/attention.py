"""What only L24 has: general heads and losses, and the local graphs of what training selects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax, softmax

from ntpnb.basics.saving import Recorded
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    as_floats,
    require_function,
    require_number,
    require_type,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import as_weights, candidate_logits
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.descent import iterate, record_grid, require_all_steps, start_at
from ntpnb.training.optimizers import GD, NGD, SGD, Adam, SteepestDescent

# From outputs, shape (n, V, m), and labels, shape (n, 1, m), to the losses, shape (n, m), and their
# derivatives along the outputs, shape (n, V, m).
HeadLoss = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]

__all__ = [
    "HeadTrace",
    "attention_mass",
    "cross_entropy",
    "descend_head",
    "pseudo_data",
    "softmax_squared",
    "squared",
]

# -- losses of a general head ---------------------------------------------------------------------


def squared(outputs: FloatArray, label: IntArray) -> tuple[FloatArray, FloatArray]:
    """``(1 − o_y)²``, as L24 prints the loss of Fig. 5; ``o = C Xᵀ s`` is the head's output.

    Parameters
    ----------
    outputs : ndarray, shape (n, V, m)
        Of n problems with m rows each.
    label : ndarray of int, shape (n, 1, m)

    Returns
    -------
    values : ndarray, shape (n, m)
    derivatives : ndarray, shape (n, V, m)
        Along the outputs.

    References
    ----------
    L24 (004) Sec. 6, Fig. 5.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb import attention
    >>> values, _ = attention.squared(np.array([[[0.25], [0.0]]]), np.array([[[0]]]))
    >>> values.tolist()
    [[0.5625]]
    """
    miss = 1 - np.take_along_axis(outputs, label, axis=-2)
    derivatives = np.zeros_like(outputs)
    np.put_along_axis(derivatives, label, -2 * miss, axis=-2)
    return miss[..., 0, :] ** 2, derivatives


def softmax_squared(outputs: FloatArray, label: IntArray) -> tuple[FloatArray, FloatArray]:
    """``(1 − softmax(o)_y)²``, with which L24's Fig. 5a comes out as printed.

    Parameters
    ----------
    outputs : ndarray, shape (n, V, m)
    label : ndarray of int, shape (n, 1, m)

    Returns
    -------
    values : ndarray, shape (n, m)
    derivatives : ndarray, shape (n, V, m)
        Along the outputs.

    References
    ----------
    L24 (004) Fig. 5, which prints :func:`squared`.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb import attention
    >>> values, _ = attention.softmax_squared(np.zeros((1, 2, 1)), np.array([[[0]]]))
    >>> values.tolist()
    [[0.25]]
    """
    q = softmax(outputs, axis=-2)
    hit = np.take_along_axis(q, label, axis=-2)
    one_hot = np.zeros_like(outputs)
    np.put_along_axis(one_hot, label, 1.0, axis=-2)
    derivatives = -2 * (1 - hit) * hit * (one_hot - q)
    return (1 - hit[..., 0, :]) ** 2, derivatives


def cross_entropy(outputs: FloatArray, label: IntArray) -> tuple[FloatArray, FloatArray]:
    """``−log softmax(o)_y`` in nats, the loss of L24's Fig. 6.

    Parameters
    ----------
    outputs : ndarray, shape (n, V, m)
    label : ndarray of int, shape (n, 1, m)

    Returns
    -------
    values : ndarray, shape (n, m)
    derivatives : ndarray, shape (n, V, m)
        Along the outputs.

    References
    ----------
    L24 (004) Fig. 6.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb import attention
    >>> values, _ = attention.cross_entropy(np.zeros((1, 2, 1)), np.array([[[0]]]))
    >>> values.round(4).tolist()  # log 2
    [[0.6931]]
    """
    log_probs = log_softmax(outputs, axis=-2)
    own = np.take_along_axis(log_probs, label, axis=-2)
    derivatives = np.exp(log_probs)
    np.put_along_axis(derivatives, label, np.expm1(own), axis=-2)
    return -own[..., 0, :], derivatives


# -- training with a general head -----------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class HeadTrace(Recorded):
    """Recorded matrices of training with a general head; a batch of n leads every array but steps.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
    W : ndarray, shape (r, d, d)
    loss : ndarray, shape (r,)
    norm : ndarray, shape (r,)

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb import attention
    >>> data = ntpnb.datasets.figure2()
    >>> run = attention.descend_head(data, attention.squared, ntpnb.GD(0.1), 5, record=[0, 5])
    >>> run.steps.tolist(), run.W.shape
    ([0, 5], (2, 4, 4))
    """

    steps: IntArray
    W: FloatArray
    loss: FloatArray
    norm: FloatArray


@one_thread
def descend_head(
    data: NextTokenData | list[NextTokenData] | tuple[NextTokenData, ...],
    loss: HeadLoss,
    method: GD | NGD | Adam | SteepestDescent,
    steps: int,
    init: ArrayLike | None = None,
    record: ArrayLike | None = None,
    head: ArrayLike | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> HeadTrace:
    """Train attention weights under a general linear head and loss.

    The risk is the mean over rows of ``loss(C Eᵀ q_j, y_j)``, where ``q_j`` is the attention mass
    on each token.

    Parameters
    ----------
    data : NextTokenData from ``from_attention``, or a list of n with equal shapes
    loss : callable
        :func:`squared`, :func:`softmax_squared`, :func:`cross_entropy`, or any function of outputs,
        shape (n, V, m), and labels, shape (n, 1, m), that returns values, shape (n, m), and
        derivatives, shape (n, V, m).
    method : GD, NGD, Adam or SteepestDescent
    steps : int
    init : array_like, shape (d, d), or (n, d, d) for a list, optional
        Default: zeros.
    record : increasing sequence of int, optional
        Default: about 200 steps on a logarithmic grid.
    head : array_like, shape (V, d), or (n, V, d) for a list, optional
        The classifier ``C``. Default: the token embeddings, which satisfy L24's Assumption 3 when
        they have unit norm.
    seconds, progress : optional
        As in :func:`ntpnb.descend`.

    Returns
    -------
    HeadTrace

    Raises
    ------
    ConvergenceError
        The time is over. ``.point`` is the trace of the records that were reached; its last is the
        step at which the run was stopped. ``.residual`` is the loss there, the largest of a batch.
    ValueError
        Data without one-hot labels or token embeddings, shapes that do not fit, or a ``loss`` that
        returns something else.
    TypeError
        ``data`` that are none, a ``loss`` that cannot be called, or SGD.

    References
    ----------
    L24 (004) Sec. 6, Figs 5–6.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb import attention
    >>> data = ntpnb.datasets.figure2()
    >>> run = attention.descend_head(data, attention.cross_entropy, ntpnb.NGD(0.1), 50)
    >>> bool(run.loss[-1] < run.loss[0])
    True
    """
    single = not isinstance(data, list | tuple)
    problems = list(data) if isinstance(data, list | tuple) else [data]
    require_function("loss", loss)
    if isinstance(method, SGD):
        raise TypeError(
            "method is SGD, which is for the log-loss; one of GD, NGD, Adam, SteepestDescent is "
            "needed"
        )
    for i, problem in enumerate(problems):
        require_type("data" if single else f"data[{i}]", problem, NextTokenData)
        has_one_label = problem.support.sum(1) == 1
        if problem.token_embeddings is None or not has_one_label.all():
            raise ValueError(f"data[{i}] needs token_embeddings and one label per row")
    batch = _HeadBatch(problems, loss, head)
    grid = record_grid(steps, record)
    watch = Watch(seconds, progress)
    now = start_at(problems, init, single)
    risks: list[FloatArray] = []
    run = iterate(batch, method, grid, now, watch, lambda: risks.append(batch.risk(now)))
    losses = np.stack(risks, axis=1)
    which = 0 if single else slice(None)
    norm = np.linalg.norm(run.W, axis=(-2, -1))
    trace = HeadTrace(run.steps, run.W[which], losses[which], norm[which])
    require_all_steps(watch, trace.steps, grid, trace.loss, trace, above="")
    return trace


class _HeadBatch(ProblemBatch):
    """Same-shaped attention problems, whose outputs a general head reads."""

    def __init__(
        self, problems: Sequence[NextTokenData], loss: HeadLoss, head: ArrayLike | None
    ) -> None:
        super().__init__(problems)
        assert self.T is not None  # descend_head has seen the token embeddings
        assert self.Tt is not None
        self.loss = loss
        C = self.T if head is None else as_floats("head", head)
        if C.shape not in (self.T.shape, self.T.shape[1:]):
            raise ValueError(
                f"head has shape {C.shape}; it needs {self.T.shape[1:]}, or {self.T.shape} for "
                "one head per problem"
            )
        if not np.isfinite(C).all():
            raise ValueError("head has entries that are not finite")
        self.head_scores = C @ self.Tt  # c_k · e_v, shape (V, V) or (n, V, V)
        self.label: IntArray = self.P.argmax(1)[:, None, :]
        self._require_loss()

    def _require_loss(self) -> None:
        """Raise unless the loss returns values and derivatives of the right shapes."""
        outputs = self.head_scores @ np.full_like(self.P, 1 / self.P.shape[1])
        found = self.loss(outputs, self.label)
        needed = [self.pi[:, 0].shape, outputs.shape]
        shapes = list(map(np.shape, found)) if isinstance(found, tuple | list) else None
        if shapes != needed:
            what = type(found).__name__ if shapes is None else f"arrays of shapes {shapes}"
            raise ValueError(
                f"loss returned {what}; a pair of values and derivatives of shapes {needed} is "
                "needed"
            )

    def risk(self, W: FloatArray) -> FloatArray:
        """Mean loss of each problem, shape (n,)."""
        outputs = self.head_scores @ self.probabilities(W)
        values, _ = self.loss(outputs, self.label)
        risks: FloatArray = (values * self.pi[:, 0]).sum(1)
        return risks

    def residuals(
        self,
        S: FloatArray,
        out: FloatArray,
        pi: FloatArray | None = None,
        target: FloatArray | None = None,
    ) -> FloatArray:
        """Derivatives of the risk along the attention scores ``S``, of the same shape (n, V, m).

        Samples, which ``pi`` and ``target`` describe, are for the log-loss only.
        """
        assert pi is None  # descend_head has refused SGD
        assert target is None
        Q = self.softmax(S, out)
        _, derivatives = self.loss(self.head_scores @ Q, self.label)
        slope = np.swapaxes(self.head_scores, 1, 2) @ derivatives
        R = Q * slope
        R -= Q * (self._ones @ R)
        R *= self.pi
        # As in the log-loss, for the token that attention favours: its entry from the others, which
        # keep their digits when its mass rounds to one.
        is_favoured = np.arange(Q.shape[1])[:, None] == Q.argmax(1)[:, None]
        others = np.where(is_favoured, 0.0, R)
        return np.where(is_favoured, -(self._ones[:1] @ others), others)


# -- what attention selects -----------------------------------------------------------------------


def attention_mass(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Attention on each token of each row: occurrences of a token add up.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    ndarray, shape (..., m, V)
        Each row sums to one.

    Raises
    ------
    ValueError
        ``W`` has the wrong shape or is not finite.

    References
    ----------
    L24 (004) Sec. 3, Eq. (1).

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(2), [[0, 0, 0, 1]], [0])
    >>> ntpnb.attention.attention_mass(np.zeros((2, 2)), data).round(9).tolist()
    [[0.75, 0.25]]
    """
    mass: FloatArray = softmax(candidate_logits(as_weights("W", W, data), data), axis=-1)
    return mass


def pseudo_data(
    W: ArrayLike, data: NextTokenData, threshold: float = 1e-2, ignore_below: float = 9e-3
) -> NextTokenData:
    """Replace each row's label by what trained attention selects.

    A token is selected where its attention mass exceeds ``threshold``; masses between
    ``ignore_below`` and ``threshold`` are too close to call, and such tokens leave the row. The
    token-priority graph of the result is L24's pseudo-TPG, and its max-margin problem and finite
    subspace are the local ones. L24 prints "s > 0", which every finite W satisfies.

    Parameters
    ----------
    W : array_like, shape (d, d)
    data : NextTokenData
    threshold, ignore_below : float

    Returns
    -------
    NextTokenData
        With the attention mass on the selected tokens, rescaled, as target.

    Raises
    ------
    ValueError
        Thresholds that are not ``0 < ignore_below <= threshold < 1/V``, with which a row could
        select nothing.

    References
    ----------
    L24 (004) Sec. 6.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
    >>> W = [[0, 0, 9], [0, 0, 9], [0, 0, 0]]  # equal attention to the tokens 0 and 1
    >>> ntpnb.attention.pseudo_data(W, data).support.tolist()
    [[True, True, False]]
    """
    weights = as_weights("W", W, data)
    if weights.ndim != 2:
        raise ValueError(f"W has shape {weights.shape}; it needs {data.shape}")
    for name, value in (("threshold", threshold), ("ignore_below", ignore_below)):
        require_number(name, value, lambda x: True, "be a number")
    if not 0 < ignore_below <= threshold < 1 / data.vocab_size:
        raise ValueError(
            f"threshold is {threshold:g} and ignore_below {ignore_below:g}; they must satisfy "
            f"0 < ignore_below <= threshold < 1/V = {1 / data.vocab_size:g}"
        )
    mass = attention_mass(weights, data)
    selected = mass > threshold
    clearly_not_selected = mass <= ignore_below
    target = np.where(selected, mass, 0.0)
    return data.replace(
        target_probs=target / target.sum(1, keepdims=True),
        candidate_counts=np.where(selected | clearly_not_selected, counts_or_ones(data), 0.0),
    )
