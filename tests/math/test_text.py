"""The one tokeniser: what is a word, and what it makes of the shipped text."""

import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntpnb import datasets
from ntpnb.problem.text import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("3 + 4 = 7", []),
        ("And God said, Let there be", ["and", "god", "said", "let", "there", "be"]),
        (
            "'Tis the brothers' house, a brother's",
            ["tis", "the", "brothers", "house", "a", "brother's"],
        ),
        ("Où l'été n'était plus", ["où", "l'été", "n'était", "plus"]),
        ("x_y z2z well-known", ["x", "y", "z", "z", "well", "known"]),
    ],
)
def test_words_by_hand(text, words):
    assert split_words(text) == words


@given(st.text(st.characters(categories=["L", "Nd", "P", "Z"])))
def test_words_are_letters_with_apostrophes_between_them(text):
    words = split_words(text)
    for word in words:
        assert all(part.isalpha() for part in word.split("'"))
    assert split_words(" ".join(words)) == words
    letters = [sign for sign in text.lower() if sign.isalpha()]
    assert [sign for word in words for sign in word if sign != "'"] == letters


def test_words_of_the_shipped_text_are_its_runs_of_letters_and_apostrophes():
    corpus = datasets.text_corpus(106)
    lines = files("ntpnb").joinpath("data_files/genesis.txt").read_text("utf-8").splitlines()
    verses = [line for line in lines if not line.startswith("#")]
    for line, verse in zip(verses, corpus.verses, strict=True):
        assert corpus.spell(verse) == " ".join(re.findall(r"[a-z']+", line.lower()))
