"""Context embeddings that are left where they are, in a file or on a cluster, and read in parts."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, NDArray

from ntpnb.basics.validation import FloatArray, as_array, require_lengths
from ntpnb.problem import table


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
    >>> from ntpnb.problem.stored import StoredRows
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
        return np.array(self.source[rows], dtype=np.float64, order="C")

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """All rows at once, as numpy asks for them."""
        return self[:].astype(dtype or np.float64, copy=False)


def as_rows(name: str, value: ArrayLike | StoredRows) -> FloatArray | StoredRows:
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
    >>> from ntpnb.problem.stored import as_rows
    >>> as_rows("context_embeddings", [[1], [2]]).tolist()
    [[1.0], [2.0]]
    """
    if isinstance(value, StoredRows):  # of other data, which have checked them
        return value
    # Mapped from a file, or kept in chunks.
    is_stored = isinstance(value, np.memmap) or hasattr(value, "chunks")
    if not is_stored or np.ndim(value) != 2 or math.prod(np.shape(value)) <= table.BLOCK:
        rows = as_array(name, value, ndim=2)
        require_lengths(name, rows)
        return rows
    if np.isnan(np.shape(value)).any():
        raise ValueError(
            f"{name} has shape {np.shape(value)}; it must be known, which of a Dask array "
            ".compute_chunk_sizes() sees to"
        )
    stored = StoredRows(value)
    for part in table.row_slices(stored.shape):
        here = f"{name}[{part.start}:]"
        require_lengths(here, as_array(here, stored.source[part], ndim=2))
    return stored
