"""The one container behind both papers: contexts, their next tokens' distributions, candidates."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from reprlib import repr as shortened
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from ntpnb.basics.saving import Storable, make_read_only
from ntpnb.basics.validation import (
    DENSE_LIMIT,
    LARGEST_COUNT,
    SMALLEST_COUNT,
    BoolArray,
    FloatArray,
    IntArray,
    Own,
    as_array,
    as_floats,
    as_indices,
    as_integer,
    as_sequences,
    as_vocab_size,
    counted,
    refuse_any,
    require_dense,
    require_function,
    require_lengths,
    require_number,
    require_range,
    require_type,
    sum_tolerance,
)
from ntpnb.problem.duplicates import (
    Contexts,
    NearDuplicates,
    as_labels,
    count_states,
    merge,
    near_duplicates,
)
from ntpnb.problem.table import (
    Entries,
    RowBlock,
    StoredRows,
    Table,
    TableLike,
    as_rows,
    as_table,
    collected,
    row_slices,
)
from ntpnb.problem.text import (
    EMBEDDINGS,
    Embedding,
    Tokenizer,
    embedding_of,
    numbered,
    spelled,
    tokenized,
)

Context = tuple[int, ...]  # the tokens that have been read

SAME_STATE = 1e-5  # relative distance of hidden states that are one, up to single precision
# What data may hold of each row or token beside the arrays, and what an entry is.
ENTRIES = {"contexts": tuple, "labels": str, "merged_rows": tuple, "words": str}


class NextTokenData(Storable):
    r"""Contexts with bilinear token scores and target next-token distributions.

    Row ``j`` is a context with embedding ``h_j``. Token ``v`` scores ``s_jv = t_v · W h_j``, and
    the model's next-token distribution is ``q_jv = c_jv exp(s_jv) / Σ_u c_ju exp(s_ju)``. T24's
    linear decoder is ``t_v = e_v`` and ``c = 1``. L24's attention layer is ``t_v`` = embedding of
    token ``v``, ``h_j`` = embedding of the last token and ``c_jv`` = how often ``v`` occurs in
    sequence ``j``.

    The arrays are copied, checked once, and read-only from then on; only embeddings that are stored
    elsewhere stay there. The two tables of contexts and tokens may be dense or of any scipy.sparse
    format, and of any real type. What is held are their entries that are not zero; a dense form is
    made when it is asked for.

    Parameters
    ----------
    context_embeddings : array_like, shape (m, q)
        The rows ``h_j``. A large ``numpy.memmap``, or array of Dask, h5py or zarr, is read some
        rows at a time by losses, gradients and :func:`ntpnb.loss_floor`, and whole by what needs it
        whole. It must not change any more.
    target_probs : array_like or scipy sparse, shape (m, V)
        The next-token distributions ``p̂_j``; each row is nonnegative and sums to one within 1e-8
        (it is then rescaled to do so to the last bit). In single or half precision a row of n
        positive entries may miss one by their rounding, ``n`` times the type's relative spacing,
        up to 0.01.
    context_probs : array_like, shape (m,), optional
        The context frequencies ``π̂_j > 0``, summing to one. Default: uniform.
    token_embeddings : array_like, shape (V, p), optional
        The rows ``t_v``. Default: the identity, so that ``p = V``; it is never formed.
    candidate_counts : array_like or scipy sparse, shape (m, V), optional
        The multiplicities ``c_jv >= 0``; zero means that ``v`` is not a candidate in row ``j``.
        Default: ones.
    context_groups : array_like of int, shape (m,), optional
        Names of groups of rows that share one query, and so one embedding. Default: each row is
        its own group, also where two rows have equal embeddings.
    merge_tolerance : float, optional
        Makes one context of rows whose embeddings agree within this relative distance, see
        :meth:`near_duplicates`: with the mean of their embeddings and of their distributions by
        their frequencies. Default: all rows stay apart.
    support_threshold : float, optional
        Target probabilities of at most this count as zero, and the others of the row are rescaled.
        The outputs of a softmax are never zero, so that without it nothing is ordered. Default: 0.

    Attributes
    ----------
    context_probs : ndarray, shape (m,)
    token_embeddings : ndarray, shape (V, p), or None for the identity
    context_groups : ndarray of int, shape (m,)
    contexts : tuple of tuple of int, or None
        The tokens of each row's context, where :meth:`from_sequences` made the data; of merged
        rows, the first one's.
    labels : tuple of str, or None
        The name of each row's context, where :meth:`from_hidden_states` was given names; of merged
        rows, the first one's. Reports and errors use them.
    merged_rows : tuple of tuple of int, or None
        Which of the given rows each row stands for, where a ``merge_tolerance`` was given.
    words : tuple of str, or None
        The tokens' words, where :meth:`from_text` made the data.
    embedding : {"random", "mean", "concatenated"} or None
        How :meth:`from_text` embedded the contexts.

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
    labels: tuple[str, ...] | None = None
    merged_rows: tuple[tuple[int, ...], ...] | None = None
    words: tuple[str, ...] | None = None
    embedding: Embedding | None = None

    def __init__(
        self,
        context_embeddings: ArrayLike,
        target_probs: TableLike,
        context_probs: ArrayLike | None = None,
        token_embeddings: ArrayLike | None = None,
        candidate_counts: TableLike | None = None,
        context_groups: ArrayLike | None = None,
        *,
        merge_tolerance: float | None = None,
        support_threshold: float = 0.0,
    ) -> None:
        H = as_rows("context_embeddings", context_embeddings)
        P = as_table("target_probs", target_probs)
        _require_matching_rows(H, target_probs if isinstance(target_probs, Table) else P)
        P.require_distributions()
        P = _above_threshold(P, support_threshold)
        num_contexts, vocab_size = P.shape
        pi = _checked_context_probs(context_probs, num_contexts)
        T = _checked_token_embeddings(token_embeddings, vocab_size)
        C = _checked_candidate_counts(candidate_counts, P)
        _require_positive_frequencies(pi, P)
        groups = _checked_context_groups(context_groups, H)

        P = P.divided_by(P.row_sums())
        pi = pi / pi.sum()
        if merge_tolerance is not None:
            given = Contexts(np.asarray(H), P, pi, C, groups)
            (H, P, pi, C, groups), self.merged_rows = merge(given, merge_tolerance)
            if context_groups is None:  # merged rows are counted anew
                groups = np.arange(len(H))
        self._embeddings = H
        self.context_probs: FloatArray = pi
        self.token_embeddings = T
        self.context_groups = groups
        self._laws = P
        self._counts = C
        for value in vars(self).values():
            make_read_only(value)

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[ArrayLike],
        embed: Callable[[Context], ArrayLike],
        *,
        context_length: int | None = None,
        vocab_size: int | None = None,
        merge_tolerance: float | None = None,
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
            every nonempty proper prefix is, as in autoregressive training; a single sequence may
            then have up to about 23,000 tokens, since its prefixes are listed.
        vocab_size : int, optional
            ``V``. Default: one more than the largest token.
        merge_tolerance : float, optional
            As in :class:`NextTokenData`, whose rows are the distinct contexts.

        Returns
        -------
        NextTokenData
            With one row per distinct context, named in ``.contexts`` in order of appearance.

        Raises
        ------
        ValueError
            No training pair, a token out of range, an embedding that is not a vector, or contexts
            of more than 2**28 tokens in all.
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
        require_function("embed", embed)
        if context_length is not None:
            context_length = as_integer("context_length", context_length, 1)
        largest = max((int(sequence.max(initial=-1)) for sequence in tokens), default=-1)
        vocab_size = as_vocab_size("sequences", largest, vocab_size)
        for i, sequence in enumerate(tokens):
            require_range(f"sequences[{i}]", sequence, vocab_size)

        _require_room_for_contexts(tokens, context_length)
        row_of, counts = _count_next_tokens(tokens, context_length, vocab_size)
        if not row_of:
            raise ValueError(
                "sequences holds no context followed by a token; at least one sequence must be "
                f"longer than {context_length or 1}"
            )
        rows = Own(_embedded(row_of, embed))
        data = cls.from_counts(rows, counts, merge_tolerance=merge_tolerance)
        data.contexts = tuple(row_of)
        if data.merged_rows is not None:
            data.contexts = tuple(data.contexts[rows[0]] for rows in data.merged_rows)
        return data

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        context_length: int = 2,
        dim: int | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
        embedding: Embedding = "random",
    ) -> Self:
        """Count the contexts of a text and the words that follow them.

        Every ``context_length`` words in a row that are followed by another one are a context. The
        distinct words, in alphabetical order, are the tokens.

        Parameters
        ----------
        text : str
        context_length : int
            Words in a context.
        dim : int, optional
            Dimension of the embeddings. Default: the number of vectors that are drawn, times
            ``context_length`` where they are concatenated, or 256 for each where more than 2000
            vectors are drawn. With as many dimensions as contexts ``"random"`` embeddings are
            linearly independent with probability one, so that the scores after each context can be
            chosen freely and the data are compatible and separable (T24 (002) Lemma 1, which is
            stated for one dimension more).
        seed : int
            Of the random vectors.
        tokenizer : callable, optional
            From a text to the list of its words. Default: :func:`ntpnb.problem.split_words`.
        embedding : {"random", "mean", "concatenated"}
            A vector from the standard normal law for each context, or one for each word, of which a
            context's are averaged or written one after the other.

        Returns
        -------
        NextTokenData
            With the words in ``.words``, the contexts in ``.contexts``, and ``.embedding``.

        Raises
        ------
        ValueError
            Fewer than ``context_length + 1`` words, what looks like the name of a file, or an
            option outside its range.
        TypeError
            The text is no string, an option has another type, or the tokenizer returns something
            else than a list of strings.

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData.from_text("we see what we see", context_length=1)
        >>> data.words, data.contexts
        (('see', 'we', 'what'), ((1,), (0,), (2,)))
        """
        context_length = as_integer("context_length", context_length, 1)
        said = tokenized(text, tokenizer)
        if len(said) <= context_length:
            raise ValueError(
                f"text has {counted(len(said), 'word')}; at least "
                f"context_length + 1 = {context_length + 1} are needed"
            )
        token_of = numbered(said)
        tokens = [token_of[word] for word in said]
        del said  # of a long text the largest list, a string for each word
        starts = range(len(tokens) - context_length)
        contexts = list({tuple(tokens[start : start + context_length]) for start in starts})
        embed = embedding_of(contexts, len(token_of), embedding, dim, seed)
        data = cls.from_sequences(
            [tokens], embed, context_length=context_length, vocab_size=len(token_of)
        )
        data.words = tuple(token_of)
        data.embedding = embedding
        return data

    @classmethod
    def from_counts(
        cls,
        context_embeddings: ArrayLike,
        counts: TableLike,
        *,
        token_embeddings: ArrayLike | None = None,
        candidate_counts: TableLike | None = None,
        context_groups: ArrayLike | None = None,
        merge_tolerance: float | None = None,
    ) -> Self:
        """Build data from how often each token followed each context.

        The next-token distribution of a row is its share of the row's counts, and the frequency of
        its context is the row's share of all counts.

        Parameters
        ----------
        context_embeddings : array_like, shape (m, q)
        counts : array_like of int or scipy sparse, shape (m, V)
            Whole numbers, of any type; every row has a positive one.
        token_embeddings, candidate_counts, context_groups, merge_tolerance : optional
            As in :class:`NextTokenData`.

        Returns
        -------
        NextTokenData

        Raises
        ------
        ValueError
            Counts that are negative or not whole, a row without any, or what the constructor
            refuses.

        References
        ----------
        T24 (002) Sec. 2, Eq. (1)–(2).

        Examples
        --------
        >>> import ntpnb
        >>> data = ntpnb.NextTokenData.from_counts([[0.0, 1.0], [1.0, 0.0]], [[2, 1, 0], [0, 0, 1]])
        >>> data.context_probs.tolist(), data.target_probs[0].round(4).tolist()
        ([0.75, 0.25], [0.6667, 0.3333, 0.0])
        """
        table = as_table("counts", counts)
        _require_counts(table)
        occurrences = table.row_sums()
        return cls(
            context_embeddings=context_embeddings,
            target_probs=table.divided_by(occurrences),
            context_probs=occurrences / occurrences.sum(),
            token_embeddings=token_embeddings,
            candidate_counts=candidate_counts,
            context_groups=context_groups,
            merge_tolerance=merge_tolerance,
        )

    @classmethod
    def from_hidden_states(
        cls,
        hidden: ArrayLike,
        next_tokens: ArrayLike,
        vocab_size: int | None = None,
        *,
        labels: ArrayLike | None = None,
        merge_tolerance: float | None = SAME_STATE,
    ) -> Self:
        """Count a model's hidden states and the tokens that came next.

        The hidden states are what the model's last linear layer reads, and the data are then those
        on which this layer, its decoder ``W`` of shape (V, d), is trained. Positions with one
        hidden state are one context, such as those of equal prefixes.

        Parameters
        ----------
        hidden : array_like, shape (n, d) or (batch, length, d)
            Anything that numpy can read: arrays, jax arrays, data frames, lists. Of a torch tensor,
            ``tensor.detach().cpu().numpy()`` can be read.
        next_tokens : array_like of int, shape (n,) or (batch, length)
            The token that came after each position, ``0 … V−1``. Where ``tokens`` are the model's
            input, the states before ``tokens[:, 1:]`` are ``hidden[:, :-1]``. A position with
            −100, such as padding, is left out, whatever its hidden state is.
        vocab_size : int, optional
            ``V``, which counts tokens that never come next, too: a model's has a score for each of
            its tokens. Default: one more than the largest next token.
        labels : array_like of str, shape (n,) or (batch, length), optional
            What reports and errors call the context of each position, such as the words before it.
            A context of several positions has the label of the first that counts.
        merge_tolerance : float
            Hidden states that agree within this relative distance are one context, with the mean of
            theirs, see :class:`NextTokenData`. The default, 1e-5, is some ten times what single
            precision loses in a few layers; half precision needs about 0.01. With zero or None
            only equal ones are merged.

        Returns
        -------
        NextTokenData
            With one row per context in order of appearance. Its ``.merged_rows`` say which rows of
            ``hidden.reshape(-1, d)`` each stands for, its ``.labels`` what each is called.

        Raises
        ------
        ValueError
            Shapes that do not fit each other, no position that counts, a token out of range, a
            hidden state that is not finite, or what numpy cannot read.
        TypeError
            A ``vocab_size``, a ``merge_tolerance`` or a label of another type.

        References
        ----------
        T24 (002) Sec. 2, Eq. (1)–(2), whose embeddings ``h(·)`` a trained model has fixed.

        Examples
        --------
        Two sequences of three positions; the second is padded, and both begin alike:

        >>> import ntpnb
        >>> hidden = [[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], [[1.0, 0.0], [0.8, 0.6], [9.0, 9.0]]]
        >>> data = ntpnb.NextTokenData.from_hidden_states(hidden, [[1, 0, 2], [2, 1, -100]], 3)
        >>> data.merged_rows
        ((0, 3), (1,), (2,), (4,))
        >>> data.target_probs[0].tolist(), data.context_probs[0].round(9)
        ([0.0, 0.5, 0.5], np.float64(0.4))
        """
        found = count_states(hidden, next_tokens, vocab_size)
        names = None if labels is None else as_labels(labels, np.shape(next_tokens))
        tolerance = 0.0 if merge_tolerance is None else merge_tolerance
        data = cls.from_counts(Own(found.embeddings), found.counts, merge_tolerance=tolerance)
        assert data.merged_rows is not None  # a tolerance was given
        data.merged_rows = tuple(
            tuple(np.sort(np.concatenate([found.positions[i] for i in rows])).tolist())
            for rows in data.merged_rows
        )
        if names is not None:
            data.labels = tuple(names[rows[0]] for rows in data.merged_rows)
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
            No sequence, an empty one, a token out of range, not one label for each sequence, one
            that is absent from its sequence, or embeddings that are no finite matrix.
        TypeError
            ``sequences`` cannot be iterated over.

        References
        ----------
        L24 (004) Sec. 3, Eq. (1) and Assumptions 2 and 4.

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
        _require_queries_and_labels(tokens, y, vocab_size)
        last = np.array([sequence[-1] for sequence in tokens])
        rows = np.arange(len(tokens))
        row_of_position = np.repeat(rows, [len(sequence) for sequence in tokens])
        shape = (len(tokens), vocab_size)
        return cls(
            context_embeddings=E[last],
            target_probs=collected("target_probs", rows, y, shape),
            token_embeddings=E,
            candidate_counts=collected(
                "candidate_counts", row_of_position, np.concatenate(tokens), shape
            ),
            context_groups=last,
        )

    def replace(self, **changes: TableLike | None) -> "NextTokenData":
        """The same data with some of the constructor's arguments replaced.

        Parameters
        ----------
        **changes : array_like, scipy sparse or None
            New values by the names of the constructor's arguments.

        Returns
        -------
        NextTokenData
            It keeps ``.contexts``, ``.labels`` and ``.merged_rows`` where the number of rows stays
            the same, ``.words`` where that of tokens does, and ``.embedding`` with the embeddings.

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
        names = self.context_groups
        is_default = np.array_equal(names, np.arange(len(names)))
        H = self._embeddings
        arguments: dict[str, Any] = {
            "context_embeddings": H if isinstance(H, StoredRows) else Own(H),
            "target_probs": self._laws,
            "context_probs": self.context_probs,
            "token_embeddings": self.token_embeddings,
            "candidate_counts": self._counts,
            "context_groups": None if is_default else names,
        }
        replaced = NextTokenData(**(arguments | changes))
        if replaced.num_contexts == self.num_contexts:
            replaced.contexts = self.contexts
            replaced.labels = self.labels
            if replaced.merged_rows is None:
                replaced.merged_rows = self.merged_rows
        if replaced.vocab_size == self.vocab_size:
            replaced.words = self.words
        if "context_embeddings" not in changes:
            replaced.embedding = self.embedding
        return replaced

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {"context_embeddings": state.pop("_embeddings")} | state

    def _saved(self) -> dict[str, Any]:
        """What a file holds: all embeddings, wherever they are."""
        return self.__getstate__() | {"context_embeddings": self.context_embeddings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = state.copy()
        state["_embeddings"] = state.pop("context_embeddings")
        # Pickled and copied arrays become writable; cached properties rely on that they are not.
        vars(self).update(state)
        for value in state.values():
            make_read_only(value)

    def _checked(self) -> "NextTokenData":
        """Raise ``ValueError`` unless what a file says are data that the constructor takes."""
        fresh = self.replace()
        if _kinds_of(self) != _kinds_of(fresh):
            raise ValueError("NextTokenData holds arrays of other types than those that it makes")
        for name, kind in ENTRIES.items():
            entries = getattr(self, name)
            length = self.vocab_size if name == "words" else self.num_contexts
            is_tuple = type(entries) is tuple and len(entries) == length
            if entries is None or (is_tuple and all(type(entry) is kind for entry in entries)):
                continue
            raise ValueError(f"NextTokenData.{name} needs a {kind.__name__} for each of {length}")
        if self.embedding not in (None, *EMBEDDINGS):
            raise ValueError("NextTokenData.embedding is the name of no embedding")
        return self

    def __repr__(self) -> str:
        p, q = self.shape
        return f"NextTokenData({sizes_of(self)}, W: {p} × {q}, H = {self.entropy:.4f} nats)"

    def _shown(self) -> dict[str, str]:
        """The sizes of the data."""
        p, q = self.shape
        return {
            "contexts": f"{self.num_contexts:,}",
            "tokens": f"{self.vocab_size:,}",
            "shape of W": f"{p:,} × {q:,}",
            "entropy": f"{self.entropy:.4f} nats",
        }

    def label(self, row: int) -> str:
        """What errors call a row: its label or its words, in quotes, and else its number.

        Parameters
        ----------
        row : int

        Returns
        -------
        str

        Examples
        --------
        >>> import ntpnb
        >>> states, after = [[1.0, 0.0], [0.0, 1.0]], [1, 0]
        >>> ntpnb.NextTokenData.from_hidden_states(states, after, labels=["we", "you"]).label(1)
        "'you'"
        >>> ntpnb.NextTokenData.from_hidden_states(states, after).label(1)
        '1'
        >>> ntpnb.NextTokenData.from_text("we see what we see").label(0)
        "'we see'"
        """
        if self.labels is not None:
            return repr(self.labels[row])
        if self.contexts is not None and self.words is not None:
            return repr(spelled(self.contexts[row], self.words))
        return str(row)

    @property
    def num_contexts(self) -> int:
        """Number of rows ``m``.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().num_contexts
        3
        """
        return self._laws.shape[0]

    @property
    def vocab_size(self) -> int:
        """Number of tokens ``V``.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().vocab_size
        5
        """
        return self._laws.shape[1]

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
        return p, self._embeddings.shape[1]

    @property
    def block_shape(self) -> tuple[int, int]:
        """Numbers of rows, and of what a block holds of each, its scores or what is read of it.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().block_shape
        (3, 5)
        """
        if isinstance(self._embeddings, StoredRows):
            return self.num_contexts, max(self.vocab_size, self.shape[1])
        return self.num_contexts, self.vocab_size

    @property
    def context_embeddings(self) -> FloatArray:
        """The rows ``h_j``, shape (m, q), which are read anew each time where they are stored.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.NextTokenData([[3.0, 4.0]], [[1, 0]]).context_embeddings.tolist()
        [[3.0, 4.0]]
        """
        return np.asarray(self._embeddings)

    @cached_property
    def context_lengths(self) -> FloatArray:
        """Euclidean lengths ``‖h_j‖`` of the embeddings, shape (m,).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.NextTokenData([[3.0, 4.0]], [[1, 0]]).context_lengths.tolist()
        [5.0]
        """
        blocks = row_slices(self.block_shape)
        return np.concatenate([np.linalg.norm(self._embeddings[rows], axis=1) for rows in blocks])

    @property
    def target_probs(self) -> FloatArray:
        """The next-token distributions ``p̂_j``, shape (m, V).

        Where the data are sparse, the array is made when it is first asked for; of more than 2**28
        entries a ValueError says so.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().target_probs[0].tolist()
        [0.0, 0.35, 0.55, 0.1, 0.0]
        """
        return self._laws.dense

    @property
    def sparse_target_probs(self) -> csr_array:
        """The next-token distributions as a scipy csr_array, shape (m, V).

        Its indices are sorted in each row, and it holds the positive entries only.

        Examples
        --------
        >>> import ntpnb
        >>> laws = ntpnb.datasets.toy().sparse_target_probs
        >>> laws.shape, laws.indices[: laws.indptr[1]].tolist()
        ((3, 5), [1, 2, 3])
        """
        return self._laws.sparse

    @property
    def entries(self) -> Entries:
        """The positive next-token probabilities as arrays ``.row``, ``.token`` and ``.value``.

        Rows increase, and tokens in each row.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().entries.token.tolist()
        [1, 2, 3, 0, 3, 4, 0, 1, 4]
        """
        return self._laws.entries

    @property
    def candidate_counts(self) -> FloatArray | None:
        """The multiplicities ``c_jv``, shape (m, V), or None for ones.

        Where the data are sparse, the array is made when it is first asked for; of more than 2**28
        entries a ValueError says so.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.figure2().candidate_counts[1].tolist()
        [1.0, 1.0, 0.0, 1.0]
        """
        return None if self._counts is None else self._counts.dense

    @property
    def sparse_candidate_counts(self) -> csr_array | None:
        """The multiplicities as a scipy csr_array, shape (m, V), or None for ones.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.figure2().sparse_candidate_counts.nnz
        20
        """
        return None if self._counts is None else self._counts.sparse

    @cached_property
    def is_linear_decoder(self) -> bool:
        """Whether tokens are one-hot and all candidates, and each row its own group, as in T24.

        In each context the support then wins over all other tokens.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().is_linear_decoder, ntpnb.datasets.figure2().is_linear_decoder
        (True, False)
        """
        one_hot = self.token_embeddings is None and self._counts is None
        return one_hot and len(self.group_names) == self.num_contexts

    def block(self, rows: slice) -> RowBlock:
        """Some of the contexts, for what would take too much memory for all of them at once.

        Parameters
        ----------
        rows : slice
            Of rows that follow each other, read as numpy does.

        Returns
        -------
        RowBlock

        Raises
        ------
        TypeError
            ``rows`` is no slice.
        ValueError
            A slice that leaves out rows on its way.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().block(slice(2, 3)).target_probs.tolist()
        [[0.15, 0.15, 0.0, 0.0, 0.7]]
        """
        require_type("rows", rows, slice, "a slice")
        start, stop, step = rows.indices(self.num_contexts)
        if step != 1:
            raise ValueError(f"rows is a slice with the step {step}; it needs the step 1")
        rows = slice(start, max(start, stop))
        return RowBlock(
            context_embeddings=self._embeddings[rows],
            context_probs=self.context_probs[rows],
            token_embeddings=self.token_embeddings,
            laws=self._laws.part(rows),
            counts=None if self._counts is None else self._counts.part(rows),
        )

    @cached_property
    def support(self) -> BoolArray:
        """The sets ``S_j`` of tokens with positive target probability, shape (m, V).

        Of more than 2**28 entries a ValueError says that ``sparse_target_probs`` has them, too.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().support.astype(int).tolist()
        [[0, 1, 1, 1, 0], [1, 0, 0, 1, 1], [1, 1, 0, 0, 1]]
        """
        return self._laws.positive("support")

    @cached_property
    def candidates(self) -> BoolArray:
        """Tokens with a positive candidate count, shape (m, V).

        Of more than 2**28 entries a ValueError says so.

        Examples
        --------
        >>> import ntpnb
        >>> bool(ntpnb.datasets.toy().candidates.all())
        True
        """
        if self._counts is not None:
            return self._counts.positive("candidates")
        require_dense("candidates", self._laws.shape, "none is needed: every token is a candidate")
        everywhere = np.ones(self._laws.shape, dtype=bool)
        make_read_only(everywhere)
        return everywhere

    @cached_property
    def anchors(self) -> IntArray:
        """The first in-support token of each row, which stands for its others, shape (m,).

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.toy().anchors.tolist()
        [1, 0, 0]
        """
        laws = self._laws
        return laws.entries.token[laws.first_entries()]

    @cached_property
    def entropy(self) -> float:
        """Conditional entropy ``H = −Σ_j π_j Σ_z p_jz log p_jz`` in nats (T24 (002) Sec. 2).

        Examples
        --------
        >>> import ntpnb
        >>> round(ntpnb.datasets.toy().entropy, 4)  # T24 prints 0.8811
        0.8811
        """
        p = self._laws.entries.value
        entropy = -self.context_probs @ self._laws.sums_in_rows(p * np.log(p))
        return float(entropy) + 0.0  # never −0.0

    def near_duplicates(self, tolerance: float = 1e-6) -> tuple[NearDuplicates, ...]:
        """Find rows whose embeddings agree within a relative distance.

        Such rows are one context up to rounding, yet the data demand that a decoder tells them
        apart; ``merge_tolerance`` merges them. Rows are taken in order, and each claims those after
        it that agree with it and that none before has claimed. Rows of one of ``context_groups``
        share their embedding on purpose, and are no duplicates of each other.

        Parameters
        ----------
        tolerance : float
            Between 0 and 0.1: the largest ``‖h_j − h_i‖ / max(‖h_j‖, ‖h_i‖)``.

        Returns
        -------
        tuple of NearDuplicates
            One for each set, with its ``.rows`` and their ``.distances`` from the first of them.

        Raises
        ------
        TypeError, ValueError
            A ``tolerance`` that is no such number.

        Examples
        --------
        The same three numbers, added up in two orders:

        >>> import ntpnb
        >>> H = [[0.1 + 0.2 + 0.3], [1.0], [0.3 + 0.2 + 0.1]]
        >>> P = [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]
        >>> data = ntpnb.NextTokenData(H, P)
        >>> [found.rows.tolist() for found in data.near_duplicates()]
        [[0, 2]]
        >>> merged = data.replace(merge_tolerance=1e-6)
        >>> merged.merged_rows, merged.target_probs.tolist()
        (((0, 2), (1,)), [[0.75, 0.25], [0.0, 1.0]])
        """
        return near_duplicates(self.context_embeddings, self.context_groups, tolerance)

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
        if self._laws.is_large:
            return _largest_squared_singular_value(weighted_embeddings)
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
        if np.array_equal(self._first_rows, np.arange(self.num_contexts)):
            return self.context_embeddings
        return self.context_embeddings[self._first_rows]

    @cached_property
    def _first_rows(self) -> IntArray:
        """First row of each group of contexts, shape (G,)."""
        return np.unique(self.context_groups, return_index=True)[1]

    def _squared_diameters(self) -> FloatArray:
        """Squared largest distance between two candidates' embeddings in each row, shape (m,)."""
        T = self.token_embeddings
        counts = self._counts
        if T is None:
            num_candidates = self.vocab_size if counts is None else counts.num_entries()
            return np.where(np.broadcast_to(num_candidates, self.num_contexts) > 1, 2.0, 0.0)
        if counts is None:
            return np.full(self.num_contexts, _squared_diameter(T))
        return _squared_diameters_of_sets(T, counts)


def sizes_of(data: NextTokenData) -> str:
    """Write how many contexts and tokens there are."""
    return f"{counted(data.num_contexts, 'context')}, {counted(data.vocab_size, 'token')}"


def counts_or_ones(data: NextTokenData) -> FloatArray:
    """Return the candidate counts, with ones where the data have none, shape (m, V)."""
    counts = data.candidate_counts
    if counts is None:
        shape = data._laws.shape
        require_dense("candidate_counts", shape, "use fewer contexts or a smaller vocabulary")
        return np.ones(shape)
    return counts


# -- checks of one argument each ------------------------------------------------------------------


def _require_matching_rows(H: FloatArray | StoredRows, P: Table) -> None:
    if H.shape[1] == 0 or P.shape[0] == 0 or P.shape[1] == 0:
        raise ValueError(
            f"context_embeddings has shape {H.shape} and {P.name} {P.shape}; "
            "at least one context, one embedding dimension and one token are needed"
        )
    if len(H) != P.shape[0]:
        raise ValueError(
            f"context_embeddings has {len(H)} rows but {P.name} has {P.shape[0]}; "
            "both need one row per context"
        )


def _above_threshold(P: Table, threshold: float) -> Table:
    require_number(
        "support_threshold", threshold, lambda x: 0 <= x < 1, "be at least 0 and less than 1"
    )
    if not threshold:
        return P
    kept = P.above(threshold)
    refuse_any(
        kept.num_entries() == 0,
        lambda j: (
            f"support_threshold is {threshold:g}, and target_probs row {j} has no larger entry; "
            "every context needs a token that follows it"
        ),
    )
    return kept


def _checked_context_probs(context_probs: ArrayLike | None, num_contexts: int) -> FloatArray:
    if context_probs is None:
        return np.full(num_contexts, 1 / num_contexts)
    pi = as_array("context_probs", context_probs, ndim=1, length=num_contexts)
    refuse_any(
        pi <= 0,
        lambda j: (
            f"context_probs[{j}] is {pi[j]:g}; every context needs a positive probability "
            "(drop the contexts that never occur)"
        ),
    )
    tolerance = float(sum_tolerance(num_contexts, np.asarray(context_probs).dtype))
    if abs(pi.sum() - 1) > tolerance:
        raise ValueError(
            f"context_probs sums to {pi.sum():.10g}; it must sum to one (within {tolerance:g})"
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


def _checked_candidate_counts(candidate_counts: TableLike | None, P: Table) -> Table | None:
    if candidate_counts is None:
        return None
    C = as_table("candidate_counts", candidate_counts, P.shape)
    count = C.entries.value
    C.refuse(
        (count < SMALLEST_COUNT) | (count > LARGEST_COUNT),
        f"counts must be zero or lie between {SMALLEST_COUNT:g} and {LARGEST_COUNT:g}",
    )
    j, v, p = P.entries
    refuse_any(
        ~C.has(j, v),
        lambda k: (
            f"candidate_counts[{j[k]}, {v[k]}] is 0 but target_probs[{j[k]}, {v[k]}] is {p[k]:g}; "
            "a token with positive target probability must be a candidate"
        ),
    )
    return C


def _require_positive_frequencies(pi: FloatArray, P: Table) -> None:
    j, v, p = P.entries
    refuse_any(
        pi[j] * p == 0,
        lambda k: (
            f"context_probs[{j[k]}] · target_probs[{j[k]}, {v[k]}] is {pi[j[k]]:g} · {p[k]:g}, "
            "which rounds to 0; pairs of a context and a next token need positive frequencies"
        ),
    )


def _require_counts(counts: Table) -> None:
    count = counts.entries.value
    counts.refuse(
        (count < 0) | (count != np.rint(count)),
        "counts must be whole numbers, none of them negative",
    )
    refuse_any(
        counts.num_entries() == 0,
        lambda j: (
            f"counts row {j} is all zero; every context needs a token that follows it "
            "(drop the contexts that never occur)"
        ),
    )


def _checked_context_groups(
    context_groups: ArrayLike | None, H: FloatArray | StoredRows
) -> IntArray:
    if context_groups is None:
        return np.arange(len(H))
    groups = as_indices("context_groups", context_groups)
    if groups.shape != (len(H),):
        raise ValueError(
            f"context_groups has shape {groups.shape}; it needs one name a context, ({len(H)},)"
        )
    _, first_rows, group_index = np.unique(groups, return_index=True, return_inverse=True)
    rows = np.asarray(H)
    refuse_any(
        (rows[first_rows[group_index]] != rows).any(1),
        lambda j: (
            f"context_groups puts row {j} into group {groups[j]}, whose first row "
            "has another embedding; rows of one group must share one row of context_embeddings"
        ),
    )
    return groups


def _require_room_for_contexts(sequences: Sequence[IntArray], context_length: int | None) -> None:
    """Raise before memory is taken where the contexts would not fit, each written down in full."""
    total = 0
    for length in map(len, sequences):
        if context_length is None:
            total += length * (length - 1) // 2
        else:
            total += max(0, length - context_length) * context_length
    if total > DENSE_LIMIT:
        raise ValueError(
            f"the contexts of sequences with context_length = {context_length} have {total} tokens "
            f"in all, about {8 * total / 1e9:.2g} GB; at most {DENSE_LIMIT} are listed: give a "
            "smaller context_length (None takes every prefix), or fewer sequences"
        )


def _require_queries_and_labels(
    sequences: Sequence[IntArray], labels: IntArray, vocab_size: int
) -> None:
    for i, (sequence, label) in enumerate(zip(sequences, labels, strict=True)):
        require_range(f"sequences[{i}]", sequence, vocab_size)
        if sequence.size == 0:
            raise ValueError(f"sequences[{i}] is empty; its last token is the query")
        if label not in sequence:
            raise ValueError(
                f"labels[{i}] is {label}, which does not occur in sequences[{i}] = "
                f"{sequence.tolist()}; attention can only retrieve a token of its input"
            )


# -- what the constructors and properties compute -------------------------------------------------


def _count_next_tokens(
    sequences: Sequence[IntArray], context_length: int | None, vocab_size: int
) -> tuple[dict[Context, int], Table]:
    """Number the contexts in order of appearance, and count how often each token follows each."""
    row_of: dict[Context, int] = {}
    rows = []
    next_tokens = []
    for sequence in sequences:
        tokens = tuple(sequence.tolist())
        for end in range(context_length or 1, len(tokens)):
            start = 0 if context_length is None else end - context_length
            rows.append(row_of.setdefault(tokens[start:end], len(row_of)))
            next_tokens.append(tokens[end])
    shape = (len(row_of), vocab_size)
    row, token = np.array([rows, next_tokens], dtype=np.intp)
    return row_of, collected("counts", row, token, shape)


def _embedded(contexts: Collection[Context], embed: Callable[[Context], ArrayLike]) -> FloatArray:
    """Embed contexts one by one, and require vectors of one length."""
    rows = np.empty((len(contexts), 0))
    for j, context in enumerate(contexts):
        vector = as_floats("what embed returned", embed(context))
        if j == 0 and vector.ndim == 1:
            rows = np.empty((len(contexts), len(vector)))
        if vector.shape != rows.shape[1:]:
            needed = f" of length {rows.shape[1]}, as for the first context," if j else ""
            raise ValueError(
                f"embed returned an array of shape {vector.shape} for the context "
                f"{shortened(context)}; a vector{needed} is needed"
            )
        rows[j] = vector
    return rows


def _largest_squared_singular_value(A: FloatArray) -> float:
    """Largest squared singular value of a long or wide matrix, by its smaller Gram matrix."""
    num_rows, num_columns = A.shape
    gram = A.T @ A if num_columns <= num_rows else A @ A.T
    return max(0.0, float(np.linalg.eigvalsh(gram)[-1]))


def _squared_diameters_of_sets(T: FloatArray, counts: Table) -> FloatArray:
    """Squared diameter of the embeddings of each row's tokens, computed once for equal sets."""
    known: dict[bytes, float] = {}
    squared = []
    for tokens in np.split(counts.entries.token, counts.first_entries()[1:]):
        key = tokens.tobytes()
        if key not in known:
            known[key] = _squared_diameter(T[tokens])
        squared.append(known[key])
    return np.array(squared)


def _squared_diameter(points: FloatArray) -> float:
    """Squared largest distance between two of the points, which are the rows of an array."""
    largest = 0.0
    # In blocks, so that a large vocabulary never allocates V² distances.
    for rows in row_slices((len(points), len(points))):
        distances = cdist(points[rows], points, "sqeuclidean")
        largest = max(largest, float(distances.max()))
    return largest


def _kinds_of(data: NextTokenData) -> dict[str, object]:
    """Types, number types and shapes of what data hold, by the names of the attributes."""
    return {
        name: (type(part), getattr(part, "dtype", None), getattr(part, "shape", None))
        for name, part in vars(data).items()
        if name not in {*ENTRIES, "embedding"}
    }
