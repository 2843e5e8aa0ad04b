"""The gradient flow and the next-order term: against integrators, descent, digits and theory."""

import numpy as np
import pytest
import reference
from exact import exact_excess
from problems import l24, regimes, start, t24
from quick import slow_but
from scipy.integrate import solve_ivp

import ntpnb
from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    gradient_flow,
    next_order_term,
    regularization_path,
    ridge_path,
)
from ntpnb.datasets import attention_trials, overparameterized, toy
from ntpnb.training import Coordinates
from ntpnb.training.late_time import tight_pairs

NAMES = [
    "d > m",
    "d = m",
    "one-hot next tokens",
    "groups of several rows",
    "token embeddings, p > V",
    "candidate counts and groups",
    "attention, acyclic",
    "attention, repeated tokens",
]
QUICK = ["one-hot next tokens", "candidate counts and groups", "attention, acyclic"]
FREE_OF_TIES = ["one-hot next tokens", "attention, acyclic"]
# The same regimes, small enough for an integrator that knows nothing of them.
SMALL = {
    "d > m": t24(0, V=4, m=3, d=4),
    "d = m": t24(1, V=4, m=3, d=3),
    "one-hot next tokens": t24(5, V=4, m=3, d=3, size=1),
    "groups of several rows": t24(13, V=4, m=4, d=3, rows=2, size=(1, 2)),
    "token embeddings, p > V": t24(19, V=3, m=3, d=3, tokens=4),
    "candidate counts and groups": t24(21, V=4, m=4, d=3, rows=2, candidates=True),
    "attention, acyclic": l24(23, K=4, d=4, n=3, T=3, cyclic=False),
    "attention, repeated tokens": l24(27, K=4, d=4, n=4, T=3, repeats=True, cyclic=True),
}


RANDOM = {
    f"T24 {shape} {seed}": overparameterized(seed, *shape)
    for shape in [(5, 4, 6, 2), (8, 10, 12, 3), (4, 8, 10, 1)]
    for seed in range(11, 15)
} | {
    f"L24 {kind} {i}": data
    for kind in ("acyclic", "cyclic")
    for i, data in enumerate(attention_trials(6, kind, seed=11).data)
}
# The first context alone fixes W^mm, which happens to meet the second one's margin.
WITHOUT_MULTIPLIER = NextTokenData([[1.0, 0.0], [1.0, 1.0]], [[1, 0], [1, 0]])


def integrated(data, W0, times):
    """The flow at some times by an integrator that knows nothing of it."""
    found = solve_ivp(
        lambda t, w: -ntpnb.gradient(w.reshape(data.shape), data).ravel(),
        (0, times[-1]),
        W0.ravel(),
        method="LSODA",
        t_eval=times,
        rtol=1e-10,
        atol=1e-12,
    )
    assert found.success
    return found.y.T.reshape(-1, *data.shape)


def seen(data, svm):
    """Orthonormal rows: a basis of F and of the span of the tight pairs."""
    basis = reference.equal_basis(data)
    rows = reference.pair_matrices(data, reference.strict_pairs(data))
    rows = rows[rows @ svm.W.ravel() < 1 + 1e-6]
    rows = rows - rows @ basis.T @ basis
    _, size, span = np.linalg.svd(rows, full_matrices=False)
    return np.concatenate([basis, span[size > 1e-9 * size[0]]])


# -- finite times ---------------------------------------------------------------------------------


@pytest.mark.parametrize("init", [False, True], ids=["from zero", "from a random matrix"])
@pytest.mark.parametrize("name", slow_but(QUICK, SMALL))
def test_flow_matches_a_general_integrator(name, init):
    data = SMALL[name]
    W0 = start(data) if init else np.zeros(data.shape)
    times = np.array([0.1, 1.0, 30.0, 1e3, 1e4])
    flow = gradient_flow(data, np.log(times), init=W0 if init else None)
    # the flow's local errors are 1e-8 of ‖a‖, over about a hundred steps
    assert np.abs(flow.W - integrated(data, W0, times)).max() <= 1e-5
    loss = ntpnb.cross_entropy(flow.W, data)
    np.testing.assert_allclose(flow.loss, loss, atol=1e-13)  # rounding of losses below ten
    np.testing.assert_allclose(flow.excess, ntpnb.excess_loss(flow.W, data), rtol=1e-9)
    np.testing.assert_array_equal(flow.norm, np.linalg.norm(flow.W, axis=(1, 2)))


@pytest.mark.slow
def test_times_are_found_without_the_others():
    data = regimes()["attention, repeated tokens"]
    times = [-1000.0, -900.0, -3.0, 4.0, 25.0, np.log(1e13), 60.0, 300.0]
    flow = gradient_flow(data, times)
    assert flow.norm[0] == 0.0  # e^{-1000} is no time at all
    for k, s in enumerate(times):
        alone = gradient_flow(data, [s])
        # each run chooses its own steps, to 1e-8 of ‖a‖ each
        assert np.abs(alone.W[0] - flow.W[k]).max() <= 1e-6 * (1 + abs(s))


# -- infinite times -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FREE_OF_TIES)
def test_excess_matches_exact_arithmetic_to_1e_minus_200(name):
    data = regimes()[name]
    flow = gradient_flow(data, [0.0, 10.0, 50.0, 230.0, 460.0])
    for W, excess in zip(flow.W, flow.excess, strict=True):
        assert abs(excess / exact_excess(W, data) - 1) <= 1e-10  # nothing is subtracted
    assert flow.excess[-1] < 1e-195


@pytest.mark.parametrize("length", [1e-3, 1e-6])
def test_ties_wait_for_short_embeddings(length):
    """A context of another length has the same scores, later by the length's square."""

    def late_scores(length):
        # Beside a context that orders tokens, at a right angle: log-odds x of the short one follow
        # dx/dt = length² (p − σ(x)).
        data = NextTokenData([[1.0, 0.0], [0.0, length]], [[1.0, 0.0], [0.9, 0.1]])
        times = np.array([0.1, 1.0, 11.0, 100.0]) / length**2
        W = gradient_flow(data, np.log(times)).W
        return (W[:, 0, 1] - W[:, 1, 1]) * length

    reference = solve_ivp(
        lambda t, x: 0.9 - 1 / (1 + np.exp(-x)),
        (0, 100),
        [0.0],
        method="LSODA",
        t_eval=[0.1, 1.0, 11.0, 100.0],
        rtol=1e-10,
        atol=1e-12,
    )
    # the flow's 1e-8 a step
    for found in (late_scores(length), late_scores(1.0)):
        np.testing.assert_allclose(found, reference.y[0], rtol=1e-6)


def test_nothing_is_waited_for_in_vain_where_embeddings_differ_much_in_length():
    """Once all has settled, velocities are rounding, in which an integrator goes astray."""
    for seed, length in enumerate((1e-4, 1e-5, 1e-6, 1e-7)):
        turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((2, 2)))
        data = NextTokenData(np.diag([1.0, length]) @ turn, [[0.38, 0.62], [0.39, 0.61]])
        flow = gradient_flow(data, [0.0, 250.0])
        assert flow.excess[-1] <= 1e-20
    embeddings = [[-0.996183621921, -0.087282251441], [8.14917e-07, -9.300939e-06]]
    data = NextTokenData(embeddings, [[0.38, 0.62], [0.39, 0.61]])
    assert gradient_flow(data, [0.0, 250.0]).excess[-1] <= 1e-20


@pytest.mark.parametrize("length", [1e-7, 1e-9])
def test_ties_wait_for_a_candidate_with_a_short_embedding(length):
    """The lag of the ties is ``length`` times a function of ``t length²`` alone."""

    def lags(length):
        embeddings = [[1.0, 0.0], [length, length]]
        data = NextTokenData(embeddings, [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
        log_times = np.array([0.0, 2.0]) - 2 * np.log(length)
        bias = ntpnb.implicit_bias(data)
        return gradient_flow(bias, log_times).compare(bias).finite_error / length

    np.testing.assert_allclose(lags(length), lags(1e-5), rtol=1e-3, atol=1e-10 / length)


@pytest.mark.parametrize("length", [1.0, 2.0**20, 2.0**-60])
def test_a_flow_from_a_start_is_the_same_whatever_the_unit_of_embeddings(length):
    data = toy().replace(context_embeddings=length * toy().context_embeddings)
    usual_start = np.arange(10.0).reshape(data.shape)  # on the tied subspace and off it
    W = usual_start / length
    flow = gradient_flow(data, np.array([-80.0, 3.0]) - 2 * np.log(length), init=W)
    np.testing.assert_allclose(flow.W[0], W, rtol=1e-12, atol=1e-12 / length)
    np.testing.assert_allclose(flow.excess[0], ntpnb.excess_loss(W, data), rtol=1e-9)
    usual = gradient_flow(toy(), [3.0], usual_start)
    np.testing.assert_allclose(flow.W[1] * length, usual.W[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        NextTokenData([[0.4]], [[0.12, 0.88]]),
        NextTokenData([[-1.1, 1.3]], [[0.22, 0.67, 0.11]]),
        NextTokenData(
            [[0.9, 0.2], [0.3, 1.4], [0.3, 0.5]], [[0.69, 0.31], [0.36, 0.64], [0.38, 0.62]]
        ),
        regimes()["every token in every support"],
    ],
)
@pytest.mark.parametrize("length", [0, 1, 30])
def test_a_flow_rests_where_nothing_is_dominated(data, length):
    W0 = length * start(data)
    times = np.array([1.0, 30.0, 300.0, 3000.0])
    flow = gradient_flow(data, [*np.log(times), 30.0], W0)
    rest = ntpnb.finite_part(data).W + ntpnb.equal_subspace(data).reject(W0)
    assert np.abs(flow.W[-1] - rest).max() <= 1e-13 * (1 + length)
    # and is on the way there at times that a general integrator reaches
    expected = integrated(data, W0, times)
    np.testing.assert_allclose(flow.W[:-1], expected, atol=1e-7 * (1 + length))
    np.testing.assert_array_equal(next_order_term(data), ntpnb.finite_part(data).W)


def test_what_the_gradient_cannot_move_stays():
    still = NextTokenData(np.zeros((1, 3)), [[0.5, 0.5]])
    for data in (regimes()["one token"], regimes()["attention, one token"], still):
        flow = gradient_flow(data, [0.0, 50.0], init=start(data))
        # the projections onto nothing and its complement round at most once
        assert np.abs(flow.W - start(data)).max() <= 1e-15


# -- the next-order term --------------------------------------------------------------------------


LIMITS = {name: regimes()[name] for name in NAMES} | RANDOM
QUICK_LIMITS = [*QUICK, "T24 (5, 4, 6, 2) 11", "T24 (4, 8, 10, 1) 11", "L24 cyclic 0"]


@pytest.mark.parametrize("name", slow_but(QUICK_LIMITS, LIMITS))
def test_the_flow_meets_the_next_order_term_on_ties_and_tight_pairs(name):
    data = LIMITS[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    Q = seen(data, svm)
    for W0 in (np.zeros(data.shape), start(data)):
        flow = gradient_flow(data, [600.0, 1e5], W0)
        W = flow.W[1]
        if ntpnb.finite_part(data).compatible:
            # on tight pairs the mass tends to λ/t, and Σ λ = ‖W^mm‖²; slow where λ is small
            expected = svm.norm**2 * np.exp(-600)
            rtol = 1e-5 if name in QUICK else 1e-3
            np.testing.assert_allclose(flow.excess[0], expected, rtol=rtol)
            assert flow.excess[1] == 0.0  # e^{-1e5} is no float
        assert np.linalg.norm(W / 1e5 - svm.W) <= 1e-3 * (1 + svm.norm)  # a constant over log t
        # rounding of scores of size 1e5; a multiplier of 5e-4 needs log t beyond 3000
        assert np.linalg.norm(Q @ (W - 1e5 * svm.W - term).ravel()) <= 1e-8


@pytest.mark.parametrize("length", [2.0**20, 2.0**-60])
def test_tight_pairs_are_those_of_the_data_whatever_their_length(length):
    data = regimes()[NAMES[0]]
    longer = data.replace(context_embeddings=length * data.context_embeddings)
    usual, found = (tight_pairs(Coordinates(each)) for each in (data, longer))
    size = np.linalg.norm(usual.matrices)
    assert np.linalg.norm(found.matrices / length - usual.matrices) <= 1e-12 * size
    np.testing.assert_allclose(found.log_odds, usual.log_odds, atol=1e-9)
    np.testing.assert_allclose(found.next_margin, usual.next_margin, rtol=1e-9)


def test_a_tight_pair_without_a_multiplier_has_no_limit():
    """The second pair's score ``u₂`` grows like log log t on the flow, on the path like log B."""
    with pytest.raises(ConvergenceError, match="a tight pair without a multiplier"):
        next_order_term(WITHOUT_MULTIPLIER)
    s = np.array([100.0, 1e3, 1e4])
    W = gradient_flow(WITHOUT_MULTIPLIER, s).W
    gap = np.abs(W[:, 0, 1] - W[:, 1, 1] - np.log(s))
    assert (gap <= 2 * np.log(s) / s).all()  # the next term is log s / s
    W = regularization_path(WITHOUT_MULTIPLIER, [10.0, 1e3, 1e6]).W
    u1, u2 = (W[:, 0] - W[:, 1]).T
    # u₂(1 + q₁/q₂) = u₁, and q₁/q₂ = e^{u₂} up to e^{−u₁}
    assert np.abs(u2 * (1 + np.exp(u2)) / u1 - 1).max() <= 1e-5


def test_embeddings_of_other_lengths_have_their_next_order_term():
    """Contexts at right angles decouple: log-odds are ``log(π V ‖h‖²)``."""
    lengths = np.array([1e-5, 1.0, 1e5])
    data = NextTokenData(np.diag(lengths), np.eye(2)[[0, 1, 0]])
    S = ntpnb.scores(next_order_term(data), data)
    log_odds = np.where(data.anchors == 0, S[:, 0] - S[:, 1], S[:, 1] - S[:, 0])
    np.testing.assert_allclose(log_odds, np.log(2 / 3 * lengths**2), rtol=1e-9)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "follow",
    [
        lambda data: gradient_flow(data, [1.0]),
        next_order_term,
        lambda data: regularization_path(data, [1.0]),
        lambda data: ridge_path(data, [1.0]),
    ],
)
def test_without_a_direction_there_is_nothing_to_follow(follow):
    with pytest.raises(NotSeparableError, match="contradict each other"):
        follow(regimes()["d < m"])


# In the order of each function: decreasing log_multipliers are compared with their signs turned.
FOLLOWED = {
    "log_times": (lambda x: gradient_flow(toy(), x), 1),
    "radii": (lambda x: regularization_path(toy(), x), 1),
    "log_multipliers": (lambda x: ridge_path(toy(), x), -1),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_followed_must_increase(name):
    follow, sign = FOLLOWED[name]
    ordered = name if sign == 1 else f"−{name}"
    for values, message in [
        ([], rf"^{ordered} is empty; at least one number is needed"),
        (2.0, rf"^{name} has 0 dimensions; it needs 1"),
        ([[1.0, 2.0]], rf"^{name} has 2 dimensions; it needs 1"),
        ([3.0, 2.0], rf"^{ordered}\[1\] is 2 after 3; {ordered} must increase"),
        ([1.0, 1.0], rf"^{ordered}\[1\] is 1 after 1"),
        ([1.0, np.inf], rf"^{name}\[1\] is -?inf; every entry must be finite"),
        ([np.nan], rf"^{name}\[0\] is nan; every entry must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            follow(np.multiply(sign, values))


def test_tokens_on_one_line_of_any_length_end_in_words():
    # All differences of tokens are parallel to sixteen digits, and Newton's step overflows.
    T = 1e-40 * np.array(
        [
            [-0.90641129048774108, -1.8295513938981765, -0.022613463750533164],
            [0.90641129048752564, 1.8295513938951300, 0.022613463752090567],
            [-0.90641129048783151, -1.8295513938962697, -0.022613463750943783],
            [0.90641129048573077, 1.8295513938967819, 0.022613463749876743],
        ]
    )
    data = NextTokenData([[0.006758844871951726]], np.eye(4)[[2]], token_embeddings=T)
    with np.errstate(all="raise", under="ignore"), pytest.raises(ntpnb.ConvergenceError):
        ntpnb.next_order_term(data)
