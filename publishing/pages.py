"""The generated pages, as MyST Markdown: scoreboard, statements, errata, reproducibility."""

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ntpnb_book.claims import EVIDENCE, covers
from ntpnb_book.comparisons import at_horizons, comparison, horizons, met
from ntpnb_book.ledger import shown
from ntpnb_book.output import ROOT
from publishing import manifest, statement_map
from publishing.compare import TOLERANCE
from publishing.project import GENERATED, names, seconds, source, title
from publishing.statements import STATUSES, Statements, executing, is_equation, status
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
_PACKAGES = ("numpy", "scipy", "matplotlib", "papermill", "jupyter-book")


_REDRAWN = "≈"
"""Marks a figure whose data, drawn here, differ from the committed notebook's."""

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


def table(header: Sequence[object], rows: Iterable[Sequence[object]], widths: Sequence[int]) -> str:
    """Write a list-table: unlike a pipe table it survives a ``|`` inside mathematics."""
    lines = ["```{list-table}", ":header-rows: 1", ":class: ledger"]
    lines += [f":widths: {' '.join(map(str, widths))}", ""]
    for first, *others in (header, *rows):
        lines.append(f"* - {first}")
        lines += [f"  - {cell}" for cell in others]
    return "\n".join([*lines, "```", ""])


def _words(text: object) -> str:
    """Escape words of a claim for a table's cell, its symbols set as mathematics."""
    return plain(symbols(str(text)))


def _notebook(name: str) -> str:
    return f"{{doc}}`nb/{name}`"


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


def _outcome(entry: Entry, root: Path) -> str:
    if "explained" not in entry:
        return str(entry["outcome"])
    return f"{entry['outcome']}; why: {_place(entry, root)}"


def _claim(entry: Entry) -> str:
    change = f" Change: {_words(entry['change'].rstrip('.'))}." if "change" in entry else ""
    where = f" ({_words(with_versions(entry['where']))})" if entry["where"] else ""
    unprinted = ""
    if "unprinted" in entry:
        others = len(entry["unprinted"]["sweep"])
        varied = "one more claim" if others == 1 else f"{others} more claims"
        settings = _words(entry["unprinted"]["settings"])
        unprinted = f" Not printed: {settings}; varied in {varied}."
    return f"{_words(entry['statement'])}{where}{change}{unprinted} `{entry['id']}`"


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
        "measured holds, or the build would have stopped.\n\n"
    )


def _counted(outcomes: Iterable[str]) -> str:
    """Say how often each outcome occurs, the notable ones first."""
    counts = Counter(outcomes)
    order = [*_NOTABLE, *(outcome for outcome in _OUTCOMES if outcome not in _NOTABLE)]
    return ", ".join(f"{outcome}: {counts[outcome]}" for outcome in order if counts[outcome])


def _evidence(entries: Sequence[Entry]) -> str:
    """Tabulate what was measured by the kind of evidence, the papers' own words by the sentence."""
    rows: list[tuple[object, ...]] = []
    for name, meaning in _GROUPS.items():
        of = [entry for entry in entries if group(entry) == name]
        if of:
            in_print = name in ("printed", _ERRATUM)
            found = sentences(of).values() if in_print else [entry["outcome"] for entry in of]
            rows.append((name, meaning, len(of), len(found) if in_print else "–", _counted(found)))
    rows.append(("all", "", len(entries), "", ""))
    header = ("Evidence", "What it is", "Claims", "Sentences", "Outcomes")
    return table(header, rows, (13, 34, 9, 12, 32))


def _differing(entries: Sequence[Entry], root: Path) -> str:
    """Tabulate the claims about a printed number that are not simply reproduced."""
    rows = []
    for entry in _with_outcomes(_DIFFERENCES, entries):
        printed = _words(entry["printed"]["text"])
        where = _outcome(entry, root)
        if "explained" not in entry:
            where += f" in {_notebook(entry['notebook'])}"
        rows.append((_claim(entry), printed, _value(entry), where))
    return table(("Claim", "Printed", "Measured", "Outcome"), rows, (36, 32, 13, 19))


def _misprints(entries: Sequence[Entry], root: Path) -> str:
    """Tabulate the claims that show a line to be wrong, which the errata quote."""
    rows = (
        (_claim(entry), _value(entry), _outcome(entry, root))
        for entry in _with_outcomes(_MISPRINTS, entries)
    )
    return table(("Claim", "Measured", "Outcome"), rows, (55, 17, 28))


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


def _three_ways(entries: Sequence[Entry]) -> str:
    """Tabulate what the text, the authors' released file and our run say."""
    claims = {entry["id"]: entry for entry in entries}
    rows = []
    for entry in entries:
        if "authors" in entry:
            place = f"{_words(entry['where'])} `{entry['id']}`"
            text = _words(entry["printed"]["text"])
            file = plain(numbers(f"{entry['authors']['value']:.4g}"))
            rows.append((place, text, file, _value(entry), verdict(entry, claims)))
    if not rows:
        return ""
    header = ("Where", "Text", "Authors' file", "Our run", "Verdict")
    return (
        "\n## Text, the authors' file, and our run\n\n"
        "The authors of L24 released vector files of their figures for a while. A file need not be "
        "the run that the text describes; how many steps Figures 5 and 6 show is not printed. "
        "{doc}`nb/evidence/authors_trials` compares whole curves.\n\n"
        + table(header, rows, (28, 20, 12, 12, 28))
    )


def _with_outcomes(outcomes: Sequence[str], entries: Sequence[Entry]) -> Iterator[Entry]:
    """The claims with some outcomes, one outcome after the other."""
    for outcome in outcomes:
        yield from (entry for entry in entries if entry["outcome"] == outcome)


def _pages(entries: Sequence[Entry]) -> str:
    """Tabulate how the claims of each notebook came out."""
    rows = []
    for name in dict.fromkeys(entry["notebook"] for entry in entries):
        of = [entry["outcome"] for entry in entries if entry["notebook"] == name]
        rows.append((_notebook(name), len(of), _counted(of)))
    return table(("Page", "Claims", "Outcomes"), rows, (50, 10, 40))


def _scoreboard(entries: Sequence[Entry], root: Path) -> str:
    """What came out of all claims, which differ from the print, and where the others are."""
    outcomes = {entry["outcome"] for entry in entries}
    known = ((name, meaning) for name, meaning in _OUTCOMES.items() if name in outcomes)
    return (
        "# Scoreboard\n\n"
        + _in_sum(entries)
        + "A claim is a value with an expectation that was written down beforehand; a sentence in "
        "print may be measured by several, perhaps under several settings which the paper does not "
        "print, and counts with the least favourable of their outcomes.\n\n"
        + _evidence(entries)
        + "\n::::{dropdown} What the outcomes mean\n"
        + table(("Outcome", "Meaning"), known, (35, 65))
        + "::::\n\n"
        "## Where the print and the run differ\n\n"
        + _differing(entries, root)
        + _three_ways(entries)
        + "\n## Lines that are wrong as printed\n\n"
        "What each line says, and what is meant, stands among the {doc}`errata`.\n\n"
        + _misprints(entries, root)
        + "\n## Page by page\n\n"
        "Each section of a page ends with its claims: what is expected, printed and measured.\n\n"
        + _pages(entries)
    )


def _paragraphs(texts: Iterable[str]) -> str:
    """Write different texts for a table's cell, one below the other."""
    return "\n\n    ".join(map(_words, dict.fromkeys(texts)))


def _errata(entries: Sequence[Entry], paper: str, root: Path) -> str:
    """One row for each erratum of a paper: claims that one place of the book explains."""
    rows = []
    errata = [entry for entry in entries if entry["id"].startswith(f"erratum.{paper}-")]
    for place in dict.fromkeys(entry["explained"] for entry in errata):
        of = [entry for entry in errata if entry["explained"] == place]
        meant = [entry for entry in of if "meant" in entry]
        rows.append(
            (
                _paragraphs(with_versions(entry["where"]) for entry in of),
                _paragraphs(entry["printed"]["text"] for entry in of),
                _paragraphs(entry["meant"] for entry in meant),
                _paragraphs(_AFFECTS[entry["affects"]] for entry in meant),
                _place(of[0], root),
            )
        )
    return table(("Where", "Printed", "Meant", "Affects", "See"), rows, (15, 32, 24, 14, 15))


def _how_many(statements: Statements, claims: Sequence[str]) -> str:
    """Say how many of some statements have each status."""
    counts = Counter(status(id, statement, claims) for id, statement in statements.items())
    first, *others = (f"{counts[name]} {name}" for name in STATUSES)
    return f"{first.replace(' ', ' are ', 1)}, {', '.join(others[:-1])} and {others[-1]}"


def _where(id: str, statement: Mapping[str, Any], blocks: Collection[str]) -> str:
    """Write the first cell of a statement's row, which other pages link to."""
    label = id.replace(".", "-")
    where = plain(with_versions(statement["where"]))
    if label in blocks:  # the block links back to this row
        where = f"{{prf:ref}}`{where} <{label}>`"
    also = ""
    if "also" in statement:
        also = f" (also {plain(with_versions(statement['also']))})"
    return f"(index-{label})=\n    {where}{also} `{id}`"


def _status(id: str, statement: Mapping[str, Any], claims: Sequence[str]) -> str:
    """Write a statement's status, with what is missing or where it is quoted."""
    found = status(id, statement, claims)
    if found == "in part":
        return f"in part; missing: {plain(statement['part'])}"
    if found == "quoted":
        return f"{{ref}}`quoted <{statement['quoted'].partition('#')[2]}>`"
    return found


def _statements(entries: Sequence[Entry], statements: Statements, root: Path) -> str:
    """Every numbered statement of both papers, where it is quoted and where it is executed."""
    blocks: set[str] = set()
    for name in names(root):
        text = source(name, root).read_text(encoding="utf-8")
        blocks.update(re.findall(r"^:label: (\S+)$", text, re.MULTILINE))
    notebooks = {entry["id"]: entry["notebook"] for entry in entries}
    claims = list(notebooks)
    equations = {id: entry for id, entry in statements.items() if is_equation(id)}
    others = {id: entry for id, entry in statements.items() if id not in equations}
    text = "# Statement index\n\n" + (
        f"Of {len(others)} numbered statements, figures and printed numbers of the two papers "
        f"{_how_many(others, claims)}; of {len(equations)} further numbered equations "
        f"{_how_many(equations, claims)}. T24 is numbered as in its NeurIPS version. {{doc}}`map` "
        "draws what rests on what."
        "\n\nExecuted means that claims measure what the statement says, as far as finitely many "
        "problems can; it never means proved.\n\n"
    )
    text += table(("Status", "Meaning"), STATUSES.items(), (30, 70))
    for paper, heading in _PAPERS.items():
        for part, some in (("", others), (": further equations", equations)):
            rows = []
            for id, entry in some.items():
                if covers(paper, id):
                    of = Counter(notebooks[claim] for claim in executing(id, entry, claims))
                    links = (
                        f"{_notebook(name)} ({count} check{'s' if count > 1 else ''})"
                        for name, count in of.items()
                    )
                    where = _where(id, entry, blocks)
                    how = _status(id, entry, claims)
                    rows.append((where, plain(entry["what"]), how, "; ".join(links) or "—"))
            if rows:
                header = ("Where", "What", "Status", "Executed in")
                text += f"\n## {heading}{part}\n\n" + table(header, rows, (26, 34, 18, 22))
    return text


def _versions(root: Path) -> list[tuple[str, str]]:
    """Read the Python requirement and the locked versions that figures depend on."""
    project = tomllib.loads((Path(root) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (Path(root) / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([\w.+-]+)", lock, re.MULTILINE))
    packages = [(name, locked[name]) for name in _PACKAGES]
    return [("python", project["requires-python"]), *packages]


def _build_times(root: Path) -> str:
    """Say where the time of a build goes, where ``python -m benchmarks.build`` measured it."""
    results = Path(root) / "benchmarks/results"
    if not (results / "build.csv").exists():
        return ""
    with (results / "build.csv").open(encoding="utf-8", newline="") as file:
        header, *stages = [(plain(stage), *spent) for stage, *spent in csv.reader(file)]
    with (results / "build_machine.csv").open(encoding="utf-8", newline="") as file:
        machine = [(plain(name), plain(value)) for name, value in csv.reader(file)]
    text = """## Where the time goes

A fresh clone with nothing installed, built and tested, on this machine:

"""
    text += table(machine[0], machine[1:], (40, 60))
    text += "\n"
    text += table(header, stages, (60, 20, 20)[: len(header)])
    return text + "\n`.venv/bin/python -m benchmarks.build` measures it again.\n\n"


def _seed(seed: int | list[int] | None) -> str:
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


def _offered(row: Figure, root: Path) -> str:
    """Hash the data of a figure that the pages offer; before they are drawn, those executed."""
    drawn = (Path(root) / f"figures/{row['figure']}.csv").exists()
    return manifest.data_hash(row["figure"], root) if drawn else str(row["data"])


def _whose(figures: Sequence[Figure], root: Path) -> str:
    """Say on which machine numbers and pictures were made, and whether that makes a difference."""
    same = sum(_offered(row, root) == row["data"] for row in figures)
    text = (
        "Numbers and drawings on these pages are those of the committed notebooks. PNG, PDF and "
        "CSV come from where these pages were built, and the hashes are those of the files "
        "offered here: "
    )
    if same == len(figures):
        return f"{text}of all {same} figures the data are, to the last bit, the notebooks'.\n"
    return (
        f"{text}of {same} of {len(figures)} figures the data are, to the last bit, the notebooks'; "
        f"the others, marked {_REDRAWN}, differ in last digits, as they do between processors.\n"
    )


def _reproducibility(figures: Sequence[Figure], statements: Statements, root: Path) -> str:
    """How the figures are made, from what, and the hash of the data behind each."""
    text = """# Reproducibility

`make book` runs every notebook whose text, claims, imported sources or locked environment changed;
`make figures` runs all of them, and `make figures FIG=t24-fig4` only the one that draws that
figure. Each run starts a fresh kernel with one BLAS thread and explicit seeds, and on x86 without
the instructions that only some processors have, so the same machine type gives the same bytes.
Another processor may change last digits, and more in long runs of Adam, of sign and of spectral
descent: `book/elsewhere.yml` says what, how much and why, and `publishing verify` compares the rest
to a thousandth.

## The papers' figures

`make figures` writes every figure to `figures/` under the name given here, as PNG, SVG and PDF, and
the plotted arrays as CSV: columns `array`, `i`, `j` and `value`, where `i` and `j` index an array's
entries. A figure with a slider has all its frames, one below the other, in `NAME_frames.svg`
besides. Seconds are those of the whole notebook ({ref}`on this machine <artifact-hardware>`), which
is what one figure costs; the characters under "Data" begin the sha256 of the CSV.

"""
    text += f"{_whose(figures, root)}\n"
    taken = seconds(root)

    def cells(row: Figure) -> tuple[str, ...]:
        offered = _offered(row, root)
        mark = "" if offered == row["data"] else f" {_REDRAWN}"
        data = f"figures/{row['figure']}.csv"
        link = f"{{download}}`CSV <../{data}>` " if (Path(root) / data).exists() else ""
        return (
            f"`{row['figure']}`",
            _notebook(row["notebook"]),
            _seed(row["seed"]),
            taken.get(row["notebook"], "—"),
            f"{link}`{offered[:16]}`{mark}",
        )

    header = ("File", "Notebook", "Seed", "Seconds", "Data")
    widths = (27, 25, 9, 13, 26)
    rows: list[tuple[str, ...]] = []
    of_papers: list[Figure] = []
    for id, statement in statements.items():
        if re.fullmatch(r"\w+\.fig\d+", id):
            found = _drawn(id, statement, figures)
            of_papers += found
            name = f"{id.partition('.')[0].upper()}, {plain(statement['where'])}"
            not_yet = (name, "not yet", *["—"] * 4)
            rows += [(name, *cells(row)) for row in found] or [not_yet]
    text += table(("Figure", *header), rows, (13, *widths))
    text += "\n## All other figures\n\n"
    text += table(header, [cells(row) for row in figures if row not in of_papers], widths)
    text += "\n" + _build_times(root)
    text += f"""(compare-figures)=
## Compare with another machine

Draw the figures on both, carry one machine's `figures/` over, and compare the data:

```sh
.venv/bin/python -m publishing compare FOLDER
```

For each array of each figure it prints the largest difference between two entries, relative to the
array's largest entry. A figure is `ok` where every array is on both sides, in the same shape, and
none differs by more than `--tolerance`, by default `{TOLERANCE:g}`. The exit status is zero only if
every figure of `FOLDER` is `ok`.

Between processors of one architecture nearly everything agrees to many more digits than that.
Normalized gradient descent with a fixed step does not, on cyclic data and with general heads: it
overshoots and amplifies rounding ({{ref}}`the plateau of Fig. 4b <ad-plateau>`). Figures of such
runs are then `different`, single trials most; what the book claims of them are bounds on averages
and medians, which survive.

## Environment

"""
    rows = [(f"`{name}`", plain(version)) for name, version in _versions(root)]
    text += table(("Package", "Version"), rows, (40, 60))
    return text + "\nAll packages are pinned with their hashes in `requirements.lock`.\n"


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
        drawing = f"What rests on what in {_PAPERS[paper]}"
        files[f"map_{paper}.txt"] = statement_map.page(paper, drawing, statements, entries)
    return files
