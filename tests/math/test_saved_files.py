"""Files from elsewhere: damaged or crafted, each is one ``ValueError`` that says what is wrong."""

import copy
import io
import json
import pickle
import re
import zipfile
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
from ntpnb.bias import Twin
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


def require_one_clear_line(error, *words):
    message = str(error)
    assert "is no result that ntpnb can read" in message
    assert "thing." in message
    assert "\n" not in message
    assert "pickle" not in message
    for word in words:
        assert word in message, message


def every_place(plain, path=()):
    """Paths to every value of a nested dictionary or list."""
    yield path
    parts = plain.items() if isinstance(plain, dict) else enumerate(plain)
    if isinstance(plain, dict | list):
        for key, value in list(parts)[:8]:
            yield from (
                every_place(value, (*path, key))
                if isinstance(value, dict | list)
                else [(*path, key)]
            )


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
            try:
                back = read(tmp_path, arrays, changed(structure, place, value))
            except ValueError as error:
                require_one_clear_line(error)
            else:  # a value that nobody believes, or that is as good as the one that was there
                assert isinstance(back, saving.Storable)


@pytest.mark.parametrize(
    "thing",
    [TOY, datasets.figure2(), ntpnb.token_priority(TOY), ntpnb.max_margin(TOY), known_bias(TOY)],
    ids=lambda thing: type(thing).__name__,
)
def test_any_array_may_be_another(thing, tmp_path):
    arrays = arrays_of(thing)
    for name, array in arrays.items():
        for other in (array[:0], array.ravel()[:1], 1j * array, array.astype("f4"), np.ones(2)):
            try:
                back = read(tmp_path, arrays | {name: other})
            except ValueError as error:
                require_one_clear_line(error)
            else:
                assert type(back) is type(thing)


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
            assert saving.written(back) == saving.written(
                thing
            )  # a date, or another field that nobody reads


def test_a_file_that_ends_too_early(tmp_path):
    path = tmp_path / "thing.npz"
    TOY.save(path)
    sound = path.read_bytes()
    for length in range(0, len(sound), len(sound) // 40):
        path.write_bytes(sound[:length])
        with pytest.raises(ValueError, match="can read") as caught:
            ntpnb.load(path)
        require_one_clear_line(caught.value)


@pytest.mark.parametrize("name", ["context_embeddings", "context_probs", "_laws", "context_groups"])
def test_a_missing_field_is_named(name, tmp_path):
    structure = structure_of(TOY)
    del holds(structure, "NextTokenData")[name]
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays_of(TOY), structure)
    require_one_clear_line(caught.value, name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("_embeddings", [[float("nan"), 1.0]] * 3, "context_embeddings"),
        ("_embeddings", [[1.0, 1.0]] * 2, "context_embeddings has 2 rows"),
        ("_embeddings", [1.0, 2.0, 3.0], "context_embeddings has 1 dimension"),
        ("_embeddings", [[1, 2]] * 3, "other types"),
        ("context_probs", [0.5, 0.5, 0.5], "context_probs"),
        ("context_probs", [1.5, -0.5, 0.0], "context_probs"),
        ("context_groups", [0, 0, 1], "context_groups"),
        ("contexts", (1,), "NextTokenData.contexts"),
        ("_extra", [[1.0]], "other types"),
        ("token_embeddings", [[1.0]], "token_embeddings"),
    ],
)
def test_data_that_the_constructor_would_refuse(name, value, words, tmp_path):
    held = np.array(value) if isinstance(value, list) else value
    but_with(TOY, **{name: held}).save(tmp_path / "thing.npz")
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(tmp_path / "thing.npz")
    require_one_clear_line(caught.value, words)


RUN = ntpnb.descend(TOY, ntpnb.GD(0.5), 6)  # of seven records, as no axis of W is long
BATCH = ntpnb.descend([TOY, TOY], ntpnb.GD(0.5), 6)
FLOW = ntpnb.gradient_flow(TOY, [0.0, 1.0, 2.0])
METRIC = ntpnb.adam_metric(TOY, (0.0, 0.9), 200)
ROOM = ntpnb.thresholds.compatible_dimension(TOY.support)


@pytest.mark.parametrize(
    ("thing", "name", "value", "words"),
    [
        (RUN, "steps", RUN.steps[1:], r"steps has shape \(6,\); others have \(7,\) records"),
        (RUN, "W", RUN.W[1:], r"W has shape \(6, 5, 2\); others have \(7,\) records"),
        (RUN, "norm", np.append(RUN.norm, 1.0), r"norm has shape \(8,\)"),
        (BATCH, "steps", BATCH.steps[:2], r"steps has shape \(2,\); others have \(7,\) records"),
        (BATCH, "W", BATCH.W[:1], r"W has shape \(1, 7, 5, 2\); others have \(2, 7\) records"),
        (BATCH, "excess", BATCH.excess[:, 1:], r"others have \(2, [67]\) records"),
        (FLOW, "_inside", FLOW._inside[1:], "_inside has shape"),
        (ntpnb.compare(RUN.W, TOY), "angle", np.ones(3), "records"),
        (FLOW, "log_times", FLOW.log_times[1:], "records"),
        (ntpnb.report(TOY).way, "angle", np.ones(3), "records"),
        (METRIC, "D", METRIC.D * np.nan, r"AdamMetric.D\[0, 0\] is nan"),
        (METRIC, "D", METRIC.D[0], "AdamMetric.D has 1 dimension"),
        (METRIC, "error", np.nan, "AdamMetric.error is nan"),
        (METRIC, "betas", np.ones(2), r"beta1 is 1.0; it must lie in \[0, 1\)"),
        (METRIC, "betas", np.zeros(3), r"betas has shape \(3,\)"),
        (METRIC, "steps", 3, "steps is 3"),
        (ROOM, "tokens", ROOM.tokens[:0], "log-odds of 0 tokens need another one"),
        (ROOM, "tokens", ROOM.tokens.reshape(1, -1), "CompatibleDimension.tokens has dtype"),
        (ROOM, "dim", 0, "CompatibleDimension.dim is 0"),
        (ROOM, "dim", ROOM.dim + 1, "CompatibleDimension.dim is"),
        (ROOM, "equations", 0, "0 log-odds of"),
    ],
)
def test_parts_of_a_result_that_do_not_fit_each_other(thing, name, value, words):
    assert saving.written(again(thing)) == saving.written(thing)
    with pytest.raises(ValueError, match=rf"in the {type(thing).__name__}: .*{words}") as caught:
        again(replace(thing, **{name: value}))
    require_one_clear_line(caught.value)


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        ("token", 5, 10**6),
        ("token", 5, -1),
        ("row", 3, -4),
        ("row", 3, 10**6),
        ("row", -1, 10**6),
        ("value", 0, np.nan),
        ("value", 0, -1.0),
    ],
)
def test_a_table_with_wrong_entries(part, place, value, tmp_path):
    data = large()
    arrays = arrays_of(data)
    expected = getattr(data._laws.entries, part)
    (name,) = [
        key
        for key, array in arrays.items()
        if key != saving.STRUCTURE and np.array_equal(array, expected)
    ][-1:]
    arrays[name][place] = value
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays)
    require_one_clear_line(caught.value, "in the Table" if part != "value" else "target_probs")


def test_a_table_whose_tokens_are_no_integers(tmp_path):
    data = large()
    tokens = data._laws.entries.token
    arrays = {
        name: array.astype(float) if np.array_equal(array, tokens) else array
        for name, array in arrays_of(data).items()
    }
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays)
    require_one_clear_line(caught.value, "in the Table", "token")


def test_a_table_of_a_wrong_shape(tmp_path):
    data = large()
    text = json.dumps(structure_of(data))
    wrong = text.replace(f'{{"tuple": [{SIZE}, {SIZE}]}}', f'{{"tuple": [{SIZE}, -3]}}')
    assert wrong != text
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays_of(data), wrong.encode())
    require_one_clear_line(caught.value, "in the Table")


# -- what is no array of numbers ------------------------------------------------------------------


def test_objects_of_python_are_never_read(tmp_path):
    arrays = arrays_of(TOY) | {"array_0": np.array([{"a": 1}], dtype=object)}
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays)
    require_one_clear_line(caught.value, "array_0")
    path = tmp_path / "thing.npz"
    path.write_bytes(pickle.dumps([1, 2, 3]))
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(path)
    require_one_clear_line(caught.value)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([b"a"])])
def test_arrays_of_other_things_than_numbers(array, tmp_path):
    with pytest.raises(ValueError, match="can read") as caught:
        read(tmp_path, arrays_of(TOY) | {"array_0": array})
    require_one_clear_line(caught.value)


def test_arrays_of_a_foreign_archive(tmp_path):
    np.savez(tmp_path / "thing.npz", W=np.ones(3))
    with pytest.raises(ValueError, match="does not say what its arrays are"):
        ntpnb.load(tmp_path / "thing.npz")
    np.savez_compressed(tmp_path / "thing.npz", **arrays_of(TOY))
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(tmp_path / "thing.npz")
    require_one_clear_line(caught.value, "'array_0' is compressed, which ntpnb never does")


def test_an_array_that_claims_to_be_huge(tmp_path):
    stored = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(stored, header)
    path = tmp_path / "thing.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in arrays_of(TOY).items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{key}.npy", (stored if key == "array_0" else content).getvalue())
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(path)
    require_one_clear_line(caught.value, "array_0")


# -- what is forged -------------------------------------------------------------------------------

FORGED = {"norm": 1.0, "min_margin": 9.0, "kkt_residual": 0.0, "duality_gap": 0.0}


@pytest.mark.parametrize(
    "data", [TOY, datasets.figure2(), COLLAPSED], ids=["toy", "figure 2", "collapsed"]
)
def test_what_a_solution_says_of_itself_is_measured_anew(data):
    svm = ntpnb.max_margin(data)
    back = again(replace(svm, **FORGED, tie_residual=0.5))
    for name in ("norm", "min_margin", "kkt_residual", "duality_gap", "tie_residual"):
        assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-12, abs=1e-14), name
    np.testing.assert_array_equal(back.W, svm.W)
    np.testing.assert_array_equal(back.multipliers, svm.multipliers)
    assert back.margin_bounds == pytest.approx(svm.margin_bounds)


def test_a_matrix_that_its_multipliers_do_not_make():
    svm = ntpnb.max_margin(TOY)
    with pytest.raises(ValueError, match=r"MarginSolution\.W is not what its multipliers"):
        again(replace(svm, W=2 * svm.W))


def test_a_solution_that_is_none_shows_its_margin():
    svm = ntpnb.max_margin(TOY)
    shared = svm.strict_multipliers
    half = {name: 0.5 * getattr(svm, name) for name in ("W", "equal_multipliers")}
    half["strict_multipliers"] = replace(shared, table=csr_array(0.5 * shared.table))
    back = again(replace(svm, **half))
    assert back.min_margin == pytest.approx(0.5)
    assert back.kkt_residual > 0.1


def test_a_solution_in_another_norm_is_measured_anew():
    svm = ntpnb.max_margin(TOY, norm="max")
    back = again(replace(svm, norm=0.1, min_margin=5.0, duality_gap=0.0))
    assert back.norm == pytest.approx(svm.norm)
    assert back.min_margin == pytest.approx(1.0)


def test_a_finite_part_is_measured_anew():
    found = ntpnb.finite_part(TOY)
    forged = replace(found, gradient_norm=3.0, residual=4.0, compatible=False)
    back = again(forged)
    assert (back.gradient_norm, back.residual) == (found.gradient_norm, found.residual)
    assert back.compatible
    assert not again(replace(forged, W=2 * found.W)).compatible
    with pytest.raises(ValueError, match=r"FinitePart\.W lies outside the tied subspace"):
        again(replace(forged, W=found.W + np.eye(5, 2)))


@pytest.mark.parametrize("name", ["equal", "_listed_strict"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 2], "needs rows (group, i, j) of its groups"),
        ([[0, 1]], "needs rows (group, i, j) of its groups"),
        ([[9, 0, 1]], "needs rows (group, i, j) of its groups"),
        ([[0, -1, 1]], "names tokens that there are not"),
        ([[0, 0, 5]], "names tokens that there are not"),
    ],
)
def test_an_order_with_rows_that_name_nothing(name, rows, message):
    order = ntpnb.token_priority(TOY)
    assert again(order).shape == (3, 5)
    with pytest.raises(ValueError, match=re.escape(f"TokenPriority.{name} {message}")):
        again(but_with(order, **{name: np.array(rows)}))


@pytest.mark.parametrize("groups", [[0, 1], [0, 2, 1]])
def test_an_order_with_other_groups(groups):
    order = ntpnb.token_priority(TOY)
    with pytest.raises(ValueError, match=r"TokenPriority\.groups needs 3 names that increase"):
        again(but_with(order, groups=np.array(groups)))


def test_multipliers_of_other_pairs():
    svm = ntpnb.max_margin(TOY)
    with pytest.raises(ValueError, match="MarginSolution's equal multipliers"):
        again(replace(svm, equal_multipliers=np.append(svm.equal_multipliers, 0.0)))


def test_the_order_of_a_bias_is_computed_anew():
    bias = known_bias(TOY)
    order = replace(bias.order, equal=np.array([[0, 0, 1]]))
    back = again(but_with(bias, order=order))
    np.testing.assert_array_equal(back.order.equal, bias.order.equal)


def test_a_forged_refusal_is_refused():
    bias = known_bias(TOY)
    num_pairs = len(bias.order.strict)
    weights = np.full(num_pairs, 1 / num_pairs)

    def refused(forged):
        error = ntpnb.NotSeparableError("no", forged)
        return but_with(bias, _max_margin_or_refusal=error)

    with pytest.raises(ValueError, match="the certificate proves nothing"):
        again(refused(weights))
    for forged in (-weights, 0 * weights, weights[1:]):
        with pytest.raises(ValueError, match="certificate"):
            again(refused(forged))
    assert not again(known_bias(CONTRADICTION)).separable


def test_a_solution_that_proves_nothing_separates_no_data():
    svm = ntpnb.max_margin(CONTRADICTION.replace(target_probs=[[1, 0], [1, 0]]))
    for lam in ([3.0, 0.5], [0.0, 0.0]):
        W = np.array([[lam[0] - lam[1]], [lam[1] - lam[0]]])
        forged = replace(svm, W=W, strict_multipliers=np.array(lam), _data=CONTRADICTION)
        with pytest.raises(ValueError, match="margin solution is none: its KKT residual"):
            again(but_with(known_bias(CONTRADICTION), _max_margin_or_refusal=forged))


def test_a_finite_part_of_other_data_is_refused():
    other = TOY.replace(context_embeddings=3 * TOY.context_embeddings)
    with pytest.raises(ValueError, match="finite_part is one of other data"):
        again(but_with(known_bias(TOY), finite_part=ntpnb.finite_part(other)))


def test_what_proves_a_twin_is_computed_anew():
    twin = ntpnb.implicit_bias(CONTRADICTION).twin
    forged = Contradiction(np.array([5.0, 0.0]), 123.0)
    back = again(but_with(twin, _contradiction=forged))
    assert back.certificate == pytest.approx(twin.certificate)
    assert back.residual == pytest.approx(twin.residual, abs=1e-12)


@pytest.mark.parametrize("name", ["order", "original_order", "_contradiction", "_limits"])
def test_what_is_computed_anew_is_not_read(name, tmp_path):
    twin = ntpnb.implicit_bias(CONTRADICTION).twin
    structure = structure_of(twin)
    holds(structure, "Twin")[name] = 77.0
    with pytest.raises(ValueError, match=f"Twin.{name} is never saved"):
        read(tmp_path, arrays_of(twin), structure)


def test_a_twin_that_is_none_is_refused():
    twin = ntpnb.implicit_bias(CONTRADICTION).twin
    honest = {name: getattr(twin, name) for name in ("data", "original", "correction")}
    other = twin.data.replace(context_embeddings=[[2.0], [7.0]])
    for change, message in (
        ({"original": twin.data, "data": CONTRADICTION}, "lack tokens that follow"),
        ({"correction": 99.0}, "correction is 99"),
        ({"data": other}, "differ in more than distributions"),
    ):
        with pytest.raises(ValueError, match=message):
            again(Twin(**(honest | change)))
    assert again(Twin(**honest)).finite.tolist() == twin.finite.tolist()


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"W": np.ones((2, 2, 5))}, r"W has shape \(2, 2, 5\)"),
        ({"W": np.full(TOY.shape, np.nan)}, "W has entries that are not finite"),
        ({"words": ("a", "b")}, "words has 2 entries; the vocabulary has 5"),
    ],
)
def test_words_and_weights_of_a_report_fit_its_data(forged, message):
    found = ntpnb.report(TOY, words=list("abcde"), W=np.ones((2, *TOY.shape)))
    with pytest.raises(ValueError, match=message):
        again(replace(found, **forged))


def test_a_report_comes_back_with_what_it_was_asked():
    found = ntpnb.report(TOY, words=list("abcde"), W=np.ones((2, *TOY.shape)))
    back = again(found)
    assert str(back) == str(found)
    assert back.summary() == found.summary()
    np.testing.assert_array_equal(back.W, found.W)


def test_what_follows_from_a_report_is_not_read(tmp_path):
    found = ntpnb.report(TOY)
    structure = structure_of(found)
    holds(structure, "Report")["margin"] = 77.0
    with pytest.raises(ValueError, match=r"in the Report: TypeError: .*'margin'"):
        read(tmp_path, arrays_of(found), structure)


@settings(max_examples=15)
@given(any_problem())
def test_solutions_of_any_problem_come_back_as_they_were(data):
    try:
        svm = ntpnb.max_margin(data)
    except (ntpnb.NotSeparableError, ntpnb.ConvergenceError):
        return
    back = again(replace(svm, **FORGED))
    for name in FORGED:
        assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-9, abs=1e-12)
    assert re.match("MarginSolution", repr(back))
