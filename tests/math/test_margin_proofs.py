"""What counts as a proof: residuals, certificates, and matrices that plainly separate."""

import contextlib

import numpy as np
import problems
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from margins import active_set_from_all, separable, without_solution
from numpy.testing import assert_allclose, assert_array_equal
from quick import slow_but
from scipy.sparse import csr_array

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    is_separable,
    max_margin,
)
from ntpnb import token_priority as priority
from ntpnb.basics.tolerances import VANISHES
from ntpnb.margin.normal_form import Iterate, PairMultipliers, SetStep
from ntpnb.margin.one_set import interior_point
from ntpnb.margin.separation import (
    PROMISING,
    meet_ties,
    refine_certificate,
    refutation,
    separates,
)
from ntpnb.margin.solution import certify
from ntpnb.margin.support_program import all_pairs
from ntpnb.problem.pairs import pair_lengths


def assert_residuals(data, multipliers):
    """Every number of a solution, from the text of ``MarginSolution`` and dense pair matrices."""
    order = priority(data)
    num_ties = len(order.equal)
    pairs = np.concatenate([order.equal, order.strict])
    mu, lam = multipliers[:num_ties], np.maximum(multipliers[num_ties:], 0.0)
    svm = certify(data, order, PairMultipliers(multipliers[num_ties:].copy(), mu.copy()))
    terms = reference.pair_matrices(data, pairs.tolist())
    W = np.append(mu, lam) @ terms
    w = terms @ W
    norm = np.linalg.norm(W)
    T = reference.token_embeddings(data)
    apart = np.minimum(1.0, np.linalg.norm(T[pairs[:, 1]] - T[pairs[:, 2]], axis=1))
    sizes = norm * np.linalg.norm(data.group_embeddings, axis=1)[order.positions(pairs)] * apart
    sigma = np.maximum(1.0, sizes)
    e = np.append(np.abs(w)[:num_ties], (1 - w)[num_ties:])
    complementarity = lam @ np.abs((w - 1) / sigma)[num_ties:] / lam.sum()
    expected = {
        "norm": norm,
        "min_margin": w[num_ties:].min(),
        "kkt_residual": max((e / sigma).max(), e.max() - 0.1, complementarity),
        "duality_gap": abs(norm**2 - lam.sum()) / (norm**2 / 2),
        "tie_residual": np.abs(w / sizes)[:num_ties].max(initial=0.0),
        "relative_margin": (w / sizes)[num_ties:].min(),
    }

    assert_allclose(svm.W.ravel(), W, rtol=0, atol=1e-12 * norm)
    assert_array_equal(svm.equal_multipliers, mu)
    assert_array_equal(svm.multipliers, lam)
    assert svm.solver == "growing-set"
    measured = [svm]
    if order.is_over_all_others:  # then multipliers may also be a table of groups and losers
        group, _, loser = order.strict.T
        table = np.zeros(order.shape)
        table[np.searchsorted(order.groups, group), loser] = multipliers[num_ties:]
        measured.append(certify(data, order, PairMultipliers(csr_array(table), mu)))
    for found in measured:
        numbers = {name: getattr(found, name) for name in expected}
        assert numbers == pytest.approx(expected, rel=1e-9, abs=1e-14)


def residual_cases(seed):
    """Separable problems of all kinds: as many dimensions as tokens at least."""
    with_tokens = problems.t24(5300 + seed, V=6, m=7, d=8, size=(2, 5), tokens=6)
    yield problems.t24(5300 + seed, V=6, m=7, d=8, size=(1, 4), norms=2)
    yield with_tokens
    yield problems.changed(with_tokens, token_embeddings=0.2 * with_tokens.token_embeddings)
    attention = problems.l24(5300 + seed, cyclic=bool(seed % 2))
    if len(priority(attention).strict):
        yield attention


@pytest.mark.parametrize("size", [1e-4, 1.0])
def test_residuals_are_those_of_their_definition(size):
    """Far from a solution, where none of them is zero."""
    for seed in range(6):
        for data in residual_cases(seed):
            num_pairs = len(priority(data).equal) + len(priority(data).strict)
            assert_residuals(data, size * np.random.default_rng(seed).standard_normal(num_pairs))


def test_residuals_near_a_solution_are_those_of_their_definition():
    """So near that norms excuse what is missed."""
    for seed in range(6):
        for data in residual_cases(seed):
            svm = max_margin(data)
            exact = np.append(svm.equal_multipliers, svm.multipliers)
            change = np.random.default_rng(seed).standard_normal(len(exact))
            assert_residuals(data, exact * (1 + 1e-3 * change))


def pairs_and_program(data):
    """All pairs of the data, and the program of them all."""
    pairs = all_pairs(data, priority(data))
    return pairs, pairs.everything()


def first_certificate(program):
    """From the first direction of the interior point that is nearly one; else None."""
    directions = (iterate.direction for iterate in interior_point(program))
    refined = (refine_certificate(program, one) for one in directions if one is not None)
    found = next((dual for dual in refined if dual is not None), None)
    return None if found is None else found / np.abs(found).max()


def certified():
    """Data without a solution, their programs, and a certificate from an interior direction."""
    for seed in range(7000, 7016):
        data = without_solution(seed)
        _, program = pairs_and_program(data)
        certificate = first_certificate(program)
        if certificate is not None:
            yield data, program, certificate


CERTIFIED = list(certified())


def test_most_of_these_data_have_a_certificate():
    assert len(CERTIFIED) >= 10


@pytest.mark.parametrize(("scale", "noise"), [(1, 0), (1e6, 1e-8), (1e-6, 1e-7)])
def test_a_certificate_is_refined_from_a_rough_one(scale, noise):
    rng = np.random.default_rng(0)
    for _, program, exact in CERTIFIED:
        size = noise * np.abs(exact[program.ordered]).sum()
        rough = exact + size * rng.standard_normal(exact.shape) * (exact != 0)
        dual = refine_certificate(program, scale * rough)
        assert (dual[program.ordered] <= 0).all()
        total = np.abs(dual[program.ordered]).sum()
        assert total > 0
        assert np.linalg.norm(program.weights(dual)) <= 1e-12 * total
        assert np.abs(program.column_sums(dual)).sum() <= 1e-12 * total


def test_ties_are_met_however_large_the_dual_of_a_w():
    """To what a proof asks for: near the edge of separability the digits of ``W`` cancel in it."""
    for seed in (0, 1, 3, 4):
        data = problems.t24(seed, V=6, m=6, d=12, size=(2, 4))
        H, P = data.context_embeddings, data.target_probs
        H, P = np.vstack([H, H[:1]]), np.vstack([P, np.roll(P[:1], 3, axis=1)])
        pairs, program = pairs_and_program(NextTokenData(H, P))
        dual = np.random.default_rng(seed).standard_normal(len(program))
        dual += 1e8 * first_certificate(program)
        met = meet_ties(pairs, SetStep(program, Iterate(dual, program.zero_common(), None)))
        missed = np.abs(program.margins(met.weights, met.common)[program.tied])
        assert missed.max() <= VANISHES * np.linalg.norm(met.weights)


def test_what_is_far_from_a_certificate_is_none():
    """Too much noise, the wrong sign, or nothing at all."""
    rng = np.random.default_rng(0)
    for _, program, exact in CERTIFIED:
        size = 0.1 * np.abs(exact[program.ordered]).sum()
        noisy = exact + size * rng.standard_normal(exact.shape) * (exact != 0)
        for direction in (noisy, -exact, 0 * exact):
            assert refine_certificate(program, direction) is None


@pytest.mark.parametrize("near", [3e-5, 1e-5, 1e-6, 1e-8])
def test_what_nearly_cancels_is_no_certificate(near):
    """Embeddings that cancel, moved by ``near`` in directions of their own: separable by that."""
    for data, _, direction in CERTIFIED:
        H = np.hstack([data.context_embeddings, near * np.eye(10)])
        moved = problems.changed(data, context_embeddings=H)
        _, program = pairs_and_program(moved)
        assert refine_certificate(program, direction) is None


def solved(seed):
    """All pairs of separable data, their programs, and the solution's dual and common scores."""
    for data, _ in separable(seed):
        pairs, program = pairs_and_program(data)
        *_, last = active_set_from_all(program)
        if last.settled:
            yield pairs, program, last


def test_what_separates_is_recognised_at_any_size():
    for seed in range(4):
        for pairs, program, last in solved(seed):
            size = np.linalg.norm(program.weights(last.dual))
            for factor in (1.0, 1e3, 1e-5 / size, 1e-7 / size, 0.0, -1.0):
                scaled = Iterate(factor * last.dual, factor * last.common, direction=None)
                assert separates(pairs, SetStep(program, scaled)) == (factor > 0)


def test_what_separates_a_set_alone_does_not_count():
    """Sets that are drawn by lot, whose solutions may miss other pairs."""
    verdicts = set()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        for pairs, program, _ in solved(seed):
            strict = program.keys[program.ordered]
            few = pairs.program(np.sort(rng.permutation(strict)[: len(strict) // 3]))
            *_, last = active_set_from_all(few)
            margins = program.margins(few.weights(last.dual), last.common)[program.ordered]
            verdict = separates(pairs, SetStep(few, last))
            assert verdict == bool(margins.min() > 1e-6)
            verdicts.add(verdict)
    assert verdicts == {True, False}


def test_ties_that_are_missed_are_met_before_margins_count():
    """By two steps; a miss 1e12 times the solution's size leaves too much rounding.

    Common scores may be any: they follow from the ties.
    """
    tried = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        for pairs, program, last in solved(seed):
            # A dual on ties, balanced, moves tied tokens apart.
            apart = np.where(program.tied, rng.standard_normal(len(program)), 0.0)
            if program.num_columns:
                num_tied = np.bincount(program.column, program.tied)
                apart -= program.tied * program.spread(program.column_sums(apart) / num_tied)
            size = np.linalg.norm(program.weights(apart))
            if size < 1e-6:
                continue
            tried += 1
            apart *= np.linalg.norm(program.weights(last.dual)) / size
            common = np.abs(apart).max() * rng.standard_normal(program.num_columns)
            for share, miss, expected in (
                (1, 0.0, True),
                (1, 1e-3, True),
                (1, 1.0, True),
                (1, 1e12, False),
                (0, 1e-3, False),
            ):
                for scores in (last.common, common):
                    missed = Iterate(share * last.dual + miss * apart, scores, direction=None)
                    assert separates(pairs, SetStep(program, missed)) == expected
    assert tried >= 10


@pytest.mark.parametrize("log2_angle", slow_but([-27], [-27, -30, -33]))
def test_ties_that_differ_by_little_are_ties_all_the_same(log2_angle):
    """Two ties ``δ u`` apart, which no rounding touches, and a strict pair along ``u``.

    No ``W`` meets both and wins the pair, though one along ``u`` misses the ties by ``δ`` only,
    which here is a hundred times what counts as rounding.
    """
    rng = np.random.default_rng(0)
    tried = 0
    for dim in (2, 3, 5):
        for _ in range(6):
            h, u = rng.integers(-4, 5, size=(2, dim)).astype(float)
            if np.linalg.matrix_rank([h, u]) < 2:
                continue
            tried += 1
            near = h + 2.0**log2_angle * u
            assert ((near - h) * 2.0**-log2_angle == u).all()
            data = NextTokenData([h, near, u], [[0.5, 0.5, 0], [0.5, 0.5, 0], [1, 0, 0]])
            for question in (is_separable, lambda data: max_margin(data).norm > 0):
                with contextlib.suppress(ConvergenceError, NotSeparableError):
                    assert not question(data)
    assert tried >= 12


@pytest.mark.parametrize("length", slow_but([1e3, 1e6], [1e3, 1e4, 1e5, 1e6]))
def test_ties_that_nearly_depend_do_not_pretend_a_margin(length):
    """Two ties at an angle of 1e-7 exclude the pair, which a long context makes cheap to win."""
    data = NextTokenData(
        [[1.0, 0.0], [1.0, 1e-7], [0.0, length]],
        [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]],
    )
    verdict = None
    with contextlib.suppress(ConvergenceError):
        verdict = is_separable(data)
    assert not verdict
    for norm in ("frobenius", "max", "sum", "spectral", "nuclear"):
        with pytest.raises((ConvergenceError, NotSeparableError)) as caught:
            max_margin(data, norm=norm)
        point = getattr(caught.value, "point", None)
        assert point is None or point.margin_bounds[0] == 0


@pytest.mark.slow
def test_a_direction_without_a_clear_multiplier_is_no_certificate():
    # Contexts that cancel each other in pairs, and two that do not: the multipliers' error is as
    # large as the multipliers, so that none of them is kept.
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 1999)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    embeddings = np.vstack([circle, -circle, [[0.1, 0.99**0.5], [0.1, -(0.99**0.5)]]])
    labels = np.tile([1.0, 0.0], (len(embeddings), 1))
    data = NextTokenData(embeddings, labels, token_embeddings=np.eye(2))
    pairs, program = pairs_and_program(data)
    even = np.where(program.ordered, -1.0, 0.0)
    error = np.linalg.norm(program.weights(even))
    assert 0.1 < error < PROMISING * program.rhs[program.ordered].sum()
    assert refutation(pairs, program, even) is None
    with pytest.raises(NotSeparableError):
        max_margin(data)


@given(st.integers(0, 9999), st.floats(-14, 2))
def test_bounds_of_the_margin_hold_for_any_multipliers(seed, log10_size):
    """Also for tiny ones, whose ``W`` misses the ties by little as a number, and by all of it."""
    rng = np.random.default_rng([96, seed])
    data = problems.t24(seed, V=4, m=3, d=4, size=(1, 2))
    order = priority(data)
    lam = 10.0**log10_size * rng.random(len(order.strict))
    mu = np.zeros(len(order.equal))
    below, above = certify(data, order, PairMultipliers(lam, mu)).margin_bounds
    largest = 1 / max_margin(data).norm
    assert below <= largest * (1 + 1e-9) <= above * (1 + 1e-8)


@pytest.mark.parametrize("make", [problems.t24, problems.l24])
def test_lengths_of_pairs_are_the_norms_of_their_matrices(make):
    """By which margins, and what ties miss, are called large or small."""
    data = make(7)
    order = priority(data)
    matrices = reference.pair_matrices(data, [*order.equal, *order.strict])
    assert_allclose(pair_lengths(data, order), np.linalg.norm(matrices, axis=1), rtol=1e-13)
