"""The max-margin problem of both papers: solutions and refusals that carry their own proof."""

from dataclasses import dataclass

import numpy as np

from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin import methods
from ntpnb.margin.program import program
from ntpnb.problem.order import token_priority

METHODS = {"active-set": methods.active_set, "interior-point": methods.interior_point}
METHODS |= {"fista": methods.fista, "nnls": methods.nnls, "cvxpy": methods.cvxpy}
TIGHT = 1e-13  # stop here: the rounding of one product of W and an embedding
ACCEPT = 1e-10  # what an answer has to reach
DENSE = 2**22  # entries of the pairs' matrices that NNLS may form
FEW = 600  # pairs; with more, FISTA's first steps are cheaper than factorisations


@dataclass(frozen=True, eq=False)
class MarginSolution:
    """The smallest ``W`` with margin one, and its proof.

    Over strict pairs ``k = (g, i, j)`` and equal ones, ``W = Σ λ_k (t_i − t_j) h_gᵀ +
    Σ μ_k (t_i − t_j) h_gᵀ`` to the last digit, which is ``(I − P_F) Σ λ_k (t_i − t_j) h_gᵀ``.
    Let ``w_k = (t_i − t_j) · W h_g`` and ``σ_k = max(1, ‖W‖ ‖h_g‖ min(1, ‖t_i − t_j‖))``.

    Attributes
    ----------
    W, norm : ndarray of shape (p, q), and its Frobenius norm
    min_margin : float
        Smallest ``w_k`` over strict pairs; ``inf`` where there are none.
    kkt_residual : float
        The largest of ``e_k / σ_k`` and ``e_k − 0.1``, where ``e_k`` is ``|w_k|`` for equal and
        ``1 − w_k`` for strict pairs, and of ``Σ λ_k |w_k − 1| / σ_k / Σ λ_k``.
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


def max_margin(data, solver="auto", *, order=None, progress=None):
    """Minimise ``‖W‖`` while equal pairs tie and strict pairs keep a margin of at least one.

    T24 (002) Eq. (6), NTP-SVM; L24 (004), Graph-SVM.

    Parameters
    ----------
    data : NextTokenData
    solver : str
        ``"active-set"``: a few exact Newton steps, where they settle (so far always for d ≥ m).
        ``"fista"``: many cheap steps. ``"interior-point"``: about ten steps, twenty at the edge of
        separability. ``"nnls"``, ``"cvxpy"``: dense references for small problems. ``"auto"``
        (default): the first or the second, the third, and NNLS, which begins where W is small.
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already.
    progress : callable, optional
        Called with a line of text per step.

    Returns
    -------
    MarginSolution, with ``W = 0`` where there are no strict pairs

    Raises
    ------
    ValueError
        An unknown ``solver``.
    NotSeparableError
        ``.certificate`` is ``λ ≥ 0`` with ``Σ λ_k = 1``; with some ``μ``, the sum in
        :class:`MarginSolution` has a norm of at most ``1e-12 Σ λ_k ‖t_i − t_j‖ ‖h_g‖``, where
        zero factors count as the least of the others.
    ConvergenceError
        Undecided: neither proof was reached; ``.residual`` is the best KKT residual.
    """
    return _solve(data, solver, order, progress, separation=False)


def is_separable(data):
    """Whether some ``W`` meets all ties and keeps every strict pair at a positive margin.

    Stops at the first proof: a ``W`` with ties met to 1e-9 and margins above 1e-6, relative to its
    norm and the pairs' (or the max-margin one), or a certificate that none exists; raises
    ``ConvergenceError`` without. T24 (002) Def. 2; L24 (004) Graph-SVM.
    """
    try:
        _solve(data, "auto", None, None, separation=True)
    except NotSeparableError:
        return False
    return True


def _solve(data, solver, order, progress, separation):
    if solver not in ("auto", *METHODS):
        raise ValueError(f"solver is {solver!r}; it must be one of auto, {', '.join(METHODS)}")
    order = token_priority(data) if order is None else order
    ties, pairs, size = len(order.equal), len(order.equal) + len(order.strict), np.prod(data.shape)
    if pairs == ties:
        return _proven(data, order, np.zeros(pairs), "no strict pairs")
    best, residual = None, np.inf
    fast = ["fista" if pairs > FEW else "active-set", "interior-point"]
    fast = fast[separation and data.token_embeddings is None :]  # at the edge FISTA only delays
    sure = ["nnls"] * bool(pairs * size <= DENSE)  # and fast where W is small
    auto = sure + fast if pairs > 8 * size else fast + sure
    for name in (names := auto if solver == "auto" else [solver]):
        P = program(data, order, by_pair=name in ("nnls", "cvxpy"))
        scale = -P.unit * P.norm[P.entries]
        try:
            for step, (A, c, D) in enumerate(METHODS[name](P), 1):
                if separation and methods.separates(P, A, c):
                    return best
                if D is None:
                    continue
                found = _proven(data, order, A[P.entries] / scale, name)
                if found.kkt_residual < residual:
                    best, residual = found, found.kkt_residual
                if progress is not None:
                    progress(f"{name}, step {step}: best KKT residual {residual:.1e}")
                if residual <= TIGHT:
                    return best
                if (refusal := methods.certificate(P, D)) is not None:
                    lam = np.maximum((refusal[P.entries] / scale)[ties:], 0.0)
                    raise NotSeparableError(
                        f"no W keeps all {len(lam)} strict pairs at a positive margin: weighted as "
                        f".certificate says, {np.count_nonzero(lam)} of them contradict each other",
                        lam / lam.sum(),
                    )
        except (np.linalg.LinAlgError, RuntimeError):
            pass  # a Newton system or a library ran out of digits: the best iterate so far decides
        if residual <= ACCEPT:
            return best
    raise ConvergenceError(
        f"undecided: {' and '.join(names)} reached a KKT residual of {residual:.1e}, not small "
        "enough, and found no certificate that the data are not separable",
        residual,
    )


def _proven(data, order, y, solver):
    """The solution with its residuals, from the data and the multipliers of all pairs alone."""
    (g, i, j), ties = order.pairs, len(order.equal)
    H, T = data.group_embeddings, data.token_embeddings
    y[ties:] = np.maximum(y[ties:], 0.0)
    A = np.zeros(order.components.shape)
    np.add.at(A, (g, i), y)
    np.add.at(A, (g, j), -y)
    W = A.T @ H if T is None else T.T @ (A.T @ H)
    scores = H @ W.T if T is None else H @ W.T @ T.T
    margin, norm, lam = scores[g, i] - scores[g, j], np.linalg.norm(W), y[ties:]
    near = 1.0 if T is None else np.minimum(1.0, np.linalg.norm(T[i] - T[j], axis=1))
    sigma = np.maximum(1.0, near * norm * np.linalg.norm(H, axis=1)[g])
    miss = np.append(np.abs(margin[:ties]), 1 - margin[ties:])
    slackness = lam @ np.abs(miss / sigma)[ties:] / (lam.sum() or 1.0)
    kkt = max((miss / sigma).max(initial=0.0), miss.max(initial=0.0) - 0.1, slackness)
    gap = abs(norm**2 - lam.sum()) / (norm**2 / 2 or 1.0)
    proof = map(float, (norm, margin[ties:].min(initial=np.inf), kkt, gap))
    return MarginSolution(W, *proof, solver, lam, y[:ties])
