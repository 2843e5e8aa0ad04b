"""When training stays with what attention selects: pulls on the pairs, and their balance.

Far out in the direction of a local max-margin matrix, attention sits on one selected token ``o``
of each sequence. `local_balance` computes which unselected tokens pull there, on the whole, and
whether the pulls can be in balance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.attention import HeadLoss
from ntpnb.basics.tolerances import NEWTON_STEPS
from ntpnb.basics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    as_indices,
    require_range,
)
from ntpnb.margin import max_margin
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.order import token_priority
from ntpnb_book.labelled_batch import labels_of
from ntpnb_book.vocabulary import pair_matrices

__all__ = ["LocalBalance", "local_balance"]

TIGHT_LEAD = 1e-6  # leads of the local max-margin matrix this close to 1 count as tight
STEPS_TO_FULL_PULL = 20  # of the continuation that turns the pulls on
SMALL_FORCE = 1e-9  # relative to the size of the local max-margin matrix


@dataclass(frozen=True)
class LocalBalance:
    """Pulls on the pairs of a selection, and their balance far out.

    Attributes
    ----------
    W : ndarray, shape (p, q)
        The local max-margin matrix: least Frobenius norm with all leads at least 1.
    pairs : ndarray of int, shape (n, 3)
        Rows (group, selected token, unselected token), each once.
    net_pull : ndarray, shape (n,)
        Sum over the rows with this pair of ``π_j (g_o − g_v) c_jv / c_jo``, with ``g`` the slope of
        the loss along attention on a token where all attention is on ``o``. Positive: moving
        attention to the unselected token lowers the loss, on the whole.
    lead : ndarray, shape (n,)
        ``⟨D, W⟩`` for each pair's matrix ``D = (t_o − t_v) h_gᵀ``.
    offset : ndarray, shape (p, q), or None
        A strict local minimum of ``φ(ρ) = −Σ net_pull e^(−⟨D, ρ⟩) + ⟨W, ρ⟩``, the sum over tight
        pairs, on their span: there ``W log t + ρ`` moves as its own pulls say. None if none was
        found.
    force : float
        Norm of the gradient of φ at the offset (0 without one).
    curvature : float
        Smallest eigenvalue of φ's Hessian there on the span (0 without one).

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb import attention
    >>> from ntpnb_book import local_balance
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
    >>> local_balance(data, [0], attention.cross_entropy).is_held
    True
    """

    W: FloatArray
    pairs: IntArray
    net_pull: FloatArray
    lead: FloatArray
    offset: FloatArray | None
    force: float
    curvature: float

    @property
    def is_tight(self) -> BoolArray:
        """Whether each pair's lead is 1, shape (n,).

        Examples
        --------
        >>> import numpy as np, ntpnb
        >>> from ntpnb import attention
        >>> from ntpnb_book import local_balance
        >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
        >>> local_balance(data, [0], attention.squared).is_tight.tolist()
        [True, True]
        """
        tight: BoolArray = self.lead < 1 + TIGHT_LEAD
        return tight

    @property
    def is_held(self) -> bool:
        """Whether the net pull on every tight pair is negative.

        Examples
        --------
        >>> import numpy as np, ntpnb
        >>> from ntpnb import attention
        >>> from ntpnb_book import local_balance
        >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
        >>> local_balance(data, [1], attention.cross_entropy).is_held  # 1 is not the label
        False
        """
        return bool((self.net_pull[self.is_tight] < 0).all())


def local_balance(
    data: NextTokenData, selected: ArrayLike, loss: HeadLoss, head: ArrayLike | None = None
) -> LocalBalance:
    """Compute the pulls on the pairs of a selection, and look for their balance.

    Parameters
    ----------
    data : NextTokenData
        With token embeddings and one-hot labels.
    selected : array_like of int, shape (m,)
        A token of each row.
    loss : callable
        As for :func:`ntpnb.attention.descend_head`.
    head : array_like, shape (V, p), optional
        Default: the token embeddings.

    Returns
    -------
    LocalBalance

    Raises
    ------
    ValueError
        A selected token is not in its row, or the selection contradicts itself: by two rows with
        one query, each of two tokens would have to lead over the other.
    NotSeparableError
        No matrix makes the selection.

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb import attention
    >>> from ntpnb_book import local_balance
    >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2]], [0])
    >>> local = local_balance(data, [0], attention.squared)
    >>> local.pairs.tolist(), local.net_pull.round(6).tolist()
    ([[2, 0, 1], [2, 0, 2]], [0.0, 0.0])
    """
    chosen = as_indices("selected", selected)
    require_range("selected", chosen, data.vocab_size)
    label = labels_of(data)
    E = data.token_embeddings
    assert E is not None
    rows = np.arange(data.num_contexts)
    if chosen.shape != rows.shape or not data.candidates[rows, chosen].all():
        raise ValueError("selected must name one token of each row")
    pseudo = data.replace(target_probs=np.eye(data.vocab_size)[chosen])
    if len(token_priority(pseudo).equal):
        raise ValueError("selected contradicts itself: rows with one query order tokens in a cycle")
    W = max_margin(pseudo).W

    outputs = E @ (E if head is None else np.asarray(head)).T  # of each token alone, row by row
    slopes = outputs @ loss(outputs[chosen].T[None], label[None, None])[1][0]  # (V, m)
    counts = counts_or_ones(data)
    row, other = np.nonzero(data.candidates & ~pseudo.support)
    own = chosen[row]
    weight = data.context_probs[row] * counts[row, other] / counts[row, own]
    pulls = weight * (slopes[own, row] - slopes[other, row])
    triples = np.column_stack([data.group_index[row], own, other])
    distinct, first, place = np.unique(triples, axis=0, return_index=True, return_inverse=True)
    net_pull = np.bincount(place.ravel(), pulls, minlength=len(distinct)).astype(float)
    names = np.asarray(data.context_groups)[row[first]]
    pairs = np.column_stack([names, distinct[:, 1:]])
    D = pair_matrices(data, pairs).reshape(len(pairs), -1)
    lead = D @ W.ravel()
    tight = lead < 1 + TIGHT_LEAD
    offset, force, curvature = _balance(D[tight], -net_pull[tight], W.ravel())
    shaped = None if offset is None else offset.reshape(W.shape)
    return LocalBalance(W, pairs, net_pull, lead, shaped, force, curvature)


def _balance(
    D: FloatArray, hold: FloatArray, W: FloatArray
) -> tuple[FloatArray | None, float, float]:
    """Strict local minimum of ``Σ hold e^(−D ρ) + W ρ`` on the span of ``D``, with its proof.

    The pairs that hold make a convex function, whose minimum Newton's method finds; the others are
    then turned on in small steps, and the minimum is followed as long as it is one.
    """
    _, sizes, directions = np.linalg.svd(D, full_matrices=False)
    span = directions[sizes > 1e-9 * sizes.max(initial=0.0)]
    A = D @ span.T
    goal = span @ W
    place = np.zeros(len(span))
    if not (hold > 0).any():
        return None, 0.0, 0.0
    turned_on = np.linspace(0, 1, STEPS_TO_FULL_PULL + 1) if (hold < 0).any() else [1.0]
    curvature = 0.0
    force = np.inf
    for part in turned_on:
        strength = np.where(hold > 0, hold, part * hold)
        for _ in range(NEWTON_STEPS):
            push = strength * np.exp(-A @ place)
            gradient = goal - A.T @ push
            hessian = (A.T * push) @ A
            curvature = float(np.linalg.eigvalsh(hessian)[0])
            force = float(np.linalg.norm(gradient))
            if curvature <= 0 or force < SMALL_FORCE * np.linalg.norm(goal):
                break
            step = np.linalg.solve(hessian, gradient)
            place = place - step / max(1.0, np.abs(A @ step).max())  # leads change by 1 at most
        if curvature <= 0 or force > SMALL_FORCE * np.linalg.norm(goal):
            return None, 0.0, 0.0
    return span.T @ place, force, curvature
