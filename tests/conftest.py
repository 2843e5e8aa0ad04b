"""What every test shares: one BLAS thread, the same examples of properties, nothing left behind."""

import itertools
import os
import random
import sys
from pathlib import Path

import pytest
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


# -- a random order -------------------------------------------------------------------------------


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run files, and the tests of each, in random order",
    )


def pytest_report_header(config):
    seed = config.getoption("--shuffle")
    return None if seed is None else f"in random order: --shuffle {seed}"


def pytest_collection_modifyitems(config, items):
    """Shuffle the files, and the tests of each, which share what is set up once for a file.

    All workers are given the same seed, and so the same order.
    """
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    files = [list(tests) for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    for tests in files:
        chance.shuffle(tests)
    chance.shuffle(files)
    items[:] = itertools.chain.from_iterable(files)


# -- nothing stays behind -------------------------------------------------------------------------


SET_BY_LIBRARIES = {
    "PYTEST_CURRENT_TEST",  # by pytest, with each step of each test
    "KMP_INIT_AT_FORK",  # by joblib, once, where a test is the first to import it
}


def _state():
    """What a test might change for those after it, by name."""
    numpy, mpl = sys.modules.get("numpy"), sys.modules.get("matplotlib")
    pyplot = sys.modules.get("matplotlib.pyplot")
    state = {
        "open figures": pyplot.get_fignums() if pyplot else [],
        "working folder": Path.cwd(),
        "random": random.getstate(),
    }
    state |= {
        f"${name}": value for name, value in os.environ.items() if name not in SET_BY_LIBRARIES
    }
    if numpy:
        kind, key, *rest = numpy.random.get_state()
        state["numpy.random"] = (kind, key.tolist(), *rest)
    if mpl:
        # Where no test began to draw before, it chooses the backend.
        state |= {
            f"rcParams[{k!r}]": v for k, v in mpl.rcParams.items() if not k.startswith("backend")
        }
    return state


@pytest.fixture(autouse=True)
def nothing_stays_behind():
    """Fail a test that leaves open figures, or a changed environment, folder or random state."""
    before = _state()
    yield
    after = _state()
    if "rcParams['lines.color']" not in before:  # matplotlib is imported by this test
        after = {name: value for name, value in after.items() if not name.startswith("rcParams")}
    names = sorted(before.keys() | after.keys())
    left = [name for name in names if before.get(name) != after.get(name)]
    assert not left, f"this test leaves behind: {', '.join(left)}"
