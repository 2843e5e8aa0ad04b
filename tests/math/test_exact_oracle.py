"""The tied subspace and the finite part against rational numbers and many digits.

Floats are rational numbers, so that the dimension of the tied subspace of float data is a number
that no rounding can change. The answer is that one, or the data are refused by name. Embeddings
that depend on each other but for their last digits are another matter, and count as dependent.
"""

import re

import mpmath
import numpy as np
import pytest
from exact import exact_minimiser, many, orthonormal_basis
from quick import slow_but

import ntpnb
from ntpnb import NextTokenData, datasets

DIGITS = 60  # of which the worst condition below, 1e11, costs two times eleven

ON_SUBSPACE = 1e-8  # of its norm: how far a finite part may lie off F
# Besides, the probabilities may be off by 1e-9 in coordinates without a scale; a Hessian there has
# eigenvalues of the least of a context's probabilities, which is 1e-2 here.
OF_W = ON_SUBSPACE + 1e-7


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(DIGITS):
        yield


def length(array):
    return float(mpmath.sqrt((array * array).sum()))


# -- the problems ---------------------------------------------------------------------------------


def some_probs(rng, num_contexts, vocab_size):
    """Each context's Dirichlet odds, at least one in a hundred, of two or more tokens."""
    P = np.zeros((num_contexts, vocab_size))
    for p in P:
        tokens = rng.permutation(vocab_size)[: rng.integers(2, vocab_size + 1)]
        p[tokens] = 0.01 + rng.dirichlet(np.ones(len(tokens)))
    return P / P.sum(axis=1, keepdims=True)


def sizes(rng):
    """Numbers of tokens, contexts and dimensions."""
    return rng.integers([3, 2, 2], [5, 6, 4])


def nearly_equal(seed, epsilon):
    rng = np.random.default_rng(seed)
    V, m, q = sizes(rng)
    H = rng.standard_normal(q) + epsilon * rng.standard_normal((m, q))
    return NextTokenData(H, some_probs(rng, m, V))


def nearly_flat(seed, epsilon):
    """Rotated embeddings, of which one direction is short."""
    rng = np.random.default_rng(seed)
    V, m, q = sizes(rng)
    H = rng.standard_normal((m, q))
    H[:, -1] *= epsilon
    rotation = np.linalg.qr(rng.standard_normal((q, q)))[0]
    return NextTokenData(H @ rotation, some_probs(rng, m, V))


def nearly_in_pairs(seed, epsilon):
    rng = np.random.default_rng(seed)
    V, m, q = sizes(rng)
    H = rng.standard_normal((m, q))
    twins = H + epsilon * rng.standard_normal((m, q))
    return NextTokenData(np.concatenate([H, twins]), some_probs(rng, 2 * m, V))


def two_pairs(seed, epsilon):
    """Two directions in the plane, each of two contexts: what rounding may turn, it turns twice."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((2, 2))
    return NextTokenData(
        base[[0, 0, 1, 1]] + epsilon * rng.standard_normal((4, 2)), some_probs(rng, 4, 4)
    )


def embedded(seed, epsilon):
    """Nearly equal contexts, and tokens with embeddings of their own."""
    data = nearly_equal(seed, epsilon)
    T = np.random.default_rng(seed).standard_normal((data.vocab_size, 3))
    return NextTokenData(data.context_embeddings, data.target_probs, token_embeddings=T)


def nearly_special(seed, epsilon):
    """Small whole numbers, where dependences abound, and a little more: no sum is rounded."""
    rng = np.random.default_rng(seed)
    V, m, q = sizes(rng) + [1, 2, 0]
    power_of_two = 2.0 ** np.round(np.log2(epsilon))
    H = rng.integers(-2, 3, (m, q)) + power_of_two * rng.integers(-1, 2, (m, q))
    return NextTokenData(H, some_probs(rng, m, V))


KINDS = [nearly_equal, nearly_flat, nearly_in_pairs, nearly_special, two_pairs, embedded]
PROBLEMS = range(8)  # of each kind and each epsilon: 480 in all


# -- the tests ------------------------------------------------------------------------------------


def require_named(error, data):
    """Some rows of the data are named in an error's message."""
    named = re.search(r"context( \d+|s (\d+, )+\d+)", str(error))
    assert named is not None
    rows = [int(row) for row in named[1].removeprefix("s").split(", ")]
    assert 0 < len(rows) <= data.num_contexts
    assert max(rows) < data.num_contexts


def require_exact(data, found, basis):
    assert found.subspace.dim == len(basis)
    W = many(found.W)
    assert length(W.ravel() - basis.T @ (basis @ W.ravel())) <= ON_SUBSPACE * length(W)
    expected = exact_minimiser(data, found.W, basis.reshape(-1, *data.shape))
    assert length(W - expected) <= OF_W * length(expected)


def right_or_refused(data):
    """Whether the finite part was found; it is the exact one, or its refusal names contexts."""
    basis = orthonormal_basis(data)
    try:
        assert ntpnb.equal_subspace(data).dim == len(basis)
    except ValueError as error:
        require_named(error, data)
        with pytest.raises(ValueError, match=r"^the embeddings of context( \d+ |s (\d+, )+\d+ )"):
            ntpnb.finite_part(data)
        return False
    try:
        found = ntpnb.finite_part(data)
    except (ValueError, ntpnb.ConvergenceError) as error:
        require_named(error, data)
        return False
    require_exact(data, found, basis)
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decade", slow_but([1, 3, 5, 8, 10], range(1, 11)))
def test_right_by_exact_arithmetic_or_refused_by_name(kind, decade):
    answered = [right_or_refused(kind(seed, 10.0**-decade)) for seed in PROBLEMS]
    if decade <= 3:
        assert all(answered)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
@pytest.mark.parametrize("epsilon", slow_but([1e-5], [1e-2, 1e-5, 1e-8]))
def test_a_scale_of_the_contexts_changes_nothing(scale, epsilon):
    for seed in PROBLEMS:
        data = nearly_equal(seed, epsilon)
        scaled = data.replace(context_embeddings=scale * data.context_embeddings)
        assert right_or_refused(data) == right_or_refused(scaled)


def test_the_paper_s_data_are_as_they_were():
    for data in [datasets.toy(), datasets.figure2()]:
        assert ntpnb.equal_subspace(data).dim == len(orthonormal_basis(data))
    toy = datasets.toy()
    require_exact(toy, ntpnb.finite_part(toy), orthonormal_basis(toy))


def test_two_pairs_of_contexts_that_rounding_turns_twice_are_refused():
    H = [
        [1.0500655, -0.4881268],
        [1.0500608, -0.4881084],
        [-1.0697295, 1.001966],
        [-1.0697393, 1.001957],
    ]
    P = np.array([[0, 37, 0, 63], [22, 48, 30, 0], [63, 0, 10, 27], [0, 0, 28, 72]]) / 100
    assert not right_or_refused(NextTokenData(H, P))


@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-11])
def test_tokens_may_be_nearly_equal(gap):
    T = [[1.0, 2.0, 3.0, 0.5], [1 + gap, 2 - gap, 3 + gap / 2, 0.5 + 2 * gap]]
    assert right_or_refused(NextTokenData([[1.0]], [[0.7, 0.3]], token_embeddings=T))


@pytest.mark.parametrize("short", [1e-9, 1e-11, 1e-13])
def test_contexts_may_be_short_beside_others(short):
    P = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.7, 0.3]]
    H = [[1.0, 0.0], [2.0, 0.0], [0.0, short], [0.0, 2 * short]]
    assert right_or_refused(NextTokenData(H, P))


@pytest.mark.parametrize("T", [None, np.eye(2)])
def test_contexts_too_short_beside_others_are_named(T):
    P = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.7, 0.3]]
    H = [[1.0, 0.0], [2.0, 0.0], [0.0, 1e-17], [0.0, 2e-17]]
    message = (
        r"^the embeddings of contexts 2, 3 are so short beside others that rounding hides what "
        r"they add; others of more equal scale are needed$"
    )
    with pytest.raises(ValueError, match=message):
        ntpnb.finite_part(NextTokenData(H, P, token_embeddings=T))


@pytest.mark.parametrize("T", [None, np.eye(2)])
@pytest.mark.parametrize("scale", [1.0, 1.5e-8, 1e-20])
def test_beside_a_context_of_zeros_the_longest_is_not_called_short(scale, T):
    P = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]
    H = scale * np.array([[1.0, 0.0], [0.0, 1e-18], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"^the embeddings of context 1 are so short beside "):
        ntpnb.finite_part(NextTokenData(H, P, token_embeddings=T))


@pytest.mark.parametrize("gap", [1e-12, 1e-13])
def test_what_rounding_hides_is_refused(gap):
    """The third context ties too, and is at a right angle to the others: it is not named."""
    H = [[1.0, 0.0, 0.0], [1.0, gap, 0.0], [0.0, 0.0, 1.0]]
    data = NextTokenData(H, [[0.5, 0.5], [0.3, 0.7], [0.4, 0.6]])
    with pytest.raises(ValueError, match=r"^the embeddings of contexts 0, 1 are linearly dep") as e:
        ntpnb.equal_subspace(data)
    assert "merge_tolerance makes one of nearly equal contexts" in str(e.value)
    merged = data.replace(merge_tolerance=1e-9)
    assert ntpnb.equal_subspace(merged).dim == 2


def test_what_depends_but_for_the_last_digit_depends():
    """Else a context, and three times it, would be independent, and W* as long as 1e16."""
    data = NextTokenData([[0.1, 0.7], [3 * 0.1, 3 * 0.7]], [[0.5, 0.5], [0.3, 0.7]])
    assert len(orthonormal_basis(data)) == 2
    assert ntpnb.equal_subspace(data).dim == 1


def test_large_data_are_refused_too(monkeypatch):
    from ntpnb.tied import large

    monkeypatch.setattr(large, "LARGE", 0)
    for seed in range(40):
        data = nearly_equal(seed, 1e-10)
        try:
            found = ntpnb.finite_part(data)
        except (ValueError, ntpnb.ConvergenceError) as error:
            require_named(error, data)
            continue
        basis = orthonormal_basis(data)
        expected = exact_minimiser(data, found.W, basis.reshape(-1, *data.shape))
        assert length(many(found.W) - expected) <= OF_W * length(expected)
