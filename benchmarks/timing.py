"""Timing two contenders side by side, each pair in a process of its own."""

import gc
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module, metadata
from statistics import median

PEAK_UNIT = 2**20 if sys.platform == "darwin" else 2**10
"""What makes ``ru_maxrss`` MiB: it is in bytes there, else in KiB."""


def clock(function, *args):
    """Run a function: its result, and wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(*args)
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def duel(ours, theirs, repeats, make, calls=1):
    """Run both in turn ``repeats`` times: last results, and a record of the medians.

    Parameters
    ----------
    ours, theirs : callable
        Take what ``make(k)`` returns: each call gets an input of its own, made anew untimed.
    repeats : int
    make : callable
    calls : int
        Calls of ``ours`` in a round, of which the median counts: one call of milliseconds between
        two of seconds would time how full the other left the caches.

    Returns
    -------
    ours, theirs : the results of the last round
    record : dict
        ``ours_cpu``, ``theirs_cpu``, ``ours_wall``, ``theirs_wall`` in seconds, and
        ``ratio_cpu``, ``ratio_wall``: medians over rounds of theirs divided by ours.
    """
    rounds = []
    for k in range(repeats):
        # make(k) comes last, so that both results are of the same input
        inputs = [make(repeats + k * calls + i) for i in range(calls - 1)] + [make(k)]
        gc.collect()
        *_, (a, _) = runs = [clock(ours, x) for x in inputs]
        of_ours = [median(times) for times in zip(*(spent for _, spent in runs), strict=True)]
        last = make(k)
        gc.collect()
        b, of_theirs = clock(theirs, last)
        rounds.append((*of_ours, *of_theirs))
    names = ("ours_wall", "ours_cpu", "theirs_wall", "theirs_cpu")
    record = {name: median(r[i] for r in rounds) for i, name in enumerate(names)}
    record["ratio_wall"] = median(r[2] / r[0] for r in rounds)
    record["ratio_cpu"] = median(r[3] / r[1] for r in rounds)
    return a, b, record | {"repeats": repeats}


def isolated(function, *args):
    """Run a function that returns a dict in a fresh process, and add its ``peak_mb``."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_with_peak, function, args).result()


def _with_peak(function, args):
    record = function(*args)
    return record | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PEAK_UNIT}


def versions(modules):
    """Map modules to their versions, None where one cannot be imported."""
    found, distributions = {}, metadata.packages_distributions()
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            found[name] = None
        else:
            found[name] = metadata.version(distributions[name][0])
    return found
