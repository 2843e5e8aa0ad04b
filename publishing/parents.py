"""Processes that end when the one that started them does."""

import os
from multiprocessing import parent_process
from threading import Thread


def end_with_parent() -> None:
    """Let a worker or a kernel end when its parent does, however that ended."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
