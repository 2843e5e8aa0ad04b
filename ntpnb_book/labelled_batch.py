"""Attention problems with one label a row, batched: what training of heads and factors share."""

from collections.abc import Sequence

import numpy as np

from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.problem.data import NextTokenData
from ntpnb.training.batch import ProblemBatch


class LabelledBatch(ProblemBatch):
    """Same-shaped attention problems, with the place of each row's label.

    Attributes
    ----------
    is_label : ndarray of bool, shape (n, V, m)
    log_counts : ndarray, shape (n, V, m)
        Logarithms of the candidates' counts; ``−inf`` where a token is no candidate.

    Raises
    ------
    ValueError
        Data without token embeddings or one-hot labels.
    """

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        super().__init__(problems)
        if self.T is None or not (self.P.max(1) == 1).all():
            raise ValueError("problems need token_embeddings and one label per row")
        self.is_label: BoolArray = self.P == 1
        counts = np.ones_like(self.P) if self.counts is None else self.counts
        with np.errstate(divide="ignore"):  # log 0 = −inf is what is meant
            self.log_counts: FloatArray = np.log(counts)
