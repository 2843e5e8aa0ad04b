"""Everything the theory says of a dataset: right, computed once, and not before it is asked for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from problems import lengthened
from scipy.sparse import csr_array

import ntpnb
from ntpnb import (
    GD,
    NextTokenData,
    NotSeparableError,
    datasets,
    descend,
    gradient_flow,
    implicit_bias,
    regularization_path,
)
from ntpnb.reporting import findings
from ntpnb.training import late_time

CONTRADICTION = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
TIED = NextTokenData([[1.0]], [[0.3, 0.7]])  # nothing ordered
FUNCTIONS = ("token_priority", "finite_part", "max_margin")
MODULES = (
    "bias",
    "margin.solve",
    "tied.finite",
    "tied.subspace",
    "training.coordinates",
    "training.flow",
    "training.late_time",
    "training.path",
    "training.comparison",
    "reporting.findings",
)


ONCE = dict.fromkeys(FUNCTIONS, 1)


@pytest.fixture
def calls(monkeypatch):
    """How often each part of the theory was computed, wherever a module has it from."""
    counts = dict.fromkeys(FUNCTIONS, 0)

    def counting(name, function):
        def counted(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        return counted

    for path in MODULES:
        module = ntpnb
        for part in path.split("."):
            module = getattr(module, part)
        for name in FUNCTIONS:
            function = vars(module).get(name)
            if callable(function):
                monkeypatch.setattr(module, name, counting(name, function))
    return counts


# -- what it says ---------------------------------------------------------------------------------


def test_a_bias_says_what_the_functions_say():
    data = datasets.toy()
    bias = implicit_bias(data)
    assert bias.data is data
    assert_array_equal(bias.order.strict, ntpnb.token_priority(data).strict)
    assert_array_equal(bias.finite_part.W, ntpnb.finite_part(data).W)
    assert_array_equal(bias.max_margin.W, ntpnb.max_margin(data).W)
    assert bias.equal_subspace.dim == ntpnb.equal_subspace(data).dim
    assert bias.refusal is None
    assert bias.separable is True
    assert bias.require_max_margin() is bias.max_margin


def test_a_refusal_is_kept_and_raised():
    bias = implicit_bias(CONTRADICTION)
    assert bias.max_margin is None
    assert bias.separable is False
    assert bias.refusal.certificate.tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(NotSeparableError) as caught:
        bias.require_max_margin()
    assert caught.value is bias.refusal


def test_undecided_is_neither_separable_nor_not(monkeypatch):
    def give_up(data, **options):
        raise ntpnb.ConvergenceError("undecided: it came to 1e-3", 1e-3)

    monkeypatch.setattr(ntpnb.bias, "max_margin", give_up)
    bias = implicit_bias(datasets.toy())
    assert bias.separable is None
    assert bias.max_margin is None
    assert "undecided" in repr(bias) or "not asked yet" in repr(bias)
    with pytest.raises(ntpnb.ConvergenceError, match="it came to"):
        bias.require_max_margin()


def test_a_vocabulary_just_below_that_of_large_data_is_no_obstacle():
    """One token stands for all that never follow, as where the direction alone is asked for."""
    contexts = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    entries = [1.0, 1.0, 0.5, 0.5, 1.0], ([0, 1, 2, 2, 3], [0, 1, 2, 3, 4])
    vocab_size = 2**18 - 1
    data = NextTokenData(contexts, csr_array(entries, shape=(4, vocab_size)))
    found = implicit_bias(data).max_margin
    assert found is not None
    assert found.kkt_residual < 1e-13
    assert_array_equal(found.W, ntpnb.max_margin(data).W)


def test_a_bias_is_returned_as_it_is():
    bias = implicit_bias(TIED)
    assert implicit_bias(bias) is bias


def test_the_repr_tells_what_is_known_and_computes_nothing(calls):
    bias = implicit_bias(datasets.toy())
    assert repr(bias).count("not asked yet") == 2
    assert calls == dict.fromkeys(FUNCTIONS, 0)
    assert bias.finite_part.compatible
    assert bias.separable
    assert "compatible" in repr(bias)
    assert f"norm {bias.max_margin.norm:.4g}" in repr(bias)
    refused = implicit_bias(CONTRADICTION)
    assert not refused.separable
    assert "not separable" in repr(refused)


# -- how often it computes ------------------------------------------------------------------------


@pytest.mark.parametrize("data", [datasets.toy(), datasets.figure2(), CONTRADICTION, TIED])
def test_a_report_computes_each_part_once(calls, data):
    found = ntpnb.report(data)
    text = str(found)
    assert found.pairs is found.pairs
    assert text == str(found)
    twins = {"finite_part": 2} if data is CONTRADICTION else {}  # the data's own, and the twin's
    assert calls == ONCE | twins


def test_a_report_without_a_flow_computes_each_part_once(calls, monkeypatch):
    monkeypatch.setattr(findings, "FLOW_UP_TO", -1)
    found = ntpnb.report(datasets.toy())
    assert found.law is not None
    assert calls == ONCE


USES = {
    "flow": lambda bias: gradient_flow(bias, [0.0, 10.0]).compare(bias),
    "path": lambda bias: regularization_path(bias, [1.0, 10.0]).compare(bias),
    "ridge path": lambda bias: ntpnb.ridge_path(bias, [0.0, -10.0]).compare(bias),
    "next-order term": ntpnb.next_order_term,
    "metric of Adam": lambda bias: ntpnb.adam_metric(bias, (0.0, 0.9), 200),
    "compare": lambda bias: ntpnb.compare(np.ones(bias.data.shape), bias),
    "run": lambda bias: descend(bias.data, GD(0.1), 5).compare(bias),
    "report": ntpnb.report,
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_bias_that_is_known_is_not_computed_again(calls, use):
    bias = implicit_bias(datasets.toy())
    assert bias.finite_part.compatible
    assert bias.separable
    assert calls == ONCE
    use(bias)
    assert calls == ONCE


def test_embeddings_of_extraordinary_length_need_no_second_bias(calls):
    toy = datasets.toy()
    bias = implicit_bias(lengthened(toy, 1e6))
    gradient_flow(bias, [-30.0, 10.0]).compare(bias)
    regularization_path(bias, [1e-6, 1.0]).compare(bias)
    ntpnb.next_order_term(bias)
    assert calls == ONCE


def test_the_next_order_term_by_either_method_computes_nothing_again(calls, monkeypatch):
    bias = implicit_bias(datasets.toy())
    direct = ntpnb.next_order_term(bias)
    monkeypatch.setattr(late_time, "_solve_by_multipliers", lambda *_: None)
    assert_allclose(ntpnb.next_order_term(bias), direct, rtol=1e-12)
    assert calls == ONCE


# -- a bias in place of data ----------------------------------------------------------------------


def test_data_and_bias_give_the_same_answers():
    data = datasets.toy()
    bias = implicit_bias(data)
    flow = gradient_flow(bias, [0.0, 50.0])
    expected = gradient_flow(data, [0.0, 50.0])
    for field in ("W", "loss", "excess", "norm"):
        assert_array_equal(getattr(flow, field), getattr(expected, field))
    radii = [0.5, 20.0]
    assert_array_equal(regularization_path(bias, radii).W, regularization_path(data, radii).W)
    assert_array_equal(ntpnb.next_order_term(bias), ntpnb.next_order_term(data))
    assert str(ntpnb.report(bias)) == str(ntpnb.report(data))


def test_a_run_compares_with_a_bias_as_with_its_two_parts():
    data = datasets.toy()
    bias = implicit_bias(data)
    fields = ("alignment", "angle", "corrected_alignment", "finite_error")
    for trace in (
        descend(data, GD(0.5), 20),
        gradient_flow(bias, [0.0, 20.0]),
        regularization_path(bias, [1.0, 30.0]),
    ):
        whole = trace.compare(bias)
        parts = trace.compare(bias.finite_part, bias.max_margin)
        for field in fields:
            assert_array_equal(getattr(whole, field), getattr(parts, field))


def test_a_batch_compares_with_a_list_of_biases():
    problems = [datasets.overparameterized(seed, 4, 3, 4, 2) for seed in range(2)]
    biases = [implicit_bias(data) for data in problems]
    runs = descend(problems, GD(0.1), 20)
    found = runs.compare(biases)
    for run, data, bias in zip(found.angle, problems, biases, strict=True):
        assert_allclose(run, descend(data, GD(0.1), 20).compare(bias).angle)


def test_a_finite_part_alone_is_not_enough():
    bias = implicit_bias(TIED)
    with pytest.raises(TypeError, match="svm is missing"):
        descend(TIED, GD(0.1), 2).compare(bias.finite_part)


def test_a_bias_without_a_direction_refuses_a_flow_and_says_why_it_has_no_angle():
    bias = implicit_bias(CONTRADICTION)
    found = ntpnb.compare(np.zeros(CONTRADICTION.shape), bias)
    assert np.isnan(found.angle)
    assert found.missing == f"no direction W^mm: {bias.refusal}"
    with pytest.raises(NotSeparableError):
        gradient_flow(bias, [1.0])
