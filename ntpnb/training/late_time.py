"""Late in training: the term next to ``W^mm log t``, and the law by which the angle falls.

A flow is ``W(t) = W^mm log t + W̃ + o(1)`` on the ties and on the tight pairs, those whose margin
is one. Where the tight pairs' multipliers ``λ_k`` in the margin problem are unique, ``W̃`` solves
linear equations for which the factors of that problem serve; otherwise it minimises a sum of
exponentials. Without an index, ``λ`` is the path's multiplier, in ``R = −log λ``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.linear_systems import unit_rows
from ntpnb.basics.saving import register
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import NEGLIGIBLE, NEWTON_STEPS, PROX, VANISHES
from ntpnb.basics.validation import BoolArray, FloatArray, as_array, require_type
from ntpnb.basics.watch import Progress, Watch
from ntpnb.bias import ImplicitBias
from ntpnb.bias.partition import pair_of_entries
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.support_program import all_pairs
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import logits, scores
from ntpnb.problem.order import TokenPriority
from ntpnb.problem.pairs import pair_lengths
from ntpnb.training.coordinates import Coordinates, bias_within

TIGHT = 1e-7  # margins of tight pairs are one to 1e-9; generic others are further away


@register
class LateLaw(NamedTuple):
    """The late law ``tan(angle) = constant / (log t + shift)``, exact as ``t`` grows.

    With ``W(t) = W^mm (log t + shift) + C`` and ``C`` orthogonal to ``W^mm``, the tangent is
    ``‖C‖ / ‖W^mm‖`` over ``log t + shift``.

    Attributes
    ----------
    constant : float
        ``‖C‖ / ‖W^mm‖``, nonnegative.
    shift : float
        In units of the natural logarithm of time.

    Examples
    --------
    >>> import ntpnb
    >>> law = ntpnb.report(ntpnb.datasets.toy()).law
    >>> round(law.constant, 2), round(law.shift, 2)
    (0.97, -3.95)
    """

    constant: float
    shift: float


def late_law(constant_term: ArrayLike | None, svm: MarginSolution) -> LateLaw | None:
    """Return the late law of a flow ``W = W^mm log t + constant_term``.

    Parameters
    ----------
    constant_term : array_like, shape (p, q), or None
        None where it is not known; then neither is the law.
    svm : MarginSolution

    Returns
    -------
    LateLaw or None
        None, too, where ``W^mm`` is zero: there is no angle to it.

    Raises
    ------
    TypeError
        ``svm`` is no max-margin solution.
    ValueError
        ``constant_term`` has another shape, or is not finite.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.late_time import late_law
    >>> svm = ntpnb.max_margin(ntpnb.datasets.toy())
    >>> law = late_law(3 * svm.W, svm)
    >>> round(law.constant, 6), round(law.shift, 6)
    (0.0, 3.0)
    """
    require_type("svm", svm, MarginSolution)
    if constant_term is None or not svm.norm:
        return None
    constant = as_array("constant_term", constant_term, ndim=2, shape=svm.W.shape)
    shift = np.vdot(constant, svm.W) / svm.norm**2
    across = np.linalg.norm(constant - shift * svm.W)
    return LateLaw(float(across / svm.norm), float(shift))


@one_thread
def next_order_term(
    data: NextTokenData | ImplicitBias,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    r"""Compute in advance the limit ``W̃`` of the path's ``W_B − (R − log R) W^mm``.

    Here ``R = −log λ``. The tied part of ``W̃`` is the finite part. Its strict part lies in the
    span of the tight pairs and minimises ``Σ_k π_j q̃_k exp(−⟨D_k, W̃⟩) + ⟨W^mm, W̃⟩`` over the
    tight ``k``, with ``q̃_k`` the odds of candidate ``k`` against the tied tokens at the finite
    part: there the velocity ``Σ_k π_j q_jk D_k`` of a flow equals ``W^mm``. Along the flow,
    ``W(t) − W^mm log t`` has the same limit on F and on the tight pairs; it also keeps what the
    other pairs contributed while they were not yet negligible.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
    seconds : float, optional
        Time limit; it includes what is computed of the theory, unless ``data`` is a bias, which has
        a limit of its own. Default: none.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the computation.

    Returns
    -------
    ndarray, shape (p, q)

    Raises
    ------
    NotSeparableError
        No max-margin direction exists.
    ConvergenceError
        Newton's method did not settle: some tight pair has no multiplier, for example. Or the time
        is over; there is no part of the answer then, and ``.point`` is None.

    References
    ----------
    Sharpens T24 (002) Thms 1 and 2 and L24 (004) Thms 1 and 3, which off the tied subspace stop at
    the direction.

    Examples
    --------
    One context whose next token is certain: the flow is ``w = (x, −x)`` with
    ``dx/dt = 1/(1 + e^{2x})``, so that ``2x`` tends to ``log t + log 2``.

    >>> import ntpnb
    >>> ntpnb.next_order_term(ntpnb.NextTokenData([[1.0]], [[1, 0]])).ravel().round(6)
    array([ 0.346574, -0.346574])
    """
    watch = Watch(seconds, progress)
    bias = bias_within(data, watch)
    bias.require_max_margin()
    watch.tell("next-order term: the direction is known")
    if not bias.order.has_strict_pairs:
        return bias.finite_part.W
    pairs = _strict_pairs(bias)
    if (pairs.carries == pairs.margin_is_one).all():
        W = _solve_by_multipliers(bias, pairs, VANISHES)
        if W is not None:
            return W
    return _minimise_exponentials(Coordinates(bias, watch=watch), watch)


def late_constant(bias: ImplicitBias) -> FloatArray | None:
    """Return the next-order term where the multipliers are unique, in little memory.

    Pairs that are tight without a multiplier are left out. The constant term of a flow has the same
    values on F and on the pairs that remain, and is at least as long, because this is the smallest
    matrix with these values. Memory grows with contexts and tokens, and not with pairs.

    Parameters
    ----------
    bias : ImplicitBias
        Of data with at least one strict pair.

    Returns
    -------
    ndarray, shape (p, q), or None
        None where the multipliers are not unique, so that the equations have no solution.

    Raises
    ------
    NotSeparableError
        No max-margin direction exists.
    ConvergenceError
        It is undecided whether one exists, or the finite part was not found.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.late_time import late_constant
    >>> bias = ntpnb.implicit_bias(ntpnb.NextTokenData([[1.0]], [[1, 0]]))
    >>> late_constant(bias).ravel().round(6)
    array([ 0.346574, -0.346574])
    """
    require_type("bias", bias, ImplicitBias)
    return _solve_by_multipliers(bias, _strict_pairs(bias), NEGLIGIBLE)


# -- where the multipliers are unique: linear equations -------------------------------------------


@dataclass(frozen=True, eq=False)
class _StrictPairs:
    """What decides the next-order term, for each strict pair of the order, shape (n,).

    A pair of components stands for all rows and tokens that it orders.
    """

    multipliers: FloatArray
    carries: BoolArray  # its multiplier is more than rounding
    margin_is_one: BoolArray
    log_odds: FloatArray  # log Σ π_j q̃_jv at W*, over its rows j and their losing tokens v


def _strict_pairs(bias: ImplicitBias) -> _StrictPairs:
    data = bias.data
    svm = bias.require_max_margin()
    pair_of = pair_of_entries(data, bias.order)
    rows, tokens = np.nonzero(pair_of >= 0)
    of_candidate = pair_of[rows, tokens]

    L = logits(bias.finite_part.W, data)
    log_tied_mass = logsumexp(np.where(pair_of < 0, L, -np.inf), axis=1)
    log_odds_of_candidate = np.log(data.context_probs[rows]) + L[rows, tokens] - log_tied_mass[rows]
    log_odds = np.full(len(svm.multipliers), -np.inf)
    np.logaddexp.at(log_odds, of_candidate, log_odds_of_candidate)

    S = scores(svm.W, data)
    margin = np.full(len(svm.multipliers), np.inf)
    np.minimum.at(margin, of_candidate, S[rows, data.anchors[rows]] - S[rows, tokens])

    # λ_k ‖D_k‖² does not change with the length of a pair's embeddings, as λ_k does.
    lengths = pair_lengths(data, bias.order)[len(bias.order.equal) :]
    shares = svm.multipliers * lengths**2
    return _StrictPairs(
        multipliers=svm.multipliers,
        carries=shares > NEGLIGIBLE * shares.max(initial=0.0),
        margin_is_one=margin < 1 + TIGHT,
        log_odds=log_odds,
    )


def _solve_by_multipliers(
    bias: ImplicitBias, pairs: _StrictPairs, tolerance: float
) -> FloatArray | None:
    """Solve ``⟨D_k, W̃⟩ = log(π_j q̃_k / λ_k)`` on the pairs that carry a multiplier ``λ_k``.

    None where no matrix solves these equations to ``tolerance``.
    """
    margins = pairs.log_odds[pairs.carries] - np.log(pairs.multipliers[pairs.carries])
    order = bias.order.with_strict(bias.order.strict[pairs.carries])
    W = _smallest_with_margins(bias.data, order, margins, tolerance)
    return None if W is None else bias.finite_part.W + W


def _smallest_with_margins(
    data: NextTokenData, order: TokenPriority, margins: FloatArray, tolerance: float
) -> FloatArray | None:
    """Smallest ``W`` with given margins on the strict pairs and zero ones on all ties.

    One solve with the margin problem's factors, refined. None where they break down, or where the
    largest error, relative to the largest right-hand side, is above ``tolerance``. In the normal
    form of that program, on which no other function here relies, pair ``k`` is
    ``φ_k = −D_k / ‖D_k‖``, and ``φ_k(W) − c`` shall be ``goal_k``, where ``c`` are the common
    scores of ties.
    """
    few = all_pairs(data, order)
    engine = few.everything()
    chosen = few.entries_of_strict(engine)
    goal = np.zeros(len(engine))
    goal[chosen] = -margins * engine.rhs[chosen] / few.unit
    A = np.zeros(len(engine))
    common = engine.zero_common()
    miss = goal
    largest = np.abs(goal).max(initial=0.0)
    try:
        with np.errstate(all="ignore"):  # what overflows is no solution, as its error says
            solve = engine.kkt_solver(np.full(len(engine), True), PROX)
            before = np.inf
            error = largest
            while error < before / 2:  # refining helps
                newton = solve(miss, -engine.column_sums(A))
                A = A + newton.step
                common = common + newton.common
                W = engine.weights(A)
                miss = goal + engine.margins(W, common)
                before, error = error, np.abs(miss).max(initial=0.0)
    except np.linalg.LinAlgError:  # pairs so dependent that no digit is left
        return None
    # An error that is not a number is refused too.
    is_solved = (error / largest if largest else error) <= tolerance
    return W if is_solved else None


# -- in general: a convex minimisation ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TightPairs:
    """The pairs whose margin is one at W^mm; there is one for each dominated candidate.

    Attributes
    ----------
    matrices : ndarray, shape (K, p·q)
        ``D_k``, projected off F and flattened.
    log_odds : ndarray, shape (K,)
        ``log(π_j q̃_k)``: the weight of the pair's context times the odds of its candidate against
        the tied tokens, both at the finite part.
    span : ndarray, shape (r, p·q)
        Orthonormal basis of the matrices' span.
    next_margin : float
        Smallest margin of a pair that is not among them; inf without one.
    """

    matrices: FloatArray
    log_odds: FloatArray
    span: FloatArray
    next_margin: float


def tight_pairs(coords: Coordinates) -> TightPairs:
    """Find the tight pairs of a problem, which decide its next-order term.

    Parameters
    ----------
    coords : Coordinates

    Returns
    -------
    TightPairs

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.coordinates import Coordinates
    >>> from ntpnb.training.late_time import tight_pairs
    >>> tight = tight_pairs(Coordinates(ntpnb.NextTokenData([[1.0]], [[1, 0]])))
    >>> tight.matrices.tolist(), tight.log_odds.tolist()
    ([[1.0, -1.0]], [0.0])
    """
    losing = coords.dominated
    x = coords.base_limit
    log_tied_mass = coords.log_totals(np.where(losing, -np.inf, x))
    log_odds = (np.log(coords.pi) + x - log_tied_mass[coords.row])[losing]

    direction = coords.svm.W.ravel()
    pairs = coords.scale * coords.strict.reshape(-1, direction.size)
    margins = pairs @ direction
    is_tight = margins < 1 + TIGHT
    tight = pairs[is_tight]
    _, sizes, rows = sla.svd(unit_rows(tight), full_matrices=False)
    return TightPairs(
        matrices=tight,
        log_odds=log_odds[is_tight],
        span=rows[sizes > NEGLIGIBLE * sizes[:1].sum()],
        next_margin=float(margins[~is_tight].min(initial=np.inf)),
    )


def _minimise_exponentials(coords: Coordinates, watch: Watch) -> FloatArray:
    """Minimise ``Σ_k e^{log odds_k − ⟨D_k, W̃⟩} + ⟨W^mm, W̃⟩`` over the tight ``k`` by Newton.

    The unknowns ``c`` are coordinates of the strict part of ``W̃`` in the basis ``span``.
    """
    tight = tight_pairs(coords)
    log_odds = tight.log_odds
    span = tight.span
    D = tight.matrices @ span.T / coords.scale
    goal = coords.scale * (span @ coords.svm.W.ravel())
    goal_norm = np.linalg.norm(goal)

    c = _start_from_least_squares(D, goal, log_odds)
    slope = np.full(len(c), np.inf)
    change = np.inf
    for k in range(NEWTON_STEPS):
        watch.tell(f"next-order term: Newton step {k}, exponents moved by {change:.1e}")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                forces = np.exp(log_odds - D @ c)
                slope = goal - forces @ D
                step = np.linalg.solve(D.T @ (forces[:, None] * D), slope)
                change = np.abs(D @ step).max(initial=0.0)
        except np.linalg.LinAlgError:  # odds far apart
            break
        if not np.isfinite(change):
            break
        if np.linalg.norm(slope) <= VANISHES * goal_norm:
            if change > 1e-3:  # e^{-x} has no minimum, though its slope becomes as small as we like
                break
            # At unit scale the path's R = −log λ is larger by 2 log κ: that much of W^mm, which the
            # strict part there lacks, belongs to the term.
            strict_part = (c @ span).reshape(coords.data.shape) / coords.scale
            ahead = 2 * np.log(coords.scale) * coords.svm.W
            term: FloatArray = coords.finite.W + strict_part + ahead
            return term
        # A Newton step can be trusted while no exponent changes by more than one.
        c = c - step / max(1.0, change)
    raise ConvergenceError(
        f"the next-order term still moves exponents by {change:.1e} a step at a gradient of "
        f"{np.linalg.norm(slope):.1e}; a tight pair without a multiplier is the usual cause: the "
        "limit is then infinite",
        float(np.linalg.norm(slope)),
    )


def _start_from_least_squares(D: FloatArray, goal: FloatArray, log_odds: FloatArray) -> FloatArray:
    """Where Newton begins: the solution, up to rounding, where the multipliers are unique.

    It does not begin at zero, because there the odds may span more decades than there are digits.
    """
    multipliers = np.linalg.lstsq(D.T, goal)[0]
    least = max(1e-6 * multipliers.max(initial=0.0), np.finfo(float).tiny)
    multipliers = np.maximum(multipliers, least)
    start: FloatArray = np.linalg.lstsq(D, log_odds - np.log(multipliers))[0]
    return start
