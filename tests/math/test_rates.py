"""The next-order term on random problems, what is lost without it, and how other clocks meet it."""

import numpy as np
import pytest
import reference
from quick import slow_but
from scipy.integrate import solve_ivp

import ntpnb
from ntpnb import (
    GD,
    NGD,
    ConvergenceError,
    NextTokenData,
    descend,
    gradient_flow,
    next_order_term,
    regularization_path,
)
from ntpnb.datasets import attention_trials, overparameterized, uniform_init

T24 = {
    f"T24 {shape} {seed}": overparameterized(seed, *shape)
    for shape in [(5, 4, 6, 2), (8, 10, 12, 3), (4, 8, 10, 1)]
    for seed in range(11, 15)
}
L24 = {
    f"L24 {kind} {i}": data
    for kind in ("acyclic", "cyclic")
    for i, data in enumerate(attention_trials(6, kind, seed=11).data)
}
RANDOM = T24 | L24
# The first problem of each kind is quick enough for every day; the others are for `make test`.
QUICK = ["T24 (5, 4, 6, 2) 11", "T24 (4, 8, 10, 1) 11", "L24 acyclic 0", "L24 cyclic 0"]
EXCEPTIONAL = NextTokenData([[1.0, 0.0], [1.0, 1.0]], [[1, 0], [1, 0]])


def seen(data, svm):
    """Orthonormal rows: a basis of F and of the span of the tight pairs."""
    basis = reference.equal_basis(data)
    rows = reference.pair_matrices(data, reference.strict_pairs(data))
    rows = rows[rows @ svm.W.ravel() < 1 + 1e-6]
    rows = rows - rows @ basis.T @ basis
    _, size, span = np.linalg.svd(rows, full_matrices=False)
    return np.concatenate([basis, span[size > 1e-9 * size[0]]])


@pytest.mark.parametrize("name", slow_but(QUICK, RANDOM))
def test_the_flow_meets_the_next_order_term(name):
    data = RANDOM[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    start = uniform_init(data, 5)
    W = gradient_flow(data, [1e5], start).W[0]
    off = (W - 1e5 * svm.W - term).ravel()
    Q = seen(data, svm)
    assert np.linalg.norm(Q @ off) <= 1e-5  # W is of size 1e5: ten of its digits
    # what neither sees is orthogonal to both, so the flow is never ahead of the path
    direction = svm.W.ravel() / svm.norm
    flow, path = (np.linalg.norm(x - x @ direction * direction) for x in (W.ravel(), term.ravel()))
    rest = np.linalg.norm(off - Q.T @ (Q @ off))
    assert flow == pytest.approx(np.hypot(path, rest), rel=1e-5)


@pytest.mark.parametrize(
    "name",
    ["T24 (5, 4, 6, 2) 11", "T24 (8, 10, 12, 3) 11", "T24 (4, 8, 10, 1) 11", "L24 acyclic 0"],
)
def test_gradient_descent_is_as_close_to_it_as_the_flow(name):
    data = RANDOM[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    step, steps = 0.5 / data.smoothness, np.array([1000, 10_000])
    start, log_t = uniform_init(data, 5), np.log(step * steps)
    Q = seen(data, svm)
    W = [descend(data, GD(step), steps[-1], start, steps).W, gradient_flow(data, log_t, start).W]
    off = [w - log_t[:, None, None] * svm.W - term for w in W]
    gd, flow = (np.linalg.norm(x.reshape(2, -1) @ Q.T, axis=1) for x in off)
    assert gd[1] < gd[0]
    assert gd[1] == pytest.approx(flow[1], rel=0.03)  # Euler's first steps, not yet forgotten


def test_normalized_steps_without_a_bowl_meet_its_angle():
    data = L24["L24 acyclic 2"]
    svm, fin, start = ntpnb.max_margin(data), ntpnb.finite_part(data), uniform_init(data, 5)
    far = gradient_flow(data, [1e5], start).compare(fin, svm).angle[0] * 1e5 * svm.norm
    steps = np.array([4000, 16_000])
    run = descend(data, NGD(0.02), steps[-1], start, steps)
    # the constant of the flow, up to a step's length; the norm misses 0.02 k by a constant
    assert run.compare(fin, svm).angle[1] * run.norm[1] == pytest.approx(far, rel=0.02)
    assert np.diff(run.norm)[0] == pytest.approx(0.02 * 12_000, rel=0.02)


def test_normalized_steps_in_a_bowl_leave_a_loss():
    """One context, no other token: NGD ends in a 2-cycle of ±η/2, at the loss λη²/8."""
    data, step = NextTokenData([[1.0]], [[0.5, 0.5]]), 0.01
    run = descend(data, NGD(step), 1001, [[1.0], [0.0031]], [1000, 1001])
    # along the unit matrix (1, −1)/√2 the curvature λ is 2 p₁ p₂ = 1/2
    d = np.diff(run.W[:, :, 0], axis=1)[:, 0] / np.sqrt(2)
    assert np.abs(np.diff(d))[0] == pytest.approx(step, rel=1e-9)
    assert run.excess == pytest.approx(d**2 / 4, rel=1e-4)  # λd²/2 up to d⁴
    assert run.excess.mean() >= step**2 / 16 * (1 - 1e-4)  # λη²/8, least when the hop is centred


# -- a tight pair with zero multiplier ------------------------------------------------------------


def test_without_a_multiplier_the_remainder_grows_like_log_log_t():
    with pytest.raises(ConvergenceError):
        next_order_term(EXCEPTIONAL)
    s = np.array([3.0, 10.0, 100.0, 1e3, 1e4])
    W = gradient_flow(EXCEPTIONAL, s).W
    u = W[:, 0] - W[:, 1]
    # an independent integration of x = u₁ − s and u₂, from the same point on
    reference = solve_ivp(
        lambda s, z: (
            [
                1 / (np.exp(-s) + np.exp(z[0])) + 1 / (np.exp(-s) + np.exp(z[0] + z[1])) - 1,
                1 / (np.exp(-s) + np.exp(z[0] + z[1])),
            ]
        ),
        (s[0], s[-1]),
        [u[0, 0] - s[0], u[0, 1]],
        method="LSODA",
        t_eval=s,
        rtol=1e-11,
        atol=1e-12,
    )
    # the flow's 1e-8 of a coordinate of size s
    assert np.abs(u[:, 1] - reference.y[1]).max() <= 1e-4
    gap = np.abs(u[:, 1] - np.log(s))
    assert (np.diff(gap[1:]) < 0).all()
    assert gap[-1] <= 2 * np.log(s[-1]) / s[-1]  # the next term is log s / s


def test_without_a_multiplier_the_path_strays_like_log_b():
    radii = np.array([10.0, 1e3, 1e6])
    W = regularization_path(EXCEPTIONAL, radii).W
    u1, u2 = (W[:, 0] - W[:, 1]).T
    # u₂(1 + q₁/q₂) = u₁, and q₁/q₂ = e^{u₂} up to e^{−u₁}
    assert np.abs(u2 * (1 + np.exp(u2)) / u1 - 1).max() <= 1e-5
