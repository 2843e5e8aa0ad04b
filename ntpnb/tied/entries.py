"""The ties of a linear decoder, kept as the pairs of a context and one of its next tokens."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.tolerances import HELD
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.table import BLOCK


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
        units = sampled_products(W, self.directions, self.token, self.context)
        return self.lengths[self.context] * units


def tie_entries(data: NextTokenData, table: csr_array) -> TieEntries:
    """Collect the tie entries of data with one-hot tokens whose rows are groups of their own.

    Parameters
    ----------
    data : NextTokenData
    table : csr_array, shape (m, V)
        ``data.sparse_target_probs``.

    Returns
    -------
    TieEntries

    Examples
    --------
    The second context has one next token and ties nothing:

    >>> import ntpnb
    >>> from ntpnb.tied.entries import tie_entries
    >>> data = ntpnb.NextTokenData([[3.0], [1.0]], [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    >>> entries = tie_entries(data, data.sparse_target_probs)
    >>> entries.token.tolist(), entries.context.tolist(), entries.lengths.tolist()
    ([0, 2], [0, 0], [3.0])
    """
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


def sampled_products(
    W: FloatArray, embeddings: FloatArray, token: IntArray, context: IntArray
) -> FloatArray:
    """Inner products of row ``token`` of ``W`` and row ``context`` of the embeddings, shape (n,).

    They are taken in blocks, so that no more than a block of rows is gathered at one time.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.tied.entries import sampled_products
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> sampled_products(W, np.eye(2), np.array([0, 1]), np.array([1, 1])).tolist()
    [2.0, 4.0]
    """
    products = np.empty(len(token))
    block = max(1, BLOCK // W.shape[1])
    for start in range(0, len(token), block):
        part = slice(start, start + block)
        products[part] = np.einsum("nq,nq->n", W[token[part]], embeddings[context[part]])
    return products


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
    block = max(1, BLOCK // (count * directions.shape[1]))
    for start in range(0, num_tokens, block):
        rows = directions[contexts[start : start + block]]
        grams[start : start + block] = rows @ rows.transpose(0, 2, 1)
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
