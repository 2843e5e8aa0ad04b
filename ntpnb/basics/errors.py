"""Errors that say why a well-posed question got no answer: with evidence, or with the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from ntpnb.basics.validation import FloatArray, IntArray

__all__ = ["ConvergenceError", "NotSeparableError", "PairWeights"]


@dataclass(frozen=True, eq=False)
class PairWeights:
    """Nonnegative weights of strict pairs, of which most are zero and only the others are kept.

    Attributes
    ----------
    pairs : ndarray of int, shape (k, 3)
        The rows ``(group, i, j)`` whose weights are not zero.
    weights : ndarray, shape (k,)
    positions : ndarray of int, shape (k,)
        Their rows in ``token_priority(data).strict``.
    num_strict : int
        The number of its rows.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.basics.errors import PairWeights
    >>> some = PairWeights(np.array([[0, 1, 2]]), np.array([1.0]), np.array([1]), num_strict=3)
    >>> some.dense().tolist()
    [0.0, 1.0, 0.0]
    """

    pairs: IntArray
    weights: FloatArray
    positions: IntArray
    num_strict: int

    def dense(self) -> FloatArray:
        """One weight for each strict pair, shape (num_strict,)."""
        weights = np.zeros(self.num_strict)
        weights[self.positions] = self.weights
        return weights


class _FormsWeights(Protocol):
    def dense(self) -> FloatArray: ...


class NotSeparableError(ValueError):
    """The strict orders of a dataset cannot all hold with a positive margin.

    Parameters
    ----------
    message : str
    certificate : ndarray, shape (len(order.strict),), or object with a method ``dense()``
        The weights, or what forms them when they are asked for, such as ``PairWeights``.

    Attributes
    ----------
    certificate : ndarray, shape (len(order.strict),)
        Nonnegative weights ``λ``, not all zero, for which
        ``(I − P_F) Σ_k λ_k (t_i − t_j) h_gᵀ`` vanishes, where the sum runs over the rows
        ``(g, i, j)`` of ``token_priority(data).strict``, but for rounding. A direction with margin
        one on every pair would give that sum a positive inner product, so no such direction exists
        (Farkas' lemma). It is formed when asked for.
    pair_weights : PairWeights or None
        The pairs that contradict each other, and their weights: what ``certificate`` holds besides
        zeros. None where the error was made from an array alone, or where nearly all pairs of large
        data have weights, as those of a :class:`ntpnb.LossFloor`.

    Examples
    --------
    One context embedding that is listed twice cannot prefer two different tokens:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
    >>> try:
    ...     ntpnb.max_margin(data)
    ... except ntpnb.NotSeparableError as error:
    ...     weights = error.certificate
    ...     pairs = error.pair_weights.pairs
    >>> bool(weights[0] > 0), round(float(weights[1] / weights[0]), 6)
    (True, 1.0)
    >>> pairs.tolist()  # in context 0 token 0 wins over token 1, in context 1 it loses
    [[0, 0, 1], [1, 1, 0]]
    """

    def __init__(self, message: str, certificate: FloatArray | _FormsWeights) -> None:
        super().__init__(message)
        self._certificate = certificate

    @cached_property
    def certificate(self) -> FloatArray:
        """The weights of all strict pairs; see the class."""
        if hasattr(self._certificate, "dense"):
            return self._certificate.dense()
        return self._certificate

    @property
    def pair_weights(self) -> PairWeights | None:
        """The weights that are not zero; see the class."""
        return self._certificate if isinstance(self._certificate, PairWeights) else None

    def __reduce__(self) -> tuple[type[Self], tuple[str, FloatArray | _FormsWeights]]:
        # By default an exception is rebuilt from its message alone, which __init__ does not accept.
        return type(self), (str(self), self._certificate)


class ConvergenceError(RuntimeError):
    """An iteration ended before its proof of optimality was good enough.

    Parameters
    ----------
    message : str
    residual : float
    point : optional

    Attributes
    ----------
    residual : float
        The residual that was reached, in the units that the raising function documents.
    point : object or None
        The best that was reached, such as a matrix or a trace, to which the residual belongs, where
        the raising function says that it gives one.

    Examples
    --------
    >>> import ntpnb
    >>> error = ntpnb.ConvergenceError("the gradient's norm stayed at 1e-3", residual=1e-3)
    >>> error.residual, error.point is None
    (0.001, True)
    """

    def __init__(self, message: str, residual: float, point: Any = None) -> None:
        super().__init__(message)
        self.residual = residual
        self.point = point

    def __reduce__(self) -> tuple[type[Self], tuple[str, float, Any]]:
        return type(self), (str(self), self.residual, self.point)


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Say how to install what an import within this context does not find.

    Parameters
    ----------
    extra : str
        The extra of this package that brings it.
    what : str
        Who needs it.

    Raises
    ------
    ImportError
        With the name of the missing package and the command that installs it.

    Examples
    --------
    >>> from ntpnb.basics.errors import needs_extra
    >>> with needs_extra("plot", "the pencil"):
    ...     import graphite
    Traceback (most recent call last):
    ImportError: the pencil needs graphite: pip install "ntpnb[plot]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f'{what} needs {error.name}: pip install "ntpnb[{extra}]"'
        raise ImportError(message, name=error.name) from None
