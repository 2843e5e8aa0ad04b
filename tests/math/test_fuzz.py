"""The whole public surface on generated data.

Every call returns numbers that are numbers, or refuses in words: a `ValueError` or `TypeError` with
a message, a `NotSeparableError` whose certificate holds, a `ConvergenceError` with a residual. It
does so in time, and warns of nothing (pytest turns warnings into errors). The answers themselves
are judged elsewhere; what is checked here are conditions that need no reference.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from refusals import assert_numbers, call

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, attention

SHARE = 4 if settings().max_examples >= 1000 else 8  # of the examples of other properties


def fuzz(**strategies):
    """Run a test on 500 cases under `make stress`, and on 12 else."""

    def wrap(test):
        checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
        cases = settings(
            max_examples=settings().max_examples // SHARE, suppress_health_check=checks
        )
        return cases(given(**strategies)(test))

    return wrap


# -- data that are meant: every regime, also at the edges of what floats can hold -----------------


@st.composite
def problems(draw, tame=False):
    """Data that the constructor must accept."""
    V, m, q = (draw(st.integers(1, 6)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    H = draw_embeddings(draw, rng, m, q, tame)
    groups = None
    if draw(st.booleans()):
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
    if draw(st.booleans()):
        T = draw_embeddings(draw, rng, V, draw(st.integers(1, 6)), tame)
    if draw(st.booleans()):
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
    lambda kind, step: kind(step),
    st.sampled_from([ntpnb.GD, ntpnb.NGD, ntpnb.Adam, ntpnb.SGD]),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3, 1e12, 1e250]),
) | st.builds(
    ntpnb.SGD,
    st.sampled_from([0.1, 10.0]),
    st.integers(1, 5),
    st.integers(0, 9),
    st.sampled_from(["contexts", "sequences"]),
)


@fuzz(data=problems(), lead=st.sampled_from([(), (3,), (2, 2), (0,)]), draw=st.data())
def test_data_and_losses(data, lead, draw):
    assert_numbers([data, data.entropy, data.smoothness, data.group_embeddings])
    assert data.entropy >= 0
    assert data.smoothness >= 0
    assert "nan" not in repr(data)
    W = draw.draw(matrices(lead))(data)
    assert_numbers(call(ntpnb.gradient, W, data))
    for function in (ntpnb.cross_entropy, ntpnb.excess_loss):
        result = call(function, W, data)
        assert_numbers(result)
        if result is not None:
            assert np.shape(result) == lead
            assert np.min(result, initial=np.inf) >= 0


@fuzz(data=problems(), draw=st.data())
def test_order_and_ties(data, draw):
    order = call(ntpnb.token_priority, data)
    named = (order.components >= 0)[data.group_index]
    assert (named | ~data.candidates).all()
    equal = {tuple(p) for p in order.equal.tolist()}
    assert not equal & {tuple(p) for p in order.strict.tolist()}
    F = call(ntpnb.equal_subspace, data)
    W = draw.draw(matrices())(data)
    inside = call(F.project, W)
    assert_numbers([inside, F.basis, F.reject(W)])
    size = max(np.linalg.norm(W), 1e-300)
    assert np.linalg.norm(F.project(inside) - inside) <= 1e-7 * size
    assert np.linalg.norm(inside) <= (1 + 1e-7) * size
    assert F.basis.shape == (F.dim, *data.shape)


@fuzz(data=problems())
def test_finite_parts(data):
    assert_numbers([call(ntpnb.finite_part, data), call(ntpnb.next_order_term, data)])
    assert_numbers(call(ntpnb.adam_metric, data, (0.0, 0.9), 200))
    floor = call(ntpnb.loss_floor, data, 1e-3)
    if floor is not None:
        assert floor.upper == ntpnb.cross_entropy(floor.W, data)
        assert floor.lower <= floor.upper + 1e-12 * max(1.0, floor.upper)


@fuzz(data=problems(), gap=st.sampled_from([1e-6, 1e-3, 0.5]))
def test_max_margin(data, gap):
    is_ordered = len(ntpnb.token_priority(data).strict) > 0
    svm, verdict = call(ntpnb.max_margin, data), call(ntpnb.is_separable, data)
    assert verdict in (True, False, None)
    if svm is None and verdict:
        with pytest.raises(ConvergenceError):
            ntpnb.max_margin(data)
    elif svm is not None:
        assert verdict is not False
        assert_numbers(svm, but=["min_margin", "relative_margin"])
        assert (svm.min_margin == np.inf) == (not is_ordered)
        assert svm.kkt_residual <= 1e-9
    rough = call(ntpnb.max_margin, data, gap=gap)
    if rough is not None and is_ordered:
        assert_numbers(rough)
        assert rough.margin_gap <= gap or rough.kkt_residual <= 1e-10


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
