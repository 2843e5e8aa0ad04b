"""The finite part against the gradient by loops and 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import reference
from exact import exact_minimiser, tied_tokens
from hypothesis import given
from problems import any_problem, l24, start, t24
from reference import rounding_scale

import ntpnb
from ntpnb import NextTokenData
from ntpnb.basics.watch import Watch
from ntpnb.problem import order as problem_order
from ntpnb.tied import finite, newton
from ntpnb.tied.finite import finite_part, restrict


def restricted_loss(W, data):
    """−Σ_j π_j Σ_z p_jz log softmax over the tokens tied with row j's support."""
    T = reference.token_embeddings(data)
    total, slope = 0.0, np.zeros_like(W)
    for j, tied, counts in tied_tokens(data):
        h, p = data.context_embeddings[j], data.target_probs[j, tied]
        score = T[tied] @ (W @ h) + np.log(counts[tied])
        log_q = score - score.max() - np.log(np.exp(score - score.max()).sum())
        total -= data.context_probs[j] * p @ log_q
        slope += data.context_probs[j] * np.outer((np.exp(log_q) - p) @ T[tied], h)
    return total, slope


def worst_log_odds(data, D):
    """Largest difference, in nats, that ``D`` makes between two tied tokens' scores."""
    pairs = reference.pair_matrices(data, reference.equal_pairs(data))
    return np.abs(pairs @ D.ravel()).max(initial=0)


# -- against the gradient and many digits ---------------------------------------------------------


MAKERS = {
    "T24, d < m": lambda seed, norms: t24(seed, V=4, m=6, d=2, size=(2, 3), norms=norms),
    "T24, d > m": lambda seed, norms: t24(seed, V=4, m=4, d=5, size=(2, 3), norms=norms),
    "T24, groups": lambda seed, norms: t24(seed, m=6, d=3, size=(1, 3), norms=norms, rows=3),
    "L24": lambda seed, norms: l24(seed, K=4, d=5, n=8, cyclic=True, norms=norms),
    "L24, d < K": lambda seed, norms: l24(seed, K=5, d=2, n=9, T=3, cyclic=True, norms=norms),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("norms", "spread"), [(0, 1.0), (3, 1e3), (6, 1e6)])
@pytest.mark.parametrize("seed", [1, 2])
def test_minimiser_matches_newton_with_50_digits(name, norms, spread, seed):
    data = MAKERS[name](seed, norms)
    fin = finite_part(data)
    with mpmath.workdps(50):
        expected = exact_minimiser(data, fin.W, fin.subspace.basis)
    # W as doubles gives scores that are rounded relative to the norms they are products of, and
    # the gradient's rounding comes from the longest embeddings, its use for the shortest
    tolerance = 1e-14 * max(rounding_scale(fin.W, data), spread)
    assert worst_log_odds(data, fin.W - expected) <= tolerance


@given(any_problem() | any_problem(norms=6))
def test_the_restricted_gradient_vanishes(data):
    fin = finite_part(data)
    scale = data.context_probs @ np.linalg.norm(data.context_embeddings, axis=1)
    scale = scale * np.sqrt(data._squared_diameters().max(initial=0))
    # relative to the largest gradient that the embeddings allow
    assert fin.gradient_norm <= 1e-14 * rounding_scale(fin.W, data) * scale
    slope = restricted_loss(fin.W, data)[1]
    assert np.linalg.norm(slope) <= 1e-14 * rounding_scale(fin.W, data) * scale + 1e-300
    outside = fin.subspace.reject(fin.W)
    assert np.linalg.norm(outside) <= 1e-9 * np.linalg.norm(fin.W)


@pytest.mark.parametrize("options", [{}, {"candidates": True}, {"candidates": True, "tokens": 7}])
def test_laws_that_can_be_met_need_no_iteration(monkeypatch, options):
    """T24 Lemma 1, first half: independent embeddings meet any; equations are solved directly."""
    monkeypatch.setattr(finite, "_minimise", None)
    for seed in range(20):
        fin = finite_part(t24(seed, V=6, m=5, d=5 + seed % 4, size=(1, 5), **options))
        assert fin.compatible
        assert fin.residual <= 1e-11  # five Gaussians: condition numbers up to 1e3 in 20 draws


# -- restriction ----------------------------------------------------------------------------------


@given(any_problem())
def test_restriction_keeps_what_ties(data):
    tied = restrict(data)
    for j, tokens, counts in tied_tokens(data):
        assert np.flatnonzero(tied.candidates[j]).tolist() == tokens
        assert tied.candidate_counts[j, tokens].tolist() == counts[tokens].tolist()
    W = start(data, 1)
    loss = restricted_loss(W, data)[0]
    assert abs(ntpnb.cross_entropy(W, tied) - loss) <= 1e-13 * (1 + loss)  # sums of a few dozen
    inside = finite_part(data).subspace.project(W)
    # the restricted loss sees the tied subspace only
    assert abs(ntpnb.cross_entropy(inside, tied) - loss) <= 1e-9 * (1 + loss)


# -- invariances ----------------------------------------------------------------------------------


def test_the_order_is_found_once(monkeypatch):
    calls = []

    def counted(data):
        calls.append(data)
        return ntpnb.token_priority(data)

    monkeypatch.setattr(problem_order, "token_priority", counted)
    finite_part(l24(1, cyclic=True))
    assert len(calls) == 1


def with_rare_contexts(share):
    """The inner products of Newton's steps underflow; nothing may be divided by them."""
    laws = np.array([[1, 0, 0, 1, 1], [1, 1, 0, 1, 0], [1, 0, 0, 0, 0], [1, 0, 1, 1, 1]])
    return ntpnb.NextTokenData(
        [[-0.9, 1.3], [2.3, -0.9], [0.0, 0.0], [0.0, 0.0]],
        laws / laws.sum(axis=1, keepdims=True),
        [1e-175, share, 1 - share, 1e-163],
        np.random.default_rng(0).standard_normal((5, 6)),
        [[3, 0, 0, 2, 2], [1, 1, 0, 1, 1], [1, 2, 1, 2, 2], [1, 3, 1, 3, 1]],
    )


# The norm of the slope underflows, and with it the accuracy that is asked of a Newton step.
WITH_RARE_TOKENS = ntpnb.NextTokenData(
    [[-1.4], [0.0], [0.0], [-1.4], [0.0]],
    [
        [0, 0, 1, 0, 7e-164],
        [6e-144, 0, 1, 3e-31, 8e-207],
        [0, 9e-75, 0, 1, 0],
        [0, 1, 0, 0, 0],
        [0, 1, 0, 0, 1e-60],
    ],
    context_groups=[8, -4, 5, 8, 2],
)


@pytest.mark.parametrize(
    "data",
    [WITH_RARE_TOKENS, *map(with_rare_contexts, 10.0 ** -np.arange(10, 170, 5))],
    ids=lambda data: f"{data.context_probs[1]:.0e}",
)
def test_what_is_too_rare_to_square_its_slope(data):
    with np.errstate(all="raise", under="ignore"):
        fin = finite_part(data)
    assert not fin.compatible
    assert fin.gradient_norm <= 1e-9


@pytest.mark.parametrize("rare", [1e-4, 1e-5, 1e-6, 1e-7])
def test_a_step_may_saturate_a_rare_context(rare):
    """There the curvature is rounding, below zero perhaps, and the slope leads back."""
    T = [[2, 2, 2], [-2, -1, 2], [0, 3, -1], [0, 3, 1]]
    laws = [[0.0, 0.001, 0.9, 0.099], [0.25, 0.25, 0.25, 0.25]]
    data = NextTokenData([[1.0], [1.0]], laws, [1 - rare, rare], T)
    fin = finite_part(data)
    _, slope = restricted_loss(fin.W, data)
    assert np.abs(slope).max() <= 1e-12
    assert not fin.compatible


def test_conjugate_gradients_keep_the_best_point_of_a_system_that_none_solves():
    product = np.diag([1.0, 2.0, 0.0]).__matmul__
    with np.errstate(all="ignore"):  # the points run away along the third axis
        found = newton.conjugate_gradients(product, np.ones(3), 1e-12, Watch())
    assert np.linalg.norm(product(found) - 1) < np.sqrt(3)  # the error of zero


def test_conjugate_gradients_take_no_more_products_than_they_may():
    taken = []

    def product(x):
        taken.append(x)
        return np.arange(1, 6) * x

    newton.conjugate_gradients(product, np.ones(5), 1e-12, Watch(), most_steps=2)
    assert len(taken) == 2


@pytest.mark.parametrize(
    ("errors", "stalled"),
    [
        ([0.9, 0.8], False),
        ([0.9, 0.8, 0.7], True),
        ([0.9, 0.5, 0.4, 0.4, 0.3, 0.3], False),  # the second step halved it: two more are due
        ([0.9, 0.5, 0.4, 0.4, 0.3, 0.3, 0.3], True),
    ],
)
def test_an_iteration_stalls_when_it_waited_for_what_was_allowed_and_as_long_as_it_gained(
    errors, stalled
):
    gains = newton.Gains(np.zeros(1), error=1.0, least=2)
    for error in errors:
        gains.take(np.array([error]), error)
    assert gains.stalled is stalled
    assert not gains.halved


# -- failure --------------------------------------------------------------------------------------


def test_an_unfinished_iteration_says_so(monkeypatch):
    # steps of no length, which gain nothing
    monkeypatch.setattr(newton, "conjugate_gradients", lambda product, target, *rest: 0 * target)
    data = t24(2, V=4, m=9, d=2, size=(2, 3))
    data.labels = tuple("abcdefghi")
    message = (
        r"1e-09 is needed\. Nearly .* and those of contexts ('[a-i]'(, )?)+ are nearest to that$"
    )
    with pytest.raises(ntpnb.ConvergenceError, match=message) as caught:
        finite_part(data)
    assert caught.value.residual > 1e-9


def test_an_unfinished_iteration_names_no_contexts_where_none_are_known():
    error = newton.not_settled(1e-3, np.zeros((2, 1)), Watch(), "")
    assert str(error).endswith("of contexts or tokens, are the usual cause")
