"""Where the time of building and testing the book goes: ``python -m benchmarks.build``.

A fresh clone of this checkout in a temporary folder goes through the stages of `.ci/run`, one after
another, two notebooks or tests at a time.
"""

import os
import resource
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.files import table
from benchmarks.notebooks import TABLES, note_machine
from publishing.kernel import THREADS

ROOT = Path(__file__).resolve().parents[1]
_PYTEST = ".venv/bin/python -m pytest -p no:nbval -q -n 2 --dist worksteal"

STAGES = {
    "the environment, from the lock": "make .venv/.ready",
    "all notebooks, with their figures": ".venv/bin/python -m publishing run --draw",
    "the pages": "make book JOBS=2",
    "lint and types": "make lint types",
    "examples in docstrings": f"{_PYTEST} ntpnb --doctest-modules",
    "tests of the mathematics": f"{_PYTEST} tests/math",
    "tests of the repository": f"{_PYTEST} tests/repository",
    "tests of the book": f"{_PYTEST} tests/book --ignore tests/book/browser",
    "tests of the pages in a browser": f"{_PYTEST} tests/book/browser",
}
"""What is done, and by which command; `make test` runs the last four kinds of tests together."""


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of all processors together."""

    clock: float
    cpu: float


def measure(command: str, folder: Path) -> Spent:
    """Run one stage in a folder, and say what it and all that it started took.

    Raises
    ------
    subprocess.CalledProcessError
        It failed; what it printed is on the terminal.
    """
    start = time.perf_counter()
    cpu_before = _cpu_of_children()
    subprocess.run(shlex.split(command), cwd=folder, env=os.environ | THREADS, check=True)
    return Spent(time.perf_counter() - start, _cpu_of_children() - cpu_before)


def _cpu_of_children() -> float:
    """CPU seconds of the processes that this one has waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure every stage and write the tables that the book shows.

    Where a stage fails, those before it stand in the table, and it has no line for all of them.
    """
    stages: dict[str, Spent] = {}
    try:
        _measure_stages(stages)
        stages["all"] = Spent(
            clock=sum(spent.clock for spent in stages.values()),
            cpu=sum(spent.cpu for spent in stages.values()),
        )
    finally:
        rows = [
            (stage, f"{spent.clock:.0f}", f"{spent.cpu:.0f}") for stage, spent in stages.items()
        ]
        table(TABLES / "build.csv", [("stage", "seconds", "CPU seconds"), *rows])
        note_machine(TABLES / "build_machine.csv")


def _measure_stages(stages: dict[str, Spent]) -> None:
    """Go through the stages in a clone, noting each as it ends."""
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for stage, command in STAGES.items():
            stages[stage] = measure(command, clone)
            spent = stages[stage]
            print(f"{stage}: {spent.clock:.0f} s, {spent.cpu:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
