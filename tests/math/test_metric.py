"""The smallest separating matrix where entries weigh differently."""

import numpy as np
import pytest
from problems import l24, start
from reference import pair_matrices

from ntpnb import NextTokenData, datasets, max_margin, token_priority

MAKE = {
    "linear": lambda seed: datasets.overparameterized(seed, 8, 10, 12, 3),
    "large": lambda seed: datasets.overparameterized(seed, 40, 30, 50, 3),
    "attention": lambda seed: l24(seed, d=9),
}


def metric_of(data, seed, spread=2.0):
    """Weights whose logarithms are normal: with 2, the largest is some thousand times the least."""
    return np.exp(spread * start(data, seed))


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("seed", range(5))
def test_the_proof_can_be_computed_again(make, seed):
    """Ties and margins are met, and primal and dual values agree: no other matrix is smaller."""
    data = MAKE[make](seed)
    D = metric_of(data, seed)
    svm = max_margin(data, metric=D)
    order = token_priority(data)
    strict = pair_matrices(data, order.strict)
    equal = pair_matrices(data, order.equal)
    combined = svm.multipliers @ strict + svm.equal_multipliers @ equal
    W = svm.W.ravel()
    assert (svm.multipliers >= 0).all()
    assert svm.W == pytest.approx(combined.reshape(data.shape) / D, abs=1e-12 * np.abs(W).max())
    size = max(1.0, np.linalg.norm(W) * np.linalg.norm(strict, axis=1).max())
    assert np.abs(equal @ W).max(initial=0) < 1e-11 * size
    assert (strict @ W).min() > 1 - 1e-11 * size
    assert svm.norm == pytest.approx(np.sqrt((D * svm.W**2).sum()))
    assert svm.kkt_residual < 1e-11
    # Σ λ = ‖W‖² is what makes primal and dual values equal
    assert svm.multipliers.sum() == pytest.approx(svm.norm**2, rel=1e-9)


def test_other_arguments_go_with_it():
    data = MAKE["linear"](4)
    D = metric_of(data, 4)
    svm = max_margin(data, metric=D)
    near = max_margin(data, metric=D, gap=0.1, order=token_priority(data), seconds=60)
    assert near.margin_gap <= 0.1
    below, above = near.margin_bounds
    assert below <= 1 / svm.norm * (1 + 1e-12)
    assert above >= 1 / svm.norm * (1 - 1e-12)


def test_without_strict_pairs_the_solution_is_zero():
    svm = max_margin(NextTokenData([[1.0]], [[0.5, 0.5]]), metric=[[1.0], [2.0]])
    assert not svm.W.any()
    assert svm.min_margin == np.inf
    assert svm.metric.tolist() == [[1.0], [2.0]]


def test_pairs_that_cannot_be_listed_are_refused():
    data = NextTokenData(np.zeros((2**10, 2**9)), np.eye(2**9)[np.arange(2**10) % 2**9])
    with pytest.raises(ValueError, match=r"; leave metric out$"):
        max_margin(data, metric=np.ones(data.shape))
