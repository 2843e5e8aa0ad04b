"""A notebook's kernel: IPython's own, in a process that cannot reach the network.

`execute` starts this file as a script. A guard against mistakes, not against malice: the hook sees
what Python's sockets do, not other programs or libraries with sockets of their own.
"""

import sys

_REACHING = {
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "socket.sendmsg",
}


def _refuse(event, arguments):
    """Raise where a socket would look up or reach another machine; no code can remove the hook."""
    if event not in _REACHING:
        return
    # Either a host, or a socket and its address; a local socket's address is a path or nothing.
    target = arguments[0] if event.startswith("socket.get") else arguments[1]
    host = target[0] if isinstance(target, tuple) else target if target is arguments[0] else None
    if host in (None, "", "localhost", "::1") or str(host).startswith("127."):
        return
    # No OSError, which a library might take for a bad connection and carry on.
    raise RuntimeError(f"a notebook runs without the network, and wanted {host}")


if __name__ == "__main__":
    sys.addaudithook(_refuse)

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
