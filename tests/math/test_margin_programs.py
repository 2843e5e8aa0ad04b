"""Max-margin problems in normal form: their scaling, projections, gradients and Newton systems."""

import numpy as np
import problems
import pytest
from scipy.optimize import brentq

from ntpnb import token_priority as priority
from ntpnb.margin import row_system
from ntpnb.margin.normal_form import PROX
from ntpnb.margin.program import margin_program


def dense_rows(program):
    """Every ``φ_k`` as a row of a dense matrix."""
    units = np.eye(program.rhs.size).reshape(-1, *program.rhs.shape)
    return np.stack([program.weights(unit).ravel() for unit in units])


def decoder(seed, **options):
    """A linear decoder of six tokens in six contexts and eight dimensions."""
    return problems.t24(5700 + seed, V=6, m=6, d=8, size=(1, 4), **options)


def kinds(seed, zero):
    """Decoders that differ in what decides the form of their program."""
    yield decoder(seed, zero=zero)
    yield decoder(seed, zero=zero, candidates=True)
    yield decoder(seed, zero=zero, tokens=4)


@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("zero", [0, 1, 6])
def test_programs_are_in_normal_form(zero, by_pair):
    """Rows of norm one and a largest margin of one, also where some embeddings are zero."""
    for seed in range(2):
        for data in kinds(seed, zero):
            program = margin_program(data, priority(data), by_pair)
            length = np.linalg.norm(dense_rows(program)[program.domain.ravel()], axis=1)
            np.testing.assert_allclose(length[length > 0], 1.0, rtol=1e-12)
            assert (length == 0).any() == (zero > 0)
            assert (length > 0).any() == (zero < 6)
            assert program.rhs.max() == 1
            assert (program.rhs > 0)[program.ordered].all()
            assert not program.rhs[~program.ordered].any()


@pytest.mark.parametrize("by_pair", [False, True])
def test_programs_do_not_depend_on_the_length_of_the_embeddings(by_pair):
    for data in kinds(seed=0, zero=0):
        rhs = margin_program(data, priority(data), by_pair).rhs
        for scale in (2.0**-20, 2.0**20):
            scaled = problems.rotated(data, scale * np.eye(8))
            other = margin_program(scaled, priority(scaled), by_pair)
            np.testing.assert_array_equal(other.rhs, rhs)


@pytest.mark.parametrize("by_pair", [False, True])
def test_slack_is_what_the_rows_leave(by_pair):
    for data in kinds(seed=1, zero=0):
        program = margin_program(data, priority(data), by_pair)
        rng = np.random.default_rng(0)
        W = rng.standard_normal(data.shape)
        c = rng.standard_normal(program.num_columns)
        scores = (dense_rows(program) @ W.ravel()).reshape(program.rhs.shape)
        common = c if len(c) else 0.0  # by pair there are no columns
        expected = np.where(program.domain, common - scores - program.rhs, 0.0)
        np.testing.assert_allclose(program.slack(W, c), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("by_pair", [False, True])
def test_constraints_are_those_of_the_data(by_pair):
    """For any W, a slack is the data's own margin, scaled; where ties hold, from any tied token."""
    for data in kinds(seed=2, zero=0):
        order = priority(data)
        program = margin_program(data, order, by_pair)
        W = np.random.default_rng(0).standard_normal(data.shape)
        group, winner, loser = order.pairs
        T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
        scores = data.group_embeddings @ W.T @ T.T
        margins = scores[group, winner] - scores[group, loser]
        common = np.zeros(program.num_columns)
        if program.num_columns:
            column = program.entries[1]
            norms = program.norms[0]
            common[column] = program.unit * scores[group, winner] / norms[column]
        slack = program.slack(program.unit * W, common)[program.entries]
        strict = np.arange(len(group)) >= len(order.equal)
        expected = (margins - strict) * program.unit / program.norms[program.entries]
        np.testing.assert_allclose(slack, expected, rtol=0, atol=1e-12)


def nearest_columns(program, Y):
    """Columns nearest to those of ``Y`` with zero sums, nonpositive where ordered; by bisection."""
    nearest = np.zeros(Y.shape)
    for j in range(Y.shape[1]):
        rows = program.domain[:, j]
        y = Y[rows, j]
        bound = np.where(program.ordered[rows, j], 0.0, np.inf)

        def total(shift, y=y, bound=bound):
            return np.minimum(y - shift, bound).sum()

        shift = brentq(total, y.min() - 1, np.abs(y).sum() + 1, xtol=1e-15)
        nearest[rows, j] = np.minimum(y - shift, bound)
    return nearest


@pytest.mark.parametrize("candidates", [False, True])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_projections_are_the_nearest_duals(precision, candidates):
    for seed in range(10):
        data = decoder(seed, candidates=candidates)
        program = margin_program(data, priority(data))
        assert program.num_columns
        rng = np.random.default_rng(seed)
        Y = rng.standard_normal(program.rhs.shape)
        guess = program.tied | (program.ordered & (rng.random(Y.shape) < 0.5))
        found = program.project(Y.astype(precision), guess)
        assert found.dual.dtype == precision
        tolerance = 20 * np.finfo(precision).eps * np.abs(Y).max()
        expected = nearest_columns(program, Y)
        np.testing.assert_allclose(found.dual, expected, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(found.below, program.tied | (found.dual < 0))


@pytest.mark.parametrize("by_pair", [False, True])
def test_projections_by_pair_and_of_what_is_allowed_change_nothing_else(by_pair):
    data = decoder(3)
    program = margin_program(data, priority(data), by_pair)
    Y = np.random.default_rng(0).standard_normal(program.rhs.shape)
    once = program.project(Y, program.domain)
    again = program.project(once.dual, once.below)
    np.testing.assert_allclose(again.dual, once.dual, rtol=0, atol=1e-14)
    assert (once.dual[program.ordered] <= 0).all()
    if by_pair:
        np.testing.assert_array_equal(once.dual, np.where(program.ordered, np.minimum(Y, 0), Y))


@pytest.mark.parametrize("dim", [3, 4, 12])
@pytest.mark.parametrize("by_pair", [False, True])
def test_a_gradient_step_is_as_long_as_the_curvature_allows(by_pair, dim):
    """By supports exactly ``1/L``; by pair ``L`` is a bound, so that the step may be shorter."""
    data = problems.t24(5100, V=6, m=9, d=dim, size=(1, 4), candidates=by_pair)
    program = margin_program(data, priority(data), by_pair)
    R = dense_rows(program)
    A = np.random.default_rng(0).standard_normal(program.rhs.shape) * program.domain
    gradient = (R @ (A.ravel() @ R)).reshape(A.shape) + program.rhs
    step = np.where(program.domain, program.gradient_step(A) - A, 0.0)
    gradient = gradient * program.domain
    length = -np.vdot(step, gradient) / np.vdot(gradient, gradient)
    np.testing.assert_allclose(step, -length * gradient, rtol=0, atol=1e-12)
    lipschitz = np.linalg.norm(R, 2) ** 2
    assert length <= (1 + 1e-9) / lipschitz
    if by_pair:
        assert length >= 0.1 / lipschitz
    else:
        assert length == pytest.approx(1 / lipschitz, rel=1e-9)
        single = program.gradient_step(A.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose((single - A) * program.domain, step, rtol=0, atol=1e-5)


def assert_solves(program, solver, mask, diagonal, residual, imbalance):
    """Check both equations of ``MarginProgram.kkt_solver``."""
    found = solver(residual, imbalance)
    assert not found.step[~mask].any()
    scores = -program.slack(program.weights(found.step), found.common) - program.rhs
    tolerance = 1e-9 * (1 + np.abs(found.step).max())
    assert np.abs((scores + diagonal * found.step - residual)[mask]).max() <= tolerance
    sums = program.column_sums(found.step)
    assert np.abs(sums - imbalance).max(initial=0.0) <= tolerance


NEWTON_CASES = [
    {"m": 6, "d": 9, "diagonal": "prox"},
    {"m": 6, "d": 9, "diagonal": "entrywise"},
    {"m": 9, "d": 6, "diagonal": "entrywise"},
]


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("case", NEWTON_CASES, ids=str)
@pytest.mark.parametrize("by_pair", [False, True])
def test_newton_systems_solve_their_equations(monkeypatch, by_pair, case, share):
    """Anew, and from a system whose rows agree but for one; then only that one is factored."""
    factored = []
    upper_factor = row_system.upper_factor

    def counted(*arguments):
        factored.append(arguments)
        return upper_factor(*arguments)

    monkeypatch.setattr(row_system, "upper_factor", counted)
    for seed in range(3):
        data = problems.t24(5200 + seed, V=7, m=case["m"], d=case["d"], size=(2, 6))
        program = margin_program(data, priority(data), by_pair)
        rng = np.random.default_rng(seed)
        shape = program.rhs.shape
        diagonal = PROX if case["diagonal"] == "prox" else rng.uniform(0.1, 1, shape)
        residual = rng.standard_normal(shape)
        imbalance = rng.standard_normal(program.num_columns)
        mask = program.tied | (program.ordered & (rng.random(shape) < share))
        solver = program.kkt_solver(mask, diagonal)
        assert_solves(program, solver, mask, diagonal, residual, imbalance)

        moved = mask.copy()
        moved[2] = program.tied[2] | (program.ordered[2] & ~mask[2])
        factored.clear()
        follower = program.kkt_solver(moved, diagonal, solver)
        assert len(factored) <= 2  # the row's own factor, and that of the common scores
        assert_solves(program, follower, moved, diagonal, residual, imbalance)


def test_newton_systems_too_large_to_keep_are_the_same(monkeypatch):
    data = problems.t24(5200, V=7, m=6, d=9, size=(2, 6))
    program = margin_program(data, priority(data))
    rng = np.random.default_rng(0)
    residual = rng.standard_normal(program.rhs.shape)
    imbalance = rng.standard_normal(program.num_columns)
    kept = program.kkt_solver(program.domain, PROX)(residual, imbalance)
    monkeypatch.setattr(row_system, "KEEP", 0)
    repeated = program.kkt_solver(program.domain, PROX)(residual, imbalance)
    np.testing.assert_array_equal(repeated.step, kept.step)
    np.testing.assert_array_equal(repeated.common, kept.common)
