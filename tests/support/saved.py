"""What comes back from a file, and files that say something else than was saved."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np

import ntpnb
from ntpnb.basics import saving


def known_bias(data):
    """A bias whose parts have been computed."""
    bias = ntpnb.implicit_bias(data)
    assert bias.finite_part.W.shape == data.shape
    assert bias.separable in (True, False)
    return bias


def again(thing):
    """What :func:`ntpnb.load` makes of the file that a thing is saved in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thing.npz"
        thing.save(path)
        return ntpnb.load(path)


def arrays_of(thing):
    """The arrays of a thing's file, by name."""
    with np.load(io.BytesIO(saving.written(thing))) as archive:
        return dict(archive)


def structure_of(thing):
    """What the file says of the arrays."""
    return json.loads(arrays_of(thing)[saving.STRUCTURE].tobytes())


def holds(structure, kind):
    """What the last object of a class holds, by name."""
    [*_, last] = [entry for entry in structure["objects"] if entry["kind"] == kind]
    return last["holds"]["dict"]


def write(path, arrays, structure=None):
    """Write a file with these arrays, and with another structure, or text in its place."""
    if structure is not None:
        text = structure if isinstance(structure, bytes) else json.dumps(structure).encode()
        arrays = arrays | {saving.STRUCTURE: np.frombuffer(text, np.uint8)}
    np.savez(path, **arrays)
