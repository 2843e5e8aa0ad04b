"""The subspace spanned by the ties: T24's F, L24's S_cyc. Finite parts live in it."""

import numpy as np
import scipy.linalg as sla

from ntpnb.problem.loss import as_weights
from ntpnb.problem.order import token_priority

# Directions of relative size below this are rounding: embeddings count as dependent.
RANK_TOLERANCE = 1e-11
CERTAIN = 1e-3  # eigenvalues above this keep their digits
BASIS_LIMIT = 2**26  # entries of an explicit basis (512 MiB)
CACHE_LIMIT = 2**23  # entries of cached factors (64 MiB); beyond it they are computed again


def equal_subspace(data, order=None):
    """Span the generators ``(t_i − t_j) h_gᵀ`` of all ties ``i ≍ j`` of all groups ``g``.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already.

    Returns
    -------
    EqualSubspace
        With ``dim``, ``project``, ``reject``, ``fit`` and ``basis``.

    References
    ----------
    T24 (002) Eq. (5): the data subspace F. L24 (004) Def. 3: the cyclic subspace S_cyc.
    """
    order = token_priority(data) if order is None else order
    kind = _TokenwiseSubspace if data.token_embeddings is None else _DenseSubspace
    return kind(data, order)


class EqualSubspace:
    """A subspace of ``p × q`` matrices (see :func:`equal_subspace`).

    Attributes
    ----------
    dim : int
        Its dimension.
    """

    def __init__(self, data, order):
        self._data = data
        self._order = order

    def project(self, W):
        """Orthogonal projection onto the subspace, shape (..., p, q)."""
        return self._project(as_weights("W", W, self._data))

    def reject(self, W):
        """Orthogonal projection onto the complement, shape (..., p, q)."""
        W = as_weights("W", W, self._data)
        return W - self.project(W)

    @property
    def basis(self):
        """An orthonormal basis, shape (dim, p, q).

        Raises
        ------
        ValueError
            The basis would have more than 2**26 entries.
        """
        p, q = self._data.shape
        if (entries := self.dim * p * q) > BASIS_LIMIT:
            raise ValueError(
                f"a basis of {self.dim} matrices of shape ({p}, {q}) has {entries} entries, more "
                f"than {BASIS_LIMIT}; use project and reject, which need none"
            )
        return self._basis().reshape(self.dim, p, q)


class _DenseSubspace(EqualSubspace):
    """General token embeddings: an orthonormal basis in the coordinates that W can use."""

    def __init__(self, data, order):
        super().__init__(data, order)
        h, T = data.group_embeddings, data.token_embeddings
        # Generators of norm one, each from the smallest token of its component: a long embedding
        # must neither swallow the short ones nor decide what counts as rounding.
        group, token = np.nonzero(order.components >= 0)
        label = order.components[group, token]
        ranked = np.lexsort((_norms(T)[token], label))
        _, first, inverse = np.unique(label[ranked], return_index=True, return_inverse=True)
        centre = ranked[first[inverse]]
        pairs = centre != ranked
        self._pairs = group[centre[pairs]], token[ranked[pairs]], token[centre[pairs]]
        group, i, j = self._pairs
        # A pair only sees the row spaces of T and H: orthonormal coordinates there are enough.
        self._left, self._right = _thin_svd(_unit_rows(T))[2], _thin_svd(_unit_rows(h))[2]
        size = len(group) * len(self._left) * len(self._right)
        if size > 4 * BASIS_LIMIT:
            raise ValueError(
                f"{len(group)} ties between tokens embedded in {len(self._left)} × "
                f"{len(self._right)} dimensions need {size} numbers, more than {4 * BASIS_LIMIT}; "
                "use fewer contexts, or token_embeddings=None where tokens are one-hot"
            )
        differences = (T[i] - T[j]) @ self._left.T
        self._pair_norm = _norms(differences) * _norms(h)[group]
        self._rows = _outer(_unit_rows(differences), (_unit_rows(h) @ self._right.T)[group])
        self._factor = _thin_svd(self._rows)
        self.dim = len(self._factor[1])

    def _project(self, W):
        V = self._factor[2]
        return self._lift(self._flat(W) @ V.T @ V)

    def fit(self, targets):
        group, i, j = self._pairs
        U, s, V = self._factor
        return self._lift(((targets[group, i] - targets[group, j]) / self._pair_norm) @ U / s @ V)

    def whitening(self):
        weight = self._pair_norm * np.sqrt(_group_probs(self._data))[self._pairs[0]]
        _, s, V = _thin_svd(weight[:, None] * self._rows)
        return lambda G: self._lift(self._flat(G) @ V.T / s @ V)

    def _flat(self, W):
        A = self._left @ W @ self._right.T
        return A.reshape(*A.shape[:-2], len(self._left) * len(self._right))

    def _lift(self, flat):
        A = flat.reshape(*flat.shape[:-1], len(self._left), len(self._right))
        return self._left.T @ A @ self._right

    def _basis(self):
        return self._lift(self._factor[2])


class _TokenwiseSubspace(EqualSubspace):
    """One-hot tokens: given the common score of each component, the rows of W decouple.

    Component ``k`` of group ``g`` has the embedding ``h_k = h_g`` and the unknown common score
    ``c_k``. Row ``i`` of the smallest W with prescribed differences solves
    ``H_i w_i = y_i + c`` over the components that hold token ``i``; the best ``c`` solves one
    system as large as the number of components. No basis of F is formed.
    """

    def __init__(self, data, order):
        super().__init__(data, order)
        labels, member = np.unique(order.components, return_inverse=True)
        member = member.reshape(order.components.shape)
        sizes = np.bincount(member.ravel(), minlength=len(labels))
        tied = (sizes > 1) & (labels >= 0)
        number = np.cumsum(tied) - 1
        group, token = np.nonzero(tied[member])
        k = number[member[group, token]]
        self._count = int(tied.sum())
        self._owner = np.zeros(self._count, dtype=int)
        self._owner[k] = group
        self._scale = _norms(data.group_embeddings)[self._owner]
        self._h = data.group_embeddings[self._owner] / self._scale[:, None]
        self._holders = [k[token == i] for i in range(data.vocab_size)]
        self._factors, self._kept = {}, 0
        self._solve_common()
        q = data.shape[1]
        # What the complement consists of: common scores, and null spaces of the H_i.
        free = self._common_space.shape[1] + sum(q - rank for rank in self._ranks)
        self.dim = data.vocab_size * q - free

    def _factor(self, i):
        """Thin SVD of the embeddings ``H_i`` of the components that hold token ``i``."""
        if (factor := self._factors.get(i)) is None:
            factor = _thin_svd(self._h[self._holders[i]])
            if self._kept <= CACHE_LIMIT:
                self._factors[i] = factor
                self._kept += factor[0].size + factor[2].size
        return factor

    def _solve_common(self):
        """Which common scores are attainable, and a factor of the quadratic form they minimise."""
        n = self._count
        outside = np.zeros((n, n))  # Σ_i (projection off the range of H_i)
        self._ranks = []
        for i, holders in enumerate(self._holders):
            U, s, _ = self._factor(i)
            self._ranks.append(len(s))
            if len(s) < len(holders):
                outside[np.ix_(holders, holders)] += np.eye(len(holders)) - U @ U.T
        values, vectors = sla.eigh(outside) if outside.any() else (np.zeros(n), np.eye(n))
        bound = values > CERTAIN
        if outside.any() and not bound.all():
            # The eigenvalues are squares of sines. Small sines need the projections themselves.
            close = vectors[:, ~bound]
            missed = [self._outside(i, close[k]) for i, k in enumerate(self._holders)]
            s, Vt = sla.svd(np.concatenate(missed), full_matrices=False)[1:]
            values[~bound], vectors[:, ~bound] = s**2, close @ Vt.T
            bound[~bound] = s > RANK_TOLERANCE * np.sqrt(n)
        self._common_space = vectors[:, ~bound]
        self._bound_space, self._bound_values = vectors[:, bound], values[bound]
        if self._common_space.shape[1]:
            rows = []
            for i, holders in enumerate(self._holders):
                U, s, _ = self._factor(i)
                rows.append((U / s).T @ self._common_space[holders])
            # QR and no normal equations: nearly parallel contexts make this ill-conditioned.
            self._Q = sla.qr(np.concatenate(rows), mode="economic")[0]

    def _outside(self, i, scores):
        """Part of the scores of token ``i``, shape (holders, ...), that no row of W can produce."""
        U = self._factor(i)[0]
        return scores - U @ (U.T @ scores)

    def fit(self, targets):
        """Smallest W whose tied scores differ as ``targets`` do, shape (p, q).

        ``targets``, shape (G, V), holds a wanted score of every token in every group; only its
        differences between tied tokens count. Where no W meets them all, the result is some
        approximate fit inside the subspace, good as a starting point only.
        """
        targets = targets[self._owner].T / self._scale
        Z = self._bound_space
        if Z.shape[1]:  # the common scores nearest to what the targets ask for
            missed = np.zeros(self._count)
            for i, holders in enumerate(self._holders):
                missed[holders] += self._outside(i, targets[i, holders])
            targets = targets - Z @ (Z.T @ missed / self._bound_values)
        factors = self._factors_in_turn()
        return self._fitting([targets[i, self._holders[i]] @ U / s for i, (U, s, _) in factors])

    def whitening(self):
        """Return a symmetric map ``A`` of ``p × q`` matrices that undoes the embeddings' scales.

        The loss restricted to ties, as a function of ``A⁻¹ W``, has a Hessian of size one in all
        directions, unless the model's law itself is degenerate.
        """
        weight = self._scale * np.sqrt(_group_probs(self._data))[self._owner]
        factors = [_thin_svd(weight[k, None] * self._h[k])[1:] for k in self._holders]

        def whiten(G):
            return np.stack([g @ Vt.T / s @ Vt for g, (s, Vt) in zip(G, factors, strict=True)])

        return whiten

    def _project(self, W):
        return self._fitting([W[..., i, :] @ Vt.T for i, (_, _, Vt) in self._factors_in_turn()])

    def _fitting(self, rows):
        """Subspace part of a W whose rows are given in the right singular vectors of the ``H_i``.

        Common scores reach the range of Q there. Removing it divides by no singular value, which
        would cost the digits that nearly parallel contexts lack.
        """
        flat = np.concatenate(rows, axis=-1)
        if self._common_space.shape[1]:
            flat = flat - flat @ self._Q @ self._Q.T
        rows = np.split(flat, np.cumsum(self._ranks)[:-1], axis=-1)
        return np.stack([rows[i] @ Vt for i, (_, _, Vt) in self._factors_in_turn()], axis=-2)

    def _factors_in_turn(self):
        return ((i, self._factor(i)) for i in range(len(self._holders)))

    def _basis(self):
        pairs, T = self._order.equal, np.eye(self._data.vocab_size)
        h = _unit_rows(self._data.group_embeddings)[self._order.positions(pairs)]
        rows = _outer(T[pairs[:, 1]] - T[pairs[:, 2]], h)
        return sla.svd(rows, full_matrices=False)[2][: self.dim]


def _outer(A, B):
    """Outer product of each row of ``A`` with that of ``B``, flat; right also for no rows."""
    return np.einsum("np,nq->npq", A, B).reshape(len(A), A.shape[1] * B.shape[1])


def _group_probs(data):
    return np.bincount(data.group_index, data.context_probs)


def _norms(H):
    norms = np.linalg.norm(H, axis=1)
    return np.where(norms > 0, norms, 1.0)


def _unit_rows(H):
    return H / _norms(H)[:, None]


def _thin_svd(A):
    """Thin SVD ``(U, s, Vᵀ)`` of ``A`` without its part of rounding size."""
    if A.size == 0:
        return np.zeros((len(A), 0)), np.zeros(0), np.zeros((0, A.shape[1]))
    U, s, Vt = sla.svd(A, full_matrices=False)
    rank = np.count_nonzero(s > RANK_TOLERANCE * s[0] * np.sqrt(len(A)))
    return U[:, :rank], s[:rank], Vt[:rank]
