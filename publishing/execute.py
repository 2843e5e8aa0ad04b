"""Executing one notebook, and cleaning what differs between two runs of it."""

import ast
import contextlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ntpnb_book import output
from publishing import kernel, project


class NotebookError(Exception):
    """A notebook failed; the message is one line that names notebook, cell and error."""


def _parameters_of(notebook: Any) -> set[str]:
    """Names that are assigned in the cells tagged ``parameters``."""
    known = set()
    for cell in notebook.cells:
        if "parameters" not in cell.metadata.get("tags", []):
            continue
        for statement in ast.parse(cell.source).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            known |= {target.id for target in targets if isinstance(target, ast.Name)}
    return known


def _read(name: str, parameters: Mapping[str, Any], root: Path) -> Any:
    """Read a notebook's text, insisting that it has every parameter that is to be set."""
    import jupytext

    notebook = jupytext.read(project.source(name, root))
    known = _parameters_of(notebook)
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has: {sorted(known)}")
    return notebook


def _clean(notebook: Any) -> None:
    """Drop whatever differs between two runs of the same notebook."""
    kept = ("kernelspec", "language_info")
    notebook.metadata = {field: notebook.metadata[field] for field in kept}
    notebook.metadata["language_info"].pop("version", None)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        for field in ("papermill", "execution"):
            cell.metadata.pop(field, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]


def _limit() -> int:
    """Seconds that one cell may run: what takes longer hangs."""
    return int(os.environ.get("NTPNB_CELL_SECONDS", "600"))


def _explain(error: Any, name: str, cell: int, root: Path) -> str:
    """Put an error into a line; a failed cell's traceback goes to a file that the line names."""
    where = f"{name}, cell [{cell}]" if cell else name
    if isinstance(error, TimeoutError):
        return f"{where}: ran longer than {_limit()} s (NTPNB_CELL_SECONDS sets another limit)"
    if isinstance(error, RuntimeError):
        return f"{where}: the kernel died, or never answered"
    traceback = re.sub("\x1b\\[[0-9;]*m", "", "\n".join(error.traceback))
    line = re.search(r"^Cell In\[\d+\], (line \d+)", traceback, re.MULTILINE)
    if line:
        where += f", {line[1]}"
    path = root / "_build" / f"{name}.traceback.txt"
    with contextlib.suppress(OSError):  # on a full disk the line must do
        output.write(path, traceback + "\n")
    message = " ".join(f"{error.ename}: {error.evalue}".split())
    return f"{where}: {message} (see {path.relative_to(root)})"


def compute(
    name: str,
    figures: Path,
    parameters: Mapping[str, Any] | None = None,
    root: Path = output.ROOT,
    *,
    formats: str,
) -> str:
    """Execute one notebook, without writing it; return the text of its file.

    Parameters
    ----------
    name : str
        The notebook.
    figures : Path
        Where it saves its figures.
    parameters : mapping, optional
        Values for names assigned in the cell tagged ``parameters``.
    formats : str
        Kinds of files, beside drawing and data, as which figures are saved.

    Raises
    ------
    ValueError
        For a parameter that the notebook does not have.
    NotebookError
        Where a cell fails or runs too long, or the kernel is missing or dies.
    """
    import nbformat
    import papermill

    root = Path(root).resolve()
    parameters = parameters or {}
    notebook = _read(name, parameters, root)
    folder = project.executed(name, root).parent
    folder.mkdir(parents=True, exist_ok=True)
    if find_spec("ipykernel") is None:
        raise NotebookError(f"{name}: ipykernel is missing from {sys.executable}; run make")
    started_cells: list[int] = []
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the error says the same
    with TemporaryDirectory(prefix="ntpnb-kernel-") as settings:
        variables = kernel.environment(Path(settings)) | {
            # The package whose sources are in the key, not another installed copy.
            "PYTHONPATH": str(root),
            "NTPNB_FIGURES": str(figures),
            "NTPNB_FORMATS": formats,
        }
        try:
            notebook = papermill.execute_notebook(
                notebook,
                None,
                dict(parameters),
                progress_bar=False,
                cwd=folder,
                kernel_manager_class=kernel.manager(variables),
                coalesce_streams=True,  # how prints are split into messages is a matter of timing
                execution_timeout=_limit(),
                on_cell_execute=lambda cell, cell_index: started_cells.append(cell_index),
            )
        except (papermill.PapermillExecutionError, TimeoutError, RuntimeError) as error:
            raise NotebookError(_explain(error, name, len(started_cells), root)) from None
    _clean(notebook)
    return f"{nbformat.writes(notebook)}\n"


def reworded(name: str, root: Path = output.ROOT) -> str:
    """Write an executed notebook anew, with its present text and the outputs that it has.

    The code in the text has to be that which gave the outputs.
    """
    import jupytext
    import nbformat

    notebook = jupytext.read(project.source(name, root))
    executed = nbformat.read(project.executed(name, root), as_version=4)
    cells, ran = (
        [cell for cell in version.cells if cell.cell_type == "code"]
        for version in (notebook, executed)
    )
    for cell, before in zip(cells, ran, strict=True):
        cell.outputs = before.outputs
        cell.execution_count = before.execution_count
    notebook.metadata["language_info"] = executed.metadata["language_info"]
    _clean(notebook)
    return f"{nbformat.writes(notebook)}\n"


def execute(
    name: str,
    target: Path,
    parameters: Mapping[str, Any] | None = None,
    root: Path = output.ROOT,
) -> None:
    """Execute one notebook into `target`, written only when every cell succeeded.

    Its figures are saved as all kinds of files.

    Parameters and errors are those of `compute`.

    Parameters
    ----------
    target : Path
        Figures are saved to the repository's `figures/`, or beside `target` where parameters
        are set: what the book shows is never overwritten by a reader's experiment.
    """
    root = Path(root).resolve()
    figures = Path(target).resolve().parent / "figures" if parameters else root / "figures"
    output.write(target, compute(name, figures, parameters, root, formats="png pdf"))
