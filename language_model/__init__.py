"""The language model whose hidden states come with the book: ``python -m language_model``."""

import os

# BLAS reads these once, when numpy is loaded: the order of its sums is that of one thread.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
