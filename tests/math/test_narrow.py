"""Contexts that nearly agree and contradict each other: decided with a proof, or said why not."""

import exact
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margins import answer, prove_refused
from mpmath import mp, mpf
from problems import any_problem
from quick import slow_but
from scipy.sparse import csr_array

from ntpnb import ConvergenceError, NextTokenData, is_separable, max_margin, token_priority
from ntpnb.basics.watch import Watch
from ntpnb.margin import narrow, other_norms
from ntpnb.margin.narrow import linear_programs


def linear_program(data, order, watch):
    """The first answer that proves that the data separate, or else the last, if there is any."""
    found = None
    for found in linear_programs(data, order, watch):
        if found.separates:
            break
    return found


ANGLES = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8]


def planted(kind, angle, seed, m=12, V=6, d=8, num_pairs=1):
    """Contexts in general position but for pairs of them at a small angle, with other tokens.

    ``swap``: token 0 follows the one, token 1 the other. ``shared``: token 2 follows both, too.
    """
    rng = np.random.default_rng([31, seed])
    H = rng.standard_normal((m, d))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    supports = [rng.permutation(V)[: rng.integers(1, 3)].tolist() for _ in H]
    for a in range(0, 2 * num_pairs, 2):
        u = rng.standard_normal(d)
        u -= (u @ H[a]) * H[a]
        H[a + 1] = np.cos(angle) * H[a] + np.sin(angle) * u / np.linalg.norm(u)
        supports[a : a + 2] = ([0], [1]) if kind == "swap" else ([0, 2], [1, 2])
    P = np.zeros((m, V))
    for row, support in zip(P, supports, strict=True):
        row[support] = 1 / len(support)
    return NextTokenData(H, P)


CASES = {
    "a pair": {"m": 12, "V": 6, "d": 8},
    "three pairs": {"m": 12, "V": 6, "d": 8, "num_pairs": 3},
    "many dimensions": {"m": 40, "V": 6, "d": 32, "num_pairs": 2},
    "many contexts": {"m": 60, "V": 10, "d": 20},
}


@pytest.mark.parametrize("kind", ["swap", "shared"])
@pytest.mark.parametrize("case", slow_but(["a pair", "three pairs"], CASES))
def test_small_angles_are_decided(case, kind):
    """Contexts in general position, of which two or six are close, are separable at any angle."""
    for angle in ANGLES:
        assert is_separable(planted(kind, angle, seed=0, **CASES[case]))


@pytest.mark.parametrize("kind", ["swap", "shared"])
@pytest.mark.parametrize("angle", ANGLES)
def test_small_angles_in_the_plane_are_refused_with_a_certificate(kind, angle):
    """In the plane, a third context that stands on the wrong side contradicts the two."""
    H = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)], [-1.0, -1.0], [1.0, -1.0]])
    P = np.eye(4)[[0, 1, 1, 1]]
    if kind == "shared":
        P = (P + np.eye(4)[2]) / 2
    data = NextTokenData(H, P)
    assert not is_separable(data)
    prove_refused(data, answer(data))


NARROW = st.builds(
    planted, st.sampled_from(["swap", "shared"]), st.sampled_from(ANGLES[2:]), st.integers(0, 9999)
)


@given(NARROW | any_problem())
def test_what_the_linear_program_proves_is_so(data):
    """Its verdict in 50 digits: some W has exact ties and positive margins."""
    order = token_priority(data)
    found = linear_program(data, order, Watch()) if len(order.strict) else None
    if found is None or not found.separates:
        return
    with mp.workdps(50):
        strict, w = (mp.matrix(exact.many(x)) for x in (exact.strict_matrices(data), found.W))
        w = mp.matrix(list(w))
        independent = exact.independent(exact.tie_matrices(data))
        if independent:  # the nearest W that meets all of them
            ties = mp.matrix(exact.many(np.array(independent)))
            w -= ties.T * mp.lu_solve(ties * ties.T, ties * w)
            assert max(map(abs, ties * w)) < mpf(10) ** -40
        assert min(strict * w) > 0


@pytest.mark.parametrize(
    ("ties", "missed", "at_most"),
    [
        ([[1.0, -1.0, 0.0], [2.0, -2.0, 0.0]], 1e-16, np.inf),
        ([[1.0, -1.0, 0.0]], 1e-16, 1e-15),
        (np.ones((4, 3)), 0.0, np.inf),
        (np.zeros((0, 3)), 0.0, 0.0),
    ],
)
def test_ties_that_depend_on_each_other_prove_nothing(ties, missed, at_most):
    distance = narrow._distance_to_ties(np.array(ties), np.full(len(ties), missed))
    assert distance <= at_most
    assert np.isinf(distance) == np.isinf(at_most)


@pytest.mark.parametrize(("margin", "is_proved"), [(3 + 1e-9, False), (3 + 3e-9, True)])
def test_a_margin_counts_if_rounding_of_it_and_of_a_tie_cannot_hide_that_there_is_none(
    margin, is_proved
):
    """A tie is missed by as much as a product may be wrong, so that twice that may be missing.

    To mend it costs the margin as much, and a billionth more, since what it costs is rounded, too;
    and the margin itself is a product that may be wrong.
    """
    wrong = 1e-6
    tie, pair = np.eye(2, 3)
    rows = other_norms.PairRows(csr_array([tie]), csr_array([pair]), np.ones(2), (1, 3))
    assert narrow._is_proved(np.array([wrong, margin * wrong, 1.0]), rows, wrong) is is_proved


def test_margins_of_zero_prove_nothing(monkeypatch):
    """Of two contexts that contradict each other, and a ``W`` that sees neither."""
    blind = other_norms.Solved(np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros(0), np.ones(2), "")
    monkeypatch.setattr(narrow, "largest_margin_in_max_norm", lambda *_: blind)
    data = NextTokenData([[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]])
    assert not linear_program(data, token_priority(data), Watch()).separates


@pytest.mark.parametrize("scale", narrow.SCALES)
def test_every_scale_decides_most_small_angles_by_itself(scale, monkeypatch):
    """Its tolerance is far below a margin of 1e-8."""
    monkeypatch.setattr(narrow, "SCALES", {scale: narrow.SCALES[scale]})
    found = []
    for seed in range(8):
        data = planted("swap", 1e-8, seed)
        found.append(linear_program(data, token_priority(data), Watch()))
    assert sum(one is not None and one.separates for one in found) > len(found) / 2


SWAP = planted("swap", 1e-6, 0)
TIES = NextTokenData([[1.0, 0.0], [0.0, 1.0]], [[0.2] * 5 + [0.0], [0.0] * 5 + [1.0]])
TOKENS = np.random.default_rng(0).standard_normal((6, 7))


@pytest.mark.parametrize(
    ("data", "of_a_pair", "of_a_tie"),
    [
        pytest.param(SWAP, 2 * 8, 0, id="two rows of each pair"),
        pytest.param(SWAP.replace(token_embeddings=TOKENS), 7 * 8, 0, id="all weights"),
        # with room for the program, whose matrix is sparse, and not for a dense one of its ties
        pytest.param(TIES, 0, 6 * 2, id="dense ties"),
    ],
)
def test_a_linear_program_that_is_too_large_proves_nothing(monkeypatch, data, of_a_pair, of_a_tie):
    order = token_priority(data)
    needed = len(order.strict) * of_a_pair + len(order.equal) * (of_a_pair + of_a_tie)
    for entries in (needed, needed - 1):
        monkeypatch.setattr(narrow, "ENTRIES", entries)
        found = linear_program(data, order, Watch())
        assert (found is not None and found.separates) == (entries == needed)
        assert found is not None or of_a_tie == 0


def test_a_linear_program_ends_after_its_steps_or_its_time_without_an_answer(monkeypatch):
    data = planted("swap", 1e-6, 0)
    order = token_priority(data)
    assert linear_program(data, order, Watch(seconds=600)).separates
    assert linear_program(data, order, Watch(seconds=0)) is None
    monkeypatch.setattr(other_norms, "STEPS_EACH", 0)
    assert linear_program(data, order, Watch()) is None
    with pytest.raises(ConvergenceError, match="found no certificate"):
        is_separable(data)


def test_each_scale_is_solved_by_simplex_steps_to_its_own_tolerance(monkeypatch):
    """HiGHS' default, 1e-7, hides a margin of 1e-8 in rows that are not enlarged.

    Which method it takes is not left to it, as the limit is one of simplex steps.
    """
    solve, asked = other_norms.linprog, []

    def recorded(*args, method, options, **rest):
        tolerances = {options[f"{kind}_feasibility_tolerance"] for kind in ("primal", "dual")}
        asked.append((method.lower(), *tolerances))
        return solve(*args, method=method, options=options, **rest)

    monkeypatch.setattr(other_norms, "linprog", recorded)
    data = planted("swap", 1e-6, 0)
    list(linear_programs(data, token_priority(data), Watch()))
    assert asked == [("highs-ds", tolerance) for tolerance in (1e-7, 1e-9, 1e-10)]


@pytest.mark.parametrize("angle", [1e-6, 1e-8])
def test_an_optimum_out_of_reach_says_where_it_is_narrow(angle):
    data = planted("swap", angle, 0)
    message = (
        r"^undecided: .* reached a KKT residual of .*, not small enough, though a linear program "
        r"proves that the data are separable; contexts 0 and 1 are followed by different tokens "
        rf"and differ by {angle:.1e} of their length, and merge_tolerance makes one of such "
        r"contexts$"
    )
    with pytest.raises(ConvergenceError, match=message):
        max_margin(data)
    merged = data.replace(merge_tolerance=10 * angle)
    assert merged.num_contexts == data.num_contexts - 1
    assert max_margin(merged).kkt_residual < 1e-10


def test_contexts_are_named_that_nearly_agree_and_have_other_supports():
    """Of three that nearly agree, the two that contradict each other."""
    H = [[1.0, 0.0], [1.0, 1e-9], [0.0, 1.0], [1.0, 2e-9], [0.0, 1.0 + 1e-3]]
    P = np.eye(3)[[0, 0, 1, 1, 2]]
    with pytest.raises(ConvergenceError, match=r"; contexts 0 and 3 are .* by 2.0e-09 of"):
        max_margin(NextTokenData(H, P), seconds=0)
    P = np.eye(3)[[0, 0, 1, 0, 2]]
    with pytest.raises(ConvergenceError) as undecided:
        max_margin(NextTokenData(H, P), seconds=0)
    assert "contexts" not in str(undecided.value)
