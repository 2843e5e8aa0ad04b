"""The one container behind both papers: contexts, their next-token laws, and their candidates."""

from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

from ntpnb.validation import (
    COUNTS,
    as_array,
    as_indices,
    as_integer,
    as_sequences,
    require_distributions,
    require_lengths,
    require_range,
)


class NextTokenData:
    r"""Contexts with bilinear token scores and target next-token distributions.

    Row ``j`` is a context with embedding ``h_j``. Token ``v`` scores ``s_jv = t_v · W h_j`` and the
    model's next-token law is ``c_jv exp(s_jv) / Σ_u c_ju exp(s_ju)``. T24's linear decoder is
    ``t_v = e_v`` and ``c = 1``; L24's attention layer is ``t_v`` = embedding of token ``v``,
    ``h_j`` = embedding of the last token and ``c_jv`` = how often ``v`` occurs in sequence ``j``.

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
    >>> data = NextTokenData([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> round(data.entropy, 6)
    0.346574
    """

    contexts = None  # names of the rows, where a constructor knows them

    def __init__(
        self,
        context_embeddings,
        target_probs,
        context_probs=None,
        token_embeddings=None,
        candidate_counts=None,
        context_groups=None,
    ):
        H = as_array("context_embeddings", context_embeddings, ndim=2)
        P = as_array("target_probs", target_probs, ndim=2)
        m, V = P.shape
        if m == 0 or H.shape[1] == 0 or V == 0:
            raise ValueError(
                f"context_embeddings has shape {H.shape} and target_probs {P.shape}; "
                "at least one context, one embedding dimension and one token are needed"
            )
        if len(H) != m:
            raise ValueError(
                f"context_embeddings has {len(H)} rows but target_probs has {m}; "
                "both need one row per context"
            )
        require_lengths("context_embeddings", H)
        require_distributions("target_probs", P)
        if context_probs is None:
            pi = np.full(m, 1 / m)
        else:
            pi = as_array("context_probs", context_probs, ndim=1, length=m)
            require_distributions("context_probs", pi[None])
            if not pi.all():
                raise ValueError(
                    f"context_probs[{int(np.argmin(pi))}] is 0; every context needs a positive "
                    "probability (drop the contexts that never occur)"
                )
        T = None
        if token_embeddings is not None:
            T = as_array("token_embeddings", token_embeddings, ndim=2, length=V)
            if T.shape[1] == 0:
                raise ValueError("token_embeddings has no columns; it needs at least one")
            require_lengths("token_embeddings", T)
        C = None
        if candidate_counts is not None:
            C = as_array("candidate_counts", candidate_counts, ndim=2, shape=(m, V))
            if (C < 0).any():
                j, v = np.argwhere(C < 0)[0]
                raise ValueError(
                    f"candidate_counts[{j}, {v}] is {C[j, v]:g}; counts must not be negative"
                )
            if (odd := (C > 0) & ((C < COUNTS[0]) | (C > COUNTS[1]))).any():
                j, v = np.argwhere(odd)[0]
                raise ValueError(
                    f"candidate_counts[{j}, {v}] is {C[j, v]:g}; counts must be zero or lie "
                    f"between {COUNTS[0]:g} and {COUNTS[1]:g}"
                )
            if (missing := (P > 0) & (C == 0)).any():
                j, v = np.argwhere(missing)[0]
                raise ValueError(
                    f"candidate_counts[{j}, {v}] is 0 but target_probs[{j}, {v}] is {P[j, v]:g}; "
                    "a token with positive target probability must be a candidate"
                )
        if (lost := (P > 0) & (pi[:, None] * P == 0)).any():
            j, v = np.argwhere(lost)[0]
            raise ValueError(
                f"context_probs[{j}] · target_probs[{j}, {v}] is {pi[j]:g} · {P[j, v]:g}, which "
                "rounds to 0; pairs of a context and a next token need positive frequencies"
            )
        groups = np.arange(m)
        if context_groups is not None:
            groups = as_indices("context_groups", context_groups)
            if groups.shape != (m,):
                raise ValueError(
                    f"context_groups has shape {groups.shape}; it needs one name a context, ({m},)"
                )
        self.context_embeddings = H
        self.target_probs = P / P.sum(1, keepdims=True)
        self.context_probs = pi / pi.sum()
        self.token_embeddings = T
        self.candidate_counts = C
        self.context_groups = groups
        for array in vars(self).values():
            if array is not None:
                array.flags.writeable = False  # cached properties rely on it
        differs = (self.group_embeddings[self.group_index] != H).any(1)
        if differs.any():
            j = int(np.argmax(differs))
            raise ValueError(
                f"context_groups puts row {j} into group {groups[j]}, whose first row has another "
                "embedding; rows of one group must share one row of context_embeddings"
            )

    @classmethod
    def from_sequences(cls, sequences, embed, *, context_length=None, vocab_size=None):
        """Count contexts and their next tokens in raw token sequences (T24 Sec. 2 and App. C).

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
        """
        tokens = as_sequences(sequences)
        if not callable(embed):
            raise TypeError(f"embed is of type {type(embed).__name__}; a function is needed")
        if context_length is not None:
            context_length = as_integer("context_length", context_length, 1)
        largest = max((int(s.max()) for s in tokens if s.size), default=-1)
        V = largest + 1 if vocab_size is None else as_integer("vocab_size", vocab_size, 1)
        for i, s in enumerate(tokens):
            require_range(f"sequences[{i}]", s, V)
        counts = {}
        for s in map(tuple, (t.tolist() for t in tokens)):
            for end in range(context_length or 1, len(s)):
                context = s[end - context_length : end] if context_length else s[:end]
                row = counts.setdefault(context, {})
                row[s[end]] = row.get(s[end], 0) + 1
        if not counts:
            raise ValueError(
                "sequences holds no context followed by a token; at least one sequence must be "
                f"longer than {context_length or 1}"
            )
        table = np.zeros((len(counts), V))
        for j, row in enumerate(counts.values()):
            table[j, list(row)] = list(row.values())
        n = table.sum(1, keepdims=True)
        data = cls([embed(context) for context in counts], table / n, n[:, 0] / n.sum())
        data.contexts = tuple(counts)
        return data

    @classmethod
    def from_attention(cls, embeddings, sequences, labels):
        """One row per training sequence of L24's self-attention layer (Sec. 3, ``C Eᵀ = I``).

        Parameters
        ----------
        embeddings : array_like, shape (K, d)
            The token embeddings ``E``, which serve as queries, keys and values.
        sequences : iterable of n integer sequences
            The inputs; the last token of each is its query.
        labels : array_like of int, shape (n,)
            The next tokens; each occurs in its sequence (L24 Assumption 2).

        Raises
        ------
        ValueError
            An empty sequence, a token out of range, or a label absent from its sequence.
        """
        E = as_array("embeddings", embeddings, ndim=2)
        tokens = as_sequences(sequences)
        y = as_indices("labels", labels)
        if len(tokens) == 0 or y.shape != (len(tokens),):
            raise ValueError(
                f"labels has shape {y.shape} for {len(tokens)} sequences; "
                "at least one sequence and one label for each are needed"
            )
        for i, s in enumerate(tokens):
            require_range(f"sequences[{i}]", s, len(E))
        if empty := [i for i, s in enumerate(tokens) if s.size == 0]:
            raise ValueError(f"sequences[{empty[0]}] is empty; its last token is the query")
        if absent := [i for i, s in enumerate(tokens) if y[i] not in s]:
            i = absent[0]
            raise ValueError(
                f"labels[{i}] is {y[i]}, which does not occur in sequences[{i}] = "
                f"{tokens[i].tolist()}; attention can only retrieve a token of its input"
            )
        last = np.array([s[-1] for s in tokens])
        C = np.array([np.bincount(s, minlength=len(E)) for s in tokens], dtype=float)
        return cls(E[last], np.eye(len(E))[y], None, E, C, last)

    def __repr__(self):
        m, V = self.target_probs.shape
        p, q = self.shape
        return f"NextTokenData({m} contexts, {V} tokens, W: {p} × {q}, H = {self.entropy:.4f} nats)"

    @property
    def vocab_size(self):
        """Number of tokens ``V``."""
        return self.target_probs.shape[1]

    @property
    def shape(self):
        """Shape ``(p, q)`` of the trained matrix ``W``."""
        p = self.vocab_size if self.token_embeddings is None else self.token_embeddings.shape[1]
        return p, self.context_embeddings.shape[1]

    @cached_property
    def support(self):
        """Tokens with positive target probability, shape (m, V), bool: the sets ``S_j``."""
        return self.target_probs > 0

    @cached_property
    def candidates(self):
        """Tokens with a positive candidate count, shape (m, V), bool."""
        if self.candidate_counts is None:
            return np.ones(self.target_probs.shape, dtype=bool)
        return self.candidate_counts > 0

    @cached_property
    def entropy(self):
        """Conditional entropy ``H = −Σ_j π_j Σ_z p_jz log p_jz`` in nats (T24 Sec. 2)."""
        P = self.target_probs
        logs = np.log(P, out=np.zeros_like(P), where=P > 0)
        return float(-self.context_probs @ (P * logs).sum(1)) + 0.0  # never −0.0

    @cached_property
    def smoothness(self):
        """A Lipschitz constant of the gradient, ``λ_max(Σ_j π_j diam_j²/4 · h_j h_jᵀ)``.

        ``diam_j`` is the largest distance between two candidate tokens' embeddings in row ``j``:
        a distribution on points within that diameter has covariance at most ``diam_j²/4``. For
        T24 it is ``½ λ_max(Σ_j π_j h_j h_jᵀ)``; for L24 it sharpens Eq. (23) of 004.
        """
        weights = self.context_probs * self._squared_diameters() / 4
        return float(np.linalg.norm(np.sqrt(weights)[:, None] * self.context_embeddings, 2) ** 2)

    @cached_property
    def group_names(self):
        """The distinct names in ``context_groups``, increasing, shape (G,)."""
        return np.unique(self.context_groups)

    @cached_property
    def group_index(self):
        """Position of each row's group in ``group_names``, shape (m,)."""
        return np.searchsorted(self.group_names, self.context_groups)

    @cached_property
    def group_embeddings(self):
        """The embedding shared by each group's rows, shape (G, q)."""
        first = np.unique(self.group_index, return_index=True)[1]
        return self.context_embeddings[first]

    def _squared_diameters(self):
        if self.token_embeddings is None:
            return np.where(self.candidates.sum(1) > 1, 2.0, 0.0)
        masks, row = np.unique(self.candidates, axis=0, return_inverse=True)
        return np.array([_squared_diameter(self.token_embeddings[mask]) for mask in masks])[
            row.ravel()
        ]


def _squared_diameter(points, block=512):
    # in blocks, so that a large vocabulary never allocates V² distances
    starts = range(0, len(points), block)
    return max(cdist(points[a : a + block], points, "sqeuclidean").max() for a in starts)


def require_data(name, value):
    """Raise unless ``value`` is a dataset."""
    if not isinstance(value, NextTokenData):
        raise TypeError(f"{name} is of type {type(value).__name__}; NextTokenData is needed")
