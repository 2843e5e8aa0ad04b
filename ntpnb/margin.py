"""The max-margin problem of both papers: solutions and refusals that carry their own proof."""

from dataclasses import dataclass

import numpy as np

from ntpnb._margin_methods import (
    active_set,
    certificate,
    fista,
    interior_point,
    residual,
    separates,
)
from ntpnb._margin_programs import SupportProgram, program
from ntpnb._margin_references import clarabel, least_distance
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.priority import token_priority

TIGHT = 1e-13  # stop here: the rounding of one product of W and an embedding
ACCEPT = 1e-10  # what a method must reach to be believed
ACCEPT_CVXPY = 1e-8  # Clarabel is not refined
FISTA_FROM = 100  # contexts; with fewer, factorisations are cheaper than FISTA's first steps
METHODS = {
    "active-set": active_set,
    "interior-point": interior_point,
    "fista": fista,
    "nnls": least_distance,
    "cvxpy": clarabel,
}
DENSE = ("nnls", "cvxpy")


@dataclass(frozen=True, eq=False)
class MarginSolution:
    r"""The smallest ``W`` with margin one, and its proof (T24 Eq. (6), L24 Eq. (Graph-SVM)).

    With multipliers ``λ ≥ 0`` of the strict pairs and ``μ`` of the equal pairs, let
    ``Z = Σ λ_k (t_i − t_j) h_gᵀ + Σ μ_k (t_i − t_j) h_gᵀ`` and let ``w_k`` be the score
    difference ``(t_i − t_j) · W h_g`` of pair ``k = (g, i, j)``; ``σ_k = max(1, ‖W‖ ‖h_g‖)``.

    Attributes
    ----------
    W : ndarray, shape (p, q)
    norm : float
        ``‖W‖``, Frobenius.
    min_margin : float
        Smallest ``w_k`` over strict pairs; ``inf`` where there are none.
    kkt_residual : float
        The largest of: ``|w_k| / σ_k`` over equal pairs; ``(1 − w_k) / σ_k`` over strict pairs;
        ``Σ λ_k |w_k − 1| / σ_k / Σ λ_k``; ``‖W − Z‖ / ‖W‖``; ``−λ_k / Σ λ_k``.
    duality_gap : float
        ``|‖W‖²/2 − (Σ λ_k − ‖Z‖²/2)|`` relative to ``‖W‖²/2``.
    solver : str
        The route that found it.
    multipliers : ndarray, shape (len(order.strict),)
        ``λ``; also ``W = (I − P_F) Σ λ_k (t_i − t_j) h_gᵀ`` and ``Σ λ_k = ‖W‖²``.
    equal_multipliers : ndarray, shape (len(order.equal),)
        ``μ``.
    """

    W: np.ndarray
    norm: float
    min_margin: float
    kkt_residual: float
    duality_gap: float
    solver: str
    multipliers: np.ndarray
    equal_multipliers: np.ndarray


def max_margin(data, solver="auto", *, progress=None):
    r"""Solve ``min ‖W‖`` subject to ties and margins of at least one (NTP-SVM, Graph-SVM).

    Equal pairs ``i ≍ j`` of a group ``g`` tie, ``(t_i − t_j) · W h_g = 0``; strict pairs
    ``i ⇒ j`` keep ``(t_i − t_j) · W h_g ≥ 1``.

    Parameters
    ----------
    data : NextTokenData
    solver : str
        ``"active-set"``: a few exact Newton steps, the fastest where they settle (always so far
        for ``d > m``). ``"interior-point"``: about ten steps anywhere, twenty at the edge of
        separability, then an active set. ``"fista"``: no factorisation, for one-hot tokens and
        orders of two levels (all of T24) too large for the others. ``"auto"`` (default): FISTA
        or an active set by size, then the interior point where these stall. ``"nnls"`` and
        ``"cvxpy"``: dense references for small problems.
    progress : callable, optional
        Called with one line of text per step.

    Returns
    -------
    MarginSolution
        Without strict pairs, ``W = 0``.

    Raises
    ------
    ValueError
        An unknown ``solver``, or one that does not fit the data.
    NotSeparableError
        With a certificate, verified before raising: ``λ ≥ 0``, ``Σ λ = 1``, and
        ``‖Z‖_F ≤ 1e-11 Σ λ_k ‖t_i − t_j‖ ‖h_g‖`` with some ``μ`` (see :class:`MarginSolution`).
    ConvergenceError
        Undecided: neither proof reached its tolerance; ``.residual`` is the best KKT residual.

    References
    ----------
    T24 (002) Eq. (6) and Def. 2; L24 (004) Eq. (Graph-SVM). Certificates: Farkas' lemma.
    """
    return _solve(data, solver, progress, goal="margin")


def is_separable(data):
    """Whether some ``W`` meets all ties and keeps every strict pair at a positive margin.

    Stops at the first proof either way: a separating ``W`` (ties met to 1e-12, margins above
    1e-9, relative to the norms of ``W`` and of the pairs), or a certificate that there is none.

    Raises
    ------
    ConvergenceError
        Undecided within these tolerances.

    References
    ----------
    T24 (002) Def. 2 (NTP-separability); L24 (004) feasibility of (Graph-SVM).
    """
    try:
        _solve(data, "auto", None, goal="separation")
    except NotSeparableError:
        return False
    return True


def _solve(data, solver, progress, goal):
    if solver not in ("auto", *METHODS):
        raise ValueError(f"solver is {solver!r}; it must be one of auto, {', '.join(METHODS)}")
    order = token_priority(data)
    n = len(order.equal)
    if not len(order.strict):
        return _proven(data, order, np.zeros(n), np.zeros(0), "no strict pairs")
    P = program(data, order, dense=solver in DENSE)
    by_support = isinstance(P, SupportProgram)
    if solver == "fista" and not by_support:
        raise ValueError("solver is 'fista', which needs one-hot tokens and two-level orders")
    large = by_support and len(P.gram) >= FISTA_FROM
    auto = ("fista" if large else "active-set", "interior-point")
    name, A, refused = _search(P, auto if solver == "auto" else (solver,), goal, progress)
    multipliers = -A[P.entries] / (P.unit * P.norm[P.entries])
    mu, lam = multipliers[:n], np.maximum(multipliers[n:], 0.0)
    if not refused:
        return _proven(data, order, mu, lam, name)
    raise NotSeparableError(
        f"no W keeps all {len(lam)} strict pairs of tokens at a positive margin: a combination of "
        f"{np.count_nonzero(lam)} of them contradicts the others (see .certificate)",
        lam / lam.sum(),
    )


def _search(P, names, goal, progress):
    """Run methods until an iterate is proven: ``(method, A, whether A refuses)``."""
    best = np.inf, None, None
    for name in names:
        accept = ACCEPT_CVXPY if name == "cvxpy" else ACCEPT
        try:
            for step, (A, W, slack, D) in enumerate(METHODS[name](P), 1):
                if goal == "separation" and separates(P, W, slack):
                    return name, A, False
                if D is None:
                    continue
                best = min(best, (residual(P, A, W, slack), step, A), key=lambda b: b[0])
                if progress is not None:
                    progress(f"{name}, step {step}: KKT residual {best[0]:.1e}")
                if best[0] <= TIGHT:
                    break
                if (refusal := certificate(P, D)) is not None:
                    return name, refusal, True
        except np.linalg.LinAlgError:
            pass  # a Newton system lost its digits: the best iterate so far decides
        if best[0] <= accept:
            return name, best[2], False
    raise ConvergenceError(
        f"undecided: {' and '.join(names)} reached a relative KKT residual of {best[0]:.1e}, not "
        f"{accept:g}, and no certificate that the data are not separable",
        best[0],
    )


def _proven(data, order, mu, lam, solver):
    """The solution with its proof, recomputed from the original data and multipliers."""
    pairs = np.concatenate([order.equal, order.strict])
    g, i, j = order.positions(pairs), pairs[:, 1], pairs[:, 2]
    H, T = data.group_embeddings, data.token_embeddings
    G, V, n = len(H), data.vocab_size, len(mu)
    weight = np.concatenate([mu, lam])
    A = np.bincount(g * V + i, weight, G * V) - np.bincount(g * V + j, weight, G * V)
    W = A.reshape(G, V).T @ H
    W = W if T is None else T.T @ W
    norm = np.linalg.norm(W)
    S = H @ W.T
    S = S if T is None else S @ T.T
    margin = S[g, i] - S[g, j]
    size = np.maximum(1.0, norm * np.linalg.norm(H, axis=1)[g])
    total = lam.sum()
    off = np.abs(margin - (np.arange(len(pairs)) >= n)) / size
    kkt = max(
        off[:n].max(initial=0.0),
        ((1 - margin) / size)[n:].max(initial=0.0),
        lam @ off[n:] / total if total else 0.0,
    )
    gap = abs(norm**2 - total) / (norm**2 / 2) if total else 0.0
    least = margin[n:].min(initial=np.inf)
    return MarginSolution(W, norm, least, kkt, gap, solver, lam, mu)
