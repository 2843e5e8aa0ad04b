"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import require_type
from ntpnb.basics.watch import Progress
from ntpnb.bias import ImplicitBias, implicit_bias
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.text import as_names
from ntpnb.reporting.drawing import draw
from ntpnb.reporting.findings import DescentRecord, Findings, Pair, Way, as_checkpoints
from ntpnb.reporting.wording import describe, plain_values, spell_pair, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DescentRecord",
    "Pair",
    "Report",
    "Way",
    "report",
]


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
        Where training ends in the tied subspace, if the data are separable, and whether they are
        ``compatible``. For others see ``twin``, whose tied subspace is larger.
    svm : MarginSolution or None
        The direction ``W^mm`` in which the weights grow; None where the data are not separable, or
        where that is undecided.
    refusal : NotSeparableError or ConvergenceError or None
        The proof that they are not, or why the solvers could not decide.
    twin : Twin or None
        Where training goes though the data are not separable: which pairs are won, and in which
        direction, and which stay finite, and where. None where the data are separable, or where
        that is not known.
    way : Way or None
        The way of training from zero, with ``log10_steps``, ``angle`` and ``excess`` at r of its
        steps; None where there is no direction to go (nothing is ordered, or no pair can be won),
        or where a hundred steps of descent take over a second. Where the data are not separable it
        is the ``twin``'s, which is the same; its loss above the entropy is the twin's. The next
        four attributes are its parts.
    flow : FlowTrace or None
        Gradient flow from zero; None also where more than 400 candidates are dominated, or where
        ties settle so slowly that it cannot be followed, and for a ``twin`` also where its tied
        subspace has more than 400 dimensions.
    descent : DescentRecord or None
        Where there is no flow gradient descent itself, as far as it comes in about a second.
    angle : ndarray or None
        Angle in radians to ``W^mm``, of the data or of their ``twin``, shape (r,).
    law : LateLaw or None
        ``(constant, shift)`` of the late law ``tan(angle) = constant / (log t + shift)``, exact as
        ``t`` grows. From the flow's last point; or without a flow from the multipliers, if these
        are unique, descent's part across ``W^mm`` has settled, and both parts of descent's last
        ``W``, along ``W^mm`` and across it, agree with the law. None otherwise.
    W : ndarray or None
        What was given.
    weights : WeightComparison or None
        Where the ``W`` that was given stands, see :func:`ntpnb.compare`; nan what needs a direction
        or a finite part that is not known. Where there is a ``twin``, these are the twin's.
    failures : mapping of str to Exception
        What could not be computed, and why; empty as a rule. The keys are ``"finite part"``,
        ``"direction"``, ``"room"`` (how many dimensions are needed), ``"way"`` (how many steps),
        ``"twin"`` and ``"dimensions"`` (in how few a text is separable).
    dimensions : DimensionSweep or None
        From how many dimensions on a text is separable, where as many were drawn as there are
        contexts, so that any text would be. None for other data.
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

        Raises
        ------
        TypeError
            ``pair`` is none.

        Examples
        --------
        >>> import ntpnb
        >>> found = ntpnb.report(ntpnb.NextTokenData([[1.0]], [[1, 0]]), words=["yes", "no"])
        >>> found.spell(found.pairs[0])
        '1: yes > no, after context row 0'
        """
        require_type("pair", pair, Pair)
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
    words: Sequence[str] | Mapping[str, int] | None = None,
    W: ArrayLike | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say what next-token training on some data will do, before training.

    Parameters
    ----------
    data : NextTokenData, ImplicitBias or str
        A text stands for ``NextTokenData.from_text(text)``, which has options for others.
    words : sequence of str, or mapping from str to int, optional
        Names of the tokens, in their order or with their numbers. Default: the data's own, if they
        have any.
    W : array_like, shape (p, q) or (r, p, q), optional
        Trained weights, or r checkpoints of a training: the report says where they stand.
    seconds, progress : optional
        As in :func:`ntpnb.implicit_bias`, where ``data`` is no bias yet. Without ``seconds`` what
        would take minutes is left out, and the report says so.

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

    >>> make = ntpnb.NextTokenData.from_text
    >>> ntpnb.report(make("abracadabra", context_length=1, tokenizer=list, dim=2)).words
    ('a', 'b', 'c', 'd', 'r')
    """
    if isinstance(data, str):
        data = NextTokenData.from_text(data)
    if isinstance(data, os.PathLike):
        raise TypeError("data is a path; its text is needed: path.read_text('utf-8')")
    kinds = NextTokenData | ImplicitBias
    require_type("data", data, kinds, "NextTokenData, an ImplicitBias or a str")
    bias = implicit_bias(data, seconds=seconds, progress=progress)
    names = bias.data.words
    if words is not None:
        names = as_names("words", words, bias.data.vocab_size)
    found = Report(bias, words=names, W=as_checkpoints(W, bias.data))
    found.compute()
    return found
