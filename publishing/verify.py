"""Whether the committed notebooks say what this clone's own execution of them says.

nbval compares printed text. What a reader believes besides stands in no text: the exact values
behind the scoreboard, seeds, the names of glued numbers and of figures, the pictures. A fresh clone
executes every notebook for its figures, so that all of it can be compared with no further run, and
nbval, which would execute it once more and compare less, has nothing left to do.

The machine type that wrote the committed notebooks gives them again byte for byte. Where it does so
for most of them, nothing may differ in the others but how a picture's letters are placed. Another
processor rounds differently: there values, printed numbers, and in place of hashes the sketches of
figures' data, agree to a thousandth. Some runs amplify what rounding does; `book/elsewhere.yml`
names them.
"""

import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import resvg_py
import yaml
from PIL import Image
from scipy.ndimage import maximum_filter, minimum_filter

from ntpnb_book import output
from ntpnb_book.layout import DPI
from ntpnb_book.saving import DRAWING
from publishing import keys, project

RELATIVE, ABSOLUTE = 1e-3, 1e-9
"""What two numbers may differ by on another processor, relative to the larger or absolutely.

Of 510 values that two processors computed, twelve differ by more; smaller ones are errors of
rounding.
"""

PIXELS, SHADE = 100, 32
"""How many pixels of a picture may be lighter or darker, and by how much of 255, than all that lie
near them in the other picture.

A line of the book's usual width has a hundred in a fifth of an inch.
"""

Shades: TypeAlias = npt.NDArray[np.float64]
Exceptions: TypeAlias = Mapping[str, Mapping[str, float]]

_NEAR = 5  # pixels, the side of what lies near: letters and lines may move by two
_NUMBER = re.compile(r"[-−]?\d+(?P<fraction>\.\d*)?(?:e(?P<exponent>[-+]?\d+))?")


def executed_here(name: str, root: Path = output.ROOT) -> Path:
    """Where this clone's own execution of a notebook lies, while the committed one is kept."""
    return Path(root) / "_build" / "nb" / f"{name}.ipynb"


def _key_file(name: str, root: Path) -> Path:
    return executed_here(name, root).with_suffix(".key")


def note(name: str, key: str, root: Path = output.ROOT) -> None:
    """Record that the sources with this key gave what lies at `executed_here`."""
    output.write(_key_file(name, root), f"{key}\n")


def forget(name: str, root: Path = output.ROOT) -> None:
    """Remove the key of an execution that is about to be replaced."""
    _key_file(name, root).unlink(missing_ok=True)


def has_same_bytes(name: str, root: Path = output.ROOT) -> bool:
    """Whether this clone's execution of a notebook gave the committed one byte for byte."""
    here, committed = executed_here(name, root), project.executed(name, root)
    return here.exists() and here.read_bytes() == committed.read_bytes()


def is_comparable(name: str, root: Path = output.ROOT) -> bool:
    """Whether this clone has executed a notebook from the sources that the committed one came from.

    What it gave lies at `executed_here`.
    """
    key_file = _key_file(name, root)
    recorded = keys.recorded(root).get(name)
    if recorded is None or not key_file.exists():
        return False
    return key_file.read_text(encoding="utf-8").strip() == recorded.outputs


def remaining(root: Path = output.ROOT) -> list[Path]:
    """Return the executed notebooks that nbval has to compare with a new execution.

    Left out is a notebook that this clone has executed from the sources that the committed one came
    from, which `differences` compares.
    """
    root = Path(root)
    return [
        project.executed(name, root)
        for name in project.names(root)
        if not is_comparable(name, root)
    ]


def exceptions(root: Path = output.ROOT) -> Exceptions:
    """Read `book/elsewhere.yml`: what may differ by more on another processor.

    Returns
    -------
    dict
        ``within``, by claim, glued number or page; ``share`` and ``pixels``, by figure. The head of
        the file says what they mean.
    """
    path = Path(root) / "book/elsewhere.yml"
    groups = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
    return {
        kind: {name: number for group in groups for name, number in group.get(kind, {}).items()}
        for kind in ("within", "share", "pixels")
    }


def is_same_machine(root: Path = output.ROOT) -> bool:
    """Say whether this clone gave most of the committed notebooks again byte for byte.

    Then it is of the machine type that wrote them.
    """
    names = [name for name in project.names(root) if is_comparable(name, root)]
    same = [name for name in names if has_same_bytes(name, root)]
    return 2 * len(same) > len(names)


def differences(name: str, root: Path = output.ROOT, *, exactly: bool) -> Iterator[str]:
    """Yield, as one line each, where a committed notebook differs from this clone's execution.

    Parameters
    ----------
    name : str
        A notebook that this clone has executed, see `is_comparable`.
    root : Path
        The checkout.
    exactly : bool
        Whether values and data have to be the same to the last digit, see `is_same_machine`.
    """
    if has_same_bytes(name, root):
        return
    committed = project.read_executed(name, root)
    here = project.read_json(executed_here(name, root), {"cells": []})
    yield from between(name, committed, here, None if exactly else exceptions(root))


def between(
    name: str,
    committed: Mapping[str, Any],
    here: Mapping[str, Any],
    excepted: Exceptions | None,
) -> Iterator[str]:
    """Yield, as one line each, where two executions of a notebook differ.

    Parameters
    ----------
    name : str
    committed, here : mapping
        The executed notebooks.
    excepted : mapping, optional
        What may differ by more than a thousandth, see `exceptions`. Without it nothing may differ.
    """
    olds, news = _outputs(committed), _outputs(here)
    if len(olds) != len(news):
        yield f"{name}: {len(olds)} cells, executed here {len(news)}"
        return
    for number, (old, new) in enumerate(zip(olds, news, strict=True), 1):
        where = f"{name}, cell [{number}]"
        if len(old) != len(new):
            yield f"{where}: {len(old)} outputs, executed here {len(new)}"
            continue
        for one, other in zip(old, new, strict=True):
            for line in _of_output(one, other, excepted, name):
                yield f"{where}: {line}"


def _outputs(notebook: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """List the outputs of each code cell."""
    return [cell.get("outputs", []) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _of_output(
    one: Mapping[str, Any], other: Mapping[str, Any], excepted: Exceptions | None, page: str
) -> Iterator[str]:
    """Yield where two outputs differ: without `excepted` to the last digit, else coarsely."""
    known = one.get("metadata", {})
    record = known.get("ntpnb", {})
    name = record.get("id") or record.get("figure") or known.get("scrapbook", {}).get("name", page)
    within = None if excepted is None else excepted["within"].get(name, ABSOLUTE)
    for field in sorted((one.keys() | other.keys()) - {"data", "metadata", "execution_count"}):
        yield from _of_field(field, one.get(field), other.get(field), within)
    old, new = one.get("data", {}), other.get("data", {})
    for kind in sorted(old.keys() | new.keys()):
        if kind == DRAWING and kind in old and kind in new:
            pixels = (excepted or {}).get("pixels", {}).get(name, PIXELS)
            yield from _of_picture("".join(old[kind]), "".join(new[kind]), pixels)
        else:
            yield from _of_field(kind, old.get(kind), new.get(kind), within)
    old, new = known, other.get("metadata", {})
    for field in sorted(old.keys() | new.keys()):
        if field == "ntpnb" and field in old and field in new:
            yield from _of_record(old[field], new[field], excepted)
        else:
            yield from _of_field(field, old.get(field), new.get(field), None)


def _of_field(field: str, one: object, other: object, within: float | None) -> Iterator[str]:
    """Yield how two fields differ; lines of a text count as one text.

    Without `within` they have to be equal, else texts may differ as `same_text` says.
    """
    one, other = ("".join(x) if isinstance(x, list) else x for x in (one, other))
    if within is not None and isinstance(one, str) and isinstance(other, str):
        is_same = same_text(one, other, within)
    else:
        is_same = one == other
    if not is_same:
        yield f"{field} is {one!r:.200}, executed here {other!r:.200}"


def same_text(one: str, other: str, within: float = ABSOLUTE) -> bool:
    """Say whether two printed texts may be the same, computed by different processors.

    Their words are the same, and their numbers as close as measured values are, or one apart in
    the last printed digit of a fraction.

    Parameters
    ----------
    one, other : str
    within : float
        How far apart two numbers may lie, whatever their size.

    Examples
    --------
    >>> from publishing.verify import same_text
    >>> same_text("share 0.67", "share 0.66"), same_text("share 0.67", "share 0.65")
    (True, False)
    >>> same_text("20 runs", "21 runs"), same_text("20 runs", "20 steps")
    (False, False)
    """
    if _words(one) != _words(other):
        return False
    pairs = zip(_NUMBER.finditer(one), _NUMBER.finditer(other), strict=True)
    return all(
        math.isclose(
            _as_float(old), _as_float(new), rel_tol=RELATIVE, abs_tol=max(within, _last_digit(old))
        )
        for old, new in pairs
    )


def _words(text: str) -> list[str]:
    """What a text says beside its numbers, whose columns may be of another width."""
    return _NUMBER.sub(" # ", text).split()


def _as_float(number: re.Match[str]) -> float:
    return float(number[0].replace("−", "-"))


def _last_digit(number: re.Match[str]) -> float:
    """What one in the last printed digit of a fraction is worth, and a little more for rounding."""
    if number["fraction"] is None and number["exponent"] is None:
        return 0.0
    decimals = len(number["fraction"] or ".") - 1
    return 1.001 * 10.0 ** (int(number["exponent"] or 0) - decimals)


def _of_record(
    one: Mapping[str, Any], other: Mapping[str, Any], excepted: Exceptions | None
) -> Iterator[str]:
    """Yield where the records of `check` or `figures.save` differ; see `_of_output`."""
    name = one.get("id", one.get("figure", "record"))
    for field in sorted(one.keys() | other.keys()):
        old, new = one.get(field), other.get(field)
        if field == "drawings" and field in one and field in other and old.keys() == new.keys():
            pixels = (excepted or {}).get("pixels", {}).get(name, PIXELS)
            for kind in old:
                for line in _of_picture(old[kind], new[kind], pixels):
                    yield f"{name}: {kind}: {line}"
            continue
        if excepted is not None and field in one and field in other:
            within = excepted["within"].get(name, ABSOLUTE)
            if field == "data" or (field == "value" and close(old, new, within)):
                continue
            if field == "sketch":
                share = excepted["share"].get(name, RELATIVE)
                yield from _of_sketch(name, one[field], other[field], share)
                continue
        if repr(old) != repr(new):
            yield f"{name}: {field} is {old!r:.200}, executed here {new!r:.200}"


def _of_sketch(
    name: str,
    one: Mapping[str, list[float]],
    other: Mapping[str, list[float]],
    share: float,
) -> Iterator[str]:
    """Yield the arrays behind a figure whose sketches differ, by a share of the largest number."""
    for array in sorted(one.keys() | other.keys()):
        old, new = one.get(array, []), other.get(array, [])
        within = max(ABSOLUTE, share * max(map(abs, [*old[1:], *new[1:]]), default=0.0))
        is_same = len(old) == len(new) and old[:1] == new[:1]
        if not (is_same and np.allclose(old[1:], new[1:], rtol=0, atol=within)):
            yield f"{name}: {array} is {old}, executed here {new}"


def close(one: object, other: object, within: float = ABSOLUTE) -> bool:
    """Say whether two measured values may be the same, computed by different processors.

    Parameters
    ----------
    one, other : bool, int, float, str or mapping
        What `check` recorded.
    within : float
        How far apart two numbers may lie, whatever their size.

    Examples
    --------
    >>> from publishing.verify import close
    >>> close(0.9811, 0.9808), close(1e-10, 3e-14), close(0.981, 0.972), close(1.0, True)
    (True, True, False, False)
    >>> close(1130, 1131), close(1130, 1131, within=20)
    (False, True)
    """
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(close(old, new, within) for old, new in pairs)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=within)
    if type(one) is int and type(other) is int:
        return abs(one - other) <= within
    return type(one) is type(other) and one == other


def _of_picture(one: str, other: str, pixels: float) -> Iterator[str]:
    """Yield how two drawings differ as pictures."""
    if one == other:
        return
    old, new = _pixels(one), _pixels(other)
    if old.shape != new.shape:
        yield f"a picture of {old.shape} pixels, executed here {new.shape}"
        return
    found = strange(old, new)
    if found > pixels:
        yield f"another picture than the one drawn here: {found} pixels have nothing like them"


def strange(one: Shades, other: Shades) -> int:
    """Count the pixels of two pictures that have nothing like them nearby in the other one.

    Parameters
    ----------
    one, other : array, shape (height, width)
        Shades of grey, from 0 to 255.
    """
    lost = np.zeros(one.shape, dtype=bool)
    for seen, there in ((one, other), (other, one)):
        lost |= seen > maximum_filter(there, _NEAR) + SHADE
        lost |= seen < minimum_filter(there, _NEAR) - SHADE
    return int(lost.sum())


def _pixels(svg: str) -> Shades:
    """Turn a drawing, whose letters are outlines, into shades of grey."""
    png = resvg_py.svg_to_bytes(svg, background="white", skip_system_fonts=True, dpi=DPI)
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("L"), dtype=np.float64)
