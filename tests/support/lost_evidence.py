"""Pages of evidence that no reader finds."""

import re
from collections.abc import Iterator
from pathlib import Path

from ntpnb_book.output import ROOT
from publishing import project

NAMED = re.compile(r"^:{3,}\{evidence-for\}[ ]+(\S+)[ ]*(.*)$", re.MULTILINE)
"""The chapter that a page of evidence names, and labels of its sections."""

_LABEL = re.compile(r"^\(([\w.-]+)\)=$|^:label: (\S+)$|^\s+name: (\S+)$", re.MULTILINE)
_TARGET = re.compile(r"\{(?:doc|ref|numref|prf:ref)\}`(?:[^`<]*<)?([^`>]+)>?`|\]\(([^)\s]+)\)")


def _text(name: str, root: Path) -> str:
    return project.source(name, root).read_text(encoding="utf-8")


def labels(text: str) -> set[str]:
    """List the labels that stand in a notebook's text: of sections, blocks and figures."""
    return {label for found in _LABEL.findall(text) for label in found if label}


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield, as one line each, the pages of evidence that no reader finds or that name no chapter.

    Parameters
    ----------
    root : Path
        The checkout.
    """
    targets = set()
    for chapter in project.chapters(root):
        for role, link in _TARGET.findall(_text(chapter, root)):
            targets.add((role or link).partition("#")[0].removesuffix(".ipynb"))
            targets.add((role or link).partition("#")[2])
    for name in project.evidence_pages(root):
        text = _text(name, root)
        if not targets & {name, f"/nb/{name}", *labels(text)}:
            yield f"{name}: no chapter leads to it; write {{doc}}`{name}` where it is needed"
        named = NAMED.findall(text)
        if not named:
            yield f"{name}: no {{evidence-for}} says which chapter it belongs to"
        for chapter, sections in named:
            if chapter not in project.chapters(root):
                yield f"{name}: evidence for {chapter}, which is no chapter"
                continue
            known = labels(_text(chapter, root))
            for section in sections.split():
                if section not in known:
                    yield f"{name}: evidence for {chapter}, where no ({section})= stands"
