"""Max-margin problems in normal form: what they ask for, their sets, and their Newton systems."""

import itertools

import numpy as np
import problems
import pytest
import reference
from margins import dense_rows, made, sets, some_of
from numpy.testing import assert_allclose, assert_array_equal

from ntpnb import NextTokenData
from ntpnb import token_priority as priority
from ntpnb.basics.linear_systems import upper_factor
from ntpnb.basics.tolerances import PROX
from ntpnb.margin import row_system, support_program
from ntpnb.margin.growing_set import growing_set
from ntpnb.margin.pair_program import EveryPair
from ntpnb.margin.row_system import ByEntries, InDimensions, IteratedSystem
from ntpnb.margin.support_program import SupportPairs, all_pairs
from ntpnb.problem import pairs as sums_of_pairs
from ntpnb.problem import table
from ntpnb.problem.table import combined_at, scores_at

BY_SUPPORTS = ["supports", "candidates", "copies"]
KINDS = ["supports", "candidates", "pairs", "tokens", "attention"]


def some_point(program, rng):
    """Random weights and common scores."""
    shape = program.weights(np.zeros(len(program))).shape
    return rng.standard_normal(shape), rng.standard_normal(program.num_columns)


# -- what is asked for ----------------------------------------------------------------------------


def test_a_problem_is_by_supports_where_one_component_wins_over_all_other_one_hot_tokens():
    attention = problems.l24(23, cyclic=False)
    forms = set()
    for data in (*problems.regimes().values(), problems.changed(attention, token_embeddings=None)):
        order = priority(data)
        strict, tied = reference.strict_pairs(data), set(reference.equal_pairs(data))
        if not strict:
            continue
        losers = {(g, j) for g, _, j in strict}
        two_levels = not any((g, i) in losers for g, i, _ in [*strict, *tied])
        for (g, i, _), (other, k, _) in itertools.product(strict, strict):
            two_levels &= g != other or i == k or (g, i, k) in tied
        by_supports = data.token_embeddings is None and two_levels
        assert type(all_pairs(data, order)) is (SupportPairs if by_supports else EveryPair)
        forms.add((by_supports, data.token_embeddings is None))
    assert forms == {(True, True), (False, False), (False, True)}


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("zero", [0, 1, 6])
def test_programs_are_in_normal_form(zero, kind):
    """Rows of norm one and a largest margin of one, also where some embeddings are zero."""
    for seed in range(2):
        program = made(kind, seed, zero=zero)[1].everything()
        length = np.linalg.norm(dense_rows(program), axis=1)
        assert_allclose(length[length > 0], 1.0, rtol=1e-12)
        assert (length == 0).any() == (zero > 0)
        assert (length > 0).any() == (zero < 6)
        assert program.rhs.max() == 1
        assert (program.rhs > 0)[program.ordered].all()
        assert not program.rhs[program.tied].any()


@pytest.mark.parametrize("kind", KINDS)
def test_constraints_are_those_of_the_data(kind):
    """For any W, a slack is the data's own margin, scaled; where ties hold, from any tied token."""
    for seed in range(3):
        data, pairs = made(kind, seed)
        program, order = pairs.everything(), pairs.order
        group, winner, loser = order.pairs
        rows = reference.pair_matrices(data, [*order.equal.tolist(), *order.strict.tolist()])
        W = problems.start(data, seed)
        entry = np.arange(len(rows))
        norms = np.linalg.norm(rows, axis=1)
        common = program.zero_common()
        if program.num_columns:
            norms = norms / 2**0.5
            column = np.searchsorted(pairs.groups, group)
            entry = np.searchsorted(program.keys, column * data.vocab_size + loser)
            scores = data.group_embeddings @ W.T
            common[column] = pairs.unit * scores[group, winner] / norms
        is_strict = np.arange(len(rows)) >= len(order.equal)
        expected = (rows @ W.ravel() - is_strict) * pairs.unit / norms
        slack = program.slack(pairs.unit * W, common)[entry]
        assert_allclose(slack, expected, rtol=0, atol=1e-12)
        assert_array_equal(program.ordered[entry], is_strict)
        assert pairs.num_strict == len(order.strict) == np.count_nonzero(program.ordered)
        assert pairs.num_weights == W.size
        if kind != "supports":
            listed = pairs.entries_of_strict(program)
            assert_array_equal(listed, entry[is_strict])


@pytest.mark.parametrize("kind", ["copies", *KINDS])
def test_multipliers_are_those_of_the_data_s_pairs(kind):
    """What they combine to is the program's ``W``, which is the data's times the unit.

    Of copies, each of which has the same row, it is the sum over all of them.
    """
    for seed in range(3):
        data, pairs = made(kind, seed)
        order = pairs.order
        rng = np.random.default_rng(seed)
        program = some_of(pairs, 0.7, rng)
        dual = np.where(program.tied, rng.standard_normal(len(program)), -rng.random(len(program)))
        if program.num_columns:  # an anchor balances each column
            dual[np.searchsorted(program.keys, pairs.anchors)] -= program.column_sums(dual)
        strict, equal = pairs.multipliers(program, dual)
        if kind in ("supports", "copies"):
            assert strict.shape == pairs.shape
            group, _, loser = order.pairs
            strict = strict.toarray()[group, loser][len(order.equal) :]
        combined = strict @ reference.pair_matrices(data, order.strict.tolist())
        combined += equal @ reference.pair_matrices(data, order.equal.tolist())
        weights = program.weights(dual) / pairs.unit
        if kind == "copies":
            weights *= pairs.roots[:, None]
        size = np.abs(weights).max()
        assert_allclose(combined, weights.ravel(), rtol=0, atol=1e-12 * size)

        if kind == "copies":
            program = pairs.for_single_tokens(program)
            dual = dual * pairs.roots[program.token]
        shares = pairs.pair_weights(program, dual)
        assert_array_equal(order.strict[shares.positions], shares.pairs)
        assert_allclose(shares.dense(), strict / strict.sum(), rtol=0, atol=1e-14)
        assert np.count_nonzero(shares.dense()) == np.count_nonzero(program.ordered)


# -- sets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copies", *KINDS])
def test_a_set_is_a_part_of_the_program(kind):
    for pairs, program, rng in sets(kind, [0.5] * 3):
        everything = pairs.everything()
        place = np.searchsorted(everything.keys, program.keys)
        assert_array_equal(everything.keys[place], program.keys)
        assert np.isin(everything.keys[everything.tied], program.keys).all()
        for name in ("tied", "ordered", "rhs", "roots", "column"):
            assert_array_equal(getattr(program, name), getattr(everything, name)[place])
        assert program.num_columns == everything.num_columns
        assert program.column[program.first_of_column].tolist() == [*range(program.num_columns)]

        W, common = some_point(program, rng)
        margins = everything.margins(W, common)[place]
        assert_allclose(program.margins(W, common), margins, rtol=0, atol=1e-13)
        dual = rng.standard_normal(len(program))
        carried = everything.values_of(program, dual)
        assert_array_equal(carried[place], dual)
        assert np.count_nonzero(carried) == len(dual)
        weights = everything.weights(carried)
        assert_allclose(program.weights(dual), weights, rtol=0, atol=1e-13)
        sums = everything.column_sums(carried)
        assert_allclose(program.column_sums(dual), sums, rtol=0, atol=1e-13)
        other = some_of(pairs, 0.5, rng)
        shared = carried[np.searchsorted(everything.keys, other.keys)]
        assert_array_equal(other.values_of(program, dual), shared)


@pytest.mark.parametrize("kind", ["copies", *KINDS])
def test_weights_and_scores_are_adjoint_and_columns_add_up_by_the_roots(kind):
    for _, program, rng in sets(kind, [1.0, 0.5, 0.05]):
        W, common = some_point(program, rng)
        dual = rng.standard_normal(len(program))
        weights, scores = program.weights(dual), program.scores(W)
        assert np.vdot(weights, W) == pytest.approx(dual @ scores, abs=1e-12)
        of_dual = program.scores(weights)
        assert_allclose(program.scores_of(dual), of_dual, rtol=0, atol=1e-12)
        sums = program.column_sums(dual)
        assert sums @ common == pytest.approx(dual @ program.spread(common), abs=1e-12)
        if program.num_columns:
            by_column = np.bincount(program.column, program.roots * dual)
            assert_allclose(sums, by_column, rtol=0, atol=1e-13)
        if kind in BY_SUPPORTS:  # steps in single precision are taken with these
            W, dual = W.astype(np.float32), dual.astype(np.float32)
            for single, expected in (
                (program.scores(W), scores),
                (program.weights(dual), weights),
                (program.scores_of(dual), of_dual),
            ):
                assert single.dtype == np.float32
                assert_allclose(single, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("block", [1, 20, table.BLOCK])
@pytest.mark.parametrize("kind", ["copies", *KINDS])
def test_pairs_that_are_missed_and_the_least_margin_are_those_of_all_pairs(
    monkeypatch, kind, block
):
    monkeypatch.setattr(table, "BLOCK", block)
    num_missed = 0
    for pairs, program, rng in sets(kind, [0.3] * 4):
        everything = pairs.everything()
        W, common = some_point(program, rng)
        margins = (everything.margins(W, common) / everything.roots)[everything.ordered]
        assert pairs.least_margin(W, common) == pytest.approx(margins.min(), abs=1e-13)
        slack = everything.slack(W, common)
        is_outside = everything.ordered & ~np.isin(everything.keys, program.keys)
        for by in (0.0, 0.5):
            missed = everything.keys[is_outside & (slack < -by)]
            assert_array_equal(pairs.missed(program, W, common, by), missed)
            num_missed += len(missed)
            if kind not in BY_SUPPORTS:
                continue
            of_key = dict(zip(everything.keys.tolist(), slack, strict=True))
            by_slack = sorted(missed.tolist(), key=of_key.get)
            for most in (1, 2, pairs.vocab_size, 64):
                worst = []
                for j in range(program.num_columns):
                    worst += [key for key in by_slack if key // pairs.vocab_size == j][:most]
                found = pairs.missed(program, W, common, by, most)
                assert_array_equal(found, sorted(worst))
    assert num_missed > 20


# -- Newton systems -------------------------------------------------------------------------------


def assert_solves(program, mask, theta, rng):
    """Check a Newton system by the equations, and by a dense matrix of them."""
    residual = rng.standard_normal(len(program))
    imbalance = rng.standard_normal(program.num_columns)
    step, common = program.kkt_solver(mask, theta)(residual, imbalance)
    assert not step[~mask].any()

    rows = dense_rows(program)[mask]
    roots = np.zeros((len(rows), program.num_columns))
    if program.num_columns:
        roots[np.arange(len(rows)), program.column[mask]] = program.roots[mask]
    diagonal = np.diag(np.broadcast_to(theta, mask.shape)[mask])
    zero = np.zeros((program.num_columns, program.num_columns))
    matrix = np.block([[rows @ rows.T + diagonal, -roots], [roots.T, zero]])
    rhs = np.append(residual[mask], imbalance)
    found = np.append(step[mask], common)
    size = np.abs(found).max()
    assert_allclose(matrix @ found, rhs, rtol=0, atol=1e-9 * (1 + size))
    tolerance = 1e-14 * np.linalg.cond(matrix) * size
    assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=0, atol=tolerance)


SHAPES = {"few contexts": {"m": 6, "d": 9}, "few dimensions": {"m": 14, "d": 4, "zero": 2}}


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("theta", [PROX, 0.3, "by entry"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["copies", *KINDS])
def test_newton_systems_solve_their_equations(kind, shape, theta, share):
    """Of masks of all pairs, and of sets with nearly all of them."""
    for _, program, rng in sets(kind, [1.0, 0.95], 5200, V=7, **SHAPES[shape]):
        mask = program.tied | (rng.random(len(program)) < share)
        by_entry = rng.uniform(0.1, 1, len(program))
        assert_solves(program, mask, by_entry if theta == "by entry" else theta, rng)


@pytest.mark.parametrize("block", [1, 60, table.BLOCK])
@pytest.mark.parametrize(
    ("shape", "share", "kind"),
    [
        ("few contexts", 0.97, ByEntries),
        ("few dimensions", 0.95, InDimensions),
    ],
)
def test_tokens_are_solved_by_the_smallest_matrix(monkeypatch, shape, share, kind, block):
    """By each of two kinds, however many tokens are solved together."""
    monkeypatch.setattr(row_system, "BLOCK", block)
    for _, program, rng in sets("copies", [1.0] * 3, V=9, size=(1, 2), **SHAPES[shape]):
        mask = program.tied | (rng.random(len(program)) < share)
        batches = program.kkt_solver(mask, PROX)._batches
        assert any(isinstance(batch, kind) for batch in batches)
        assert len(batches) == program.pairs.vocab_size or block > 1
        assert_solves(program, mask, PROX, rng)
        for batch in batches:
            number = program.num_columns + 1
            inverses, diagonals = np.zeros((number, number)), np.zeros(number)
            batch.add_matrices(inverses)
            batch.add_diagonals(diagonals)
            inverses = inverses[:-1, :-1]  # the last is for padding
            size = np.abs(inverses).max()
            assert_allclose(np.diag(inverses), diagonals[:-1], atol=1e-12 * size)


@pytest.mark.parametrize("theta", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", BY_SUPPORTS)
def test_conjugate_gradients_solve_what_is_too_large_for_a_matrix(monkeypatch, kind, shape, theta):
    monkeypatch.setattr(support_program, "WHOLE", 1)
    [(pairs, program, rng)] = sets(kind, [0.8], 5200, V=7, **SHAPES[shape])
    assert not pairs.fits
    mask = program.tied | (rng.random(len(program)) < 0.7)
    assert_solves(program, mask, theta, rng)
    assert_solves(program, mask, rng.uniform(theta, 2 * theta, len(program)), rng)

    residual, imbalance = rng.standard_normal(len(program)), rng.standard_normal(len(pairs.groups))
    system = program.kkt_solver(mask, theta)
    assert not system(residual, imbalance, 1e9).common.any()
    step, common = system(residual, imbalance, 0.1)
    assert np.linalg.norm(program.column_sums(step) - imbalance) <= 0.1
    missed = theta * step - program.margins(program.weights(step), common) - residual
    assert_allclose(missed[mask], 0, atol=1e-9)


def test_one_conjugate_gradient_is_enough_where_contexts_are_orthogonal(monkeypatch):
    """The system of the common scores is then diagonal, and gradients are divided by that."""
    monkeypatch.setattr(support_program, "WHOLE", 1)
    monkeypatch.setattr(row_system, "MOST_ITERATIONS", 2)  # the first is zero
    rng = np.random.default_rng(0)
    data = problems.changed(made("supports", 0)[0], context_embeddings=np.eye(6, 8))
    program = all_pairs(data, priority(data)).everything()
    mask = program.tied | (rng.random(len(program)) < 0.7)
    assert_solves(program, mask, rng.uniform(0.01, 1, len(program)), rng)


@pytest.mark.parametrize("accuracy", [1e-2, 1e-6, 1e-13])
@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("kind", BY_SUPPORTS)
def test_guesses_are_iterated_to_the_accuracy_that_is_asked_for(kind, share, accuracy):
    """The column sums are met whatever the accuracy, and the constraints up to it."""
    for _, program, rng in sets(kind, [1.0, 0.9, 0.5], 5300, V=7, m=9, d=16):
        tight = program.tied | (rng.random(len(program)) < share)
        residual = rng.standard_normal(len(program))
        system = IteratedSystem(program, tight)
        for size in (0.0, 1.0):
            imbalance = size * rng.standard_normal(program.num_columns)
            step, common = system(residual, imbalance, accuracy)
            assert "_by_factors" not in vars(system)
            assert not step[~tight].any()
            rounding = 1e-13 * (1 + np.abs(step).max())
            assert_allclose(program.column_sums(step), imbalance, rtol=0, atol=rounding)
            missed = PROX * step - program.margins(program.weights(step), common) - residual
            assert np.linalg.norm(missed[tight]) <= accuracy + 10 * rounding


def test_systems_of_contexts_that_nearly_agree_are_solved_by_factors():
    data, _ = made("supports", 0, m=9, d=16)
    alike = data.context_embeddings[0] + 1e-6 * data.context_embeddings
    data = problems.changed(data, context_embeddings=alike)
    program = all_pairs(data, priority(data)).everything()
    rng = np.random.default_rng(0)
    tight = program.tied | (rng.random(len(program)) < 0.9)
    asked = rng.standard_normal(len(program)), rng.standard_normal(9)
    found = IteratedSystem(program, tight)(*asked, 1e-12)
    for one, other in zip(found, program.kkt_solver(tight, PROX)(*asked), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("kind", BY_SUPPORTS)
def test_iterated_guesses_lead_to_the_same_solution(monkeypatch, kind):
    """Whether they are rough, and whether rough ones are iterated, is no part of the answer."""
    for seed in range(6):
        solutions = []
        for few, factor in ((np.inf, 0), (0, np.inf), (0, 0)):
            monkeypatch.setattr(support_program, "FEW", few)
            monkeypatch.setattr(support_program, "PRODUCTS_OF_A_GUESS", factor)
            pairs = made(kind, 5400 + seed, V=8, m=9, d=12, size=(1, 4))[1]
            everything = pairs.everything()
            assert (everything.rough > 0) == (few == 0)
            tight = np.full(len(everything), True)
            assert isinstance(everything.guess_solver(tight), IteratedSystem) == (
                few == factor == 0
            )
            settled = [step for step in growing_set(pairs) if step.iterate.settled]
            program, iterate = settled[-1]
            solutions.append(program.weights(iterate.dual))
        size = np.abs(solutions[0]).max()
        for solution in solutions[1:]:
            assert_allclose(solution, solutions[0], rtol=0, atol=1e-11 * size)


def test_guesses_are_iterated_where_factors_take_more_memory(monkeypatch):
    monkeypatch.setattr(support_program, "FEW", 0)
    everything = made("supports", 5400, V=8, m=9, d=12, size=(1, 4))[1].everything()
    tight = np.full(len(everything), True)
    assert not isinstance(everything.guess_solver(tight), IteratedSystem)
    monkeypatch.setattr(support_program, "WHOLE", 8 * 9**2 - 1)
    assert isinstance(everything.guess_solver(tight), IteratedSystem)


# -- products of which some entries are wanted ----------------------------------------------------


@pytest.mark.parametrize("block", [1, 30, table.BLOCK])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_some_entries_are_those_of_the_whole(monkeypatch, dtype, block):
    """However many are wanted: few are gathered, and of many the whole product is formed."""
    monkeypatch.setattr(table, "BLOCK", block)
    monkeypatch.setattr(table, "IN_CACHE", block)
    rng = np.random.default_rng(0)
    for m, V, d in ((5, 60, 3), (1, 5, 4), (40, 7, 2)):
        contexts = rng.uniform(-1, 1, (m, d)).astype(dtype)
        tokens = rng.uniform(-1, 1, (V, d)).astype(dtype)
        close = {"rtol": 0, "atol": 4 * m * np.finfo(dtype).eps}
        for number in (0, 1, m * V // 20, m * V // 3, m * V):
            distinct = np.divmod(np.sort(rng.permutation(m * V)[:number]), V)
            for row, column in (distinct, np.divmod(rng.integers(0, m * V, number), V)):
                found = scores_at(contexts, tokens, row, column)
                assert found.dtype == dtype
                assert_allclose(found, (contexts @ tokens.T)[row, column], **close)
                doubles = scores_at(contexts.astype(float), tokens, row, column)
                assert doubles.dtype == float
            dense = np.zeros((m, V), dtype)
            dense[distinct] = values = rng.uniform(-1, 1, number).astype(dtype)
            combined = combined_at(values, *distinct, contexts, V)
            assert combined.dtype == dtype
            assert_allclose(combined, dense.T @ contexts, **close)


def test_entries_are_gathered_once_and_in_parts_that_a_cache_holds(monkeypatch):
    monkeypatch.setattr(table, "IN_CACHE", 12)
    einsum, gathered = np.einsum, []

    def recorded(subscripts, first, second):
        gathered.append(first.shape)
        return einsum(subscripts, first, second)

    monkeypatch.setattr(np, "einsum", recorded)
    contexts, tokens = np.ones((40, 3)), np.ones((60, 3))
    assert table.GATHERED * 10 < 40 * 60  # so few are wanted that the whole is not formed
    scores_at(contexts, tokens, np.arange(10), np.arange(10))
    assert gathered == [(4, 3), (4, 3), (2, 3)]


def test_a_matrix_that_is_not_positive_has_no_factor():
    needed = "^the matrix is not positive definite in floating point$"
    with pytest.raises(np.linalg.LinAlgError, match=needed):
        upper_factor(-np.eye(2))


def test_what_no_pair_names_has_rows_of_zeros(monkeypatch):
    """The second context has one candidate, and the third token is no context's."""
    counts = [[1, 1, 0], [1, 0, 0]]
    data = NextTokenData([[1.0], [2.0]], np.eye(3)[[0, 0]], candidate_counts=counts)
    order = priority(data)
    assert len(order.strict) == 1
    for block in (sums_of_pairs.BLOCK, 0):  # dense, and sparse
        monkeypatch.setattr(sums_of_pairs, "BLOCK", block)
        found = sums_of_pairs.combined_pairs(data, order, np.ones(1))
        assert_array_equal(found, [[1.0], [-1.0], [0.0]])
