"""Features that train too: word and context vectors together, with nothing else fixed.

Logits are ``L = H Wᵀ`` with both factors free ("unconstrained features"); of a dataset only the
next-token distributions and the contexts' frequencies count. :func:`descend_jointly` trains,
:func:`late_joint_flow` continues to any time, :func:`nuclear_path` follows the ridge of both
factors, and :func:`logit_margin` solves for the direction in which these leave.
"""

from ntpnb_book.features.joint import (
    JointStart,
    JointTrace,
    descend_jointly,
    joint_init,
    logit_excess,
)
from ntpnb_book.features.joint_flow import JointFlow, late_joint_flow
from ntpnb_book.features.nuclear import CentredSupport, LogitMargin, centred_support, logit_margin
from ntpnb_book.features.path import NuclearPath, nuclear_path

__all__ = [
    "CentredSupport",
    "JointFlow",
    "JointStart",
    "JointTrace",
    "LogitMargin",
    "NuclearPath",
    "centred_support",
    "descend_jointly",
    "joint_init",
    "late_joint_flow",
    "logit_excess",
    "logit_margin",
    "nuclear_path",
]
