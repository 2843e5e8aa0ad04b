"""Sums over contexts by several workers: as by one, to the last bit, and though workers die."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import problems
import pytest
from joblib import parallel_config

import ntpnb
from ntpnb.problem import sums, table
from ntpnb.problem.sums import ContextSums, Packed, shares


@pytest.fixture
def in_blocks(monkeypatch):
    """Data of forty contexts in twenty blocks, more than the sums that are handed out."""
    monkeypatch.setattr(table, "BLOCK", 16)
    data = problems.t24(3, V=8, m=40, d=3, size=(1, 3))
    assert sum(map(len, shares(data))) == 20 > len(shares(data)) == sums.SHARES
    return data


def moments(block, power):
    """Sums of powers, and how many contexts there are; contexts are told from each other."""
    H = block.context_embeddings
    return block.context_probs @ H**power, len(H)


def die_once(block, mark):
    """Kill the worker that comes here first."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return (float(block.context_probs.sum()),)
    return die(block)


def weighed(block, matrix):
    """A matrix times the frequency of the block."""
    return (block.context_probs.sum() * matrix,)


def is_in(block, process):
    """Whether this is a process of that number, and how many blocks there are."""
    return float(os.getpid() == process), 1


def die(block):
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_context_is_in_one_share(in_blocks):
    contexts = [slice_ for share in shares(in_blocks) for slice_ in share]
    assert [j for part in contexts for j in range(part.start, part.stop)] == [*range(40)]
    assert {len(share) for share in shares(in_blocks)} == {1, 2}


@pytest.mark.parametrize("block", [16, table.BLOCK])
def test_a_sum_is_that_over_all_contexts(monkeypatch, block):
    monkeypatch.setattr(table, "BLOCK", block)
    data = problems.t24(3, V=8, m=40, d=3)
    total, number = ContextSums(data)(moments, 2)
    expected = data.context_probs @ data.context_embeddings**2
    np.testing.assert_allclose(total, expected, rtol=1e-14)
    assert number == 40


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_give_the_same_sum_to_the_last_bit(in_blocks, backend):
    alone = ContextSums(in_blocks)(moments, 3)
    with parallel_config(backend=backend), ContextSums(in_blocks, n_jobs=2) as workers:
        for _ in range(2):
            together = workers(moments, 3)
            np.testing.assert_array_equal(together[0], alone[0])
            assert together[1] == alone[1]
        here, blocks = workers(is_in, os.getpid())
    assert (here, blocks) == ((20 if backend == "threading" else 0), 20)


def test_passes_leave_no_files(in_blocks, tmp_path, monkeypatch):
    """What is as large as ``W`` comes with every pass, and joblib keeps files of large arrays."""
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    large = np.ones((300, 1000))
    with ContextSums(in_blocks, n_jobs=2) as workers:
        for _ in range(3):
            (total,) = workers(weighed, large)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
    np.testing.assert_allclose(total, large, rtol=1e-13)
    assert files == []


def test_what_is_packed_says_how_large_it_is():
    """By that Dask tells what it sends to each worker once."""
    matrix = np.ones((30, 40))
    packed = Packed(weighed, (matrix,))
    assert sys.getsizeof(packed) > matrix.nbytes
    of_block, arguments = packed.unpacked()
    assert of_block is weighed
    np.testing.assert_array_equal(arguments, [matrix])


def test_a_floor_does_not_depend_on_the_number_of_jobs(in_blocks):
    alone = ntpnb.loss_floor(in_blocks)
    for n_jobs in (2, None):
        together = ntpnb.loss_floor(in_blocks, n_jobs=n_jobs)
        assert (together.lower, together.upper) == (alone.lower, alone.upper)
        np.testing.assert_array_equal(together.W, alone.W)


def test_a_worker_that_dies_costs_a_second_try(in_blocks, tmp_path):
    with ContextSums(in_blocks, n_jobs=2) as workers:
        (total,) = workers(die_once, str(tmp_path / "dead"))
    assert (tmp_path / "dead").exists()
    assert total == pytest.approx(1, abs=1e-14)


def test_workers_that_always_die_end_the_sum(in_blocks):
    with ContextSums(in_blocks, 2) as workers, pytest.raises(RuntimeError, match="terminated"):
        workers(die)


@pytest.mark.parametrize(
    ("n_jobs", "error"), [(0, ValueError), (2.5, ValueError), ("two", TypeError)]
)
def test_a_number_of_jobs_that_is_none_is_refused(n_jobs, error):
    with pytest.raises(error, match=r"^n_jobs .* it must be an integer other than zero$"):
        ntpnb.loss_floor(ntpnb.datasets.toy(), n_jobs=n_jobs)


def test_a_browser_can_import_the_package_though_it_has_no_processes():
    program = "import sys; sys.modules['_multiprocessing'] = None; import ntpnb"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_a_floor_is_found_on_a_dask_cluster(in_blocks, cluster):
    alone = ntpnb.loss_floor(in_blocks)
    with parallel_config(backend="dask", scatter=[in_blocks]):
        together = ntpnb.loss_floor(in_blocks, n_jobs=None)
        with ContextSums(in_blocks, n_jobs=None) as workers:
            here, blocks = workers(is_in, os.getpid())
    assert (here, blocks) == (0, 20)
    assert len(cluster.scheduler_info()["workers"]) == 2
    assert (together.lower, together.upper) == (alone.lower, alone.upper)
    np.testing.assert_array_equal(together.W, alone.W)


@pytest.mark.slow
def test_a_worker_of_a_cluster_that_dies_costs_a_second_try(in_blocks, cluster, tmp_path):
    mark = str(tmp_path / "dead")
    with parallel_config(backend="dask"), ContextSums(in_blocks, n_jobs=None) as workers:
        (total,) = workers(die_once, mark)
    assert Path(mark).exists()
    assert total == pytest.approx(1, abs=1e-14)
