"""A book of one or two tiny notebooks, for tests of the machinery without the mathematics."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntpnb_book import claims, output
from publishing import keys, project

NOTEBOOK = """---
jupytext:
  notebook_metadata_filter: -jupytext.text_representation.jupytext_version
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# Tiny

```{code-cell} ipython3
:tags: [parameters]

scale = 2.0
seed = 0
```

(why)=
Four numbers.

```{code-cell} ipython3
import os

import numpy as np

from ntpnb_book import check, figures, glue

print("first")
print("second", os.environ["OMP_NUM_THREADS"])
total = (scale * np.arange(4)).sum()
check("t24.fig1.sum", total)
glue("total", f"{total:.1f}")
```

```{code-cell} ipython3
---
mystnb:
  figure:
    caption: Numbers.
    name: tiny
  image:
    alt: A line.
---
figures.use_style()
fig, ax = figures.plt.subplots()
_ = ax.plot(scale * np.arange(4))
figures.save(fig, "tiny", {"x": scale * np.arange(4)}, seed)
```
"""

CLAIMS = """
- id: t24.fig1.sum
  evidence: printed
  where: "Fig. 1"
  statement: "The numbers add up to $2 \\\\cdot 6$."
  printed: {text: "12", near: 12, within: 0.5}
  expect: {near: 12.0, within: 1e-9, because: "exact in binary"}
  show: ".4f"
"""

STATEMENTS = """
t24:
  fig1: {where: "Fig. 1", also: "000 Fig. 1", what: "a sum | W* and W*"}
  fig2: {where: "Fig. 2", what: "nothing yet"}
"""


def write(path: Path, text: str) -> None:
    """Write a file, making the folders on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@contextmanager
def edits(root: Path) -> Iterator[Callable[[str, Callable[[str], str]], None]]:
    """Edit files of a copy for as long as a test runs, and put them back afterwards."""
    before: dict[Path, str] = {}

    def change_file(path: str, change: Callable[[str], str]) -> None:
        """Replace a file's text by what ``change`` makes of it."""
        file = root / path
        text = file.read_text(encoding="utf-8")
        before.setdefault(file, text)
        changed = change(text)
        assert changed != text
        file.write_text(changed, encoding="utf-8")
        claims.load.cache_clear()

    yield change_file
    for file, text in before.items():
        file.write_text(text, encoding="utf-8")
    claims.load.cache_clear()


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def copy_package(folder: str, root: Path) -> None:
    """Copy a folder of modules from the checkout, with what Python compiled of them.

    Copies keep their time of writing, by which Python sees what was edited since it was compiled;
    without the compiled files every process that a test starts would compile all of them.
    """
    half_written = shutil.ignore_patterns("*.pyc.*")  # another process is about to rename them
    shutil.copytree(output.ROOT / folder, root / folder, ignore=half_written)


def list_claims(root: Path, *entries: dict[str, Any], name: str = "01_tiny") -> None:
    """Write a file of claims that has these entries and no others."""
    write(root / f"book/claims/{name}.yml", json.dumps(entries))


def make(root: Path) -> Path:
    """Write the tiny project: one notebook, 01_tiny, not yet executed."""
    root = Path(root)
    for folder in ("ntpnb_book", "publishing"):
        copy_package(folder, root)
    write(root / "ntpnb/__init__.py", "")
    # Without the mathematics that chapters share, for which every process would import scipy.
    write(root / "ntpnb_book/__init__.py", "from ntpnb_book.ledger import check, glue\n")
    write(root / "notebooks/01_tiny.md", NOTEBOOK)
    write(root / "book/claims/01_tiny.yml", CLAIMS)
    write(root / "book/statements.yml", STATEMENTS)
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(output.ROOT / name, root / name)
    return root


def make_two(root: Path) -> Path:
    """Write a book of two notebooks that differ in names and numbers."""
    root = make(root)
    second = NOTEBOOK.replace("scale = 2.0", "scale = 3.0").replace('"tiny"', '"other"')
    write(root / "notebooks/02_other.md", second.replace("t24.fig1.sum", "t24.fig2.sum"))
    claims = CLAIMS.replace("t24.fig1.sum", "t24.fig2.sum").replace("12", "18")
    write(root / "book/claims/02_other.yml", claims)
    return root


def make_with_evidence(root: Path) -> Path:
    """Write a book of one chapter, 01_tiny, and a page of evidence for it, evidence/sums."""
    root = make(root)
    edit(root / "notebooks/01_tiny.md", "Four numbers.", "Four numbers, see {doc}`evidence/sums`.")
    page = NOTEBOOK.replace("scale = 2.0", "scale = 3.0").replace('"tiny"', '"sums"')
    page = page.replace("# Tiny\n", "# Sums\n\n:::{evidence-for} 01_tiny why\n:::\n")
    page = page.replace("(why)=", "(sums-why)=").replace("name: tiny", "name: sums")
    write(root / "notebooks/evidence/sums.md", page.replace("t24.fig1.sum", "t24.fig2.sum"))
    claims = CLAIMS.replace("t24.fig1.sum", "t24.fig2.sum").replace("12", "18")
    write(root / "book/claims/evidence/sums.yml", claims)
    return root


def only(root: Path, code: str) -> None:
    """Replace the notebooks by one, 01_tiny, of a single cell."""
    header, *_ = NOTEBOOK.partition("```")
    shutil.rmtree(root / "notebooks")
    write(root / "notebooks/01_tiny.md", f"{header}```{{code-cell}} ipython3\n{code}\n```\n")


def command(root: Path, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """Start ``python -m publishing`` in a project, in a process group of its own."""
    environment = os.environ | {"PYTHONPATH": str(root)} | options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-m", "publishing", *arguments],
        cwd=root,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(root: Path, *arguments: str, timeout: float = 300, **options: Any) -> tuple[int, str, str]:
    """Run ``python -m publishing`` to its end: its status, what it printed, and what it said."""
    process = command(root, *arguments, **options)
    try:
        printed, said = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, said


def killed(root: Path, seconds: float, *arguments: str) -> bool:
    """Start a command, and kill it and its workers; say whether it was still running."""
    process = command(root, *arguments)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    return False


def printed(root: Path) -> str:
    """Return what the cells of the executed notebook 01_tiny printed."""
    shown = output.outputs(project.read_executed("01_tiny", root))
    return "".join("".join(each["text"]) for each in shown if each["output_type"] == "stream")


def contents(root: Path, *places: str) -> dict[str, bytes]:
    """Bytes of every file under the given places."""
    paths = [p for place in places for p in sorted((root / place).rglob("*")) if p.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def pretend(root: Path, name: str, records: list[dict[str, Any]]) -> None:
    """Write an executed notebook by hand, with the records that its outputs would have kept.

    Its key is recorded as if it came from the sources as they are.
    """
    outputs = [{"output_type": "display_data", "metadata": {"ntpnb": record}} for record in records]
    cell = {"cell_type": "code", "metadata": {}, "outputs": outputs}
    notebook = {"metadata": {}, "cells": [cell]}
    write(project.executed(name, root), json.dumps(notebook))
    if project.source(name, root).exists():
        keys.record(name, keys.key(name, root), root)
