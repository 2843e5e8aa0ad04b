"""Random problems of the linear decoder on which the evidence pages test theorems."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ntpnb import datasets
from ntpnb.basics.validation import FloatArray
from ntpnb.bias import ImplicitBias, implicit_bias
from ntpnb.problem.data import NextTokenData

__all__ = ["SHAPES", "LinearTrial", "linear_trials", "unit_smoothness"]

SHAPES = ((5, 4, 6, 2), (8, 10, 12, 3), (4, 8, 10, 1))
"""V, m, d and S of the problems; the labels of the last are one-hot, so that F is {0}."""


@dataclass(frozen=True)
class LinearTrial:
    """A problem, a start for training on it, and what theory says of its end.

    Attributes
    ----------
    data : NextTokenData
        With d > m, hence compatible and separable, and smoothness one half.
    start : ndarray, shape (V, d)
        LeCun initialization.
    bias : ImplicitBias
        What theory says, computed on demand.

    Examples
    --------
    >>> from ntpnb_book import LinearTrial, linear_trials
    >>> [[trial]] = linear_trials([0], [(5, 4, 6, 2)])
    >>> isinstance(trial, LinearTrial), trial.start.shape, trial.bias.finite_part.compatible
    (True, (5, 6), True)
    """

    data: NextTokenData
    start: FloatArray
    bias: ImplicitBias


def unit_smoothness(data: NextTokenData) -> NextTokenData:
    """Scale embeddings so that the smoothness L is one half, and the step 1/(2L) is one.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    NextTokenData
        The same laws in contexts whose embeddings are all multiplied by one number.

    Examples
    --------
    >>> from ntpnb import datasets
    >>> from ntpnb_book import unit_smoothness
    >>> round(unit_smoothness(datasets.toy()).smoothness, 12)
    0.5
    """
    factor = 1 / np.sqrt(2 * data.smoothness)
    return data.replace(context_embeddings=factor * data.context_embeddings)


def linear_trials(
    seeds: Iterable[int], shapes: Iterable[tuple[int, int, int, int]] = SHAPES
) -> list[list[LinearTrial]]:
    """Make one random problem for each seed and shape; the largest step of the proofs is one.

    Parameters
    ----------
    seeds : iterable of int
    shapes : iterable of (V, m, d, S)
        Numbers of tokens, contexts and dimensions, and size of the supports. Default:
        (5, 4, 6, 2), (8, 10, 12, 3) and (4, 8, 10, 1).

    Returns
    -------
    list of list of LinearTrial
        For each shape the problems of all seeds, which `ntpnb.descend` can train as one batch.

    Examples
    --------
    >>> from ntpnb_book import linear_trials
    >>> [[trial]] = linear_trials([1], [(5, 4, 6, 2)])
    >>> trial.data.shape, trial.bias.finite_part.compatible
    ((5, 6), True)
    """
    seeds = list(seeds)
    batches = []
    for shape in shapes:
        batch = []
        for seed in seeds:
            data = unit_smoothness(datasets.overparameterized(seed, *shape))
            start = datasets.lecun_init(data, seed)
            batch.append(LinearTrial(data, start, implicit_bias(data)))
        batches.append(batch)
    return batches
