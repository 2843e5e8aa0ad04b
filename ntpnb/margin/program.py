"""The choice of a dataset's program: by supports where its order has two levels, else by pair."""

import numpy as np

from ntpnb.array_types import IntArray
from ntpnb.margin.many_pairs import MANY, ManyPairsProgram
from ntpnb.margin.normal_form import MarginProgram
from ntpnb.margin.pair_program import PairProgram
from ntpnb.margin.support_program import SupportProgram
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority


def margin_program(
    data: NextTokenData,
    order: TokenPriority,
    by_pair: bool = False,
    multiplicity: IntArray | None = None,
) -> MarginProgram:
    """Return the max-margin problem of a dataset in normal form.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with at least one strict pair.
    by_pair : bool
        Whether to have one entry per pair also where supports would do (to compare the two).
    multiplicity : ndarray of int, shape (V,), optional
        How many tokens each one-hot token stands for. Default: ones.

    Returns
    -------
    MarginProgram

    Examples
    --------
    The toy has five tokens in three contexts:

    >>> import ntpnb
    >>> from ntpnb.margin.program import margin_program
    >>> data = ntpnb.datasets.toy()
    >>> program = margin_program(data, ntpnb.token_priority(data))
    >>> program.domain.shape
    (5, 3)
    """
    if has_two_levels(data, order) and not by_pair:
        return SupportProgram(data, order, multiplicity)
    num_pairs = len(order.equal) + len(order.strict)
    if data.token_embeddings is not None and num_pairs > MANY:
        return ManyPairsProgram(data, order)
    return PairProgram(data, order, multiplicity)


def has_two_levels(data: NextTokenData, order: TokenPriority) -> bool:
    """Whether tokens are one-hot and, in each group, one component wins over all other tokens."""
    if data.token_embeddings is not None:
        return False
    group, winner, _ = order.pairs
    # Every pair begins with the token that stands for its component. So the order has two levels
    # iff all pairs of a group, equal ones included, begin with one token.
    anchor = np.zeros(len(order.groups), dtype=int)
    anchor[group] = winner
    return bool((anchor[group] == winner).all())
