"""The pages of the book, built where they are not those of their sources.

`publishing.stamps` hashes what makes the pages, notebooks' outputs among it, and their texts. Where
all of it is as at the last build, the pages stay as they are. Where only texts changed, Sphinx
builds these pages. Otherwise, or where the last build failed, whose warnings Sphinx would not
repeat, all pages are read anew, and written to an empty folder: beside what lies there from before,
Sphinx stamps style sheets that it does not stamp otherwise.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ntpnb_book import output
from publishing import stamps

SITE = "_build/html"
JUPYTER_BOOK = "import publishing; from jupyter_book.cli.main import main; main()"
"""The program ``jupyter-book``, without what `publishing` leaves out, two seconds of its start."""

BUILT = "_build/built_from.json"
"""Holds what the pages were built from, from the end of a build until the next one begins."""


def pages(root: Path = output.ROOT) -> bool:
    """Build what is to be built; False where Sphinx has a warning or an error, which it prints.

    Parameters
    ----------
    root : Path
        The checkout, with its generated pages.
    """
    site = root / SITE
    built = root / BUILT
    now = stamps.contents(root)
    is_whole = built.exists() and (site / "index.html").exists()
    before = json.loads(built.read_bytes()) if is_whole else {}
    changed = [name for name in before | now if before.get(name) != now.get(name)]
    if not changed:
        print("the pages are those of these sources")
        return True
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", "book", "-W", "-n", "--keep-going"]
    if before and all(stamps.is_page(name) and name in now for name in changed):
        for name in changed:
            (root / name).touch()  # Sphinx goes by times
    else:
        command += ["--all"]
        shutil.rmtree(site, ignore_errors=True)
    built.unlink(missing_ok=True)
    sys.stdout.flush()  # before what the other program prints
    if subprocess.run(command, cwd=root, check=False).returncode != 0:
        return False
    output.write(built, json.dumps(now, indent=1))
    return True
