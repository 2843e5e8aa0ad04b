"""The papers' datasets."""

import re
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.order import token_priority
from ntpnb.validation import as_indices, as_integer, as_seed, require_range

DRAWS = 10_000  # for one trial; kinds rarer than that, or impossible, are refused


def toy():
    """T24's problem in the plane: 5 tokens, 3 contexts A, B, C, each followed by 3 tokens.

    The figures fix the supports up to symmetry: A = {2, 3, 4}, B = {1, 4, 5}, C = {1, 2, 5}
    (numbered from one, as in the paper). The paper prints neither embeddings nor probabilities;
    these are short numbers whose entropy rounds to its 0.8811 nats.

    References
    ----------
    T24 (001, 002) Figs 1 and 2, App. B of 001.
    """
    H = [[0.0, 1.0], [-1.0, -0.5], [1.0, -0.75]]
    P = [
        [0.00, 0.35, 0.55, 0.10, 0.00],
        [0.60, 0.00, 0.00, 0.10, 0.30],
        [0.15, 0.15, 0.00, 0.00, 0.70],
    ]
    return NextTokenData(H, P)


def overparameterized(seed=1, vocab_size=10, num_contexts=50, dim=60, support_size=6):
    """T24's synthetic dataset with more dimensions than contexts.

    Random supports of ``support_size`` tokens, probabilities uniform on their simplex, standard
    normal embeddings, equally frequent contexts (n = 5000 sequences, 100 per context). The paper
    says "random" for the first three; these laws reproduce its entropy and curves, other common
    ones do not. The default seed's entropy rounds to the paper's 1.445 nats.

    References
    ----------
    T24 (002) App. A, Figs 3–5; App. B of 001.
    """
    sizes = {"vocab_size": vocab_size, "num_contexts": num_contexts, "dim": dim}
    vocab_size, num_contexts, dim = (as_integer(name, size, 1) for name, size in sizes.items())
    support_size = as_integer("support_size", support_size)
    if not 1 <= support_size <= vocab_size:
        raise ValueError(
            f"support_size is {support_size}; it must lie between 1 and vocab_size = {vocab_size}"
        )
    rng = np.random.default_rng(as_seed("seed", seed))
    H = rng.standard_normal((num_contexts, dim))
    supports = rng.permuted(np.tile(np.arange(vocab_size), (num_contexts, 1)), axis=1)
    P = np.zeros((num_contexts, vocab_size))
    laws = rng.dirichlet(np.ones(support_size), num_contexts)
    np.put_along_axis(P, supports[:, :support_size], laws, axis=1)
    return NextTokenData(H, P)


def lecun_init(data, seed):
    """LeCun's initialization: independent normals of variance one over the fan-in ``q``, (p, q)."""
    require_data("data", data)
    p, q = data.shape
    return np.random.default_rng(as_seed("seed", seed)).standard_normal((p, q)) / np.sqrt(q)


def uniform_init(data, seed):
    """Independent uniforms on ``±1/√q``, shape (p, q): what L24's experiments start from."""
    require_data("data", data)
    p, q = data.shape
    return np.random.default_rng(as_seed("seed", seed)).uniform(-1, 1, (p, q)) / np.sqrt(q)


def figure2():
    """Seven sequences that have every property L24 states of its Fig. 2, with orthonormal tokens.

    ``G(1)`` has four singleton components in the order 3 > 2 > 4 > 1; ``G(2)`` has {1, 2, 3} above
    {4}; samples 4 to 7 are cyclic. The paper draws the graphs and prints no sequences: these are
    one choice among several. Tokens are numbered from one in the paper, from zero here.

    References
    ----------
    L24 (004) Fig. 2 and Sec. 3.1.
    """
    sequences = [(2, 1, 0), (1, 3, 0), (3, 0), (0, 2, 1), (2, 0, 1), (0, 2, 1), (0, 3, 1)]
    return NextTokenData.from_attention(np.eye(4), sequences, [2, 1, 3, 0, 2, 2, 1])


@dataclass(frozen=True)
class TrialSet:
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
    """

    data: tuple
    drawn: int
    rejected: int
    degenerate: int


def attention_trials(
    num_trials=100,
    kind="acyclic",
    vocab_size=None,
    dim=8,
    num_sequences=None,
    length=None,
    seed=0,
    tokens="distinct",
    labels="sequence",
):
    """Draw random datasets for L24's Figs 3 to 6: embeddings on the unit sphere, random sequences.

    Parameters
    ----------
    num_trials : int
    kind : {"acyclic", "cyclic", "any"}
        Rejection to datasets whose components are all singletons, or some of which are not, or
        no rejection. The defaults of the three sizes follow: 8, 4 and 6
        as in Fig. 3, or for "cyclic" 6, 6, 4 as in Fig. 4.
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
        An unknown law, distinct tokens longer than the vocabulary, or sizes with which 10 000 draws
        for one trial give nothing of the kind.

    References
    ----------
    L24 (004) Sec. 5 and App. D.
    """
    for name, value, known in (
        ("kind", kind, ("acyclic", "cyclic", "any")),
        ("tokens", tokens, ("distinct", "independent")),
        ("labels", labels, ("sequence", "priority")),
    ):
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name} is {value!r}; it must be one of {known}")
    if kind == "cyclic" and labels == "priority":
        raise ValueError('labels="priority" never gives cyclic data; use labels="sequence"')
    K, n, T = (6, 6, 4) if kind == "cyclic" else (8, 4, 6)
    sizes = {"vocab_size": vocab_size, "num_sequences": num_sequences, "length": length}
    K, n, T = (
        default if size is None else as_integer(name, size, 1)
        for (name, size), default in zip(sizes.items(), (K, n, T), strict=True)
    )
    dim, num_trials = as_integer("dim", dim, 1), as_integer("num_trials", num_trials, 0)
    seed = as_integer("seed", seed, 0)
    if tokens == "distinct" and T > K:
        raise ValueError(f"length is {T}; distinct tokens allow at most vocab_size = {K}")
    kept, drawn, rejected, degenerate = [], 0, 0, 0
    for i in range(num_trials):
        rng = np.random.default_rng([seed, i])
        for _ in range(DRAWS):
            drawn += 1
            data = _attention_draw(rng, K, dim, n, T, tokens, labels)
            order = token_priority(data)
            if kind != "any" and (len(order.equal) > 0) != (kind == "cyclic"):
                rejected += 1
            elif not len(order.strict):
                degenerate += 1
            else:
                kept.append(data)
                break
        else:
            raise ValueError(
                f"{DRAWS} draws gave no {kind!r} dataset with a strict pair; vocab_size = {K}, "
                f"num_sequences = {n} and length = {T} need other values"
            )
    return TrialSet(tuple(kept), drawn, rejected, degenerate)


def _attention_draw(rng, K, dim, n, T, tokens, labels):
    E = rng.standard_normal((K, dim))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    if tokens == "distinct":
        X = rng.permuted(np.tile(np.arange(K), (n, 1)), axis=1)[:, :T]
    else:
        X = rng.integers(K, size=(n, T))
    if labels == "sequence":
        y = X[np.arange(n), rng.integers(T, size=n)]
    else:
        rank = rng.permutation(K)
        y = X[np.arange(n), rank[X].argmin(1)]
    return NextTokenData.from_attention(E, X, y)


@dataclass(frozen=True)
class TextCorpus:
    """A text in words.

    Attributes
    ----------
    words : tuple of str
        The vocabulary in alphabetical order; token ``v`` is ``words[v]``.
    verses : tuple of tuple of int
        The text in tokens, verse by verse.
    """

    words: tuple
    verses: tuple

    def windows(self, length):
        """Every run of ``length`` words of the running text, its end wrapped around to its start.

        One window starts at each word, across the borders of verses. Thanks to the wrapping any
        ``k`` neighbouring positions of the windows see the same words equally often: the windows
        are stationary.

        Raises
        ------
        ValueError
            A ``length`` outside 1 … number of words.
        """
        text = np.concatenate(self.verses)
        if not 1 <= as_integer("length", length) <= len(text):
            raise ValueError(f"length is {length}; it must lie between 1 and {len(text)} words")
        return text[(np.arange(len(text))[:, None] + np.arange(length)) % len(text)]

    def spell(self, tokens):
        """Write tokens as words, separated by spaces."""
        tokens = as_indices("tokens", tokens)
        require_range("tokens", tokens, len(self.words))
        return " ".join(self.words[v] for v in tokens)


def text_corpus(num_verses=31):
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
    """
    text = files("ntpnb").joinpath("data_files/genesis.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    if not 1 <= as_integer("num_verses", num_verses) <= len(lines):
        raise ValueError(f"num_verses is {num_verses}; it must lie between 1 and {len(lines)}")
    verses = [re.findall(r"[a-z']+", line.lower()) for line in lines[:num_verses]]
    words = tuple(sorted({word for verse in verses for word in verse}))
    token = {word: v for v, word in enumerate(words)}
    return TextCorpus(words, tuple(tuple(token[word] for word in verse) for verse in verses))
