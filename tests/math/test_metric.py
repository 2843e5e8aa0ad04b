"""The smallest separating matrix where entries weigh differently."""

import cvxpy as cp
import numpy as np
import pytest
from reference import pair_matrices

import ntpnb
from ntpnb import NextTokenData, datasets, max_margin, token_priority


def linear(seed, shape=(8, 10, 12, 3)):
    return datasets.overparameterized(seed, *shape)


def attention(seed):
    rng = np.random.default_rng(seed)
    embeddings = rng.standard_normal((6, 9))
    sequences = [rng.permutation(6)[:4] for _ in range(6)]
    labels = [rng.choice(sequence) for sequence in sequences]
    return NextTokenData.from_attention(embeddings, sequences, labels)


def metric_of(data, seed, spread=2.0):
    """Weights whose logarithms are normal: with 2, the largest is some thousand times the least."""
    return np.exp(spread * np.random.default_rng(seed).standard_normal(data.shape))


@pytest.mark.parametrize("make", [linear, attention])
@pytest.mark.parametrize("seed", range(5))
def test_the_norm_is_that_of_another_solver(make, seed):
    data = make(seed)
    D = metric_of(data, seed)
    svm = max_margin(data, metric=D)
    order = token_priority(data)
    W = cp.Variable(data.shape)
    constraints = [cp.vec(W, order="C") @ row >= 1 for row in pair_matrices(data, order.strict)]
    constraints += [cp.vec(W, order="C") @ row == 0 for row in pair_matrices(data, order.equal)]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(cp.multiply(np.sqrt(D), W))), constraints)
    problem.solve(solver=cp.CLARABEL)
    assert svm.norm**2 == pytest.approx(problem.value, rel=1e-6)  # the solver's own accuracy
    assert svm.kkt_residual < 1e-11


@pytest.mark.parametrize("make", [linear, attention])
@pytest.mark.parametrize("seed", range(5))
def test_the_proof_can_be_computed_again(make, seed):
    data = make(seed)
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
    # Σ λ = ‖W‖² is what makes primal and dual values equal
    assert svm.multipliers.sum() == pytest.approx(svm.norm**2, rel=1e-9)


@pytest.mark.parametrize("shape", [(5, 4, 6, 2), (40, 30, 50, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_dimensions_are_contexts_of_other_lengths(shape, seed):
    """With ``D_vi = a_i`` it is the usual problem with embeddings ``h_i / √a_i``."""
    data = linear(seed, shape)
    a = np.exp(np.random.default_rng(seed).standard_normal(data.shape[1]))
    svm = max_margin(data, metric=np.tile(a, (data.shape[0], 1)))
    scaled = data.replace(context_embeddings=data.context_embeddings / np.sqrt(a))
    other = max_margin(scaled)
    assert svm.norm == pytest.approx(other.norm, rel=1e-10)
    assert np.abs(svm.W - other.W / np.sqrt(a)).max() < 1e-10 * np.abs(svm.W).max()


@pytest.mark.parametrize("shape", [(5, 4, 6, 2), (40, 30, 50, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_tokens_are_tokens_of_other_lengths(shape, seed):
    """With ``D_vi = b_v`` it is the usual problem with token embeddings ``e_v / √b_v``."""
    data = linear(seed, shape)
    b = np.exp(np.random.default_rng(seed).standard_normal(data.shape[0]))
    svm = max_margin(data, metric=np.tile(b[:, None], (1, data.shape[1])))
    other = max_margin(data.replace(token_embeddings=np.diag(1 / np.sqrt(b))))
    assert svm.norm == pytest.approx(other.norm, rel=1e-10)
    assert np.abs(svm.W - other.W / np.sqrt(b)[:, None]).max() < 1e-10 * np.abs(svm.W).max()


@pytest.mark.parametrize("make", [linear, attention])
def test_a_metric_of_ones_is_none(make):
    data = make(1)
    plain = max_margin(data)
    ones = max_margin(data, metric=np.ones(data.shape))
    assert np.abs(plain.W - ones.W).max() < 1e-11 * np.abs(plain.W).max()
    assert plain.metric is None


def test_the_scale_of_a_metric_does_not_matter():
    data = linear(2)
    D = metric_of(data, 2)
    svm = max_margin(data, metric=D)
    large = max_margin(data, metric=1e6 * D)
    assert np.abs(svm.W - large.W).max() < 1e-11 * np.abs(svm.W).max()
    assert large.norm == pytest.approx(1e3 * svm.norm)


def test_an_expensive_entry_is_used_less():
    data = linear(3)
    D = np.ones(data.shape)
    D[2, 5] = 1e6
    assert abs(max_margin(data, metric=D).W[2, 5]) < 1e-4 * abs(max_margin(data).W[2, 5])


def test_other_arguments_go_with_it():
    data = linear(4)
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


def test_it_is_saved_with_its_metric(tmp_path):
    data = linear(5)
    svm = max_margin(data, metric=metric_of(data, 5))
    svm.save(tmp_path / "svm.npz")
    again = ntpnb.load(tmp_path / "svm.npz")
    assert (again.W == svm.W).all()
    assert (again.metric == svm.metric).all()
    assert again.norm == svm.norm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": [[1.0]]}, r"metric has shape \(1, 1\)"),
        ({"metric": [[1.0], [0.0]]}, r"metric\[1, 0\] is 0; it must be positive"),
        ({"metric": [[1.0], [-2.0]]}, r"metric\[1, 0\] is -2; it must be positive"),
        ({"metric": [[1.0], [np.nan]]}, "metric"),
        ({"metric": [[1.0], [1.0]], "norm": "max"}, "must be left out"),
    ],
)
def test_what_is_no_metric_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        max_margin(NextTokenData([[1.0]], [[1.0, 0.0]]), **arguments)


def test_pairs_that_cannot_be_listed_are_refused():
    contexts = np.random.default_rng(0).standard_normal((2**10, 2**9))
    data = NextTokenData(contexts, np.eye(2**9)[np.arange(2**10) % 2**9])
    with pytest.raises(ValueError, match="leave metric out"):
        max_margin(data, metric=np.ones(data.shape))
