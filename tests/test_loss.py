"""Loss, gradient and excess loss against loops, differences and 400-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import slow
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, l24, regimes, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.loss import _phi, logits

EPS = np.finfo(float).eps


def draw(data, seed, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal(data.shape)


def mild(data):
    """A matrix whose scores are of size one, whatever the embeddings' norms."""
    W = draw(data, 7)
    largest = np.abs(logits(W, data)[data.candidates]).max()
    return W / max(1.0, largest)


def sizes(data):
    """Bound of one row's gradient: the scale of its rounding."""
    return (
        data.context_probs
        @ np.linalg.norm(data.context_embeddings, axis=1)
        * np.sqrt(data._squared_diameters().max() + 1)
    )


# -- against the formulas as loops ----------------------------------------------------------------


@pytest.mark.parametrize("name", regimes())
def test_loss_and_gradient_match_slow_loops(name):
    data = regimes()[name]
    W = mild(data)
    loss = slow.cross_entropy(W, data)
    # scores of size one: tens of roundings in each, hundreds in the sums
    assert abs(ntpnb.cross_entropy(W, data) - loss) <= 1e-13 * (1 + loss)
    difference = ntpnb.gradient(W, data) - slow.gradient(W, data)
    assert np.abs(difference).max() <= 1e-13 * sizes(data)


@given(any_problem(), st.integers(0, 99))
def test_gradient_matches_central_differences(data, seed):
    W, D = draw(data, seed), draw(data, seed + 100)
    D /= np.linalg.norm(D)
    h = 1e-5
    slope = (ntpnb.cross_entropy(W + h * D, data) - ntpnb.cross_entropy(W - h * D, data)) / (2 * h)
    # rounding of the loss over h, and h² times third derivatives of size ‖score direction‖³
    third = np.abs(logits(D, data)[data.candidates]).max() if data.candidate_counts is None else 0
    reach = max(third, np.abs(data.context_embeddings).max() * 10)
    tolerance = 1e-15 * (1 + ntpnb.cross_entropy(W, data)) * 100 / h + h * h * reach**3
    assert abs(np.vdot(ntpnb.gradient(W, data), D) - slope) <= tolerance


@given(any_problem(), st.integers(0, 99))
def test_a_stack_is_each_matrix_alone(data, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((2, 3, *data.shape))
    for f in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient):
        whole = f(W, data)
        each = np.array([[f(w, data) for w in row] for row in W])
        assert whole.shape == each.shape
        # the same sums, in an order that BLAS chooses
        np.testing.assert_allclose(whole, each, rtol=1e-12, atol=1e-13)


def test_one_matrix_gives_a_float():
    data = t24(1)
    for f in (ntpnb.cross_entropy, ntpnb.excess_loss):
        assert type(f(np.zeros(data.shape), data)) is float
        assert f(np.zeros((4, *data.shape)), data).shape == (4,)


def test_loss_at_zero_counts_candidates():
    data = l24(2, repeats=True)
    # every position of the sequence is equally likely at W = 0
    expected = np.mean(
        [
            -np.log(c[p.argmax()] / c.sum())
            for c, p in zip(data.candidate_counts, data.target_probs, strict=True)
        ]
    )
    assert abs(ntpnb.cross_entropy(np.zeros(data.shape), data) - expected) <= 10 * EPS


def test_loss_over_sequences_is_loss_over_distinct_contexts():
    """T24 Sec. 2: grouping equal contexts changes nothing (Eq. (1) to Eq. (2))."""
    rng = np.random.default_rng(3)
    sequences = rng.integers(0, 3, (40, 4)).tolist()
    vectors = {}

    def embed(context):
        return vectors.setdefault(context, rng.standard_normal(5))

    for length in (3, None):
        data = NextTokenData.from_sequences(sequences, embed, context_length=length)
        W = draw(data, 4)
        total, n = 0.0, 0
        for s in sequences:
            for end in [3] if length else [1, 2, 3]:
                score = W @ embed(tuple(s[:end]))
                total += np.log(np.exp(score).sum()) - score[s[end]]
                n += 1
        # up to 120 terms of size one
        assert abs(ntpnb.cross_entropy(W, data) - total / n) <= 1e-13


# -- properties -----------------------------------------------------------------------------------


@given(any_problem(), st.integers(0, 99), st.sampled_from([0.1, 1.0, 30.0]))
def test_excess_is_loss_minus_entropy_and_not_negative(data, seed, scale):
    W = draw(data, seed, scale)
    loss, excess = ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)
    assert excess >= 0
    # the difference carries the rounding of scores as large as the loss
    reach = np.abs(logits(W, data)[data.candidates]).max()
    assert abs(excess - (loss - data.entropy)) <= 100 * EPS * (1 + reach)


@given(any_problem(), st.integers(0, 99))
def test_a_residual_row_sums_to_zero(data, seed):
    """Adding a matrix that scores all tokens alike changes nothing: 1ᵀ∇ = 0 for T24."""
    if data.token_embeddings is None:
        G = ntpnb.gradient(draw(data, seed), data)
        assert np.abs(G.sum(0)).max() <= 1e-14 * sizes(data) * data.vocab_size


@given(any_problem(), st.integers(0, 99))
def test_convexity(data, seed):
    W, U = draw(data, seed), draw(data, seed + 100)
    middle = ntpnb.cross_entropy((W + U) / 2, data)
    ends = (ntpnb.cross_entropy(W, data) + ntpnb.cross_entropy(U, data)) / 2
    assert middle <= ends + 100 * EPS * (1 + ends)  # rounding of sums of that size
    # monotone gradient: the same statement one derivative up
    rise = np.vdot(ntpnb.gradient(W, data) - ntpnb.gradient(U, data), W - U)
    assert rise >= -100 * EPS * sizes(data) * np.linalg.norm(W - U)


# -- tiny losses ----------------------------------------------------------------------------------


def exact_excess(W, data):
    """CE − H at exactly these doubles, with 400 digits."""
    mpf = mpmath.mpf
    T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
    C = np.ones_like(data.target_probs) if data.candidate_counts is None else data.candidate_counts
    total = mpf(0)
    with mpmath.workdps(400):
        M = mpmath.matrix(T.tolist()) * mpmath.matrix(W.tolist())
        S = M * mpmath.matrix(data.context_embeddings.T.tolist())
        for j, pi in enumerate(data.context_probs):
            mass = mpmath.fsum(mpf(c) * mpmath.exp(S[v, j]) for v, c in enumerate(C[j]) if c > 0)
            p = [mpf(x) for x in data.target_probs[j].tolist()]
            norm = mpmath.fsum(p)  # the stored doubles sum to one up to rounding; divide that out
            for v, x in enumerate(p):
                if x > 0:
                    q = mpf(C[j, v]) * mpmath.exp(S[v, j]) / mass
                    total += mpf(float(pi)) * x / norm * (mpmath.log(x / norm) - mpmath.log(q))
        return total


def separated(data, margin):
    """Scores exactly ``margin`` for the target and 0 elsewhere, for one-hot contexts."""
    return margin * data.target_probs.T


@pytest.mark.parametrize("exponent", [1, 8, 16, 30, 100, 200])
def test_tiny_excess_keeps_its_digits_when_one_token_is_right(exponent):
    """DESIGN Sec. 3: relative accuracy 1e-8 down to 1e-200 when S = 1."""
    rng = np.random.default_rng(exponent)
    m, V = 6, 5
    data = NextTokenData(
        np.linalg.qr(rng.standard_normal((m, m)))[0], np.eye(V)[rng.integers(0, V, m)]
    )
    direction = data.target_probs.T @ data.context_embeddings
    noise = 0.1 * rng.standard_normal(data.shape)
    W = (exponent * np.log(10) + np.log(V)) * direction + noise
    value = ntpnb.excess_loss(W, data)
    expected = exact_excess(W, data)
    assert 10.0 ** (-exponent - 2) < expected < 10.0 ** (-exponent + 2)
    # scores near 460 are rounded at 1e-13, and the excess is their exponential
    assert abs(value - expected) <= 1e-11 * expected


@pytest.mark.parametrize("exponent", [3, 12, 60, 200])
def test_tiny_excess_of_attention(exponent):
    # tokens 0 above 1 above 2, each sequence with its own last token
    E = np.eye(4)
    data = NextTokenData.from_attention(E, [(0, 1, 2), (1, 0, 0, 3)], [0, 1])
    W = np.zeros((4, 4))
    W[:, 2] = [2.3 * exponent, 0.1, -0.2, 0.0]
    W[:, 3] = [0.0, 2.3 * exponent, 0.3, -0.1]
    value, expected = ntpnb.excess_loss(W, data), exact_excess(W, data)
    assert abs(value - expected) <= 1e-11 * expected  # scores near 460, as above


@pytest.mark.parametrize("margin", [2.0, 20.0, 60.0, 400.0])
def test_excess_with_wide_supports_stops_at_the_rounding_of_the_scores(margin):
    """With S > 1 the law inside the support is met to rounding only: a floor, shown as one."""
    data = t24(5, V=6, m=5, d=7, size=(2, 4))
    finite = ntpnb.finite_part(data)
    centred = data.support / data.support.sum(1, keepdims=True) - 1 / data.vocab_size
    direction = finite.subspace.reject(np.linalg.lstsq(data.context_embeddings, centred)[0].T)
    W = finite.W + margin * direction
    value, expected = ntpnb.excess_loss(W, data), exact_excess(W, data)
    # an error ε in a score moves δ by ε, and δ²/2 by δε + ε²/2
    error = 20 * EPS * (1 + np.abs(logits(W, data)).max())
    tolerance = 1e-11 * expected + error * mpmath.sqrt(2 * expected) + error**2
    assert abs(value - expected) <= tolerance
    if margin == 400.0:
        # what is left is δ² of the rounded W and scores: near 1e-28, not the e^{-100} of the gaps
        assert 1e-34 < expected < 1e-25
        assert value < 1e-25


@pytest.mark.parametrize("x", [1e-150, 1e-12, 1e-6, 0.01, 0.299, 0.301, 3.0, 300.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_phi_keeps_its_digits(x, sign):
    with mpmath.workdps(400):
        expected = mpmath.exp(mpmath.mpf(sign * x)) - 1 - mpmath.mpf(sign * x)
    # the series to its last bits; from 0.3 on the difference loses a factor below ten
    assert abs(_phi(sign * x) - expected) <= 10 * EPS * expected


def test_tiny_excess_at_a_subnormal_and_beyond():
    data = NextTokenData(np.eye(2), np.eye(2))
    for margin in (740.0, 800.0):
        value = ntpnb.excess_loss(separated(data, margin), data)
        # below 1e-308 doubles lose digits one by one, and below 5e-324 there is only zero
        assert abs(value - float(mpmath.exp(-margin))) <= 2 * 5e-324


@pytest.mark.parametrize("gap", [1.0, 30.0, 45.0, 200.0, 600.0])
def test_tiny_gradient_keeps_its_digits_when_one_token_is_right(gap):
    """q − p at the target is minus the others' sum, also where q rounds to one."""
    data = NextTokenData([[1.0, 2.0]], [[0.0, 1.0, 0.0]])
    W = gap * np.outer([0.0, 1.0, 0.0], [0.2, 0.4]) + np.array([[0.0, 0.0], [0, 0], [0.5, 0]])
    with mpmath.workdps(400):
        score = [mpmath.fdot(w, [1, 2]) for w in W.tolist()]
        q = [mpmath.exp(s) / mpmath.fsum(map(mpmath.exp, score)) for s in score]
        expected = [[(a - b) * h for h in (1, 2)] for a, b in zip(q, (0, 1, 0), strict=True)]
        expected = np.array([[float(x) for x in row] for row in expected])
    # scores up to 600 are rounded at 1e-13, and the gradient is their exponential
    np.testing.assert_allclose(ntpnb.gradient(W, data), expected, rtol=1e-12)
    moves = ntpnb.descend(data, ntpnb.GD(step=1.0), 1, init=W)
    near = W - expected  # what one step gives; the step itself rounds W
    np.testing.assert_allclose(moves.W[-1], near, rtol=2 * EPS)


# -- extreme and odd input ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e8, 1e150])
@pytest.mark.parametrize("name", ["d < m", "candidates, groups, tokens", "attention, cyclic"])
def test_extreme_scales_give_finite_numbers(name, scale):
    data = regimes()[name]
    W = draw(data, 1, scale)
    loss, excess, G = (f(W, data) for f in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient))
    assert np.isfinite([loss, excess]).all()
    assert np.isfinite(G).all()
    # CE is at most entropy plus gaps of scores this large
    assert 0 <= excess <= loss * (1 + 4 * EPS)
    assert abs(excess + data.entropy - loss) <= 100 * EPS * loss


def test_scaling_embeddings_against_the_matrix_changes_nothing():
    data = t24(6, tokens=3)
    W = draw(data, 2)
    for c in (1e-8, 1e8):
        scaled = NextTokenData(
            c * data.context_embeddings,
            data.target_probs,
            data.context_probs,
            data.token_embeddings,
        )
        for f in (ntpnb.cross_entropy, ntpnb.excess_loss):
            # scores of size ten, rounded once more
            assert abs(f(W / c, scaled) - f(W, data)) <= 1e-13 * (1 + f(W, data))


def test_zero_embeddings_and_single_tokens():
    data = NextTokenData([[0.0, 0.0]], [[0.5, 0.25, 0.25]])
    W = draw(data, 3, 5.0)
    assert abs(ntpnb.cross_entropy(W, data) - np.log(3)) <= 4 * EPS
    assert not ntpnb.gradient(W, data).any()
    alone = NextTokenData([[2.0]], [[1.0]])
    assert ntpnb.cross_entropy([[3.0]], alone) == 0.0
    assert ntpnb.excess_loss([[3.0]], alone) == 0.0
    assert ntpnb.gradient([[3.0]], alone).tolist() == [[0.0]]
    choiceless = NextTokenData([[2.0]], [[0, 1, 0]], candidate_counts=[[0, 5, 0]])
    W = draw(choiceless, 4)
    assert ntpnb.excess_loss(W, choiceless) == 0.0
    assert not ntpnb.gradient(W, choiceless).any()


def test_lists_and_strided_matrices_are_taken():
    data = t24(7)
    W = draw(data, 5)
    for same in (W.tolist(), np.asfortranarray(W), np.repeat(W, 2, axis=1)[:, ::2]):
        # BLAS may sum another layout in another order
        assert abs(ntpnb.cross_entropy(same, data) - ntpnb.cross_entropy(W, data)) <= 1e-14
    assert ntpnb.cross_entropy(np.ones(data.shape, dtype=int), data) == ntpnb.cross_entropy(
        np.ones(data.shape), data
    )


@pytest.mark.parametrize("f", [ntpnb.cross_entropy, ntpnb.gradient, ntpnb.excess_loss])
@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.zeros((8, 5)), r"W has shape \(8, 5\); its last two axes must be \(5, 8\)"),
        (np.zeros(40), r"W has shape \(40,\); its last two axes must be \(5, 8\)"),
        (0.0, r"W has shape \(\); its last two axes must be \(5, 8\)"),
        (np.full((5, 8), np.nan), r"W has entries that are not finite"),
        (np.full((2, 5, 8), np.inf), r"W has entries that are not finite"),
    ],
)
def test_a_wrong_matrix_is_named(f, W, message):
    with pytest.raises(ValueError, match=message):
        f(W, t24(0))


# -- invariances ----------------------------------------------------------------------------------


def everything(W, data):
    return np.array([ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)])


@given(any_problem(), st.integers(0, 99))
def test_rotations_permutations_and_split_contexts(data, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(data.shape)
    value, G = everything(W, data), ntpnb.gradient(W, data)
    m, V, q = *data.target_probs.shape, data.shape[1]
    H, P, pi = data.context_embeddings, data.target_probs, data.context_probs
    T, C, g = data.token_embeddings, data.candidate_counts, data.context_groups
    close = {"rtol": 1e-11, "atol": 1e-12}  # scores of size ten or so in another summation order

    Q = np.linalg.qr(rng.standard_normal((q, q)))[0]
    # rows of one group stay equal to the last bit when one product per group makes them
    turned = (data.group_embeddings @ Q)[data.group_index]
    rotated = NextTokenData(turned, P, pi, T, C, g)
    np.testing.assert_allclose(everything(W @ Q, rotated), value, **close)
    np.testing.assert_allclose(ntpnb.gradient(W @ Q, rotated) @ Q.T, G, **close)

    tokens, rows = rng.permutation(V), rng.permutation(m)
    shuffled = NextTokenData(
        H[rows],
        P[rows][:, tokens],
        pi[rows],
        None if T is None else T[tokens],
        None if C is None else C[rows][:, tokens],
        g[rows],
    )
    moved = W if T is not None else W[tokens]
    np.testing.assert_allclose(everything(moved, shuffled), value, **close)
    back = ntpnb.gradient(moved, shuffled)
    back = back if T is not None else back[np.argsort(tokens)]
    np.testing.assert_allclose(back, G, **close)

    twice = NextTokenData(
        np.repeat(H, 2, axis=0),
        np.repeat(P, 2, axis=0),
        np.repeat(pi / 2, 2),
        T,
        None if C is None else np.repeat(C, 2, axis=0),
        np.repeat(g, 2),
    )
    np.testing.assert_allclose(everything(W, twice), value, **close)
    np.testing.assert_allclose(ntpnb.gradient(W, twice), G, **close)
