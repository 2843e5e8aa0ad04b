"""Contradictions among a few frequent tokens, which refute data of many contexts."""

import pickle
import re

import numpy as np
import pytest
from margins import prove_refused
from numpy.testing import assert_array_equal
from problems import a_text
from scipy.sparse import csr_array

from ntpnb import (
    NextTokenData,
    NotSeparableError,
    equal_subspace,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.margin import separation, solve
from ntpnb.margin.separation import contradiction_in


def contradictory(seed, V=44, m=60, names=None):
    """More contexts than two dimensions can tell apart, with Zipf's frequencies and some ties."""
    rng = np.random.default_rng([55, seed])
    frequency = 1 / np.arange(1.0, V + 1)
    P = np.zeros((m, V))
    for row in P:
        tokens = rng.choice(V, rng.integers(1, 3), replace=False, p=frequency / frequency.sum())
        row[tokens] = rng.dirichlet(np.ones(len(tokens)))
    return NextTokenData(rng.standard_normal((m, 2)), P, context_groups=names)


OUT_OF_ORDER = np.random.default_rng(0).permutation(60) * 3 - 100


@pytest.mark.parametrize("names", [None, OUT_OF_ORDER], ids=["positions", "names out of order"])
def test_a_part_s_certificate_is_one_of_the_whole(names):
    for seed in range(2):
        data = contradictory(seed, names=names)
        refuted = 0
        for part in separation.parts(data):
            weights = contradiction_in(part, data)
            if weights is None:
                continue
            refuted += 1
            assert (weights.weights > 0).all()
            assert np.isin(weights.pairs[:, 2], part.tokens).all()
            assert np.isin(weights.pairs[:, 0], data.context_groups[part.contexts]).all()
            prove_refused(data, NotSeparableError("this part contradicts itself", weights))
        assert refuted > 1


def test_a_part_is_the_whole_s_contexts_and_tokens():
    data = contradictory(0, V=90, m=200)
    support = data.target_probs > 0
    followed = support.sum(0)
    sizes = []
    for part in separation.parts(data):
        assert (np.diff(part.tokens) > 0).all()
        assert (np.diff(part.contexts) > 0).all()
        sizes.append((len(part.tokens), len(part.contexts)))
        embeddings = data.context_embeddings[part.contexts]
        assert_array_equal(part.data.context_embeddings, embeddings)
        inside = support[np.ix_(part.contexts, part.tokens)]
        assert_array_equal(part.data.target_probs > 0, inside)
        assert inside.any(1).all()
        assert followed[part.tokens].min() >= np.delete(followed, part.tokens).max()
    assert np.count_nonzero(followed) > 10
    touching = np.count_nonzero(support[:, np.argsort(-followed, kind="stable")[:10]].any(1))
    assert sizes == [(10, min(2 * 4 * 2**k, touching)) for k in range(len(sizes))]
    assert sizes[-1] == (10, touching)
    H = np.random.default_rng(0).standard_normal((len(support), touching - 1))
    [all_touching] = separation.parts(data.replace(context_embeddings=H))
    assert len(all_touching.contexts) == touching
    assert not list(separation.parts(contradictory(0, V=10)))  # the part would be the whole


def test_a_part_that_is_separable_contradicts_nothing():
    rng = np.random.default_rng(0)
    H, W = rng.standard_normal((90, 3)), rng.standard_normal((14, 3))
    W /= np.linalg.norm(W, axis=1, keepdims=True)  # so that each wins somewhere
    data = NextTokenData(H, np.eye(14)[(H @ W.T).argmax(1)])
    expected = [
        f"no contradiction found among the {len(part.tokens)} most frequent tokens in "
        f"{len(part.contexts)} contexts"
        for part in separation.parts(data)
    ]
    told = []
    max_margin(data, gap=0.5, progress=told.append)
    assert expected
    assert told[: len(expected)] == expected
    assert told[len(expected)].startswith("KKT residual")


def test_contexts_no_more_than_dimensions_have_no_parts():
    assert not list(separation.parts(NextTokenData(np.eye(60), contradictory(0).target_probs)))
    H = np.random.default_rng(0).standard_normal((60, 30))  # of which few touch frequent tokens
    assert not list(separation.parts(NextTokenData(H, np.eye(60))))


def test_large_data_are_refuted_by_parts(monkeypatch):
    monkeypatch.setattr(solve, "all_pairs", None)
    data = contradictory(1)
    num_strict = len(priority(data).strict)
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data)
    weights = caught.value.pair_weights
    assert re.fullmatch(
        rf"no W keeps all {num_strict} strict pairs at a positive margin: weighted as "
        rf"\.certificate says, {len(weights.weights)} of them contradict each other; they were "
        r"found among the \d+ most frequent tokens in \d+ contexts",
        str(caught.value),
    )
    prove_refused(data, caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert_array_equal(copy.certificate, caught.value.certificate)
    assert not is_separable(data)

    sparse = data.replace(target_probs=csr_array(data.target_probs))
    with pytest.raises(NotSeparableError) as again:
        max_margin(sparse)
    assert_array_equal(again.value.pair_weights.pairs, weights.pairs)


def test_real_text_in_sixty_dimensions():
    """Far above its threshold a part refutes it; with few contexts it is separable.

    Contexts are pairs of words of Genesis 1 to 4 with random embeddings, followed by the next word.
    """
    data = a_text(60, num_verses=106, context_length=2)
    with pytest.raises(NotSeparableError, match="most frequent tokens in ") as caught:
        max_margin(data)
    found = caught.value.pair_weights
    assert_array_equal(priority(data).strict[found.positions], found.pairs)
    context, *tokens = found.pairs.T
    left = np.zeros(data.shape)
    for token, sign in zip(tokens, (1, -1), strict=True):
        np.add.at(left, token, sign * found.weights[:, None] * data.context_embeddings[context])
    size = found.weights @ data.context_lengths[context]
    assert np.linalg.norm(equal_subspace(data).reject(left)) <= 1e-10 * size

    few = NextTokenData(data.context_embeddings[:120], data.target_probs[:120])
    assert max_margin(few).kkt_residual <= 1e-10
