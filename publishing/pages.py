"""The generated pages, as MyST Markdown: scoreboard, statements, errata, reproducibility.

What a page says stands in `publishing/templates`; here is what it is filled with.
"""

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ntpnb_book.claims import EVIDENCE, covers
from ntpnb_book.comparisons import at_horizons, comparison, horizons, met
from ntpnb_book.ledger import shown
from ntpnb_book.output import ROOT
from publishing import manifest, statement_map
from publishing.project import GENERATED, names, seconds, source, title
from publishing.statements import STATUSES, Statements, called, executing, is_equation, status
from publishing.symbols import flat, numbers, symbols

Entry: TypeAlias = Mapping[str, Any]
"""A claim with its value and outcome, as `publishing.collect.collect` lists them."""

Figure: TypeAlias = Mapping[str, Any]
"""A saved figure, as `publishing.manifest.figures` lists it."""

_HEADER = f"{GENERATED}`python -m publishing collect` from the executed notebooks. Do not edit.\n\n"
_OUTCOMES = {
    "reproduced": "the value agrees with what the paper prints",
    "holds": "it is compared with nothing in print; what we expect holds",
    "reproduced with a stated change": "it agrees after the change that is named with the claim",
    "does not reproduce": "the value differs from what the paper prints",
    "the text departs from file and run": (
        "neither the value nor the authors' released file agrees with the text"
    ),
    "undecided by the text": "a setting that the paper does not print decides between the two",
    "wrong as printed": "the print itself is shown to be wrong",
    "a gap in the argument": "a step of a proof does not follow; what it is to prove stands",
    "holds by construction": "no evidence: the check cannot come out otherwise",
}
_MISPRINTS = ("wrong as printed", "a gap in the argument")
_DEPARTS = "the text departs from file and run"
_DIFFERENCES = (
    "does not reproduce",
    _DEPARTS,
    "undecided by the text",
    "reproduced with a stated change",
)
_NOTABLE = (*_MISPRINTS, *_DIFFERENCES)
_COMPARED = (*_NOTABLE, "reproduced", "holds by construction")
"""Outcomes of what was compared with the print, the least favourable first."""

_ERRATUM = "erratum"
ZERO = 5e-13
"""A smaller number is zero to twelve decimals, and what rounding may leave of a zero."""

_GROUPS = {
    "printed": EVIDENCE["printed"],
    _ERRATUM: "a line of a paper, shown to be wrong as printed or to leave a gap",
    **EVIDENCE,
}
_AFFECTS = {
    "statement": "a theorem or lemma as stated",
    "proof": "proof text; the theorem stands",
    "text": "a sentence; no theorem",
}
_PAPERS = {
    "t24": "Thrampoulidis (T24): the linear decoder",
    "l24": "Li et al. (L24): self-attention",
}
_EQUATIONS = ": further equations"
_PACKAGES = ("numpy", "scipy", "matplotlib", "papermill", "jupyter-book")


_BLOCK = re.compile(
    r"^(\d+(?=[.)](?: |$))|(?=%|#{1,6}(?: |$)|[-+](?: |$)|--|\+{3}|={2}|:{3}|~{3}|\([^)]*\)=))"
)
"""How a line begins that is a comment, a heading, a list, a rule, a label or a block."""


_VERSIONS = ("first arXiv", "workshop", "NeurIPS")
"""Of T24, by the last digit of the number that our notes give them."""


def with_versions(place: str) -> str:
    """Name the versions of T24 in the description of a place.

    Examples
    --------
    >>> from publishing.pages import with_versions
    >>> with_versions("Eq. (11) of 000; right in 002")
    'Eq. (11) of the first arXiv version; right in the NeurIPS version'
    >>> with_versions("001 Thm 4.1")
    'the workshop version: Thm 4.1'
    """
    apart = re.sub(r"\b(00[012]) (?=[A-Z])", r"\1: ", place)
    return re.sub(r"\b00([012])\b", lambda n: f"the {_VERSIONS[int(n[1])]} version", apart)


def plain(text: object) -> str:
    """Escape text for a table's cell; only ``$mathematics$`` and code keep their meaning."""
    one_line = re.sub(r"[ \t\n]+", " ", str(text)).strip()  # but not the blanks inside a number
    pieces = []
    for number, piece in enumerate(re.split(r"(\$[^$]+\$|`[^`]+`)", one_line)):
        stays = number % 2 == 1  # what the pattern matches stands at the odd places
        escaped = re.sub(r"([\\`*_\[\]<>{}$|])", r"\\\1", piece)
        pieces.append(piece if stays else escaped)
    return _BLOCK.sub(r"\1\\", "".join(pieces))


def _label(id: str) -> str:
    """Turn an id into what can be a label."""
    return id.replace(".", "-")


def _words(text: object) -> str:
    """Escape words of a claim for a table's cell, its symbols set as mathematics."""
    return plain(symbols(str(text)))


def _zero(entry: Entry) -> str:
    """Say that a value is zero, and how nearly, where it is meant to be; else nothing.

    A tiny number that has to be positive, or that a bound as tiny is about, is itself the result.
    """
    value, expect = entry["value"], entry["expect"]
    if not isinstance(value, float) or not 0 < abs(value) < ZERO or "above" in expect:
        return ""
    if "rounding" in expect.get("because", ""):
        return "zero to rounding"
    room = [abs(bound) for bound in (expect.get("within"), expect.get("at_most")) if bound]
    return "zero to 12 decimals" if min(room, default=0.0) > ZERO else ""


def _value(entry: Entry) -> str:
    """Write what was measured as a reader says it."""
    value = entry["value"]
    if isinstance(value, list):
        wanted = at_horizons(entry["expect"])
        each = [
            _value({**entry, "value": one, "expect": expect})
            for one, expect in zip(value, wanted, strict=True)
        ]
        return f"{', '.join(each)} at {plain(numbers(horizons(entry['expect'])))}"
    if isinstance(value, bool):
        asks = str(entry["statement"]).rstrip().endswith("?")
        return ("yes" if value else "no") if asks else ("holds" if value else "does not hold")
    zero = _zero(entry)
    if zero:
        return plain(numbers(f"{zero} ({value:.1e})"))
    if isinstance(value, str):
        return plain(value)
    number = shown(entry, value) if "show" in entry else f"{value:.3g}"
    return plain(numbers(number))


def _place(entry: Entry, root: Path) -> str:
    """Link to where a claim is explained; the words are the title of the page."""
    page, label = entry["explained"].split("#")
    name = page.removeprefix("nb/").removesuffix(".ipynb")
    words = plain(flat(title(name, root)).replace("`", ""))
    return f"{{ref}}`{words} <{label}>`"


def _is_erratum(entry: Entry) -> bool:
    return covers(_ERRATUM, entry["id"])


def group(entry: Entry) -> str:
    """Say what kind of evidence a claim gives; an erratum is one of its own."""
    return _ERRATUM if _is_erratum(entry) else str(entry["evidence"])


def sentences(entries: Sequence[Entry]) -> dict[tuple[str, str], str]:
    """Give the outcome of each printed sentence: the least favourable of the claims about it.

    A sentence is named by its paper and its words, so that claims that quote the same words count
    once.
    """
    found: dict[tuple[str, str], str] = {}
    for outcome in _COMPARED:
        for entry in entries:
            if entry["outcome"] == outcome and entry["printed"]:
                paper = entry["id"].removeprefix(f"{_ERRATUM}.")[:3]
                found.setdefault((paper, " ".join(entry["printed"]["text"].split())), outcome)
    return found


def _in_sum(entries: Sequence[Entry]) -> str:
    """Say in one sentence each what was compared with the print, and what else was measured."""
    printed = Counter(sentences([e for e in entries if group(e) == "printed"]).values())
    errata = Counter(sentences([e for e in entries if _is_erratum(e)]).values())
    return (
        f"**Of {printed.total()} sentences of the papers that print a number or a comparison and "
        f"that we measure, {printed['reproduced']} are met as printed, "
        f"{printed['reproduced with a stated change']} after a stated change, "
        f"{printed['does not reproduce'] + printed[_DEPARTS]} are not met, and "
        f"{printed['undecided by the text']} "
        f"are undecided by the text.** {errata['wrong as printed']} more lines are shown to be "
        f"wrong as printed, and {errata['a gap in the argument']} to leave a gap. All else that is "
        "measured holds, or the build would have stopped."
    )


def _counted(outcomes: Iterable[str]) -> str:
    """Say how often each outcome occurs, the notable ones first."""
    counts = Counter(outcomes)
    order = [*_NOTABLE, *(outcome for outcome in _OUTCOMES if outcome not in _NOTABLE)]
    return ", ".join(f"{outcome}: {counts[outcome]}" for outcome in order if counts[outcome])


def _evidence(entries: Sequence[Entry]) -> list[tuple[object, ...]]:
    """Count what was measured by the kind of evidence, the papers' own words by the sentence."""
    rows: list[tuple[object, ...]] = []
    for name, meaning in _GROUPS.items():
        of = [entry for entry in entries if group(entry) == name]
        if of:
            in_print = name in ("printed", _ERRATUM)
            found = sentences(of).values() if in_print else [entry["outcome"] for entry in of]
            rows.append((name, meaning, len(of), len(found) if in_print else "–", _counted(found)))
    return [*rows, ("all", "", len(entries), "", "")]


def verdict(entry: Entry, claims: Mapping[str, Entry]) -> str:
    """Say which of text, authors' file and our run agree; a released file need not be the print.

    Parameters
    ----------
    entry : mapping
        A claim with ``authors``, and with its ``value`` and ``outcome``.
    claims : mapping
        All claims by id, of which ``authors`` may name the one that compares the two curves.
    """
    theirs = entry["authors"]
    text = comparison(entry["printed"])
    words = {
        (True, True): "all three agree",
        (False, False): "the text departs from file and run",
        (True, False): "our run departs from text and file",
        (False, True): "the text agrees with our run, not with the file",
    }[met(text, theirs["value"]), met(text, entry["value"])]
    if "compared" in theirs:
        agree = "at_most" in claims[theirs["compared"]]["expect"]
        words += f"; file and run {'agree within chance' if agree else 'differ'}"
    if entry["outcome"] == "undecided by the text":
        words += "; a setting that is not printed decides"
    return words


def _with_outcomes(outcomes: Sequence[str], entries: Sequence[Entry]) -> list[Entry]:
    """List the claims with some outcomes, one outcome after the other."""
    return [entry for name in outcomes for entry in entries if entry["outcome"] == name]


def _scoreboard(entries: Sequence[Entry], root: Path) -> str:
    """What came out of all claims, which differ from the print, and where the others are."""
    claims = {entry["id"]: entry for entry in entries}
    outcomes: dict[str, list[str]] = {}
    for entry in entries:
        outcomes.setdefault(entry["notebook"], []).append(entry["outcome"])
    occurring = {entry["outcome"] for entry in entries}
    return _fill(
        "scoreboard.md",
        in_sum=_in_sum(entries),
        evidence=_evidence(entries),
        meanings=[pair for pair in _OUTCOMES.items() if pair[0] in occurring],
        differing=_with_outcomes(_DIFFERENCES, entries),
        compared=[entry for entry in entries if "authors" in entry],
        misprints=_with_outcomes(_MISPRINTS, entries),
        pages=outcomes,
        place=partial(_place, root=root),
        verdict=partial(verdict, claims=claims),
    )


def _errata(entries: Sequence[Entry], paper: str, root: Path) -> str:
    """One row for each erratum of a paper: claims that one place of the book explains."""
    errata: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry["id"].startswith(f"{_ERRATUM}.{paper}-"):
            errata.setdefault(entry["explained"], []).append(entry)
    return _fill("errata.md", errata=errata, place=partial(_place, root=root))


def _statements(entries: Sequence[Entry], statements: Statements, root: Path) -> str:
    """Every numbered statement of both papers, where it is quoted and where it is executed."""
    blocks: set[str] = set()  # labels of those that lead back to a row of the index
    for name in names(root):
        text = source(name, root).read_text(encoding="utf-8")
        blocks.update(re.findall(r"^:label: (\S+)$", text, re.MULTILINE))
    notebooks = {entry["id"]: entry["notebook"] for entry in entries}
    counts = {part: Counter(dict.fromkeys(STATUSES, 0)) for part in ("", _EQUATIONS)}
    parts: dict[str, list[Any]] = {h + part: [] for h in _PAPERS.values() for part in counts}
    for id, statement in statements.items():
        part = _EQUATIONS if is_equation(id) else ""
        found = status(id, statement, notebooks)
        counts[part][found] += 1
        pages = Counter(notebooks[claim] for claim in executing(id, statement, notebooks))
        parts[_PAPERS[id.partition(".")[0]] + part].append((id, statement, found, pages))
    return _fill(
        "statements.md",
        blocks=blocks,
        equations=counts[_EQUATIONS],
        others=counts[""],
        parts=parts,
        statuses=STATUSES,
    )


def _versions(root: Path) -> list[tuple[str, str]]:
    """Read the Python requirement and the locked versions that figures depend on."""
    project = tomllib.loads((Path(root) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (Path(root) / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([\w.+-]+)", lock, re.MULTILINE))
    packages = [(name, locked[name]) for name in _PACKAGES]
    return [("python", project["requires-python"]), *packages]


def _measured(name: str, root: Path) -> list[list[str]]:
    """Read a table of where the time of a build goes; empty where it was never measured."""
    path = Path(root) / "benchmarks/results" / name
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [[plain(cell) for cell in row] for row in csv.reader(file)]


def _seeds(seed: int | list[int] | None) -> str:
    """Write one seed or several, consecutive ones from first to last."""
    if not isinstance(seed, list):
        return "none" if seed is None else str(seed)
    if len(seed) > 2 and seed == list(range(seed[0], seed[-1] + 1)):
        return f"{seed[0]}–{seed[-1]}"
    return ", ".join(map(str, seed))


def _drawn(id: str, statement: Mapping[str, Any], figures: Sequence[Figure]) -> list[Figure]:
    """List the figures that redraw a figure of a paper: named after it, or named by the entry."""
    name = id.replace(".", "_")
    of = [row for row in figures if f"{row['figure']}_".startswith(f"{name}_")]
    return of or [row for row in figures if row["figure"] == statement.get("drawn")]


def _reproducibility(figures: Sequence[Figure], statements: Statements, root: Path) -> str:
    """How the figures are made, from what, and the hash of the data behind each."""
    folder = Path(root) / "figures"
    drawn = {row["figure"] for row in figures if (folder / f"{row['figure']}.csv").exists()}
    # The data that the pages offer; before they are drawn, those of the notebooks.
    figures = [
        {**row, "offered": manifest.data_hash(name, root) if name in drawn else row["data"]}
        for row in figures
        for name in [row["figure"]]
    ]
    of_papers = {
        f"{id.partition('.')[0].upper()}, {plain(statement['where'])}": _drawn(
            id, statement, figures
        )
        for id, statement in statements.items()
        if re.fullmatch(r"\w+\.fig\d+", id)
    }
    redrawn = [row for rows in of_papers.values() for row in rows]
    return _fill(
        "reproducibility.md",
        build=_measured("build.csv", root),
        drawn=drawn,
        figures=figures,
        machine=_measured("build_machine.csv", root),
        of_papers=of_papers,
        others=[row for row in figures if row not in redrawn],
        same=sum(row["offered"] == row["data"] for row in figures),
        seconds=seconds(root),
        versions=_versions(root),
    )


def _map(paper: str, statements: Statements, entries: Sequence[Entry]) -> str:
    """The map of a paper and, below it, the same as a list of text."""
    drawing = statement_map.drawing(paper, statements, entries)
    return _fill("map.md", title=f"What rests on what in {_PAPERS[paper]}", **drawing)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {
    "affected": _AFFECTS.__getitem__,
    "called": called,
    "counted": _counted,
    "label": _label,
    "numbers": lambda text: plain(numbers(text)),
    "plain": plain,
    "seeds": _seeds,
    "value": _value,
    "with_versions": with_versions,
    "words": _words,
}


def _fill(template: str, **values: object) -> str:
    """Fill a template of `publishing/templates`."""
    return TEMPLATES.get_template(template).render(values)


def generate(
    entries: Sequence[Entry],
    statements: Statements,
    figures: Sequence[Figure],
    root: Path = ROOT,
) -> dict[str, str]:
    """Return the text of each generated file of `book/` by its name.

    Parameters
    ----------
    entries : list of dict
        What `publishing.collect.collect` returns.
    statements : dict
        The papers' statements by id.
    figures : list of dict
        What `publishing.manifest.figures` returns.
    """
    files = {
        "scoreboard.md": _HEADER + _scoreboard(entries, root),
        "statements.md": _HEADER + _statements(entries, statements, root),
        "reproducibility.md": _HEADER + _reproducibility(figures, statements, root),
    }
    for paper in _PAPERS:
        files[f"errata_{paper}.txt"] = _errata(entries, paper, root)
        files[f"map_{paper}.txt"] = _map(paper, statements, entries)
    return files
