"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.array_types import FloatArray
from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.threads import one_thread
from ntpnb.basics.watch import Progress
from ntpnb.bias import ImplicitBias, Twin, implicit_bias
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import as_weights
from ntpnb.problem.order import dominated
from ntpnb.problem.text import as_names
from ntpnb.reporting.drawing import draw
from ntpnb.reporting.findings import DIRECTION, FINITE_PART, ROOM, TWIN, WAY, Findings, Pair
from ntpnb.reporting.steps import DescentRecord, record_descent
from ntpnb.reporting.summary import plain_values
from ntpnb.reporting.wording import describe, spell_pair, summarize
from ntpnb.tied.finite import FinitePart
from ntpnb.tied.large import is_large
from ntpnb.training.comparison import compare_trained
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import LateLaw, late_constant, late_law

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

# Dominated candidates, in all rows, and tied dimensions of a twin, which may be many: the flow
# factors matrices of that size.
FLOW_UP_TO = 400
# Natural logarithms of the steps of gradient descent at which the flow is recorded: sparser late,
# when little is left to see.
LOG_STEPS = np.concatenate([np.linspace(0, 15, 51), np.arange(16, 60), np.geomspace(60, 1e5, 40)])


@dataclass(frozen=True, eq=False, repr=False)
class Report(Findings):
    """What :func:`report` found; ``print`` it, or ask :meth:`plot` for its figure.

    Attributes
    ----------
    bias : ImplicitBias
        Everything the theory says of the data. The next five attributes are its parts, ``finite``
        under the name ``finite_part`` there, and ``svm`` under ``max_margin``.
    data : NextTokenData
    order : TokenPriority
        Which tokens tie and which must win.
    finite : FinitePart
        Where training ends in the tied subspace, and whether the data are ``compatible``.
    svm : MarginSolution or None
        The direction ``W^mm`` in which the weights grow; None where the data are not separable, or
        where that is undecided.
    refusal : NotSeparableError or ConvergenceError or None
        The proof that they are not, or why the solvers could not decide.
    twin : Twin or None
        Where training goes though the data are not separable: which pairs are won, and in which
        direction, and which stay finite, and where. None where the data are separable, or where
        that is not known.
    flow : FlowTrace or None
        Gradient flow from zero; None where there is no direction to go (nothing is ordered, or no
        pair can be won), where more than 400 candidates are dominated, or where ties settle so
        slowly that it cannot be followed. Where the data are not separable it is the ``twin``'s,
        which is the same, its loss above the entropy is the twin's, and it is None also where the
        twin's tied subspace has more than 400 dimensions.
    angle : ndarray or None
        Angle in radians between the flow and ``W^mm``, of the data or of their ``twin``, at each of
        its r times, shape (r,).
    descent : DescentRecord or None
        Gradient descent itself, as far as it comes in about a second, where there is a direction
        and no flow; of the ``twin``, where there is one, as ``flow``. None also where a step takes
        more than a second.
    law : LateLaw or None
        ``(constant, shift)`` of the late law ``tan(angle) = constant / (log t + shift)``, exact as
        ``t`` grows. From the flow's last point, or without a flow from the multipliers, where
        descent's part across ``W^mm`` has settled: then ``constant`` is a lower bound in the limit,
        and :attr:`law_holds` says whether descent confirms it. None otherwise, where there is no
        direction, or where the multipliers are not unique.
    weights : WeightComparison or None
        Where the ``W`` that was given stands, see :func:`ntpnb.compare`; nan what needs a direction
        or a finite part that is not known. Where there is a ``twin``, these are the twin's.
    failures : mapping of str to Exception
        What could not be computed, and why; empty as a rule. The keys are ``"finite part"``,
        ``"direction"``, ``"room"`` (how many dimensions are needed), ``"way"`` (how many steps) and
        ``"twin"``.
    words : tuple of str or None
        Names of the tokens.

    References
    ----------
    T24 (002) Defs 1–2 and Thm 2; L24 (004) Thm 3. The law is this package's own.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.report(ntpnb.datasets.toy())
    >>> print(str(found).splitlines()[0])
    3 contexts, 5 tokens; different next tokens of a context: 3
    """

    def __str__(self) -> str:
        """Write the report, a line for each finding."""
        return describe(self)

    def __repr__(self) -> str:
        """Say in one line what the report is on and what it found."""
        return summarize(self)

    def _repr_html_(self) -> str:
        """Show the report as :func:`print` does, for notebooks."""
        return f"<pre>{html.escape(describe(self))}</pre>"

    def summary(self) -> dict[str, Any]:
        """Return what the report says as plain values, which JSON can write.

        Returns
        -------
        dict
            None stands for what is not known, or is infinite.

        Examples
        --------
        >>> import ntpnb
        >>> said = ntpnb.report(ntpnb.datasets.toy()).summary()
        >>> said["compatible"], round(said["log10_steps_to_degrees"]["10"], 1)
        (True, 3.6)
        """
        return plain_values(self)

    def spell(self, pair: Pair) -> str:
        """Write one of :attr:`pairs` in words.

        Parameters
        ----------
        pair : Pair

        Returns
        -------
        str

        Examples
        --------
        >>> import ntpnb
        >>> found = ntpnb.report(ntpnb.NextTokenData([[1.0]], [[1, 0]]), words=["yes", "no"])
        >>> found.spell(found.pairs[0])
        '1: yes > no, after context row 0'
        """
        return spell_pair(self, pair)

    def plot(self) -> "Figure":
        """Draw how many tokens follow, which contexts decide, and the way in time.

        In the style that matplotlib is set to. The way is the flow's, or descent's as far as it
        was run and dashed by the late law from there on, where that holds; where no pair can be won
        there is no way to draw. Weights that were given add their margins, and several of them
        their angles.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            Matplotlib is not installed; the extra ``plot`` brings it.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import ntpnb
        >>> len(ntpnb.report(ntpnb.NextTokenData([[1.0]], [[0.3, 0.7]])).plot().axes)
        2
        """
        return draw(self)


@one_thread
def report(
    data: NextTokenData | ImplicitBias | str,
    *,
    words: Sequence[str] | None = None,
    W: ArrayLike | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say what next-token training on some data will do, before training.

    Parameters
    ----------
    data : NextTokenData, ImplicitBias or str
        A text stands for ``NextTokenData.from_text(text)``, which has options for others.
    words : list or tuple of str, optional
        Names of the tokens. Default: the data's own, if they have any.
    W : array_like, shape (p, q) or (r, p, q), optional
        Trained weights, or r checkpoints of a training: the report says where they stand.
    seconds, progress : optional
        As in :func:`ntpnb.implicit_bias`, where ``data`` is no bias yet.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        A text that :meth:`NextTokenData.from_text` refuses, or not one of ``words`` for each token.
    TypeError
        Anything else than data, a bias or a text, or an option of the wrong type.

    Notes
    -----
    What cannot be computed, because it does not converge or memory is not enough, is said in its
    place, and noted in ``failures``; the other parts of the report are there all the same.

    References
    ----------
    T24 (002) Defs 1–2, Lemma 1 and Thm 2; L24 (004) Thm 3.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.report("the cat sat on the mat and the dog sat on the rug")
    >>> found.separable, len(found.data.contexts), found.words[:3]
    (True, 9, ('and', 'cat', 'dog'))

    A text by letters, in other dimensions:

    >>> letters = {"context_length": 1, "tokenizer": list, "dim": 2}
    >>> ntpnb.report(ntpnb.NextTokenData.from_text("abracadabra", **letters)).words
    ('a', 'b', 'c', 'd', 'r')
    """
    if isinstance(data, str):
        data = NextTokenData.from_text(data)
    if isinstance(data, os.PathLike):
        raise TypeError("data is a path; its text is needed: path.read_text('utf-8')")
    if not isinstance(data, NextTokenData | ImplicitBias):
        raise TypeError(
            f"data is of type {type(data).__name__}; NextTokenData, an ImplicitBias or a str is "
            "needed"
        )
    bias = implicit_bias(data, seconds=seconds, progress=progress)
    names = bias.data.words if words is None else as_names("words", words, bias.data.vocab_size)
    return _report_on(bias, names, W)


def _report_on(
    bias: ImplicitBias,
    words: tuple[str, ...] | None,
    W: ArrayLike | None,
) -> Report:
    """Compute every part of a report; what fails in one of them leaves the others."""
    matrices = None if W is None else _as_checkpoints(W, bias.data)
    failures: dict[str, Exception] = {}
    finite = _attempt(bias, FINITE_PART, lambda: bias.finite_part, failures)
    svm = _attempt(bias, DIRECTION, lambda: bias.max_margin, failures)
    twin = None
    if DIRECTION not in failures and bias.separable is False:
        twin = _attempt(bias, TWIN, lambda: _complete_twin(bias), failures)
    # Training on the data is training on their twin, which has a direction and a finite part.
    trained: ImplicitBias = bias
    if twin is not None:
        trained = twin
        finite = twin.finite_part
        svm = twin.max_margin
    way = _attempt(bias, WAY, lambda: _way_in_time(trained, finite, svm), failures) or _Way()
    weights = None
    if matrices is not None:
        weights = compare_trained(matrices, bias, trained)
    found = Report(
        bias=bias,
        flow=way.flow,
        angle=way.angle,
        law=way.law,
        words=words,
        descent=way.descent,
        weights=weights,
        failures=failures,
    )
    _attempt(bias, ROOM, lambda: found.generic_dimension, failures)
    return found


def _as_checkpoints(W: ArrayLike, data: NextTokenData) -> FloatArray:
    """Return one matrix, or a stack of them, or explain."""
    matrices = as_weights("W", W, data)
    if matrices.ndim > 3 or not len(matrices):
        raise ValueError(
            f"W has shape {matrices.shape}; one matrix, {data.shape}, or a stack of them is needed"
        )
    return matrices


def _attempt(
    bias: ImplicitBias, part: str, compute: Callable[[], T], failures: dict[str, Exception]
) -> T | None:
    """Compute one part; where that fails, note why and return None."""
    try:
        return compute()
    except (ConvergenceError, ValueError, MemoryError) as error:
        if error is bias._watch.raised:
            raise
        failures[part] = error
        if isinstance(error, ValueError):  # too large for what was asked, as its message says
            failures[part] = ValueError(str(error))
        if isinstance(error, MemoryError):
            failures[part] = MemoryError(f"there is not enough memory: {error}")
    return None


def _complete_twin(bias: ImplicitBias) -> Twin:
    """The twin, with its finite part computed."""
    twin = bias.twin
    bias.say(f"{len(twin.finite)} strict pairs stay finite; now their finite part")
    _ = twin.finite_part
    return twin


class _Way(NamedTuple):
    """The way of training in time, as far as it is known."""

    flow: FlowTrace | None = None
    angle: FloatArray | None = None
    law: LateLaw | None = None
    descent: DescentRecord | None = None


def _way_in_time(bias: ImplicitBias, finite: FinitePart | None, svm: MarginSolution | None) -> _Way:
    """Follow the flow where that is affordable, and else descent as far as it comes in a second."""
    if svm is None or not svm.norm:  # refused, or nothing is ordered
        return _Way()
    flow = None if finite is None else _affordable_flow(bias)
    if flow is None or finite is None:
        descent = _descent(bias, svm)
        law = None
        if finite is not None and descent is not None and descent.is_settled:
            law = _law_by_multipliers(bias, svm)
        return _Way(law=law, descent=descent)
    angle = flow.compare(finite, svm).angle
    constant_term = flow.W[-1] - svm.W * flow.log_times[-1]
    return _Way(flow, angle, late_law(constant_term, svm))


def _law_by_multipliers(bias: ImplicitBias, svm: MarginSolution) -> LateLaw | None:
    """Find the late law without a flow; None where the multipliers do not give it."""
    try:
        return late_law(late_constant(bias), svm)
    except (ConvergenceError, ValueError, MemoryError):
        return None


def _descent(bias: ImplicitBias, svm: MarginSolution) -> DescentRecord | None:
    return record_descent(bias.data, 1 / bias.data.smoothness, svm, bias.say)


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
