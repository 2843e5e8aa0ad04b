"""A text as training windows, and the training of the transformer with its checkpoints."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from language_model.optimizers import OPTIMIZERS
from language_model.transformer import (
    Array,
    Shape,
    hidden_states,
    initial_parameters,
    loss_and_gradients,
)
from ntpnb.problem.text import split_words
from ntpnb_book import output


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """A text in windows, and its distinct contexts in the order of their first occurrence.

    Attributes
    ----------
    words : tuple of str
        The vocabulary in alphabetical order.
    windows : ndarray of int, shape (n, window)
        All runs of so many words.
    next_words : ndarray of int, shape (n,)
        The word that follows each.
    contexts : ndarray of int, shape (m, window)
        The distinct windows.
    context_of : ndarray of int, shape (n,)
        Which of them each window is.
    """

    words: tuple[str, ...]
    windows: Array
    next_words: Array
    contexts: Array
    context_of: Array


@dataclass(frozen=True)
class Plan:
    """How long to train, and with which steps.

    The step falls linearly from ``first_step`` to zero. There is no weight decay and no dropout;
    ``method`` is a key of :data:`~language_model.optimizers.OPTIMIZERS`.
    """

    epochs: int
    checkpoints: tuple[int, ...]
    batch_size: int
    first_step: float
    seed: int
    method: str = "Adam"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The model after some epochs: the hidden states of all contexts, and the decoder."""

    epoch: int
    hidden: Array
    decoder: Array


def read_words(path: Path) -> list[str]:
    """The words of a text with one numbered verse a line, in lower case, without punctuation."""
    lines = path.read_text("utf-8").splitlines()
    verses = [line for line in lines if not line.startswith("#")]
    return [word for verse in verses for word in split_words(re.sub(r"^\d+:\d+ ", "", verse))]


def training_set(text: list[str], window: int) -> TrainingSet:
    """Cut a text into windows and number its words and its distinct windows."""
    words = tuple(sorted(set(text)))
    number = {word: v for v, word in enumerate(words)}
    tokens = np.array([number[word] for word in text])
    runs = np.lib.stride_tricks.sliding_window_view(tokens, window + 1)
    windows = runs[:, :-1].copy()
    sorted_contexts, first, sorted_index = np.unique(
        windows, axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    return TrainingSet(
        words=words,
        windows=windows,
        next_words=runs[:, -1].copy(),
        contexts=sorted_contexts[order],
        context_of=place[sorted_index.ravel()],
    )


def save_whole(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays as one file, whole or not at all: an interrupted run leaves the old one."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    output.write(path, file.getvalue())


def train(
    examples: TrainingSet, shape: Shape, plan: Plan, tell: Callable[[str], object]
) -> Iterator[Checkpoint]:
    """Train on random batches of windows, and yield the model at the checkpoints.

    The same examples, shape and plan give the same numbers on the same processor with the same
    version of numpy and one thread.
    """
    rng = np.random.default_rng(plan.seed)
    parameters = initial_parameters(shape, rng)
    optimizer = OPTIMIZERS[plan.method](parameters)
    n = len(examples.windows)
    count = 0
    num_steps = plan.epochs * -(-n // plan.batch_size)
    for epoch in range(plan.epochs + 1):
        if epoch in plan.checkpoints:
            hidden = hidden_states(parameters, shape, examples.contexts)
            yield Checkpoint(epoch, hidden, parameters["decoder"].copy())
        if epoch == plan.epochs:
            return
        losses = []
        for batch in batches(rng, n, plan.batch_size):
            loss, gradients = loss_and_gradients(
                parameters, shape, examples.windows[batch], examples.next_words[batch]
            )
            remaining = 1 - count / num_steps
            optimizer.update(parameters, gradients, plan.first_step * remaining)
            count += 1
            losses.append(loss)
        tell(f"epoch {epoch + 1}: mean loss {np.mean(losses):.4f} nats")


def batches(rng: np.random.Generator, n: int, size: int) -> Iterator[Array]:
    """Each of ``n`` numbers once, in random order, ``size`` at a time."""
    order = rng.permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]
