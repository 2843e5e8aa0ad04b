"""The max-margin problem of both papers: solutions and refusals that carry their own proof."""

from dataclasses import dataclass

import numpy as np

from ntpnb import _margin_methods as methods
from ntpnb import _margin_references as references
from ntpnb._margin_programs import program
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.priority import token_priority

METHODS = {"active-set": methods.active_set, "interior-point": methods.interior_point}
METHODS |= {"fista": methods.fista, "nnls": references.nnls, "cvxpy": references.cvxpy}
TIGHT = 1e-13  # stop here: the rounding of one product of W and an embedding
ACCEPT = dict.fromkeys(METHODS, 1e-10) | {"cvxpy": 1e-8}  # to reach; Clarabel is not refined
DENSE = 2**22  # entries of the pairs' matrices that a dense last resort may form
FISTA_FROM = 100  # contexts; with fewer, factorisations are cheaper than FISTA's first steps


@dataclass(frozen=True, eq=False)
class MarginSolution:
    """The smallest ``W`` with margin one, and its proof.

    Over strict pairs ``k = (g, i, j)`` and equal ones, ``W = Σ λ_k (t_i − t_j) h_gᵀ +
    Σ μ_k (t_i − t_j) h_gᵀ`` to the last digit, which is ``(I − P_F) Σ λ_k (t_i − t_j) h_gᵀ``.
    Let ``w_k = (t_i − t_j) · W h_g`` and ``σ_k = max(1, ‖W‖ ‖h_g‖)``.

    Attributes
    ----------
    W, norm : ndarray of shape (p, q), and its Frobenius norm
    min_margin : float
        Smallest ``w_k`` over strict pairs; ``inf`` where there are none.
    kkt_residual : float
        The largest of ``|w_k| / σ_k`` over equal pairs, and over strict pairs of
        ``(1 − w_k) / σ_k`` and ``Σ λ_k |w_k − 1| / σ_k / Σ λ_k``.
    duality_gap : float
        ``|‖W‖² − Σ λ_k| / (‖W‖²/2)``: primal minus dual value, relative to the primal one.
    solver : str, the method that found it
    multipliers, equal_multipliers : ndarray
        ``λ ≥ 0`` and ``μ``, as long as the order's ``strict`` and ``equal``.
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
    """Minimise ``‖W‖`` while equal pairs tie and strict pairs keep a margin of at least one.

    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM.

    Parameters
    ----------
    data : NextTokenData
    solver : str
        ``"active-set"``: a few exact Newton steps, where they settle (so far always for d ≥ m).
        ``"interior-point"``: about ten steps, twenty at the edge of separability. ``"fista"``:
        many cheap steps, for one-hot tokens and two-level orders (T24's). ``"nnls"``, ``"cvxpy"``:
        dense references for small problems. ``"auto"`` (default): FISTA or an active set by size,
        then the interior point, then for small problems the first of the references.
    progress : callable, optional
        Called with a line of text per step.

    Returns
    -------
    MarginSolution, with ``W = 0`` where there are no strict pairs

    Raises
    ------
    ValueError
        An unknown ``solver``, or one that does not fit the data.
    NotSeparableError
        ``.certificate`` is ``λ ≥ 0`` with ``Σ λ_k = 1``; with some ``μ``, the sum in
        :class:`MarginSolution` has a norm below ``1e-12 Σ λ_k ‖t_i − t_j‖ ‖h_g‖``.
    ConvergenceError
        Undecided: neither proof was reached; ``.residual`` is the best KKT residual.
    """
    return _solve(data, solver, progress, separation=False)


def is_separable(data):
    """Whether some ``W`` meets all ties and keeps every strict pair at a positive margin.

    Stops at the first proof either way: a ``W`` with ties met to 1e-9 and margins above 1e-6,
    relative to its norm and the pairs' (or the max-margin one), or a certificate that none exists.
    Raises ``ConvergenceError`` where neither is found. T24 (002) Def. 2; L24 (004) Graph-SVM.
    """
    try:
        _solve(data, "auto", None, separation=True)
    except NotSeparableError:
        return False
    return True


def _solve(data, solver, progress, separation):
    if solver not in ("auto", *METHODS):
        raise ValueError(f"solver is {solver!r}; it must be one of auto, {', '.join(METHODS)}")
    order = token_priority(data)
    if not len(order.strict):
        return _proven(data, order, np.zeros(len(order.equal)), "no strict pairs")
    P = program(data, order, dense=solver in ("nnls", "cvxpy"))
    if solver == "fista" and not P.U.size:
        raise ValueError("solver is 'fista', which needs one-hot tokens and two-level orders")
    m, d = P.U.shape
    first = "fista" if m >= FISTA_FROM else "active-set"
    if separation:  # for m ≤ d the first step of an active set separates
        first = "active-set" if m <= d else "interior-point"
    names = dict.fromkeys((first, "interior-point")) if solver == "auto" else (solver,)
    try:
        name, A, refused = _search(P, names, progress, separation)
        y = -A[P.entries] / (P.unit * P.norm[P.entries])
        if not refused:
            svm = _proven(data, order, y, name)
            if not separation and svm.kkt_residual > ACCEPT[name]:  # lost in summing W
                raise _undecided([name], svm.kkt_residual)
            return svm
    except ConvergenceError:
        pairs = len(order.equal) + len(order.strict)
        if solver != "auto" or pairs * np.prod(data.shape) > DENSE:
            raise
        return _solve(data, "nnls", progress, separation)  # slow, and decides the closest calls
    lam = np.maximum(y[len(order.equal) :], 0.0)
    raise NotSeparableError(
        f"no W keeps all {len(lam)} strict pairs at a positive margin: {np.count_nonzero(lam)} of "
        "them contradict each other, weighted as .certificate says",
        lam / lam.sum(),
    )


def _search(P, names, progress, separation):
    """Run methods until an iterate proves something: ``(method, A, whether A refuses)``."""
    best = np.inf, None
    for name in names:
        try:
            for step, (A, W, slack, D) in enumerate(METHODS[name](P), 1):
                if separation and methods.separates(P, W, slack):
                    return name, A, False
                if D is None:
                    continue
                best = min(best, (methods.residual(P, A, W, slack), A), key=lambda pair: pair[0])
                if progress is not None:
                    progress(f"{name}, step {step}: best relative KKT residual {best[0]:.1e}")
                if best[0] <= TIGHT:
                    break
                if (refusal := methods.certificate(P, D)) is not None:
                    return name, refusal, True
        except np.linalg.LinAlgError:
            pass  # a Newton system ran out of digits: the best iterate so far decides
        if best[0] <= ACCEPT[name]:
            return name, best[1], False
    raise _undecided(names, best[0])


def _undecided(names, residual):
    return ConvergenceError(
        f"undecided: {' and '.join(names)} reached a relative KKT residual of {residual:.1e}, "
        "not small enough, and found no certificate that the data are not separable",
        residual,
    )


def _proven(data, order, y, solver):
    """The solution with its residuals, from the data and the multipliers of all pairs alone."""
    pairs, n = np.concatenate([order.equal, order.strict]), len(order.equal)
    g, i, j = order.positions(pairs), pairs[:, 1], pairs[:, 2]
    H, T, shape = data.group_embeddings, data.token_embeddings, order.components.shape
    y[n:] = np.maximum(y[n:], 0.0)
    A = np.zeros(shape)
    np.add.at(A, (g, i), y)
    np.add.at(A, (g, j), -y)
    W = A.T @ H if T is None else T.T @ (A.T @ H)
    scores = H @ W.T if T is None else H @ W.T @ T.T
    margin, norm, lam = scores[g, i] - scores[g, j], np.linalg.norm(W), y[n:]
    sigma = np.maximum(1.0, norm * np.linalg.norm(H, axis=1))[g]
    ties, room = np.abs(margin / sigma)[:n], ((margin - 1) / sigma)[n:]
    kkt, gap = ties.max(initial=0.0), 0.0
    if len(lam):
        kkt = max(kkt, -room.min(), lam @ np.abs(room) / lam.sum())
        gap = abs(norm**2 - lam.sum()) / (norm**2 / 2)
    proof = map(float, (norm, margin[n:].min(initial=np.inf), kkt, gap))
    return MarginSolution(W, *proof, solver, lam, y[:n])
