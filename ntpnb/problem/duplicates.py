"""Contexts that are one: embeddings that nearly agree, and hidden states that do to the last bit.

Rounding makes near-duplicates out of equal contexts, for example where the vectors of the same
words are added up in another order. A decoder tells such contexts apart only by enormous weights.
They are found here, and made one context. A model's hidden states and the tokens that came next
become contexts and counts, where equal states are one context from the start.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from ntpnb.basics.linear_systems import nonzero_norms
from ntpnb.basics.tolerances import HALF_THE_DIGITS
from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    as_floats,
    as_integers,
    as_vocab_size,
    first_index,
    require_lengths,
    require_number,
    require_type,
)
from ntpnb.problem.table import Table, as_table, collected

LARGEST_TOLERANCE = 0.1
SKETCH_DIM = 10  # dimensions in which neighbours are sought before they are compared in all

IGNORED = -100  # the next token of a position that is left out, by the convention of many libraries


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Rows whose embeddings agree with that of the first of them, within a tolerance.

    Attributes
    ----------
    rows : ndarray of int, shape (n,)
        Increasing.
    distances : ndarray, shape (n,)
        ``‖h_j − h_i‖ / max(‖h_j‖, ‖h_i‖)`` of each row ``j``, where ``i`` is the first of them.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0], [2.0], [1.0 + 1e-9]], [[1, 0], [0, 1], [1, 0]])
    >>> [found.rows.tolist() for found in data.near_duplicates()]
    [[0, 2]]
    """

    rows: IntArray
    distances: FloatArray


class Contexts(NamedTuple):
    """What a dataset knows of its m contexts.

    Attributes
    ----------
    embeddings : ndarray, shape (m, q)
    laws : Table, shape (m, V)
        Next-token distributions.
    probs : ndarray, shape (m,)
    counts : Table, shape (m, V), or None
        Candidate counts.
    groups : ndarray of int, shape (m,)
        Rows of one group have equal embeddings.
    """

    embeddings: FloatArray
    laws: Table
    probs: FloatArray
    counts: Table | None
    groups: IntArray


def near_duplicates(
    embeddings: FloatArray, groups: IntArray, tolerance: float, name: str = "tolerance"
) -> tuple[NearDuplicates, ...]:
    """Find rows of different groups whose embeddings nearly agree.

    Rows are taken in order, and each claims those after it that agree with it and that none before
    has claimed. Rows of one group are one context, and no duplicates of each other.

    Parameters
    ----------
    embeddings : ndarray, shape (m, q)
    groups : ndarray of int, shape (m,)
        Names of groups of rows with equal embeddings.
    tolerance : float
        Between 0 and 0.1: the largest relative distance.
    name : str
        What errors call the tolerance.

    Returns
    -------
    tuple of NearDuplicates
        Each of rows of two or more groups, in the order of their first rows.

    Raises
    ------
    TypeError, ValueError
        A tolerance that is no such number.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.duplicates import near_duplicates
    >>> H = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-7], [1.0, 0.1]])
    >>> found = near_duplicates(H, np.arange(4), tolerance=1e-6)
    >>> found[0].rows.tolist(), found[0].distances.round(9).tolist()
    ([0, 2], [0.0, 1e-07])
    """
    require_number(
        name,
        tolerance,
        lambda x: 0 <= x <= LARGEST_TOLERANCE,
        f"lie between 0 and {LARGEST_TOLERANCE:g}",
    )
    _, first_row, group = np.unique(groups, return_index=True, return_inverse=True)
    leaders, place = np.unique(first_row[group], return_inverse=True)
    clusters = _clusters(embeddings[leaders], tolerance)
    cluster_of_place = np.full(len(leaders), len(clusters))  # that many: in none
    for k, cluster in enumerate(clusters):
        cluster_of_place[cluster] = k
    found = members(cluster_of_place[place])[: len(clusters)]
    return tuple(
        NearDuplicates(rows, _relative_distances(embeddings[rows], embeddings[rows[0]]))
        for rows in found
    )


def merge(contexts: Contexts, tolerance: float) -> tuple[Contexts, tuple[tuple[int, ...], ...]]:
    """Make one context of all rows of each set of near-duplicates.

    Its embedding and its law are the means of theirs by their frequencies, and its frequency is
    the sum of theirs. It stands where the first of them stood, and has that row's group and
    candidates.

    Parameters
    ----------
    contexts : Contexts
        With laws and frequencies that sum to one.
    tolerance : float
        As in :func:`near_duplicates`.

    Returns
    -------
    merged : Contexts
        Rows without near-duplicates are as they were, to the last bit.
    rows : tuple of tuple of int
        Which of the given rows each row stands for.

    Raises
    ------
    TypeError, ValueError
        A tolerance out of range, or near-duplicates with different candidate counts.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.problem.duplicates import Contexts, merge
    >>> from ntpnb.problem.table import as_table
    >>> H = np.array([[1.0], [1.0 + 4e-9], [5.0]])
    >>> laws = as_table("target_probs", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> given = Contexts(H, laws, np.array([0.3, 0.1, 0.6]), None, np.arange(3))
    >>> merged, rows = merge(given, tolerance=1e-6)
    >>> rows, merged.laws.dense.round(9).tolist()
    (((0, 1), (2,)), [[0.75, 0.25], [0.0, 1.0]])
    """
    found = near_duplicates(contexts.embeddings, contexts.groups, tolerance, "merge_tolerance")
    num_rows = len(contexts.probs)
    first = np.arange(num_rows)  # the row that each row is merged into
    for duplicates in found:
        first[duplicates.rows] = duplicates.rows[0]
    if contexts.counts is not None:
        _require_equal_counts(contexts.counts, first)
    kept, position = np.unique(first, return_inverse=True)
    rows = tuple(tuple(some.tolist()) for some in members(position))
    if not found:
        return contexts, rows

    probs = np.bincount(position, weights=contexts.probs).astype(np.float64)
    share = contexts.probs / probs[position]
    mean = csr_array((share, (position, np.arange(num_rows))))
    # Around the first of them, so that equal embeddings have themselves as their mean.
    shift = mean @ (contexts.embeddings - contexts.embeddings[first])
    laws = as_table(contexts.laws.name, mean @ contexts.laws.sparse)
    is_merged = np.bincount(position) > 1
    counts = contexts.counts
    if counts is not None:
        counts = as_table(counts.name, counts.sparse[kept])
    merged = Contexts(
        embeddings=contexts.embeddings[kept] + shift,
        laws=laws.divided_by(np.where(is_merged, laws.row_sums(), 1.0)),
        probs=probs,
        counts=counts,
        groups=contexts.groups[kept],
    )
    return merged, rows


def members(labels: IntArray) -> list[IntArray]:
    """Positions of each label 0, 1, 2, …, increasing."""
    by_label = np.argsort(labels, kind="stable")
    return np.split(by_label, np.cumsum(np.bincount(labels))[:-1])


def _clusters(points: FloatArray, tolerance: float) -> list[IntArray]:
    """Find points that agree with the first of them, each in one cluster of two or more."""
    sketch = _sketch(points)
    # Embeddings at the relative distance t have directions at most 2 t and logarithms of lengths
    # at most −log(1 − t) apart.
    radius = 3 * tolerance + HALF_THE_DIGITS  # what is too far all the same is told from it below
    tree = cKDTree(sketch)
    num_near = tree.query_ball_point(sketch, radius, return_length=True)
    is_claimed = np.zeros(len(points), dtype=bool)
    clusters = []
    for i in np.flatnonzero(num_near > 1):
        if is_claimed[i]:
            continue
        near = np.sort(tree.query_ball_point(sketch[i], radius))
        near = near[(near > i) & ~is_claimed[near]]
        agreeing = near[_relative_distances(points[near], points[i]) <= tolerance]
        if len(agreeing):
            is_claimed[agreeing] = True
            clusters.append(np.concatenate([[i], agreeing]))
    return clusters


def _sketch(points: FloatArray) -> FloatArray:
    """Few coordinates of each point's direction, and the logarithm of its length.

    In many dimensions a tree cannot tell near points from others; a projection to few loses
    nothing, since it never moves points apart.
    """
    dim = points.shape[1]
    lengths = nonzero_norms(points)
    projected = points
    if dim > SKETCH_DIM:
        rng = np.random.default_rng(0)
        projected = points @ np.linalg.qr(rng.standard_normal((dim, SKETCH_DIM)))[0]
    return np.column_stack([projected / lengths[:, None], np.log(lengths)])


def _relative_distances(points: FloatArray, reference: FloatArray) -> FloatArray:
    """Distance of each point to one, relative to the longer of the two; zero where both are."""
    distances = np.linalg.norm(points - reference, axis=1)
    longer = np.maximum(np.linalg.norm(points, axis=1), np.linalg.norm(reference))
    relative: FloatArray = distances / np.where(longer > 0, longer, 1.0)
    return relative


def _require_equal_counts(counts: Table, first: IntArray) -> None:
    """Raise unless each row has the candidate counts of that which it is merged with.

    Without that their laws cannot be mixed.
    """
    others = np.flatnonzero((counts.sparse != counts.sparse[first]).sum(1))
    if len(others):
        row = others[0]
        raise ValueError(
            f"merge_tolerance makes one context of rows {first[row]} and {row}, whose "
            "candidate_counts differ; give them equal ones, or a smaller merge_tolerance"
        )


# -- a model's hidden states ----------------------------------------------------------------------


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
    >>> from ntpnb.problem.duplicates import count_states
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
    >>> from ntpnb.problem.duplicates import as_labels
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
