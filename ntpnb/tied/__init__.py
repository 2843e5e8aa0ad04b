"""Tokens that must tie: the subspace F that they span, and where training settles on it."""

from ntpnb.tied.finite import FinitePart, finite_part, restrict
from ntpnb.tied.subspace import EqualSubspace, equal_subspace

__all__ = [
    "EqualSubspace",
    "FinitePart",
    "equal_subspace",
    "finite_part",
    "restrict",
]
