"""Measuring one call in a process of its own that a limit of time or memory may end."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
from tempfile import TemporaryFile

from benchmarks.timing import PEAK_UNIT, clock

NO_MEMORY = ("memory allocation of", "bad_alloc", "MemoryError", "Failed to allocate")
"""What programs in Rust, C++, Python and C say when they are refused memory."""


def impose(seconds, gibibytes):
    """End this process after so many more CPU seconds, and refuse it memory beyond so much."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(spent.ru_utime + spent.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
    most = int(gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def timed(function, *args):
    """Call a function: its result, and a record of wall and CPU seconds and of peak memory."""
    result, (wall, cpu) = clock(function, *args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PEAK_UNIT
    return result, {"wall": wall, "cpu": cpu, "peak_mb": peak}


def run(module, arguments):
    """Run ``python -m module`` with its arguments as JSON: the record that it prints last.

    Where a limit that it imposed on itself ended it, the record has an ``outcome``, "time" or
    "memory", and ``peak_mb``, the peak of the whole process.
    """
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    with TemporaryFile() as printed, TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=printed, stderr=said)
        # not process.wait(): wait4 tells the memory of a process that was ended, too
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        said.seek(0)
        lines, complaint = printed.read().decode().splitlines(), said.read().decode()
    record = json.loads(lines[-1]) if lines else {}
    if process.returncode == 0:
        return record
    peak = used.ru_maxrss / PEAK_UNIT
    if process.returncode == -signal.SIGXCPU:
        return record | {"outcome": "time", "peak_mb": peak}
    if any(words in complaint for words in NO_MEMORY):
        return record | {"outcome": "memory", "peak_mb": peak}
    raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{complaint}")
