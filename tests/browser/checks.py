"""What is asked of a page in a browser: every check returns its complaints, none if all is well."""

import functools
import http.server
import threading
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe

from ntpnb.book.project import ROOT

SITE = ROOT / "_build" / "html"

WIDTHS = {"desktop": 1280, "phone": 390}

# With preloading, axe looks for the theme's imported style sheets in the wrong folder: a 404.
AXE = {
    "preload": False,
    "resultTypes": ["violations"],
    "runOnly": [
        *("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"),
        *("best-practice", "experimental"),
    ],
}

RENDERED = """async () => {
  const complaints = [];
  await document.fonts.ready;
  const math = document.querySelectorAll("span.math, div.math");
  if (math.length) {
    if (!window.MathJax?.startup?.promise) return ["formulas, but MathJax did not start"];
    await MathJax.startup.promise;
  }
  for (const node of math)
    if (!node.querySelector("mjx-container")) complaints.push("not typeset: " + node.textContent);
  for (const node of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
    complaints.push("TeX error: " + (node.dataset.mjxError ?? node.textContent));
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    const verbatim = parentElement.closest("pre, code, script, style, mjx-container");
    if (!verbatim && /\\$\\$|\\\\[(\\[]/.test(data))
      complaints.push("raw TeX: " + data.trim().slice(0, 80));
  }
  for (const image of document.images) {
    await image.decode().catch(() => {});
    if (!image.naturalWidth) complaints.push("image not loaded: " + image.src);
    if (!image.alt.trim()) complaints.push("image without alt text: " + image.src);
  }
  return complaints;
}"""

OVERFLOW = """() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth > clientWidth ? [`scrolls sideways: ${scrollWidth} px in ${clientWidth}`] : [];
}"""


@contextmanager
def served(folder):
    """Serve a folder on a free local port; yields its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class Visitor:
    """One browser tab in light or dark mode that visits pages of one site and takes notes."""

    def __init__(self, browser, address, mode):
        self.address, self.mode, self.noted = address, mode, []
        self.page = browser.new_context(color_scheme=mode).new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.noted.append(f"exception: {error}"))
        self.page.on("requestfailed", lambda request: self.noted.append(f"failed: {request.url}"))
        self.page.on("response", self._response)
        self.page.route(lambda url: not url.startswith((address, "data:")), self._elsewhere)

    def visit(self, path):
        """Open a page at each width; return every complaint."""
        self.noted.clear()
        complaints = []
        for name, width in WIDTHS.items():
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.goto(self.address + path)
            found = self.page.evaluate(RENDERED) + self.page.evaluate(OVERFLOW)
            complaints += [f"{name}: {complaint}" for complaint in found + self.accessibility()]
        theme = self.page.evaluate("document.documentElement.dataset.theme")
        if theme != self.mode:
            complaints.append(f"theme is {theme}, the reader asked for {self.mode}")
        return complaints + self.noted

    def accessibility(self):
        """Run axe-core; return its serious and critical findings."""
        found = Axe().run(self.page, options=AXE).response["violations"]
        return [
            f"axe {rule['id']} ({rule['impact']}): {node['html'][:120]}"
            for rule in found
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]

    def _console(self, message):
        if message.type == "error":
            self.noted.append(f"console: {message.text}")

    def _response(self, response):
        if response.status >= 400:
            self.noted.append(f"status {response.status}: {response.url}")

    def _elsewhere(self, route):
        self.noted.append(f"request to another host: {route.request.url}")
        route.abort()
