"""The gradient flow against a general integrator, gradient descent, exact arithmetic and theory."""

import numpy as np
import pytest
import reference
from exact import exact_excess, tied_tokens
from problems import l24, regimes, start, t24
from quick import slow_but
from scipy.integrate import solve_ivp

import ntpnb
from ntpnb import (
    GD,
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    descend,
    gradient_flow,
    next_order_term,
    ridge_path,
)
from ntpnb.datasets import attention_trials, toy
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


def tight_rows(data, svm):
    """Strict pairs of margin one as flat matrices off F, one in each row."""
    basis = reference.equal_basis(data)
    rows = reference.pair_matrices(data, reference.strict_pairs(data))
    rows = rows[rows @ svm.W.ravel() < 1 + 1e-6]
    return rows - rows @ basis.T @ basis


# -- finite times ---------------------------------------------------------------------------------


@pytest.mark.parametrize("init", [False, True], ids=["from zero", "from a random matrix"])
@pytest.mark.parametrize("name", slow_but(QUICK, SMALL))
def test_flow_matches_a_general_integrator(name, init):
    data = SMALL[name]
    W0 = start(data) if init else np.zeros(data.shape)
    times = np.array([0.1, 1.0, 30.0, 1e3, 1e4])
    flow = gradient_flow(data, np.log(times), init=W0 if init else None)
    integrated = solve_ivp(
        lambda t, w: -ntpnb.gradient(w.reshape(data.shape), data).ravel(),
        (0, 1e4),
        W0.ravel(),
        method="LSODA",
        t_eval=times,
        rtol=1e-10,
        atol=1e-11,
    )
    assert integrated.success
    expected = integrated.y.T.reshape(flow.W.shape)
    # the flow's local errors are 1e-8 of ‖a‖, over about a hundred steps
    assert np.abs(flow.W - expected).max() <= 1e-5
    loss = ntpnb.cross_entropy(flow.W, data)
    np.testing.assert_allclose(flow.loss, loss, atol=1e-13)  # rounding of losses below ten
    np.testing.assert_allclose(flow.excess, ntpnb.excess_loss(flow.W, data), rtol=1e-9)
    np.testing.assert_array_equal(flow.norm, np.linalg.norm(flow.W, axis=(1, 2)))


@pytest.mark.parametrize("data", [t24(40), l24(41, n=8)], ids=["T24", "L24"])
def test_gradient_descent_tends_to_the_flow_at_first_order(data):
    W0 = start(data)
    end = 16.0
    flow = gradient_flow(data, [np.log(end)], init=W0).W[0]
    errors = []
    for step in (1 / 16, 1 / 32, 1 / 64):
        k = int(end / step)
        errors.append(np.linalg.norm(descend(data, GD(step), k, W0, record=[k]).W[0] - flow))
    # Euler's error is C η + O(η²): halving η halves it up to the second term
    assert np.divide(errors[:-1], errors[1:]) == pytest.approx(2, rel=0.1)
    assert errors[-1] <= 1e-2 * np.linalg.norm(flow)


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


@pytest.mark.parametrize("name", slow_but(QUICK, NAMES))
def test_the_limit_on_ties_and_tight_pairs_is_the_next_order_term(name):
    data = regimes()[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    for W0 in (np.zeros(data.shape), start(data)):
        W = gradient_flow(data, [1e5], init=W0).W[0]
        assert np.linalg.norm(W / 1e5 - svm.W) <= 1e-3 * (1 + svm.norm)  # a constant over log t
        off = (W - 1e5 * svm.W - term).ravel()
        for rows in (reference.equal_basis(data), tight_rows(data, svm)):
            # rounding of scores of size 1e5; a multiplier of 5e-4 needs log t beyond 3000
            assert np.abs(rows @ off).max(initial=0.0) <= 1e-8


@pytest.mark.parametrize("name", FREE_OF_TIES)
def test_excess_falls_like_one_over_t(name):
    data = regimes()[name]
    svm = ntpnb.max_margin(data)
    flow = gradient_flow(data, [460.0, 600.0, 700.0, 1e6])
    # on tight pairs the mass tends to λ/t, and Σ λ = ‖W^mm‖²; others are exponentially smaller
    expected = svm.norm**2 * np.exp(-flow.log_times[:3])
    np.testing.assert_allclose(flow.excess[:3], expected, rtol=1e-5)  # slow where λ is small
    assert flow.excess[3] == 0.0


@pytest.mark.parametrize("name", FREE_OF_TIES)
def test_excess_matches_exact_arithmetic_to_1e_minus_200(name):
    data = regimes()[name]
    flow = gradient_flow(data, [0.0, 10.0, 50.0, 230.0, 460.0])
    for W, excess in zip(flow.W, flow.excess, strict=True):
        assert abs(excess / exact_excess(W, data) - 1) <= 1e-10  # nothing is subtracted
    assert flow.excess[-1] < 1e-195


@pytest.mark.parametrize("h", [1e-3, 1e-6])
def test_small_embeddings_settle_late_and_are_waited_for(h):
    """Two orthogonal contexts: the small one's log-odds x follow dx/dt = h²(p − σ(x))."""
    data = NextTokenData([[1.0, 0.0], [0.0, h]], [[1.0, 0.0], [0.9, 0.1]])
    times = np.array([0.1, 1.0, 11.0, 100.0]) / h**2
    flow = gradient_flow(data, np.log(times))
    reference = solve_ivp(
        lambda s, x: 0.9 - 1 / (1 + np.exp(-x)),
        (0, 100),
        [0.0],
        method="LSODA",
        t_eval=times * h**2,
        rtol=1e-10,
        atol=1e-12,
    )
    # the context's frequency ½ and the two rows that move oppositely cancel
    odds = (flow.W[:, 0, 1] - flow.W[:, 1, 1]) * h
    np.testing.assert_allclose(odds, reference.y[0], rtol=1e-6)  # the flow's 1e-8 a step


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


def test_laws_that_no_matrix_meets_have_a_flow():
    laws = [[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]
    data = NextTokenData([[1.0, 0.5], [1.0, 0.5], [-1.0, 1.0]], laws)
    fin, svm = ntpnb.finite_part(data), ntpnb.max_margin(data)
    flow = gradient_flow(data, [10.0, 30.0, 230.0])
    found = flow.compare(fin, svm)
    assert not fin.compatible
    assert found.finite_error[1] <= 1e-8  # the integrator's
    assert found.finite_error[2] <= 1e-13
    assert (np.diff(found.angle) < 0).all()


@pytest.mark.parametrize("length", [1.0, 2.0**20, 2.0**-60])
def test_a_start_is_where_the_flow_begins_whatever_the_unit_of_embeddings(length):
    data = toy().replace(context_embeddings=length * toy().context_embeddings)
    W = np.arange(10.0).reshape(data.shape) / length  # on the tied subspace and off it
    coords = Coordinates(data, W)
    begun = coords.weights(coords.u_start, np.zeros(len(coords.gram)))
    np.testing.assert_allclose(begun, W, rtol=1e-12, atol=1e-12 / length)
    scores = coords.logits(coords.u_start, np.zeros(len(coords.gram)))
    probs = np.zeros(data.target_probs.shape)
    probs[coords.row, coords.token] = np.exp(coords.log_probs(scores))
    expected = np.exp(ntpnb.logits(W, data))
    np.testing.assert_allclose(probs, expected / expected.sum(1, keepdims=True), rtol=1e-9)


def test_without_strict_pairs_the_flow_converges():
    data = regimes()["every token in every support"]
    fin = ntpnb.finite_part(data)
    flow = gradient_flow(data, [0.0, 15.0, 1e3])
    # a rate of 0.006 has long settled at t = 3e6; the integrator's tolerance is 1e-8
    assert np.abs(flow.W[1] - fin.W).max() <= 1e-7
    assert np.abs(flow.W[2] - fin.W).max() <= 1e-13
    np.testing.assert_array_equal(next_order_term(data), fin.W)


@pytest.mark.parametrize(
    ("embeddings", "laws"),
    [
        ([[0.4]], [[0.12, 0.88]]),
        ([[-1.1, 1.3]], [[0.22, 0.67, 0.11]]),
        ([[0.9, 0.2], [0.3, 1.4], [0.3, 0.5]], [[0.69, 0.31], [0.36, 0.64], [0.38, 0.62]]),
    ],
)
def test_a_flow_rests_where_nothing_is_dominated(embeddings, laws):
    data = NextTokenData(embeddings, laws)
    flow = gradient_flow(data, [0.0, 30.0])
    assert np.abs(flow.W[1] - ntpnb.finite_part(data).W).max() <= 1e-13
    # and is on the way there at a time that a general integrator reaches
    integrated = solve_ivp(
        lambda t, w: -ntpnb.gradient(w.reshape(data.shape), data).ravel(),
        (0, 1.0),
        np.zeros(data.shape).ravel(),
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(flow.W[0].ravel(), integrated.y[:, -1], atol=1e-7)


def test_what_the_gradient_cannot_move_stays():
    for name in ("one token", "attention, one token", "all embeddings zero"):
        data = regimes()[name]
        if name == "all embeddings zero":
            data = NextTokenData(np.zeros((1, 3)), [[0.5, 0.5]])
        flow = gradient_flow(data, [0.0, 50.0], init=start(data))
        # the projections onto nothing and its complement round at most once
        assert np.abs(flow.W - start(data)).max() <= 1e-15


# -- the next-order term --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [regimes()[name] for name in NAMES] + list(attention_trials(3, "cyclic").data),
)
def test_the_next_order_term_is_the_limit_of_the_path(data):
    R = np.array([1e3, 1e6])
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    W = ridge_path(data, -R).W
    gaps = [np.linalg.norm(w - (r - np.log(r)) * svm.W - term) for w, r in zip(W, R, strict=True)]
    # what is left is of order log R / R; W itself rounds by 1e-16 R
    assert gaps[1] <= 1e-3 * (1 + np.linalg.norm(term))
    assert gaps[1] <= 0.01 * gaps[0] + 1e-8


@pytest.mark.parametrize("name", NAMES)
def test_tight_pairs_carry_their_multipliers(name):
    """At the next-order term the tight pairs' forces add up to the max-margin direction."""
    data = regimes()[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    T = reference.token_embeddings(data)
    total = np.zeros_like(term)
    for j, own, counts in tied_tokens(data):
        pi, h, a = data.context_probs[j], data.context_embeddings[j], own[0]
        mass = counts * np.exp((T - T[a]) @ term @ h)
        for v in np.flatnonzero(counts):
            if v not in own and (T[a] - T[v]) @ svm.W @ h < 1 + 1e-6:
                total += pi * mass[v] / mass[own].sum() * np.outer(T[a] - T[v], h)
    basis = reference.equal_basis(data)
    total = total.ravel() - basis.T @ (basis @ total.ravel())
    # Newton stops at 1e-12; margins, and so forces, are good to about 1e-12 of them
    assert np.linalg.norm(total - svm.W.ravel()) <= 1e-9 * svm.norm


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
    """The first context alone fixes W^mm, which happens to meet the second one's margin."""
    data = NextTokenData([[1.0, 0.0], [1.0, 1.0]], [[1, 0], [1, 0]])
    assert ntpnb.max_margin(data).min_margin >= 1 - 1e-12
    with pytest.raises(ConvergenceError, match="a tight pair without a multiplier"):
        next_order_term(data)


# -- what is refused ------------------------------------------------------------------------------


def test_no_direction_no_flow():
    data = regimes()["d < m"]
    for f in (lambda: gradient_flow(data, [1.0]), lambda: next_order_term(data)):
        with pytest.raises(NotSeparableError, match="contradict each other"):
            f()


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        ([], {}, r"log_times is empty; at least one number is needed"),
        (1.0, {}, r"log_times has 0 dimensions; it needs 1"),
        ([[0.0, 1.0]], {}, r"log_times has 2 dimensions; it needs 1"),
        ([1.0, 1.0], {}, r"log_times\[1\] is 1 after 1; log_times must increase"),
        ([2.0, 1.0], {}, r"log_times\[1\] is 1 after 2; log_times must increase"),
        ([0.0, np.inf], {}, r"log_times\[1\] is inf; every entry must be finite"),
        ([np.nan], {}, r"log_times\[0\] is nan; every entry must be finite"),
        ([1.0], {"init": np.zeros((2, 5))}, r"init has shape \(2, 5\); its last two axes must"),
        ([1.0], {"init": np.zeros((1, 5, 2))}, r"init has shape \(1, 5, 2\); it needs \(5, 2\)"),
        ([1.0], {"init": np.full((5, 2), np.inf)}, r"init has entries that are not finite"),
    ],
)
def test_times_and_starts_must_make_sense(times, options, message):
    with pytest.raises(ValueError, match=message):
        gradient_flow(toy(), times, **options)


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
