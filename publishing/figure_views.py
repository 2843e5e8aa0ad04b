"""The figures of a page as the reader needs them: wide or narrow, and sharp.

A notebook shows one picture. On a page it gives way to the drawings in `figures/`: `NAME.svg`, and
on telephones `NAME_narrow.svg` where there is one. On dark pages `book/_static/book.css` exchanges
light and dark; `book/_static/figures.js` adds the button that enlarges a figure.
"""

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

from ntpnb_book import output

FIGURE = re.compile(r"<figure.*?</figure>", re.DOTALL)
IMAGE = re.compile(r"<img\b[^>]*>")
SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)(pt|px)?" height="([\d.]+)')


def find(name: str, root: Path) -> Path | None:
    """Find the drawing of a figure; None where it was never drawn, or is no drawing."""
    for folder in ("figures", "book/images"):
        path = Path(root) / folder / f"{name}.svg"
        if path.exists():
            return path
    return None


def size(svg: str) -> tuple[int, int]:
    """Read width and height of a drawing, in CSS pixels."""
    found = SIZE.search(svg)
    if found is None:
        raise ValueError(f"an SVG with width and height is needed, found {svg[:200]!r}")
    scale = 4 / 3 if found[2] == "pt" else 1
    return round(scale * float(found[1])), round(scale * float(found[3]))


class Published(NamedTuple):
    """Address of a drawing that was written, and its size as attributes."""

    address: str
    measures: str


class Drawings:
    """The drawings of one page: finds them, writes them below the built site, remembers them.

    Parameters
    ----------
    root : Path
        Of the repository.
    built : Path
        Of the built site.
    address : callable
        ``address("_images/toy.svg")`` is how the page calls a file of the site.
    """

    def __init__(self, root: Path, built: Path, address: Callable[[str], str]) -> None:
        self.root = root
        self.built = built
        self.address = address

    def publish(self, path: Path) -> Published:
        """Write a drawing."""
        svg = path.read_text(encoding="utf-8")
        file = f"_images/{path.name}"
        output.write(self.built / file, svg)
        width, height = size(svg)
        return Published(escape(self.address(file)), f'width="{width}" height="{height}"')

    def views(self, name: str, alt: str) -> str:
        """Write a figure, or return the empty string where nothing is drawn."""
        wide = find(name, self.root)
        if wide is None:
            return ""
        drawn = self.publish(wide)
        source = ""
        narrow = wide.with_name(f"{name}_narrow.svg")
        if narrow.exists():
            file, measures = self.publish(narrow)
            source = f'<source media="(max-width: 576px)" srcset="{file}" {measures}>'
        strip = ""
        frames = wide.with_name(f"{name}_frames.svg")
        if frames.exists():
            strip = f' data-strip="{self.publish(frames).address}"'
        shown = (
            f'<picture>{source}<img src="{drawn.address}" alt="{alt}" '
            f'{drawn.measures}{strip} loading="lazy"></picture>'
        )
        # What only scrolls into sight on a telephone is to be reached by keyboard as well.
        attributes = "" if narrow.exists() else ' tabindex="0" role="group" aria-label="Figure"'
        kind = "views" if narrow.exists() else "views scrolls"
        return f'<div class="{kind}"{attributes}>{shown}</div>'


def with_views(body: str, drawings: Drawings) -> str:
    """Replace the pictures of a page by the drawings.

    Parameters
    ----------
    body : str
        The page as HTML. A figure's name is that of its picture's file or of a linked drawing.
    drawings : Drawings
        Where to take them from.
    """

    def replace(found: re.Match[str]) -> str:
        figure = found[0]
        images = IMAGE.findall(figure)
        if len(images) != 1:
            return figure
        shown = re.findall(r'src="[^"]*?(\w+)\.(?:png|svg)"', images[0])
        linked = re.findall(r'href="[^"]*?(\w+)\.(?:csv|svg)"', figure)
        alt = re.search(r'alt="([^"]*)"', images[0])
        for name in (*linked, *shown):
            views = drawings.views(name, alt[1] if alt else "")
            if views:
                return figure.replace(images[0], views)
        return figure

    return FIGURE.sub(replace, body)
