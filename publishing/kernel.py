"""The kernel that runs a notebook: this interpreter, one thread, no network, nobody's own settings.

The same environment serves the notebooks of the book and those that nbval executes again.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""One BLAS thread: then the order of a sum, and its last digits, depend on the machine alone."""

WIDER = ("X86_V4", "AVX512")
"""How numpy names instructions that x86 processors of the last ten years may lack."""

_GUARD = Path(__file__).with_name("no_network.py")


def instructions() -> dict[str, str]:
    """Let all x86 processors of the last ten years compute with the same instructions.

    OpenBLAS and numpy would choose the widest that a processor has, and the order of a sum, with
    its last digits, along with them; long runs of Adam, sign and spectral descent make a digit that
    can be seen of that. What somebody has set already stays as it is, and other processors choose
    for themselves.
    """
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if "AVX2" not in found and "X86_V3" not in found:
        return {}
    wider = [name for name in found if name.startswith(WIDER)]
    chosen = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": " ".join(wider)}
    return {name: os.environ.get(name, value) for name, value in chosen.items()}


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
    return instructions() | THREADS | {"IPYTHONDIR": str(folder), "PYTHONSTARTUP": ""}


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
