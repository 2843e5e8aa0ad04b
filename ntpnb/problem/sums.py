"""Sums over all contexts of a dataset, block by block: here, or by the workers of joblib."""

import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from operator import iadd
from typing import Any, Self, TypeAlias

from ntpnb.basics.errors import needs_extra
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import require_number
from ntpnb.problem import table
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import Rows

Terms: TypeAlias = tuple[Any, ...]
"""What is computed of some contexts: fresh arrays, or numbers, to be added to those of others."""

SHARES = 16
"""How many sums are handed out at most.

Of which contexts these are does not depend on the workers, and so neither does how they are added.
"""

RETRIES = 2
"""How often a sum is begun anew whose workers have died."""


class ContextSums:
    """Sums over the contexts of a dataset, by workers while it is used as a context manager.

    Parameters
    ----------
    data : NextTokenData
    n_jobs : int or None
        Number of workers as in joblib, which is not needed for one; None takes what
        ``joblib.parallel_config`` says.

    Raises
    ------
    TypeError, ValueError
        ``n_jobs`` is no integer, zero, or more than can be.
    ImportError
        Other workers are asked for, and joblib is missing: raised where the context begins.

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
        if n_jobs is not None:
            needed = "be an integer other than zero, of at most nine digits"
            require_number("n_jobs", n_jobs, lambda n: n == int(n) and 0 < abs(n) < 1e9, needed)
        self._data = data
        self._n_jobs = n_jobs
        self._parallel: Any = None

    def __enter__(self) -> Self:
        if self._n_jobs != 1:
            with needs_extra("sweep", "n_jobs, but for 1,"):
                from joblib import Parallel
            self._parallel = Parallel(n_jobs=self._n_jobs, return_as="generator").__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._parallel is not None:
            self._parallel.__exit__(*raised)
            self._parallel = None

    def __call__(self, of_block: Callable[..., Terms], *arguments: object) -> Terms:
        """Sum what a function gives of each block of contexts, with these arguments.

        Where workers die, it is begun anew, up to :data:`RETRIES` times.

        Raises
        ------
        RuntimeError
            They died each time.
        """
        parts = shares(self._data)
        if self._parallel is None or len(parts) == 1:
            return added(sum_of_share(self._data, part, of_block, arguments) for part in parts)
        for _ in range(1 + RETRIES):
            with suppress(BrokenExecutor):
                return self._by_workers(parts, Packed(of_block, arguments))
        raise RuntimeError(
            f"workers died in each of {1 + RETRIES} attempts at one sum, as they do where memory "
            "is not enough; fewer of them, by n_jobs, take less"
        )

    def _by_workers(self, parts: list[list[slice]], packed: "Packed") -> Terms:
        from joblib import delayed

        tasks = (delayed(packed_sum_of_share)(self._data, part, packed) for part in parts)
        try:
            return added(self._parallel(tasks))
        except BaseException:
            # What was not yet handed out of this sum, joblib would hand out with the next one.
            self.__exit__(None, None, None)
            self.__enter__()
            raise


class Packed:
    """A function and its arguments, pickled once for all shares.

    Arrays that joblib meets among arguments it keeps as files until its workers are given up, and
    those inside of others Dask sends with every task. This is bytes for the one, and for the other,
    by its size, something to be sent to each worker once.
    """

    def __init__(self, of_block: Callable[..., Terms], arguments: tuple[object, ...]) -> None:
        self._pickled = pickle.dumps((of_block, arguments))

    def __sizeof__(self) -> int:
        return len(self._pickled)

    def unpacked(self) -> tuple[Callable[..., Terms], tuple[object, ...]]:
        """The function and its arguments."""
        of_block, arguments = pickle.loads(self._pickled)
        return of_block, arguments


def shares(data: NextTokenData) -> list[list[slice]]:
    """Divide the contexts into blocks, and these into shares of as many, up to one."""
    blocks = list(table.row_slices(data.block_shape))
    num_shares = min(SHARES, len(blocks))
    edges = [len(blocks) * k // num_shares for k in range(num_shares + 1)]
    return [blocks[first:end] for first, end in pairwise(edges)]


@one_thread
def sum_of_share(
    data: NextTokenData,
    share: list[slice],
    of_block: Callable[..., Terms],
    arguments: tuple[object, ...],
) -> Terms:
    """Sum what a function gives of some blocks."""
    return added(of_block(block_of(data, contexts), *arguments) for contexts in share)


def packed_sum_of_share(data: NextTokenData, share: list[slice], packed: Packed) -> Terms:
    """:func:`sum_of_share` in a worker."""
    return sum_of_share(data, share, *packed.unpacked())


def block_of(data: NextTokenData, contexts: slice) -> Rows:
    """Some contexts, or the dataset itself, which has computed much of itself already."""
    if contexts == slice(0, data.num_contexts):
        return data
    return data.block(contexts)


def added(terms: Iterable[Terms]) -> Terms:
    """Add each entry to the same of the others, in their order, into the arrays of the first."""
    return reduce(lambda total, more: tuple(map(iadd, total, more)), terms)
