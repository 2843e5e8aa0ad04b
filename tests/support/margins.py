"""Judges of max-margin answers that trust nothing but the data, and programs to try methods on.

Every answer is judged on all pairs of the papers' definitions (``reference``), by bounds on the
optimal norm from both sides.
"""

import numpy as np
import problems
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal

from ntpnb import NotSeparableError, is_separable, max_margin
from ntpnb import token_priority as priority
from ntpnb.margin.one_set import active_set
from ntpnb.margin.pair_program import EveryPair
from ntpnb.margin.support_program import all_pairs
from ntpnb.problem.equivalent import collapsed


def relative_sum(data, multipliers):
    """``(I − P_F) Σ λ (t_i − t_j) h_gᵀ`` and the sum of its terms' norms."""
    terms = reference.pair_matrices(data, priority(data).strict)
    combined, basis = multipliers @ terms, reference.equal_basis(data)
    return combined - combined @ basis.T @ basis, multipliers @ np.linalg.norm(terms, axis=1)


def dense_rows(program):
    """Every ``φ_k`` as a row of a dense matrix."""
    return np.stack([program.weights(unit).ravel() for unit in np.eye(len(program))])


def active_set_from_all(program):
    """The active set's iterates from zero, where the first guess is that every entry is tight."""
    return active_set(program, np.zeros(len(program)), np.full(len(program), True))


def rounding(W):
    """How far a pair's score of ``W`` may be off, for a pair of norm one: a product of two rows."""
    return len(W) * np.finfo(float).eps * np.linalg.norm(W)


def feasible(W, equal, strict):
    """``W`` moved as little as ties and missing margins take, so that only its rounding is left.

    ``W`` over its least margin would be feasible too, but longer by what the longest pair misses.
    What one pair gains another may lose, so pairs are moved in rounds.
    """
    norms = np.linalg.norm(strict, axis=1)
    for _ in range(20):
        short = strict[strict @ W < 1]
        rows = np.concatenate([equal, short])
        goal = np.repeat([0.0, 1.0], [len(equal), len(short)])
        scale = 1 / np.maximum(np.linalg.norm(rows, axis=1), np.finfo(float).tiny)
        missing = (goal - rows @ W) * scale
        W = W + np.linalg.lstsq(rows * scale[:, None], missing, rcond=1e-12)[0]
        if (1 - strict @ W <= rounding(W) * norms).all():
            break
    return W


def prove_optimal(data, svm, tolerance):
    """Ties met, and the optimal norm enclosed: by a feasible W from above, by λ from below."""
    W = svm.W.ravel()
    norm = np.linalg.norm(W)
    reach = np.maximum(1.0, norm * np.linalg.norm(data.context_embeddings, axis=1).max())
    equal = reference.pair_matrices(data, reference.equal_pairs(data))
    strict = reference.pair_matrices(data, reference.strict_pairs(data))
    assert np.abs(equal @ W).max(initial=0.0) <= tolerance * reach
    assert svm.min_margin == pytest.approx((strict @ W).min(initial=np.inf), rel=1e-9)
    assert svm.multipliers.min(initial=0.0) >= 0
    combined, _ = relative_sum(data, svm.multipliers)
    below = 2 * svm.multipliers.sum() - combined @ combined  # of the squared optimal norm
    assert below == pytest.approx(norm**2, rel=1e-9)
    above = feasible(W, equal, strict)
    margins = (strict @ above - 1) / np.linalg.norm(strict, axis=1)
    assert margins.min(initial=0.0) >= -rounding(above)
    assert np.linalg.norm(above) == pytest.approx(norm, rel=1e-9)
    assert svm.norm == pytest.approx(norm, rel=1e-13)


def prove_enclosed(data, svm, exact):
    """The bounds of the largest margin from all pairs, and between them the exact one."""
    order = priority(data)
    strict = reference.pair_matrices(data, order.strict)
    equal = reference.pair_matrices(data, order.equal)
    W = svm.W.ravel()
    reach = svm.norm * np.linalg.norm(data.context_embeddings, axis=1).max()
    combined = svm.multipliers @ strict + svm.equal_multipliers @ equal
    assert_allclose(combined, W, rtol=0, atol=1e-12 * svm.norm)
    assert svm.norm == pytest.approx(np.linalg.norm(W), rel=1e-12)
    assert (svm.multipliers >= 0).all()
    assert np.abs(equal @ W).max(initial=0.0) <= 1e-9 * reach
    assert svm.min_margin == pytest.approx((strict @ W).min(), abs=1e-12 * reach)
    below, above = svm.min_margin / svm.norm, svm.norm / svm.multipliers.sum()
    # A margin counts where ties are met to 1e-12; on some processors they are met to no more.
    counts = svm.tie_residual <= min(1e-12, 1e-8 * svm.relative_margin)
    assert svm.margin_bounds == pytest.approx((below * counts, above), rel=1e-9)
    assert below * (1 - 1e-9) <= 1 / exact.norm <= above * (1 + 1e-9)


def prove_refused(data, error):
    """Farkas: nonnegative weights of sum one, whose combination vanishes."""
    order, weights = priority(data), error.certificate
    assert weights.shape == (len(order.strict),)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    combined, size = relative_sum(data, weights)
    assert np.linalg.norm(combined) <= 1e-12 * size
    found = error.pair_weights
    if found is not None:  # a floor's certificate has none
        assert_array_equal(order.strict[found.positions], found.pairs)
        assert found.num_strict == len(order.strict)


def answer(data, **arguments):
    """The solution, or the error that refuses the data."""
    try:
        return max_margin(data, **arguments)
    except NotSeparableError as error:
        return error


def prove_same(data, found, expected):
    """Both answers are proved from the data and say the same, and so does the verdict."""
    assert type(found) is type(expected)
    order = priority(data)
    refused = isinstance(found, NotSeparableError)
    assert is_separable(data) is not refused
    if refused:
        prove_refused(data, found)
        assert str(len(order.strict)) in str(found)
        return
    prove_optimal(data, found, 1e-9)
    assert_allclose(found.W, expected.W, rtol=0, atol=1e-8 * expected.norm)
    assert found.kkt_residual <= 1e-10
    assert found.multipliers.shape == (len(order.strict),)
    assert found.equal_multipliers.shape == (len(order.equal),)
    # A margin is known up to the residuals, which are relative to the norms of W and a context.
    reach = max(1.0, found.norm * np.linalg.norm(data.context_embeddings, axis=1).max())
    rel = 1e-9 + reach * (found.kkt_residual + expected.kkt_residual)
    assert found.margin_bounds == pytest.approx(expected.margin_bounds, rel=rel)


def proved(data):
    """Whether data are separable, by a solution or a refusal that is proved here."""
    found = answer(data)
    if isinstance(found, NotSeparableError):
        prove_refused(data, found)
        return False
    assert found.kkt_residual <= 1e-10
    prove_optimal(data, found, 1e-10)
    return True


def solvable(seed, **options):
    """A decoder with more dimensions than contexts; as a rule with ties."""
    return problems.t24(seed, **{"V": 6, "m": 9, "d": 12, "size": (1, 4)} | options)


def without_solution(seed):
    """A decoder in so few dimensions that hardly any is separable."""
    return problems.t24(seed, V=5, m=10, d=2 + seed % 3, size=(1, 3))


def separable(seed):
    """Problems of several kinds that have a solution, with their programs; most have ties."""
    for data in (
        solvable(5000 + seed),
        solvable(5000 + seed, size=1),
        solvable(5000 + seed, candidates=True),
        solvable(5000 + seed, m=5, size=(2, 4), tokens=4),
        problems.l24(4000 + seed, cyclic=bool(seed % 2)),
    ):
        order = priority(data)
        if len(order.strict) and is_separable(data):
            yield data, all_pairs(data, order).everything()


def made(kind, seed, **options):
    """Data of one kind, and all their pairs; of ``copies`` the last token stands for nine."""
    sizes = {"V": 6, "m": 6, "d": 8, "size": (1, 4)} | options
    if kind == "attention":
        data = problems.l24(seed, K=7, d=5, n=9, T=4, repeats=True, norms=1)
    elif kind == "copies":
        data = problems.t24(seed, **sizes)
        laws = np.pad(data.target_probs, ((0, 0), (0, 9)))
        whole = collapsed(problems.changed(data, target_probs=laws))
        assert not whole.is_trivial
        return whole.data, all_pairs(whole.data, priority(whole.data), whole.multiplicity)
    else:
        tokens = 4 if kind == "tokens" else None
        data = problems.t24(seed, tokens=tokens, candidates=kind == "candidates", **sizes)
    if kind == "pairs":
        return data, EveryPair(data, priority(data))
    return data, all_pairs(data, priority(data))


def some_of(pairs, share, rng):
    """The program of some strict pairs."""
    everything = pairs.everything()
    chosen = everything.ordered & (rng.random(len(everything)) < share)
    return pairs.program(everything.keys[chosen])


def sets(kind, shares, first=0, **options):
    """For each share other data's pairs, the program of so many of them, and a generator."""
    for seed, share in enumerate(shares):
        rng = np.random.default_rng(seed)
        pairs = made(kind, first + seed, **options)[1]
        yield pairs, some_of(pairs, share, rng), rng
