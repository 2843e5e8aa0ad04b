"""Figures that a reader moves: one frame in the notebook, all of them on one strip for a slider.

The notebook shows an ordinary figure. Beside its files lies ``NAME_frames.svg``, the frames one
below the other; `publishing.sphinx_ext` adds a slider, which `book/_static/frames.js` lets choose
the part of the strip that is seen. Without a script the figure stays, and a link to the strip.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure, SubFigure

from ntpnb_book.layout import DPI, settle_layout
from ntpnb_book.saving import render, save
from ntpnb_book.stacking import letter_panels

LIMIT = 400_000
"""Bytes of a strip: it should load on a telephone."""


def _require_frames(texts: list[str], control: str, start: int) -> None:
    """Raise ValueError unless the slider has a label, words for each frame, and a beginning."""
    if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"texts: a text for each of two or more frames is needed, found {texts!r}")
    if not isinstance(control, str) or not control.strip():
        raise ValueError(f"control: the slider needs a label, found {control!r}")
    if start not in range(len(texts)):
        raise ValueError(f"start: there are {len(texts)} frames from 0 on, found {start!r}")


def _strip(
    draw: Callable[[Figure | SubFigure, int], object], count: int, start: int, fig: Figure
) -> Figure:
    """Draw all frames one below the other, each with the places of the axes in `fig`."""
    width, height = fig.get_size_inches()
    strip = plt.figure(figsize=(width, height * count), layout="none")
    parts: Any = strip.subfigures(count)
    for k, part in enumerate(parts):
        draw(part, k)
        if len(part.axes) != len(fig.axes):
            raise ValueError(
                f"draw: frame {start} has {len(fig.axes)} axes, frame {k} {len(part.axes)}"
            )
        for ax, placed in zip(part.axes, fig.axes, strict=True):
            ax.set_position(placed.get_position(original=True))
    return strip


def save_frames(
    draw: Callable[[Figure | SubFigure, int], object],
    texts: Sequence[str],
    name: str,
    data: Mapping[str, Any],
    seed: int | list[int] | None,
    *,
    control: str,
    start: int = 0,
    figsize: tuple[float, float] | None = None,
) -> None:
    """Save a figure that can be moved with a slider, and show one of its frames.

    Parameters
    ----------
    draw : callable
        ``draw(fig, k)`` draws frame k into an empty figure or part of one, always with the same
        axes. Fixed limits and ticks keep what is compared in its place.
    texts : list of str
        For each frame what the slider says there, in words: where it stands and what is seen.
    name, data, seed
        As for `save`; the data are those of all frames.
    control : str
        Label of the slider: what moves.
    start : int
        The frame that the notebook, the PDF and a page without scripts show.
    figsize : pair of float, optional
        Width and height of a frame, in inches.

    Raises
    ------
    ValueError
        For fewer than two texts, an empty text or label, a frame that does not exist, frames with
        different numbers of axes, a strip of more than 400 kB, and what `save` refuses.

    Examples
    --------
    >>> from ntpnb_book import figures
    >>> def draw(fig, k):
    ...     fig.subplots().plot([0, k])
    >>> figures.save_frames(draw, ["flat"], "slope", {"k": [0]}, None, control="Slope")
    Traceback (most recent call last):
    ValueError: texts: a text for each of two or more frames is needed, found ['flat']
    """
    texts = list(texts)
    _require_frames(texts, control, start)

    def draw_lettered(fig: Figure | SubFigure, k: int) -> None:
        draw(fig, k)
        letter_panels(fig)

    fig = plt.figure(figsize=figsize, dpi=DPI)
    draw_lettered(fig, start)
    settle_layout(fig)  # it serves all frames: in less time, and none jumps
    strip = _strip(draw_lettered, len(texts), start, fig)
    content = render(strip, "svg")
    plt.close(strip)
    if len(content) > LIMIT:
        raise ValueError(
            f"{name}: {len(texts)} frames take {len(content)} bytes, at most {LIMIT} should be; "
            "draw fewer, or less in each"
        )
    frames = {"control": control, "start": start, "texts": texts}
    save(fig, name, data, seed, frames=frames, strip=content.decode())
