"""The max-margin problem of large linear decoders by working sets, for bounds of any closeness.

The augmented Lagrangian of :mod:`ntpnb.margin.augmented_lagrangian`, on the pairs that matter
(:mod:`ntpnb.margin.working_set`). Each of its steps gives multipliers of all pairs, most of them
zero, and with them a solution whose residuals and bounds are computed from all pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ntpnb.array_types import FloatArray
from ntpnb.margin.collapse import Collapse, in_order_of_groups
from ntpnb.margin.normal_form import positive_norms
from ntpnb.margin.solution import TIES_MET, MarginSolution, Residuals
from ntpnb.margin.working_set import (
    BatchedSystem,
    Decoder,
    SetPoint,
    WorkingSet,
    highest_outside,
    minimise_on_sets,
    support_keys,
)

FIRST_WEIGHT = 0.03
"""The first ``τ``. The larger it is, the more pairs are penalised, and the easier systems are."""

LAST_WEIGHT = 1e-5
"""The last ``τ``: with smaller ones multipliers lose their digits."""

FALL = 10**0.5
"""Factor by which ``τ`` falls."""

ENOUGH = 0.25
"""Share of what a step missed that the next one may miss; where it misses more, ``τ`` falls."""

MOST_STEPS = 60
"""Steps of the augmented Lagrangian; ten are the rule."""

FEW_STEPS = 25
"""The same where the whole problem can be solved instead."""

LOW_GROWTH = 1e-2
"""``κ`` of :mod:`ntpnb.margin.augmented_lagrangian` below which a margin is hardly to be expected.

Near the edge of separability the whole problem is faster, and it alone comes to certificates. Of
data whose bounds working sets closed sooner than the whole problem, κ was .012 at least; where
nothing separates, it is below this after three to five steps.
"""

SLOWEST = 0.7
"""Share of the gap that two steps may leave where the whole problem can be solved instead.

On random data they left .44 at most. They leave more where ties depend on each other.
"""

ACCURACY = 0.05
"""Accuracy of a minimum, relative to the pull of the start."""

COMMON_START = 2.5
"""Common scores at the start, see :mod:`ntpnb.margin.augmented_lagrangian`."""

TIES_WEIGHT = 1e-8
"""``τ`` of the system that meets the ties, which is solved until nothing is left of them."""

TIES_ROUNDS = 8
"""Times that the ties are met, at most; nearly parallel contexts ask for more than two."""

TIES_LEFT = 1e-13
"""What may be left of the ties, relative to the weights' norm."""


class LargeProblem:
    """The problem of a collapsed linear decoder, and solutions that are judged by all pairs.

    Parameters
    ----------
    collapse : Collapse
        With strict pairs.
    """

    def __init__(self, collapse: Collapse) -> None:
        self.collapse = collapse
        data = collapse.data
        embeddings = data.group_embeddings
        self.lengths = positive_norms(embeddings)
        self.unit = float(self.lengths.min())
        supports = csr_array(in_order_of_groups(data).T)
        supports.sort_indices()
        self.multiplicity = np.ones(data.vocab_size)
        if collapse.multiplicity is not None:
            self.multiplicity = collapse.multiplicity.astype(np.float64)
        self.decoder = Decoder(
            directions=embeddings / self.lengths[:, None],
            goals=self.unit / self.lengths,
            roots=np.sqrt(self.multiplicity),
            supports=supports,
        )
        self.ties = WorkingSet(self.decoder, support_keys(self.decoder))
        by_context = np.argsort(self.ties.context, kind="stable")
        contexts = self.ties.context[by_context]
        is_first = np.diff(contexts, prepend=-1) > 0
        self.anchors = by_context[is_first]  # positions among the ties, by context

    def solution(self, part: WorkingSet, multipliers: FloatArray) -> MarginSolution:
        """The solution of multipliers on a working set, moved until all ties are met.

        It is scaled so that the smallest margin is one, if it is positive.
        """
        lam = np.where(part.tied, multipliers, np.maximum(multipliers, 0.0))
        tied_positions = np.flatnonzero(part.tied)
        for _ in range(TIES_ROUNDS):
            anchor_positions = tied_positions[self.anchors]
            lam[anchor_positions] -= part.column_sums(lam)  # roots of anchors are one
            move = self._move_on_ties(part, lam)
            if not move.any():
                break
            lam[tied_positions] += move
        lam[anchor_positions] -= part.column_sums(lam)
        weights = -part.weights(lam)
        scores = self.ties.shortfall(weights, np.zeros(self.decoder.num_contexts))
        of_anchors = scores[self.anchors]
        margins = (of_anchors - highest_outside(self.decoder, weights)) * self.lengths / self.unit
        scale = 1 / margins.min() if margins.min() > 0 else 1.0
        tie_errors = np.abs(scores - of_anchors[self.ties.context])
        tie_errors *= self.lengths[self.ties.context] / self.unit
        return self._solution_of(
            part, scale * lam, scale * weights, scale * margins, scale * tie_errors
        )

    def _move_on_ties(self, part: WorkingSet, lam: FloatArray) -> FloatArray:
        """What multipliers of tied pairs have to gain for the ties to be met."""
        weights = -part.weights(lam)
        scores = self.ties.shortfall(weights, np.zeros(self.decoder.num_contexts))
        num_ties = np.bincount(self.ties.context)
        common = np.bincount(self.ties.context, scores) / num_ties
        missed = scores - common[self.ties.context]
        if np.abs(missed).max() <= TIES_LEFT * np.linalg.norm(weights):
            return np.zeros(len(missed))
        accuracy = 1e-10 * float(np.linalg.norm(missed)) / TIES_WEIGHT
        move = self._system_of_ties.solve(missed, np.zeros(len(common)), accuracy)
        return self._system_of_ties.multipliers(missed - move[self.ties.context])

    @cached_property
    def _system_of_ties(self) -> BatchedSystem:
        """The system that meets the ties, which are the same for all solutions."""
        return BatchedSystem(self.ties, TIES_WEIGHT)

    def _solution_of(
        self,
        part: WorkingSet,
        lam: FloatArray,
        weights: FloatArray,
        margins: FloatArray,
        tie_errors: FloatArray,
    ) -> MarginSolution:
        """The solution with its residuals, in the data's units.

        Parameters
        ----------
        part : WorkingSet
        lam : ndarray
            Multipliers of its entries.
        weights : ndarray, shape (V, d)
        margins : ndarray, shape (m,)
            Smallest margin of each context's strict pairs.
        tie_errors : ndarray
            What each tie misses.
        """
        norm = float(np.linalg.norm(weights)) / self.unit
        context_lengths = np.linalg.norm(self.collapse.data.group_embeddings, axis=1)
        scales = np.maximum(1.0, norm * context_lengths)
        has_strict = np.isfinite(margins)
        missed = 1 - margins[has_strict]
        violation = float((missed / scales[has_strict]).max())
        tie_residual = float((tie_errors / scales[self.ties.context]).max(initial=0.0))

        # In the data's units, and of all tokens that a token stands for.
        per_pair = lam / (self.unit * self.lengths[part.context])
        totals = part.roots * per_pair
        used = ~part.tied & (lam > 0)
        total = float(totals[used].sum())
        own_scores = part.shortfall(weights, np.zeros(self.decoder.num_contexts)) - part.rhs
        own_scores /= part.roots
        anchor_scores = own_scores[np.flatnonzero(part.tied)[self.anchors]]
        own_margins = (anchor_scores[part.context] - own_scores) * self.lengths[part.context]
        own_margins /= self.unit
        away = np.abs(own_margins - 1) / scales[part.context]
        residuals = Residuals(
            violation=max(violation, tie_residual),
            beyond_tenth=max(float(missed.max()), float(tie_errors.max(initial=0.0))) - 0.1,
            complementarity=float(totals[used] @ away[used]) / (total or 1.0),
        )
        copies = weights / (self.unit * self.decoder.roots[:, None])
        shape = (self.decoder.num_contexts, self.decoder.vocab_size)
        values = per_pair[used] / part.roots[used]
        table = csr_array((values, (part.context[used], part.token[used])), shape=shape)
        return MarginSolution(
            W=copies[self.collapse.kept],
            norm=norm,
            min_margin=float(margins.min()),
            kkt_residual=residuals.kkt,
            duality_gap=abs(norm**2 - total) / (norm**2 / 2 or 1.0),
            tie_residual=tie_residual,
            solver="augmented-lagrangian",
            strict_multipliers=self.collapse.shared_table(table),
            equal_multipliers=self._equal_multipliers(part, per_pair),
            _data=self.collapse.whole,
        )

    def _equal_multipliers(self, part: WorkingSet, per_pair: FloatArray) -> FloatArray:
        """Multipliers of the equal pairs in the order of ``token_priority``."""
        values = per_pair[part.tied]
        is_anchor = np.zeros(len(self.ties), dtype=bool)
        is_anchor[self.anchors] = True
        in_order = np.lexsort((self.ties.token, self.ties.context))
        followers = in_order[~is_anchor[in_order]]
        equal: FloatArray = values[followers]
        return equal


def working_set_solutions(
    problem: LargeProblem,
    say: Callable[[str], object] = lambda text: None,
    between_steps: Callable[[], object] = lambda: None,
    *,
    leave_early: bool = False,
) -> Iterator[MarginSolution]:
    """Solutions of growing accuracy, one for each step of the augmented Lagrangian.

    Parameters
    ----------
    problem : LargeProblem
    say : callable
        Told a line of text after every Newton step.
    between_steps : callable
        Called before every Newton step; what it raises ends the search.
    leave_early : bool
        Whether to end where the whole problem is likely to be solved sooner: where ties are not
        met, where the bounds close slowly, and where no margin is positive yet and the multipliers
        grow nearly along a certificate: ``κ = ‖G U‖ / ‖G‖`` of their growth ``G`` is small.

    Raises
    ------
    NoFactor
        See :mod:`ntpnb.margin.working_set`.
    """
    point = _start(problem, say, between_steps)
    tau = FIRST_WEIGHT
    missed_before = np.inf
    gaps = []
    for _ in range(FEW_STEPS if leave_early else MOST_STEPS):
        minimum = minimise_on_sets(
            point, tau, relative_accuracy=ACCURACY, say=say, between_steps=between_steps
        )
        multipliers = minimum.residual / tau
        solution = problem.solution(minimum.point.part, multipliers)
        yield solution

        growth = multipliers - minimum.point.multipliers
        size_of_growth = float(np.linalg.norm(growth))
        growth_of_weights = float(np.linalg.norm(minimum.point.part.weights(growth)))
        gaps.append(solution.margin_gap)
        if leave_early:
            grows_by_little = growth_of_weights < LOW_GROWTH * size_of_growth
            if solution.tie_residual > TIES_MET or _closes_slowly(gaps):
                return
            if grows_by_little and solution.margin_bounds[0] == 0:
                return
        missed = tau * size_of_growth
        if missed > ENOUGH * missed_before:
            tau = max(tau / FALL, LAST_WEIGHT)
        missed_before = missed
        point = replace(minimum.point, multipliers=multipliers)


def _closes_slowly(gaps: list[float]) -> bool:
    """Whether the last two steps left much of a gap that had begun to close."""
    return len(gaps) >= 3 and gaps[-3] < 1 and gaps[-1] > SLOWEST * gaps[-3]


def _start(
    problem: LargeProblem,
    say: Callable[[str], object],
    between_steps: Callable[[], object],
) -> SetPoint:
    """Weights that meet most constraints for fixed common scores, and their multipliers.

    With common scores that may move at once, the first quadratic would let them fall, since ties
    are all that it has.
    """
    decoder = problem.decoder
    ties = problem.ties
    num_tied = np.bincount(ties.context)
    common = COMMON_START * decoder.goals * (1 - num_tied / problem.multiplicity.sum())
    zero = np.zeros((decoder.vocab_size, decoder.directions.shape[1]))
    minimum = minimise_on_sets(
        SetPoint(ties, np.zeros(len(ties)), zero, common),
        FIRST_WEIGHT,
        relative_accuracy=ACCURACY,
        fixed_scores=True,
        say=say,
        between_steps=between_steps,
    )
    return replace(minimum.point, multipliers=minimum.residual / FIRST_WEIGHT)
