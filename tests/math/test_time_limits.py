"""``seconds=`` and ``progress=``: a run that ends in time says so, with what it has reached."""

import contextlib
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from saved import known_bias

import ntpnb
from ntpnb import ConvergenceError, equal_subspace, implicit_bias, thresholds
from ntpnb.training import descent
from ntpnb_book import features

TOY = ntpnb.datasets.toy()
START = features.joint_init(TOY, dim=3, scale=0.5, seed=1)


def late_start():
    run = features.descend_jointly(TOY, 0.5, 2000, START, record=[2000])
    return features.JointStart(run.W[0], run.H[0])


def flow_of_both(log_times=(7.0, 100.0, 1000.0), **limits):
    return features.late_joint_flow(TOY, late_start(), 6.9, list(log_times), **limits)


# A context that stands twice, with other weights: multipliers are not unique, those of the solver
# are not in the weights' proportion, and Newton's method is needed for a next-order term.
TWICE = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [1, 0]], [0.75, 0.25])


CALLS = {
    "subspace": lambda **limits: equal_subspace(TOY, **limits),
    "subspace of attention": lambda **limits: equal_subspace(ntpnb.datasets.figure2(), **limits),
    "sweep": lambda **limits: thresholds.sweep([(3, 1, 8), (3, 1, 9)], trials=2, **limits),
    "joint descent": lambda **limits: features.descend_jointly(TOY, 0.5, 5000, START, **limits),
    "joint flow": flow_of_both,
    "nuclear path": lambda **limits: features.nuclear_path(TOY, [-10.0, -1000.0], **limits),
    "flow": lambda **limits: ntpnb.gradient_flow(known_bias(TOY), [0.0, 100.0], **limits),
    "path": lambda **limits: ntpnb.regularization_path(known_bias(TOY), [1.0, 100.0], **limits),
    "ridge path": lambda **limits: ntpnb.ridge_path(known_bias(TOY), [0.0, -100.0], **limits),
    "next-order term": lambda **limits: ntpnb.next_order_term(known_bias(TWICE), **limits),
}
# What takes the same limits, and has tests of its own of what it says where they end it.
OTHERS = {
    "finite part": lambda **limits: ntpnb.finite_part(TOY, **limits),
    "direction": lambda **limits: ntpnb.max_margin(TOY, **limits),
    "verdict": lambda **limits: ntpnb.is_separable(TOY, **limits),
    "bias": lambda **limits: implicit_bias(TOY, **limits),
    "report": lambda **limits: ntpnb.report(TOY, **limits),
    "floor": lambda **limits: ntpnb.loss_floor(TOY, **limits),
    "descent": lambda **limits: ntpnb.descend(TOY, ntpnb.GD(0.5), 9, **limits),
    "head": lambda **limits: ntpnb.attention.descend_head(
        ntpnb.datasets.figure2(), ntpnb.attention.squared, ntpnb.GD(0.1), 9, **limits
    ),
}


class TimeIsOver(ConvergenceError):
    """What a caller raises that has heard enough, of a kind that solvers raise themselves."""


@pytest.mark.parametrize("name", CALLS)
def test_no_time_is_said_to_be_over(name):
    with pytest.raises(ConvergenceError, match=r"^stopped after 0 seconds") as stopped:
        CALLS[name](seconds=0)
    has_begun = name in ("sweep", "joint descent")  # with no dataset, and with no step
    assert (stopped.value.point is not None) == has_begun


@pytest.mark.parametrize("name", CALLS)
def test_progress_is_told_and_may_end_it(monkeypatch, name):
    monkeypatch.setattr(descent, "LOOK_AT_THE_CLOCK", 0.0)  # so that no step is too quick to tell
    lines = []
    CALLS[name](progress=lines.append, seconds=1000)
    assert lines
    assert all(isinstance(line, str) and "\n" not in line for line in lines)

    def enough(line):
        raise TimeIsOver("enough", 0.0)

    with pytest.raises(TimeIsOver):
        CALLS[name](progress=enough)


@pytest.mark.parametrize("name", CALLS | OTHERS)
@pytest.mark.parametrize(
    ("limits", "kind", "start"),
    [
        ({"seconds": "1"}, TypeError, "^seconds is of type str"),
        ({"seconds": -1}, ValueError, "^seconds is -1; it must be a nonnegative number"),
        ({"seconds": np.nan}, ValueError, "^seconds is nan"),
        ({"progress": 3}, TypeError, "^progress is of type int; a function of one text"),
    ],
)
def test_wrong_limits_are_named(name, limits, kind, start):
    with pytest.raises(kind, match=start):
        (CALLS | OTHERS)[name](**limits)


def test_joint_descent_brings_the_run_so_far(slow_clock):
    whole = features.descend_jointly(TOY, 0.5, 5000, START, record=np.arange(5001))
    with pytest.raises(ConvergenceError) as raised:
        features.descend_jointly(TOY, 0.5, 5000, START, seconds=20)
    found = raised.value.point
    last = int(found.steps[-1])
    assert 0 < last < 5000
    assert_array_equal(found.W, whole.W[found.steps])
    assert_array_equal(found.logits, whole.logits[found.steps])
    assert raised.value.residual == found.excess[-1]


def test_joint_flow_brings_the_times_so_far(slow_clock):
    before = slow_clock.now
    whole = flow_of_both(log_times=(7.0, 100.0), seconds=1e9)
    needed = slow_clock.now - before
    with pytest.raises(ConvergenceError, match=r"2 of 3 times .*point") as raised:
        flow_of_both(log_times=(7.0, 100.0, 1e9), seconds=needed + 1)
    found = raised.value.point
    assert_array_equal(found.log_times, [7.0, 100.0])
    assert_allclose(found.logits, whole.logits, rtol=1e-3)
    assert raised.value.residual == found.tie_error[-1]


def test_nuclear_path_brings_the_points_so_far(slow_clock):
    whole = features.nuclear_path(TOY, [-10.0, -1000.0])
    calls = slow_clock.now
    features.nuclear_path(TOY, [-10.0], seconds=1e9)
    needed = slow_clock.now - calls
    with pytest.raises(ConvergenceError, match="1 of 2 points") as raised:
        features.nuclear_path(TOY, [-10.0, -1000.0], seconds=needed + 1)
    found = raised.value.point
    assert_array_equal(found.log_multipliers, [-10.0])
    assert_array_equal(found.logits, whole.logits[:1])
    assert raised.value.residual == found.gap.max()


def test_sweep_brings_the_datasets_so_far(slow_clock):
    cells = [(3, 1, 8), (3, 1, 9)]
    whole = thresholds.sweep(cells, trials=3)
    told = []
    with pytest.raises(ConvergenceError) as raised:
        # Each dataset reads the clock for several verdicts, and once for the sweep.
        thresholds.sweep(cells, trials=3, seconds=15, progress=told.append)
    found = raised.value.point
    done = sum(map(len, found))
    assert 0 < done < 6
    assert len(found) == 2
    assert told[-1] == f"sweep: {done} of 6 datasets"
    for some, full in zip(found, whole, strict=True):
        assert_array_equal(some, full[: len(some)])


@pytest.mark.parametrize(
    ("seconds", "done"),
    [
        (3, "2 of 5 tokens are decomposed"),
        (6, "all tokens are decomposed, and the common scores are not"),
    ],
)
def test_a_subspace_says_how_many_tokens_are_done(slow_clock, seconds, done):
    with pytest.raises(ConvergenceError, match=rf": the tied subspace: {done}$") as raised:
        equal_subspace(TOY, seconds=seconds)
    assert raised.value.point is None


# -- a limit that is handed on is quoted as it was asked for --------------------------------------


def direction(**limits):
    raise implicit_bias(TOY, **limits).refusal


def direction_after_the_finite_part(**limits):
    bias = implicit_bias(TOY, **limits)
    with contextlib.suppress(ConvergenceError):
        _ = bias.finite_part
    raise bias.refusal


def direction_in_a_report(**limits):
    raise ConvergenceError(str(ntpnb.report(TOY, **limits)), 0.0)


CONTRADICTING = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 1, 0]])

HANDED_ON = {
    "direction": direction,
    "direction after the finite part": direction_after_the_finite_part,
    "report": direction_in_a_report,
    "twin": lambda **limits: implicit_bias(CONTRADICTING, **limits).twin,
    "flow": lambda **limits: ntpnb.gradient_flow(TOY, [10.0, 1e3], **limits),
    "path": lambda **limits: ntpnb.regularization_path(TOY, [10.0, 1e3], **limits),
}


@pytest.mark.parametrize("asked", [0.05, 3, 20.5])
@pytest.mark.parametrize("name", HANDED_ON)
def test_what_is_left_of_a_limit_is_quoted_as_it_was_asked_for(
    name, asked, monkeypatch, slow_clock
):
    # Each look at the clock takes a third of the limit, whichever part of the work looks at it.
    look = slow_clock.monotonic
    monkeypatch.setattr(slow_clock, "monotonic", lambda: look() * asked / 3)
    with pytest.raises(ConvergenceError) as raised:
        HANDED_ON[name](seconds=asked)
    quoted = set(re.findall(r"([\d.e+-]+) seconds", str(raised.value)))
    assert quoted == {f"{asked:g}"}
