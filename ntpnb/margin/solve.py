"""``max_margin`` and ``is_separable``: which methods are tried, and what ends the search."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

import numpy as np

from ntpnb.array_types import FloatArray, IntArray
from ntpnb.errors import ConvergenceError, NotSeparableError, PairWeights
from ntpnb.margin.active_set import active_set
from ntpnb.margin.augmented_lagrangian import augmented_lagrangian
from ntpnb.margin.collapse import collapsed, not_collapsed
from ntpnb.margin.fista import fista
from ntpnb.margin.interior_point import interior_point
from ntpnb.margin.iterate import Iterate
from ntpnb.margin.large import LargeProblem, working_set_solutions
from ntpnb.margin.narrow import closest_disagreement, linear_program
from ntpnb.margin.normal_form import MarginProgram
from ntpnb.margin.norms import NormMarginSolution, max_margin_in_norm
from ntpnb.margin.pair_program import PairProgram
from ntpnb.margin.parts import contradiction_in, parts
from ntpnb.margin.program import has_two_levels, margin_program
from ntpnb.margin.reference import cvxpy, nnls
from ntpnb.margin.separation import CLEAR_MARGIN, meet_ties, refine_certificate, separates
from ntpnb.margin.solution import MarginSolution, certify, restored
from ntpnb.margin.working_set import NoFactor
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.order import TokenPriority, require_order, token_priority
from ntpnb.threads import one_thread
from ntpnb.validation import require_number
from ntpnb.watch import OutOfTime, Progress, Watch

__all__ = ["is_separable", "max_margin"]

METHODS: dict[str, Callable[[MarginProgram], Iterator[Iterate]]] = {
    "active-set": active_set,
    "interior-point": interior_point,
    "fista": fista,
    "augmented-lagrangian": augmented_lagrangian,
}
"""Methods by the name that ``solver`` gives them; the last is for programs by supports only."""

REFERENCES: dict[str, Callable[[PairProgram], Iterator[Iterate]]] = {
    "nnls": nnls,
    "cvxpy": cvxpy,
}
"""Dense methods, for programs by pair."""

STOP = 1e-13
"""KKT residual at which to stop at once: the rounding of one product of ``W`` and an embedding."""

ACCEPT = 1e-10
"""KKT residual that a solution has to reach; it is accepted once its method has ended."""

DENSE = 2**22
"""Entries of the pairs' matrices that the dense reference may form when nobody asked for it."""

FEW = 600
"""Number of pairs; with more, FISTA's first steps are cheaper than factorisations."""

LARGE = 2**14
"""Entries of the table of contexts and tokens from which few dimensions decide the method."""

WHOLE = 2**24
"""Entries of that table up to which the whole problem is solved where working sets do not do."""

SETS = 2**16
"""Entries of that table from which working sets are tried before the whole problem.

Both ways take about a second at most below. From here to :data:`WHOLE` bounds by working sets took
a sixth to nine tenths of the time, and of the memory a seventh for the largest. Where they do not
answer, and the whole problem is solved after all, that took three tenths more, at most.
"""

CLOSEST = 1e-6
"""Gap down to which bounds are sought by working sets first: rounding may keep them from less."""

FACTORED = 2**18
"""Number of pairs up to which the interior point, whose factors are ``m × m``, is a last resort."""

FACTORED_PAIRS = 2**14
"""The same for embedded tokens, where the interior point's factor has all pairs: 2 GiB."""

NARROW = 1e-4
"""Angle up to which two contexts with different supports explain why data are undecided."""

NUMERICAL_FAILURES = (np.linalg.LinAlgError, RuntimeError)
"""What Newton systems and other people's solvers raise when they run out of digits or steps."""


@overload
def max_margin(
    data: NextTokenData,
    solver: str = "auto",
    *,
    norm: Literal["frobenius"] = "frobenius",
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution: ...


@overload
def max_margin(
    data: NextTokenData,
    solver: str = "auto",
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
    solver: str = "auto",
    *,
    norm: str,
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution | NormMarginSolution: ...


@one_thread
def max_margin(
    data: NextTokenData,
    solver: str = "auto",
    *,
    norm: str = "frobenius",
    order: TokenPriority | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> MarginSolution | NormMarginSolution:
    """Minimise ``‖W‖`` while equal pairs tie and strict pairs keep a margin of at least one.

    Parameters
    ----------
    data : NextTokenData
    solver : str
        ``"active-set"``: a few exact Newton steps, where they settle (so far always for q ≥ m).
        ``"fista"``: many cheap steps. ``"interior-point"``: about ten steps, twenty at the edge of
        separability. ``"augmented-lagrangian"``: about five steps, each some ten Newton systems of
        the embeddings' dimension; for one-hot tokens, of which in each context one set wins.
        ``"nnls"``, ``"cvxpy"``: dense references for small problems.
        ``"auto"`` (default): FISTA above 600 pairs, else the active set; then the interior point.
        NNLS, where its matrix has at most 2²² entries, comes last, or first with over eight pairs
        per entry of ``W``. Large one-hot data with more contexts than dimensions: a search for
        contradictions among few frequent tokens, then the augmented Lagrangian, up to 2¹⁸ pairs the
        interior point, and NNLS where it fits. Above 2²⁴ contexts times tokens the augmented
        Lagrangian works on the pairs that matter, where a ``gap`` is given; from 2¹⁶ on it does so
        first for a gap of at least 1e-6, and turns to the whole problem where that does not close,
        or where the data look as if they contradict themselves.
    norm : str
        ``"frobenius"`` (default), or ``"max"``, the largest entry in absolute value, ``"sum"``, the
        sum of the entries' absolute values, both by linear programming, ``"spectral"``, the largest
        singular value, or ``"nuclear"``, their sum, both by cvxpy, which is needed for them. For
        small problems; with the other arguments but ``data`` and ``order`` left out.
    order : TokenPriority, optional
        The order of ``data``, where it is at hand already. Default: ``token_priority(data)``; then
        one token of a linear decoder stands for those that are never a target, where these are at
        least half, and what is found is restored for all of them.
    gap : float
        With a positive one, the first solution is returned that, up to rounding, meets all ties
        and keeps every margin at least one, and whose bounds of the largest margin differ by no
        more than this, relative to the larger (:attr:`MarginSolution.margin_bounds`). Default: the
        optimum.
    seconds : float, optional
        After so many the search ends with a ``ConvergenceError``, once the step that it is at is
        over. Default: no limit.
    progress : callable, optional
        Called with a line of text per step; what it raises ends the search.

    Returns
    -------
    MarginSolution
        With ``W = 0`` where there are no strict pairs. In another norm than Frobenius' it is a
        :class:`NormMarginSolution`.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``order`` no order.
    ValueError
        An unknown ``solver``, or one that does not fit the data; ``gap`` or ``seconds`` out of
        range.
    NotSeparableError
        ``.certificate`` is ``λ ≥ 0`` with ``Σ λ_k = 1``; with some ``μ``, the ``W`` of
        :class:`MarginSolution` has a norm of at most ``1e-12 Σ λ_k ‖t_i − t_j‖ ‖h_g‖``. There, an
        embedding or a difference of length zero counts as long as the shortest other one.
    ConvergenceError
        Undecided: neither proof was reached, or not in time, or the data are too large for the
        optimum, which a ``gap`` need not be;
        ``.point`` is the best :class:`MarginSolution`, not one yet, whose bounds hold all the same,
        and ``.residual`` its KKT residual; None and ``inf`` where there is none.

    References
    ----------
    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM.

    Examples
    --------
    >>> import ntpnb
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
    >>> (svm.W[0] * 25).round(6).tolist()
    [-3.0, -24.0]
    >>> round(ntpnb.max_margin(ntpnb.datasets.toy(), norm="max").norm, 9)
    1.0
    """
    require_data("data", data)
    require_order(order)
    if norm != "frobenius":
        if solver != "auto" or gap != 0 or seconds is not None or progress is not None:
            raise ValueError(
                f"norm is {norm!r}, whose solver is fixed; solver, gap, seconds and progress must "
                "be left out"
            )
        return _in_another_norm(data, norm, order)
    if solver not in ("auto", *METHODS, *REFERENCES):
        known = ", ".join(["auto", *METHODS, *REFERENCES])
        raise ValueError(f"solver is {solver!r}; it must be one of {known}")
    require_number("gap", gap, lambda number: 0 <= number < 1, "be at least 0 and less than 1")
    search = MarginSearch(data, order, Watch(seconds, progress))
    try:
        return search.solution(solver, gap)
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

    Stops at the first proof: a ``W`` with ties met to 1e-9 and margins above 1e-6, relative to its
    norm and the pairs'; a max-margin solution, whose margins may be smaller; or a certificate that
    no such ``W`` exists.

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
        ``seconds`` is negative.
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
    require_data("data", data)
    require_order(order)
    search = MarginSearch(data, order, Watch(seconds, progress))
    try:
        return search.verdict()
    except OutOfTime:
        raise search.out_of_time() from None


def methods_to_try(
    num_pairs: int,
    num_weights: int,
    *,
    one_hot: bool,
    only_separability: bool,
    few_dimensions: bool = False,
) -> list[str]:
    """Names of the methods that ``solver="auto"`` tries, in turn."""
    dense_fits = num_pairs * num_weights <= DENSE
    if few_dimensions:
        methods = ["augmented-lagrangian"]
        if num_pairs <= FACTORED:
            methods.append("interior-point")
        if dense_fits:
            methods.append("nnls")
        return methods
    methods = ["interior-point"] if one_hot or num_pairs <= FACTORED_PAIRS else []
    if not (only_separability and one_hot):  # quick methods delay a verdict near the threshold
        methods.insert(0, "fista" if num_pairs > FEW else "active-set")
    if dense_fits:  # the dense reference always settles, if it fits
        few_weights = num_pairs > 8 * num_weights
        methods.insert(0 if few_weights else len(methods), "nnls")
    return methods


def has_few_dimensions(data: NextTokenData) -> bool:
    """Whether a linear decoder's data are large, and have fewer dimensions than contexts."""
    num_contexts, dim = data.context_embeddings.shape
    large = num_contexts * data.vocab_size >= LARGE
    return bool(data.is_linear_decoder and large and dim < num_contexts)


class Programs:
    """The two programs of a dataset's order, each built when a method first needs it.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
    watch : Watch
    multiplicity : ndarray of int, shape (V,), or None
        How many tokens each one stands for, see :mod:`ntpnb.margin.collapse`.
    """

    def __init__(
        self,
        data: NextTokenData,
        order: TokenPriority,
        watch: Watch,
        multiplicity: IntArray | None,
    ) -> None:
        self.data = data
        self.order = order
        self.watch = watch
        self.multiplicity = multiplicity

    @cached_property
    def smallest(self) -> MarginProgram:
        """By supports where possible; for :data:`METHODS`."""
        program = margin_program(self.data, self.order, multiplicity=self.multiplicity)
        program.between_steps = self.watch.check
        return program

    @cached_property
    def by_pair(self) -> PairProgram:
        """With one entry per pair; for :data:`REFERENCES`."""
        if isinstance(self.smallest, PairProgram):
            return self.smallest
        return PairProgram(self.data, self.order, self.multiplicity)

    @cached_property
    def for_certificates(self) -> MarginProgram:
        """The smallest program where each token stands for itself: one of several suffices."""
        if self.multiplicity is None:
            return self.smallest
        return margin_program(self.data, self.order)

    def used_by(self, method: str) -> MarginProgram:
        """The program that a method solves."""
        return self.by_pair if method in REFERENCES else self.smallest

    def iterates(self, method: str) -> Iterator[Iterate]:
        """The steps of a method on its program."""
        if method in REFERENCES:
            return REFERENCES[method](self.by_pair)
        return METHODS[method](self.smallest)

    def certify(self, method: str, dual: FloatArray) -> MarginSolution:
        """The solution, with its residuals, that a dual of a method's program stands for."""
        multipliers = self.used_by(method).pair_multipliers(dual)
        return certify(self.data, self.order, multipliers, method, self.multiplicity)

    def refutation(self, method: str, direction: FloatArray) -> FloatArray | None:
        """Weights of the strict pairs that contradict each other, from the growth of a dual.

        Raises
        ------
        numpy.linalg.LinAlgError
            See :func:`refine_certificate`.
        """
        program = self.used_by(method)
        if self.multiplicity is not None:
            multipliers = program.pair_multipliers(direction)
            program = self.for_certificates
            direction = program.dual_of(multipliers)
        certificate = refine_certificate(program, direction)
        if certificate is None:
            return None
        multipliers = program.pair_multipliers(certificate.dual)
        weights: FloatArray = np.maximum(multipliers[len(self.order.equal) :], 0.0)
        return weights


@dataclass(frozen=True, eq=False)
class Attempt:
    """A step of a method, and the solution that it would be, with its residuals."""

    step: int
    iterate: Iterate
    solution: MarginSolution


@dataclass(frozen=True)
class Verdict:
    """Whether data are separable, or None with the best KKT residual where that is undecided."""

    separable: bool | None
    kkt_residual: float = np.inf


class MarginSearch:
    """The search for a max-margin solution, or for the first proof, and what it has found so far.

    It works on the collapsed problem (:mod:`ntpnb.margin.collapse`), unless an order is given; what
    it returns and raises is about the data themselves.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
    watch : Watch
    """

    def __init__(self, data: NextTokenData, order: TokenPriority | None, watch: Watch) -> None:
        self.collapse = collapsed(data) if order is None else not_collapsed(data)
        self.data = self.collapse.data
        self.order = order
        self.watch = watch
        self.tried: list[str] = []
        self.best: MarginSolution | None = None
        self.enclosed: MarginSolution | None = None  # the one with the best bounds of the margin
        self.residual = np.inf  # the best KKT residual

    # -- two questions

    def solution(self, solver: str, gap: float) -> MarginSolution:
        """Return the solution, or raise what :func:`max_margin` raises."""
        if solver == "auto":
            self._refute_by_parts()
            if self._is_too_large():
                if gap == 0:
                    raise self._too_large()
                return self._from_working_sets(lambda svm, _: svm.margin_gap <= gap)
            if gap >= CLOSEST:
                enclosed = self._from_a_few_working_sets(lambda svm, _: svm.margin_gap <= gap)
                if enclosed is not None:
                    return enclosed
        programs = self._programs()
        if len(programs.order.strict) == 0:
            no_multipliers = np.zeros(len(programs.order.equal))
            nothing = certify(self.data, programs.order, no_multipliers, "no strict pairs")
            return restored(nothing, self.collapse)
        for name in self._methods(programs.order, solver):
            self.tried.append(name)
            for outcome in _outcomes(name, programs):
                if isinstance(outcome, NotSeparableError):
                    raise self._refusal(outcome)
                self._note(name, outcome)
                if self.best is not None and self.residual <= STOP:
                    return restored(self.best, self.collapse)
                if gap > 0 and self._is_enclosed(name, outcome, programs, gap):
                    assert self.enclosed is not None
                    return restored(self.enclosed, self.collapse)
            if self.best is not None and self.residual <= ACCEPT:
                return restored(self.best, self.collapse)
        separable = solver == "auto" and self._separable_by_linear_program(programs)
        raise self._exhausted(separable=separable)

    def verdict(self) -> bool:
        """Whether the data are separable, by the first proof; see :func:`is_separable`."""
        try:
            self._refute_by_parts()
        except NotSeparableError:
            return False
        if self._is_too_large():
            self._from_working_sets(_is_clear)
            return True
        if self._from_a_few_working_sets(_is_clear) is not None:
            return True
        programs = self._programs()
        if len(programs.order.strict) == 0:
            return True
        for name in self._methods(programs.order, "auto", only_separability=True):
            self.tried.append(name)
            for step, verdict in enumerate(_verdicts(name, programs), 1):
                if verdict.separable is not None:
                    return verdict.separable
                self.residual = min(self.residual, verdict.kkt_residual)
                self.watch.say(f"{name}, step {step}: no proof yet")
            if self.residual <= ACCEPT:
                return True
        try:
            separable = self._separable_by_linear_program(programs)
        except NotSeparableError:
            return False
        if separable:
            return True
        raise self._exhausted()

    # -- what both begin with

    def _refute_by_parts(self) -> None:
        """Raise ``NotSeparableError`` where a few frequent tokens contradict each other."""
        if not has_few_dimensions(self.data):
            return
        for part in parts(self.data):
            size = f"{len(part.tokens)} frequent tokens in {len(part.contexts)} contexts"
            weights = contradiction_in(part, self.data, self.watch)
            if weights is not None:
                raise self._refusal(_not_separable(weights), f"; they are pairs of {size}")
            self.watch.say(f"no contradiction found among the {size}")

    def _is_too_large(self) -> bool:
        """Whether the table of contexts and tokens of a linear decoder is not to be formed."""
        return self._has_strict_pairs_of_few_dimensions() and self._size_of_table > WHOLE

    def _has_strict_pairs_of_few_dimensions(self) -> bool:
        if not has_few_dimensions(self.data):
            return False
        return bool(self.data.sparse_target_probs.nnz < self._size_of_table)

    @property
    def _size_of_table(self) -> int:
        return self.data.num_contexts * self.data.vocab_size

    def _programs(self) -> Programs:
        """The programs of the whole problem."""
        order = token_priority(self.data) if self.order is None else self.order
        return Programs(self.data, order, self.watch, self.collapse.multiplicity)

    def _from_working_sets(
        self, is_enough: Callable[[MarginSolution, LargeProblem], bool]
    ) -> MarginSolution:
        """The first solution of a large problem that is enough, or that is the optimum.

        Raises
        ------
        ConvergenceError
            There is none, nor is there a certificate: those are sought among few tokens only.
        """
        problem = LargeProblem(self.collapse)
        solutions = working_set_solutions(problem, self.watch.say, self.watch.check)
        found = self._first_enough(solutions, problem, is_enough)
        if found is not None:
            return found
        assert self.enclosed is not None
        below, above = self.enclosed.margin_bounds
        raise self._undecided(
            f"no few frequent tokens contradict each other, and working sets ended with a largest "
            f"margin of {below:.6g} to {above:.6g}"
        )

    def _from_a_few_working_sets(
        self, is_enough: Callable[[MarginSolution, LargeProblem], bool]
    ) -> MarginSolution | None:
        """The first solution that is enough; None where the whole problem is to be solved."""
        if not self._has_strict_pairs_of_few_dimensions() or self._size_of_table < SETS:
            return None
        problem = LargeProblem(self.collapse)
        solutions = working_set_solutions(
            problem, self.watch.say, self.watch.check, leave_early=True
        )
        try:
            return self._first_enough(solutions, problem, is_enough)
        except NoFactor:
            return None

    def _first_enough(
        self,
        solutions: Iterator[MarginSolution],
        problem: LargeProblem,
        is_enough: Callable[[MarginSolution, LargeProblem], bool],
    ) -> MarginSolution | None:
        """The first of some solutions that is enough, or that is the optimum, if there is one."""
        for step, solution in enumerate(solutions, 1):
            self.watch.check()
            if self.enclosed is None or solution.margin_gap < self.enclosed.margin_gap:
                self.enclosed = solution
            if is_enough(solution, problem) or solution.kkt_residual <= ACCEPT:
                return solution
            below, above = solution.margin_bounds
            self.watch.say(f"working sets, step {step}: a margin of {below:.6g} to {above:.6g}")
        return None

    def _separable_by_linear_program(self, programs: Programs) -> bool:
        """Whether the last resort proves that a ``W`` separates; raise if it proves that none does.

        Raises
        ------
        NotSeparableError
        """
        self.watch.check()
        found = linear_program(self.data, programs.order)
        if found is None:
            return False
        if found.separates:
            return True
        try:
            direction = programs.by_pair.dual_of(found.multipliers)
            weights = programs.refutation("nnls", direction)  # which is by pair, too
        except NUMERICAL_FAILURES:
            return False
        if weights is not None:
            raise self._refusal(_not_separable(_pair_weights(weights, programs.order)))
        return False

    def _methods(
        self, order: TokenPriority, solver: str, *, only_separability: bool = False
    ) -> list[str]:
        """Names of the methods to try, in turn."""
        if solver == "augmented-lagrangian" and not has_two_levels(self.data, order):
            raise ValueError(
                f"solver is {solver!r}, which needs one-hot tokens and in each context one set of "
                "tied tokens that wins over all others; choose another for these data"
            )
        if solver != "auto":
            return [solver]
        p, q = self.data.shape
        return methods_to_try(
            num_pairs=len(order.equal) + len(order.strict),
            num_weights=p * q,
            one_hot=self.data.token_embeddings is None,
            only_separability=only_separability,
            few_dimensions=has_few_dimensions(self.data),
        )

    # -- what a step adds

    def _note(self, name: str, attempt: Attempt) -> None:
        """Keep an attempt's solution where it is the best, and tell of it."""
        if attempt.solution.kkt_residual < self.residual:
            self.best = attempt.solution
            self.residual = attempt.solution.kkt_residual
        self.watch.say(f"{name}, step {attempt.step}: best KKT residual {self.residual:.1e}")

    def _is_enclosed(self, name: str, attempt: Attempt, programs: Programs, gap: float) -> bool:
        """Whether an attempt, moved until all ties are met, has bounds within the gap."""
        program = programs.used_by(name)
        moved = attempt.iterate
        try:
            for _ in range(2):  # the proximal term leaves a little of the ties the first time
                moved = meet_ties(program, moved)
        except np.linalg.LinAlgError:
            return False
        dual = moved.dual
        solution = programs.certify(name, dual)
        if solution.min_margin > 0:
            solution = programs.certify(name, dual / solution.min_margin)
        if self.enclosed is None or solution.margin_gap < self.enclosed.margin_gap:
            self.enclosed = solution
        return self.enclosed.margin_gap <= gap

    # -- what ends it without an answer

    def _refusal(self, error: NotSeparableError, addition: str = "") -> NotSeparableError:
        """The error that says of the data themselves what one says of the collapsed problem."""
        assert error.pair_weights is not None
        return _not_separable(self.collapse.pair_weights(error.pair_weights), addition)

    def _exhausted(self, *, separable: bool = False) -> ConvergenceError:
        reason = f"{' and '.join(self.tried)} reached a KKT residual of {self.residual:.1e}, "
        reason += "not small enough, "
        if separable:
            reason += "though a linear program proves that the data are separable"
        else:
            reason += "and found no certificate that the data are not separable"
        return self._undecided(reason + self._where_it_is_narrow())

    def _where_it_is_narrow(self) -> str:
        """The addition that names two contexts that nearly contradict each other, if any do."""
        found = closest_disagreement(self.data)
        if found is None or found.angle > NARROW:
            return ""
        first, second = map(self.data.label, found.contexts)
        return (
            f"; contexts {first} and {second} are followed by different tokens at an angle of "
            f"{found.angle:.1e}, and merge_tolerance makes one of such contexts"
        )

    def _too_large(self) -> ConvergenceError:
        return self._undecided(
            f"no few frequent tokens contradict each other, and {self.data.num_contexts} contexts "
            f"of {self.data.vocab_size} tokens are more than the {WHOLE} entries whose optimum is "
            "sought; a positive gap asks for a solution with bounds"
        )

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


def _outcomes(method: str, programs: Programs) -> Iterator[Attempt | NotSeparableError]:
    """What the steps of a method come to, until it ends or runs out of digits.

    This is a generator so that ``except`` covers numerical work only. An error that ``progress``
    raises between two outcomes is raised in the loop over them, not in here, and so is never taken
    for a numerical failure.
    """
    try:
        for step, iterate in enumerate(programs.iterates(method), 1):
            programs.watch.check()
            if iterate.direction is None:
                continue
            yield Attempt(step, iterate, programs.certify(method, iterate.dual))
            weights = programs.refutation(method, iterate.direction)
            if weights is not None:
                yield _not_separable(_pair_weights(weights, programs.order))
    except NUMERICAL_FAILURES:
        return  # the best attempt so far decides


def _verdicts(method: str, programs: Programs) -> Iterator[Verdict]:
    """What each step of a method proves, until it ends or runs out of digits."""
    try:
        for iterate in programs.iterates(method):
            programs.watch.check()
            yield _verdict_of(iterate, method, programs)
    except NUMERICAL_FAILURES:
        return  # the best solution so far decides


def _verdict_of(iterate: Iterate, method: str, programs: Programs) -> Verdict:
    """What one step proves.

    A ``W`` may separate long before it is near the solution, and also where the method is guessing;
    so every iterate is asked that first. Residuals, which cost a pass over all pairs, are computed
    of settled iterates only. They decide where margins are too small for ``separates``.
    """
    if separates(programs.used_by(method), iterate):
        return Verdict(separable=True)
    if iterate.direction is None:
        return Verdict(None)
    residual = np.inf
    if iterate.settled:
        residual = programs.certify(method, iterate.dual).kkt_residual
        if residual <= STOP:
            return Verdict(separable=True)
    if programs.refutation(method, iterate.direction) is not None:
        return Verdict(separable=False)
    return Verdict(None, residual)


def _is_clear(solution: MarginSolution, problem: LargeProblem) -> bool:
    """Whether the margin is one that no rounding of the ties can pretend."""
    return solution.margin_bounds[0] >= CLEAR_MARGIN * float(problem.lengths.max())


def _pair_weights(weights: FloatArray, order: TokenPriority) -> PairWeights:
    """A certificate, given by a weight for each strict pair, with what is not zero."""
    shares = weights / weights.sum()
    positions = np.flatnonzero(shares)
    return PairWeights(order.strict[positions], shares[positions], positions, len(weights))


def _not_separable(weights: PairWeights, addition: str = "") -> NotSeparableError:
    """The error that carries a certificate."""
    return NotSeparableError(
        f"no W keeps all {weights.num_strict} strict pairs at a positive margin: weighted as "
        f".certificate says, {len(weights.weights)} of them contradict each other{addition}",
        weights,
    )
