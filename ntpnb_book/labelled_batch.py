"""Attention problems with one label a row, batched: what training of heads and factors share."""

from collections.abc import Sequence

import numpy as np

from ntpnb.basics.validation import BoolArray, FloatArray, IntArray
from ntpnb.problem.data import NextTokenData
from ntpnb.training.batch import ProblemBatch, require_equal_shapes


class LabelledBatch(ProblemBatch):
    """Same-shaped attention problems, with the place of each row's label.

    Tables here have the runs as their last axis, so that sums over tokens, and the products of
    small matrices, go along whole rows of runs. Many runs of one problem hold its tables once: n is
    one then.

    Attributes
    ----------
    tokens, rows : ndarray, shapes (V, p, n) and (m, q, n)
        Token embeddings, and those of the rows' last tokens.
    row_probs : ndarray, shape (m, 1, n)
    is_label : ndarray of bool, shape (m, V, n)
    log_counts : ndarray, shape (m, V, n)
        Logarithms of the candidates' counts; ``−inf`` where a token is no candidate.

    Raises
    ------
    ValueError
        Data without token embeddings or one-hot labels.
    """

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        require_equal_shapes(problems)
        is_one_problem = all(data is problems[0] for data in problems)
        super().__init__(problems[:1] if is_one_problem else problems)
        for data in problems:
            labels_of(data)  # or an error
        assert self.T is not None
        self.tokens: FloatArray = runs_last(self.T)
        self.rows: FloatArray = runs_last(self.H)
        self.row_probs: FloatArray = runs_last(self.pi.mT)
        self.is_label: BoolArray = runs_last(self.P.mT) == 1
        counts = np.ones_like(self.P) if self.counts is None else self.counts
        with np.errstate(divide="ignore"):  # log 0 = −inf is what is meant
            self.log_counts: FloatArray = runs_last(np.log(counts.mT))

    def relative_scores(self, W: FloatArray) -> FloatArray:
        """Logarithms of attention, up to one number for each row: zero for its largest.

        Parameters
        ----------
        W : ndarray, shape (..., p, q, n)

        Returns
        -------
        ndarray, shape (..., m, V, n)
        """
        of_rows = _product(self.rows, W).swapaxes(-3, -2)
        S = _product(self.tokens, of_rows)
        S += self.log_counts
        S -= S.max(-2, keepdims=True)
        return S

    def pulled_back(self, R: FloatArray) -> FloatArray:
        """The gradient along matrices (..., p, q, n), of what only the tokens off the labels get.

        A label's entry is minus the others' sum: so it keeps its digits where the label has almost
        all attention.

        Parameters
        ----------
        R : ndarray, shape (..., m, V, n)
            Derivatives along the scores, zero at the labels, where this writes.

        Returns
        -------
        ndarray, shape (..., p, q, n)
        """
        R -= np.where(self.is_label, R.sum(-2, keepdims=True), 0.0)
        along_tokens = _product(self.tokens.swapaxes(0, 1), R).swapaxes(-3, -2)
        return _product(self.rows.swapaxes(0, 1), along_tokens)


def labels_of(data: NextTokenData) -> IntArray:
    """The one label of each row of an attention problem, shape (m,).

    Raises
    ------
    ValueError
        Data without token embeddings, or with laws of several tokens.
    """
    if data.token_embeddings is None or not (data.support.sum(1) == 1).all():
        raise ValueError("data needs token_embeddings and one label per row")
    label: IntArray = data.target_probs.argmax(1)
    return label


def runs_last(array: FloatArray) -> FloatArray:
    """A copy with the first axis as the last one, and its entries side by side."""
    return np.moveaxis(array, 0, -1).copy()


def _product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Products of matrices (a, b, n), or of one (a, b, 1), with stacks (..., b, n) of vectors."""
    products: FloatArray = A[..., 0] @ B if A.shape[2] == 1 else np.einsum("abn,...bn->...an", A, B)
    return products
