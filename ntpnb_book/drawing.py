"""What the chapters' pictures share: three greys, quantile bands, arrows, discs, labelled points.

Everything draws into axes that are given, so importing this module does not load matplotlib.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ntpnb.basics.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Circle
    from matplotlib.text import Annotation
    from matplotlib.typing import ColorType

__all__ = ["GREY", "INK", "PALE", "PALETTE", "Band", "arrow", "band", "disc", "label_point"]

INK = "#3d3d3d"
"""Nearly black: letters, and lines that belong to no curve."""

GREY = "#8f8f8f"
"""For marks and thin lines behind the curves, contrast 3 against the background."""

PALE = "#c9c9c9"
"""For areas and for what is left out."""

PALETTE = ("#0072b2", "#c74900", "#00342c", "#830768", "#504600", GREY)
"""Okabe and Ito's hues, their lightness spread so that all stay apart under every kind of colour
blindness, with contrast 4.5 or more against the background, as letters need; the grey, which is
for marks alone, with 3."""


class Band(NamedTuple):
    """What `band` drew: quantiles over the curves.

    Attributes
    ----------
    low, median, high : ndarray, shape (r,)

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import drawing
    >>> ax = Figure().subplots()
    >>> drawn = drawing.band(ax, [1, 2], [[0.0, 1.0], [2.0, 5.0]], "black", quantiles=(0, 1))
    >>> drawn.low.tolist(), drawn.median.tolist(), drawn.high.tolist()
    ([0.0, 1.0], [1.0, 3.0], [2.0, 5.0])
    """

    low: FloatArray
    median: FloatArray
    high: FloatArray


def band(
    ax: "Axes",
    x: npt.ArrayLike,
    curves: npt.ArrayLike,
    color: "ColorType",
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    alpha: float = 0.18,
) -> Band:
    """Shade the range between two quantiles of many curves.

    Parameters
    ----------
    ax : Axes
    x : array_like, shape (r,)
    curves : array_like, shape (n, r)
    color : colour
    quantiles : pair of float
        The lower and the upper one, between zero and one.
    alpha : float
        Opacity.

    Returns
    -------
    Band
        The quantiles and the median, with which to draw lines and save data.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import drawing
    >>> ax = Figure().subplots()
    >>> shaded = drawing.band(ax, [0, 1], np.arange(22).reshape(11, 2), drawing.GREY)
    >>> print(shaded.low, shaded.median, shaded.high)
    [2. 3.] [10. 11.] [18. 19.]
    """
    lower, upper = quantiles
    low, median, high = np.quantile(np.asarray(curves, dtype=float), (lower, 0.5, upper), axis=0)
    ax.fill_between(np.asarray(x), low, high, color=color, alpha=alpha, linewidth=0)
    return Band(low, median, high)


def arrow(
    ax: "Axes",
    start: Sequence[float] | FloatArray,
    end: Sequence[float] | FloatArray,
    color: "ColorType" = INK,
    *,
    zorder: float = 3,
    **style: Any,
) -> "Annotation":
    """Draw an arrow from one point of the axes' coordinates to another.

    Parameters
    ----------
    ax : Axes
    start, end : pair of float
    color : colour
    zorder : float
    **style
        Properties of ``matplotlib.patches.FancyArrowPatch``, such as ``linewidth``, ``arrowstyle``
        (by default ``"-|>"``, a filled head) and ``shrinkB`` (by default zero: the tip is at the
        point itself).

    Returns
    -------
    Annotation

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import drawing
    >>> drawn = drawing.arrow(Figure().subplots(), (0, 0), (1, 2), linewidth=2)
    >>> print(drawn.xy, drawn.arrow_patch.get_linewidth())
    (1, 2) 2.0
    """
    properties: dict[str, Any] = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "color": color}
    properties |= style
    tip = (end[0], end[1])
    tail = (start[0], start[1])
    return ax.annotate("", xy=tip, xytext=tail, arrowprops=properties, zorder=zorder)


def label_point(
    ax: "Axes",
    point: Sequence[float] | FloatArray,
    text: str,
    offset: Sequence[float] | FloatArray = (0, 0),
    **style: Any,
) -> "Annotation":
    """Write beside a point.

    Parameters
    ----------
    ax : Axes
    point : pair of float
        In the axes' coordinates.
    text : str
    offset : pair of float
        From the point to the text's centre, in points: the same at every size of the figure.
    **style
        Properties of ``matplotlib.text.Text``, such as ``color``; ``ha`` and ``va`` say which
        part of the text is at the offset, if not its centre.

    Returns
    -------
    Annotation

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import drawing
    >>> drawn = drawing.label_point(Figure().subplots(), (0.5, 0.5), "A", (0, 8))
    >>> print(drawn.get_text(), drawn.xy)
    A (0.5, 0.5)
    """
    place: dict[str, Any] = {"ha": "center", "va": "center"} | style
    at = (point[0], point[1])
    away = (offset[0], offset[1])
    return ax.annotate(text, xy=at, xytext=away, textcoords="offset points", **place)


def disc(
    ax: "Axes",
    centre: Sequence[float] | FloatArray,
    radius: float,
    color: "ColorType",
    text: str = "",
    *,
    text_color: "ColorType" = "white",
    zorder: float = 1,
) -> "Circle":
    """Draw a disc with a short text in it: a token with its number.

    Parameters
    ----------
    ax : Axes
        With ``aspect="equal"``; elsewhere the disc is an ellipse.
    centre : pair of float
    radius : float
    color : colour
    text : str
    text_color : colour
    zorder : float
        Of the disc; the text lies one above.

    Returns
    -------
    Circle

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import drawing
    >>> ax = Figure().subplots()
    >>> print(drawing.disc(ax, (1, 2), 0.2, drawing.INK, "7").center, ax.texts[0].get_text())
    (1, 2) 7
    """
    from matplotlib.patches import Circle

    circle = Circle((centre[0], centre[1]), radius, color=color, zorder=zorder)
    ax.add_patch(circle)
    if text:
        ax.text(
            centre[0],
            centre[1],
            text,
            color=text_color,
            ha="center",
            va="center",
            weight="bold",
            fontsize=9,
            zorder=zorder + 1,
        )
    return circle
