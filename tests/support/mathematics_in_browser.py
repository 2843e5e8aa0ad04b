"""Run by `mathematics.mjs` inside Pyodide: pytest on tests/math, as far as browsers run them."""

import concurrent.futures
import os
import signal
import sys
import types
from pathlib import Path

ABSENT = {"cvxpy", "torch"}
"""Packages that no browser has; a test that uses one is skipped."""

LEFT_OUT = {
    "test_authors_runs": "reads PDF files that it draws, and the packages of pages draw none",
    "test_threads": "WebAssembly has one thread",
    "test_command_line": "runs processes",
    "test_recipe": "runs PyTorch",
}
"""Files that ask for what a browser does not have, with the reason."""


class Absent(types.ModuleType):
    """In the place of a package: whoever asks it for something is skipped."""

    def __getattr__(self, name):
        """Skip the test, unless it is Python that asks."""
        import pytest

        if name.startswith("__"):
            raise AttributeError(name)
        return pytest.skip(f"no browser has {self.__name__}")


def no_processes(*_, **__):
    """Skip the test, in the place of what would start processes."""
    import pytest

    pytest.skip("a browser starts no processes")


def main(options):
    """Run the tests and return pytest's status."""
    # `ntpnb` reads its version from what an installer leaves.
    Path("/ntpnb-1.dist-info").mkdir()
    Path("/ntpnb-1.dist-info/METADATA").write_text("Name: ntpnb\nVersion: 1\n", "utf-8")
    sys.path.insert(0, "/root_of_project")
    sys.path += ["/testers", "/"]
    sys.modules |= {name: Absent(name) for name in ABSENT}
    sys.dont_write_bytecode = True
    signal.alarm = lambda seconds: 0  # time limits are watched elsewhere
    # Its import alone needs what a browser does not have, and a whole file would not be collected.
    concurrent.futures.ProcessPoolExecutor = no_processes
    os.environ["MPLBACKEND"] = "agg"
    os.chdir("/root_of_project")
    import pytest
    import tqdm

    tqdm.tqdm.monitor_interval = 0  # the monitor of its bars would be a thread
    ignored = [f"--ignore=tests/math/{name}.py" for name in LEFT_OUT]
    options = [*options, *ignored, "-m", "not slow and not stress", "--capture=sys"]
    options += ["-q", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"]
    return int(pytest.main(options))


status = main(list(options))  # noqa: F821  # set by mathematics.mjs, which reads the status
