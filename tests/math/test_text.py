"""The one tokeniser: what is a word, and what it makes of the shipped text."""

import re
import unicodedata
from collections import UserDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntpnb.problem.text import as_names, split_words

# Letters of scripts with spaces between words, marks, digits, punctuation and separators.
SPACED = st.characters(
    categories=["L", "M", "Nd", "P", "Z"],
    exclude_characters=[chr(code) for code in range(0x0E00, 0x1800)],
    max_codepoint=0x2FFF,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("3 + 4 = 7", "3 4 7"),
        ("And God said, Let there be", "and god said let there be"),
        ("'Tis the brothers' house, a brother's", "tis the brothers house a brother's"),
        ("Où l'été n'était plus", "où l'été n'était plus"),
        ("x_y z2z well-known", "x y z2z well known"),
        ("don’t don't rock’n’roll ’tis", "don't don't rock'n'roll tis"),
        ("the 1st of 3.14 or 1,000. 5, 6", "the 1st of 3.14 or 1,000 5 6"),
        ("cafe\u0301 and caf\u00e9", "caf\u00e9 and caf\u00e9"),
        ("नमस्ते दुनिया", "नमस्ते दुनिया"),
        ("می\u200cخواهم بروم", "می\u200cخواهم بروم"),
        ("co\u00adoperate", "cooperate"),
        ("I\u0307stanbul İstanbul", "i\u0307stanbul i\u0307stanbul"),
        ("今日は東京タワー", "今 日 は 東 京 タワー"),
        ("안녕하세요 세계", "안녕하세요 세계"),
        ("ดีครับ ๑๒", "ดี ค รั บ ๑๒"),
        ("e.g. the end.3", "e g the end 3"),
        ("\u0301 alone", "\u0301 alone"),
        ("well done👍🏽👍, really ❤️", "well done 👍🏽 👍 really ❤️"),
        ("👩‍💻 of 🇫🇷🇩🇪 at ☕", "👩‍💻 of 🇫🇷 🇩🇪 at ☕"),
        ("press 1️⃣ © ️", "press 1️⃣"),
        ("❨so❩ ❤️", "so ❤️"),
    ],
)
def test_words_by_hand(text, words):
    assert split_words(text) == words.split()


@given(st.text(SPACED))
def test_every_letter_and_digit_is_in_a_word_and_in_order(text):
    words = split_words(text)
    composed = unicodedata.normalize("NFC", text.lower())
    kept = [sign for sign in composed if re.match(r"[^\W_]", sign)]
    assert [sign for word in words for sign in word if re.match(r"[^\W_]", sign)] == kept
    for word in words:
        assert re.match(r"[^\W_]", word) or unicodedata.category(word[0]).startswith("M")
        assert word == word.strip("'.,")


@given(st.text(st.characters(categories=["L", "M", "Nd", "P", "Z"])))
def test_words_stay_what_they_are_when_split_again(text):
    words = split_words(text)
    assert split_words(" ".join(words)) == words


@given(st.text(st.characters(codec="ascii")))
def test_plain_english_without_digits_is_runs_of_letters_and_apostrophes(text):
    plain = re.sub(r"\d", " ", text)
    assert split_words(plain) == re.findall(r"[a-z]+(?:'[a-z]+)*", plain.lower())


@given(st.text(SPACED))
def test_words_do_not_depend_on_how_accents_are_typed(text):
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert split_words(composed) == split_words(decomposed)


def test_names_are_any_sequence_or_numbered_words():
    """Of numpy's and pandas' kind, and as tokenizers keep their vocabulary."""
    words = ["a", "b", "c"]
    numbered = {"c": 2, "a": 0, "b": 1}
    for names in (words, tuple(words), np.array(words), numbered, UserDict(numbered)):
        kept = as_names("words", names, 3)
        assert kept == ("a", "b", "c")
        assert [type(name) for name in kept] == [str, str, str]


def test_rows_of_padding_stand_for_themselves():
    assert as_names("words", {"b": 1, "a": 0}, 4) == ("a", "b", "2", "3")
