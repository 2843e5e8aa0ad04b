"""The figure of a report: supports, deciding contexts, and the way of gradient descent."""

from typing import TYPE_CHECKING

import numpy as np

from ntpnb.basics.errors import needs_extra
from ntpnb.basics.validation import FloatArray
from ntpnb.reporting.findings import ANGLES, Findings, Way, two_digits
from ntpnb.reporting.wording import name_direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST_DECADE = 12  # the time axis of the figure ends at 10^12 steps
CONTEXTS_SHOWN = 8


def draw(found: Findings) -> "Figure":
    """Draw one figure of two to six panels.

    Parameters
    ----------
    found : Findings

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
    >>> from ntpnb.reporting.drawing import draw
    >>> len(draw(ntpnb.report(ntpnb.datasets.toy())).axes)
    4
    """
    with needs_extra("plot", "Report.plot"):
        import matplotlib.pyplot as plt

    panels = [_draw_supports, _draw_contexts]
    if found.way is not None:
        panels += [_draw_angle, _draw_excess]
    if found.weights is not None and found.weights.excess.size:
        panels += [_draw_margins]
        if found.weights.excess.size > 1:
            panels += [_draw_checkpoints]
    rows = (len(panels) + 1) // 2
    fig, axes = plt.subplots(rows, 2, figsize=(7.6, 2.7 * rows), layout="constrained")
    for ax, panel in zip(axes.flat, panels, strict=False):
        panel(found, ax)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    return fig


def _draw_supports(found: Findings, ax: "Axes") -> None:
    sizes, num_contexts = np.unique(found.support_sizes, return_counts=True)
    ax.bar(sizes, num_contexts, color="C0")
    ax.grid(False, axis="x")
    ax.set_axisbelow(True)
    ax.set(xlabel="different next tokens", title="number of contexts")
    ax.locator_params(axis="both", integer=True)


def _draw_contexts(found: Findings, ax: "Axes") -> None:
    totals: dict[int, float] = {}
    for pair in found.pairs:
        totals[pair.context] = totals.get(pair.context, 0.0) + pair.share
    # By the digits that are printed, so that rounding does not reorder contexts of one weight.
    heaviest = sorted(totals, key=lambda context: -two_digits(totals[context]))[:CONTEXTS_SHOWN]
    places = range(len(heaviest))
    ax.barh(places, [totals[context] for context in heaviest], color="C0")
    ax.set_yticks(places, [found.context_name(context) for context in heaviest])
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.set_axisbelow(True)
    what = "who decides" if found.separable else "who contradicts"
    ax.set(title=what, xlabel="share of the multipliers")


def _draw_angle(found: Findings, ax: "Axes") -> None:
    way = found.way
    assert way is not None  # so says who chose the panel
    degrees = np.degrees(way.angle)
    _draw_way(way, degrees, ax, "C1")
    if way.descent is not None and way.law is not None:  # from there on, dashed
        later = np.geomspace(degrees[-1], min(degrees[-1], ANGLES[-1]))
        decades = np.array([way.log10_steps_to(angle) for angle in later])
        ax.plot(decades, later, color="C1", linestyle="--")
    ax.set(title=f"angle to {name_direction(found, in_title=True)} (degrees)", ylim=(0, None))


def _draw_excess(found: Findings, ax: "Axes") -> None:
    way = found.way
    assert way is not None  # as above
    _draw_way(way, way.excess, ax, "C0")
    above = "the entropy" if found.twin is None else "its limit"
    ax.set(yscale="log", title=f"loss above {above} (nats)")


def _draw_margins(found: Findings, ax: "Axes") -> None:
    """Margins of all contexts in increasing order: of the last matrix, and fainter of the first."""
    assert found.weights is not None  # as above
    margins = np.sort(found.weights.margin.reshape(-1, found.weights.margin.shape[-1]), axis=1)
    margins[~np.isfinite(margins)] = np.nan  # where nothing must lose
    contexts = np.arange(1, margins.shape[1] + 1)
    if len(margins) > 1:
        ax.plot(contexts, margins[0], color="C0", linestyle=":", label="first")
    ax.plot(contexts, margins[-1], color="C0", linestyle="-", label="last")
    if len(margins) > 1:
        ax.legend()
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.set(title="margins of $W$", xlabel="contexts, the worst first")
    ax.locator_params(axis="x", integer=True)


def _draw_checkpoints(found: Findings, ax: "Axes") -> None:
    """Angle to the direction of each matrix, or its loss where there is no direction."""
    seen = found.weights
    assert seen is not None  # as above
    angles = np.degrees(seen.angle.ravel())
    numbers = np.arange(1, angles.size + 1)
    if np.isnan(angles).all():
        ax.plot(numbers, seen.excess.ravel(), color="C0", marker="o")
        ax.set(yscale="log", title="loss of $W$ above the entropy (nats)")
    else:
        ax.plot(numbers, angles, color="C1", marker="o")
        ax.set(
            title=f"angle of $W$ to {name_direction(found, in_title=True)} (degrees)",
            ylim=(0, None),
        )
    ax.set(xlabel="matrices, in order")
    ax.locator_params(axis="x", integer=True)


def _draw_way(way: Way, values: FloatArray, ax: "Axes", color: str) -> None:
    """Draw values along the way, over powers of ten."""
    shown = way.log10_steps <= LAST_DECADE
    ax.plot(way.log10_steps[shown], values[shown], color=color, linestyle="-")
    ax.set(xlabel="steps of size $1/L$")
    ax.locator_params(axis="x", integer=True)
    ax.xaxis.set_major_formatter("$10^{{{x:.0f}}}$")
