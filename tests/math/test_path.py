"""Regularization and ridge paths against gradients, exact arithmetic and theory."""

import mpmath
import numpy as np
import pytest
import reference
from exact import tied_tokens
from problems import regimes, t24
from quick import slow_but

import ntpnb
from ntpnb import (
    NextTokenData,
    gradient_flow,
    next_order_term,
    regularization_path,
    ridge_path,
)
from ntpnb.datasets import attention_trials, overparameterized

FREE_OF_TIES = ["one-hot next tokens", "attention, acyclic"]
COMPATIBLE = ["d > m", "d = m", "one context", "two tokens", "token embeddings, p > V"]
OTHERS = [
    "groups of several rows",
    "candidate counts and groups",
    "attention, cyclic",
    "attention, repeated tokens",
]
SEPARABLE = FREE_OF_TIES + COMPATIBLE + OTHERS
QUICK = ["one-hot next tokens", "d > m", "token embeddings, p > V", "attention, cyclic"]
BESIDE = (
    {name: regimes()[name] for name in SEPARABLE}
    | {"overparameterized": overparameterized()}
    | {f"cyclic trial {i}": data for i, data in enumerate(attention_trials(4, "cyclic").data)}
    | {f"acyclic trial {i}": data for i, data in enumerate(attention_trials(3).data)}
)


def theory(data):
    return ntpnb.finite_part(data), ntpnb.max_margin(data)


def strict_residual(data, W, log_multiplier):
    """‖P_⊥(∇CE/λ + W)‖ / ‖W‖ from 40-digit scores.

    Differences of tied tokens lie in F. So only the mass of dominated tokens counts, and that
    is a sum of positive terms that no underflow of the loss can reach.
    """
    T = reference.token_embeddings(data)
    total = np.zeros_like(W)
    with mpmath.workdps(40):
        exact = mpmath.matrix(W.tolist())
        for j, own, counts in tied_tokens(data):
            h = data.context_embeddings[j]
            x = mpmath.matrix(T.tolist()) * (exact * mpmath.matrix(h.tolist()))
            some = np.flatnonzero(counts).tolist()
            top = max(x[v] for v in some)
            mass = {v: mpmath.mpf(counts[v]) * mpmath.exp(x[v] - top) for v in some}
            for v in set(some) - set(own):
                q = mass[v] / mpmath.fsum(mass.values())
                weight = data.context_probs[j] * q * mpmath.exp(-mpmath.mpf(log_multiplier))
                total += float(weight) * np.outer(T[own[0]] - T[v], h)
    basis = reference.equal_basis(data)
    off = (total - W).ravel()
    return np.linalg.norm(off - basis.T @ (basis @ off)) / np.linalg.norm(W)


# -- optimality -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(QUICK, SEPARABLE))
def test_gradient_is_parallel_where_the_loss_is_a_plain_number(name):
    data = regimes()[name]
    radii = [1e-3, 0.1, 1.0, 5.0]
    path = regularization_path(data, radii)
    np.testing.assert_allclose(path.norm, radii, rtol=1e-12)
    assert (path.multiplier > 0).all()  # so that no matrix of that norm has a smaller loss
    for W, multiplier in zip(path.W, path.multiplier, strict=True):
        # the path's scaled residual is at most 1e-12; gradients here are below ten
        assert np.abs(reference.gradient(W, data) + multiplier * W).max() <= 1e-11


@pytest.mark.parametrize("name", slow_but(QUICK, SEPARABLE))
def test_gradient_is_parallel_far_past_underflow(name):
    data = regimes()[name]
    radii = np.array([30.0, 1e3, 1e5, 1e8])
    path = regularization_path(data, radii)
    assert path.residual.max() <= 1e-10
    assert path.multiplier[-1] == 0.0 > path.log_multiplier[-1]
    assert path.excess[-1] >= 0
    np.testing.assert_allclose(path.norm, radii, rtol=1e-12)  # the equation log ‖W‖ = log B
    reach = max(1, np.linalg.norm(data.context_embeddings, axis=1).max()) ** 2
    for B, W, R, residual in zip(radii, path.W, -path.log_multiplier, path.residual, strict=True):
        # W's entries are rounded, and scores sum up to a hundred of them: 4e-15 B; the path's
        # residual is relative to logarithms of size 2R, and the mass is their exponential
        enough = 1e-11 + 4e-15 * B * reach + 2 * residual * (2 * R + 20)
        assert strict_residual(data, W, -R) <= enough


# -- one path, two parameters ---------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(QUICK, SEPARABLE))
def test_radii_and_multipliers_give_the_same_path(name):
    data = regimes()[name]
    path = regularization_path(data, [0.01, 1.0, 20.0, 1e4])
    ridge = ridge_path(data, path.log_multiplier)
    for field in ("radii", "W", "norm", "log_multiplier"):
        scale = np.abs(getattr(path, field)).max()
        # residuals of 1e-12 (1e-10 where rounding leaves no better) in logarithms of up to 1e5
        assert np.abs(getattr(ridge, field) - getattr(path, field)).max() <= 1e-9 * scale
    np.testing.assert_array_equal(ridge.radii, ridge.norm)


# -- theory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but([*QUICK, "cyclic trial 0"], BESIDE))
def test_the_next_order_term_is_the_limit_of_the_path(name):
    """T24 Thm 1 and L24 Thms 1–2, with the constant that an angle shows: 1 − cos = κ²/(2B²)."""
    data = BESIDE[name]
    svm, term = ntpnb.max_margin(data), next_order_term(data)
    R = np.array([1e3, 1e6])
    path = ridge_path(data, -R)
    assert path.residual.max() <= 1e-10
    R = R[:, None, None]
    gaps = np.linalg.norm(path.W - (R - np.log(R)) * svm.W - term, axis=(1, 2))
    # what is left is of order log R / R; W itself rounds by 1e-16 R
    assert gaps[1] <= 1e-3 * (1 + np.linalg.norm(term))
    assert gaps[1] <= 0.01 * gaps[0] + 1e-8


@pytest.mark.parametrize("name", COMPATIBLE + OTHERS)
def test_the_tied_part_converges_like_r_e_to_minus_r(name):
    data = regimes()[name]
    fin, svm = theory(data)
    R = np.array([15.0, 18.0, 21.0, 24.0])
    path = ridge_path(data, -R)
    off = (fin.subspace.project(path.W) - fin.W) * np.exp(R)[:, None, None]
    slopes = np.linalg.norm(np.diff(off, axis=0), axis=(1, 2))
    bends = np.linalg.norm(np.diff(off, 2, axis=0), axis=(1, 2))
    # linear in R up to log R and 1/R, whose second differences are a few hundredths of its slope
    assert slopes.min() > 0.1
    assert bends.max() <= 0.1 * slopes.min()
    # and the path knows this distance itself: P_F W rounds by 1e-16 ‖W‖
    error = np.linalg.norm(off, axis=(1, 2)) * np.exp(-R)
    assert np.abs(path.compare(fin, svm).finite_error - error).max() <= 1e-14 * path.norm[-1]


def test_laws_that_no_matrix_meets_have_a_path_and_a_flow():
    """Two rows with one embedding and support but different laws: no W meets both."""
    laws = [[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]
    data = NextTokenData([[1.0, 0.5], [1.0, 0.5], [-1.0, 1.0]], laws)
    fin, svm = theory(data)
    assert not fin.compatible
    path = regularization_path(data, [1.0, 10.0, 100.0, 1e6])
    found = path.compare(fin, svm)
    assert path.residual.max() <= 1e-12
    assert found.finite_error[-1] <= 1e-12  # Newton's
    assert found.angle[-1] <= 1e-5  # like 1/B
    # what remains of the loss is the two rows' disagreement about their common law
    laws = np.array([[0.8, 0.2], [0.3, 0.7]])
    remains = (laws * np.log(laws / laws.mean(axis=0))).sum() / 3
    assert path.excess[-1] == pytest.approx(remains, rel=1e-12)
    flow = gradient_flow(data, [10.0, 30.0, 230.0])
    found = flow.compare(fin, svm)
    assert found.finite_error[1] <= 1e-8  # the integrator's
    assert found.finite_error[2] <= 1e-13
    assert flow.excess[-1] == pytest.approx(remains, rel=1e-12)
    assert (np.diff(found.angle) < 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norms over six decades", "attention, norms over six decades"])
def test_embeddings_over_six_decades(name):
    data = regimes()[name]
    if name.startswith("norms"):  # fewer contexts: each decade costs steps
        data = t24(30, m=4, d=6, norms=6)
    path = regularization_path(data, [1.0, 1e8])
    assert path.residual.max() <= 1e-10


# -- without strict pairs -------------------------------------------------------------------------


def test_without_strict_pairs_the_path_ends_at_the_finite_part():
    data = regimes()["every token in every support"]
    fin = ntpnb.finite_part(data)
    size = np.linalg.norm(fin.W)
    path = regularization_path(data, [size / 10, size * 0.99, size * 1.01, 1e8])
    np.testing.assert_allclose(path.norm, [size / 10, size * 0.99, size, size], rtol=1e-12)
    # projecting onto F and back rounds a few times
    assert np.abs(path.W[2:] - fin.W).max() <= 1e-13
    assert (path.multiplier > 0).tolist() == [True, True, False, False]
    assert path.excess[2:].max() <= 1e-28  # squares of rounding
    for W, multiplier in zip(path.W, path.multiplier, strict=True):
        assert np.abs(reference.gradient(W, data) + multiplier * W).max() <= 1e-11  # as above
    ridge = ridge_path(data, [2.0, -40.0, -100.0])
    assert np.abs(ridge.W[1:] - fin.W).max() <= 1e-12  # e^{-40} and Newton's residual


def test_nothing_to_learn_is_the_zero_matrix():
    for data in (
        NextTokenData([[1.0, 2.0]], [[0.5, 0.5]]),
        regimes()["one token"],
        regimes()["attention, one token"],
    ):
        for path in (regularization_path(data, [0.1, 10.0]), ridge_path(data, [1.0, -50.0])):
            assert path.norm.max() <= 1e-15  # rounding of log-odds that vanish
            assert path.excess.max() <= 1e-30
            assert path.residual.max() <= 1e-12


# -- rare ties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rare", [1e-4, 1e-30, 1e-60])
def test_a_rare_tie_moves_as_its_equation_says(rare):
    """Of two tied tokens the log-odds ``x`` meet ``λ x/2 = p − σ(x)``; rare ones settle late."""
    logs = [-5.0, -30.0, -61.0, -100.0, -160.0]
    path = ridge_path(NextTokenData([[1.0]], [[1 - rare, rare]]), logs)
    for log_multiplier, W in zip(logs, path.W, strict=True):
        x = W[0, 0] - W[1, 0]
        with mpmath.workdps(120):
            share, multiplier = 1 - mpmath.mpf(rare), mpmath.exp(log_multiplier)

            def missed(x, share=share, multiplier=multiplier):
                return multiplier * x / 2 - share + 1 / (1 + mpmath.exp(-x))

            expected = float(mpmath.findroot(missed, mpmath.mpf(float(x))))
        assert x == pytest.approx(expected, rel=1e-7)
