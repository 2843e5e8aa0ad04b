"""Running the notebooks that must run, several at a time."""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from ntpnb_book import output
from publishing import execute, keys, project, verify
from publishing.execute import NotebookError


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    """Let a worker end when its parent does, however that ended; the kernel then ends by itself."""

    def watch() -> None:
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _reword(name: str, root: Path) -> None:
    """Give an executed notebook the words of its present text; it keeps its outputs."""
    key = keys.key(name, root)
    output.write(project.executed(name, root), execute.reworded(name, root))
    keys.record(name, key, root)
    _note(f"{name}: {keys.REWORDED}; outputs kept")


def _work(name: str, reason: str, folder: str, root: Path) -> tuple[float, keys.Key]:
    """Execute one notebook in a process of its own; return its seconds, and a key to record.

    What does not go to the book's folder is executed for its figures, as all kinds of files.
    """
    _note(f"{name}: {reason}; running")
    started = time.monotonic()
    key = keys.key(name, root)
    formats = "" if folder == project.COMMITTED else "png pdf"
    text = execute.execute(name, root=root, formats=formats)
    if keys.key(name, root) != key:
        raise NotebookError(f"{name}: its sources changed while it ran; run it again")
    output.write(project.executed(name, root, folder), text)
    if formats:
        same = "same bytes as" if verify.has_same_bytes(name, root) else "other bytes than"
        _note(f"{name}: {same} the executed notebook, kept")
    return time.monotonic() - started, key


def _longest_first(reasons: Mapping[str, str], root: Path) -> list[tuple[str, str]]:
    """Sort notebooks, so that in the end no worker waits for the other's long one."""
    seconds = project.seconds(root)
    return sorted(reasons.items(), key=lambda pair: -float(seconds.get(pair[0], "inf")))


def run(
    names: Iterable[str] = (),
    *,
    force: bool = False,
    draw: bool = False,
    jobs: int = 2,
    root: Path = output.ROOT,
) -> list[str]:
    """Execute the stale notebooks among `names` (all by default), `jobs` at a time.

    A notebook that succeeds is kept even where another fails or the run is interrupted.

    Parameters
    ----------
    names : iterable of str
        As a reader types them, see `publishing.project.select`.
    force : bool
        Execute those that are not stale as well.
    draw : bool
        Execute all of them for their figures, and keep their executed files, with which
        `publishing.verify` compares what this gives.

    Returns
    -------
    list of str
        The names of the notebooks that failed.
    """
    root = Path(root)
    project.sweep(root)
    chosen = project.select(names, root)
    if draw or force:
        reasons = dict.fromkeys(chosen, "drawn anew" if draw else "forced")
    else:
        reasons = keys.outdated(chosen, root)
        for name in chosen:
            if reasons.get(name) == keys.REWORDED:
                _reword(name, root)
                del reasons[name]
    folder = project.HERE if draw else project.COMMITTED
    failed = []
    started = time.monotonic()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent) as pool:
        futures = {
            pool.submit(_work, name, reason, folder, root): name
            for name, reason in _longest_first(reasons, root)
        }
        try:
            for done, future in enumerate(as_completed(futures), 1):
                name = futures[future]
                try:
                    seconds, key = future.result()
                    keys.record(name, key, root, folder)
                    _note(f"{name}: {seconds:.1f} s, {len(futures) - done} left")
                except Exception as error:
                    failed.append(name)
                    line = " ".join(str(error).split())
                    _note(line if isinstance(error, NotebookError) else f"{name}: {line}")
        finally:
            pool.shutdown(cancel_futures=True)  # nothing is left to cancel but after an interrupt
    _note(f"{len(reasons)} executed, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    return sorted(failed)
