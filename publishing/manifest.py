"""The figures of the book: which notebook saved which, and whether their files are there.

`figures/manifest.json`, generated like all of `figures/`, notes for each figure its notebook, its
seed, the sha256 of its data as this machine computed them, and the key of its notebook.
"""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ntpnb_book import output
from publishing import keys, project

SUFFIXES = ("png", "svg", "pdf", "csv")
"""Each figure is saved as one file of each kind. Besides, one that moves has a strip of frames, one
whose panels can be stacked a narrow drawing."""


def figures(root: Path = output.ROOT) -> list[dict[str, Any]]:
    """List the figures that the executed notebooks saved: name, notebook, seed and data hash."""
    return [
        {"figure": record["figure"], "notebook": name, **record}
        for name in project.names(root)
        for record in output.records(project.read_executed(name, root), "figure")
    ]


def data_hash(figure: str, root: Path = output.ROOT) -> str:
    """Hash the data of a figure as they lie in `figures/`."""
    return hashlib.sha256((Path(root) / f"figures/{figure}.csv").read_bytes()).hexdigest()


def read(root: Path = output.ROOT) -> dict[str, dict[str, Any]]:
    """Read `figures/manifest.json`; empty where no figure was drawn yet."""
    rows: dict[str, dict[str, Any]] = project.read_json(Path(root) / "figures/manifest.json", {})
    return rows


def write(drawn: Collection[str], root: Path = output.ROOT) -> None:
    """Note in `figures/manifest.json` what the notebooks that just ran have drawn.

    Parameters
    ----------
    drawn : collection of str
        Names of these notebooks. What is noted of the others is kept.
    """
    before = read(root)
    current = keys.recorded(root)
    rows = {}
    for record in figures(root):
        figure = record["figure"]
        notebook = record["notebook"]
        if notebook in drawn:
            rows[figure] = {
                "notebook": notebook,
                "seed": record["seed"],
                "data": data_hash(figure, root),
                "key": current[notebook].outputs,
            }
        elif figure in before:
            rows[figure] = before[figure]
    text = json.dumps(rows, indent=1, sort_keys=True)
    output.write(Path(root) / "figures/manifest.json", text + "\n")


def undrawn(name: str, key: str, root: Path = output.ROOT) -> str:
    """Say which figure of a notebook is not there as its sources draw it; empty where all are.

    Parameters
    ----------
    name : str
        The notebook.
    key : str
        What its outputs come from, see `publishing.keys.Key`.
    """
    drawn = read(root)
    for record in output.records(project.read_executed(name, root), "figure"):
        figure = record["figure"]
        endings = [f".{suffix}" for suffix in SUFFIXES]
        if "frames" in record:
            endings.append("_frames.svg")
        if record.get("narrow"):
            endings.append("_narrow.svg")
        files = [Path(root) / "figures" / f"{figure}{ending}" for ending in endings]
        if not all(path.exists() for path in files):
            return f"figure {figure} is missing"
        if drawn.get(figure, {}).get("key") != key:
            return f"figure {figure} was drawn by another version"
        if drawn[figure]["data"] != data_hash(figure, root):
            return f"figure {figure} was drawn over"  # by a reader who tried other parameters
    return ""


def redraw(typed: str, root: Path = output.ROOT) -> list[str]:
    """Remove the files of the figures that a reader named, so that their notebooks run again.

    Parameters
    ----------
    typed : str
        A figure's name or its beginning, with dashes or underscores: ``t24-fig4``.

    Returns
    -------
    list of str
        The notebooks that draw them.

    Raises
    ------
    ValueError
        Where no figure has that name.
    """
    beginning = typed.replace("-", "_") + "_"
    known = figures(root)
    rows = [row for row in known if f"{row['figure']}_".startswith(beginning)]
    if not rows:
        names = ", ".join(sorted(row["figure"] for row in known)) or "none"
        raise ValueError(f"no figure {typed!r}; there are: {names}")
    for row in rows:
        for suffix in SUFFIXES:
            (Path(root) / "figures" / f"{row['figure']}.{suffix}").unlink(missing_ok=True)
    return sorted({row["notebook"] for row in rows})
