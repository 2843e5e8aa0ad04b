"""The report on one's own data: every number of it against another way to the same number."""

import dataclasses
import subprocess
import sys
import types
from functools import cache

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from problems import any_problem, l24, regimes, t24
from quick import slow_but

import ntpnb
from ntpnb import datasets
from ntpnb.basics.tolerances import EPS, NEGLIGIBLE
from ntpnb.reporting import findings
from ntpnb.reporting.findings import Findings
from ntpnb.training import flow as flow_module
from ntpnb.training import late_time
from ntpnb.training.late_time import late_constant

from_text = ntpnb.NextTokenData.from_text

TEXT = "The cat sat on the mat, and the dog sat on the rug; and the cat saw the dog."


def trials(kind, number=2):
    return datasets.attention_trials(number, kind).data


def contradictions_and_more():
    """A problem that contradicts itself in some dimensions, and one in others that can be won."""
    contradicting = ntpnb.NextTokenData([[1.0, 0.5], [2.0, 1.0]], [[0.7, 0.3, 0], [0, 1, 0]])
    winning = t24(4, m=4, d=5, V=3)
    H = np.zeros((6, 7))
    H[:2, :2] = contradicting.context_embeddings
    H[2:, 2:] = winning.context_embeddings
    laws = np.concatenate([contradicting.target_probs, winning.target_probs])
    return ntpnb.NextTokenData(H, laws)


PROBLEMS = {
    "toy": datasets.toy(),
    "decoder, 5 tokens": datasets.overparameterized(1, 5, 4, 6, 2),
    "decoder, 8 tokens": datasets.overparameterized(2, 8, 10, 12, 3),
    "decoder, one-hot": datasets.overparameterized(3, 4, 8, 10, 1),
    "figure 2": datasets.figure2(),
    "acyclic": trials("acyclic")[0],
    "acyclic, another": trials("acyclic")[1],
    "cyclic": trials("cyclic")[0],
    "cyclic, another": trials("cyclic")[1],
    "contradictions and more": contradictions_and_more(),
    "contradictions": regimes()["parallel contexts"],
}
LONG_FLOWS = {
    "d > m",
    "d = m",
    "norms over six decades",
    "groups of several rows",
    "token embeddings, p > V",
    "candidate counts and groups",
    "attention, cyclic",
    "attention, repeated tokens",
    "attention, norms over six decades",
}
QUICK = ["toy", "decoder, one-hot", "acyclic", "figure 2", "contradictions"]


@pytest.fixture(autouse=True)
def short_descents(monkeypatch):
    """Thousands of steps are enough here."""
    monkeypatch.setattr(findings, "LONGEST_RUN", 15_000)


@pytest.fixture
def no_flow(monkeypatch):
    monkeypatch.setattr(findings, "FLOW_UP_TO", -1)


@cache
def report_on(name):
    return ntpnb.report(PROBLEMS[name])


# -- what is decided ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(set(regimes()) - LONG_FLOWS, regimes()))
def test_every_regime_is_reported(name, monkeypatch):
    followed = name != "attention, norms over six decades"  # its ties settle over many decades
    if not followed:  # ten times what an ordinary flow takes is enough to give up
        monkeypatch.setattr(flow_module, "EVALUATIONS", 5000)
    data = regimes()[name]
    found = ntpnb.report(data)
    assert found.separable == ntpnb.is_separable(data)
    assert found.compatible == ntpnb.finite_part(data).compatible
    goes = found.separable and len(found.order.strict) > 0
    if found.twin is not None:
        goes = len(found.twin.won) > 0
    # Without a flow the law is given where descent has settled, and not while ties still do.
    assert (found.law is not None) == (goes and followed)
    assert (found.flow is not None) == (goes and followed)
    if found.separable and goes:
        assert found.margin == 1 / ntpnb.max_margin(data).norm
    text = str(found)
    assert ("steps of gradient descent" in text) == goes
    assert "nan" not in text
    assert max(map(len, text.splitlines())) < 80  # or the page would scroll


@settings(max_examples=40)
@given(any_problem())
def test_heaviest_pairs_are_the_multipliers_or_the_certificate(data):
    found = Findings(ntpnb.implicit_bias(data))  # a report without its flow
    if not len(found.order.strict):
        assert found.pairs == []
        assert found.margin == (np.inf if found.separable else 0)
        return
    assert found.margin == (1 / found.svm.norm if found.separable else 0)
    shares = [pair.share for pair in found.pairs]
    assert abs(sum(shares) - 1) < 1e-6
    weights = found.refusal.certificate if found.svm is None else found.svm.multipliers
    whole = weights / weights.sum()
    heavy = sorted(np.flatnonzero(whole > NEGLIGIBLE), key=lambda k: -float(f"{whole[k]:.2g}"))
    # By what the summary prints, then as the order has them; shares are off by some roundings.
    np.testing.assert_allclose(shares, whole[heavy], rtol=8 * EPS)
    # Each pair is one of the order: winners and losers are whole ties of a row of that context.
    for pair in found.pairs:
        rows = np.flatnonzero(data.context_groups == pair.context)
        assert data.support[np.ix_(rows, pair.winners)].any()
        assert data.candidates[np.ix_(rows, pair.losers)].any()
        assert not set(pair.winners) & set(pair.losers)
    # Their weighted sum is W^mm up to scale, or nothing, outside the ties.
    T = reference.token_embeddings(data)
    h = dict(zip(data.group_names.tolist(), data.group_embeddings, strict=True))
    terms = [s * np.outer(T[i[0]] - T[j[0]], h[g]) for s, g, i, j in found.pairs]
    total = found.finite.subspace.reject(sum(terms))
    size = sum(map(np.linalg.norm, terms))
    expected = found.svm.W / found.svm.norm**2 if found.separable else np.zeros(data.shape)
    assert np.linalg.norm(total - expected) <= 1e-6 * size


@pytest.mark.parametrize("name", ["figure 2", "acyclic"])
def test_room_is_counted_for_linear_decoders_only(name):
    assert report_on(name).generic_dimension is None
    assert "general position" not in str(report_on(name))


# -- how many steps -------------------------------------------------------------------------------

LAST = 5000


def every_step(found, step):
    """Descent with every step recorded, its angle in degrees to where theory says, and some such.

    Where the data are not separable that is the direction of their twin.
    """
    run = ntpnb.descend(found.data, ntpnb.GD(step), LAST, record=np.arange(1, LAST + 1))
    angle = np.degrees(run.compare(found.trained).angle)
    return run, angle, np.geomspace(1.1 * angle[-1], 0.99 * np.nanmax(angle), 6)


def steps_to(angle, degrees):
    """From which step on the angle stays within so many degrees; beyond the last where it is not.

    An angle that is not known, of a matrix that is zero, is not within.
    """
    late = np.flatnonzero(~(angle <= degrees))
    return late[-1] + 2 if len(late) else 1


@pytest.mark.parametrize("name", slow_but(QUICK, PROBLEMS))
@pytest.mark.parametrize(("part", "off"), [(1, 0.25), (10, 0.025)])
def test_gradient_descent_takes_the_predicted_number_of_steps(name, part, off):
    """Within a quarter or two steps: the first steps of size 1/L cut the flow's corners.

    Of a tenth of that size within a tenth: the error is of first order in the step.
    """
    found = report_on(name)
    _, angle, goals = every_step(found, found.step / part)
    met = 0
    for degrees in goals:
        needed = steps_to(angle, degrees)
        predicted = part * 10 ** found.log10_steps(degrees)
        if part == 1 or (needed > 1 and predicted > part):  # few small steps: see `gradient_flow`
            assert abs(needed - predicted) <= max(2, off * predicted)
            met += 1
    assert met >= 3


@pytest.mark.parametrize("name", slow_but(QUICK, PROBLEMS))
def test_the_late_law_continues_the_flow(name):
    """A flow ten times as long in logarithms, read directly, says the same."""
    found = report_on(name)
    times = np.append(found.flow.log_times, np.geomspace(1.1e5, 1e6, 50))
    flow = ntpnb.gradient_flow(found.trained, times)
    longer = dataclasses.replace(
        found.way,
        log10_steps=(times - found.way.log_step) / np.log(10),
        angle=flow.compare(found.trained).angle,
    )
    for log_time in (2e5, 8e5):
        degrees = np.degrees(np.arctan(found.law[0] / log_time))
        assert longer.log10_steps_to(degrees) == pytest.approx(found.log10_steps(degrees), rel=1e-3)


def test_without_a_direction_there_is_no_late_law():
    bias = ntpnb.implicit_bias(ntpnb.NextTokenData([[1.0, 2.0]], [[0.5, 0.5]]))
    assert late_time.late_law(ntpnb.next_order_term(bias), bias.max_margin) is None


def test_a_late_law_is_of_a_matrix_like_the_direction():
    svm = ntpnb.max_margin(datasets.toy())
    with pytest.raises(ValueError, match=r"^constant_term has shape \(2, 5\); it needs \(5, 2\)$"):
        late_time.late_law(svm.W.T, svm)
    with pytest.raises(ValueError, match=r"^constant_term\[0, 0\] is nan; every entry must be fin"):
        late_time.late_law(np.full((5, 2), np.nan), svm)


@cache
def separable_problems():
    """Of both papers, each with a direction to go."""
    found = [t24(seed) for seed in range(12)] + [l24(seed, n=3) for seed in range(12)]
    found += [*trials("acyclic", 6), *trials("cyclic", 6)]
    return [d for d in found if ntpnb.is_separable(d) and len(ntpnb.token_priority(d).strict)]


def test_without_a_flow_the_constant_is_the_next_order_term(monkeypatch):
    """One solve with the margin problem's factors against Newton's method on the exponentials."""
    problems, worst = separable_problems(), 0.0
    assert len(problems) >= 20
    for data in problems:
        bias = ntpnb.implicit_bias(data)
        constant = late_constant(bias)
        with monkeypatch.context() as by_newton:
            by_newton.setattr(late_time, "_solve_by_multipliers", lambda *_: None)
            expected = ntpnb.next_order_term(bias)
        worst = max(worst, np.linalg.norm(constant - expected) / np.linalg.norm(expected))
    assert worst < 1e-8


@pytest.mark.parametrize("name", slow_but(QUICK, PROBLEMS))
def test_without_a_flow_the_steps_are_those_of_descent(name, no_flow):
    """Against descent with every step recorded: between records, the report interpolates."""
    found = ntpnb.report(PROBLEMS[name])
    assert found.flow is None
    np.testing.assert_array_equal(found.angle, found.descent.angle)
    run, angle, goals = every_step(found, found.step)
    kept = found.descent.steps <= LAST
    at = found.descent.steps[kept] - 1
    # Of data that are not separable the angle is to a direction that is itself found to 1e-8.
    rtol = 1e-9 if found.twin is None else 1e-6
    np.testing.assert_allclose(np.degrees(found.descent.angle[kept]), angle[at], rtol=rtol)
    excess = ntpnb.excess_loss(run.W[at], found.trained.data)
    np.testing.assert_allclose(found.descent.excess[kept], excess, rtol=rtol)
    for degrees in goals:
        needed = steps_to(angle, degrees)
        assert abs(needed - 10 ** found.log10_steps(degrees)) <= max(1, 0.02 * needed)
    direction = "W^mm" if found.twin is None else "the direction that wins"
    assert f"° of {direction}" in str(found)
    if found.law is not None:
        assert found.log10_steps(1) == pytest.approx(report_on(name).log10_steps(1), rel=0.05)


def test_a_twin_with_many_tied_dimensions_is_not_followed_by_a_flow(monkeypatch):
    tied = np.full((3, 3), 1 / 3)
    data = ntpnb.NextTokenData(np.eye(4)[[0, 1, 2, 0, 3]], [*tied, [1, 0, 0], [1, 0, 0]])
    twin = ntpnb.implicit_bias(data).twin
    num_dominated = np.count_nonzero(twin.data.target_probs == 0)
    assert twin.won.tolist() == [[4, 0, 1], [4, 0, 2]]
    assert num_dominated == 2
    assert twin.equal_subspace.dim == 6
    for most, followed in ((5, False), (6, True)):
        monkeypatch.setattr(findings, "FLOW_UP_TO", most)
        found = ntpnb.report(data)
        assert (found.flow is not None) == followed
        assert (found.descent is None) == followed


@pytest.mark.slow
def test_the_late_law_answers_only_where_it_holds(monkeypatch):
    """Where it is used, a flow to any time says the same; elsewhere nothing is said."""
    problems = separable_problems()[::3]  # each takes a second or two
    exact = [ntpnb.report(data).log10_steps(1) for data in problems]
    monkeypatch.setattr(findings, "FLOW_UP_TO", -1)
    monkeypatch.setattr(findings, "LONGEST_RUN", 100_000)
    held = 0
    for data, expected in zip(problems, exact, strict=True):
        found = ntpnb.report(data)
        if found.law is not None:
            held += 1
            # the law's tolerance of a twentieth is one of the exponent
            assert found.log10_steps(1) == pytest.approx(expected, rel=0.05)
            assert "within 1° of W^mm (by the late law)" in str(found)
        else:
            assert np.isnan(found.log10_steps(0.001))
            assert "by the late law" not in str(found)
            assert "and more were not tried" in str(found)
    assert 2 <= held <= len(exact) - 2


def test_without_a_flow_the_late_law_answers_and_is_named(no_flow):
    found = ntpnb.report(datasets.toy())
    assert found.law is not None
    assert "about 14 to come within 30° of W^mm\n" in str(found)
    assert str(found).count("by the late law") == 1


def test_what_needs_too_much_work_is_not_tried(no_flow, monkeypatch):
    data = datasets.toy()
    full = ntpnb.report(data).descent
    monkeypatch.setattr(findings, "WORK", 1e6)
    short = ntpnb.report(data).descent
    assert 100 < short.steps[-1] < full.steps[-1]
    assert findings.affordable_steps(data) == short.steps[-1]
    monkeypatch.setattr(findings, "WORK", 99 * 1e6 / short.steps[-1])
    none = ntpnb.report(data)
    assert none.descent is None
    assert np.isnan(none.log10_steps(30))
    assert none.law is None
    assert "not known, for 100 of descent take over a second" in str(none)


def test_large_data_are_not_even_prepared():
    """Half a gigabyte of probabilities: less than one step is affordable."""
    sizes = types.SimpleNamespace(
        context_probs=range(10_000), vocab_size=5000, shape=(5000, 256), token_embeddings=None
    )
    assert findings.affordable_steps(sizes) == 0
    assert findings.record_descent(sizes, 1.0, None) is None


def test_without_unique_multipliers_there_is_no_law(no_flow):
    """Two contexts with one embedding and the same next token share their multiplier at will."""
    data = ntpnb.NextTokenData(
        [[1.0, 0.3], [1.0, 0.3], [0.2, 1.0]], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.6, 0.3, 0.1]
    )
    found = ntpnb.report(data)
    assert found.separable
    assert found.law is None
    assert np.isnan(found.log10_steps(1))
    assert 0 < found.log10_steps(10) < 5
    assert "and more were not tried" in str(found)


def test_an_angle_near_the_least_of_floats_takes_for_ever():
    assert report_on("toy").log10_steps(1e-320) == np.inf


# -- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_text_is_counted(length):
    data = from_text(TEXT, context_length=length)
    words = TEXT.lower().replace(",", "").replace(";", "").replace(".", "").split()
    assert list(data.words) == sorted(set(words))
    numbers = [data.words.index(word) for word in words]
    counted = ntpnb.NextTokenData.from_sequences([numbers], lambda _: [1.0], context_length=length)
    assert data.contexts == counted.contexts
    np.testing.assert_array_equal(data.target_probs, counted.target_probs)
    np.testing.assert_array_equal(data.context_probs, counted.context_probs)
    assert data.shape == (len(data.words), len(data.contexts))


# -- errors, figures, cost ------------------------------------------------------------------------


WAY = ["angle to $W^{\\mathrm{mm}}$ (degrees)", "loss above the entropy (nats)"]


@pytest.mark.parametrize(
    ("data", "panels"),
    [
        (datasets.toy(), ["who decides", *WAY]),
        (t24(2, m=14, d=4), ["who contradicts"]),
        (ntpnb.NextTokenData([[1.0]], [[0.3, 0.7]]), ["who decides"]),
        (
            contradictions_and_more(),
            ["who contradicts", "angle to what wins (degrees)", "loss above its limit (nats)"],
        ),
    ],
    ids=["decided", "contradicting", "unordered", "won in part"],
)
def test_figure(data, panels, agg):
    fig = ntpnb.report(data).plot()
    assert [ax.get_title() for ax in fig.axes] == ["number of contexts", *panels]
    fig.draw_without_rendering()


def test_figure_without_a_flow(no_flow, agg):
    found = ntpnb.report(datasets.toy())
    fig = found.plot()
    ran, later = fig.axes[2].lines
    assert len(fig.axes) == 4
    assert ran.get_xdata()[-1] == later.get_xdata()[0] == np.log10(findings.LONGEST_RUN)
    assert later.get_xdata()[-1] == found.log10_steps(1)


@pytest.mark.skipif(sys.platform == "emscripten", reason="a browser starts no processes")
def test_a_printed_report_needs_no_matplotlib():
    code = (
        "import sys, ntpnb; str(ntpnb.report(ntpnb.datasets.toy())); "
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
