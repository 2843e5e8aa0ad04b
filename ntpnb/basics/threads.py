"""One BLAS thread where matrices are small, and the user's own number where one of them is large.

BLAS shares even small products among all cores, whose threads then wait for each other thousands
of times in one solution: with two of them some problems took twenty to eighty times as long. So
the functions that users call run on one thread (:func:`one_thread`), and what is large enough asks
for the others back (:func:`product`, :func:`threads_for`).

BLAS has one number of threads for the whole process. While one Python thread has limited it,
others leave it alone: they run with what it is at the moment, which costs time and nothing else.
The thread that limited it restores it. Where threadpoolctl knows no way to limit a BLAS, as with
Apple's Accelerate, nothing changes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

from ntpnb.basics.validation import FloatArray

P = ParamSpec("P")
R = TypeVar("R")

MUCH_WORK = 2**28
"""Multiply-adds from which on the work is given to all threads.

One thread takes 10 to 20 ms for so many. Two saved at most half of it, and where another program
held a core they lost as much, also on much smaller products: a thread that waits for another gets
the core back only when the system turns to it, after up to 16 ms.
"""

_limiting = RLock()  # held by the thread that has limited BLAS
_users_threads: list[dict[str, Any]] = []  # what that thread found, and will restore
_as_it_is = nullcontext()


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of numpy and scipy, both loaded by now; to look for them takes 2 ms."""
    return ThreadpoolController().select(user_api="blas")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Let BLAS use one thread while a function runs, and restore its number, also after an error.

    The outermost call does so, in about 20 µs; those inside it add less than one.

    Parameters
    ----------
    function : callable

    Returns
    -------
    callable

    Examples
    --------
    >>> import numpy as np
    >>> from threadpoolctl import threadpool_info
    >>> from ntpnb.basics.threads import one_thread
    >>> @one_thread
    ... def numbers():
    ...     return {library["num_threads"] for library in threadpool_info()}
    >>> numbers() <= {1}
    True
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _limiting.acquire(blocking=False):  # another thread has limited it
            return function(*args, **kwargs)
        try:
            if _users_threads:  # so has a call around this one
                return function(*args, **kwargs)
            _users_threads.extend(_blas().info())
            try:
                with _blas().limit(limits=1):
                    return function(*args, **kwargs)
            finally:
                _users_threads.clear()
        finally:
            _limiting.release()

    return limited


def threads_for(multiply_adds: float) -> AbstractContextManager[None]:
    """Give what stands inside ``with`` the user's number of threads, if it is much work.

    Parameters
    ----------
    multiply_adds : float
        The work; :data:`MUCH_WORK` is much.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.threads import threads_for
    >>> with threads_for(2000**3 / 3):
    ...     factor = np.linalg.cholesky(np.eye(2000))
    """
    return _users_number() if multiply_adds >= MUCH_WORK else _as_it_is


@contextmanager
def _users_number() -> Iterator[None]:
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=_users_threads):
            yield
    finally:
        _limiting.release()


def product(A: FloatArray, B: FloatArray) -> FloatArray:
    """``A @ B``, with the user's number of threads where the matrices are large.

    Parameters
    ----------
    A : ndarray, shape (..., n, k)
    B : ndarray, shape (..., k, m)

    Returns
    -------
    ndarray, shape (..., n, m)

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.threads import product
    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    result: FloatArray
    if A.shape[-2] * A.shape[-1] * B.shape[-1] < MUCH_WORK:  # a context would cost as much
        result = A @ B
    else:
        with _users_number():
            result = A @ B
    return result
