"""Arguments as the package needs them, or one error that names the argument and what is needed."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple, SupportsInt

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse, sparray, spmatrix

from ntpnb.basics.tolerances import HELD

# What functions take and return; shapes stand in their docstrings.
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
AnyPrecision = NDArray[Any]  # of floats, in single or double precision
Sparse = sparray | spmatrix  # of any of scipy's formats

SUM_TOLERANCE = 1e-8  # rounding of typed digits passes, a forgotten token does not
LARGEST_SUM_TOLERANCE = 1e-2  # beyond it, in any precision, a token may have been forgotten
DENSE_LIMIT = 4 * HELD  # 2**28 entries of a dense array (2 GiB of float64)
COUNTABLE = 2**31  # steps, sizes and seeds: no loop or array gets that long
INDEX_BITS = np.iinfo(np.intp).bits - 1  # of an index that is not negative: 63, and 31 in a browser
# Products of two embeddings, a count and a weight keep within floats, and so do their squares.
LONGEST = 1e50
SHORTEST = 1 / LONGEST
LARGEST_COUNT = 1e30
SMALLEST_COUNT = 1 / LARGEST_COUNT

# What numpy raises of values that it cannot read, and tensors that do not let themselves be read:
# those that track gradients, lie on a device, or have a type that numpy does not know.
READING_FAILURES = (TypeError, ValueError, OverflowError, RuntimeError)

Seed = int | Sequence[int]  # what names one stream of random numbers

# -- arrays ---------------------------------------------------------------------------------------


class Own(NamedTuple):
    """An array that was made for whoever reads it, or that nobody can change: it is not copied."""

    array: FloatArray


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a float64 array, copied only where needed, or explain."""
    needed = "a rectangular array of numbers"
    array = read_array(name, value, needed)
    if array.dtype.kind in "cmM":  # whose imaginary parts or units would be lost
        raise ValueError(f"{name} is not {needed}: its entries are of type {array.dtype}")
    return read_array(name, array, needed, np.float64)


def as_matrices(name: str, value: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """Return ``value`` as a float64 array of shape (..., p, q), or explain."""
    matrices = as_floats(name, value)
    if matrices.shape[-2:] != shape:
        raise ValueError(f"{name} has shape {matrices.shape}; its last two axes must be {shape}")
    return matrices


def read_array(
    name: str, value: ArrayLike, needed: str, dtype: npt.DTypeLike | None = None
) -> NDArray[Any]:
    """Return what numpy makes of a value, or explain."""
    _require_every_entry(name, value)
    try:
        return np.asarray(value, dtype=dtype)
    except READING_FAILURES as error:
        raise ValueError(f"{name} is not {needed}: {_first_sentence(error)}") from None


def as_array(
    name: str,
    value: ArrayLike | Own,
    *,
    ndim: int,
    length: int | None = None,
    shape: tuple[int, ...] | None = None,
) -> FloatArray:
    """Return ``value`` as a fresh finite float64 array of the required shape, or explain."""
    array = as_floats(name, value.array if isinstance(value, Own) else value)
    if not isinstance(value, Own | list | tuple):  # of which numpy has made a fresh array
        array = np.array(array)
    if array.ndim != ndim:
        raise ValueError(f"{name} has {counted(array.ndim, 'dimension')}; it needs {ndim}")
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
    return as_integers(name, value, "a flat sequence of integers", ndim=1)


def as_integers(
    name: str, value: ArrayLike, needed: str = "an array of integers", ndim: int | None = None
) -> IntArray:
    """Return ``value`` as a fresh integer array, or explain what is ``needed``."""
    array = read_array(name, value, needed)
    if array.size == 0 and array.dtype.kind == "f":  # numpy's type for an empty list
        array = array.astype(int)
    if array.dtype.kind not in "iu" or ndim not in (None, array.ndim):
        raise ValueError(
            f"{name} has dtype {array.dtype} and {counted(array.ndim, 'dimension')}; it must be "
            f"{needed}"
        )
    limit = 2**INDEX_BITS  # beyond it numbers would come out as others, and as tokens perhaps
    for found in (array.max(initial=0), array.min(initial=0)):
        if not -limit <= found < limit:
            raise ValueError(
                f"{name} holds {found}; it must be {needed} "
                f"from -2**{INDEX_BITS} on and below 2**{INDEX_BITS}"
            )
    return array.astype(np.intp)


def as_sequences(sequences: Iterable[ArrayLike]) -> list[IntArray]:
    """Return ``sequences`` as a list of fresh 1-D integer arrays, or explain."""
    require_type("sequences", sequences, Iterable, "a list of sequences of integers")
    if isinstance(sequences, np.ndarray):  # one of no dimensions could not be iterated over
        sequences = np.atleast_1d(sequences)
    return [as_indices(f"sequences[{i}]", sequence) for i, sequence in enumerate(sequences)]


def _first_sentence(error: Exception) -> str:
    """What another library says in its first sentence, and how a tensor becomes readable."""
    sentence = str(error).split(". ")[0].rstrip(".")
    if isinstance(error, RuntimeError) or "tensor" in sentence.lower():
        sentence += " (of a tensor, tensor.detach().cpu().numpy() can be read)"
    return sentence


def _require_every_entry(name: str, value: object) -> None:
    """Raise where numpy would read entries that are masked, or none of a sparse matrix."""
    if issparse(value):
        raise ValueError(
            f"{name} is a sparse matrix; a dense array is needed here (its .toarray() is one)"
        )
    rows = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise ValueError(
            f"{name} is a masked array, whose masked entries would be read as if they were not; "
            "give an ordinary array: drop what is masked, or write what it means with .filled()"
        )


def require_type(name: str, value: object, kind: Any, needed: str | None = None) -> None:
    """Raise ``TypeError`` unless ``value`` is of a type, or a union, and say what is ``needed``."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} is of type {type(value).__name__}; {needed or kind.__name__} is needed"
        )


def require_function(name: str, value: object, needed: str = "a function") -> None:
    """Raise ``TypeError`` unless ``value`` can be called, and say what is ``needed``."""
    require_type(name, value, Callable, needed)


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise unless ``value`` is one of some words."""
    if not isinstance(value, str) or value not in choices:  # arrays answer entry by entry
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def require_dense(what: str, shape: tuple[int, ...], instead: str) -> None:
    """Raise, before memory is taken, if a dense array would have more than DENSE_LIMIT entries.

    Parameters
    ----------
    what : str
        What asks for the array; the message begins with it.
    shape : tuple of int
    instead : str
        What to use or to do instead; the message ends with it.
    """
    size = math.prod(shape)
    if size > DENSE_LIMIT:
        sizes = " × ".join(str(length) for length in shape)
        raise ValueError(
            f"{what} needs a dense array of {sizes} = {size} entries, more than {DENSE_LIMIT}; "
            f"{instead}"
        )


def first_index(mask: BoolArray) -> tuple[int, ...]:
    """Return the index of the first true entry of ``mask``, which must have one."""
    return tuple(np.argwhere(mask)[0].tolist())


def counted(number: int | str, noun: str) -> str:
    """Write how many there are, with a noun whose plural ends in an s."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


# -- numbers --------------------------------------------------------------------------------------


def as_integer(
    name: str, value: SupportsInt, least: Literal[0, 1] | None = None, below: int = COUNTABLE
) -> int:
    """Return ``value`` as an integer, of at least ``least`` where that is given, or explain."""
    kind = {None: "an", 0: "a nonnegative", 1: "a positive"}[least]
    lowest = -np.inf if least is None else least

    def is_good(number: float) -> bool:
        return number == int(number) and lowest <= number < below

    require_number(name, value, is_good, f"be {kind} integer (below {below})")
    return int(value)


def as_seed(name: str, value: Seed) -> Seed:
    """Return ``value`` if it seeds a generator: a nonnegative integer or a sequence of them."""
    needed = f"{name} is {value!r}; it must be a nonnegative integer or a sequence of them"
    if value is None:  # of which numpy would make another one each time
        raise TypeError(needed)
    try:
        np.random.SeedSequence(value)
    except (TypeError, ValueError) as error:
        raise type(error)(needed) from None
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


def as_vocab_size(name: str, largest: int, vocab_size: int | None) -> int:
    """Return the size that is given, or else one more than the largest token, or explain."""
    if vocab_size is not None:
        return as_integer("vocab_size", vocab_size, 1)
    if largest >= COUNTABLE - 1:
        raise ValueError(
            f"{name} holds the token {largest}; tokens must lie below {COUNTABLE - 1} "
            "(number the distinct ones 0, 1, 2, …)"
        )
    return largest + 1


# -- contents of arrays ---------------------------------------------------------------------------


def require_range(name: str, tokens: IntArray, vocab_size: int) -> None:
    """Raise unless all tokens lie in ``0 … V−1``."""
    outside = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"{name} holds the token {outside[0]}; tokens must lie in 0…{vocab_size - 1}"
        )


def require_lengths(
    name: str, rows: FloatArray, place: Callable[[int], list[int]] = lambda j: [j]
) -> None:
    """Raise unless each row is zero, or its largest entry is between SHORTEST and LONGEST.

    The message says the row's ``place``, which is its number where nothing else is given.
    """
    largest = np.maximum(rows.max(1, initial=0.0), -rows.min(1, initial=0.0))
    refuse_any(
        ~np.isfinite(largest),
        lambda j: f"{name}{place(j)} has an entry that is {largest[j]:g}; all must be finite",
    )
    usable = (largest == 0) | ((largest >= SHORTEST) & (largest <= LONGEST))
    refuse_any(
        ~usable,
        lambda j: (
            f"{name}{place(j)} has the largest entry {largest[j]:g} in absolute value; it must be "
            f"zero or between {SHORTEST:g} and {LONGEST:g}"
        ),
    )


def refuse_any(bad: BoolArray, explain: Callable[[int], str]) -> None:
    """Raise ``ValueError`` if something is bad, and explain it by the first that is."""
    if bad.any():
        raise ValueError(explain(int(np.argmax(bad))))


def sum_tolerance(num_terms: int | IntArray, precision: npt.DTypeLike) -> FloatArray:
    """How far numbers that sum to one may miss it: by their rounding, and a little more.

    Writing ``n`` nonnegative numbers with the relative spacing ``eps`` and adding them up changes
    their sum by up to ``n · eps/2``, relative to the sum. Twice that is allowed, though never less
    than SUM_TOLERANCE and never more than LARGEST_SUM_TOLERANCE.

    Parameters
    ----------
    num_terms : int or ndarray of int
        ``n``, the number of positive entries.
    precision : dtype
        What the numbers were given in. Integers are exact.

    Returns
    -------
    ndarray
        Of the shape of ``num_terms``.
    """
    dtype = np.dtype(precision)
    eps = float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    return np.clip(np.asarray(num_terms) * eps, SUM_TOLERANCE, LARGEST_SUM_TOLERANCE)


def require_unit_sum(name: str, sums: FloatArray, tolerance: FloatArray) -> None:
    """Raise unless the sums of all rows are one, each within its tolerance."""
    refuse_any(sums == 0, lambda j: f"{name} row {j} is all zero; its support is empty")
    refuse_any(
        np.abs(sums - 1) > tolerance,
        lambda j: (
            f"{name} row {j} sums to {sums[j]:.10g}; it must sum to one (within {tolerance[j]:g})"
        ),
    )


def as_increasing(name: str, values: ArrayLike) -> FloatArray:
    """Return an increasing sequence of finite numbers, or explain.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> from ntpnb.basics.validation import as_increasing
    >>> as_increasing("radii", [1, 2.5])
    array([1. , 2.5])
    """
    found = as_array(name, values, ndim=1)
    require_increasing(name, found)
    return found


def require_increasing(name: str, values: FloatArray | IntArray) -> None:
    """Raise unless there are some numbers, and each is larger than the one before it.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.validation import require_increasing
    >>> require_increasing("radii", np.array([1.0, 2.5]))
    """
    if values.size == 0:
        raise ValueError(f"{name} is empty; at least one number is needed")
    refuse_any(
        np.diff(values) <= 0,
        lambda k: f"{name}[{k + 1}] is {values[k + 1]:g} after {values[k]:g}; {name} must increase",
    )
