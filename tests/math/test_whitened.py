"""Coordinates in which contexts point everywhere alike: the same verdicts, and faster ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margins import prove_refused
from numpy.testing import assert_allclose

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, NotSeparableError, is_separable, max_margin
from ntpnb.basics.tolerances import VANISHES
from ntpnb.margin import separation, solve
from ntpnb.margin.growing_set import ROUND
from ntpnb.problem.equivalent import whitened


def stretched(seed, m, V, d, digits):
    """Contexts with a common part and unequal coordinates."""
    rng = np.random.default_rng([31, seed])
    h = rng.standard_normal((m, d))
    laws = np.eye(V)[rng.integers(0, V, m)]
    scales = 10.0 ** -np.linspace(0, digits, d)
    seen = h * scales @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    seen += 5 * rng.standard_normal(d) * np.linalg.norm(seen, axis=1).mean()
    seen *= rng.uniform(0.5, 2, (m, 1))
    return NextTokenData(seen, laws)


@given(st.integers(0, 10**6))
def test_the_verdict_does_not_depend_on_coordinates(seed):
    rng = np.random.default_rng(seed)
    m, V, d = rng.integers([10, 3, 2], [40, 8, 9])
    h = rng.standard_normal((m, d))
    laws = np.eye(V)[rng.integers(0, V, m)]
    A = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-1.5, 1.5, d)
    lengths = 10.0 ** rng.uniform(-2, 2, (m, 1))
    laws[: m // 3] = (laws[: m // 3] + np.eye(V)[0]) / 2  # some tie with the first token
    other = NextTokenData(lengths * (h @ A), laws)
    assert is_separable(NextTokenData(h, laws)) == is_separable(other)


def test_second_moments_become_the_identity():
    data = stretched(0, m=50, V=4, d=6, digits=3)
    found = whitened(data)
    H = found.data.context_embeddings
    assert_allclose(H.T @ H / 50, np.eye(6), atol=1e-6)
    s = np.linalg.svd(data.context_embeddings / data.context_lengths[:, None], compute_uv=False)
    assert found.condition == pytest.approx(s[0] / s[-1], rel=1e-6)


def test_coordinates_that_no_context_has_are_left_out():
    h = np.random.default_rng(1).standard_normal((30, 3))
    data = NextTokenData(h @ np.eye(3, 7), np.eye(3)[np.arange(30) % 3])
    assert whitened(data).data.shape == (3, 3)


@pytest.mark.parametrize("digits", range(5, 14))
def test_no_direction_is_lost_though_it_is_short(digits):
    data = stretched(2, m=30, V=3, d=4, digits=digits)
    found = whitened(data).data
    assert found is data or found.shape == data.shape


def test_what_is_left_as_it_is(monkeypatch):
    few = NextTokenData(np.eye(3), np.eye(3))
    nothing = NextTokenData(np.zeros((3, 1)), np.eye(3))
    for data in (few, nothing, ntpnb.datasets.figure2()):
        assert whitened(data) == (data, 1.0)
    data = stretched(2, m=30, V=3, d=4, digits=1)
    assert whitened(data).data is not data
    monkeypatch.setattr("ntpnb.problem.equivalent.WHOLE", 30 * 4 - 1)
    assert whitened(data).data is data


@pytest.mark.parametrize("digits", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_states_that_have_much_in_common_are_solved_or_refused(seed, digits):
    """Pairs are named, and contradictions found, where all directions count alike."""
    for m in (60, 160):
        data = stretched(seed, m=m, V=20, d=16, digits=digits)
        assert whitened(data).condition > 40
        if is_separable(data):
            svm = max_margin(data)
            assert svm.kkt_residual <= 1e-10
            assert svm.meets_ties
        else:
            with pytest.raises(NotSeparableError) as caught:
                max_margin(data)
            prove_refused(data, caught.value)


def test_a_contradiction_in_other_coordinates_is_one_of_the_data_as_it_stands(monkeypatch):
    """Also where a token in it stands for many that are never a target, and counts as these do."""
    seen = stretched(0, m=160, V=8, d=8, digits=2).context_embeddings
    seen = seen - seen.mean(axis=0)  # else nothing contradicts that they lose everywhere
    laws = np.eye(8, 48)[np.random.default_rng(0).integers(0, 8, 160)]
    data = NextTokenData(seen, laws)
    found = whitened(data)
    assert found.condition > ROUND
    refutation, handed_on = solve.refutation, []

    def recorded(pairs, program, direction):
        handed_on.append((pairs.for_single_tokens(program), program.roots * direction))
        return refutation(pairs, program, direction)

    monkeypatch.setattr(solve, "refutation", recorded)
    with pytest.raises(NotSeparableError) as caught:
        max_margin(data)
    prove_refused(data, caught.value)
    [(program, certificate)] = handed_on
    assert 8 in program.token[program.ordered & (certificate < 0)]  # the one for forty
    left_over = np.linalg.norm(program.weights(certificate))
    left_over += np.abs(program.column_sums(certificate)).sum()
    # In the other coordinates it vanishes relative to multipliers of unit vectors, which are longer
    # by the lengths that contexts have there.
    longest = found.data.context_lengths.max()
    assert left_over <= VANISHES * longest * np.abs(certificate[program.ordered]).sum()


def test_an_undecided_search_in_other_coordinates_is_not_the_end(monkeypatch):
    data = stretched(0, m=40, V=5, d=6, digits=1)
    verdict = is_separable(data)
    asked = []
    original = solve.MarginSearch.verdict

    def undecided_first(search):
        asked.append(search.data)
        if len(asked) == 1:
            raise ConvergenceError("undecided: ", 1.0)
        return original(search)

    monkeypatch.setattr(solve.MarginSearch, "verdict", undecided_first)
    assert is_separable(data) == verdict
    assert asked[0] is not data
    assert asked[1] is data


def test_arithmetic_that_fails_in_other_coordinates_is_not_the_end(monkeypatch):
    data = stretched(0, m=60, V=20, d=16, digits=2)
    assert is_separable(data)
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        raise np.linalg.LinAlgError("no factor")

    monkeypatch.setattr(separation, "growing_set", failing)
    assert max_margin(data).kkt_residual <= 1e-10
    assert len(calls) == 1


def test_what_progress_raises_there_ends_the_search_too():
    """Also an error of the kind that says that something is undecided."""
    told = []

    def enough(text):
        told.append(text)
        raise ConvergenceError("enough", 0.0)

    data = stretched(0, m=40, V=5, d=6, digits=1)
    assert whitened(data).data is not data
    with pytest.raises(ConvergenceError, match=r"^enough$"):
        is_separable(data, progress=enough)
    assert len(told) == 1
