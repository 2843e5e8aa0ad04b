"""How many dimensions random data need: two formulas, and the first dimension that is enough."""

from ntpnb.thresholds.formulas import (
    compatibility_threshold,
    pooled_law,
    separability_threshold,
    transition_width,
)
from ntpnb.thresholds.search import (
    Bracket,
    first_dimension,
    first_true,
    independent_equations,
    random_data,
    sweep,
)
from ntpnb.thresholds.sparsity import CompatibleDimension, compatible_dimension

__all__ = [
    "Bracket",
    "CompatibleDimension",
    "compatibility_threshold",
    "compatible_dimension",
    "first_dimension",
    "first_true",
    "independent_equations",
    "pooled_law",
    "random_data",
    "separability_threshold",
    "sweep",
    "transition_width",
]
