"""The figure of a report: supports, deciding contexts, and the way of gradient descent."""

from typing import TYPE_CHECKING

import numpy as np

from ntpnb.array_types import FloatArray
from ntpnb.reporting.findings import Findings, two_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST_DECADE = 12  # the time axis of the figure ends at 10^12 steps
CONTEXTS_SHOWN = 8


def draw(found: Findings) -> "Figure":
    """Draw one figure of two to four panels.

    Parameters
    ----------
    found : Findings

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
    >>> from ntpnb.reporting.drawing import draw
    >>> len(draw(ntpnb.report(ntpnb.datasets.toy())).axes)
    4
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "Report.plot needs matplotlib; install it with pip install 'ntpnb[book]'"
        ) from None

    panels = [_draw_supports, _draw_contexts]
    if found.flow is not None:
        panels += [_draw_flow, _draw_excess]
    elif found.law is not None:
        panels += [_draw_late_law]
    rows = (len(panels) + 1) // 2
    fig, axes = plt.subplots(rows, 2, figsize=(7.6, 2.7 * rows), layout="constrained")
    for ax, panel in zip(axes.flat, panels, strict=False):
        panel(found, ax)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    return fig


def _draw_supports(found: Findings, ax: "Axes") -> None:
    sizes, num_contexts = np.unique(found.data.support.sum(1), return_counts=True)
    ax.bar(sizes, num_contexts, color="C0")
    ax.grid(False, axis="x")
    ax.set_axisbelow(True)
    ax.set(xlabel="different next tokens", title="number of contexts")
    ax.locator_params(axis="x", integer=True)


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
    ax.set(title=f"{what}: share of the multipliers")


def _draw_flow(found: Findings, ax: "Axes") -> None:
    assert found.angle is not None  # so says who chose the panel
    steps = found.log10_flow_steps
    assert steps is not None
    shown = steps <= LAST_DECADE
    _draw_angle(steps[shown], np.degrees(found.angle[shown]), "-", ax)


def _draw_late_law(found: Findings, ax: "Axes") -> None:
    degrees = np.geomspace(5, 1)  # the law holds at small angles only
    steps = np.array([found.log10_steps(angle) for angle in degrees])
    _draw_angle(steps, degrees, "--", ax)


def _draw_angle(steps: FloatArray, degrees: FloatArray, dash: str, ax: "Axes") -> None:
    ax.plot(steps, degrees, color="C1", linestyle=dash)
    ax.set(
        xlabel="log10 of steps of GD",
        title="angle to $W^{\\mathrm{mm}}$ (degrees)",
        ylim=(0, None),
    )


def _draw_excess(found: Findings, ax: "Axes") -> None:
    assert found.flow is not None  # as above
    steps = found.log10_flow_steps
    assert steps is not None
    shown = steps <= LAST_DECADE
    ax.plot(steps[shown], found.flow.excess[shown], color="C0", linestyle="-")
    ax.set(yscale="log", xlabel="log10 of steps of GD", title="loss above the entropy (nats)")
