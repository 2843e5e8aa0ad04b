"""Tables with a nonnegative number for every context and token, of which few are not zero."""

import math
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, issparse

from ntpnb.basics.saving import make_read_only, register
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
    require_unit_sum,
    sum_tolerance,
)

LARGE = 2**20  # entries, zeros included, from which on no computation forms a whole table
MOST_POSITIONS = 2**INDEX_BITS - 1  # as many as an index can number
BLOCK = WHOLE // 4  # entries of a dense array that computations form at one time (32 MiB)


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

    def combined(self, weights: csr_array) -> "Table":
        """Sums of rows with weights, shape (k, m)."""
        return as_table(self.name, weights @ self.sparse)

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
