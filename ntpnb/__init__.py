"""What next-token prediction learns: the mathematics of T24 and L24 as one small package."""

from importlib.metadata import version

from ntpnb import datasets
from ntpnb.data import NextTokenData
from ntpnb.descent import GD, NGD, Adam, descend
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.finite import finite_part
from ntpnb.loss import cross_entropy, excess_loss, gradient
from ntpnb.margin import is_separable, max_margin
from ntpnb.priority import token_priority
from ntpnb.subspace import equal_subspace

__version__ = version("ntpnb")

__all__ = [
    "GD",
    "NGD",
    "Adam",
    "ConvergenceError",
    "NextTokenData",
    "NotSeparableError",
    "cross_entropy",
    "datasets",
    "descend",
    "equal_subspace",
    "excess_loss",
    "finite_part",
    "gradient",
    "is_separable",
    "max_margin",
    "token_priority",
]
