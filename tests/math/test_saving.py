"""Results that last: through pickles, copies, processes and files, unchanged to the last bit."""

import copy
import dataclasses
import json
import multiprocessing
import pickle
import types
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from problems import any_problem
from scipy import sparse

import ntpnb
from ntpnb import NextTokenData, attention, datasets
from ntpnb.basics import saving
from ntpnb.problem.table import Table
from ntpnb.reporting.findings import Findings

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
CONTRADICTION = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
TIED = NextTokenData([[1.0]], [[0.3, 0.7]])  # nothing ordered: infinite margins
TEXT = "the fox sees the owl and the owl sees the fox"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Holder(saving.Result):
    """A result that may hold anything."""

    loss: Any


def known_bias(data):
    """A bias whose parts have been computed."""
    bias = ntpnb.implicit_bias(data)
    assert bias.finite_part.W.shape == data.shape
    assert bias.separable in (True, False)
    return bias


THINGS = {
    "data": lambda: TOY,
    "data of a text": lambda: ntpnb.report(TEXT).data,
    "data of attention": lambda: FIGURE2,
    "order": lambda: ntpnb.token_priority(FIGURE2),
    "order without ties": lambda: ntpnb.token_priority(CONTRADICTION),
    "tied subspace": lambda: ntpnb.equal_subspace(TOY),
    "tied subspace of embedded tokens": lambda: ntpnb.equal_subspace(FIGURE2),
    "finite part": lambda: ntpnb.finite_part(TOY),
    "finite part of attention": lambda: ntpnb.finite_part(FIGURE2),
    "max-margin solution": lambda: ntpnb.max_margin(TOY),
    "max-margin solution without pairs": lambda: ntpnb.max_margin(TIED),
    "trace": lambda: ntpnb.descend(TOY, ntpnb.GD(0.5), 5),
    "batch of traces": lambda: ntpnb.descend([TOY, TOY], ntpnb.GD(0.5), 5),
    "trace of a head": lambda: attention.descend_head(FIGURE2, attention.squared, ntpnb.GD(0.1), 3),
    "flow": lambda: ntpnb.gradient_flow(TOY, [0.0, 10.0, 1e5]),
    "path": lambda: ntpnb.regularization_path(TOY, [1.0, 1e5]),
    "comparison": lambda: ntpnb.compare(np.ones((3, 5, 2)), TOY),
    "comparison of zero": lambda: ntpnb.compare(np.zeros((5, 2)), TOY),
    "room": lambda: ntpnb.thresholds.compatible_dimension(TOY.support),
    "bias, unknown": lambda: ntpnb.implicit_bias(TOY),
    "bias": lambda: known_bias(TOY),
    "bias, refused": lambda: known_bias(CONTRADICTION),
    "report": lambda: ntpnb.report(TOY, words=list("abcde")),
    "report on a text": lambda: ntpnb.report(TEXT),
    "report on a contradiction": lambda: ntpnb.report(CONTRADICTION),
    "corpus": lambda: datasets.text_corpus(3),
    "trials": lambda: datasets.attention_trials(2),
}


def by_json(thing):
    return saving.from_dict(json.loads(json.dumps(thing.to_dict(), allow_nan=False)))


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


def by_file(ending):
    def way(thing, folder):
        thing.save(folder / f"thing{ending}")
        return ntpnb.load(folder / f"thing{ending}")

    return way


WAYS = {
    "pickle": lambda thing, folder: by_pickle(thing),
    "copy": lambda thing, folder: copy.copy(thing),
    "deepcopy": lambda thing, folder: copy.deepcopy(thing),
    "json": lambda thing, folder: by_json(thing),
    "npz file": by_file(".npz"),
    "json file": by_file(".json"),
}


def state(thing):
    """What an object consists of, for a comparison; caches count only where they are kept."""
    if isinstance(thing, Exception | Table):
        return {"made from": thing.__reduce_ex__(2)[1:]}
    return thing.__getstate__()


def assert_same(one, other, where="it"):
    """Equal to the last bit, in type, shape and all parts.

    Only the gap of a max-margin solution may differ by rounding. It is measured anew from the file,
    and where tokens share multipliers their sums are formed from the shares again.
    """
    assert type(one) is type(other), where
    if where.endswith("['duality_gap']"):
        assert abs(one - other) <= 4 * np.finfo(float).eps, where
        return
    if isinstance(one, np.ndarray | np.generic):
        assert one.dtype == other.dtype, where
        assert one.shape == other.shape, where
        # All NaNs are one, whatever their bits.
        numbers, others = one[one == one], other[other == other]
        assert numbers.tobytes() == others.tobytes(), where
        np.testing.assert_array_equal(one != one, other != other, where)
    elif isinstance(one, float):
        assert repr(one) == repr(other), where
    elif isinstance(one, tuple | list):
        assert len(one) == len(other), where
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{place}]")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif one is None or isinstance(one, str | int):
        assert one == other, where
    else:
        assert_same(state(one), state(other), f"{where}.{type(one).__name__}")


# -- everything comes back ------------------------------------------------------------------------


@pytest.mark.parametrize("what", THINGS)
@pytest.mark.parametrize("way", WAYS)
def test_everything_comes_back_to_the_last_bit(what, way, tmp_path):
    thing = THINGS[what]()
    back = WAYS[way](thing, tmp_path)
    assert back is not thing
    assert_same(thing, back)
    assert repr(thing) == repr(back)


@settings(max_examples=25)
@given(any_problem())
def test_what_is_known_of_any_problem_comes_back(data):
    found = Findings(ntpnb.implicit_bias(data))
    known = (found.separable, found.compatible, found.pairs, found.margin)
    for back in (by_pickle(found), by_json(found)):
        assert_same(found, back)
        assert (back.separable, back.compatible, back.pairs, back.margin) == known
        assert back.data is back.bias.data  # one object still, and not a copy of it


def test_what_comes_back_can_be_used():
    bias = by_json(known_bias(TOY))
    flow = by_json(ntpnb.gradient_flow(TOY, [10.0, 1000.0]))
    expected = ntpnb.gradient_flow(TOY, [10.0, 1000.0]).compare(known_bias(TOY))
    assert_same(flow.compare(bias), expected)
    found = by_json(ntpnb.report(TEXT))
    assert str(found) == str(ntpnb.report(TEXT))
    assert found.finite.subspace.project(found.svm.W).shape == found.data.shape


def test_a_refusal_comes_back_with_its_proof():
    found = by_json(ntpnb.report(CONTRADICTION))
    assert isinstance(found.refusal, ntpnb.NotSeparableError)
    np.testing.assert_array_equal(
        found.refusal.certificate, ntpnb.report(CONTRADICTION).refusal.certificate
    )
    with pytest.raises(ntpnb.NotSeparableError, match=r"no W keeps all 2"):
        found.bias.require_max_margin()


def test_what_was_computed_is_not_computed_again(monkeypatch):
    back = by_json(known_bias(TOY))

    def never(*arguments, **options):
        raise AssertionError("it is known")

    for name in ("token_priority", "finite_part", "max_margin"):
        monkeypatch.setattr(ntpnb.bias, name, never)
    assert back.separable
    assert back.finite_part.compatible


# -- data stay read-only --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", [TOY, FIGURE2], ids=["decoder", "attention"])
def test_data_that_came_back_are_read_only_and_their_caches_fit(data, way, tmp_path):
    assert data.support.any()
    assert data.entropy >= 0  # cached in the original
    back = WAYS[way](data, tmp_path)
    for name, value in vars(back).items():
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0
            assert not value.flags.writeable, name
    assert "support" not in vars(back)
    np.testing.assert_array_equal(back.support, data.support)
    assert back.entropy == data.entropy
    assert back.contexts == data.contexts


def test_data_inside_a_result_are_read_only_too():
    back = by_pickle(ntpnb.report(TEXT))
    assert not back.data.target_probs.flags.writeable
    assert not copy.deepcopy(ntpnb.finite_part(TOY)).subspace._data.target_probs.flags.writeable


# -- between processes ----------------------------------------------------------------------------


def test_results_and_errors_arrive_from_other_processes():
    problems = [TOY, CONTRADICTION]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        solution, refused = [pool.submit(ntpnb.max_margin, data) for data in problems]
        assert_same(solution.result(), ntpnb.max_margin(TOY))
        with pytest.raises(ntpnb.NotSeparableError) as caught:
            refused.result()
        assert caught.value.certificate.tolist() == pytest.approx([0.5, 0.5])
        reports = list(pool.map(ntpnb.report, problems))
    assert [str(found) for found in reports] == [str(ntpnb.report(data)) for data in problems]


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".npz", ".json"])
def test_a_file_is_the_same_whenever_it_is_written(ending, tmp_path):
    one, other = tmp_path / f"one{ending}", tmp_path / f"other{ending}"
    ntpnb.report(TOY).save(one)
    ntpnb.report(TOY).save(str(other))
    assert one.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, other.name]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "toy.json"
    TOY.save(path)
    before = path.read_bytes()

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        FIGURE2.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["toy.pkl", "toy", "toy.npz.gz"])
def test_other_endings_are_refused(name, tmp_path):
    for act in (TOY.save, ntpnb.load):
        with pytest.raises(ValueError, match=r"\.npz or \.json is needed"):
            act(tmp_path / name)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        ntpnb.load(tmp_path / "missing.npz")


def edited(change):
    """The toy's file with its JSON changed."""
    whole = {"ntpnb": 1, "result": TOY.to_dict()}
    change(whole)
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"[1, 2]", "does not say that it is one"),
        (b'{"result": {}}', "does not say that it is one"),
        (b"\x80", "decode"),
        (b"[" * 100_000, "Recursion"),
        (edited(lambda it: it.update(ntpnb=99)), "written by a later version"),
        (edited(lambda it: it["result"].update(kind="system")), "'system' is no kind of result"),
        (edited(lambda it: it["result"].update(kind=["list"])), "TypeError"),
        (edited(lambda it: it["result"].update(contexts={"set": []})), "KeyError"),
        (
            edited(lambda it: it["result"].update(contexts={"again": 99})),
            "nothing that was read before has the number 99",
        ),
        (edited(lambda it: it["result"].update(context_probs=["a"])), "list of numbers"),
        (edited(lambda it: it["result"].update(context_probs=[[1], [1, 2]])), "inhomogeneous"),
        (edited(lambda it: it["result"].update(context_probs={"array": "a"})), "elsewhere"),
        (
            edited(
                lambda it: it["result"].update(
                    context_probs={"dtype": "O", "shape": [1], "values": [1]}
                )
            ),
            "arrays of type object",
        ),
    ],
)
def test_a_json_file_that_is_no_result_is_explained(content, why, tmp_path):
    path = tmp_path / "toy.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no result that ntpnb can read") as caught:
        ntpnb.load(path)
    assert why in str(caught.value)
    assert "toy.json" in str(caught.value)


def test_a_result_with_a_missing_part_is_explained():
    plain = ntpnb.max_margin(TOY).to_dict()
    del plain["norm"]
    with pytest.raises(ValueError, match="MarginSolution needs 'norm', which is missing"):
        saving.from_dict(plain)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        [1.0],
        {"tuple": []},
        {"kind": "NextTokenData"},
        {"kind": "ImplicitBias"},
        {"kind": "ValueError", "call": ["no result"]},
        {"kind": "NextTokenData", "context_probs": [1.0]},
        {"kind": "equal_subspace"},
        {"kind": "equal_subspace", "call": [5]},
    ],
)
def test_values_that_describe_no_result_are_refused(plain):
    with pytest.raises(ValueError, match="these values describe no result: "):
        saving.from_dict(plain)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        TOY.save(tmp_path / "nowhere" / "toy.npz")


def test_damaged_npz_files_are_explained_wherever_the_damage_is(tmp_path):
    path = tmp_path / "toy.npz"
    TOY.save(path)
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    explained = 0
    for place in rng.integers(0, len(sound), 60):
        damaged = bytearray(sound)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            back = ntpnb.load(path)
        except ValueError as error:
            explained += 1
            assert "is no result that ntpnb can read" in str(error)  # noqa: PT017
        else:
            assert_same(back, TOY)  # a date, or another field that nobody reads
    assert explained > 30
    for cut in (0, 10, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:cut])
        with pytest.raises(ValueError, match="is no result that ntpnb can read"):
            ntpnb.load(path)


def test_other_npz_files_are_no_results(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, W=np.ones(3))
    with pytest.raises(ValueError, match="does not say what its arrays are"):
        ntpnb.load(path)
    np.savez(path, structure=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="is no result that ntpnb can read"):
        ntpnb.load(path)


def test_what_the_package_does_not_know_is_not_saved(tmp_path):
    path = tmp_path / "thing.npz"
    for odd in (types.SimpleNamespace(), {1, 2}, len, np.array(["a"]), 1j):
        with pytest.raises(TypeError, match="cannot be saved"):
            Holder(odd).save(path)
    assert not path.exists()


def test_types_of_numbers_come_back():
    assert by_json(Holder(np.dtype(np.float32))).loss is np.dtype(np.float32)


def test_names_are_given_once():
    with pytest.raises(ValueError, match=r"Trace is the name of ntpnb\.training\.trace\.Trace"):
        type("Trace", (saving.Result,), {})


@pytest.mark.parametrize("table", [sparse.csr_array, sparse.csc_array])
def test_sparse_tables_come_back(table, tmp_path):
    law = table(np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]))
    trace = Holder(law)
    for way in ("npz file", "json"):
        back = WAYS[way](trace, tmp_path).loss
        assert type(back) is type(law)
        for part in ("data", "indices", "indptr", "shape"):
            assert_same(getattr(law, part), getattr(back, part))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), dtype=np.int64),
        np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324, 1 / 3]),
        np.array(2.5),
        np.array([1, 2], dtype=np.int32),
        np.array([2**63], dtype=np.uint64),
        np.array([0.1], dtype=np.float32),
        np.array([True, False]),
        np.zeros((2, 0)),
        np.arange(6.0).reshape(2, 3)[:, ::2],
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_of_all_kinds_come_back(array, tmp_path):
    trace = Holder(array)
    for way in ("npz file", "json file", "json"):
        assert_same(WAYS[way](trace, tmp_path).loss, array)


# -- in short -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", THINGS)
def test_a_repr_is_one_short_line(what):
    thing = THINGS[what]()
    assert "\n" not in repr(thing)
    assert len(repr(thing)) < 350
    name = "EqualSubspace" if isinstance(thing, ntpnb.EqualSubspace) else type(thing).__name__
    assert repr(thing).startswith(name + "(")


def test_reprs_say_shapes_and_numbers():
    svm = ntpnb.max_margin(TOY)
    assert f"W: array 5 × 2, norm: {svm.norm:.4g}" in repr(svm)
    assert repr(ntpnb.equal_subspace(TOY)) == "EqualSubspace(dim: 6, W: 5 × 2)"
    found = ntpnb.report(TOY)
    assert repr(found) == ("Report(3 contexts, 5 tokens, compatible, separable with margin 0.4419)")
    assert "not separable" in repr(ntpnb.report(CONTRADICTION))
    assert "nothing ordered" in repr(ntpnb.report(TIED))


def test_notebooks_show_tables_and_reports():
    shown = ntpnb.max_margin(TOY)._repr_html_()
    assert "<th>min_margin</th><td>1</td>" in shown
    found = ntpnb.report(CONTRADICTION, words=["<b>", "&"])
    assert "&lt;b&gt; &gt; &amp;" in found._repr_html_()
    assert "<b>" not in found._repr_html_()
    assert "not asked yet" in ntpnb.implicit_bias(TOY)._repr_html_()
    assert not hasattr(TOY, "_repr_html_")  # one line says it all
