"""The ties of a linear decoder, as pairs of a context and one of its next tokens, and their core.

A token whose contexts have linearly independent embeddings can be given any scores in them. So it
meets its target probabilities whatever the others do, and the others settle as if it did not
exist: with ``v`` set aside, a context's divergence is that of ``p_kv`` from ``q_kv``, which
vanishes, plus ``1 − p_kv`` times the divergence of what is left. Contexts with a single token left
are dropped, which leaves other tokens fewer contexts; and so on. What remains is the core. Without
one, the data are compatible (T24 Def. 1). In text the core consists of a few frequent tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from ntpnb.basics.tolerances import HELD, UNCLEAR, decomposition_error
from ntpnb.basics.validation import BoolArray, FloatArray, IntArray
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.products import scores_at
from ntpnb.problem.table import row_slices
from ntpnb.tied.newton import RestrictedLoss
from ntpnb.tied.subspace import NO_DEPENDENCE, by_error, thin_svd


@dataclass(frozen=True, eq=False)
class TieEntries:
    """The entries of the supports from which ties are made, in the order of their tokens.

    A context with one in-support token ties nothing, and one with the embedding zero depends on no
    ``W``. Both are left out, and the other contexts are numbered anew.

    Attributes
    ----------
    vocab_size : int
    token, context : ndarray of int, shape (n,)
        Token and context of each entry; tokens increase.
    probs : ndarray, shape (n,)
        The target probabilities ``p_kv``.
    context_probs : ndarray, shape (K,)
        ``π_k`` of the tied contexts.
    directions : ndarray, shape (K, q)
        Their embeddings, of length one.
    lengths : ndarray, shape (K,)
        The lengths that these embeddings have in the data.
    rows : ndarray of int, shape (K,)
        Their rows there.
    """

    vocab_size: int
    token: IntArray
    context: IntArray
    probs: FloatArray
    context_probs: FloatArray
    directions: FloatArray
    lengths: FloatArray
    rows: IntArray

    @property
    def num_contexts(self) -> int:
        """Number of tied contexts ``K``."""
        return len(self.lengths)

    def scores(self, W: FloatArray) -> FloatArray:
        """Scores ``w_v · h_k`` of the entries, shape (n,)."""
        units = scores_at(self.directions, W, self.context, self.token)
        return self.lengths[self.context] * units


def tie_entries(data: NextTokenData) -> TieEntries:
    """Collect the tie entries of data with one-hot tokens whose rows are groups of their own.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    TieEntries

    Examples
    --------
    The second context has one next token and ties nothing:

    >>> import ntpnb
    >>> from ntpnb.tied.entries import tie_entries
    >>> data = ntpnb.NextTokenData([[3.0], [1.0]], [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    >>> entries = tie_entries(data)
    >>> entries.token.tolist(), entries.context.tolist(), entries.lengths.tolist()
    ([0, 2], [0, 0], [3.0])
    """
    table = data.sparse_target_probs
    lengths = data.context_lengths
    tied = np.flatnonzero((np.diff(table.indptr) > 1) & (lengths > 0))
    by_token = csc_array(table[tied])
    by_token.sort_indices()
    counts = np.diff(by_token.indptr)
    return TieEntries(
        vocab_size=data.vocab_size,
        token=np.repeat(np.arange(data.vocab_size), counts),
        context=by_token.indices.astype(np.intp),
        probs=by_token.data,
        context_probs=data.context_probs[tied],
        directions=data.context_embeddings[tied] / lengths[tied, None],
        lengths=lengths[tied],
        rows=tied,
    )


def log_softmax(scores: FloatArray, context: IntArray) -> FloatArray:
    """Logarithms of the probabilities of each context's entries, shape (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.entries import log_softmax
    >>> log_q = log_softmax(np.array([5.0, 1.0, 1.0]), np.array([0, 1, 1]))
    >>> np.exp(log_q).round(6).tolist()
    [1.0, 0.5, 0.5]
    """
    largest = np.full(context.max(initial=-1) + 1, -np.inf)
    np.maximum.at(largest, context, scores)
    centred = scores - largest[context]
    log_q: FloatArray = centred - np.log(np.bincount(context, np.exp(centred)))[context]
    return log_q


def centred(x: FloatArray, context: IntArray) -> FloatArray:
    """Numbers of entries, less their mean in each context, shape (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.entries import centred
    >>> centred(np.array([1.0, 5.0, 2.0]), np.array([0, 1, 0])).tolist()
    [-0.5, 0.0, 0.5]
    """
    sizes = np.bincount(context)
    mean = np.bincount(context, x) / np.maximum(sizes, 1)
    rest: FloatArray = x - mean[context]
    return rest


def places_by_count(token: IntArray) -> list[IntArray]:
    """Positions of increasing tokens, those with equally many in one array of shape (tokens, n).

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.entries import places_by_count
    >>> [places.tolist() for places in places_by_count(np.array([0, 2, 2, 3, 5, 5]))]
    [[[0], [3]], [[1, 2], [4, 5]]]
    """
    _, starts, counts = np.unique(token, return_index=True, return_counts=True)
    return [starts[counts == count][:, None] + np.arange(count) for count in np.unique(counts)]


def gram_matrices(directions: FloatArray, contexts: IntArray) -> FloatArray:
    """Inner products of the embeddings of each token's contexts, shape (tokens, n, n).

    Parameters
    ----------
    directions : ndarray, shape (K, q)
    contexts : ndarray of int, shape (tokens, n)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.entries import gram_matrices
    >>> gram_matrices(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[0, 1]])).tolist()
    [[[1.0, 0.6], [0.6, 1.0]]]
    """
    num_tokens, count = contexts.shape
    grams = np.empty((num_tokens, count, count))
    for part in row_slices((num_tokens, count, directions.shape[1])):
        rows = directions[contexts[part]]
        grams[part] = rows @ rows.transpose(0, 2, 1)
    return grams


class GatheredRows:
    """The embeddings of each token's contexts, gathered once where they fit into memory.

    Parameters
    ----------
    embeddings : ndarray, shape (K, q)
    contexts : list of ndarray of int
        The contexts of each token.
    """

    def __init__(self, embeddings: FloatArray, contexts: list[IntArray]) -> None:
        self._embeddings = embeddings
        self._contexts = contexts
        self._kept: dict[int, FloatArray] = {}
        num_kept = 0
        for i, rows in enumerate(contexts):
            num_kept += len(rows) * embeddings.shape[1]
            if num_kept > HELD:
                break
            self._kept[i] = embeddings[rows]

    def __len__(self) -> int:
        return len(self._contexts)

    def __getitem__(self, i: int) -> FloatArray:
        """Embeddings of the contexts of the token at position ``i``, one a row."""
        kept = self._kept.get(i)
        return self._embeddings[self._contexts[i]] if kept is None else kept


# -- the core -------------------------------------------------------------------------------------


def core_of(entries: TieEntries) -> BoolArray:
    """Mark the entries that belong to the core, shape (n,).

    Parameters
    ----------
    entries : TieEntries

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    Token 2 can have any score in its only context, and so can token 1 there. In the other two,
    whose embeddings are parallel, tokens 0 and 1 cannot:

    >>> import ntpnb
    >>> from ntpnb.tied.entries import core_of
    >>> from ntpnb.tied.entries import tie_entries
    >>> P = [[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5]]
    >>> data = ntpnb.NextTokenData([[1.0], [2.0], [3.0]], P)
    >>> entries = tie_entries(data)
    >>> inside = core_of(entries)
    >>> entries.token[inside].tolist(), entries.context[inside].tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    """
    left = np.ones(len(entries.token), dtype=bool)
    while True:
        left_in_context = np.bincount(entries.context[left], minlength=entries.num_contexts)
        left &= left_in_context[entries.context] > 1
        is_free = np.zeros(entries.vocab_size, dtype=bool)
        remaining = np.flatnonzero(left)
        for positions in places_by_count(entries.token[remaining]):
            places = remaining[positions]
            token = entries.token[places[:, 0]]
            is_free[token] = _independent(entries.directions, entries.context[places])
        if not is_free.any():
            return left
        left &= ~is_free[entries.token]


def _independent(directions: FloatArray, contexts: IntArray) -> BoolArray:
    """Whether each token's contexts, shape (tokens, n), have independent embeddings."""
    num_tokens, num_contexts = contexts.shape
    if num_contexts > directions.shape[1]:
        return np.zeros(num_tokens, dtype=bool)
    least = np.linalg.eigvalsh(gram_matrices(directions, contexts))[:, 0]
    independent: BoolArray = UNCLEAR * least > decomposition_error(num_contexts)
    return independent


class CoreLoss(RestrictedLoss):
    """The loss of the core alone: its tokens' rows of W, and contexts without their other tokens.

    Context ``k`` has the weight ``π_k P_k``, with ``P_k`` the target probability of its tokens in
    the core, and the target probabilities ``p_kv / P_k``.

    Parameters
    ----------
    entries : TieEntries
    core : ndarray of bool, shape (n,)
        Which entries belong to the core.

    Attributes
    ----------
    tokens : ndarray of int, shape (C,)
        The core's tokens, increasing. A matrix here has one row for each of them.
    """

    def __init__(self, entries: TieEntries, core: BoolArray) -> None:
        self.tokens, first = np.unique(entries.token[core], return_index=True)
        contexts, self._context = np.unique(entries.context[core], return_inverse=True)
        self._mass = np.bincount(self._context, entries.probs[core])
        self._targets = entries.probs[core] / self._mass[self._context]
        weights = entries.context_probs[contexts] * self._mass
        self._weights = weights[self._context]
        embeddings = entries.lengths[contexts, None] * entries.directions[contexts]
        self._rows = GatheredRows(embeddings, np.split(self._context, first[1:]))
        self._parts = np.split(np.arange(len(self._context)), first[1:])
        self._whitenings: list[FloatArray] = []
        self.weakest = NO_DEPENDENCE
        for i, part in enumerate(self._parts):
            svd = thin_svd(np.sqrt(self._weights[part])[:, None] * self._rows[i])
            self._whitenings.append((svd.Vt.T / svd.s) @ svd.Vt)
            near = svd.weakest(entries.rows[contexts[self._context[part]]])
            self.weakest = max(self.weakest, near, key=by_error)
        self.weakest.require(UNCLEAR)

    def loss(self, W: FloatArray) -> float:
        """Divergence of the targets from the probabilities, averaged over the contexts."""
        errors = np.log(self._targets) - self._log_probs(W)
        return float(self._weights @ (self._targets * errors))

    def gradient(self, W: FloatArray) -> FloatArray:
        """``Σ_k π_k P_k (q_kv − p_kv / P_k) h_k`` in the row of token ``v``."""
        return self.pull_back(self._weights * (np.exp(self._log_probs(W)) - self._targets))

    def curvature(self, W: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Hessian at ``W``, from the covariances of the probabilities in each context."""
        q = np.exp(self._log_probs(W))
        frequencies = self._weights * q

        def hessian(direction: FloatArray) -> FloatArray:
            s = self._scores(direction)
            mean = np.bincount(self._context, q * s)
            return self.pull_back(frequencies * (s - mean[self._context]))

        return hessian

    def whiten(self, G: FloatArray) -> FloatArray:
        """Row by row, ``(Σ_k π_k P_k h_k h_kᵀ)^(−1/2)`` over the contexts of a token."""
        return np.stack([A @ g for A, g in zip(self._whitenings, G, strict=True)])

    def log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the best probabilities among all tokens of a context, shape (c,)."""
        return self._log_probs(W) + np.log(self._mass)[self._context]

    def _log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the core's own probabilities ``q_kv``, shape (c,)."""
        return log_softmax(self._scores(W), self._context)

    def _scores(self, W: FloatArray) -> FloatArray:
        """Scores ``w_v · h_k`` of the core's entries, shape (c,)."""
        return np.concatenate([self._rows[i] @ w for i, w in enumerate(W)])

    def pull_back(self, residuals: FloatArray) -> FloatArray:
        """Turn derivatives along the scores, shape (c,), into ones along W, shape (C, q)."""
        return np.stack([residuals[part] @ self._rows[i] for i, part in enumerate(self._parts)])
