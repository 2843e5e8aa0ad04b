"""Texts: their words, which become tokens, and random vectors for their contexts."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.validation import (
    FloatArray,
    as_indices,
    as_integer,
    as_seed,
    refuse_any,
    require_choice,
    require_dense,
    require_function,
    require_range,
    require_type,
)

Tokenizer = Callable[[str], Sequence[str]]
Embedding = Literal["random", "mean", "concatenated"]
EMBEDDINGS: tuple[Embedding, ...] = get_args(Embedding)
Embed = Callable[[Sequence[int]], FloatArray]

INDEPENDENT_UP_TO = 2000
"""So many vectors are drawn linearly independent where no dimension is given."""

LARGE_TEXT_DIM = 256
"""Their dimension where they are more: about what a model of such a text would have."""

# One run of signs that ends like a file's name: a point, and a letter with at most four more.
FILE_NAME = re.compile(r"\S+\.[A-Za-z]\w{0,4}")

# Scripts whose words are not separated by spaces: each character is a token, with its marks.
UNSPACED = (
    "\u3005-\u3007\u3040-\u309f"  # ideographic iteration mark and zero, hiragana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u0e00-\u0e4f\u0e80-\u0ecf\u1000-\u103f\u1780-\u17df"  # Thai, Lao, Burmese, Khmer; no digits
)
# Pictures: one sign, or a flag of two letters, with signs that choose its form, and joined ones.
PICTURE = "(?:[\u231a\u231b\u23e9-\u23fa\u2600-\u2767\u2776-\u27bf"  # without ornate brackets
PICTURE += "\u2b00-\u2bff\U0001f000-\U0001faff]"
PICTURE += "[\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*)"
FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
SIGN = r"[^\w\s]\ufe0f\u20e3?"  # any that is asked to look like a picture, or to be a key
APOSTROPHES = str.maketrans({"\u2019": "'", "\uff07": "'"})  # the typographic and the wide one
VARIATIONS = "".join(map(chr, range(0xFE00, 0xFE10)))  # they choose the form of the sign before
JOINERS = "\u200c\u200d"  # without width, inside words of Persian and of Indian languages
SOFT_HYPHEN = "\u00ad"  # marks where a word may be broken, and is no part of it


def split_words(text: str) -> list[str]:
    """Split a text into its words, in lower case and in order.

    A word is a run of letters, combining marks and digits of any alphabet. Apostrophes between
    letters belong to it, of either shape (both become the straight one), and so do points and
    commas between digits. Where a script puts no spaces between words (Han, hiragana, Thai, Lao,
    Burmese, Khmer), each character is a word of its own, together with its marks. So is an emoji,
    with the signs that choose its form, one that is joined of several, and a flag; and so are marks
    that have no letter. All other signs separate words and are dropped. The text is brought to
    Unicode's composed form (NFC) first, so that an accent counts the same however it was typed.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str
        Empty where the text has none of these.

    References
    ----------
    Unicode Standard Annexes 15 (normalization forms) and 29 (word boundaries), of which this is a
    short form.

    Examples
    --------
    >>> from ntpnb.problem.text import split_words
    >>> split_words("In the 1st place, it’s 'light'.")
    ['in', 'the', '1st', 'place', "it's", 'light']
    >>> split_words("東京 has 3.5 %")
    ['東', '京', 'has', '3.5']
    >>> split_words("so👍🏽 👩‍💻! ☎️, ©️")
    ['so', '👍🏽', '👩‍💻', '☎️', '©️']
    """
    lower = unicodedata.normalize("NFC", text.lower())
    plain = lower.translate(APOSTROPHES).replace(SOFT_HYPHEN, "").replace("_", " ")
    return _word_pattern(plain).findall(plain)


def _word_pattern(text: str) -> re.Pattern[str]:
    r"""Build the pattern of a word, with those combining marks that the text uses.

    The sign ``\w`` of regular expressions stands for letters and digits, and leaves out marks.
    """
    marks = sorted(sign for sign in set(text) if unicodedata.category(sign).startswith("M"))
    seen_alone = "".join(sign for sign in marks if sign not in VARIATIONS)
    inside = rf"[\w{''.join(marks)}{JOINERS}]"
    spaced = rf"[^\W{UNSPACED}](?:(?![{UNSPACED}]){inside})*"
    joined = rf"(?:'|(?<=\d)[.,](?=\d)){spaced}"
    unspaced = rf"[{UNSPACED}](?:(?!\w){inside})*"
    pictures = rf"{FLAG}|{PICTURE}(?:\u200d{PICTURE})*|{SIGN}"
    alone = f"|[{seen_alone}]+" if seen_alone else ""
    return re.compile(rf"{spaced}(?:{joined})*|{unspaced}|{pictures}{alone}")


def numbered(said: Iterable[str]) -> dict[str, int]:
    """Number the distinct words in alphabetical order.

    Examples
    --------
    >>> from ntpnb.problem.text import numbered
    >>> numbered(["we", "see", "we"])
    {'see': 0, 'we': 1}
    """
    return {word: token for token, word in enumerate(sorted(set(said)))}


def spelled(tokens: ArrayLike, words: Sequence[str]) -> str:
    """Write tokens as words, separated by spaces; ValueError for a token that is no word's."""
    indices = as_indices("tokens", tokens)
    require_range("tokens", indices, len(words))
    return " ".join(words[v] for v in indices)


def tokenized(text: str, tokenizer: Tokenizer | None) -> Sequence[str]:
    """Split a text by a tokenizer, :func:`split_words` if None, and require strings of it.

    Raises
    ------
    TypeError
        The text is no string, or the tokenizer no function that gives a list of them.
    ValueError
        The text is one word that looks like the name of a file.

    Examples
    --------
    >>> from ntpnb.problem.text import tokenized
    >>> tokenized("We see.", None), tokenized("We see.", str.split)
    (['we', 'see'], ['We', 'see.'])
    """
    require_type("text", text, str, "a str")
    if FILE_NAME.fullmatch(text):
        raise ValueError(
            f"text is {text!r}, which looks like the name of a file; "
            f"pathlib.Path({text!r}).read_text('utf-8') is the text in it"
        )
    if tokenizer is None:
        return split_words(text)
    require_function("tokenizer", tokenizer, "a function from a text to a list of strings")
    said = tokenizer(text)
    require_type("what tokenizer returned", said, list | tuple, "a list of strings")
    for place, word in enumerate(said):
        require_type(f"entry {place} of what tokenizer returned", word, str, "a str")
    return said


def embedding_of(
    contexts: Sequence[tuple[int, ...]], vocab_size: int, name: str, dim: int | None, seed: int
) -> Embed:
    """Draw what an embedding needs, and return the function that embeds a context.

    Parameters
    ----------
    contexts : sequence of tuple of int
        The distinct contexts, all of one length.
    vocab_size : int
    name : {"random", "mean", "concatenated"}
    dim : int, optional
        Dimension of an embedding. Default: that of as many independent vectors as are drawn.
    seed : int

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        No such embedding, a dimension or seed outside its range, or too large a table.

    Examples
    --------
    >>> from ntpnb.problem.text import embedding_of
    >>> embed = embedding_of([(0, 1), (1, 1)], 2, "mean", dim=3, seed=0)
    >>> embed((0, 1)).shape
    (3,)
    """
    require_choice("embedding", name, EMBEDDINGS)
    context_length = len(contexts[0])
    if dim is None:
        num_vectors = len(contexts) if name == "random" else vocab_size
        dim = num_vectors if num_vectors <= INDEPENDENT_UP_TO else LARGE_TEXT_DIM
        dim *= context_length if name == "concatenated" else 1
    else:
        dim = as_integer("dim", dim, 1)
    require_dense("embedding the contexts", (len(contexts), dim), "a smaller dim is needed")
    rng = np.random.default_rng(as_seed("seed", seed))

    if name == "random":
        return lambda context: rng.standard_normal(dim)
    if name == "mean":
        means_of = rng.standard_normal((vocab_size, dim))
        return lambda context: means_of[list(context)].mean(axis=0)
    if dim % context_length:
        raise ValueError(
            f"dim is {dim}; with embedding='concatenated' it must be a multiple of "
            f"context_length = {context_length}"
        )
    vectors = rng.standard_normal((vocab_size, dim // context_length))
    return lambda context: vectors[list(context)].ravel()


def as_names(name: str, words: Any, vocab_size: int) -> tuple[str, ...]:
    """Names of all tokens, as they are given for an argument, or an error that says its name.

    Parameters
    ----------
    name : str
    words : sequence of str, or mapping from str to int
        In the tokens' order, or with their numbers, as tokenizers keep their vocabulary. Numbers
        after the last one of a mapping, with which decoders are padded, stand for themselves.
    vocab_size : int

    Raises
    ------
    TypeError
        No sequence of strings, and no mapping of strings to integers.
    ValueError
        Not one for each token.

    Examples
    --------
    >>> from ntpnb.problem.text import as_names
    >>> as_names("words", ["yes", "no"], 2), as_names("words", {"no": 1, "yes": 0}, 2)
    (('yes', 'no'), ('yes', 'no'))
    """
    if isinstance(words, Mapping):
        words = _by_number(name, words)
        words += map(str, range(len(words), vocab_size))
    is_sequence = hasattr(words, "__len__") and hasattr(words, "__getitem__")
    if isinstance(words, str | bytes) or not is_sequence or getattr(words, "shape", None) == ():
        raise TypeError(
            f"{name} is of type {type(words).__name__}; a sequence of names, or a dict from names "
            "to numbers, is needed"
        )
    names = list(words)
    if len(names) != vocab_size:
        raise ValueError(f"{name} has {len(names)} entries; the vocabulary has {vocab_size}")
    for token, word in enumerate(names):
        require_type(f"{name}[{token}]", word, str, "a str")
    return tuple(map(str, names))


def _by_number(name: str, number_of: Mapping[Any, Any]) -> list[Any]:
    """The keys of a mapping in the order of their numbers, which must be those from 0 on."""
    numbers = as_indices(f"the numbers in {name}", list(number_of.values()))
    by_number = np.argsort(numbers, kind="stable")
    refuse_any(
        numbers[by_number] != np.arange(len(numbers)),
        lambda k: (
            f"{name} has the number {numbers[by_number[k]]} where {k} is needed; each of the "
            f"{len(numbers)} numbers from 0 on must be that of one word"
        ),
    )
    words = list(number_of)
    return [words[k] for k in by_number]
