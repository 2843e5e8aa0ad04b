"""A guard for a notebook's kernel: once this file has run, its Python reaches no network.

It is run in the kernel before the first cell (`publishing.kernel`). It guards against mistakes, not
against malice: it sees what this process's Python does, not its workers, other programs, or
libraries with sockets of their own, such as the one that carries the kernel's messages, which stay
on this machine.
"""

import socket
import sys
from typing import Any


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise where Python opens a socket that could leave this machine, or looks up a name."""
    opens = event == "socket.__new__" and arguments[1] != socket.AF_UNIX
    if opens or event.startswith(("socket.getaddrinfo", "socket.gethostby")):
        # No OSError, which a library might take for a bad connection and carry on.
        raise RuntimeError("a notebook runs without the network")


sys.addaudithook(_refuse)  # nothing can remove it again
