"""What T24's Remark 1 cites on thresholds is quoted, cited, and told apart from the conjecture."""

import pytest
from citations import cited

from publishing import project

# T24's own numbers in version 002, and the labels of version 000
NAMED = {
    "[19]": "cornacchia2023learning",
    "[85]": "tan2023multinomial",
    "[11]": "cakmak2024convergence",
}
NAMED_IN_000 = {"[KT21]": "kini2021phase"}
BEHIND_THEM = "loureiro2021learning"


@pytest.mark.parametrize("name", ["03_overparameterization", "14_thresholds"])
def test_the_chapters_cite_the_works_that_remark_1_names(name):
    assert {*NAMED.values(), BEHIND_THEM} <= cited(name)


def test_the_evidence_lists_what_was_read_of_each():
    expected = {*NAMED.values(), *NAMED_IN_000.values(), BEHIND_THEM}
    assert expected <= cited("evidence/thresholds_separability")


def test_remark_1_is_quoted_to_where_it_names_them():
    text = " ".join(project.source("03_overparameterization").read_text().split())
    assert f"more intricate, but [{', '.join(key.strip('[]') for key in NAMED)}] have made" in text


def test_one_token_per_context_is_no_part_of_the_conjecture():
    text = project.source("14_thresholds").read_text()
    before, _, after = text.partition(":::{prf:conjecture} thresholds of separability")
    assert "For one token per context" in before
    assert "several of them follow a context" in after.partition(":::\n\n")[0]
    assert "For $V > 2$ it is a conjecture" not in text
