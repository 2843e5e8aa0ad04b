"""The max-margin problem of both papers: solutions and refusals that carry their own proof."""

from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import is_separable, max_margin

__all__ = [
    "MarginSolution",
    "is_separable",
    "max_margin",
]
