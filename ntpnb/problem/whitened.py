"""Coordinates in which contexts point everywhere alike, for what does not depend on coordinates.

Hidden states of a trained model have much in common, and differ little in most directions. Whether
a ``W`` separates them does not depend on that: with ``h = A u`` for an invertible ``A``, ``W`` has
the scores on ``h`` that ``W A`` has on ``u``, and the length of a context does not matter either.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg as sla

from ntpnb.basics.threads import product
from ntpnb.basics.tolerances import WHOLE, decomposition_error
from ntpnb.problem.data import NextTokenData


class Whitened(NamedTuple):
    """The same problem in other coordinates.

    Attributes
    ----------
    data : NextTokenData
        With contexts whose second moments are the identity; the data themselves where nothing is
        gained, or too many digits would be lost.
    condition : float
        By what factor the contexts' directions reach further in some coordinates than in others.
    """

    data: NextTokenData
    condition: float


def whitened(data: NextTokenData) -> Whitened:
    """Bring the directions of a linear decoder's contexts into such coordinates.

    Nothing is gained where contexts are no more than dimensions, and may be independent. Contexts
    that ask for more memory than a table may stay as they are, and so do those that reach further
    by more than seven digits in some coordinates than in others, where rounding decides.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    Whitened

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.problem.whitened import whitened
    >>> H = [[10.0, 1.0], [10.0, -1.0], [10.0, 1.0]]
    >>> found = whitened(ntpnb.NextTokenData(H, [[1, 0], [0, 1], [1, 0]]))
    >>> H = found.data.context_embeddings
    >>> (H.T @ H / 3).round(9).tolist()
    [[1.0, -0.0], [-0.0, 1.0]]
    """
    num_contexts, dim = data.num_contexts, data.shape[1]
    if not (data.is_linear_decoder and dim < num_contexts <= WHOLE // dim):
        return Whitened(data, 1.0)
    lengths = data.context_lengths
    directions = data.context_embeddings / np.where(lengths > 0, lengths, 1.0)[:, None]
    values, vectors = sla.eigh(product(directions.T, directions) / num_contexts)
    rounding = decomposition_error(dim)
    kept = values > rounding * values[-1]
    left_out = product(directions, vectors[:, ~kept])
    if not kept.any() or np.abs(left_out).max(initial=0.0) > rounding:
        return Whitened(data, 1.0)
    contexts = product(directions, vectors[:, kept] / np.sqrt(values[kept]))
    condition = float(np.sqrt(values[-1] / values[kept][0]))
    return Whitened(data.replace(context_embeddings=contexts), condition)
