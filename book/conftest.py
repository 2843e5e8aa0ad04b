"""How pytest executes the book's notebooks again: ``pytest --nbval book/nb``.

Their kernels get what those of the build get: one thread, no network, and an IPython folder of
their own, so that a reader's start-up files change no number.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from publishing import kernel


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment that nbval's kernels inherit."""
    settings = TemporaryDirectory(prefix="ntpnb-kernel-")
    config.add_cleanup(settings.cleanup)
    os.environ.update(kernel.environment(Path(settings.name)))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave drawings out, in which another processor moves letters: `publishing verify` sees."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("image/svg+xml",)
