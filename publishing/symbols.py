"""Words of claims as a reader reads them: symbols as mathematics, numbers with powers of ten.

A claim's words may name a symbol as one types it, ``W^mm`` or ``e^-u``. On the generated pages they
stand as the formulas do; what is mathematics or code already stays as it is.
"""

import re
import unicodedata
from collections.abc import Callable

from ntpnb_book.vocabulary import SUPERSCRIPTS

_NAMES = {
    "W^mm": r"W^{\mathrm{mm}}",
    "W^cyc": r"W^{\mathrm{cyc}}",
    "W^d": r"W^{\mathrm{d}}",
    "W^p": r"W^{\mathrm{p}}",
    "W^(2)": "W^{(2)}",
    "W^∥": r"W^\parallel",
    "W*": r"W^\star",
    "W_B": r"\widehat W_B",
    "W_R": r"\bar W_R",
    "S_cyc": r"\mathcal{S}_{\mathrm{cyc}}",
    "P_F": r"P_{\mathcal{F}}",
    "P_⊥": r"P_\perp",
    "CE_F": r"\mathrm{CE}_{\mathcal{F}}",
    "CE_⊥": r"\mathrm{CE}_\perp",
    "H_t": r"\mathcal{H}_t",
}
_GREEK = {"γ": "gamma", "ε": "varepsilon", "κ": "kappa", "λ": "lambda", "ρ": "rho"}
_LETTERS = str.maketrans(
    {letter: rf"\{name} " for letter, name in _GREEK.items()} | {"₁": "_1", "₂": "_2", "−": "-"}
)
_ACCENTS = {
    "bar": "\N{COMBINING MACRON}",
    "widehat": "\N{COMBINING CIRCUMFLEX ACCENT}",
    "widetilde": "\N{COMBINING TILDE}",
}
_SIGNS = {name: letter for letter, name in _GREEK.items()} | {
    "alpha": "α",
    "beta": "β",
    "dots": "…",
    "ell": "ℓ",
    "eta": "η",
    "ge": "≥",
    "in": "∈",
    "le": "≤",
    "nabla": "∇",
    "ne": "≠",
    "parallel": "∥",
    "perp": "⊥",
    "propto": "∝",
    "sqrt": "√",
    "star": "*",
    "to": "→",
    "top": "⊤",
}
SET = re.compile(r"(\$[^$]+\$|`[^`]+`)")
"""What is set as mathematics or code: the odd places of a text that is split by it."""

_SYMBOL = re.compile(
    r"(?<![\w^])(?:"
    rf"(?P<name>{'|'.join(map(re.escape, _NAMES))})(?!(?<=[A-Za-z])\w)"
    r"|(?P<base>e|10)\^(?P<power>[−-]?(?:\d+|[A-Za-zγρ](?:_\w|[₁₂])?)(?!\w)|\([^()]*\))"
    r"|(?P<letter>[A-Za-zκλ])_(?P<index>[A-Za-z0-9]+|ε)"
    r")"
)
_POWER_OF_TEN = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([-+]?\d+)(?![\w.]*\w)")
_MINUS = re.compile(r"(?<![\w.)])-(?=\d)")


def outside(text: str, change: re.Pattern[str], by: str | Callable[[re.Match[str]], str]) -> str:
    """Replace what a pattern finds in a text, but not in its mathematics and code."""
    pieces = SET.split(text)
    pieces[::2] = [change.sub(by, piece) for piece in pieces[::2]]
    return "".join(pieces)


def numbers(text: str) -> str:
    """Write powers of ten as one writes them by hand, and negative numbers with a minus sign.

    Examples
    --------
    >>> from publishing.symbols import numbers
    >>> numbers("-2.5 ± 1e-12")
    '−2.5 ± 10⁻¹²'
    """

    def power(found: re.Match[str]) -> str:
        factor = "" if float(found[1]) == 1 else f"{found[1]}\u00a0·\u00a0"
        return f"{factor}10{str(int(found[2])).translate(SUPERSCRIPTS)}"

    return outside(outside(text, _POWER_OF_TEN, power), _MINUS, "−")


def _formula(found: re.Match[str]) -> str:
    """Write one symbol as mathematics."""
    if found["name"]:
        formula = _NAMES[found["name"]]
    elif found["base"]:
        formula = f"{found['base']}^{{{found['power'].strip('()')}}}"
    elif len(found["index"]) > 1:
        formula = rf"{found['letter']}_{{\mathrm{{{found['index']}}}}}"
    else:
        formula = f"{found['letter']}_{found['index']}"
    return f"${formula.translate(_LETTERS)}$"


def symbols(text: str) -> str:
    r"""Set the symbols in a text as mathematics, and its numbers as `numbers` does.

    Examples
    --------
    >>> from publishing.symbols import symbols
    >>> print(symbols("‖P_F(W_B)‖ at B = 1e8, by `max_margin`"))
    ‖$P_{\mathcal{F}}$($\widehat W_B$)‖ at B = 10⁸, by `max_margin`
    """
    return numbers(outside(text, _SYMBOL, _formula))


def flat(text: str) -> str:
    """Write a text whose place can hold no mathematics, such as the words of a link.

    Examples
    --------
    >>> from publishing.symbols import flat
    >>> flat("to $t = 10^{30}$")
    'to t = 10³⁰'
    """
    return re.sub(r"\$([^$]+)\$", lambda of: unicode_of(of[1]), text)


def unicode_of(formula: str) -> str:
    r"""Write a formula where only letters can stand, as in the card of a page that is shared.

    Parameters
    ----------
    formula : str
        TeX, without dollar signs.

    Examples
    --------
    >>> from publishing.symbols import unicode_of
    >>> print(unicode_of(r"\widehat W_B \ne W^{\mathrm{mm}} \log 10^{-3}"))
    Ŵ_B ≠ W^mm log 10⁻³
    """

    def raised(found: re.Match[str]) -> str:
        return (found[1] or found[2]).translate(SUPERSCRIPTS)

    text = re.sub(r"\\(?:mathrm|mathcal|mathbf|boldsymbol|text|operatorname) *", "", formula)
    text = re.sub(
        r"\\(widehat|widetilde|bar) *\{?(\w)\}?", lambda of: of[2] + _ACCENTS[of[1]], text
    )
    text = re.sub(r"\^(?:\{(-?\d+)\}|(\d))", raised, text)
    text = re.sub(r"\\([A-Za-z]+)", lambda of: _SIGNS.get(of[1], of[1]), text)
    return " ".join(unicodedata.normalize("NFC", re.sub(r"[\\{}]", "", text)).split())
