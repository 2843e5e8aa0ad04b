"""Gradients of problems whose tables would not fit into memory, a block of contexts at a time."""

from collections.abc import Sequence

import numpy as np

from ntpnb.basics.array_types import FloatArray
from ntpnb.basics.tolerances import WHOLE
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import gradient
from ntpnb.training.batch import ProblemBatch, require_equal_shapes


class LargeBatch:
    """Same-shaped problems; the gradient of each of them in turn, by blocks of contexts.

    Memory does not grow with the number of contexts, see :func:`ntpnb.gradient`.

    Parameters
    ----------
    problems : sequence of n NextTokenData
        As in :class:`ntpnb.training.batch.ProblemBatch`.

    Raises
    ------
    TypeError
        Something else than data.
    ValueError
        No problem at all, or problems of different shapes.

    References
    ----------
    T24 (002) Eq. (2) and App. E; L24 (004) Eq. (19).

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb.training.large_batch import LargeBatch
    >>> data = ntpnb.NextTokenData([[2.0]], [[1.0, 0.0]])
    >>> LargeBatch([data]).gradient(np.zeros((1, 2, 1)))
    array([[[-1.],
            [ 1.]]])
    """

    gram = None

    def __init__(self, problems: Sequence[NextTokenData]) -> None:
        require_equal_shapes(problems)
        self._problems = list(problems)

    def gradient(self, W: FloatArray) -> FloatArray:
        """Gradients of the cross-entropy of all problems.

        Parameters
        ----------
        W : ndarray, shape (n, p, q)

        Returns
        -------
        ndarray, shape (n, p, q)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.large_batch import LargeBatch
        >>> data = ntpnb.datasets.toy()
        >>> LargeBatch([data]).gradient(ntpnb.datasets.lecun_init(data, seed=0)[None]).shape
        (1, 5, 2)
        """
        return np.stack([gradient(w, data) for w, data in zip(W, self._problems, strict=True)])


AnyBatch = ProblemBatch | LargeBatch


def batch_of(problems: Sequence[NextTokenData]) -> AnyBatch:
    """Stack problems where their tables fit, else take them block by block.

    Parameters
    ----------
    problems : sequence of NextTokenData

    Returns
    -------
    ProblemBatch or LargeBatch

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.large_batch import batch_of
    >>> type(batch_of([ntpnb.datasets.toy()])).__name__
    'ProblemBatch'
    """
    require_equal_shapes(problems)
    num_entries = problems[0].num_contexts * problems[0].vocab_size
    return LargeBatch(problems) if num_entries > WHOLE else ProblemBatch(problems)
