"""Files from elsewhere: damaged or crafted, each is one ``ValueError`` that says what is wrong."""

import copy
import io
import json
import pickle
import re
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from problems import any_problem

import ntpnb
from ntpnb import NextTokenData, datasets
from ntpnb.basics import saving
from ntpnb.bias import Twin

TOY = datasets.toy()
CONTRADICTION = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
SIZE = 1 << 11  # with so many contexts and tokens, tables stay sparse
COLLAPSED = NextTokenData([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]])


def large():
    rows, some = np.arange(SIZE), np.arange(SIZE) % 7
    laws = saving.sparse.csr_array((np.ones(SIZE), (rows, some)), shape=(SIZE, SIZE))
    return NextTokenData(np.eye(7)[some] + 1.0, laws)


def known_bias(data):
    bias = ntpnb.implicit_bias(data)
    assert bias.finite_part.W.shape == data.shape
    assert bias.separable in (True, False)
    return bias


def written(thing):
    """The dictionary that a JSON file holds."""
    return {"ntpnb": saving.VERSION, "result": thing.to_dict()}


def read(whole, folder):
    path = folder / "thing.json"
    path.write_text(json.dumps(whole), "utf-8")
    return ntpnb.load(path)


def members_of(thing, folder):
    """The arrays of an npz file, by name."""
    thing.save(folder / "thing.npz")
    with np.load(folder / "thing.npz") as archive:
        return dict(archive)


def read_members(members, folder, **options):
    np.savez(folder / "thing.npz", **members, **options)
    return ntpnb.load(folder / "thing.npz")


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

WRONG = [changed, None, "x", -1, 10**30, float("nan"), [], {}, [[1.0]], {"again": 0}, True]


@pytest.mark.parametrize(
    "thing",
    [TOY, ntpnb.token_priority(TOY), ntpnb.max_margin(TOY), known_bias(CONTRADICTION)],
    ids=lambda thing: type(thing).__name__,
)
def test_any_value_may_be_wrong(thing, tmp_path):
    plain = written(thing)
    rng = np.random.default_rng(0)
    for place in list(every_place(plain))[1:]:
        for value in rng.permutation(np.array(WRONG, dtype=object))[:3]:
            try:
                back = read(changed(plain, place, value), tmp_path)
            except ValueError as error:
                require_one_clear_line(error)
            else:  # a value that nobody believes, or that is as good as the one that was there
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
            assert back.to_dict() == thing.to_dict()  # a date, or another field that nobody reads


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
    with pytest.raises(ValueError, match="can read") as caught:
        read(changed(written(TOY), ("result", name), changed), tmp_path)
    require_one_clear_line(caught.value, name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("context_embeddings", [[float("nan"), 1.0]] * 3, "context_embeddings"),
        ("context_embeddings", [[1.0, 1.0]] * 2, "context_embeddings has 2 rows"),
        ("context_embeddings", [1.0, 2.0, 3.0], "context_embeddings has 1 dimensions"),
        ("context_embeddings", [[1, 2]] * 3, "other types"),
        ("context_probs", [0.5, 0.5, 0.5], "context_probs"),
        ("context_probs", [1.5, -0.5, 0.0], "context_probs"),
        ("context_groups", [0, 0, 1], "context_groups"),
        ("contexts", {"tuple": [1]}, "NextTokenData.contexts"),
        ("token_embeddings", [[1.0]], "token_embeddings"),
    ],
)
def test_data_that_the_constructor_would_refuse(name, value, words, tmp_path):
    with pytest.raises(ValueError, match="can read") as caught:
        read(changed(written(TOY), ("result", name), value), tmp_path)
    require_one_clear_line(caught.value, words)


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
    members = members_of(data, tmp_path)
    expected = getattr(data._laws.entries, part)
    (name,) = [
        key
        for key, array in members.items()
        if key != saving.STRUCTURE and np.array_equal(array, expected)
    ][-1:]
    members[name][place] = value
    with pytest.raises(ValueError, match="can read") as caught:
        read_members(members, tmp_path)
    require_one_clear_line(caught.value, "_laws" if part != "value" else "target_probs")


def test_a_table_of_a_wrong_shape(tmp_path):
    data = large()
    members = members_of(data, tmp_path)
    whole = json.loads(members[saving.STRUCTURE].tobytes())
    text = json.dumps(whole)
    wrong = text.replace(f"[{SIZE}, {SIZE}]", f"[{SIZE}, -3]")
    assert wrong != text
    members[saving.STRUCTURE] = np.frombuffer(wrong.encode(), np.uint8)
    with pytest.raises(ValueError, match="can read") as caught:
        read_members(members, tmp_path)
    require_one_clear_line(caught.value, "_laws")


# -- what is no array of numbers ------------------------------------------------------------------


def test_objects_of_python_are_never_read(tmp_path):
    members = members_of(TOY, tmp_path)
    name = next(key for key in members if key != saving.STRUCTURE)
    members[name] = np.array([{"a": 1}], dtype=object)
    with pytest.raises(ValueError, match="can read") as caught:
        read_members(members, tmp_path)
    require_one_clear_line(caught.value, name)
    path = tmp_path / "thing.npz"
    path.write_bytes(pickle.dumps([1, 2, 3]))
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(path)
    require_one_clear_line(caught.value)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([b"a"])])
def test_arrays_of_other_things_than_numbers(array, tmp_path):
    members = members_of(TOY, tmp_path)
    name = next(key for key in members if key != saving.STRUCTURE)
    with pytest.raises(ValueError, match="can read") as caught:
        read_members(members | {name: array}, tmp_path)
    require_one_clear_line(caught.value)


def test_an_array_that_claims_to_be_huge(tmp_path):
    members = members_of(TOY, tmp_path)
    name = next(key for key in members if key != saving.STRUCTURE)
    stored = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(stored, header)
    path = tmp_path / "thing.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in members.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{key}.npy", (stored if key == name else content).getvalue())
    with pytest.raises(ValueError, match="can read") as caught:
        ntpnb.load(path)
    require_one_clear_line(caught.value, name)


# -- what is forged -------------------------------------------------------------------------------

FORGED = {"norm": 1.0, "min_margin": 9.0, "kkt_residual": 0.0, "duality_gap": 0.0}


@pytest.mark.parametrize("data", [TOY, datasets.figure2(), COLLAPSED], ids=str)
def test_what_a_solution_says_of_itself_is_measured_anew(data, tmp_path):
    svm = ntpnb.max_margin(data)
    plain = written(svm)
    plain["result"] |= FORGED | {"tie_residual": 0.5}
    back = read(plain, tmp_path)
    for name in ("norm", "min_margin", "kkt_residual", "duality_gap", "tie_residual"):
        assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-12, abs=1e-14), name
    np.testing.assert_array_equal(back.W, svm.W)
    np.testing.assert_array_equal(back.multipliers, svm.multipliers)
    assert back.margin_bounds == pytest.approx(svm.margin_bounds)


def test_a_matrix_that_its_multipliers_do_not_make(tmp_path):
    plain = written(ntpnb.max_margin(TOY))
    plain["result"]["W"] = (2 * np.array(plain["result"]["W"])).tolist()
    with pytest.raises(ValueError, match=r"MarginSolution\.W is not what its multipliers"):
        read(plain, tmp_path)


def test_a_solution_that_is_none_shows_its_margin(tmp_path):
    svm = ntpnb.max_margin(TOY)
    plain = written(svm)
    for name in ("W", "strict_multipliers", "equal_multipliers"):
        plain["result"][name] = (0.5 * np.array(plain["result"][name])).tolist()
    back = read(plain, tmp_path)
    assert back.min_margin == pytest.approx(0.5)
    assert back.kkt_residual > 0.1


def test_a_solution_in_another_norm_is_measured_anew(tmp_path):
    svm = ntpnb.max_margin(TOY, norm="max")
    plain = written(svm)
    plain["result"] |= {"norm": 0.1, "min_margin": 5.0, "duality_gap": 0.0}
    back = read(plain, tmp_path)
    assert back.norm == pytest.approx(svm.norm)
    assert back.min_margin == pytest.approx(1.0)


def test_a_finite_part_is_measured_anew(tmp_path):
    found = ntpnb.finite_part(TOY)
    plain = written(found)
    plain["result"] |= {"gradient_norm": 3.0, "residual": 4.0, "compatible": False}
    back = read(plain, tmp_path)
    assert (back.gradient_norm, back.residual) == (found.gradient_norm, found.residual)
    assert back.compatible
    plain["result"]["W"] = (2 * found.W).tolist()
    assert not read(plain, tmp_path).compatible
    plain["result"]["W"] = (found.W + np.eye(5, 2)).tolist()
    with pytest.raises(ValueError, match=r"FinitePart\.W lies outside the tied subspace"):
        read(plain, tmp_path)


def test_an_order_of_other_data_is_refused(tmp_path):
    plain = written(known_bias(TOY))
    plain["result"]["order"]["equal"] = [[0, 0, 1]]
    with pytest.raises(ValueError, match="order is not the order of its data"):
        read(plain, tmp_path)


def test_a_forged_refusal_is_refused(tmp_path):
    bias = known_bias(TOY)
    order = bias.order
    weights = np.full(len(order.strict), 1 / len(order.strict))
    vars(bias)["_max_margin_or_refusal"] = ntpnb.NotSeparableError("no", weights)
    with pytest.raises(ValueError, match="the certificate proves nothing"):
        read(written(bias), tmp_path)
    for forged in (-weights, 0 * weights, weights[1:]):
        vars(bias)["_max_margin_or_refusal"] = ntpnb.NotSeparableError("no", forged)
        with pytest.raises(ValueError, match="certificate"):
            read(written(bias), tmp_path)
    assert not read(written(known_bias(CONTRADICTION)), tmp_path).separable


def test_a_solution_that_proves_nothing_separates_no_data(tmp_path):
    plain = written(known_bias(CONTRADICTION))
    svm = ntpnb.max_margin(CONTRADICTION.replace(target_probs=[[1, 0], [1, 0]]))
    for lam in ([3.0, 0.5], [0.0, 0.0]):
        forged = copy.deepcopy(plain)
        W = np.array([[lam[0] - lam[1]], [lam[1] - lam[0]]])
        answer = svm.to_dict() | {"W": W.tolist(), "strict_multipliers": lam}
        answer["_data"] = CONTRADICTION.to_dict()
        forged["result"]["_max_margin_or_refusal"] = answer
        with pytest.raises(ValueError, match="margin solution is none: its KKT residual"):
            read(forged, tmp_path)


def test_a_finite_part_of_other_data_is_refused(tmp_path):
    plain = written(known_bias(TOY))
    other = TOY.replace(context_embeddings=3 * TOY.context_embeddings)
    plain["result"]["finite_part"] = ntpnb.finite_part(other).to_dict()
    with pytest.raises(ValueError, match="finite_part is one of other data"):
        read(plain, tmp_path)


@pytest.mark.parametrize(
    ("part", "forged"), [("certificate", [5.0, 0.0]), ("residual", 123.0)], ids=["pairs", "number"]
)
def test_what_proves_a_twin_is_computed_anew(part, forged, tmp_path):
    twin = ntpnb.implicit_bias(CONTRADICTION).twin
    plain = written(twin)
    plain["result"][part] = forged
    back = read(plain, tmp_path)
    assert back.certificate == pytest.approx(twin.certificate)
    assert back.residual == pytest.approx(twin.residual, abs=1e-12)


def test_a_twin_that_is_none_is_refused(tmp_path):
    twin = ntpnb.implicit_bias(CONTRADICTION).twin
    parts = ("data", "original", "original_order", "certificate", "residual", "correction")
    honest = {name: getattr(twin, name) for name in parts}
    other = twin.data.replace(context_embeddings=[[2.0], [7.0]])
    for change, message in (
        ({"certificate": np.zeros(2)}, "with all pairs won"),
        ({"correction": 99.0}, "correction is 99"),
        ({"data": other}, "differ in more than distributions"),
    ):
        with pytest.raises(ValueError, match=message):
            read(written(Twin(**(honest | change))), tmp_path)
    assert read(written(Twin(**honest)), tmp_path).finite.tolist() == twin.finite.tolist()


@pytest.mark.parametrize("name", ["flow.loss", "flow.W", "weights.margin", "weights.angle"])
def test_parts_of_a_report_have_the_shapes_of_its_data(name, tmp_path):
    plain = written(ntpnb.report(TOY, W=np.ones((2, *TOY.shape))))
    part, array = name.split(".")
    plain["result"][part][array] = [0.5]
    with pytest.raises(ValueError, match=f"{array} has shape"):
        read(plain, tmp_path)


def test_angles_of_a_report_are_measured_anew(tmp_path):
    found = ntpnb.report(TOY)
    plain = written(found)
    plain["result"]["angle"] = [0.0] * len(found.angle)
    assert read(plain, tmp_path).angle == pytest.approx(found.angle)


def test_what_follows_from_a_report_is_not_read(tmp_path):
    found = ntpnb.report(TOY)
    plain = written(found)
    plain["result"]["margin"] = 77.0
    with pytest.raises(ValueError, match="Report has no 'margin'"):
        read(plain, tmp_path)


@settings(max_examples=15)
@given(any_problem())
def test_solutions_of_any_problem_come_back_as_they_were(data):
    try:
        svm = ntpnb.max_margin(data)
    except (ntpnb.NotSeparableError, ntpnb.ConvergenceError):
        return
    plain = svm.to_dict()
    back = saving.from_dict(plain | FORGED)
    for name in FORGED:
        assert getattr(back, name) == pytest.approx(getattr(svm, name), rel=1e-9, abs=1e-12)
    assert re.match("MarginSolution", repr(back))
