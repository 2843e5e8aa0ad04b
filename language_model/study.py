"""The same model from other texts, seeds and methods: ``python -m language_model.study``.

Each model is trained like the one that ships, and its decoder compared with the largest margin of
its hidden states, which is solved for. The table is ``ntpnb_book/data_files/language_models.csv``,
one row for each model and checkpoint. It takes two hours of one core; where it was interrupted, it
goes on.
"""

import argparse
import csv
import io
from dataclasses import asdict, astuple, dataclass, fields, replace
from itertools import product
from pathlib import Path

import joblib
import numpy as np
from scipy.sparse import csr_array

import ntpnb
from language_model.__main__ import FOLDER, PLAN, WINDOW
from language_model.training import Checkpoint, TrainingSet, read_words, train, training_set
from language_model.transformer import Array, Shape
from ntpnb import NextTokenData
from ntpnb_book import cosine, output

OUTPUT = FOLDER.parent / "ntpnb_book/data_files/language_models.csv"
FEW = 300
"""Contexts, the first of the text, whose largest margin is solved for at every checkpoint."""

STEPS = {"SGD": 0.3, "Adam": PLAN.first_step, "Muon": 0.02}
"""The first step of each method. Adam's is that of the model that ships; the others left the
smallest loss on Genesis, with seed 0 and 64 dimensions, of .1, .3, 1 and 3 (the last two overflow)
and of .005, .01, .02 and .05."""

SECONDS = 300.0
"""For one largest margin; after so many it counts as not decided."""


@dataclass(frozen=True)
class Setting:
    """What one model was trained on, and how; ``width`` is the dimension of its vectors."""

    text: str
    width: int
    method: str
    seed: int


TEXTS = ("genesis", "genesis_spanish", "constitution")
SEEDS = (0, 1, 2)
SETTINGS = [
    *(Setting(text, 64, method, 0) for text, method in product(TEXTS, STEPS)),
    *(Setting(text, 32, method, 0) for text, method in product(TEXTS, STEPS)),
    *(Setting(text, 64, method, seed) for seed, text, method in product(SEEDS[1:], TEXTS, STEPS)),
]


@dataclass(frozen=True)
class Row(Setting):
    """What was measured of one model at one checkpoint; angles in degrees, losses in nats.

    Attributes
    ----------
    epoch : int
    entropy : float
        Of the next word given three, in the training text.
    excess : float
        The loss above it.
    few_angle : float
        Of the decoder with ``W^mm`` of the hidden states of the first 300 contexts; before
        training, where the decoder is zero, nan.
    few_kept : float
        The same angle of the decoder of the first checkpoint after training has begun.
    separable : str
        Whether all contexts are: yes, no, or undecided; asked before training and at its end.
    margin : float
        The largest margin of all contexts at length one, at the end of training, else nan.
    angle : float
        Of the decoder with ``W^mm`` of all contexts, at the end of training, else nan.
    odds : float
        How far the decoder's part in ``F`` is from ``W*``, over the length of ``W*``, for all
        contexts at the end of training, else nan.
    """

    epoch: int
    entropy: float
    excess: float
    few_angle: float
    few_kept: float
    separable: str
    margin: float
    angle: float
    odds: float


def counts_of(examples: TrainingSet) -> csr_array:
    """How often each word follows each context, shape (m, V)."""
    ones = np.ones(len(examples.next_words), np.intp)
    places = (examples.context_of, examples.next_words)
    return csr_array((ones, places), shape=(len(examples.contexts), len(examples.words)))


def measured(setting: Setting) -> list[Row]:
    """Train one model and measure it at its checkpoints."""
    examples = training_set(read_words(FOLDER / f"{setting.text}.txt"), WINDOW)
    shape = Shape(vocab_size=len(examples.words), window=WINDOW, dim=setting.width)
    method = setting.method
    plan = replace(PLAN, first_step=STEPS[method], seed=setting.seed, method=method)
    counts = counts_of(examples)
    rows: list[Row] = []
    trained_first: Array | None = None
    for checkpoint in train(examples, shape, plan, lambda line: None):
        if trained_first is None and checkpoint.epoch > 0:
            trained_first = checkpoint.decoder.astype(np.float64)
        rows.append(row(setting, counts, checkpoint, trained_first))
    return rows


def row(
    setting: Setting, counts: csr_array, checkpoint: Checkpoint, trained_first: Array | None
) -> Row:
    """Compare one checkpoint's decoder with what the theory says of its hidden states."""
    W = checkpoint.decoder.astype(np.float64)
    hidden = checkpoint.hidden.astype(np.float64)
    data = NextTokenData.from_counts(hidden, counts)
    few_angle = few_kept = margin = angle = odds = np.nan
    separable = ""
    if trained_first is None:
        # The entries of these states have the sum zero, since the last layer norm is still the
        # identity. Without the last entry nothing is lost, and rounding tells no contexts apart.
        exact = NextTokenData.from_counts(hidden[:, :-1], counts)
        separable = largest_margin(exact).separable
    else:
        few = largest_margin(NextTokenData.from_counts(hidden[:FEW], counts[:FEW])).solution
        if few is not None:
            few_angle, few_kept = degrees(W, few.W), degrees(trained_first, few.W)
    if checkpoint.epoch == PLAN.epochs:
        finite = ntpnb.finite_part(data)
        odds = float(np.linalg.norm(finite.subspace.project(W) - finite.W))
        odds /= float(np.linalg.norm(finite.W))
        whole = largest_margin(data)
        separable = whole.separable
        if whole.solution is not None:
            margin, angle = 1 / whole.solution.norm, degrees(W, whole.solution.W)
    return Row(
        **asdict(setting),
        epoch=checkpoint.epoch,
        entropy=data.entropy,
        excess=float(ntpnb.excess_loss(W, data)),
        few_angle=few_angle,
        few_kept=few_kept,
        separable=separable,
        margin=margin,
        angle=angle,
        odds=odds,
    )


@dataclass(frozen=True, eq=False)
class Answer:
    """Whether data are separable (yes, no, undecided), with the solution where there is one."""

    separable: str
    solution: ntpnb.MarginSolution | None = None


def largest_margin(data: NextTokenData) -> Answer:
    """Solve, refute, or give up after :data:`SECONDS`."""
    try:
        return Answer("yes", ntpnb.max_margin(data, seconds=SECONDS))
    except ntpnb.NotSeparableError:
        return Answer("no")
    except ntpnb.ConvergenceError:
        return Answer("undecided")


def degrees(W: Array, direction: Array) -> float:
    """The angle between two matrices."""
    return float(np.degrees(np.arccos(cosine(W, direction))))


def read(path: Path) -> dict[Setting, list[list[str]]]:
    """The rows of a table, by the models that they measure; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    known: dict[Setting, list[list[str]]] = {}
    for text, width, method, seed, *rest in rows:
        setting = Setting(text, int(width), method, int(seed))
        known.setdefault(setting, []).append([text, width, method, seed, *rest])
    return known


def write(path: Path, known: dict[Setting, list[list[str]]]) -> None:
    """Write a table whole or not at all, its models in the order of :data:`SETTINGS`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    for setting in SETTINGS:
        writer.writerows(known.get(setting, []))
    output.write(path, table.getvalue())


def as_text(value: object) -> str:
    """A field of the table; six digits of a number."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Train and measure what is not in the table yet."""
    parser = argparse.ArgumentParser(prog="python -m language_model.study", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT, help="file to write (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time (%(default)s)")
    arguments = parser.parse_args()

    known = read(arguments.out)
    missing = [setting for setting in SETTINGS if setting not in known]
    jobs = joblib.Parallel(arguments.jobs, return_as="generator_unordered")
    for rows in jobs(joblib.delayed(measured)(setting) for setting in missing):
        last = rows[-1]
        setting = Setting(last.text, last.width, last.method, last.seed)
        known[setting] = [[as_text(value) for value in astuple(row)] for row in rows]
        write(arguments.out, known)
        print(
            f"{setting}: excess {last.excess:.4f} nats, {last.separable}, {last.angle:.1f} degrees",
            flush=True,
        )


if __name__ == "__main__":
    main()
