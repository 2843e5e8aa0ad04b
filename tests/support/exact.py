"""Verdicts, bounds and values that no rounding can change, since floats are rational numbers.

Whether ties and strict pairs can be met is decided in rational numbers, and norms are computed in
many digits. Nothing is the package's but the order in which a solution lists its multipliers.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import reference

import ntpnb


def fractions(array):
    """A float array, entry by entry, without an error."""
    return np.array([Fraction(x) for x in np.ravel(array).tolist()]).reshape(np.shape(array))


def many(array):
    """An array of floats or fractions in many digits."""
    flat = [mpmath.mpf(x.numerator) / x.denominator for x in fractions(array).ravel()]
    return np.array(flat, dtype=object).reshape(np.shape(array))


mpf, exp, log = (
    np.vectorize(function, otypes=[object]) for function in (mpmath.mpf, mpmath.exp, mpmath.log)
)
"""Of each entry of an array, in many digits."""


def pair_matrices(data, pairs):
    """``(t_i − t_j) h_gᵀ`` of each pair, flattened, as rows of fractions."""
    T = fractions(reference.token_embeddings(data))
    H = {g: fractions(reference.group_embedding(data, g)) for g, _, _ in pairs}
    rows = [np.outer(T[i] - T[j], H[g]).ravel() for g, i, j in pairs]
    p, q = data.shape
    return np.array(rows, dtype=object).reshape(len(pairs), p * q)


def tie_matrices(data):
    """Those of the tied pairs, each pair once."""
    return pair_matrices(data, [pair for pair in reference.equal_pairs(data) if pair[1] < pair[2]])


def strict_matrices(data):
    """Those of the strict pairs."""
    return pair_matrices(data, reference.strict_pairs(data))


def independent(rows):
    """The rows that do not depend on the ones before, by Gaussian elimination."""
    kept, eliminated = [], []
    for row in rows:
        left = row
        for other, pivot in eliminated:
            left = left - left[pivot] / other[pivot] * other
        if left.any():
            kept.append(row)
            eliminated.append((left, np.flatnonzero(left)[0]))
    return kept


def orthonormal_basis(data):
    """Orthonormal matrices that span the tied subspace, in many digits, shape (dim, p q)."""
    basis = []
    for row in independent(tie_matrices(data)):
        left = many(row)
        for other in basis:
            left = left - (left @ other) * other
        basis.append(left / mpmath.sqrt(left @ left))
    p, q = data.shape
    return np.array(basis, dtype=object).reshape(len(basis), p * q)


def _whole(row):
    """The shortest multiple of a row of fractions that has whole numbers."""
    denominator = math.lcm(*(x.denominator for x in row))
    numbers = [int(x * denominator) for x in row]
    divisor = math.gcd(*numbers) or 1
    return [number // divisor for number in numbers]


def some_w_separates(strict, ties):
    """Whether some ``w`` has ``strict @ w > 0`` and ``ties @ w = 0``, rows of fractions; proved.

    The first phase of the simplex method, with Bland's rule and in whole numbers (a division by the
    last pivot leaves no remainder), looks for ``λ ≥ 0`` of sum one and ``μ`` such that the rows,
    multiplied by them, add up to zero: where these exist, there is no ``w``. Else the prices of its
    last step are one. Either is tried here.
    """
    strict = np.array([_whole(row) for row in strict], dtype=object)
    ties = np.array([_whole(row) for row in ties], dtype=object).reshape(-1, strict.shape[1])
    columns = np.concatenate([strict, ties, -ties]).T  # μ is a difference of two numbers ≥ 0
    size, num_columns = columns.shape
    table = np.zeros((size + 2, num_columns + size + 2), dtype=object)
    table[:size, :num_columns] = columns
    table[size, : len(strict)] = 1
    table[size, -1] = 1
    table[-1] = -table[:-1].sum(axis=0)
    basis = list(range(num_columns, num_columns + size + 1))
    table[range(size + 1), basis] = 1
    last = 1
    while (table[-1, :num_columns] < 0).any():
        entering = np.flatnonzero(table[-1, :num_columns] < 0)[0]
        limits = [
            (Fraction(table[row, -1], table[row, entering]), basis[row], row)
            for row in np.flatnonzero(table[:-1, entering] > 0)
        ]
        row = min(limits)[-1]
        kept = table[row].copy()
        pivot = kept[entering]
        table = (table * pivot - np.outer(table[:, entering], kept)) // last
        table[row] = kept
        last, basis[row] = pivot, entering
    if table[-1, -1] < 0:
        w = table[-1, num_columns:-2] - last
        assert (strict @ w > 0).all()
        assert (ties @ w == 0).all()
        return True
    weights = np.zeros(num_columns + size + 1, dtype=object)
    weights[basis] = table[:-1, -1]
    weights = weights[:num_columns]
    assert (columns @ weights == 0).all()
    assert (weights >= 0).all()
    assert weights[: len(strict)].sum() > 0
    return False


def is_separable(data):
    """Whether some ``W`` meets all ties and keeps all strict pairs at a positive margin."""
    strict = strict_matrices(data)
    return len(strict) == 0 or some_w_separates(strict, tie_matrices(data))


def is_nearly_separable(data, margin, miss=0.0, longest=1.0):
    """Whether some ``W`` misses ties by less than ``miss`` and has more than ``margin`` elsewhere.

    Both are relative to the lengths of the pairs' matrices. Without ``miss``, ties are met. No
    entry of ``W`` is above ``longest``.
    """
    strict, ties = strict_matrices(data), tie_matrices(data)
    # w = (W, t) with t > 0, so that bounds are multiples of t
    rows = [_with(row, -margin * _length(row)) for row in strict]
    met = [_with(row, 0.0) for row in ties]
    if miss:
        rows += [_with(sign * row, miss * _length(row)) for row in ties for sign in (1, -1)]
        met = []
    units = np.eye(math.prod(data.shape), dtype=int)
    rows += [_with(sign * row, longest) for row in units for sign in (1, -1)]
    return some_w_separates(rows, met)


def _length(row):
    return math.sqrt(sum(x * x for x in row))


def _with(row, last):
    """A row with one number more, as fractions."""
    return [*map(Fraction, row.tolist()), Fraction(last)]


def matrix_norm(name, matrix):
    """A norm of a matrix in many digits."""
    if name == "max":
        return abs(matrix).max()
    if name == "sum":
        return abs(matrix).sum()
    if name == "frobenius":
        return mpmath.sqrt((matrix * matrix).sum())
    singular_values = mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)
    return max(singular_values) if name == "spectral" else sum(singular_values)


def tied_tokens(data):
    """For each row, its in-support tokens and what ties with them, by the slow closure."""
    closure, C = reference.reachable(data), reference.candidate_counts(data)
    for j, p in enumerate(data.target_probs):
        R, z = closure[int(data.context_groups[j])], int(p.argmax())
        tied = {z} | {v for v in range(len(p)) if R[z, v] and R[v, z]}
        yield j, sorted(v for v in tied if C[j, v] > 0), C[j]


def exact_minimiser(data, start, basis):
    """The finite part, by Newton's method in coordinates of a basis of F, from a point nearby.

    It computes in as many digits as mpmath is told to.
    """
    T, H, basis = mpf(reference.token_embeddings(data)), mpf(data.context_embeddings), mpf(basis)
    flat = basis.reshape(len(basis), -1)
    rows = []
    for j, tied, counts in tied_tokens(data):
        if len(tied) > 1:
            p = mpf(data.target_probs[j, tied])
            X = T[tied] @ (basis @ H[j]).T
            rows.append((mpf(data.context_probs)[j], p / p.sum(), mpf(counts[tied]), X))
    u = flat @ mpf(start.ravel())
    for _ in range(50):
        gradient, hessian = 0, 0
        for pi, p, c, X in rows:
            weight = c * exp(X @ u)
            q = weight / weight.sum()
            mean = q @ X
            gradient += pi * (mean - p @ X)
            hessian += pi * ((X.T * q) @ X - np.outer(mean, mean))
        solved = mpmath.lu_solve(mpmath.matrix(hessian.tolist()), mpmath.matrix(gradient.tolist()))
        step = np.array(list(solved), dtype=object)
        u = u - step
        # the second term for a minimiser that is zero, which rounding need not let start there
        if mpmath.norm(step) <= mpmath.norm(u) * mpmath.mpf(10) ** -30 + mpmath.mpf(10) ** -40:
            return (u @ flat).astype(float).reshape(start.shape)
    raise AssertionError("the reference did not converge")


def exact_excess(W, data):
    """CE − H at exactly these doubles, with 400 digits."""
    total = 0
    with mpmath.workdps(400):
        M = mpf(reference.token_embeddings(data)) @ mpf(W)
        C = mpf(reference.candidate_counts(data))
        for j, pi, h, law in reference.rows(data):
            mass = C[j] * exp(M @ mpf(h))
            p = mpf(law)
            p = p / p.sum()  # the stored doubles sum to one up to rounding
            z = law > 0
            total += mpmath.mpf(float(pi)) * (p[z] * log(p[z] / (mass[z] / mass.sum()))).sum()
        return total


DUAL = {"max": "sum", "sum": "max", "spectral": "nuclear", "nuclear": "spectral"}


def margin_bounds(data, svm, name):
    """What a solution's ``W`` and multipliers prove of the largest margin in a norm.

    Below it is the margin of ``W`` once its ties are met to all digits; above it ``N_*(M) / Σ λ``,
    where ``M`` is the sum of strict and tied pairs' matrices with the multipliers ``λ ≥ 0`` and
    ``μ``. Both hold for whatever a solver returns.
    """
    basis = orthonormal_basis(data)
    W = many(svm.W).ravel()
    W = W - basis.T @ (basis @ W)
    strict = many(strict_matrices(data))
    lower = min(strict @ W) / matrix_norm(name, W.reshape(data.shape))
    order = ntpnb.token_priority(data)
    lam, mu = many(svm.multipliers), many(svm.equal_multipliers)
    assert (lam >= 0).all()
    M = lam @ many(pair_matrices(data, order.strict.tolist()))
    M = M + mu @ many(pair_matrices(data, order.equal.tolist()))
    return lower, matrix_norm(DUAL.get(name, name), M.reshape(data.shape)) / lam.sum()
