"""What is known of late training in advance, against hand computation and the gradient flow."""

import numpy as np
import pytest

import ntpnb
from ntpnb_book import distance, euler_bound, next_order


def test_two_tokens_by_hand():
    """u = w₁ − w₂ obeys u' = 2/(1 + eᵘ), so u − log t tends to log 2; W^mm has rows ±½."""
    found = next_order(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
    np.testing.assert_allclose(found.term.ravel(), [np.log(2) / 2, -np.log(2) / 2], atol=1e-12)
    np.testing.assert_allclose(found.pull, [0.5], atol=1e-12)  # W^mm = ½ (1, −1)
    assert found.kappa == pytest.approx(0, abs=1e-12)
    assert found.ahead == pytest.approx(np.log(2) / np.sqrt(2), abs=1e-12)
    # the curvature along D = (1, −1) is the pull times |D|², which is 1
    assert (found.mu, found.delta, found.rho) == (pytest.approx(1), np.inf, pytest.approx(1))


@pytest.fixture(scope="module")
def toy():
    return next_order(ntpnb.datasets.toy())


def test_the_flow_on_the_toy_ends_on_the_line(toy):
    log_t = np.array([40.0, 80.0])
    W = ntpnb.gradient_flow(toy.data, log_t).W
    assert toy.distance(W, log_t).max() < 1e-6
    # from zero, nothing on the toy is out of sight of F and the tight pairs
    assert toy.unseen(W).max() < 1e-6
    np.testing.assert_allclose(toy.full_offset(W), toy.kappa, atol=1e-6)
    angles = np.degrees(ntpnb.compare(W, ntpnb.implicit_bias(toy.data)).angle)
    np.testing.assert_allclose(angles, toy.angle(log_t, toy.kappa), rtol=1e-6)


def test_pulls_are_multipliers_of_the_margin_problem(toy):
    np.testing.assert_allclose(toy.pull @ toy.pairs, toy.svm.W.ravel(), atol=1e-9)


def test_what_is_seen_is_a_projection(toy):
    W = np.random.default_rng(0).standard_normal((3, *toy.data.shape))
    np.testing.assert_allclose(toy.seen(toy.seen(W)), toy.seen(W), atol=1e-12)
    squares = (W**2).sum((1, 2))
    np.testing.assert_allclose(
        toy.unseen(W) ** 2 + (toy.seen(W) ** 2).sum((1, 2)), squares, atol=1e-12
    )


def test_the_time_to_an_angle_is_the_time_at_which_it_is_reached(toy):
    powers = toy.log10_time([10.0, 1.0, 0.1], toy.kappa)
    np.testing.assert_allclose(toy.angle(powers * np.log(10), toy.kappa), [10, 1, 0.1])


def test_the_way_of_a_velocity_that_never_turns_is_its_fall():
    """u' = 2q with q = 1/(1 + eᵘ): the velocity has rows ±q, so its way is √2 (½ − q)."""
    data = ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]])
    W = ntpnb.gradient_flow(data, [3.0]).W[0]
    last = 1 / (1 + np.exp(W[0, 0] - W[1, 0]))
    bound = euler_bound(data, np.zeros((2, 1)), 0.1, 3.0)
    assert bound == pytest.approx(0.1 * np.sqrt(2) * (0.5 - last), rel=1e-6)


@pytest.mark.parametrize("part", [0.1, 1.0, 2.0])
def test_steps_up_to_two_over_l_stay_within_the_bound(part):
    data = ntpnb.datasets.overparameterized(3, 5, 4, 6, 2)
    start = ntpnb.datasets.uniform_init(data, 3)
    step = part / data.smoothness
    descent = ntpnb.descend(data, ntpnb.GD(step), 100, start).W[-1]
    log_time = np.log(100 * step)
    flow = ntpnb.gradient_flow(data, [log_time], start).W[0]
    assert 0 < distance(descent, flow) < euler_bound(data, start, step, log_time)


def test_data_that_order_nothing_have_no_next_order():
    with pytest.raises(ValueError, match="data order nothing"):
        next_order(ntpnb.NextTokenData([[1.0, 2.0]], [[0.4, 0.6]]))
