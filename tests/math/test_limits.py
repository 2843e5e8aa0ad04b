"""Time limits and progress of training, and what a run says that goes up in place of down."""

import pickle
import warnings

import numpy as np
import pytest
from problems import lengthened, t24
from slow_clock import Clock

import ntpnb
from ntpnb import (
    GD,
    NGD,
    SGD,
    Adam,
    ConvergenceError,
    NextTokenData,
    attention,
    datasets,
    descend,
)
from ntpnb.basics import watch
from ntpnb.training import descent

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
WILD = lengthened(TOY, 1e5)
LONG_STEPS = [NGD(1e6), Adam(1e6), SGD(1e6, seed=0)]


def train(data, method, **options):
    return descend(data, method, 1000, **options)


def equal(a, b, name):
    """The same steps, and losses or products of fewer rows, which may round differently."""
    if name == "W":
        return np.abs(a - b).max() <= 1e-12 * np.abs(b).max()
    return np.allclose(a, b, rtol=1e-9, atol=0)


LONG = {
    "GD": lambda **limits: train(TOY, GD(0.5), **limits),
    "NGD": lambda **limits: train(TOY, NGD(0.01), **limits),
    "Adam": lambda **limits: train(TOY, Adam(0.1), **limits),
    "SGD": lambda **limits: train(TOY, SGD(0.1, seed=1), **limits),
    "a batch": lambda **limits: train([FIGURE2, FIGURE2], GD(0.5), **limits),
    "a head": lambda **limits: attention.descend_head(
        FIGURE2, attention.squared, GD(0.1), 1000, **limits
    ),
    "flow": lambda **limits: ntpnb.gradient_flow(TOY, np.linspace(-2, 230, 40), **limits),
    "path": lambda **limits: ntpnb.regularization_path(TOY, np.geomspace(0.1, 1e3, 20), **limits),
    "ridge": lambda **limits: ntpnb.ridge_path(TOY, -np.linspace(0, 500, 20), **limits),
}
ARRAYS = ("W", "loss", "excess", "norm", "log_multiplier", "residual")


def arrays_of(result):
    return {name: getattr(result, name) for name in ARRAYS if hasattr(result, name)}


@pytest.mark.parametrize("what", LONG)
def test_limits_that_are_far_away_change_nothing(what):
    plain = LONG[what]()
    watched = LONG[what](seconds=1e6, progress=lambda text: None)
    for name, array in arrays_of(plain).items():
        assert equal(getattr(watched, name), array, name), name


@pytest.mark.parametrize("looks", [40, 80])
@pytest.mark.parametrize("what", LONG)
def test_what_was_reached_comes_with_the_error(what, looks, slow_clock):
    plain = LONG[what]()
    slow_clock.now = 0.0
    with pytest.raises(ConvergenceError, match=rf"stopped after {looks} seconds") as stopped:
        LONG[what](seconds=looks * 1.0)
    assert "\n" not in str(stopped.value)
    so_far = stopped.value.point
    if so_far is None:
        assert stopped.value.residual == np.inf
        assert looks == 40
        return
    assert np.isfinite(stopped.value.residual)
    known = getattr(so_far, "steps", None)
    every = getattr(plain, "steps", None)
    axis = 1 if what == "a batch" else 0
    for name, array in arrays_of(so_far).items():
        number = array.shape[axis]
        assert 0 < number < getattr(plain, name).shape[axis]
        if known is not None and known[-1] not in every:
            number -= 1  # the last is where the run was stopped
        expected = np.take(getattr(plain, name), range(number), axis=axis)
        assert equal(np.take(array, range(number), axis=axis), expected, name), name
    copy = pickle.loads(pickle.dumps(stopped.value))
    assert np.array_equal(copy.point.W, so_far.W)


def test_the_step_at_which_a_run_was_stopped_is_known(slow_clock):
    message = (
        r"\d+ of 1000 steps are done, and the loss is [\d.]+ nats above the entropy; "
        r"\.point is the run so far$"
    )
    with pytest.raises(ConvergenceError, match=message) as stopped:
        descend(TOY, GD(0.5), 1000, record=[1000], seconds=4.0)
    run = stopped.value.point
    (done,) = run.steps
    assert 0 < done < 1000
    plain = descend(TOY, GD(0.5), int(done), record=[done])
    assert np.array_equal(run.W, plain.W)
    assert stopped.value.residual == pytest.approx(plain.excess[0], rel=1e-9)


def test_no_time_at_all():
    with pytest.raises(ConvergenceError) as stopped:
        descend(TOY, GD(0.5), 1000, seconds=0)
    assert stopped.value.point.steps.tolist() == [0]


def test_embeddings_of_other_lengths_keep_the_limit():
    long = lengthened(TOY, 1e6)
    expected = ntpnb.next_order_term(long)
    assert np.array_equal(ntpnb.next_order_term(long, seconds=1e6), expected)
    with pytest.raises(ConvergenceError, match="0 seconds"):
        ntpnb.next_order_term(long, seconds=0)


def test_progress_of_a_long_run(monkeypatch):
    monkeypatch.setattr(ntpnb.training.descent, "LOOK_AT_THE_CLOCK", 0.0)
    told = []
    descend(TOY, GD(0.5), 20, progress=told.append)
    assert told[-1] == "GD: 20 of 20 steps"


@pytest.mark.parametrize(
    ("limits", "lasts", "taken"),
    [
        ({}, 1.0, [13]),  # nobody looks at the clock
        ({"seconds": 1e6}, 0.0, [1, 2, 4, 6]),
        ({"progress": print}, 0.02, [1, 2, 4, 2, 4]),
        ({"seconds": 1e6}, 1.0, [1] * 13),
    ],
)
def test_short_steps_are_taken_together(limits, lasts, taken, monkeypatch):
    """Twice as many, or half, as those before took less than 0.05 seconds, or more."""
    clock = Clock()
    clock.now = 1e3
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(descent, "time", clock)
    numbers = []

    def advance(done, until):
        numbers.append(until - done)
        clock.now += lasts * (until - done)

    assert list(descent.paced(advance, np.array([13]), watch.Watch(**limits), "GD")) == [13]
    assert numbers == taken


# -- ascent ---------------------------------------------------------------------------------------


def test_a_step_that_is_far_too_long_says_so():
    with pytest.warns(RuntimeWarning, match=r"^GD\(step=1000000000.0\) does not descend") as warned:
        run = descend(TOY, GD(1e9), 50, record=[0, 50])
    assert run.loss[-1] > 1e6
    (warning,) = warned
    message = str(warning.message)
    assert f"{1e9 / (2 / TOY.smoothness):.3g} times 2/L = {2 / TOY.smoothness:.3g}" in message
    assert "nats in 50 steps; the step is" in message
    assert "\n" not in message
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("data", "method", "record", "message"),
    [
        (TOY, GD(1e9), [50], "the loss went from 1.61 to"),  # without a record of the start
        (TOY, GD(2e9 / TOY.smoothness), None, r"; the step is 1e\+09 times 2/L = "),
        ([TOY, WILD], GD(0.5), None, r"data\[1\]: GD"),
        *(
            (TOY, method, [0, 50], "does not descend.*; a smaller step is needed$")
            for method in LONG_STEPS
        ),
    ],
)
def test_what_is_said_of_ascent(data, method, record, message):
    with pytest.warns(RuntimeWarning, match=message):
        descend(data, method, 50, record=record)


@pytest.mark.parametrize(("ratio", "number"), [(9.5, 0), (10.5, 1)])
def test_ascent_is_said_above_ten_times_the_loss_of_the_start(ratio, number):
    # A step of size s parts the scores by 0.2 s, and the loss is 0.4 times that: the token that
    # they favour has the probability 0.6, and what else there is of the loss is below e^-16.
    data = NextTokenData([[1.0]], [[0.6, 0.4]])
    step = GD(ratio * np.log(2) / 0.08)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run = descend(data, step, 1)
    assert run.loss[1] == pytest.approx(ratio * run.loss[0], rel=1e-6)
    assert len(warned) == number


def test_runs_within_the_bound_never_say_so():
    """As in the next two, any warning fails the test."""
    rng = np.random.default_rng(5)
    for seed in range(20):
        data = t24(seed)
        bound = 2 / data.smoothness
        init = rng.standard_normal(data.shape)
        for step in (0.1 * bound, 0.999 * bound):
            descend(data, GD(step), 30, init=init)


def test_a_long_step_that_converges_is_no_ascent():
    # Separable data: a huge first step may already separate them, as a perceptron's would.
    data = ntpnb.NextTokenData([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]])
    step = 100 * 2 / data.smoothness
    run = descend(data, GD(step), 50)
    assert run.loss[-1] < run.loss[0]


def test_a_cycle_is_no_ascent():
    # Two tokens that tie at zero: steps above 2/L lead into a cycle of two points.
    data = NextTokenData.from_attention(np.eye(3), [(0, 1, 2), (1, 0, 2)], [0, 1])
    start = datasets.uniform_init(data, 0)
    run = descend(data, GD(8.0), 1000, init=start)
    assert run.loss[-1] > 2 * np.log(2)  # twice that of zero weights
