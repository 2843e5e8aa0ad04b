"""The numbers of a report, each derived once from what the theory and a flow say of the data."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.bias import ImplicitBias
from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority
from ntpnb.sparsity import CompatibleDimension, compatible_dimension
from ntpnb.tied.finite import FinitePart
from ntpnb.training.flow import FlowTrace
from ntpnb.training.late_time import USED, LateLaw


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


@dataclass(frozen=True, eq=False)
class Findings:
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
    random_embeddings: bool = False

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
        """Where training ends in the tied subspace."""
        return self.bias.finite_part

    @property
    def svm(self) -> MarginSolution | None:
        """The direction in which the weights grow; None where there is a :attr:`refusal`."""
        return self.bias.max_margin

    @property
    def refusal(self) -> NotSeparableError | ConvergenceError | None:
        """The proof that the data are not separable, or why that is undecided; else None."""
        return self.bias.refusal

    @property
    def drawn(self) -> bool:
        """The same as ``random_embeddings``: whether the embeddings were drawn, as for a text."""
        return self.random_embeddings

    @property
    def compatible(self) -> bool:
        """Whether some finite ``W`` has all log-odds right (T24 Def. 1)."""
        return self.finite.compatible

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
        if not (is_decoder and every_row_its_own):
            return None
        return compatible_dimension(data.support)

    @property
    def separable(self) -> bool | None:
        """As :attr:`ImplicitBias.separable`; None where undecided."""
        return self.bias.separable

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
        weights = self._pair_weights()
        if weights is None:
            return []
        shares = weights / weights.sum()
        # A certificate is seldom unique and has few sure digits. Pairs are sorted by the two digits
        # that are printed, so that rounding does not reorder pairs that weigh the same.
        heaviest_first = np.argsort([-two_digits(share) for share in shares], kind="stable")
        position = self.order.positions(self.order.strict)
        found = []
        for k in heaviest_first[shares[heaviest_first] > USED]:
            group, winner, loser = self.order.strict[k].tolist()
            labels = self.order.components[position[k]]
            winners = np.flatnonzero(labels == labels[winner])
            losers = np.flatnonzero(labels == labels[loser])
            share = float(shares[k])
            found.append(Pair(share, group, tuple(winners.tolist()), tuple(losers.tolist())))
        return found

    def _pair_weights(self) -> FloatArray | None:
        """Multipliers of the strict pairs, or the certificate; None where there is neither."""
        if not len(self.order.strict):
            return None
        if self.svm is not None:
            return self.svm.multipliers
        if isinstance(self.refusal, NotSeparableError):
            return self.refusal.certificate
        return None

    def log10_steps(self, degrees: float) -> float:
        """Decimal logarithm of the steps of GD after which the angle to ``W^mm`` stays this small.

        The steps have the size ``1/L`` and begin at zero weights. Their number is read off the
        gradient flow at ``t = k/L`` and, beyond its end, off the late law. Without a flow the law
        alone answers, with a lower bound as the angle tends to zero: at 1 degree still a rough one,
        at 10 degrees wrong by decades.

        Parameters
        ----------
        degrees : float
            The angle to ``W^mm``.

        Returns
        -------
        float
            Nonnegative; ``nan`` where there is no law.

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
        if self.law is None:
            return np.nan
        goal = np.radians(degrees)
        if self.flow is None or self.angle is None:
            return self._log10_steps_at(self._log_time_by_the_law(goal))
        too_wide = np.flatnonzero(~(self.angle <= goal))  # with zero weights, whose angle is nan
        if not len(too_wide):
            return 0.0
        last = too_wide[-1]
        if last + 1 == len(self.angle):
            return self._log10_steps_at(self._log_time_by_the_law(goal))
        around = [last, last + 1]
        cotangents = 1 / np.tan(self.angle[around])  # late, they are linear in log t
        log_time = np.interp(1 / np.tan(goal), cotangents, self.flow.log_times[around])
        return self._log10_steps_at(float(log_time))

    def _log_time_by_the_law(self, angle: float) -> float:
        assert self.law is not None  # so says who asks
        return float(self.law.constant / np.tan(angle) - self.law.shift)

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
        >>> ntpnb.report("we see what we see", context_length=1).token_name(0)
        'see'
        """
        return str(token) if self.words is None else self.words[token]

    def context_name(self, context: int) -> str:
        """Name a context by its words where they are known, and by its number otherwise.

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
        >>> ntpnb.report("we see what we see", context_length=1).context_name(0)
        "'we'"
        >>> ntpnb.report(ntpnb.datasets.toy()).context_name(2)
        'context 2'
        """
        contexts = self.data.contexts
        if contexts is not None:
            return "'" + " ".join(self.token_name(v) for v in contexts[context]) + "'"
        names = self.data.group_names
        every_row_its_own = np.array_equal(names, np.arange(len(self.data.context_probs)))
        return f"context {context}" if every_row_its_own else f"query {context}"
