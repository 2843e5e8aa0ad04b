"""Where the time of building and testing the book goes: ``python -m benchmarks.build``.

A fresh clone of this checkout in a temporary folder goes through the stages of `.ci/run`, one after
another, two notebooks or tests at a time.
"""

import os
import subprocess
import time
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


def measure(command: str, folder: Path) -> float:
    """Run one stage in a folder: seconds on the clock.

    Raises
    ------
    subprocess.CalledProcessError
        It failed; what it printed is on the terminal.
    """
    start = time.perf_counter()
    subprocess.run(command.split(), cwd=folder, env=os.environ | THREADS, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure every stage and write the tables that the book shows.

    Where a stage fails, those before it stand in the table, and it has no line for all of them.
    """
    seconds: dict[str, float] = {}
    try:
        _measure_stages(seconds)
        seconds["all"] = sum(seconds.values())
    finally:
        rows = [(stage, f"{spent:.0f}") for stage, spent in seconds.items()]
        table(TABLES / "build.csv", [("stage", "seconds"), *rows])
        note_machine(TABLES / "build_machine.csv")


def _measure_stages(seconds: dict[str, float]) -> None:
    """Go through the stages in a clone, noting each as it ends."""
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for stage, command in STAGES.items():
            seconds[stage] = measure(command, clone)
            print(f"{stage}: {seconds[stage]:.0f} s", flush=True)


if __name__ == "__main__":
    main()
