"""Results that last: short to look at, and with files that come back.

A file is an ``.npz`` archive of arrays and of one list of objects. Each object has the name of its
class and what it holds: plain values, arrays by their names in the archive, and objects that stand
before it by their numbers. What several objects hold is written once. The list also says how wide
indices were where it was written: they have 64 bits, and 32 in a browser. Nothing that is read is
believed: only classes that the package has registered are made, so that a file from elsewhere runs
no code, types are compared with those that the classes declare, and a class whose parts have to fit
each other says so in ``_checked``, which also measures anew what can be measured.
"""

import html
import io
import json
import os
import secrets
import zipfile
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ntpnb.basics.errors import ConvergenceError, NotSeparableError, PairWeights
from ntpnb.basics.validation import as_integers, require_type

__all__ = ["Recorded", "Result", "Storable", "load", "register"]

VERSION = 2
"""Of files; those of other versions are not read."""

STRUCTURE = "structure"  # the member of an archive that lists the objects

Array = npt.NDArray[Any]
NUMBERS = (np.ndarray, np.generic)  # a single number comes back as the latter
Kind = TypeVar("Kind", bound=type)

# By their names; from the start what results hold where something could not be computed.
_known: dict[str, type] = {
    kind.__name__: kind
    for kind in (NotSeparableError, PairWeights, ConvergenceError, ValueError, MemoryError)
}


def register(kind: Kind) -> Kind:
    """Let objects of a class be saved and read back by its name.

    Dataclasses, data and results are made again from their attributes, other objects by a call with
    what ``__reduce__`` says or, for named tuples, with their entries.

    Parameters
    ----------
    kind : type

    Returns
    -------
    type
        The same one, so that this serves as a decorator.

    Raises
    ------
    ValueError
        Another one has that name.

    Examples
    --------
    >>> import typing
    >>> from ntpnb.basics.saving import register
    >>> @register
    ... class Reading(typing.NamedTuple):
    ...     loss: float
    >>> Reading(0.5)
    Reading(loss=0.5)
    """
    name = kind.__name__
    module = _known.get(name, kind).__module__
    if module != kind.__module__:
        raise ValueError(f"{name} is the name of {module}.{name} already")
    _known[name] = kind
    return kind


class Storable:
    """What data and results have in common: they can be saved, pickled and copied.

    What cached properties have computed is left behind, but for what a bias knows.

    Examples
    --------
    >>> import ntpnb, pickle
    >>> pickle.loads(pickle.dumps(ntpnb.datasets.toy()))
    NextTokenData(3 contexts, 5 tokens, W: 5 × 2, H = 0.8811 nats)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without what cached properties have computed of them."""
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the object to a file, which :func:`ntpnb.load` reads.

        The file is written beside its place and renamed, so that nobody ever sees half of it. The
        same object always makes the same file.

        Parameters
        ----------
        path : str or path
            Ends in ``.npz``.

        Raises
        ------
        ValueError
            Another ending.
        TypeError
            ``path`` is none; or the object holds another one that the package does not know.
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
        place = _npz_path(path)
        content = written(self)
        if not place.parent.is_dir():
            raise FileNotFoundError(f"there is no folder '{place.parent}'")
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)

    def _repr_html_(self) -> str:
        """Write what is shown of the object as a small table, for notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._shown().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def _shown(self) -> dict[str, str]:
        """Each public attribute in a few signs."""
        parts = self.__getstate__().items()
        return {name: in_short(part) for name, part in parts if not name.startswith("_")}


class Result(Storable):
    """What the package's results have in common: a short repr, and files.

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


class Recorded(Result):
    """What traces have in common: each array has a number, or an array, for each record.

    A batch of problems is an axis before that of the records; all have the same ``steps``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.saving import Recorded
    >>> isinstance(ntpnb.descend(ntpnb.datasets.toy(), ntpnb.GD(0.1), 3), Recorded)
    True
    """

    def _checked(self) -> Self:
        """The records that a file describes, if each array has all of them."""
        shapes = {
            name: part.shape for name, part in vars(self).items() if isinstance(part, NUMBERS)
        }
        records = min((shape for name, shape in shapes.items() if name != "steps"), key=len)
        for name, shape in shapes.items():
            needed = records[-1:] if name == "steps" else records
            if shape[: len(needed)] != needed:
                raise ValueError(f"{name} has shape {shape}; others have {needed} records")
        return self


def make_read_only(value: Any) -> None:
    """Let nobody write into an array; other values are left.

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
    match value:
        case np.ndarray() | np.generic() if value.ndim == 0:
            return f"{value.item():.4g}"
        case np.ndarray():
            return f"array {_product(value.shape)}"
        case sparse.sparray() | sparse.spmatrix():
            return f"sparse {_product(value.shape)}"
        case float():
            return f"{value:.4g}"
        case str() if len(value) > 40:
            return f"{value[:40]!r}…"
        case Result() | Exception():
            return type(value).__name__
        case tuple() | list() | dict() if len(value) > 6:
            return f"{len(value)} entries"
        case tuple() | list():
            return f"({', '.join(map(in_short, value))})"
        case _:
            return repr(value)


def _product(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def load(path: str | os.PathLike[str]) -> Any:
    """Read data or a result that its method ``save`` wrote.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``.

    Returns
    -------
    object
        Of the class that was saved. Everything in it is as it was, to the last bit, but for what is
        measured anew: norms, margins and residuals of solutions. Data are read-only again. Integers
        as wide as indices where they were saved are as wide as indices here.

    Raises
    ------
    ValueError
        The file has another ending, is damaged, is no result of this package, or was written by
        another version of it; what it says does not fit together, or a certificate in it proves
        nothing. The message names the file, and the part of it that is wrong.
    TypeError
        ``path`` is none.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import ntpnb, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ntpnb.datasets.toy().save(pathlib.Path(folder) / "toy.npz")
    ...     ntpnb.load(pathlib.Path(folder) / "toy.npz")
    NextTokenData(3 contexts, 5 tokens, W: 5 × 2, H = 0.8811 nats)
    """
    place = _npz_path(path)
    content = place.read_bytes()
    try:
        return _Reading(_arrays_of(content)).result()
    except Exception as error:  # there is none that a damaged or crafted file could not lead to
        why = _in_words(error)
        raise ValueError(f"'{place}' is no result that ntpnb can read: {why}") from error


def _npz_path(path: str | os.PathLike[str]) -> Path:
    """Return what names a file as a path, or explain."""
    require_type("path", path, str | os.PathLike, "a str or a path")
    place = Path(path)
    if place.suffix != ".npz":
        raise ValueError(f"'{place}' ends in {place.suffix!r}; .npz is needed")
    return place


# -- writing --------------------------------------------------------------------------------------


def written(result: Storable) -> bytes:
    """Return the content of the file that :meth:`Storable.save` writes.

    Parameters
    ----------
    result : Storable

    Returns
    -------
    bytes
        The same for two objects that hold the same, and hold it as often.

    Raises
    ------
    TypeError
        The object holds another one that the package does not know.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.saving import written
    >>> written(ntpnb.datasets.toy()) == written(ntpnb.datasets.toy())
    True
    """
    writing = _Writing()
    writing.value(result)
    index_type = np.dtype(np.intp).str
    whole = {"ntpnb": VERSION, "indices": index_type, "objects": writing.objects}
    writing.arrays[STRUCTURE] = np.frombuffer(json.dumps(whole).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **writing.arrays)
    return content.getvalue()


class _Writing:
    """Arrays by name, and the list of objects, of which the last one is the whole."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.objects: list[dict[str, Any]] = []
        self._places: dict[int, dict[str, Any]] = {}
        self._alive: list[object] = []  # so that no identity is used twice

    def value(self, value: Any) -> Any:
        """Write any value; what several objects may hold is kept once, and its place written."""
        match value:
            case np.generic():
                return {"number": self._array_name(np.asarray(value))}
            case None | bool() | int() | float() | str():
                return value
            case list():
                return [self.value(part) for part in value]
            case tuple() if type(value) is tuple:
                return {"tuple": self.value(list(value))}
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": {key: self.value(part) for key, part in value.items()}}
            case sparse.csr_array():
                parts = [value.data, value.indices, value.indptr, value.shape]
                return {"sparse": self.value(parts)}
        if id(value) not in self._places:
            self._places[id(value)] = self._place(value)
            self._alive.append(value)
        return self._places[id(value)]

    def _place(self, value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            return {"array": self._array_name(value)}
        self.objects.append(self._object(value))
        return {"object": len(self.objects) - 1}

    def _array_name(self, array: Array) -> str:
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of type {array.dtype} cannot be saved")
        name = f"array_{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def _object(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        name = kind.__name__
        if _known.get(name) is not kind:
            raise TypeError(
                f"an object of type {name} cannot be saved; "
                "ntpnb.basics.saving.register makes its class known"
            )
        if isinstance(value, Storable) or is_dataclass(kind):
            held = value._saved() if hasattr(value, "_saved") else value.__getstate__()
        elif isinstance(value, tuple):
            held = list(value)
        else:
            held = list(value.__reduce__()[1])
        return {"kind": name, "holds": self.value(held)}


# -- reading --------------------------------------------------------------------------------------


def _arrays_of(content: bytes) -> dict[str, Array]:
    """Read the arrays of an archive, by name."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type != zipfile.ZIP_STORED:  # no array is larger than the file
                raise ValueError(f"{name!r} is compressed, which ntpnb never does")
            try:
                stored = io.BytesIO(archive.read(member))
                arrays[name] = np.lib.format.read_array(stored, allow_pickle=False)
            except Exception:  # numpy's reason would be an advice to read pickles
                raise ValueError(f"{name!r} is no array of numbers, or a damaged one") from None
    return arrays


class _Reading:
    """Objects made again, in the order in which they were written."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self._made: list[Any] = []

    def result(self) -> Storable:
        """Make all objects, and return the last one."""
        if STRUCTURE not in self._arrays:
            raise ValueError("it does not say what its arrays are")
        whole = json.loads(self._arrays[STRUCTURE].tobytes())
        version = whole["ntpnb"]
        if version != VERSION:
            raise ValueError(f"it is of version {version}; this version of ntpnb reads {VERSION}")
        self._make_indices_native(np.dtype(whole["indices"]))
        for plain in whole["objects"]:
            self._made.append(self._object(plain))
        result = self._made[-1]
        if not isinstance(result, Storable):
            raise ValueError(f"data or a result is needed, and no {type(result).__name__}")
        return result

    def _make_indices_native(self, index_type: np.dtype[Any]) -> None:
        """Give arrays of the type that indices had where they were written the one of here."""
        if index_type != np.intp:
            for name, array in self._arrays.items():
                if array.dtype == index_type:
                    self._arrays[name] = as_integers(name, array)

    def _object(self, plain: dict[str, Any]) -> Any:
        name = plain["kind"]
        if name not in _known:
            raise ValueError(f"{name!r} is no kind of result that this version of ntpnb knows")
        try:
            return _made_of(_known[name], self._value(plain["holds"]))
        except Exception as error:
            raise ValueError(f"in the {name}: {_in_words(error)}") from error

    def _value(self, plain: Any) -> Any:
        """Make any value."""
        match plain:
            case list():
                return [self._value(part) for part in plain]
            case {"tuple": parts}:
                return tuple(self._value(parts))
            case {"dict": parts}:
                return {key: self._value(part) for key, part in parts.items()}
            case {"number": name}:
                return self._arrays[name][()]
            case {"sparse": parts}:
                return _sparse_table(*self._value(parts))
            case {"array": name}:
                return self._arrays[name]
            case {"object": number}:
                return self._made[number]
            case dict():
                raise ValueError(f"{list(plain)} is no kind of value")
            case _:
                return plain


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _sparse_table(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Any:
    """Make a sparse table by rows, with explicit zeros and order as they are."""
    if not indices.dtype.kind == indptr.dtype.kind == "i":
        raise ValueError("a sparse table needs integers as its indices")
    table = sparse.csr_array((data, indices, indptr), shape=shape)
    table.check_format(full_check=True)  # or indices out of range would crash the process
    return table


def _made_of(kind: type, held: Any) -> Any:
    """Make an object of what it holds, and let it check that."""
    made: Any
    if is_dataclass(kind):
        made = kind(**held)
        _require_types(made)
    elif issubclass(kind, Storable):
        made = object.__new__(kind)
        made.__setstate__(held)
    else:
        made = kind(*held)
    return made._checked() if hasattr(made, "_checked") else made


def _require_types(made: object) -> None:
    """Raise ``ValueError`` unless a dataclass holds what it declares."""
    for name, declared in get_type_hints(type(made)).items():
        value = getattr(made, name)
        if not _is_of_type(value, declared):
            raise ValueError(f"{name} is of another type: {in_short(value)}")


def _is_of_type(value: object, declared: Any) -> bool:
    """Whether a value is what an annotation says; what containers hold is not looked at."""
    kind, arguments = get_origin(declared) or declared, get_args(declared)
    if kind is UnionType:
        return any(_is_of_type(value, option) for option in arguments)
    if kind in (np.ndarray, npt.NDArray):
        # Up to numpy 2.4 NDArray[float64] is another name of ndarray[…, dtype[float64]].
        [number_type] = arguments if kind is npt.NDArray else get_args(arguments[1])
        return isinstance(value, NUMBERS) and np.issubdtype(value.dtype, number_type)
    return isinstance(value, kind)
