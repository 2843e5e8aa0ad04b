"""The one container behind both papers: contexts, their next tokens' distributions, candidates."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from ntpnb.array_types import BoolArray, FloatArray, IntArray
from ntpnb.validation import (
    LARGEST_COUNT,
    SMALLEST_COUNT,
    as_array,
    as_indices,
    as_integer,
    as_sequences,
    first_index,
    require_distributions,
    require_lengths,
    require_range,
)

Context = tuple[int, ...]  # the tokens that have been read

DISTANCE_BLOCK = 512  # tokens whose distances to all others are held at one time


class NextTokenData:
    r"""Contexts with bilinear token scores and target next-token distributions.

    Row ``j`` is a context with embedding ``h_j``. Token ``v`` scores ``s_jv = t_v · W h_j``, and
    the model's next-token distribution is ``q_jv = c_jv exp(s_jv) / Σ_u c_ju exp(s_ju)``. T24's
    linear decoder is ``t_v = e_v`` and ``c = 1``. L24's attention layer is ``t_v`` = embedding of
    token ``v``, ``h_j`` = embedding of the last token and ``c_jv`` = how often ``v`` occurs in
    sequence ``j``.

    The arrays are copied, checked once, and read-only from then on.

    Parameters
    ----------
    context_embeddings : array_like, shape (m, q)
        The rows ``h_j``.
    target_probs : array_like, shape (m, V)
        The next-token distributions ``p̂_j``; each row is nonnegative and sums to one within 1e-8
        (it is then rescaled to do so to the last bit).
    context_probs : array_like, shape (m,), optional
        The context frequencies ``π̂_j > 0``, summing to one. Default: uniform.
    token_embeddings : array_like, shape (V, p), optional
        The rows ``t_v``. Default: the identity, so that ``p = V``; it is never formed.
    candidate_counts : array_like, shape (m, V), optional
        The multiplicities ``c_jv >= 0``; zero means that ``v`` is not a candidate in row ``j``.
        Default: ones.
    context_groups : array_like of int, shape (m,), optional
        Names of groups of rows that share one query, and so one embedding. Default: each row is
        its own group, also where two rows have equal embeddings.

    Attributes
    ----------
    context_embeddings : ndarray, shape (m, q)
    target_probs : ndarray, shape (m, V)
    context_probs : ndarray, shape (m,)
    token_embeddings : ndarray, shape (V, p), or None for the identity
    candidate_counts : ndarray, shape (m, V), or None for ones
    context_groups : ndarray of int, shape (m,)
    contexts : tuple of tuple of int, or None
        The tokens of each row's context, where :meth:`from_sequences` made the data.

    Raises
    ------
    ValueError
        An argument of the wrong shape, not finite, not a distribution, or inconsistent with
        another; the message names the argument, what was found and what is needed.

    References
    ----------
    T24 (002), Sec. 2, Eq. (2); L24 (004), Sec. 3, Eq. (1) and Sec. 3.1.

    Examples
    --------
    Two contexts in the plane; the first is followed by either of two tokens, the second by a third
    one:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> data
    NextTokenData(2 contexts, 3 tokens, W: 3 × 2, H = 0.3466 nats)
    """

    contexts: tuple[Context, ...] | None = None

    def __init__(
        self,
        context_embeddings: ArrayLike,
        target_probs: ArrayLike,
        context_probs: ArrayLike | None = None,
        token_embeddings: ArrayLike | None = None,
        candidate_counts: ArrayLike | None = None,
        context_groups: ArrayLike | None = None,
    ) -> None:
        H = as_array("context_embeddings", context_embeddings, ndim=2)
        P = as_array("target_probs", target_probs, ndim=2)
        _require_matching_rows(H, P)
        require_lengths("context_embeddings", H)
        require_distributions("target_probs", P)
        num_contexts, vocab_size = P.shape
        pi = _checked_context_probs(context_probs, num_contexts)
        T = _checked_token_embeddings(token_embeddings, vocab_size)
        C = _checked_candidate_counts(candidate_counts, P)
        _require_positive_frequencies(pi, P)
        groups = _checked_context_groups(context_groups, num_contexts)

        self.context_embeddings = H
        self.target_probs: FloatArray = P / P.sum(1, keepdims=True)
        self.context_probs: FloatArray = pi / pi.sum()
        self.token_embeddings = T
        self.candidate_counts = C
        self.context_groups = groups
        for array in (H, self.target_probs, self.context_probs, T, C, groups):
            if array is not None:
                array.flags.writeable = False  # cached properties rely on it
        self._require_one_embedding_a_group()

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[ArrayLike],
        embed: Callable[[Context], ArrayLike],
        *,
        context_length: int | None = None,
        vocab_size: int | None = None,
    ) -> Self:
        """Count contexts and their next tokens in raw token sequences.

        Parameters
        ----------
        sequences : iterable of integer sequences
            Tokens ``0 … V−1``.
        embed : callable
            Maps a context (a tuple of tokens) to its embedding, shape (q,).
        context_length : int, optional
            Every window of that many tokens followed by one more is a training pair. Default:
            every nonempty proper prefix is, as in autoregressive training.
        vocab_size : int, optional
            ``V``. Default: one more than the largest token.

        Returns
        -------
        NextTokenData
            With one row per distinct context, named in ``.contexts`` in order of appearance.

        Raises
        ------
        ValueError
            No training pair, a token out of range, or an embedding that is not a vector.
        TypeError
            ``sequences`` cannot be iterated over, or ``embed`` cannot be called.

        References
        ----------
        T24 (002) Sec. 2, Eq. (1)–(2), and App. C.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData.from_sequences([[0, 1, 0], [0, 1, 1]], lambda c: [len(c)])
        >>> data.contexts
        ((0,), (0, 1))
        >>> data.target_probs.tolist()
        [[0.0, 1.0], [0.5, 0.5]]
        """
        tokens = as_sequences(sequences)
        if not callable(embed):
            raise TypeError(f"embed is of type {type(embed).__name__}; a function is needed")
        if context_length is not None:
            context_length = as_integer("context_length", context_length, 1)
        if vocab_size is None:
            vocab_size = 1 + max((int(s.max()) for s in tokens if s.size), default=-1)
        else:
            vocab_size = as_integer("vocab_size", vocab_size, 1)
        for i, sequence in enumerate(tokens):
            require_range(f"sequences[{i}]", sequence, vocab_size)

        next_tokens = _count_next_tokens(tokens, context_length)
        if not next_tokens:
            raise ValueError(
                "sequences holds no context followed by a token; at least one sequence must be "
                f"longer than {context_length or 1}"
            )
        counts = np.zeros((len(next_tokens), vocab_size))
        for j, seen in enumerate(next_tokens.values()):
            counts[j, list(seen.keys())] = list(seen.values())
        occurrences = counts.sum(1)
        embeddings: Any = [embed(context) for context in next_tokens]  # checked like typed input
        data = cls(
            context_embeddings=embeddings,
            target_probs=counts / occurrences[:, None],
            context_probs=occurrences / occurrences.sum(),
        )
        data.contexts = tuple(next_tokens)
        return data

    @classmethod
    def from_attention(
        cls, embeddings: ArrayLike, sequences: Iterable[ArrayLike], labels: ArrayLike
    ) -> Self:
        """Build one row per training sequence of L24's self-attention layer.

        The layer's output is read by a head ``C`` with ``C Eᵀ = I``, under which the probability
        of a token is the attention on all its positions in the sequence.

        Parameters
        ----------
        embeddings : array_like, shape (K, d)
            The token embeddings ``E``, which serve as queries, keys and values.
        sequences : iterable of n integer sequences
            The inputs; the last token of each is its query.
        labels : array_like of int, shape (n,)
            The next tokens; each occurs in its sequence (L24 Assumption 2).

        Returns
        -------
        NextTokenData
            Its ``context_groups`` are the last tokens; W has the shape (d, d).

        Raises
        ------
        ValueError
            An empty sequence, a token out of range, or a label absent from its sequence.
        TypeError
            ``sequences`` cannot be iterated over.

        References
        ----------
        L24 (004) Sec. 3, Eq. (1) and Assumptions 1–2.

        Examples
        --------
        >>> import numpy as np, ntpnb
        >>> data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 0, 2], [1, 2]], [0, 1])
        >>> data.candidate_counts.tolist()
        [[2.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
        >>> data.context_groups.tolist()
        [2, 2]
        """
        E = as_array("embeddings", embeddings, ndim=2)
        vocab_size = len(E)
        tokens = as_sequences(sequences)
        y = as_indices("labels", labels)
        if len(tokens) == 0 or y.shape != (len(tokens),):
            raise ValueError(
                f"labels has shape {y.shape} for {len(tokens)} sequences; "
                "at least one sequence and one label for each are needed"
            )
        for i, sequence in enumerate(tokens):
            require_range(f"sequences[{i}]", sequence, vocab_size)
        _require_nonempty(tokens)
        _require_labels_in_sequences(y, tokens)
        last = np.array([sequence[-1] for sequence in tokens])
        counts = [np.bincount(sequence, minlength=vocab_size) for sequence in tokens]
        return cls(
            context_embeddings=E[last],
            target_probs=np.eye(vocab_size)[y],
            token_embeddings=E,
            candidate_counts=np.array(counts, dtype=float),
            context_groups=last,
        )

    def replace(self, **changes: ArrayLike | None) -> "NextTokenData":
        """The same data with some of the constructor's arguments replaced.

        Parameters
        ----------
        **changes : array_like or None
            New values by the names of the constructor's arguments.

        Returns
        -------
        NextTokenData
            It keeps ``.contexts`` where the number of rows stays the same.

        Raises
        ------
        ValueError
            What the constructor refuses.
        TypeError
            The constructor has no argument of that name.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData([[1.0], [2.0]], [[0.5, 0.5], [0.0, 1.0]])
        >>> data.replace(context_embeddings=[[3.0], [4.0]]).context_embeddings.tolist()
        [[3.0], [4.0]]
        """
        arguments: dict[str, Any] = {
            "context_embeddings": self.context_embeddings,
            "target_probs": self.target_probs,
            "context_probs": self.context_probs,
            "token_embeddings": self.token_embeddings,
            "candidate_counts": self.candidate_counts,
            "context_groups": self.context_groups,
        }
        replaced = NextTokenData(**(arguments | changes))
        if len(replaced.context_probs) == len(self.context_probs):
            replaced.contexts = self.contexts
        return replaced

    def __repr__(self) -> str:
        m, V = self.target_probs.shape
        p, q = self.shape
        return f"NextTokenData({m} contexts, {V} tokens, W: {p} × {q}, H = {self.entropy:.4f} nats)"

    @property
    def vocab_size(self) -> int:
        """Number of tokens ``V``.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().vocab_size
        5
        """
        return int(self.target_probs.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape ``(p, q)`` of the trained matrix ``W``.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().shape
        (5, 2)
        """
        p = self.vocab_size if self.token_embeddings is None else self.token_embeddings.shape[1]
        return p, self.context_embeddings.shape[1]

    @cached_property
    def support(self) -> BoolArray:
        """The sets ``S_j`` of tokens with positive target probability, shape (m, V).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().support.astype(int).tolist()
        [[0, 1, 1, 1, 0], [1, 0, 0, 1, 1], [1, 1, 0, 0, 1]]
        """
        return self.target_probs > 0

    @cached_property
    def candidates(self) -> BoolArray:
        """Tokens with a positive candidate count, shape (m, V).

        Examples
        --------
        >>> import ntpnb
        >>> bool(ntpnb.datasets.toy().candidates.all())
        True
        """
        if self.candidate_counts is None:
            return np.ones(self.target_probs.shape, dtype=bool)
        return self.candidate_counts > 0

    @cached_property
    def entropy(self) -> float:
        """Conditional entropy ``H = −Σ_j π_j Σ_z p_jz log p_jz`` in nats (T24 (002) Sec. 2).

        Examples
        --------
        >>> import ntpnb
        >>> round(ntpnb.datasets.toy().entropy, 4)  # T24 prints 0.8811
        0.8811
        """
        P = self.target_probs
        log_p = np.log(P, out=np.zeros_like(P), where=P > 0)
        entropy = -self.context_probs @ (P * log_p).sum(1)
        return float(entropy) + 0.0  # never −0.0

    @cached_property
    def smoothness(self) -> float:
        """Smoothness of the loss, a Lipschitz constant ``L`` of its gradient.

        ``L = λ_max(Σ_j π_j diam_j²/4 · h_j h_jᵀ)``, so that gradient descent with steps ``1/L``
        never increases the loss. ``diam_j`` is the largest distance between the embeddings of two
        candidate tokens of row ``j``: a distribution on points within that diameter has covariance
        at most ``diam_j²/4``. For T24 this is ``½ λ_max(Σ_j π_j h_j h_jᵀ)``; for L24 it sharpens
        Eq. (23) of 004.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData([[3.0, 4.0]], [[0.5, 0.5]])
        >>> round(data.smoothness, 9)  # ½ ‖h‖²
        12.5
        """
        weights = self.context_probs * self._squared_diameters() / 4
        weighted_embeddings = np.sqrt(weights)[:, None] * self.context_embeddings
        return float(np.linalg.norm(weighted_embeddings, 2) ** 2)

    @cached_property
    def group_names(self) -> IntArray:
        """The distinct names in ``context_groups``, increasing, shape (G,).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.figure2().group_names.tolist()  # last tokens of L24's seven sequences
        [0, 1]
        """
        return np.unique(self.context_groups)

    @cached_property
    def group_index(self) -> IntArray:
        """Position of each row's group in ``group_names``, shape (m,).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.figure2().group_index.tolist()
        [0, 0, 0, 1, 1, 1, 1]
        """
        return np.searchsorted(self.group_names, self.context_groups)

    @cached_property
    def group_embeddings(self) -> FloatArray:
        """The embedding shared by each group's rows, shape (G, q).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.figure2().group_embeddings.astype(int).tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0]]
        """
        first_rows = np.unique(self.group_index, return_index=True)[1]
        return self.context_embeddings[first_rows]

    def _require_one_embedding_a_group(self) -> None:
        shared = self.group_embeddings[self.group_index]
        differs = (shared != self.context_embeddings).any(1)
        if differs.any():
            j = int(np.argmax(differs))
            raise ValueError(
                f"context_groups puts row {j} into group {self.context_groups[j]}, whose first row "
                "has another embedding; rows of one group must share one row of context_embeddings"
            )

    def _squared_diameters(self) -> FloatArray:
        """Squared largest distance between two candidates' embeddings in each row, shape (m,)."""
        if self.token_embeddings is None:
            return np.where(self.candidates.sum(1) > 1, 2.0, 0.0)
        distinct, kind = np.unique(self.candidates, axis=0, return_inverse=True)
        squared = [_squared_diameter(self.token_embeddings[mask]) for mask in distinct]
        return np.array(squared)[kind.ravel()]


def require_data(name: str, value: object) -> None:
    """Raise unless ``value`` is a dataset."""
    if not isinstance(value, NextTokenData):
        raise TypeError(f"{name} is of type {type(value).__name__}; NextTokenData is needed")


def counts_or_ones(data: NextTokenData) -> FloatArray:
    """Return the candidate counts, with ones where the data have none, shape (m, V)."""
    if data.candidate_counts is None:
        return np.ones(data.target_probs.shape)
    return data.candidate_counts


# -- checks of one argument each ------------------------------------------------------------------


def _require_matching_rows(H: FloatArray, P: FloatArray) -> None:
    if H.shape[1] == 0 or P.shape[0] == 0 or P.shape[1] == 0:
        raise ValueError(
            f"context_embeddings has shape {H.shape} and target_probs {P.shape}; "
            "at least one context, one embedding dimension and one token are needed"
        )
    if len(H) != len(P):
        raise ValueError(
            f"context_embeddings has {len(H)} rows but target_probs has {len(P)}; "
            "both need one row per context"
        )


def _checked_context_probs(context_probs: ArrayLike | None, num_contexts: int) -> FloatArray:
    if context_probs is None:
        return np.full(num_contexts, 1 / num_contexts)
    pi = as_array("context_probs", context_probs, ndim=1, length=num_contexts)
    require_distributions("context_probs", pi[None])
    if not pi.all():
        raise ValueError(
            f"context_probs[{int(np.argmin(pi))}] is 0; every context needs a positive "
            "probability (drop the contexts that never occur)"
        )
    return pi


def _checked_token_embeddings(
    token_embeddings: ArrayLike | None, vocab_size: int
) -> FloatArray | None:
    if token_embeddings is None:
        return None
    T = as_array("token_embeddings", token_embeddings, ndim=2, length=vocab_size)
    if T.shape[1] == 0:
        raise ValueError("token_embeddings has no columns; it needs at least one")
    require_lengths("token_embeddings", T)
    return T


def _checked_candidate_counts(
    candidate_counts: ArrayLike | None, P: FloatArray
) -> FloatArray | None:
    if candidate_counts is None:
        return None
    C = as_array("candidate_counts", candidate_counts, ndim=2, shape=P.shape)
    negative = C < 0
    if negative.any():
        j, v = first_index(negative)
        raise ValueError(f"candidate_counts[{j}, {v}] is {C[j, v]:g}; counts must not be negative")
    odd = (C > 0) & ((C < SMALLEST_COUNT) | (C > LARGEST_COUNT))
    if odd.any():
        j, v = first_index(odd)
        raise ValueError(
            f"candidate_counts[{j}, {v}] is {C[j, v]:g}; counts must be zero or lie "
            f"between {SMALLEST_COUNT:g} and {LARGEST_COUNT:g}"
        )
    missing = (P > 0) & (C == 0)
    if missing.any():
        j, v = first_index(missing)
        raise ValueError(
            f"candidate_counts[{j}, {v}] is 0 but target_probs[{j}, {v}] is {P[j, v]:g}; "
            "a token with positive target probability must be a candidate"
        )
    return C


def _require_positive_frequencies(pi: FloatArray, P: FloatArray) -> None:
    lost = (P > 0) & (pi[:, None] * P == 0)
    if lost.any():
        j, v = first_index(lost)
        raise ValueError(
            f"context_probs[{j}] · target_probs[{j}, {v}] is {pi[j]:g} · {P[j, v]:g}, which "
            "rounds to 0; pairs of a context and a next token need positive frequencies"
        )


def _checked_context_groups(context_groups: ArrayLike | None, num_contexts: int) -> IntArray:
    if context_groups is None:
        return np.arange(num_contexts)
    groups = as_indices("context_groups", context_groups)
    if groups.shape != (num_contexts,):
        raise ValueError(
            f"context_groups has shape {groups.shape}; it needs one name a context, "
            f"({num_contexts},)"
        )
    return groups


def _require_nonempty(sequences: Sequence[IntArray]) -> None:
    for i, sequence in enumerate(sequences):
        if sequence.size == 0:
            raise ValueError(f"sequences[{i}] is empty; its last token is the query")


def _require_labels_in_sequences(labels: IntArray, sequences: Sequence[IntArray]) -> None:
    for i, (label, sequence) in enumerate(zip(labels, sequences, strict=True)):
        if label not in sequence:
            raise ValueError(
                f"labels[{i}] is {label}, which does not occur in sequences[{i}] = "
                f"{sequence.tolist()}; attention can only retrieve a token of its input"
            )


# -- what the constructors and properties compute -------------------------------------------------


def _count_next_tokens(
    sequences: Sequence[IntArray], context_length: int | None
) -> dict[Context, Counter[int]]:
    """How often each context is followed by each token; contexts in order of appearance."""
    counts: dict[Context, Counter[int]] = defaultdict(Counter)
    shortest = 1 if context_length is None else context_length
    for sequence in sequences:
        tokens = tuple(sequence.tolist())
        for end in range(shortest, len(tokens)):
            start = 0 if context_length is None else end - context_length
            counts[tokens[start:end]][tokens[end]] += 1
    return counts


def _squared_diameter(points: FloatArray) -> float:
    """Squared largest distance between two of the points, which are the rows of an array."""
    largest = 0.0
    # In blocks, so that a large vocabulary never allocates V² distances.
    for start in range(0, len(points), DISTANCE_BLOCK):
        block = points[start : start + DISTANCE_BLOCK]
        largest = max(largest, float(cdist(block, points, "sqeuclidean").max()))
    return largest
