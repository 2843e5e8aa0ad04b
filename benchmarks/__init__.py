"""Timings of ntpnb against what one would otherwise write: ``python -m benchmarks``."""

import os

# BLAS reads these once, when numpy is loaded: everybody computes with one thread.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
