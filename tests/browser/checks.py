"""What is asked of a page in a browser: every check returns its complaints, none if all is well."""

import functools
import http.server
import threading
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe

from ntpnb.book.project import ROOT

SITE = ROOT / "_build" / "html"

# Each page is loaded twice: these are the reader's colours and the screen's width in CSS pixels.
VIEWS = [("light", 1280), ("dark", 390)]

# With preloading, axe looks for the theme's imported style sheets in the wrong folder: a 404.
AXE = {
    "preload": False,
    "resultTypes": ["violations"],
    "runOnly": [
        "wcag2a",
        "wcag2aa",
        "wcag21a",
        "wcag21aa",
        "wcag22aa",
        "experimental",
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

# After a change of width the theme's side bars slide for a moment.
OVERFLOW = """async () => {
  await new Promise(requestAnimationFrame);
  await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth > clientWidth ? [`scrolls sideways: ${scrollWidth} px in ${clientWidth}`] : [];
}"""


# A token's colours follow from its class: axe needs one of a kind, not each of thousands.
THIN_OUT_CODE = """() => {
  const seen = new Set();
  for (const token of document.querySelectorAll(".highlight pre span"))
    if (seen.has(token.className)) token.replaceWith(...token.childNodes);
    else seen.add(token.className);
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


def accessibility(tab):
    """Run axe-core; return its serious and critical findings."""
    tab.evaluate(THIN_OUT_CODE)
    found = Axe().run(tab, options=AXE).response["violations"]
    return [
        f"axe {rule['id']} ({rule['impact']}): {node['html'][:120]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


class Visitor:
    """Two readers of one site, one who prefers light and one who prefers dark; they take notes."""

    def __init__(self, browser, address):
        self.address, self.noted = address, []
        # A tab each: the theme remembers the last reader's colours and fades from them.
        self.tabs = {mode: browser.new_context(color_scheme=mode).new_page() for mode, _ in VIEWS}
        for tab in self.tabs.values():
            tab.on("console", self._console)
            tab.on("pageerror", lambda error: self.noted.append(f"exception: {error}"))
            tab.on("requestfailed", lambda request: self.noted.append(f"failed: {request.url}"))
            tab.on("response", self._response)
            tab.route(lambda url: not url.startswith((address, "data:")), self._elsewhere)

    def open(self, path, mode, width):
        """Load a page with these colours on a screen of this width; return the tab."""
        tab = self.tabs[mode]
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto(self.address + path)
        return tab

    def visit(self, path):
        """Look at a page in every view; return every complaint."""
        self.noted.clear()
        complaints = []
        for mode, width in VIEWS:
            tab = self.open(path, mode, width)
            found = tab.evaluate(RENDERED) + accessibility(tab)
            theme = tab.evaluate("document.documentElement.dataset.theme")
            if theme != mode:
                found.append(f"the theme is {theme}")
            for _, screen in VIEWS:
                tab.set_viewport_size({"width": screen, "height": 900})
                found += tab.evaluate(OVERFLOW)
            complaints += [f"{mode}: {complaint}" for complaint in found]
        return complaints + self.noted

    def _console(self, message):
        if message.type == "error":
            self.noted.append(f"console: {message.text}")

    def _response(self, response):
        if response.status >= 400:
            self.noted.append(f"status {response.status}: {response.url}")

    def _elsewhere(self, route):
        self.noted.append(f"request to another host: {route.request.url}")
        route.abort()
