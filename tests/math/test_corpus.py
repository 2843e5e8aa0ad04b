"""The shipped text: that it arrives whole, in words, and that its windows are what they claim."""

import re
import tomllib
from pathlib import Path

import pytest

from ntpnb import datasets

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "corpus", "source"),
    [
        ("genesis", datasets.text_corpus(106), "bible-kjv-text"),
        ("declaration", datasets.declaration_corpus(), "miscfiles"),
    ],
)
def test_a_text_ships_in_its_own_words_and_states_its_provenance(name, corpus, source):
    path = ROOT / f"ntpnb/data_files/{name}.txt"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert any(path in path.parents[1].glob(p) for p in settings["package-data"]["ntpnb"])
    assert path.stat().st_size < 60_000
    lines = path.read_text("utf-8").splitlines()
    head = " ".join(line for line in lines if line.startswith("#"))
    assert source in head
    assert "public domain" in head
    text = [line for line in lines if not line.startswith("#")]
    assert len(text) == len(corpus.verses)
    for line, verse in zip(text, corpus.verses, strict=True):
        # Another way to the words than the loader's: strip what is around them, then split.
        spaced = re.sub(r"^[1-4]:\d+ ", "", line).lower().replace("-", " ")
        assert corpus.spell(verse) == " ".join(word.strip(".,;:?!") for word in spaced.split())


def test_chapter_one_has_the_numbers_that_its_docstring_states():
    corpus = datasets.text_corpus()
    assert len(corpus.verses) == 31
    assert sum(map(len, corpus.verses)) == 797
    assert len(corpus.words) == 150
    assert corpus.spell(corpus.verses[2]) == "and god said let there be light and there was light"


@pytest.mark.parametrize("num_verses", [1, 13, 31, 106])
def test_vocabulary_is_sorted_and_fully_used(num_verses):
    corpus = datasets.text_corpus(num_verses)
    assert list(corpus.words) == sorted(set(corpus.words))
    used = {v for verse in corpus.verses for v in verse}
    assert used == set(range(len(corpus.words)))


@pytest.mark.parametrize("length", [1, 2, 7, 280])
def test_windows_run_over_the_text_and_around_its_end(length):
    corpus = datasets.text_corpus(13)
    text = [v for verse in corpus.verses for v in verse]
    windows = corpus.windows(length)
    assert windows.shape == (len(text), length)
    doubled = text + text
    assert all(list(w) == doubled[i : i + length] for i, w in enumerate(windows))


def test_windows_are_integers_though_a_verse_is_empty():
    windows = datasets.TextCorpus(("a", "b"), ((0,), (), (1,))).windows(2)
    assert windows.dtype.kind == "i"
    assert windows.tolist() == [[0, 1], [1, 0]]
