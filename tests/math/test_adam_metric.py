"""Adam's metric from its bouncing: against trained Adam, in closed form, and out of time."""

import numpy as np
import pytest

import ntpnb
from ntpnb import NextTokenData, adam_metric
from ntpnb.training import descent
from ntpnb_book import drawn_problems

BETAS = (0.9, 0.99)  # a memory of 100 steps, where the default's has 1000
STEPS = 8000
SMALL = next(iter(drawn_problems(7101, 1, (6, 5, 6, 3)).values()))


def log_ratio(D, other):
    """Standard deviation of ``log(D / other)`` over the entries; both are known up to a factor."""
    return np.log(D / other).std()


def noise_of(*found):
    """How far apart such metrics may be by chance: five standard errors of their log ratio.

    The errors are themselves estimates from four blocks, good to some forty per cent, so that this
    is at least three.
    """
    return 5 * np.sqrt(sum(one.error**2 for one in found))


@pytest.fixture(scope="module")
def found():
    return adam_metric(SMALL, BETAS, STEPS)


# -- against training -----------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_trained_adam_bounces_as_the_bowl_says(found, decay):
    steps, window = 20_000, 5000
    adam = ntpnb.Adam(0.1 if decay else 0.01, *BETAS, epsilon=0.0, decay=decay)
    late = np.arange(steps - window, steps)
    W = ntpnb.descend(SMALL, adam, steps, None, late).W
    trained = np.sqrt(np.mean(ntpnb.gradient(W, SMALL) ** 2, axis=0))
    # The bounds of the claim: its figures are a thousandth and two hundredths.
    assert np.corrcoef(np.log(trained).ravel(), np.log(found.D).ravel())[0, 1] >= 0.999
    assert log_ratio(trained, found.D) <= 0.02
    others = adam_metric(SMALL, (0.9, 0.95), STEPS)
    assert log_ratio(trained, others.D) > 2 * log_ratio(trained, found.D)


def test_the_step_of_training_drops_out_of_the_bowl(found):
    # In a bowl that is exactly quadratic, steps of any size bounce alike; powers of two are exact.
    bowl = SMALL.replace(context_embeddings=4.0 * SMALL.context_embeddings)
    np.testing.assert_array_equal(adam_metric(bowl, BETAS, STEPS).D, found.D)


# -- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("betas", [(0.0, 0.9), (0.9, 0.999)])
@pytest.mark.parametrize("odds", [[0.5, 0.5], [0.9, 0.1]])
def test_one_context_with_two_tokens_has_the_size_of_its_embedding(betas, odds):
    h = np.array([3.0, -1.0, 0.5])
    one = adam_metric(NextTokenData([h], [odds]), betas, 20_000)
    # All gradients are multiples of (1, -1) hᵀ, so that only rounding tells the entries apart.
    np.testing.assert_allclose(one.D, np.abs([h, h]) / 3, rtol=1e-12)
    if betas[0] == 0.0:  # with momentum the cycle repels, and rounding may tell the starts apart
        assert one.error < 1e-12


def test_what_has_no_choice_or_is_zero_is_out_of_the_bowl():
    # Two contexts, of which only one has a choice; the third coordinate is zero.
    H = [[1.0, 2.0, 0.0], [5.0, 0.0, 0.0]]
    data = NextTokenData(H, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    D = adam_metric(data, BETAS, STEPS).D
    np.testing.assert_allclose(D, [[0.5, 1, 0], [0.5, 1, 0], [0, 0, 0]], rtol=1e-12)


def smallest_diagonal_above(A):
    """The diagonal matrix of least trace with ``D ⪰ A``, by its dual, to a gap of 1e-9."""
    U = np.random.default_rng(0).standard_normal((len(A), 12))
    for _ in range(4000):
        G = A @ U
        D = np.linalg.norm(G, axis=1)
        U = G / D[:, None]
    assert abs(np.linalg.eigvalsh(A / np.sqrt(np.outer(D, D)))[-1] - 1) < 1e-9
    return D


def hessian(data):
    """Of the bowl: contexts' covariances of tokens, times those of embeddings."""
    rows = zip(data.context_probs, data.target_probs, data.context_embeddings, strict=True)
    each = [p * np.kron(np.diag(q) - np.outer(q, q), np.outer(h, h)) for p, q, h in rows]
    return np.sum(each, axis=0)


def test_as_beta2_tends_to_one_it_is_the_smallest_diagonal_above_the_hessian():
    assert ntpnb.finite_part(SMALL).compatible
    limit = smallest_diagonal_above(hessian(SMALL)).reshape(SMALL.shape)
    off = [
        log_ratio(adam_metric(SMALL, (0.0, beta2), steps).D, limit)
        for beta2, steps in [(0.9, 8000), (0.99, 8000), (0.999, 24_000)]
    ]
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.02
    # With momentum too, though from farther away: the limit does not depend on beta1.
    assert log_ratio(adam_metric(SMALL, (0.9, 0.999)).D, limit) < 0.03


# -- what it depends on, and on what not ----------------------------------------------------------


def test_the_error_says_how_far_two_seeds_are_apart(found):
    other = adam_metric(SMALL, BETAS, STEPS, seed=1)
    assert 0 < log_ratio(found.D, other.D) < noise_of(found, other)
    longer = adam_metric(SMALL, BETAS, 16 * STEPS)
    assert longer.error < found.error / 2


def test_a_context_that_stands_twice_weighs_twice():
    rows = [0, *range(SMALL.num_contexts)]
    copies = NextTokenData(SMALL.context_embeddings[rows], SMALL.target_probs[rows])
    weights = np.bincount(rows) / len(rows)
    once, twice = (
        adam_metric(data, BETAS, STEPS) for data in (SMALL.replace(context_probs=weights), copies)
    )
    assert log_ratio(once.D, twice.D) <= noise_of(once, twice)


def test_tokens_and_coordinates_may_be_permuted_and_signs_changed(found):
    V, d = SMALL.shape
    rng = np.random.default_rng(3)
    tokens, coordinates = rng.permutation(V), rng.permutation(d)
    H = SMALL.context_embeddings[:, coordinates] * rng.choice([-1.0, 1.0], d)
    moved = adam_metric(NextTokenData(H, SMALL.target_probs[:, tokens]), BETAS, STEPS)
    expected = found.D[np.ix_(tokens, coordinates)]
    assert log_ratio(moved.D, expected) < noise_of(found, moved)
    assert log_ratio(moved.D, found.D) > 10 * noise_of(found, moved)


def test_a_bias_may_take_the_place_of_data(found):
    again = adam_metric(ntpnb.implicit_bias(SMALL), BETAS, STEPS)
    np.testing.assert_array_equal(again.D, found.D)
    assert (again.error, again.steps) == (found.error, STEPS)
    assert again.betas.tolist() == list(BETAS)
    assert found.D.max() == 1.0


def test_wrong_tokens_do_not_matter_but_odds_do(found):
    # One token more that follows nothing: the other rows keep their bowl.
    wider = np.pad(SMALL.target_probs, ((0, 0), (0, 1)))
    silent = adam_metric(SMALL.replace(target_probs=wider), BETAS, STEPS)
    assert not silent.D[-1].any()
    assert log_ratio(silent.D[:-1], found.D) < noise_of(found, silent)
    squared = SMALL.target_probs**2
    squared = squared / squared.sum(axis=1, keepdims=True)
    odds = adam_metric(SMALL.replace(target_probs=squared), BETAS, STEPS)
    assert log_ratio(odds.D, found.D) > 10 * noise_of(found, odds)


def test_data_that_are_not_separable_have_the_bowl_of_their_twin():
    for data in (
        NextTokenData([[1.0], [2.0]], [[0.5, 0.5], [0.8, 0.2]]),
        NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 1, 0]]),
    ):
        twin = ntpnb.implicit_bias(data).twin
        D = adam_metric(data, BETAS, STEPS).D
        np.testing.assert_array_equal(D, adam_metric(twin.data, BETAS, STEPS).D)


# -- time and progress ----------------------------------------------------------------------------


def test_time_that_is_over_leaves_no_answer():
    with pytest.raises(ntpnb.ConvergenceError, match=r"^stopped after 0 seconds"):
        adam_metric(ntpnb.implicit_bias(SMALL), seconds=0)


def test_progress_is_told(found, monkeypatch):
    monkeypatch.setattr(descent, "LOOK_AT_THE_CLOCK", 0.0)  # on a fast machine, too
    lines = []
    watched = adam_metric(SMALL, BETAS, STEPS, seconds=1000, progress=lines.append)
    assert any("bowl of Adam" in line for line in lines)
    np.testing.assert_array_equal(watched.D, found.D)
