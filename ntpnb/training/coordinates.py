"""Coordinates in which training separates: a basis of the ties, multipliers of the strict orders.

Gradients of the loss lie in the span of the tied subspace F and of the matrices
``D_k = (t_a − t_v) h_jᵀ``, one for each row ``j`` (with in-support token ``a``) and each
candidate ``v`` that it strictly dominates. So a trajectory from ``W_0`` is
``W = P_⊥ W_0 + Σ_i u_i F_i + Σ_k a_k P_⊥ D_k`` and obeys equations in ``u`` and ``a`` alone. Scores
of tied tokens depend on ``u`` only, which is what keeps their digits when ``a`` is huge.
"""

import numpy as np

from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.loss import excess_of_logits
from ntpnb.problem.order import token_priority
from ntpnb.tied.finite import finite_part

ORDINARY = 1e-4, 1e4  # smoothness for which embeddings are taken as they are


def unit_scale(data):
    """Bring embeddings of extraordinary length to about unit smoothness.

    Returns a power of two ``κ``, one for ordinary data, and the data with ``h/κ``: they score
    alike at ``V = κ W``, the flow's ``t`` becomes ``κ² t``, and the path's ``λ`` becomes ``λ/κ²``.
    """
    require_data("data", data)
    if ORDINARY[0] <= data.smoothness <= ORDINARY[1] or not data.smoothness:
        return 1.0, data
    scale = 2.0 ** np.round(np.log2(data.smoothness) / 2)
    return scale, NextTokenData(
        data.context_embeddings / scale,
        data.target_probs,
        data.context_probs,
        data.token_embeddings,
        data.candidate_counts,
        data.context_groups,
    )


class Coordinates:
    """Logits, probabilities and their derivatives in the coordinates ``(u, a)``.

    Arrays over candidates are flat: entry ``n`` is candidate ``token[n]`` of row ``row[n]``.

    Raises
    ------
    NotSeparableError
        The strict orders cannot all hold, so training has no max-margin direction.
    """

    def __init__(self, data, init=None):
        self.data, self.svm, self.finite = data, max_margin(data), finite_part(data)
        F = self.finite.subspace
        T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
        H, anchor = data.context_embeddings, data.support.argmax(1)
        self.row, self.token = np.nonzero(data.candidates)
        self.first = np.searchsorted(self.row, np.arange(len(H)))
        labels = token_priority(data).components[data.group_index]
        self.out = labels[self.row, self.token] != labels[self.row, anchor[self.row]]
        relative = T[self.token] - T[anchor[self.row]]
        self.strict = F.reject(np.einsum("np,nq->npq", -relative[self.out], H[self.row[self.out]]))
        self.basis = F.basis
        along = np.einsum("kpq,mq->mpk", self.basis, H)[self.row]
        self.slopes = np.einsum("npk,np->nk", along, relative)  # of the logits along u
        flat = self.strict.reshape(-1, data.shape[0] * data.shape[1])
        self.gram = flat @ flat.T  # minus the slopes of the dominated candidates' logits along a
        self.p = data.target_probs[self.row, self.token]
        self.pi = data.context_probs[self.row]
        self.offset = np.zeros(data.shape) if init is None else F.reject(init)
        W0 = np.zeros(data.shape) if init is None else init
        self.u_start, self.u_limit = (
            np.einsum("kpq,pq->k", self.basis, W) for W in (W0, self.finite.W)
        )
        # Logits at W = offset, anchored at log p of the row's anchor token.
        counts = data.candidates if data.candidate_counts is None else data.candidate_counts
        log_count = np.log(counts[self.row, self.token])
        chosen = np.arange(len(H)), anchor
        at_anchor = np.log(data.target_probs[chosen] / counts[chosen])
        self.base = log_count + at_anchor[self.row]
        self.base[self.out] -= flat @ self.offset.ravel()
        self.base_limit = self.base + self.slopes @ self.u_limit
        if self.finite.compatible:  # the log-odds are met: say so to the last bit
            tied = ~self.out
            self.base_limit[tied] = np.log(self.p[tied])

    def weights(self, u, a):
        """Return the matrices ``W`` of stacked coordinates, shape (..., p, q)."""
        return self.offset + np.tensordot(a, self.strict, 1) + self.tied_weights(u)

    def tied_weights(self, u):
        """Return ``P_F W`` of stacked coordinates, shape (..., p, q)."""
        return np.tensordot(u, self.basis, 1)

    def logits(self, u, a):
        """Return the logits of all candidates; ``u = None`` stands for its limit."""
        x = self.base_limit.copy() if u is None else self.base + self.slopes @ u
        x[self.out] -= self.gram @ a
        return x

    def log_probs(self, x):
        """Return the log-probabilities of all candidates."""
        top = np.maximum.reduceat(x, self.first)
        total = np.add.reduceat(np.exp(x - top[self.row]), self.first)
        return x - (top + np.log(total))[self.row]

    def slope_u(self, q):
        """Gradient of the loss along ``u`` at the probabilities ``q``."""
        return self.slopes.T @ (self.pi * (q - self.p))

    def centred(self, q, dx):
        """Return derivatives of log-probabilities, given columns ``dx`` of logit derivatives."""
        return dx - np.add.reduceat(q[:, None] * dx, self.first, axis=0)[self.row]

    def along_a(self):
        """Return derivatives of the logits along ``a``, shape (candidates, N)."""
        dx = np.zeros((len(self.row), len(self.gram)))
        dx[self.out] = -self.gram
        return dx

    def excess(self, x):
        """``CE − H`` in nats of the logits ``x``."""
        table = np.full(self.data.target_probs.shape, -np.inf)
        table[self.row, self.token] = x
        return excess_of_logits(table, self.data)
