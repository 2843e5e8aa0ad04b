"""Executing one notebook, and cleaning what differs between two runs of it."""

import contextlib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ntpnb_book import output
from publishing import kernel, project
from publishing.live.kernel import stored


class NotebookError(Exception):
    """A notebook failed; the message is one line that names notebook, cell and error."""


def _read(name: str, parameters: Mapping[str, Any], root: Path) -> Any:
    """Read a notebook's text, insisting that it has every parameter that is to be set."""
    import jupytext

    notebook = jupytext.read(project.source(name, root))
    known: set[str] = set()
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            known |= stored(cell.source)
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(f"{name} has no parameter {parameter!r}; it has: {sorted(known)}")
    return notebook


def _clean(notebook: Any) -> None:
    """Drop whatever differs between two runs of the same notebook."""
    kept = ("kernelspec", "language_info")
    notebook.metadata = {field: notebook.metadata[field] for field in kept}
    notebook.metadata["language_info"].pop("version", None)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata.pop("papermill", None)
        if cell.metadata.get("tags") == []:  # papermill's
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


def execute(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    root: Path = output.ROOT,
    *,
    figures: Path | None = None,
    formats: str = "png pdf",
) -> str:
    """Execute one notebook, without writing it; return the text of its file.

    Parameters
    ----------
    name : str
        The notebook.
    parameters : mapping, optional
        Values for names assigned in the cell tagged ``parameters``.
    root : Path
        The checkout.
    figures : Path, optional
        Where it saves its figures; by default in the checkout's `figures`.
    formats : str
        Kinds of files, beside drawing and data, as which figures are saved.

    Raises
    ------
    ValueError
        For a parameter that the notebook does not have.
    NotebookError
        Where a cell fails or runs too long, or the kernel dies.
    """
    import nbformat
    import papermill

    root = Path(root).resolve()
    parameters = parameters or {}
    notebook = _read(name, parameters, root)
    folder = project.executed(name, root).parent
    folder.mkdir(parents=True, exist_ok=True)
    started_cells: list[int] = []
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the error says the same
    with TemporaryDirectory(prefix="ntpnb-kernel-") as settings:
        variables = kernel.environment(Path(settings)) | {
            # The package whose sources are in the key, not another installed copy.
            "PYTHONPATH": str(root),
            "NTPNB_FIGURES": str(figures or root / "figures"),
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
                record_timing=False,
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
    executed = project.read_executed(name, root)
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
