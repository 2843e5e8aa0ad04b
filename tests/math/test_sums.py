"""Sums over contexts: each of them once, in shares that no number of workers changes."""

import sys
from concurrent.futures import BrokenExecutor

import numpy as np
import problems
import pytest

import ntpnb
from ntpnb.problem import table
from ntpnb.problem.sums import ContextSums, Packed, block_of, shares


def moments(block, power):
    """Sums of powers, and how many contexts there are; contexts are told from each other."""
    H = block.context_embeddings
    return block.context_probs @ H**power, len(H)


def fail(block, error):
    raise error


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


def test_a_block_of_all_contexts_is_the_dataset_with_what_it_has_computed(in_blocks):
    assert block_of(in_blocks, slice(0, 40)) is in_blocks
    assert len(block_of(in_blocks, slice(0, 39)).context_probs) == 39


@pytest.mark.parametrize(
    ("error", "seen", "message"),
    [
        (ZeroDivisionError("of a block"), ZeroDivisionError, "^of a block$"),
        (
            BrokenExecutor(),  # as if a worker had died
            RuntimeError,
            r"^workers died in each of 3 attempts at one sum, as they do where memory is not "
            r"enough; fewer of them, by n_jobs, take less$",
        ),
    ],
)
def test_a_sum_that_fails_says_why_and_the_next_one_is_right(in_blocks, error, seen, message):
    alone = ContextSums(in_blocks)(moments, 3)
    with ContextSums(in_blocks, n_jobs=None) as workers:
        with pytest.raises(seen, match=message):
            workers(fail, error)
        together = workers(moments, 3)
    np.testing.assert_array_equal(together[0], alone[0])
    assert together[1] == alone[1]


def test_workers_without_joblib_are_refused_in_words(in_blocks, monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)  # as if it were not installed
    needed = r'^n_jobs, but for 1, needs joblib: pip install "ntpnb\[sweep\]"$'
    with pytest.raises(ImportError, match=needed):
        ntpnb.loss_floor(in_blocks, n_jobs=2)


def test_what_is_packed_says_how_large_it_is():
    """By that Dask tells what it sends to each worker once."""
    matrix = np.ones((30, 40))
    packed = Packed(moments, (matrix,))
    assert sys.getsizeof(packed) > matrix.nbytes
    of_block, arguments = packed.unpacked()
    assert of_block is moments
    np.testing.assert_array_equal(arguments, [matrix])
