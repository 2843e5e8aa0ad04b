"""``implicit_bias(data).twin``: where training goes when the data are not separable.

A linear program, by another solver, finds the same partition of the strict pairs, and long gradient
flow on the data themselves, which knows nothing of twins, goes where the twin says.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from problems import a_text, l24, start, t24
from quick import slow_but
from reference import hessian, pair_matrices, token_embeddings
from saved import again
from scipy.optimize import linprog
from scipy.sparse import eye_array, vstack

import ntpnb
from ntpnb import NextTokenData, datasets, gradient_flow, implicit_bias, token_priority
from ntpnb.basics import watch
from ntpnb.basics.errors import ConvergenceError
from ntpnb.bias import Twin, partition
from ntpnb.reporting import findings

KINDS = ("decoder", "attention", "lattice")


def random_problem(kind, seed):
    """A small problem in few dimensions; many contradict themselves, wholly or in part."""
    if kind == "decoder":
        return t24(seed, V=3 + seed % 5, m=3 + seed % 9, d=1 + seed % 4, size=(1, 2))
    if kind == "attention":
        sizes = {"K": 4 + seed % 4, "d": 2 + seed % 3, "n": 4 + seed % 10, "T": 2 + seed % 4}
        return l24(seed, **sizes, repeats=True)
    # contexts of small integers: many are parallel, opposite, zero or equal
    rng = np.random.default_rng(seed)
    V, m = rng.integers(3, 6), rng.integers(2, 8)
    laws = np.eye(V)[rng.integers(0, V, m)]
    return NextTokenData(rng.integers(-2, 3, (m, 2)).astype(float), laws)


def twin_of(data, **limits):
    return implicit_bias(data, **limits).twin


def finite_by_linear_program(data, order):
    """The strict pairs in the largest certificate, by HiGHS: λ = u + r, with as many u as possible.

    With 0 ≤ u ≤ 1 and r ≥ 0, the sum of u counts the pairs that some certificate contains.
    """
    size = data.shape[0] * data.shape[1]
    D = pair_matrices(data, order.strict, unit=True)
    E = pair_matrices(data, order.equal, unit=True)
    n, k = len(D), len(E)
    found = linprog(
        np.repeat([-1.0, 0.0, 0.0], [n, n, k]),
        A_eq=np.hstack([D.T, D.T, E.T]),
        b_eq=np.zeros(size),
        bounds=[(0, 1)] * n + [(0, None)] * n + [(None, None)] * k,
        method="highs",
    )
    return found.x[:n] > 0.5


def margins(W, data, pairs):
    return pair_matrices(data, pairs) @ W.ravel()


# -- the partition and its proofs -----------------------------------------------------------------


def test_the_residual_is_the_gradient_over_the_largest_that_the_losers_could_make():
    data = NextTokenData([[0.1], [0.2]], [[1.0, 0.0], [0.0, 1.0]])
    found = partition.contradiction(data, token_priority(data), np.full((2, 2), 0.5))
    largest = 0.5 * 0.5 * (0.1 + 0.2)  # frequencies, the losers' probabilities, lengths
    assert found.residual == pytest.approx(
        np.linalg.norm(ntpnb.gradient(np.zeros((2, 1)), data)) / largest
    )


def test_an_entry_belongs_to_its_pair_however_components_are_numbered():
    """Each token wins over all later ones; of the numbers only that they differ is promised."""
    candidates = np.triu(np.ones((4, 4)))
    data = NextTokenData(
        np.ones((4, 1)), np.eye(4), candidate_counts=candidates, context_groups=[0] * 4
    )
    order = token_priority(data)
    numbers = order.sparse_components
    assert len(set(numbers.data.tolist())) == 4
    for renumbered in permutations(range(4)):
        components = numbers.copy()
        components.data = np.array(renumbered)[numbers.data]
        pair = partition.pair_of_entries(data, replace(order, sparse_components=components))
        wins, loses = np.nonzero(pair >= 0)
        assert_array_equal(order.strict[pair[wins, loses], 1:].T, (wins, loses))
        assert len(wins) == len(order.strict)


@pytest.mark.parametrize("kind", KINDS)
def test_a_linear_program_finds_the_same_partition_and_what_is_said_of_the_twin_holds(kind):
    seen = {"none": 0, "some": 0, "all": 0, "undecided": 0}
    for seed in range(60):
        data = random_problem(kind, seed)
        order = token_priority(data)
        if not len(order.strict):
            continue
        try:
            twin = twin_of(data)
        except ConvergenceError:  # an extreme problem, about one in 300
            seen["undecided"] += 1
            continue
        finite = twin.certificate > 0
        assert_array_equal(finite, finite_by_linear_program(data, order))
        assert_array_equal(twin.finite, order.strict[finite])
        assert_array_equal(twin.won, order.strict[~finite])
        seen["none" if not finite.any() else "all" if finite.all() else "some"] += 1

        D = pair_matrices(data, order.strict)
        W = np.random.default_rng(seed).standard_normal((20, *data.shape))
        H_norm = np.linalg.norm(data.context_embeddings, axis=1).max()
        if finite.any():
            assert twin.residual <= 1e-8
            assert twin.correction <= 1e-2
            # the mean margin of finite pairs is bounded for matrices that meet the ties
            met = ntpnb.equal_subspace(data).reject(W).reshape(20, -1)
            longest = H_norm * np.linalg.norm(token_embeddings(data), axis=1).max()
            bound = (twin.residual + 1e-13) * longest  # and rounding of the margins themselves
            mean_margins = np.abs(met @ (twin.certificate @ D))
            rounding = 1e-15 * longest  # of what has been projected
            assert (mean_margins <= bound * np.linalg.norm(met, axis=1) + rounding).all()
        # training is alike: probabilities are right to 1e-9, and the finite part has a gradient
        gap = ntpnb.gradient(W, data) - ntpnb.gradient(W, twin.data)
        assert np.abs(gap).max() <= 1e-8 * max(1.0, H_norm)
        assert twin.finite_part.compatible
        assert twin.separable
        assert twin.twin is twin
        svm = twin.require_max_margin()
        scale = 1e-9 * max(1.0, svm.norm)
        lengths = np.linalg.norm(D, axis=1)
        assert (margins(svm.W, data, twin.won) >= 1 - scale * lengths[~finite] - 1e-8).all()
        assert (np.abs(margins(svm.W, data, twin.finite)) <= scale * lengths[finite] + 1e-8).all()
        assert svm.kkt_residual <= 1e-10
    assert seen["undecided"] <= 1
    assert min(seen["none"], seen["some"], seen["all"]) >= (1 if kind == "lattice" else 3), seen


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_tends_to_its_floor(kind):
    """Also where candidates count, and the twin's entropy is another number."""
    apart = 0.0
    for seed in range(20):
        data = random_problem(kind, seed)
        if kind == "decoder":
            counts = np.random.default_rng(seed).integers(
                1, 5, (data.num_contexts, data.vocab_size)
            )
            data = data.replace(candidate_counts=counts)
        twin = twin_of(data)
        floor = ntpnb.loss_floor(data)
        rounding = 1e-9 * max(1.0, floor.upper)  # probabilities of the twin are right to 1e-8
        assert floor.lower - rounding <= twin.loss_limit <= floor.upper + rounding
        apart = max(apart, abs(twin.loss_limit - twin.data.entropy))
    assert (apart > 0.01) == (kind != "lattice")


@pytest.mark.parametrize("rare", [1e-3, 1e-5, 1e-8])
def test_a_rare_contradiction_is_settled_too(rare):
    data = NextTokenData([[1.0], [1.0]], [[0, 1], [1, 0]], [1 - rare, rare])
    q = twin_of(data).data.target_probs
    assert_allclose(q, [[rare, 1 - rare]] * 2, rtol=1e-7)


# -- training, which knows nothing of it ----------------------------------------------------------


@pytest.mark.parametrize("seed", slow_but([3], [3, 4, 6, 7, 14, 16]))
def test_descent_converges_where_all_pairs_contradict_each_other(seed):
    """The loss is strictly convex on F' then; a gradient of g proves an error of at most g/μ.

    μ is the least eigenvalue on F' of the Hessian at the limit; a factor of two is more than its
    change within that distance.
    """
    data = all_contradicting(seed)
    twin = twin_of(data)
    assert len(twin.won) == 0
    assert twin.require_max_margin().norm == 0
    run = ntpnb.descend(data, ntpnb.GD(1 / data.smoothness), 200_000, record=[200_000])
    F = twin.equal_subspace
    basis = F.basis.reshape(F.dim, -1)
    at = twin.finite_part.W
    curvature = np.linalg.eigvalsh(basis @ hessian(at, data) @ basis.T)[0]
    assert curvature > 1e-6
    slope = np.linalg.norm(ntpnb.gradient(run.W[-1], data))
    error = np.linalg.norm(run.W[-1] - at)
    assert error <= 2 * slope / curvature + 1e-8
    assert error <= 1e-3 * max(1.0, np.linalg.norm(at))  # so that the bound says something
    assert run.loss[-1] == pytest.approx(twin.data.entropy, abs=1e-8)


def all_contradicting(seed):
    rng = np.random.default_rng(seed)
    laws = np.eye(3)[np.append(rng.integers(0, 3, 9), [0, 1, 2])]
    return NextTokenData(rng.standard_normal((12, 1)), laws)


@pytest.mark.parametrize("seed", slow_but([0], range(4)))
def test_descent_on_the_data_follows_the_flow_on_the_twin(seed):
    """Some pairs are won: the flow of the twin says where the data's descent is at each step.

    Steps of 0.02/L follow the flow to a hundredth, and the flow goes on to where the angle is
    small: at most ``C / log t`` with a constant ``C``, so that it falls at least as 1/log t.
    """
    data = won_in_part(seed)
    bias = implicit_bias(data)
    assert bias.separable is False
    twin = bias.twin
    assert len(twin.won)
    assert len(twin.finite)
    with pytest.raises(ntpnb.NotSeparableError):
        gradient_flow(bias, [0.0])
    step = 0.02 / data.smoothness
    steps = np.array([1000, 10_000, 50_000])
    run = ntpnb.descend(data, ntpnb.GD(step), steps[-1], record=steps)
    flow = gradient_flow(twin, np.log(step * steps))
    assert_allclose(run.W, flow.W, atol=0.01 * np.linalg.norm(flow.W[-1]))
    late = gradient_flow(twin, [1e2, 1e3, 1e4]).compare(twin)
    assert (late.angle[1:] <= 1.5 * late.angle[:-1] / 10).all()
    assert late.angle[-1] < 0.01
    assert late.finite_error[-1] < 1e-6
    assert run.loss[-1] > twin.data.entropy
    there = ntpnb.compare(twin.finite_part.W + 40 * twin.max_margin.W, twin)
    assert there.excess < 1e-8


def won_in_part(seed):
    """Two contexts with one embedding contradict each other; the last token loses everywhere."""
    rng = np.random.default_rng(seed)
    h = rng.standard_normal((3, 2))
    h[:, 0] = 0.5 + np.abs(h[:, 0])  # so that one row of W is enough to lose
    laws = [[1, 0, 0, 0], [0, 1, 0, 0], [0.2, 0.3, 0.5, 0], [0.3, 0.3, 0.4, 0]]
    pi = rng.dirichlet(np.full(4, 5.0))
    return NextTokenData(np.stack([h[0], h[0], h[1], h[2]]), laws, pi)


# -- special cases --------------------------------------------------------------------------------


def test_separable_and_compatible_data_are_their_own_twin():
    for data in (datasets.toy(), t24(0)):
        bias = implicit_bias(data)
        assert bias.twin.data is data
        assert bias.twin.max_margin is bias.max_margin
        assert bias.twin.finite_part is bias.finite_part
        assert not bias.twin.certificate.any()
        assert len(bias.twin.finite) == 0
        assert len(bias.twin.won) == len(bias.order.strict)


def test_separable_data_that_are_not_compatible_keep_direction_and_finite_part():
    toy = datasets.toy()
    data = NextTokenData(
        np.vstack([toy.context_embeddings, 2 * toy.context_embeddings[0]]),
        np.vstack([toy.target_probs, [0, 0.1, 0.3, 0.6, 0]]),
    )
    bias = implicit_bias(data)
    assert bias.separable
    assert not bias.finite_part.compatible
    twin = bias.twin
    assert twin.finite_part.compatible
    assert_allclose(twin.finite_part.W, bias.finite_part.W, atol=1e-8)
    assert twin.max_margin is bias.max_margin
    assert twin.data.entropy > data.entropy
    cyclic = l24(0, cyclic=True)
    assert_allclose(twin_of(cyclic).finite_part.W, ntpnb.finite_part(cyclic).W, atol=1e-7)


def test_both_ways_to_solve_newtons_equations_agree(monkeypatch):
    for seed in range(20):
        data = random_problem("decoder", seed)
        if ntpnb.is_separable(data):
            continue
        direct = twin_of(data)
        with monkeypatch.context() as changed:
            changed.setattr(partition, "_is_for_least_squares", lambda data: False)
            iterative = twin_of(data)
        assert_array_equal(direct.finite, iterative.finite)
        assert_allclose(direct.data.target_probs, iterative.data.target_probs, atol=1e-7)


def test_a_vector_added_to_all_token_embeddings_changes_no_newton_step():
    """It changes no probability, and takes no digits: features are differences of embeddings."""
    rng = np.random.default_rng(0)
    T = rng.integers(-3, 4, (4, 2)).astype(float)
    H, P, probs = rng.standard_normal((6, 2)), *rng.dirichlet(np.ones(4), (2, 6))
    steps = [
        partition._LeastSquares(NextTokenData(H, P, token_embeddings=tokens))(probs)
        for tokens in (T, T + 2.0**40)
    ]
    assert np.abs(steps[0]).max() > 0.1
    assert_allclose(*steps, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("length", "has_settled"), [(0.02, False), (0.005, True)])
def test_where_no_step_improves_anything_a_short_one_counts_as_none(
    monkeypatch, length, has_settled
):
    """All steps go uphill, as those do that are rounding; along with them log-odds change."""
    data = NextTokenData([[1.0]], [[0.25, 0.75]])
    uphill = length * np.array([[1.0], [-1.0]])
    monkeypatch.setattr(partition, "_system_for", lambda data, watch: lambda probs: uphill)
    newton = partition._Newton(data, watch.Watch(), may_fall=np.zeros((1, 2), dtype=bool))
    if has_settled:
        newton.minimise()
        assert newton.correction == pytest.approx(length)
        assert_allclose(newton.probs(), 0.5, rtol=0, atol=1e-9)
        return
    message = r"undecided: after 2 Newton steps nothing improves, .* by a share of 2.0e-02$"
    with pytest.raises(ConvergenceError, match=message) as undecided:
        newton.minimise()
    assert undecided.value.residual == pytest.approx(length)


def test_for_two_tokens_one_product_with_the_curvature_makes_a_newton_step(monkeypatch):
    """What conjugate gradients are preconditioned by is its inverse then, up to a factor."""
    monkeypatch.setattr(partition, "MOST_PRODUCTS", 1)
    rng = np.random.default_rng(0)
    data = NextTokenData(rng.standard_normal((6, 2)), rng.dirichlet(np.ones(2), 6))
    first = np.array([0.5, 0.01, 0.99, 0.3, 0.001, 0.6])
    probs = np.stack([first, 1 - first], axis=1)
    expected = partition._LeastSquares(data)(probs)
    found = partition._ConjugateGradients(data, watch.Watch())(probs)
    # two decompositions; their weights lie three digits apart, and rounding is 1e-16
    assert_allclose(found, expected, rtol=1e-12)


def test_a_guess_that_is_no_minimum_proves_nothing(monkeypatch):
    """Newton's method walks uphill from even odds, those of 3 : 1 being the best."""
    data = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]], [0.75, 0.25])
    uphill = 0.005 * np.array([[-1.0], [1.0]])
    monkeypatch.setattr(partition, "_system_for", lambda data, watch: lambda probs: uphill)
    message = r"undecided: the weights of those that stay finite leave a sum of .*, and not zero$"
    with pytest.raises(ConvergenceError, match=message) as undecided:
        partition.partition_pairs(data, token_priority(data), watch.Watch())
    # a slope of 1/4 for each of two tokens, of losers that have the mass 1/2
    assert undecided.value.residual == pytest.approx(np.hypot(0.25, 0.25) / 0.5)


def test_a_probability_that_stays_positive_and_is_no_float_is_said():
    """The first and the last context settle at log-odds of 20, which is log(5e8).

    The second has them a hundredfold, so that its other token keeps ``exp(−2000)``.
    """
    data = NextTokenData([[1.0], [100.0], [1.0]], [[1, 0], [1, 0], [0, 1]], [0.5, 0.5 - 1e-9, 1e-9])
    with pytest.raises(ConvergenceError, match=r"tends to less than 1e-308$") as undecided:
        _ = twin_of(data)
    assert 0 <= undecided.value.residual <= partition.SETTLED


def test_a_wrong_guess_is_found_and_mended(monkeypatch):
    """Pairs that stay finite are dropped at first; the second proof fails, and brings them back."""
    right = partition._Newton._fallen
    guessed = []

    def too_many(self, change, in_doubt):
        if guessed:
            return right(self, change, in_doubt)
        guessed.append(True)
        return self.kept & self._may_fall

    data = won_in_part(0)
    expected = twin_of(data)
    monkeypatch.setattr(partition._Newton, "_fallen", too_many)
    found = twin_of(data)
    assert guessed
    assert_array_equal(found.finite, expected.finite)
    assert_allclose(found.certificate, expected.certificate, atol=1e-9)


# -- sizes, time and files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_verses", "dim"), [(31, 20), pytest.param(106, 60, marks=pytest.mark.stress)]
)
def test_a_text_in_few_dimensions_is_answered(num_verses, dim):
    data = a_text(dim, num_verses, context_length=2)
    twin = twin_of(data)
    assert len(twin.won) == 0
    assert twin.residual <= 1e-12
    assert twin.finite_part.compatible
    W = start(data)
    gap = ntpnb.gradient(W, data) - ntpnb.gradient(W, twin.data)
    assert np.abs(gap).max() <= 1e-10
    assert (twin.data.target_probs > 0).all()


def test_progress_says_how_far_a_newton_step_goes_and_then_how_wide_the_margin_is():
    lines = []
    _ = twin_of(won_in_part(0), progress=lines.append)
    assert any(line.startswith("Newton step 1: probabilities change by") for line in lines)
    assert "margin between" in lines[-1]


def test_what_memory_cannot_hold_is_said_at_once():
    tokens = vstack([eye_array(2**13, format="csr")] * 2)
    long = NextTokenData(np.ones((2**14, 1)), tokens)
    with pytest.raises(ConvergenceError, match="ask for tables of 134217728 numbers") as refused:
        partition.require_memory(long)
    assert refused.value.residual == np.inf


def test_a_step_s_blocks_and_their_inverses_are_expected_to_take_third_powers(monkeypatch):
    """``m V d²`` and ``V d³``: with twice the contexts and dimensions, eight times as much."""
    monkeypatch.setattr(partition, "MUCH_WORK", 0)  # so that conjugate gradients are taken

    def work(m, V, d):
        return partition.expected_work(NextTokenData(np.ones((m, d)), np.eye(m, V)))

    assert work(6, 9, 10) == 8 * work(3, 9, 5) > 0
    assert work(3, 18, 5) == 2 * work(3, 9, 5)


def test_least_squares_need_a_number_for_each_score_and_each_weight(monkeypatch):
    data = all_contradicting(0)
    needed = data.num_contexts * data.vocab_size * data.shape[0] * data.shape[1]
    monkeypatch.setattr(partition, "HELD", needed)
    partition.require_memory(data)
    monkeypatch.setattr(partition, "HELD", needed - 1)
    with pytest.raises(ConvergenceError, match=rf"ask for tables of {needed} numbers, more than"):
        partition.require_memory(data)


def test_near_the_edge_the_search_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(partition, "MUCH_WORK", 0)  # so that conjugate gradients are taken
    monkeypatch.setattr(partition, "MOST_PRODUCTS", 3)
    with pytest.raises(ConvergenceError, match="3 products with the loss's curvature") as ended:
        _ = twin_of(all_contradicting(0))
    assert ended.value.residual == np.inf


def test_too_many_ties_beside_pairs_that_are_won_are_said(monkeypatch):
    data = won_in_part(0)
    twin = twin_of(data)
    assert len(twin.won) > 0
    # what a max-margin problem with these ties costs: third powers of each token's contexts
    work = int((np.count_nonzero(twin.data.target_probs, axis=0) ** 3).sum())
    monkeypatch.setattr(partition, "MOST_WORK", work)
    assert len(twin_of(data).won) == len(twin.won)
    monkeypatch.setattr(partition, "MOST_WORK", work - 1)
    message = (
        r"pairs that seem to be won, \d+ are tied, too many to solve for; use fewer contexts, or "
        r"dimensions enough to separate them$"
    )
    with pytest.raises(ConvergenceError, match=message):
        _ = twin_of(data)


def test_a_time_limit_ends_the_search():
    bias = implicit_bias(a_text(20, context_length=2), seconds=0)
    with pytest.raises(ConvergenceError):
        _ = bias.twin


def test_the_time_limit_ends_the_search_for_what_wins_the_pairs_too(monkeypatch, slow_clock):
    """Newton's method is done in time, and a second is left for the max-margin problem."""
    begun = []

    def max_margin(*arguments, **options):
        begun.append(slow_clock.now)
        return ntpnb.max_margin(*arguments, **options)

    monkeypatch.setattr(partition, "max_margin", max_margin)
    data = won_in_part(0)
    order = token_priority(data)
    partition.partition_pairs(data, order, watch.Watch(seconds=1e9))
    slow_clock.now = 0.0
    seconds = begun[-1] + 1
    with pytest.raises(ConvergenceError, match=rf"^undecided: {seconds:g} seconds are over"):
        partition.partition_pairs(data, order, watch.Watch(seconds))
    assert begun == begun[:1] * 2


def test_a_twin_whose_counts_a_file_has_changed_is_refused():
    """Both datasets alike, so that they differ in distributions only and have equal gradients."""
    counts = np.ones((4, 4))
    data = won_in_part(0).replace(candidate_counts=counts)
    twin = twin_of(data)
    assert again(twin).finite.tolist() == twin.finite.tolist()
    counts[0, 0] = 2.0
    both = [x.replace(candidate_counts=counts) for x in (twin.data, data)]
    with pytest.raises(ValueError, match="not compatible with their candidate counts"):
        again(Twin(*both, twin.correction))


# -- in the report --------------------------------------------------------------------------------


def test_the_report_says_where_training_goes():
    found = ntpnb.report(won_in_part(0), words=["a", "b", "c", "d"], W=np.zeros((4, 2)))
    said = str(found)
    assert found.separable is False
    assert "contradict each other" in said
    assert f"training wins {len(found.twin.won)} of the ordered pairs" in said
    assert f"the loss tends to {found.twin.data.entropy:.4g} nats" in said
    assert "W^mm" not in said.split("training wins")[1]
    assert found.weights.finite_error == pytest.approx(np.linalg.norm(found.twin.finite_part.W))
    summary = found.summary()["twin"]
    assert summary["won_pairs"] == len(found.twin.won)
    # two sums of a few logarithms
    assert summary["loss_tends_to"] == pytest.approx(found.twin.data.entropy, rel=1e-14)
    assert again(found).summary() == found.summary()


def test_the_report_says_that_training_converges():
    found = ntpnb.report(all_contradicting(0))
    assert "training converges: all 24 ordered pairs" in str(found)
    assert found.summary()["twin"]["margin"] is None


def test_the_report_asks_before_it_takes_minutes(monkeypatch):
    monkeypatch.setattr(findings, "MOST_WORK", 1)
    found = ntpnb.report(all_contradicting(0))
    assert found.twin is None
    assert set(found.failures) == {"twin"}
    assert "where training goes then: which pairs can be won would take minutes" in str(found)
    assert found.summary()["twin"] is None
    assert ntpnb.report(all_contradicting(0), seconds=100).twin is not None


# -- what a report is told, and how it names things -----------------------------------------------


def test_tiny_probabilities_count_as_zero_where_that_is_asked_for():
    tiny = np.array([[0.5, 0.5, 1e-12], [1.0, 1e-12, 1e-12]])
    data = NextTokenData(np.eye(2), tiny / tiny.sum(1, keepdims=True))
    assert "NextTokenData(…, support_threshold=1e-09)" in str(ntpnb.report(data))
    found = ntpnb.report(data.replace(support_threshold=1e-9))
    assert found.num_ordered_pairs == 3
    assert_allclose(found.data.target_probs, [[0.5, 0.5, 0], [1, 0, 0]], atol=1e-15)


def test_a_query_is_named_by_its_word():
    E = np.random.default_rng(0).standard_normal((3, 3))
    data = NextTokenData.from_attention(E, [[0, 1, 2], [1, 2]], [0, 1])
    assert ntpnb.report(data, words=["a", "b", "c"]).context_name(2) == "query 'c'"
    assert ntpnb.report(data).context_name(2) == "query 2"
