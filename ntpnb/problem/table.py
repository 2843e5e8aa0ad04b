"""Tables with a nonnegative number for every context and token, of which few are not zero.

Besides the tables themselves, held as the entries that are not zero, here is what keeps
computations from forming large ones. Some contexts make a block. Of products with tables of which
only some entries are wanted, few entries are gathered one by one; of many the whole product is
formed, where the table is small, and sums over the entries of a large one are formed a block of
contexts at a time. Context embeddings may stay where they are, in a file or on a cluster, and are
then read in parts.
"""

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, issparse

from ntpnb.basics.saving import make_read_only, register
from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE
from ntpnb.basics.validation import (
    INDEX_BITS,
    AnyPrecision,
    BoolArray,
    FloatArray,
    IntArray,
    Sparse,
    as_array,
    as_floats,
    as_indices,
    counted,
    refuse_any,
    require_dense,
    require_lengths,
    require_unit_sum,
    sum_tolerance,
)

LARGE = 2**20  # entries, zeros included, from which on no computation forms a whole table
MOST_POSITIONS = 2**INDEX_BITS - 1  # as many as an index can number
BLOCK = WHOLE // 4  # entries of a dense array that computations form at one time (32 MiB)

IN_CACHE = 2**17
"""Numbers that are gathered at one time: 1 MiB, which caches hold."""

GATHERED = 16
"""Time of a multiplication whose operands are gathered, in those of a product of matrices."""


class Entries(NamedTuple):
    """Entries of a table that are not zero, row by row, and in each row in the order of tokens.

    Attributes
    ----------
    row, token : ndarray of int, shape (n,)
    value : ndarray, shape (n,)
    """

    row: IntArray
    token: IntArray
    value: AnyPrecision


@register
class Table:
    """A number for every context and token, held as the entries that are not zero.

    Parameters
    ----------
    name : str
        What errors call it.
    entries : Entries, or another tuple of such arrays
        Finite numbers, which nothing else changes.
    shape : tuple of int
        ``(m, V)``.
    precision : dtype, optional
        What the numbers were given in; they are held as float64.

    Raises
    ------
    ValueError
        It has more positions than numpy's index type can number, which has 32 bits in a browser.

    Examples
    --------
    >>> from ntpnb.problem.table import as_table
    >>> table = as_table("counts", [[0.0, 2.0], [1.0, 0.0]])
    >>> table.entries.token.tolist(), table.sparse.nnz, table.num_entries().tolist()
    ([1, 0], 2, [1, 1])
    """

    def __init__(
        self,
        name: str,
        entries: tuple[IntArray, IntArray, AnyPrecision],
        shape: tuple[int, int],
        precision: npt.DTypeLike = np.float64,
    ) -> None:
        if math.prod(shape) > MOST_POSITIONS:
            raise ValueError(
                f"{name} has {shape[0]} rows of {shape[1]} tokens; at most {MOST_POSITIONS} "
                "positions can be numbered here"
            )
        self.name = name
        self.entries = Entries(*entries)
        self.shape = shape
        self.precision = np.dtype(precision)
        for array in entries:
            make_read_only(array)

    def __reduce__(self) -> tuple[type["Table"], tuple[object, ...]]:
        # What was derived is left behind, and a copy is as read-only as the original.
        return Table, (self.name, tuple(self.entries), self.shape)

    def _checked(self) -> "Table":
        """The table that a file describes, or an error."""
        row, token, value = self.entries
        places = (as_indices("row", row), as_indices("token", token))
        return as_table(self.name, coo_array((value, places), shape=self.shape))

    @property
    def is_large(self) -> bool:
        """Whether no computation forms the whole table."""
        return math.prod(self.shape) >= LARGE

    @cached_property
    def dense(self) -> FloatArray:
        """The table as a read-only array, shape (m, V).

        Raises
        ------
        ValueError
            It would have more than 2**28 entries.
        """
        require_dense(
            self.name,
            self.shape,
            f"use sparse_{self.name}, and losses and gradients, which take a block at a time",
        )
        row, token, value = self.entries
        dense = np.zeros(self.shape)
        dense[row, token] = value
        make_read_only(dense)
        return dense

    @cached_property
    def sparse(self) -> csr_array:
        """The table as a canonical matrix of compressed rows, whose arrays are read-only."""
        starts = np.append(self.first_entries(), len(self.entries.row))
        sparse = csr_array((self.entries.value, self.entries.token, starts), shape=self.shape)
        for part in (sparse.data, sparse.indices, sparse.indptr):
            make_read_only(part)
        return sparse

    def part(self, rows: slice) -> "Table":
        """The table of some rows, which are counted from the first of them."""
        row, token, value = self.entries
        part = slice(*np.searchsorted(row, [rows.start, rows.stop]))
        entries = (row[part] - rows.start, token[part], value[part])
        return Table(self.name, entries, (rows.stop - rows.start, self.shape[1]))

    def positive(self, name: str) -> BoolArray:
        """Where there are entries, as a read-only array with a name for errors."""
        require_dense(name, self.shape, f"use the indices of sparse_{self.name}")
        positive = np.zeros(self.shape, dtype=bool)
        positive[self.entries.row, self.entries.token] = True
        make_read_only(positive)
        return positive

    def row_sums(self) -> FloatArray:
        """Sum of each row, shape (m,)."""
        return self.sums_in_rows(self.entries.value)

    def sums_in_rows(self, values: FloatArray) -> FloatArray:
        """Sums over each row of numbers that stand for its entries, shape (..., m) for (..., n)."""
        return self._in_rows(np.add, values, empty=0.0)

    def largest_in_rows(self, values: FloatArray) -> FloatArray:
        """The largest in each row of such numbers, −inf in rows without any, shape (..., m)."""
        return self._in_rows(np.maximum, values, empty=-np.inf)

    def _in_rows(self, combine: np.ufunc, values: FloatArray, empty: float) -> FloatArray:
        """Combine the numbers of each row's entries, of which there may be none."""
        found = np.full((*values.shape[:-1], self.shape[0]), empty)
        rows, starts = self._filled_rows
        found[..., rows] = combine.reduceat(values, starts, axis=-1)
        return found

    @cached_property
    def _filled_rows(self) -> tuple[IntArray, IntArray]:
        """The rows that have entries, and where in all entries each of them begins."""
        rows = np.flatnonzero(self.num_entries())
        return rows, self.first_entries()[rows]

    @cached_property
    def largest_tokens(self) -> IntArray:
        """The token of the largest entry of each row, the first of several, shape (m,)."""
        row, token, value = self.entries
        largest = np.flatnonzero(value == self.largest_in_rows(value)[row])
        return token[largest[np.searchsorted(row[largest], np.arange(self.shape[0]))]]

    def num_entries(self) -> IntArray:
        """Number of entries in each row, shape (m,)."""
        return np.bincount(self.entries.row, minlength=self.shape[0])

    def first_entries(self) -> IntArray:
        """Position among all entries of the first one in each row, shape (m,)."""
        return np.searchsorted(self.entries.row, np.arange(self.shape[0]))

    def has(self, row: IntArray, token: IntArray) -> BoolArray:
        """Whether places, none of them twice, have an entry, shape (n,)."""
        num_tokens = self.shape[1]
        held = self.entries.row * num_tokens + self.entries.token
        return np.isin(row * num_tokens + token, held, assume_unique=True)

    def above(self, threshold: float) -> "Table":
        """The table with zeros in place of the numbers that are not above a threshold."""
        row, token, value = self.entries
        kept = value > threshold
        entries = (row[kept], token[kept], value[kept])
        return Table(self.name, entries, self.shape, self.precision)

    def divided_by(self, divisors: FloatArray) -> "Table":
        """The table with each row divided by a number, shape (m,)."""
        row, token, value = self.entries
        return Table(self.name, (row, token, value / divisors[row]), self.shape)

    def refuse(self, bad: BoolArray, needed: str) -> None:
        """Raise ``ValueError`` if some entries are bad, and say what is needed of the first."""
        row, token, value = self.entries
        refuse_any(bad, lambda k: f"{self.name}[{row[k]}, {token[k]}] is {value[k]:g}; {needed}")

    def require_distributions(self) -> None:
        """Raise unless every row is nonnegative and sums to one, up to the numbers' precision."""
        self.refuse(self.entries.value < 0, "no probability may be negative")
        tolerance = sum_tolerance(self.num_entries(), self.precision)
        require_unit_sum(self.name, self.row_sums(), tolerance)


TableLike: TypeAlias = npt.ArrayLike | Sparse | Table


def as_table(name: str, value: TableLike, shape: tuple[int, int] | None = None) -> Table:
    """Read a dense array, or a scipy matrix of any format, as a table, or explain.

    Duplicate entries of a sparse matrix are added up, and zeros dropped. What is computed from it
    is the same to the last bit as from a dense array.

    Parameters
    ----------
    name : str
        The argument's name, for errors.
    value : array_like, scipy sparse array or matrix, or Table, shape (m, V)
        Real numbers of any type.
    shape : tuple of int, optional
        The shape it needs.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        No table of finite numbers of that shape.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> from ntpnb.problem.table import as_table
    >>> twice = coo_array(([1, 2, 0], ([0, 0, 1], [1, 1, 0])), shape=(2, 3))
    >>> as_table("counts", twice).dense.tolist()
    [[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if isinstance(value, Table):
        found = Table(name, value.entries, value.shape)
    elif issparse(value):
        found = _read_sparse(name, value)
    else:
        dense = as_array(name, value, ndim=2)
        row, token = np.nonzero(dense)
        entries = (row, token, dense[row, token])
        found = Table(name, entries, dense.shape, np.asarray(value).dtype)
    if shape is not None and found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}; it needs {shape}")
    return found


def collected(
    name: str,
    row: IntArray,
    token: IntArray,
    shape: tuple[int, int],
    value: FloatArray | None = None,
    precision: npt.DTypeLike = np.float64,
) -> Table:
    """Add up entries in a table.

    Parameters
    ----------
    name : str
    row, token : ndarray of int, shape (n,)
    shape : tuple of int
    value : ndarray, shape (n,), optional
        Default: ones, so that the table says how often a token occurs in a row.
    precision : dtype, optional

    Returns
    -------
    Table

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.table import collected
    >>> collected("counts", np.array([0, 0, 1]), np.array([1, 1, 0]), (2, 2)).dense.tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    place, entry = np.unique(row * shape[1] + token, return_inverse=True)
    total = np.bincount(entry, value, len(place)).astype(np.float64)
    is_held = total != 0
    row, token = np.divmod(place[is_held], shape[1])
    return Table(name, (row, token, total[is_held]), shape, precision)


def row_slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Divide the rows of an array so that a block has BLOCK entries, or one row."""
    num_rows, *others = shape
    step = max(1, BLOCK // max(1, math.prod(others)))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def entries_of(table: csr_array) -> Entries:
    """Rows, columns and values of a canonical sparse matrix, as integer and float64 arrays."""
    num_rows = table.shape[0]
    row = np.repeat(np.arange(num_rows), np.diff(table.indptr))
    return Entries(row, table.indices.astype(np.intp), table.data)


# -- reading sparse matrices ----------------------------------------------------------------------


def _read_sparse(name: str, value: Sparse) -> Table:
    """Return a sparse matrix of any format and type as a table, or explain."""
    if value.ndim != 2:
        raise ValueError(f"{name} has {counted(value.ndim, 'dimension')}; it needs 2")
    try:
        entries = _sound_entries(value)
    except ValueError as error:
        raise ValueError(f"{name} is a damaged sparse matrix: {error}") from None
    # Places in long types: a row's number times the tokens would overflow short ones.
    table = collected(
        name,
        entries.row.astype(np.intp),
        entries.col.astype(np.intp),
        (int(value.shape[0]), int(value.shape[1])),
        as_floats(name, entries.data),
        value.dtype,
    )
    table.refuse(~np.isfinite(table.entries.value), "every entry must be finite")
    return table


def _sound_entries(value: Sparse) -> coo_array:
    """The stored entries, duplicates included; ValueError where they lead out of the table."""
    if hasattr(value, "check_format"):  # scipy's conversions follow pointers wherever they lead
        value = copy(value)  # whose arrays the check may shorten
        value.check_format(full_check=True)
        if value.dtype == np.float16:  # which scipy cannot convert to other formats
            value.data = value.data.astype(np.float64)
    entries = value.tocoo()
    return coo_array((entries.data, (entries.row, entries.col)), shape=value.shape)


# -- some contexts, for where the table of all scores would be large ------------------------------


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


# -- products of which only some entries are wanted -----------------------------------------------


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


# -- context embeddings that are left where they are ----------------------------------------------


class StoredRows:
    """Rows of numbers that are read when they are asked for, as float64.

    Parameters
    ----------
    source : array, shape (m, q)
        What slices and numpy can read: a ``numpy.memmap``, an array of Dask, h5py or zarr. It must
        not change any more.

    Attributes
    ----------
    shape : tuple of int
        ``(m, q)``.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.table import StoredRows
    >>> rows = StoredRows(np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32))
    >>> rows[1:].tolist(), np.asarray(rows).dtype
    ([[3.0, 4.0], [5.0, 6.0]], dtype('float64'))
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.shape: tuple[int, int] = tuple(source.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> FloatArray:
        return np.array(self.source[rows], dtype=np.float64)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """All rows at once, as numpy asks for them."""
        return self[:].astype(dtype or np.float64, copy=False)


def as_rows(name: str, value: npt.ArrayLike | StoredRows) -> FloatArray | StoredRows:
    """Return embeddings that can be computed with, or explain what is wrong with them.

    Those that are stored, and more than a block holds, stay where they are and are checked part by
    part; others are copied.

    Parameters
    ----------
    name : str
    value : array_like, shape (m, q)

    Returns
    -------
    ndarray or StoredRows

    Raises
    ------
    ValueError
        Another number of dimensions, an entry that is not finite, or a row that is too short or too
        long to compute with.

    Examples
    --------
    >>> from ntpnb.problem.table import as_rows
    >>> as_rows("context_embeddings", [[1], [2]]).tolist()
    [[1.0], [2.0]]
    """
    if isinstance(value, StoredRows):  # of other data, which have checked them
        return value
    # Mapped from a file, or kept in chunks.
    is_stored = isinstance(value, np.memmap) or hasattr(value, "chunks")
    if not is_stored or np.ndim(value) != 2 or math.prod(np.shape(value)) <= BLOCK:
        rows = as_array(name, value, ndim=2)
        require_lengths(name, rows)
        return rows
    if np.isnan(np.shape(value)).any():
        raise ValueError(
            f"{name} has shape {np.shape(value)}; it must be known, which of a Dask array "
            ".compute_chunk_sizes() sees to"
        )
    stored = StoredRows(value)
    for part in row_slices(stored.shape):
        here = f"{name}[{part.start}:]"
        require_lengths(here, as_array(here, stored.source[part], ndim=2))
    return stored
