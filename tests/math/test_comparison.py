"""The comparison of a run with the theory: its definitions, and its accuracy near zero."""

import dataclasses
import re
from functools import partial

import mpmath
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from problems import any_problem, start, t24
from saved import again

import ntpnb
from ntpnb import GD, descend
from ntpnb.problem import table
from ntpnb.training import comparison

EPS = np.finfo(float).eps
FIELDS = ("alignment", "angle", "corrected_alignment", "finite_error")


def theory(seed=1):
    data = t24(seed, V=4, m=3, d=5, size=(1, 3))
    fin = ntpnb.finite_part(data)
    direction = fin.subspace.reject(start(data, 5))
    return data, fin, dataclasses.replace(ntpnb.max_margin(data), W=direction)


@pytest.mark.parametrize("tilt", [1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1.0])
def test_angles_are_accurate_near_zero(tilt):
    data, fin, svm = theory()
    W = 7.0 * svm.W + tilt * start(data, 6)
    found = comparison.compare_with(W, fin, svm)
    with mpmath.workdps(60):
        a, b = (mpmath.matrix(x.ravel().tolist()) for x in (W, svm.W))
        cosine = (a.T * b)[0] / (mpmath.norm(a) * mpmath.norm(b))
        expected = float(mpmath.acos(cosine))
    # each unit vector is rounded entry by entry, which tilts it by about 1e-16
    assert abs(found.angle - expected) <= 5 * EPS
    assert abs(found.alignment - float(cosine)) <= 5 * EPS


def test_comparison_by_its_definitions():
    data, fin, svm = theory(2)
    matrices = [start(data, s) for s in range(4)]
    found = comparison.compare_with(np.array(matrices), fin, svm)
    basis = reference.equal_basis(data)

    for k, W in enumerate(matrices):
        off = W - fin.W
        cosine = np.vdot(off, svm.W) / np.linalg.norm(off) / np.linalg.norm(svm.W)
        # norms and inner products of twenty numbers of size one
        assert abs(found.corrected_alignment[k] - cosine) <= 1e-14
        inside = basis.T @ (basis @ W.ravel()) - fin.W.ravel()
        assert abs(found.finite_error[k] - np.linalg.norm(inside)) <= 1e-13


def test_comparison_at_the_ends():
    data, fin, svm = theory(3)
    matrices = np.array([3 * svm.W + fin.W, -svm.W, np.zeros(data.shape)])
    found = comparison.compare_with(matrices, fin, svm)
    assert abs(found.corrected_alignment[0] - 1) <= 4 * EPS
    assert abs(found.angle[1] - np.pi) <= 4 * EPS
    assert np.isnan([found.alignment[2], found.angle[2]]).all()  # zero has no direction
    still = dataclasses.replace(svm, W=0 * svm.W)
    assert np.isnan(comparison.compare_with(fin.W, fin, still).angle)


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e-158, 1e150])
def test_angles_do_not_depend_on_the_size_of_a_matrix(size):
    _, fin, svm = theory(3)
    W = svm.W + 0.1 * fin.W
    expected = comparison.compare_with(W, fin, svm)
    found = comparison.compare_with(size * W, fin, svm)
    assert found.angle == pytest.approx(expected.angle, rel=1e-14)
    assert found.alignment == pytest.approx(expected.alignment, rel=1e-14)


def test_what_is_compared_is_of_one_shape():
    data, fin, svm = theory()
    W = np.zeros((2, *data.shape))
    stranger = ntpnb.max_margin(ntpnb.datasets.toy())
    for call, said in {
        lambda: comparison.compare_with(W[:, :-1], fin, svm): "W has shape (2, 3, 5); its last two",
        lambda: comparison.compare_with("W", fin, svm): "W is not a rectangular array of numbers",
        lambda: comparison.compare_with(W, fin, stranger): "svm.W has shape (5, 2); its last two",
        lambda: comparison.compare_with(W, fin, svm, inside=W[0]): "inside has shape (4, 5); it ne",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
            call()


def test_a_batch_compares_problem_by_problem():
    problems = [t24(s, V=4, m=3, d=5, size=2) for s in range(3)]
    biases = [ntpnb.implicit_bias(data) for data in problems]
    finite = [bias.finite_part for bias in biases]
    svm = [
        dataclasses.replace(bias.max_margin, W=start(bias.data, s)) for s, bias in enumerate(biases)
    ]
    runs = descend(problems, GD(0.3), 30)
    found = runs.compare(finite, svm)
    # A solution of the caller's own takes the place of the bias's.
    in_place = runs.compare(biases, svm)
    for i in range(3):
        alone = comparison.compare_with(runs.W[i], finite[i], svm[i])
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(found, field)[i], getattr(alone, field))
            np.testing.assert_array_equal(getattr(in_place, field)[i], getattr(alone, field))
    assert descend(problems[:1], GD(1.0), 2).compare(biases[:1]).angle.shape == (1, 3)


# -- where a trained matrix stands ----------------------------------------------------------------


def closure_margins(W, data):
    """Smallest margin of each row over all tokens and all that must lose, by the definitions."""
    T = reference.token_embeddings(data)
    order = ntpnb.token_priority(data)
    position = {name: g for g, name in enumerate(order.groups.tolist())}
    margins = []
    for j, h in enumerate(data.context_embeddings):
        labels = order.components[position[data.context_groups[j]]]
        mine = labels[np.flatnonzero(data.support[j])[0]]
        s = T @ W @ h
        loses = [v for v in np.flatnonzero(data.candidates[j]) if labels[v] != mine]
        ties = [v for v in np.flatnonzero(data.candidates[j]) if labels[v] == mine]
        margins.append(min((s[i] - s[k] for i in ties for k in loses), default=np.inf))
    return np.array(margins)


@settings(max_examples=40)
@given(any_problem())
def test_margins_by_their_definition(data):
    for seed in range(2):
        W = start(data, seed)
        found = comparison.context_margins(W, ntpnb.implicit_bias(data))
        expected = closure_margins(W, data)
        size = np.linalg.norm(W) * np.linalg.norm(data.context_embeddings, axis=1)
        if data.token_embeddings is not None:
            size = size * np.linalg.norm(data.token_embeddings, axis=1).max()
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
        loses = np.isfinite(expected)
        error = np.abs(found[loses] - expected[loses])
        assert (error <= 1e-14 * size[loses]).all()  # rounding of sums of a few products


@pytest.mark.parametrize("data", [t24(3, m=11, d=4), ntpnb.datasets.figure2()])
def test_margins_by_blocks_of_contexts_are_those_of_the_definition(data, monkeypatch):
    monkeypatch.setattr(table, "BLOCK", 2 * data.vocab_size)  # two contexts at a time
    W = start(data)
    found = comparison.context_margins(W, ntpnb.implicit_bias(data))
    np.testing.assert_allclose(found, closure_margins(W, data), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lead", [(2, 1), (0,)])
def test_comparisons_have_the_shape_of_the_stack(lead):
    found = ntpnb.compare(np.zeros((*lead, 5, 2)), ntpnb.datasets.toy())
    assert found.margin.shape == (*lead, 3)
    assert found.excess.shape == found.angle.shape == lead


CONTRADICTING = ntpnb.NextTokenData([[1.0], [1.0]], [[0.6, 0.4, 0], [0, 1, 0]])


COMPARED = {
    "separable": (ntpnb.datasets.toy(), {}, []),
    "not separable": (CONTRADICTING, {}, ["no direction W^mm: no W keeps"]),
    "undecided": (
        ntpnb.datasets.toy(),
        {"seconds": 0},
        [
            "no direction W^mm: undecided: 0 seconds are over",
            "the least loss is known only to lie between 0.881087 and 1.60944 nats: 0 seconds",
        ],
    ),
}


@pytest.mark.parametrize("name", COMPARED)
def test_each_number_is_that_of_its_own_function(name):
    data, limits, why = COMPARED[name]
    stack = np.stack([start(data, seed) for seed in range(3)])
    found = ntpnb.compare(stack, data, **limits)
    if why:
        unknown = np.array([found.alignment, found.angle, found.corrected_alignment])
        assert unknown.shape == (3, 3)
        assert np.isnan(unknown).all()
        for line, beginning in zip(found.missing.splitlines(), why, strict=True):
            assert line.startswith(beginning)
    else:
        expected = comparison.compare_with(stack, ntpnb.implicit_bias(data))
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
        assert found.missing == ""
        np.testing.assert_array_equal(found.above_floor, found.excess)
    # the same as by their own functions, up to the rounding of sums of a few hundred numbers
    np.testing.assert_allclose(found.norm, np.linalg.norm(stack, axis=(1, 2)), rtol=1e-14)
    np.testing.assert_allclose(found.loss, ntpnb.cross_entropy(stack, data), rtol=1e-12)
    np.testing.assert_allclose(found.excess, ntpnb.excess_loss(stack, data), rtol=1e-12)
    margins = np.array([closure_margins(W, data) for W in stack])
    np.testing.assert_allclose(found.margin, margins, atol=1e-12)
    np.testing.assert_allclose(found.smallest_margin, margins.min(axis=1), atol=1e-12)
    finite = ntpnb.finite_part(data)
    inside = finite.subspace.project(stack) - finite.W
    np.testing.assert_allclose(found.finite_error, np.linalg.norm(inside, axis=(1, 2)), rtol=1e-9)
    assert again(found).missing == found.missing


@pytest.mark.parametrize("error", [ValueError, MemoryError, ntpnb.ConvergenceError])
@pytest.mark.parametrize("ask", [partial(ntpnb.compare, np.zeros((5, 2))), ntpnb.report])
def test_what_progress_raises_ends_everything(ask, error):
    def stop(text):
        raise error("enough", 0.0) if error is ntpnb.ConvergenceError else error("enough")

    data = ntpnb.datasets.toy()
    with pytest.raises(error, match="enough"):
        ask(data, progress=stop)


def test_a_direction_for_which_memory_is_not_enough_is_missing(monkeypatch):
    def too_much(*arguments, **options):
        raise MemoryError("4 TiB are needed")

    monkeypatch.setattr("ntpnb.bias.max_margin", too_much)
    monkeypatch.setattr("ntpnb.bias.finite_part", too_much)
    found = ntpnb.compare(start(CONTRADICTING), CONTRADICTING)
    assert found.missing.splitlines() == [
        "no finite part W*: 4 TiB are needed",
        "no direction W^mm: 4 TiB are needed",
    ]
    assert np.isnan(found.finite_error)
    assert np.isfinite(found.loss)


def test_a_report_says_why_a_matrix_has_no_angle():
    W = start(CONTRADICTING)
    bias = ntpnb.implicit_bias(CONTRADICTING, seconds=0)
    assert "0 seconds are over" in ntpnb.report(bias, W=W).weights.missing
    assert ntpnb.report(CONTRADICTING, W=W).weights.missing == ""  # the twin's direction is known


def test_a_least_loss_that_would_take_minutes_is_asked_for_with_a_time_limit(monkeypatch):
    monkeypatch.setattr(comparison, "HELD", 0)
    W = start(CONTRADICTING)
    found = ntpnb.compare(W, CONTRADICTING)
    assert np.isnan(found.above_floor)
    assert found.missing.splitlines()[-1].startswith("no least loss: it would take minutes")
    found = ntpnb.compare(W, CONTRADICTING, seconds=600)
    least = ntpnb.loss_floor(CONTRADICTING).lower
    assert found.above_floor == pytest.approx(ntpnb.cross_entropy(W, CONTRADICTING) - least)
    assert "least loss" not in found.missing


# -- checkpoints by name --------------------------------------------------------------------------


def test_names_may_be_numbers_of_steps_and_contexts_are_named_by_their_words():
    data = ntpnb.NextTokenData.from_text("we see what we see")
    found = ntpnb.compare({100: np.zeros(data.shape)}, data)
    assert found.names == ("100",)
    assert str(found).splitlines()[1].endswith("0, after context 'we see'")
    assert "&#x27;we see&#x27;</pre>" in found._repr_html_()


def checkpoints(seed):
    """Three decoders, each with hidden states of its own, of different numbers."""
    rng = np.random.default_rng(seed)
    data = {f"step {10**k}": t24(10 * seed + k, V=5, m=4 + k, d=9) for k in range(3)}
    return {name: rng.standard_normal((5, 9)) for name in data}, data


def test_named_matrices_are_compared_each_with_its_own_data(agg):
    matrices, data = checkpoints(0)
    found = ntpnb.compare(matrices, data)
    assert found.names == tuple(matrices)
    for k, (name, matrix) in enumerate(matrices.items()):
        alone = ntpnb.compare(matrix, data[name])
        for field in (*FIELDS, "norm", "loss", "excess", "above_floor"):
            assert getattr(found, field)[k] == getattr(alone, field)
        m = data[name].num_contexts
        np.testing.assert_array_equal(found.margin[k, :m], alone.margin)
        assert np.isinf(found.margin[k, m:]).all()
        assert found.worst[k] == str(alone.margin.argmin())
        assert name in str(found)
    fig = found.plot()
    assert [len(ax.lines) for ax in fig.axes] == [1, 1, 1, 1]


def test_what_is_missing_is_said_once_or_by_name():
    stack = np.random.default_rng(0).standard_normal((2, *CONTRADICTING.shape))
    named = dict(zip("ab", stack, strict=True))
    expected = ntpnb.compare(stack, CONTRADICTING)
    found = ntpnb.compare(named, CONTRADICTING)
    assert found.missing == expected.missing
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-14)
    fine = ntpnb.NextTokenData([[1.0]], [[0.6, 0.4, 0]])
    found = ntpnb.compare(named, {"a": fine, "b": CONTRADICTING})
    assert found.missing == f"b: {expected.missing}"


def contradicting(seed, counts=False):
    """Thirty contexts of two dimensions, so that nothing separates them."""
    rng = np.random.default_rng(seed)
    P = np.eye(4)[rng.integers(0, 4, 30)]
    counts = rng.integers(1, 5, P.shape) if counts else None
    return ntpnb.NextTokenData(rng.standard_normal((30, 2)), P, candidate_counts=counts)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_above_the_floor_is_what_training_can_still_gain(seed):
    """Where nothing separates, long descent gets as near to the floor as it says."""
    data = contradicting(seed)
    run = ntpnb.descend(data, ntpnb.GD(1 / data.smoothness), 20_000, record=[0, 20_000])
    found = ntpnb.compare(run.W, data)
    assert "no direction" in found.missing
    assert (found.above_floor >= 0).all()
    assert found.above_floor[0] == pytest.approx(found.loss[0] - found.loss[1], rel=1e-3)


def test_the_floor_is_that_of_the_data_though_the_twin_has_another(monkeypatch):
    """Where candidates count, the losses of data and twin differ by a number."""
    data = contradicting(0, counts=True)
    bias = ntpnb.implicit_bias(data)
    twin = bias.twin
    floor = ntpnb.loss_floor(data)
    assert abs(ntpnb.loss_floor(twin.data).upper - floor.upper) > 1e-3
    W = start(data)
    known = comparison.compare_trained(W, bias, twin)

    def fails(self):
        raise ntpnb.ConvergenceError("by order", 1.0)

    monkeypatch.setattr(ntpnb.Twin, "finite_part", property(fails))
    unknown = comparison.compare_trained(W, bias, twin)
    assert "by order" in unknown.missing
    for found in (known, unknown):
        gained = found.loss - found.above_floor
        assert floor.lower - 1e-9 <= gained <= floor.upper + 1e-9
