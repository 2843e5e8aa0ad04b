"""Data that are separable by a hair, or not: contexts that nearly agree and ask for other tokens.

Where two contexts at an angle ``ε`` contradict each other, a separating ``W`` is as long as ``1/ε``
and the methods' systems, which hold inner products of contexts, know the angle by ``ε²`` only. From
``ε = 1e-5`` on their proximal term outweighs it. A linear program holds the embeddings themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.tolerances import EPS
from ntpnb.basics.validation import FloatArray
from ntpnb.basics.watch import Watch
from ntpnb.margin.other_norms import PairRows, largest_margin_in_max_norm, pair_rows, with_ties_met
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority

ENTRIES = 2**18
"""Entries of the linear program's matrix up to which it is tried: a few seconds.

Also those of a dense matrix of the ties, whose singular values a proof asks for.
"""

SCALES = {1e8: 1e-7, 1e6: 1e-9, 1.0: 1e-10}
"""Factors of the strict pairs' rows, in turn, and the tolerance that HiGHS is given with each.

A margin of 1e-8 is then far above the tolerance. Of 48 planted pairs of contexts at angles of 1e-6
to 1e-8 the first decided 48 and the last 46, and what one of them misses another may decide.
"""


@dataclass(frozen=True, eq=False)
class LinearProgramResult:
    """What the linear program says of the largest margin.

    Attributes
    ----------
    W : ndarray, shape (p, q)
    separates : bool
        Whether a matrix near ``W`` is proved to tie all equal pairs and to have positive
        margins, whatever was rounded.
    multipliers : ndarray, shape (n,)
        Of all pairs' matrices divided by their lengths, the equal ones first: where no ``W``
        separates, a certificate but for rounding.
    """

    W: FloatArray
    separates: bool
    multipliers: FloatArray


def linear_programs(
    data: NextTokenData, order: TokenPriority, watch: Watch
) -> Iterator[LinearProgramResult]:
    """Maximise the margin of a ``W`` with entries of at most one, and prove that it is positive.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with strict pairs.
    watch : Watch
        Whose limit ends it; what was found until then counts.

    Yields
    ------
    LinearProgramResult
        One for each of :data:`SCALES` that the solver has an answer for; none where the program is
        too large. Nothing is proved where ties depend on each other: nothing then bounds how far a
        ``W`` is that meets them.
    """
    entries_of_pair = data.shape[1] * (2 if data.token_embeddings is None else data.shape[0])
    if (len(order.equal) + order.num_strict) * entries_of_pair > ENTRIES:
        return
    rows = pair_rows(data, order)
    # An entry is a difference times a number, divided: each of these is rounded relative to itself.
    rounding = (entries_of_pair + 6) * EPS
    for scale, tolerance in SCALES.items():
        enlarged = PairRows(rows.equal, scale * rows.strict, rows.lengths, rows.shape)
        try:
            solved = with_ties_met(
                largest_margin_in_max_norm(enlarged, tolerance, watch.left), rows
            )
        except ConvergenceError:
            continue
        strict_multipliers = scale * np.maximum(solved.multipliers, 0.0)
        yield LinearProgramResult(
            W=solved.W,
            separates=_is_proved(solved.W.ravel(), rows, rounding),
            multipliers=np.append(solved.equal_multipliers, strict_multipliers),
        )


def _is_proved(flat: FloatArray, rows: PairRows, rounding: float) -> bool:
    """Whether a ``W`` near this one is proved to meet all ties and to have positive margins.

    Parameters
    ----------
    flat : ndarray, shape (p q,)
    rows : PairRows
    rounding : float
        What a product of each row with a ``W`` of norm one may be wrong by.
    """
    num_ties, num_weights = rows.equal.shape
    if num_ties > num_weights or num_ties * num_weights > ENTRIES:
        return False
    wrong = float(np.linalg.norm(flat)) * rounding
    ties_missed = np.abs(rows.equal @ flat) + wrong
    shift = _distance_to_ties(rows.equal.toarray(), ties_missed)
    margins = rows.strict @ flat - wrong - (1 + 1e-9) * shift
    return bool(margins.min() > 0)


def _distance_to_ties(ties: FloatArray, missed: FloatArray) -> float:
    """Bound of how far the nearest ``W`` is that meets all ties, which miss so much at most.

    It is infinite where the ties' rows depend on each other, for all that rounding lets one see.
    """
    num_ties, num_weights = ties.shape
    if num_ties == 0:
        return 0.0
    singular_values = np.linalg.svd(ties, compute_uv=False)
    # Rounding of the rows and of the decomposition moves singular values by no more than this.
    uncertain = 10 * (num_ties + num_weights) * EPS * singular_values[0]
    smallest = float(singular_values[-1] - uncertain)
    return float(np.linalg.norm(missed)) / smallest if smallest > 0 else np.inf
