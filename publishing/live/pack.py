"""Run inside Pyodide: make one archive of the packages that pages import, compiled and slim.

Its own Python compiles them, since no other reads what it compiled; a page then starts in half the
time. The parts lie in ``/parts``, and the archive goes to ``/packed/packages.tar``.
"""

import compileall
import importlib
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

PARTS = Path("/parts")
PACKED = Path("/packed/packages.tar")
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


def unpack() -> None:
    """Unpack the wheels to where they will be imported, and the shared library beside them."""
    for part in sorted(PARTS.iterdir()):
        if part.suffix == ".whl":
            with zipfile.ZipFile(part) as wheel:
                names = [name for name in wheel.namelist() if not LEFT_OUT.search(name)]
                wheel.extractall(SITE, names)
        elif part.name.startswith("openblas"):
            shutil.unpack_archive(part, SITE)


def list_fonts() -> None:
    """Let matplotlib list its fonts here; the list in its wheel is of another version."""
    sys.path.insert(0, str(SITE))
    sys.dont_write_bytecode = True
    importlib.import_module("matplotlib.font_manager")


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


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out times and owners: the same parts give the same archive."""
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


def main() -> None:
    """Make the archive."""
    unpack()
    list_fonts()
    compile_all()
    with tarfile.open(PACKED, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for path in SITE.rglob("*") if path.is_file()):
            archive.add(path, path.relative_to(SITE).as_posix(), filter=_plain)


main()
