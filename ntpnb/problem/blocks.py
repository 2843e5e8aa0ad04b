"""Some contexts of a dataset: for where the table of all scores would be large."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ntpnb.basics.array_types import BoolArray, FloatArray
from ntpnb.problem.table import Entries


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some contexts of a dataset.

    Attributes
    ----------
    context_embeddings : ndarray, shape (k, q)
    context_probs : ndarray, shape (k,)
        Their frequencies among all contexts.
    token_embeddings : ndarray, shape (V, p), or None
    candidate_counts : ndarray, shape (k, V), or None
    entries : Entries
        The positive entries of their next-token distributions, with rows counted from the block's
        first.
    vocab_size : int

    Examples
    --------
    >>> import ntpnb
    >>> block = ntpnb.datasets.toy().block(slice(1, 3))
    >>> block.entries.row.tolist(), block.entries.token.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 3, 4, 0, 1, 4])
    """

    context_embeddings: FloatArray
    context_probs: FloatArray
    token_embeddings: FloatArray | None
    candidate_counts: FloatArray | None
    entries: Entries
    vocab_size: int

    @cached_property
    def support(self) -> BoolArray:
        """Tokens with positive target probability, shape (k, V)."""
        support = np.zeros((len(self.context_probs), self.vocab_size), dtype=bool)
        support[self.entries.row, self.entries.token] = True
        return support

    @cached_property
    def target_probs(self) -> FloatArray:
        """The next-token distributions, shape (k, V)."""
        P = np.zeros((len(self.context_probs), self.vocab_size))
        P[self.entries.row, self.entries.token] = self.entries.value
        return P
