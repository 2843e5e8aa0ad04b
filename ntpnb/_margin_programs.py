"""The max-margin problem in normal form, and the linear systems of its Newton steps.

Minimise ``½‖W‖²`` with ``φ_k(W) − c_k = 0`` on ties and ``≤ −b_k`` on ordered entries. Each
``φ_k`` has norm one and ``max b = 1``, so that embeddings of any length are treated alike.
Multipliers are ``−A``: ``W = Σ A_k φ_k`` with ``A ≤ 0`` on ordered entries.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas, lapack

KEEP = 2**22  # entries of kept factors (32 MiB); beyond it they are computed again


def program(data, order, dense=False):
    """Return the program of an order with strict pairs: by supports where it has two levels."""
    pairs = np.concatenate([order.equal, order.strict])
    group = order.positions(pairs)
    anchor = np.full(len(order.groups), -1)
    anchor[group] = pairs[:, 1]
    one_hot = data.token_embeddings is None
    two_level = one_hot and (anchor[group] == pairs[:, 1]).all() and not dense
    return (SupportProgram if two_level else PairProgram)(data, pairs, group, len(order.equal))


class SupportProgram:
    """Two-level orders on one-hot tokens, in memory O(V m + m²) for m groups.

    ``A`` is (V, m) with zero column sums, ``φ_vj = w_v · h_j / ‖h_j‖``, and ``c_j`` is the common
    score of the tied tokens. Given ``c``, the rows of W decouple.
    """

    def __init__(self, data, pairs, group, n_equal):
        columns, column = np.unique(group, return_inverse=True)
        H = data.group_embeddings[columns]
        norm = _norms(H)
        self.U = H / norm[:, None]
        self.gram = self.U @ self.U.T
        self.entries = pairs[:, 2], column
        self.tied = np.zeros((data.vocab_size, len(columns)), dtype=bool)
        self.ordered = self.tied.copy()
        self.tied[pairs[:, 1], column] = True
        self.tied[pairs[:n_equal, 2], column[:n_equal]] = True
        self.ordered[pairs[n_equal:, 2], column[n_equal:]] = True
        self.norm = self.reach = np.broadcast_to(norm, self.tied.shape)
        _scale(self)
        self.inverses = {}

    def weights(self, A):
        """``W = Σ A_k φ_k``."""
        return A @ self.U

    def slack(self, W, c):
        """``c − φ(W) − b``: zero on ties, at least zero on ordered entries when feasible."""
        return np.where(self.active, c - W @ self.U.T - self.need, 0.0)

    def imbalance(self, A):
        """What the multipliers of the common scores must bring to zero, shape (m,)."""
        return A.sum(0)

    def system(self, T, theta):
        """Prepare ``D G + θ D − 1 eᵀ = r on T, 1ᵀD = q, D = 0 off T`` for ``solve(r, q)``."""
        return _RowSystem(self, T, theta)

    def inverse(self, theta):
        """``(G + θ)⁻¹``, or None where it would lose more than half of the digits."""
        if theta not in self.inverses:
            K = self.gram + theta * np.eye(len(self.gram))
            half = lapack.dpotri(_cholesky(K), lower=1)[0]
            Q = half + np.tril(half, -1).T
            stable = np.linalg.norm(K, 1) * np.linalg.norm(Q, 1) < 1e8
            self.inverses[theta] = Q if stable else None
        return self.inverses[theta]


class _RowSystem:
    """Given ``e``, row v solves with ``K_v = G_JJ + θ`` on its pattern J; ``e`` balances the rows.

    Where θ is a number and G is well conditioned, most rows are tight almost everywhere: there
    ``K_v⁻¹ = Q − Zᵀ Z`` with ``Q = (G + θ)⁻¹`` and Z as small as the complement of J.
    """

    def __init__(self, owner, T, theta):
        m = T.shape[1]
        self.T, self.gram = T, owner.gram
        self.Q = owner.inverse(theta) if np.ndim(theta) == 0 else None
        theta = np.broadcast_to(theta, T.shape)
        alike = {}  # rows with one pattern share one factor
        for v, row in enumerate(T):
            key = row.tobytes() if self.Q is not None else (row.tobytes(), theta[v].tobytes())
            alike.setdefault(key, []).append(v)
        common = np.zeros((m, m), order="F")  # Σ_v K_v⁻¹, lower triangle
        flat = common.T.reshape(-1)  # flat indices are much faster than pairs of arrays
        self.near, self.far, nearly = [], [], 0
        for rows in alike.values():
            copies, v = len(rows), rows[0]
            rows = v if copies == 1 else np.array(rows)
            J, I = T[v].nonzero()[0], (~T[v]).nonzero()[0]
            if self.Q is not None and len(J) > len(I):
                nearly += copies
                if len(I):
                    L = _cholesky(self.Q.take(I[:, None] * m + I))
                    Z = lapack.dtrtrs(L, self.Q[I], lower=1)[0]
                    blas.dsyrk(-copies, Z, beta=1, c=common, trans=1, lower=1, overwrite_c=1)
                    self.near.append((rows, I, Z))
            elif len(J):
                L = self._factor(J, theta[v, J])
                flat[J[:, None] + J * m] += copies * lapack.dpotri(L, lower=1)[0]
                self.far.append((rows, J, theta[v, J], L if T.size * m <= KEEP else None))
        if nearly:
            common += nearly * self.Q
        self.common = _cholesky(common)

    def _factor(self, J, diagonal):
        K = self.gram.take(J[:, None] * len(self.gram) + J)
        K.flat[:: len(K) + 1] += diagonal
        return _cholesky(K)

    def _rowwise(self, r):
        r = np.where(self.T, r, 0.0)
        D = np.zeros(r.shape) if self.Q is None else r @ self.Q
        for rows, _, Z in self.near:
            D[rows] -= (Z @ r[rows].T).T @ Z
        for rows, J, diagonal, L in self.far:
            L = self._factor(J, diagonal) if L is None else L
            at = rows if np.ndim(rows) == 0 else rows[:, None]
            D[at, J] = lapack.dpotrs(L, r[at, J].T, lower=1)[0].T
        return np.where(self.T, D, 0.0)

    def solve(self, r, q):
        D = self._rowwise(r)
        e = lapack.dpotrs(self.common, q - D.sum(0), lower=1)[0]
        return D + self._rowwise(e), e


class PairProgram:
    """Any order on any token embeddings; ``A`` has one entry per pair, memory O(pairs²)."""

    def __init__(self, data, pairs, group, n_equal):
        T = data.token_embeddings
        T = sp.eye_array(data.vocab_size, format="csr") if T is None else T
        left, right = T[pairs[:, 2]] - T[pairs[:, 1]], data.group_embeddings[group]
        a, b = _norms(left), _norms(right)
        self.left, self.right = sp.diags_array(1 / a) @ left, right / b[:, None]
        tokens = self.left @ self.left.T
        self.gram = (tokens.toarray() if sp.issparse(tokens) else tokens) * (
            self.right @ self.right.T
        )
        self.entries = np.arange(len(pairs))
        self.tied = self.entries < n_equal
        self.ordered = ~self.tied
        self.norm, self.reach = a * b, b
        _scale(self)

    def weights(self, A):
        """``W = Σ A_k φ_k``."""
        return self.left.T @ (A[:, None] * self.right)

    def slack(self, W, c):
        """``−φ(W) − b``: zero on ties, at least zero on ordered entries when feasible."""
        return -((self.left @ W) * self.right).sum(1) - self.need

    def imbalance(self, A):
        """Nothing to balance: no common scores."""
        return np.zeros(0)

    def system(self, T, theta):
        """Prepare ``(K + θ) D = r on T, D = 0 off T`` for ``solve(r, q)``."""
        return _PairSystem(self.gram, T, theta)


class _PairSystem:
    def __init__(self, gram, T, theta):
        self.J = np.flatnonzero(T)
        K = gram.take(self.J[:, None] * len(gram) + self.J)
        K.flat[:: len(K) + 1] += np.broadcast_to(theta, T.shape)[self.J]
        self.factor = _cholesky(K)
        self.shape = T.shape

    def solve(self, r, q):
        D = np.zeros(self.shape)
        D[self.J] = lapack.dpotrs(self.factor, r[self.J], lower=1)[0]
        return D, q


def _scale(P):
    # W is computed in units that make the largest b one
    P.active = P.tied | P.ordered
    P.unit = P.norm[P.ordered].min()
    P.need = np.where(P.ordered, P.unit / P.norm, 0.0)


def _norms(X):
    """Row norms, one for zero rows: those stay zero and make their constraint plain."""
    square = X.multiply(X).sum(1) if sp.issparse(X) else (X * X).sum(1)
    return np.where(square > 0, np.sqrt(square), 1.0)


def _cholesky(K):
    factor, failed = lapack.dpotrf(K, lower=1)
    if failed:
        raise np.linalg.LinAlgError("a Newton system is not positive definite")
    return factor
