"""In how few dimensions a text is separable that is so by construction in many."""

import numpy as np
import pytest

import ntpnb
from ntpnb import NextTokenData
from ntpnb.basics.watch import Watch
from ntpnb.reporting.findings import (
    is_by_construction,
    sweep_of_dimensions,
    with_random_tokens,
)
from ntpnb.reporting.wording import spell_pair


def text(seed, num_words=80, vocab_size=8):
    """Words drawn one after the other, the frequent ones as often as in real texts."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, vocab_size + 1)
    drawn = rng.choice(vocab_size, num_words, p=shares / shares.sum())
    return " ".join(f"w{word}" for word in drawn)


@pytest.mark.parametrize("seed", range(5))
def test_the_sweep_is_what_each_dimension_says_for_itself(seed):
    """The same text in the same draw's first dimensions, each asked alone."""
    data = NextTokenData.from_text(text(seed))
    found = sweep_of_dimensions(data, Watch())
    assert found.separable & (found.separable - 1) == 0 or found.separable == data.shape[1]
    for dim in (found.separable, found.contradicted.shape[1]):
        H = data.context_embeddings[:, :dim]
        assert ntpnb.is_separable(data.replace(context_embeddings=H)) == (dim == found.separable)
    assert found.contradicted.shape[1] < found.separable


@pytest.mark.parametrize("seed", range(5))
def test_random_tokens_keep_everything_but_the_tokens(seed):
    data = NextTokenData.from_text(text(seed))
    drawn = with_random_tokens(data)
    np.testing.assert_array_equal(drawn.context_embeddings, data.context_embeddings)
    by_size = [np.sort(laws.target_probs, axis=1) for laws in (data, drawn)]
    np.testing.assert_allclose(*by_size, rtol=1e-15)
    assert (drawn.target_probs != data.target_probs).any()
    assert drawn.entropy == pytest.approx(data.entropy, rel=1e-14)


BETWEEN = NextTokenData.from_text("what see we see we", context_length=1)
ON_A_LINE = BETWEEN.replace(token_embeddings=[[0.0], [1.0], [0.4]])


def test_a_token_between_two_others_cannot_win():
    """So that no text is separable by construction whatever the tokens' embeddings are."""
    assert ntpnb.report(BETWEEN).dimensions is not None
    assert ntpnb.is_separable(ON_A_LINE)
    assert not ntpnb.is_separable(ON_A_LINE.replace(target_probs=np.eye(3)[[2, 2, 2]]))


def test_what_depends_on_the_text_is_said():
    found = ntpnb.report(text(0))
    said = str(found)
    sweep = found.dimensions
    below = sweep.contradicted.shape[1]
    assert f"in as many dimensions as contexts, {found.data.num_contexts}" in said
    assert f"this one is so in {sweep.separable} of them, and not in {below}" in said
    assert "drawn at random" in said
    below = found.contradiction
    assert spell_pair(below, below.pairs[0]) in said
    assert found.summary()["dimensions"]["separable_in"] == sweep.separable


@pytest.mark.parametrize(
    "data",
    [
        ntpnb.datasets.toy(),
        NextTokenData.from_text(text(0), dim=3),
        NextTokenData.from_text(text(0), embedding="mean"),
        ON_A_LINE,
        BETWEEN.replace(candidate_counts=[[1, 1, 0], [1, 1, 0], [1, 1, 1]]),
    ],
    ids=["no text", "fewer dimensions", "means of words", "embedded tokens", "few candidates"],
)
def test_where_nothing_is_by_construction_nothing_is_said_of_it(data):
    assert not is_by_construction(data)
    found = ntpnb.report(data)
    assert found.dimensions is None
    assert not found.failures
    assert "by construction" not in str(found)


def test_a_text_that_one_dimension_separates_contradicts_nothing():
    opposite = next(
        data
        for seed in range(9)
        if np.prod((data := NextTokenData.from_text("a b a b", seed=seed)).context_embeddings[:, 0])
        < 0
    )
    found = ntpnb.report(opposite)
    assert found.dimensions.separable == 1
    assert found.contradiction is None
    assert "this one is so in 1 of them\n" in str(found)


def test_a_time_limit_is_kept():
    data = NextTokenData.from_text(text(1, num_words=400))
    found = ntpnb.report(data, seconds=0)
    assert found.dimensions is None
