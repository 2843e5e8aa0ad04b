"""Arguments as the package needs them, or one error that names the argument and what is needed."""

import sys
from numbers import Real

import numpy as np

SUM_TOLERANCE = 1e-8  # rounding of typed digits passes, a forgotten token does not
COUNTABLE = 2**31  # steps, sizes and seeds: no loop or array gets that long
# Products of two embeddings, a count and a weight keep within floats, and so do their squares.
LENGTHS, COUNTS = (1e-50, 1e50), (1e-30, 1e30)


def as_floats(name, value):
    """Return ``value`` as a float64 array, copied only where needed, or explain."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "cmM":  # whose imaginary parts or units would be lost
            raise TypeError(f"its entries are of type {array.dtype}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not a rectangular array of numbers: {error}") from None


def as_array(name, value, *, ndim, length=None, shape=None):
    """Return ``value`` as a fresh finite float64 array of the required shape, or explain."""
    array = np.array(as_floats(name, value))
    if array.ndim != ndim:
        raise ValueError(f"{name} has {array.ndim} dimensions; it needs {ndim}")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} has {len(array)} rows; it needs {length}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it needs {shape}")
    if not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ValueError(f"{name}{list(where)} is {array[where]}; every entry must be finite")
    return array


def as_indices(name, value):
    """Return ``value`` as a fresh 1-D integer array, or explain."""
    try:
        array = np.array(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not a flat sequence of integers: {error}") from None
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(int)
    if array.ndim != 1 or not np.can_cast(array.dtype, np.int64) or array.dtype.kind == "b":
        raise ValueError(
            f"{name} has dtype {array.dtype} and {array.ndim} dimensions; "
            "it must be a flat sequence of integers"
        )
    return array.astype(np.int64)


def as_sequences(sequences):
    """Return ``sequences`` as a list of fresh 1-D integer arrays, or explain."""
    try:
        sequences = list(sequences)
    except TypeError:
        raise TypeError(
            f"sequences is of type {type(sequences).__name__}; it must hold sequences of integers"
        ) from None
    return [as_indices(f"sequences[{i}]", s) for i, s in enumerate(sequences)]


def as_integer(name, value, least=-np.inf):
    """Return ``value`` as an integer of at least ``least`` (nothing, 0 or 1), or explain."""
    kind = {0: "a nonnegative", 1: "a positive"}.get(least, "an")
    needed = f"be {kind} integer (below {COUNTABLE})"
    require_number(name, value, lambda x: x == int(x) and least <= x < COUNTABLE, needed)
    return int(value)


def as_seed(name, value):
    """Return ``value`` if it seeds a generator: a nonnegative integer or a sequence of them."""
    try:
        np.random.SeedSequence(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{name} is {value!r}; it must be a nonnegative integer or a sequence of them"
        ) from None
    return value


def require_number(name, value, good, needed):
    """Raise unless ``value`` is a finite real number for which ``good`` holds."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must {needed}")
    if not (abs(value) <= sys.float_info.max and good(value)):
        raise ValueError(f"{name} is {value}; it must {needed}")


def require_range(name, tokens, V):
    """Raise unless all tokens lie in ``0 … V−1``."""
    if (bad := tokens[(tokens < 0) | (tokens >= V)]).size:
        raise ValueError(f"{name} holds the token {bad[0]}; tokens must lie in 0…{V - 1}")


def require_lengths(name, rows):
    """Raise unless each row is zero or its largest entry lies within ``LENGTHS``."""
    largest = np.abs(rows).max(1)
    if (odd := (largest > 0) & ((largest < LENGTHS[0]) | (largest > LENGTHS[1]))).any():
        j = int(np.argmax(odd))
        raise ValueError(
            f"{name}[{j}] has the largest entry {largest[j]:g} in absolute value; it must be zero "
            f"or lie between {LENGTHS[0]:g} and {LENGTHS[1]:g}"
        )


def require_distributions(name, rows):
    """Raise unless every row is nonnegative and sums to one within ``SUM_TOLERANCE``."""
    if (rows < 0).any():
        j, v = np.argwhere(rows < 0)[0]
        raise ValueError(f"{name} row {j} has the entry {rows[j, v]:g}; none may be negative")
    sums = rows.sum(1)
    if (empty := sums == 0).any():
        raise ValueError(f"{name} row {np.argmax(empty)} is all zero; its support is empty")
    if (wrong := np.abs(sums - 1) > SUM_TOLERANCE).any():
        j = int(np.argmax(wrong))
        raise ValueError(
            f"{name} row {j} sums to {sums[j]:.10g}; it must sum to one (within {SUM_TOLERANCE:g})"
        )
