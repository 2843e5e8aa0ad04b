"""Arguments as the package needs them, or one error that names the argument and what is needed."""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Literal, SupportsInt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntpnb.array_types import BoolArray, FloatArray, IntArray

SUM_TOLERANCE = 1e-8  # rounding of typed digits passes, a forgotten token does not
COUNTABLE = 2**31  # steps, sizes and seeds: no loop or array gets that long
# Products of two embeddings, a count and a weight keep within floats, and so do their squares.
SHORTEST = 1e-50
LONGEST = 1e50
SMALLEST_COUNT = 1e-30
LARGEST_COUNT = 1e30

Seed = int | Sequence[int]  # what names one stream of random numbers

# -- arrays ---------------------------------------------------------------------------------------


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a float64 array, copied only where needed, or explain."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "cmM":  # whose imaginary parts or units would be lost
            raise TypeError(f"its entries are of type {array.dtype}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not a rectangular array of numbers: {error}") from None


def as_array(
    name: str,
    value: ArrayLike,
    *,
    ndim: int,
    length: int | None = None,
    shape: tuple[int, ...] | None = None,
) -> FloatArray:
    """Return ``value`` as a fresh finite float64 array of the required shape, or explain."""
    array = np.array(as_floats(name, value))
    if array.ndim != ndim:
        raise ValueError(f"{name} has {array.ndim} dimensions; it needs {ndim}")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} has {len(array)} rows; it needs {length}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it needs {shape}")
    finite = np.isfinite(array)
    if not finite.all():
        where = first_index(~finite)
        raise ValueError(f"{name}{list(where)} is {array[where]}; every entry must be finite")
    return array


def as_indices(name: str, value: ArrayLike) -> IntArray:
    """Return ``value`` as a fresh 1-D integer array, or explain."""
    try:
        array: NDArray[np.generic] = np.array(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not a flat sequence of integers: {error}") from None
    if array.size == 0 and array.dtype.kind == "f":  # numpy's type for an empty list
        array = array.astype(int)
    is_integer = np.can_cast(array.dtype, np.int64) and array.dtype.kind != "b"
    if array.ndim != 1 or not is_integer:
        raise ValueError(
            f"{name} has dtype {array.dtype} and {array.ndim} dimensions; "
            "it must be a flat sequence of integers"
        )
    return array.astype(np.int64)


def as_sequences(sequences: Iterable[ArrayLike]) -> list[IntArray]:
    """Return ``sequences`` as a list of fresh 1-D integer arrays, or explain."""
    try:
        listed = list(sequences)
    except TypeError:
        raise TypeError(
            f"sequences is of type {type(sequences).__name__}; it must hold sequences of integers"
        ) from None
    return [as_indices(f"sequences[{i}]", sequence) for i, sequence in enumerate(listed)]


def first_index(mask: BoolArray) -> tuple[int, ...]:
    """Return the index of the first true entry of ``mask``, which must have one."""
    return tuple(np.argwhere(mask)[0].tolist())


# -- numbers --------------------------------------------------------------------------------------


def as_integer(name: str, value: SupportsInt, least: Literal[0, 1] | None = None) -> int:
    """Return ``value`` as an integer, of at least ``least`` where that is given, or explain."""
    kind = {None: "an", 0: "a nonnegative", 1: "a positive"}[least]
    lowest = -np.inf if least is None else least

    def is_good(number: float) -> bool:
        return number == int(number) and lowest <= number < COUNTABLE

    require_number(name, value, is_good, f"be {kind} integer (below {COUNTABLE})")
    return int(value)


def as_seed(name: str, value: Seed) -> Seed:
    """Return ``value`` if it seeds a generator: a nonnegative integer or a sequence of them."""
    try:
        np.random.SeedSequence(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{name} is {value!r}; it must be a nonnegative integer or a sequence of them"
        ) from None
    return value


def require_number(name: str, value: object, good: Callable[[float], bool], needed: str) -> None:
    """Raise unless ``value`` is a finite real number for which ``good`` holds."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must {needed}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not (math.isfinite(number) and good(number)):
        raise ValueError(f"{name} is {value}; it must {needed}")


# -- contents of arrays ---------------------------------------------------------------------------


def require_range(name: str, tokens: IntArray, vocab_size: int) -> None:
    """Raise unless all tokens lie in ``0 … V−1``."""
    outside = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"{name} holds the token {outside[0]}; tokens must lie in 0…{vocab_size - 1}"
        )


def require_lengths(name: str, rows: FloatArray) -> None:
    """Raise unless each row is zero or its largest entry lies between SHORTEST and LONGEST."""
    largest = np.abs(rows).max(1)
    odd = (largest > 0) & ((largest < SHORTEST) | (largest > LONGEST))
    if odd.any():
        j = int(np.argmax(odd))
        raise ValueError(
            f"{name}[{j}] has the largest entry {largest[j]:g} in absolute value; it must be zero "
            f"or lie between {SHORTEST:g} and {LONGEST:g}"
        )


def require_distributions(name: str, rows: FloatArray) -> None:
    """Raise unless every row is nonnegative and sums to one within SUM_TOLERANCE."""
    negative = rows < 0
    if negative.any():
        j, v = first_index(negative)
        raise ValueError(f"{name} row {j} has the entry {rows[j, v]:g}; none may be negative")
    sums = rows.sum(1)
    empty = sums == 0
    if empty.any():
        raise ValueError(f"{name} row {np.argmax(empty)} is all zero; its support is empty")
    wrong = np.abs(sums - 1) > SUM_TOLERANCE
    if wrong.any():
        j = int(np.argmax(wrong))
        raise ValueError(
            f"{name} row {j} sums to {sums[j]:.10g}; it must sum to one (within {SUM_TOLERANCE:g})"
        )
