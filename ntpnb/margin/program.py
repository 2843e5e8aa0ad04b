"""The max-margin problem in normal form, and the linear systems of its Newton steps.

Minimise ``½‖W‖²`` with ``φ_k(W) = c_k`` on ties and ``≤ c_k − b_k`` on ordered entries. Each
``φ_k`` has norm one and ``max b = 1``, so that embeddings of any length are treated alike.
Multipliers are ``−A``: ``W = weights(A) = Σ A_k φ_k`` with ``A ≤ 0`` on ordered entries and
``imbalance(A) = 0``. ``slack(W, c) = c − φ(W) − b``. ``system(T, θ)(r, q)`` returns ``D``, zero
off the mask ``T``, and ``e`` with ``φ(weights(D)) + θ D − e = r`` on ``T``, ``imbalance(D) = q``.
``descend`` is a gradient step of the dual, ``project`` leads back to the A it allows.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
from scipy import sparse
from scipy.linalg import eigvalsh, lapack

PROX = 1e-10  # proximal term that makes every system definite; the methods refine it away
KEEP = 2**25  # entries of kept factors (256 MiB); beyond it they are computed again


def program(data, order, by_pair=False):
    """Return the program of an order with strict pairs: by supports where it has two levels."""
    group, i, j = order.pairs
    anchor = np.zeros(len(order.groups), dtype=int)
    anchor[group] = i
    two_level = data.token_embeddings is None and (anchor[group] == i).all()
    P = (_by_support if two_level and not by_pair else _by_pair)(data, group, i, j)
    P.ordered = np.zeros(P.norm.shape, dtype=bool)
    P.ordered[tuple(index[len(order.equal) :] for index in P.entries)] = True
    P.tied = P.active & ~P.ordered
    P.ties = cache(lambda: P.system(P.tied, PROX))
    P.bound = np.where(P.tied, np.inf, 0.0).astype("f4")  # of A; zero also off the program
    P.unit = P.norm[P.ordered].min()  # W of the program is the data's times this: max b is one
    P.need = np.where(P.ordered, P.unit / P.norm, 0.0)
    return P


def _by_support(data, group, i, j):
    """Two-level orders on one-hot tokens, in memory O(V m + m²) for m groups.

    ``A`` is (V, m), its columns sum to zero, ``φ_vj = w_v · h_j / ‖h_j‖``, and ``c_j`` is the
    common score of the tied tokens. Given ``c``, the rows of W decouple.
    """
    columns, column = np.unique(group, return_inverse=True)
    norm = _norms(data.group_embeddings[columns])
    U = data.group_embeddings[columns] / norm[:, None]
    gram, (m, d) = U @ U.T, U.shape
    active = np.zeros((data.vocab_size, m), dtype=bool)
    active[i, column] = active[j, column] = True

    @cache
    def parts():
        top = eigvalsh(gram, subset_by_index=[m - 1, m - 1])[0] or 1.0
        double = np.eye(m) - gram / top, U, U.T / top, P.need / top
        return {kind: [X.astype(kind) for X in double] for kind in "fd"}

    inverse = cache(lambda theta: np.linalg.inv(gram + theta * np.eye(m)))

    def descend(Y):
        near, left, right, lift = parts()[Y.dtype.char]
        return (Y @ near if m < 2 * d else Y - Y @ left @ right) - lift

    P = SimpleNamespace(active=active, entries=(j, column), descend=descend)
    P.norm = np.broadcast_to(norm, active.shape)
    P.weights = lambda A: A @ U
    P.slack = lambda W, c: np.where(active, c - W @ U.T - P.need, 0.0)
    P.imbalance = lambda A: A.sum(0)
    P.project = lambda Y, below: _project(P, Y, below)
    P.system = lambda T, theta, old=None: _RowSystem(gram, inverse, T, theta, old)
    return P


def _project(P, Y, below):
    """Nearest columns with zero sums and nonpositive ordered entries, and what is below its bound.

    Column ``j`` shifts by the mean of its entries below their bounds: Newton's method on a concave
    function, so it ends after a few passes from any guess ``below``.
    """
    for _ in range(10):  # rounding may go back and forth between two guesses
        shift = np.einsum("vj,vj->j", below, Y) / below.sum(0, dtype=Y.dtype)
        X = np.minimum(Y - shift, P.bound) * P.active
        before, below = below, X < P.bound
        if (below == before).all():
            break
    return X, below


def _by_pair(data, group, i, j):
    """Any order on any token embeddings; ``A`` has one entry per pair, a system |T|² entries."""
    n, one_hot = len(group), data.token_embeddings is None
    tokens = sparse.eye_array(data.vocab_size).tocsr() if one_hot else data.token_embeddings
    left, right = tokens[j] - tokens[i], data.group_embeddings[group]
    a, b = np.full(n, 2**0.5) if one_hot else _norms(left), _norms(right)
    left, right = sparse.diags_array(1 / a) @ left, right / b[:, None]

    def system(T, theta, old=None):
        J = T.nonzero()[0]
        K = left[J] @ left[J].T
        K = (K.toarray() if one_hot else K) * (right[J] @ right[J].T)
        F = _factor(K, np.broadcast_to(theta, T.shape)[J])
        return lambda r, q: (np.bincount(J, lapack.dpotrs(F, r[J])[0], n), q)

    top = cache(lambda: np.linalg.norm(right.T @ right, 2) or 1.0)  # bounds the Gram matrix
    P = SimpleNamespace(norm=a * b, entries=(np.arange(n),), active=np.full(n, True), system=system)
    P.weights = lambda A: left.T @ (A[:, None] * right)
    P.rows = lambda: (sparse.csr_array(left).toarray()[:, :, None] * right[:, None]).reshape(n, -1)
    P.slack = lambda W, c: -((left @ W) * right).sum(1) - P.need
    P.imbalance = lambda A: np.zeros(0)
    P.descend = lambda Y: Y + P.slack(P.weights(Y), 0.0) / top()
    P.project = lambda Y, below: (np.minimum(Y, P.bound), Y < P.bound)
    return P


class _RowSystem:
    """Given ``e``, row v solves with ``K_v = G_JJ + θ`` on its pattern J; ``e`` balances the rows.

    ``K_v⁻¹ = F Fᵀ``; or, where θ is one number, G is well conditioned and J is most of the row,
    ``K_v⁻¹ = Q − F Fᵀ`` with ``Q = (G + θ)⁻¹`` and F as narrow as the complement of J.
    """

    def __init__(self, gram, inverse, T, theta, old):
        self.gram, self.T, self.theta, self.kept = gram, T, np.broadcast_to(theta, T.shape), {}
        most = np.ndim(theta) == 0 and T.mean() > 2 / 3
        self.Q = inverse(theta) if most and np.abs(inverse(theta)).max() < 1e5 else None
        if old is not None and old.Q is self.Q:  # and of the same θ: take over equal rows
            self.kept = {v: F for v, F in old.kept.items() if (T[v] == old.T[v]).all()}
        total = np.zeros(gram.shape)  # its lower triangle counts
        for v in range(len(T)):
            J, F = self._block(v)
            if J is None:
                total += self.Q - F @ F.T
            elif len(J):
                rows = np.zeros((len(J), len(gram)))
                rows[:, J] = lapack.dlauum(F)[0].T
                total[J] += rows
        self.common = _factor(total, 0.0)

    def _block(self, v):
        """``(J, F)``, or ``(None, F)`` where the complement of J is used."""
        if v in self.kept:
            return self.kept[v]
        J, I = self.T[v].nonzero()[0], (~self.T[v]).nonzero()[0]
        if self.Q is None or len(J) <= 2 * len(I):
            F = _factor(self.gram.take(J, 0).take(J, 1), self.theta[v, J])
            block = J, lapack.dtrtri(F)[0] if len(J) else F
        else:
            F = _factor(self.Q.take(I, 0).take(I, 1), 0.0)
            block = None, self.Q[:, I] @ (lapack.dtrtri(F)[0] if len(I) else F)
        if self.T.size * len(self.gram) <= KEEP:
            self.kept[v] = block
        return block

    def _rowwise(self, r):
        r = np.where(self.T, r, 0.0)
        D = np.zeros(r.shape) if self.Q is None else r @ self.Q
        for v in range(len(r)):
            J, F = self._block(v)
            if J is None:
                D[v] -= F @ (r[v] @ F)
            else:
                D[v, J] = F @ (r[v, J] @ F)
        return np.where(self.T, D, 0.0)

    def __call__(self, r, q):
        D = self._rowwise(r)
        e = lapack.dpotrs(self.common, q - D.sum(0))[0]
        return D + self._rowwise(e), e


def _factor(K, diagonal):
    """Upper triangular Cholesky factor of ``K + diagonal``, from its lower triangle."""
    K.flat[:: len(K) + 1] += diagonal
    return np.linalg.cholesky(K).T


def _norms(X):
    """Row norms; for zero rows the least of the others, so that ``0 ≤ −b`` gets the largest b."""
    norms = np.linalg.norm(X, axis=1)
    return np.where(norms > 0, norms, norms[norms > 0].min(initial=np.inf if norms.any() else 1.0))
