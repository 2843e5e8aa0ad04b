"""Proofs that a dataset is separable, or that it is not, from a method's iterates.

A certificate of a part of the data, some contexts and the tokens in some set, is one of the whole:
its pairs are among the whole's. So contradictions among a few tokens refute real text, far below
its full size: the frequent ones follow so many contexts that ten of them often contradict each
other already where all tokens together ask for minutes.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.tolerances import CLEAR_MARGIN, VANISHES
from ntpnb.basics.validation import FloatArray, IntArray
from ntpnb.margin.growing_set import growing_set
from ntpnb.margin.normal_form import AllPairs, MarginProgram, SetStep
from ntpnb.margin.support_program import all_pairs
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import strict_weights
from ntpnb.problem.order import token_priority
from ntpnb.problem.pairs import ties_are_met

PROMISING = 1e-4
"""``‖Σ_k A_k φ_k‖`` relative to ``−Σ_k b_k A_k``, below which refining is worthwhile."""

TOKENS = 10
"""How many frequent tokens are tried."""

CONTEXTS_PER_DIMENSION = 4
"""Contexts that are tried first, as a multiple of the dimension; then twice as many each time.

Random data of ten tokens, one after each context, are separable up to 4.5 contexts per dimension
(:func:`ntpnb.thresholds.separability_threshold`). Text contradicts itself earlier.
"""


def separates(pairs: AllPairs, step: SetStep) -> bool:
    """Whether a step's ``W``, moved until all ties are met, has a clear margin on all pairs.

    Such a ``W`` separates by itself, see :func:`~ntpnb.problem.pairs.ties_are_met`; the method need
    not be near a solution. False also where the system of the ties has no factor in floating point.
    The set is asked first, since it costs no pass over all pairs.
    """
    program = step.program
    met = meet_ties(pairs, step)
    if met is None:
        return False
    size = float(np.linalg.norm(met.weights))
    if size == 0:
        return False
    margins = program.margins(met.weights, met.common) / size
    missed = float(np.abs(margins[program.tied]).max(initial=0.0))
    of_set = float((margins / program.roots)[program.ordered].min(initial=np.inf))
    if not _are_clear(missed, of_set):
        return False
    return _are_clear(missed, pairs.least_margin(met.weights, met.common) / size)


def _are_clear(missed: float, least: float) -> bool:
    """Whether ties that are missed by so much leave no doubt of margins of at least so much."""
    return least >= CLEAR_MARGIN and ties_are_met(missed, least)


def contradiction(
    pairs: AllPairs, check: Callable[[], object], start: SetStep | None = None
) -> tuple[MarginProgram, FloatArray] | None:
    """A set, and a certificate on it that nothing separates; None where the method finds none.

    See :func:`~ntpnb.margin.growing_set.growing_set` for the arguments. The certificate is of
    single tokens. A ``W`` that separates ends the search, and so does arithmetic that fails.
    """
    with suppress(np.linalg.LinAlgError):
        for step in growing_set(pairs, check, start):
            check()
            if separates(pairs, step):
                return None
            certificate = certificate_near(pairs, step.program, step.iterate.direction)
            if certificate is not None:
                return step.program, certificate
    return None


def refutation(
    pairs: AllPairs, program: MarginProgram, direction: FloatArray | None
) -> PairWeights | None:
    """Weights of strict pairs that contradict each other, from the growth of a program's dual.

    None where there is no direction, where it is not near a certificate, or where the system of the
    multipliers has no factor in floating point.
    """
    certificate = certificate_near(pairs, program, direction)
    if certificate is None:
        return None
    return pairs.pair_weights(pairs.for_single_tokens(program), certificate)


def certificate_near(
    pairs: AllPairs, program: MarginProgram, direction: FloatArray | None
) -> FloatArray | None:
    """The certificate that :func:`refutation` weighs pairs by: a dual of single tokens, or None."""
    if direction is None:
        return None
    # Where tokens stand for several, one of these is enough, with what all of them have.
    single = pairs.for_single_tokens(program)
    with suppress(np.linalg.LinAlgError):
        return refine_certificate(single, program.roots * direction)
    return None


class Met(NamedTuple):
    """A dual and common scores that meet all ties, and the dual's ``W``."""

    dual: FloatArray
    common: FloatArray
    weights: FloatArray


def meet_ties(pairs: AllPairs, step: SetStep) -> Met | None:
    """Move a step's dual on tied entries, and its common scores, until all ties are met.

    None where the system of the ties has no factor in floating point.
    """
    program, iterate = step
    dual, common = iterate.dual, iterate.common
    ties = pairs.ties
    # Steps are added to W and to column sums too. Computed again from the sum of both, where the
    # dual is large, these would have its rounding.
    weights = program.weights(dual)
    sums = program.column_sums(dual)
    try:
        for _ in range(2 if len(ties) else 0):  # the proximal term leaves a little the first time
            newton = pairs.ties_solver(ties.slack(weights, common), -sums)
            dual = dual + program.values_of(ties, newton.step)
            common = common + newton.common
            weights = weights + ties.weights(newton.step)
            sums = sums + ties.column_sums(newton.step)
    except np.linalg.LinAlgError:
        return None
    return Met(dual, common, weights)


def refine_certificate(program: MarginProgram, direction: FloatArray) -> FloatArray | None:
    """Refine a direction in which a dual grows to a certificate, or return None.

    A certificate is a dual ``A`` with ``A_k ≤ 0`` on ordered entries, not zero there, whose ``W``
    and column sums vanish (Farkas' lemma): a ``W'`` that meets all ties and has positive margins
    would have ``⟨Σ_k A_k φ_k, W'⟩ > 0``. The sums count because multipliers of pairs fix the
    anchor's entry as minus the sum of the others: where a column's sum is not zero, the anchor's
    entry is wrong by that much. Both vanish but for rounding, so that what is excluded are margins
    above 1e-12 of a ``W'`` of norm one.

    Newton steps lead towards this. A multiplier's change is weighed by the multiplier, so that
    small ones move but little. Those no larger than ten times the error of ``direction`` itself are
    dropped, and those that a step makes negative. The steps end at a certificate, or where one
    neither drops any nor halves what is left over.

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
    dual: FloatArray = np.where(program.tied | kept, direction, 0.0) / largest
    metric = np.full(lam.shape, VANISHES)
    metric[kept] = VANISHES * largest / lam[kept]
    solver = program.kkt_solver(program.tied | kept, metric)
    left_over = np.inf
    while True:
        minus_scores = program.margins(program.weights(dual), program.zero_common())  # −φ(W)
        dual = dual + solver(minus_scores, -program.column_sums(dual)).step
        dropped = kept & (dual >= 0)
        if dropped.any():
            kept = kept & ~dropped
            dual[dropped] = 0.0
            solver = program.kkt_solver(program.tied | kept, metric)
        before, left_over = left_over, _left_over(program, dual)
        total = float(np.abs(dual[ordered]).sum())
        if not total >= 1e-3:  # it began at one or more: what shrinks to zero proves nothing
            return None
        if left_over < VANISHES * total:
            return dual
        if not dropped.any() and not left_over < 0.5 * before:  # also if it is nan
            return None


def _left_over(program: MarginProgram, dual: FloatArray) -> float:
    """``‖W‖`` of a dual, plus the lengths of what its column sums add to it at the anchors."""
    sums = np.abs(program.column_sums(dual)).sum()
    return float(np.linalg.norm(program.weights(dual)) + sums)


# -- contradictions among a few tokens ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """Some contexts of a dataset, with some of its tokens as their only candidates.

    Attributes
    ----------
    contexts : ndarray of int
        Rows of the data.
    tokens : ndarray of int
        Increasing.
    data : NextTokenData
        Their problem.
    """

    contexts: IntArray
    tokens: IntArray
    data: NextTokenData


def parts(data: NextTokenData) -> Iterator[Part]:
    """Parts of one-hot data, by growing sets of the contexts that the most frequent tokens follow.

    Contexts that many of the tokens follow come first: the less they leave to order, the more they
    ask for.

    Parameters
    ----------
    data : NextTokenData
        With one-hot tokens that are all candidates everywhere, and a group for each row.
    """
    if not data.is_linear_decoder or data.num_contexts <= data.shape[1]:
        return
    support = (data.sparse_target_probs > 0).astype(np.intp)
    followers, num_followed = np.unique(support.indices, return_counts=True)
    if TOKENS >= len(followers):  # the part would be the whole
        return
    by_frequency = followers[np.argsort(-num_followed, kind="stable")]
    tokens = np.sort(by_frequency[:TOKENS])
    shared = np.asarray(support[:, tokens].sum(1))  # how many of the tokens follow a context
    touching = np.argsort(-shared, kind="stable")[: np.count_nonzero(shared)]
    dim = data.shape[1]
    if len(touching) <= dim:  # as a rule they are independent
        return
    most = CONTEXTS_PER_DIMENSION * dim
    size = 0
    while size < len(touching):
        size = min(most, len(touching))
        most *= 2
        contexts = np.sort(touching[:size])
        probs = data.sparse_target_probs[contexts][:, tokens].toarray()
        problem = NextTokenData(
            context_embeddings=data.context_embeddings[contexts],
            target_probs=probs / probs.sum(1, keepdims=True),
        )
        yield Part(contexts, tokens, problem)


def contradiction_in(
    part: Part, whole: NextTokenData, check: Callable[[], object] = lambda: None
) -> PairWeights | None:
    """A certificate that a part, and with it the whole, is not separable; None where none is found.

    Parameters
    ----------
    part : Part
    whole : NextTokenData
        The data that it is a part of.
    check : callable
        Called between steps; what it raises ends the search.
    """
    order = token_priority(part.data)
    if not order.has_strict_pairs:
        return None
    pairs = all_pairs(part.data, order)
    if not pairs.fits:
        return None
    found = contradiction(pairs, check)
    if found is None:
        return None
    weights = pairs.pair_weights(*found)
    row, _, loser = weights.pairs.T  # a part's groups are named by its rows
    # A part's winner may not be the token that stands for its support in the whole. The two tie, so
    # that the certificate holds with either.
    position = whole.group_index[part.contexts[row]]
    return strict_weights(token_priority(whole), position, part.tokens[loser], weights.weights)
