"""Sums over all contexts of a dataset, block by block: here, or by the workers of joblib."""

import math
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import reduce
from operator import add
from typing import Any, Self, TypeAlias

from ntpnb.basics.extras import needs_extra
from ntpnb.basics.threads import one_thread
from ntpnb.problem import table
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import Rows

Terms: TypeAlias = tuple[Any, ...]
"""What is computed of some contexts, arrays or numbers, each to be added to that of the others."""

SHARES = 16
"""How many sums are handed out at most.

Of which contexts these are does not depend on the workers, and so neither does how they are added.
"""

SECOND_TRIES = 2
"""How often a sum is begun anew whose workers have died."""


class ContextSums:
    """Sums over the contexts of a dataset; as a context manager it keeps its workers.

    Parameters
    ----------
    data : NextTokenData
    n_jobs : int or None
        Number of workers as in joblib, which is not needed for one; None takes what
        ``joblib.parallel_config`` says.

    Raises
    ------
    ImportError
        Other workers are asked for, and joblib is missing.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.sums import ContextSums
    >>> def squares(block):
    ...     return ((block.context_embeddings**2).sum(),)
    >>> sums = ContextSums(ntpnb.NextTokenData([[1.0], [2.0]], [[1, 0], [0, 1]]))
    >>> float(sums(squares)[0])
    5.0
    """

    def __init__(self, data: NextTokenData, n_jobs: int | None = 1) -> None:
        self._data = data
        self._parallel: Any = None
        if n_jobs != 1:
            with needs_extra("sweep", "n_jobs"):
                from joblib import Parallel
            self._parallel = Parallel(n_jobs=n_jobs)

    def __enter__(self) -> Self:
        if self._parallel is not None:
            self._parallel.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._parallel is not None:
            self._parallel.__exit__(*raised)

    def __call__(self, of_block: Callable[..., Terms], *arguments: object) -> Terms:
        """Sum what a function gives of each block of contexts, with these arguments.

        Workers that die cost the sum a second try.
        """
        tasks = [(of_block, self._data, share, arguments) for share in shares(self._data)]
        if self._parallel is None or len(tasks) == 1:
            return added(sum_of_share(*task) for task in tasks)
        for _ in range(SECOND_TRIES):
            with suppress(BrokenProcessPool):
                return added(self._by_workers(tasks))
        return added(self._by_workers(tasks))

    def _by_workers(self, tasks: list[tuple[Any, ...]]) -> list[Terms]:
        from joblib import delayed

        sums: list[Terms] = self._parallel(delayed(sum_of_share)(*task) for task in tasks)
        return sums


def shares(data: NextTokenData) -> list[list[slice]]:
    """Divide the contexts into blocks, and these into shares of about as many."""
    blocks = list(table.row_slices((data.num_contexts, data.vocab_size)))
    size = math.ceil(len(blocks) / SHARES)
    return [blocks[first : first + size] for first in range(0, len(blocks), size)]


@one_thread
def sum_of_share(
    of_block: Callable[..., Terms],
    data: NextTokenData,
    share: list[slice],
    arguments: tuple[object, ...],
) -> Terms:
    """Sum what a function gives of some blocks."""
    return added(of_block(block_of(data, contexts), *arguments) for contexts in share)


def block_of(data: NextTokenData, contexts: slice) -> Rows:
    """Some contexts, or the dataset itself, which has computed much of itself already."""
    if contexts == slice(0, data.num_contexts):
        return data
    return data.block(contexts)


def added(terms: Iterable[Terms]) -> Terms:
    """Add each entry to the same of the others, in their order."""
    return reduce(lambda total, more: tuple(map(add, total, more)), terms)
