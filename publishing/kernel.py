"""A notebook's kernel: IPython's own, in a process that opens no socket and looks up no name.

`execute` starts this file as a script. A guard against mistakes, not against malice: it sees what
this process's Python does, not its workers, other programs, or libraries with sockets of their own
(as the kernel's messages have, and they stay on this machine).
"""

import socket
import sys


def _refuse(event, arguments):
    """Raise where Python opens a socket that could leave this machine, or looks up a name."""
    opens = event == "socket.__new__" and arguments[1] != socket.AF_UNIX
    if opens or event.startswith(("socket.getaddrinfo", "socket.gethostby")):
        # No OSError, which a library might take for a bad connection and carry on.
        raise RuntimeError("a notebook runs without the network")


if __name__ == "__main__":
    sys.addaudithook(_refuse)  # nothing can remove it again

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
