"""The chapters' small mathematics against hand-made cases and the package's own answers."""

import mpmath
import numpy as np
import problems
import pytest
from scipy.optimize import approx_fprime

import ntpnb
import ntpnb_book

RNG = np.random.default_rng(0)
STACK = RNG.standard_normal((3, 2, 4, 5))
MATRIX = RNG.standard_normal((4, 5))


def test_inner_product_norm_and_distance_are_those_of_flat_vectors():
    flat = STACK.reshape(3, 2, 20)
    np.testing.assert_allclose(ntpnb_book.inner(STACK, MATRIX), flat @ MATRIX.ravel())
    np.testing.assert_allclose(ntpnb_book.frobenius_norm(STACK), np.linalg.norm(flat, axis=-1))
    np.testing.assert_allclose(
        ntpnb_book.distance(STACK, MATRIX), np.linalg.norm(flat - MATRIX.ravel(), axis=-1)
    )


def test_cosine_is_nan_where_there_is_no_direction():
    with_zero = np.stack([MATRIX, -2 * MATRIX, 0 * MATRIX])
    np.testing.assert_allclose(ntpnb_book.cosine(with_zero, MATRIX), [1, -1, np.nan])


def test_the_orthogonal_part_is_orthogonal_and_the_rest_is_parallel():
    part = ntpnb_book.orthogonal_part(STACK, MATRIX)
    np.testing.assert_allclose(ntpnb_book.inner(part, MATRIX), 0, atol=1e-14)
    np.testing.assert_allclose(np.abs(ntpnb_book.cosine(STACK - part, MATRIX)), 1)


def test_distance_to_a_subspace_is_that_to_the_nearest_of_its_matrices():
    data = problems.t24(1)
    F = ntpnb.equal_subspace(data)
    W = RNG.standard_normal(data.shape)
    flat_basis = F.basis.reshape(F.dim, -1)
    nearest = np.linalg.lstsq(flat_basis.T, W.ravel())[0] @ flat_basis
    assert ntpnb_book.distance_to_subspace(W, F) == pytest.approx(
        np.linalg.norm(W.ravel() - nearest)
    )


def test_unit_rows_of_a_stack():
    rows = ntpnb_book.unit_rows(STACK)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=-1), 1)
    np.testing.assert_allclose(rows * np.linalg.norm(STACK, axis=-1, keepdims=True), STACK)


DATASETS = {
    "T24": problems.t24(2),
    "T24 with groups and token embeddings": problems.t24(3, rows=3, tokens=4, candidates=True),
    "L24": problems.l24(4),
    "L24 with ties": problems.l24(5, cyclic=True),
}


@pytest.fixture(params=DATASETS)
def data(request):
    return DATASETS[request.param]


def test_pair_matrices_measure_leads(data):
    W = RNG.standard_normal(data.shape)
    pairs = ntpnb.token_priority(data).strict
    leads = ntpnb_book.inner(ntpnb_book.pair_matrices(data, pairs), W)
    scores = ntpnb.scores(W, data)
    for (group, i, j), lead in zip(pairs, leads, strict=True):
        row = np.flatnonzero(data.context_groups == group)[0]
        assert lead == pytest.approx(scores[row, i] - scores[row, j])


def test_weighted_pairs_are_the_sum_of_weighted_matrices(data):
    pairs = ntpnb.token_priority(data).strict
    weights = RNG.random(len(pairs))
    matrices = ntpnb_book.pair_matrices(data, pairs)
    np.testing.assert_allclose(
        ntpnb_book.weighted_pairs(data, pairs, weights),
        np.tensordot(weights, matrices, 1),
        atol=1e-12,
    )


def test_no_pairs_give_no_matrices_and_a_zero_sum():
    data = problems.t24(2)
    none = np.zeros((0, 3), dtype=int)
    assert ntpnb_book.pair_matrices(data, none).shape == (0, *data.shape)
    assert not ntpnb_book.weighted_pairs(data, none, []).any()


def test_a_priority_graph_has_the_edges_of_its_sequences():
    data = ntpnb.NextTokenData.from_attention(np.eye(4), [[0, 1, 3], [1, 2, 3], [0, 2]], [0, 2, 2])
    wanted = np.zeros((4, 4), dtype=bool)
    wanted[0, [1, 3]] = True
    wanted[2, [1, 3]] = True
    np.testing.assert_array_equal(ntpnb_book.priority_graph(data, 3), wanted)


def test_paths_of_every_length_are_found():
    vocabulary = 7
    ring = [[v, (v + 1) % vocabulary, 0] for v in range(1, vocabulary)]
    data = ntpnb.NextTokenData.from_attention(np.eye(vocabulary), ring, range(1, vocabulary))
    reach = ntpnb_book.reachable(data, 0)
    assert reach[1].all()  # 1 points to 2, 2 to 3, and so on: five steps to the last
    assert not reach[2:, 1].any()


def test_mutual_reachability_is_the_package_s_components(data):
    order = ntpnb.token_priority(data)
    for group, labels in zip(order.groups, order.components, strict=True):
        reach = ntpnb_book.reachable(data, group)
        nodes = labels >= 0
        same = (labels[:, None] == labels) & nodes
        np.testing.assert_array_equal((reach & reach.T)[nodes], same[nodes])


def test_margin_is_the_smallest_lead_by_a_loop():
    data = problems.t24(6, candidates=True)
    stack = RNG.standard_normal((3, *data.shape))
    found = ntpnb_book.margin(stack, data)
    for W, smallest in zip(stack, found, strict=True):
        scores = ntpnb.scores(W, data)
        leads = [
            scores[j, z] - scores[j, v]
            for j, z in np.argwhere(data.support)
            for v in np.flatnonzero(data.candidates[j] & ~data.support[j])
        ]
        assert smallest == min(leads)


def test_max_margin_has_margin_one(data):
    if ntpnb.is_separable(data) and not (ntpnb.restrict(data).candidates ^ data.support).any():
        assert ntpnb_book.margin(ntpnb.max_margin(data).W, data) == pytest.approx(1)


@pytest.mark.parametrize("name", DATASETS)
def test_curvatures_are_eigenvalues_of_the_differentiated_gradient(name):
    data = DATASETS[name]
    finite, restricted = ntpnb.finite_part(data), ntpnb.restrict(data)
    basis = finite.subspace.basis

    def slope(u):
        W = finite.W + np.tensordot(u, basis, 1)
        return ntpnb_book.inner(ntpnb.gradient(W, restricted), basis)

    found = ntpnb_book.curvatures(finite, data)
    assert found.shape == (finite.subspace.dim,)
    assert (np.diff(found) <= 0).all()
    if finite.subspace.dim:
        hessian = np.atleast_2d(approx_fprime(np.zeros(len(basis)), slope, 1e-6))
        hessian = (hessian + hessian.T) / 2
        np.testing.assert_allclose(found, np.linalg.eigvalsh(hessian)[::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("x", [-1e300, -745.2, -40.0, -30.0, -29.999, -1.0, 0.0, 5.0, 700.0])
def test_log_softplus_keeps_its_digits(x):
    with mpmath.workdps(400):
        exact = float(mpmath.log(mpmath.log1p(mpmath.exp(x)))) if x > -1e5 else x
    assert ntpnb_book.log_softplus(x) == pytest.approx(exact, rel=1e-13, abs=1e-13)


def test_a_linear_separator_separates_or_there_is_none():
    rows = RNG.standard_normal((6, 8))
    ties = RNG.standard_normal((2, 8))
    found = ntpnb_book.linear_separator(rows, ties)
    assert (rows @ found > 1 - 1e-9).all()
    np.testing.assert_allclose(ties @ found, 0, atol=1e-9)
    assert ntpnb_book.linear_separator(np.concatenate([rows, -rows])) is None


def test_the_least_norm_separator_is_the_max_margin_solution():
    data = problems.t24(7, size=1)
    strict = ntpnb.token_priority(data).strict
    rows = ntpnb_book.pair_matrices(data, strict).reshape(len(strict), -1)
    W = ntpnb_book.least_norm_separator(rows).reshape(data.shape)
    np.testing.assert_allclose(W, ntpnb.max_margin(data).W, atol=1e-10)
    half = ntpnb_book.least_norm_separator(rows, np.full(len(rows), 0.5), max_iterations=1000)
    np.testing.assert_allclose(2 * half, W.ravel(), atol=1e-10)


def test_the_flat_loss_is_the_loss_and_its_gradient(data):
    W = RNG.standard_normal(data.shape)
    value, slope = ntpnb_book.flat_loss(data)(W.ravel())
    assert value == ntpnb.cross_entropy(W, data)
    np.testing.assert_array_equal(slope, ntpnb.gradient(W, data).ravel())


def test_projected_descent_reaches_the_constrained_minimum_from_every_start():
    data = problems.t24(8)

    def onto_ball(W):
        return W / np.maximum(1, ntpnb_book.frobenius_norm(W))[:, None, None]

    starts = RNG.standard_normal((2, *data.shape))
    reached = ntpnb_book.projected_descent(data, starts, onto_ball, 500)
    wanted = ntpnb.regularization_path(data, [1.0]).W
    np.testing.assert_allclose(reached, np.broadcast_to(wanted, reached.shape), atol=1e-6)


@pytest.mark.parametrize(("x", "text"), [(0, "10⁰"), (12.4, "10¹²"), (-3, "10⁻³")])
def test_powers_of_ten_are_written_with_raised_digits(x, text):
    assert ntpnb_book.power_of_ten(x) == text


def test_all_that_a_chapter_may_import_is_there_and_documented():
    for name in ntpnb_book.__all__:
        assert getattr(ntpnb_book, name).__doc__
