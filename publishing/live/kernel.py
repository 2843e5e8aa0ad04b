"""What runs a page's cells in the browser: the part of a notebook kernel that the book needs.

It stands in for IPython, whose display function is all that `ntpnb_book` uses, and for the file of
claims, of which a page brings its own. It speaks to the page by messages, each a dictionary with
the key ``kind``; `publishing/live/page.js` shows them.
"""

import ast
import io
import json
import linecache
import symtable
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

Send = Callable[[dict[str, Any]], None]

WRITE_EVERY = 0.1
"""Seconds between two messages with printed text: a page that gets too many cannot stop a cell."""

MOST_TEXT = 100_000
"""Characters that one cell may print in all."""

NOT_IN_BROWSERS = frozenset({"cvxpy", "torch"})
"""What a few cells compare with, and no browser has: they are left out, not failed."""


class Stream(io.TextIOBase):
    """Where a cell prints to: text is gathered, and sent a few times in a second."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._gathered: list[str] = []
        self._sent = time.monotonic()
        self._left = MOST_TEXT

    def write(self, text: str) -> int:
        """Gather some text; what exceeds `MOST_TEXT` is dropped, and said to be."""
        kept = text[: self._left]
        if len(kept) < len(text) and self._left > 0:
            kept += f"\n… (more than {MOST_TEXT:,} characters: the rest is not shown)\n"
        self._left = max(0, self._left - len(text))
        if kept:
            self._gathered.append(kept)
        if time.monotonic() - self._sent > WRITE_EVERY:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what was gathered."""
        if self._gathered:
            self._send({"kind": "text", "text": "".join(self._gathered)})
            self._gathered = []
        self._sent = time.monotonic()


def message(data: Mapping[str, str], metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Turn an output of `ntpnb_book` into the message that says what it is.

    Parameters
    ----------
    data : mapping
        Contents by MIME type.
    metadata : mapping
        What the output carries unseen: the record of a claim or a figure, or a quoted number.

    Returns
    -------
    dict or None
        None for what a page does not show. HTML is never sent: only letters and drawings are.
    """
    record = metadata.get("ntpnb", {})
    quoted = metadata.get("scrapbook")
    if quoted:
        [content] = data.values()
        return {"kind": "quote", "name": quoted["name"], "text": ast.literal_eval(content)}
    if "id" in record:
        mark, _, rest = data["text/plain"].partition(" ")
        words = rest.removeprefix(record["id"]).strip()
        return {"kind": "claim", "id": record["id"], "holds": mark == "✓", "text": words}
    if "image/svg+xml" in data:
        drawings = record.get("drawings", {})
        texts = record.get("frames", {}).get("texts")
        name = record.get("figure", "")
        svg = data["image/svg+xml"]
        return {"kind": "figure", "name": name, "svg": svg, "drawings": drawings, "texts": texts}
    text = data.get("text/plain", "")
    return {"kind": "text", "text": f"{text}\n"} if text else None


class Kernel:
    """The state of a page's Python: names that cells made, and what they could not make.

    Parameters
    ----------
    claims : mapping
        The page's claims by id, as `ntpnb_book.claims.load` gives them.
    send : callable
        Takes each message.
    """

    def __init__(self, claims: Mapping[str, Any], send: Send) -> None:
        self._send = send
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._left_out: dict[str, str] = {}  # names that cells left out would have made, and why
        self._stand_in_for_ipython()
        stand_in = types.ModuleType("ntpnb_book.claims")
        stand_in.load = lambda root: claims  # type: ignore[attr-defined]
        sys.modules["ntpnb_book.claims"] = stand_in

    def _stand_in_for_ipython(self) -> None:
        shell = types.ModuleType("IPython")
        display = types.ModuleType("IPython.display")
        # Not None, so that `ntpnb_book` sees a notebook; not true, so that matplotlib sees none.
        shell.get_ipython = lambda: False  # type: ignore[attr-defined]
        shell.version_info = (9, 0)  # type: ignore[attr-defined]  # newer matplotlib looks
        shell.display = display  # type: ignore[attr-defined]
        display.publish_display_data = self._publish  # type: ignore[attr-defined]
        display.display = lambda *shown: [self._show(one) for one in shown]  # type: ignore[attr-defined]
        sys.modules |= {"IPython": shell, "IPython.display": display}

    def _publish(self, data: Mapping[str, str], metadata: Mapping[str, Any] | None = None) -> None:
        sys.stdout.flush()  # what was printed before stands before
        sent = message(data, metadata or {})
        if sent is not None:
            self._send(sent)

    def _show(self, value: object) -> None:
        """Show what a cell's last line gave, in letters."""
        if value is not None:
            self._publish({"text/plain": repr(value)})

    def run(self, number: int, code: str) -> dict[str, Any]:
        """Run a cell and return how it ended.

        Parameters
        ----------
        number : int
            Its place on the page, from zero.
        code : str
            Its text.

        Returns
        -------
        dict
            The message of kind ``"ran"``, ``"left-out"`` with what is missing, or ``"error"`` with
            the text that a notebook would show, without what lies inside libraries; each with
            the cell's ``seconds``.
        """
        file = f"<cell {number + 1}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        stream = Stream(self._send)
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = stream
        began = time.perf_counter()
        try:
            self._execute(code, file)
            self._show_open_figures()
            ended: dict[str, Any] = {"kind": "ran"}
        except BaseException as error:  # a cell may raise anything, and the page has to go on
            ended = self._failure(error, code, file)
        stream.flush()
        sys.stdout, sys.stderr = before
        return ended | {"seconds": time.perf_counter() - began}

    def _execute(self, code: str, file: str) -> None:
        """Run the statements of a cell, and show the value of a last expression."""
        tree = ast.parse(code, file)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        exec(compile(tree, file, "exec"), self._names)
        if last is not None:
            self._show(eval(compile(last, file, "eval"), self._names))
        for name in set(self._left_out) & stored(code):
            del self._left_out[name]

    def _failure(self, error: BaseException, code: str, file: str) -> dict[str, Any]:
        """Say how a cell failed, or that it needs what no browser has."""
        missing = None
        if isinstance(error, ImportError) and error.name is not None:
            top = error.name.partition(".")[0]
            missing = top if top in NOT_IN_BROWSERS else None
        elif isinstance(error, NameError):
            missing = self._left_out.get(error.name)
        if missing is not None:
            for name in stored(code):  # a value from before would be another one
                self._names.pop(name, None)
                self._left_out[name] = missing
            return {"kind": "left-out", "needs": missing}
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename.startswith("<cell ")]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)]
        lines += traceback.format_exception_only(error)
        return {"kind": "error", "text": "".join(lines if own else lines[1:])}

    def _show_open_figures(self) -> None:
        """Show and close the figures that a cell drew and did not save, as a notebook does."""
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        for figure in map(plt.figure, plt.get_fignums()):
            picture = io.StringIO()
            figure.savefig(picture, format="svg")
            self._publish({"image/svg+xml": picture.getvalue()})
        plt.close("all")


def stored(code: str) -> set[str]:
    r"""Return the names that a cell binds outside of its functions and classes.

    Examples
    --------
    >>> from publishing.live.kernel import stored
    >>> sorted(stored("import numpy as np, os.path\nx, y = 1, 2\ndef f(z): w = z"))
    ['f', 'np', 'os', 'x', 'y']
    """
    symbols = symtable.symtable(code, "<cell>", "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned()}


def load_libraries(narrow: bool) -> None:
    """Import what every chapter imports, and let figures be drawn for the reader's screen.

    The form of a figure for telephones takes as long again as the one for wide screens. A page that
    is wide does without it, and shows the wide one should its window become narrow.

    Parameters
    ----------
    narrow : bool
        Whether the page asks for the form for telephones.
    """
    from ntpnb_book import saving

    if not narrow:
        saving.stack = lambda fig, columns: False


def start(claims: str, send: Callable[[str], None], narrow: bool) -> Callable[[int, str], str]:
    """Make a page's kernel; messages leave as JSON, which crosses into the browser's language.

    Parameters
    ----------
    claims : str
        The page's claims by id, as JSON.
    send : callable
        Takes each message.
    narrow : bool
        As `load_libraries` takes it.

    Returns
    -------
    callable
        `Kernel.run`, whose result is JSON as well.
    """
    kernel = Kernel(json.loads(claims), lambda sent: send(json.dumps(sent)))
    load_libraries(narrow)
    return lambda number, code: json.dumps(kernel.run(number, code))
