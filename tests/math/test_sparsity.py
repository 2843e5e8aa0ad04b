"""The dimension that supports need, against exact ranks and against all sets."""

from itertools import combinations

import numpy as np
import pytest
from exact import fractions, independent

from ntpnb.thresholds import compatible_dimension


def random_support(rng, num_contexts, vocab_size, kind):
    """Draw supports of one of several kinds, among them uneven and nested ones."""
    support = np.zeros((num_contexts, vocab_size), dtype=bool)
    for row in support:
        size = 2 if kind == "pairs" else rng.integers(1, vocab_size + 1)
        tokens = np.arange(vocab_size) if kind == "nested" else rng.permutation(vocab_size)
        if kind == "crowded" and rng.random() < 0.8:  # most contexts choose among four tokens
            size, tokens = 2, rng.permutation(min(4, vocab_size))
        row[tokens[:size]] = True
    return support


def equations_are_independent(rng, support, dim):
    """Whether the log-odds equations have full rank at random embeddings of whole numbers."""
    rows = []
    for tokens in map(np.flatnonzero, support):
        embedding = fractions(rng.integers(2**20, size=dim))
        for token in tokens[1:]:
            row = fractions(np.zeros((support.shape[1], dim)))
            row[tokens[0]] = embedding
            row[token] = -embedding
            rows.append(row.ravel())
    return len(independent(rows)) == len(rows)


def largest_need(support):
    """The maximum of the definition, over all sets of tokens."""
    best = 0
    for size in range(2, support.shape[1] + 1):
        for tokens in combinations(range(support.shape[1]), size):
            equations = np.maximum(support[:, tokens].sum(axis=1) - 1, 0).sum()
            best = max(best, -(-equations // (size - 1)))
    return best


@pytest.mark.parametrize("kind", ["pairs", "uneven", "nested", "crowded"])
@pytest.mark.parametrize("block", range(5))
def test_it_is_where_the_exact_rank_becomes_full(kind, block):
    for trial in range(25):
        rng = np.random.default_rng([block, trial])
        support = random_support(rng, rng.integers(1, 9), rng.integers(1, 8), kind)
        found = compatible_dimension(support)
        assert equations_are_independent(rng, support, found.dim)
        if found.dim:
            assert not equations_are_independent(rng, support, found.dim - 1)


@pytest.mark.parametrize("kind", ["pairs", "uneven", "nested", "crowded"])
def test_it_is_the_largest_need_of_all_sets_and_names_one_that_needs_it(kind):
    for trial in range(40):
        rng = np.random.default_rng([7, trial])
        support = random_support(rng, rng.integers(1, 25), rng.integers(1, 9), kind)
        found = compatible_dimension(support)
        assert found.dim == largest_need(support)
        sizes = support[:, found.tokens].sum(axis=1)
        assert found.equations == np.maximum(sizes - 1, 0).sum()
        if found.dim:
            assert found.equations > (found.dim - 1) * (len(found.tokens) - 1)
        else:
            assert len(found.tokens) == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 5])
def test_ten_thousand_contexts_and_a_thousand_tokens(size):
    rng = np.random.default_rng(size)
    support = np.zeros((10_000, 1000), dtype=bool)
    for row in support:
        row[rng.choice(1000, size, replace=False)] = True
    found = compatible_dimension(support)
    assert found.equations > (found.dim - 1) * (len(found.tokens) - 1)
    assert found.dim >= -(-10_000 * (size - 1) // 999)  # what all tokens need
    # No set that is easily found needs more: tokens in order of their number of contexts.
    by_degree = np.argsort(-support.sum(axis=0))
    for tokens in range(2, 1001, 50):
        equations = np.maximum(support[:, by_degree[:tokens]].sum(axis=1) - 1, 0).sum()
        assert equations <= found.dim * (tokens - 1)


@pytest.mark.parametrize("support", [np.eye(3, dtype=bool), np.zeros((2, 3), dtype=bool)])
def test_contexts_with_one_token_or_none_need_nothing(support):
    found = compatible_dimension(support)
    assert (found.dim, found.tokens.tolist(), found.equations) == (0, [], 0)
