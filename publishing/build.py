"""The pages of the book, built where they are not those of their sources.

`publishing.stamps` has two stamps: of what makes the pages, notebooks' outputs among it, and of
their texts. Where both are those of the last build, the pages stay as they are. Where the first is
another one now, or where the last build failed, whose warnings Sphinx would not repeat, all pages
are read anew, and written to an empty folder: beside what lies there from before, Sphinx stamps
style sheets that it does not stamp otherwise.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from ntpnb_book import output
from publishing import stamps

SITE = "_build/html"
JUPYTER_BOOK = "import publishing; from jupyter_book.cli.main import main; main()"
"""The program ``jupyter-book``, without what `publishing` leaves out, two seconds of its start."""

BUILT = "_build/.complete"
"""Holds the stamps of the last build, from its end until the next one begins."""


def pages(root: Path = output.ROOT) -> bool:
    """Build what is to be built; False where Sphinx has a warning or an error, which it prints.

    Parameters
    ----------
    root : Path
        The checkout, with its generated pages.
    """
    site = root / SITE
    built = root / BUILT
    now = list(stamps.stamp(root))
    is_known = built.exists() and (site / "index.html").exists()
    before = built.read_text(encoding="utf-8").split() if is_known else []
    if before == now:
        print("the pages are those of these sources")
        return True
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", "book", "-W", "-n", "--keep-going"]
    if before[:1] != now[:1]:
        command += ["--all"]
        shutil.rmtree(site, ignore_errors=True)
    built.unlink(missing_ok=True)
    sys.stdout.flush()  # before what the other program prints
    if subprocess.run(command, cwd=root, check=False).returncode != 0:
        return False
    output.write(built, " ".join(now))
    return True
