"""Loss, gradient and excess loss against loops and differences; what must not change them."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, doubled, l24, rearranged, regimes, renamed, rotated, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem.loss import LARGEST, logits

EPS = np.finfo(float).eps


def random_weights(data, seed, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal(data.shape)


def weights_of_mild_scores(data):
    """A matrix whose scores are of size one, whatever the embeddings' norms."""
    W = random_weights(data, 7)
    largest = np.abs(logits(W, data)[data.candidates]).max()
    return W / max(1.0, largest)


def gradient_scale(data):
    """Bound of one row's gradient: the scale of its rounding."""
    return (
        data.context_probs
        @ np.linalg.norm(data.context_embeddings, axis=1)
        * np.sqrt(data._squared_diameters().max() + 1)
    )


# -- against the formulas as loops ----------------------------------------------------------------


def test_a_loss_of_zero_has_no_sign():
    assert (
        str(ntpnb.cross_entropy([[1000.0], [0.0]], ntpnb.NextTokenData([[1.0]], [[1, 0]]))) == "0.0"
    )


@pytest.mark.parametrize("name", regimes())
def test_loss_and_gradient_match_slow_loops(name):
    data = regimes()[name]
    W = weights_of_mild_scores(data)
    loss = reference.cross_entropy(W, data)
    # scores of size one: tens of roundings in each, hundreds in the sums
    assert abs(ntpnb.cross_entropy(W, data) - loss) <= 1e-13 * (1 + loss)
    difference = ntpnb.gradient(W, data) - reference.gradient(W, data)
    assert np.abs(difference).max() <= 1e-13 * gradient_scale(data)


@given(any_problem(), st.integers(0, 99))
def test_gradient_matches_central_differences(data, seed):
    W, D = random_weights(data, seed), random_weights(data, seed + 100)
    D /= np.linalg.norm(D)
    h = 1e-5
    slope = (ntpnb.cross_entropy(W + h * D, data) - ntpnb.cross_entropy(W - h * D, data)) / (2 * h)
    # rounding of the loss over h, and h² times third derivatives of size ‖score direction‖³
    third = np.abs(logits(D, data)[data.candidates]).max() if data.candidate_counts is None else 0
    reach = max(third, np.abs(data.context_embeddings).max() * 10)
    tolerance = 1e-15 * (1 + ntpnb.cross_entropy(W, data)) * 100 / h + h * h * reach**3
    assert abs(np.vdot(ntpnb.gradient(W, data), D) - slope) <= tolerance


@given(any_problem(), st.integers(0, 99), st.sampled_from([1.0, 1e3]))
def test_a_stack_is_each_matrix_alone(data, seed, scale):
    rng = np.random.default_rng(seed)
    W = scale * rng.standard_normal((2, 3, *data.shape))
    for f in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient):
        whole = f(W, data)
        each = np.array([[f(w, data) for w in row] for row in W])
        assert whole.shape == each.shape
        # the same sums, in an order that BLAS chooses
        np.testing.assert_allclose(whole, each, rtol=1e-12, atol=1e-13 * scale)


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
        W = random_weights(data, 4)
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
    W = random_weights(data, seed, scale)
    loss, excess = ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)
    assert excess >= 0
    # the difference carries the rounding of scores as large as the loss
    reach = np.abs(logits(W, data)[data.candidates]).max()
    assert abs(excess - (loss - data.entropy)) <= 100 * EPS * (1 + reach)


@given(any_problem(), st.integers(0, 99))
def test_a_residual_row_sums_to_zero(data, seed):
    """Adding a matrix that scores all tokens alike changes nothing: 1ᵀ∇ = 0 for T24."""
    if data.token_embeddings is None:
        G = ntpnb.gradient(random_weights(data, seed), data)
        assert np.abs(G.sum(0)).max() <= 1e-14 * gradient_scale(data) * data.vocab_size


@given(any_problem(), st.integers(0, 99))
def test_convexity(data, seed):
    W, U = random_weights(data, seed), random_weights(data, seed + 100)
    middle = ntpnb.cross_entropy((W + U) / 2, data)
    ends = (ntpnb.cross_entropy(W, data) + ntpnb.cross_entropy(U, data)) / 2
    assert middle <= ends + 100 * EPS * (1 + ends)  # rounding of sums of that size
    # monotone gradient: the same statement one derivative up
    rise = np.vdot(ntpnb.gradient(W, data) - ntpnb.gradient(U, data), W - U)
    assert rise >= -100 * EPS * gradient_scale(data) * np.linalg.norm(W - U)


# -- extreme and odd input ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e8, 1e150])
@pytest.mark.parametrize("name", ["d < m", "candidates, groups, tokens", "attention, cyclic"])
def test_extreme_scales_give_finite_numbers(name, scale):
    data = regimes()[name]
    W = random_weights(data, 1, scale)
    loss, excess, G = (f(W, data) for f in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient))
    assert np.isfinite([loss, excess]).all()
    assert np.isfinite(G).all()
    # CE is at most entropy plus gaps of scores this large
    assert 0 <= excess <= loss * (1 + 4 * EPS)
    assert abs(excess + data.entropy - loss) <= 100 * EPS * loss


def test_scaling_embeddings_against_the_matrix_changes_nothing():
    data = t24(6, tokens=3)
    W = random_weights(data, 2)
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
    W = random_weights(data, 3, 5.0)
    assert abs(ntpnb.cross_entropy(W, data) - np.log(3)) <= 4 * EPS
    assert not ntpnb.gradient(W, data).any()
    alone = NextTokenData([[2.0]], [[1.0]])
    assert ntpnb.cross_entropy([[3.0]], alone) == 0.0
    assert ntpnb.excess_loss([[3.0]], alone) == 0.0
    assert ntpnb.gradient([[3.0]], alone).tolist() == [[0.0]]
    choiceless = NextTokenData([[2.0]], [[0, 1, 0]], candidate_counts=[[0, 5, 0]])
    W = random_weights(choiceless, 4)
    assert ntpnb.excess_loss(W, choiceless) == 0.0
    assert not ntpnb.gradient(W, choiceless).any()


def test_lists_and_strided_matrices_are_taken():
    data = t24(7)
    W = random_weights(data, 5)
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
        (np.full((5, 8), -2e151), r"W has the entry 2e\+151; none may be larger than 1e\+151"),
        ("W", r"W is not a rectangular array of numbers"),
    ],
)
def test_a_wrong_matrix_is_named(f, W, message):
    with pytest.raises(ValueError, match=message):
        f(W, t24(0))


@pytest.mark.parametrize("f", [ntpnb.cross_entropy, ntpnb.gradient, ntpnb.excess_loss])
def test_data_of_another_type_are_named(f):
    with pytest.raises(TypeError, match=r"^data is of type ndarray; NextTokenData is needed"):
        f(np.zeros((5, 8)), t24(0).target_probs)


def test_the_largest_matrix_is_still_scored():
    data = t24(0)
    W = LARGEST * np.sign(random_weights(data, 6))
    assert np.isfinite([ntpnb.cross_entropy(W, data), ntpnb.excess_loss(W, data)]).all()
    assert np.isfinite(ntpnb.gradient(W, data)).all()


# -- invariances ----------------------------------------------------------------------------------


@given(any_problem(), st.integers(0, 99))
def test_rotations_permutations_and_split_contexts(data, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(data.shape)
    Q = np.linalg.qr(rng.standard_normal((data.shape[1], data.shape[1])))[0]
    tokens, rows = rng.permutation(data.vocab_size), rng.permutation(len(data.context_probs))
    order = tokens if data.token_embeddings is None else np.arange(data.shape[0])
    for same, moved, back in [
        (rotated(data, Q), W @ Q, lambda G: G @ Q.T),
        (renamed(data, tokens), W[order], lambda G: G[np.argsort(order)]),
        (rearranged(data, rows), W, lambda G: G),
        (doubled(data), W, lambda G: G),
    ]:
        close = {"rtol": 1e-11, "atol": 1e-12}  # scores of size ten or so, summed in another order
        for f in (ntpnb.cross_entropy, ntpnb.excess_loss):
            np.testing.assert_allclose(f(moved, same), f(W, data), **close)
        gradient = back(ntpnb.gradient(moved, same))
        np.testing.assert_allclose(gradient, ntpnb.gradient(W, data), **close)
