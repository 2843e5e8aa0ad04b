"""A report on one's own data: what training on it will do, in words, numbers and one figure."""

import re
from dataclasses import dataclass

import numpy as np

from ntpnb.data import NextTokenData, as_integer, as_seed
from ntpnb.errors import NotSeparableError
from ntpnb.finite import FinitePart, finite_part
from ntpnb.flow import FlowTrace, gradient_flow
from ntpnb.margin import MarginSolution, max_margin
from ntpnb.priority import token_priority

FLOW_UP_TO = 1000  # dominated candidates, in all rows; the flow factors matrices of that size
LOG_TIMES = np.concatenate([np.linspace(-5, 60, 131), np.geomspace(65, 1e5, 70)])


@dataclass(frozen=True, eq=False)
class Report:
    """What :func:`report` found; ``print`` it, or ask :meth:`plot` for its figure.

    Attributes
    ----------
    data : NextTokenData
    finite : FinitePart
    svm : MarginSolution or None
        None where the data are not separable; ``refusal`` then proves it.
    refusal : NotSeparableError or None
    flow : FlowTrace or None
        Gradient flow from zero; None where the data are not separable, where nothing is ordered,
        or where more than 1000 candidates are dominated.
    angle : ndarray or None
        Angle in radians between the flow and ``W^mm``, shape (r,).
    words : sequence of str or None
        Names of the tokens.
    """

    data: NextTokenData
    finite: FinitePart
    svm: MarginSolution | None
    refusal: NotSeparableError | None
    flow: FlowTrace | None
    angle: np.ndarray | None
    words: tuple | None

    @property
    def step(self):
        """The largest step for which gradient descent is proved to descend, ``1/L``."""
        return 1 / self.data.smoothness if self.data.smoothness else np.inf

    def log10_steps(self, degrees):
        """Decimal logarithm of the steps of GD, of size ``1/L`` from zero, to come that close.

        Read off the gradient flow at ``t = k/L``. ``nan`` where there is no flow, and ``inf``
        where the angle is not reached by ``log t = 1e5``.
        """
        if self.angle is None:
            return np.nan
        late = np.flatnonzero(~(self.angle <= np.radians(degrees)))
        if not late.size or late[-1] == len(self.angle) - 1:
            return np.inf if late.size else -np.inf
        log_time = self.flow.log_times[late[-1] + 1]
        return float((log_time - np.log(self.step)) / np.log(10))

    def __str__(self):
        """Write the report, a line for each finding."""
        d, order = self.data, token_priority(self.data)
        sizes = d.support.sum(1)
        lines = [
            f"{len(d.context_probs)} contexts in {d.context_embeddings.shape[1]} dimensions, "
            f"{d.vocab_size} tokens, {sizes.min()} to {sizes.max()} next tokens a context",
            f"entropy {d.entropy:.4g} nats: no training loss is lower",
        ]
        if self.finite.compatible:
            lines.append("compatible: some finite W has all log-odds right")
        else:
            lines.append(
                "not compatible: no W has all log-odds right, so the loss stays above the entropy"
            )
        if self.refusal is not None:
            used = np.count_nonzero(self.refusal.certificate)
            lines.append(
                f"not separable: {used} of {len(order.strict)} ordered pairs contradict each "
                "other, so training ends at finite weights"
            )
        elif not len(order.strict):
            lines.append("nothing is ordered: training ends at finite weights")
        else:
            lines += self._where_it_goes(order)
        return "\n".join(lines)

    def _where_it_goes(self, order):
        svm, name = self.svm, self._name
        shares = svm.multipliers / svm.multipliers.sum()
        lines = [
            f"separable with margin {1 / svm.norm:.4g}: the weights grow without bound towards "
            f"W^mm (KKT residual {svm.kkt_residual:.0e})",
            f"{np.count_nonzero(shares > 1e-9)} of {len(shares)} ordered pairs decide W^mm; "
            "the heaviest, with their shares:",
        ]
        for k in np.argsort(-shares, kind="stable")[:3]:
            group, winner, loser = order.strict[k]
            if shares[k] > 1e-9:
                pair = f"{name(winner)} over {name(loser)}"
                lines.append(f"    {pair} after context {self._context(group)}: {shares[k]:.2g}")
        if self.flow is None:
            lines.append("steps to a given angle: not computed for more than 1000 ordered tokens")
        for degrees in (30, 10, 1) if self.flow is not None else ():
            steps = self.log10_steps(degrees)
            when = f"{np.ceil(10**steps):.0f}" if steps < 6 else f"10^{steps:.1f}"
            if steps == np.inf:
                when = "more than 10^43000"
            lines.append(f"within {degrees}° of W^mm after {when} steps of GD of size 1/L")
        return lines

    def _name(self, token):
        return str(token) if self.words is None else self.words[token]

    def _context(self, group):
        contexts = getattr(self.data, "contexts", None)
        if contexts is None:
            return str(group)
        return "'" + " ".join(self._name(v) for v in contexts[group]) + "'"

    def plot(self):
        """Draw the supports' sizes and, where there is a flow, its angle and loss in time.

        Returns
        -------
        matplotlib Figure
        """
        import matplotlib.pyplot as plt

        fig, axes = plt.subplots(1, 1 if self.flow is None else 3, squeeze=False, figsize=(9, 3))
        sizes = np.bincount(self.data.support.sum(1))
        _ = axes[0, 0].bar(np.arange(len(sizes)), sizes, color="#0072b2")
        _ = axes[0, 0].set(xlabel="next tokens", title="contexts")
        if self.flow is not None:
            steps = (self.flow.log_times - np.log(self.step)) / np.log(10)
            near = (steps >= 0) & (steps <= 30)
            for ax, y, title in (
                (axes[0, 1], np.degrees(self.angle), "angle to W^mm (degrees)"),
                (axes[0, 2], self.flow.excess, "loss above the entropy (nats)"),
            ):
                _ = ax.plot(steps[near], y[near], color="#d55e00")
                _ = ax.set(xlabel="log10 of GD steps", title=title)
            _ = axes[0, 2].set_yscale("log")
        fig.tight_layout()
        return fig


def report(data, *, words=None, context_length=2, dim=None, seed=0):
    """Say what next-token training on some data will do, before training.

    Parameters
    ----------
    data : NextTokenData or str
        A text is split into lower-case words; every ``context_length`` of them are a context, and
        its embedding is drawn from the standard normal law.
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
    """
    if isinstance(data, str):
        words, data = _read(data, context_length, dim, seed)
    elif not isinstance(data, NextTokenData):
        raise TypeError(f"data is of type {type(data).__name__}; NextTokenData or str is needed")
    if words is not None and not isinstance(words, list | tuple):
        raise TypeError(f"words is of type {type(words).__name__}; a list of names is needed")
    if words is not None and len(words) != data.vocab_size:
        raise ValueError(f"words has {len(words)} entries; the vocabulary has {data.vocab_size}")
    finite, svm, refusal, flow, angle = finite_part(data), None, None, None, None
    try:
        svm = max_margin(data)
    except NotSeparableError as error:
        refusal = error
    if svm is not None and svm.norm and _dominated(data) <= FLOW_UP_TO:
        flow = gradient_flow(data, LOG_TIMES)
        angle = flow.compare(finite, svm).angle
    names = None if words is None else tuple(words)
    return Report(data, finite, svm, refusal, flow, angle, names)


def _dominated(data):
    """Count the candidates, over all rows, that are not tied with the row's in-support tokens."""
    labels = token_priority(data).components[data.group_index]
    own = np.take_along_axis(labels, data.support.argmax(1)[:, None], axis=1)
    return np.count_nonzero(data.candidates & (labels != own))


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
