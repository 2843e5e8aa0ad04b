"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.bias import ImplicitBias, implicit_bias
from ntpnb.errors import ConvergenceError
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import dominated
from ntpnb.problem.text import split_words
from ntpnb.reporting.drawing import draw
from ntpnb.reporting.findings import Findings, Pair
from ntpnb.reporting.wording import describe, spell_pair
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import LateLaw, late_constant, late_law
from ntpnb.validation import as_integer, as_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOW_UP_TO = 400  # dominated candidates, in all rows: the flow factors matrices of that size
# Natural logarithms of the steps of gradient descent at which the flow is recorded: sparser late,
# when little is left to see.
LOG_STEPS = np.concatenate([np.linspace(0, 15, 51), np.arange(16, 60), np.geomspace(60, 1e5, 40)])


@dataclass(frozen=True, eq=False)
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
    flow : FlowTrace or None
        Gradient flow from zero; None where there is no direction to go (not separable, or nothing
        ordered), where more than 400 candidates are dominated, or where ties settle so slowly that
        it cannot be followed.
    angle : ndarray or None
        Angle in radians between the flow and ``W^mm`` at each of its r times, shape (r,).
    law : LateLaw or None
        ``(constant, shift)`` of the late law ``tan(angle) = constant / (log t + shift)``, exact as
        ``t`` grows. From the flow's last point, or without a flow from the multipliers: then
        ``constant`` is a lower bound. None where there is no direction, or where the multipliers
        are not unique.
    words : tuple of str or None
        Names of the tokens.
    random_embeddings, drawn : bool
        Whether the embeddings were drawn at random, as they are for a text.

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
        '1: yes > no, after context 0'
        """
        return spell_pair(self, pair)

    def plot(self) -> "Figure":
        """Draw how many tokens follow, which contexts decide, and the way in time.

        In the style that matplotlib is set to. Without a flow the way is the late law, and the
        loss is left out; where the data are not separable there is no way to draw.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            Matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import ntpnb
        >>> len(ntpnb.report(ntpnb.NextTokenData([[1.0]], [[0.3, 0.7]])).plot().axes)
        2
        """
        return draw(self)


def report(
    data: NextTokenData | ImplicitBias | str,
    *,
    words: Sequence[str] | None = None,
    context_length: int = 2,
    dim: int | None = None,
    seed: int = 0,
) -> Report:
    """Say what next-token training on some data will do, before training.

    Parameters
    ----------
    data : NextTokenData, ImplicitBias or str
        A text is split into lower-case words without punctuation; every ``context_length`` of them
        in a row are a context, and its embedding is drawn from the standard normal law.
    words : list or tuple of str, optional
        Names of the tokens. Default for a text: its words.
    context_length, dim, seed : int
        For a text only. ``dim`` is the dimension of the embeddings, by default the number of
        distinct contexts. The embeddings are then linearly independent with probability one, so
        that the scores after each context can be chosen freely and the data are compatible and
        separable (T24 (002) Lemma 1, which is stated for one dimension more).

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        A text with fewer than ``context_length + 1`` words, the wrong number of ``words``, or a
        ``context_length``, ``dim`` or ``seed`` outside its range.
    TypeError
        Anything else than data, a bias or a text; ``words`` that are no list or tuple, or a
        ``context_length``, ``dim`` or ``seed`` that is no number.
    ConvergenceError
        The finite part, or the flow, was not found to the accuracy promised.

    References
    ----------
    T24 (002) Defs 1–2, Lemma 1 and Thm 2; L24 (004) Thm 3.

    Examples
    --------
    >>> import ntpnb
    >>> found = ntpnb.report("the cat sat on the mat and the dog sat on the rug")
    >>> found.separable, len(found.data.contexts), found.words[:3]
    (True, 9, ('and', 'cat', 'dog'))
    """
    is_text = isinstance(data, str)
    if isinstance(data, str):
        text = _read(data, context_length, dim, seed)
        words = text.words
        data = text.data
    elif not isinstance(data, NextTokenData | ImplicitBias):
        raise TypeError(f"data is of type {type(data).__name__}; NextTokenData or str is needed")
    bias = implicit_bias(data)
    names = _as_names(words, bias.data.vocab_size)
    way = _way_in_time(bias)
    return Report(bias, way.flow, way.angle, way.law, names, is_text)


def _as_names(words: Sequence[str] | None, vocab_size: int) -> tuple[str, ...] | None:
    if words is None:
        return None
    if not isinstance(words, list | tuple):
        raise TypeError(f"words is of type {type(words).__name__}; a list of names is needed")
    if len(words) != vocab_size:
        raise ValueError(f"words has {len(words)} entries; the vocabulary has {vocab_size}")
    return tuple(words)


class _Way(NamedTuple):
    """The way of training in time, as far as it is known."""

    flow: FlowTrace | None = None
    angle: FloatArray | None = None
    law: LateLaw | None = None


def _way_in_time(bias: ImplicitBias) -> _Way:
    """Follow the flow where that is affordable, else take the late law from the multipliers."""
    finite = bias.finite_part  # raises where the theory is not known to the accuracy promised
    svm = bias.max_margin
    if svm is None or not len(bias.order.strict):
        return _Way()
    flow = _affordable_flow(bias)
    if flow is None:
        return _Way(law=late_law(late_constant(bias), svm))
    angle = flow.compare(finite, svm).angle
    constant_term = flow.W[-1] - svm.W * flow.log_times[-1]
    return _Way(flow, angle, late_law(constant_term, svm))


def _affordable_flow(bias: ImplicitBias) -> FlowTrace | None:
    """Gradient flow from zero, recorded at ``t = k/L`` for the steps ``k``; None if too costly."""
    if np.count_nonzero(dominated(bias.data, bias.order)) > FLOW_UP_TO:
        return None
    try:
        return gradient_flow(bias, LOG_STEPS - np.log(bias.data.smoothness))
    except ConvergenceError:  # ties that settle over many decades: the late law must do
        return None


class _Text(NamedTuple):
    """A text as data, and the words that its tokens stand for."""

    words: list[str]
    data: NextTokenData


def _read(text: str, context_length: int, dim: int | None, seed: int) -> _Text:
    context_length = as_integer("context_length", context_length, 1)
    if dim is not None:
        dim = as_integer("dim", dim, 1)
    said = split_words(text)
    if len(said) <= context_length:
        raise ValueError(
            f"data is a text of {len(said)} words; at least context_length + 1 = "
            f"{context_length + 1} are needed"
        )
    words = sorted(set(said))
    token_of = {word: token for token, word in enumerate(words)}
    tokens = [token_of[word] for word in said]
    starts = range(len(tokens) - context_length)
    contexts = {tuple(tokens[start : start + context_length]) for start in starts}
    size = len(contexts) if dim is None else dim
    rng = np.random.default_rng(as_seed("seed", seed))

    def embed(context: Sequence[int]) -> FloatArray:
        return rng.standard_normal(size)

    data = NextTokenData.from_sequences(
        [tokens], embed, context_length=context_length, vocab_size=len(words)
    )
    return _Text(words, data)
