"""Where the panels of a figure lie: found once, and rounded."""

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure, SubFigure
from matplotlib.transforms import Bbox

DPI = 140
"""Dots per inch of the PNG files, and of pictures inside drawings."""
PLACES = 6
"""Decimal places of a panel's position, in parts of the figure: a thousandth of a pixel."""
NO_ENGINE: dict[Any, Any] = {"figure.autolayout": False, "figure.constrained_layout.use": False}
"""Settings with which a figure without a layout engine stays without one."""


def lay_out(fig: Figure) -> None:
    """Let a figure's layout engine, if it has one, place its panels, without drawing the figure.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.layout import lay_out
    >>> figures.use_style()
    >>> fig, ax = figures.plt.subplots()
    >>> before = ax.get_position().width
    >>> lay_out(fig)
    >>> bool(ax.get_position().width > before)
    True
    >>> figures.plt.close(fig)
    """
    engine = fig.get_layout_engine()
    if engine is not None and fig.axes:
        engine.execute(fig)


def settle_layout(fig: Figure) -> None:
    """Let a figure's layout engine place its panels once and for all, at rounded places.

    The engine's last digits differ from run to run; names in an SVG file are hashes of them.

    Parameters
    ----------
    fig : matplotlib Figure
        It has no layout engine afterwards.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.layout import settle_layout
    >>> figures.use_style()
    >>> fig, ax = figures.plt.subplots()
    >>> settle_layout(fig)
    >>> places = ax.get_position().extents
    >>> bool((places == places.round(6)).all()), fig.get_layout_engine()
    (True, None)
    >>> figures.plt.close(fig)
    """
    fig.set_dpi(DPI)  # words are measured as large as the PNG will have them
    lay_out(fig)
    with mpl.rc_context(NO_ENGINE):
        fig.set_layout_engine(None)
    for part in fig.findobj(SubFigure):
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(PLACES))
        part.transSubfigure.invalidate()
    for ax in fig.axes:
        ax.set_position(Bbox(ax.get_position(original=True).get_points().round(PLACES)))
