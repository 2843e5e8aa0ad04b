"""The tied subspace and the finite part against rational numbers and many digits.

Floats are rational numbers, so that the dimension of the tied subspace of float data is a number
that no rounding can change. The answer is that one, or the data are refused by name. Embeddings
that depend on each other but for their last digits are another matter, and count as dependent.
"""

import itertools
import re

import mpmath
import numpy as np
import pytest
from exact import exact_minimiser, many, orthonormal_basis
from problems import lengthened
from quick import slow_but

import ntpnb
from ntpnb import NextTokenData, datasets, equal_subspace, finite_part

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


def nearly_equal(rng, m, q, epsilon):
    return rng.standard_normal(q) + epsilon * rng.standard_normal((m, q))


def nearly_flat(rng, m, q, epsilon):
    """Rotated embeddings, of which one direction is short."""
    H = rng.standard_normal((m, q))
    H[:, -1] *= epsilon
    return H @ np.linalg.qr(rng.standard_normal((q, q)))[0]


def nearly_in_pairs(rng, m, q, epsilon):
    H = rng.standard_normal((m, q))
    return np.concatenate([H, H + epsilon * rng.standard_normal((m, q))])


def two_pairs(rng, _, __, epsilon):
    """Two directions in the plane, each of two contexts: what rounding may turn, it turns twice."""
    return np.repeat(rng.standard_normal((2, 2)), 2, axis=0) + epsilon * rng.standard_normal((4, 2))


def nearly_special(rng, m, q, epsilon):
    """Small whole numbers, where dependences abound, and a little more: no sum is rounded."""
    power_of_two = 2.0 ** np.round(np.log2(epsilon))
    whole, added = rng.integers(-2, 3, (m + 2, q)), rng.integers(-1, 2, (m + 2, q))
    return whole + power_of_two * added


KINDS = [nearly_equal, nearly_flat, nearly_in_pairs, nearly_special, two_pairs]
PROBLEMS = range(8)  # of each kind and each epsilon: 480 in all


def drawn(kind, seed, epsilon, has_tokens=False):
    """A small problem of a kind; tokens may have embeddings of their own."""
    rng = np.random.default_rng(seed)
    V, m, q = rng.integers([3, 2, 2], [5, 6, 4])
    H = kind(rng, m, q, epsilon)
    P = some_probs(rng, len(H), V)
    return NextTokenData(H, P, token_embeddings=rng.standard_normal((V, 3)) if has_tokens else None)


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
        assert equal_subspace(data).dim == len(basis)
    except ValueError as error:
        require_named(error, data)
        with pytest.raises(ValueError, match=r"^the embeddings of context( \d+ |s (\d+, )+\d+ )"):
            finite_part(data)
        return False
    try:
        found = finite_part(data)
    except (ValueError, ntpnb.ConvergenceError) as error:
        require_named(error, data)
        return False
    require_exact(data, found, basis)
    return True


@pytest.mark.parametrize(
    ("kind", "has_tokens"),
    [*itertools.product(KINDS, [False]), pytest.param(nearly_equal, True, id="embedded tokens")],
)
@pytest.mark.parametrize("decade", slow_but([1, 3, 5, 8, 10], range(1, 11)))
def test_right_by_exact_arithmetic_or_refused_by_name(kind, has_tokens, decade):
    drawn_problems = (drawn(kind, seed, 10.0**-decade, has_tokens) for seed in PROBLEMS)
    answered = [right_or_refused(data) for data in drawn_problems]
    if decade <= 3:
        assert all(answered)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
@pytest.mark.parametrize("epsilon", slow_but([1e-5], [1e-2, 1e-5, 1e-8]))
def test_a_scale_of_the_contexts_changes_nothing(scale, epsilon):
    for seed in PROBLEMS:
        data = drawn(nearly_equal, seed, epsilon)
        scaled = lengthened(data, scale)
        assert right_or_refused(data) == right_or_refused(scaled)


def test_the_paper_s_data_are_as_they_were():
    for data in [datasets.toy(), datasets.figure2()]:
        assert equal_subspace(data).dim == len(orthonormal_basis(data))
    toy = datasets.toy()
    require_exact(toy, finite_part(toy), orthonormal_basis(toy))


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


ARE_SHORT = (
    " are so short beside others that rounding hides what they add; others of more equal scale "
    r"are needed$"
)
DEPEND = r" are linearly dependent but for .*; merge_tolerance makes one of nearly equal contexts"
REFUSED = {
    "two are short": (
        [[1.0, 0.0], [2.0, 0.0], [0.0, 1e-17], [0.0, 2e-17]],
        "s 2, 3" + ARE_SHORT,
    ),
    # The longest is not called short beside a context of zeros.
    "one is short": ([[1.0, 0.0], [0.0, 1e-18], [0.0, 0.0]], " 1" + ARE_SHORT),
    "all are short": ([[1.5e-8, 0.0], [0.0, 1.5e-26], [0.0, 0.0]], " 1" + ARE_SHORT),
    "all vanish": ([[1e-20, 0.0], [0.0, 1e-38], [0.0, 0.0]], " 1" + ARE_SHORT),
    # The third context ties too, and is at a right angle to the others: it is not named.
    "1e-12 apart": (
        [[1.0, 0.0, 0.0], [1.0, 1e-12, 0.0], [0.0, 0.0, 1.0]],
        "s 0, 1" + DEPEND,
    ),
    "1e-13 apart": (
        [[1.0, 0.0, 0.0], [1.0, 1e-13, 0.0], [0.0, 0.0, 1.0]],
        "s 0, 1" + DEPEND,
    ),
}


@pytest.mark.parametrize("T", [None, np.eye(2)], ids=["one-hot", "embedded tokens"])
@pytest.mark.parametrize(("H", "message"), REFUSED.values(), ids=REFUSED)
def test_what_rounding_hides_is_refused(H, message, T):
    laws = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.7, 0.3]]
    data = NextTokenData(H, laws[: len(H)], token_embeddings=T)
    with pytest.raises(ValueError, match="^the embeddings of context" + message):
        finite_part(data)


def test_nearly_equal_contexts_may_be_merged():
    data = NextTokenData(REFUSED["1e-12 apart"][0], [[0.5, 0.5], [0.3, 0.7], [0.4, 0.6]])
    assert equal_subspace(data.replace(merge_tolerance=1e-9)).dim == 2


def test_what_depends_but_for_the_last_digit_depends():
    """Else a context, and three times it, would be independent, and W* as long as 1e16."""
    data = NextTokenData([[0.1, 0.7], [3 * 0.1, 3 * 0.7]], [[0.5, 0.5], [0.3, 0.7]])
    assert len(orthonormal_basis(data)) == 2
    assert equal_subspace(data).dim == 1


def test_large_data_are_refused_too(monkeypatch):
    from ntpnb.tied import large

    monkeypatch.setattr(large, "LARGE", 0)
    for seed in range(40):
        data = drawn(nearly_equal, seed, 1e-10)
        try:
            found = finite_part(data)
        except (ValueError, ntpnb.ConvergenceError) as error:
            require_named(error, data)
            continue
        require_exact(data, found, orthonormal_basis(data))
