"""Train the language model and write what ships of it: ``python -m language_model --help``.

It takes about a minute of one core, needs numpy alone, and is run once: what it wrote is
``ntpnb_book/data_files/language_model.npz``, read by :func:`ntpnb_book.language_model`.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from language_model.training import (
    Checkpoint,
    Plan,
    TrainingSet,
    read_words,
    save_whole,
    train,
    training_set,
)
from language_model.transformer import Shape

FOLDER = Path(__file__).resolve().parent
OUTPUT = FOLDER.parent / "ntpnb_book/data_files/language_model.npz"
WINDOW = 3
"""Words that the model reads: the context."""

FIRST = 1000
"""Contexts whose hidden states are kept at every checkpoint, and not only at the last."""

PLAN = Plan(
    epochs=120,
    checkpoints=(0, 4, 10, 20, 40, 120),
    batch_size=256,
    first_step=2e-3,
    seed=0,
)


def write(
    path: Path, examples: TrainingSet, checkpoints: list[Checkpoint], provenance: dict[str, object]
) -> None:
    """Write the file that ships: states and decoders in half precision, the rest as it is.

    Parameters
    ----------
    path : Path
    examples : TrainingSet
    checkpoints : list of Checkpoint
    provenance : dict
        Whatever JSON can hold.
    """
    arrays = {
        "words": np.array(examples.words),
        "contexts": examples.contexts.astype(np.uint16),
        "next_words": examples.next_words.astype(np.uint16),
        "context_of": examples.context_of.astype(np.uint16),
        "hidden": checkpoints[-1].hidden.astype(np.float16),
        "epochs": np.array([checkpoint.epoch for checkpoint in checkpoints]),
        "first_hidden": np.array([c.hidden[:FIRST] for c in checkpoints], np.float16),
        "decoders": np.array([c.decoder for c in checkpoints], np.float16),
        "provenance": np.array(json.dumps(provenance, sort_keys=True)),
    }
    save_whole(path, arrays)


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(prog="python -m language_model", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT, help="file to write (%(default)s)")
    arguments = parser.parse_args()

    text = FOLDER / "genesis.txt"
    examples = training_set(read_words(text), WINDOW)
    shape = Shape(vocab_size=len(examples.words), window=WINDOW)
    checkpoints = list(train(examples, shape, PLAN, lambda line: print(line, flush=True)))
    provenance = {
        "text": "Genesis 1 to 14, King James Version: language_model/genesis.txt",
        "script": "python -m language_model",
        "numpy": np.__version__,
        "shape": asdict(shape),
        "plan": asdict(PLAN),
    }
    write(arguments.out, examples, checkpoints, provenance)


if __name__ == "__main__":
    main()
