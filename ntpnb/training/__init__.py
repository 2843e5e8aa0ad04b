"""Training: gradient methods, gradient flow and the regularization path, and where they lead."""

from ntpnb.training.adam_metric import AdamMetric, adam_metric
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.comparison import Comparison, WeightComparison, compare, compare_with
from ntpnb.training.coordinates import Coordinates
from ntpnb.training.descent import Trace, descend
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import LateLaw, late_constant, late_law, next_order_term
from ntpnb.training.optimizers import GD, NGD, SGD, Adam, SteepestDescent
from ntpnb.training.path import PathTrace, regularization_path, ridge_path

__all__ = [
    "GD",
    "NGD",
    "SGD",
    "Adam",
    "AdamMetric",
    "Comparison",
    "Coordinates",
    "FlowTrace",
    "LateLaw",
    "PathTrace",
    "ProblemBatch",
    "SteepestDescent",
    "Trace",
    "WeightComparison",
    "adam_metric",
    "compare",
    "compare_with",
    "descend",
    "gradient_flow",
    "late_constant",
    "late_law",
    "next_order_term",
    "regularization_path",
    "ridge_path",
]
