"""How the system counts the memory that a process had at its peak."""

import sys

PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10
"""What makes ``ru_maxrss`` MiB: it is in bytes there, else in KiB."""
