"""What no execution notices: numbers typed instead of measured, and reasons that are none.

These checks read texts. They catch carelessness, not a lie that is told with care.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ntpnb_book import output
from ntpnb_book.comparisons import at_horizons
from publishing import folding, project

DIGITS = 8
"""Most significant digits of a number that an expectation may name."""

CELL, IDEA = 40, 12
"""Most lines of a chapter's cell, and of code that stands open in a section, without blank ones."""

_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
_THE_RUN = re.compile(
    r"\b(?:measured|observed|as (?:computed|found|obtained)|(?:this|the|our|own) (?:own )?runs?)\b"
)
# As a comment or as a tag; nbval still obeys the name that it had before.
_MARKS = re.compile(r"(?:nbval|pytest[_-]validate)[_-]\w+|raises[_-]exception", re.IGNORECASE)
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


def unchecked(name: str, root: Path = output.ROOT) -> Iterator[str]:
    """Yield the marks in a chapter that make nbval skip a cell or accept other outputs.

    Parameters
    ----------
    name : str
        The chapter.
    root : Path
        The checkout.
    """
    text = project.source(name, root).read_text(encoding="utf-8")
    for mark in _MARKS.findall(text):
        yield f"{name}: {mark} keeps nbval from comparing a cell"


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
    glued = {
        number: place
        for place, text in project.glued(name, root).items()
        for number in _NUMBER.findall(text)
    }
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
        for one in at_horizons(expect):
            near = one.get("near", 0)
            digits = len(re.sub(r"^0+|e.*$|\D", "", repr(abs(near))).lstrip("0"))
            if digits > DIGITS:
                yield f"{id}: {near!r} has {digits} digits; compute what is expected instead"


def code_shown(name: str, root: Path = output.ROOT) -> Iterator[str]:
    """Yield where a page shows too much code, or folds code away without saying what it does.

    A chapter without a cell tagged ``idea`` is not yet written for folding and is passed over;
    pages of evidence never are.

    Parameters
    ----------
    name : str
        The chapter or page of evidence.
    root : Path
        The checkout.
    """
    import jupytext

    cells = jupytext.read(project.source(name, root)).cells
    ideas = [cell for cell in cells if folding.IDEA in cell.metadata.get("tags", ())]
    if not ideas and name in project.chapters(root):
        return
    section, shown, number = "its beginning", 0, 0
    for cell in cells:
        if cell.cell_type == "markdown":
            headings = _HEADING.findall(cell.source)
            section, shown = (headings[-1], 0) if headings else (section, shown)
        if cell.cell_type != "code":
            continue
        number += 1
        lines = len([line for line in cell.source.splitlines() if line.strip()])
        where = f"{name}, cell [{number}]"
        if lines > CELL and name in project.chapters(root):
            yield f"{where}: {lines} lines, at most {CELL} belong in a cell"
        if cell in ideas:
            shown += lines
            if shown > IDEA >= shown - lines:
                yield f"{name}, {section}: {shown} lines of code stand open, at most {IDEA} may"
        elif "parameters" in cell.metadata.get("tags", ()):
            continue  # the build has words for it
        elif folding.words(cell.source) == folding.WITHOUT_WORDS:
            yield f"{where}: folded code begins with a comment that says what it does"
