"""A general solver says the same: Clarabel, by cvxpy, in every norm and in a metric."""

import cvxpy as cp
import numpy as np
import problems
import pytest
from margins import without_solution
from reference import pair_matrices

import ntpnb
from ntpnb import NotSeparableError, datasets, max_margin

NORMS = {
    "frobenius": lambda W: cp.norm(W, "fro"),
    "max": lambda W: cp.max(cp.abs(W)),
    "sum": lambda W: cp.sum(cp.abs(W)),
    "spectral": cp.sigma_max,
    "nuclear": cp.normNuc,
}
KINDS = {
    "decoder": lambda seed: datasets.overparameterized(seed, 5, 4, 6, 2),
    "attention": lambda seed: problems.l24(4000 + seed, cyclic=bool(seed % 2)),
}


def smallest(data, size):
    """The smallest size of a matrix that meets all constraints; infinite where none does."""
    order = ntpnb.token_priority(data)
    W = cp.Variable(data.shape)
    entries = cp.vec(W, order="C")
    constraints = [pair_matrices(data, order.strict) @ entries >= 1]
    if len(order.equal):
        constraints.append(pair_matrices(data, order.equal) @ entries == 0)
    return cp.Problem(cp.Minimize(size(W)), constraints).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", NORMS)
def test_the_norm_is_that_of_a_general_solver(norm, kind):
    for seed in range(3):
        data = KINDS[kind](seed)
        # Clarabel's own accuracy is 1e-8, of squares in two of the norms.
        assert max_margin(data, norm=norm).norm == pytest.approx(
            smallest(data, NORMS[norm]), rel=1e-6
        )


@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_in_a_metric(kind):
    for seed in range(3):
        data = KINDS[kind](seed)
        D = np.exp(2 * np.random.default_rng(seed).standard_normal(data.shape))
        expected = smallest(data, lambda W, D=D: cp.norm(cp.multiply(np.sqrt(D), W), "fro"))
        assert max_margin(data, metric=D).norm == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_refused_it_finds_infeasible(seed):
    data = without_solution(5500 + seed)
    with pytest.raises(NotSeparableError):
        max_margin(data)
    assert smallest(data, NORMS["frobenius"]) == np.inf
