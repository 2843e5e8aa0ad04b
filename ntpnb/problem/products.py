"""Products with tables of contexts and tokens of which only some entries are wanted.

Few entries are gathered one by one. Of many the whole product is formed, where the table is small;
sums over the entries of a large one are formed a block of contexts at a time.
"""

import math

import numpy as np
from scipy.sparse import csr_array

from ntpnb.basics.threads import product
from ntpnb.basics.validation import AnyPrecision, IntArray
from ntpnb.problem.table import BLOCK, row_slices

IN_CACHE = 2**17
"""Numbers that are gathered at one time: 1 MiB, which caches hold."""

GATHERED = 16
"""Time of a multiplication whose operands are gathered, in those of a product of matrices."""


def scores_at(
    contexts: AnyPrecision, tokens: AnyPrecision, row: IntArray, column: IntArray
) -> AnyPrecision:
    """Inner products ``contexts[row] · tokens[column]``, shape (n,).

    Parameters
    ----------
    contexts : ndarray, shape (m, d)
    tokens : ndarray, shape (V, d)
    row, column : ndarray of int, shape (n,)
    """
    shape = (len(contexts), len(tokens))
    if math.prod(shape) <= BLOCK and math.prod(shape) <= GATHERED * len(row):
        return product(contexts, tokens.T)[row, column]
    found = np.empty(len(row), dtype=np.result_type(contexts, tokens))
    step = max(1, IN_CACHE // contexts.shape[1])
    for start in range(0, len(row), step):
        part = slice(start, start + step)
        found[part] = np.einsum("nd,nd->n", contexts[row[part]], tokens[column[part]])
    return found


def combined_at(
    values: AnyPrecision, row: IntArray, column: IntArray, contexts: AnyPrecision, num_tokens: int
) -> AnyPrecision:
    """Sums ``Σ values contexts[row]`` over the entries of each token, shape (V, d).

    Parameters
    ----------
    values : ndarray, shape (n,)
    row, column : ndarray of int, shape (n,)
        Contexts, which increase, and tokens.
    contexts : ndarray, shape (m, d)
    num_tokens : int
    """
    shape = (len(contexts), num_tokens)
    if len(row) * GATHERED < len(contexts) * num_tokens:
        pointers = np.searchsorted(row, np.arange(len(contexts) + 1))
        combined: AnyPrecision = csr_array((values, column, pointers), shape=shape).T @ contexts
        return combined
    combined = np.zeros((num_tokens, contexts.shape[1]), dtype=values.dtype)
    for rows in row_slices(shape):
        part = slice(*np.searchsorted(row, [rows.start, rows.stop]))
        block = np.zeros((rows.stop - rows.start, num_tokens), dtype=values.dtype)
        block.ravel()[(row[part] - rows.start) * num_tokens + column[part]] = values[part]
        combined += product(block.T, contexts[rows])
    return combined
