"""Three ways to train: gradient descent with momentum, Adam, and one that resembles Muon.

Each is made for a set of parameters and changes them in place, by one step of a given size for
given gradients. None has weight decay.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from language_model.transformer import Array, Parameters

BETA1, BETA2, OFFSET = 0.9, 0.999, 1e-8
"""Adam's memory and the offset of its denominators, as Kingma and Ba propose them."""

MOMENTUM = 0.95
"""What the mean of the gradients keeps of its past, in Muon as Jordan et al. (2024) propose it."""

SGD_MOMENTUM = 0.9

ROUNDING = 1e-6
"""Relative size of what sums of some hundred numbers in single precision leave of zero."""


class Optimizer(Protocol):
    """What training asks of an optimizer."""

    def update(self, parameters: Parameters, gradients: Parameters, step: float) -> None:
        """Change parameters in place by one step of the given size."""


class SGD:
    """Stochastic gradient descent with Polyak's momentum."""

    def __init__(self, parameters: Parameters) -> None:
        self.velocity = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, parameters: Parameters, gradients: Parameters, step: float) -> None:
        """Take one step of the given size."""
        for name, gradient in gradients.items():
            self.velocity[name] = SGD_MOMENTUM * self.velocity[name] + gradient
            parameters[name] -= step * self.velocity[name]


class Adam:
    """Adam of Kingma and Ba (2015)."""

    def __init__(self, parameters: Parameters) -> None:
        self.count = 0
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, parameters: Parameters, gradients: Parameters, step: float) -> None:
        """Take one step of the given size."""
        self.count += 1
        for name, gradient in gradients.items():
            self.first[name] += (1 - BETA1) * (gradient - self.first[name])
            self.second[name] += (1 - BETA2) * (gradient**2 - self.second[name])
            mean = self.first[name] / (1 - BETA1**self.count)
            mean_square = self.second[name] / (1 - BETA2**self.count)
            parameters[name] -= step * mean / (np.sqrt(mean_square) + OFFSET)


class Muon:
    """Momentum whose matrix steps have equal singular values, after Jordan et al. (2024).

    A matrix moves by the polar factor of its gradient and their mean, weighed as in Nesterov's
    momentum, times the root of how many rows it has for each column, if these are more than one.
    Theirs approximates the polar factor, and leaves the decoder and the vectors of the words to
    Adam; here it is computed, and the decoder, which the theory is about, moves like the other
    matrices. Queries, keys and values are one matrix. The vectors of the words and of the
    positions, biases and layer norms move by Adam, with the ``share`` of the step.
    """

    share = 0.1

    def __init__(self, parameters: Parameters) -> None:
        others = ("words", "positions")
        self.matrices = {n for n, p in parameters.items() if p.ndim == 2 and n not in others}
        self.mean = {name: np.zeros_like(parameters[name]) for name in self.matrices}
        self.adam = Adam({n: p for n, p in parameters.items() if n not in self.matrices})

    def update(self, parameters: Parameters, gradients: Parameters, step: float) -> None:
        """Take one step of the given size."""
        rest = {name: g for name, g in gradients.items() if name not in self.matrices}
        self.adam.update(parameters, rest, self.share * step)
        for name in sorted(self.matrices):
            self.mean[name] += (1 - MOMENTUM) * (gradients[name] - self.mean[name])
            ahead = gradients[name] + MOMENTUM * (self.mean[name] - gradients[name])
            rows, columns = ahead.shape
            length = np.sqrt(max(1.0, rows / columns))
            parameters[name] -= np.float32(step * length) * polar_factor(ahead)


def polar_factor(matrix: Array) -> Array:
    """The product ``U Vᵀ`` of a matrix's singular vectors, of the same shape.

    Without those whose singular value is rounding, which have no direction: at most
    :data:`ROUNDING` of the largest.

    Examples
    --------
    >>> import numpy as np
    >>> polar_factor(np.diag([3.0, -0.5])).round(12).tolist()
    [[1.0, 0.0], [0.0, -1.0]]
    >>> polar_factor(np.zeros((2, 2))).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    U, values, Vt = np.linalg.svd(matrix, full_matrices=False)
    counts = values > ROUNDING * values[0]
    factor: Array = U[:, counts] @ Vt[counts]
    return factor


OPTIMIZERS: dict[str, Callable[[Parameters], Optimizer]] = {"SGD": SGD, "Adam": Adam, "Muon": Muon}
