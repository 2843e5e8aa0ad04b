"""The whole public surface on generated input, meant and unmeant.

Every call returns numbers that are numbers, or refuses in words: a `ValueError` or `TypeError` with
a message, a `NotSeparableError` whose certificate holds, a `ConvergenceError` with a residual. It
does so in time, and warns of nothing (pytest turns warnings into errors). The answers themselves
are judged elsewhere; what is checked here are conditions that need no reference.
"""

import dataclasses
import signal
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import ntpnb
from ntpnb import NextTokenData, attention, datasets
from ntpnb.basics.errors import ConvergenceError, NotSeparableError

SECONDS = 60  # for one case; the slowest takes a few
PACKAGE = Path(ntpnb.__file__).parent
SHARE = 4 if settings().max_examples >= 1000 else 8  # 20 tests: 10,000 cases, or 240 in haste


class Hang(BaseException):
    """A case that did not end in time; no `except Exception` can swallow it, nor is it shrunk."""


@contextmanager
def in_time(case, seconds=SECONDS):
    """Raise `Hang` in the main thread, where pytest and its workers run tests, after some time."""

    def stop(*_):
        described = [vars(x) if isinstance(x, NextTokenData) else x for x in case]
        raise Hang(f"still running after {seconds} s: {described}")

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(**strategies):
    """Run a test on 500 cases under `make stress`, so that 20 tests see 10,000, and on 12 else."""

    def wrap(test):
        checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
        cases = settings(
            max_examples=settings().max_examples // SHARE, suppress_health_check=checks
        )
        return cases(given(**strategies)(test))

    return wrap


def call(function, *args, **kwargs):
    """The result, or None where the call was refused in one of the ways the package documents."""
    with in_time([function, *args, kwargs]):
        try:
            result = function(*args, **kwargs)
        except NotSeparableError as error:
            assert_refutes(error.certificate, next(a for a in args if isinstance(a, NextTokenData)))
            return None
        except (ConvergenceError, ValueError, TypeError) as error:
            assert_in_words(error)
            return None
    return result


def assert_in_words(error):
    """A message that ntpnb wrote for the caller: its last line of code is a `raise` of ntpnb."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert Path(last.filename).is_relative_to(PACKAGE), f"not in words: {error!r}"
    written = "\n".join(Path(last.filename).read_text("utf-8").splitlines()[last.lineno - 1 :])
    assert written.lstrip().startswith("raise "), f"not in words: {error!r}"
    assert len(str(error)) > 20
    assert getattr(error, "residual", 0.0) >= 0, error  # false for nan


def assert_refutes(certificate, data):
    """Farkas: the certificate's sum of the strict pairs lies in the span of the ties."""
    strict = reference.pair_matrices(data, ntpnb.token_priority(data).strict.tolist())
    assert certificate.shape == (len(strict),)
    assert certificate.min() >= 0
    assert certificate.sum() > 0
    lengths = np.linalg.norm(strict, axis=1)
    if certificate[lengths <= 1e-15 * lengths.max()].any():
        return  # a pair of equal tokens, or at a zero context, needs no other
    size = certificate @ lengths
    basis = reference.pair_matrices(data, reference.equal_pairs(data), unit=True)
    total = certificate @ strict / (size or 1.0)
    if len(basis):
        total = total - np.linalg.lstsq(basis.T, total)[0] @ basis
    assert np.linalg.norm(total) <= 1e-9


def assert_numbers(result, *, but=()):
    """No float in the result is nan or infinite, apart from the fields named in `but`."""
    if dataclasses.is_dataclass(result):
        fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
        for name, value in fields.items():
            if name not in but:
                assert_numbers(value)
    elif isinstance(result, NextTokenData):
        for value in vars(result).values():
            assert_numbers(value)
    elif isinstance(result, tuple | list):
        for value in result:
            assert_numbers(value)
    elif isinstance(result, float | np.ndarray) and np.asarray(result).dtype.kind == "f":
        assert np.isfinite(result).all(), result


# -- data that are meant: every regime, also at the edges of what floats can hold -----------------


@st.composite
def problems(draw, tokens=(1, 6), contexts=(1, 6), dims=(1, 6), general=True, tame=False):
    """Data that the constructor must accept."""
    V, m, q = (draw(st.integers(*bounds)) for bounds in (tokens, contexts, dims))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    H = draw_embeddings(draw, rng, m, q, tame)
    groups = None
    if general and draw(st.booleans()):
        groups = rng.integers(0, m, m) * 3 - 4
        for g in groups:
            H[groups == g] = H[np.argmax(groups == g)]
    support = rng.random((m, V)) < draw(st.sampled_from([0.0, 0.3, 0.6, 1.0]))
    support[np.arange(m), rng.integers(0, V, m)] = True
    P = draw_laws(draw, rng, support, 0 if tame else 300)
    pi = None
    if draw(st.booleans()):
        pi = draw_laws(
            draw, rng, np.ones((1, m), dtype=bool), 0 if tame or P[P > 0].min() < 1e-20 else 280
        )[0]
    T = C = None
    if general and draw(st.booleans()):
        T = draw_embeddings(draw, rng, V, draw(st.integers(1, 6)), tame)
    if general and draw(st.booleans()):
        C = rng.integers(0, 4, (m, V)) * draw(st.sampled_from([1.0, 1.0, 0.5, 1e6]))
        C = np.where(support & (C == 0), 1.0, C)
    arguments = H, P, pi, T, C, groups
    with np.printoptions(floatmode="unique"):
        note(f"NextTokenData{arguments}")
    return NextTokenData(*arguments)


def draw_embeddings(draw, rng, n, q, tame):
    """Rows in general position, on a small grid (ties, parallels, zeros), or nearly parallel."""
    kind = draw(st.sampled_from(["normal", "normal", "grid", "line", "repeated", "zero"]))
    X = rng.standard_normal((n, q))
    if kind == "grid":
        X = rng.integers(-2, 3, (n, q)).astype(float)
    elif kind == "line":
        angle = 10.0 ** -draw(st.integers(1, 4 if tame else 12))
        X = rng.choice([-1.0, 1.0], (n, 1)) * (X[:1] + angle * X)
    elif kind == "repeated":
        X = X[rng.integers(0, n, n)]
    elif kind == "zero":
        X[rng.integers(0, n) :] = 0.0
    if not tame:
        X = X * 10.0 ** draw(st.sampled_from([0, 0, 0, -6, 6, -40, 40]))
        decades = draw(st.sampled_from([0, 0, 0, 6]))
        X = X * 10.0 ** rng.uniform(-decades / 2, decades / 2, (n, 1))
    return X


def draw_laws(draw, rng, support, decades):
    """Rows of probabilities on a support, with a range of that many decades at times."""
    kind = draw(st.sampled_from(["uniform", "random", "random", "skewed"]))
    X = np.ones(support.shape) if kind == "uniform" else rng.exponential(size=support.shape)
    if kind == "skewed":
        X = X * 10.0 ** -rng.uniform(0, draw(st.sampled_from([3, 15, decades or 3])), X.shape)
    X = np.where(support, np.maximum(X, 1e-300), 0.0)
    return X / X.sum(1, keepdims=True)


@st.composite
def matrices(draw, lead=()):
    """A function from data to matrices W of any size that floats can square."""
    seed, scale = (
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e6, 1e40])),
    )
    return lambda data: scale * np.random.default_rng(seed).standard_normal((*lead, *data.shape))


METHODS = st.builds(
    lambda kind, step, **k: kind(step, **k) if kind is not ntpnb.SGD else ntpnb.SGD(step, **k),
    st.sampled_from([ntpnb.GD, ntpnb.NGD, ntpnb.Adam, ntpnb.SGD]),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3, 1e12, 1e250]),
) | st.builds(
    ntpnb.SGD,
    st.sampled_from([0.1, 10.0]),
    st.integers(1, 5),
    st.integers(0, 9),
    st.sampled_from(["contexts", "sequences"]),
)


@fuzz(data=problems())
def test_constructor_and_properties(data):
    assert_numbers(data)
    assert_numbers([data.entropy, data.smoothness, data.group_embeddings])
    assert data.entropy >= 0
    assert data.smoothness >= 0
    assert "nan" not in repr(data)


@fuzz(data=problems(), lead=st.sampled_from([(), (3,), (2, 2), (0,)]), draw=st.data())
def test_losses(data, lead, draw):
    W = draw.draw(matrices(lead))(data)
    for function in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient):
        result = call(function, W, data)
        assert_numbers(result)
        if result is not None and function is not ntpnb.gradient:
            assert np.shape(result) == lead
            assert np.min(result, initial=np.inf) >= 0


@fuzz(data=problems())
def test_priority(data):
    order = call(ntpnb.token_priority, data)
    named = (order.components >= 0)[data.group_index]
    assert (named | ~data.candidates).all()
    equal = {tuple(p) for p in order.equal.tolist()}
    assert not equal & {tuple(p) for p in order.strict.tolist()}


@fuzz(data=problems(), draw=st.data())
def test_subspace(data, draw):
    F = call(ntpnb.equal_subspace, data)
    W = draw.draw(matrices())(data)
    inside = call(F.project, W)
    assert_numbers([inside, F.basis, F.reject(W)])
    size = max(np.linalg.norm(W), 1e-300)
    assert np.linalg.norm(F.project(inside) - inside) <= 1e-7 * size
    assert np.linalg.norm(inside) <= (1 + 1e-7) * size
    assert F.basis.shape == (F.dim, *data.shape)


@fuzz(data=problems())
def test_finite_part(data):
    finite = call(ntpnb.finite_part, data)
    if finite is not None:
        assert_numbers(finite)
        assert finite.residual >= 0


@fuzz(data=problems())
def test_max_margin(data):
    svm = call(ntpnb.max_margin, data)
    if svm is not None:
        assert_numbers(svm, but=["min_margin", "relative_margin"])
        assert (svm.min_margin == np.inf) == (not len(ntpnb.token_priority(data).strict))
        assert svm.kkt_residual <= 1e-9


@fuzz(data=problems(), gap=st.sampled_from([1e-6, 1e-3, 0.5]))
def test_max_margin_up_to_a_gap(data, gap):
    svm = call(ntpnb.max_margin, data, gap=gap)
    if svm is not None and len(ntpnb.token_priority(data).strict):
        assert_numbers(svm)
        assert svm.margin_gap <= gap or svm.kkt_residual <= 1e-10


def test_an_active_set_that_only_gains_and_loses_digits_ends():
    T = [[-906411.29048774, -1829551.39389818, -22613.46375053]]
    T += [[906411.29048753, 1829551.39389513, 22613.46375209]]
    T += [[-906411.29048783, -1829551.39389627, -22613.46375094]]
    T += [[906411.29048573, 1829551.39389678, 22613.46374988]]
    data = NextTokenData([[0.00675884]], np.eye(4)[[2]], token_embeddings=T)
    call(ntpnb.max_margin, data)


def test_gradient_steps_end_where_their_rounding_has_no_fixed_point():
    H = 1e-40 * np.array([[2.0, 2.0, 2.0], [2.0, 2.0, 2.0], [0.0, 2.0, 1.0]])
    data = NextTokenData(H, np.eye(6)[[4, 5, 2]], context_groups=[2, 2, -1])
    assert call(ntpnb.max_margin, data).kkt_residual <= 1e-10


@fuzz(data=problems())
def test_is_separable_agrees_with_max_margin(data):
    answer = call(ntpnb.is_separable, data)
    assert answer in (True, False, None)
    if answer is False:
        assert call(ntpnb.max_margin, data) is None
    elif answer:
        try:
            ntpnb.max_margin(data)
        except NotSeparableError:
            pytest.fail("is_separable says yes")
        except ConvergenceError:
            pass


@pytest.mark.filterwarnings("ignore:.*does not descend:RuntimeWarning")  # steps may be huge
@fuzz(data=problems(), steps=st.integers(0, 40), method=METHODS, draw=st.data())
def test_descend(data, steps, method, draw):
    init = draw.draw(st.none() | matrices())
    trace = call(ntpnb.descend, data, method, steps, init if init is None else init(data))
    if trace is not None:
        assert_numbers(trace)
        assert trace.excess.min() >= 0


@pytest.mark.filterwarnings("ignore:.*does not descend:RuntimeWarning")
@fuzz(data=problems(tame=True), many=st.integers(1, 3), method=METHODS, steps=st.integers(0, 20))
def test_descend_in_batches(data, many, method, steps):
    trace = call(ntpnb.descend, [data] * many, method, steps)
    if trace is not None:
        assert_numbers(trace)
        assert trace.W.shape[0] == many


@fuzz(data=problems(), radii=st.lists(st.floats(-8, 12), min_size=1, max_size=4))
def test_regularization_path(data, radii):
    radii = 10.0 ** np.sort(radii)
    path = call(ntpnb.regularization_path, data, radii)
    if path is not None:
        assert_numbers(path, but=["log_multiplier"])
        assert path.residual.max() <= 1e-10
        assert (path.norm <= (1 + 1e-6) * radii).all()


@fuzz(data=problems(), logs=st.lists(st.floats(-300, 300), min_size=1, max_size=4))
def test_ridge_path(data, logs):
    path = call(ntpnb.ridge_path, data, -np.sort(logs))
    if path is not None:
        assert_numbers(path, but=["multiplier"])
        assert path.residual.max() <= 1e-10


@fuzz(
    data=problems(),
    times=st.lists(st.floats(-50, 50) | st.floats(-50, 5000), min_size=1, max_size=4),
    draw=st.data(),
)
def test_gradient_flow(data, times, draw):
    init = draw.draw(st.none() | matrices())
    times = np.sort(times)
    flow = call(ntpnb.gradient_flow, data, times, init if init is None else init(data))
    if flow is not None:
        assert_numbers(flow)


@fuzz(data=problems())
def test_loss_floor(data):
    floor = call(ntpnb.loss_floor, data, 1e-3)
    if floor is not None:
        assert floor.upper == ntpnb.cross_entropy(floor.W, data)
        assert floor.lower <= floor.upper + 1e-12 * max(1.0, floor.upper)


@fuzz(data=problems())
def test_next_order_term(data):
    assert_numbers(call(ntpnb.next_order_term, data))


@fuzz(data=problems())
def test_adam_metric(data):
    found = call(ntpnb.adam_metric, data, (0.0, 0.9), 200)
    if found is not None:
        assert_numbers(found)
        assert found.D.max() == 1.0


@pytest.mark.filterwarnings("ignore:.*does not descend:RuntimeWarning")  # steps may be huge
@fuzz(data=problems(tame=True), draw=st.data())
def test_comparison(data, draw):
    svm, finite = call(ntpnb.max_margin, data), call(ntpnb.finite_part, data)
    if svm is None or finite is None:
        return
    trace = call(ntpnb.descend, data, draw.draw(METHODS), 5)
    if trace is not None:
        compared = call(trace.compare, finite, svm)
        assert_numbers(compared.finite_error)
        defined = (trace.norm > 0) & (svm.norm > 0)
        assert np.isfinite(compared.angle[defined]).all()
        assert np.isfinite(compared.alignment[defined]).all()


# -- arguments that nobody means ------------------------------------------------------------------

TOY, TRIPLE = datasets.toy(), datasets.figure2()
JUNK = st.sampled_from(
    [
        None, True, -1, 0, 1, 2, 1.5, -0.0, 1e-320, 1e300, 10**400, float("nan"), float("inf"), 1j,
        "a", "", "a text of a few words", b"a", object(), {}, {"a": 1}, set(), slice(None),
        [], [[]], [[], [1]], [None], ["a"], [[1, "a"]],
        [1, 2], [0.5, 0.5], [[1.0]], [[0.5, 0.5]], (0, 1), range(3), TOY, TRIPLE, [TOY, TRIPLE],
        np.array(0.5), np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((2, 3)), np.ones((5, 2)),
        np.eye(4), np.full((5, 2), np.nan), np.full((5, 2), -np.inf), np.full((5, 2), 1e200),
        np.full((5, 2), 1j), np.full((3, 5), 0.2), np.full((3, 5), -0.2), np.ones((2, 5, 2)),
        np.array([[object()]]), np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([2**63], dtype=np.uint64), np.array([True, False]),
        np.ma.masked_array([1.0], [True]),
    ]
)  # fmt: skip


def report_on_data(data, words):
    """A report on something else than a text, with the options that it takes."""
    return ntpnb.report(data, words=words)


# ruff: noqa: C408, names of arguments read best as in a call
CALLS = {
    NextTokenData: dict(
        context_embeddings=np.eye(3, 2),
        target_probs=np.full((3, 4), 0.25),
        context_probs=np.full(3, 1 / 3),
        token_embeddings=np.eye(4, 5),
        candidate_counts=np.ones((3, 4)),
        context_groups=[1, 2, 3],
    ),
    NextTokenData.from_sequences: dict(
        sequences=[[0, 1, 2], [1, 1]], embed=lambda c: [1.0, len(c)], context_length=1, vocab_size=4
    ),
    NextTokenData.from_attention: dict(
        embeddings=np.eye(4, 5), sequences=[[0, 1, 2], [1, 1]], labels=[1, 1]
    ),
    ntpnb.cross_entropy: dict(W=np.ones((5, 2)), data=TOY),
    ntpnb.gradient: dict(W=np.ones((5, 2)), data=TOY),
    ntpnb.excess_loss: dict(W=np.ones((5, 2)), data=TOY),
    ntpnb.token_priority: dict(data=TOY),
    ntpnb.equal_subspace: dict(data=TOY),
    ntpnb.equal_subspace(TOY).project: dict(W=np.ones((5, 2))),
    ntpnb.equal_subspace(TRIPLE).reject: dict(W=np.ones((4, 4))),
    ntpnb.finite_part: dict(data=TOY),
    ntpnb.max_margin: dict(data=TOY),
    ntpnb.is_separable: dict(data=TOY),
    ntpnb.GD: dict(step=0.1),
    ntpnb.NGD: dict(step=0.1),
    ntpnb.Adam: dict(step=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8),
    ntpnb.SGD: dict(step=0.1, batch_size=2, seed=1, over="contexts"),
    ntpnb.descend: dict(
        data=TOY, method=ntpnb.GD(0.1), steps=3, init=np.ones((5, 2)), record=[0, 3]
    ),
    ntpnb.regularization_path: dict(data=TOY, radii=[1.0, 2.0]),
    ntpnb.ridge_path: dict(data=TOY, log_multipliers=[0.0, -3.0]),
    ntpnb.gradient_flow: dict(data=TOY, log_times=[0.0, 3.0], init=np.ones((5, 2))),
    ntpnb.next_order_term: dict(data=TOY),
    ntpnb.loss_floor: dict(data=TOY, gap=1e-3, seconds=9, n_jobs=1),
    ntpnb.adam_metric: dict(data=TOY, betas=(0.0, 0.9), steps=200, seed=1),
    attention.descend_head: dict(
        data=TRIPLE,
        loss=attention.squared,
        method=ntpnb.NGD(0.1),
        steps=3,
        init=np.ones((4, 4)),
        record=[0, 3],
        head=np.eye(4),
    ),
    attention.attention_mass: dict(W=np.eye(4), data=TRIPLE),
    attention.pseudo_data: dict(W=np.eye(4), data=TRIPLE, threshold=1e-2, ignore_below=9e-3),
    datasets.overparameterized: dict(
        seed=1, vocab_size=4, num_contexts=3, dim=3, support_size=2
    ),
    datasets.lecun_init: dict(data=TOY, seed=1),
    datasets.uniform_init: dict(data=TOY, seed=1),
    datasets.attention_trials: dict(
        num_trials=2, kind="any", vocab_size=5, dim=3, num_sequences=3, length=3, seed=1,
        tokens="distinct", labels="sequence",
    ),
    datasets.text_corpus: dict(num_verses=2),
    datasets.declaration_corpus: dict(num_paragraphs=2),
    datasets.text_corpus(1).windows: dict(length=2),
    datasets.text_corpus(1).spell: dict(tokens=[0, 1]),
    report_on_data: dict(data=TOY, words=list("abcde")),
    ntpnb.report: dict(data="we see what we see"),
    NextTokenData.from_text: dict(
        text="we see what we see", context_length=2, dim=2, seed=0, tokenizer=str.split,
        embedding="mean",
    ),
}  # fmt: skip


def describe(x):
    return x.__qualname__ if hasattr(x, "__qualname__") else repr(x)


@st.composite
def calls(draw, functions):
    """A call with one argument or two that are junk."""
    function = draw(st.sampled_from(functions))
    arguments = dict(CALLS[function])
    for name in draw(st.lists(st.sampled_from(list(arguments)), min_size=1, max_size=2)):
        arguments[name] = draw(JUNK)
    note(f"{describe(function)}({arguments})")
    return function, arguments


LIST = list(CALLS)


def refuse_in_words_or_answer(function, arguments):
    result = call(function, **arguments)
    undefined = ["min_margin", "relative_margin", "angle", "step", "log_multiplier"]
    assert_numbers(result, but=undefined)


@pytest.mark.parametrize("function", LIST, ids=describe)
def test_ordinary_arguments_are_accepted(function):
    assert call(function, **CALLS[function]) is not None


@fuzz(case=calls(LIST[:3]))
def test_junk_for_constructors(case):
    refuse_in_words_or_answer(*case)


@fuzz(case=calls(LIST[3:13]))
def test_junk_for_theory(case):
    refuse_in_words_or_answer(*case)


@fuzz(case=calls(LIST[13:22]))
def test_junk_for_training(case):
    refuse_in_words_or_answer(*case)


@fuzz(case=calls(LIST[22:]))
def test_junk_for_attention_and_datasets(case):
    refuse_in_words_or_answer(*case)


@fuzz(
    method=METHODS,
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([attention.squared, attention.softmax_squared, attention.cross_entropy]),
)
def test_attention(method, seed, loss):
    rng = np.random.default_rng(seed)
    n, K, T = rng.integers(1, 6, 3)
    E = rng.standard_normal((K, rng.integers(1, 6))) * 10.0 ** rng.integers(-3, 4)
    X = rng.integers(0, K, (n, T))
    data = NextTokenData.from_attention(E, X, X[np.arange(n), rng.integers(0, T, n)])
    trace = call(attention.descend_head, data, loss, method, 10)
    if trace is None:
        return
    assert_numbers(trace)
    mass = call(attention.attention_mass, trace.W[-1], data)
    assert np.abs(mass.sum(-1) - 1).max() <= 1e-12
    assert_numbers(call(attention.pseudo_data, trace.W[-1], data))
