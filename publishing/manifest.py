"""The figures of the book: which notebook saved which, and their drawings, which notebooks hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ntpnb_book import output
from ntpnb_book.saving import DRAWING, drawing_files
from publishing import project


def figures(root: Path = output.ROOT) -> list[dict[str, Any]]:
    """List the figures that the executed notebooks saved: name, notebook, seed and data hash."""
    return [
        {"figure": record["figure"], "notebook": name, **record}
        for name in project.names(root)
        for record in output.records(project.read_executed(name, root), "figure")
    ]


def drawing(typed: str, root: Path = output.ROOT) -> list[str]:
    """List the notebooks that draw the figures that a reader named.

    Parameters
    ----------
    typed : str
        A figure's name or its beginning, with dashes or underscores: ``t24-fig4``.

    Returns
    -------
    list of str
        The notebooks.

    Raises
    ------
    ValueError
        Where no figure has that name.
    """
    drawn_by = {row["figure"]: row["notebook"] for row in figures(root)}
    wanted = project.beginning("figure", typed, sorted(drawn_by))
    return sorted({drawn_by[figure] for figure in wanted})


def _drawings(root: Path) -> Iterator[dict[str, str]]:
    """Yield the drawings of each figure by the names of their files."""
    for name in project.names(root):
        for shown in output.outputs(project.read_executed(name, root)):
            record = shown.get("metadata", {}).get("ntpnb", {})
            if "figure" in record and DRAWING in shown.get("data", {}):
                svg = shown["data"][DRAWING]
                yield drawing_files(record["figure"], svg, record["drawings"])


def unpack(root: Path = output.ROOT) -> None:
    """Write the drawings that the executed notebooks hold to `figures/`, and remove all others.

    Those that are there already stay untouched.
    """
    folder = Path(root) / "figures"
    wanted: dict[str, str] = {}
    for drawings in _drawings(root):
        wanted |= drawings
    for name, svg in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != svg:
            output.write(path, svg)
    for path in folder.glob("*.svg"):
        if path.name not in wanted:
            path.unlink()
