"""A text as data: from a string or a file, by any tokenizer and embedding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import same_data

import ntpnb
from ntpnb.problem import text as texts

from_text = ntpnb.NextTokenData.from_text

TEXT = "The cat sat on the mat, and the dog sat on the rug; and the cat saw the dog."


# -- texts and no texts ---------------------------------------------------------------------------


def test_a_report_takes_a_text_as_the_constructor_does():
    found = ntpnb.report(TEXT)
    data = from_text(TEXT)
    assert found.words == data.words
    assert same_data(found.data, data)
    assert str(found) == str(ntpnb.report(data))
    assert found.data.embedding == "random"


@pytest.mark.parametrize("name", ["folder/book.txt", "book.txt", "C:\\texts\\a.md", "../x.html"])
def test_what_looks_like_a_file_is_no_text(name):
    with pytest.raises(ValueError, match="looks like the name of a file") as caught:
        ntpnb.report(name)
    assert f"pathlib.Path({name!r}).read_text" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["we and/or you do.", "x" * 300 + " y z", "either/or/both they do", "a.\nb c"]
)
def test_a_text_may_have_points_and_strokes(text):
    assert len(from_text(text).words) >= 3


@given(st.text(max_size=30))
def test_any_string_ends_in_data_or_in_one_clear_error(text):
    said = "text "
    try:
        data = from_text(text, context_length=1, dim=2)
    except ValueError as error:
        said = str(error)
    else:
        assert len(data.words) == data.vocab_size
    assert said.startswith("text ")


def test_words_and_embedding_last_as_long_as_they_are_true(tmp_path):
    data = from_text(TEXT)
    frequent = np.arange(1.0, 1 + data.num_contexts)
    weighted = data.replace(context_probs=frequent / frequent.sum())
    assert (weighted.words, weighted.embedding) == (data.words, "random")
    moved = data.replace(context_embeddings=np.eye(data.num_contexts))
    assert (moved.words, moved.embedding) == (data.words, None)
    fewer = data.replace(target_probs=np.eye(data.num_contexts))
    assert fewer.words is None
    data.save(tmp_path / "data.npz")
    again = ntpnb.load(tmp_path / "data.npz")
    assert (again.words, again.embedding) == (data.words, "random")


# -- tokenizers -----------------------------------------------------------------------------------


def test_a_tokenizer_decides_what_a_token_is():
    found = from_text(TEXT, context_length=1, tokenizer=str.split)
    assert "mat," in found.words
    assert "The" in found.words
    letters = from_text("abracadabra", context_length=1, tokenizer=list)
    follow = {found: set() for found in "abcdr"}
    for one, next_one in zip("abracadabra", "bracadabra", strict=False):
        follow[one].add(next_one)
    for (token,), row in zip(letters.contexts, letters.support, strict=True):
        assert {letters.words[v] for v in np.flatnonzero(row)} == follow[letters.words[token]]


# -- embeddings -----------------------------------------------------------------------------------


def word_vectors(found, dim):
    """The vectors that the default seed gives to words, drawn as the docstring says."""
    return np.random.default_rng(0).standard_normal((len(found.words), dim))


def test_random_embeddings_are_drawn_context_by_context():
    found = from_text(TEXT, dim=5)
    drawn = np.random.default_rng(0).standard_normal((len(found.contexts), 5))
    np.testing.assert_array_equal(found.context_embeddings, drawn)


@pytest.mark.parametrize("length", [1, 2])
def test_embeddings_from_word_vectors(length):
    options = {"context_length": length, "dim": 6}
    mean = from_text(TEXT, embedding="mean", **options)
    vectors = word_vectors(mean, 6)
    expected = [np.mean([vectors[v] for v in context], axis=0) for context in mean.contexts]
    np.testing.assert_allclose(mean.context_embeddings, expected, atol=1e-15)
    assert "means of random word vectors" in str(ntpnb.report(mean))

    written = from_text(TEXT, embedding="concatenated", **options)
    vectors = word_vectors(written, 6 // length)
    expected = [np.concatenate([vectors[v] for v in c]) for c in written.contexts]
    np.testing.assert_array_equal(written.context_embeddings, expected)
    assert "random word vectors in a row" in str(ntpnb.report(written))


def test_default_dimensions():
    random, mean, written = (
        from_text(TEXT, embedding=name) for name in ("random", "mean", "concatenated")
    )
    assert random.shape[1] == len(random.contexts)
    assert mean.shape[1] == len(mean.words)
    assert written.shape[1] == 2 * len(written.words)


def test_a_large_text_gets_fewer_dimensions(monkeypatch):
    monkeypatch.setattr(texts, "INDEPENDENT_UP_TO", 9)
    monkeypatch.setattr(texts, "LARGE_TEXT_DIM", 4)
    shapes = {name: from_text(TEXT, embedding=name).shape for name in texts.EMBEDDINGS}
    assert shapes == {"random": (9, 4), "mean": (9, 9), "concatenated": (9, 18)}
