"""Read the curves of a line plot in a PDF file: ``python -m authors_trials.curves FILE.pdf``.

Axes are calibrated on the grid lines and on the numbers beside them. A curve is a thick line that
is clipped to the axes. It has only the points that the drawing program kept; points that do not
change the line are dropped.
"""

import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """What a page shows: numbers with their places, and lines with their widths.

    Attributes
    ----------
    numbers : list of (x, y, value)
        Where each printed number begins, in points, and the number.
    lines : list of (width, points)
        The open lines in the order of drawing; width and coordinates in points.
    """

    numbers: list[tuple[float, float, float]]
    lines: list[tuple[float, Points]]


def page_content(pdf: bytes) -> str:
    r"""Unpack the longest compressed stream, which is the page.

    Parameters
    ----------
    pdf : bytes
        A PDF file of one page.

    Returns
    -------
    str
        The drawing instructions of the page.

    Raises
    ------
    ValueError
        Without any compressed stream.

    Examples
    --------
    >>> import zlib
    >>> page_content(b"stream\n" + zlib.compress(b"0 0 m 1 1 l S") + b"\nendstream")
    '0 0 m 1 1 l S'
    """
    contents = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            contents.append(zlib.decompress(packed).decode("latin-1"))
        except zlib.error:
            continue
    if not contents:
        raise ValueError("pdf has no compressed stream; a PDF file with one page is needed")
    return max(contents, key=len)


def parse(content: str) -> Drawing:
    """Follow the drawing instructions of a page.

    Parameters
    ----------
    content : str

    Returns
    -------
    Drawing

    Examples
    --------
    >>> drawing = parse("3 w 0 0 m 1 2 l S 1 0 0 1 5 6 cm BT (0.5) Tj ET")
    >>> drawing.lines, drawing.numbers
    ([(3.0, [(0.0, 0.0), (1.0, 2.0)])], [(5.0, 6.0, 0.5)])
    """
    numbers = []
    lines = []
    stack: list[str] = []
    points: Points = []
    width = 1.0
    place = (0.0, 0.0)
    for token in re.findall(r"\((?:\\.|[^()\\])*\)|[^\s()\[\]]+", content):
        if token in ("m", "l"):
            x, y = float(stack[-2]), float(stack[-1])
            if token == "m":
                points = []
            points.append((x, y))
        elif token == "w":
            width = float(stack[-1])
        elif token in ("cm", "Tm", "Td"):
            # Matplotlib places a text by `cm` or by `Td`, the other one being zero.
            shift = (float(stack[-2]), float(stack[-1]))
            place = shift if shift != (0.0, 0.0) else place
        elif token in ("TJ", "Tj"):
            text = "".join(part[1:-1] for part in stack if part.startswith("("))
            if re.fullmatch(r"-?\d+(\.\d+)?", text):
                numbers.append((*place, float(text)))
        elif token == "S":
            lines.append((width, points))
            points = []
        elif re.fullmatch(r"-?[\d.]+", token) or token.startswith("("):
            stack.append(token)
            continue
        stack = []
    return Drawing(numbers, lines)


def _calibration(places: list[float], numbers: list[tuple[float, float]]) -> np.ndarray:
    """Fit value = a place + b through grid lines, the numbers matched in their order.

    A number is centred at its grid line, so that where it begins is not where the line is. Numbers
    with a sign, which no axis of these files has, are not read.
    """
    values = [value for _, value in sorted(numbers)]
    if len(values) != len(places) or len(values) < 2:
        raise ValueError(
            f"pdf has {len(places)} grid lines and {len(values)} numbers on an axis; "
            "one number for each line, and two of them, are needed"
        )
    return np.polyfit(sorted(places), values, 1)


def read_curves(pdf: bytes, thickness: float = 2.0) -> list[np.ndarray]:
    """Read all curves of a line plot with a grid and numbers on both axes.

    Parameters
    ----------
    pdf : bytes
        As matplotlib writes it.
    thickness : float
        Thinner lines, in points, are axes and grid. Default: 2.

    Returns
    -------
    list of ndarray, shape (points, 2)
        Horizontal and vertical coordinate in the units of the axes, in the order of drawing.

    Raises
    ------
    ValueError
        If an axis has not one number for each grid line, or there is no curve.
    """
    drawing = parse(page_content(pdf))
    straight = [line for width, line in drawing.lines if width < thickness and len(line) == 2]
    longest = max(abs(a - c) + abs(b - d) for (a, b), (c, d) in straight)
    upright = [a for (a, b), (c, d) in straight if a == c and abs(b - d) > longest / 2]
    level = [b for (a, b), (c, d) in straight if b == d and abs(a - c) > longest / 2]
    # The frame is drawn like the grid; its four lines are the outermost.
    frame = (min(upright), max(upright), min(level), max(level))
    columns = sorted({x for x in upright if x not in frame[:2]})
    rows = sorted({y for y in level if y not in frame[2:]})
    below = [(x, value) for x, y, value in drawing.numbers if y < frame[2] and x > frame[0] - 60]
    beside = [(y, value) for x, y, value in drawing.numbers if x < frame[0] and y > frame[2] - 15]
    horizontal = _calibration(columns, below)
    vertical = _calibration(rows, beside)
    curves = []
    for width, line in drawing.lines:
        inside = all(frame[0] <= x <= frame[1] for x, _ in line)
        if width >= thickness and inside and len(line) > 3:
            x, y = np.array(line).T
            curves.append(np.stack([np.polyval(horizontal, x), np.polyval(vertical, y)], axis=1))
    if not curves:
        raise ValueError(f"pdf has no line of {thickness} points or more; a thick line is a curve")
    return curves


def main() -> None:
    """Print the curves of the file that the command line names, as CSV."""
    print("curve,step,value")
    for number, curve in enumerate(read_curves(Path(sys.argv[1]).read_bytes())):
        for step, value in curve:
            print(f"{number},{round(step)},{value:.5f}")


if __name__ == "__main__":
    main()
