"""What next-token prediction learns: the mathematics of T24 and L24 as one small package."""

from importlib.metadata import version

from ntpnb import attention, datasets, thresholds
from ntpnb.data import NextTokenData
from ntpnb.descent import GD, NGD, SGD, Adam, descend
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.finite import finite_part
from ntpnb.flow import gradient_flow, next_order_term
from ntpnb.loss import cross_entropy, excess_loss, gradient
from ntpnb.margin import is_separable, max_margin
from ntpnb.path import regularization_path, ridge_path
from ntpnb.priority import token_priority
from ntpnb.report import report
from ntpnb.subspace import equal_subspace

__version__ = version("ntpnb")

__all__ = [
    "GD",
    "NGD",
    "SGD",
    "Adam",
    "ConvergenceError",
    "NextTokenData",
    "NotSeparableError",
    "attention",
    "cross_entropy",
    "datasets",
    "descend",
    "equal_subspace",
    "excess_loss",
    "finite_part",
    "gradient",
    "gradient_flow",
    "is_separable",
    "max_margin",
    "next_order_term",
    "regularization_path",
    "report",
    "ridge_path",
    "thresholds",
    "token_priority",
]
