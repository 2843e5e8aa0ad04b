"""For `make mutants`, whose tests pytest loads this with: no change of the code goes on for long.

A change that makes a loop endless is noticed by the first test that it holds up, and not by the
limit of all tests together, which may be half an hour.
"""

import json
import math
import os
import resource
from pathlib import Path

STATISTICS = Path("mutmut-stats.json")  # in the folder in which mutmut runs the tests
SLOWER = 10  # times as long as without a change
SECONDS = 2  # of CPU, which the quickest test may take


def pytest_configure(config):
    """Look up once, not in each of many million calls, which change is tried; and what tests took.

    Before mutmut has measured that, there is no such file.
    """
    from mutmut.mutation import trampoline

    changed = os.environ.get("MUTANT_UNDER_TEST", "")
    if "__mutmut_" in changed:
        trampoline.get_mutant_under_test = lambda: changed
    config.lasted = {}
    if STATISTICS.exists():
        config.lasted = json.loads(STATISTICS.read_text("utf-8"))["duration_by_test"]


def pytest_runtest_setup(item):
    """Let the system end the process where this test takes far longer, as mutmut's own limit does.

    Only the processes that try a change have that limit.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    if most == resource.RLIM_INFINITY:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = SECONDS + SLOWER * item.config.lasted.get(item.nodeid, 0)
    limit = math.ceil(used.ru_utime + used.ru_stime + allowed)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limit, most), most))
