"""Whether the committed notebooks say what this clone's own execution of them says.

nbval compares printed text. What a reader believes besides stands in no text: the exact values
behind the scoreboard, seeds, the names of glued numbers and of figures, the pictures. A fresh clone
executes every notebook for its figures (`publishing.repeated`), so that all of it can be compared
with no further run.

The machine type that wrote the committed notebooks gives them again byte for byte. Where it does so
for most of them, nothing may differ in the others but how a picture's letters are placed. Another
processor rounds differently, and some runs amplify that: there values are compared coarsely, and
hashes of data not at all.
"""

import io
import math
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ntpnb.notebook import output
from publishing import project, repeated

RELATIVE, ABSOLUTE = 0.5, 1e-6
"""What two values may differ by on another processor, relative to the larger or absolutely.

Without the instructions of the last fifteen years, four of 700 values differ by more than a third:
how far normalized descent overshoots, and errors near 1e-5.
"""

UNLIKE = 0.15
"""What two pictures may differ by: one minus the correlation of their shades, block by block.

Other processors, with the figures of normalized descent, come to 0.03. Different figures of the
same size come to 0.46 or more.
"""

Shades: TypeAlias = npt.NDArray[np.float64]

_BLOCK = 16  # pixels
_PICTURE = "image/png"


def is_same_machine(root: Path = output.ROOT) -> bool:
    """Say whether this clone gave most of the committed notebooks again byte for byte.

    Then it is of the machine type that wrote them.
    """
    names = [name for name in project.names(root) if repeated.is_comparable(name, root)]
    same = [name for name in names if repeated.has_same_bytes(name, root)]
    return 2 * len(same) > len(names)


def differences(name: str, root: Path = output.ROOT, *, exactly: bool) -> Iterator[str]:
    """Yield, as one line each, where a committed notebook differs from this clone's execution.

    Parameters
    ----------
    name : str
        A notebook that this clone has executed, see `publishing.repeated.is_comparable`.
    root : Path
        The checkout.
    exactly : bool
        Whether values and data have to be the same to the last digit, see `is_same_machine`.
    """
    if repeated.has_same_bytes(name, root):
        return
    committed = _outputs(project.read_executed(name, root))
    here = _outputs(project.read_json(repeated.executed_here(name, root), {"cells": []}))
    if len(committed) != len(here):
        yield f"{name}: {len(committed)} cells, executed here {len(here)}"
        return
    for number, (old, new) in enumerate(zip(committed, here, strict=True), 1):
        where = f"{name}, cell [{number}]"
        if len(old) != len(new):
            yield f"{where}: {len(old)} outputs, executed here {len(new)}"
            continue
        for one, other in zip(old, new, strict=True):
            for line in _of_output(one, other, exactly):
                yield f"{where}: {line}"


def _outputs(notebook: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """List the outputs of each code cell."""
    return [cell.get("outputs", []) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _of_output(one: Mapping[str, Any], other: Mapping[str, Any], exactly: bool) -> Iterator[str]:
    """Yield where two outputs differ."""
    for field in sorted((one.keys() | other.keys()) - {"data", "metadata", "execution_count"}):
        yield from _of_field(field, one.get(field), other.get(field))
    old, new = one.get("data", {}), other.get("data", {})
    for kind in sorted(old.keys() | new.keys()):
        if kind == _PICTURE and kind in old and kind in new:
            yield from _of_picture(old[kind], new[kind])
        else:
            yield from _of_field(kind, old.get(kind), new.get(kind))
    old, new = one.get("metadata", {}), other.get("metadata", {})
    for field in sorted(old.keys() | new.keys()):
        if field == "ntpnb" and field in old and field in new:
            yield from _of_record(old[field], new[field], exactly)
        else:
            yield from _of_field(field, old.get(field), new.get(field))


def _of_field(field: str, one: object, other: object) -> Iterator[str]:
    """Yield how two fields differ that have to be equal; lines of a text count as one text."""
    one, other = ("".join(x) if isinstance(x, list) else x for x in (one, other))
    if one != other:
        yield f"{field} is {one!r:.200}, executed here {other!r:.200}"


def _of_record(one: Mapping[str, Any], other: Mapping[str, Any], exactly: bool) -> Iterator[str]:
    """Yield where the records of `check` or `figures.save` differ."""
    what = one.get("id", one.get("figure", "record"))
    for field in sorted(one.keys() | other.keys()):
        old, new = one.get(field), other.get(field)
        may_differ = not exactly and field in one and field in other
        if may_differ and (field == "data" or (field == "value" and close(old, new))):
            continue
        if repr(old) != repr(new):
            yield f"{what}: {field} is {old!r:.200}, executed here {new!r:.200}"


def close(one: object, other: object) -> bool:
    """Say whether two measured values may be the same, computed by different processors.

    Examples
    --------
    >>> from publishing.verify import close
    >>> close(0.981, 0.972), close(1e-9, 3e-14), close(0.981, -12345.678), close(1.0, True)
    (True, True, False, False)
    """
    if not (isinstance(one, float) and isinstance(other, float)):
        return type(one) is type(other) and one == other
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _of_picture(one: str | list[str], other: str | list[str]) -> Iterator[str]:
    """Yield how two pictures differ."""
    old, new = _pixels(one), _pixels(other)
    if old.shape != new.shape:
        yield f"a picture of {old.shape} pixels, executed here {new.shape}"
    elif unlike(old, new) > UNLIKE:
        yield f"another picture than the one drawn here: unlike by {unlike(old, new):.2f}"


def unlike(one: Shades, other: Shades) -> float:
    """Compare two pictures of one size; 0 for equal ones, about 1 for any two.

    Parameters
    ----------
    one, other : array, shape (height, width)
        Shades of grey.
    """
    if np.array_equal(one, other):
        return 0.0
    blocks = [_blocks(picture).ravel() for picture in (one, other)]
    if min(block.std() for block in blocks) == 0:  # one of them is blank
        return 1.0
    return 1 - float(np.corrcoef(*blocks)[0, 1])


def _blocks(picture: Shades) -> Shades:
    """Average the shades in blocks, so that a line that moved by a pixel is still there."""
    height, width = (max(1, side // _BLOCK) for side in picture.shape)
    rows = np.array_split(picture, height, axis=0)
    return np.array([[part.mean() for part in np.array_split(row, width, axis=1)] for row in rows])


def _pixels(picture: str | list[str]) -> Shades:
    """Decode a picture into shades of grey."""
    from PIL import Image

    with Image.open(io.BytesIO(b64decode("".join(picture)))) as image:
        return np.asarray(image.convert("L"), dtype=np.float64)
