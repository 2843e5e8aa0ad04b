"""Some contexts of a dataset: for where the table of all scores would be large."""

from dataclasses import dataclass
from functools import cached_property

from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.problem.table import Entries, Table


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some contexts of a dataset.

    Attributes
    ----------
    context_embeddings : ndarray, shape (k, q)
    context_probs : ndarray, shape (k,)
        Their frequencies among all contexts.
    token_embeddings : ndarray, shape (V, p), or None
    laws : Table, shape (k, V)
        Their next-token distributions.
    counts : Table, shape (k, V), or None
        Their candidate counts.

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
    laws: Table
    counts: Table | None

    @property
    def vocab_size(self) -> int:
        """Number of tokens ``V``."""
        return self.laws.shape[1]

    @property
    def entries(self) -> Entries:
        """The positive entries of the next-token distributions."""
        return self.laws.entries

    @property
    def target_probs(self) -> FloatArray:
        """The next-token distributions, shape (k, V)."""
        return self.laws.dense

    @property
    def candidate_counts(self) -> FloatArray | None:
        """The candidate counts, shape (k, V), or None for ones."""
        return None if self.counts is None else self.counts.dense

    @cached_property
    def support(self) -> BoolArray:
        """Tokens with positive target probability, shape (k, V)."""
        return self.laws.positive("support")
