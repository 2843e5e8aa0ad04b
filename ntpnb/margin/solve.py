"""``max_margin`` and ``is_separable``: one method, what comes before and after it, what ends it."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.errors import ConvergenceError, NotSeparableError, PairWeights
from ntpnb.basics.matrix_norms import NORMS
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import ACCEPT, STOP
from ntpnb.basics.validation import FloatArray, require_choice, require_number, require_type
from ntpnb.basics.watch import OutOfTime, Progress, Watch
from ntpnb.margin.growing_set import ROUND, all_tight, first_steps, growing_set
from ntpnb.margin.narrow import linear_programs
from ntpnb.margin.normal_form import FEW, AllPairs, MarginProgram, PairMultipliers, SetStep
from ntpnb.margin.other_norms import NormMarginSolution, max_margin_in_norm
from ntpnb.margin.pair_program import EveryPair, PairsInMetric
from ntpnb.margin.proximal import proximal_steps
from ntpnb.margin.separation import (
    contradiction,
    contradiction_in,
    meet_ties,
    parts,
    refutation,
    separates,
)
from ntpnb.margin.solution import (
    MarginSolution,
    as_metric,
    certify,
    restored,
)
from ntpnb.margin.support_program import SupportPairs, all_pairs
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import Collapse, collapsed, not_collapsed, whitened
from ntpnb.problem.order import TokenPriority, require_order, token_priority

__all__ = ["is_separable", "max_margin"]

NARROW = 1e-4
"""Relative distance up to which two contexts with different supports explain the undecided."""


@overload
def max_margin(
    data: NextTokenData,
    *,
    norm: Literal["frobenius"] = "frobenius",
    metric: ArrayLike | None = None,
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution: ...


@overload
def max_margin(
    data: NextTokenData,
    *,
    norm: Literal["max", "sum", "spectral", "nuclear"],
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> NormMarginSolution: ...


@overload
def max_margin(
    data: NextTokenData,
    *,
    norm: str,
    metric: ArrayLike | None = None,
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution | NormMarginSolution: ...


@one_thread
def max_margin(
    data: NextTokenData,
    *,
    norm: str = "frobenius",
    metric: ArrayLike | None = None,
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution | NormMarginSolution:
    """Minimise ``‖W‖`` while equal pairs tie and strict pairs keep a margin of at least one.

    Parameters
    ----------
    data : NextTokenData
    norm : str
        ``"frobenius"`` (default), or ``"max"``, the largest entry in absolute value, ``"sum"``, the
        sum of the entries' absolute values, both by linear programming, ``"spectral"``, the largest
        singular value, or ``"nuclear"``, their sum, both by an interior point. For small problems;
        with the other arguments but ``data`` and ``order`` left out.
    metric : array_like, shape (p, q), optional
        Positive numbers ``D``: ``Σ D_vi W_vi²`` is minimised. It decides in which direction the
        margins are largest, and not whether there is one. For problems whose pairs can be listed
        with a matrix each. Default: ones.
    order : TokenPriority, optional
        The order of ``data``, where it is at hand already; residuals are measured on its pairs.
        Default: ``token_priority(data)``; then,
        without a metric, one token of a linear decoder stands for those that are never a target,
        where these are at least half, and what is found is restored for all of them.
    gap : float
        With a positive one, a solution is also returned that, up to rounding, meets all ties and
        keeps every margin at least one, and whose bounds of the largest margin differ by no more
        than this, relative to the larger (:attr:`MarginSolution.margin_bounds`). Default: the
        optimum.
    seconds : float, optional
        After so many the search ends with a ``ConvergenceError``, once the step that it is at is
        over. Default: no limit.
    progress : callable, optional
        Called with a line of text per step; what it raises ends the search.

    Returns
    -------
    MarginSolution
        Its ``kkt_residual``, measured on all pairs from the data, is at most 1e-10, as a rule at
        most 1e-13; or, with a ``gap``, its ``margin_gap`` is at most that. ``W = 0`` where there
        are no strict pairs. In another norm than Frobenius' it is a :class:`NormMarginSolution`.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``order`` no order.
    ValueError
        An unknown ``norm``; an ``order`` of other groups or tokens; ``gap``, ``seconds`` or
        ``metric`` out of range, or given with another norm; or, with a metric or another norm,
        pairs whose matrices have more than 2**28 entries.
    NotSeparableError
        ``.certificate`` is ``λ ≥ 0`` with ``Σ λ_k = 1``; with some ``μ``, the ``W`` of
        :class:`MarginSolution` has a norm of at most ``1e-12 Σ λ_k ‖t_i − t_j‖ ‖h_g‖``. There, an
        embedding or a difference of length zero counts as long as the shortest other one. With a
        metric, lengths of matrices may be those of what is left when they are divided by ``√D``.
    ConvergenceError
        Undecided: neither proof was reached, or not in time;
        ``.point`` is the best :class:`MarginSolution`, not one yet, whose bounds hold all the same,
        and ``.residual`` its KKT residual; None and ``inf`` where there is none. In another norm
        they are a :class:`NormMarginSolution` and its ``margin_gap``.

    References
    ----------
    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM. A metric: S. Gunasekar, J. Lee, D. Soudry &
    N. Srebro (2018), Characterizing implicit bias in terms of optimization geometry, Thm 2.

    Examples
    --------
    >>> import ntpnb
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
    >>> (svm.W[0] * 25).round(6).tolist()
    [-3.0, -24.0]

    Where the second token is three times as costly to move, the first moves more:

    >>> data = ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]])
    >>> ntpnb.max_margin(data, metric=[[1.0], [3.0]]).W.round(6).tolist()
    [[0.75], [-0.25]]
    >>> round(ntpnb.max_margin(ntpnb.datasets.toy(), norm="max").norm, 9)
    1.0
    """
    require_type("data", data, NextTokenData)
    require_order(order, data)
    require_choice("norm", norm, NORMS)
    if norm != "frobenius":
        if gap != 0 or seconds is not None or progress is not None or metric is not None:
            raise ValueError(
                f"norm is {norm!r}, whose solver is fixed; gap, seconds, progress and metric must "
                "be left out"
            )
        return _in_another_norm(data, norm, order)
    require_number("gap", gap, lambda number: 0 <= number < 1, "be at least 0 and less than 1")
    D = as_metric("metric", metric, data)
    each_for_itself = order is not None or D is not None
    problem = not_collapsed(data) if each_for_itself else collapsed(data)
    search = MarginSearch(problem, order, Watch(seconds, progress), D)
    try:
        return search.solution(gap)
    except OutOfTime:
        raise search.out_of_time() from None


def _in_another_norm(
    data: NextTokenData, norm: str, order: TokenPriority | None
) -> NormMarginSolution:
    """Solve in another norm, or refute in Frobenius': no norm matters to whether data separate."""
    try:
        return max_margin_in_norm(data, norm, order)
    except ConvergenceError as undecided:
        with suppress(ConvergenceError):  # what the norm's own solver reached says more
            max_margin(data, order=order)
        raise undecided


@one_thread
def is_separable(
    data: NextTokenData,
    *,
    order: TokenPriority | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> bool:
    """Whether some ``W`` meets all ties and keeps every strict pair at a positive margin.

    Stops at the first proof: a ``W`` with ties met to 1e-12 and to 1e-8 of its margins, and these
    above 1e-6, all relative to its norm and the pairs'; a max-margin solution, whose margins may be
    smaller; or a certificate that no ``W`` of norm one has margins above 1e-12, relative to the
    pairs. Ties that are independent by less than 1e-8, as two contexts at that angle may make them,
    may count as dependent.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        The order of ``data``, where it is at hand already. Default: ``token_priority(data)``.
    seconds : float, optional
        After so many the search ends with a ``ConvergenceError``. Default: no limit.
    progress : callable, optional
        Called with a line of text per step; what it raises ends the search.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``order`` no order.
    ValueError
        ``seconds`` is negative, or ``order`` one of other groups or tokens.
    ConvergenceError
        Undecided: no proof was reached, or not in time;
        ``.residual`` is the best KKT residual, and ``inf`` where none was computed.

    References
    ----------
    T24 (002) Def. 2; L24 (004), Graph-SVM.

    Examples
    --------
    >>> import numpy as np
    >>> import ntpnb
    >>> ntpnb.is_separable(ntpnb.datasets.toy())
    True

    Four contexts on a ray, whose next tokens alternate, cannot be told apart by linear scores:

    >>> H = [[1.0], [2.0], [3.0], [4.0]]
    >>> ntpnb.is_separable(ntpnb.NextTokenData(H, np.eye(2)[[0, 1, 0, 1]]))
    False
    """
    require_type("data", data, NextTokenData)
    require_order(order, data)
    watch = Watch(seconds, progress)
    collapse = collapsed if order is None else not_collapsed
    asked = MarginSearch(collapse(data), order, watch)
    try:
        in_coordinates = whitened(data).data
        if in_coordinates is not data:
            try:
                return MarginSearch(collapse(in_coordinates), order, watch).verdict()
            except ConvergenceError as undecided:
                if undecided is watch.raised:
                    raise
        return asked.verdict()
    except OutOfTime:
        raise asked.out_of_time() from None


class MarginSearch:
    """The search for a max-margin solution, or for the first proof, and what it has found so far.

    Contradictions among few tokens are looked for first (:mod:`ntpnb.margin.separation`); then the
    method runs (:mod:`ntpnb.margin.growing_set`), and a linear program is asked of what stays
    undecided and is small (:mod:`ntpnb.margin.narrow`). What is returned and raised is about the
    whole of the data.

    Parameters
    ----------
    collapse : Collapse
        The data, in which one token may stand for others, without a metric.
    order : TokenPriority, optional
        The order of ``collapse.data``, where it is at hand already.
    watch : Watch
    metric : ndarray, shape (p, q), optional
    """

    def __init__(
        self,
        collapse: Collapse,
        order: TokenPriority | None,
        watch: Watch,
        metric: FloatArray | None = None,
    ) -> None:
        self.collapse = collapse
        self.data = collapse.data
        self.metric = metric
        self.order = token_priority(self.data) if order is None else order
        self.parts = parts(self.data)
        self.watch = watch
        self.best: MarginSolution | None = None
        self.enclosed: MarginSolution | None = None  # the one with the best bounds of the margin
        self.residual = np.inf  # the best KKT residual

    # -- two questions

    def solution(self, gap: float) -> MarginSolution:
        """Return the solution, or raise what :func:`max_margin` raises."""
        return restored(self._solution(gap), self.collapse)

    def _solution(self, gap: float) -> MarginSolution:
        """The solution of the collapsed problem."""
        if not self.order.has_strict_pairs:
            nothing = PairMultipliers(np.zeros(0), np.zeros(len(self.order.equal)))
            zero = certify(self.data, self.order, nothing, metric=self.metric)
            return replace(zero, solver="no strict pairs")
        start = self._start()
        if start is None:
            self.refute_by_parts()
        for step in self._steps(start):
            if step.iterate.direction is None:  # a guess
                continue
            self._note(step)
            if solved := self._solved(STOP):
                return solved
            if gap > 0:
                self._enclose(step)
                if self.enclosed is not None and self.enclosed.margin_gap <= gap:
                    return self.enclosed
        separable = self._solved(ACCEPT) is not None or self._separable_by_linear_program()
        if separable and self.best is not None and self.residual <= ACCEPT:
            return self.best
        raise self._exhausted(separable=separable)

    def verdict(self) -> bool:
        """Whether the data are separable, by the first proof; see :func:`is_separable`.

        A ``W`` may separate long before it is near the solution, and also where the method is
        guessing; so every iterate is asked that first. Residuals, which cost a pass over all pairs,
        are computed of settled iterates only. They decide where margins are too small for
        ``separates``.
        """
        if not self.order.has_strict_pairs:
            return True
        try:
            self.refute_by_parts()
            for step in self._steps(None):
                if separates(self.pairs, step):
                    return True
                self.watch.say(f"no proof yet, of {np.count_nonzero(step.program.ordered)} pairs")
                if step.iterate.settled:
                    self._note(step)
                    if self._solved(STOP):
                        return True
            if self._solved(ACCEPT) or self._separable_by_linear_program():
                return True
        except NotSeparableError:
            return False
        raise self._exhausted()

    def refute_by_parts(self) -> None:
        """Raise ``NotSeparableError`` where a few frequent tokens contradict each other.

        Parts that were looked at are not looked at again.
        """
        for part in self.parts:
            size = f"the {len(part.tokens)} most frequent tokens in {len(part.contexts)} contexts"
            weights = contradiction_in(part, self.data, self.watch.check)
            if weights is not None:
                raise self._refusal(weights, f"; they were found among {size}")
            self.watch.say(f"no contradiction found among {size}")

    # -- the steps of the search

    @cached_property
    def pairs(self) -> AllPairs:
        """The problem in normal form."""
        if self.metric is None:
            return all_pairs(self.data, self.order, self.collapse.multiplicity)
        return PairsInMetric(self.data, self.order, self.metric)

    def _start(self) -> SetStep | None:
        """Where to begin, and a refusal, in better coordinates, where contexts need these.

        A round of the steps that name the first set sees what differs in size by no more than the
        number of its steps. Other coordinates have another solution, but much the same tight pairs,
        and the same certificates.

        Raises
        ------
        NotSeparableError
        """
        if self.metric is not None:
            return None
        found = whitened(self.data)
        if found.condition <= ROUND:
            return None
        pairs = self.pairs
        if not isinstance(pairs, SupportPairs) or not pairs.fits or pairs.num_strict <= FEW:
            return None
        others = SupportPairs(found.data, self.order, self.collapse.multiplicity)
        *_, start = first_steps(others, self.watch.check)
        refuted = contradiction(others, self.watch.check, start)
        if refuted is not None:
            program, certificate = refuted
            # Here too, each direction counts as often as the vector that it became.
            certificate /= others.lengths[program.column] * program.roots
            here = pairs.program(program.keys[program.ordered])
            weights = refutation(pairs, here, certificate)
            if weights is not None:
                raise self._refusal(weights)
        return all_tight(pairs.program(start.program.keys[start.program.ordered]))

    def _steps(self, start: SetStep | None) -> Iterator[SetStep]:
        """The method's steps, until one proves that nothing separates, or arithmetic fails.

        This is a generator so that ``except`` covers numerical work only: an error that
        ``progress`` raises between two steps is raised in the loop over them, not in here, and so
        is never taken for a numerical failure.

        Raises
        ------
        NotSeparableError
        """
        pairs = self.pairs
        steps = growing_set(pairs, self.watch.check, start)
        if isinstance(pairs, SupportPairs) and not pairs.fits:
            steps = proximal_steps(pairs, self.watch.check)
        try:
            for step in steps:
                self.watch.check()
                yield step
                weights = refutation(pairs, step.program, step.iterate.direction)
                if weights is not None:
                    raise self._refusal(weights)
        except np.linalg.LinAlgError:
            return  # the best solution so far decides

    def _certified(self, program: MarginProgram, dual: FloatArray) -> MarginSolution:
        """The solution, with its residuals, that a program's dual stands for."""
        multipliers = self.pairs.multipliers(program, dual)
        multiplicity = self.collapse.multiplicity
        return certify(self.data, self.order, multipliers, multiplicity, self.metric)

    def _note(self, step: SetStep) -> None:
        """Certify a step, keep the solution where it is the best, and tell of it."""
        solution = self._certified(step.program, step.iterate.dual)
        if step.iterate.settled and not solution.meets_ties:
            met = meet_ties(self.pairs, step)
            if met is not None:
                solution = self._certified(step.program, met.dual)
        if solution.kkt_residual < self.residual:
            self.best = solution
            self.residual = solution.kkt_residual
        below, above = solution.margin_bounds
        self.watch.say(
            f"KKT residual {solution.kkt_residual:.1e}, margin between {below:.6g} and {above:.6g}"
        )

    def _enclose(self, step: SetStep) -> None:
        """Keep what a step says with all ties met, where its bounds of the margin are the best."""
        met = meet_ties(self.pairs, step)
        if met is None:
            return
        solution = self._certified(step.program, met.dual)
        if solution.min_margin > 0:
            solution = self._certified(step.program, met.dual / solution.min_margin)
        if self.enclosed is None or solution.margin_gap < self.enclosed.margin_gap:
            self.enclosed = solution

    def _solved(self, accuracy: float) -> MarginSolution | None:
        """The best solution, if its residual is so small and it separates; else None."""
        best = self.best
        if best is None or best.kkt_residual > accuracy or not best.meets_ties:
            return None
        return best

    def _separable_by_linear_program(self) -> bool:
        """Whether the last resort proves that a ``W`` separates; raise if it proves that none does.

        Raises
        ------
        NotSeparableError
        """
        self.watch.check()
        for found in linear_programs(self.data, self.order, self.watch):
            if found.separates:
                return True
            every_pair = EveryPair(self.data, self.order)
            weights = refutation(every_pair, every_pair.everything(), -found.multipliers)
            if weights is not None:
                raise self._refusal(weights)
        self.watch.check()
        return False

    # -- what ends it without an answer

    def _refusal(self, found: PairWeights, addition: str = "") -> NotSeparableError:
        """The error that carries a certificate of the data themselves."""
        weights = self.collapse.pair_weights(found)
        number = len(weights.weights)
        clash = "one of them can have none"
        if number > 1:
            clash = f"weighted as .certificate says, {number} of them contradict each other"
        return NotSeparableError(
            f"no W keeps all {weights.num_strict} strict pairs at a positive margin: "
            f"{clash}{addition}",
            weights,
        )

    def _exhausted(self, *, separable: bool = False) -> ConvergenceError:
        short = "not small enough" if self.residual > ACCEPT else "missing ties by too much"
        reason = f"the search reached a KKT residual of {self.residual:.1e}, {short}, "
        if separable:
            reason += "though a linear program proves that the data are separable"
        else:
            reason += "and found no certificate that the data are not separable"
        return self._undecided(reason + self._where_it_is_narrow())

    def _where_it_is_narrow(self) -> str:
        """The addition that names two contexts that nearly contradict each other, if any do."""
        laws = self.data.sparse_target_probs
        for near in self.data.near_duplicates(NARROW):
            supports = [laws[[row]].indices.tolist() for row in near.rows]
            different = [k for k, support in enumerate(supports) if support != supports[0]]
            if different:
                first, second = (self.data.label(near.rows[k]) for k in (0, different[0]))
                distance = near.distances[different[0]]
                return (
                    f"; contexts {first} and {second} are followed by different tokens and differ "
                    f"by {distance:.1e} of their length, and merge_tolerance makes one of such "
                    "contexts"
                )
        return ""

    def out_of_time(self) -> ConvergenceError:
        """The error that says that the time is over, and what is known of the largest margin."""
        reason = self.watch.over
        if self._point is not None:
            below, above = self._point.margin_bounds
            reason += "; the largest margin of a W of norm at most one is "
            reason += f"{below:.6g} to {above:.6g}"
        return self._undecided(reason + self._where_it_is_narrow())

    def _undecided(self, reason: str) -> ConvergenceError:
        """The error that says why the search ended, with the best point."""
        if self._point is None:
            return ConvergenceError(f"undecided: {reason}", self.residual)
        point = restored(self._point, self.collapse)
        return ConvergenceError(f"undecided: {reason}", point.kkt_residual, point)

    @property
    def _point(self) -> MarginSolution | None:
        """The solution with the better bounds of the margin, or the only one."""
        if self.best is None or self.enclosed is None:
            return self.best or self.enclosed
        return self.enclosed if self.enclosed.margin_gap < self.best.margin_gap else self.best
