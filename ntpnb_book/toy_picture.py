"""The toy of Chapter 1 as the book draws it: contexts as dots, word vectors as arrows.

Everything draws into axes that are given; matplotlib is loaded when something is drawn.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ntpnb.basics.validation import FloatArray
from ntpnb_book.drawing import INK, PALETTE, arrow, label_point

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from ntpnb.problem.data import NextTokenData

__all__ = ["CONTEXTS", "WORDS", "draw_contexts", "draw_paths", "draw_rows"]

CONTEXTS = "ABC"
"""Names of the toy's contexts."""

WORDS = PALETTE[:5]
"""A colour for each of the toy's five words."""

_SAME = 1e-9  # rows closer than this share one arrow
_DOTS = 4, 26  # areas of the first and the last dot of a path, in square points
_TRIANGLE = "#e9e6dc"  # a shade that letters of every word's colour can be read on


def _write_support(
    ax: "Axes",
    h: FloatArray,
    words: npt.NDArray[np.integer[Any]],
    offset: tuple[float, float],
    align: tuple[float, float],
) -> None:
    """Write {1, 4, 5} beside a context, each word in its colour."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea

    pieces: list[Artist] = [TextArea("{", textprops={"color": INK})]
    for place, v in enumerate(words):
        if place > 0:
            pieces.append(TextArea(", ", textprops={"color": INK}))
        pieces.append(TextArea(f"{v + 1}", textprops={"color": WORDS[v], "weight": "bold"}))
    pieces.append(TextArea("}", textprops={"color": INK}))
    box = HPacker(children=pieces, pad=0, sep=0, align="baseline")
    written = AnnotationBbox(
        box,
        (h[0], h[1]),
        offset,
        frameon=False,
        pad=0,
        boxcoords="offset points",
        box_alignment=align,
    )
    ax.add_artist(written)


def draw_contexts(
    ax: "Axes",
    data: "NextTokenData",
    *,
    names: Sequence[str] = CONTEXTS,
    triangle: bool = False,
) -> None:
    """Draw contexts as named dots, each with the words that follow it.

    Parameters
    ----------
    ax : Axes
    data : NextTokenData
        In two dimensions, with at most five words.
    names : sequence of str, length m
        Default: A, B and C.
    triangle : bool
        Whether to shade the polygon of the contexts, which separability is about.

    Examples
    --------
    >>> import ntpnb
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import toy_picture
    >>> ax = Figure().subplots()
    >>> toy_picture.draw_contexts(ax, ntpnb.datasets.toy())
    >>> [text.get_text() for text in ax.texts]
    ['A', 'B', 'C']
    """
    H = data.context_embeddings
    if triangle:
        ax.fill(H[:, 0], H[:, 1], color=_TRIANGLE, zorder=0)
    for name, h, follows in zip(names, H, np.asarray(data.support), strict=True):
        ax.plot(h[0], h[1], "o", color="black", markersize=6, zorder=6)
        label_point(ax, h, name, (-8, 0), ha="right", weight="bold")
        words = np.flatnonzero(follows)
        if h[1] > 0:
            _write_support(ax, h, words, (9, 0), (0, 0.5))
        else:
            _write_support(ax, h, words, (0, -8), (0.5, 1))
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)


def draw_rows(
    ax: "Axes",
    W: npt.ArrayLike,
    *,
    hyperplanes: bool = True,
    nudge: Mapping[int, npt.ArrayLike] | None = None,
) -> None:
    """Draw the rows of W as arrows; equal rows share an arrow in two colours and a name.

    Parameters
    ----------
    ax : Axes
    W : array_like, shape (5, 2)
    hyperplanes : bool
        Whether to draw, across each arrow, the line on which its word scores zero.
    nudge : mapping of int to pair of float, optional
        Where the name of a word (1 to 5) stands, from the arrow's tip, in points.

    Examples
    --------
    >>> import ntpnb
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import toy_picture
    >>> ax = Figure().subplots()
    >>> toy_picture.draw_rows(ax, ntpnb.max_margin(ntpnb.datasets.toy()).W)
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['$w_1 = w_5$', '$w_2$', '$w_3$', '$w_4$']
    """
    from matplotlib.colors import to_rgb

    rows = np.asarray(W, dtype=float)
    places = nudge or {}
    for v, (w, color) in enumerate(zip(rows, WORDS, strict=True)):
        same = np.flatnonzero(np.linalg.norm(rows - w, axis=1) < _SAME)
        first = bool(v == same[0])
        unit = w / np.linalg.norm(w)
        if hyperplanes and first:
            across = (-unit[1], unit[0])
            ax.axline(
                (0, 0),
                across,
                color=color,
                zorder=1,
                linestyle=(0, (7, 7)),
                linewidth=0.9,
                alpha=0.7,
            )
        arrow(
            ax,
            (0, 0),
            w,
            color,
            zorder=4,
            arrowstyle="-|>,head_width=.28,head_length=.55",
            mutation_scale=14,
            linewidth=2.4,
            linestyle="-" if first else (0, (2, 1.6)),
        )
        if first:
            name = " = ".join(f"w_{u + 1}" for u in same)
            offset = np.asarray(places.get(v + 1, 13 * unit), dtype=float)
            darker = tuple(0.75 * channel for channel in to_rgb(color))
            label_point(ax, w, f"${name}$", offset, color=darker, zorder=7)


def draw_paths(ax: "Axes", rows: npt.ArrayLike, *, dots: Sequence[int] = ()) -> None:
    """Draw the ways of the rows of W through the plane, each in the colour of its word.

    Parameters
    ----------
    ax : Axes
    rows : array_like, shape (r, 5, 2)
        The matrices that training passed, scaled as they should be seen.
    dots : sequence of int
        Positions among the r matrices that get a dot; the dots grow along the way.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import toy_picture
    >>> ax = Figure().subplots()
    >>> toy_picture.draw_paths(ax, np.zeros((3, 5, 2)), dots=[0, 2])
    >>> len(ax.lines), len(ax.collections)
    (5, 5)
    """
    passed = np.asarray(rows, dtype=float)
    marked = np.asarray(dots, dtype=int)
    sizes = np.linspace(*_DOTS, len(marked))
    for way, color in zip(passed.transpose(1, 2, 0), WORDS, strict=True):
        ax.plot(way[0], way[1], color=color, linestyle="-", linewidth=1.1, zorder=3)
        if len(marked) > 0:
            ax.scatter(way[0, marked], way[1, marked], sizes, color=color, zorder=3)
