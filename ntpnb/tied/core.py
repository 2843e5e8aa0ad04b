"""The core of the ties: the tokens whose odds may be out of reach, and the best W for them.

A token whose contexts have linearly independent embeddings can be given any scores in them. So it
meets its target probabilities whatever the others do, and the others settle as if it did not
exist: with ``v`` set aside, a context's divergence is that of ``p_kv`` from ``q_kv``, which
vanishes, plus ``1 − p_kv`` times the divergence of what is left. Contexts with a single token left
are dropped, which leaves other tokens fewer contexts; and so on. What remains is the core. Without
one, the data are compatible (T24 Def. 1). In text the core consists of a few frequent tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla

from ntpnb.basics.array_types import BoolArray, FloatArray, IntArray
from ntpnb.basics.tolerances import UNCLEAR, decomposition_error
from ntpnb.tied.entries import (
    GatheredRows,
    TieEntries,
    gram_matrices,
    log_softmax,
    places_by_count,
)
from ntpnb.tied.newton import RestrictedLoss
from ntpnb.tied.subspace import KEEPS_DIGITS, NO_DEPENDENCE, NearDependence, by_error, thin_svd


def core_of(entries: TieEntries) -> BoolArray:
    """Mark the entries that belong to the core, shape (n,).

    Parameters
    ----------
    entries : TieEntries

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    Token 2 can have any score in its only context, and so can token 1 there. In the other two,
    whose embeddings are parallel, tokens 0 and 1 cannot:

    >>> import ntpnb
    >>> from ntpnb.tied.core import core_of
    >>> from ntpnb.tied.entries import tie_entries
    >>> P = [[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5]]
    >>> data = ntpnb.NextTokenData([[1.0], [2.0], [3.0]], P)
    >>> entries = tie_entries(data, data.sparse_target_probs)
    >>> inside = core_of(entries)
    >>> entries.token[inside].tolist(), entries.context[inside].tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    """
    left = np.ones(len(entries.token), dtype=bool)
    num_when_dependent = np.zeros(entries.vocab_size, dtype=int)
    while True:
        left_in_context = np.bincount(entries.context[left], minlength=entries.num_contexts)
        left &= left_in_context[entries.context] > 1
        is_free = np.zeros(entries.vocab_size, dtype=bool)
        remaining = np.flatnonzero(left)
        for positions in places_by_count(entries.token[remaining]):
            places = remaining[positions]
            token = entries.token[places[:, 0]]
            num_contexts = places.shape[1]
            # A token that was found dependent is asked again once it has lost a context.
            asked = num_when_dependent[token] != num_contexts
            num_when_dependent[token] = num_contexts
            contexts = entries.context[places[asked]]
            is_free[token[asked]] = _independent(entries.directions, contexts)
        if not is_free.any():
            return left
        left &= ~is_free[entries.token]


def _independent(directions: FloatArray, contexts: IntArray) -> BoolArray:
    """Whether each token's contexts, shape (tokens, n), have independent embeddings."""
    num_tokens, num_contexts = contexts.shape
    if num_contexts > directions.shape[1]:
        return np.zeros(num_tokens, dtype=bool)
    least = np.linalg.eigvalsh(gram_matrices(directions, contexts))[:, 0]
    independent: BoolArray = UNCLEAR * least > decomposition_error(num_contexts)
    return independent


class CoreLoss(RestrictedLoss):
    """The loss of the core alone: its tokens' rows of W, and contexts without their other tokens.

    Context ``k`` has the weight ``π_k P_k``, with ``P_k`` the target probability of its tokens in
    the core, and the target probabilities ``p_kv / P_k``.

    Parameters
    ----------
    entries : TieEntries
    core : ndarray of bool, shape (n,)
        Which entries belong to the core.

    Attributes
    ----------
    tokens : ndarray of int, shape (C,)
        The core's tokens, increasing. A matrix here has one row for each of them.
    """

    def __init__(self, entries: TieEntries, core: BoolArray) -> None:
        self.tokens, first = np.unique(entries.token[core], return_index=True)
        contexts, self._context = np.unique(entries.context[core], return_inverse=True)
        self._mass = np.bincount(self._context, entries.probs[core])
        self._targets = entries.probs[core] / self._mass[self._context]
        weights = entries.context_probs[contexts] * self._mass
        self._weights = weights[self._context]
        embeddings = entries.lengths[contexts, None] * entries.directions[contexts]
        self._rows = GatheredRows(embeddings, np.split(self._context, first[1:]))
        self._parts = np.split(np.arange(len(self._context)), first[1:])
        roots = [
            _inverse_root(
                np.sqrt(self._weights[part])[:, None] * self._rows[i],
                entries.rows[contexts[self._context[part]]],
            )
            for i, part in enumerate(self._parts)
        ]
        self._whitenings = [root.matrix for root in roots]
        self.weakest = max((root.weakest for root in roots), key=by_error)
        self.weakest.require(UNCLEAR)

    def loss(self, W: FloatArray) -> float:
        """Divergence of the targets from the probabilities, averaged over the contexts."""
        errors = np.log(self._targets) - self._log_probs(W)
        return float(self._weights @ (self._targets * errors))

    def gradient(self, W: FloatArray) -> FloatArray:
        """``Σ_k π_k P_k (q_kv − p_kv / P_k) h_k`` in the row of token ``v``."""
        return self.pull_back(self._weights * (np.exp(self._log_probs(W)) - self._targets))

    def curvature(self, W: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Hessian at ``W``, from the covariances of the probabilities in each context."""
        q = np.exp(self._log_probs(W))
        frequencies = self._weights * q

        def hessian(direction: FloatArray) -> FloatArray:
            s = self._scores(direction)
            mean = np.bincount(self._context, q * s)
            return self.pull_back(frequencies * (s - mean[self._context]))

        return hessian

    def whiten(self, G: FloatArray) -> FloatArray:
        """Row by row, ``(Σ_k π_k P_k h_k h_kᵀ)^(−1/2)`` over the contexts of a token."""
        return np.stack([A @ g for A, g in zip(self._whitenings, G, strict=True)])

    def log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the best probabilities among all tokens of a context, shape (c,)."""
        return self._log_probs(W) + np.log(self._mass)[self._context]

    def _log_probs(self, W: FloatArray) -> FloatArray:
        """Logarithms of the core's own probabilities ``q_kv``, shape (c,)."""
        return log_softmax(self._scores(W), self._context)

    def _scores(self, W: FloatArray) -> FloatArray:
        """Scores ``w_v · h_k`` of the core's entries, shape (c,)."""
        return np.concatenate([self._rows[i] @ w for i, w in enumerate(W)])

    def pull_back(self, residuals: FloatArray) -> FloatArray:
        """Turn derivatives along the scores, shape (c,), into ones along W, shape (C, q)."""
        return np.stack([residuals[part] @ self._rows[i] for i, part in enumerate(self._parts)])


class _InverseRoot(NamedTuple):
    """Symmetric pseudo-inverse square root of ``rowsᵀ rows``, and what costs it most digits."""

    matrix: FloatArray
    weakest: NearDependence


def _inverse_root(rows: FloatArray, names: IntArray) -> _InverseRoot:
    """Invert ``rowsᵀ rows``, of rows of the data with those numbers."""
    if len(rows) > rows.shape[1]:
        values, vectors = sla.eigh(rows.T @ rows)
        if values[0] > KEEPS_DIGITS * values[-1]:
            root: FloatArray = (vectors / np.sqrt(values)) @ vectors.T
            return _InverseRoot(root, NO_DEPENDENCE)
    svd = thin_svd(rows)
    return _InverseRoot((svd.Vt.T / svd.s) @ svd.Vt, svd.weakest(names))
