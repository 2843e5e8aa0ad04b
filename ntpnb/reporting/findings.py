"""The numbers of a report, each derived once from what the theory and a flow say of the data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ntpnb.basics.array_types import FloatArray, IntArray
from ntpnb.basics.errors import ConvergenceError, NotSeparableError, PairWeights
from ntpnb.basics.saving import Result
from ntpnb.basics.tolerances import NEGLIGIBLE
from ntpnb.bias import ImplicitBias, Twin
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.collapse import SharedMultipliers
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority
from ntpnb.reporting.steps import DescentRecord
from ntpnb.thresholds.sparsity import CompatibleDimension, compatible_dimension
from ntpnb.tied.finite import FinitePart
from ntpnb.tied.large import is_large
from ntpnb.training.comparison import WeightComparison
from ntpnb.training.flow import FlowTrace
from ntpnb.training.late_time import LateLaw

# The parts of a report that can fail without the others.
FINITE_PART = "finite part"
DIRECTION = "direction"
ROOM = "room"
WAY = "way"
TWIN = "twin"

ANGLES = (30, 10, 1)  # in degrees, to which steps are counted


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


def two_digits(number: float) -> float:
    """Return ``number`` rounded to two significant digits, as a report prints it.

    Examples
    --------
    >>> from ntpnb.reporting.findings import two_digits
    >>> two_digits(0.23456)
    0.23
    """
    return float(f"{number:.2g}")


class _Way(NamedTuple):
    """Natural logarithms of times, and the angle to ``W^mm`` in radians at each of them."""

    log_times: FloatArray
    angle: FloatArray


def _require_shapes(part: Result, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless arrays of a part that was read have the shape they need."""
    for name in names:
        found = np.shape(getattr(part, name))
        if found != shape:
            raise ValueError(f"{type(part).__name__}.{name} has shape {found}; it needs {shape}")


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Result):
    """What a report knows, without its words and its figure: see :class:`Report`.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.findings import Findings
    >>> found = Findings(ntpnb.implicit_bias(ntpnb.datasets.toy()))
    >>> found.compatible, round(found.margin, 3), len(found.pairs)
    (True, 0.442, 2)
    """

    bias: ImplicitBias
    flow: FlowTrace | None = None
    angle: FloatArray | None = None
    law: LateLaw | None = None
    words: tuple[str, ...] | None = None
    descent: DescentRecord | None = None
    weights: WeightComparison | None = None
    failures: Mapping[str, Exception] = field(default_factory=dict)

    def _checked(self) -> "Findings":
        """The findings that a file describes, whose parts have the shapes of these data."""
        m, V = self.data.num_contexts, self.data.vocab_size
        if self.words is not None and len(self.words) != V:
            raise ValueError(f"{len(self.words)} words name {V} tokens")
        if self.angle is not None and self.flow is None:
            raise ValueError("there are angles, and no flow that they belong to")
        if self.flow is not None:
            times = len(np.atleast_1d(self.flow.log_times))
            one_each = ("log_times", "loss", "excess", "norm")
            _require_shapes(self.flow, one_each, (times,))
            _require_shapes(self.flow, ("W", "_inside"), (times, *self.data.shape))
        if self.descent is not None:
            steps = len(np.atleast_1d(self.descent.steps))
            _require_shapes(self.descent, ("steps", "along", "across", "excess"), (steps,))
        if self.weights is not None:
            given = np.shape(self.weights.norm)[:1]
            one_each = ("alignment", "angle", "corrected_alignment", "finite_error")
            _require_shapes(self.weights, (*one_each, "norm", "loss", "excess"), given)
            _require_shapes(self.weights, ("margin",), (*given, m))
        if self.flow is None:
            return self
        return replace(self, angle=self.flow.compare(self.twin or self.bias).angle)

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
        """Where training ends in the tied subspace; it raises why that is not known."""
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
        data = self.data
        every_row_its_own = len(np.unique(data.context_groups)) == len(data.context_groups)
        is_decoder = data.token_embeddings is None and data.candidate_counts is None
        if ROOM in self.failures or not (is_decoder and every_row_its_own):
            return None
        return compatible_dimension(data)

    @cached_property
    def support_sizes(self) -> IntArray:
        """How many different tokens follow each context, shape (m,)."""
        sizes: IntArray = np.diff(self.data.sparse_target_probs.indptr).astype(np.int64)
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

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pairs that decide ``W^mm``, or contradict each other, heaviest first: list of Pair."""
        large = self._weights_of_large()
        if large is not None:
            return self._pairs_of_large(large)
        weights = self._pair_weights()
        if weights is None or not len(weights):
            return []
        shares = weights / weights.sum()
        # A certificate is seldom unique and has few sure digits. Pairs are sorted by the two digits
        # that are printed, so that rounding does not reorder pairs that weigh the same.
        used = np.flatnonzero(shares > NEGLIGIBLE)
        heaviest_first = np.argsort([-two_digits(share) for share in shares[used]], kind="stable")
        position = self.order.positions(self.order.strict)
        found = []
        for k in used[heaviest_first]:
            group, winner, loser = self.order.strict[k].tolist()
            labels = self.order.components[position[k]]
            winners = np.flatnonzero(labels == labels[winner])
            losers = np.flatnonzero(labels == labels[loser])
            share = float(shares[k])
            found.append(Pair(share, group, tuple(winners.tolist()), tuple(losers.tolist())))
        return found

    def _weights_of_large(self) -> PairWeights | None:
        """Weights of some pairs of large data, which have no order at hand; None for others."""
        if not is_large(self.data):
            return None
        if isinstance(self.refusal, NotSeparableError):
            return self.refusal.pair_weights
        if self.svm is not None and isinstance(self.svm.strict_multipliers, SharedMultipliers):
            return self.svm.strict_multipliers.pair_weights(self.data)
        return None

    def _pairs_of_large(self, found: PairWeights) -> list[Pair]:
        """The pairs of large data that weigh most.

        Each context is a group of its own there, whose support wins over every other token.
        """
        laws = self.data.sparse_target_probs
        row_of_group = np.argsort(self.data.group_index)
        shares = found.weights / found.weights.sum()
        heaviest_first = np.argsort([-two_digits(share) for share in shares], kind="stable")
        pairs = []
        for k in heaviest_first[shares[heaviest_first] > NEGLIGIBLE]:
            group, _, loser = found.pairs[k].tolist()
            row = row_of_group[np.searchsorted(self.data.group_names, group)]
            winners = laws.indices[laws.indptr[row] : laws.indptr[row + 1]]
            pairs.append(Pair(float(shares[k]), group, tuple(winners.tolist()), (loser,)))
        return pairs

    @property
    def num_ordered_pairs(self) -> int:
        """How many pairs the order has."""
        if not is_large(self.data):
            return len(self.order.strict)
        return self.data.num_contexts * self.data.vocab_size - int(self.support_sizes.sum())

    def _pair_weights(self) -> FloatArray | None:
        """Multipliers of the strict pairs, or the certificate; None where there is neither."""
        if self.svm is not None:
            return self.svm.multipliers
        if isinstance(self.refusal, NotSeparableError):
            return self.refusal.certificate
        return None

    def log10_steps(self, degrees: float) -> float:
        """Decimal logarithm of the steps of GD after which the angle to ``W^mm`` stays this small.

        Where the data are not separable, ``W^mm`` is that of their :attr:`twin`.

        The steps have the size ``1/L`` and begin at zero weights. Their number is read off the
        gradient flow at ``t = k/L``, or where there is none off descent itself as far as that was
        run. Beyond its end the late law answers, if it holds there (see :attr:`law_holds`).

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
        ValueError
            ``degrees`` outside the open interval from 0 to 90.

        Examples
        --------
        >>> import ntpnb
        >>> found = ntpnb.report(ntpnb.datasets.toy())
        >>> [round(found.log10_steps(degrees), 1) for degrees in (30, 10, 1)]
        [1.2, 3.6, 25.5]
        """
        if not 0 < degrees < 90:
            raise ValueError(f"degrees is {degrees}; it must lie between 0 and 90")
        way = self._way
        if way is None:
            return np.nan
        goal = np.radians(degrees)
        too_wide = np.flatnonzero(~(way.angle <= goal))  # with zero weights, whose angle is nan
        if not len(too_wide):
            return 0.0
        last = too_wide[-1]
        if last + 1 == len(way.angle):
            return self._log10_steps_by_the_law(goal)
        around = [last, last + 1]
        cotangents = 1 / np.tan(way.angle[around])  # late, they are linear in log t
        log_time = np.interp(1 / np.tan(goal), cotangents, way.log_times[around])
        return self._log10_steps_at(float(log_time))

    @property
    def law_holds(self) -> bool:
        """Whether the late law may answer beyond what was computed of the way.

        It holds where it was taken from a flow. Taken from the multipliers it holds if both parts
        of descent's last ``W``, along ``W^mm`` and across it, agree with it.
        """
        if self.law is None:
            return False
        if self.flow is not None:
            return True
        return self.descent is not None and self.descent.confirms(self.law, np.log(self.step))

    @property
    def _way(self) -> "_Way | None":
        """The angle to ``W^mm`` in time, from the flow or from descent itself; None without."""
        if self.flow is not None and self.angle is not None:
            return _Way(self.flow.log_times, self.angle)
        if self.descent is not None:
            return _Way(np.log(self.descent.steps * self.step), self.descent.angle)
        return None

    def _log10_steps_by_the_law(self, angle: float) -> float:
        if self.law is None or not self.law_holds:
            return np.nan
        log_time = float(self.law.constant / np.tan(angle) - self.law.shift)
        return self._log10_steps_at(log_time)

    def _log10_steps_at(self, log_time: float) -> float:
        return max(0.0, float(self._as_log10_steps(np.array(log_time))))

    def _as_log10_steps(self, log_times: FloatArray) -> FloatArray:
        """Natural logarithms of the flow's times as decimal ones of steps of size ``1/L``."""
        logarithms: FloatArray = (log_times - np.log(self.step)) / np.log(10)
        return logarithms

    @property
    def log10_flow_steps(self) -> FloatArray | None:
        """Decimal logarithms of the steps of GD at which the flow was recorded, if there is one."""
        return None if self.flow is None else self._as_log10_steps(self.flow.log_times)

    def token_name(self, token: int) -> str:
        """Name a token by its word where words are known, and by its number otherwise.

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
        return str(token) if self.words is None else self.words[token]

    def row_name(self, row: int) -> str:
        """Name one row of the data: by its context's name, by its query, or by its number.

        Where the tokens have words and contexts have none, the likeliest next one is added.

        Parameters
        ----------
        row : int

        Returns
        -------
        str

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.report(ntpnb.datasets.figure2()).row_name(5)
        'row 5 (query 1)'
        """
        data = self.data
        shared = np.count_nonzero(data.context_groups == data.context_groups[row]) > 1
        if data.contexts is not None or not shared:
            return self.context_name(int(data.context_groups[row])) + self._likeliest(row)
        return f"row {row} ({self.context_name(int(data.context_groups[row]))})"

    def _likeliest(self, row: int) -> str:
        """The likeliest next token, in words, of a row that has no other name than its number."""
        data = self.data
        is_named = data.contexts is not None or data.labels is not None
        if self.words is None or is_named or data.token_embeddings is not None:
            return ""
        laws = data.sparse_target_probs
        entries = slice(laws.indptr[row], laws.indptr[row + 1])
        token = int(laws.indices[entries][np.argmax(laws.data[entries])])
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

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.report("we see what we see").context_name(0)
        "'we see'"
        >>> ntpnb.report(ntpnb.datasets.toy()).context_name(2)
        'context row 2'
        """
        data = self.data
        if data.labels is not None:
            return f"'{data.labels[int(np.argmax(data.context_groups == context))]}'"
        if data.contexts is not None:
            return "'" + " ".join(self.token_name(v) for v in data.contexts[context]) + "'"
        names = data.group_names
        if np.array_equal(names, np.arange(len(data.context_probs))):
            return f"context row {int(np.argmax(data.context_groups == context))}"
        T = data.token_embeddings
        if self.words is None or T is None or not 0 <= context < len(T):
            return f"query {context}"
        is_that_token = np.array_equal(T[context], self._embedding_of(context))
        return f"query '{self.token_name(context)}'" if is_that_token else f"query {context}"

    def _embedding_of(self, group: int) -> FloatArray:
        """The embedding that a group's contexts share."""
        embedding: FloatArray = self.data.group_embeddings[
            np.searchsorted(self.data.group_names, group)
        ]
        return embedding
