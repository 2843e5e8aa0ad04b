"""What no execution notices: numbers typed instead of measured, and reasons that are none.

These checks read texts. They catch carelessness, not a lie that is told with care.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ntpnb.notebook import output
from publishing import project

DIGITS = 8
"""Most significant digits of a number that an expectation may name."""

_THE_RUN = re.compile(
    r"\b(?:measured|observed|as (?:computed|found|obtained)|(?:this|the|our|own) (?:own )?runs?)\b"
)
_NUMBER = re.compile(r"(?<![\w.,^{-])\d+\.\d+(?![\w.]*\d)")
_NOT_PROSE = re.compile(
    r"^(`{3,}|:{3,})(?=\{(?:code-cell|figure|math|raw)).*?^\1\s*$|\{[a-z:]+\}`[^`]*`|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)


def constants(name: str, root: Path = output.ROOT) -> Iterator[str]:
    """Yield the calls of `check` and `glue` in a chapter whose value was typed, not measured.

    Parameters
    ----------
    name : str
        The chapter.
    root : Path
        The checkout.
    """
    for number, code in enumerate(project.code_cells(name, root), 1):
        for node in ast.walk(ast.parse(code)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in ("check", "glue") and len(node.args) == 2 and _typed(node.args[1]):
                yield f"{name}, cell [{number}]: a typed value in {ast.unparse(node)}"


def _typed(value: ast.expr) -> bool:
    """Say whether an expression names nothing, so that its value stands in the text."""
    return not any(isinstance(node, ast.Name) for node in ast.walk(value))


def typed_numbers(name: str, root: Path = output.ROOT) -> Iterator[str]:
    """Yield the numbers in a chapter's prose that it glues as well: they were typed a second time.

    Only numbers with a decimal point and three or more digits count: shorter ones meet by chance.

    Parameters
    ----------
    name : str
        The chapter.
    root : Path
        The checkout.
    """
    glued = {}
    for cell in project.read_executed(name, root)["cells"]:
        for shown in cell.get("outputs", []):
            scrap = shown.get("metadata", {}).get("scrapbook")
            if scrap:
                [kept] = shown["data"].values()
                text = ast.literal_eval("".join(kept))
                glued.update(dict.fromkeys(_NUMBER.findall(text), scrap["name"]))
    prose = _NOT_PROSE.sub(" ", project.source(name, root).read_text(encoding="utf-8"))
    for number in dict.fromkeys(_NUMBER.findall(prose)):
        if number in glued and len(number.replace(".", "").lstrip("0")) > 2:
            yield f"{name}: {number} stands in the prose; glue {glued[number]!r} has it measured"


def reasons(claims: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the claims whose expectation is, by its own words or digits, what the run gave.

    Parameters
    ----------
    claims : mapping
        The claims by id.
    """
    for id, claim in claims.items():
        expect = claim["expect"]
        run = _THE_RUN.search(expect.get("because", ""))
        if run:
            yield f"{id}: {run[0]!r} is no reason for an expectation: it cannot disagree"
        digits = len(re.sub(r"^0+|e.*$|\D", "", repr(abs(expect.get("near", 0)))).lstrip("0"))
        if digits > DIGITS:
            yield f"{id}: {expect['near']!r} has {digits} digits; compute what is expected instead"
