"""Same-shaped problems as stacked arrays: what a step of training computes, for all at once."""

import numpy as np

from ntpnb.problem.data import require_data

SAFE_SCORE = 600.0  # exp stays a normal number up to ±700: below, a softmax needs no shift
FEW_TOKENS = 16
NEAR = 1e-4  # of the norm of the context weights: residuals above it have twelve digits anyhow


class ProblemBatch:
    """Same-shaped problems as stacked arrays; the gradient of all of them at once."""

    def __init__(self, problems):
        first = problems[0] if problems else None
        for i, d in enumerate(problems):
            require_data(f"data[{i}]" if len(problems) > 1 else "data", d)
            if (d.shape, d.target_probs.shape) != (first.shape, first.target_probs.shape):
                raise ValueError(
                    f"data[{i}] has W {d.shape} and target_probs {d.target_probs.shape}, data[0] "
                    f"{first.shape} and {first.target_probs.shape}; a batch needs equal shapes"
                )
            if (d.token_embeddings is None) != (first.token_embeddings is None):
                raise ValueError(f"data[{i}] and data[0] must both have token_embeddings, or none")
        if first is None:
            raise ValueError("data is an empty list; it needs at least one problem")
        # Tokens lead and contexts trail, so that both products are plain matrix products.
        self.H = np.stack([d.context_embeddings for d in problems])
        self.Ht = np.ascontiguousarray(np.swapaxes(self.H, 1, 2))
        self.pi = np.stack([d.context_probs for d in problems])[:, None, :]
        self.P = P = np.ascontiguousarray(np.stack([d.target_probs.T for d in problems]))
        self.target = self.pi * P
        self.T = self.Tt = self.counts = None
        if first.token_embeddings is not None:
            self.T = np.stack([d.token_embeddings for d in problems])
            self.Tt = np.ascontiguousarray(np.swapaxes(self.T, 1, 2))
        if any(d.candidate_counts is not None for d in problems):
            counts = (
                d.candidates if d.candidate_counts is None else d.candidate_counts for d in problems
            )
            self.counts = np.ascontiguousarray(np.stack([c.T for c in counts]))
        self._pi = np.repeat(self.pi, P.shape[1], axis=1)  # same-shaped arrays multiply fastest
        self._likeliest = np.zeros_like(P)
        np.put_along_axis(self._likeliest, P.argmax(1)[:, None, :], 1.0, axis=1)
        # Products are several times faster than sums over a middle axis, and few tokens are summed
        # into each of them, which spares a slow broadcast.
        self._ones = np.ones((P.shape[1] if P.shape[1] <= FEW_TOKENS else 1, P.shape[1]))
        self._near = NEAR**2 * (self.pi**2).sum()
        _, m, q = self.H.shape
        self.gram = self.H @ self.Ht if self.T is None and m < 2 * q else None

    def gradient(self, W, *weights):
        """Gradients of all problems, shape (n, p, q), or of samples with their own weights."""
        S = self.scores(W)
        return self.pull_back(self.residuals(S, S, *weights))

    def scores(self, W):
        """Scores of every token in every context, shape (n, V, m)."""
        S = W @ self.Ht
        return S if self.T is None else self.T @ S

    def residuals(self, S, out, pi=None, target=None):
        """Derivatives of the loss along the scores ``S``, written to ``out``."""
        pi, target = (self._pi, self.target) if pi is None else (pi, target)
        R = self.softmax(S, out)
        R *= pi
        R -= target
        # Over a row's tokens R sums to zero. Taken so, the likeliest token's entry keeps its digits
        # when the probability rounds to one: without them normalized GD drifts off direction.
        if len(R) > 1 or np.vdot(R, R) < self._near:
            R -= self._likeliest * (self._ones @ R)
        return R

    def probabilities(self, W):
        """Next-token probabilities, shape (n, V, m)."""
        S = self.scores(W)
        return self.softmax(S, S)

    def softmax(self, S, out):
        """Next-token probabilities from scores ``S``, written to ``out``."""
        if np.vdot(S, S) > SAFE_SCORE**2 and max(S.max(), -S.min()) > SAFE_SCORE:
            top = S if self.counts is None else np.where(self.counts > 0, S, -np.inf)
            # tokens that are no candidates may score higher
            S = np.minimum(S - top.max(axis=1, keepdims=True), 0.0)
        np.exp(S, out=out)
        if self.counts is not None:
            out *= self.counts
        out /= self._ones @ out
        return out

    def pull_back(self, R):
        """Turn derivatives along the scores, shape (n, V, m), into derivatives along W."""
        if self.T is not None:
            R = self.Tt @ R
        return R @ self.H
