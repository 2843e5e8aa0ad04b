"""A text, or the file that holds it, as data: words become tokens, and contexts get embeddings."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.text import split_words
from ntpnb.validation import as_integer, as_seed, require_dense

Tokenizer = Callable[[str], Sequence[str]]
Embedding = Literal["random", "mean", "concatenated"]
EMBEDDINGS: tuple[Embedding, ...] = get_args(Embedding)

DEFAULT_CONTEXT_LENGTH = 2
# Up to so many vectors are drawn linearly independent where no dimension is given. Beyond that the
# matrices would be large, and a dimension far below is what a model of the text would have.
INDEPENDENT_UP_TO = 2000
LARGE_TEXT_DIM = 256
# One run of signs that ends like a file's name: a point, and a letter with at most four more.
FILE_NAME = re.compile(r"\S+\.[A-Za-z]\w{0,4}")


@dataclass(frozen=True)
class TextOptions:
    """How a text becomes data; None stands for the default, which :func:`ntpnb.report` states."""

    context_length: int | None = None
    dim: int | None = None
    seed: int | None = None
    tokenizer: Tokenizer | None = None
    embedding: Embedding | None = None


class TextData(NamedTuple):
    """A text as data, the words that its tokens stand for, and how contexts were embedded."""

    data: NextTokenData
    words: tuple[str, ...]
    embedding: Embedding


def load_text(source: str | os.PathLike[str]) -> str:
    """Return a text as it is given, or from the file that a path names.

    Parameters
    ----------
    source : str or path
        A path is a ``pathlib.Path``, or another object of that kind; a string is the text itself.

    Returns
    -------
    str
        Without the byte order mark with which some files begin.

    Raises
    ------
    ValueError
        The file is no text in UTF-8, or a string is the name of a file.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> from ntpnb.reporting.reading import load_text
    >>> load_text("the text itself")
    'the text itself'
    """
    if isinstance(source, str):
        _refuse_file_name(source)
        return source
    return decode(Path(source).read_bytes(), f"the file {os.fspath(source)!r}")


def decode(content: bytes, name: str) -> str:
    r"""Decode UTF-8, or explain.

    Parameters
    ----------
    content : bytes
    name : str
        Where they come from, for the error's message.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        The bytes are no text in UTF-8.

    Examples
    --------
    >>> from ntpnb.reporting.reading import decode
    >>> decode(b"caf\xc3\xa9", "the menu")
    'café'
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not in UTF-8: byte {error.start} is {content[error.start]:#04x}; "
            "save it as UTF-8, or decode it and give the text"
        ) from None
    if "\0" in text:
        raise ValueError(f"{name} holds a zero byte at {text.index(chr(0))}; a text has none")
    return text


def _refuse_file_name(text: str) -> None:
    """Raise where a string is no text but the name of a file, whose words nobody asks about."""
    if "\n" in text or "\0" in text:
        return
    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, for example
        is_file = False
    if is_file:
        raise ValueError(
            f"data is {text!r}, which is the name of a file; pathlib.Path({text!r}) reads the file"
        )
    if FILE_NAME.fullmatch(text):
        raise ValueError(
            f"data is {text!r}, which looks like the name of a file, but there is no such file; "
            "a text, or the pathlib.Path of a file, is needed"
        )


def text_data(text: str, options: TextOptions) -> TextData:
    """Count the contexts of a text and the words that follow them.

    Parameters
    ----------
    text : str
    options : TextOptions

    Returns
    -------
    TextData

    Raises
    ------
    ValueError
        Fewer than ``context_length + 1`` words, or an option outside its range.
    TypeError
        An option of the wrong type, or a tokenizer that returns something else than strings.

    Examples
    --------
    >>> from ntpnb.reporting.reading import TextOptions, text_data
    >>> found = text_data("we see what we see", TextOptions(context_length=1))
    >>> found.words, found.data
    (('see', 'we', 'what'), NextTokenData(3 contexts, 3 tokens, W: 3 × 3, H = 0.0000 nats))
    """
    length = DEFAULT_CONTEXT_LENGTH
    if options.context_length is not None:
        length = as_integer("context_length", options.context_length, 1)
    said = _tokenized(text, options.tokenizer)
    if len(said) <= length:
        raise ValueError(
            f"data is a text of {len(said)} words; at least context_length + 1 = {length + 1} "
            "are needed"
        )
    words = sorted(set(said))
    token_of = {word: token for token, word in enumerate(words)}
    tokens = [token_of[word] for word in said]
    embedding, embed = _embedding(tokens, len(words), length, options)
    data = NextTokenData.from_sequences(
        [tokens], embed, context_length=length, vocab_size=len(words)
    )
    return TextData(data, tuple(words), embedding)


def _tokenized(text: str, tokenizer: Tokenizer | None) -> Sequence[str]:
    """Split a text by the given tokenizer, and require strings of it."""
    if tokenizer is None:
        return split_words(text)
    if not callable(tokenizer):
        raise TypeError(
            f"tokenizer is of type {type(tokenizer).__name__}; a function from a text to a list of "
            "strings is needed"
        )
    said = tokenizer(text)
    if not isinstance(said, list | tuple):
        raise TypeError(f"tokenizer returned a {type(said).__name__}; a list of strings is needed")
    for place, word in enumerate(said):
        if not isinstance(word, str):
            raise TypeError(
                f"tokenizer returned {word!r} at place {place}, of type {type(word).__name__}; "
                "a list of strings is needed"
            )
    return said


class _Embedded(NamedTuple):
    """The name of an embedding, and the function that embeds a context."""

    name: Embedding
    embed: Callable[[Sequence[int]], FloatArray]


def _embedding(
    tokens: Sequence[int], vocab_size: int, context_length: int, options: TextOptions
) -> _Embedded:
    """Choose the embedding of contexts, and draw what it needs."""
    name = "random" if options.embedding is None else options.embedding
    if name not in EMBEDDINGS:
        raise ValueError(f"embedding is {name!r}; it must be one of {', '.join(EMBEDDINGS)}")
    starts = range(len(tokens) - context_length)
    num_contexts = len({tuple(tokens[start : start + context_length]) for start in starts})
    if options.dim is None:
        num_vectors = num_contexts if name == "random" else vocab_size
        dim = num_vectors if num_vectors <= INDEPENDENT_UP_TO else LARGE_TEXT_DIM
        dim *= context_length if name == "concatenated" else 1
    else:
        dim = as_integer("dim", options.dim, 1)
    require_dense("embedding the contexts", (num_contexts, dim), "a smaller dim is needed")
    seed = 0 if options.seed is None else options.seed
    rng = np.random.default_rng(as_seed("seed", seed))

    if name == "random":
        return _Embedded(name, lambda context: rng.standard_normal(dim))
    if name == "mean":
        vectors = rng.standard_normal((vocab_size, dim))
        return _Embedded(name, lambda context: vectors[list(context)].mean(axis=0))
    if dim % context_length:
        raise ValueError(
            f"dim is {dim}; with embedding='concatenated' it must be a multiple of "
            f"context_length = {context_length}"
        )
    vectors = rng.standard_normal((vocab_size, dim // context_length))
    return _Embedded(name, lambda context: vectors[list(context)].ravel())
