"""The max-margin engine against its own definition and Farkas' lemma.

Nothing here trusts the engine's residuals: every answer is judged on all pairs of the papers'
definitions (``margins``), by bounds on the optimal norm from both sides.
"""

import re

import numpy as np
import problems
import pytest
from hypothesis import settings
from margins import (
    active_set_from_all,
    answer,
    prove_optimal,
    prove_refused,
    proved,
    solvable,
    without_solution,
)
from numpy.testing import assert_allclose

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    datasets,
    is_separable,
    max_margin,
    report,
)
from ntpnb import token_priority as priority
from ntpnb.margin import narrow, solve
from ntpnb.margin.growing_set import growing_set
from ntpnb.margin.support_program import all_pairs

REGIMES = problems.regimes()
BLOCKS = range(10 if settings().max_examples >= 30 else 1)  # one for each of thousands of mutants
SLOW_BLOCKS = [pytest.param(block, marks=[pytest.mark.slow] if block else []) for block in BLOCKS]


def test_the_toy_is_exact():
    exact = np.array([[-3, -24], [27, 16], [2, 16], [-23, 16], [-3, -24]]) / 25
    svm = max_margin(datasets.toy())
    assert_allclose(svm.W, exact, rtol=0, atol=1e-12)
    assert_allclose(svm.W[0], svm.W[4], rtol=0, atol=1e-12)


# -- answers and refusals on random problems ------------------------------------------------------


@pytest.mark.parametrize("data", REGIMES.values(), ids=REGIMES)
def test_every_regime_ends_in_a_proof(data):
    assert is_separable(data) is proved(data)


def decoder(i):
    """Separable problems with d > m, d = m and d < m; mixed, one-hot and widest supports."""
    V = 4 + i % 5
    size = [(1, V - 1), 1, V - 1, (1, 2)][i % 4]
    d = [18, 12, 11][i % 3]
    return problems.t24(1000 + i, V=V, m=12, d=d, size=size, norms=6 * (i % 7 == 0))


def in_few_dimensions(i):
    """Decoders and sequences of which many contradict themselves."""
    if i % 4 == 3:
        return problems.l24(i, K=6, d=1 + i % 2, n=10)
    return problems.t24(i, V=5, m=10, d=2 + i % 4, size=(1, 3))


def twins(i):
    """Contexts that share an embedding and a support: different rows of one direction."""
    data = problems.t24(2000 + i, V=6, m=8, d=14, size=(1, 5))
    H = np.concatenate([data.context_embeddings, data.context_embeddings[:4]])
    return NextTokenData(H, np.concatenate([data.target_probs, data.target_probs[:4]]))


@pytest.mark.parametrize("block", SLOW_BLOCKS)
def test_two_hundred_random_problems(block):
    seeds = range(20 * block, 20 * block + 20)
    solved = [proved(twins(i) if i % 5 == 4 else decoder(i)) for i in seeds]
    assert sum(solved) >= 12


@pytest.mark.parametrize("block", SLOW_BLOCKS)
def test_every_refusal_carries_a_valid_certificate(block):
    refused = 0
    for i in range(7000 + 80 * block, 7000 + 80 * block + 80):
        data = in_few_dimensions(i)
        found = answer(data)
        if isinstance(found, NotSeparableError):
            prove_refused(data, found)
            refused += 1
    assert refused >= 30  # 300 over the ten blocks


@pytest.mark.parametrize("seed", [504, 1691, 2740, 3193])
def test_multipliers_that_all_vanish_certify_nothing(seed):
    """Separable by a hair: refining a false certificate ends in zero, which cancels trivially."""
    rng = np.random.default_rng(seed)
    E = rng.standard_normal((42, 3))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    X = np.arange(42).reshape(21, 2)
    data = NextTokenData.from_attention(E, X, X[np.arange(21), rng.integers(0, 2, 21)])
    assert is_separable(data)
    assert max_margin(data).min_margin >= 1 - 1e-9


# -- the way to an answer ------------------------------------------------------------------------


def test_random_problems_are_solved_in_few_steps():
    """Random problems with d > m: the active set of the first set of pairs, and its rounding."""
    for seed in range(10):
        told = []
        data = solvable(5000 + seed)
        margin = 1 / max_margin(data, progress=told.append).norm
        assert len(told) <= 3
        for line in told:
            form = r"KKT residual (\S+), margin between (\S+) and (\S+)"
            residual, below, above = map(float, re.fullmatch(form, line).groups())
            assert below * (1 - 1e-5) <= margin <= above * (1 + 1e-5)  # six digits are told
        assert residual <= 1e-13


def test_a_refusal_says_how_many_pairs_contradict_each_other():
    for seed in (5502, 5505, 5508):  # in two dimensions
        data = without_solution(seed)
        with pytest.raises(NotSeparableError) as caught:
            max_margin(data)
        prove_refused(data, caught.value)
        weights = caught.value.certificate
        assert str(caught.value) == (
            f"no W keeps all {len(weights)} strict pairs at a positive margin: weighted as "
            f".certificate says, {np.count_nonzero(weights)} of them contradict each other"
        )


def test_a_pair_of_length_zero_can_have_no_margin():
    data = NextTokenData([[1.0], [0.0]], [[1, 0], [1, 0]])
    with pytest.raises(NotSeparableError, match=r"positive margin: one of them can have none$"):
        max_margin(data)
    assert "1 of 2 ordered pairs, in 1 context, can have no positive margin" in str(report(data))


def test_where_no_active_set_settles_the_search_goes_on():
    data = problems.t24(9, V=7, m=10, d=4, size=1)
    *_, last = active_set_from_all(all_pairs(data, priority(data)).everything())
    assert not last.settled
    prove_optimal(data, max_margin(data), 1e-10)


# -- where the search ends ------------------------------------------------------------------------


def test_separability_is_settled_at_the_first_proof(monkeypatch):
    """In fewer steps of the method than the solution takes, and never in more."""
    taken = []

    def counted(*arguments):
        for step in growing_set(*arguments):
            taken.append(step)
            yield step

    monkeypatch.setattr(solve, "growing_set", counted)
    fewer = 0
    for seed in range(10):
        for size in (1, (1, 3)):
            data = solvable(5000 + seed, size=size)
            taken.clear()
            assert is_separable(data)
            for_verdict = len(taken)
            taken.clear()
            max_margin(data)
            assert for_verdict <= len(taken)
            fewer += for_verdict < len(taken)
    assert fewer > 10


@pytest.mark.parametrize("entries", [0, narrow.ENTRIES])
def test_undecided_says_how_close_it_came(monkeypatch, entries):
    """With a tolerance that nothing meets, and a linear program that is too large, or not."""
    monkeypatch.setattr(solve, "STOP", -1.0)
    monkeypatch.setattr(solve, "ACCEPT", -1.0)
    monkeypatch.setattr(narrow, "ENTRIES", entries)
    data = solvable(5000)
    told = []
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, progress=told.append)
    residual = caught.value.residual
    assert told[-1].startswith(f"KKT residual {residual:.1e}, margin between ")
    assert 0 <= residual <= 1e-13
    assert caught.value.point.kkt_residual == residual
    assert str(caught.value) == (
        f"undecided: the search reached a KKT residual of {residual:.1e}, not small enough, "
        + (
            "though a linear program proves that the data are separable"
            if entries
            else "and found no certificate that the data are not separable"
        )
    )


def test_what_is_close_enough_is_accepted_once_the_method_has_ended(monkeypatch):
    monkeypatch.setattr(solve, "STOP", -1.0)
    told = []
    data = solvable(5000)
    svm = max_margin(data, progress=told.append)
    residuals = [float(re.match(r"KKT residual (\S+),", line)[1]) for line in told]
    assert svm.kkt_residual == pytest.approx(min(residuals), rel=0.1)
    assert svm.kkt_residual <= 1e-10
