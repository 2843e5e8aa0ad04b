"""Sums over contexts by several workers: as by one, to the last bit, and though workers die.

These tests start processes; `test_sums.py` has the others.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config

import ntpnb
from ntpnb.problem.sums import ContextSums


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


def fail_at(block, row):
    """Fail in the block with this context."""
    if (block.context_embeddings == row).all(axis=1).any():
        raise ZeroDivisionError
    return (0,)


def die(block):
    os.kill(os.getpid(), signal.SIGKILL)


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


def test_a_sum_that_failed_leaves_nothing_to_the_next(in_blocks):
    """Tasks that joblib had cut off the first sum, and not handed out, came back in the second."""
    alone = ContextSums(in_blocks)(moments, 3)
    with ContextSums(in_blocks, n_jobs=2) as workers:
        for row in in_blocks.context_embeddings[::8]:
            with pytest.raises(ZeroDivisionError):
                workers(fail_at, row)
            together = workers(moments, 3)
            assert together[1] == alone[1]
            np.testing.assert_array_equal(together[0], alone[0])


def test_workers_that_always_die_end_the_sum(in_blocks):
    said = "died in each of 3 attempts"
    with ContextSums(in_blocks, 2) as workers, pytest.raises(RuntimeError, match=said):
        workers(die)


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
