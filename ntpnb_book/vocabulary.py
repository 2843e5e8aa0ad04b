"""Small mathematics that chapter after chapter needs: angles, pairs, graphs, margins, references.

Everything here is written from the definitions of the papers, and nothing calls the package's
graphs, engine or subspaces to find its answer: a chapter that compares the package with one of
these functions compares it with something else than itself.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog, nnls
from scipy.special import softmax

from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy, gradient, logits, scores
from ntpnb.tied.finite import FinitePart, restrict
from ntpnb.tied.subspace import EqualSubspace

__all__ = [
    "cosine",
    "curvatures",
    "distance",
    "distance_to_subspace",
    "flat_loss",
    "frobenius_norm",
    "inner",
    "least_norm_separator",
    "linear_separator",
    "log_softplus",
    "margin",
    "orthogonal_part",
    "pair_matrices",
    "power_of_ten",
    "priority_graph",
    "projected_descent",
    "reachable",
    "unit_rows",
    "weighted_pairs",
]

FAR_BELOW = -30.0  # log(1 + eˣ) is eˣ here, to the last digit
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def inner(A: npt.ArrayLike, B: npt.ArrayLike) -> FloatArray:
    """Frobenius inner product ``Σ_pq A_pq B_pq`` over the last two axes.

    Parameters
    ----------
    A, B : array_like, shapes (..., p, q)
        Matrices or stacks of matrices, broadcast against each other.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> from ntpnb_book import inner
    >>> print(inner([[1, 2], [3, 4]], [[1, 0], [0, 1]]))
    5
    """
    product: FloatArray = np.sum(np.asarray(A) * np.asarray(B), axis=(-2, -1))
    return product


def frobenius_norm(W: npt.ArrayLike) -> FloatArray:
    """Frobenius norm ``‖W‖`` over the last two axes.

    Parameters
    ----------
    W : array_like, shape (..., p, q)

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> from ntpnb_book import frobenius_norm
    >>> print(frobenius_norm([[[3, 4], [0, 0]], [[0, 0], [0, 2]]]))
    [5. 2.]
    """
    norm: FloatArray = np.linalg.norm(W, axis=(-2, -1))
    return norm


def distance(A: npt.ArrayLike, B: npt.ArrayLike) -> FloatArray:
    """Frobenius distance ``‖A − B‖`` over the last two axes.

    Parameters
    ----------
    A, B : array_like, shapes (..., p, q)
        Broadcast against each other.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> from ntpnb_book import distance
    >>> print(distance([[3, 4]], [[0, 0]]))
    5.0
    """
    return frobenius_norm(np.asarray(A) - np.asarray(B))


def cosine(A: npt.ArrayLike, B: npt.ArrayLike) -> FloatArray:
    """Cosine of the angle between matrices; nan where one of them is zero and has no direction.

    Near one a cosine has no digits left: the package's `ntpnb.compare` gives angles that do.

    Parameters
    ----------
    A, B : array_like, shapes (..., p, q)
        Broadcast against each other.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> from ntpnb_book import cosine
    >>> print(cosine([[[2, 0]], [[0, -1]]], [[3, 0]]))
    [1. 0.]
    """
    sizes = frobenius_norm(A) * frobenius_norm(B)
    with np.errstate(invalid="ignore"):
        found: FloatArray = inner(A, B) / np.where(sizes > 0, sizes, np.nan)
    return found


def orthogonal_part(W: npt.ArrayLike, direction: npt.ArrayLike) -> FloatArray:
    """Part of ``W`` orthogonal to a direction, in the Frobenius inner product.

    The norm of this part of the next-order term is what the chapters call κ: the angle to
    ``W^mm`` is κ divided by the norm of the iterate.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    direction : array_like, shape (p, q)
        Not zero; its length does not matter.

    Returns
    -------
    ndarray, shape (..., p, q)

    Examples
    --------
    >>> from ntpnb_book import orthogonal_part
    >>> print(orthogonal_part([[3, 4]], [[2, 0]]))
    [[0. 4.]]
    """
    W = np.asarray(W)
    direction = np.asarray(direction)
    along = np.sum(W * direction, axis=(-2, -1), keepdims=True) / np.linalg.norm(direction) ** 2
    part: FloatArray = W - along * direction
    return part


def distance_to_subspace(W: npt.ArrayLike, subspace: EqualSubspace) -> FloatArray:
    """Distance ``‖P_⊥ W‖`` of matrices from a subspace of matrices.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    subspace : EqualSubspace
        What `ntpnb.equal_subspace` returned, or the ``subspace`` of a finite part.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import distance_to_subspace
    >>> data = ntpnb.datasets.toy()
    >>> bias = ntpnb.implicit_bias(data)
    >>> part, svm = bias.finite_part, bias.max_margin
    >>> print(abs(distance_to_subspace(part.W + svm.W, part.subspace) - svm.norm) < 1e-9)
    True
    """
    return frobenius_norm(subspace.reject(W))


def unit_rows(X: npt.ArrayLike) -> FloatArray:
    """Scale vectors to length one: points on the sphere.

    Parameters
    ----------
    X : array_like, shape (..., d)
        None of the vectors is zero.

    Returns
    -------
    ndarray, shape (..., d)

    Examples
    --------
    >>> from ntpnb_book import unit_rows
    >>> print(unit_rows([[3, 4], [0, 2]]))
    [[0.6 0.8]
     [0.  1. ]]
    """
    X = np.asarray(X)
    rows: FloatArray = X / np.linalg.norm(X, axis=-1, keepdims=True)
    return rows


def _pair_factors(data: NextTokenData, pairs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Token differences ``t_i − t_j``, shape (n, p), and embeddings ``h_g``, shape (n, q)."""
    rows = np.asarray(pairs, dtype=int).reshape(-1, 3)
    group, i, j = rows.T
    tokens = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
    position = np.searchsorted(data.group_names, group)
    return tokens[i] - tokens[j], data.group_embeddings[position]


def pair_matrices(data: NextTokenData, pairs: npt.ArrayLike) -> FloatArray:
    """Matrices ``D = (t_i − t_j) h_gᵀ``, whose inner product with W is token i's lead over j.

    Parameters
    ----------
    data : NextTokenData
    pairs : array_like of int, shape (n, 3)
        Rows ``(group, i, j)``, as in ``ntpnb.token_priority(data).strict``. Where each context is
        its own group, as in T24, ``group`` is the number of the context.

    Returns
    -------
    ndarray, shape (n, p, q)

    References
    ----------
    T24 (002) Eq. (3), L24 (004) (Graph-SVM): every constraint is a bound on such a product.

    Examples
    --------
    >>> import numpy as np
    >>> import ntpnb
    >>> from ntpnb_book import pair_matrices
    >>> data = ntpnb.NextTokenData(np.array([[2.0, 5.0]]), np.array([[1.0, 0.0, 0.0]]))
    >>> print(pair_matrices(data, [(0, 0, 1)])[0])
    [[ 2.  5.]
     [-2. -5.]
     [ 0.  0.]]
    """
    differences, h = _pair_factors(data, pairs)
    matrices: FloatArray = np.einsum("np,nq->npq", differences, h)
    return matrices


def weighted_pairs(data: NextTokenData, pairs: npt.ArrayLike, weights: npt.ArrayLike) -> FloatArray:
    """Sum ``Σ_k λ_k (t_i − t_j) h_gᵀ`` of weighted pairs.

    With the weights of a certificate the sum vanishes off the tied subspace, which proves that the
    data are not separable. With the multipliers of a max-margin solution its part off the tied
    subspace is the solution itself.

    Parameters
    ----------
    data : NextTokenData
    pairs : array_like of int, shape (n, 3)
        Rows ``(group, i, j)``, as for `pair_matrices`.
    weights : array_like, shape (n,)

    Returns
    -------
    ndarray, shape (p, q)

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import distance, weighted_pairs
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> svm = bias.max_margin
    >>> total = weighted_pairs(bias.data, bias.order.strict, svm.multipliers)
    >>> print(distance(bias.finite_part.subspace.reject(total), svm.W) < 1e-9)
    True
    """
    differences, h = _pair_factors(data, pairs)
    total: FloatArray = np.einsum("n,np,nq->pq", np.asarray(weights, dtype=float), differences, h)
    return total


def priority_graph(data: NextTokenData, group: int) -> BoolArray:
    """Adjacency matrix of a group's token-priority graph (TPG), without loops.

    There is an edge from every in-support token of a row of the group to every other candidate of
    that row: from the label to the other tokens of a sequence, in L24.

    Parameters
    ----------
    data : NextTokenData
    group : int
        A name in ``data.context_groups``: L24's last token, T24's context.

    Returns
    -------
    ndarray of bool, shape (V, V)
        ``[i, j]`` says whether there is an edge from i to j.

    References
    ----------
    L24 (004) Sec. 3.1.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import priority_graph
    >>> data = ntpnb.datasets.figure2()
    >>> print(priority_graph(data, data.group_names[0]).sum())
    5
    """
    edges = np.zeros((data.vocab_size, data.vocab_size), dtype=bool)
    for row in np.flatnonzero(data.context_groups == group):
        edges |= np.outer(data.support[row], data.candidates[row])
    np.fill_diagonal(edges, False)
    return edges


def reachable(data: NextTokenData, group: int) -> BoolArray:
    """Reflexive transitive closure of a group's token-priority graph.

    Powers of a Boolean matrix, whereas `ntpnb.token_priority` finds strongly connected components.

    Parameters
    ----------
    data : NextTokenData
    group : int
        A name in ``data.context_groups``.

    Returns
    -------
    ndarray of bool, shape (V, V)
        ``[i, j]`` says whether ``i = j`` or a path leads from i to j. So tokens tie where the
        matrix and its transpose are both true.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import reachable
    >>> data = ntpnb.datasets.figure2()
    >>> reach = reachable(data, data.group_names[1])
    >>> print((reach & reach.T).sum(axis=1))
    [3 3 3 1]
    """
    reach = np.eye(data.vocab_size, dtype=bool) | priority_graph(data, group)
    paths = 1
    while paths < data.vocab_size:
        reach = reach @ reach  # paths of twice the length
        paths *= 2
    return reach


def margin(W: npt.ArrayLike, data: NextTokenData) -> FloatArray:
    """Smallest lead of an in-support score over another candidate's, over all rows.

    Rows whose candidates are all in the support have no lead to lose, and count as infinity.

    Parameters
    ----------
    W : array_like, shape (..., p, q)
    data : NextTokenData

    Returns
    -------
    ndarray, shape (...)

    References
    ----------
    T24 (002) Def. 2.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import margin
    >>> data = ntpnb.datasets.toy()
    >>> print(abs(margin(ntpnb.max_margin(data).W, data) - 1) < 1e-9)
    True
    """
    S = scores(np.asarray(W, dtype=float), data)
    outside = data.candidates & ~data.support
    lowest_inside = np.where(data.support, S, np.inf).min(axis=-1)
    highest_outside = np.where(outside, S, -np.inf).max(axis=-1)
    smallest: FloatArray = (lowest_inside - highest_outside).min(axis=-1)
    return smallest


def curvatures(finite: FinitePart, data: NextTokenData) -> FloatArray:
    """Eigenvalues, on the tied subspace, of the restricted loss's Hessian at the finite part.

    The restricted loss is the cross-entropy over tied tokens only, ``CE(W; restrict(data))``. Its
    Hessian is ``Σ_j π_j Cov_q[s_jz]``, with the law ``q`` of row j at the finite part. The largest
    eigenvalue λ limits a step of gradient descent to ``2/λ``; the smallest is positive and sets
    the rate on the subspace.

    Parameters
    ----------
    finite : FinitePart
    data : NextTokenData

    Returns
    -------
    ndarray, shape (dim,)
        Decreasing, in nats per squared unit of W.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import curvatures
    >>> data = ntpnb.datasets.toy()
    >>> found = curvatures(ntpnb.finite_part(data), data)
    >>> print(len(found) == ntpnb.equal_subspace(data).dim, bool(found[-1] > 0))
    True True
    """
    law = data.target_probs  # which the finite part attains where it is compatible
    if not finite.compatible:
        law = softmax(logits(finite.W, restrict(data)), axis=-1)
    slopes = np.einsum("kpq,mq->kmp", finite.subspace.basis, data.context_embeddings)
    if data.token_embeddings is not None:
        slopes = slopes @ data.token_embeddings.T
    slopes = slopes - np.sum(law * slopes, axis=-1, keepdims=True)
    weighted = np.sqrt(data.context_probs[:, None] * law) * slopes
    singular_values = np.linalg.svd(
        weighted.reshape(len(weighted), law.size), full_matrices=False, compute_uv=False
    )
    squares: FloatArray = np.zeros(len(weighted))
    squares[: len(singular_values)] = singular_values**2
    return squares


def log_softplus(x: npt.ArrayLike) -> FloatArray:
    """``log(log(1 + eˣ))`` without underflow.

    A row's excess loss is ``log(1 + eˣ)`` where x is the log-odds of leaving its support. Far from
    zero ``eˣ`` underflows, but its logarithm is x.

    Parameters
    ----------
    x : array_like

    Returns
    -------
    ndarray, of the same shape

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import log_softplus
    >>> print(np.round(log_softplus([-1e6, 0.0, 1.0]), 6))
    [-1.00000e+06 -3.66513e-01  2.72514e-01]
    """
    x = np.asarray(x, dtype=float)
    near = np.log(np.logaddexp(0.0, np.maximum(x, FAR_BELOW)))
    value: FloatArray = np.where(x < FAR_BELOW, x, near)
    return value


def linear_separator(rows: npt.ArrayLike, ties: npt.ArrayLike | None = None) -> FloatArray | None:
    """A vector with product at least one with every row, by a linear program; None without one.

    Parameters
    ----------
    rows : array_like, shape (n, N)
        Such as flattened `pair_matrices` of the strict pairs.
    ties : array_like, shape (k, N), optional
        Rows with which the product must be zero.

    Returns
    -------
    ndarray, shape (N,), or None
        Some such vector, not the smallest.

    Examples
    --------
    >>> from ntpnb_book import linear_separator
    >>> print(linear_separator([[1, 0], [0, 2]]) is None, linear_separator([[1], [-1]]) is None)
    False True
    """
    rows = np.asarray(rows, dtype=float)
    size = rows.shape[1]
    if ties is not None:
        ties = np.asarray(ties, dtype=float)
    found = linprog(
        np.zeros(size),
        A_ub=-rows,
        b_ub=-np.ones(len(rows)),
        A_eq=ties,
        b_eq=None if ties is None else np.zeros(len(ties)),
        bounds=(None, None),
    )
    solved: FloatArray | None = found.x if found.status == 0 else None
    return solved


def least_norm_separator(
    rows: npt.ArrayLike, margins: npt.ArrayLike = 1.0, *, max_iterations: int | None = None
) -> FloatArray:
    """Smallest vector x with ``rows @ x >= margins``, by nonnegative least squares.

    Let ``u`` be the residual of the system ``[rowsᵀ; marginsᵀ] y = (0, …, 0, 1)`` over ``y ≥ 0``.
    Then x is the first part of u divided by minus its last entry, if there is such an x.

    Parameters
    ----------
    rows : array_like, shape (n, N)
    margins : array_like, shape (n,) or a number
    max_iterations : int, optional
        Of the least-squares solver; by default three per row.

    Returns
    -------
    ndarray, shape (N,)

    References
    ----------
    Lawson & Hanson, Solving Least Squares Problems (1995), Ch. 23, Problem LDP.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book import least_norm_separator
    >>> print(np.round(least_norm_separator([[1, 1], [2, -2]]), 12))
    [0.75 0.25]
    """
    rows = np.asarray(rows, dtype=float)
    if len(rows) == 0:  # which scipy's nnls does not survive
        return np.zeros(rows.shape[1])
    right_side = np.broadcast_to(np.asarray(margins, dtype=float), len(rows))
    system = np.vstack([rows.T, right_side])
    goal = np.eye(len(system))[-1]
    weights, _ = nnls(system, goal, maxiter=max_iterations)
    residual = system @ weights - goal
    smallest: FloatArray = -residual[:-1] / residual[-1]
    return smallest


def flat_loss(data: NextTokenData) -> Callable[[FloatArray], tuple[float, FloatArray]]:
    """Cross-entropy and its gradient as a function of a flat vector.

    This is what ``scipy.optimize.minimize(..., jac=True)`` wants.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    callable
        Takes the entries of W, shape (p·q,), and returns the loss in nats and its gradient, of
        the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> import ntpnb
    >>> from ntpnb_book import flat_loss
    >>> data = ntpnb.datasets.toy()
    >>> value, slope = flat_loss(data)(np.zeros(10))
    >>> print(round(value, 6), slope.shape)
    1.609438 (10,)
    """

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        W = w.reshape(data.shape)
        return float(cross_entropy(W, data)), gradient(W, data).ravel()

    return loss


def projected_descent(
    data: NextTokenData,
    start: npt.ArrayLike,
    project: Callable[[FloatArray], FloatArray],
    steps: int,
) -> FloatArray:
    """Minimise the cross-entropy over a convex set by accelerated projected gradient steps.

    The step is ``1/L`` with L = ``data.smoothness``, and the momentum Nesterov's.

    Parameters
    ----------
    data : NextTokenData
    start : array_like, shape (..., p, q)
    project : callable
        Projection of matrices, shape (..., p, q), onto the set.
    steps : int

    Returns
    -------
    ndarray, shape (..., p, q)

    References
    ----------
    Beck & Teboulle, A fast iterative shrinkage-thresholding algorithm (2009), FISTA with
    constant step.

    Examples
    --------
    >>> import numpy as np
    >>> import ntpnb
    >>> from ntpnb_book import frobenius_norm, projected_descent
    >>> def onto_ball(W):
    ...     return W / max(1.0, frobenius_norm(W))
    >>> data = ntpnb.datasets.toy()
    >>> W = projected_descent(data, np.zeros(data.shape), onto_ball, 300)
    >>> path = ntpnb.regularization_path(data, [1.0])
    >>> print(np.abs(W - path.W[0]).max() < 1e-6)
    True
    """
    W = np.asarray(start, dtype=float)
    ahead = W
    t = 1.0
    for _ in range(steps):
        new = project(ahead - gradient(ahead, data) / data.smoothness)
        last = t
        t = (1 + float(np.sqrt(1 + 4 * t * t))) / 2
        ahead = new + (last - 1) / t * (new - W)
        W = new
    return W


def power_of_ten(exponent: float) -> str:
    """Write ``10`` raised to the nearest whole exponent, with superscript digits.

    Parameters
    ----------
    exponent : float

    Returns
    -------
    str

    Examples
    --------
    >>> from ntpnb_book import power_of_ten
    >>> print(power_of_ten(99.8))
    10¹⁰⁰
    """
    return "10" + f"{exponent:.0f}".translate(SUPERSCRIPTS)
