"""A text as data: from a string or a file, by any tokenizer and embedding, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ntpnb
from ntpnb.reporting import reading
from ntpnb.reporting.reading import TextOptions, load_text, text_data

TEXT = "The cat sat on the mat, and the dog sat on the rug; and the cat saw the dog."


def same_data(one, other):
    return (
        np.array_equal(one.context_embeddings, other.context_embeddings)
        and np.array_equal(one.target_probs, other.target_probs)
        and np.array_equal(one.context_probs, other.context_probs)
        and one.contexts == other.contexts
    )


# -- where a text comes from ----------------------------------------------------------------------


@pytest.mark.parametrize("start", ["", "\N{BYTE ORDER MARK}"])
def test_a_file_is_read(tmp_path, start):
    path = tmp_path / "story.txt"
    path.write_text(start + TEXT + "\nÉtait-ce l’été ?", encoding="utf-8")
    from_file = ntpnb.report(path, context_length=1)
    from_text = ntpnb.report(TEXT + "\nÉtait-ce l’été ?", context_length=1)
    assert from_file.words == from_text.words
    assert same_data(from_file.data, from_text.data)
    assert str(from_file) == str(from_text)


def test_the_name_of_a_file_is_no_text(tmp_path, monkeypatch):
    path = tmp_path / "my own story.txt"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(ValueError, match="is the name of a file") as caught:
        ntpnb.report(str(path))
    assert f"pathlib.Path({str(path)!r}) reads" in str(caught.value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "we see what we see").touch()
    with pytest.raises(ValueError, match="is the name of a file"):
        ntpnb.report("we see what we see")


@pytest.mark.parametrize("name", ["folder/book.txt", "book.txt", "C:\\texts\\a.md", "../x.html"])
def test_what_looks_like_a_missing_file_is_no_text(name):
    with pytest.raises(ValueError, match="looks like the name of a file, but there is no such"):
        ntpnb.report(name)


@pytest.mark.parametrize(
    "text", ["we and/or you do.", "x" * 300 + " y z", "either/or/both", "a.\nb"]
)
def test_a_text_may_have_points_and_strokes(text):
    assert load_text(text) == text


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        ntpnb.report(tmp_path / "missing.txt")
    with pytest.raises(OSError, match=tmp_path.name):
        ntpnb.report(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Où l'été".encode("latin-1"), "is not in UTF-8: byte 1 is 0xf9; save it as UTF-8"),
        ("a text of four words".encode("utf-16"), "is not in UTF-8: byte 0 is 0xff"),
        ("a text".encode("utf-16-le"), "holds a zero byte at 1"),
        (b"\x89PNG\r\n\x1a\n", "is not in UTF-8: byte 0 is 0x89"),
    ],
)
def test_a_file_that_is_no_text_in_utf8_is_explained(tmp_path, content, message):
    path = tmp_path / "story.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"story\.txt'") as caught:
        ntpnb.report(path)
    assert message in str(caught.value)


@given(st.text(max_size=30))
def test_any_string_ends_in_a_text_or_in_one_clear_error(text):
    try:
        found = text_data(load_text(text), TextOptions(context_length=1, dim=2))
    except ValueError as error:
        said = str(error)
    else:
        said = f"data is a text of {len(found.words)} words"
        assert len(found.words) == found.data.vocab_size
    assert said.startswith("data is ")


# -- tokenizers -----------------------------------------------------------------------------------


def test_a_tokenizer_decides_what_a_token_is():
    found = ntpnb.report(TEXT, context_length=1, tokenizer=str.split)
    assert "mat," in found.words
    assert "The" in found.words
    letters = ntpnb.report("abracadabra", context_length=1, tokenizer=list)
    follow = {found: set() for found in "abcdr"}
    for one, next_one in zip("abracadabra", "bracadabra", strict=False):
        follow[one].add(next_one)
    for (token,), row in zip(letters.data.contexts, letters.data.support, strict=True):
        assert {letters.words[v] for v in np.flatnonzero(row)} == follow[letters.words[token]]


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (5, "tokenizer is of type int; a function from a text to a list of strings is needed"),
        (str.upper, "tokenizer returned a str; a list of strings is needed"),
        (lambda text: [1, 2, 3], "tokenizer returned 1 at place 0, of type int"),
        (lambda text: None, "tokenizer returned a NoneType"),
    ],
)
def test_a_tokenizer_that_gives_no_words_is_explained(tokenizer, message):
    with pytest.raises(TypeError) as caught:
        ntpnb.report(TEXT, tokenizer=tokenizer)
    assert message in str(caught.value)


# -- embeddings -----------------------------------------------------------------------------------


def word_vectors(found, dim):
    """The vectors that the default seed gives to words, drawn as the docstring says."""
    return np.random.default_rng(0).standard_normal((len(found.words), dim))


def test_random_embeddings_are_drawn_context_by_context():
    found = ntpnb.report(TEXT, dim=5)
    drawn = np.random.default_rng(0).standard_normal((len(found.data.contexts), 5))
    np.testing.assert_array_equal(found.data.context_embeddings, drawn)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_embeddings_from_word_vectors(length):
    options = {"context_length": length, "dim": 6}
    mean = ntpnb.report(TEXT, embedding="mean", **options)
    vectors = word_vectors(mean, 6)
    expected = [np.mean([vectors[v] for v in context], axis=0) for context in mean.data.contexts]
    np.testing.assert_allclose(mean.data.context_embeddings, expected, atol=1e-15)
    assert "means of random word vectors" in str(mean)

    written = ntpnb.report(TEXT, embedding="concatenated", **options)
    vectors = word_vectors(written, 6 // length)
    expected = [np.concatenate([vectors[v] for v in c]) for c in written.data.contexts]
    np.testing.assert_array_equal(written.data.context_embeddings, expected)
    assert "random word vectors in a row" in str(written)


def test_default_dimensions():
    random, mean, written = (
        ntpnb.report(TEXT, embedding=name) for name in ("random", "mean", "concatenated")
    )
    assert random.data.shape[1] == len(random.data.contexts)
    assert mean.data.shape[1] == len(mean.words)
    assert written.data.shape[1] == 2 * len(written.words)


def test_a_large_text_gets_fewer_dimensions(monkeypatch):
    monkeypatch.setattr(reading, "INDEPENDENT_UP_TO", 9)
    monkeypatch.setattr(reading, "LARGE_TEXT_DIM", 4)
    shapes = {
        name: text_data(TEXT, TextOptions(embedding=name)).data.shape for name in reading.EMBEDDINGS
    }
    assert shapes == {"random": (9, 4), "mean": (9, 9), "concatenated": (9, 18)}


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"words": ["a"]}, ValueError, "words cannot be given with a text"),
        (
            {"embedding": "glove"},
            ValueError,
            "embedding is 'glove'; it must be one of random, mean",
        ),
        ({"embedding": "concatenated", "dim": 5}, ValueError, "dim is 5;.*a multiple of"),
        ({"dim": 0}, ValueError, "dim is 0"),
        (
            {"dim": 10**9},
            ValueError,
            r"embedding the contexts needs a dense array of \d+ × 1000000000 .*smaller dim",
        ),
        ({"dim": "5"}, TypeError, "dim is of type str"),
        ({"context_length": 1.5}, ValueError, "context_length is 1.5"),
        ({"seed": -1}, ValueError, "seed is -1"),
    ],
)
def test_options_of_a_text_that_cannot_be_used(options, error, message):
    with pytest.raises(error, match=message):
        ntpnb.report(TEXT, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"context_length": 2},
        {"dim": 3},
        {"seed": 0},
        {"tokenizer": str.split},
        {"embedding": "random"},
    ],
)
@pytest.mark.parametrize("give", [lambda data: data, ntpnb.implicit_bias])
def test_options_that_would_be_ignored_are_refused(options, give):
    [name] = options
    with pytest.raises(ValueError, match=f"{name} says how a text becomes data; data is of type"):
        ntpnb.report(give(ntpnb.datasets.toy()), **options)


@pytest.mark.parametrize("words", [["a", "b", "c", "d", 5], [1, 2, 3, 4, 5]])
def test_names_of_tokens_are_strings(words):
    with pytest.raises(TypeError, match=r"words\[\d\] is of type int; a str is needed"):
        ntpnb.report(ntpnb.datasets.toy(), words=words)


def test_bytes_are_no_text():
    with pytest.raises(TypeError, match="data is of type bytes"):
        ntpnb.report(TEXT.encode())
