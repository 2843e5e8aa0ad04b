"""Seconds of every page in a browser, cell by cell: ``python -m benchmarks.browser [NAME ...]``.

Needs a site whose pages run there: ``make live book``. Each page is opened by a visitor of its own,
in headless Chromium, from this machine alone; the rows of pages that are not named stay.
"""

import contextlib
import functools
import http.server
import shutil
import sys
import threading
import time

from playwright.sync_api import sync_playwright

from benchmarks.files import table
from publishing import project

SITE = project.ROOT / "_build/html"
RESULTS = project.ROOT / "benchmarks/results/browser.csv"
COLUMNS = ("notebook", "cell", "seconds", "claims")
SHORT = 1.0
"""Seconds: of cells that take less, a reader need not be told, and the table has no row."""

LONGEST = 1800
"""Seconds that a page may take."""

WATCH = (
    """addEventListener("live-cell", (event) => (window.ended ??= []).push(event.detail), true)"""
)
IS_OVER = "() => ['done', 'ready', 'failed'].includes(document.documentElement.dataset.live)"


@contextlib.contextmanager
def served(folder):
    """Serve a folder on this machine; yields its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def measure(tab, address, name):
    """Run one page; its rows for the table, the sum last, with how many claims held."""
    tab.add_init_script(WATCH)
    tab.goto(f"{address}nb/{name}.html")
    began = time.perf_counter()
    tab.click("[data-live-start]")
    tab.wait_for_function(IS_OVER, timeout=120_000)
    started = time.perf_counter() - began
    tab.click("[data-live-run-all]")
    tab.wait_for_function(IS_OVER, timeout=LONGEST * 1000)
    ended = tab.evaluate("window.ended ?? []")
    state, claims = tab.evaluate(
        "(({live, liveClaims}) => [live, liveClaims])(document.documentElement.dataset)"
    )
    seconds = sum(cell["seconds"] for cell in ended)
    print(
        f"{name}: started after {started:.1f} s, {state} after {seconds:.1f} s, {claims}",
        flush=True,
    )
    for cell in ended:
        if cell["kind"] != "ran":
            said = cell.get("text", cell.get("needs", "")).strip().splitlines()[-1:]
            print(f"  cell {cell['cell']}: {cell['kind']} {' '.join(said)}", flush=True)
    long = [cell for cell in ended if cell["seconds"] >= SHORT]
    rows = [(name, str(cell["cell"]), f"{cell['seconds']:.1f}", "") for cell in long]
    return [*rows, (name, "", f"{seconds:.1f}", claims)]


def kept_rows(names):
    """Read the rows of pages that are not measured now."""
    rows = [tuple(row[column] for column in COLUMNS) for row in project.results("browser")]
    known = project.names()
    return [row for row in rows if row[0] in known and row[0] not in names]


def main(typed):
    """Measure pages, and write the table after each."""
    names = project.select(typed)
    order = project.names()
    with served(SITE) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name in names:
            context = browser.new_context()
            rows = kept_rows([name]) + measure(context.new_page(), address, name)
            context.close()
            rows.sort(key=lambda row: order.index(row[0]))  # stable: cells stay in their order
            table(RESULTS, [COLUMNS, *rows])
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
