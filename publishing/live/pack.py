"""Run inside Pyodide: gather the packages that pages import, compiled and slim.

Its own Python compiles them, since no other reads what it compiled; a page then starts in half the
time. The parts lie in ``/parts``. All files go to ``packages.data`` there, one after the other;
their sizes by path, and the libraries to load first, to ``packages.json``: see ``install.js``.
``pack.mjs`` calls `unpack`, loads the shared library, and calls `gather`.
"""

import compileall
import importlib
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

PARTS = Path("/parts")
SITE = Path("/site")

LEFT_OUT = re.compile(
    r"""(^|/)(tests?|testing/tests|sample_data|_pyinstaller|include)/
    | ^scipy/(cluster|datasets|fftpack|io/_fast_matrix_market|io/matlab|misc|odr|signal)/
    | ^numpy/distutils/
    | ^matplotlib/mpl-data/(fonts/(afm|pdfcorefonts)|images|stylelib/seaborn|plot_directive)
    | ^matplotlib/backends/web_backend
    | \.(a|c|h|lib|pxd|pxi|pyf|pyi|pyx|po|html|js)$
    | \.dist-info/(?!METADATA)""",
    re.VERBOSE,
)
"""What no chapter imports or opens; every page is run to see that this is so."""


IMPORTED = (
    "matplotlib.pyplot",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "scipy.special",
)
"""What `ntpnb` and `ntpnb_book` import; nothing follows from it but the time of a page's start."""

SHARED = "libopenblas.so"
"""The library whose symbols all others may use."""


def unpack() -> None:
    """Unpack the wheels to where they will be imported, and the shared library beside them."""
    for part in sorted(PARTS.iterdir()):
        if part.suffix == ".whl":
            with zipfile.ZipFile(part) as wheel:
                names = [name for name in wheel.namelist() if not LEFT_OUT.search(name)]
                wheel.extractall(SITE, names)
        elif part.name.startswith("openblas"):
            shutil.unpack_archive(part, SITE)


def import_first() -> list[tuple[str, bool]]:
    """Import what pages import; list the libraries that it loads, and whether others use them.

    Here matplotlib lists its fonts; the list in its wheel is of another version.
    """
    sys.path.insert(0, str(SITE))
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        importlib.import_module(name)
    files = [Path(getattr(module, "__file__", None) or "") for module in sys.modules.values()]
    libraries = [file for file in files if file.suffix == ".so" and file.is_relative_to(SITE)]
    return [(SHARED, True), *((file.relative_to(SITE).as_posix(), False) for file in libraries)]


def compile_all() -> None:
    """Replace every module by its compiled form, which holds no time and is never checked again."""
    compiled = compileall.compile_dir(
        SITE,
        quiet=1,
        legacy=True,
        stripdir=str(SITE),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        sys.exit("pack.py: a module could not be compiled")
    for source in SITE.rglob("*.py"):
        source.unlink()


def gather() -> None:
    """Compile and gather the files."""
    libraries = import_first()
    compile_all()
    sizes = {}
    with (PARTS / "packages.data").open("wb") as data:
        for path in sorted(path for path in SITE.rglob("*") if path.is_file()):
            sizes[path.relative_to(SITE).as_posix()] = data.write(path.read_bytes())
    listed = json.dumps({"sizes": sizes, "libraries": libraries})
    (PARTS / "packages.json").write_text(listed, encoding="utf-8")
