"""What several tests of the mathematics need."""

import os
import random

import problems
import pytest
from slow_clock import Clock

from ntpnb.basics import watch
from ntpnb.problem import sums, table
from ntpnb.problem.sums import shares


@pytest.fixture
def cluster():
    """Two processes of a Dask cluster on this machine; what Dask changes is put back."""
    reason = "Dask is not installed; pip install 'ntpnb[cluster]' brings it"
    distributed = pytest.importorskip("distributed", reason=reason)
    state, environment = random.getstate(), dict(os.environ)
    any_port = ":0"  # another test may have a cluster at the same time
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": any_port}
    with distributed.LocalCluster(**settings) as here, distributed.Client(here) as client:
        yield client
    random.setstate(state)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]


@pytest.fixture
def in_blocks(monkeypatch):
    """Data of forty contexts in twenty blocks, more than the sums that are handed out."""
    monkeypatch.setattr(table, "BLOCK", 16)
    data = problems.t24(3, V=8, m=40, d=3, size=(1, 3))
    assert sum(map(len, shares(data))) == 20 > len(shares(data)) == sums.SHARES
    return data


@pytest.fixture
def agg():
    """Figures are drawn into memory, and closed."""
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    yield
    plt.close("all")


@pytest.fixture
def slow_clock(monkeypatch):
    """Time limits count looks at the clock, so that tests do not depend on the machine."""
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock
