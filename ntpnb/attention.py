"""What is L24's alone: general heads and losses, and the pseudo graphs of what training selects."""

from dataclasses import dataclass

import numpy as np

from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.loss import as_weights, logits
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.descent import iterate, record_grid, start_at
from ntpnb.training.optimizers import SGD
from ntpnb.validation import as_floats, require_number


def squared(outputs, label):
    """``(1 − o_y)²``, as L24 prints the loss of Fig. 5; ``o = C Xᵀ s`` is the head's output."""
    miss = 1 - np.take_along_axis(outputs, label, axis=-2)
    slope = np.zeros_like(outputs)
    np.put_along_axis(slope, label, -2 * miss, axis=-2)
    return miss[..., 0, :] ** 2, slope


def softmax_squared(outputs, label):
    """``(1 − softmax(o)_y)²``, the loss that reproduces the curves of L24's Fig. 5."""
    q = _softmax(outputs)
    hit = np.take_along_axis(q, label, axis=-2)
    one = np.zeros_like(outputs)
    np.put_along_axis(one, label, 1.0, axis=-2)
    return (1 - hit[..., 0, :]) ** 2, -2 * (1 - hit) * hit * (one - q)


def cross_entropy(outputs, label):
    """``−log softmax(o)_y``, the loss of L24's Fig. 6."""
    top = outputs.max(-2, keepdims=True)
    slope = np.exp(outputs - top)
    total = slope.sum(-2, keepdims=True)
    own = np.take_along_axis(outputs, label, axis=-2)
    slope /= total
    np.put_along_axis(slope, label, np.exp(own - top) / total - 1, axis=-2)
    return (np.log(total) + top - own)[..., 0, :], slope


@dataclass(frozen=True, eq=False)
class HeadTrace:
    """Recorded matrices of training with a general head; a batch of n leads every array but steps.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
    W : ndarray, shape (r, d, d)
    loss : ndarray, shape (r,)
    norm : ndarray, shape (r,)
    """

    steps: np.ndarray
    W: np.ndarray
    loss: np.ndarray
    norm: np.ndarray


def descend_head(data, loss, method, steps, init=None, record=None, head=None):
    """Train attention weights under a general linear head and loss (L24 Sec. 6, Figs 5–6).

    The risk is the mean over rows of ``loss(C Eᵀ q_j, y_j)``, where ``q_j`` is the attention mass
    on each token.

    Parameters
    ----------
    data : NextTokenData from ``from_attention``, or a list of n with equal shapes
    loss : callable
        :func:`squared`, :func:`softmax_squared`, :func:`cross_entropy`, or any function of outputs,
        shape (n, V, m), and labels, shape (n, 1, m), that returns values, shape (n, m), and
        derivatives, shape (n, V, m).
    method : GD, NGD or Adam
    steps : int
    init : array_like, shape (d, d), or (n, d, d) for a list, optional
        Default: zeros.
    record : increasing sequence of int, optional
        Default: about 200 steps on a logarithmic grid.
    head : array_like, shape (V, d), or (n, V, d) for a list, optional
        The classifier ``C``. Default: the token embeddings, which satisfy L24's Assumption 3 when
        they have unit norm.

    Returns
    -------
    HeadTrace

    Raises
    ------
    ValueError
        Data without one-hot labels or token embeddings, or shapes that do not fit.
    """
    single = not isinstance(data, list | tuple)
    problems = [data] if single else list(data)
    if not callable(loss):
        raise TypeError(f"loss is of type {type(loss).__name__}; a function is needed")
    if isinstance(method, SGD):
        raise TypeError("method is SGD, which is for the log-loss; one of GD, NGD, Adam is needed")
    for i, d in enumerate(problems):
        require_data("data" if single else f"data[{i}]", d)
        if d.token_embeddings is None or not (d.support.sum(1) == 1).all():
            raise ValueError(f"data[{i}] needs token_embeddings and one label per row")
    problem = _HeadBatch(problems, loss, head)
    record = record_grid(steps, record)
    kept = iterate(problem, method, record, start_at(problems, init, single))
    losses = np.stack([problem.risk(kept[:, r]) for r in range(len(record))], axis=1)
    norm = np.linalg.norm(kept, axis=(-2, -1))
    if single:
        kept, losses, norm = kept[0], losses[0], norm[0]
    return HeadTrace(record, kept, losses, norm)


class _HeadBatch(ProblemBatch):
    def __init__(self, problems, loss, head):
        super().__init__(problems)
        self.loss = loss
        head = self.T if head is None else as_floats("head", head)
        if head.shape not in (self.T.shape, self.T.shape[1:]):
            raise ValueError(
                f"head has shape {head.shape}; it needs {self.T.shape[1:]}, or {self.T.shape} for "
                "one head per problem"
            )
        if not np.isfinite(head).all():
            raise ValueError("head has entries that are not finite")
        self.mix = head @ self.Tt  # c_k · e_v
        self.label = self.P.argmax(1)[:, None, :]

    def risk(self, W):
        values, _ = self.loss(self.mix @ self.probabilities(W), self.label)
        return (values * self.pi[:, 0]).sum(1)

    def residuals(self, S, out):
        Q = self.softmax(S, out)
        slope = np.swapaxes(self.mix, 1, 2) @ self.loss(self.mix @ Q, self.label)[1]
        R = Q * slope
        R -= Q * (self._ones @ R)
        R *= self._pi
        # As in the log-loss, for the token that attention favours: its entry from the others, which
        # keep their digits when its mass rounds to one.
        favoured = Q.argmax(1)[:, None]
        np.put_along_axis(R, favoured, 0.0, axis=1)
        np.put_along_axis(R, favoured, -(self._ones[:1] @ R), axis=1)
        return R


def attention_mass(W, data):
    """Attention on each token of each row, shape (..., m, V): occurrences of a token add up."""
    return _softmax(np.swapaxes(logits(as_weights("W", W, data), data), -1, -2)).swapaxes(-1, -2)


def pseudo_data(W, data, threshold=1e-2, ignore_below=9e-3):
    """Replace each row's label by what trained attention selects (L24 Sec. 6).

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
    """
    W = as_weights("W", W, data)
    if W.ndim != 2:
        raise ValueError(f"W has shape {W.shape}; it needs {data.shape}")
    for name, value in (("threshold", threshold), ("ignore_below", ignore_below)):
        require_number(name, value, lambda x: True, "be a number")
    if not 0 < ignore_below <= threshold < 1 / data.vocab_size:
        raise ValueError(
            f"threshold is {threshold:g} and ignore_below {ignore_below:g}; they must satisfy "
            f"0 < ignore_below <= threshold < 1/V = {1 / data.vocab_size:g}"
        )
    mass = attention_mass(W, data)
    selected = mass > threshold
    counts = data.candidates if data.candidate_counts is None else data.candidate_counts
    target = np.where(selected, mass, 0.0)
    return NextTokenData(
        data.context_embeddings,
        target / target.sum(1, keepdims=True),
        data.context_probs,
        data.token_embeddings,
        np.where(selected | (mass <= ignore_below), counts, 0.0),
        data.context_groups,
    )


def _softmax(x):
    e = np.exp(x - x.max(-2, keepdims=True))
    return e / e.sum(-2, keepdims=True)
