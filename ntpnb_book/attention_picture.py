"""Sequences, token-priority graphs and tokens in the plane, as the chapters on attention draw them.

Everything draws into axes that are given; matplotlib is loaded when something is drawn.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ntpnb.basics.validation import BoolArray, FloatArray
from ntpnb.problem.order import token_priority
from ntpnb_book.drawing import INK, PALE, PALETTE, arrow, disc, label_point
from ntpnb_book.vocabulary import priority_graph, reachable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Circle

    from ntpnb.problem.data import NextTokenData

__all__ = ["TOKENS", "draw_graph", "draw_plane", "draw_sequences", "draw_token", "ranks"]

TOKENS = (*PALETTE[:5], "#6a5acd", "#a8326e", "#2f6f4f")
"""A colour for each of up to eight tokens."""

_TIED = PALETTE[1]  # arrows within a component
_SHADE = "#f6e6da"  # behind the tokens of a component
_STEP = 0.62  # from one token of a sequence to the next
_GAP = 0.4  # between two ranks of a graph
_SAME_SIDE = 1e-9  # tokens closer than this stand below each other


def draw_token(
    ax: "Axes",
    centre: Sequence[float] | FloatArray,
    token: int,
    *,
    radius: float = 0.21,
    pale: bool = False,
    ring: bool = False,
) -> "Circle":
    """Draw a token as a disc with its number, counted from one.

    Parameters
    ----------
    ax : Axes
        With ``aspect="equal"``.
    centre : pair of float
    token : int
        Counted from zero.
    radius : float
    pale : bool
        Whether the token is left out of something.
    ring : bool
        Whether the token is a query, which has a ring.

    Returns
    -------
    Circle
        The disc.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import attention_picture
    >>> ax = Figure().subplots()
    >>> drawn = attention_picture.draw_token(ax, (0, 0), 2, ring=True)
    >>> ax.texts[0].get_text(), len(ax.patches)
    ('3', 2)
    """
    from matplotlib.patches import Circle

    color = PALE if pale else TOKENS[token]
    letters = INK if pale else "white"
    drawn = disc(ax, centre, radius, color, f"{token + 1}", text_color=letters, zorder=5)
    if ring:
        around = Circle(
            (centre[0], centre[1]), 1.35 * radius, fill=False, color=INK, linewidth=1.2, zorder=5
        )
        ax.add_patch(around)
    return drawn


def draw_sequences(
    ax: "Axes",
    sequences: Iterable[Sequence[int]],
    labels: Iterable[int],
    *,
    first: int = 1,
    kept: npt.ArrayLike | None = None,
) -> None:
    """Draw one sequence a line: its number, its tokens, an arrow and the label.

    Parameters
    ----------
    ax : Axes
        Of its own; its limits and aspect are set.
    sequences : iterable of sequence of int
        Tokens counted from zero; the last one of each is its query.
    labels : iterable of int
    first : int
        Number of the first sequence.
    kept : array_like of bool, shape (number of sequences, V), optional
        The tokens that are not pale; without it all of them.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import attention_picture
    >>> ax = Figure().subplots()
    >>> attention_picture.draw_sequences(ax, [(0, 1), (1, 2)], [0, 1])
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['(1)', '1', '2', '1', '(2)', '2', '3', '2']
    """
    rows = [tuple(sequence) for sequence in sequences]
    longest = max(map(len, rows))
    end = _STEP * (longest - 1)
    for r, (tokens, label) in enumerate(zip(rows, labels, strict=True)):
        ax.text(-0.75, -r, f"({first + r})", ha="center", va="center", color=INK)
        start = end - _STEP * (len(tokens) - 1)
        for t, v in enumerate(tokens):
            pale = kept is not None and not np.asarray(kept)[r, v]
            last = t == len(tokens) - 1
            draw_token(ax, (start + _STEP * t, -r), v, pale=pale, ring=last)
        arrow(ax, (end + 0.51, -r), (end + 1.11, -r), shrinkA=2, shrinkB=2)
        draw_token(ax, (end + 1.41, -r), label)
    ax.set(aspect="equal", xlim=(-1.1, end + 1.76), ylim=(0.4 - len(rows), 0.6))
    ax.axis("off")


def ranks(data: "NextTokenData", group: int) -> list[list[list[int]]]:
    """Sort the components of a token-priority graph into ranks, the highest first.

    Parameters
    ----------
    data : NextTokenData
    group : int
        A name in ``data.context_groups``.

    Returns
    -------
    list of list of list of int
        For each rank its components, each as the list of its tokens. A component stands one rank
        below the lowest component with an arrow to it.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import attention_picture
    >>> attention_picture.ranks(ntpnb.datasets.figure2(), 1)
    [[[0, 1, 2]], [[3]]]
    """
    order = token_priority(data)
    labels = order.components[np.searchsorted(order.groups, group)]
    names = np.unique(labels[labels >= 0])
    members = [np.flatnonzero(labels == name).tolist() for name in names]
    own = order.strict[order.strict[:, 0] == group, 1:].tolist()
    rank: dict[int, int] = {}
    while len(rank) < len(members):
        for tokens in members:
            above = [i for i, j in own if j == tokens[0]]
            if all(i in rank for i in above):
                rank[tokens[0]] = 1 + max((rank[i] for i in above), default=-1)
    lowest = max(rank.values())
    return [[m for m in members if rank[m[0]] == r] for r in range(lowest + 1)]


def _blocked(place: dict[int, FloatArray], i: int, j: int) -> bool:
    """Say whether a straight arrow from token i to token j would cross another token."""
    along = place[j] - place[i]
    others = [xy - place[i] for v, xy in place.items() if v not in (i, j)]
    to = np.array(others).reshape(-1, 2)
    share = np.clip(to @ along / (along @ along), 0, 1)
    away = np.linalg.norm(to - share[:, None] * along, axis=1)
    return bool((away < 0.35).any())


def _link(ax: "Axes", start: "Circle", end: "Circle", color: str, bend: float = 0.0) -> None:
    """Draw an arrow from the edge of one circle to that of another."""
    arrow(
        ax,
        start.center,
        end.center,
        color,
        arrowstyle="-|>,head_width=.2,head_length=.4",
        mutation_scale=12,
        linewidth=1.2,
        connectionstyle=f"arc3,rad={bend}",
        patchA=start,
        patchB=end,
        shrinkB=1,
    )


def _put_components(
    ax: "Axes", rows: list[list[list[int]]]
) -> tuple[dict[int, FloatArray], dict[int, "Circle"]]:
    """Draw each component's dashed circle; return the tokens' places and the circles."""
    from matplotlib.patches import Circle

    place: dict[int, FloatArray] = {}
    circles: dict[int, Circle] = {}
    gap = _GAP + 0.12 * max(map(len, rows))
    y = 0.0
    for row in rows:
        radius = [0.37 if len(m) == 1 else 0.25 + 0.3 * len(m) ** 0.8 for m in row]
        y -= max(radius)
        x = -sum(radius) - 0.06 * (len(row) - 1)
        for tokens, r in zip(row, radius, strict=True):
            x += r
            first = np.pi if len(tokens) == 2 else np.pi / 2  # two side by side
            turns = first + 2 * np.pi * np.arange(len(tokens)) / len(tokens)
            ring = 0.0 if len(tokens) == 1 else r - 0.36
            for v, a in zip(tokens, turns, strict=True):
                place[v] = np.array([x + ring * np.cos(a), y + ring * np.sin(a)])
            style: dict[str, Any] = {"edgecolor": INK, "linestyle": (0, (4, 3)), "linewidth": 1}
            shaded = len(tokens) > 1
            circle = Circle((x, y), r, fill=shaded, facecolor=_SHADE, zorder=0, **style)
            ax.add_patch(circle)
            circles[tokens[0]] = circle
            x += r + 0.12
        y -= max(radius) + gap
    return place, circles


def _cover(data: "NextTokenData", group: int, tops: list[int]) -> BoolArray:
    """Which components stand directly above which others: arrows that no path implies."""
    reach = reachable(data, group)[np.ix_(tops, tops)]
    strict = reach & ~np.eye(len(tops), dtype=bool)
    return strict & ~(strict @ strict)


def draw_graph(ax: "Axes", data: "NextTokenData", group: int, *, covers: bool = False) -> None:
    """Draw a token-priority graph: components in dashed circles, higher ones further up.

    The query has a ring. Arrows within a component have a colour of their own.

    Parameters
    ----------
    ax : Axes
        Of its own; its limits and aspect are set.
    data : NextTokenData
        With at most eight tokens.
    group : int
        A name in ``data.context_groups``.
    covers : bool
        Whether to leave out, between components, the arrows that a path implies.

    Examples
    --------
    >>> import ntpnb
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import attention_picture
    >>> ax = Figure().subplots()
    >>> attention_picture.draw_graph(ax, ntpnb.datasets.figure2(), 1)
    >>> sorted(text.get_text() for text in ax.texts if text.get_text())
    ['1', '2', '3', '4']
    """
    rows = ranks(data, group)
    place, circles = _put_components(ax, rows)
    discs = {v: draw_token(ax, xy, v, ring=v == group) for v, xy in place.items()}
    component = {v: m[0] for row in rows for m in row for v in m}
    for i, j in np.argwhere(priority_graph(data, group)).tolist():
        if component[i] == component[j]:
            _link(ax, discs[i], discs[j], _TIED, 0.18)
        elif not covers:
            outwards = -1 if place[i][0] > place[j][0] + _SAME_SIDE else 1
            bend = 0.36 * outwards * _blocked(place, i, j)
            _link(ax, discs[i], discs[j], INK, bend)
    if covers:
        tops = list(circles)
        for i, j in np.argwhere(_cover(data, group, tops)).tolist():
            _link(ax, circles[tops[i]], circles[tops[j]], INK)
    wide = [(c.center[0], max(0.7, c.radius + 0.1)) for c in circles.values()]
    x_range = (min(x - r for x, r in wide), max(x + r for x, r in wide))
    low = min(y for _, y in place.values()) - 0.7
    ax.set(aspect="equal", xlim=x_range, ylim=(low, 0.1))
    ax.axis("off")


def draw_plane(
    ax: "Axes",
    embeddings: npt.ArrayLike,
    query: int,
    direction: npt.ArrayLike,
    *,
    name: str = "",
    offset: tuple[float, float] = (12, 8),
    levels: Iterable[int] = (),
    pale: Iterable[int] = (),
) -> None:
    """Draw tokens in the plane, and the arrow ``W e_k`` along which attention compares them.

    Parameters
    ----------
    ax : Axes
    embeddings : array_like, shape (V, 2)
    query : int
        The last token k, which has a ring.
    direction : array_like, shape (2,)
        The arrow ``W e_k``, from the origin.
    name : str
        Written at the arrow's tip, `offset` away in points.
    offset : pair of float
    levels : iterable of int
        Tokens through which to draw the line of equal score, across the arrow.
    pale : iterable of int
        Tokens that do not take part.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from ntpnb_book import attention_picture
    >>> ax = Figure().subplots()
    >>> attention_picture.draw_plane(ax, np.eye(2), 0, [1, 2], name="w", levels=[1])
    >>> len(ax.lines)
    2
    """
    E = np.asarray(embeddings, dtype=float)
    w = np.asarray(direction, dtype=float)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.plot(0, 0, "+", color=INK, markersize=7)
    for v in levels:
        line = ax.axline(E[v], E[v] + (-w[1], w[0]), color=TOKENS[v], linewidth=0.9, zorder=1)
        line.set_linestyle((0, (6, 5)))
    absent = set(pale)
    for v, e in enumerate(E):
        draw_token(ax, e, v, radius=0.12, ring=v == query, pale=v in absent)
    heads = {"arrowstyle": "-|>,head_width=.28,head_length=.55", "mutation_scale": 14}
    arrow(ax, (0, 0), w, INK, linewidth=2.4, zorder=4, **heads)
    if name:
        label_point(ax, w, name, offset, color=INK, zorder=7)
