"""Executing one notebook, and cleaning what differs between two runs of it."""

import ast
import contextlib
import hashlib
import json
import logging
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from ntpnb.notebook import output
from publishing import project

_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class NotebookError(Exception):
    """A notebook failed; the message is one line that names notebook, cell and error."""


def key(name, parameters=None, root=output.ROOT):
    """Hash everything that a notebook's outputs depend on.

    That is its text, its claims, the sources of ``ntpnb``, the locked environment and parameters.
    """
    root = Path(root)
    paths = [
        project.source(name, root),
        root / f"book/claims/{name}.yml",
        root / "requirements.lock",
    ]
    paths += (
        path
        for path in sorted(root.glob("ntpnb/**/*"))
        if path.is_file() and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256(json.dumps(parameters or {}, sort_keys=True).encode())
    for path in paths:
        content = path.read_bytes() if path.exists() else b""
        # Lengths keep one file's end from being read as the next one's beginning.
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _read(name, parameters, root):
    """Read a notebook's text, insisting that it has every parameter that is to be set."""
    import jupytext

    notebook = jupytext.read(project.source(name, root))
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    known = {
        target.id
        for cell in cells
        for statement in ast.parse(cell.source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has: {sorted(known)}")
    return notebook


def _clean(notebook, stored):
    """Drop whatever differs between two runs of the same notebook."""
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": notebook.metadata["language_info"],
        "ntpnb": stored,
    }
    notebook.metadata["language_info"].pop("version", None)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        for field in ("papermill", "execution"):
            cell.metadata.pop(field, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]


def _seconds(notebook):
    """Seconds of a whole run, and until each of its figures was saved, before it is cleaned."""
    seconds, figures = 0.0, {}
    for cell in notebook.cells:
        seconds += cell.metadata.get("papermill", {}).get("duration") or 0.0
        for record in output.records({"cells": [cell]}, "figure"):
            figures[record["figure"]] = round(seconds, 1)
    return {"seconds": round(seconds, 1), "figures": figures}


def _manager(environment):
    """Make a kernel manager that starts this very interpreter, whatever kernels are installed."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    # -P keeps the script's own folder, with names such as `figures`, off the notebook's path.
    launcher = str(Path(__file__).with_name("kernel.py"))
    argv = [sys.executable, "-P", launcher, "-f", "{connection_file}"]
    # It would warn that TCP is not encrypted, and print a traceback where it is stopped in a cell.
    argv.append("--log-level=CRITICAL")
    spec = KernelSpec(argv=argv, language="python", display_name="Python 3", env=environment)

    class ThisPython(AsyncKernelManager):
        @property
        def kernel_spec(self):
            return spec

    return ThisPython


def _explain(error, name, cell, root):
    """Put an error into a line; a failed cell's traceback goes to a file that the line names."""
    where = f"{name}, cell [{cell}]" if cell else name
    if isinstance(error, TimeoutError):
        return f"{where}: ran longer than {_limit()} s (NTPNB_CELL_SECONDS sets another limit)"
    if isinstance(error, RuntimeError):
        return f"{where}: the kernel died, or never answered"
    traceback = re.sub("\x1b\\[[0-9;]*m", "", "\n".join(error.traceback))
    line = re.search(r"^Cell In\[\d+\], (line \d+)", traceback, re.MULTILINE)
    path = root / "_build" / f"{name}.traceback.txt"
    with contextlib.suppress(OSError):  # on a full disk the line must do
        output.write(path, traceback + "\n")
    message = " ".join(f"{error.ename}: {error.evalue}".split())
    return f"{where}{', ' + line[1] if line else ''}: {message} (see {path.relative_to(root)})"


def _limit():
    """Seconds that one cell may run: what takes longer hangs."""
    return int(os.environ.get("NTPNB_CELL_SECONDS", "600"))


def execute(name, target, parameters=None, root=output.ROOT):
    """Execute one notebook into `target`, written only when every cell succeeded.

    Parameters
    ----------
    name : str
    target : Path
        Figures are saved to the repository's `figures/`, or beside `target` where parameters
        are set: what the book shows is never overwritten by a reader's experiment.
    parameters : dict, optional
        Values for names assigned in the cell tagged ``parameters``.

    Returns
    -------
    dict
        ``seconds``, and ``figures``: seconds until each was saved.

    Raises
    ------
    ValueError
        For a parameter that the notebook does not have.
    NotebookError
        Where a cell fails or runs too long, or the kernel is missing or dies.
    """
    import nbformat
    import papermill

    root, parameters = Path(root).resolve(), parameters or {}
    stored = {"key": key(name, parameters, root)}
    notebook = _read(name, parameters, root)
    figures = Path(target).resolve().parent / "figures" if parameters else root / "figures"
    # The kernel imports the package whose sources are in the key, not another installed copy.
    environment = _THREADS | {"PYTHONPATH": str(root), "NTPNB_FIGURES": str(figures)}
    folder = project.executed(name, root).parent
    folder.mkdir(parents=True, exist_ok=True)
    if find_spec("ipykernel") is None:
        raise NotebookError(f"{name}: ipykernel is missing from {sys.executable}; run make")
    cells = []
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the error says the same
    try:
        notebook = papermill.execute_notebook(
            notebook,
            None,
            parameters,
            progress_bar=False,
            cwd=folder,
            kernel_manager_class=_manager(environment),
            coalesce_streams=True,  # how prints are split into messages is a matter of timing
            execution_timeout=_limit(),
            on_cell_execute=lambda cell, cell_index: cells.append(cell_index),
        )
    except (papermill.PapermillExecutionError, TimeoutError, RuntimeError) as error:
        raise NotebookError(_explain(error, name, len(cells), root)) from None
    seconds = _seconds(notebook)
    _clean(notebook, stored)
    output.write(target, nbformat.writes(notebook) + "\n")
    return seconds
