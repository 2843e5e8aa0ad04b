"""What is promised and has no second source, as last accepted: one file, `book/accepted.txt`.

One line a claim, with tabs between its fields: id, what is expected, what the print is compared
with, the words of the print, and where these were found in the papers; and one line of its words.
One line a quotation in the box of an erratum, and an exception for other processors. One line a
figure: how many curves it has, and how many of them its data do not hold. One line an entry of the
bibliography, and a link of the README. One line a file of tests: how many it has at least. A claim
that is removed, an expectation that is widened, a sentence or quotation that is changed, a curve
drawn from other numbers or a test that is gone shows there, in a file that changes for no other
reason; `make accept` writes it anew.

The papers' texts are not part of the repository. Whoever has them looks the quotations up, with
``make accept PAPERS=FOLDER``, where FOLDER holds ``000*.txt``, ``001*.txt``, ``002*.txt`` and
``004*.txt``. Only words can be compared, in runs of three or more, since every version writes
formulas in another way. `unread` notes a quotation that nobody has looked up since it changed,
`absent` one that was not found, and `formula` one without such a run.
"""

import ast
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import citations

from ntpnb_book import output
from ntpnb_book.claims import load
from ntpnb_book.comparisons import comparison, describe
from publishing import manifest, project, verify

VERSIONS = {"000": "t24", "001": "t24", "002": "t24", "004": "l24"}
"""Which paper is in which text, by the first three letters of the file's name."""

_RUN = 3
_LINK = re.compile(r"\[([^][]+)\]\(([^()\s]+)\)")
_FOOTNOTE = re.compile(r"^<sup>.*$", re.MULTILINE)
_BOX = re.compile(
    r"^:::\{admonition\} .*\b([TL]24)\b.*\n:class: erratum\n((?:(?!:::$).*\n)*)", re.MULTILINE
)
_BREAK = re.compile(r"[^A-Za-z\s,'’-]|\b(?!a\b)[A-Za-z]\b")


_WORDS = ("evidence", "where", "statement", "meant", "change", "unprinted", "explained")
"""What a claim says beside its numbers; without a stated change it would count as reproduced."""


class Quotation(NamedTuple):
    """Words in quotation marks, and the paper whose words they are: ``t24`` or ``l24``."""

    paper: str
    text: str


def _file(root: Path) -> Path:
    return Path(root) / "book" / "accepted.txt"


def _words(text: str) -> list[str]:
    """Read the words of a text, those that a line's end divides put together."""
    plain = unicodedata.normalize("NFKC", text)
    return re.findall(r"[a-z]+", re.sub(r"-\s*\n\s*", "", plain).lower())


def runs(quotation: str) -> list[str]:
    """List the runs of words in a quotation that can be looked up.

    Symbols, formulas and dots that leave words out divide it.

    Examples
    --------
    >>> from accepted import runs
    >>> runs("for any finite $W$ … the CE loss is bounded")
    ['for any finite', 'the ce loss is bounded']
    """
    without = re.sub(r"\$[^$]*\$|\S*[_^]\S*", "|", quotation)
    pieces = (_words(piece) for piece in _BREAK.split(without))
    return [" ".join(words) for words in pieces if len(words) >= _RUN]


def look_up(quotation: str, papers: Mapping[str, str]) -> str:
    """Say where all runs of a quotation stand: names of papers, or ``absent`` or ``formula``.

    Parameters
    ----------
    quotation : str
        The words of the print.
    papers : mapping
        For each name the words of a paper, with one blank between two.
    """
    wanted = runs(quotation)
    if not wanted:
        return "formula"
    found = [
        name for name, words in papers.items() if all(f" {run} " in f" {words} " for run in wanted)
    ]
    return ",".join(found) or "absent"


def read_papers(folder: Path) -> dict[str, str]:
    """Read the papers' words, by the first three letters of the names of their files.

    Footnotes come last: where a page ends, one may stand within a sentence.
    """
    texts = {path.name[:3]: path for path in sorted(Path(folder).glob("*.txt"))}
    missing = [version for version in VERSIONS if version not in texts]
    if missing:
        raise ValueError(f"accept: the folder {str(folder)!r} has no {missing[0]}*.txt")
    papers = {}
    for version in VERSIONS:
        text = texts[version].read_text(encoding="utf-8")
        footnotes = _FOOTNOTE.findall(text)
        papers[version] = " ".join(_words("\n".join([_FOOTNOTE.sub("", text), *footnotes])))
    return papers


def boxed(name: str, root: Path = output.ROOT) -> list[Quotation]:
    """List what the boxes of errata on a chapter or page of evidence put in quotation marks."""
    text = project.source(name, root).read_text(encoding="utf-8")
    return [
        Quotation(paper.lower(), " ".join(quoted.split()))
        for paper, box in _BOX.findall(text)
        for quoted in re.findall(r'"([^"]*)"', box)
    ]


def quotations(root: Path) -> dict[str, Quotation]:
    """List all quotations: those of claims by the claim's id, the others by box and place."""
    found = {
        id: Quotation(id.removeprefix("erratum.")[:3], " ".join(claim["printed"]["text"].split()))
        for id, claim in load(root).items()
        if "printed" in claim
    }
    for name in project.names(root):
        for place, quotation in enumerate(boxed(name, root), 1):
            found[f"box {name} {place}"] = quotation
    return found


def _promise(claim: Mapping[str, Any]) -> str:
    """Write what a claim promises: the fields of its line but the last."""
    printed = comparison(claim.get("printed"))
    text = " ".join(claim.get("printed", {}).get("text", "—").split())
    compared = describe(printed) if printed else "—"
    return "\t".join([claim["id"], describe(comparison(claim["expect"])), compared, text])


def _words_of(claim: Mapping[str, Any]) -> str:
    """Write what a claim says beside its numbers, in a line of its own.

    A sentence that changes leaves the quotation's line, and where it was found, as they were.
    """
    fields = [claim.get(name, "—") for name in _WORDS]
    return "\t".join([f"words {claim['id']}", *(" ".join(str(field).split()) for field in fields)])


def _promises(root: Path) -> dict[str, str]:
    """Write what claims, boxes, figures, bibliography and links promise, by the first field."""
    claims = load(root)
    lines = [write(claim) for write in (_promise, _words_of) for claim in claims.values()]
    lines += [f"{id}\t{text}" for id, (_, text) in quotations(root).items() if id not in claims]
    for row in manifest.figures(root):
        drawn, elsewhere = row.get("curves", (0, 0))
        lines.append(f"figure {row['figure']}\t{drawn} curves, {elsewhere} not in its data")
    for key, fields in citations.references(root).items():
        said = (f"{name} = {value}" for name, value in fields.items())
        lines.append("\t".join([f"reference {key}", *said]))
    for kind, allowed in verify.exceptions(root).items():
        lines += [f"elsewhere {kind} {name}\t{number:g}" for name, number in allowed.items()]
    readme = Path(root) / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for label, target in _LINK.findall(text):
        lines.append(f"README.md: [{' '.join(label.split())}]({target})")
    return {line.partition("\t")[0]: line for line in lines}


def _is_test(node: ast.AST) -> bool:
    """Whether a part of a file is a test function that may fail."""
    if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
        return False
    marks = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    return not {"pytest.mark.skip", "pytest.mark.xfail"} & set(marks)


def _tests(root: Path) -> dict[str, int]:
    """Count the test functions of each file of tests, each once for all its parameters."""
    return {
        path.relative_to(root).as_posix(): sum(
            map(_is_test, ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        )
        for path in sorted(Path(root).glob("tests/**/test_*.py"))
    }


def _accepted(root: Path) -> dict[str, str]:
    """Read where each promise's quotation was found, by the promise."""
    path = _file(root)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {promise: place for promise, _, place in (line.rpartition("\t") for line in lines)}


def accept(papers: Path | None = None, root: Path = output.ROOT) -> list[str]:
    """Write `book/accepted.txt` for the claims as they are.

    Parameters
    ----------
    papers : Path, optional
        A folder with the papers' texts, to look all quotations up in; without it those that did not
        change keep their note.
    root : Path
        The checkout.

    Returns
    -------
    list of str
        Quotations that are `unread` or `absent`, one line each.

    Raises
    ------
    ValueError
        Where the folder holds no text.
    """
    before = _accepted(root)
    texts = read_papers(papers) if papers else None
    quoted = quotations(root)
    lines = []
    for id, promise in _promises(root).items():
        place = "—"
        if id in quoted:
            place = before.get(promise, "unread")
            if texts is not None:
                paper, text = quoted[id]
                versions = {name: texts[name] for name in texts if VERSIONS[name] == paper}
                place = look_up(text, versions)
        lines.append(f"{promise}\t{place}")
    lines += [f"{name}\t{tests} tests\t—" for name, tests in _tests(root).items()]
    output.write(_file(root), "".join(f"{line}\n" for line in lines))
    return list(unfounded(root))


def unfounded(root: Path = output.ROOT) -> Iterator[str]:
    """Yield the quotations that were not found in a paper, or not looked up."""
    for promise, place in _accepted(root).items():
        if place in ("absent", "unread"):
            id, *_, text = promise.split("\t")
            yield f"{id}: {place} in the papers: {text}"


def changed(root: Path = output.ROOT) -> Iterator[str]:
    """Yield where something is promised otherwise than accepted, or a file lost tests."""
    now = _promises(root)
    before = {promise.partition("\t")[0]: promise for promise in _accepted(root)}
    tests = _tests(root)
    for name in [name for name in before if name.startswith("tests/")]:
        least = before.pop(name).partition("\t")[2]
        if tests.get(name, 0) < int(least.removesuffix(" tests")):
            yield f"{name}: {tests.get(name, 0)} tests, accepted were {least}"
    for id in before | now:
        if id not in now:
            yield f"{id}: was accepted, and is no longer there"
        elif id not in before:
            yield f"{id}: was never accepted"
        elif now[id] != before[id]:
            old, new = (" | ".join(line[id].split("\t")[1:]) for line in (before, now))
            yield f"{id}: promises {new!r}, accepted was {old!r}"


if __name__ == "__main__":
    [papers] = sys.argv[1:] or [None]
    wanting = accept(Path(papers) if papers else None)
    print("".join(f"{line}\n" for line in wanting), end="")
    sys.exit(1 if wanting else 0)
