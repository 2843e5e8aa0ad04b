"""Which notebooks are stale, and running them, several at a time."""

import hashlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from . import collect, project
from .execute import execute, key

_SUFFIXES = ("png", "svg", "pdf", "csv")


def stale(name, root=project.ROOT):
    """Say why a notebook must run; the empty string where it need not."""
    notebook = project.read_executed(name, root)
    if not notebook["cells"]:
        return "never executed"
    if notebook["metadata"].get("ntpnb", {}).get("key") != key(name, root=root):
        return "text, claims, package or environment changed"
    for record in project.records(notebook, "figure"):
        files = [Path(root) / "figures" / f"{record['figure']}.{suffix}" for suffix in _SUFFIXES]
        if not all(path.exists() for path in files):
            return f"figure {record['figure']} is missing"
        if hashlib.sha256(files[-1].read_bytes()).hexdigest() != record["data"]:
            return f"figure {record['figure']} has other data"
    return ""


def select(names, root=project.ROOT):
    """Turn what a reader typed (``01_toy``, ``01`` or a path) into names; all, where nothing."""
    known, chosen = project.names(root), []
    for typed in names:
        stem = Path(typed).stem
        found = [name for name in known if stem in (name, name.partition("_")[0])]
        if not found:
            raise ValueError(f"no notebook {typed!r}; there are: {', '.join(known) or 'none'}")
        chosen += found
    return sorted(set(chosen)) if names else known


def _note(text):
    print(text, file=sys.stderr, flush=True)


def _work(name, reason, root):
    """Execute one notebook in a process of its own, saying so as it starts."""
    _note(f"{name}: {reason}; running")
    return execute(name, project.executed(name, root), root=root)


def _keep(timings, root):
    """Add run times to `_build/timings.json`, the one file that is different on every run."""
    path = Path(root) / "_build/timings.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    project.write(path, json.dumps(old | timings, indent=1, sort_keys=True) + "\n")


def run(names=(), *, force=False, jobs=2, root=project.ROOT):
    """Execute the stale notebooks among `names` (all by default), `jobs` at a time.

    A notebook that succeeds is kept even where another fails or the run is interrupted.

    Returns
    -------
    list of str
        The names of the notebooks that failed.
    """
    reasons = {name: "forced" if force else stale(name, root) for name in select(names, root)}
    waiting = {name: reason for name, reason in reasons.items() if reason}
    failed = []
    with ProcessPoolExecutor(min(jobs, len(waiting)) or 1, get_context("spawn")) as pool:
        futures = {pool.submit(_work, name, reason, root): name for name, reason in waiting.items()}
        started = time.monotonic()
        try:
            for done, future in enumerate(as_completed(futures), 1):
                name, left = futures[future], f"{len(futures) - done} left"
                try:
                    timing = future.result()
                    _keep({name: timing}, root)
                    _note(f"{name}: {timing['seconds']} s, {left}")
                except Exception as error:
                    failed.append(name)
                    _note(f"{name}: failed, {left}\n{error}")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    collect.write_manifest(root)
    _note(f"{len(waiting)} executed, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    return sorted(failed)
