"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

from ntpnb.reporting.analysis import Report, report
from ntpnb.reporting.findings import Pair
from ntpnb.reporting.steps import DescentRecord

__all__ = [
    "DescentRecord",
    "Pair",
    "Report",
    "report",
]
