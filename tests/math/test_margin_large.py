"""The max-margin engine for one-hot data with fewer dimensions than contexts.

Small problems take its way where ``solve.LARGE`` is set to one. Every answer is judged from the
data (``margins``), or by methods that share nothing with it.
"""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import problems
import pytest
import reference
from margins import prove_optimal, prove_refused
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, lsqr

from ntpnb import (
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    datasets,
    is_separable,
    max_margin,
    watch,
)
from ntpnb import token_priority as priority
from ntpnb.margin import augmented_lagrangian, parts, solve
from ntpnb.margin.penalty import minimise, penalised, point_at, with_fixed_scores
from ntpnb.margin.penalty_system import FactoredSystem, IterativeSystem
from ntpnb.margin.program import has_two_levels, margin_program
from ntpnb.margin.solution import certify

TWO_LEVELS = {
    name: data
    for name, data in problems.regimes().items()
    if has_two_levels(data, priority(data)) and len(priority(data).strict)
}


@pytest.fixture
def as_if_large(monkeypatch):
    """Let small data take the way of large ones."""
    monkeypatch.setattr(solve, "LARGE", 1)


def planted(seed, V=7, m=40, d=5, norms=0):
    """Data that some ``W`` separates: the next token is the one that it scores highest."""
    rng = np.random.default_rng([53, seed])
    H = rng.standard_normal((m, d)) * 10.0 ** rng.uniform(-norms / 2, norms / 2, (m, 1))
    W = rng.standard_normal((V, d))
    return NextTokenData(H, np.eye(V)[(H @ W.T).argmax(1)])


def planted_with_ties(seed, V=6, m=30, d=5):
    """Data with supports of two tokens whose scores one ``W`` makes equal and highest.

    The embeddings of a support lie in the hyperplane on which its two tokens tie.
    """
    rng = np.random.default_rng([54, seed])
    W = rng.standard_normal((V, d))
    H = np.empty((m, d))
    P = np.zeros((m, V))
    found = 0
    while found < m:
        pair = rng.permutation(V)[: rng.integers(1, 3)]
        difference = W[pair[0]] - W[pair[-1]]
        h = rng.standard_normal(d)
        if len(pair) == 2:
            h -= difference * (difference @ h) / (difference @ difference)
        scores = W @ h
        others = np.delete(scores, pair)
        if scores[pair].min() > others.max() + 0.1:
            H[found] = h
            P[found, pair] = 1 / len(pair)
            found += 1
    return NextTokenData(H, P)


def answer(data, **arguments):
    """The solution, or the error that refuses the data."""
    try:
        return max_margin(data, **arguments)
    except NotSeparableError as error:
        return error


def prove_cancelled(data, order, weights):
    """The weighted pairs cancel, but for multiples of tied pairs.

    These come from least squares by conjugate gradients: what they leave bounds what is left.
    """
    position = np.argsort(data.context_groups)
    names = data.context_groups[position]

    def entries(pairs):
        row = position[np.searchsorted(names, pairs[:, 0])]
        return row, pairs[:, 1], pairs[:, 2]

    def combined(pairs, multipliers):
        row, winner, loser = entries(pairs)
        by_token = np.zeros((data.num_contexts, data.vocab_size))
        np.add.at(by_token, (row, winner), multipliers)
        np.add.at(by_token, (row, loser), -multipliers)
        return (by_token.T @ data.context_embeddings).ravel()

    def differences(W):
        row, winner, loser = entries(order.equal)
        scores = data.context_embeddings @ W.reshape(data.shape).T
        return scores[row, winner] - scores[row, loser]

    left = combined(weights.pairs, weights.weights)
    lengths = np.linalg.norm(data.context_embeddings, axis=1)[entries(weights.pairs)[0]]
    size = np.sqrt(2) * weights.weights @ lengths
    if not len(order.equal):
        assert np.linalg.norm(left) <= 1e-11 * size
        return
    ties = LinearOperator(
        (len(left), len(order.equal)),
        matvec=lambda mu: combined(order.equal, np.ravel(mu)),
        rmatvec=differences,
        dtype=float,
    )
    mu = lsqr(ties, left, atol=1e-15, btol=1e-15, conlim=0, iter_lim=2000)[0]
    assert np.linalg.norm(left - ties @ mu) <= 1e-11 * size


# -- the Newton system ----------------------------------------------------------------------------


def random_system(seed, V, m, d, share):
    rng = np.random.default_rng([51, seed])
    directions = rng.standard_normal((m, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    active = rng.random((V, m)) < share
    active[rng.integers(0, V, m), np.arange(m)] = True
    return directions, active, rng.standard_normal((V, m))


def dense_minimum(directions, active, rho, tau, common=None):
    """The quadratic's minimum by least squares: one row for each entry and each weight."""
    V, m = active.shape
    d = directions.shape[1]
    token, context = active.nonzero()
    of_weights = np.zeros((len(token), V, d))
    of_weights[np.arange(len(token)), token] = directions[context]
    of_common = -np.eye(m)[context]
    rest = -rho[active]
    if common is not None:
        rest = rest + common[context]
        of_common = of_common[:, :0]
    entries = np.hstack([of_weights.reshape(len(token), V * d), of_common])
    weights = np.hstack([np.sqrt(tau) * np.eye(V * d), np.zeros((V * d, of_common.shape[1]))])
    solution = np.linalg.lstsq(
        np.vstack([entries, weights]), np.append(rest, np.zeros(V * d)), rcond=None
    )[0]
    return solution[: V * d].reshape(V, d), solution[V * d :]


@pytest.mark.parametrize("kind", [FactoredSystem, IterativeSystem])
@pytest.mark.parametrize("tau", [1.0, 1e-3])
@pytest.mark.parametrize(
    ("d", "share"), [(3, 0.8), (12, 0.3), (5, 0.4)], ids=["long rows", "short rows", "both"]
)
def test_a_newton_system_has_the_least_squares_solution(kind, tau, d, share):
    directions, active, rho = random_system(d, V=6, m=14, d=d, share=share)
    weights, common = dense_minimum(directions, active, rho, tau)
    found = kind(directions, active, tau).solve(rho)
    tolerance = 1e-14 * 50 / tau  # rounding times the condition number, at most (d + tau) / tau
    np.testing.assert_allclose(found.weights_change, weights, rtol=0, atol=10 * tolerance)
    np.testing.assert_allclose(found.common, common, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("kind", [FactoredSystem, IterativeSystem])
def test_a_newton_system_s_rows_decouple_where_common_scores_are_fixed(kind):
    directions, active, rho = random_system(1, V=6, m=14, d=5, share=0.4)
    active[2] = False  # a token without entries
    active[3] = True  # so that no context is without
    common = np.linspace(-1, 1, 14)
    weights, _ = dense_minimum(directions, active, rho, 0.1, common)
    found = kind(directions, active, 0.1).weights_change(rho - common)
    np.testing.assert_allclose(found, weights, rtol=0, atol=1e-12)
    assert not found[2].any()


def test_a_newton_system_with_zero_directions():
    directions, active, rho = random_system(2, V=5, m=10, d=3, share=0.6)
    directions[:2] = 0
    factored = FactoredSystem(directions, active, 0.1).solve(rho)
    iterative = IterativeSystem(directions, active, 0.1).solve(rho)
    weights, common = dense_minimum(directions, active, rho, 0.1)
    for found in (factored, iterative):
        np.testing.assert_allclose(found.weights_change, weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.common, common, rtol=0, atol=1e-12)


# -- the penalised problem ------------------------------------------------------------------------


def penalised_problem(seed):
    """A program with a push, a centre and ``τ``, and its function with its gradient."""
    data = problems.t24(seed, V=5, m=9, d=3, size=(1, 3))
    program = margin_program(data, priority(data))
    rng = np.random.default_rng([52, seed])
    push = np.where(program.domain, rng.standard_normal(program.rhs.shape), 0.0)
    centre = rng.standard_normal((5, 3))
    tau = 0.3

    def residual_of(weights, common):
        missed = push + weights @ program.directions.T - common + program.rhs
        return np.where(program.tied, missed, np.where(program.ordered, np.maximum(missed, 0), 0))

    def function(x):
        weights, common = x[:15].reshape(5, 3), x[15:]
        r = residual_of(weights, common)
        away = weights - centre
        value = tau / 2 * (away**2).sum() + (r**2).sum() / 2
        of_weights = tau * away + r @ program.directions
        return value, np.append(of_weights.ravel(), -r.sum(0))

    return program, push, centre, tau, function


@pytest.mark.parametrize("seed", range(4))
def test_a_penalised_problem_s_minimum(seed):
    program, push, centre, tau, function = penalised_problem(seed)
    start = with_fixed_scores(
        program, point_at(program, np.zeros((5, 3)), np.zeros(9)), tau, steps=2
    )
    minimum = minimise(program, start, push, centre, tau)
    W, common, r = minimum.point.weights, minimum.point.common, minimum.residual
    value, gradient = function(np.append(W.ravel(), common))
    assert np.abs(gradient).max() <= 1e-12 * (1 + np.abs(r).max())
    assert np.abs(r.sum(0)).max() <= 1e-12
    np.testing.assert_allclose(r @ program.directions, -tau * (W - centre), rtol=0, atol=1e-12)
    assert (r[program.ordered] >= 0).all()
    assert not r[~program.domain].any()
    np.testing.assert_array_equal(
        penalised(program, push + minimum.point.shortfall)[program.ordered], r[program.ordered] > 0
    )

    other = minimize(function, np.zeros(24), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    assert value <= other.fun * (1 + 1e-12)
    # The value grows by τ/2 ‖ΔW‖² at least.
    distance = np.linalg.norm(other.x[:15].reshape(5, 3) - W)
    assert distance**2 <= 2 / tau * (other.fun - value) + 1e-12
    assert other.fun == pytest.approx(value, rel=1e-9)


def test_a_minimum_needs_no_more_accuracy_than_is_asked_for():
    program, push, centre, tau, function = penalised_problem(0)
    start = point_at(program, np.zeros((5, 3)), np.zeros(9))
    rough = minimise(program, start, push, centre, tau, accuracy=0.5)
    exact = minimise(program, start, push, centre, tau)
    assert rough.steps < exact.steps
    point = np.append(rough.point.weights.ravel(), rough.point.common)
    assert np.linalg.norm(function(point)[1]) <= 0.5


# -- the method -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_the_augmented_lagrangian_agrees_in_every_regime(name):
    data = TWO_LEVELS[name]
    expected = answer(data)
    found = answer(data, solver="augmented-lagrangian")
    assert type(found) is type(expected)
    if isinstance(found, NotSeparableError):
        prove_refused(data, found)
    else:
        assert found.solver == "augmented-lagrangian"
        assert found.norm == pytest.approx(expected.norm, rel=1e-9)
        prove_optimal(data, found, 1e-10)


@pytest.mark.parametrize(
    "data",
    [
        problems.t24(18, tokens=3, size=(1, 4)),
        problems.l24(23, cyclic=False),
        problems.l24(24, n=12, K=7, d=8, cyclic=True),
    ],
)
def test_other_data_are_no_case_for_the_augmented_lagrangian(data):
    message = (
        r"^solver is 'augmented-lagrangian', which needs one-hot tokens and in each context one "
        r"set of tied tokens that wins over all others; choose another for these data$"
    )
    with pytest.raises(ValueError, match=message):
        max_margin(data, solver="augmented-lagrangian")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [planted, planted_with_ties])
def test_planted_data_are_separated(as_if_large, make, seed):
    data = make(seed)
    svm = max_margin(data)
    assert svm.solver == "augmented-lagrangian"
    prove_optimal(data, svm, 1e-10)
    assert is_separable(data)


def test_few_parallel_contexts_contradict_each_other_among_separable_ones():
    """Weights grow far before the others are met, and what is left is a certificate."""
    data = problems.t24(30002, V=20, m=147, d=21, size=1, parallel=5)
    told = []
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data, solver="augmented-lagrangian", progress=told.append)
    assert len(told) < 60
    prove_cancelled(data, priority(data), caught.value.pair_weights)


def test_a_contradiction_goes_on_where_a_small_weight_has_no_factor(monkeypatch):
    used = []

    def fragile(program, point, push, centre, tau, **accuracy):
        used.append(tau)
        if tau < augmented_lagrangian.SAFE_WEIGHT:
            raise np.linalg.LinAlgError("no factor")
        return minimise(program, point, push, centre, tau, **accuracy)

    monkeypatch.setattr(augmented_lagrangian, "minimise", fragile)
    data = problems.t24(30002, V=20, m=147, d=21, size=1, parallel=5)
    steps = list(augmented_lagrangian.contradiction(margin_program(data, priority(data))))
    failed = [k for k, tau in enumerate(used) if tau < augmented_lagrangian.SAFE_WEIGHT]
    assert len(failed) == 1
    assert used[failed[0] + 1 :] == [augmented_lagrangian.SAFE_WEIGHT] * (len(steps) - failed[0])


def test_norms_over_six_decades(as_if_large):
    data = planted(0, norms=6)
    prove_optimal(data, max_margin(data), 1e-10)


def largest_margin(data):
    """That of a ``W`` in the unit box, for pairs of norm one, by HiGHS."""
    strict = reference.pair_matrices(data, priority(data).strict.tolist(), unit=True)
    equal = reference.pair_matrices(data, priority(data).equal.tolist(), unit=True)
    n = strict.shape[1]
    result = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([-strict, np.ones(len(strict))]),
        b_ub=np.zeros(len(strict)),
        A_eq=np.column_stack([equal, np.zeros(len(equal))]) if len(equal) else None,
        b_eq=np.zeros(len(equal)) if len(equal) else None,
        bounds=[(-1, 1)] * n + [(None, None)],
        method="highs",
    )
    return -result.fun


def test_a_linear_program_gives_the_same_verdict_near_the_threshold(as_if_large):
    verdicts = []
    for seed in range(30):
        V = 3 + seed % 4
        d = 3 + seed % 3
        m = (1 + V // 2) * d + seed % 5 - 2
        data = problems.t24(9000 + seed, V=V, m=m, d=d, size=1)
        found = answer(data)
        if isinstance(found, NotSeparableError):
            prove_refused(data, found)
        else:
            prove_optimal(data, found, 1e-9)
        separable = not isinstance(found, NotSeparableError)
        assert is_separable(data) == separable
        verdicts.append((separable, largest_margin(data) > 1e-7))  # HiGHS meets rows to 1e-7
    assert all(ours == theirs for ours, theirs in verdicts)
    assert 6 < sum(ours for ours, _ in verdicts) < 24


@pytest.mark.parametrize(
    "options",
    [
        {"zero": 2},
        {"parallel": 9},
        {"norms": 6},
        {"size": (1, 4)},
        {"size": (4, 4)},
        {"V": 2, "size": (1, 2)},
        {"d": 1},
        {"rank": 2},
    ],
    ids=str,
)
def test_both_engines_agree(monkeypatch, options):
    for seed in range(12):
        data = problems.t24(9500 + seed, **({"V": 4, "m": 10, "d": 4, "size": (1, 2)} | options))
        expected = answer(data)
        with monkeypatch.context() as patch:
            patch.setattr(solve, "LARGE", 1)
            found = answer(data)
        assert type(found) is type(expected)
        if isinstance(found, NotSeparableError):
            assert found.certificate.shape == expected.certificate.shape
        else:
            assert found.norm == pytest.approx(expected.norm, rel=1e-9)


def test_turned_scaled_and_renamed(as_if_large):
    for seed in range(2):
        data = planted_with_ties(seed) if seed % 2 else planted(seed)
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
        rows = rng.permutation(data.num_contexts)
        tokens = rng.permutation(data.vocab_size)
        W = max_margin(data).W
        size = np.linalg.norm(W)
        turned = max_margin(problems.rotated(data, 100 * Q)).W
        np.testing.assert_allclose(100 * turned @ Q.T, W, rtol=0, atol=1e-8 * size)
        renamed = max_margin(problems.renamed(problems.rearranged(data, rows), tokens)).W
        np.testing.assert_allclose(renamed, W[tokens], rtol=0, atol=1e-8 * size)


def test_a_context_s_length_is_nothing_to_a_verdict(as_if_large):
    verdicts = []
    for seed in range(12):
        data = problems.t24(9700 + seed, V=5, m=14, d=5, size=1)
        scale = 10.0 ** np.random.default_rng(seed).uniform(-2, 2, (14, 1))
        scaled = problems.changed(data, context_embeddings=scale * data.context_embeddings)
        verdicts.append(is_separable(data))
        assert is_separable(scaled) == verdicts[-1]
    assert 2 < sum(verdicts) < 10


# -- parts ----------------------------------------------------------------------------------------


def contradictory(seed, V=44, m=60, d=2, names=None):
    """More contexts than dimensions can tell apart, with Zipf's frequencies and some ties."""
    rng = np.random.default_rng([55, seed])
    frequency = 1 / np.arange(1.0, V + 1)
    P = np.zeros((m, V))
    for j in range(m):
        tokens = rng.choice(V, rng.integers(1, 3), replace=False, p=frequency / frequency.sum())
        P[j, tokens] = rng.dirichlet(np.ones(len(tokens)))
    return NextTokenData(rng.standard_normal((m, d)), P, context_groups=names)


def named(seed):
    """The same, with groups whose names are out of order."""
    names = np.random.default_rng(seed).permutation(60) * 3 - 100
    return contradictory(seed, names=names)


@pytest.mark.parametrize("make", [contradictory, named])
def test_a_part_s_certificate_is_one_of_the_whole(make):
    for seed in range(2):
        data = make(seed)
        order = priority(data)
        some = list(parts.parts(data))
        assert len(some) > 2
        refuted = 0
        for part in some:
            weights = parts.contradiction_in(part, data)
            if weights is None:
                continue
            refuted += 1
            np.testing.assert_array_equal(order.strict[weights.positions], weights.pairs)
            assert weights.num_strict == len(order.strict)
            assert (weights.weights > 0).all()
            assert weights.weights.sum() == pytest.approx(1.0, rel=1e-12)
            assert np.isin(weights.pairs[:, 2], part.tokens).all()
            assert np.isin(weights.pairs[:, 0], data.context_groups[part.contexts]).all()
            prove_cancelled(data, order, weights)
        assert refuted > 1
        prove_refused(data, NotSeparableError("the last part contradicts itself", weights))


def test_a_part_is_the_whole_s_contexts_and_tokens():
    data = contradictory(0)
    support = data.target_probs > 0
    sizes = []
    for part in parts.parts(data):
        assert (np.diff(part.tokens) > 0).all()
        assert (np.diff(part.contexts) > 0).all()
        sizes.append((len(part.tokens), len(part.contexts)))
        np.testing.assert_array_equal(
            part.data.context_embeddings, data.context_embeddings[part.contexts]
        )
        inside = support[np.ix_(part.contexts, part.tokens)]
        np.testing.assert_array_equal(part.data.target_probs > 0, inside)
        assert inside.any(1).all()
        followed = support.sum(0)
        assert followed[part.tokens].min() >= np.delete(followed, part.tokens).max()
    assert sizes == sorted(sizes)
    tokens_that_follow = np.count_nonzero(support.any(0))
    assert {tokens for tokens, _ in sizes} == {10, min(40, tokens_that_follow)}


def test_auto_refutes_large_data_by_parts(as_if_large):
    data = contradictory(1)
    order = priority(data)
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data)
    weights = caught.value.pair_weights
    assert re.fullmatch(
        rf"no W keeps all {len(order.strict)} strict pairs at a positive margin: weighted as "
        rf"\.certificate says, {len(weights.weights)} of them contradict each other; they are "
        r"pairs of \d+ frequent tokens in \d+ contexts",
        str(caught.value),
    )
    prove_refused(data, caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    np.testing.assert_array_equal(copy.certificate, caught.value.certificate)
    assert not is_separable(data)


def test_sparse_laws_and_dense_ones_give_one_answer(as_if_large):
    for data in (contradictory(2), planted(2), planted_with_ties(2)):
        sparse = problems.changed(data, target_probs=csr_array(data.target_probs))
        dense_answer = answer(data)
        sparse_answer = answer(sparse)
        assert type(sparse_answer) is type(dense_answer)
        if isinstance(dense_answer, NotSeparableError):
            expected = dense_answer.pair_weights
            found = sparse_answer.pair_weights
            np.testing.assert_array_equal(found.pairs, expected.pairs)
            np.testing.assert_array_equal(found.positions, expected.positions)
        else:
            assert sparse_answer.norm == pytest.approx(dense_answer.norm, rel=1e-9)


def test_auto_tries_parts_and_then_the_augmented_lagrangian(as_if_large):
    told = []
    svm = max_margin(planted(1, V=12, m=90, d=3), progress=told.append)
    methods = [line.split(" among ")[0].split(", ")[0] for line in told]
    assert list(dict.fromkeys(methods)) == ["no contradiction found", "augmented-lagrangian"]
    assert told[0] == "no contradiction found among the 10 frequent tokens in 24 contexts"
    assert svm.solver == "augmented-lagrangian"


def test_the_last_resorts_of_large_data_are_those_that_fit():
    def chosen(num_pairs, num_weights):
        return solve.methods_to_try(
            num_pairs, num_weights, one_hot=True, only_separability=False, few_dimensions=True
        )

    assert chosen(2**18, 2**4) == ["augmented-lagrangian", "interior-point", "nnls"]
    assert chosen(2**18, 2**4 + 1) == ["augmented-lagrangian", "interior-point"]
    assert chosen(2**18 + 1, 2**4) == ["augmented-lagrangian"]


def test_few_contexts_or_dimensions_enough_go_the_old_way():
    told = []
    max_margin(planted(1, V=12, m=90, d=3), progress=told.append)
    assert not any("frequent tokens" in line or "lagrangian" in line for line in told)


def test_too_large_for_the_optimum(as_if_large, monkeypatch):
    monkeypatch.setattr(solve, "WHOLE", 279)
    message = (
        "^undecided: no few frequent tokens contradict each other, and 40 contexts of 7 tokens "
        "are more than the 279 entries whose optimum is sought; a positive gap asks for a solution "
        "with bounds$"
    )
    with pytest.raises(ConvergenceError, match=message) as caught:
        max_margin(planted(0))
    assert caught.value.residual == np.inf
    assert caught.value.point is None
    assert is_separable(planted(0))


def test_the_largest_data_go_to_working_sets(as_if_large, monkeypatch):
    for largest, expected in ((279, "working set"), (280, "augmented-lagrangian")):
        monkeypatch.setattr(solve, "WHOLE", largest)
        told = []
        svm = max_margin(planted(0), gap=1e-2, progress=told.append)
        assert svm.margin_gap <= 1e-2
        assert told[-1].startswith(expected)


def text_problem(num_contexts, dim):
    """Pairs of words of Genesis 1, as contexts with random embeddings, and what follows them."""
    corpus = datasets.text_corpus()
    windows = corpus.windows(3)
    contexts, row = np.unique(windows[:, :2], axis=0, return_inverse=True)
    counts = np.zeros((len(contexts), len(corpus.words)))
    np.add.at(counts, (row.ravel(), windows[:, 2]), 1.0)
    probs = counts / counts.sum(1, keepdims=True)
    embeddings = np.random.default_rng(60).standard_normal((len(contexts), dim))
    return NextTokenData(embeddings[:num_contexts], probs[:num_contexts])


def test_real_text_in_sixty_dimensions():
    """Far above its threshold a part refutes it; with few contexts it is separable."""
    data = text_problem(num_contexts=None, dim=60)
    assert solve.has_few_dimensions(data)
    with pytest.raises(NotSeparableError, match="frequent tokens in ") as caught:
        max_margin(data)
    order = priority(data)
    weights = caught.value.pair_weights
    np.testing.assert_array_equal(order.strict[weights.positions], weights.pairs)
    prove_cancelled(data, order, weights)

    few = text_problem(num_contexts=120, dim=60)
    assert solve.has_few_dimensions(few)
    svm = max_margin(few)
    assert svm.solver == "augmented-lagrangian"
    prove_optimal_from_scores(few, svm)


def prove_optimal_from_scores(data, svm):
    """Ties and margins from the scores, and the norm enclosed by the multipliers."""
    order = priority(data)
    scores = data.context_embeddings @ svm.W.T
    tied = scores[order.equal[:, 0], order.equal[:, 1]] - scores[tuple(order.equal[:, [0, 2]].T)]
    margins = scores[order.strict[:, 0], order.strict[:, 1]]
    margins = margins - scores[tuple(order.strict[:, [0, 2]].T)]
    reach = svm.norm * np.linalg.norm(data.context_embeddings, axis=1).max()
    assert np.abs(tied).max(initial=0.0) <= 1e-10 * reach
    assert margins.min() >= 1 - 1e-10 * reach
    assert svm.multipliers.min() >= 0
    assert svm.multipliers.sum() == pytest.approx(svm.norm**2, rel=1e-9)


# -- bounds, gaps and time ------------------------------------------------------------------------


def bounds_from_data(data, svm):
    """The margin of ``W`` over its norm, and ``‖(I − P_F) Σ λ φ‖ / Σ λ``, from all pairs."""
    strict = reference.pair_matrices(data, priority(data).strict.tolist())
    equal = reference.pair_matrices(data, priority(data).equal.tolist())
    W = svm.W.ravel()
    combined = svm.multipliers @ strict + svm.equal_multipliers @ equal
    np.testing.assert_allclose(combined, W, rtol=0, atol=1e-12 * svm.norm)
    below = (strict @ W).min() / np.linalg.norm(W)
    above = np.linalg.norm(combined) / svm.multipliers.sum()
    return below, above, np.abs(equal @ W).max(initial=0.0)


@pytest.mark.parametrize("gap", [0.3, 0.03, 1e-4])
@pytest.mark.parametrize("make", [planted, planted_with_ties])
def test_a_gap_is_an_enclosure_of_the_exact_margin(as_if_large, make, gap):
    for seed in range(2):
        data = make(seed)
        exact = max_margin(data)
        rough = max_margin(data, gap=gap)
        below, above, ties = bounds_from_data(data, rough)
        reach = rough.norm * np.linalg.norm(data.context_embeddings, axis=1).max()
        assert ties <= 1e-9 * reach
        assert below * rough.norm >= 1 - 1e-12 * reach
        assert rough.margin_bounds == pytest.approx((below, above), rel=1e-9)
        assert rough.margin_gap == pytest.approx(max(0.0, 1 - below / above), abs=1e-12 * reach)
        assert rough.margin_gap <= gap
        slack = 1e-9 / exact.norm
        assert below - slack <= 1 / exact.norm <= above + slack


def test_a_gap_saves_steps(as_if_large):
    steps = []
    for gap in (0.3, 0.0):
        told = []
        max_margin(planted(0), gap=gap, progress=told.append)
        steps.append(len(told))
    assert steps[0] < steps[1]


def test_weights_of_zero_enclose_nothing(as_if_large):
    """Multipliers that cancel to the last bit: the largest margin is at most zero."""
    data = NextTokenData([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [[1, 0], [0, 1], [0, 1]])
    order = priority(data)
    solution = certify(data, order, np.array([0.5, 0.0, 0.5]), "none")
    assert solution.norm == 0
    assert solution.margin_bounds == (0.0, 0.0)
    assert solution.margin_gap == 1
    for gap in (0.0, 0.1):
        with pytest.raises(NotSeparableError) as caught:
            max_margin(data, gap=gap)
        prove_refused(data, caught.value)


def test_bounds_hold_where_the_ties_are_ill_conditioned(as_if_large):
    """What is left of the ties would raise the lower bound by more than rounding."""
    for seed in range(20):
        data = problems.t24(9800 + seed, V=4, m=9, d=8, size=(1, 2))
        exact = answer(data)
        if isinstance(exact, NotSeparableError):
            continue
        below, above = max_margin(data, gap=0.05).margin_bounds
        assert below * (1 - 1e-11) <= 1 / exact.norm <= above * (1 + 1e-11)


@pytest.mark.parametrize("gap", [-0.1, 1.0, np.nan])
def test_a_gap_lies_between_zero_and_one(gap):
    with pytest.raises(ValueError, match=r"^gap "):
        max_margin(planted(0), gap=gap)


@pytest.mark.parametrize("function", [max_margin, is_separable])
def test_seconds_are_not_negative(function):
    with pytest.raises(ValueError, match=r"^seconds "):
        function(planted(0), seconds=-1)


@pytest.mark.parametrize("gap", [0.0, 1e-6])
@pytest.mark.parametrize("make", [planted, planted_with_ties])
def test_what_is_known_when_the_time_is_over(as_if_large, monkeypatch, make, gap):
    """The clock goes forward by a second with each line that is told."""
    data = make(0)
    exact = max_margin(data)
    told = []
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: len(told)))
    with pytest.raises(ConvergenceError) as caught:
        max_margin(data, gap=gap, seconds=2.5, progress=told.append)
    assert len(told) == 3
    error = pickle.loads(pickle.dumps(caught.value))
    below, above = error.point.margin_bounds
    assert below <= 1 / exact.norm <= above
    assert str(error) == (
        f"undecided: 2.5 seconds are over; the largest margin of a W of norm at most one is "
        f"{below:.6g} to {above:.6g}"
    )
    assert error.residual == error.point.kkt_residual


def test_time_may_be_over_before_anything_is_known(as_if_large):
    with pytest.raises(ConvergenceError, match=r"^undecided: 1e-09 seconds are over$") as caught:
        max_margin(contradictory(0), seconds=1e-9)
    assert caught.value.point is None
    with pytest.raises(ConvergenceError, match=r"^undecided: 1e-09 seconds are over$"):
        is_separable(contradictory(0), seconds=1e-9)


class Interruption(Exception):
    """Something that a caller's ``progress`` may raise and no method does."""


@pytest.mark.parametrize("error", [Interruption, KeyboardInterrupt, np.linalg.LinAlgError])
@pytest.mark.parametrize("function", [max_margin, is_separable])
@pytest.mark.parametrize("line", ["no contradiction found", "augmented-lagrangian"])
def test_what_progress_raises_ends_the_search(as_if_large, function, error, line):
    told = []

    def progress(text):
        told.append(text)
        if text.startswith(line):
            raise error("enough")

    hard = planted(3, V=12, m=90, d=3)
    with pytest.raises(error, match="enough"):
        function(hard, progress=progress)
    assert told[-1].startswith(line)
