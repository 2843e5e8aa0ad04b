"""Tables with a nonnegative number for every context and token, dense or sparse, read once."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from ntpnb.basics.array_types import BoolArray, FloatArray, IntArray, Sparse
from ntpnb.basics.saving import register
from ntpnb.basics.validation import (
    as_array,
    precision_of,
    require_dense,
    require_unit_sum,
    sum_tolerance,
)

LARGE = 2**20  # entries from which on a sparse table stays sparse
BLOCK = 2**22  # entries of a dense array that computations hold at one time (32 MiB)


class Entries(NamedTuple):
    """Entries of a table that are not zero, row by row, and in each row in the order of tokens.

    Attributes
    ----------
    row, token : ndarray of int, shape (n,)
    value : ndarray, shape (n,)
    """

    row: IntArray
    token: IntArray
    value: FloatArray


class Table(ABC):
    """A number for every context and token, held in one form and written in the other on demand.

    Attributes
    ----------
    name : str
        What errors call it.
    shape : tuple of int
        ``(m, V)``.
    precision : dtype
        What the numbers were given in; they are held as float64.
    is_sparse : bool
        Whether it is held sparse.

    Examples
    --------
    >>> from ntpnb.problem.table import as_table
    >>> table = as_table("counts", [[0.0, 2.0], [1.0, 0.0]])
    >>> table.is_sparse, table.sparse.nnz, table.num_entries().tolist()
    (False, 2, [1, 1])
    """

    is_sparse: bool

    def __init__(self, name: str, shape: tuple[int, ...], precision: npt.DTypeLike) -> None:
        num_rows, num_columns = shape
        self.name = name
        self.shape: tuple[int, int] = (int(num_rows), int(num_columns))
        self.precision = np.dtype(precision)

    @property
    @abstractmethod
    def held(self) -> FloatArray | csr_array:
        """The table in the form in which it is held, read-only."""

    @property
    @abstractmethod
    def dense(self) -> FloatArray:
        """The table as a read-only array, shape (m, V).

        Raises
        ------
        ValueError
            It is held sparse, and would have more than 2**28 entries.
        """

    @property
    @abstractmethod
    def sparse(self) -> csr_array:
        """The table as a canonical matrix of compressed rows, whose arrays are read-only."""

    def __reduce__(self) -> tuple[type["Table"], tuple[str, FloatArray | csr_array]]:
        # What was derived is left behind, and a copy is as read-only as the original.
        return type(self), (self.name, self.held)

    @abstractmethod
    def rows(self, rows: slice) -> FloatArray:
        """Some rows as a dense array."""

    @abstractmethod
    def entries(self, rows: slice) -> Entries:
        """Entries of some rows that are not zero; ``row`` is counted from the first of them."""

    @abstractmethod
    def positive(self, name: str) -> BoolArray:
        """Where entries are positive, as a read-only array with a name for errors."""

    @abstractmethod
    def row_sums(self) -> FloatArray:
        """Sum of each row, shape (m,)."""

    @abstractmethod
    def num_entries(self) -> IntArray:
        """Number of entries in each row that are not zero, shape (m,)."""

    @abstractmethod
    def first_tokens(self) -> IntArray:
        """Token of the first entry in each row that is not zero, shape (m,); each row has one."""

    @abstractmethod
    def sums_of_x_log_x(self) -> FloatArray:
        """Sum of ``x log x`` over the entries ``x > 0`` of each row, shape (m,)."""

    @abstractmethod
    def entry_blocks(self) -> Iterator[Entries]:
        """All entries that are not zero, a block of rows at a time."""

    @abstractmethod
    def at(self, row: IntArray, token: IntArray) -> FloatArray:
        """Look up entries, zeros included, shape (n,)."""

    @abstractmethod
    def above(self, threshold: float) -> "Table":
        """The table with zeros in place of the numbers that are not above a threshold."""

    @abstractmethod
    def divided_by(self, divisors: FloatArray) -> "Table":
        """The table with each row divided by a number, shape (m,)."""

    @abstractmethod
    def combined(self, weights: csr_array) -> "Table":
        """Sums of rows with weights, shape (k, m)."""

    def require_distributions(self) -> None:
        """Raise unless every row is nonnegative and sums to one, up to the numbers' precision."""
        for row, _, value in self.entry_blocks():
            negative = value < 0
            if negative.any():
                k = int(np.argmax(negative))
                raise ValueError(
                    f"{self.name} row {row[k]} has the entry {value[k]:g}; none may be negative"
                )
        tolerance = sum_tolerance(self.num_entries(), self.precision)
        require_unit_sum(self.name, self.row_sums(), tolerance)


@register
class _DenseTable(Table):
    """A table that is held as an array.

    Parameters
    ----------
    name : str
    held : ndarray, shape (m, V)
        Finite numbers, which nothing else changes.
    precision : dtype, optional
    """

    is_sparse = False

    def __init__(self, name: str, held: FloatArray, precision: npt.DTypeLike = np.float64) -> None:
        super().__init__(name, held.shape, precision)
        self._held = held
        self._held.flags.writeable = False

    @property
    def held(self) -> FloatArray:
        return self._held

    @property
    def dense(self) -> FloatArray:
        return self._held

    @cached_property
    def sparse(self) -> csr_array:
        return _read_only(csr_array(self._held))

    def rows(self, rows: slice) -> FloatArray:
        return self._held[rows]

    def entries(self, rows: slice) -> Entries:
        X = self._held[rows]
        row, token = np.nonzero(X)
        return Entries(row, token, X[row, token])

    def positive(self, name: str) -> BoolArray:
        positive = self._held > 0
        positive.flags.writeable = False
        return positive

    def row_sums(self) -> FloatArray:
        sums: FloatArray = self._held.sum(1)
        return sums

    def num_entries(self) -> IntArray:
        numbers: IntArray = np.count_nonzero(self._held, axis=1)
        return numbers

    def first_tokens(self) -> IntArray:
        first: IntArray = (self._held != 0).argmax(1)
        return first

    def sums_of_x_log_x(self) -> FloatArray:
        sums = []
        for rows in row_slices(self.shape):
            X = self._held[rows]
            log_x = np.log(X, out=np.zeros_like(X), where=X > 0)
            sums.append((X * log_x).sum(1))
        return np.concatenate(sums)

    def entry_blocks(self) -> Iterator[Entries]:
        for rows in row_slices(self.shape):
            row, token, value = self.entries(rows)
            yield Entries(rows.start + row, token, value)

    def at(self, row: IntArray, token: IntArray) -> FloatArray:
        values: FloatArray = self._held[row, token]
        return values

    def above(self, threshold: float) -> "_DenseTable":
        held = np.where(self._held > threshold, self._held, 0.0)
        return _DenseTable(self.name, held, self.precision)

    def divided_by(self, divisors: FloatArray) -> "_DenseTable":
        return _DenseTable(self.name, self._held / divisors[:, None])

    def combined(self, weights: csr_array) -> "_DenseTable":
        return _DenseTable(self.name, weights @ self._held)


@register
class _SparseTable(Table):
    """A table that is held as a sparse matrix.

    Parameters
    ----------
    name : str
    held : csr_array, shape (m, V)
        Finite numbers, which nothing else changes, in canonical form: indices are sorted, and there
        are neither duplicates nor explicit zeros.
    precision : dtype, optional
    """

    is_sparse = True

    def __init__(self, name: str, held: csr_array, precision: npt.DTypeLike = np.float64) -> None:
        super().__init__(name, held.shape, precision)
        self._held = _read_only(held)

    @property
    def held(self) -> csr_array:
        return self._held

    @cached_property
    def dense(self) -> FloatArray:
        require_dense(
            self.name,
            self.shape,
            f"use sparse_{self.name}, and losses and gradients, which take a block at a time",
        )
        dense: FloatArray = self._held.toarray()
        dense.flags.writeable = False
        return dense

    @property
    def sparse(self) -> csr_array:
        return self._held

    def rows(self, rows: slice) -> FloatArray:
        part: FloatArray = self._held[rows].toarray()
        return part

    def entries(self, rows: slice) -> Entries:
        return entries_of(self._held[rows])

    def positive(self, name: str) -> BoolArray:
        require_dense(name, self.shape, f"use the indices of sparse_{self.name}")
        positive = np.zeros(self.shape, dtype=bool)
        row, token, value = entries_of(self._held)
        positive[row, token] = value > 0
        positive.flags.writeable = False
        return positive

    def row_sums(self) -> FloatArray:
        sums: FloatArray = self._held.sum(axis=1)
        return sums

    def num_entries(self) -> IntArray:
        numbers: IntArray = np.diff(self._held.indptr).astype(np.int64)
        return numbers

    def first_tokens(self) -> IntArray:
        first: IntArray = self._held.indices[self._held.indptr[:-1]].astype(np.int64)
        return first

    def sums_of_x_log_x(self) -> FloatArray:
        x = self._held.data
        terms = csr_array((x * np.log(x), self._held.indices, self._held.indptr), shape=self.shape)
        sums: FloatArray = terms.sum(axis=1)
        return sums

    def entry_blocks(self) -> Iterator[Entries]:
        yield entries_of(self._held)

    def at(self, row: IntArray, token: IntArray) -> FloatArray:
        held = entries_of(self._held)
        num_columns = self.shape[1]
        held_key = held.row * num_columns + held.token  # increasing
        key = row * num_columns + token
        position = np.searchsorted(held_key, key)
        is_held = np.append(held_key, -1)[position] == key
        return np.where(is_held, np.append(held.value, 0.0)[position], 0.0)

    def above(self, threshold: float) -> "_SparseTable":
        held = self._held.copy()
        held.data = np.where(held.data > threshold, held.data, 0.0)
        held.eliminate_zeros()
        return _SparseTable(self.name, held, self.precision)

    def divided_by(self, divisors: FloatArray) -> "_SparseTable":
        quotients = self._held.copy()
        quotients.data /= divisors[entries_of(self._held).row]
        return _SparseTable(self.name, quotients)

    def combined(self, weights: csr_array) -> Table:
        combined = weights @ self._held
        combined.sort_indices()  # products of sparse matrices leave them in any order
        return table_of(self.name, combined)


def as_table(
    name: str, value: npt.ArrayLike | Sparse, shape: tuple[int, int] | None = None
) -> Table:
    """Read a dense array, or a scipy matrix of any format, as a fresh table, or explain.

    Duplicate entries of a sparse matrix are added up and explicit zeros dropped. A sparse matrix
    with fewer than LARGE entries, zeros included, is held dense: what is computed from it is then
    the same to the last bit as from a dense array.

    Parameters
    ----------
    name : str
        The argument's name, for errors.
    value : array_like or scipy sparse array or matrix, shape (m, V)
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
    if issparse(value):
        sparse = _as_sparse(name, value)
        if shape is not None and sparse.shape != shape:
            raise ValueError(f"{name} has shape {sparse.shape}; it needs {shape}")
        return table_of(name, sparse, precision_of(value))
    dense = as_array(name, value, ndim=2, shape=shape)
    return _DenseTable(name, dense, precision_of(value))


def table_of(name: str, sparse: csr_array, precision: npt.DTypeLike = np.float64) -> Table:
    """Hold a canonical sparse matrix as it is where it is large, and as an array elsewhere."""
    if math.prod(sparse.shape) < LARGE:
        return _DenseTable(name, sparse.toarray(), precision)
    return _SparseTable(name, sparse, precision)


def collected(
    row: IntArray, token: IntArray, value: FloatArray, shape: tuple[int, int]
) -> FloatArray | csr_array:
    """Add up entries in a table: an array where it is small, and a sparse matrix elsewhere.

    Parameters
    ----------
    row, token : ndarray of int, shape (n,)
    value : ndarray, shape (n,)
    shape : tuple of int

    Returns
    -------
    ndarray or csr_array

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.table import collected
    >>> collected(np.array([0, 0, 1]), np.array([1, 1, 0]), np.ones(3), shape=(2, 2)).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    if math.prod(shape) >= LARGE:
        return csr_array((value, (row, token)), shape=shape)
    table = np.zeros(shape)
    np.add.at(table, (row, token), value)
    return table


def row_slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Divide the rows of an array so that a block has BLOCK entries, or one row."""
    num_rows, *others = shape
    step = max(1, BLOCK // max(1, math.prod(others)))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def entries_of(table: csr_array) -> Entries:
    """Rows, columns and values of a canonical sparse matrix, as int64 and float64 arrays."""
    num_rows = table.shape[0]
    row = np.repeat(np.arange(num_rows), np.diff(table.indptr))
    return Entries(row, table.indices.astype(np.int64), table.data)


# -- reading sparse matrices ----------------------------------------------------------------------


def _as_sparse(name: str, value: Sparse) -> csr_array:
    """Return a sparse matrix of any format and type as a fresh canonical csr_array, or explain."""
    if value.ndim != 2:
        raise ValueError(f"{name} has {value.ndim} dimensions; it needs 2")
    if value.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} is not a rectangular array of numbers: its entries are of type {value.dtype}"
        )
    row, column, data = _positions(name, value)
    for axis, index in (("row", row), ("column", column)):
        length = value.shape[0 if axis == "row" else 1]
        outside = (index < 0) | (index >= length)
        if outside.any():
            k = int(np.argmax(outside))
            raise ValueError(
                f"{name} has an entry in row {row[k]} and column {column[k]}, outside its shape "
                f"{value.shape}; {axis}s must lie in 0…{length - 1}"
            )
    # In float64 before duplicates are added up: short integers would overflow.
    table = csr_array((data.astype(np.float64), (row, column)), shape=value.shape)
    table.sum_duplicates()
    table.eliminate_zeros()
    finite = np.isfinite(table.data)
    if not finite.all():
        k = int(np.argmin(finite))
        row, column, found = entries_of(table)
        raise ValueError(f"{name}[{row[k]}, {column[k]}] is {found[k]}; every entry must be finite")
    return table


def _positions(name: str, value: Sparse) -> tuple[IntArray, IntArray, npt.NDArray[np.generic]]:
    """Row, column and value of each stored entry, read without trust in the indices."""
    if value.format not in ("csr", "csc"):
        entries = value.tocoo()
        if not len(entries.row) == len(entries.col) == len(entries.data):
            raise ValueError(
                f"{name} has {len(entries.row)} row indices, {len(entries.col)} column indices and "
                f"{len(entries.data)} values; it needs as many of each"
            )
        return entries.row, entries.col, entries.data
    # scipy's own conversions follow the pointers wherever they lead.
    pointers = value.indptr
    num_lines = value.shape[0 if value.format == "csr" else 1]
    num_stored = min(len(value.indices), len(value.data))
    is_sound = (
        len(pointers) == num_lines + 1
        and pointers[0] == 0
        and pointers[-1] <= num_stored
        and bool((np.diff(pointers) >= 0).all())
    )
    if not is_sound:
        raise ValueError(
            f"{name} has an indptr that does not fit its {num_stored} indices and values; it must "
            f"be {num_lines + 1} numbers that increase from 0 to at most {num_stored}"
        )
    line = np.repeat(np.arange(num_lines), np.diff(pointers))
    index = value.indices[: len(line)]
    data = value.data[: len(line)]
    if value.format == "csr":
        return line, index, data
    return index, line, data


def _read_only(matrix: csr_array) -> csr_array:
    """Make the arrays of a matrix read-only, and return it: cached properties rely on them."""
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix
