"""Results that last: short to look at, plain values for other programs, and files that come back.

One mechanism serves every result. What an object consists of is asked as ``pickle`` asks it (its
state, or the call that makes it again), and is written down in plain values: numbers, strings,
lists and dictionaries. Only classes and functions that the package has registered are read back,
so that a file from elsewhere runs no code. Nothing that is read is believed: types are compared
with those that the classes declare, and a class whose parts have to fit each other says so in
``_checked``, which also measures anew what can be measured.
"""

import copyreg
import html
import io
import json
import math
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ntpnb.basics.errors import ConvergenceError, NotSeparableError, PairWeights

__all__ = ["Result", "Storable", "from_dict", "load", "register"]

VERSION = 1
"""Of the files; a number that grows when older versions of the package cannot read new files."""

STRUCTURE = "structure"  # the member of an npz file that says what the arrays are
LISTED_VALUES = 6  # so many entries of a list or tuple are shown by a repr
SHOWN_SIGNS = 40  # of a string

# What a file that is damaged, or was never ours, leads to.
READING_ERRORS = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    EOFError,
    RecursionError,
    OverflowError,
    MemoryError,  # of an array that claims to be huge
    NotImplementedError,  # a kind of compression that zipfile does not know
    zipfile.BadZipFile,
    zlib.error,
)

Array = npt.NDArray[Any]
Writer = Callable[[Array], object]
Reader = Callable[[str], Array]
T = TypeVar("T")

_known: dict[str, Any] = {}


def register(maker: T) -> T:
    """Let a class, or a function that makes results, be saved and read back by its name.

    Parameters
    ----------
    maker : callable

    Returns
    -------
    callable
        The same one, so that this serves as a decorator.

    Raises
    ------
    ValueError
        Another one has that name.

    Examples
    --------
    >>> import ntpnb.basics.saving
    >>> @ntpnb.basics.saving.register
    ... class Note(ntpnb.Result):
    ...     pass
    >>> ntpnb.basics.saving.from_dict(Note().to_dict())
    Note()
    """
    named: Any = maker
    name = named.__name__
    other = _known.get(name, maker)
    if (other.__module__, other.__qualname__) != (named.__module__, named.__qualname__):
        raise ValueError(f"{name} is the name of {other.__module__}.{other.__qualname__} already")
    _known[name] = maker
    return maker


register(NotSeparableError)
register(ConvergenceError)
register(PairWeights)
register(ValueError)
register(MemoryError)


class Storable:
    """What data and results have in common: plain values, and files.

    They can also be pickled, copied and sent between processes.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.datasets.toy().to_dict()["context_groups"]
    [0, 1, 2]
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that the object holds as plain values, which JSON can write.

        Arrays become nested lists, where that keeps their shape and type, and nested results
        dictionaries. :func:`ntpnb.basics.saving.from_dict` makes the object again, to the last bit.

        Returns
        -------
        dict
            Begins with ``kind``, the name of the object's class.

        Raises
        ------
        TypeError
            The object holds another one that the package does not know.

        Examples
        --------
        >>> import ntpnb
        >>> svm = ntpnb.max_margin(ntpnb.NextTokenData([[1.0]], [[1, 0]]))
        >>> plain = svm.to_dict()
        >>> plain["kind"], plain["W"]
        ('MarginSolution', [[0.5], [-0.5]])
        """
        written: dict[str, Any] = _Writing(_as_list).node(self)
        return written

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the object to a file, which :func:`ntpnb.load` reads.

        The file is written beside its place and renamed, so that nobody ever sees half of it.

        Parameters
        ----------
        path : str or path
            Ends in ``.npz``, or in ``.json``, which is larger, slower, and readable everywhere.

        Raises
        ------
        ValueError
            Another ending.
        TypeError
            The object holds another one that the package does not know.
        OSError
            The file cannot be written, or there is no such folder.

        Examples
        --------
        >>> import ntpnb, pathlib, tempfile
        >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     svm.save(pathlib.Path(folder) / "toy.npz")
        ...     again = ntpnb.load(pathlib.Path(folder) / "toy.npz")
        >>> bool((again.W == svm.W).all()), again.solver == svm.solver
        (True, True)
        """
        path = _as_path(path)
        _write_whole(path, CONTENT[_ending(path)](self))


class Result(Storable):
    """What the package's results have in common: a short repr, plain values, and files.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.max_margin(ntpnb.NextTokenData([[1.0]], [[1, 0]]))  # doctest: +ELLIPSIS
    MarginSolution(W: array 2 × 1, norm: 0.7071, min_margin: 1, ...)
    """

    def __repr__(self) -> str:
        """Name the class and each attribute in a few signs; arrays by their shapes."""
        shown = ", ".join(f"{name}: {text}" for name, text in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        """Write the attributes as a small table, for notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._shown().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def _shown(self) -> dict[str, str]:
        """Each public attribute in a few signs."""
        names = [field.name for field in fields(self)] if is_dataclass(self) else list(vars(self))
        public = [name for name in names if not name.startswith("_")]
        return {name: in_short(getattr(self, name)) for name in public}


def state_without_caches(thing: object) -> dict[str, Any]:
    """Return an object's attributes without what cached properties have computed.

    For ``__getstate__`` of classes whose properties are cheap, and must fit the attributes.

    Parameters
    ----------
    thing : object

    Returns
    -------
    dict

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.saving import state_without_caches
    >>> data = ntpnb.datasets.toy()
    >>> data.support.shape, "support" in vars(data), "support" in state_without_caches(data)
    ((3, 5), True, False)
    """
    return {
        name: value
        for name, value in vars(thing).items()
        if not isinstance(getattr(type(thing), name, None), cached_property)
    }


def make_read_only(value: Any) -> None:
    """Let nobody write into an array, or into the parts of a sparse one; other values are left.

    Parameters
    ----------
    value : object

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.saving import make_read_only
    >>> rows = np.ones(2)
    >>> make_read_only(rows)
    >>> rows.flags.writeable
    False
    """
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif sparse.issparse(value):
        for part in (value.data, value.indices, value.indptr):
            part.flags.writeable = False


def in_short(value: Any) -> str:
    """Describe a value in a few signs, as the repr of a result does.

    Parameters
    ----------
    value : object

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.saving import in_short
    >>> in_short(np.zeros((5, 2))), in_short(np.array(2 / 3)), in_short("active-set")
    ('array 5 × 2', '0.6667', "'active-set'")
    """
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.item():.4g}" if value.ndim == 0 else f"array {_product(value.shape)}"
    if sparse.issparse(value):
        return f"sparse {_product(value.shape)}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str) and len(value) > SHOWN_SIGNS:
        return f"{value[:SHOWN_SIGNS]!r}…"
    if isinstance(value, Result | Exception):
        return type(value).__name__
    if isinstance(value, tuple | list | dict) and len(value) > LISTED_VALUES:
        return f"{len(value)} entries"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(in_short, value))})"
    return repr(value)


def _product(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def load(path: str | os.PathLike[str]) -> Any:
    """Read data or a result that its method ``save`` wrote.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz`` or ``.json``.

    Returns
    -------
    object
        Of the class that was saved. Everything in it is as it was, to the last bit, but for what is
        measured anew: norms, margins and residuals of solutions. Data are read-only again.

    Raises
    ------
    ValueError
        The file has another ending, is damaged, is no result of this package, or was written by a
        later version of it; what it says does not fit together, or a certificate in it proves
        nothing. The message names the file, and the part of it that is wrong.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import ntpnb, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ntpnb.datasets.toy().save(pathlib.Path(folder) / "toy.json")
    ...     ntpnb.load(pathlib.Path(folder) / "toy.json")
    NextTokenData(3 contexts, 5 tokens, W: 5 × 2, H = 0.8811 nats)
    """
    path = _as_path(path)
    read = CONTENT_READERS[_ending(path)]
    content = path.read_bytes()
    try:
        return read(content)
    except READING_ERRORS as error:
        why = _in_words(error)
        raise ValueError(f"{os.fspath(path)!r} is no result that ntpnb can read: {why}") from None


def from_dict(plain: Mapping[str, Any]) -> Any:
    """Make data or a result again from what its method ``to_dict`` returned.

    Parameters
    ----------
    plain : mapping

    Returns
    -------
    object
        Of the class that ``plain["kind"]`` names.

    Raises
    ------
    ValueError
        The values do not describe a result.

    Examples
    --------
    >>> import ntpnb
    >>> order = ntpnb.token_priority(ntpnb.datasets.figure2())
    >>> ntpnb.basics.saving.from_dict(order.to_dict()).equal.tolist() == order.equal.tolist()
    True
    """
    try:
        return _Reading(_no_array_elsewhere).whole(plain)
    except READING_ERRORS as error:
        raise ValueError(f"these values describe no result: {_in_words(error)}") from None


# -- writing --------------------------------------------------------------------------------------


class _Writing:
    """Values written down, in one go; what occurs a second time is written as a reference."""

    def __init__(self, write_array: Writer) -> None:
        self._write_array = write_array
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # so that no identity is used twice

    def value(self, value: object) -> Any:
        """Write any value."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is tuple:
            return {"tuple": [self.value(part) for part in value]}
        if type(value) is list:
            return {"list": [self.value(part) for part in value]}
        if type(value) is dict:
            return {"dict": [[self.value(k), self.value(v)] for k, v in value.items()]}
        if isinstance(value, np.dtype):
            return {"type": value.str}
        if isinstance(value, np.generic):
            return {"scalar": self._write_array(np.asarray(value))}
        return self.node(value)

    def node(self, value: object) -> Any:
        """Write what has an identity: an array, or an object of a known kind."""
        if id(value) in self._numbers:
            return {"again": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._alive)
        self._alive.append(value)
        if isinstance(value, np.ndarray):
            return self._write_array(value)
        if sparse.issparse(value):
            return self._table(value)
        return self._object(value)

    def _table(self, table: Any) -> dict[str, Any]:
        """A sparse table by rows or columns, with explicit zeros and order as they are."""
        if table.format not in ("csr", "csc"):
            raise TypeError(f"a sparse table of format {table.format!r} cannot be saved")
        parts = [table.data, table.indices, table.indptr]
        return {
            "sparse": table.format,
            "shape": list(table.shape),
            "parts": [self._write_array(part) for part in parts],
        }

    def _object(self, value: Any) -> dict[str, Any]:
        """An object as pickle sees it: who makes it, of which arguments, and its state then."""
        reduced = value._saved() if hasattr(value, "_saved") else value.__reduce_ex__(2)
        if isinstance(reduced, str):
            raise TypeError(f"{value!r} cannot be saved")
        maker, arguments, *more = reduced
        is_new = maker is copyreg.__newobj__  # type: ignore[attr-defined]
        if is_new:
            maker, *arguments = arguments
        name = getattr(maker, "__name__", None)
        if name not in _known or _known[name] is not maker:
            raise TypeError(
                f"an object of type {type(value).__name__} cannot be saved; "
                "ntpnb.basics.saving.register makes its class known"
            )
        written: dict[str, Any] = {"kind": name}
        if not is_new:
            written["call"] = [self.value(part) for part in arguments]
        elif arguments:
            written["new"] = [self.value(part) for part in arguments]
        state = (more[0] if more else None) or {}
        if written.keys() & state.keys():
            raise TypeError(f"{name} has an attribute of a name that files need")
        for name, part in state.items():
            written[name] = self.value(part)
        return written


def _as_list(array: Array) -> object:
    """An array as nested lists, or with its type and shape where lists would not give them back."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of type {array.dtype} cannot be saved")
    is_plain = array.size and array.ndim and array.dtype.name in LISTED_TYPES
    if is_plain and np.isfinite(array).all():
        return array.tolist()
    values = [x if math.isfinite(x) else repr(x) for x in array.ravel().tolist()]
    return {"dtype": array.dtype.str, "shape": list(array.shape), "values": values}


def _as_json(result: Storable) -> bytes:
    whole = {"ntpnb": VERSION, "result": result.to_dict()}
    return json.dumps(whole, allow_nan=False).encode()


def _as_npz(result: Storable) -> bytes:
    arrays: dict[str, Array] = {}

    def keep(array: Array) -> object:
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of type {array.dtype} cannot be saved")
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return {"array": name}

    whole = {"ntpnb": VERSION, "result": _Writing(keep).node(result)}
    structure = np.frombuffer(json.dumps(whole, allow_nan=False).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **{STRUCTURE: structure}, **arrays)
    return content.getvalue()


def _write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file in the same folder and rename it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {os.fspath(path.parent)!r}")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# -- reading --------------------------------------------------------------------------------------


class _Reading:
    """Values made again, in the order in which they were written."""

    def __init__(self, read_array: Reader) -> None:
        self._read_array = read_array
        self._made: list[Any] = []

    def whole(self, plain: Any) -> Storable:
        """Make data or a result."""
        made = self.value(plain)
        if not isinstance(made, Storable):
            raise ValueError(f"data or a result is needed, and no {type(made).__name__}")
        repr(made)  # what lacks a part cannot even say what it is
        return made

    def value(self, plain: Any) -> Any:
        """Make any value."""
        if plain is None or isinstance(plain, bool | int | float | str):
            return plain
        if isinstance(plain, Mapping) and "again" in plain:
            number = plain["again"]
            if not 0 <= number < len(self._made) or self._made[number] is None:
                raise ValueError(f"nothing that was read before has the number {number}")
            return self._made[number]
        if isinstance(plain, Mapping) and not plain.keys() & NODES:
            return self._container(plain)
        number = len(self._made)
        self._made.append(None)
        self._made[number] = self._node(plain)
        return self._made[number]

    def _container(self, plain: Mapping[str, Any]) -> Any:
        [(what, parts)] = plain.items()
        if what == "float":
            return float(parts)
        if what == "type":
            return _numeric_type(parts)
        if what == "scalar":
            return self._array(parts)[()]
        if what == "dict":
            return {self.value(key): self.value(value) for key, value in parts}
        made = [self.value(part) for part in parts]
        return {"tuple": tuple, "list": list}[what](made)

    def _node(self, plain: Any) -> Any:
        if not isinstance(plain, Mapping) or plain.keys() & ARRAYS:
            return self._array(plain)
        if "sparse" in plain:
            data, indices, indptr = map(self._array, plain["parts"])
            if not indices.dtype.kind == indptr.dtype.kind == "i":
                raise ValueError("a sparse table needs integers as its indices")
            kind = {"csr": sparse.csr_array, "csc": sparse.csc_array}[plain["sparse"]]
            table = kind((data, indices, indptr), shape=tuple(plain["shape"]))
            table.check_format(full_check=True)  # or indices out of range would crash the process
            return table
        return self._object(plain)

    def _array(self, plain: Any) -> Array:
        if not isinstance(plain, Mapping):
            array: Array = np.array(plain)
            if array.dtype.name not in LISTED_TYPES:
                raise ValueError(f"a list of numbers is needed in place of {plain!r:.40}")
            return array
        if "array" in plain:
            return self._read_array(plain["array"])
        dtype = _numeric_type(plain["dtype"])
        convert = float if dtype.kind == "f" else int
        values = np.array([convert(value) for value in plain["values"]], dtype)
        return values.reshape(plain["shape"])

    def _object(self, plain: Mapping[str, Any]) -> Any:
        name = plain["kind"]
        if name not in _known:
            raise ValueError(f"{name!r} is no kind of result that this version of ntpnb knows")
        maker = _known[name]
        if "call" in plain:
            made = maker(*self._parts(name, enumerate(plain["call"])).values())
        elif isinstance(maker, type):
            parts = self._parts(name, enumerate(plain.get("new", [])))
            made = maker.__new__(maker, *parts.values())
        else:
            raise ValueError(f"{name!r} is no class")
        written = [(key, value) for key, value in plain.items() if key not in KEYWORDS]
        state = self._parts(name, written)
        if is_dataclass(maker):
            _require_fields(name, maker, state)
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
        elif state:
            vars(made).update(state)
        return made._checked() if hasattr(made, "_checked") else made

    def _parts(self, name: str, written: Iterable[tuple[object, Any]]) -> dict[Any, Any]:
        """Make the parts of an object; an error names the part in which it is."""
        parts = {}
        for key, value in written:
            try:
                parts[key] = self.value(value)
            except RecursionError:
                raise
            except READING_ERRORS as error:
                raise ValueError(f"{name}.{key}: {_in_words(error)}") from None
        return parts


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _require_fields(name: str, maker: Any, state: Mapping[str, Any]) -> None:
    """Raise unless a state has exactly the fields of a dataclass, of the types that it declares."""
    needed = {field.name for field in fields(maker)}
    if missing := needed - state.keys():
        raise ValueError(f"{name} needs {min(missing)!r}, which is missing")
    if unknown := state.keys() - needed:
        raise ValueError(f"{name} has no {min(unknown)!r}")
    declared = get_type_hints(maker)
    for part in sorted(needed):
        if not _is_of_type(state[part], declared[part]):
            raise ValueError(f"{name}.{part} is of another type: {in_short(state[part])}")


def _is_of_type(value: object, declared: Any) -> bool:
    """Whether a value is what an annotation says; what containers hold is not looked at."""
    kind = get_origin(declared) or declared
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_is_of_type(value, option) for option in get_args(declared))
    if kind is Literal:
        return value in get_args(declared)
    if kind is np.ndarray:
        of = get_args(get_args(declared)[1])[0]
        return isinstance(value, np.ndarray | np.generic) and np.issubdtype(value.dtype, of)
    if kind is float:
        return isinstance(value, float | int | np.floating) and not isinstance(value, bool)
    if kind in (int, bool):
        return isinstance(value, {int: int | np.integer, bool: bool | np.bool_}[kind])
    return isinstance(value, kind)


def _numeric_type(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        raise ValueError(f"arrays of type {dtype} are not read")
    return dtype


def _no_array_elsewhere(name: str) -> Array:
    raise ValueError(f"the array {name!r} stands elsewhere")


def _from_json(content: bytes) -> Any:
    return _result_of(json.loads(content), _no_array_elsewhere)


def _from_npz(content: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(content)) as members:

        def read_array(name: str) -> Array:
            member = members.getinfo(f"{name}.npy")
            if member.compress_type != zipfile.ZIP_STORED:  # no array is larger than the file
                raise ValueError(f"{name!r} is compressed, which ntpnb.save never does")
            stored = io.BytesIO(members.read(member))
            try:
                array: Array = np.lib.format.read_array(stored, allow_pickle=False)
            except (*READING_ERRORS, SyntaxError):
                raise ValueError(f"{name!r} is no array of numbers, or a damaged one") from None
            _numeric_type(array.dtype.str)
            return array

        if f"{STRUCTURE}.npy" not in members.namelist():
            raise ValueError("it does not say what its arrays are")
        whole = json.loads(read_array(STRUCTURE).tobytes())
        return _result_of(whole, read_array)


def _result_of(whole: Any, read_array: Reader) -> Any:
    if not isinstance(whole, dict) or not isinstance(whole.get("ntpnb"), int):
        raise ValueError("it does not say that it is one")
    if whole["ntpnb"] > VERSION:
        raise ValueError("it was written by a later version of ntpnb")
    return _Reading(read_array).whole(whole["result"])


# -- kinds of files -------------------------------------------------------------------------------

LISTED_TYPES = {"float64", "int64", "bool"}  # what numpy makes of lists of numbers
KEYWORDS = {"kind", "call", "new"}
ARRAYS = {"dtype", "array"}
NODES = {"kind", "sparse"} | ARRAYS

CONTENT: dict[str, Callable[[Storable], bytes]] = {".npz": _as_npz, ".json": _as_json}
CONTENT_READERS: dict[str, Callable[[bytes], Any]] = {".npz": _from_npz, ".json": _from_json}


def _as_path(path: object) -> Path:
    """Return what names a file as a path, or explain."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is of type {type(path).__name__}; a str or a path is needed")
    return Path(path)


def _ending(path: Path) -> str:
    if path.suffix not in CONTENT:
        raise ValueError(f"{os.fspath(path)!r} ends in {path.suffix!r}; .npz or .json is needed")
    return path.suffix
