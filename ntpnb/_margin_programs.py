"""The max-margin problem in normal form, and the linear systems of its Newton steps.

Minimise ``½‖W‖²`` with ``φ_k(W) = c_k`` on ties and ``≤ c_k − b_k`` on ordered entries. Each
``φ_k`` has norm one and ``max b = 1``, so that embeddings of any length are treated alike.
Multipliers are ``−A``: ``W = weights(A) = Σ A_k φ_k`` with ``A ≤ 0`` on ordered entries and
``imbalance(A) = 0``. ``slack(W, c) = c − φ(W) − b``. ``system(T, θ)(r, q)`` returns ``D``, zero
off the mask ``T``, and ``e`` with ``φ(weights(D)) + θ D − e = r`` on ``T``, ``imbalance(D) = q``.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
from scipy.linalg import blas, lapack

PROX = 1e-10  # proximal term that makes every system definite; the methods refine it away
KEEP = 2**22  # entries of kept factors (32 MiB); beyond it they are computed again


def program(data, order, dense=False):
    """Return the program of an order with strict pairs: by supports where it has two levels."""
    pairs = np.concatenate([order.equal, order.strict])
    group = order.positions(pairs)
    anchor = np.full(len(order.groups), -1)
    anchor[group] = pairs[:, 1]
    two_level = data.token_embeddings is None and (anchor[group] == pairs[:, 1]).all()
    P = (_by_support if two_level and not dense else _by_pair)(data, pairs, group)
    P.ordered = np.zeros(P.norm.shape, dtype=bool)
    P.ordered[tuple(index[len(order.equal) :] for index in P.entries)] = True
    P.tied = P.active & ~P.ordered
    P.ties = cache(lambda: P.system(P.tied, PROX))
    P.bound = np.where(P.tied, np.inf, 0.0).astype("f4")  # of A; zero also off the program
    P.unit = P.norm[P.ordered].min()  # of W: what makes the largest b one
    P.need = np.where(P.ordered, P.unit / P.norm, 0.0)
    return P


def _by_support(data, pairs, group):
    """Two-level orders on one-hot tokens, in memory O(V m + m²) for m groups.

    ``A`` is (V, m), its columns sum to zero, ``φ_vj = w_v · h_j / ‖h_j‖``, and ``c_j`` is the
    common score of the tied tokens. Given ``c``, the rows of W decouple.
    """
    columns, column = np.unique(group, return_inverse=True)
    norm = _norms(data.group_embeddings[columns])
    U = data.group_embeddings[columns] / norm[:, None]
    gram, inverse = U @ U.T, cache(lambda: _inverse(gram))
    active = np.zeros((data.vocab_size, len(columns)), dtype=bool)
    active[pairs[:, 1], column] = active[pairs[:, 2], column] = True
    P = SimpleNamespace(U=U, gram=gram, active=active, reach=norm, entries=(pairs[:, 2], column))
    P.norm = np.broadcast_to(norm, active.shape)
    P.weights = lambda A: A @ U
    P.slack = lambda W, c: np.where(active, c - W @ U.T - P.need, 0.0)
    P.imbalance = lambda A: A.sum(0)
    P.system = lambda T, theta, old=None: _RowSystem(gram, inverse, T, theta, old)
    return P


def _by_pair(data, pairs, group):
    """Any order on any token embeddings; ``A`` has one entry per pair, memory O(pairs²)."""
    T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
    left, right = T[pairs[:, 2]] - T[pairs[:, 1]], data.group_embeddings[group]
    a, b = _norms(left), _norms(right)
    left, right = left * (1 / a)[:, None], right / b[:, None]
    gram = (left @ left.T) * (right @ right.T)

    def system(T, theta, old=None):
        J = T.nonzero()[0]
        L = _factor(gram, J, np.broadcast_to(theta, T.shape)[J])
        return lambda r, q: (np.bincount(J, lapack.dpotrs(L, r[J], lower=1)[0], len(T)), q)

    P = SimpleNamespace(U=np.zeros((0, 0)), norm=a * b, entries=(np.arange(len(pairs)),))
    P.system, P.active = system, np.ones(len(pairs), dtype=bool)
    P.reach = np.minimum(a, 1.0) * b  # tiny tokens take a huge W, which must not excuse its misses
    P.weights = lambda A: left.T @ (A[:, None] * right)
    P.slack = lambda W, c: -((left @ W) * right).sum(1) - P.need
    P.imbalance = lambda A: np.zeros(0)
    return P


class _RowSystem:
    """Given ``e``, row v solves with ``K_v = G_JJ + θ`` on its pattern J; ``e`` balances the rows.

    ``K_v⁻¹ = Fᵀ F``; or, where ``θ = PROX``, G is well conditioned and J is most of the row,
    ``K_v⁻¹ = Q − Fᵀ F`` with ``Q = (G + θ)⁻¹`` and F as small as the complement of J. From ``old``,
    a system with the same ``θ``, only the rows whose pattern changed are computed again.
    """

    def __init__(self, gram, inverse, T, theta, old):
        self.T, self.gram, self.theta = T, gram, np.broadcast_to(theta, T.shape)
        changed = range(len(T)) if old is None else (T != old.T).any(1).nonzero()[0]
        if len(changed) > len(T) // 2:
            self.Q = inverse() if np.ndim(theta) == 0 and T.mean() > 2 / 3 else None
            changed, self.near, self.kept = range(len(T)), 0.0, {}
            self.total = np.zeros(gram.shape, order="F")  # Σ_v K_v⁻¹ − near Q, lower triangle
        else:
            self.Q, self.near, self.total = old.Q, old.near, old.total.copy(order="F")
            self.kept = {v: block for v, block in old.kept.items() if v not in changed}
            for v in changed:
                self._accumulate(old, v, -1.0)
        for v in changed:
            self._accumulate(self, v, 1.0)
        total = self.total + self.near * self.Q if self.near else self.total
        self.common = _factor(total, np.arange(len(gram)), 0.0)

    def _accumulate(self, system, v, sign):
        J, F = system._block(v)
        if J is None:
            self.near += sign
            blas.dsyrk(-sign, F.T, beta=1, c=self.total, lower=1, overwrite_c=1)
        elif len(J):
            inverse = np.zeros((len(J), len(self.gram)))
            inverse[:, J] = lapack.dlauum(F, lower=1)[0].T
            self.total.T[J] += sign * inverse

    def _block(self, v):
        """``(J, F)``, or ``(None, F)`` where the complement of J is used."""
        if v in self.kept:
            return self.kept[v]
        J, I = self.T[v].nonzero()[0], (~self.T[v]).nonzero()[0]
        if self.Q is None or len(J) <= 2 * len(I):
            block = J, _factor(self.gram, J, self.theta[v, J], inverted=True)
        else:
            block = None, _factor(self.Q, I, 0.0, inverted=True) @ self.Q[I]
        if self.T.size * len(self.gram) <= KEEP:
            self.kept[v] = block
        return block

    def _rowwise(self, r):
        r = np.where(self.T, r, 0.0)
        D = np.zeros(r.shape) if self.Q is None else r @ self.Q
        for v in range(len(r)):
            J, F = self._block(v)
            if J is None:
                D[v] -= (F @ r[v]) @ F
            else:
                D[v, J] = (F @ r[v, J]) @ F
        return np.where(self.T, D, 0.0)

    def __call__(self, r, q):
        D = self._rowwise(r)
        e = lapack.dpotrs(self.common, q - D.sum(0), lower=1)[0]
        return D + self._rowwise(e), e


def _inverse(gram):
    """``(G + PROX)⁻¹``, or None where it would lose half of the digits."""
    Q = np.linalg.inv(gram + PROX * np.eye(len(gram)))
    return Q if np.linalg.norm(gram, 1) * np.linalg.norm(Q, 1) < 1e8 else None


def _factor(K, J, diagonal, inverted=False):
    """Cholesky factor of ``K_JJ + diagonal``, from its lower triangle, or the factor's inverse."""
    K = K.take(J, 0).take(J, 1)  # much faster than both indices at once
    K.flat[:: len(J) + 1] += diagonal
    if len(J):
        K, failed = lapack.dpotrf(K, lower=1)
        if failed:
            raise np.linalg.LinAlgError("a Newton system is not positive definite")
    return lapack.dtrtri(K, lower=1)[0] if inverted and len(J) else K


def _norms(X):
    """Row norms; for zero rows, which make their constraint plain, the least of the others."""
    norms = np.linalg.norm(X, axis=1)
    return np.where(norms > 0, norms, norms[norms > 0].min(initial=np.inf if norms.any() else 1.0))
