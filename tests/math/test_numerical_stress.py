"""Every public function at the edges: lengths, angles, probabilities and sizes.

The oracles are invariances, for which no reference values are needed: embeddings ``c h`` score
alike at ``W/c``, rotations turn W, new names permute it, and a context that is listed twice with
half its probability changes nothing.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
import problems
import pytest
from numpy.testing import assert_allclose
from peak import PEAK_UNIT
from quick import slow_but

import ntpnb
from ntpnb import (
    GD,
    ConvergenceError,
    NextTokenData,
    NotSeparableError,
    finite_part,
    gradient_flow,
    is_separable,
    max_margin,
    regularization_path,
)
from ntpnb.training import flow as flow_module

RADII = [0.5, 5.0, 100.0]
LOG_TIMES = [0.0, 5.0, 50.0, 1000.0]
LOG_MULTIPLIERS = [2.0, -5.0, -80.0]
SMALL = {
    "T24": problems.t24(0),
    "T24, wide supports": problems.t24(3, V=4, m=4, d=4, size=(2, 4)),
    "V = 2": problems.t24(17, V=2, m=3, d=4, size=(1, 2)),
    "m = 1": problems.t24(15, m=1, size=3),
    "d = 1": problems.t24(4, d=1, m=1),
    "S = V on some contexts": problems.changed(
        problems.t24(31, V=4, m=4),
        target_probs=np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 2, 2, 0], [4, 3, 2, 1.0]])
        / np.array([[1], [4], [4], [10]]),
    ),
    "attention": problems.l24(23, cyclic=False),
    "attention, cyclic": problems.l24(24, n=6, K=5, d=8, cyclic=True),
    "ties in margins": NextTokenData(np.eye(3), np.eye(3)),
}


def answers(data, W, c=1.0):
    """What the package says of data whose embeddings were multiplied by ``c``, in units of W."""
    L = data.smoothness
    W = W / c
    finite, svm = finite_part(data), max_margin(data)
    run = ntpnb.descend(data, GD(0.5 / L), 50)
    path = regularization_path(data, np.array(RADII) * svm.norm)
    ridge = ntpnb.ridge_path(data, np.array(LOG_MULTIPLIERS) + 2 * np.log(c))
    assert is_separable(data)
    assert finite.compatible in (True, False)
    return {
        "smoothness": L / c**2,
        "cross_entropy": ntpnb.cross_entropy(W, data),
        "excess_loss": ntpnb.excess_loss(W, data),
        "gradient": ntpnb.gradient(W, data) / c,
        "project": ntpnb.equal_subspace(data).project(W) * c,
        "dim": float(finite.subspace.dim),
        "finite_part": finite.W * c,
        "max_margin": svm.W * c,
        "norm": svm.norm * c,
        "descend": run.W[-1] * c,
        "descend's excess": run.excess,
        "path": path.W * c,
        "path's log λ": path.log_multiplier - 2 * np.log(c),
        "path's excess": path.excess,
        "ridge": ridge.W * c,
    }


def flow_answers(data, _, c=1.0):
    """The flow of data whose embeddings were multiplied by ``c``, in units of W."""
    flow = gradient_flow(data, np.array(LOG_TIMES) - np.log(data.smoothness))
    return {
        "flow": flow.W * c,
        "flow's excess": flow.excess,
        "flow's angle": flow.compare(finite_part(data), max_margin(data)).angle,
    }


@cache
def unchanged(ask, data):
    return ask(data, problems.start(data, 5))


@dataclass(frozen=True)
class Change:
    """The same problem in other words, and what becomes of a matrix of the old one."""

    of_data: Callable[[NextTokenData], NextTokenData]
    of_matrix: Callable = lambda W, data: W
    scale: float = 1.0  # of all lengths


def a_rotation(data):
    q = data.shape[1]
    return np.linalg.qr(np.random.default_rng(7).standard_normal((q, q)))[0]


def a_permutation(data):
    return np.random.default_rng(8).permutation(data.vocab_size)


def permuted_rows(W, data):
    return W[..., a_permutation(data), :] if data.token_embeddings is None else W


CHANGES = {
    "short contexts": Change(lambda data: problems.lengthened(data, 1e-6), scale=1e-6),
    "long contexts": Change(lambda data: problems.lengthened(data, 1e6), scale=1e6),
    "rotation": Change(
        lambda data: problems.rotated(data, a_rotation(data)),
        of_matrix=lambda W, data: W @ a_rotation(data),
    ),
    "names of tokens": Change(
        lambda data: problems.renamed(data, a_permutation(data)), of_matrix=permuted_rows
    ),
    "order of contexts": Change(
        lambda data: problems.rearranged(data, np.arange(len(data.context_probs))[::-1])
    ),
    "copies of contexts": Change(problems.doubled),
}
MATRICES = {"gradient", "project", "finite_part", "max_margin", "descend", "path", "ridge", "flow"}


def require_same_answers(ask, data, change):
    W = change.of_matrix(problems.start(data, 5), data)
    found = ask(change.of_data(data), W, change.scale)
    for name, before in unchanged(ask, data).items():
        wanted = change.of_matrix(before, data) if name in MATRICES else before
        require_close(name, found[name], wanted)


def require_close(name, found, wanted):
    # the integrator's tolerance is 1e-8 a step; everything else is exact to rounding times
    # the condition of these small problems
    size = np.abs(wanted).max() if name in MATRICES else np.abs(wanted)
    assert (np.abs(found - wanted) <= 1e-6 * size + 1e-12).all(), (
        f"{name}: {found} instead of {wanted}"
    )


@pytest.mark.parametrize("data", SMALL.values(), ids=list(SMALL))
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_the_same_problem_in_other_words_has_the_same_answers(data, change):
    require_same_answers(answers, data, change)


@pytest.mark.parametrize("name", slow_but({"S = V on some contexts"}, SMALL))
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_the_same_problem_in_other_words_has_the_same_flow(name, change):
    require_same_answers(flow_answers, SMALL[name], change)


@pytest.mark.parametrize("ask", [answers, flow_answers])
@pytest.mark.parametrize("c", [1e-6, 1e6])
def test_scale_of_tokens(c, ask):
    change = Change(
        lambda data: problems.changed(data, token_embeddings=c * data.token_embeddings), scale=c
    )
    require_same_answers(ask, SMALL["attention, cyclic"], change)


@pytest.mark.parametrize("angle", [1e-4, 1e-6, 1e-8])
def test_nearly_parallel_contexts(angle):
    # Two contexts that ask for the same token: W^mm meets both at a margin of about one, whatever
    # the angle. A third, orthogonal one ties two tokens.
    H = [[1.0, 0.0, 0.0], [np.cos(angle), np.sin(angle), 0.0], [0.0, 0.0, 1.0]]
    data = NextTokenData(H, [[1, 0, 0], [1, 0, 0], [0, 0.5, 0.5]])
    svm, finite = max_margin(data), finite_part(data)
    alone = max_margin(NextTokenData([H[0], H[2]], [[1, 0, 0], [0, 0.5, 0.5]]))
    assert svm.norm == pytest.approx(alone.norm, rel=angle)
    assert finite.compatible
    assert is_separable(data)
    path = regularization_path(data, [1.0, 100 * svm.norm])
    assert path.residual.max() <= 1e-10
    flow = gradient_flow(data, [10.0, 1e5])
    assert flow.compare(finite, svm).angle[-1] <= 1e-3


def solution_or_undecided(data):
    """The max-margin solution, or None where the solver says that it could not decide."""
    try:
        return max_margin(data)
    except ConvergenceError as error:
        undecided = error
    assert undecided.residual >= 0, undecided  # false for nan
    return None


@pytest.mark.parametrize("angle", [1e-4, 1e-6, 1e-8])
def test_nearly_parallel_contexts_that_disagree(angle):
    # The difference of the contexts decides, so that ‖W^mm‖ is about 1/angle. The answer is that,
    # or that it could not be found; never a refusal, for a W exists.
    data = NextTokenData([[1.0, 0.0], [np.cos(angle), np.sin(angle)]], [[1, 0], [0, 1]])
    if (svm := solution_or_undecided(data)) is not None:
        # two pairs (1, −1) h with margins 1 and −1: w h_0 = 1, w h_1 = −1, w ≈ (1, −2/angle)
        assert svm.norm == pytest.approx(np.hypot(1, 2 / angle) / np.sqrt(2), rel=1e-4)


def test_an_answer_whose_sum_of_pairs_lost_its_digits_is_not_returned():
    # Parallel to 1e-5, on both sides: multipliers of 5e13 sum to a W of 1e7, so that nine digits
    # of its margins are left. Either more of them are found, or that is said.
    H = [[-0.34904, -0.829834, -0.333741], [-0.332553, -0.830672, -0.334901]]
    T = [[2.711189591, 1.889032136, 0.174773840], [-2.711166701, -1.889011110, -0.174769919]]
    data = NextTokenData(
        [*H, [0.34021465971, 0.82742932454, 0.33408280015]],
        [[0, 0, 1], [1, 0, 0], [0, 0, 1]],
        token_embeddings=[*T, [-2.711141301, -1.889024366, -0.174775868]],
    )
    svm = solution_or_undecided(data)
    assert svm is None or svm.kkt_residual <= 1e-10


@pytest.mark.slow
def test_small_multipliers_are_no_certificate():
    # At angles of 1e-5 three independent contexts are separable; multipliers that shrink towards
    # zero, until their sum of pairs underflows, must not pass for a proof of the contrary.
    h = np.array([0.125730, -0.132104, 0.640422, 0.104900, -0.535669])
    for seed in range(20):
        H = h + 1e-5 * np.random.default_rng(seed).standard_normal((3, 5))
        H[1:] *= -1
        data = NextTokenData(H, [[0, 0, 1]] * 3, context_groups=[2, -1, -4])
        assert is_separable(data)
        if (svm := solution_or_undecided(data)) is not None:
            assert svm.kkt_residual <= 1e-9


def test_long_weights_do_not_excuse_a_missed_margin():
    # Almost parallel contexts, of lengths up to 300: with ‖W‖ of ten million, a residual relative
    # to both would take a margin of 0.6 for one.
    H = [[-1.5919483768838153e-03, -1.3157245349111233e-03, 4.4718691532524848e-05]]
    H += [[2.2790883913169170e-02, 1.8833384255830241e-02, -6.4474824855568135e-04]]
    H += [[4.0310548503129562, 3.3312104690970608, -0.11412963845717861]]
    H += [[-244.08955032800415, -201.74368821589692, 6.8482349858440577]]
    H += [[1.0251848243410053e-03, 8.4721290245202442e-04, -2.8842611338464656e-05]]
    P = np.array([[1, 0, 0, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]])
    data = NextTokenData(H, (P / P.sum(1, keepdims=True))[[0, 1, 2, 3, 1]])
    with suppress(NotSeparableError, ConvergenceError):
        assert max_margin(data).min_margin >= 0.9


@pytest.mark.parametrize("tiny", [1e-30, 1e-100, 1e-300])
def test_tiny_target_probabilities(tiny):
    data = NextTokenData(np.eye(2, 3), [[1 - tiny, tiny, 0], [0, 0.5, 0.5]])
    finite = finite_part(data)
    assert finite.compatible
    assert_allclose(finite.W[0, 0] - finite.W[1, 0], -np.log(tiny), rtol=1e-12)
    assert data.entropy == pytest.approx(np.log(2) / 2, rel=1e-12)
    assert 0 <= ntpnb.excess_loss(finite.W, data) < 10


@pytest.mark.parametrize("tiny", [1e-30, 1e-100, 1e-300])
def test_tiny_context_probabilities(tiny):
    # Neither W^mm nor the limit of training on compatible data knows how often a context occurs.
    P = [[1, 0, 0], [0.25, 0.75, 0], [0, 0.5, 0.5]]
    H = np.random.default_rng(3).standard_normal((3, 3))
    data, usual = NextTokenData(H, P, [tiny, 0.5, 0.5]), NextTokenData(H, P)
    assert_allclose(max_margin(data).W, max_margin(usual).W, rtol=1e-12)
    finite = finite_part(data)
    assert_allclose(finite.W, finite_part(usual).W, rtol=0, atol=1e-12)
    for trace in (
        regularization_path(data, [1.0, 1e6]),
        gradient_flow(data, [0.0, 1e6]),
    ):
        assert trace.compare(finite, max_margin(data)).angle[-1] <= 1e-2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_embeddings", 1e200 * np.eye(3)),
        ("token_embeddings", 1e-99 * np.eye(3)),
        ("candidate_counts", np.full((3, 3), 1e40)),
    ],
)
def test_arguments_beyond_floats_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name}\[0(, 0)?\] (has the largest entry|is 1e\+40)"):
        problems.changed(SMALL["ties in margins"], **{name: value})


CONTRADICTIONS = [NextTokenData([[0.0], [c]], np.eye(2)) for c in (1e-40, 1e-13, 1e13, 1e40)]
CONTRADICTIONS += [
    NextTokenData([[-2.0]] * 3, np.eye(3), token_embeddings=[[4.1 * c], [10.4 * c], [-1.3 * c]])
    for c in (1e-20, 1e-6, 1.0, 1e6)
]


@pytest.mark.parametrize("data", CONTRADICTIONS)
def test_contradictions_are_refused_at_every_scale(data):
    with pytest.raises(NotSeparableError):
        max_margin(data)
    assert not is_separable(data)


LARGE = """
import resource
import numpy as np
from ntpnb import GD, NextTokenData, descend, finite_part, max_margin

rng = np.random.default_rng(1)
V, m, q = 10_000, 12, 16
P = np.zeros((m, V))
for row in P:
    row[rng.integers(0, V, 3)] = rng.random(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = NextTokenData(rng.standard_normal((m, q)), P / P.sum(1, keepdims=True))
run = descend(data, GD(1 / data.smoothness), 20, record=[0, 20])
assert run.excess[-1] < run.excess[0]
assert finite_part(data).compatible
assert max_margin(data).kkt_residual <= 1e-10

tokens = rng.permutation(V)[:60].reshape(20, 3)  # two sequences to a context: no two levels
labels, count = np.zeros((20, V)), np.zeros((20, V))
np.put_along_axis(labels, tokens[:, :1], 1.0, axis=1)
np.put_along_axis(count, tokens, 1.0, axis=1)
count[1::2] += labels[::2]
data = NextTokenData(
    np.repeat(rng.standard_normal((10, q)), 2, axis=0),
    labels,
    candidate_counts=count,
    context_groups=np.arange(20) // 2,
)
assert max_margin(data).kkt_residual <= 1e-10
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_ten_thousand_tokens_with_small_supports():
    command = [sys.executable, "-W", "error", "-c", LARGE]
    printed = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=300
    ).stdout
    # W has 160 000 entries and the table of pairs 120 000, of 8 bytes each: room for some dozens of
    # copies, and for nothing of size V², the least of which is 800 MB.
    assert float(printed) / PEAK_UNIT < 146


@pytest.mark.slow
def test_a_flow_that_rounding_stops_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(flow_module, "EVALUATIONS", 5000)  # ten times what an ordinary flow takes
    data = problems.l24(28, n=12, norms=6, cyclic=True)
    with pytest.raises(ConvergenceError, match=r"came to log t = .* and no further"):
        gradient_flow(data, [0.0, 1e4])


def test_ties_slower_than_rounding():
    data = NextTokenData([[0.1]], [[1e-50, 1.0]])
    flow = gradient_flow(data, [0.0, 10.0])
    assert np.isfinite(flow.W).all()
    assert (np.diff(flow.excess) <= 0).all()


def test_next_order_term_with_odds_far_apart():
    H = np.array([[0.13, -0.13, 0.64], [0.10, -0.54, 0.36]])
    data = NextTokenData(H, [[0, 0, 1], [1, 0, 1.3e-115]])
    tilde, svm = ntpnb.next_order_term(data), max_margin(data)
    path = ntpnb.ridge_path(data, [-1e4])
    R = -path.log_multiplier[0]
    assert np.abs(path.W[0] - (R - np.log(R)) * svm.W - tilde).max() <= 1e-2 * np.abs(tilde).max()
