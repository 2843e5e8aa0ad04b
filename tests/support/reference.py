"""The papers' definitions as loops over everything: slow, and sharing no code with the package."""

import itertools
import math

import numpy as np

# -- the problem, with its defaults written out ---------------------------------------------------


def token_embeddings(data):
    """Token embeddings, shape (V, p)."""
    if data.token_embeddings is None:
        return np.eye(data.target_probs.shape[1])
    return data.token_embeddings


def candidate_counts(data):
    """Candidate counts, shape (m, V)."""
    if data.candidate_counts is None:
        return np.ones_like(data.target_probs)
    return data.candidate_counts


def rows(data):
    """For each row: its position, context probability, embedding and target probabilities."""
    return [
        (j, data.context_probs[j], data.context_embeddings[j], data.target_probs[j])
        for j in range(len(data.context_probs))
    ]


# -- the loss and its derivatives -----------------------------------------------------------------


def model_probs(W, data, j):
    """Row j's next-token distribution, token by token."""
    count = candidate_counts(data)[j].tolist()
    h = data.context_embeddings[j]
    score = [float(t @ (W @ h)) for t in token_embeddings(data)]
    top = max(score[v] for v in range(len(score)) if count[v] > 0)
    mass = [0.0] * len(score)
    for v in range(len(score)):
        if count[v] > 0:
            mass[v] = count[v] * math.exp(score[v] - top)
    total = sum(mass)
    return [x / total for x in mass]


def cross_entropy(W, data):
    """−Σ_j π_j Σ_z p_jz log q_jz."""
    total = 0.0
    for j, pi, _, p in rows(data):
        q = model_probs(W, data, j)
        for z in range(len(p)):
            if p[z] > 0:
                total -= pi * p[z] * math.log(q[z])
    return total


def gradient(W, data):
    """Σ_j π_j Σ_v (q_jv − p_jv) t_v h_jᵀ, one outer product at a time."""
    T = token_embeddings(data)
    G = np.zeros_like(W)
    for j, pi, h, p in rows(data):
        q = model_probs(W, data, j)
        for v in range(len(p)):
            G += pi * (q[v] - p[v]) * np.outer(T[v], h)
    return G


def hessian(W, data):
    """Second derivative of the loss in flat W: Σ_j π_j Cov_q(t) ⊗ h_j h_jᵀ, (p·q, p·q)."""
    T = token_embeddings(data)
    total = np.zeros((W.size, W.size))
    for j, pi, h, p in rows(data):
        q = np.array(model_probs(W, data, j))
        mean = q @ T
        covariance = np.zeros((T.shape[1], T.shape[1]))
        for v in range(len(p)):
            covariance += q[v] * np.outer(T[v] - mean, T[v] - mean)
        total += pi * np.kron(covariance, np.outer(h, h))
    return total


def rounding_scale(W, data):
    """Largest product of norms that a score is made of: the scale of its rounding."""
    longest = np.linalg.norm(token_embeddings(data), axis=1).max()
    h = np.linalg.norm(data.context_embeddings, axis=1).max()
    return 1 + longest * np.linalg.norm(W) * h


# -- the order ------------------------------------------------------------------------------------


def transitive_closure(edges):
    """Which node reaches which along one edge or more (Warshall); ``edges``: (V, V) bool."""
    reached = edges.copy()
    for k in range(len(reached)):
        into_k = reached[:, k]
        out_of_k = reached[k]
        reached |= np.outer(into_k, out_of_k)
    return reached


def reachable(data):
    """{group name: (V, V) bool}: transitive closure of all edges of each token-priority graph.

    L24 Sec. 3.1: every label points at every token of its sequence. T24's reading: every
    in-support token points at every candidate.
    """
    V = data.target_probs.shape[1]
    count = candidate_counts(data)
    closure = {}
    for g in sorted(set(data.context_groups.tolist())):
        edges = np.zeros((V, V), dtype=bool)
        for j in np.flatnonzero(data.context_groups == g):
            for i, k in itertools.permutations(range(V), 2):
                if data.target_probs[j, i] > 0 and count[j, k] > 0:
                    edges[i, k] = True
        closure[g] = transitive_closure(edges)
    return closure


def equal_pairs(data):
    """All ``(g, i, j)``, i ≠ j, that reach each other."""
    return [pair for pair, both_ways in reaching_pairs(data) if both_ways]


def strict_pairs(data):
    """All ``(g, i, j)`` with j reachable from i and not i from j."""
    return [pair for pair, both_ways in reaching_pairs(data) if not both_ways]


def reaching_pairs(data):
    """All ``(g, i, j)``, i ≠ j, with j reachable from i, and whether i is from j."""
    for g, reached in reachable(data).items():
        for i, j in itertools.permutations(range(len(reached)), 2):
            if reached[i, j]:
                yield (g, i, j), reached[j, i]


# -- the tied subspace ----------------------------------------------------------------------------


def group_embedding(data, g):
    """Embedding of the first row of the group named ``g``."""
    return data.context_embeddings[data.context_groups.tolist().index(g)]


def pair_matrices(data, pairs, unit=False):
    """``(t_i − t_j) h_gᵀ`` of each pair, flattened, shape (n, p·q); ``unit``: each of norm one."""
    T = token_embeddings(data)
    matrices = np.zeros((len(pairs), T.shape[1] * data.context_embeddings.shape[1]))
    for n, (g, i, j) in enumerate(pairs):
        matrices[n] = np.outer(T[i] - T[j], group_embedding(data, g)).ravel()
        norm = np.linalg.norm(matrices[n])
        if unit and norm > 0:
            matrices[n] /= norm
    return matrices


def equal_basis(data):
    """Orthonormal basis of the span of all tied pairs' matrices, shape (dim, p·q)."""
    matrices = pair_matrices(data, equal_pairs(data), unit=True)
    if not len(matrices):
        return matrices
    _, s, Vt = np.linalg.svd(matrices, full_matrices=False)
    dim = np.count_nonzero(s > 1e-9 * max(s[0], 1e-300))
    return Vt[:dim]
