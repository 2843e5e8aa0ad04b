"""How far gradient descent itself comes for a fixed amount of work, and what that confirms."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Result
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import cross_entropy
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.descent import iterate, log_grid
from ntpnb.training.late_time import LateLaw
from ntpnb.training.optimizers import GD

# Work is counted in multiplications, and not in seconds, so that a report says the same everywhere.
# The steps of a run take about a second on one core, and its records at most as long again.
WORK = 1e10
EXPONENTIAL = 29  # multiplications that take as long as what else a step does with a score
LONGEST_RUN = 100_000

# By how much W may differ from what the late law says, and its parts from constants, relative to
# their size: see DescentRecord.confirms.
MEETS_LAW = 0.05
STEADY = 0.02


@dataclass(frozen=True, eq=False, repr=False)
class DescentRecord(Result):
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
    >>> from ntpnb.reporting.steps import record_descent
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
        change = abs(self.across[-1] - self.across[decade_ago])
        return bool(change <= STEADY * abs(self.across[-1]))

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
        >>> from ntpnb.reporting.steps import DescentRecord
        >>> from ntpnb.training.late_time import LateLaw
        >>> steps, along, across = np.array([[10, 100], [2.3, 4.6], [2.0, 2.01]])
        >>> run = DescentRecord(steps, along, across, excess=1 / steps)
        >>> run.confirms(LateLaw(2.0, 0.0), log_step=0.0), run.confirms(LateLaw(3.0, 0.0), 0.0)
        (True, False)
        """
        along = self.along[-1]
        across = self.across[-1]
        expected = np.log(self.steps[-1]) + log_step + law.shift
        meets = abs(expected - along) <= MEETS_LAW * abs(along) and abs(
            law.constant - across
        ) <= MEETS_LAW * abs(across)
        return bool(meets and self.is_settled)


def affordable_steps(data: NextTokenData) -> int:
    """How many steps of gradient descent the work allowed is enough for.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    int
        Zero where a step is too much.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.steps import affordable_steps
    >>> affordable_steps(ntpnb.datasets.toy())
    100000
    """
    p, q = data.shape
    inner = q if data.token_embeddings is None else p + q  # of the products that give a score
    work_of_a_step = len(data.context_probs) * data.vocab_size * (inner + EXPONENTIAL)
    return min(LONGEST_RUN, int(WORK / work_of_a_step))


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
        None where a step is too much work.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.steps import record_descent
    >>> data = ntpnb.NextTokenData([[1.0]], [[1, 0]])
    >>> run = record_descent(data, 1 / data.smoothness, ntpnb.max_margin(data))
    >>> bool(run.across.max() < 1e-12)  # one pair: straight ahead
    True
    """
    last = affordable_steps(data)
    if not last:
        return None
    steps = log_grid(last)[1:]  # zero weights have no angle
    along = np.empty(len(steps))
    across = np.empty(len(steps))
    excess = np.empty(len(steps))
    problem = ProblemBatch([data])
    method = GD(step)
    W = np.zeros((1, *data.shape))
    done = 0
    for k, until in enumerate(steps.tolist()):
        iterate(problem, method, np.array([until - done]), W)
        done = until
        along[k] = np.vdot(W[0], svm.W) / svm.norm**2
        across[k] = np.linalg.norm(W[0] - along[k] * svm.W) / svm.norm
        excess[k] = cross_entropy(W[0], data) - data.entropy  # far above rounding, so early
        recorded = k + 1
        if progress is not None:
            try:
                progress(f"gradient descent: {until} of {last} steps")
            except ConvergenceError:  # time is over: what was recorded is good
                break
    return DescentRecord(steps[:recorded], along[:recorded], across[:recorded], excess[:recorded])
