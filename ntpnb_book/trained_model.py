"""A small language model, trained once: what its decoder sees and learns, for chapter 21."""

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ntpnb.basics.saving import Result
from ntpnb.basics.validation import FloatArray, IntArray, as_integer
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.text import spelled

DATA_FILES = files("ntpnb_book").joinpath("data_files")


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
    ``provenance`` has its settings. The file comes with the book; the text, of the King James
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
    with as_file(DATA_FILES.joinpath("language_model.npz")) as path, np.load(path) as held:
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
            provenance=json.loads(held["provenance"].item()),
        )


def margin_multipliers() -> csr_array:
    """The multipliers of the max-margin problem of all contexts of :func:`language_model`.

    They were found by ``python -m language_model.max_margin`` in the repository, and prove by
    themselves what they are for.

    Returns
    -------
    scipy.sparse.csr_array, shape (m, V)
        Positive numbers ``λ_jv`` for pairs of the words that follow a context and another word.
        With ``f_j`` the mean of the one-hot vectors of the words that follow context ``j``,
        ``W^mm`` is ``Σ λ_jv (f_j − e_v) h_jᵀ`` without its part in ``F``, and no matrix of length
        one has a larger margin than the length of this over ``Σ λ_jv``.

    Examples
    --------
    >>> from ntpnb_book import margin_multipliers
    >>> margin_multipliers().shape
    (6305, 1027)
    """
    model = language_model()
    with as_file(DATA_FILES.joinpath("language_model_margin.npz")) as path, np.load(path) as held:
        places = (held["contexts"], held["losers"])
        return csr_array((held["weights"], places), shape=model.counts.shape)


def language_models() -> NDArray[np.void]:
    """What was measured in 36 such models, of other texts, seeds, methods and widths.

    They were trained and measured once, by ``python -m language_model.study`` in the repository.

    Returns
    -------
    ndarray of records, shape (n,)
        One for each model and checkpoint. Its fields are ``text``, ``width``, ``method``, ``seed``
        and ``epoch``; ``entropy`` and ``excess``, in nats; ``few_angle``, the angle in degrees of
        the decoder with ``W^mm`` of the first 300 contexts with their hidden states at that time,
        and ``few_kept``, that of the first trained checkpoint's decoder; before training and at its
        end ``separable``, of all contexts: yes, no, or undecided; and at the end ``margin`` and
        ``angle``, the largest margin of all contexts and the decoder's angle with ``W^mm``, and
        ``odds``, the distance of the decoder's part in ``F`` from ``W*``, relative to ``W*``. What
        was not asked or does not exist is nan.

    Examples
    --------
    >>> from ntpnb_book import language_models
    >>> sorted(set(language_models()["method"].tolist()))
    ['Adam', 'Muon', 'SGD']
    """
    with as_file(DATA_FILES.joinpath("language_models.csv")) as path:
        table: NDArray[np.void] = np.genfromtxt(
            path, delimiter=",", names=True, dtype=None, encoding="utf-8"
        )
    return table
