"""Seconds and peak memory of every notebook, one at a time: ``python -m benchmarks.notebooks``.

Each is executed from cold, in processes of its own, and only its figures are kept.
"""

import resource
import time
from pathlib import Path

from benchmarks import report
from benchmarks.files import table
from benchmarks.timing import PEAK_UNIT, isolated, versions
from publishing import execute, project

TABLES = Path(__file__).parent / "results"
MACHINE = (
    *("day", "architecture", "processor", "cores", "memory", "load average"),
    *("Python", "BLAS", "numpy", "scipy"),
)


def measure(name, root=project.ROOT):
    """Execute one notebook: wall seconds, its kernel's start included, and the kernel's peak."""
    start = time.perf_counter()
    execute.execute(name, root=root)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / PEAK_UNIT
    return {"seconds": seconds, "kernel_mb": peak}


def note_machine(path):
    """Write what matters of this machine, as the book shows it beside a table of seconds."""
    machine = report.machine(isolated(versions, report.PACKAGES))
    table(path, [("", "here"), *[(name, machine[name]) for name in MACHINE]])


def main():
    """Measure all notebooks and write the two tables that the book shows."""
    rows = []
    for name in project.names():
        record = isolated(measure, name)
        rows.append((name, record["seconds"], record["kernel_mb"]))
        print(f"{name}: {record['seconds']:.1f} s, {record['kernel_mb']:.0f} MiB", flush=True)
    rows.append(
        ("all, one after another", sum(row[1] for row in rows), max(row[2] for row in rows))
    )
    cells = [(name, f"{seconds:.1f}", f"{peak:.0f}") for name, seconds, peak in rows]
    table(TABLES / "notebooks.csv", [("notebook", "seconds", "MiB"), *cells])
    note_machine(TABLES / "notebooks_machine.csv")


if __name__ == "__main__":
    main()
