"""The way of training in time: gradient flow, or descent for some work, and the law beyond it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Recorded
from ntpnb.basics.validation import FloatArray, IntArray
from ntpnb.bias import ImplicitBias, Twin
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy
from ntpnb.problem.order import dominated
from ntpnb.tied.large import is_large
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.descent import log_grid, stepper
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import LateLaw, late_constant, late_law
from ntpnb.training.optimizers import GD

# Dominated candidates, in all rows, and tied dimensions of a twin, which may be many: the flow
# factors matrices of that size.
FLOW_UP_TO = 400
# Natural logarithms of the steps of gradient descent at which the flow is recorded: sparser late,
# when little is left to see.
LOG_STEPS = np.concatenate([np.linspace(0, 15, 51), np.arange(16, 60), np.geomspace(60, 1e5, 40)])

# Work is counted in multiplications, and not in seconds, so that a report says the same everywhere.
# The steps of a run take about a second on one core, and its records at most as long again.
WORK = 1e10
EXPONENTIAL = 29  # multiplications that take as long as what else a step does with a score
LONGEST_RUN = 100_000
SHORTEST_RUN = 100  # what descent does shows in decades of steps; sixteen tell nothing of it

# By how much W may differ from what the late law says, and its parts from constants, relative to
# their size: see DescentRecord.confirms.
MEETS_LAW = 0.05
STEADY = 0.02


@dataclass(frozen=True, eq=False, repr=False)
class DescentRecord(Recorded):
    """Gradient descent from zero with steps of size ``1/L``, at r of its steps.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
        On a logarithmic grid that begins with the first step.
    along : ndarray, shape (r,)
        ``α`` in ``W = α W^mm + C`` with ``C`` orthogonal to ``W^mm``.
    across : ndarray, shape (r,)
        ``‖C‖ / ‖W^mm‖``.
    excess : ndarray, shape (r,)
        Loss above the entropy in nats.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.way import record_descent
    >>> data = ntpnb.datasets.toy()
    >>> run = record_descent(data, 1 / data.smoothness, ntpnb.max_margin(data))
    >>> int(run.steps[-1]), run.angle[-1].round(2)
    (100000, np.float64(0.11))
    """

    steps: IntArray
    along: FloatArray
    across: FloatArray
    excess: FloatArray

    @property
    def angle(self) -> FloatArray:
        """Angle to ``W^mm`` in radians, shape (r,)."""
        angle: FloatArray = np.arctan2(self.across, self.along)
        return angle

    @property
    def is_settled(self) -> bool:
        """Whether the part across, constant in the end, changed little in the last decade of steps.

        By a fiftieth at most while the steps became ten times as many.
        """
        decade_ago = int(np.searchsorted(self.steps, self.steps[-1] / 10, side="right")) - 1
        if decade_ago < 0:
            return False
        return bool(np.isclose(self.across[decade_ago], self.across[-1], rtol=STEADY, atol=0))

    def confirms(self, law: LateLaw, log_step: float) -> bool:
        """Whether these steps came to where a late law holds.

        Parameters
        ----------
        law : LateLaw
        log_step : float
            Natural logarithm of the size of a step.

        Returns
        -------
        bool
            True if both parts of the last ``W``, along ``W^mm`` and across it, are what the law
            says up to a twentieth, and the part across :attr:`is_settled`: one that still grows
            could meet the law in passing.

        Examples
        --------
        >>> import numpy as np
        >>> from ntpnb.reporting.way import DescentRecord
        >>> from ntpnb.training.late_time import LateLaw
        >>> steps, along, across = np.array([[10, 100], [2.3, 4.6], [2.0, 2.01]])
        >>> run = DescentRecord(steps, along, across, excess=1 / steps)
        >>> run.confirms(LateLaw(2.0, 0.0), log_step=0.0), run.confirms(LateLaw(3.0, 0.0), 0.0)
        (True, False)
        """
        expected = [np.log(self.steps[-1]) + log_step + law.shift, law.constant]
        reached = [self.along[-1], self.across[-1]]
        return np.allclose(expected, reached, rtol=MEETS_LAW, atol=0) and self.is_settled


def affordable_steps(data: NextTokenData) -> int:
    """How many steps of gradient descent the work allowed is enough for.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    int
        Zero where :data:`SHORTEST_RUN` steps are too much.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.way import affordable_steps
    >>> affordable_steps(ntpnb.datasets.toy())
    100000
    """
    p, q = data.shape
    inner = q if data.token_embeddings is None else p + q  # of the products that give a score
    work_of_a_step = len(data.context_probs) * data.vocab_size * (inner + EXPONENTIAL)
    steps = int(WORK / work_of_a_step)
    return min(steps, LONGEST_RUN) if steps >= SHORTEST_RUN else 0


def record_descent(
    data: NextTokenData,
    step: float,
    svm: MarginSolution,
    progress: Callable[[str], object] | None = None,
) -> DescentRecord | None:
    """Run gradient descent from zero for a fixed amount of work.

    Parameters
    ----------
    data : NextTokenData
    step : float
    svm : MarginSolution
        With at least one strict pair.
    progress : callable, optional
        Called with a line of text at each record; a ConvergenceError that it raises ends the run
        there.

    Returns
    -------
    DescentRecord or None
        None where :data:`SHORTEST_RUN` steps are too much work.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.way import record_descent
    >>> data = ntpnb.NextTokenData([[1.0]], [[1, 0]])
    >>> run = record_descent(data, 1 / data.smoothness, ntpnb.max_margin(data))
    >>> bool(run.across.max() < 1e-12)  # one pair: straight ahead
    True
    """
    last = affordable_steps(data)
    if not last:
        return None
    steps = log_grid(last)[1:]  # zero weights have no angle
    records = np.empty((3, len(steps)))
    W = np.zeros((1, *data.shape))
    advance = stepper(ProblemBatch([data]), GD(step), W)
    done = 0
    for k, until in enumerate(steps.tolist()):
        advance(done, until)
        done = until
        along = np.vdot(W[0], svm.W) / svm.norm**2
        across = np.linalg.norm(W[0] - along * svm.W) / svm.norm
        excess = cross_entropy(W[0], data) - data.entropy  # far above rounding, so early
        records[:, k] = along, across, excess
        if progress is not None:
            try:
                progress(f"gradient descent: {until} of {last} steps")
            except ConvergenceError:  # time is over: what was recorded is good
                break
    return DescentRecord(steps[: k + 1], *records[:, : k + 1])


@dataclass(frozen=True, eq=False, repr=False)
class Way(Recorded):
    """The way of training from zero, at r of its steps of size ``1/L``, and what continues it.

    Attributes
    ----------
    log_step : float
        Natural logarithm of the size of a step.
    log10_steps : ndarray, shape (r,)
        Decimal logarithms of the numbers of steps.
    angle : ndarray, shape (r,)
        Angle to ``W^mm`` in radians.
    excess : ndarray, shape (r,)
        Loss above the entropy in nats.
    law : LateLaw or None
        Says the angle later on, where it is known to hold.
    flow : FlowTrace or None
        What the way was read off,
    descent : DescentRecord or None
        or else this.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.way import way_in_time
    >>> way = way_in_time(ntpnb.implicit_bias(ntpnb.datasets.toy()))
    >>> round(way.log10_steps_to(10), 1)
    3.6
    """

    log_step: float
    log10_steps: FloatArray
    angle: FloatArray
    excess: FloatArray
    law: LateLaw | None
    flow: FlowTrace | None = None
    descent: DescentRecord | None = None

    @np.errstate(divide="ignore", over="ignore")  # within the least of floats it takes ever longer
    def log10_steps_to(self, degrees: float) -> float:
        """Decimal logarithm of the steps after which the angle stays this small; nan if unknown.

        Parameters
        ----------
        degrees : float

        Returns
        -------
        float

        Examples
        --------
        >>> import ntpnb
        >>> round(ntpnb.report(ntpnb.datasets.toy()).way.log10_steps_to(1), 1)  # by the law
        25.5
        """
        goal = np.radians(degrees)
        too_wide = np.flatnonzero(~(self.angle <= goal))  # with zero weights, whose angle is nan
        if not len(too_wide):
            return 0.0
        last = too_wide[-1]
        if last + 1 < len(self.angle):
            around = [last, last + 1]
            cotangents = 1 / np.tan(self.angle[around])  # late, they are linear in log t
            decades = np.interp(1 / np.tan(goal), cotangents, self.log10_steps[around])
        elif self.law is not None:
            log_time = self.law.constant / np.tan(goal) - self.law.shift
            decades = (log_time - self.log_step) / np.log(10)
        else:
            return np.nan
        return max(0.0, float(decades))


def way_in_time(bias: ImplicitBias, *, has_finite_part: bool = True) -> Way | None:
    """Follow the flow where that is affordable, and else descent for a fixed amount of work.

    Parameters
    ----------
    bias : ImplicitBias
        Whose direction is known, or known not to exist.
    has_finite_part : bool
        Whether its finite part is known too, which flow and law need.

    Returns
    -------
    Way or None
        None where there is no direction to go, or descent is too much work.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.way import way_in_time
    >>> way_in_time(ntpnb.implicit_bias(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))) is None
    True
    """
    svm = bias.max_margin
    if svm is None or not svm.norm:  # refused, or nothing is ordered
        return None
    log_step = -float(np.log(bias.data.smoothness))
    flow = _affordable_flow(bias) if has_finite_part else None
    if flow is not None:
        law = late_law(flow.W[-1] - svm.W * flow.log_times[-1], svm)
        log10_steps = (flow.log_times - log_step) / np.log(10)
        angle: FloatArray = flow.compare(bias).angle
        return Way(log_step, log10_steps, angle, flow.excess, law, flow=flow)
    run = record_descent(bias.data, 1 / bias.data.smoothness, svm, bias.say)
    if run is None:
        return None
    confirmed = None
    if has_finite_part and run.is_settled:
        # Where the multipliers do not give it there is no law.
        with suppress(ConvergenceError, ValueError, MemoryError):
            law = late_law(late_constant(bias), svm)
            if law is not None and run.confirms(law, log_step):
                confirmed = law
    return Way(log_step, np.log10(run.steps), run.angle, run.excess, confirmed, descent=run)


def _affordable_flow(bias: ImplicitBias) -> FlowTrace | None:
    """Gradient flow from zero, recorded at ``t = k/L`` for the steps ``k``; None if too costly."""
    data = bias.data
    if is_large(data):  # with many more that are dominated, or tied
        return None
    if isinstance(bias, Twin) and bias.equal_subspace.dim > FLOW_UP_TO:
        return None
    if np.count_nonzero(dominated(data, bias.order)) > FLOW_UP_TO:
        return None
    try:
        return gradient_flow(bias, LOG_STEPS - np.log(data.smoothness))
    except ConvergenceError:  # ties that settle over many decades: descent must do
        return None
