"""The numbers of a report, each derived once, when asked for, from the theory and a training.

First comes the way of training in time: gradient flow, or descent for some work, and the law beyond
it. Then, in how few dimensions a text is separable whose contexts were given vectors drawn at
random. Last, all findings together.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from ntpnb.basics.errors import ConvergenceError, NotSeparableError, PairWeights
from ntpnb.basics.saving import Recorded, Result
from ntpnb.basics.tolerances import NEGLIGIBLE
from ntpnb.basics.validation import FloatArray, IntArray, as_integer, require_number
from ntpnb.basics.watch import Watch
from ntpnb.bias import ImplicitBias, Twin
from ntpnb.bias.partition import MOST_WORK, expected_work
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import SharedMultipliers, listed_weights
from ntpnb.problem.loss import as_weights, cross_entropy
from ntpnb.problem.order import TokenPriority, dominated
from ntpnb.problem.text import as_names
from ntpnb.thresholds import CompatibleDimension, compatible_dimension
from ntpnb.tied.finite import FinitePart
from ntpnb.tied.large import is_large
from ntpnb.training.batch import ProblemBatch
from ntpnb.training.comparison import WeightComparison, compare_trained
from ntpnb.training.descent import log_grid, stepper
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import LateLaw, late_constant, late_law
from ntpnb.training.optimizers import GD

# The parts of a report that can fail without the others.
FINITE_PART = "finite part"
DIRECTION = "direction"
ROOM = "room"
WAY = "way"
TWIN = "twin"
DIMENSIONS = "dimensions"

ANGLES = (30, 10, 1)  # in degrees, to which steps are counted

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


# -- the way of training in time ------------------------------------------------------------------


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
    >>> from ntpnb.reporting.findings import record_descent
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
        >>> from ntpnb.reporting.findings import DescentRecord
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
    >>> from ntpnb.reporting.findings import affordable_steps
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
    >>> from ntpnb.reporting.findings import record_descent
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
    >>> from ntpnb.reporting.findings import way_in_time
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
    >>> from ntpnb.reporting.findings import way_in_time
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


# -- in how few dimensions a text is separable ----------------------------------------------------


@dataclass(frozen=True, eq=False)
class DimensionSweep:
    """What is known of separability in 1, 2, 4, 8, … dimensions.

    Attributes
    ----------
    separable : int
        The least of these in which the text is proved separable.
    contradicted : NextTokenData or None
        The text in the most dimensions in which it is proved that it is not; None where one
        dimension is enough.
    random_separable : bool or None
        Whether as many next tokens of each context, drawn at random, are separable in those
        dimensions; None where there are none, or where that is undecided.
    """

    separable: int
    contradicted: NextTokenData | None
    random_separable: bool | None


def is_by_construction(data: NextTokenData) -> bool:
    """Whether data are separable whatever follows whom, by the dimension that was chosen.

    So it is with vectors drawn for each context in as many dimensions as contexts or more: they are
    independent with probability one, so that scores can be chosen freely, if tokens are one-hot. If
    not all tokens were candidates, not any text could follow.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.findings import is_by_construction
    >>> is_by_construction(ntpnb.NextTokenData.from_text("we see what we see"))
    True
    >>> is_by_construction(ntpnb.NextTokenData.from_text("we see what we see", dim=1))
    False
    """
    is_drawn = data.embedding == "random" and data.is_linear_decoder
    return is_drawn and data.shape[1] >= data.num_contexts


def sweep_of_dimensions(data: NextTokenData, watch: Watch) -> DimensionSweep:
    """Find from how many dimensions on a text is separable, twice as many each time.

    The first coordinates of a vector from the standard normal law are such a vector too, so that
    one draw answers for fewer dimensions; and what is separable in some of them is so in more.

    Parameters
    ----------
    data : NextTokenData
        Separable by construction, see :func:`is_by_construction`.
    watch : Watch

    Returns
    -------
    DimensionSweep

    Raises
    ------
    ConvergenceError
        The time is over.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.watch import Watch
    >>> from ntpnb.reporting.findings import sweep_of_dimensions
    >>> data = ntpnb.NextTokenData.from_text("the cat and the dog and the cat", context_length=1)
    >>> found = sweep_of_dimensions(data, Watch())
    >>> found.separable, found.contradicted.shape[1]
    (2, 1)
    """
    contradicted = None
    dim = 1
    while dim < data.shape[1]:
        fewer = data.replace(context_embeddings=data.context_embeddings[:, :dim])
        watch.tell(f"is the text separable in {dim} dimensions?")
        verdict = _verdict(fewer, watch)
        if verdict:
            break
        if verdict is False:
            contradicted = fewer
        dim *= 2
    random_separable = None
    if contradicted is not None:
        random_separable = _verdict(with_random_tokens(contradicted), watch)
    return DimensionSweep(min(dim, data.shape[1]), contradicted, random_separable)


def with_random_tokens(data: NextTokenData) -> NextTokenData:
    """The same contexts and probabilities, of next tokens that are drawn for each at random.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.findings import with_random_tokens
    >>> data = ntpnb.NextTokenData([[1.0]], [[0.75, 0.25, 0, 0]])
    >>> sorted(with_random_tokens(data).target_probs[0].tolist())
    [0.0, 0.0, 0.25, 0.75]
    """
    table = data.sparse_target_probs
    rng = np.random.default_rng(0)
    tokens = [
        rng.choice(data.vocab_size, size, replace=False, shuffle=False)
        for size in np.diff(table.indptr)
    ]
    drawn = csr_array((table.data, np.concatenate(tokens), table.indptr), shape=table.shape)
    return data.replace(target_probs=drawn)


def _verdict(data: NextTokenData, watch: Watch) -> bool | None:
    """Whether data are separable; None where that is undecided though there is time."""
    try:
        return is_separable(data, seconds=watch.left, progress=watch.say)
    except ConvergenceError as error:
        if error is watch.raised or watch.expired:
            raise
        return None


# -- all findings ---------------------------------------------------------------------------------


class Pair(NamedTuple):
    """One ordered pair of components: in its context every winner must score above every loser.

    Attributes
    ----------
    share : float
        Its multiplier over the sum of all, in [0, 1]; where the data are not separable, its weight
        in the certificate over the sum of all.
    context : int
        The name of the context, or of the group of contexts that share a query.
    winners, losers : tuple of int
        The tokens of either component, which tie with each other.

    Examples
    --------
    >>> import ntpnb
    >>> pair = ntpnb.report(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]])).pairs[0]
    >>> pair.winners, pair.losers, round(pair.share, 6)
    ((0, 1), (2,), 1.0)
    """

    share: float
    context: int
    winners: tuple[int, ...]
    losers: tuple[int, ...]


def as_checkpoints(W: ArrayLike | None, data: NextTokenData) -> FloatArray | None:
    """Return one matrix, or a stack of them, or None as it is, or explain."""
    if W is None:
        return None
    matrices = as_weights("W", W, data)
    if matrices.ndim > 3 or not len(matrices):
        raise ValueError(
            f"W has shape {matrices.shape}; one matrix, {data.shape}, or a stack of them is needed"
        )
    return matrices


def two_digits(number: float) -> float:
    """Return ``number`` rounded to two significant digits, as a report prints it.

    Examples
    --------
    >>> from ntpnb.reporting.findings import two_digits
    >>> two_digits(0.23456)
    0.23
    """
    return float(f"{number:.2g}")


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Result):
    """What a report knows, without its words and its figure: see :class:`Report`.

    It holds what it was asked about, and computes each finding when that is first asked for; a file
    of it holds the same, and what the bias knows.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.findings import Findings
    >>> found = Findings(ntpnb.implicit_bias(ntpnb.datasets.toy()))
    >>> found.compatible, round(found.margin, 3), len(found.pairs)
    (True, 0.442, 2)
    """

    bias: ImplicitBias
    words: tuple[str, ...] | None = None
    W: FloatArray | None = None
    failures: dict[str, Exception] = field(default_factory=dict)

    def _checked(self) -> Self:
        """The findings that a file describes, with words and weights that fit the data."""
        words = self.words
        if words is not None:
            words = as_names("words", words, self.data.vocab_size)
        return replace(self, words=words, W=as_checkpoints(self.W, self.data))

    def compute(self) -> None:
        """Compute every part; what fails in one of them is noted, and leaves the others.

        Raises
        ------
        KeyboardInterrupt
            What is left then counts as failed, so that what is known can be said.

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.reporting.findings import Findings
        >>> found = Findings(ntpnb.implicit_bias(ntpnb.datasets.toy()))
        >>> found.compute()
        >>> found.failures
        {}
        """
        parts: dict[str, Callable[[], object]] = {
            FINITE_PART: lambda: self.bias.finite_part,
            DIRECTION: lambda: self.bias.max_margin,
            TWIN: self._complete_twin,
            ROOM: lambda: self.generic_dimension,
            DIMENSIONS: lambda: self.dimensions,
            WAY: lambda: self.way,
        }
        left = dict(parts)
        try:
            for part, compute in parts.items():
                self._attempt(part, compute)
                del left[part]
        except KeyboardInterrupt:
            self.failures.update(dict.fromkeys(left, ConvergenceError("interrupted", np.inf)))
            raise

    def _attempt(self, part: str, compute: Callable[[], object]) -> None:
        """Compute one part; where that fails, note why."""
        try:
            compute()
        except (ConvergenceError, ValueError, MemoryError) as error:
            if error is self.bias._watch.raised:
                raise
            self.failures[part] = error
            if isinstance(error, ValueError):  # too large for what was asked, as its message says
                self.failures[part] = ValueError(str(error))
            if isinstance(error, MemoryError):
                self.failures[part] = MemoryError(f"there is not enough memory: {error}")

    def _complete_twin(self) -> None:
        """Compute the twin where there is one, and its finite part.

        Raises
        ------
        ConvergenceError
            It would take minutes, and nobody said how long a report may take.
        """
        unasked = self.separable is False and not self.bias.has_time_limit
        if unasked and expected_work(self.data) > MOST_WORK:
            raise ConvergenceError(
                "which pairs can be won would take minutes; a time limit (seconds=…, --seconds …) "
                "allows for it, and so does implicit_bias(data).twin",
                np.inf,
            )
        twin = self.twin
        if twin is not None:
            self.bias.say(f"{len(twin.finite)} strict pairs stay finite; now their finite part")
            _ = twin.finite_part

    @property
    def data(self) -> NextTokenData:
        """The data that are reported on."""
        return self.bias.data

    @property
    def order(self) -> TokenPriority:
        """Which tokens tie and which must win."""
        return self.bias.order

    @property
    def finite(self) -> FinitePart:
        """Where separable data end up in the tied subspace; it raises why that is not known."""
        if FINITE_PART in self.failures:
            raise self.failures[FINITE_PART]
        return self.bias.finite_part

    @property
    def svm(self) -> MarginSolution | None:
        """The direction in which the weights grow; None where there is a :attr:`refusal`."""
        return None if DIRECTION in self.failures else self.bias.max_margin

    @property
    def refusal(self) -> NotSeparableError | ConvergenceError | None:
        """The proof that the data are not separable, or why that is undecided; else None."""
        return None if DIRECTION in self.failures else self.bias.refusal

    @property
    def twin(self) -> Twin | None:
        """Where training goes though the data are not separable; None where they are, or unknown.

        See :attr:`ImplicitBias.twin`.
        """
        if self.separable is not False or TWIN in self.failures:
            return None
        return self.bias.twin

    @property
    def compatible(self) -> bool | None:
        """Whether some finite ``W`` has all log-odds right (T24 Def. 1); None where undecided."""
        return None if FINITE_PART in self.failures else self.finite.compatible

    @cached_property
    def generic_dimension(self) -> CompatibleDimension | None:
        """How many dimensions these supports need if embeddings are in general position.

        Then every choice of laws on the supports is compatible; in fewer dimensions almost no
        choice is, whatever the embeddings, because of its ``tokens``. The data's own embeddings
        need not be in general position: :attr:`compatible` is decided for them as they are. None
        unless the data are a linear decoder's: one-hot tokens, all of them candidates, and each
        context its own group.
        """
        if ROOM in self.failures or not self.data.is_linear_decoder:
            return None
        return compatible_dimension(self.data)

    @cached_property
    def dimensions(self) -> DimensionSweep | None:
        """From how many dimensions on a text is separable that is so by construction; else None."""
        if DIMENSIONS in self.failures or not (self.separable and self.num_ordered_pairs):
            return None
        if not is_by_construction(self.data):
            return None
        return sweep_of_dimensions(self.data, self.bias._watch)

    @cached_property
    def contradiction(self) -> "Findings | None":
        """The text in the most dimensions in which it contradicts itself; None where unknown."""
        if self.dimensions is None or self.dimensions.contradicted is None:
            return None
        return Findings(ImplicitBias(self.dimensions.contradicted), words=self.words)

    @cached_property
    def support_sizes(self) -> IntArray:
        """How many different tokens follow each context, shape (m,)."""
        sizes: IntArray = np.diff(self.data.sparse_target_probs.indptr).astype(np.intp)
        return sizes

    @property
    def separable(self) -> bool | None:
        """As :attr:`ImplicitBias.separable`; None where undecided."""
        return None if DIRECTION in self.failures else self.bias.separable

    @property
    def margin(self) -> float | None:
        """Largest margin of a matrix of norm one that scores tied tokens alike, ``1/‖W^mm‖``.

        Zero where the data are not separable, infinite where nothing is ordered, and None where
        separability is undecided.
        """
        if self.separable is None:
            return None
        if self.svm is None:
            return 0.0
        return 1 / self.svm.norm if self.svm.norm else np.inf

    @property
    def step(self) -> float:
        """A step at which the loss falls in every step of gradient descent, ``1/L``."""
        return 1 / self.data.smoothness if self.data.smoothness else np.inf

    @property
    def trained(self) -> ImplicitBias:
        """The data that training sees, with direction and finite part: their twin, or themselves.

        Training on data is training on their twin.
        """
        return self.twin or self.bias

    @cached_property
    def way(self) -> Way | None:
        """The way of training in time; None where it leads in no direction, or is too much work."""
        if DIRECTION in self.failures or WAY in self.failures:
            return None
        return way_in_time(
            self.trained, has_finite_part=self.twin is not None or FINITE_PART not in self.failures
        )

    @property
    def flow(self) -> FlowTrace | None:
        """The gradient flow that the way was read off, if it was."""
        return None if self.way is None else self.way.flow

    @property
    def descent(self) -> DescentRecord | None:
        """Gradient descent itself, where that was run in place of the flow."""
        return None if self.way is None else self.way.descent

    @property
    def angle(self) -> FloatArray | None:
        """Angle to ``W^mm`` in radians, along the way."""
        return None if self.way is None else self.way.angle

    @property
    def law(self) -> LateLaw | None:
        """The law by which the angle falls beyond what was computed, where it is known to hold."""
        return None if self.way is None else self.way.law

    @cached_property
    def weights(self) -> WeightComparison | None:
        """Where the ``W`` that was given stands; None without."""
        return None if self.W is None else compare_trained(self.W, self.bias, self.trained)

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pairs that decide ``W^mm``, or contradict each other, heaviest first: list of Pair.

        One loser may stand for many, see :attr:`has_shared_losers`.
        """
        weighted = self._pair_weights()
        if weighted is None:
            return []
        shares = weighted.weights / weighted.weights.sum()
        # A certificate is seldom unique and has few sure digits. Pairs are sorted by the two digits
        # that are printed, so that rounding does not reorder pairs that weigh the same.
        used = np.flatnonzero(shares > NEGLIGIBLE)
        heaviest_first = used[
            np.argsort([-two_digits(share) for share in shares[used]], kind="stable")
        ]
        tied_in = cache(self._tied_in)
        found = []
        for share, (group, winner, loser) in zip(
            shares[heaviest_first].tolist(), weighted.pairs[heaviest_first].tolist(), strict=True
        ):
            tied = tied_in(group)
            winners, losers = tied.get(winner, (winner,)), tied.get(loser, (loser,))
            found.append(Pair(share, group, winners, losers))
        return found

    @property
    def has_shared_losers(self) -> bool:
        """Whether one of the tokens that never follow stands for all of them in :attr:`pairs`.

        Its shares are then the sums of theirs. So it is in large data that are separable.
        """
        shared = self._shared_multipliers
        return shared is not None and bool(shared.table.shape[1] < self.data.vocab_size)

    @property
    def _shared_multipliers(self) -> SharedMultipliers | None:
        """Those of large data whose tokens share them; None otherwise."""
        multipliers = None if self.svm is None else self.svm.strict_multipliers
        if is_large(self.data) and isinstance(multipliers, SharedMultipliers):
            return multipliers
        return None

    def _pair_weights(self) -> PairWeights | None:
        """Multipliers of the strict pairs, or the certificate; None where there is neither."""
        if isinstance(self.refusal, NotSeparableError):
            return self.refusal.pair_weights
        if self.svm is None or not self.svm.norm:
            return None
        if self._shared_multipliers is not None:
            return self._shared_multipliers.pair_weights(self.data)
        multipliers = self.svm.multipliers
        return listed_weights(self.order, np.arange(len(multipliers)), multipliers)

    def _tied_in(self, group: int) -> dict[int, tuple[int, ...]]:
        """For each token that the order lists in a group the tokens that tie; others are alone."""
        table = self.order.sparse_components
        row = int(np.searchsorted(self.order.groups, group))
        listed = slice(table.indptr[row], table.indptr[row + 1])
        components: defaultdict[int, list[int]] = defaultdict(list)
        for token, label in zip(table.indices[listed].tolist(), table.data[listed], strict=True):
            components[int(label)].append(token)
        return {token: tuple(sorted(tokens)) for tokens in components.values() for token in tokens}

    @property
    def num_ordered_pairs(self) -> int:
        """How many pairs the order has."""
        return self.order.num_strict

    def log10_steps(self, degrees: float) -> float:
        """Decimal logarithm of the steps of GD after which the angle to ``W^mm`` stays this small.

        Where the data are not separable, ``W^mm`` is that of their :attr:`twin`.

        The steps have the size ``1/L`` and begin at zero weights. Their number is read off the
        gradient flow at ``t = k/L``, or where there is none off descent itself as far as that was
        run. Beyond its end the late law answers, if it holds there (see :attr:`law`).

        Parameters
        ----------
        degrees : float
            The angle to ``W^mm``.

        Returns
        -------
        float
            Nonnegative; ``nan`` where nothing is known.

        Raises
        ------
        TypeError
            ``degrees`` is no number.
        ValueError
            ``degrees`` outside the open interval from 0 to 90.

        Examples
        --------
        >>> import ntpnb
        >>> found = ntpnb.report(ntpnb.datasets.toy())
        >>> [round(found.log10_steps(degrees), 1) for degrees in (30, 10, 1)]
        [1.2, 3.6, 25.5]
        """
        require_number("degrees", degrees, lambda x: 0 < x < 90, "lie between 0 and 90")
        return np.nan if self.way is None else self.way.log10_steps_to(degrees)

    def token_name(self, token: int) -> str:
        """Name a token by its word where words are known, and by its number otherwise.

        A word that would not be seen, such as a blank, is written as Python would.

        Parameters
        ----------
        token : int

        Returns
        -------
        str

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.report("we see what we see").token_name(0)
        'see'
        """
        if self.words is None:
            return str(token)
        word = self.words[token]
        is_plain = word.isprintable() and word == word.strip() != ""
        return word if is_plain else repr(word)

    def row_name(self, row: int) -> str:
        """Name one row of the data: by its context's name, by its query, or by its number.

        Where the tokens have words and contexts have none, the likeliest next one is added.

        Parameters
        ----------
        row : int

        Returns
        -------
        str

        Raises
        ------
        TypeError, ValueError
            ``row`` is none of the data's.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.report(ntpnb.datasets.figure2()).row_name(5)
        'row 5 (query 1)'
        """
        data = self.data
        row = as_integer("row", row, 0, below=data.num_contexts)
        group = int(data.context_groups[row])
        is_shared = np.count_nonzero(data.context_groups == group) > 1
        if data.contexts is not None or not is_shared:
            return self.context_name(group) + self._likeliest(row)
        return f"row {row} ({self.context_name(group)})"

    def _likeliest(self, row: int) -> str:
        """The likeliest next token, in words, of a row that has no other name than its number."""
        data = self.data
        is_named = data.contexts is not None or data.labels is not None
        if self.words is None or is_named or data.token_embeddings is not None:
            return ""
        token = int(data.sparse_target_probs[[row]].toarray().argmax())
        return f" (before '{self.token_name(token)}')"

    def context_name(self, context: int) -> str:
        """Name a context by its label or its words where it has them, and otherwise by its row.

        Rows count from zero, as in ``data.context_embeddings``. The contexts of attention are named
        by the query that they share, which is a token.

        Parameters
        ----------
        context : int
            As :class:`Pair` names it.

        Returns
        -------
        str

        Raises
        ------
        TypeError, ValueError
            ``context`` is none of the data's.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.report("we see what we see").context_name(0)
        "'we see'"
        >>> ntpnb.report(ntpnb.datasets.toy()).context_name(2)
        'context row 2'
        """
        data = self.data
        context = as_integer("context", context)
        rows = np.flatnonzero(data.context_groups == context)
        if not len(rows):
            raise ValueError(f"context is {context}; it must be one of data.context_groups")
        row = int(rows[0])
        if data.labels is not None:
            return data.label(row)
        if data.contexts is not None:
            return "'" + " ".join(self.token_name(v) for v in data.contexts[row]) + "'"
        if np.array_equal(data.group_names, np.arange(data.num_contexts)):
            return f"context row {row}"
        T = data.token_embeddings
        if self.words is None or T is None or not 0 <= context < len(T):
            return f"query {context}"
        is_that_token = np.array_equal(T[context], data.context_embeddings[row])
        return f"query '{self.token_name(context)}'" if is_that_token else f"query {context}"
