"""Kernels forked from a process that has loaded what every notebook loads, numpy and others.

Loading these libraries takes longer than many a notebook computes. A server, one for each worker of
the runner, loads them once and forks a process for each kernel, in which no notebook has run and
``ntpnb`` is not loaded yet: that comes from the sources that the key names.
"""

import os
import runpy
import sys
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

from publishing import kernel
from publishing.parents import end_with_parent

LIBRARIES = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "scipy.sparse.linalg",
    "scipy.special",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "fontTools.subset",
)
"""What the server loads; nothing of it starts a thread, opens a socket or draws a random number."""

_BACKEND = "module://matplotlib_inline.backend_inline"


def is_possible() -> bool:
    """Say whether this system can fork: Windows cannot, and there every kernel loads for itself."""
    return "forkserver" in get_all_start_methods()


def _become_kernel(command: list[str], variables: dict[str, str], folder: str) -> None:
    """Turn this process, which was just forked, into the one that a command would have started.

    Parameters
    ----------
    command : list of str
        Python, its options, ``-m``, the module to run, and the module's arguments.
    variables : dict
        The whole environment.
    folder : str
        The working directory.
    """
    import matplotlib as mpl  # loaded long ago; the server's parent does without it

    os.setsid()  # as jupyter_client does: a signal to the kernel's group reaches nothing else
    end_with_parent()
    os.environ.clear()
    # A kernel ends with its parent process, which here is the server.
    os.environ.update(variables | {"JPY_PARENT_PID": str(os.getppid())})
    os.chdir(folder)
    # As where MPLBACKEND is set, which the kernel does, before matplotlib is loaded.
    mpl.rcParams["backend"] = variables.get("MPLBACKEND", _BACKEND)
    first = variables.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*first, *(place for place in sys.path if place not in ("", *first))]
    module = command.index("-m") + 1
    sys.argv[:] = command[module:]
    runpy.run_module(command[module], run_name="__main__", alter_sys=True)


class _ForkedProcess:
    """A forked process, with those methods of `subprocess.Popen` that jupyter_client calls."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], variables: dict[str, str], folder: str) -> None:
        os.environ.update(kernel.THREADS)  # the server reads them as it loads numpy
        context: Any = get_context("forkserver")
        context.set_forkserver_preload(list(LIBRARIES))
        self._process = context.Process(target=_become_kernel, args=(command, variables, folder))
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        status: int | None = self._process.exitcode
        return status

    def wait(self) -> int | None:
        """Wait for the end, and return the exit status."""
        self._process.join()
        return self.poll()

    def send_signal(self, signal: int) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, signal)

    def terminate(self) -> None:
        """Ask the process to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End the process."""
        self._process.kill()


class ForkedProvisioner(LocalProvisioner):
    """Start a kernel by forking, where jupyter_client would start a new interpreter."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel; `kwargs` name its environment and its working directory."""
        variables: dict[str, str] = kwargs.get("env") or dict(os.environ)
        folder = Path(kwargs.get("cwd") or Path.cwd()).resolve()
        self.process = _ForkedProcess(cmd, variables, str(folder))
        self.pid = self.process.pid
        self.pgid = self.pid  # it leads its own group
        self.cwd = folder
        return self.connection_info
