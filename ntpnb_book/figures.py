"""The book's figures: one style, the papers' four panels, and saving with data (`save`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from cycler import cycler
from matplotlib.figure import Figure

from ntpnb_book.drawing import GREY, INK, PALE, PALETTE
from ntpnb_book.frames import save_frames
from ntpnb_book.saving import save

if TYPE_CHECKING:
    from ntpnb.training.comparison import Comparison
    from ntpnb.training.descent import Trace

__all__ = [
    "AMOUNTS",
    "BACKGROUND",
    "DASHES",
    "GREY",
    "INK",
    "MARKERS",
    "PALE",
    "PALETTE",
    "SIGNED",
    "curves",
    "four_panels",
    "ink_on",
    "plt",
    "save",
    "save_frames",
    "use_style",
]

BACKGROUND = "#fcfcfa"
"""An opaque, nearly white card, so that a figure reads the same in light and dark mode."""

AMOUNTS = "Blues"
"""The colour map of what is counted from little to much: more ink is more of what is named."""

SIGNED = "RdBu_r"
"""The colour map around zero, which is pale: red above, blue below."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")

_STYLE: dict[Any, Any] = {
    "figure.figsize": (7.6, 5.4),
    "figure.constrained_layout.use": True,
    "figure.facecolor": BACKGROUND,
    "axes.facecolor": BACKGROUND,
    "axes.prop_cycle": cycler(color=PALETTE) + cycler(linestyle=DASHES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same letters
    "mathtext.fontset": "dejavusans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",  # the name of the vertical axis, above it and upright
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
}


def use_style() -> None:
    """Set the book's style, whatever the reader's own matplotlib settings are.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> figures.use_style()
    >>> figures.plt.rcParams["axes.grid"]
    True
    """
    mpl.rcdefaults()
    mpl.rcParams.update(_STYLE)


def curves(run: "Trace", trace: "Comparison") -> list[dict[str, npt.NDArray[Any]]]:
    """Collect what `four_panels` draws, from one run or a batch.

    Parameters
    ----------
    run : Trace
        What `ntpnb.descend` returned.
    trace : Comparison
        What ``run.compare(fin, svm)`` returned.

    Returns
    -------
    list of dict
        For each problem of the batch (one for a single run), arrays of shape (r,) named as
        `four_panels` wants them.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import figures
    >>> data = ntpnb.datasets.toy()
    >>> run = ntpnb.descend(data, ntpnb.GD(step=0.5), steps=10, record=[0, 1, 10])
    >>> trace = run.compare(ntpnb.finite_part(data), ntpnb.max_margin(data))
    >>> [one] = figures.curves(run, trace)
    >>> one["steps"], one["loss"].shape
    (array([ 0,  1, 10]), (3,))
    """
    of_run = {name: getattr(run, name) for name in ("loss", "excess", "norm")}
    names = ("alignment", "corrected_alignment", "finite_error")
    arrays = of_run | {name: getattr(trace, name) for name in names}
    rows = {name: np.atleast_2d(array) for name, array in arrays.items()}
    return [
        {"steps": run.steps} | {name: row[number] for name, row in rows.items()}
        for number in range(len(rows["loss"]))
    ]


def four_panels(
    groups: Mapping[str, Sequence[Mapping[str, npt.ArrayLike]]],
    *,
    entropy: float | None = None,
    axes: Any = None,
    xlabel: str = "iteration $k$",
    names: tuple[str, str, str] = ("W_k", r"W^\star", r"\mathcal{F}"),
) -> tuple[Figure | None, npt.NDArray[Any]]:
    r"""Draw the papers' four panels: loss, norm, alignment, error on F (T24 Fig. 4, 002).

    Parameters
    ----------
    groups : mapping of str to list of mappings
        For each label (an optimizer, a setting) what `curves` returned: mappings with arrays of
        shape (r,) named ``steps``, ``loss`` or ``excess``, ``norm``, ``alignment``,
        ``corrected_alignment`` and ``finite_error``. The first is drawn in front, the others
        (further seeds) thin. Step 0 is left out: the axis is logarithmic.
    entropy : float, optional
        Draw the loss beside this entropy, in nats. By default the first panel shows
        ``excess``, the loss minus the entropy, on logarithmic axes.
    axes : sequence of four Axes, optional
        Where to draw, in the order above; by default a new figure with two rows.
    xlabel : str
        Name of the horizontal axis.
    names : tuple of str
        How to write iterate, finite part and subspace; the defaults are T24's.

    Returns
    -------
    fig : Figure
        The figure.
    axes : array of Axes, shape (4,)
        Its four axes.

    Raises
    ------
    ValueError
        For more labels than there are colours, or other than four axes.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> names = ("steps", "excess", "norm", "alignment", "corrected_alignment", "finite_error")
    >>> one = {name: [0.5, 1.0] for name in names}
    >>> figures.use_style()
    >>> fig, axes = figures.four_panels({"GD": [one]})
    >>> axes[1].get_title(loc="left")
    '$\\|W_k\\|$'
    >>> figures.plt.close(fig)
    """
    if len(groups) > len(PALETTE):
        raise ValueError(f"groups: at most {len(PALETTE)} can be told apart, found {len(groups)}")
    if axes is None:
        axes = plt.subplots(2, 2, sharex=True)[1]
    axes = np.ravel(axes)
    if axes.shape != (4,):
        raise ValueError(f"axes: four are needed, found {axes.size}")
    loss = "excess" if entropy is None else "loss"
    panels = (
        (0, loss, "-"),
        (1, "norm", "-"),
        (2, "alignment", "--"),
        (2, "corrected_alignment", "-"),
        (3, "finite_error", "-"),
    )
    for (label, seeds), color, marker in zip(groups.items(), PALETTE, MARKERS, strict=False):
        front: dict[str, Any] = {"marker": marker, "markevery": 0.25} if len(groups) > 1 else {}
        # Backwards, so that the first curve is drawn last and lies in front.
        for number, one in reversed(list(enumerate(seeds))):
            style = {"linewidth": 0.8, "alpha": 0.35} if number else front
            later = np.asarray(one["steps"]) > 0
            x = np.asarray(one["steps"])[later]
            for panel, quantity, dash in panels:
                y = np.asarray(one[quantity])[later]
                [line] = axes[panel].plot(x, y, color=color, linestyle=dash, **style)
            line.set_label("_" if number else label)
    _label(axes, entropy, xlabel, *names)
    return axes[0].figure, axes


def ink_on(amount: float) -> str:
    """Say whether black or white letters stand out more on a field of `AMOUNTS`.

    Parameters
    ----------
    amount : float
        What the field shows, from 0 to 1.

    Returns
    -------
    str
        ``"black"`` or ``"white"``, whichever has the larger contrast (WCAG 2.2), at least 4.5.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> figures.ink_on(0.1), figures.ink_on(0.9)
    ('black', 'white')
    """
    rgb = np.array(mpl.colormaps[AMOUNTS](amount)[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    return "black" if light / 0.05 > 1.05 / light else "white"


def _label(
    axes: npt.NDArray[Any], entropy: float | None, xlabel: str, W: str, finite: str, subspace: str
) -> None:
    """Name axes and lines; legends tell lines apart by dash and marker as well as by colour."""
    titles = (
        "CE (nats)" if entropy is not None else "CE − $\\mathcal{H}$ (nats)",
        rf"$\|{W}\|$",
        "alignment with $W^{\\mathrm{mm}}$",
        rf"$\|P_{{{subspace}}}({W}) - {finite}\|$",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xscale="log", title=title)
    for ax in axes:
        # Axes that say no leave their numbers to one below; older matplotlib does not say yes.
        if ax.xaxis.get_tick_params().get("labelbottom", True):
            ax.set_xlabel(xlabel)
    axes[3].set_yscale("log")
    axes[3].legend()
    if entropy is None:
        axes[0].set_yscale("log")
    else:
        axes[0].axhline(entropy, color=INK, linestyle=":", label="$\\mathcal{H}$")
        axes[0].legend()
    for dash, label in (("--", f"${W}$"), ("-", f"${W} - {finite}$")):
        axes[2].plot([], [], color=INK, linestyle=dash, label=label)
    axes[2].legend()
