"""The figures of a page as the reader needs them: wide or narrow, and sharp.

A notebook shows one picture. On a page it gives way to the drawings in `figures/`: `NAME.svg`, and
on telephones `NAME_narrow.svg` where there is one. On dark pages `book/_static/book.css` exchanges
light and dark; `book/_static/figures.js` adds the button that enlarges a figure.
"""

import re
from collections.abc import Callable
from html import escape
from pathlib import Path

from ntpnb_book import output

FIGURE = re.compile(r"<figure.*?</figure>", re.DOTALL)
IMAGE = re.compile(r"<img\b[^>]*>")
SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)(pt|px)?" height="([\d.]+)')


def find(name: str, root: Path) -> Path | None:
    """Find the drawing of a figure; None where it was never drawn, or is no drawing."""
    for folder in ("figures", "book/images"):
        path = root / folder / f"{name}.svg"
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


def with_views(body: str, root: Path, built: Path, address: Callable[[str], str]) -> str:
    """Replace the pictures of a page by the drawings, which are written below the built site.

    Parameters
    ----------
    body : str
        The page as HTML. A figure's name is that of its picture's file or of a linked drawing.
    root, built : Path
        The checkout and the built site.
    address : callable
        ``address("_images/toy.svg")`` is how the page calls a file of the site.
    """

    def publish(path: Path) -> tuple[str, str]:
        """Write a drawing; return its address and its size as attributes."""
        svg = path.read_text(encoding="utf-8")
        file = f"_images/{path.name}"
        output.write(built / file, svg)
        width, height = size(svg)
        return escape(address(file)), f'width="{width}" height="{height}"'

    def views(wide: Path, alt: str) -> str:
        """Write a figure."""
        narrow = wide.with_name(f"{wide.stem}_narrow.svg")
        frames = wide.with_name(f"{wide.stem}_frames.svg")
        # What only scrolls into sight on a telephone is to be reached by keyboard as well.
        kind = 'class="views scrolls" tabindex="0" role="group" aria-label="Figure"'
        source = strip = ""
        drawn, measures = publish(wide)
        if narrow.exists():
            kind = 'class="views"'
            file, narrow_measures = publish(narrow)
            source = f'<source media="(max-width: 576px)" srcset="{file}" {narrow_measures}>'
        if frames.exists():
            strip = f' data-strip="{publish(frames)[0]}"'
        image = f'<img src="{drawn}" alt="{alt}" {measures}{strip} loading="lazy">'
        return f"<div {kind}><picture>{source}{image}</picture></div>"

    def replace(found: re.Match[str]) -> str:
        figure = found[0]
        images = IMAGE.findall(figure)
        shown = re.findall(r'src="[^"]*?(\w+)\.(?:png|svg)"', "".join(images))
        linked = re.findall(r'href="[^"]*?(\w+)\.(?:csv|svg)"', figure)
        drawings = [path for name in (*linked, *shown) if (path := find(name, root))]
        if len(images) != 1 or not drawings:
            return figure
        alt = re.search(r'alt="([^"]*)"', images[0])
        return figure.replace(images[0], views(drawings[0], alt[1] if alt else ""))

    return FIGURE.sub(replace, body)
