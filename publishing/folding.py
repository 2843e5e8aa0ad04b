"""What a page of a notebook folds away: code, and what `check` measured.

Code is folded unless its cell carries the tag ``idea``; the fold's words are the comment in the
cell's first line. What `check` printed in a section is shown once, at its end, as one closed line.
The notebooks themselves keep their outputs where they are.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from ntpnb_book import claims
from ntpnb_book.comparisons import comparison, describe
from publishing import pages, project
from publishing.symbols import SET, numbers, symbols

IDEA = "idea"
"""Tag of a cell whose code is the idea, and stays open."""

WITHOUT_WORDS = "Code"
"""What a fold says whose cell does not begin with a comment."""

PARAMETERS = "Set what can be changed"
"""What a fold says whose cell carries the tag ``parameters``."""

_COMMENT = re.compile(r"#+[ ]*(?![!%|])(\S.*)")
_CHECKED = re.compile(r"([✓✗?]) ([a-z0-9]+(?:\.[A-Za-z0-9_-]+)+) {3}(\S.*)", re.DOTALL)
_AS_SAID = {"= True": "", "= False": "no"}  # a statement that holds need not be told so twice


class Fold(nodes.General, nodes.Element):
    """Something folded away, under a summary of one line; ``open`` where it stands open."""


def words(code: str) -> str:
    r"""Say what a fold holds: the comment in the first line of its code.

    Examples
    --------
    >>> from publishing.folding import words
    >>> words("# draw the valley\nplot()"), words("plot()")
    ('Draw the valley', 'Code')
    """
    found = _COMMENT.match(code)
    if found is None:
        return WITHOUT_WORDS
    text = found[1].strip().removesuffix(".")
    return text[:1].upper() + text[1:]


def summary(marks: str) -> str:
    """Say in one line what was measured.

    Parameters
    ----------
    marks : str
        How each line of `check` begins: ``✓`` as expected, ``✗`` not, ``?`` not known.

    Examples
    --------
    >>> from publishing.folding import summary
    >>> summary("✓"), summary("✓✓✗")
    ('1 claim measured, as expected', '3 claims measured, 1 not as expected')
    """
    if marks == "✓":
        return "1 claim measured, as expected"
    differing = len(marks) - marks.count("✓")
    verdict = f"{differing} not" if differing else "all"
    return f"{len(marks)} claim{'s' if len(marks) > 1 else ''} measured, {verdict} as expected"


def anchor(id: str) -> str:
    """Return the address on its page of what was measured of a claim."""
    return f"claim-{id.replace('.', '-').lower()}"


def _is(node: nodes.Node, kind: str) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == kind


class FoldCode(SphinxTransform):
    """Fold the code of every cell without the tag ``idea``."""

    default_priority = 500  # after labels found their sections

    def apply(self, **kwargs: Any) -> None:
        """Wrap the code."""
        for code in list(self.document.findall(nodes.container)):
            cell = code.parent
            if not _is(code, "cell_code_source") or f"tag_{IDEA}" in cell["classes"]:
                continue
            is_parameters = "tag_parameters" in cell["classes"]
            said = PARAMETERS if is_parameters else words(code.astext())
            fold = Fold(summary=said, classes=["code"])
            cell.replace(code, fold)
            fold += code


def _statement(text: str) -> Iterator[nodes.Node]:
    """Yield a claim's statement, with its mathematics and its code."""
    for piece in SET.split(" ".join(text.split())):
        if piece.startswith("$"):
            yield nodes.math("", piece[1:-1])
        elif piece.startswith("`"):
            yield nodes.literal("", piece[1:-1])
        elif piece:
            yield nodes.Text(piece)


def _basis(claim: claims.Claim) -> str:
    """Say of what kind a claim is, what was expected of its value, and what a paper prints."""
    words = [pages.group(claim)]
    expect = comparison(claim["expect"])
    if not isinstance(expect.get("equals"), bool):
        words.append(f"expected {numbers(describe(expect))}")
    if claim.get("printed"):
        words.append(f"printed: {symbols(claim['printed']['text'])}")
    return "; ".join(words)


class FoldChecks(SphinxTransform):
    """Gather what `check` printed in a section into one closed line at the section's end."""

    default_priority = 510  # after the code was folded

    def apply(self, **kwargs: Any) -> None:
        """Move the lines of every section; subsections have their own."""
        name = project.of_page(self.env.docname)
        if not name:
            return
        known = claims.load(Path(self.env.srcdir).parent)
        for section in list(self.document.findall(nodes.section)):
            cells = [child for child in section if _is(child, "cell_code")]
            found = [line for cell in cells for line in _take_lines(cell)]
            for cell in cells:
                if not len(cell):
                    section.remove(cell)
            if found:
                section.insert(_end(section), self._fold(found, known))

    def _fold(self, found: list[re.Match[str]], known: dict[str, claims.Claim]) -> Fold:
        """Write the closed line of a section, or the open one where something differs."""
        marks = "".join(line[1] for line in found)
        fold = Fold(summary=summary(marks), classes=["checked"])
        fold["open"] = marks.count("✓") < len(marks)
        listed = nodes.bullet_list(bullet="*", classes=["checked"])
        for mark, id, measured in (line.groups() for line in found):
            text = nodes.paragraph("", f"{mark} ")
            item = nodes.list_item("", text, names=[anchor(id)])
            if id in known:
                text += [*_statement(known[id]["statement"]), nodes.Text(" ")]
                basis = _statement(_basis(known[id]))
                item += nodes.paragraph("", "", *basis, classes=["basis"])
            measured = _AS_SAID.get(measured, measured)
            if measured:
                text += [nodes.inline("", measured, classes=["measured"]), nodes.Text(" ")]
            text += nodes.literal("", id)
            self.document.note_explicit_target(item)
            listed += item
        fold += listed
        return fold


def _take_lines(cell: nodes.Element) -> Iterator[re.Match[str]]:
    """Take the outputs that `check` left out of a cell; yield what their lines say."""
    for output in list(cell.findall(nodes.container)):
        line = _CHECKED.fullmatch(output.astext().strip())
        if line and _is(output, "mime_bundle"):
            parent = output.parent
            parent.remove(output)
            if not len(parent):
                cell.remove(parent)
            yield line


def _end(section: nodes.Element) -> int:
    """Find where a section's own text ends: before its subsections, and labels before those."""
    place = section.first_child_matching_class(nodes.section)
    end = len(section) if place is None else place
    while end and isinstance(section[end - 1], nodes.target | nodes.comment):
        end -= 1
    return end


def _enter(writer: Any, node: Fold) -> None:
    kind = " ".join(node["classes"])
    if kind == "code" and writer.builder.name == "singlehtml":
        raise nodes.SkipNode  # the book on paper does without
    opened = " open" if node.get("open") else ""
    writer.body.append(f'<details class="fold {kind}"{opened}>\n')
    writer.body.append(f"<summary>{escape(node['summary'])}</summary>\n")


def _leave(writer: Any, node: Fold) -> None:
    writer.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what folds; Sphinx calls this."""
    app.add_node(Fold, html=(_enter, _leave))
    app.add_transform(FoldCode)
    app.add_transform(FoldChecks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
