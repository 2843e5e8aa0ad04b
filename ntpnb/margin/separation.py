"""Proofs that a dataset is separable, or that it is not, from a method's iterates."""

from dataclasses import dataclass

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.errors import PairWeights
from ntpnb.margin.normal_form import AllPairs, Iterate, MarginProgram, SetStep
from ntpnb.tolerances import TIES_MET

CLEAR_MARGIN = 1e-6
"""Margin, relative to the norm of ``W``, that no rounding of the ties can pretend.

Data whose best margin is smaller are decided by the max-margin solution instead (see ``solve``).
"""

PROMISING = 1e-4
"""``‖Σ_k A_k φ_k‖`` relative to ``−Σ_k b_k A_k``, below which refining is worthwhile."""

VANISHES = 1e-12
"""``Certificate.residual`` below which what is left over counts as rounding of zero."""


def separates(pairs: AllPairs, step: SetStep) -> bool:
    """Whether a step's ``W``, moved until all ties are met, has a clear margin on all pairs.

    Such a ``W`` is a proof by itself; the method need not be near a solution.

    Raises
    ------
    numpy.linalg.LinAlgError
        The system of the ties has no factor in floating point.
    """
    program = step.program
    moved = meet_ties(program, step.iterate)
    W = program.weights(moved.dual)
    size = np.linalg.norm(W)
    margins = program.margins(W, moved.common)
    ties_met = np.abs(margins[program.tied]).max(initial=0.0) <= TIES_MET * size
    clear = (margins / program.roots)[program.ordered].min(initial=np.inf) >= CLEAR_MARGIN * size
    nonzero = size > 1e-6  # against rounding of zero: solutions have norms of at least max b = 1
    if not (ties_met and nonzero and clear):
        return False
    return bool(pairs.least_margin(W, moved.common) >= CLEAR_MARGIN * size)


def refutation(pairs: AllPairs, step: SetStep) -> PairWeights | None:
    """Weights of strict pairs that contradict each other, from the growth of a step's dual.

    Raises
    ------
    numpy.linalg.LinAlgError
        See :func:`refine_certificate`.
    """
    direction = step.iterate.direction
    if direction is None:
        return None
    # Where tokens stand for several, one of these is enough, with what all of them have.
    program = pairs.for_single_tokens(step.program)
    certificate = refine_certificate(program, step.program.roots * direction)
    if certificate is None:
        return None
    return pairs.pair_weights(program, certificate.dual)


def meet_ties(program: MarginProgram, iterate: Iterate) -> Iterate:
    """Move an iterate's dual on tied entries, and its common scores, until all ties are met.

    Raises
    ------
    numpy.linalg.LinAlgError
        The system of the ties has no factor in floating point.
    """
    if not program.tied.any():
        return iterate
    slack = program.slack(program.weights(iterate.dual), iterate.common)
    newton = program.ties_solver(
        np.where(program.tied, slack, 0.0), -program.column_sums(iterate.dual)
    )
    return Iterate(iterate.dual + newton.step, iterate.common + newton.common, direction=None)


@dataclass(frozen=True, eq=False)
class Certificate:
    """Proof that no ``W`` separates: multipliers whose ``W`` vanishes (Farkas' lemma).

    A ``W'`` that meets all ties and has positive margins would have ``⟨Σ_k A_k φ_k, W'⟩ > 0``.

    Attributes
    ----------
    dual : ndarray
        Nonpositive on ordered entries and not zero there, with vanishing column sums.
    residual : float
        ``‖W‖`` plus the norm of the column sums, over the sum of the ordered multipliers. The sums
        count since multipliers of pairs leave an anchor no entry but what makes its column's sum
        zero.
    """

    dual: FloatArray
    residual: float


def refine_certificate(program: MarginProgram, direction: FloatArray) -> Certificate | None:
    """Refine a direction in which a dual grows to a certificate, or return None.

    Newton steps towards ``weights(dual) = 0`` and zero column sums, in a metric that lets small
    multipliers move but little, so that they stay positive. Multipliers no larger than ten times
    the error of ``direction`` itself are dropped. The steps end at a certificate, or where one no
    longer halves what is left over.

    Raises
    ------
    numpy.linalg.LinAlgError
        The system of the multipliers has no factor in floating point.
    """
    ordered = program.ordered
    lam = np.where(ordered, np.maximum(-direction, 0.0), 0.0)
    error = np.linalg.norm(program.weights(direction))
    ascent = (lam * program.rhs).sum()
    if not error < PROMISING * ascent:  # also if one is nan
        return None

    kept = lam > 10 * error
    if not kept.any():  # nothing but error
        return None
    largest = lam.max()
    mask = program.tied | kept
    dual = np.where(mask, direction, 0.0) / largest
    lam = lam / largest
    metric = np.full(lam.shape, 1e-12)
    metric[kept] = 1e-12 / lam[kept] ** 2
    solver = program.kkt_solver(mask, metric)
    left_over = float(np.linalg.norm(program.weights(dual)))
    before = np.inf
    while left_over < 0.5 * before:
        before = left_over
        minus_scores = program.margins(program.weights(dual), program.zero_common())  # −φ(W)
        dual = dual + solver(minus_scores, -program.column_sums(dual)).step
        dual = np.where(ordered, np.minimum(dual, 0.0), dual)
        left_of_weights = np.linalg.norm(program.weights(dual))
        left_of_sums = np.linalg.norm(program.column_sums(dual))
        left_over = float(left_of_weights + left_of_sums)
        total = float(np.abs(dual[ordered]).sum())
        if total < 1e-3:  # it began at one or more: a dual that shrinks to zero proves nothing
            return None
        if left_over < VANISHES * total:
            return Certificate(dual, left_over / total)
    return None
