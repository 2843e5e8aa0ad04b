"""What several tests of the mathematics need."""

import os
import random

import pytest


@pytest.fixture
def cluster():
    """Two processes of a Dask cluster on this machine; what Dask changes is put back."""
    reason = "Dask is not installed; pip install 'ntpnb[cluster]' brings it"
    distributed = pytest.importorskip("distributed", reason=reason)
    state, environment = random.getstate(), dict(os.environ)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as here, distributed.Client(here) as client:
        yield client
    random.setstate(state)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
