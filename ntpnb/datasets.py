"""The papers' datasets, initializations, and texts that chapters train on."""

import re
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from ntpnb.basics.saving import Result
from ntpnb.basics.validation import (
    FloatArray,
    IntArray,
    Seed,
    as_integer,
    as_seed,
    require_choice,
    require_type,
)
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import token_priority
from ntpnb.problem.text import numbered, spelled, split_words

DRAWS = 10_000  # for one trial; kinds rarer than that, or impossible, are refused

VERSE_NUMBER = re.compile(r"^\d+:\d+ ")  # with which a verse begins, such as 1:3

Kind = Literal["acyclic", "cyclic", "any"]
TokenRule = Literal["distinct", "independent"]
LabelRule = Literal["sequence", "priority"]

__all__ = [
    "TextCorpus",
    "TrialSet",
    "attention_trials",
    "declaration_corpus",
    "figure2",
    "lecun_init",
    "overparameterized",
    "text_corpus",
    "toy",
    "uniform_init",
]

# -- T24 ------------------------------------------------------------------------------------------


def toy() -> NextTokenData:
    """T24's problem in the plane: 5 tokens, 3 contexts A, B, C, each followed by 3 tokens.

    The figures fix the supports up to symmetry: A = {2, 3, 4}, B = {1, 4, 5}, C = {1, 2, 5}
    (numbered from one, as in the paper). The paper prints neither embeddings nor probabilities;
    these are short numbers whose entropy rounds to its 0.8811 nats.

    Returns
    -------
    NextTokenData
        W has the shape (5, 2).

    References
    ----------
    T24 (001, 002) Figs 1 and 2, App. B of 001.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.datasets.toy()
    NextTokenData(3 contexts, 5 tokens, W: 5 × 2, H = 0.8811 nats)
    """
    H = [[0.0, 1.0], [-1.0, -0.5], [1.0, -0.75]]
    P = [
        [0.00, 0.35, 0.55, 0.10, 0.00],
        [0.60, 0.00, 0.00, 0.10, 0.30],
        [0.15, 0.15, 0.00, 0.00, 0.70],
    ]
    return NextTokenData(H, P)


def overparameterized(
    seed: Seed = 1,
    vocab_size: int = 10,
    num_contexts: int = 50,
    dim: int = 60,
    support_size: int = 6,
) -> NextTokenData:
    """T24's synthetic dataset with more dimensions than contexts.

    Random supports of ``support_size`` tokens, probabilities uniform on their simplex, standard
    normal embeddings, equally frequent contexts. The paper says "random" for the first three and
    nothing of the fourth, nor of the embeddings' scale: these are the plainest choices, among
    others that its one printed number, an entropy of 1.445 nats, allows as well. The default seed
    is one whose entropy rounds to that number. Probabilities are not rounded to ratios of counts,
    which they are in the paper's 5000 sequences.

    Parameters
    ----------
    seed : int or sequence of int
    vocab_size, num_contexts, dim, support_size : int

    Returns
    -------
    NextTokenData
        W has the shape (vocab_size, dim).

    Raises
    ------
    ValueError
        A size below one, or a support larger than the vocabulary.

    References
    ----------
    T24 (002) App. A, Figs 3–5; App. B of 001.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.datasets.overparameterized()
    NextTokenData(50 contexts, 10 tokens, W: 10 × 60, H = 1.4454 nats)
    """
    vocab_size = as_integer("vocab_size", vocab_size, 1)
    num_contexts = as_integer("num_contexts", num_contexts, 1)
    dim = as_integer("dim", dim, 1)
    size = _as_part("support_size", support_size, vocab_size, f"vocab_size = {vocab_size}")
    rng = np.random.default_rng(as_seed("seed", seed))
    H = rng.standard_normal((num_contexts, dim))
    supports = _shuffled_vocabularies(rng, vocab_size, num_contexts)[:, :size]
    P = np.zeros((num_contexts, vocab_size))
    np.put_along_axis(P, supports, rng.dirichlet(np.ones(size), num_contexts), axis=1)
    return NextTokenData(H, P)


def _as_part(name: str, value: int, most: int, shown: str) -> int:
    """Return an integer between 1 and the largest that is possible, or explain."""
    part = as_integer(name, value)
    if not 1 <= part <= most:
        raise ValueError(f"{name} is {value}; it must lie between 1 and {shown}")
    return part


def _shuffled_vocabularies(rng: np.random.Generator, vocab_size: int, num_copies: int) -> IntArray:
    """All tokens in random order, independently in each row, shape (num_copies, vocab_size)."""
    in_order = np.tile(np.arange(vocab_size), (num_copies, 1))
    return rng.permuted(in_order, axis=1)


# -- initializations ------------------------------------------------------------------------------


def lecun_init(data: NextTokenData, seed: Seed) -> FloatArray:
    """LeCun's initialization: independent normals of variance one over the fan-in ``q``.

    Parameters
    ----------
    data : NextTokenData
    seed : int or sequence of int

    Returns
    -------
    ndarray, shape (p, q)

    References
    ----------
    LeCun, Bottou, Orr & Müller (1998), Efficient BackProp.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.datasets.lecun_init(ntpnb.datasets.toy(), seed=0).shape
    (5, 2)
    """
    W: FloatArray = _generator(data, seed).standard_normal(data.shape) / np.sqrt(data.shape[1])
    return W


def uniform_init(data: NextTokenData, seed: Seed) -> FloatArray:
    """Independent uniforms on ``±1/√q``: what L24's experiments start from.

    Parameters
    ----------
    data : NextTokenData
    seed : int or sequence of int

    Returns
    -------
    ndarray, shape (p, q)

    References
    ----------
    L24's released code, not its text.

    Examples
    --------
    >>> import ntpnb
    >>> W = ntpnb.datasets.uniform_init(ntpnb.datasets.figure2(), seed=0)
    >>> W.shape, bool(abs(W).max() <= 0.5)
    ((4, 4), True)
    """
    W: FloatArray = _generator(data, seed).uniform(-1, 1, data.shape) / np.sqrt(data.shape[1])
    return W


def _generator(data: NextTokenData, seed: Seed) -> np.random.Generator:
    require_type("data", data, NextTokenData)
    return np.random.default_rng(as_seed("seed", seed))


# -- L24 ------------------------------------------------------------------------------------------


def figure2() -> NextTokenData:
    """Seven sequences that have every property L24 states of its Fig. 2, with orthonormal tokens.

    ``G(1)`` has four singleton components in the order 3 > 2 > 4 > 1; ``G(2)`` has {1, 2, 3} above
    {4}; samples 4 to 7 are cyclic. Of the paper's figure we have the text alone: these are one
    choice among several. Tokens are numbered from one in the paper, from zero here.

    Returns
    -------
    NextTokenData
        W has the shape (4, 4).

    References
    ----------
    L24 (004) Fig. 2 and Sec. 3.1.

    Examples
    --------
    >>> import ntpnb
    >>> data = ntpnb.datasets.figure2()
    >>> (data.context_groups + 1).tolist()  # the last tokens, in the paper's numbers
    [1, 1, 1, 2, 2, 2, 2]
    """
    sequences = [(2, 1, 0), (1, 3, 0), (3, 0), (0, 2, 1), (2, 0, 1), (0, 2, 1), (0, 3, 1)]
    labels = [2, 1, 3, 0, 2, 2, 1]
    return NextTokenData.from_attention(np.eye(4), sequences, labels)


@dataclass(frozen=True, repr=False)
class TrialSet(Result):
    """Random attention datasets and the count of draws that led to them.

    Attributes
    ----------
    data : tuple of NextTokenData
    drawn : int
        Datasets drawn in all.
    rejected : int
        Drawn and not of the wanted kind.
    degenerate : int
        Drawn, of the wanted kind, but without any strict pair, so that ``W^mm = 0``; not in
        ``data`` either.

    Examples
    --------
    >>> import ntpnb
    >>> trials = ntpnb.datasets.attention_trials(5, "cyclic")
    >>> len(trials.data) == trials.drawn - trials.rejected - trials.degenerate
    True
    """

    data: tuple[NextTokenData, ...]
    drawn: int
    rejected: int
    degenerate: int


def attention_trials(
    num_trials: int = 100,
    kind: Kind = "acyclic",
    vocab_size: int | None = None,
    dim: int = 8,
    num_sequences: int | None = None,
    length: int | None = None,
    seed: int = 0,
    tokens: TokenRule = "distinct",
    labels: LabelRule = "sequence",
) -> TrialSet:
    """Draw random datasets for L24's Figs 3 to 6: embeddings on the unit sphere, random sequences.

    Parameters
    ----------
    num_trials : int
    kind : {"acyclic", "cyclic", "any"}
        Rejection to datasets whose components are all singletons, or some of which are not, or
        no rejection. The defaults of ``vocab_size``, ``num_sequences`` and ``length`` follow:
        8, 4 and 6 as in Fig. 3, or for "cyclic" 6, 6 and 4 as in Fig. 4.
    vocab_size, dim, num_sequences, length : int, optional
    seed : int
        Trial ``i`` is the first of its kind drawn from ``default_rng([seed, i])``.
    tokens : {"distinct", "independent"}
        Within a sequence without replacement, as the released experiments do, or each
        independently of the others, as App. D prints.
    labels : {"sequence", "priority"}
        Uniform over the sequence's tokens, as the released experiments do, or the sequence's
        first token in one random order for each trial, as App. D prints for the acyclic
        setting. (Labels "from E", printed for the cyclic one, can be absent from their sequence;
        L24's Assumption 2 excludes them.)

    Returns
    -------
    TrialSet

    Raises
    ------
    ValueError
        An unknown name, distinct tokens longer than the vocabulary, one token only, or sizes with
        which 10 000 draws for one trial give nothing of the kind.

    References
    ----------
    L24 (004) Sec. 5 and App. D.

    Examples
    --------
    >>> import ntpnb
    >>> trials = ntpnb.datasets.attention_trials(3, "acyclic")
    >>> [data.shape for data in trials.data]
    [(8, 8), (8, 8), (8, 8)]
    """
    require_choice("kind", kind, get_args(Kind))
    require_choice("tokens", tokens, get_args(TokenRule))
    require_choice("labels", labels, get_args(LabelRule))
    if kind == "cyclic" and labels == "priority":
        raise ValueError('labels="priority" never gives cyclic data; use labels="sequence"')
    # Of Fig. 4, and of Fig. 3.
    usual_V, usual_n, usual_length = (6, 6, 4) if kind == "cyclic" else (8, 4, 6)
    V = _size_or_default("vocab_size", vocab_size, usual_V)
    n = _size_or_default("num_sequences", num_sequences, usual_n)
    size = _size_or_default("length", length, usual_length)
    dim = as_integer("dim", dim, 1)
    num_trials = as_integer("num_trials", num_trials, 0)
    seed = as_integer("seed", seed, 0)
    for name, number in (("vocab_size", V), ("length", size)):
        if number == 1:
            raise ValueError(f"{name} is 1; a strict pair needs sequences of two different tokens")
    if tokens == "distinct" and size > V:
        raise ValueError(f"length is {size}; distinct tokens allow at most vocab_size = {V}")

    def draw(rng: np.random.Generator) -> NextTokenData:
        E = rng.standard_normal((V, dim))
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        if tokens == "distinct":
            X = _shuffled_vocabularies(rng, V, n)[:, :size]
        else:
            X = rng.integers(V, size=(n, size))
        if labels == "sequence":
            chosen = rng.integers(size, size=n)
        else:
            rank = rng.permutation(V)
            chosen = rank[X].argmin(1)
        return NextTokenData.from_attention(E, X, X[np.arange(n), chosen])

    outcomes: Counter[str] = Counter()
    kept = []
    for i in range(num_trials):
        rng = np.random.default_rng([seed, i])
        for _ in range(DRAWS):
            data = draw(rng)
            outcome = _outcome(data, kind)
            outcomes[outcome] += 1
            if outcome == "kept":
                kept.append(data)
                break
        else:
            raise ValueError(
                f"{DRAWS} draws gave no {kind!r} dataset with a strict pair; "
                f"vocab_size = {V}, num_sequences = {n} and length = {size} need other values"
            )
    return TrialSet(
        data=tuple(kept),
        drawn=outcomes.total(),
        rejected=outcomes["rejected"],
        degenerate=outcomes["degenerate"],
    )


def _size_or_default(name: str, size: int | None, default: int) -> int:
    return default if size is None else as_integer(name, size, 1)


def _outcome(data: NextTokenData, kind: Kind) -> str:
    """What comes of a draw where data of a kind are wanted."""
    order = token_priority(data)
    found: Kind = "cyclic" if len(order.equal) else "acyclic"
    if kind not in ("any", found):
        return "rejected"
    return "kept" if order.has_strict_pairs else "degenerate"


# -- text -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class TextCorpus(Result):
    """A text in words.

    Attributes
    ----------
    words : tuple of str
        The vocabulary in alphabetical order; token ``v`` is ``words[v]``.
    verses : tuple of tuple of int
        The text in tokens, verse by verse.

    Examples
    --------
    >>> import ntpnb
    >>> corpus = ntpnb.datasets.TextCorpus(("a", "rose", "is"), ((0, 1), (2, 0, 1)))
    >>> corpus.spell([0, 1, 2])
    'a rose is'
    """

    words: tuple[str, ...]
    verses: tuple[tuple[int, ...], ...]

    def windows(self, length: int) -> IntArray:
        """Every run of ``length`` words of the running text, its end wrapped around to its start.

        One window starts at each word, across the borders of verses. Thanks to the wrapping any
        ``k`` neighbouring positions of the windows see the same words equally often: the windows
        are stationary.

        Parameters
        ----------
        length : int

        Returns
        -------
        ndarray of int, shape (number of words, length)

        Raises
        ------
        ValueError
            A ``length`` outside 1 … number of words.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.datasets.TextCorpus(("a", "b", "c"), ((0, 1), (2,))).windows(2).tolist()
        [[0, 1], [1, 2], [2, 0]]
        """
        text: IntArray = np.array(list(chain.from_iterable(self.verses)), dtype=int)
        length = _as_part("length", length, len(text), f"{len(text)} words")
        around = np.resize(text, len(text) + length - 1)  # which begins anew after the end
        windows: IntArray = sliding_window_view(around, length).copy()
        return windows

    def spell(self, tokens: ArrayLike) -> str:
        """Write tokens as words, separated by spaces.

        Parameters
        ----------
        tokens : array_like of int, shape (n,)

        Returns
        -------
        str

        Raises
        ------
        ValueError
            A token that is no word's.

        Examples
        --------
        >>> import ntpnb
        >>> corpus = ntpnb.datasets.text_corpus()
        >>> corpus.spell(corpus.verses[2])
        'and god said let there be light and there was light'
        """
        return spelled(tokens, self.words)


def text_corpus(num_verses: int = 31) -> TextCorpus:
    """Load the beginning of Genesis (King James Version), in lower case, without punctuation.

    The file comes with the package and says where it is from: a text in the public domain.

    Parameters
    ----------
    num_verses : int
        The first 31 are chapter 1 (797 words, 150 of them distinct), all 106 are chapters 1 to 4.

    Returns
    -------
    TextCorpus

    Raises
    ------
    ValueError
        More verses than there are, or none.

    Examples
    --------
    >>> import ntpnb
    >>> corpus = ntpnb.datasets.text_corpus()
    >>> len(corpus.verses), len(corpus.words)
    (31, 150)
    """
    return _read_corpus("genesis.txt", "num_verses", num_verses)


def declaration_corpus(num_paragraphs: int = 24) -> TextCorpus:
    """Load the beginning of the Declaration of Independence (1776), prepared as Genesis is.

    The file comes with the package and says where it is from: a text in the public domain. Its
    sentences are long and hardly repeat themselves, other than those of Genesis, of which chapter 1
    is as long.

    Parameters
    ----------
    num_paragraphs : int
        All 24 have 800 words, 362 of them distinct. What :class:`TextCorpus` calls a verse is here
        a paragraph.

    Returns
    -------
    TextCorpus

    Raises
    ------
    ValueError
        More paragraphs than there are, or none.

    Examples
    --------
    >>> import ntpnb
    >>> corpus = ntpnb.datasets.declaration_corpus()
    >>> len(corpus.verses), len(corpus.words)
    (24, 362)
    >>> corpus.spell(corpus.verses[0][:7])
    'when in the course of human events'
    """
    return _read_corpus("declaration.txt", "num_paragraphs", num_paragraphs)


def _read_corpus(file_name: str, count_name: str, num_lines: int) -> TextCorpus:
    """The first lines of a text that ships with the package, without its comments."""
    text = files("ntpnb").joinpath("data_files", file_name).read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    num_lines = _as_part(count_name, num_lines, len(lines), f"{len(lines)}")
    verses = [split_words(VERSE_NUMBER.sub("", line)) for line in lines[:num_lines]]
    token = numbered(chain.from_iterable(verses))
    return TextCorpus(tuple(token), tuple(tuple(token[word] for word in verse) for verse in verses))
