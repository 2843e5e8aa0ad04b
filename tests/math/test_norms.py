"""Other norms: their duals, their max-margin problems, and steepest descent in them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from margins import answer, prove_refused
from numpy.testing import assert_allclose, assert_array_equal
from problems import lengthened, start, whole_numbers
from quick import slow_but
from saved import again
from scipy.optimize import OptimizeResult
from scipy.sparse import csr_array

import ntpnb
from ntpnb import Adam, NextTokenData, SteepestDescent, datasets, descend, max_margin
from ntpnb.basics.matrix_norms import NORMS, norm_named
from ntpnb.margin import other_norms, singular_values
from ntpnb.margin.other_norms import SOLVERS, pair_rows
from ntpnb.margin.singular_values import largest_margin_of_singular_values
from ntpnb.problem.pairs import relative_gap
from ntpnb_book import pair_matrices

OTHER_NORMS = sorted(SOLVERS)
ALL_NORMS = sorted(NORMS)

matrices = hnp.arrays(
    np.float64,
    (2, 3, 4),
    elements=st.floats(-1e3, 1e3).map(lambda x: 0.0 if abs(x) < 1e-3 else x),
)


def problem(seed, shape=(5, 4, 6, 2)):
    return datasets.overparameterized(seed, *shape)


def strict_and_equal(data):
    order = ntpnb.token_priority(data)
    return pair_matrices(data, order.strict), pair_matrices(data, order.equal)


# -- norms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_NORMS)
@given(W=matrices, M=matrices)
@settings(max_examples=50, deadline=None)
def test_hoelder_s_inequality_and_where_it_is_an_equality(name, W, M):
    norm = norm_named(name)
    inner = np.einsum("npq,npq->n", W, M)
    bound = norm.of(W) * norm.dual(M)
    assert (np.abs(inner) <= bound * (1 + 1e-12) + 1e-9).all()
    direction = norm.steepest(M)
    attained = np.einsum("npq,npq->n", direction, M)
    assert_allclose(attained, norm.dual(M), rtol=1e-8)
    assert_allclose(norm.of(direction), norm.of(M) > 0, atol=1e-12)


@pytest.mark.parametrize("name", ALL_NORMS)
@given(W=matrices, V=matrices, factor=st.floats(-5, 5))
@settings(max_examples=30, deadline=None)
def test_a_norm_is_one(name, W, V, factor):
    of = norm_named(name).of
    assert_allclose(of(factor * W), abs(factor) * of(W), rtol=1e-12, atol=1e-12)
    assert (of(W + V) <= (of(W) + of(V)) * (1 + 1e-12) + 1e-12).all()


@pytest.mark.parametrize("name", ALL_NORMS)
def test_the_dual_of_the_dual_is_the_norm(name):
    norm = norm_named(name)
    assert norm_named(norm.dual_name).dual_name == name


@pytest.mark.parametrize("name", ["frobenius", "spectral", "nuclear"])
def test_small_gradients_keep_their_direction(name):
    G = np.diag([3.0, 4.0])[None]
    norm = norm_named(name)
    for function, factor in ((norm.steepest, 1.0), (norm.of, 1e-250)):
        assert_allclose(function(1e-250 * G), factor * function(G), rtol=1e-14)


@pytest.mark.parametrize("name", ALL_NORMS)
def test_the_steepest_direction_against_a_single_entry_is_that_entry(name):
    entry = np.eye(1, 6, 5).reshape(1, 2, 3)
    assert_array_equal(norm_named(name).steepest(0.25 * entry), entry)


# -- the max-margin problem -----------------------------------------------------------------------


@pytest.mark.parametrize("norm", OTHER_NORMS)
def test_how_far_ties_are_missed_is_measured_by_its_definition(norm):
    data = lengthened(datasets.toy(), 30)
    svm = max_margin(data, norm=norm)
    W = svm.W + 0.1 * start(data)
    _, equal = strict_and_equal(data)
    lengths = np.linalg.norm(equal, axis=(1, 2)) / 2**0.5  # of contexts, as tokens are √2 apart
    missed = np.abs(np.tensordot(equal, W, 2)) / (np.linalg.norm(W) * lengths)
    found = again(replace(svm, W=W, tie_residual=0.0))
    assert found.tie_residual == pytest.approx(missed.max(), rel=1e-12)


def test_a_matrix_that_misses_ties_is_moved_to_the_nearest_that_meets_them():
    data = problem(0)
    rows = pair_rows(data, ntpnb.token_priority(data))
    W = np.random.default_rng(0).standard_normal(rows.shape)
    moved = other_norms.with_ties_met(other_norms.Solved(W, None, None, ""), rows).W
    equal = rows.equal.toarray()
    assert_allclose(equal @ moved.ravel(), 0, atol=1e-13)
    nearest = W.ravel() - np.linalg.pinv(equal) @ (equal @ W.ravel())
    assert_allclose(moved.ravel(), nearest, atol=1e-13)


@pytest.mark.parametrize("norm", ["max", "sum"])
def test_a_linear_program_that_a_limit_stopped_proves_nothing(norm, monkeypatch):
    """HiGHS then gives the point that it is at."""

    def stopped(objective, **_):
        return OptimizeResult(x=np.zeros(len(objective)), status=1, message="time limit")

    monkeypatch.setattr(other_norms, "linprog", stopped)
    with pytest.raises(ntpnb.ConvergenceError, match="undecided: HiGHS says time limit"):
        max_margin(datasets.toy(), norm=norm)


SINGULAR = ["spectral", "nuclear"]


@pytest.mark.parametrize("norm", SINGULAR)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(3, 2, 3, 2), (5, 4, 6, 2), (8, 6, 8, 3), (6, 9, 12, 2)]),
    repeated=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_an_interior_point_is_more_exact_than_the_reference(norm, seed, shape, repeated):
    """Clarabel's own tolerance is 1e-8; the bounds are computed from W and multipliers alone."""
    data = problem(seed, shape)
    if repeated:  # each context twice, so that the pairs' matrices depend on each other
        H = np.repeat(data.context_embeddings, 2, axis=0)
        data = NextTokenData(H, np.repeat(data.target_probs, 2, axis=0))
    svm = max_margin(data, norm=norm)
    assert svm.solver == "interior point"
    assert svm.margin_gap < 1e-8


@pytest.mark.parametrize("norm", SINGULAR)
def test_an_interior_point_has_eight_digits_within_twenty_steps(norm, monkeypatch):
    """It needs 13 or 14 here, and more with a wrong predictor, length or centring of its steps."""
    monkeypatch.setattr(singular_values, "NEWTON_STEPS", 20)
    assert max_margin(problem(5, (8, 6, 8, 3)), norm=norm).margin_gap < 1e-8


@pytest.mark.parametrize("norm", SINGULAR)
@pytest.mark.parametrize("lengths", [(1.0, 1.0, 1.0), (3.0, 0.5, 2.0)])
def test_orthogonal_rows_have_the_solution_that_is_written_down(norm, lengths):
    """Rows ``a_i e_i e_iᵀ``: each diagonal entry is worth the same margin, ``s = a_i z_i``."""
    rows = np.stack([np.diag(row).ravel() for row in np.diag(lengths)])
    found = largest_margin_of_singular_values(rows, np.ones(3), rows[:0], (3, 3), norm)
    least = 1 / sum(1 / a for a in lengths) if norm == "nuclear" else min(lengths)
    kind = norm_named(norm)
    assert kind.of(found.Z) <= 1 + 1e-12
    assert (found.Z.diagonal() > 0).all()
    measured = [(rows @ found.Z.ravel()).min(), kind.dual(found.combination)]
    measured.append(least * found.multipliers.sum())
    assert measured == pytest.approx([least] * 3, rel=1e-8)


@pytest.mark.parametrize(("norm", "size"), [("spectral", 150), ("max", 600), ("sum", 600)])
def test_what_would_take_too_much_memory_is_refused_before(norm, size):
    """The interior point's system, or the pairs' matrices as the rows of a linear program."""
    data = NextTokenData(np.eye(size), np.eye(size))
    with pytest.raises(ValueError, match=r"^this norm's program .*; use norm=\"frobenius\"$"):
        max_margin(data, norm=norm)


def test_pairs_too_many_to_be_listed_are_refused_for_their_matrices():
    laws = csr_array((np.ones(2), ([0, 1], [0, 1])), shape=(2, 2**27 + 1))
    message = r"^this norm's program needs a dense array of 268435456 × 2 × 2 = 1073741824 entries"
    with pytest.raises(ValueError, match=message):
        max_margin(NextTokenData(np.eye(2), laws), norm="max")


@pytest.mark.parametrize(("smaller", "below"), [(0.5, 1), (-1.0, 0)])
def test_an_answer_that_falls_short_is_undecided_and_says_between_what(monkeypatch, smaller, below):
    """A margin of two exists, and the solver's W has two and one, or two and none: it is kept."""
    W = np.array([[1.0, -smaller], [-1.0, smaller]])
    answer = other_norms.Solved(W, np.zeros(0), np.ones(2), "the solver")
    monkeypatch.setitem(SOLVERS, "max", lambda _: answer)
    message = f"^undecided: the solver left the largest margin between {below} and 2$"
    with pytest.raises(ntpnb.ConvergenceError, match=message) as undecided:
        max_margin(NextTokenData(np.eye(2), np.eye(2)), norm="max")
    assert undecided.value.residual == pytest.approx(1 - below / 2)
    assert_array_equal(undecided.value.point.W, W)


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize("H", [[[1.0], [1.0]], [[1.0], [2.0]]])
def test_multipliers_that_contradict_each_other_bound_the_margin_of_an_undecided_answer(norm, H):
    """Where they combine to zero exactly, and where the solver's ``W`` is zero."""
    with pytest.raises(ntpnb.ConvergenceError, match="left the largest margin between 0 and") as e:
        other_norms.max_margin_in_norm(NextTokenData(H, np.eye(2)), norm, None)
    below, above = e.value.point.margin_bounds
    assert below == 0
    assert above <= 1e-12
    assert e.value.point.multipliers.min() > 0


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize("short", [1e-3, 1e-6])
def test_contexts_of_any_length_have_the_same_margin(norm, short):
    """Two contexts that have nothing in common; the short one asks for the whole of ``W``."""
    svm = max_margin(NextTokenData(np.diag([1.0, short]), np.eye(2)), norm=norm)
    alone = max_margin(NextTokenData([[short]], [[0.0, 1.0]]), norm=norm)
    assert svm.margin_gap <= 1e-6
    assert alone.norm * (1 - 1e-9) <= svm.norm <= (alone.norm + 1) * (1 + 1e-9)


CERTIFIED = {f"problem {seed}": problem(seed) for seed in range(10, 14)} | {
    "attention with cycles": datasets.figure2(),
    "short contexts": lengthened(problem(3), 1e-6),
    "long contexts": lengthened(problem(3), 1e6),
}


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize("name", CERTIFIED)
def test_the_certificate_can_be_recomputed(norm, name):
    """Bounds from both sides that meet: no other matrix has a larger margin."""
    data = CERTIFIED[name]
    strict, equal = strict_and_equal(data)
    svm = max_margin(data, norm=norm)
    M = np.tensordot(svm.multipliers, strict, 1) + np.tensordot(svm.equal_multipliers, equal, 1)
    kind = norm_named(norm)
    size, dual_size = float(kind.of(svm.W)), float(kind.dual(M))
    assert (svm.multipliers >= 0).all()
    margin = np.tensordot(strict, svm.W, 2).min()
    measured = svm.norm, svm.dual_norm, svm.min_margin, 1.0
    assert measured == pytest.approx((size, dual_size, margin, margin))
    longest = max(1.0, np.abs(data.context_embeddings).max() / 10)
    assert np.abs(np.tensordot(equal, svm.W, 2)).max() < 1e-9 * np.linalg.norm(svm.W) * longest
    gap = (size**2 / 2 + dual_size**2 / 2 - svm.multipliers.sum()) / (size**2 / 2)
    assert svm.duality_gap == pytest.approx(abs(gap), abs=1e-12)
    assert svm.duality_gap < 1e-6
    below, above = svm.margin_bounds
    assert below <= above * (1 + 1e-12)
    assert svm.margin_gap < 1e-6


def test_planted_solution_in_the_max_norm():
    """One context with one successor: every entry of the embedding counts with its sign."""
    data = NextTokenData([[3.0, -4.0]], [[1.0, 0.0]])
    assert_allclose(14 * max_margin(data, norm="max").W, [[1, -1], [-1, 1]], atol=1e-11)
    for norm, size in (("sum", 1 / 4), ("spectral", 2**-0.5 / 5)):
        assert max_margin(data, norm=norm).norm == pytest.approx(size)


@pytest.mark.parametrize("norm", slow_but(["max", "spectral"], [*OTHER_NORMS, "metric"]))
def test_whatever_is_not_separable_is_refused_with_a_certificate(norm):
    """Zero contexts, equal tokens and others; separability does not depend on the norm."""
    leaning_on_ties = np.array([[1, 1, 0], [1, 1, 0], [2, 0, 0]]) / 2
    problems = [
        NextTokenData([[1.0, 0.0], [2.0, 0.0]], np.eye(2)),
        NextTokenData([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], leaning_on_ties),
        NextTokenData([[0.0, 0.0], [1.0, 2.0]], np.eye(2)),
        NextTokenData([[0.0]], [[1, 0]]),
        NextTokenData([[1.0]], [[1, 0]], token_embeddings=[[2.0], [2.0]]),
        *map(whole_numbers, range(80)),
    ]
    num_refused = 0
    for data in problems:
        metric = np.geomspace(1, 100, math.prod(data.shape)).reshape(data.shape)
        asked = {"metric": metric} if norm == "metric" else {"norm": norm}
        if ntpnb.is_separable(data):
            max_margin(data, **asked)
            continue
        num_refused += 1
        prove_refused(data, answer(data, **asked))
    assert num_refused > 15


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize(
    ("embedding", "factor"),
    [
        ([3e6, -2e6, 1e6], 1 / 3),
        ([3e6, -2e6, -1e6], 1.1),
        ([2 / 3, 1 / 3, -2 / 3, 1.0], 1 / 3),
        ([0.0, 0.0, -1 / 3, -1 / 3, 1.0], 3.0),
    ],
)
def test_a_margin_that_is_rounding_separates_nothing(norm, embedding, factor):
    """What ties in one context shall win in another that is parallel, but for rounding."""
    context = np.array(embedding)
    data = NextTokenData([context, factor * context], [[0.5, 0.5], [1, 0]])
    with pytest.raises(ntpnb.NotSeparableError):
        max_margin(data, norm=norm)


def test_a_lower_bound_far_above_the_upper_one_is_rounding():
    assert relative_gap((1e-20, 0.0)) == 1.0
    assert relative_gap((4e-22, 1e-22)) == 1.0
    assert relative_gap((2.0, 1.0)) == 1.0
    assert relative_gap((1.0 + 1e-15, 1.0)) == 0.0


@pytest.mark.parametrize("norm", ALL_NORMS)
def test_without_strict_pairs_the_solution_is_zero(norm):
    data = NextTokenData([[1.0], [0.5]], [[0.5, 0.5], [0.1, 0.9]])
    svm = max_margin(data, norm=norm)
    assert (svm.norm, svm.min_margin, svm.solver) == (0.0, np.inf, "no strict pairs")
    assert (svm.margin_bounds, svm.duality_gap, svm.multipliers.shape) == ((0.0, np.inf), 0, (0,))
    assert norm != "frobenius" or svm.kkt_residual == 0
    assert ntpnb.is_separable(data)


def test_what_does_not_fit_a_norm_is_refused():
    for option in ({"gap": 0.1}, {"seconds": 1}):
        with pytest.raises(ValueError, match=r"^norm is 'max', whose solver is fixed"):
            max_margin(datasets.toy(), norm="max", **option)


# -- steepest descent -----------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ALL_NORMS)
@pytest.mark.parametrize("decay", [0, 0.5, 1])
@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize("normalized", [True, False])
def test_steps_are_those_of_the_definition(norm, normalized, momentum, decay):
    data, kind = problem(2), norm_named(norm)
    method = SteepestDescent(0.2, norm, normalized=normalized, momentum=momentum, decay=decay)
    run = descend(data, method, 9, record=range(10))
    W = mean = np.zeros(data.shape)
    for k in range(1, 10):
        mean = momentum * mean + (1 - momentum) * ntpnb.gradient(W, data)
        length = 1.0 if normalized else kind.dual(mean)
        W = W - 0.2 / k**decay * length * kind.steepest(mean)
        assert_allclose(run.W[k], W, atol=1e-10)


def test_the_steepest_directions_of_two_norms():
    """Of the others Hölder's inequality says it, which several directions may attain."""
    gradient = np.array([[3.0, 0.0], [0.0, -4.0]])
    assert_allclose(norm_named("frobenius").steepest(gradient), gradient / 5, rtol=1e-15)
    assert_array_equal(norm_named("max").steepest(gradient), np.sign(gradient))


@pytest.mark.parametrize("norm", ALL_NORMS)
def test_a_batch_is_its_problems_one_by_one(norm):
    problems = [problem(seed) for seed in range(3)]
    method = SteepestDescent(0.1, norm, momentum=0.5)
    alone = [descend(data, method, 20).W for data in problems]
    assert_allclose(descend(problems, method, 20).W, alone, atol=1e-9)


def test_a_zero_gradient_is_a_zero_step():
    data = NextTokenData([[1.0]], [[0.5, 0.5]])
    for norm in ALL_NORMS:
        assert not descend(data, SteepestDescent(0.1, norm, normalized=True), 3).W.any()


@pytest.mark.parametrize("norm", ["max", "frobenius", "spectral"])
@pytest.mark.parametrize("seed", slow_but([0], range(3)))
def test_steepest_descent_tends_to_the_margin_of_its_norm(norm, seed):
    """The theorem of chapter 19: at least 1 − ηL/2 of the margin, and the finite part."""
    data = problem(30 + seed)
    fin = ntpnb.finite_part(data)
    above = max_margin(data, norm=norm).norm ** -1
    strict, _ = strict_and_equal(data)
    run = descend(data, SteepestDescent(0.1, norm), 20_000, record=[2_000, 20_000])
    error = np.linalg.norm(fin.subspace.project(run.W) - fin.W, axis=(1, 2))
    assert error[1] < error[0] / 3
    added = fin.subspace.reject(run.W[1] - run.W[0])
    margin = np.tensordot(strict, added, 2).min() / norm_named(norm).of(added)
    assert 0.75 * above < margin < 1.05 * above


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"step": 0.0}, ValueError, "^step is 0.0"),
        ({"normalized": 1}, TypeError, "^normalized is of type int; True or False is needed$"),
        ({"norm": "p"}, ValueError, "^norm is 'p'; it must be one of"),
        ({"decay": -1}, ValueError, "^decay is -1; it must be nonnegative$"),
        ({"momentum": 1}, ValueError, r"^momentum is 1; it must lie in \[0, 1\)$"),
    ],
)
def test_settings_out_of_range_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        SteepestDescent(**{"step": 0.1, "norm": "max"} | settings)


# -- Adam -----------------------------------------------------------------------------------------


def test_adam_s_steps_decay():
    data = problem(4)
    run = descend(data, Adam(0.1, decay=0.5), 4, record=range(5))
    mean = square = 0.0
    W = np.zeros(data.shape)
    for k in range(1, 5):
        g = ntpnb.gradient(W, data)
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g**2
        corrected = mean / (1 - 0.9**k)
        W = W - 0.1 / np.sqrt(k) * corrected / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
        assert_allclose(run.W[k], W, atol=1e-12)


def test_of_entries_equal_up_to_rounding_the_first_moves():
    # Of two tokens one's gradient is minus the other's, so that every step has two largest entries.
    rng = np.random.default_rng(1)
    method = ntpnb.SteepestDescent(0.5, "sum", normalized=True)
    for _ in range(20):
        H = rng.standard_normal((3, 2))
        P = rng.dirichlet([1.0, 1.0], 3)
        W = descend(NextTokenData(H, P), method, 20).W[-1]
        assert not W[1].any()
        turned = descend(NextTokenData(H[::-1], P[::-1]), method, 20).W[-1]
        assert_array_equal(W, turned)


def test_adam_without_epsilon_is_the_limit_of_small_ones():
    data = problem(5)
    small = descend(data, Adam(0.1, epsilon=1e-100), 60).W[-1]
    assert_allclose(descend(data, Adam(0.1, epsilon=0.0), 60).W[-1], small, atol=1e-9)


def test_adam_without_epsilon_sees_gradients_whose_squares_underflow():
    """Its steps do not depend on the scale of the gradients; 1e-200 squared is zero in floats."""
    data = NextTokenData([[1.0]], [[1.0, 0.0]])
    start = [[230.0], [-230.0]]  # the gradient is e^-460, about 1e-200
    moved = descend(data, Adam(0.1, epsilon=0.0), 1, init=start).W[-1]
    assert_allclose(moved, [[230.1], [-230.1]], rtol=1e-12)


def test_adam_without_epsilon_leaves_what_has_no_gradient():
    data = NextTokenData([[1.0, 0.0]], [[1.0, 0.0]])
    W = descend(data, Adam(0.1, epsilon=0.0), 5).W
    assert not W[..., 1].any()
    assert W.max() > 0.4
