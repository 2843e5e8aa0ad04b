"""The memory that a process had at its peak, and what Python allocated."""

import sys
import tracemalloc
from contextlib import contextmanager

PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10
"""What makes ``ru_maxrss`` MiB: it is in bytes there, else in KiB."""


@contextmanager
def allocates_less_than(num_bytes):
    """Fail where Python allocates as much within."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()
