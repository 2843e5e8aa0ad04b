"""A small language model, trained once: what its decoder sees and learns, for chapter 21."""

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.saving import Result
from ntpnb.basics.validation import as_integer
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.text import spelled


@dataclass(frozen=True, eq=False, repr=False)
class LanguageModel(Result):
    """What a small transformer made of its training text: hidden states, decoders and counts.

    The scores of the next word are ``W h``, where ``h`` is the hidden state after the last layer
    norm and ``W`` the decoder, without a bias and not tied to the word vectors. Hidden states and
    decoders were computed in single precision and rounded to half precision; what is measured here
    is the rounded ones.

    Attributes
    ----------
    words : tuple of str
        The vocabulary in alphabetical order; token ``v`` is ``words[v]``.
    contexts : ndarray of int, shape (m, 3)
        All runs of three words of the text, each once, in the order of their first occurrence.
    counts : scipy.sparse.csr_array of int, shape (m, V)
        How often each word followed each context.
    hidden : ndarray, shape (m, d)
        Hidden states at the end of training.
    epochs : ndarray of int, shape (c,)
        When the checkpoints were taken, in passes over the text; the first before training.
    decoders : ndarray, shape (c, V, d)
        The decoder at each checkpoint; at the first it is zero.
    first_hidden : ndarray, shape (c, n, d)
        Hidden states of the first ``n`` contexts at each checkpoint.
    large_margin : ndarray, shape (V, d)
        A matrix whose margin in all contexts, at the end of training, is nearly the largest one per
        length; its part in ``F``, which is rounding, is to be taken away first.
    margin_multipliers : scipy.sparse.csr_array, shape (m, V)
        Nonnegative weights ``λ_jv`` of the pairs of a context's followers and another word, which
        bound the largest margin from above: by the length of ``Σ λ_jv (f_j − e_v) h_jᵀ``, without
        its part in ``F``, over ``Σ λ_jv``. Here ``f_j`` is the mean of the one-hot vectors of the
        words that follow context ``j``.
    provenance : dict
        The text, the script, its settings, and the version of numpy.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import language_model
    >>> model = language_model()
    >>> ntpnb.cross_entropy(model.decoders[-1], model.data()) < model.data().entropy + 0.05
    True
    """

    words: tuple[str, ...]
    contexts: IntArray
    counts: csr_array
    hidden: FloatArray
    epochs: IntArray
    decoders: FloatArray
    first_hidden: FloatArray
    large_margin: FloatArray
    margin_multipliers: csr_array
    provenance: dict[str, Any]

    def data(self, num_contexts: int | None = None, checkpoint: int | None = None) -> NextTokenData:
        """Pose the decoder's problem: hidden states as embeddings, with the text's counts.

        Parameters
        ----------
        num_contexts : int, optional
            So many of the first contexts; default: all, and at an earlier checkpoint all that have
            hidden states there.
        checkpoint : int, optional
            From which checkpoint the hidden states are; default: the last.

        Returns
        -------
        NextTokenData

        Raises
        ------
        ValueError
            More contexts than there are at that checkpoint, none, or no such checkpoint.

        Examples
        --------
        >>> from ntpnb_book import language_model
        >>> language_model().data(40)
        NextTokenData(40 contexts, 1027 tokens, W: 1027 × 64, H = 1.3194 nats)
        """
        last = len(self.epochs) - 1
        number = last if checkpoint is None else as_integer("checkpoint", checkpoint, 0)
        if number > last:
            raise ValueError(f"checkpoint is {number}; it must be at most {last}")
        states = self.hidden if number == last else self.first_hidden[number]
        count = len(states) if num_contexts is None else as_integer("num_contexts", num_contexts, 1)
        if count > len(states):
            raise ValueError(f"num_contexts is {count}; there are {len(states)} at this checkpoint")
        return NextTokenData.from_counts(states[:count], self.counts[:count])

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
        >>> from ntpnb_book import language_model
        >>> model = language_model()
        >>> model.spell(model.contexts[0])
        'in the beginning'
        """
        return spelled(tokens, self.words)


def language_model() -> LanguageModel:
    """Load what a transformer of two blocks learned from Genesis 1 to 14 in windows of four words.

    It reads three words and predicts the fourth: 64 dimensions, four heads, 1027 words, 6305
    distinct contexts. It was trained once, by ``python -m language_model`` in the repository;
    ``provenance`` has its settings. The files come with the book; the text, of the King James
    Version, is in the public domain.

    Returns
    -------
    LanguageModel

    Examples
    --------
    >>> from ntpnb_book import language_model
    >>> model = language_model()
    >>> model.hidden.shape, model.decoders.shape[1:], model.epochs[-1]
    ((6305, 64), (1027, 64), np.int64(120))
    """
    folder = files("ntpnb_book").joinpath("data_files")
    with as_file(folder.joinpath("language_model_margin.npz")) as path, np.load(path) as held:
        multipliers = (held["weights"], (held["contexts"], held["losers"]))
        large_margin = held["W"].astype(np.float64)
    with as_file(folder.joinpath("language_model.npz")) as path, np.load(path) as held:
        words = tuple(held["words"].tolist())
        contexts = held["contexts"].astype(np.intp)
        pairs = (held["context_of"], held["next_words"])
        occurrences = np.ones(len(held["next_words"]), np.intp)
        counts = csr_array((occurrences, pairs), shape=(len(contexts), len(words)))
        return LanguageModel(
            words=words,
            contexts=contexts,
            counts=counts,
            hidden=held["hidden"].astype(np.float64),
            epochs=held["epochs"].astype(np.intp),
            decoders=held["decoders"].astype(np.float64),
            first_hidden=held["first_hidden"].astype(np.float64),
            large_margin=large_margin,
            margin_multipliers=csr_array(multipliers, shape=counts.shape),
            provenance=json.loads(held["provenance"].item()),
        )
