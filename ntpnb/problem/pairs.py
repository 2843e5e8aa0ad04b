"""An order's pairs, measured on the data: what a matrix makes of them, and multipliers of them.

Nothing larger than a number for each listed pair is formed. Every residual and every bound of the
package is computed by these functions, from the data themselves.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ntpnb.basics.tolerances import HALF_THE_DIGITS, VANISHES
from ntpnb.basics.validation import FloatArray, as_array
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority
from ntpnb.problem.table import BLOCK, scores_at


def combined_pairs(
    data: NextTokenData, order: TokenPriority, pair_multipliers: FloatArray
) -> FloatArray:
    """``Σ_k y_k (t_i − t_j) h_gᵀ`` over all pairs, shape (p, q), without a matrix per pair."""
    group, winner, loser = order.pairs
    rows = np.append(group, group)
    tokens = np.append(winner, loser)
    values = np.append(pair_multipliers, -pair_multipliers)
    if math.prod(order.shape) <= BLOCK:
        flat = np.bincount(rows * order.shape[1] + tokens, values, math.prod(order.shape))
        by_token = np.asarray(flat, dtype=np.float64).reshape(order.shape)
    else:
        by_token = csr_array((values, (rows, tokens)), shape=order.shape)
    combined: FloatArray = by_token.T @ data.group_embeddings
    if data.token_embeddings is not None:
        combined = without_offset(data.token_embeddings).T @ combined
    return combined


def pair_margins(data: NextTokenData, order: TokenPriority, W: FloatArray) -> FloatArray:
    """``(t_i − t_j) · W h_g`` of all pairs, shape (n,)."""
    group, winner, loser = order.pairs
    H = data.group_embeddings
    T = data.token_embeddings
    token_weights = W if T is None else without_offset(T) @ W
    return scores_at(H, token_weights, group, winner) - scores_at(H, token_weights, group, loser)


def without_offset(token_embeddings: FloatArray) -> FloatArray:
    """The token embeddings but for what most have in common, of which no difference knows.

    Differences of scores would be rounded as the scores are, which a common offset makes large.
    """
    centred: FloatArray = token_embeddings - np.median(token_embeddings, axis=0)
    return centred


def margin_sizes(data: NextTokenData, order: TokenPriority, norm: float) -> FloatArray:
    """``‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖)`` of all pairs, shape (n,)."""
    token_lengths, context_lengths = _lengths(data, order)
    sizes: FloatArray = np.minimum(1.0, token_lengths) * norm * context_lengths
    return sizes


class RelativeMargins(NamedTuple):
    """The largest ``|w_k|`` of an equal pair and the smallest ``w_k`` of a strict one, by size."""

    of_ties: float
    of_strict: float


def relative_margins(margins: FloatArray, sizes: FloatArray, num_ties: int) -> RelativeMargins:
    """Margins ``w_k`` of all pairs, equal ones first, relative to their sizes; 0/0 is zero."""
    shares = np.divide(margins, sizes, out=np.zeros_like(margins), where=sizes > 0)
    return RelativeMargins(
        of_ties=float(np.abs(shares[:num_ties]).max(initial=0.0)),
        of_strict=float(shares[num_ties:].min(initial=np.inf)),
    )


def ties_are_met(tie_residual: float, relative_margin: float) -> bool:
    """Whether a ``W`` that meets all ties is so near that it has positive margins too.

    Up to a small factor it is ``tie_residual / σ`` away, relative to ``‖W‖``, where ``σ`` is by how
    much ties are independent: the smallest singular value of their matrices of norm one that is
    not zero. This is less than the margins allow unless ``σ`` is below 1e-8. Other ties count as
    dependent, as if rounding had made them differ.
    """
    return tie_residual <= min(VANISHES, HALF_THE_DIGITS * relative_margin)


def pair_lengths(data: NextTokenData, order: TokenPriority) -> FloatArray:
    """``‖t_i − t_j‖ ‖h_g‖`` of all pairs, shape (n,)."""
    token_lengths, context_lengths = _lengths(data, order)
    lengths: FloatArray = token_lengths * context_lengths
    return lengths


def _lengths(data: NextTokenData, order: TokenPriority) -> tuple[FloatArray, FloatArray]:
    """``‖t_i − t_j‖`` and ``‖h_g‖`` of all pairs."""
    group, winner, loser = order.pairs
    context_lengths: FloatArray = np.linalg.norm(data.group_embeddings, axis=1)[group]
    T = data.token_embeddings
    if T is None:
        return np.full(len(group), 2**0.5), context_lengths
    return np.linalg.norm(T[winner] - T[loser], axis=1), context_lengths


def margin_bounds(
    norm: float, dual_norm: float, multipliers: float, min_margin: float, *, ties_met: bool
) -> tuple[float, float]:
    """A lower and an upper bound of the largest margin of a matrix of norm at most one.

    A ``W`` of norm ``norm`` has the margin ``min_margin / norm``, which counts where ties are met,
    see :func:`ties_are_met`. No matrix that ties the equal pairs has more on all strict ones than
    ``dual_norm / Σ λ_k``, where ``dual_norm`` is the dual norm of what the pairs combine to with
    their multipliers, of sum ``multipliers``.
    """
    above = dual_norm / multipliers if multipliers > 0 else np.inf
    if norm == 0 or multipliers == 0 or min_margin <= 0 or not ties_met:
        return 0.0, above
    return min_margin / norm, above


def relative_gap(bounds: tuple[float, float]) -> float:
    """How much two bounds of a margin differ, relative to the upper; one if the lower is zero.

    One also where the lower is twice the upper or more, which is rounding of a margin of zero.
    """
    below, above = bounds
    if not 0 < below < 2 * above:
        return 1.0
    return max(0.0, 1 - below / above)


def require_multipliers(
    name: str, order: TokenPriority, lam: FloatArray | csr_array, mu: FloatArray
) -> None:
    """Raise ``ValueError`` unless a solution has one multiplier for each pair, as they must be.

    Those of strict pairs may be a table of groups and losers, shape (G, V).
    """
    if isinstance(lam, csr_array):
        if lam.shape != order.shape:
            raise ValueError(
                f"{name}'s table of multipliers is {lam.shape}; it needs {order.shape}"
            )
        lam = as_array(f"{name}'s strict multipliers", lam.data, ndim=1)
    else:
        as_array(f"{name}'s strict multipliers", lam, ndim=1, shape=(len(order.strict),))
    as_array(f"{name}'s equal multipliers", mu, ndim=1, shape=(len(order.equal),))
    if (lam < 0).any():
        raise ValueError(f"{name} has a negative multiplier of a strict pair")
