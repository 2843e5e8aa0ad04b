"""``max_margin`` and ``is_separable``: which methods are tried, and what ends the search."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.active_set import active_set
from ntpnb.margin.fista import fista
from ntpnb.margin.interior_point import interior_point
from ntpnb.margin.iterate import Iterate
from ntpnb.margin.normal_form import MarginProgram
from ntpnb.margin.pair_program import PairProgram
from ntpnb.margin.program import margin_program
from ntpnb.margin.reference import cvxpy, nnls
from ntpnb.margin.separation import Certificate, refine_certificate, separates
from ntpnb.margin.solution import MarginSolution, certify
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.order import TokenPriority, token_priority

__all__ = ["is_separable", "max_margin"]

METHODS: dict[str, Callable[[MarginProgram], Iterator[Iterate]]] = {
    "active-set": active_set,
    "interior-point": interior_point,
    "fista": fista,
}
"""Methods for any program, by the name that ``solver`` gives them."""

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

NUMERICAL_FAILURES = (np.linalg.LinAlgError, RuntimeError)
"""What Newton systems and other people's solvers raise when they run out of digits or steps."""


def max_margin(
    data: NextTokenData,
    solver: str = "auto",
    *,
    order: TokenPriority | None = None,
    progress: Callable[[str], object] | None = None,
) -> MarginSolution:
    """Minimise ``‖W‖`` while equal pairs tie and strict pairs keep a margin of at least one.

    Parameters
    ----------
    data : NextTokenData
    solver : str
        ``"active-set"``: a few exact Newton steps, where they settle (so far always for q ≥ m).
        ``"fista"``: many cheap steps. ``"interior-point"``: about ten steps, twenty at the edge of
        separability. ``"nnls"``, ``"cvxpy"``: dense references for small problems.
        ``"auto"`` (default): FISTA above 600 pairs, else the active set; then the interior point.
        NNLS, where its matrix has at most 2²² entries, comes last, or first with over eight pairs
        per entry of ``W``.
    order : TokenPriority, optional
        The order of ``data``, where it is at hand already. Default: ``token_priority(data)``.
    progress : callable, optional
        Called with a line of text per step; what it raises ends the search.

    Returns
    -------
    MarginSolution
        With ``W = 0`` where there are no strict pairs.

    Raises
    ------
    TypeError
        ``data`` is no dataset.
    ValueError
        An unknown ``solver``.
    NotSeparableError
        ``.certificate`` is ``λ ≥ 0`` with ``Σ λ_k = 1``; with some ``μ``, the ``W`` of
        :class:`MarginSolution` has a norm of at most ``1e-12 Σ λ_k ‖t_i − t_j‖ ‖h_g‖``. There, an
        embedding or a difference of length zero counts as long as the shortest other one.
    ConvergenceError
        Undecided: neither proof was reached; ``.residual`` is the best KKT residual.

    References
    ----------
    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM.

    Examples
    --------
    >>> import ntpnb
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
    >>> (svm.W[0] * 25).round(6).tolist()
    [-3.0, -24.0]
    """
    require_data("data", data)
    if solver not in ("auto", *METHODS, *REFERENCES):
        known = ", ".join(["auto", *METHODS, *REFERENCES])
        raise ValueError(f"solver is {solver!r}; it must be one of {known}")
    if order is None:
        order = token_priority(data)
    if len(order.strict) == 0:
        return certify(data, order, np.zeros(len(order.equal)), "no strict pairs")
    names = [solver]
    if solver == "auto":
        names = _methods_for(data, order, only_separability=False)

    programs = Programs(data, order)
    best: MarginSolution | None = None
    residual = np.inf
    for name in names:
        for outcome in _outcomes(name, programs):
            if isinstance(outcome, Certificate):
                raise _refusal(outcome, programs.used_by(name), len(order.equal))
            if outcome.solution.kkt_residual < residual:
                best = outcome.solution
                residual = best.kkt_residual
            if progress is not None:
                progress(f"{name}, step {outcome.step}: best KKT residual {residual:.1e}")
            if best is not None and residual <= STOP:
                return best
        if best is not None and residual <= ACCEPT:
            return best
    raise _undecided(names, residual)


def is_separable(data: NextTokenData, *, order: TokenPriority | None = None) -> bool:
    """Whether some ``W`` meets all ties and keeps every strict pair at a positive margin.

    Stops at the first proof: a ``W`` with ties met to 1e-9 and margins above 1e-6, relative to its
    norm and the pairs'; a max-margin solution, whose margins may be smaller; or a certificate that
    no such ``W`` exists.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        The order of ``data``, where it is at hand already. Default: ``token_priority(data)``.

    Raises
    ------
    TypeError
        ``data`` is no dataset.
    ConvergenceError
        Undecided: no proof was reached; ``.residual`` is the best KKT residual.

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
    if order is None:
        order = token_priority(data)
    if len(order.strict) == 0:
        return True
    names = _methods_for(data, order, only_separability=True)
    programs = Programs(data, order)
    residual = np.inf
    for name in names:
        verdict = _separability(name, programs)
        if verdict.separable is not None:
            return verdict.separable
        residual = min(residual, verdict.kkt_residual)
    raise _undecided(names, residual)


def methods_to_try(
    num_pairs: int, num_weights: int, *, one_hot: bool, only_separability: bool
) -> list[str]:
    """Names of the methods that ``solver="auto"`` tries, in turn."""
    methods = ["interior-point"]
    if not (only_separability and one_hot):  # quick methods delay a verdict near the threshold
        methods.insert(0, "fista" if num_pairs > FEW else "active-set")
    if num_pairs * num_weights <= DENSE:  # the dense reference always settles, if it fits
        few_weights = num_pairs > 8 * num_weights
        methods.insert(0 if few_weights else len(methods), "nnls")
    return methods


def _methods_for(
    data: NextTokenData, order: TokenPriority, *, only_separability: bool
) -> list[str]:
    p, q = data.shape
    return methods_to_try(
        num_pairs=len(order.equal) + len(order.strict),
        num_weights=p * q,
        one_hot=data.token_embeddings is None,
        only_separability=only_separability,
    )


class Programs:
    """The two programs of a dataset's order, each built when a method first needs it."""

    def __init__(self, data: NextTokenData, order: TokenPriority) -> None:
        self.data = data
        self.order = order

    @cached_property
    def smallest(self) -> MarginProgram:
        """By supports where possible; for :data:`METHODS`."""
        return margin_program(self.data, self.order)

    @cached_property
    def by_pair(self) -> PairProgram:
        """With one entry per pair; for :data:`REFERENCES`."""
        if isinstance(self.smallest, PairProgram):
            return self.smallest
        return PairProgram(self.data, self.order)

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
        return certify(self.data, self.order, multipliers, method)


@dataclass(frozen=True, eq=False)
class Attempt:
    """A step of a method, and the solution that it would be, with its residuals."""

    step: int
    solution: MarginSolution


def _outcomes(method: str, programs: Programs) -> Iterator[Attempt | Certificate]:
    """What the steps of a method come to, until it ends or runs out of digits.

    This is a generator so that ``except`` covers numerical work only. An error that ``progress``
    raises between two outcomes is raised in the loop over them, not in here, and so is never taken
    for a numerical failure.
    """
    program = programs.used_by(method)
    try:
        for step, iterate in enumerate(programs.iterates(method), 1):
            if iterate.direction is None:
                continue
            yield Attempt(step, programs.certify(method, iterate.dual))
            certificate = refine_certificate(program, iterate.direction)
            if certificate is not None:
                yield certificate
    except NUMERICAL_FAILURES:
        return  # the best attempt so far decides


@dataclass(frozen=True)
class Verdict:
    """Whether data are separable, or None with the best KKT residual where that is undecided."""

    separable: bool | None
    kkt_residual: float = np.inf


def _separability(method: str, programs: Programs) -> Verdict:
    """The first verdict that the steps of a method allow.

    A ``W`` may separate long before it is near the solution, and also where the method is guessing;
    so every iterate is asked that first. Residuals, which cost a pass over all pairs, are computed
    of settled iterates only. They decide where margins are too small for ``separates``.
    """
    program = programs.used_by(method)
    residual = np.inf
    try:
        for iterate in programs.iterates(method):
            if separates(program, iterate):
                return Verdict(separable=True)
            if iterate.direction is None:
                continue
            if iterate.settled:
                solution = programs.certify(method, iterate.dual)
                residual = min(residual, solution.kkt_residual)
                if residual <= STOP:
                    return Verdict(separable=True)
            if refine_certificate(program, iterate.direction) is not None:
                return Verdict(separable=False)
    except NUMERICAL_FAILURES:
        pass  # the best solution so far decides
    return Verdict(True if residual <= ACCEPT else None, residual)


def _refusal(certificate: Certificate, program: MarginProgram, num_ties: int) -> NotSeparableError:
    """The error that carries a certificate, as weights of the data's strict pairs."""
    multipliers = program.pair_multipliers(certificate.dual)
    lam = np.maximum(multipliers[num_ties:], 0.0)
    return NotSeparableError(
        f"no W keeps all {len(lam)} strict pairs at a positive margin: weighted as "
        f".certificate says, {np.count_nonzero(lam)} of them contradict each other",
        lam / lam.sum(),
    )


def _undecided(names: list[str], residual: float) -> ConvergenceError:
    """The error that says how close the methods came."""
    return ConvergenceError(
        f"undecided: {' and '.join(names)} reached a KKT residual of {residual:.1e}, not small "
        "enough, and found no certificate that the data are not separable",
        residual,
    )
