"""Results that last: through pickles, copies, processes and files, unchanged to the last bit."""

import copy
import dataclasses
import math
import multiprocessing
import pickle
import sys
import types
import zipfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from problems import any_problem, t24
from saved import again, arrays_of, holds, known_bias, structure_of, write
from scipy import sparse

import ntpnb
from ntpnb import NextTokenData, attention, datasets
from ntpnb.basics import saving
from ntpnb.basics.tolerances import EPS
from ntpnb.problem.table import Table
from ntpnb.reporting import DescentRecord
from ntpnb.reporting.findings import Findings
from ntpnb.tied.large import LargeSubspace
from ntpnb_book import features

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
CONTRADICTION = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
TIED = NextTokenData([[1.0]], [[0.3, 0.7]])  # nothing ordered: infinite margins
TEXT = "the fox sees the owl and the owl sees the fox"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Holder(saving.Result):
    """A result that may hold anything."""

    loss: object


class Fresh(saving.Result):
    """A result that makes what it holds when it is asked for it."""

    def __init__(self, number):
        self.number = number

    def __getstate__(self):
        return {"part": Holder(self.number)}


def bias_with_a_twin():
    """That of seven contexts, whose probabilities do not add up to one to the last bit."""
    bias = ntpnb.implicit_bias(t24(1, V=4, m=7, d=2, size=2))
    assert bias.twin.data.num_contexts == 7
    return bias


def joint_trace(record):
    start = features.joint_init(TOY, dim=5, scale=0.1, seed=1)
    return features.descend_jointly(TOY, 0.5, record[-1], start, record=record)


def joint_flow():
    run = joint_trace([2000])
    end = features.JointStart(run.W[0], run.H[0])
    return features.late_joint_flow(TOY, end, log_start=6.9, log_times=[10.0, 230.0])


THINGS = {
    "data": lambda: FIGURE2,
    "report on a text": lambda: ntpnb.report(TEXT),
    "order without ties": lambda: ntpnb.token_priority(CONTRADICTION),
    "tied subspace": lambda: ntpnb.equal_subspace(TOY),
    "tied subspace of embedded tokens": lambda: ntpnb.equal_subspace(FIGURE2),
    "finite part": lambda: ntpnb.finite_part(TOY),
    "max-margin solution without pairs": lambda: ntpnb.max_margin(TIED),
    "way": lambda: ntpnb.report(ntpnb.datasets.toy()).way,
    "way of descent": lambda: DescentRecord(np.arange(3), *np.ones((3, 3))),
    "trace": lambda: ntpnb.descend([TOY, TOY], ntpnb.GD(0.5), 5),
    "trace of a head": lambda: attention.descend_head(FIGURE2, attention.squared, ntpnb.GD(0.1), 3),
    "flow": lambda: ntpnb.gradient_flow(TOY, [0.0, 10.0, 1e5]),
    "path": lambda: ntpnb.regularization_path(TOY, [1.0, 1e5]),
    "floor": lambda: ntpnb.loss_floor(TOY),
    "metric of Adam": lambda: ntpnb.adam_metric(TOY, (0.0, 0.9), 200),
    "comparison of zero": lambda: ntpnb.compare(np.zeros((5, 2)), TOY),
    "room": lambda: ntpnb.thresholds.compatible_dimension(TOY.support),
    "bias, unknown": lambda: ntpnb.implicit_bias(TOY),
    "bias": lambda: known_bias(TOY),
    "bias with a twin": bias_with_a_twin,
    "twin": lambda: ntpnb.implicit_bias(CONTRADICTION).twin,
    "subspace of large data": lambda: LargeSubspace(TOY),
    "smallest in another norm": lambda: ntpnb.max_margin(TOY, norm="nuclear"),
    "smallest in a metric": lambda: ntpnb.max_margin(TOY, metric=np.arange(1.0, 11).reshape(5, 2)),
    "features": lambda: features.joint_init(TOY, dim=5, scale=0.1, seed=1),
    "joint trace": lambda: joint_trace([5]),
    "joint flow": joint_flow,
    "logit margin": lambda: features.logit_margin(TOY.support),
    "centred support": lambda: features.centred_support(TOY.support),
    "nuclear path": lambda: features.nuclear_path(TOY, [-10.0, -1000.0]),
    "report": lambda: ntpnb.report(TOY, words=list("abcde")),
    "report on a contradiction": lambda: ntpnb.report(CONTRADICTION),
    "corpus": lambda: datasets.text_corpus(3),
    "trials": lambda: datasets.attention_trials(2),
}


@cache
def made(what):
    """One of the things, made once."""
    return THINGS[what]()


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


WAYS = {"pickle": by_pickle, "copy": copy.copy, "deepcopy": copy.deepcopy, "file": again}


class UpToRounding(float):
    """A number that equals what differs from it by rounding of numbers like one."""

    __hash__ = None

    def __eq__(self, other):
        return abs(self - other) <= 4 * EPS


def state(thing):
    """What an object consists of, for a comparison; caches count only where they are kept.

    Only the gap of a max-margin solution may differ by rounding. It is measured anew from the file,
    and where tokens share multipliers their sums are formed from the shares again.
    """
    if isinstance(thing, Exception | Table):
        return thing.__reduce_ex__(2)[1:]
    held = thing.__getstate__()
    if "duality_gap" in held:
        held = held | {"duality_gap": UpToRounding(held["duality_gap"])}
    return held


def to_the_last_bit(thing):
    """Nested tuples that are equal where two things are: in type, shape and all parts."""
    match thing:
        case np.ndarray() | np.generic():
            # All NaNs are one, whatever their bits.
            numbers = thing[thing == thing].tobytes()
            return type(thing), thing.dtype, thing.shape, numbers, (thing != thing).tolist()
        case UpToRounding():
            return thing
        case float():
            return repr(thing)
        case tuple() | list():
            return type(thing), [to_the_last_bit(part) for part in thing]
        case dict():
            return {key: to_the_last_bit(part) for key, part in thing.items()}
        case None | int() | str():
            return type(thing), thing
        case sparse.csr_array():
            parts = (thing.shape, thing.data, thing.indices, thing.indptr)
            return [to_the_last_bit(part) for part in parts]
        case _:
            return type(thing), to_the_last_bit(state(thing))


def assert_same(one, other):
    assert to_the_last_bit(one) == to_the_last_bit(other)


# -- everything comes back ------------------------------------------------------------------------


@pytest.mark.parametrize("what", THINGS)
@pytest.mark.parametrize("way", WAYS)
def test_everything_comes_back_to_the_last_bit(what, way):
    thing = made(what)
    back = WAYS[way](thing)
    assert back is not thing
    assert_same(thing, back)
    assert repr(thing) == repr(back)


@pytest.mark.parametrize("what", THINGS)
def test_a_file_of_a_machine_with_other_indices_is_read(what, tmp_path):
    """What a browser saved is read on 64 bits, and the other way round."""
    thing = made(what)
    other = np.dtype(np.int32 if np.intp == np.int64 else np.int64)
    arrays = arrays_of(thing)
    structure = structure_of(thing)
    assert structure["indices"] == np.dtype(np.intp).str
    structure["indices"] = other.str
    for name, array in arrays.items():
        if array.dtype == np.intp:
            arrays[name] = array.astype(other)
    write(tmp_path / "it.npz", arrays, structure)
    assert_same(thing, ntpnb.load(tmp_path / "it.npz"))


def test_an_index_that_is_too_large_here_is_named(tmp_path):
    thing = Holder(np.array([0, 2**63], dtype=np.uint64))
    structure = structure_of(thing) | {"indices": "<u8"}
    write(tmp_path / "it.npz", arrays_of(thing), structure)
    with pytest.raises(ValueError, match=rf"array_0 holds {2**63}; it must be an array of int"):
        ntpnb.load(tmp_path / "it.npz")


def test_every_class_of_results_is_tried():
    tried = {type(made(what)) for what in THINGS}
    found = [*saving.Storable.__subclasses__()]
    for kind in found:
        found += [sub for sub in kind.__subclasses__() if sub not in found]
    ours = {kind for kind in found if kind is vars(sys.modules[kind.__module__]).get(kind.__name__)}
    elsewhere = {"Findings", "LanguageModel"}  # of the test below, and of test_language_model
    missing = {
        kind.__name__
        for kind in ours - tried
        if kind.__module__.startswith("ntpnb") and not kind.__subclasses__()
    }
    assert missing <= elsewhere


@settings(max_examples=25)
@given(any_problem())
def test_what_is_known_of_any_problem_comes_back(data):
    found = Findings(ntpnb.implicit_bias(data))
    known = (found.separable, found.compatible, found.pairs, found.margin)
    for back in (by_pickle(found), again(found)):
        assert_same(found, back)
        assert (back.separable, back.compatible, back.pairs, back.margin) == known
        assert back.data is back.bias.data  # one object still, and not a copy of it


def test_what_comes_back_can_be_used():
    flow = ntpnb.gradient_flow(TOY, [10.0, 1000.0])
    assert_same(again(flow).compare(again(known_bias(TOY))), flow.compare(known_bias(TOY)))
    found = again(made("report on a text"))
    assert str(found) == str(ntpnb.report(TEXT))
    assert found.finite.subspace.project(found.svm.W).shape == found.data.shape
    assert not found.data.target_probs.flags.writeable


def test_a_twin_of_separable_data_comes_back():
    twin = ntpnb.implicit_bias(FIGURE2).twin
    back = again(twin)
    np.testing.assert_array_equal(back.data.target_probs, twin.data.target_probs)
    np.testing.assert_array_equal(back.max_margin.W, twin.max_margin.W)
    assert back.max_margin._data is back.data  # on which it was measured anew


def test_what_was_computed_is_not_computed_again(monkeypatch):
    back = again(known_bias(TOY))

    def never(*arguments, **options):
        raise AssertionError("it is known")

    for name in ("token_priority", "finite_part", "max_margin"):
        monkeypatch.setattr(ntpnb.bias, name, never)
    assert back.separable
    assert back.finite_part.compatible


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


@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
def test_errors_arrive_with_message_and_evidence(way):
    for error in (
        ntpnb.NotSeparableError("no margin", np.array([1.0, 2.0])),
        ntpnb.ConvergenceError("came near", 1e-3),
        ntpnb.ConvergenceError("no time left", 1e-3, np.array([[1.0], [2.0]])),
    ):
        back = WAYS[way](error)
        assert str(back) == str(error)
        assert_same(vars(back), vars(error))


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_the_same_whenever_it_is_written(tmp_path):
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    ntpnb.report(TOY).save(one)
    ntpnb.report(TOY).save(str(other))
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:  # times would change every two seconds
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, other.name]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "toy.npz"
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


@pytest.mark.parametrize("name", ["toy.pkl", "toy", "toy.npz.gz", "toy.json"])
def test_other_endings_are_refused(name, tmp_path):
    for act in (TOY.save, ntpnb.load):
        with pytest.raises(ValueError, match=r"\.npz is needed"):
            act(tmp_path / name)


def test_a_missing_file_or_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        ntpnb.load(tmp_path / "missing.npz")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        TOY.save(tmp_path / "nowhere" / "toy.npz")


def test_what_several_hold_is_written_once_and_stays_shared():
    shared = np.arange(1000.0)
    table = sparse.csr_array(np.eye(2))
    svm = ntpnb.max_margin(TOY)
    back = again(Holder([shared, (shared, svm), {"svm": svm, "data": svm._data}, table, table]))
    first, (second, one), others, a, b = back.loss
    assert first is second
    assert one is others["svm"]
    assert one._data is others["data"]
    assert np.shares_memory(a.data, b.data)
    assert sum(array.nbytes == shared.nbytes for array in arrays_of(back).values()) == 1


def test_what_is_made_for_the_file_alone_is_not_mixed_up():
    back = again(Holder([Fresh(number) for number in range(20)])).loss
    assert [fresh.part.loss for fresh in back] == list(range(20))


def edited(change):
    """What the toy's file says, changed."""
    structure = structure_of(TOY)
    change(structure, holds(structure, "NextTokenData"))
    return structure


def one_object(kind, held):
    return {"ntpnb": saving.VERSION, "indices": "<i8", "objects": [{"kind": kind, "holds": held}]}


@pytest.mark.parametrize(
    ("structure", "why"),
    [
        (b"", "Expecting value"),
        (b"\x80", "decode"),
        pytest.param(
            b"[" * 100_000,
            "Recursion",
            marks=pytest.mark.skipif(sys.platform == "emscripten", reason="its stack ends first"),
        ),
        ({"ntpnb": 99, "objects": []}, "it is of version 99; this version of ntpnb reads"),
        (edited(lambda it, data: it["objects"][-1].update(kind="system")), "'system' is no kind"),
        (edited(lambda it, data: data.update(contexts={"set": []})), "['set'] is no kind of value"),
        (edited(lambda it, data: data.update(context_probs={"array": "a"})), "KeyError: 'a'"),
        (edited(lambda it, data: data.clear()), "in the NextTokenData: "),
        (one_object("ValueError", ["no result"]), "a result is needed, and no ValueError"),
        (one_object("LargeSubspace", {"dict": {"_data": 5}}), "in the LargeSubspace: "),
        (one_object("Table", {"dict": {"name": "target_probs"}}), "in the Table: "),
        (one_object("list", []), "'list' is no kind of result"),
    ],
)
def test_a_file_that_is_no_result_is_explained(structure, why, tmp_path):
    path = tmp_path / "toy.npz"
    write(path, arrays_of(TOY), structure)
    with pytest.raises(ValueError, match="is no result that ntpnb can read") as caught:
        ntpnb.load(path)
    assert why in str(caught.value)
    assert "toy.npz" in str(caught.value)


def test_a_result_with_a_missing_part_is_explained(tmp_path):
    svm = ntpnb.max_margin(TOY)
    structure = structure_of(svm)
    del holds(structure, "MarginSolution")["norm"]
    write(tmp_path / "svm.npz", arrays_of(svm), structure)
    with pytest.raises(ValueError, match=r"in the MarginSolution: TypeError: .*'norm'"):
        ntpnb.load(tmp_path / "svm.npz")


@pytest.mark.parametrize("data", [TOY, FIGURE2], ids=["decoder", "attention"])
def test_factors_of_a_subspace_are_not_read(data, tmp_path):
    subspace = ntpnb.equal_subspace(data)
    structure = structure_of(subspace)
    held = holds(structure, type(subspace).__name__)
    assert held.keys() == {"_data"}
    held["dim"] = held["weakest"] = held["_order"] = 7
    if not isinstance(type(subspace).dim, property):
        del held["dim"]
    write(tmp_path / "it.npz", arrays_of(subspace), structure)
    back = ntpnb.load(tmp_path / "it.npz")
    np.testing.assert_array_equal(back.basis, subspace.basis)


def test_what_the_package_does_not_know_is_not_saved(tmp_path):
    path = tmp_path / "thing.npz"
    for odd in (
        types.SimpleNamespace(),
        {1, 2},
        {1: 2},
        len,
        np.array(["a"]),
        np.str_("a"),
        1j,
        sparse.csc_array(np.eye(2)),
    ):
        with pytest.raises(TypeError, match="cannot be saved"):
            Holder(odd).save(path)
    assert not path.exists()


def test_names_are_given_once():
    with pytest.raises(ValueError, match=r"Trace is the name of ntpnb\.training\.descent\.Trace"):
        type("Trace", (saving.Result,), {})


def law_with_an_explicit_zero():
    law = sparse.csr_array(np.array([[0.1, 0.5, 0.5], [1.0, 0.0, 0.0]]))
    law.data[0] = 0.0
    return law


@pytest.mark.parametrize(
    "value",
    [
        (None, True, 0, -(10**30), "ä\n", ()),
        [math.inf, -math.inf, math.nan, -0.0, 5e-324, 1 / 3],
        {"a": [{}, [], ((1,), [2])], "": {"b": None}},
        (np.float64(0.1), np.int64(7), np.bool_(True), np.float32(0.1), np.uint8(255)),
        [np.zeros((0, 3), dtype=np.int64), np.zeros((2, 0)), np.array(2.5)],
        np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324, 1 / 3]),
        [np.array([2**63], dtype=np.uint64), np.array([0.1], dtype=np.float32)],
        [np.array([True, False]), np.arange(6.0).reshape(2, 3)[:, ::2]],
        law_with_an_explicit_zero(),
    ],
)
def test_values_of_all_kinds_come_back(value):
    assert_same(again(Holder(value)).loss, value)


# -- in short -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", THINGS)
def test_a_repr_is_one_short_line(what):
    thing = made(what)
    assert "\n" not in repr(thing)
    assert len(repr(thing)) < 350
    name = "EqualSubspace" if isinstance(thing, ntpnb.EqualSubspace) else type(thing).__name__
    assert repr(thing).startswith(name + "(")


def test_reprs_say_shapes_and_numbers():
    svm = ntpnb.max_margin(TOY)
    assert f"W: array 5 × 2, norm: {svm.norm:.4g}" in repr(svm)
    assert repr(ntpnb.equal_subspace(TOY)) == "EqualSubspace(dim: 6, W: 5 × 2)"
    assert "not separable" in repr(ntpnb.report(CONTRADICTION))
    assert "nothing ordered" in repr(ntpnb.report(TIED))


def test_notebooks_show_tables_and_reports():
    shown = ntpnb.max_margin(TOY)._repr_html_()
    assert "<th>min_margin</th><td>1</td>" in shown
    found = ntpnb.report(CONTRADICTION, words=["<b>", "&"])
    assert "&lt;b&gt; &gt; &amp;" in found._repr_html_()
    assert "<b>" not in found._repr_html_()
    assert "not asked yet" in ntpnb.implicit_bias(TOY)._repr_html_()
    assert "<th>shape of W</th><td>5 × 2</td>" in TOY._repr_html_()
