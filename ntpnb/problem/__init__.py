"""What is given: contexts with their next-token laws, the order they impose, and the loss."""

from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy, excess_loss, gradient, logits, scores
from ntpnb.problem.order import TokenPriority, token_priority

__all__ = [
    "NextTokenData",
    "TokenPriority",
    "cross_entropy",
    "excess_loss",
    "gradient",
    "logits",
    "scores",
    "token_priority",
]
