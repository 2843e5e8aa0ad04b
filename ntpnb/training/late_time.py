"""The late law of a report: how gradient flow approaches the max-margin direction."""

import numpy as np
from scipy.special import logsumexp

from ntpnb.margin.program import PROX, margin_program
from ntpnb.problem.loss import logits
from ntpnb.problem.order import dominated, row_components

USED = 1e-9  # smallest share of a multiplier that is not rounding
REFINEMENTS, SOLVED = 8, 1e-8  # of a linear solve, relative to its right-hand side


def late_law(constant, svm):
    """``(c, s)`` of ``tan(angle) = c / (log t + s)`` where ``W = W^mm log t + constant``."""
    if constant is None:
        return None
    shift = np.vdot(constant, svm.W) / svm.norm**2
    return float(np.linalg.norm(constant - shift * svm.W) / svm.norm), float(shift)


def next_order(data, order, finite, svm):
    """``next_order_term`` where the tight pairs' multipliers are unique, else None.

    Then ``⟨D_k, W̃⟩ = log(π_j q̃_k / λ_k)`` on every tight pair: one more solve with the margin
    problem's own factors, in memory that grows with contexts and tokens and not with pairs. A flow
    ends with the same values on F and on these pairs, and its constant is at least as long.
    """
    P = margin_program(data, order)
    tight = svm.multipliers > USED * svm.multipliers.sum()
    strict = tuple(index[len(order.equal) :][tight] for index in P.entries)
    log_ratio = _log_odds(data, order, finite)[tight] - np.log(svm.multipliers[tight])
    on = P.tied.copy()
    on[strict] = True
    goal = np.zeros(on.shape)
    goal[strict] = -log_ratio / P.norms[strict]
    solve, A, miss = P.kkt_solver(on, PROX), np.zeros(on.shape), goal
    shift = np.zeros(on.shape[1:])
    for _ in range(REFINEMENTS):
        newton = solve(miss, -P.column_sums(A))
        A, shift = A + newton.step, shift + newton.common
        W = P.weights(A)
        miss = np.where(on, goal + P.slack(W, shift) + P.rhs, 0.0)
    if np.abs(miss).max() > SOLVED * np.abs(goal).max():
        return None
    return finite.W + W


def _log_odds(data, order, finite):
    """Log of ``π_j q̃``, a row's odds of leaving the ties, summed over each strict pair's rows."""
    rows, tokens = np.nonzero(dominated(data, order))
    labels, own = row_components(data, order)
    L = logits(finite.W, data)
    inside = logsumexp(np.where(labels == own, L, -np.inf), axis=1)
    odds = data.context_probs[rows] * np.exp(L[rows, tokens] - inside[rows])
    count = int(order.components.max()) + 1  # of components; a pair of them is one number
    keys = own[rows, 0] * count + labels[rows, tokens]
    position = order.positions(order.strict)
    winners, losers = (order.components[position, order.strict[:, i]] for i in (1, 2))
    found, inverse = np.unique(keys, return_inverse=True)
    total = np.zeros(len(found))
    np.add.at(total, inverse, odds)
    return np.log(total[np.searchsorted(found, winners * count + losers)])
