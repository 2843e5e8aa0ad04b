"""What is given: contexts and what follows them, the order that imposes, and the loss."""

from ntpnb.problem.data import NextTokenData
from ntpnb.problem.duplicates import NearDuplicates
from ntpnb.problem.loss import cross_entropy, excess_loss, gradient, logits, scores
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.problem.table import RowBlock
from ntpnb.problem.text import split_words

__all__ = [
    "NearDuplicates",
    "NextTokenData",
    "RowBlock",
    "TokenPriority",
    "cross_entropy",
    "excess_loss",
    "gradient",
    "logits",
    "scores",
    "split_words",
    "token_priority",
]
