"""Gradient methods against textbook loops, alone and in batches, and the comparison's accuracy."""

from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import slow
from hypothesis import given
from hypothesis import strategies as st
from problems import any_problem, l24, regimes, t24

import ntpnb
from ntpnb import GD, NGD, SGD, Adam, NextTokenData, descend

EPS = np.finfo(float).eps
SAMPLE = [
    "d < m",
    "groups of several rows",
    "candidates, groups, tokens",
    "attention, cyclic",
    "attention, one token",
    "all embeddings zero",
]


def start(data, seed=0):
    return np.random.default_rng(seed).standard_normal(data.shape)


# -- textbook loops -------------------------------------------------------------------------------


def plain_gd(data, W, step, steps):
    for _ in range(steps):
        W = W - step * slow.gradient(W, data)
    return W


def plain_ngd(data, W, step, steps):
    for _ in range(steps):
        g = slow.gradient(W, data)
        if np.linalg.norm(g) > 0:
            W = W - step * g / np.linalg.norm(g)
    return W


def plain_adam(data, W, step, steps, beta1=0.9, beta2=0.999):
    """Kingma & Ba 2015, Algorithm 1, entry by entry."""
    W = W.copy()
    m, v = np.zeros(W.shape), np.zeros(W.shape)
    for t in range(1, steps + 1):
        g = slow.gradient(W, data)
        for at in np.ndindex(W.shape):
            m[at] = beta1 * m[at] + (1 - beta1) * g[at]
            v[at] = beta2 * v[at] + (1 - beta2) * g[at] ** 2
            m_hat, v_hat = m[at] / (1 - beta1**t), v[at] / (1 - beta2**t)
            W[at] -= step * m_hat / (v_hat**0.5 + 1e-8)
    return W


METHODS = {
    "GD": (GD(step=0.1), lambda d, W, k: plain_gd(d, W, 0.1, k)),
    "NGD": (NGD(step=0.05), lambda d, W, k: plain_ngd(d, W, 0.05, k)),
    "Adam": (Adam(step=0.02), lambda d, W, k: plain_adam(d, W, 0.02, k)),
    "Adam, T24": (
        Adam(step=0.02, beta1=0.8, beta2=0.99),
        lambda d, W, k: plain_adam(d, W, 0.02, k, 0.8, 0.99),
    ),
}


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("method", METHODS)
def test_runs_match_textbook_loops(method, name):
    data = regimes()[name]
    ours, textbook = METHODS[method]
    run = descend(data, ours, 20, init=start(data), record=[0, 1, 7, 20])
    assert run.steps.tolist() == [0, 1, 7, 20]
    assert run.W.shape == (4, *data.shape)
    for k, W in zip(run.steps, run.W, strict=True):
        # 20 steps of size at most one, in another summation order; Adam's division by small
        # second moments magnifies rounding of tiny gradient entries
        assert np.abs(W - textbook(data, start(data), int(k))).max() <= 1e-12
    np.testing.assert_array_equal(run.W[0], start(data))


@pytest.mark.parametrize("over", ["contexts", "sequences"])
def test_sgd_matches_a_textbook_loop(over):
    data = t24(3, V=4, m=5, d=3)
    method = SGD(step=0.3, batch_size=7, seed=11, over=over)
    run = descend(data, method, 30, init=start(data), record=range(31))
    W, rng = start(data), np.random.default_rng([11, 0])
    joint = (data.context_probs[:, None] * data.target_probs).T  # (V, m), as the class documents
    law = data.context_probs if over == "contexts" else joint.ravel()
    for k in range(31):
        # thirty steps of size at most one
        assert np.abs(run.W[k] - W).max() <= 1e-12
        counts = rng.multinomial(7, law / law.sum()) / 7
        gradient = np.zeros_like(W)
        for j, h in enumerate(data.context_embeddings):
            if over == "contexts":
                weight, target = counts[j], counts[j] * data.target_probs[j]
            else:
                target = counts.reshape(joint.shape)[:, j]
                weight = target.sum()
            gradient += np.outer(weight * np.array(slow.law(W, data, j)) - target, h)
        W = W - 0.3 * gradient


def test_sgd_is_unbiased_and_repeats():
    data = t24(4, V=4, m=5, d=3)
    for over in ("contexts", "sequences"):
        problem = ntpnb.descent.Stack([data])
        draws = SGD(step=1.0, batch_size=3, seed=5, over=over)._draws(
            0, problem.pi[0], problem.P[0]
        )
        pi, target = (
            np.mean(x, axis=0) for x in zip(*[next(draws) for _ in range(20_000)], strict=True)
        )
        # sixty thousand draws: five standard deviations of a frequency are below 0.011
        assert np.abs(pi[0] - data.context_probs).max() <= 0.011
        assert np.abs(target.T - data.context_probs[:, None] * data.target_probs).max() <= 0.011
        runs = [descend(data, SGD(0.1, seed=s, over=over), 300).W for s in (1, 1, 2)]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert np.abs(runs[0] - runs[2]).max() > 1e-3


def test_adam_s_first_step_is_the_sign():
    data = t24(5)
    W = descend(data, Adam(step=0.1), 1).W[-1]
    g = ntpnb.gradient(np.zeros(data.shape), data)
    # ε / |g| is what keeps it from the sign itself
    np.testing.assert_allclose(W, -0.1 * g / (np.abs(g) + 1e-8), rtol=1e-12)


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m, _ in METHODS.values()], ids=list(METHODS))
@pytest.mark.parametrize(
    "make",
    [
        lambda s: t24(s, V=5, m=7, d=4),
        lambda s: t24(s, V=5, m=7, d=4, rows=1 + s % 2, candidates=s % 2 == 1),
        lambda s: t24(s, V=4, m=5, d=6, tokens=3, candidates=s == 2),
        lambda s: l24(s, K=6, d=5, n=7, T=4),
    ],
    ids=["T24", "some with counts", "token embeddings", "L24"],
)
def test_a_batch_is_each_problem_alone(method, make):
    problems = [make(s) for s in range(4)]
    init = np.stack([start(d, s) for s, d in enumerate(problems)])
    batch = descend(problems, method, 50, init=init, record=[0, 10, 50])
    assert batch.W.shape == (4, 3, *problems[0].shape)
    assert batch.steps.tolist() == [0, 10, 50]
    for i, data in enumerate(problems):
        alone = descend(data, method, 50, init=init[i], record=[0, 10, 50])
        # fifty steps of size at most 0.1, in another summation order
        assert np.abs(batch.W[i] - alone.W).max() <= 1e-12
        for field in ("loss", "excess", "norm"):
            assert getattr(batch, field).shape == (4, 3)
            assert np.abs(getattr(batch, field)[i] - getattr(alone, field)).max() <= 1e-12


def test_a_batch_of_one_keeps_its_axis():
    data = t24(6)
    assert descend([data], GD(0.1), 3, record=[3]).W.shape == (1, 1, *data.shape)
    assert descend((data, data), GD(0.1), 3).loss.shape == (2, 4)


# -- what a trace holds ---------------------------------------------------------------------------


def test_a_trace_describes_its_matrices():
    for data in (t24(7), l24(7)):
        run = descend(data, GD(0.2), 100)
        np.testing.assert_array_equal(run.loss, ntpnb.cross_entropy(run.W, data))
        np.testing.assert_array_equal(run.excess, ntpnb.excess_loss(run.W, data))
        np.testing.assert_array_equal(run.norm, np.linalg.norm(run.W, axis=(1, 2)))
        assert not run.W[0].any()  # the default start


@pytest.mark.parametrize("steps", [0, 1, 5, 1000, 10_000])
def test_the_default_grid_is_logarithmic_with_both_ends(steps):
    data = NextTokenData([[1.0]], [[1.0, 0.0]])
    at = descend(data, GD(0.1), steps).steps
    assert at[0] == 0
    assert at[-1] == steps
    assert (np.diff(at) > 0).all()
    assert len(at) <= 200
    assert at.tolist()[:5] == list(range(min(steps + 1, 5)))
    if steps == 10_000:
        assert len(at) > 150
        gaps = np.diff(np.log(at[at > 100]))
        assert gaps.max() <= 1.5 * gaps.min()  # whole numbers cannot be evenly spaced in log


def test_a_record_may_stop_early_and_be_a_single_step():
    data = t24(8)
    whole = descend(data, GD(0.1), 10, record=range(11))
    part = descend(data, GD(0.1), 10, record=[4])
    np.testing.assert_array_equal(part.W[0], whole.W[4])


def test_the_start_is_left_alone():
    data = t24(9)
    W = start(data)
    kept = W.copy()
    run = descend(data, GD(0.1), 5, init=W)
    np.testing.assert_array_equal(W, kept)
    run.W[0] = 0
    np.testing.assert_array_equal(W, kept)
    np.testing.assert_array_equal(
        descend(data, GD(0.1), 2, init=W.tolist()).W, descend(data, GD(0.1), 2, init=W).W
    )


# -- theory that every run must obey --------------------------------------------------------------


@given(any_problem(), st.floats(0.05, 1.0), st.integers(0, 99))
def test_descent_lemma(data, fraction, seed):
    """CE(W₊) ≤ CE(W) − η(1 − ηL/2)‖∇‖² for steps up to 1/L (T24 Lemma 2, L24 Lemma 5)."""
    if data.smoothness == 0:
        return
    step = fraction / data.smoothness
    run = descend(data, GD(step), 10, init=start(data, seed), record=range(11))
    slopes = ntpnb.gradient(run.W[:-1], data)
    drop = step * (1 - fraction / 2) * (slopes**2).sum((1, 2))
    # the rounding of a loss of that size
    assert (run.loss[1:] <= run.loss[:-1] - drop + 100 * EPS * (1 + run.loss[:-1])).all()


@given(any_problem(), st.integers(0, 99), st.sampled_from([m for m, _ in METHODS.values()][:2]))
def test_runs_stay_in_the_span_of_all_pairs(data, seed, method):
    """Gradients are combinations of (t_i − t_j) hᵀ; what is orthogonal to all never moves."""
    W = start(data, seed)
    moved = (descend(data, method, 10, init=W).W[-1] - W).ravel()
    pairs = slow.equal_pairs(data) + slow.strict_pairs(data)
    rows = slow.pair_matrices(data, pairs, unit=True)
    _, s, Vt = np.linalg.svd(rows, full_matrices=False) if len(rows) else (0, np.zeros(0), rows)
    Vt = Vt[s > 1e-9]
    # ten steps of size at most one
    assert np.abs(moved - Vt.T @ (Vt @ moved)).max() <= 1e-12 * (1 + np.abs(moved).max())


@given(any_problem(), st.integers(0, 99))
def test_gd_commutes_with_rotation_permutation_splitting_and_scale(data, seed):
    rng = np.random.default_rng(seed)
    V, q = data.vocab_size, data.shape[1]
    H, P, pi = data.context_embeddings, data.target_probs, data.context_probs
    T, C, g = data.token_embeddings, data.candidate_counts, data.context_groups
    W = rng.standard_normal(data.shape)
    step = 1 / max(data.smoothness, 1e-3)

    def last(d, init, size=1.0):
        return descend(d, GD(step * size), 5, init=init).W[-1]

    expected = last(data, W)
    close = {"rtol": 0, "atol": 1e-10 * (1 + np.abs(expected).max())}  # five contracting steps

    Q = np.linalg.qr(rng.standard_normal((q, q)))[0]
    rotated = NextTokenData((data.group_embeddings @ Q)[data.group_index], P, pi, T, C, g)
    np.testing.assert_allclose(last(rotated, W @ Q), expected @ Q, **close)

    tokens = rng.permutation(V)
    moved = NextTokenData(
        H,
        P[:, tokens],
        pi,
        None if T is None else T[tokens],
        None if C is None else C[:, tokens],
        g,
    )
    rows = slice(None) if T is not None else tokens
    np.testing.assert_allclose(last(moved, W[rows]), expected[rows], **close)

    split = NextTokenData(
        np.repeat(H, 2, 0),
        np.repeat(P, 2, 0),
        np.repeat(pi / 2, 2),
        T,
        None if C is None else np.repeat(C, 2, 0),
        np.repeat(g, 2),
    )
    np.testing.assert_allclose(last(split, W), expected, **close)

    for c in (1e-8, 1e8):  # W → W/c needs steps 1/c² as long
        scaled = last(NextTokenData(c * H, P, pi, T, C, g), W / c, c**-2)
        np.testing.assert_allclose(c * scaled, expected, **close)


def test_gd_keeps_column_sums_of_the_linear_decoder():
    data = t24(10)
    W = start(data)
    run = descend(data, GD(0.5), 2000, init=W)
    # 1ᵀ∇ = 0: two thousand updates of entries near ten, each rounded
    assert np.abs(run.W.sum(1) - W.sum(0)).max() <= 1e-12


# -- normalized gradient descent ------------------------------------------------------------------


def test_every_normalized_step_has_the_same_length():
    data = t24(11)
    run = descend(data, NGD(0.1), 200, init=start(data), record=range(201))
    lengths = np.linalg.norm(np.diff(run.W, axis=0), axis=(1, 2))
    assert np.abs(lengths - 0.1).max() <= 1e-14  # rounding of entries near ten


def test_a_zero_gradient_is_a_zero_step():
    still = [
        t24(12, zero=6),
        NextTokenData([[1.0, 2.0]], [[1.0]]),
        NextTokenData([[3.0]], [[0, 1]], candidate_counts=[[0, 2]]),
        NextTokenData([[3.0]], [[0.5, 0.5]]),  # at its minimum from the start
    ]
    for data in still:
        W = np.zeros(data.shape)
        run = descend(data, NGD(0.1), 5, init=W)
        np.testing.assert_array_equal(run.W, np.zeros((len(run.steps), *data.shape)))
    # and in a batch the others move on
    pair = [NextTokenData([[3.0]], [[0.5, 0.5]]), NextTokenData([[3.0]], [[1.0, 0.0]])]
    run = descend(pair, NGD(0.1), 5)
    assert run.norm[0].tolist() == [0.0] * 6
    assert abs(run.norm[1, -1] - 0.5) <= 1e-15


def test_normalized_descent_keeps_its_direction_when_the_gradient_is_tiny():
    """Orthonormal one-hot contexts: by symmetry W_k is a multiple of I − 1/3 for ever.

    The losses pass 1e-16, where q − p cancels, and 1e-154, where squares underflow.
    """
    data = NextTokenData(np.eye(3), np.eye(3))
    run = descend(data, NGD(1.0), 1000)
    direction = np.eye(3) - 1 / 3
    expected = run.steps[:, None, None] * direction / np.linalg.norm(direction)
    assert run.excess[-1] < 1e-300
    # one rounding of entries below 1000 in each of 1000 steps
    assert np.abs(run.W - expected).max() <= 1e-11


# -- large scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("name", SAMPLE[:4])
def test_large_scores_neither_overflow_nor_mislead(name, scale):
    data = regimes()[name]
    W = scale * start(data)
    run = descend(data, GD(1.0), 1, init=W)
    expected = W - ntpnb.gradient(W, data)
    # the step rounds W; scores of that size shift probabilities by their own rounding
    assert np.abs(run.W[-1] - expected).max() <= 1e-12 * scale


def test_tokens_that_are_no_candidates_may_score_highest():
    data = NextTokenData([[1.0]], [[1, 0, 0]], candidate_counts=[[1, 2, 0]])
    for top in (10.0, 1e3, 1e6):
        W = np.array([[0.5], [-0.25], [top]])
        moved = W - descend(data, GD(1.0), 1, init=W).W[-1]
        np.testing.assert_allclose(
            moved, slow.gradient(W, data), atol=2 * EPS * top
        )  # W's rounding


# -- comparison with the theory -------------------------------------------------------------------


def theory(seed=1):
    data = t24(seed, V=4, m=3, d=5, size=(1, 3))
    fin = ntpnb.finite_part(data)
    direction = fin.subspace.reject(start(data, 5))
    return data, fin, SimpleNamespace(W=direction)


def trace_of(data, matrices):
    run = descend(data, GD(1.0), len(matrices) - 1, record=range(len(matrices)))
    return ntpnb.descent.Trace(run.steps, np.array(matrices), run.loss, run.excess, run.norm)


@pytest.mark.parametrize("tilt", [1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1.0])
def test_angles_are_accurate_near_zero(tilt):
    data, fin, svm = theory()
    across = start(data, 6)
    W = 7.0 * svm.W + tilt * across
    found = trace_of(data, [W]).compare(fin, svm)
    with mpmath.workdps(60):
        a, b = (mpmath.matrix(x.ravel().tolist()) for x in (W, svm.W))
        cosine = (a.T * b)[0] / (mpmath.norm(a) * mpmath.norm(b))
        expected = float(mpmath.acos(cosine))
    # each unit vector is rounded entry by entry, which tilts it by about 1e-16
    assert abs(found.angle[0] - expected) <= 5 * EPS
    assert abs(found.alignment[0] - float(cosine)) <= 5 * EPS


def test_comparison_by_its_definitions():
    data, fin, svm = theory(2)
    matrices = [start(data, s) for s in range(4)]
    found = trace_of(data, matrices).compare(fin, svm)
    basis = slow.equal_basis(data)

    def cosine(A):
        return np.vdot(A, svm.W) / np.linalg.norm(A) / np.linalg.norm(svm.W)

    for k, W in enumerate(matrices):
        # norms and inner products of twenty numbers of size one
        assert abs(found.alignment[k] - cosine(W)) <= 1e-14
        assert abs(found.corrected_alignment[k] - cosine(W - fin.W)) <= 1e-14
        inside = basis.T @ (basis @ W.ravel()) - fin.W.ravel()
        assert abs(found.finite_error[k] - np.linalg.norm(inside)) <= 1e-13
        assert abs(found.angle[k] - np.arccos(cosine(W))) <= 1e-13


def test_comparison_at_the_ends():
    data, fin, svm = theory(3)
    found = trace_of(data, [3 * svm.W + fin.W, -svm.W, np.zeros(data.shape), fin.W]).compare(
        fin, svm
    )
    assert abs(found.corrected_alignment[0] - 1) <= 4 * EPS
    assert abs(found.angle[1] - np.pi) <= 4 * EPS
    assert np.isnan(found.alignment[2])  # a zero matrix has no direction
    assert np.isnan(found.angle[2])
    assert abs(found.finite_error[2] - np.linalg.norm(fin.W)) <= 1e-14
    assert found.finite_error[3] <= 1e-14 * (1 + np.linalg.norm(fin.W))
    assert np.isnan(trace_of(data, [fin.W]).compare(fin, SimpleNamespace(W=0 * svm.W)).angle[0])


def test_a_batch_compares_problem_by_problem():
    problems = [t24(s, V=4, m=3, d=5, size=2) for s in range(3)]
    finite = [ntpnb.finite_part(d) for d in problems]
    svm = [SimpleNamespace(W=start(d, s)) for s, d in enumerate(problems)]
    runs = descend(problems, GD(0.3), 30)
    found = runs.compare(finite, svm)
    for i, data in enumerate(problems):
        alone = descend(data, GD(0.3), 30).compare(finite[i], svm[i])
        for field in ("alignment", "angle", "corrected_alignment", "finite_error"):
            assert getattr(found, field).shape == runs.loss.shape
            # runs agree to rounding; step 0 has no direction in either
            np.testing.assert_allclose(getattr(found, field)[i], getattr(alone, field), atol=1e-12)


def test_training_approaches_the_finite_part():
    """T24 Thm 2, second half, on one small problem: P_F W_k → W*."""
    data, fin, svm = theory(4)
    run = descend(data, GD(1 / data.smoothness), 20_000)
    error = run.compare(fin, svm).finite_error
    assert error[-1] < 0.05 * error[0]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("method", [GD, NGD, Adam, SGD])
def test_a_step_must_be_positive(method, step):
    with pytest.raises(ValueError, match=rf"step is {step}; it must be positive and finite"):
        method(step=step)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(0.1, beta1=1.0), r"beta1 is 1.0; it must lie in \[0, 1\)"),
        (lambda: Adam(0.1, beta2=-0.1), r"beta2 is -0.1; it must lie in \[0, 1\)"),
        (lambda: Adam(0.1, beta2=np.nan), r"beta2 is nan; it must lie in \[0, 1\)"),
        (lambda: SGD(0.1, batch_size=0), r"batch_size is 0; it must be a positive integer"),
        (lambda: SGD(0.1, batch_size=1.5), r"batch_size is 1.5; it must be a positive integer"),
        (lambda: SGD(0.1, over="tokens"), r"over is 'tokens'; it must be \"contexts\" or"),
    ],
)
def test_a_method_must_make_sense(make, message):
    with pytest.raises(ValueError, match=message):
        make()


A = t24(0)  # W is (5, 8)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([], GD(1.0), 3), {}, r"data is an empty list; it needs at least one problem"),
        (([A, t24(0, d=7)], GD(1.0), 3), {}, r"data\[1\] has W \(5, 7\) .* needs equal shapes"),
        (([A, t24(0, m=5)], GD(1.0), 3), {}, r"target_probs \(5, 5\), data\[0\] .* equal shapes"),
        (([A, t24(0, tokens=5)], GD(1.0), 3), {}, r"data\[1\] and data\[0\] must both have token"),
        ((A, GD(1.0), -1), {}, r"steps is -1; it must be a nonnegative integer"),
        ((A, GD(1.0), 2.5), {}, r"steps is 2.5; it must be a nonnegative integer"),
        (
            (A, GD(1.0), 3),
            {"init": np.zeros((8, 5))},
            r"init has shape \(8, 5\); its last two axes",
        ),
        (
            (A, GD(1.0), 3),
            {"init": np.zeros((1, 5, 8))},
            r"init has shape \(1, 5, 8\); it needs \(5, 8",
        ),
        (
            ([A], GD(1.0), 3),
            {"init": np.zeros((5, 8))},
            r"init has shape \(5, 8\); it needs \(1, 5, 8",
        ),
        (
            (A, GD(1.0), 3),
            {"init": np.full((5, 8), np.nan)},
            r"init has entries that are not finite",
        ),
        ((A, GD(1.0), 3), {"record": []}, r"record must be increasing integers between 0 and .* 3"),
        ((A, GD(1.0), 3), {"record": [0, 2, 1]}, r"record must be increasing integers"),
        ((A, GD(1.0), 3), {"record": [1, 1]}, r"record must be increasing integers"),
        ((A, GD(1.0), 3), {"record": [-1, 2]}, r"record must be increasing integers"),
        ((A, GD(1.0), 3), {"record": [0, 4]}, r"record must be increasing integers"),
        ((A, GD(1.0), 3), {"record": [0.0, 1.0]}, r"record must be increasing integers"),
    ],
)
def test_a_run_must_make_sense(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        descend(*arguments, **options)


def test_comparisons_need_one_theory_for_each_problem():
    data, fin, svm = theory()
    single, batch = descend(data, GD(1.0), 2), descend([data, data], GD(1.0), 2)
    for run, arguments in [
        (single, ([fin], [svm])),
        (batch, (fin, svm)),
        (batch, ([fin], [svm])),
        (batch, ([fin, fin], svm)),
    ]:
        with pytest.raises(
            ValueError, match=r"finite and svm have lengths .* one of each per problem"
        ):
            run.compare(*arguments)
