"""What is asked of a page in a browser: every check returns its complaints, none if all is well."""

import io

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from matplotlib.image import imread

# The views of each page: the reader's colours and the screen's width in CSS pixels.
VIEWS = [("light", 1280), ("dark", 390)]

TABLET = 1024
"""Between the two, where there is no column beside the text."""

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
    # It looks at all elements of a page and fails none: it only says what to look at.
    "rules": {"hidden-content": {"enabled": False}},
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
    if (!image.checkVisibility()) continue;  // the other of two colours
    image.loading = "eager";
    await image.decode().catch(() => {});
    if (!image.naturalWidth) complaints.push("image not loaded: " + image.src);
    if (!image.alt.trim()) complaints.push("image without alt text: " + image.src);
    const { filter, opacity } = getComputedStyle(image);
    const isNight = document.documentElement.dataset.theme === "dark" && image.closest(".views");
    const wanted = isNight ? "invert(1) hue-rotate(180deg)" : "none";
    if (filter !== wanted || opacity !== "1") complaints.push("image recoloured: " + image.src);
  }
  for (const title of document.querySelectorAll(".admonition-title")) {
    const hasIcon = !["none", "normal"].includes(getComputedStyle(title, "::after").content);
    if (hasIcon && parseFloat(getComputedStyle(title).paddingLeft) < 24)
      complaints.push("icon over a title: " + title.textContent);
  }
  return complaints;
}"""

# The first colour below the text that is not transparent. Asked of every page: the one for missing
# addresses does without the theme where nobody knows the book's address.
BEHIND = """() => {
  const colours = [document.body, document.documentElement].map(
    (node) => getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).map(Number));
  return colours.find(([, , , alpha = 1]) => alpha > 0) ?? [255, 255, 255];
}"""

# After a change of width the theme's side bars slide for a moment, to where they are put at once.
OVERFLOW = """async () => {
  await new Promise(requestAnimationFrame);
  for (const animation of document.getAnimations())
    if (animation.effect.getComputedTiming().endTime < Infinity) animation.finish();
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth > clientWidth ? [`scrolls sideways: ${scrollWidth} px in ${clientWidth}`] : [];
}"""

# The theme looks 300 ms after the last change of width for what scrolls and has to be reached by
# keyboard. Timers of one page end in the order of their times, however busy the machine is.
CHANGED_WIDTH = "() => { window.settled = new Promise((done) => setTimeout(done, 400)); }"


# Axe takes seconds where there is much of a kind. A token's colours follow from its class, and one
# program sets all formulas: one token of a class is looked at, and one formula of a kind and place.
THIN_OUT = """() => {
  const seen = new Set();
  const again = (kind) => seen.has(kind) || !seen.add(kind);
  for (const token of document.querySelectorAll(".highlight pre span"))
    if (again(token.className)) token.replaceWith(...token.childNodes);
  for (const formula of document.querySelectorAll("mjx-container:not(a *, button *, summary *)")) {
    const place = formula.closest(":not(span, mjx-container)").localName;
    if (again(place + formula.parentElement.className)) formula.replaceChildren();
  }
}"""


# Contrast follows from the letters' colour and size and from the ground behind them, which is made
# by the element and those around it: of all texts for which all of that is the same, by what the
# browser computed and by tag and class, axe measures the first. Tables have thousands, and every
# page has the same side bars: the tab keeps in mind what was measured on pages before.
MARK_KINDS_OF_TEXT = """() => {
  const properties = ["color", "backgroundColor", "backgroundImage", "opacity", "filter",
    "mixBlendMode", "textShadow", "fontSize", "fontWeight", "position", "zIndex", "overflow",
    "visibility", "display"];
  const kept = JSON.parse(sessionStorage.kindsOfText ?? '{"kinds": [], "seen": []}');
  const numbers = new Map(kept.kinds.map((kind, n) => [kind, n])), seen = new Set(kept.seen);
  const number = (kind) => numbers.get(kind) ?? numbers.set(kind, numbers.size).get(kind);
  for (const node of document.querySelectorAll("[data-kind-of-text]"))
    delete node.dataset.kindOfText;
  const mark = (node, around) => {
    const style = getComputedStyle(node);
    const own = properties.map((name) => style[name]);
    const look = number([node.localName, node.getAttribute("class"), ...own].join("|"));
    const kind = number(`${look} in ${around}`);
    const hasText = node.matches("input, select, textarea")
      || [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (hasText && !seen.has(kind)) {
      seen.add(kind);
      node.dataset.kindOfText = kind;
    }
    for (const child of node.children) mark(child, kind);
  };
  mark(document.documentElement, "");
  window.kindsOfText = JSON.stringify({ kinds: [...numbers.keys()], seen: [...seen] });
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-kind-of-text]" }] });
}"""


# Matplotlib writes a letter as a reference to an outline that it scales.
LETTERS = """() => {
  const outline = (use) => document.getElementById(use.href.baseVal.slice(1));
  const letters = [...document.querySelectorAll("use, text, tspan")].filter(
    (node) => node.localName !== "use" || outline(node).hasAttribute("transform"));
  const found = letters.map((letter) => {
    const { fill, fillOpacity } = getComputedStyle(letter);
    let alpha = fillOpacity;
    for (let node = letter; node instanceof Element; node = node.parentNode)
      alpha *= getComputedStyle(node).opacity;
    const { left, top, right, bottom } = letter.getBoundingClientRect();
    return [fill.match(/[\\d.]+/g).map(Number), alpha, [left, top, right, bottom]];
  });
  for (const letter of letters) letter.style.visibility = "hidden";
  return found;
}"""


def accessibility(tab, *, everything=False):
    """Run axe-core; return its serious and critical findings.

    It looks at one text of each kind that the tab has not shown before, or at every text and
    formula of the page.
    """
    if not everything:
        tab.evaluate(THIN_OUT)
    if tab.evaluate("window.axe === undefined"):
        tab.evaluate(Axe().axe_script)
    if not everything:
        tab.evaluate(MARK_KINDS_OF_TEXT)
    run = "async (options) => { await window.settled; return axe.run(options); }"
    found = tab.evaluate(run, AXE)["violations"]
    if not everything and not found:  # else every page that has such a text says so
        tab.evaluate("() => { sessionStorage.kindsOfText = window.kindsOfText; }")
    return [
        f"axe {rule['id']} ({rule['impact']}): {node['html'][:120]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


NOTE_FOCUS = """() => {
  window.reached = new Set();
  window.wentRound = false;
  let first;
  document.addEventListener("focusin", ({ target }) => {
    window.wentRound ||= target === first && window.reached.size > 1;
    window.reached.add(target);
    first ??= target;
  });
  return document.querySelectorAll("a, button, input, select, summary, [tabindex]").length;
}"""

# What works with the mouse shows a pointing hand, unless it is a control anyway. The theme's way
# back to the top comes and goes while one scrolls; the keyboard has Home.
UNREACHED = """() => {
  const seen = [...document.querySelectorAll("body *")].filter((node) =>
    node.checkVisibility({ visibilityProperty: true }) && !node.disabled
      && !node.closest("#pst-back-to-top"));
  const control = "a[href], button, input, select, textarea, summary, [onclick], [role=button]";
  const within = (node) => node && (window.reached.has(node) || within(node.parentElement));
  return seen.filter((node) => node.matches(control) ? !window.reached.has(node)
      : getComputedStyle(node).cursor === "pointer" && !within(node))
    .map((node) => "not by keyboard: " + node.outerHTML.slice(0, 120));
}"""


def mouse_only(tab):
    """Walk round the page with the Tab key, once; return the visible controls that it missed."""
    left = tab.evaluate(NOTE_FOCUS) + 20
    while left > 0 and not tab.evaluate("window.wentRound"):
        for _ in range(20):
            tab.keyboard.press("Tab")
        left -= 20
    return tab.evaluate(UNREACHED)


def light(rgb):
    """Relative luminance of WCAG 2.2."""
    rgb = rgb / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def pale_letters(tab):
    """Measure the letters of the SVG in a tab against what is drawn behind them.

    WCAG 2.2 asks for a contrast of 4.5 (1.4.3). What the page behind an image shows through would
    not be the same in light and dark, and is a complaint of its own.
    """
    letters = tab.evaluate(LETTERS)
    pixels = 255 * imread(io.BytesIO(tab.screenshot(omit_background=True)))
    complaints = set() if letters else {"no letters"}
    if pixels[1:-1, 1:-1, 3:].min(initial=255) < 255:  # a fourth channel, where there is one
        complaints.add("the page behind shows through")
    for fill, alpha, box in letters:
        left, top, right, bottom = np.round(box).astype(int)
        behind = pixels[top:bottom, left:right, :3].reshape(-1, 3)
        if not len(behind):  # a space
            continue
        behind = np.median(behind, axis=0)  # a thin line below a letter does not hide it
        seen = alpha * np.array(fill[:3]) + (1 - alpha) * behind
        low, high = sorted((light(seen), light(behind)))
        if (contrast := (high + 0.05) / (low + 0.05)) < 4.5:
            complaints.add(f"letters of {seen.round()} on {behind.round()}: {contrast:.2f}")
    return sorted(complaints)


class Visitor:
    """Two readers of one site, one who prefers light and one who prefers dark; they take notes."""

    def __init__(self, browser, address):
        self.address, self.noted = address, []
        # A tab each: the theme remembers the last reader's colours and fades from them.
        self.tabs = {mode: browser.new_context(color_scheme=mode).new_page() for mode, _ in VIEWS}
        for tab in self.tabs.values():
            tab.on("console", self._console)
            tab.on("pageerror", lambda error: self.noted.append(f"exception: {error}"))
            tab.on("requestfailed", self._failed)
            tab.on("response", self._response)
            tab.on("request", self._request)

    def _failed(self, request):
        """Note what could not be loaded, but not what was still loading when the page was left."""
        if request.failure != "net::ERR_ABORTED":
            self.noted.append(f"failed: {request.url}")

    def open(self, path, mode, width):
        """Load a page with these colours on a screen of this width; return the tab."""
        tab = self.tabs[mode]
        tab.goto("about:blank")  # the page before would be laid out once more, for nobody
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto(self.address + path)
        return tab

    def visit(self, path):
        """Look at a page in every view; return every complaint.

        It is loaded once, on the narrow screen, where more scrolls than on the wide one.
        """
        self.noted.clear()
        (day, wide), (night, narrow) = VIEWS
        tab = self.open(path, night, narrow)
        dark = tab.evaluate(RENDERED) + tab.evaluate(OVERFLOW)
        bright = []
        for width in (wide, TABLET):  # as on the narrow one, before formulas are thinned out
            tab.set_viewport_size({"width": width, "height": 900})
            bright += tab.evaluate(OVERFLOW)
        tab.set_viewport_size({"width": narrow, "height": 900})
        dark += tab.evaluate(OVERFLOW)
        tab.evaluate(CHANGED_WIDTH)
        dark += accessibility(tab) + self._behind(tab, night)
        tab.set_viewport_size({"width": wide, "height": 900})
        # One fade would start the next, of what is inside and inherits its colour.
        tab.add_style_tag(content="*, ::before, ::after { transition: none !important; }")
        tab.emulate_media(color_scheme=day)
        bright += tab.evaluate(OVERFLOW)
        bright += tab.evaluate(RENDERED) + accessibility(tab) + self._behind(tab, day)
        tab.emulate_media(color_scheme=night)
        complaints = [f"{night}: {complaint}" for complaint in dark]
        complaints += [f"{day}: {complaint}" for complaint in bright]
        return complaints + self.noted

    def _behind(self, tab, mode):
        """Look at the colour of the page behind its text."""
        behind = tab.evaluate(BEHIND)
        as_wanted = (light(np.array(behind[:3])) > 0.5) == (mode == "light")
        return [] if as_wanted else [f"the page behind its text is {behind}"]

    def _console(self, message):
        # Browsers look for this icon by themselves where a page names none, as 404.html does not.
        is_own_search = message.location["url"].endswith("/favicon.ico")
        if message.type == "error" and not is_own_search:
            self.noted.append(f"console: {message.text}")

    def _response(self, response):
        if response.status >= 400:
            self.noted.append(f"status {response.status}: {response.url}")

    def _request(self, request):
        """Note what another host was asked for; the browser of these tests finds none.

        Requests are watched rather than routed, because a browser whose requests are routed keeps
        nothing from page to page: scripts and fonts were read anew for each.
        """
        if not request.url.startswith((self.address, "data:")):
            self.noted.append(f"request to another host: {request.url}")
