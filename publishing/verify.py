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
from decimal import Decimal
from itertools import zip_longest
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
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def has_same_bytes(name: str, root: Path = output.ROOT) -> bool:
    """Say whether this clone's execution of a notebook gave the committed one byte for byte."""
    committed, here = (
        project.executed(name, root, folder) for folder in (project.COMMITTED, project.HERE)
    )
    return here.read_bytes() == committed.read_bytes()


def comparable(root: Path = output.ROOT) -> list[str]:
    """List what this clone has executed from the sources that the committed ones came from."""
    here, committed = (keys.recorded(root, each) for each in (project.HERE, project.COMMITTED))
    return [
        name
        for name in project.names(root)
        if name in here and name in committed and here[name].outputs == committed[name].outputs
    ]


def remaining(root: Path = output.ROOT) -> list[Path]:
    """Return the executed notebooks that nbval has to compare with a new execution.

    Left out are those that `differences` compares.
    """
    compared = comparable(root)
    return [project.executed(name, root) for name in project.names(root) if name not in compared]


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
    same = [has_same_bytes(name, root) for name in comparable(root)]
    return 2 * sum(same) > len(same)


def differences(name: str, root: Path = output.ROOT, *, exactly: bool) -> Iterator[str]:
    """Say, in one line each, where a committed notebook differs from this clone's execution.

    Parameters
    ----------
    name : str
        A notebook that this clone has executed, see `comparable`.
    root : Path
        The checkout.
    exactly : bool
        Whether values and data have to be the same to the last digit, see `is_same_machine`.
    """
    committed = project.read_executed(name, root)
    here = project.read_executed(name, root, project.HERE)
    return between(name, committed, here, None if exactly else exceptions(root))


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
        The executed notebooks, as nbformat reads them.
    excepted : mapping, optional
        What may differ by more than a thousandth, see `exceptions`. Without it nothing may differ.
    """
    olds, news = _outputs(committed), _outputs(here)
    if len(olds) != len(news):
        yield f"{name}: {len(olds)} cells, executed here {len(news)}"
        return
    for number, outputs in enumerate(zip(olds, news, strict=True), 1):
        for one, other in zip_longest(*outputs, fillvalue={}):
            for line in _of_output(one, other, excepted, name):
                yield f"{name}, cell [{number}]: {line}"


def _outputs(notebook: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """List the outputs of each code cell."""
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _of_output(
    one: Mapping[str, Any], other: Mapping[str, Any], excepted: Exceptions | None, page: str
) -> Iterator[str]:
    """Yield where two outputs differ: without `excepted` to the last digit, else coarsely."""
    known = one.get("metadata", {})
    record = known.get("ntpnb", {})
    name = record.get("id") or record.get("figure") or known.get("scrapbook", {}).get("name", page)
    allowed = {kind: numbers.get(name) for kind, numbers in (excepted or {}).items()}
    olds, news = dict(_leaves(one)), dict(_leaves(other))
    for place in olds | news:
        old, new = olds.get(place), news.get(place)
        said = f"is {old!r:.200}, executed here {new!r:.200}"
        if repr(old) == repr(new):
            continue
        if old is not None and new is not None:
            if DRAWING in place or "drawings" in place:
                said = _of_picture(old, new, allowed.get("pixels") or PIXELS)
            elif allowed and _is_near(place, old, new, allowed):
                continue
        if said:
            yield f"{name}: {place[-1]} {said}"


def _is_near(
    place: tuple[str, ...], old: Any, new: Any, allowed: Mapping[str, float | None]
) -> bool:
    """Say whether two values may stand at a place of an output on different processors."""
    within = allowed["within"] or ABSOLUTE
    match place:
        case ["text"] | ["data", _]:
            return same_text(old, new, within)
        case ["metadata", "ntpnb", "value", *_]:
            return close(old, new, within)
        case ["metadata", "ntpnb", "sketch", _]:
            return _same_sketch(old, new, allowed["share"] or RELATIVE)
        case ["metadata", "ntpnb", "data"]:  # a hash; the sketch says how far apart they are
            return True
    return False


def _leaves(value: Any, *place: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what an output says and where."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, *place, key)
    else:
        yield place, value


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
    # What a text says beside its numbers, whose columns may be of another width.
    words, other_words = (_NUMBER.sub(" # ", text).split() for text in (one, other))
    if words != other_words:
        return False
    for old, new in zip(_numbers(one), _numbers(other), strict=True):
        # What one in the last printed digit of a fraction is worth, and a little for rounding.
        is_whole = old.lstrip("-").isdigit()
        last = 0.0 if is_whole else 1.001 * 10.0 ** Decimal(old).as_tuple().exponent
        if not close(float(old), float(new), max(within, last)):
            return False
    return True


def _numbers(text: str) -> list[str]:
    return [number.replace("−", "-") for number in _NUMBER.findall(text)]


def _same_sketch(one: list[float], other: list[float], share: float) -> bool:
    """Say whether two arrays are as long, and differ by a share of the largest number at most."""
    within = max(ABSOLUTE, share * max(map(abs, [*one[1:], *other[1:]]), default=0.0))
    return one[:1] == other[:1] and close(one[1:], other[1:], within)


def close(one: Any, other: Any, within: float = ABSOLUTE) -> bool:
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
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(close(old, new, within) for old, new in pairs)
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=within)
    if type(one) is int:  # and no bool
        return abs(one - other) <= within
    return one == other


def _of_picture(one: str, other: str, pixels: float) -> str:
    """Say how two drawings differ as pictures; nothing where they do not."""
    old, new = _pixels(one), _pixels(other)
    if old.shape != new.shape:
        return f"is a picture of {old.shape} pixels, executed here {new.shape}"
    found = strange(old, new)
    if found <= pixels:
        return ""
    return f"is another picture than the one drawn here: {found} pixels have nothing like them"


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
