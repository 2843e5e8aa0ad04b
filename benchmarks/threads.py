"""BLAS threads: the package as it is, against BLAS with all cores for everything, or with one."""

import os
from unittest.mock import patch

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

import ntpnb
from benchmarks.timing import duel

WORKS = {
    "max_margin": ntpnb.max_margin,
    "report": ntpnb.report,
    "gradient": lambda data: ntpnb.gradient(np.zeros(data.shape), data),
}


def against(contender, work, number, size, repeats):
    """Time some work on all cores against a contender, in seconds for all problems: a record.

    ``"all threads always"`` is the package where it finds no BLAS that it could limit; ``"one
    thread always"`` is what the Makefile sets.
    """
    cores = os.cpu_count()
    no_blas = ThreadpoolController().select(user_api="none")

    def ours(problems, threads=cores):
        with threadpool_limits(threads, user_api="blas"):
            for data in problems:
                WORKS[work](data)

    def theirs(problems):
        if contender == "one thread always":
            ours(problems, threads=1)
        else:
            with patch("ntpnb.basics.threads._blas", lambda: no_blas):
                ours(problems)

    def make(k):
        return [ntpnb.datasets.overparameterized(number * k + i, *size) for i in range(number)]

    ours(make(0)), theirs(make(0))
    _, _, record = duel(ours, theirs, repeats, make)
    record |= dict(zip("VmdS", size, strict=True)) | {"number": number, "work": work}
    return record | {"contender": contender, "cores": cores}
