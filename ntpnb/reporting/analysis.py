"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.solve import MarginSolution, max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority, dominated, token_priority
from ntpnb.reporting.drawing import draw, two_digits
from ntpnb.tied.finite import FinitePart, finite_part
from ntpnb.training.flow import FlowTrace, gradient_flow
from ntpnb.training.late_time import USED, late_law, next_order
from ntpnb.validation import as_integer, as_seed

FLOW_UP_TO = 400  # dominated candidates, in all rows: the flow factors matrices of that size
# Natural logarithms of the steps at which the flow is recorded: late, little is left to see.
LOG_STEPS = np.concatenate([np.linspace(0, 15, 51), np.arange(16, 60), np.geomspace(60, 1e5, 40)])
ANGLES = 30, 10, 1  # degrees
LISTED, NAMED = 3, 4  # pairs, and tied tokens in each, of the printed report


class Pair(NamedTuple):
    """One ordered pair: in its context every winner must score above every loser.

    ``share`` is its part of all multipliers. ``context`` is the context's (or group's) name, and
    ``winners`` and ``losers`` are tuples of tied tokens.
    """

    share: float
    context: int
    winners: tuple
    losers: tuple


@dataclass(frozen=True, eq=False)
class Report:
    """What :func:`report` found; ``print`` it, or ask :meth:`plot` for its figure.

    Attributes
    ----------
    data : NextTokenData
    order : TokenPriority
        Which tokens tie and which must win.
    finite : FinitePart
        Where training ends on the tied tokens, and whether the data are ``compatible``.
    svm : MarginSolution or None
        Where training goes; None where the data are not separable.
    refusal : NotSeparableError or ConvergenceError or None
        The proof that they are not, or why the solvers could not decide.
    flow : FlowTrace or None
        Gradient flow from zero; None where there is no direction to go (not separable, or nothing
        ordered), where more than 400 candidates are dominated, or where ties settle so slowly that
        it cannot be followed.
    angle : ndarray or None
        Angle in radians between the flow and ``W^mm``, shape (r,).
    law : tuple of float or None
        ``(c, s)`` of the late law ``tan(angle) = c / (log t + s)``, exact as ``t`` grows. From the
        flow's last point, or without a flow from the multipliers: then ``c`` is a lower bound.
        None where there is no direction, or where the multipliers are not unique.
    words : tuple of str or None
        Names of the tokens.
    drawn : bool
        Whether the embeddings were drawn at random, as they are for a text.
    """

    data: NextTokenData
    order: TokenPriority
    finite: FinitePart
    svm: MarginSolution | None
    refusal: NotSeparableError | ConvergenceError | None
    flow: FlowTrace | None
    angle: np.ndarray | None
    law: tuple | None
    words: tuple | None
    drawn: bool

    @property
    def compatible(self):
        """Whether some finite ``W`` has all log-odds right (T24 Def. 1)."""
        return self.finite.compatible

    @property
    def separable(self):
        """Whether some ``W`` meets all ties and wins all strict pairs; None where undecided."""
        return None if isinstance(self.refusal, ConvergenceError) else self.refusal is None

    @property
    def margin(self):
        """Largest margin of a matrix of norm one that meets all ties: None where undecided."""
        if not self.separable:
            return None if self.separable is None else 0.0
        return 1 / self.svm.norm if self.svm.norm else np.inf

    @property
    def step(self):
        """A step at which the loss falls in every step of gradient descent, ``1/L``."""
        return 1 / self.data.smoothness if self.data.smoothness else np.inf

    @cached_property
    def pairs(self):
        """Pairs that decide ``W^mm``, or contradict each other, heaviest first: list of Pair."""
        if self.separable is None or not len(self.order.strict):
            return []
        weights = self.svm.multipliers if self.separable else self.refusal.certificate
        shares = weights / weights.sum()
        # A certificate is seldom unique and has few sure digits: by the two that are printed,
        # so that rounding does not reorder pairs that weigh the same.
        heavy = np.argsort([-two_digits(share) for share in shares], kind="stable")
        position = self.order.positions(self.order.strict)
        found = []
        for k in heavy[shares[heavy] > USED]:
            group, *ends = self.order.strict[k].tolist()
            labels = self.order.components[position[k]]
            tied = (tuple(np.flatnonzero(labels == labels[v]).tolist()) for v in ends)
            found.append(Pair(float(shares[k]), group, *tied))
        return found

    def log10_steps(self, degrees):
        """Decimal logarithm of the steps of GD, of size ``1/L`` from zero, to stay that close.

        Read off the gradient flow at ``t = k/L`` and, beyond its end, off the late law. Without a
        flow the law alone answers, with a lower bound as the angle tends to zero: at 1 degree
        still a rough one, at 10 degrees wrong by decades. ``nan`` where there is neither.

        Raises
        ------
        ValueError
            ``degrees`` outside the open interval from 0 to 90.
        """
        if not 0 < degrees < 90:
            raise ValueError(f"degrees is {degrees}; it must lie between 0 and 90")
        if self.law is None:
            return np.nan
        goal, late = np.radians(degrees), []
        if self.flow is not None:
            late = np.flatnonzero(~(self.angle <= goal))
            if not len(late):
                return 0.0
        if len(late) and late[-1] + 1 < len(self.angle):
            ends = slice(late[-1], late[-1] + 2)
            cot = 1 / np.tan(self.angle[ends])  # late, it is linear in log t
            log_time = np.interp(1 / np.tan(goal), cot, self.flow.log_times[ends])
        else:
            constant, shift = self.law
            log_time = constant / np.tan(goal) - shift
        return max(0.0, float((log_time - np.log(self.step)) / np.log(10)))

    def __str__(self):
        """Write the report, a line for each finding."""
        d, sizes = self.data, self.data.support.sum(1)
        spread = f"{sizes.min()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
        lines = [
            f"{len(d.context_probs)} contexts, {d.vocab_size} tokens; different next "
            f"tokens of a context: {spread}",
            f"W has shape {d.shape[0]} × {d.shape[1]}"
            + (", context embeddings drawn at random" if self.drawn else ""),
            f"entropy {d.entropy:.4g} nats: no training loss is lower",
        ]
        if self.compatible:
            lines.append("compatible: some finite W has the log-odds of all tied tokens right")
        else:
            lines += [
                "not compatible: no W has the log-odds of all tied tokens right,",
                "    so the loss stays above the entropy",
            ]
        total, used = len(self.order.strict), len(self.pairs)
        if self.separable is None:
            lines.append(f"separable or not: {self.refusal}")
        elif not self.separable:
            contexts = len({pair.context for pair in self.pairs})
            lines += [
                "not separable: there is no W^mm, and the loss stays above the entropy",
                f"{used} of {total} ordered pairs, in {contexts} contexts, contradict each other",
            ]
        elif not total:
            lines.append("separable, for nothing is ordered: training ends at finite weights")
        else:
            proof = max(self.svm.kkt_residual, 1e-10)
            lines += [
                f"separable with margin {self.margin:.4g} (KKT residual at most {proof:.0e}):",
                "    the weights grow without bound towards W^mm",
                f"{used} of {total} ordered pairs decide W^mm",
            ]
        lines += [f"    {self.spell(pair)}" for pair in self.pairs[:LISTED]]
        if used > LISTED:
            lines.append(f"    and {used - LISTED} lighter")
        if self.separable and total:
            lines += self._when()
        return "\n".join(lines)

    def _when(self):
        if self.law is None:
            return ["steps to a given angle: not known, for the multipliers are not unique"]
        known, caution = ANGLES, ""
        if self.flow is None:
            known, caution = ANGLES[-1:], " (by the late law, often too few)"
        lines = [f"steps of gradient descent, of size 1/L = {self.step:.3g} from zero:"]
        for degrees in known:
            steps = self.log10_steps(degrees)
            when = f"{float(f'{10**steps:.2g}'):,.0f}" if steps < 6 else f"10^{steps:.1f}"
            lines.append(f"    about {when} to come within {degrees}° of W^mm{caution}")
        return lines

    def spell(self, pair):
        """Write one of :attr:`pairs` in words."""
        share, context, *ends = pair
        winners, losers = map(self._tie, ends)
        return f"{share:.2g}: {winners} > {losers}, after {self.context_name(context)}"

    def _tie(self, tokens):
        more = " = …" if len(tokens) > NAMED else ""
        return " = ".join(map(self._name, tokens[:NAMED])) + more

    def _name(self, token):
        return str(token) if self.words is None else self.words[token]

    def context_name(self, context):
        """Name a context by its words where they are known, and by its number otherwise."""
        contexts = self.data.contexts
        if contexts is not None:
            return "'" + " ".join(self._name(v) for v in contexts[context]) + "'"
        names = self.data.group_names
        rows = np.array_equal(names, np.arange(len(self.data.context_probs)))
        return f"context {context}" if rows else f"query {context}"

    def plot(self):
        """Draw how many tokens follow, which contexts decide, and the way in time.

        In the style that matplotlib is set to. Without a flow the way is the late law, and the
        loss is left out; where the data are not separable there is no way to draw.

        Returns
        -------
        matplotlib Figure
        """
        return draw(self)

    @property
    def log10_flow_steps(self):
        """Decimal logarithms of the steps of GD at which :attr:`flow` was recorded."""
        return (self.flow.log_times - np.log(self.step)) / np.log(10)


def report(data, *, words=None, context_length=2, dim=None, seed=0):
    """Say what next-token training on some data will do, before training.

    Parameters
    ----------
    data : NextTokenData or str
        A text is split into lower-case words without punctuation; every ``context_length`` of them
        in a row are a context, and its embedding is drawn from the standard normal law.
    words : sequence of str, optional
        Names of the tokens. Default for a text: its words.
    context_length, dim, seed : int
        For a text only. ``dim`` is by default the number of distinct contexts, with which
        compatibility and separability are certain (T24 Lemma 1).

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        A text with fewer than ``context_length + 1`` words, or the wrong number of ``words``.
    TypeError
        Anything else than data or a text.
    ConvergenceError
        The finite part, or the flow, was not found to the accuracy promised.

    Examples
    --------
    >>> found = report("the cat sat on the mat and the dog sat on the rug")
    >>> found.separable, len(found.data.contexts), found.words[:3]
    (True, 9, ('and', 'cat', 'dog'))
    """
    drawn = isinstance(data, str)
    if drawn:
        words, data = _read(data, context_length, dim, seed)
    elif not isinstance(data, NextTokenData):
        raise TypeError(f"data is of type {type(data).__name__}; NextTokenData or str is needed")
    if words is not None and not isinstance(words, list | tuple):
        raise TypeError(f"words is of type {type(words).__name__}; a list of names is needed")
    if words is not None and len(words) != data.vocab_size:
        raise ValueError(f"words has {len(words)} entries; the vocabulary has {data.vocab_size}")
    order, finite = token_priority(data), finite_part(data)
    svm = refusal = flow = angle = law = None
    try:
        svm = max_margin(data)
    except (NotSeparableError, ConvergenceError) as error:
        refusal = error
    if svm is not None and len(order.strict):
        try:
            if np.count_nonzero(dominated(data, order)) <= FLOW_UP_TO:
                flow = gradient_flow(data, LOG_STEPS - np.log(data.smoothness))
        except ConvergenceError:  # ties that settle over many decades: the late law must do
            pass
        if flow is not None:
            angle = flow.compare(finite, svm).angle
            law = late_law(flow.W[-1] - svm.W * flow.log_times[-1], svm)
        else:
            law = late_law(next_order(data, order, finite, svm), svm)
    names = None if words is None else tuple(words)
    return Report(data, order, finite, svm, refusal, flow, angle, law, names, drawn)


def _read(text, context_length, dim, seed):
    context_length = as_integer("context_length", context_length, 1)
    if dim is not None:
        dim = as_integer("dim", dim, 1)
    found = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text.lower())
    if len(found) <= context_length:
        raise ValueError(
            f"data is a text of {len(found)} words; at least context_length + 1 = "
            f"{context_length + 1} are needed"
        )
    words = sorted(set(found))
    token = {word: v for v, word in enumerate(words)}
    tokens = [token[word] for word in found]
    starts = range(len(tokens) - context_length)
    contexts = len({tuple(tokens[i : i + context_length]) for i in starts})
    rng, q = np.random.default_rng(as_seed("seed", seed)), contexts if dim is None else dim
    return words, NextTokenData.from_sequences(
        [tokens],
        lambda context: rng.standard_normal(q),
        context_length=context_length,
        vocab_size=len(words),
    )
