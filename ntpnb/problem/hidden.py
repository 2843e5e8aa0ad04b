"""A model's hidden states and the tokens that came next, as contexts and counts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    as_floats,
    as_integers,
    as_vocab_size,
    first_index,
    require_lengths,
    require_type,
)
from ntpnb.problem.duplicates import members
from ntpnb.problem.table import Table, collected

IGNORED = -100  # the next token of a position that is left out, by the convention of many libraries


@dataclass(frozen=True, eq=False)
class CountedStates:
    """The distinct hidden states, in order of appearance, and how often each token followed them.

    Attributes
    ----------
    embeddings : ndarray, shape (m, d)
    counts : Table, shape (m, V)
    positions : tuple of ndarray of int
        Where each of them occurs among all positions, ignored ones included.
    """

    embeddings: FloatArray
    counts: Table
    positions: tuple[IntArray, ...]


def count_states(
    hidden: ArrayLike, next_tokens: ArrayLike, vocab_size: int | None
) -> CountedStates:
    """Make one context of all positions with equal hidden states, and count their next tokens.

    Parameters
    ----------
    hidden, next_tokens, vocab_size
        As in :meth:`ntpnb.NextTokenData.from_hidden_states`.

    Returns
    -------
    CountedStates

    Raises
    ------
    ValueError, TypeError
        What that method says.

    Examples
    --------
    >>> from ntpnb.problem.hidden import count_states
    >>> found = count_states([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], [2, 0, 1], vocab_size=3)
    >>> found.embeddings.tolist(), found.counts.dense.tolist()
    ([[1.0, 0.0], [0.0, 2.0]], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    >>> [positions.tolist() for positions in found.positions]
    [[0, 2], [1]]
    """
    states = as_floats("hidden", hidden)
    tokens = as_integers("next_tokens", next_tokens)
    _require_matching_shapes(states.shape, tokens.shape)
    position = np.flatnonzero(tokens.ravel() != IGNORED)
    if not position.size:
        raise ValueError(
            f"next_tokens has no position that counts: all {tokens.size} are {IGNORED}, which "
            "leaves a position out"
        )
    rows = states.reshape(-1, states.shape[-1])[position]

    def place(k: int) -> list[int]:
        return [int(i) for i in np.unravel_index(position[k], tokens.shape)]

    require_lengths("hidden", rows, place)
    kept = tokens.ravel()[position]
    size = _checked_vocab_size(tokens, kept, vocab_size)

    first, row = _equal_rows(rows)
    return CountedStates(
        embeddings=rows[first],
        counts=collected("counts", row, kept, (len(first), size)),
        positions=tuple(position[places] for places in members(row)),
    )


def as_labels(labels: ArrayLike, shape: tuple[int, ...]) -> list[str]:
    """Return one label for each position, the rows of a batch one after the other, or explain.

    Parameters
    ----------
    labels : array_like of str
    shape : tuple of int
        Of the positions.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        Another shape.
    TypeError
        A label that is no str.

    Examples
    --------
    >>> from ntpnb.problem.hidden import as_labels
    >>> as_labels([["we", "we see"], ["you", "you see"]], (2, 2))
    ['we', 'we see', 'you', 'you see']
    """
    names = np.array(labels, dtype=object)
    if names.shape != shape:
        raise ValueError(
            f"labels has shape {names.shape}; one label is needed for each hidden state, shape "
            f"{shape}"
        )
    for place, name in np.ndenumerate(names):
        require_type(f"labels{list(place)}", name, str, "a str")
    return [str(name) for name in names.ravel()]


def _require_matching_shapes(states: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """Raise unless there is one next token for each of at least one hidden state."""
    if len(states) not in (2, 3) or 0 in states:
        raise ValueError(
            f"hidden has shape {states}; it needs (n, d), or (batch, length, d), with no length "
            "of zero"
        )
    if tokens == states[:-1]:
        return
    hint = ""
    if len(states) == 3 and len(tokens) == 2 and tokens[0] == states[0]:
        hint = "; the states before tokens[:, 1:] are hidden[:, :-1]"
    raise ValueError(
        f"next_tokens has shape {tokens} and hidden {states}; one next token is needed for each "
        f"hidden state, shape {states[:-1]}{hint}"
    )


def _checked_vocab_size(tokens: IntArray, kept: IntArray, vocab_size: int | None) -> int:
    """Return the number of tokens, or explain what is wrong with it or with a token."""
    size = as_vocab_size("next_tokens", int(kept.max()), vocab_size)
    outside = (tokens != IGNORED) & ((tokens < 0) | (tokens >= size))
    if outside.any():
        place = first_index(outside)
        raise ValueError(
            f"next_tokens{list(place)} is {tokens[place]}; tokens must lie in 0…{size - 1}, or be "
            f"{IGNORED}, which leaves a position out"
        )
    return size


def _equal_rows(rows: FloatArray) -> tuple[IntArray, IntArray]:
    """The first of each set of equal rows, in order, and the number of each row's set."""
    without_signed_zeros = np.ascontiguousarray(rows + 0.0)
    as_bytes = np.dtype((np.void, rows.shape[1] * rows.itemsize))
    keys = without_signed_zeros.view(as_bytes).ravel()
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return np.unique(first[number], return_inverse=True)
