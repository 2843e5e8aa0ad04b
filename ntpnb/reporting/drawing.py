"""The figure of a report: supports, deciding contexts, and the way of gradient descent."""

import numpy as np

DRAWN = 12  # decades of steps in the figure


def two_digits(share):
    """Return ``share`` as a report prints it."""
    return float(f"{share:.2g}")


def draw(report):
    """Draw :meth:`ntpnb.report.Report.plot`: one figure of two to four panels."""
    import matplotlib.pyplot as plt

    panels = 4 if report.flow is not None else 2 + (report.law is not None)
    rows = (panels + 1) // 2
    fig, axes = plt.subplots(rows, 2, figsize=(7.6, 2.7 * rows), layout="constrained")
    axes = list(axes.flat)
    _supports(report, axes[0])
    _contexts(report, axes[1])
    if report.flow is not None:
        _way(report, axes[2])
        steps = report.log10_flow_steps
        near = steps <= DRAWN
        axes[3].plot(steps[near], report.flow.excess[near], color="C0", linestyle="-")
        axes[3].set(
            yscale="log", xlabel="log10 of steps of GD", title="loss above the entropy (nats)"
        )
    elif panels == 3:
        _way(report, axes[2])
        axes[3].remove()
    return fig


def _supports(report, ax):
    sizes, contexts = np.unique(report.data.support.sum(1), return_counts=True)
    ax.bar(sizes, contexts, color="C0")
    ax.grid(False, axis="x")
    ax.set_axisbelow(True)
    ax.set(xlabel="different next tokens", title="number of contexts")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _contexts(report, ax):
    totals = {}
    for pair in report.pairs:
        totals[pair.context] = totals.get(pair.context, 0.0) + pair.share
    top = sorted(totals, key=lambda c: -two_digits(totals[c]))[:8]
    ax.barh(range(len(top)), [totals[c] for c in top], color="C0")
    ax.set_yticks(range(len(top)), [report.context_name(c) for c in top])
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.set_axisbelow(True)
    what = "who decides" if report.separable else "who contradicts"
    ax.set(title=f"{what}: share of the multipliers")


def _way(report, ax):
    if report.flow is None:  # the law holds at small angles only
        degrees, dash = np.geomspace(5, 1), "--"
        steps = [report.log10_steps(x) for x in degrees]
    else:
        steps, dash = report.log10_flow_steps, "-"
        near = steps <= DRAWN
        steps, degrees = steps[near], np.degrees(report.angle[near])
    ax.plot(steps, degrees, color="C1", linestyle=dash)
    ax.set(
        xlabel="log10 of steps of GD",
        title="angle to $W^{\\mathrm{mm}}$ (degrees)",
        ylim=(0, None),
    )
