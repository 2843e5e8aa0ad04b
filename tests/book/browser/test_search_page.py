"""The search page lists what teaches before what records."""

import re

import pytest

TEACHING = re.compile(r"/(nb/\d\d_\w+|index|summary|notation|explore_\w+)\.html")


@pytest.mark.parametrize("words", ["max-margin", "entropy", "separable", "gradient descent"])
def test_teaching_pages_come_first(words, lend, address):
    tab = lend(address)
    tab.goto(f"{address}search.html?q={words}")
    tab.get_by_text("Search finished").wait_for()
    first = tab.locator("ul.search li a").evaluate_all("links => links.map(link => link.href)")[:5]
    assert len(first) == 5
    assert [target for target in first if not TEACHING.search(target)] == []


def test_what_stands_below_a_result_is_prose(lend, address):
    tab = lend(address)
    tab.goto(f"{address}search.html?q=separable")
    tab.locator("ul.search p.context").nth(4).wait_for()
    below = " ".join(tab.locator("ul.search p.context").all_inner_texts())
    assert not re.search(r"import numpy|np\.|\\\(|def \w+\(", below)


@pytest.mark.parametrize("page", ["nb/02_entropy.html", "api/attention.html", "api/problem.html"])
def test_the_words_that_were_searched_for_can_be_read_where_they_are_marked(page, visitor):
    assert visitor.visit(f"{page}?highlight=entropy+data") == []
