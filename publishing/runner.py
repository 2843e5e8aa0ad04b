"""Which notebooks are stale, and running them, several at a time."""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from ntpnb.notebook import output
from publishing import collect, project
from publishing.execute import NotebookError, execute, key

_SUFFIXES = ("png", "svg", "pdf", "csv")


def outdated(name, root=output.ROOT):
    """Say why the executed notebook is not what its sources give; empty where it is."""
    notebook = project.read_executed(name, root)
    if not notebook["cells"]:
        return "never executed"
    if notebook["metadata"].get("ntpnb", {}).get("key") != key(name, root=root):
        return "text, claims, package or environment changed"
    return ""


def stale(name, root=output.ROOT):
    """Say why a notebook must run, for itself or for its figures; empty where it need not."""
    if reason := outdated(name, root):
        return reason
    notebook, drawn = project.read_executed(name, root), collect.read_manifest(root)
    for record in output.records(notebook, "figure"):
        figure = record["figure"]
        endings = [f".{suffix}" for suffix in _SUFFIXES] + ["_frames.svg"] * ("frames" in record)
        files = [Path(root) / "figures" / f"{figure}{ending}" for ending in endings]
        if not all(path.exists() for path in files):
            return f"figure {figure} is missing"
        if drawn.get(figure, {}).get("key") != notebook["metadata"]["ntpnb"]["key"]:
            return f"figure {figure} was drawn by another version"
        if drawn[figure]["data"] != collect.data_hash(figure, root):
            return f"figure {figure} was drawn over"  # by a reader who tried other parameters
    return ""


def select(names, root=output.ROOT):
    """Turn what a reader typed (``01_toy``, ``01`` or a path) into names; all, where nothing."""
    known, chosen = project.names(root), []
    for typed in names:
        stem = Path(typed).stem
        found = [name for name in known if stem in (name, name.partition("_")[0])]
        if not found:
            raise ValueError(f"no notebook {typed!r}; there are: {', '.join(known) or 'none'}")
        chosen += found
    return sorted(set(chosen)) if names else known


def redraw(typed, root=output.ROOT):
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
    wanted, known = typed.replace("-", "_"), collect.figures(root)
    rows = [row for row in known if f"{row['figure']}_".startswith(f"{wanted}_")]
    if not rows:
        names = ", ".join(sorted(row["figure"] for row in known)) or "none"
        raise ValueError(f"no figure {typed!r}; there are: {names}")
    for row in rows:
        for suffix in _SUFFIXES:
            (Path(root) / "figures" / f"{row['figure']}.{suffix}").unlink(missing_ok=True)
    return sorted({row["notebook"] for row in rows})


def _note(text):
    print(text, file=sys.stderr, flush=True)


def _work(name, reason, force, root):
    """Execute one notebook in a process of its own, saying so as it starts.

    One that runs only for its figures keeps its executed file, which the tests compare with this
    machine; the new one goes to `_build/nb`.
    """
    _note(f"{name}: {reason}; running")
    committed, target = project.executed(name, root), Path(root) / "_build/nb" / f"{name}.ipynb"
    if force or outdated(name, root):
        return execute(name, committed, root=root)
    timing = execute(name, target, root=root)
    same = target.read_bytes() == committed.read_bytes()
    _note(f"{name}: {'same bytes as' if same else 'other bytes than'} the executed notebook, kept")
    return timing


def _keep(timings, root):
    """Add run times to `_build/timings.json`, the one file that is different on every run."""
    path = Path(root) / "_build/timings.json"
    timings = project.read_json(path, {}) | timings
    output.write(path, json.dumps(timings, indent=1, sort_keys=True) + "\n")


def run(names=(), *, force=False, jobs=2, root=output.ROOT):
    """Execute the stale notebooks among `names` (all by default), `jobs` at a time.

    A notebook that succeeds is kept even where another fails or the run is interrupted.

    Returns
    -------
    list of str
        The names of the notebooks that failed.
    """
    project.sweep(root)
    reasons = {name: "forced" if force else stale(name, root) for name in select(names, root)}
    waiting = {name: reason for name, reason in reasons.items() if reason}
    failed = []
    with ProcessPoolExecutor(min(jobs, len(waiting)) or 1, get_context("spawn")) as pool:
        futures = {
            pool.submit(_work, name, reason, force, root): name for name, reason in waiting.items()
        }
        started = time.monotonic()
        try:
            for done, future in enumerate(as_completed(futures), 1):
                name, left = futures[future], f"{len(futures) - done} left"
                try:
                    timing = future.result()
                    _keep({name: timing}, root)
                    collect.write_manifest({name}, root)
                    _note(f"{name}: {timing['seconds']} s, {left}")
                except Exception as error:
                    failed.append(name)
                    line = " ".join(str(error).split())
                    _note(line if isinstance(error, NotebookError) else f"{name}: {line}")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    _note(f"{len(waiting)} executed, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    return sorted(failed)
