"""What every test shares: one BLAS thread, and property tests that repeat the same examples."""

import os

from hypothesis import Phase, settings

# BLAS reads these once, when numpy is loaded; nothing has imported numpy yet.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# No deadline: a slow machine is not a wrong result. No database: what ran before must not matter.
settings.register_profile("check", derandomize=True, deadline=None, database=None)
# For `make check`, which is run many times an hour; `make test` tries the properties in full.
settings.register_profile("quick", settings.get_profile("check"), max_examples=30)
settings.register_profile("stress", max_examples=2000, deadline=None, print_blob=True)
# For `make mutants`: only whether a test fails counts, so few examples and none made smaller.
settings.register_profile(
    "mutants",
    settings.get_profile("check"),
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))
