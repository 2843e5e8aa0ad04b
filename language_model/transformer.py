"""A small transformer in numpy, with gradients written by hand.

It reads windows of equally many words and scores the word after the last of them. Each of its
blocks adds to every word's vector first what attention finds in the words before it, then what two
layers of neurons make of it; both read the layer norm of the vectors. The last word's vector, after
one more layer norm, is the hidden state ``h``, and the scores are ``W h``: the decoder ``W`` has no
bias and is not tied to the word vectors.

Arrays keep the type of the parameters: training uses float32, the tests of the gradients float64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Parameters = dict[str, Array]

NORM_OFFSET = 1e-5
"""Added to the variance in a layer norm, so that a constant vector does no harm."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer."""

    vocab_size: int
    window: int
    dim: int = 64
    num_heads: int = 4
    num_blocks: int = 2
    num_neurons: int = 256


def initial_parameters(shape: Shape, rng: np.random.Generator) -> Parameters:
    """Draw parameters: normal ones, except layer norms at the identity and the decoder at zero.

    A matrix has the variance one over the length of its input; those that add to the vectors of
    the words are smaller, by the root of how many of them there are.

    Parameters
    ----------
    shape : Shape
    rng : numpy.random.Generator

    Returns
    -------
    dict
        Arrays of float32.
    """
    d = shape.dim
    shrink = 1 / np.sqrt(2 * shape.num_blocks)

    def normal(*sizes: int, scale: float) -> Array:
        return (scale * rng.standard_normal(sizes)).astype(np.float32)

    parameters = {
        "words": normal(shape.vocab_size, d, scale=1.0),
        "positions": normal(shape.window, d, scale=1.0),
    }
    for k in range(shape.num_blocks):
        parameters |= _identity_norm(f"attention_norm{k}", d)
        parameters[f"queries_keys_values{k}"] = normal(3 * d, d, scale=1 / np.sqrt(d))
        parameters[f"attention_out{k}"] = normal(d, d, scale=shrink / np.sqrt(d))
        parameters |= _identity_norm(f"neurons_norm{k}", d)
        parameters[f"neurons_in{k}"] = normal(shape.num_neurons, d, scale=1 / np.sqrt(d))
        parameters[f"neurons_bias{k}"] = np.zeros(shape.num_neurons, np.float32)
        scale = shrink / np.sqrt(shape.num_neurons)
        parameters[f"neurons_out{k}"] = normal(d, shape.num_neurons, scale=scale)
    parameters |= _identity_norm("last_norm", d)
    parameters["decoder"] = np.zeros((shape.vocab_size, d), np.float32)
    return parameters


def _identity_norm(name: str, dim: int) -> Parameters:
    return {f"{name}_gain": np.ones(dim, np.float32), f"{name}_bias": np.zeros(dim, np.float32)}


def hidden_states(parameters: Parameters, shape: Shape, windows: Array) -> Array:
    """The vectors that the decoder reads.

    Parameters
    ----------
    parameters : dict
    shape : Shape
    windows : ndarray of int, shape (n, window)

    Returns
    -------
    ndarray, shape (n, dim)
    """
    return _forward(parameters, shape, windows).hidden


def loss_and_gradients(
    parameters: Parameters, shape: Shape, windows: Array, next_words: Array
) -> tuple[float, Parameters]:
    """Mean cross-entropy in nats of the words that follow windows, and its gradients.

    Parameters
    ----------
    parameters : dict
    shape : Shape
    windows : ndarray of int, shape (n, window)
    next_words : ndarray of int, shape (n,)

    Returns
    -------
    loss : float
    gradients : dict
        With the names and shapes of ``parameters``.
    """
    n = len(windows)
    run = _forward(parameters, shape, windows)
    W = parameters["decoder"]
    scores = run.hidden @ W.T
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(n)
    loss = float(np.mean(np.log(sums[:, 0]) - scores[rows, next_words]))

    score_gradient = exponentials / sums
    score_gradient[rows, next_words] -= 1
    score_gradient /= n
    gradients = {name: np.zeros_like(value) for name, value in parameters.items()}
    gradients["decoder"] = score_gradient.T @ run.hidden
    _backward(parameters, shape, windows, run, score_gradient @ W, gradients)
    return loss, gradients


@dataclass(frozen=True)
class _Norm:
    """A layer norm that was computed: the normalised vectors, their deviations, the output."""

    normalised: Array
    deviation: Array
    output: Array


@dataclass(frozen=True)
class _Block:
    """What one block computed, for its gradients."""

    attention_norm: _Norm
    queries: Array
    keys: Array
    values: Array
    attention: Array
    mixed: Array
    neurons_norm: _Norm
    neurons: Array


@dataclass(frozen=True)
class _Run:
    """What a transformer computed, for its gradients."""

    blocks: list[_Block]
    last_norm: _Norm

    @property
    def hidden(self) -> Array:
        return self.last_norm.output


def _forward(parameters: Parameters, shape: Shape, windows: Array) -> _Run:
    p = parameters
    x = p["words"][windows] + p["positions"]
    later = np.triu(np.ones((shape.window, shape.window), bool), k=1)
    root = np.sqrt(shape.dim // shape.num_heads).astype(x.dtype)
    blocks = []
    for k in range(shape.num_blocks):
        attention_norm = _norm(p, f"attention_norm{k}", x)
        mapped = attention_norm.output @ p[f"queries_keys_values{k}"].T
        queries, keys, values = (_heads(part, shape) for part in np.split(mapped, 3, axis=-1))
        match = queries @ keys.swapaxes(-1, -2) / root
        match[..., later] = -np.inf
        match -= match.max(axis=-1, keepdims=True)
        attention = np.exp(match)
        attention /= attention.sum(axis=-1, keepdims=True)
        mixed = _joined(attention @ values)
        x = x + mixed @ p[f"attention_out{k}"].T
        neurons_norm = _norm(p, f"neurons_norm{k}", x)
        inputs = neurons_norm.output @ p[f"neurons_in{k}"].T + p[f"neurons_bias{k}"]
        neurons = np.maximum(inputs, 0)
        x = x + neurons @ p[f"neurons_out{k}"].T
        blocks.append(
            _Block(attention_norm, queries, keys, values, attention, mixed, neurons_norm, neurons)
        )
    return _Run(blocks, _norm(p, "last_norm", x[:, -1]))


def _backward(
    parameters: Parameters,
    shape: Shape,
    windows: Array,
    run: _Run,
    hidden_gradient: Array,
    gradients: Parameters,
) -> None:
    """Add the gradients of all parameters below the decoder to ``gradients``."""
    p = parameters
    root = np.sqrt(shape.dim // shape.num_heads).astype(hidden_gradient.dtype)
    dx = np.zeros((*windows.shape, shape.dim), hidden_gradient.dtype)
    dx[:, -1] = _norm_backward(p, "last_norm", run.last_norm, hidden_gradient, gradients)
    for k in reversed(range(shape.num_blocks)):
        block = run.blocks[k]
        gradients[f"neurons_out{k}"] += _outer(dx, block.neurons)
        d_neurons = (dx @ p[f"neurons_out{k}"]) * (block.neurons > 0)
        gradients[f"neurons_in{k}"] += _outer(d_neurons, block.neurons_norm.output)
        gradients[f"neurons_bias{k}"] += d_neurons.sum(axis=(0, 1))
        d_norm = d_neurons @ p[f"neurons_in{k}"]
        dx = dx + _norm_backward(p, f"neurons_norm{k}", block.neurons_norm, d_norm, gradients)

        gradients[f"attention_out{k}"] += _outer(dx, block.mixed)
        d_mixed = _heads(dx @ p[f"attention_out{k}"], shape)
        d_values = block.attention.swapaxes(-1, -2) @ d_mixed
        d_attention = d_mixed @ block.values.swapaxes(-1, -2)
        mean = (d_attention * block.attention).sum(axis=-1, keepdims=True)
        d_match = block.attention * (d_attention - mean) / root
        d_queries = d_match @ block.keys
        d_keys = d_match.swapaxes(-1, -2) @ block.queries
        d_mapped = np.concatenate([_joined(d) for d in (d_queries, d_keys, d_values)], axis=-1)
        gradients[f"queries_keys_values{k}"] += _outer(d_mapped, block.attention_norm.output)
        d_norm = d_mapped @ p[f"queries_keys_values{k}"]
        dx = dx + _norm_backward(p, f"attention_norm{k}", block.attention_norm, d_norm, gradients)
    gradients["positions"] += dx.sum(axis=0)
    np.add.at(gradients["words"], windows, dx)


def _norm(parameters: Parameters, name: str, x: Array) -> _Norm:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    deviation = np.sqrt(variance + np.asarray(NORM_OFFSET, x.dtype))
    normalised = centred / deviation
    output = parameters[f"{name}_gain"] * normalised + parameters[f"{name}_bias"]
    return _Norm(normalised, deviation, output)


def _norm_backward(
    parameters: Parameters, name: str, norm: _Norm, gradient: Array, gradients: Parameters
) -> Array:
    """The gradient of a layer norm's input; those of its parameters are added to ``gradients``."""
    words = tuple(range(gradient.ndim - 1))
    gradients[f"{name}_gain"] += (gradient * norm.normalised).sum(axis=words)
    gradients[f"{name}_bias"] += gradient.sum(axis=words)
    d = gradient * parameters[f"{name}_gain"]
    mean = d.mean(axis=-1, keepdims=True)
    along = np.mean(d * norm.normalised, axis=-1, keepdims=True)
    return (d - mean - norm.normalised * along) / norm.deviation


def _heads(x: Array, shape: Shape) -> Array:
    """Divide vectors among heads: shape (n, window, dim) to (n, heads, window, dim / heads)."""
    n, window, dim = x.shape
    return x.reshape(n, window, shape.num_heads, dim // shape.num_heads).swapaxes(1, 2)


def _joined(x: Array) -> Array:
    """Undo :func:`_heads`."""
    n, heads, window, dim = x.shape
    return x.swapaxes(1, 2).reshape(n, window, heads * dim)


def _outer(left: Array, right: Array) -> Array:
    """Sum of outer products over all words, shape (last axis of left, last axis of right)."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])
