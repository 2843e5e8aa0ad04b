"""Pages whose cells run in the reader's browser: what is put beside a built site, and into it.

`runtime` fetches the Python that browsers run; `pack.py` and `pack.mjs` make it small. `kernel`
runs cells there, in the thread of `worker.js`, for the page's `page.js`. A page loads none of it
before its button is pressed.
"""

import ast
import json
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import tqdm

from ntpnb_book import claims, output
from publishing import archives, project
from publishing.live import runtime

FOLDER = "live"
"""Where all of it lies below the site."""

BUTTON = """<button type="button" class="btn btn-sm" data-live-start \
style="font-size:1rem" \
title="Run the code of this page in this browser; nothing is installed or sent" \
onclick="import('{folder}/page.js').then(m=>m.start(this)).catch(()=>this.textContent=\
location.protocol=='file:'?'Needs a server: make serve':'Could not be loaded')">\
Run this page</button>"""
"""The button as each page has it; the script that knows what it does comes with the first click."""

_BUTTONS = '<div class="article-header-buttons">'
_QUOTED = re.compile(r"\{glue:text\}`([^`]+)`")
_PARAMETER = re.compile(
    r"""(?P<name>\w+)\ =\ (?P<value>.*?)
    (?:\ +\#\ *(?P<label>.*?) (?:;?\ *smaller:\ (?P<smaller>.+))?)?""",
    re.VERBOSE,
)
_HERE = Path(__file__).parent
_PAGE = ("page.js", "page.css", "worker.js", "install.js")
_IN_THE_BROWSER = ("kernel", "explored")


def parameters(code: str) -> list[dict[str, str]]:
    """List what a reader can change in a parameters cell: literals, each on a line of its own.

    Parameters
    ----------
    code : str
        The cell.

    Returns
    -------
    list of dict
        ``name``, ``value`` and ``label`` (the line's comment) as they are written, and ``smaller``,
        the value that the comment offers to those who do not want to wait, or an empty text.

    Examples
    --------
    >>> from publishing.live import parameters
    >>> parameters("steps = 10_000  # of GD; smaller: 500")
    [{'name': 'steps', 'value': '10_000', 'label': 'of GD', 'smaller': '500'}]
    """
    found = []
    for line in code.splitlines():
        match = _PARAMETER.fullmatch(line)
        if match and _is_literal(match["value"]):
            found.append(match.groupdict(""))
    return found


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def describe(name: str, root: Path = output.ROOT) -> dict[str, Any]:
    """Describe a page to the script that runs it.

    Parameters
    ----------
    name : str
        The notebook, such as ``01_toy``.
    root : Path
        Of the repository.

    Returns
    -------
    dict
        ``title``; ``cells``, each with its ``code``, its ``parameters``, the ids of the ``claims``
        that it measures, and the ``seconds`` that it took in a browser, or None; ``quotes``, the
        names of the numbers in the text, in its order; ``claims`` by id.
    """
    known = claims.load(root)
    rows = [row for row in project.results("browser", root) if row["notebook"] == name]
    seconds = {row["cell"]: float(row["seconds"]) for row in rows}
    cells: list[dict[str, Any]] = []
    for cell in project.read_executed(name, root)["cells"]:
        if cell["cell_type"] != "code":
            continue
        code = cell["source"]
        is_parameters = "parameters" in cell["metadata"].get("tags", ())
        cells.append(
            {
                "code": code,
                "parameters": parameters(code) if is_parameters else [],
                "claims": [record["id"] for record in output.records({"cells": [cell]}, "id")],
                "seconds": seconds.get(str(len(cells))),
            }
        )
    text = project.source(name, root).read_text(encoding="utf-8")
    used = {id: known[id] for cell in cells for id in cell["claims"] if id in known}
    return {
        "title": project.title(name, root),
        "cells": cells,
        "quotes": _QUOTED.findall(text),
        "claims": used,
    }


def _book_files(root: Path) -> dict[str, Path]:
    """List what the browser's Python imports of this project, and where its figures find a home."""
    files = {f"{name}.py": _HERE / f"{name}.py" for name in _IN_THE_BROWSER}
    for package in ("ntpnb", "ntpnb_book"):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".toml":
                files[path.relative_to(root).as_posix()] = path
    # Plain Python that chapters import and the runtime has not.
    installed = Path(tqdm.__file__).parents[1]
    for path in sorted(installed.glob("tqdm/**/*.py")):
        files[path.relative_to(installed).as_posix()] = path
    # `ntpnb` reads its version from what an installer leaves.
    for file in metadata.files("ntpnb") or ():
        if file.name == "METADATA":
            files[f"{file.parent.name}/{file.name}"] = Path(str(file.locate()))
    # By these two `ntpnb_book.output.is_checkout` knows a book; a page brings its own claims.
    nothing = root / "ntpnb/py.typed"
    return files | {"notebooks/.here": nothing, "book/claims/.here": nothing}


def with_button(page: str, name: str) -> str:
    """Put the button into a page that has none yet.

    Parameters
    ----------
    page : str
        The page as HTML.
    name : str
        The notebook that it shows.
    """
    if "data-live-start" in page:
        return page
    to_root = "../" * (1 + name.count("/"))
    button = BUTTON.format(folder=f"{to_root}{FOLDER}")
    page = page.replace("<html ", '<html data-live="idle" ', 1)
    return page.replace(_BUTTONS, f"{_BUTTONS}{button}", 1)


def place(site: Path, root: Path = output.ROOT) -> int:
    """Put the runtime beside a built site's pages, and a button on each page that has cells.

    A button on a page says so where what it starts is no longer there.

    Parameters
    ----------
    site : Path
        The built pages.
    root : Path
        Of the repository.

    Returns
    -------
    int
        How many pages have the button.

    Raises
    ------
    runtime.NoRuntimeError
        Where there is no runtime.
    """
    folder = site / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    kept = runtime.kept(root)
    folder.mkdir()
    archives.write_zip(folder / "book.zip", _book_files(root))
    for path in [*kept.glob("*.gz"), *(_HERE / script for script in _PAGE)]:
        shutil.copy(path, folder)
    parts = []
    for path in sorted([*folder.glob("*.gz"), folder / "book.zip"]):
        content = path.read_bytes()
        parts.append({"file": path.name, "sha256": project.digest(content), "bytes": len(content)})
    output.write(folder / "parts.json", json.dumps(parts, indent=1))
    pages = project.names(root)
    for name in pages:
        path = site / f"nb/{name}.html"
        described = json.dumps(describe(name, root), ensure_ascii=False)
        output.write(folder / f"pages/{name}.json", described)
        output.write(path, with_button(path.read_text(encoding="utf-8"), name))
    return len(pages)
