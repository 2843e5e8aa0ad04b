"""Room for formulas: a page keeps its lines when a script replaces TeX by what it means.

TeX is several times as long as its formula. Without knowing the formula's width the lines of a
paragraph are broken twice, and what stands below jumps while one reads.
"""

import re
from functools import cache
from html import unescape

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser

_WRITTEN = re.compile(r'<span class="math notranslate nohighlight">(\\\(.*?\\\))</span>', re.DOTALL)
_MATPLOTLIB = {
    r"\\(?:left|right|[Bb]ig[lr]?|displaystyle)(?![A-Za-z])": "",
    r"\\[lr]Vert(?![A-Za-z])": r"\\|",
    r"\\[lr]vert(?![A-Za-z])": "|",
    r"\\([lgn])e(?![A-Za-z])": r"\\\1eq",
    r"\\[td]frac": r"\\frac",
    r"(\\(?:frac|sqrt|overline|mathbf))\s*(\w|\\[A-Za-z]+)": r"\1{\2}",
    r"(\\frac\{[^{}]*\})\s*(\w|\\[A-Za-z]+)": r"\1{\2}",
    r"\s+": " ",
}
"""What is written otherwise for matplotlib, which has fewer names and wants braces."""

_SIZE = 100  # points, so that widths are hundredths of an em
_FONT = FontProperties(size=_SIZE, math_fontfamily="cm")  # Computer Modern, as in MathJax
_PARSER = MathTextParser("path")

X_HEIGHT = 0.442
"""Of MathJax's font, in em: it is made as high as the letter x of the text around."""

PER_CHARACTER = 1.0
"""Width in ex of a character of TeX, where matplotlib cannot read a formula."""


@cache
def width(formula: str) -> float:
    r"""Tell how wide an inline formula becomes, in ex of the text around; nine of ten to one ex.

    Parameters
    ----------
    formula : str
        TeX, without dollar signs.

    Examples
    --------
    >>> from publishing.formulas import width
    >>> width(r"W^{\mathrm{mm}}"), width("t = 1")
    (5.3, 4.6)
    """
    for written, other in _MATPLOTLIB.items():
        formula = re.sub(written, other, formula)
    try:
        in_points = _PARSER.parse(f"${formula}$", 72, _FONT).width
    except ValueError:
        return PER_CHARACTER * len(formula)
    return round(float(in_points) / _SIZE / X_HEIGHT, 1)


def with_room(body: str) -> str:
    """Note the width of each inline formula of a page; `book/_static/book.css` keeps it free.

    Parameters
    ----------
    body : str
        The page as HTML, whose formulas are still TeX.
    """

    def noted(found: re.Match[str]) -> str:
        ex = width(unescape(found[1])[2:-2])
        return f'<span class="math notranslate nohighlight" style="--ex: {ex}">{found[1]}</span>'

    return _WRITTEN.sub(noted, body)
