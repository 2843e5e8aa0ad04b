"""The kernel that runs a notebook: this interpreter, one thread, no network, nobody's own settings.

The same environment serves the notebooks of the book and those that nbval executes again.
"""

import sys
from pathlib import Path
from typing import Any

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""One BLAS thread: then the order of a sum, and its last digits, depend on the machine alone."""

_GUARD = Path(__file__).with_name("no_network.py")


def environment(folder: Path) -> dict[str, str]:
    """Prepare IPython's folder for one kernel and return the environment that leads to it.

    It holds one start-up file, which shuts the network out; a reader's own start-up files, settings
    and history stay where they are.

    Parameters
    ----------
    folder : Path
        Empty, and kept while the kernel runs.
    """
    startup = Path(folder) / "profile_default" / "startup"
    startup.mkdir(parents=True)
    # One expression, so that no name of it is left in the notebook.
    guard = f"__import__('runpy').run_path({str(_GUARD)!r})\n"
    (startup / "00-no-network.py").write_text(guard, encoding="utf-8")
    return THREADS | {"IPYTHONDIR": str(folder), "PYTHONSTARTUP": ""}


def manager(variables: dict[str, str]) -> type[Any]:
    """Make a kernel manager that starts this very interpreter, whatever kernels are installed.

    Parameters
    ----------
    variables : dict
        What the kernel finds in its environment beside what this process has.
    """
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    # -P keeps the working directory off the path of the modules that Python itself loads.
    argv = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    # It would warn that TCP is not encrypted, and print a traceback where it is stopped in a cell.
    argv.append("--log-level=CRITICAL")
    spec = KernelSpec(argv=argv, language="python", display_name="Python 3", env=variables)

    class ThisPython(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            return spec

    return ThisPython
