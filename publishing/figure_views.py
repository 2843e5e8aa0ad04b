"""The figures of a page as the reader needs them: wide or narrow, and sharp.

Beside a drawing `NAME.svg` may stand `NAME_narrow.svg`, for telephones, and `NAME_frames.svg`, all
frames of a figure that moves. On dark pages `book/_static/book.css` exchanges light and dark;
`book/_static/figures.js` adds the button that enlarges a figure.
"""

import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')


class Views(nodes.General, nodes.Element):
    """Images of one figure: its drawing, and of `narrow` and `frames` those that there are."""


class ShowViews(SphinxTransform):
    """Put beside the drawing of each figure those that belong to it."""

    default_priority = 255  # after captions were completed, before Sphinx collects images

    def apply(self, **kwargs: Any) -> None:
        """Complete every figure of the page whose image is a drawing."""
        for figure in list(self.document.findall(nodes.figure)):
            for image in list(figure.findall(nodes.image)):
                name, svg, _ = image["uri"].rpartition(".svg")
                if not svg:
                    continue
                views = Views()
                image.replace_self(views)
                views += image
                for kind in ("narrow", "frames"):
                    uri = f"{name}_{kind}.svg"
                    if Path(self.env.relfn2path(uri)[1]).exists():
                        views += nodes.image(uri=uri, kind=kind)


def size(svg: str) -> tuple[int, int]:
    """Read width and height of a drawing, in CSS pixels."""
    width, height = (4 / 3 * float(points) for points in SIZE.search(svg).groups())
    return round(width), round(height)


def _enter(writer: Any, views: Views) -> None:
    """Write a figure; on paper its drawing alone, as Sphinx does."""
    builder = writer.builder
    wide = views[0]
    if builder.name == "singlehtml":
        wide.walkabout(writer)
        raise nodes.SkipNode

    def address(image: nodes.image) -> str:
        return escape(posixpath.join(builder.imgpath, builder.images[image["uri"]]))

    def measures(image: nodes.image) -> str:
        width, height = size((Path(builder.srcdir) / image["uri"]).read_text(encoding="utf-8"))
        return f'width="{width}" height="{height}"'

    others = {image["kind"]: image for image in views[1:]}
    # What only scrolls into sight on a telephone is to be reached by keyboard as well.
    kind = 'class="views scrolls" tabindex="0" role="group" aria-label="Figure"'
    source = strip = ""
    if "narrow" in others:
        kind = 'class="views"'
        narrow = others["narrow"]
        file = f'srcset="{address(narrow)}" {measures(narrow)}'
        source = f'<source media="(max-width: 576px)" {file}>'
    if "frames" in others:
        strip = f' data-strip="{address(others["frames"])}"'
    drawing = f'src="{address(wide)}" alt="{escape(wide["alt"])}" {measures(wide)}{strip}'
    image = f'<img {drawing} loading="lazy">'
    writer.body.append(f"<div {kind}><picture>{source}{image}</picture></div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform; Sphinx calls this."""
    app.add_node(Views, html=(_enter, None))
    app.add_transform(ShowViews)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
