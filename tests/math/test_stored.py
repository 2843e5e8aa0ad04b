"""Context embeddings in a file, or in chunks: read some rows at a time, with the same results."""

import pickle
from types import SimpleNamespace

import numpy as np
import problems
import pytest
from joblib import parallel_config
from peak import allocates_less_than
from saved import again

import ntpnb
from ntpnb import NextTokenData
from ntpnb.problem import table
from ntpnb.problem.table import StoredRows, as_rows


class Chunked:
    """An array as h5py and zarr have: it can be sliced, and nothing else."""

    chunks = (2,)

    def __init__(self, rows):
        self._rows = rows
        self.shape = rows.shape
        self.ndim = rows.ndim
        self.read = []

    def __getitem__(self, rows):
        self.read.append(rows)
        return self._rows[rows]

    def __array__(self, dtype=None, copy=None):
        return self._rows


@pytest.fixture(params=["mapped", "chunked"])
def both(request, tmp_path, monkeypatch):
    """The same data in memory and stored, of float32, in blocks of some contexts."""
    monkeypatch.setattr(table, "BLOCK", 16)
    data = problems.t24(3, V=8, m=40, d=3, size=(1, 3))
    states = data.context_embeddings.astype(np.float32)
    stored = Chunked(states)
    if request.param == "mapped":
        np.save(tmp_path / "states.npy", states)
        stored = np.load(tmp_path / "states.npy", mmap_mode="r")
    return data.replace(context_embeddings=states), data.replace(context_embeddings=stored)


@pytest.fixture
def never_whole(monkeypatch):
    """Nothing may ask for all rows at once."""

    def refuse(self):
        raise AssertionError("all rows were asked for")

    monkeypatch.setattr(NextTokenData, "context_embeddings", property(refuse))


def assert_same_floor(one, other):
    """The same up to rounding: BLAS may round rows that lie elsewhere in memory differently."""
    assert one.lower == pytest.approx(other.lower, rel=1e-12)
    assert one.upper == pytest.approx(other.upper, rel=1e-12)
    np.testing.assert_allclose(one.W, other.W, atol=1e-12)


def test_what_sums_over_contexts_reads_some_rows_at_a_time(both, never_whole):
    in_memory, stored = both
    floors = [ntpnb.loss_floor(data) for data in both]
    assert_same_floor(*floors)
    stack = np.stack([floors[0].W, 2 * floors[0].W])
    for function in (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient):
        np.testing.assert_allclose(function(stack, stored), function(stack, in_memory), atol=1e-14)
    np.testing.assert_array_equal(stored.context_lengths, in_memory.context_lengths)


def test_a_block_is_no_larger_than_its_embeddings_allow(tmp_path, monkeypatch):
    """Few tokens, long embeddings: the scores of all contexts would fit, their embeddings not."""
    monkeypatch.setattr(table, "BLOCK", 64)
    stored = Chunked(np.eye(20, 30))
    data = NextTokenData(stored, np.tile([[1.0, 0.0], [0.0, 1.0]], (10, 1)))
    stored.read.clear()
    ntpnb.cross_entropy(np.zeros(data.shape), data)
    assert max(rows.stop - rows.start for rows in stored.read) == 64 // 30


def test_what_needs_all_rows_reads_them(both):
    in_memory, stored = both
    np.testing.assert_array_equal(stored.context_embeddings, in_memory.context_embeddings)
    assert stored.context_embeddings.dtype == np.float64
    few = [data.replace(target_probs=np.eye(8)[np.arange(40) % 2]) for data in both]
    assert ntpnb.is_separable(few[0]) == ntpnb.is_separable(few[1])
    for data in (again(stored), stored.replace(merge_tolerance=0.0)):
        assert type(data.context_embeddings) is np.ndarray
        np.testing.assert_array_equal(data.context_embeddings, in_memory.context_embeddings)


def test_all_rows_at_once_are_in_memory_once():
    rows = StoredRows(np.ones((1000, 40), dtype=np.float32))
    with allocates_less_than(1.5 * 1000 * 40 * 8):
        np.testing.assert_array_equal(np.asarray(rows).shape, (1000, 40))


def test_copies_leave_them_where_they_are(both):
    _, stored = both
    held = stored._embeddings
    assert type(held) is StoredRows
    assert stored.replace(context_probs=stored.context_probs)._embeddings is held
    copy = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(copy.context_embeddings, stored.context_embeddings)


def test_what_fits_a_block_is_read_at_once():
    data = NextTokenData(Chunked(np.eye(3)), np.eye(3))
    assert type(data._embeddings) is np.ndarray


def test_groups_are_checked_in_stored_rows_too(monkeypatch):
    monkeypatch.setattr(table, "BLOCK", 2)
    states = Chunked(np.array([[1.0], [1.0], [2.0]]))
    laws = np.eye(3)
    assert NextTokenData(states, laws, context_groups=[7, 7, 8]).group_names.tolist() == [7, 8]
    with pytest.raises(ValueError, match="puts row 2 into group 7"):
        NextTokenData(states, laws, context_groups=[7, 8, 7])


def test_what_is_wrong_is_said_of_its_place(monkeypatch):
    monkeypatch.setattr(table, "BLOCK", 4)
    rows = np.ones((5, 2))
    rows[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^states\[2:\]\[1, 1\] is nan"):
        as_rows("states", Chunked(rows))
    rows[3] = 1e-200
    with pytest.raises(ValueError, match=r"^states\[2:\]\[1\] has the largest entry 1e-200"):
        as_rows("states", Chunked(rows))
    with pytest.raises(ValueError, match=r"^states\[0:\] is not a rectangular array of numbers"):
        as_rows("states", Chunked(np.full((3, 2), "a")))
    unknown = SimpleNamespace(chunks=(), shape=(np.nan, 2), ndim=2)
    message = (
        r"^states has shape \(nan, 2\); it must be known, which of a Dask array "
        r"\.compute_chunk_sizes\(\) sees to$"
    )
    with pytest.raises(ValueError, match=message):
        as_rows("states", unknown)
    with pytest.raises(ValueError, match="has 5 rows but target_probs has 2"):
        NextTokenData(Chunked(np.ones((5, 2))), np.eye(2))


@pytest.mark.slow
def test_workers_of_a_cluster_read_their_rows_of_a_dask_array(in_blocks, cluster, never_whole):
    arrays = pytest.importorskip("dask.array")
    states = in_blocks._embeddings
    stored = in_blocks.replace(context_embeddings=arrays.from_array(states, chunks=(7, 3)))
    roughly = 0.1  # each pass takes a second there
    alone = ntpnb.loss_floor(in_blocks, roughly)
    assert alone.lower > in_blocks.entropy
    assert_same_floor(ntpnb.loss_floor(stored, roughly), alone)
    with parallel_config(backend="dask", scatter=[stored]):
        assert_same_floor(ntpnb.loss_floor(stored, roughly, n_jobs=None), alone)
    assert len(cluster.scheduler_info()["workers"]) == 2
