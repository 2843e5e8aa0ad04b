"""The panels of a figure: their letters, and for a telephone one below the other."""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import GridSpec

from ntpnb_book.layout import lay_out, settle_layout

WIDTH = 3.75
"""Inches: what a screen of 390 pixels shows of a page, so that points stay points."""

_PANEL = 3.1  # of these inches a panel has about so many, beside its labels
_LABELS = 0.75  # and so many more it has in height
_LETTERS = "abcd"
_SMALLEST = 0.65  # a sketch drawn smaller than this has its words upon each other


def is_sketch(ax: Axes) -> bool:
    """Say whether neither axis counts anything: no axes at all, or no ticks on them.

    Parameters
    ----------
    ax : Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book.stacking import is_sketch
    >>> plot, sketch = Figure().subplots(1, 2)
    >>> off = sketch.axis("off")
    >>> is_sketch(plot), is_sketch(sketch)
    (False, True)
    """
    ticks = (len(ax.get_xticks()), len(ax.get_yticks()))
    return not ax.axison or ticks == (0, 0)


def letter_panels(fig: Figure | SubFigure) -> None:
    """Name the panels (a), (b), (c) and (d) in reading order, as captions call them.

    Wherever a screen puts them, a caption then finds them. One panel alone, and more than four,
    which are one picture, get no letters.

    Parameters
    ----------
    fig : Figure or SubFigure
        With its panels on one grid, else nothing is named.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.stacking import letter_panels
    >>> fig, axes = figures.plt.subplots(1, 2)
    >>> lines = [ax.plot([0, 1]) for ax in axes]
    >>> letter_panels(fig)
    >>> [ax.texts[0].get_text() for ax in axes]
    ['(a)', '(b)']
    >>> figures.plt.close(fig)
    """
    groups = [panels for panels in _groups(fig) or [] if panels[0].has_data()]
    if 2 <= len(groups) <= len(_LETTERS):
        for name, panels in zip(_LETTERS, groups, strict=False):
            place = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "right"}
            panels[0].annotate(
                f"({name})",
                (0, 1),
                xycoords="axes fraction",
                **place,  # type: ignore[arg-type]
            )


def _groups(fig: Figure | SubFigure) -> list[list[Axes]] | None:
    """Sort the panels by rows, axes that share a place together; None if that does not work."""
    places: dict[tuple[int, ...], list[Axes]] = {}
    grids = set()
    for ax in fig.axes:
        if hasattr(ax, "_colorbar_info"):  # goes where its panels go
            continue
        spec = ax.get_subplotspec()
        if spec is None:
            return None
        grids.add(id(spec.get_gridspec()))
        key = (spec.rowspan.start, spec.colspan.start, spec.rowspan.stop, spec.colspan.stop)
        places.setdefault(key, []).append(ax)
    if len(grids) != 1 or fig.subfigs:
        return None
    return [places[key] for key in sorted(places)]


def _height(fig: Figure, ax: Axes, width: float) -> float | None:
    """Height of a panel of this width, in inches; None for a sketch that would be too small."""
    box = ax.get_position()
    before = np.array([box.width, box.height]) * fig.get_size_inches()
    ratio = before[1] / before[0]
    if is_sketch(ax) or ax.get_aspect() != "auto":
        if width < _SMALLEST * before[0] and is_sketch(ax):
            return None
        return float(min(width * ratio, before[1]))  # never larger than it was
    return float(width * np.clip(ratio, 0.62, 0.85))


def _name_shared(ax: Axes) -> None:
    """Give an axis that left its numbers and name to a neighbour both, as it stands alone now."""
    for which in "xy":
        axis: Any = getattr(ax, f"{which}axis")
        siblings: list[Any] = getattr(ax, f"get_shared_{which}_axes")().get_siblings(ax)
        if len(siblings) < 2 or not axis.get_visible():
            continue
        side = "labelbottom" if which == "x" else "labelleft"
        axis.set_tick_params(**{side: True})
        names = [getattr(one, f"get_{which}label")() for one in siblings]
        named = next((name for name in names if name), "")
        if named and not getattr(ax, f"get_{which}label")():
            getattr(ax, f"set_{which}label")(named)


def _overflows(fig: Figure) -> bool:
    """Say whether something that is drawn would be cut off at the figure's edges."""
    fig.get_tightbbox()  # moves titles away from what they cover, which is measured only then
    drawn = fig.get_tightbbox()
    room = np.array([drawn.min, fig.get_size_inches() - drawn.max])
    return bool((room < -0.04).any())


def _collides(fig: Figure) -> bool:
    """Say whether words beside an axis would stand upon each other."""
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            labels = axis.get_ticklabels() if ax.axison else []
            words = [one for one in labels if one.get_visible() and one.get_text()]
            places = [one.get_window_extent() for one in words]
            if any(one.overlaps(other) for one, other in pairwise(places)):
                return True
    return False


def stack(fig: Figure, columns: int = 1) -> bool:
    """Rearrange a figure for a narrow screen.

    Parameters
    ----------
    fig : Figure
        With its panels on one grid; it is changed, and its layout is settled.
    columns : int
        How many panels stand side by side.

    Returns
    -------
    bool
        False where this cannot be done: panels without a grid, or in parts of a figure; a sketch
        that would become too small; words that a narrow screen would cut off, or that would stand
        upon each other.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> from ntpnb_book.stacking import stack
    >>> figures.use_style()
    >>> fig, (left, right) = figures.plt.subplots(1, 2, figsize=(7.6, 3.5))
    >>> stack(fig), float(fig.get_figwidth())
    (True, 3.75)
    >>> bool(left.get_position().y0 > right.get_position().y1)
    True
    >>> figures.plt.close(fig)
    """
    groups = _groups(fig)
    if not groups:
        return False
    width = _PANEL if columns == 1 else (WIDTH - 0.2) / columns - 0.5
    heights = [_height(fig, panels[0], width) for panels in groups]
    if None in heights:
        return False
    rows = [
        max(height + _LABELS for height in heights[k : k + columns] if height is not None)
        for k in range(0, len(heights), columns)
    ]
    grid = GridSpec(len(rows), columns, figure=fig, height_ratios=rows)
    for number, panels in enumerate(groups):
        for ax in panels:
            ax.set_subplotspec(grid[number // columns, number % columns])
            ax.set_in_layout(True)
            if columns == 1:
                _name_shared(ax)
    fig.set_size_inches(WIDTH, sum(rows))
    fig.set_layout_engine("constrained")
    # Once more is done as it is settled: the first time words were measured where they had been.
    lay_out(fig)
    settle_layout(fig)
    return not _overflows(fig) and not _collides(fig)
