"""The papers' definitions as loops over everything: slow, and sharing no code with the package."""

import itertools
import math

import numpy as np


def law(W, data, j):
    """Row j's next-token law, token by token."""
    V = data.target_probs.shape[1]
    T = np.eye(V) if data.token_embeddings is None else data.token_embeddings
    C = np.ones_like(data.target_probs) if data.candidate_counts is None else data.candidate_counts
    score = [float(t @ (W @ data.context_embeddings[j])) for t in T]
    top = max(s for s, c in zip(score, C[j], strict=True) if c > 0)
    mass = [c * math.exp(s - top) if c > 0 else 0.0 for s, c in zip(score, C[j], strict=True)]
    return [x / sum(mass) for x in mass]


def cross_entropy(W, data):
    """−Σ_j π_j Σ_z p_jz log q_jz."""
    total = 0.0
    for j, (pi, p) in enumerate(zip(data.context_probs, data.target_probs, strict=True)):
        q = law(W, data, j)
        total -= sum(pi * p[z] * math.log(q[z]) for z in range(len(p)) if p[z] > 0)
    return total


def gradient(W, data):
    """Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ, one outer product at a time."""
    V = data.target_probs.shape[1]
    T = np.eye(V) if data.token_embeddings is None else data.token_embeddings
    G = np.zeros_like(W)
    for j, (pi, p) in enumerate(zip(data.context_probs, data.target_probs, strict=True)):
        q = law(W, data, j)
        for v in range(V):
            G += pi * (q[v] - p[v]) * np.outer(T[v], data.context_embeddings[j])
    return G


def hessian(W, data):
    """Second derivative of the loss in flat W: Σ_j π_j Cov_q(t) ⊗ h_j h_jᵀ, (p·q, p·q)."""
    V = data.target_probs.shape[1]
    T = np.eye(V) if data.token_embeddings is None else data.token_embeddings
    total = np.zeros((W.size, W.size))
    for j, (pi, h) in enumerate(zip(data.context_probs, data.context_embeddings, strict=True)):
        q = np.array(law(W, data, j))
        cov = sum(q[v] * np.outer(T[v] - q @ T, T[v] - q @ T) for v in range(V))
        total += pi * np.kron(cov, np.outer(h, h))
    return total


def reachable(data):
    """{group name: (V, V) bool}: transitive closure of all edges of each token-priority graph.

    L24 Sec. 3.1: every label points at every token of its sequence. T24's reading: every
    in-support token points at every candidate.
    """
    V = data.target_probs.shape[1]
    C = np.ones_like(data.target_probs) if data.candidate_counts is None else data.candidate_counts
    closure = {}
    for g in sorted(set(data.context_groups.tolist())):
        R = np.zeros((V, V), dtype=bool)
        for j in np.flatnonzero(data.context_groups == g):
            for i, k in itertools.product(range(V), range(V)):
                if data.target_probs[j, i] > 0 and C[j, k] > 0 and i != k:
                    R[i, k] = True
        for k in range(V):  # Warshall
            R |= R[:, k : k + 1] & R[k : k + 1, :]
        closure[g] = R
    return closure


def equal_pairs(data):
    """All ``(g, i, j)``, i ≠ j, that reach each other."""
    return [
        (g, i, j)
        for g, R in reachable(data).items()
        for i, j in itertools.permutations(range(len(R)), 2)
        if R[i, j] and R[j, i]
    ]


def strict_pairs(data):
    """All ``(g, i, j)`` with j reachable from i and not i from j."""
    return [
        (g, i, j)
        for g, R in reachable(data).items()
        for i, j in itertools.permutations(range(len(R)), 2)
        if R[i, j] and not R[j, i]
    ]


def pair_matrices(data, pairs, unit=False):
    """``(t_i − t_j) h_gᵀ`` of each pair, flattened, shape (n, p·q); ``unit``: each of norm one."""
    V = data.target_probs.shape[1]
    T = np.eye(V) if data.token_embeddings is None else data.token_embeddings
    where = {g: j for j, g in reversed(list(enumerate(data.context_groups.tolist())))}
    rows = [np.outer(T[i] - T[j], data.context_embeddings[where[g]]).ravel() for g, i, j in pairs]
    rows = np.array(rows).reshape(len(rows), T.shape[1] * data.context_embeddings.shape[1])
    if unit and len(rows):
        norm = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norm > 0, norm, 1)
    return rows


def equal_basis(data):
    """Orthonormal basis of the span of all tied pairs' matrices, shape (dim, p·q)."""
    rows = pair_matrices(data, equal_pairs(data), unit=True)
    if not rows.size:
        return rows[:0]
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    return Vt[: np.count_nonzero(s > 1e-9 * max(s[0], 1e-300))]
