"""What next-token prediction learns: the mathematics of two papers as one small package.

T24 is C. Thrampoulidis, *Implicit Optimization Bias of Next-token Prediction in Linear Models*
(NeurIPS 2024, arXiv:2402.18551), on the linear decoder. L24 is Y. Li, Y. Huang, M. E. Ildiz,
A. S. Rawat and S. Oymak, *Mechanics of Next Token Prediction with Self-Attention* (AISTATS 2024,
arXiv:2403.08081), on one layer of self-attention. Both are one problem: bilinear scores
``t_v · W h_j`` under the cross-entropy. Losses are in nats.

Begin with :class:`NextTokenData`; :func:`implicit_bias` then says where training on it leads, and
:func:`descend`, :func:`gradient_flow` and :func:`regularization_path` go there.
"""

from importlib.metadata import version

from ntpnb import attention, datasets, thresholds
from ntpnb.basics.errors import ConvergenceError, NotSeparableError
from ntpnb.basics.saving import Result, load
from ntpnb.bias import ImplicitBias, Twin, implicit_bias
from ntpnb.bias.floor import LossFloor, loss_floor
from ntpnb.margin.other_norms import NormMarginSolution
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import is_separable, max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy, excess_loss, gradient, logits, scores
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.reporting import Report, report
from ntpnb.tied.finite import FinitePart, finite_part, restrict
from ntpnb.tied.subspace import EqualSubspace, equal_subspace
from ntpnb.training.adam_metric import AdamMetric, adam_metric
from ntpnb.training.comparison import Comparison, WeightComparison, compare
from ntpnb.training.descent import Trace, descend
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import next_order_term
from ntpnb.training.optimizers import GD, NGD, SGD, Adam, SteepestDescent
from ntpnb.training.path import PathTrace, regularization_path, ridge_path

__version__ = version("ntpnb")

__all__ = [
    "GD",
    "NGD",
    "SGD",
    "Adam",
    "AdamMetric",
    "Comparison",
    "ConvergenceError",
    "EqualSubspace",
    "FinitePart",
    "FlowTrace",
    "ImplicitBias",
    "LossFloor",
    "MarginSolution",
    "NextTokenData",
    "NormMarginSolution",
    "NotSeparableError",
    "PathTrace",
    "Report",
    "Result",
    "SteepestDescent",
    "TokenPriority",
    "Trace",
    "Twin",
    "WeightComparison",
    "adam_metric",
    "attention",
    "compare",
    "cross_entropy",
    "datasets",
    "descend",
    "equal_subspace",
    "excess_loss",
    "finite_part",
    "gradient",
    "gradient_flow",
    "implicit_bias",
    "is_separable",
    "load",
    "logits",
    "loss_floor",
    "max_margin",
    "next_order_term",
    "regularization_path",
    "report",
    "restrict",
    "ridge_path",
    "scores",
    "thresholds",
    "token_priority",
]


def __dir__() -> list[str]:
    """What is public, without the rooms that hold it."""
    return __all__
