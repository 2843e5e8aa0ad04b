"""Captions call the panels by their letters, since a telephone has them one below the other."""

import re

import pytest

from publishing import project

CAPTION = re.compile(r"^    caption: (.*?)(?=^  image:|^    \w+: |^---$)", re.MULTILINE | re.DOTALL)
PLACE = re.compile(
    r"\b(?:(?:Left|Middle|Right)[:,]|(?:Upper|Lower) (?:left|right):|Top:|Bottom:"
    r"|(?:left|right)(?:-hand)? panel)"
)


def captions(name):
    text = project.source(name).read_text(encoding="utf-8")
    return [" ".join(found.split()) for found in CAPTION.findall(text)]


@pytest.mark.parametrize("name", project.names())
def test_no_caption_says_where_on_the_page_a_panel_stands(name):
    assert [caption for caption in captions(name) if PLACE.search(caption)] == []


def test_captions_are_found_and_places_in_them():
    assert sum(len(captions(name)) for name in project.names()) > 100
    for words in ("Left: a line.", "the left panel", "Upper right: dots."):
        assert PLACE.search(words)
    assert not PLACE.search("what is left: nothing")
