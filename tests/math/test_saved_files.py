"""Files from elsewhere: damaged or crafted, each is one ``ValueError`` that says what is wrong."""

import copy
import io
import json
import pickle
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from problems import any_problem
from saved import again, arrays_of, holds, known_bias, structure_of, write
from scipy.sparse import csr_array

import ntpnb
from ntpnb import NextTokenData, datasets
from ntpnb.basics import saving
from ntpnb.bias.partition import Contradiction

TOY = datasets.toy()
CONTRADICTION = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
SIZE = 1 << 11  # with so many contexts and tokens, tables stay sparse
COLLAPSED = NextTokenData([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]])


def large():
    rows, some = np.arange(SIZE), np.arange(SIZE) % 7
    laws = saving.sparse.csr_array((np.ones(SIZE), (rows, some)), shape=(SIZE, SIZE))
    return NextTokenData(np.eye(7)[some] + 1.0, laws)


def read(folder, arrays, structure=None):
    write(folder / "thing.npz", arrays, structure)
    return ntpnb.load(folder / "thing.npz")


def but_with(thing, **changes):
    """A copy with other attributes, which nothing has looked at."""
    other = copy.copy(thing)
    vars(other).update(changes)
    return other


@contextmanager
def refused(*words):
    """What is within is refused in one line, which says these words."""
    with pytest.raises(ValueError, match="is no result that ntpnb can read") as caught:
        yield
    require_one_clear_line(caught.value, *words)


def require_one_clear_line(error, *words):
    message = str(error)
    assert "thing." in message
    assert "\n" not in message
    assert "pickle" not in message
    for word in words:
        assert word in message, message


def refused_or_read(folder, arrays, structure=None):
    """What is read, or None where it is refused in one clear line."""
    try:
        return read(folder, arrays, structure)
    except ValueError as error:
        require_one_clear_line(error, "is no result that ntpnb can read")
    return None


def every_place(plain, path=()):
    """Paths to the values of a nested dictionary or list, to eight of each."""
    yield path
    if isinstance(plain, dict | list):
        parts = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for key, value in list(parts)[:8]:
            yield from every_place(value, (*path, key))


def changed(plain, path, value):
    """A copy with another value at a place, or without what stands there."""
    other = copy.deepcopy(plain)
    place = other
    for key in path[:-1]:
        place = place[key]
    if value is changed:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return other


# -- what is damaged ------------------------------------------------------------------------------

WRONG = [changed, None, "x", -1, 10**30, float("nan"), [], {}, [[1.0]], {"object": 0}, True]


@pytest.mark.parametrize(
    "thing",
    [TOY, ntpnb.token_priority(TOY), ntpnb.max_margin(TOY), known_bias(CONTRADICTION)],
    ids=lambda thing: type(thing).__name__,
)
def test_any_value_may_be_wrong(thing, tmp_path):
    arrays, structure = arrays_of(thing), structure_of(thing)
    rng = np.random.default_rng(0)
    for place in list(every_place(structure))[1:]:
        for value in rng.permutation(np.array(WRONG, dtype=object))[:3]:
            back = refused_or_read(tmp_path, arrays, changed(structure, place, value))
            # a value that nobody believes, or that is as good as the one that was there
            assert back is None or isinstance(back, saving.Storable)


@pytest.mark.parametrize(
    "thing",
    [TOY, datasets.figure2(), ntpnb.token_priority(TOY), ntpnb.max_margin(TOY), known_bias(TOY)],
    ids=lambda thing: type(thing).__name__,
)
def test_any_array_may_be_another(thing, tmp_path):
    arrays = arrays_of(thing)
    for name, array in arrays.items():
        for other in (array[:0], array.ravel()[:1], 1j * array, array.astype("f4"), np.ones(2)):
            back = refused_or_read(tmp_path, arrays | {name: other})
            assert back is None or type(back) is type(thing)


@pytest.mark.parametrize("thing", [TOY, known_bias(TOY)], ids=["data", "bias"])
def test_any_byte_may_be_wrong(thing, tmp_path):
    path = tmp_path / "thing.npz"
    thing.save(path)
    sound = path.read_bytes()
    for place in np.random.default_rng(1).integers(0, len(sound), 80):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            back = ntpnb.load(path)
        except ValueError as error:
            require_one_clear_line(error)
        else:
            # a date, or another field that nobody reads
            assert saving.written(back) == saving.written(thing)


def test_a_file_that_ends_too_early(tmp_path):
    path = tmp_path / "thing.npz"
    TOY.save(path)
    sound = path.read_bytes()
    for length in range(0, len(sound), len(sound) // 40):
        path.write_bytes(sound[:length])
        with refused():
            ntpnb.load(path)


RUN = ntpnb.descend(TOY, ntpnb.GD(0.5), 6)  # of seven records, as no axis of W is long
BATCH = ntpnb.descend([TOY, TOY], ntpnb.GD(0.5), 6)
FLOW = ntpnb.gradient_flow(TOY, [0.0, 1.0, 2.0])
METRIC = ntpnb.adam_metric(TOY, (0.0, 0.9), 200)
ROOM = ntpnb.thresholds.compatible_dimension(TOY.support)
ORDER = ntpnb.token_priority(TOY)
SVM = ntpnb.max_margin(TOY)
IN_SUM_NORM = ntpnb.max_margin(TOY, norm="sum")
FINITE = ntpnb.finite_part(TOY)
BIAS = known_bias(TOY)
TWIN = ntpnb.implicit_bias(CONTRADICTION).twin
FOUND = ntpnb.report(TOY, words=list("abcde"), W=np.ones((2, *TOY.shape)))
LONGER = TOY.replace(context_embeddings=3 * TOY.context_embeddings)
WEIGHTS = np.full(len(ORDER.strict), 1 / len(ORDER.strict))


def refusal(weights):
    return {"_max_margin_or_refusal": ntpnb.NotSeparableError("no", weights)}


BAD_GROUPS = [np.array([0, 1]), np.array([0, 2, 1]), np.array([0, 1, 1])]
BAD_ROWS = [np.array([0, 1, 2]), np.array([[0, 1]]), np.array([[9, 0, 1]])]
BAD_TOKENS = [np.array([[0, -1, 1]]), np.array([[0, 0, 5]])]
FOREIGN = [{"_embeddings": np.ones((3, 2), dtype=int)}, {"_extra": np.ones((1, 1))}]
NO_PROOFS = [refusal(-WEIGHTS), refusal(0 * WEIGHTS), refusal(WEIGHTS[1:])]
NO_TOKENS = ROOM.tokens[:0]

# A thing, and by what is said of it, the attributes that are changed.
MISFITS = [
    (
        TOY,
        {
            "context_embeddings": {"_embeddings": np.full((3, 2), np.nan)},
            "context_embeddings has 2 rows": {"_embeddings": np.ones((2, 2))},
            "context_probs": {"context_probs": np.full(3, 0.5)},
            "context_groups": {"context_groups": np.array([0, 0, 1])},
            "NextTokenData.contexts": {"contexts": (1,)},
            "token_embeddings": {"token_embeddings": np.ones((1, 1))},
        },
    ),
    *[(TOY, {"other types": foreign}) for foreign in FOREIGN],
    (
        RUN,
        {
            "steps has shape (6,); others have (7,) records": {"steps": RUN.steps[1:]},
            "W has shape (6, 5, 2); others have (7,) records": {"W": RUN.W[1:]},
        },
    ),
    (
        BATCH,
        {
            "W has shape (1, 7, 5, 2); others have (2, 7) records": {"W": BATCH.W[:1]},
            "; others have (2, ": {"excess": BATCH.excess[:, 1:]},
        },
    ),
    (FLOW, {"_inside has shape": {"_inside": FLOW._inside[1:]}}),
    (
        METRIC,
        {
            "AdamMetric.D[0, 0] is nan": {"D": METRIC.D * np.nan},
            "AdamMetric.D has 1 dimension": {"D": METRIC.D[0]},
            "AdamMetric.error is nan": {"error": np.nan},
            "beta1 is 1.0; it must lie in [0, 1)": {"betas": np.ones(2)},
            "betas has shape (3,)": {"betas": np.zeros(3)},
            "steps is 3": {"steps": 3},
        },
    ),
    (
        ROOM,
        {
            "log-odds of 0 tokens need another one": {"tokens": NO_TOKENS},
            "CompatibleDimension.tokens has dtype": {"tokens": ROOM.tokens[None]},
            "CompatibleDimension.dim is 0": {"dim": 0},
            f"CompatibleDimension.dim is {ROOM.dim + 1}": {"dim": ROOM.dim + 1},
            "0 log-odds of": {"equations": 0},
        },
    ),
    (
        SVM,
        {
            "MarginSolution.W has shape (5, 1)": {"W": SVM.W[:, :1]},
            "MarginSolution.W is not what its multipliers": {"W": 2 * SVM.W},
            "MarginSolution's equal multipliers": {"equal_multipliers": np.ones(99)},
            ": strict_multipliers is of another type": {"strict_multipliers": SVM},
            ": _data is of another type": {"_data": TOY.context_probs},
        },
    ),
    *[(SVM, {": W is of another type": {"W": W}}) for W in ([[1.0]], np.ones((5, 2), dtype=int))],
    *[(SVM, {": norm is of another type": {"norm": norm}}) for norm in ("1.0", np.ones(1))],
    (
        IN_SUM_NORM,
        {"NormMarginSolution has a negative multiplier": {"multipliers": -IN_SUM_NORM.multipliers}},
    ),
    (
        FINITE,
        {
            "FinitePart.W has shape (2, 5)": {"W": FINITE.W.T},
            "FinitePart.W lies outside the tied subspace": {"W": FINITE.W + np.eye(5, 2)},
        },
    ),
    *[
        (ORDER, {"TokenPriority.groups needs 3 names that increase": {"groups": groups}})
        for groups in BAD_GROUPS
    ],
    *[
        (ORDER, {f"TokenPriority.{name} needs rows (group, i, j) of its groups": {name: rows}})
        for name in ("equal", "_listed_strict")
        for rows in BAD_ROWS
    ],
    *[
        (ORDER, {f"TokenPriority.{name} names tokens that there are not": {name: rows}})
        for name in ("equal", "_listed_strict")
        for rows in BAD_TOKENS
    ],
    (
        BIAS,
        {
            "finite_part is one of other data": {"finite_part": ntpnb.finite_part(LONGER)},
            "the certificate proves nothing": refusal(WEIGHTS),
        },
    ),
    *[(BIAS, {"certificate": none}) for none in NO_PROOFS],
    (
        TWIN,
        {
            "lack tokens that follow": {"original": TWIN.data, "data": CONTRADICTION},
            "correction is 99": {"correction": 99.0},
            "differ in more than distributions": {
                "data": TWIN.data.replace(context_embeddings=[[2.0], [7.0]])
            },
        },
    ),
    (
        FOUND,
        {
            "W has shape (2, 2, 5)": {"W": np.ones((2, 2, 5))},
            "W has entries that are not finite": {"W": np.full(TOY.shape, np.nan)},
            "words has 2 entries; the vocabulary has 5": {"words": ("a", "b")},
        },
    ),
]


@pytest.mark.parametrize(
    ("thing", "change", "message"),
    [
        pytest.param(thing, change, message, id=f"{type(thing).__name__}-{message}")
        for thing, rows in MISFITS
        for message, change in rows.items()
    ],
)
def test_parts_that_do_not_fit_each_other_are_named(thing, change, message):
    assert saving.written(again(thing)) == saving.written(thing)
    with refused(f"in the {type(thing).__name__}: ", message):
        again(but_with(thing, **change))


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("token", {5: 10**6}, "in the Table"),
        ("token", {5: -1}, "in the Table"),
        ("row", {3: -4}, "in the Table"),
        ("row", {-1: 10**6}, "in the Table"),
        ("value", {0: np.nan}, "target_probs"),
        ("value", {0: -1.0}, "target_probs"),
        ("token", float, ": token has dtype float64"),
        ("row", float, ": row has dtype float64"),
    ],
)
def test_a_table_with_wrong_entries(part, change, named, tmp_path):
    data = large()
    arrays = arrays_of(data)
    expected = getattr(data._laws.entries, part)
    *_, name = [key for key, array in arrays.items() if np.array_equal(array, expected)]
    if isinstance(change, dict):
        for place, value in change.items():
            arrays[name][place] = value
    else:
        arrays[name] = arrays[name].astype(change)
    with refused(named):
        read(tmp_path, arrays)


def test_a_table_of_a_wrong_shape(tmp_path):
    data = large()
    structure = structure_of(data)
    whole = f'{{"tuple": [{SIZE}, {SIZE}]}}'
    text = json.dumps(structure).replace(whole, f'{{"tuple": [{SIZE}, -3]}}')
    assert text != json.dumps(structure)
    with refused("in the Table"):
        read(tmp_path, arrays_of(data), text.encode())


def test_a_sparse_table_with_indices_out_of_range(tmp_path):
    """They would crash the process where it is multiplied."""
    arrays = arrays_of(ORDER)
    for name, array in arrays.items():
        if np.array_equal(array, ORDER.sparse_components.indices):
            arrays[name] = array + 99
    with refused("in the TokenPriority: "):
        read(tmp_path, arrays)


# -- what is no array of numbers ------------------------------------------------------------------


def test_objects_of_python_are_never_read(tmp_path):
    path = tmp_path / "thing.npz"
    path.write_bytes(pickle.dumps([1, 2, 3]))
    with refused():
        ntpnb.load(path)


HUGE = io.BytesIO()
np.lib.format.write_array_header_1_0(
    HUGE, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
)


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (np.array([{"a": 1}], dtype=object), "'array_0' is no array of numbers"),
        (HUGE.getvalue(), "'array_0' is no array of numbers"),
        (np.array(["a"]), "in the "),
        (np.array([1j]), "in the "),
    ],
)
def test_arrays_of_other_things_than_numbers(array, named, tmp_path):
    path = tmp_path / "thing.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, content in (arrays_of(TOY) | {"array_0": array}).items():
            if isinstance(content, bytes):  # of an array that claims to be huge
                archive.writestr(f"{key}.npy", content)
            else:
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, content)
    with refused(named):
        ntpnb.load(path)


def test_arrays_of_a_foreign_archive(tmp_path):
    np.savez(tmp_path / "thing.npz", W=np.ones(3))
    with refused("does not say what its arrays are"):
        ntpnb.load(tmp_path / "thing.npz")
    np.savez_compressed(tmp_path / "thing.npz", **arrays_of(TOY))
    with refused("'array_0' is compressed, which ntpnb never does"):
        ntpnb.load(tmp_path / "thing.npz")


# -- what is forged -------------------------------------------------------------------------------

PROOF = ("norm", "min_margin", "kkt_residual", "duality_gap", "tie_residual")


@pytest.mark.parametrize(
    ("data", "norm"),
    [(TOY, "frobenius"), (datasets.figure2(), "frobenius"), (COLLAPSED, "frobenius"), (TOY, "max")],
)
def test_what_a_solution_says_of_itself_is_measured_anew(data, norm):
    svm = ntpnb.max_margin(data, norm=norm)
    forged = {name: 9.0 for name in PROOF if hasattr(svm, name)}
    back = again(replace(svm, **forged))
    for name in forged:
        assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-12, abs=1e-14), name
    np.testing.assert_array_equal(back.W, svm.W)
    np.testing.assert_array_equal(back.multipliers, svm.multipliers)
    assert back.margin_bounds == pytest.approx(svm.margin_bounds)


def test_a_solution_that_is_none_shows_its_margin():
    shared = SVM.strict_multipliers
    half = {name: 0.5 * getattr(SVM, name) for name in ("W", "equal_multipliers")}
    half["strict_multipliers"] = replace(shared, table=csr_array(0.5 * shared.table))
    back = again(replace(SVM, **half))
    assert back.min_margin == pytest.approx(0.5)
    assert back.kkt_residual > 0.1


@pytest.mark.parametrize("large", [1, 2**20])
def test_a_finite_part_is_measured_anew(monkeypatch, large):
    monkeypatch.setattr("ntpnb.tied.large.LARGE", large)  # at 1, as large data are
    found = ntpnb.finite_part(TOY)
    forged = replace(found, gradient_norm=3.0, residual=4.0, compatible=False)
    back = again(forged)
    assert (back.gradient_norm, back.residual) == (found.gradient_norm, found.residual)
    assert back.compatible
    assert not again(replace(forged, W=2 * found.W)).compatible


def test_the_order_of_a_bias_is_computed_anew():
    order = replace(ORDER, equal=np.array([[0, 0, 1]]))
    back = again(but_with(BIAS, order=order))
    np.testing.assert_array_equal(back.order.equal, ORDER.equal)


def test_a_solution_that_proves_nothing_separates_no_data():
    svm = ntpnb.max_margin(CONTRADICTION.replace(target_probs=[[1, 0], [1, 0]]))
    for lam in ([3.0, 0.5], [0.0, 0.0]):
        W = np.array([[lam[0] - lam[1]], [lam[1] - lam[0]]])
        forged = replace(svm, W=W, strict_multipliers=np.array(lam), _data=CONTRADICTION)
        with pytest.raises(ValueError, match="margin solution is none: its KKT residual"):
            again(but_with(known_bias(CONTRADICTION), _max_margin_or_refusal=forged))


def test_what_proves_a_twin_is_computed_anew():
    forged = Contradiction(np.array([5.0, 0.0]), 123.0)
    back = again(but_with(TWIN, _contradiction=forged))
    assert back.certificate == pytest.approx(TWIN.certificate)
    assert back.residual == pytest.approx(TWIN.residual, abs=1e-12)


@pytest.mark.parametrize("name", ["order", "original_order", "_contradiction", "_limits"])
def test_what_is_computed_anew_is_not_read(name, tmp_path):
    structure = structure_of(TWIN)
    holds(structure, "Twin")[name] = 77.0
    with refused(f"Twin.{name} is never saved"):
        read(tmp_path, arrays_of(TWIN), structure)


def test_what_follows_from_a_report_is_not_read(tmp_path):
    structure = structure_of(FOUND)
    holds(structure, "Report")["margin"] = 77.0
    with refused("in the Report: TypeError: ", "'margin'"):
        read(tmp_path, arrays_of(FOUND), structure)


@settings(max_examples=15)
@given(any_problem())
def test_solutions_of_any_problem_come_back_as_they_were(data):
    with suppress(ntpnb.NotSeparableError, ntpnb.ConvergenceError):
        svm = ntpnb.max_margin(data)
        back = again(replace(svm, **dict.fromkeys(PROOF, 9.0)))
        for name in PROOF:
            assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-9, abs=1e-12)
