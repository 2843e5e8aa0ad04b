"""What a first visit loads, how far a page jumps while it loads, and where the Tab key stops."""

import gzip
import re

import pytest
from built_site import SITE

# A chapter with few formulas, two with many, one with letters from another font; the first page.
CHAPTERS = ["01_toy", "05_gradient_descent", "16_your_data", "20_heads"]
PAGES = ["index.html", *(f"nb/{name}.html" for name in CHAPTERS)]
HEAVIEST = 450_000  # bytes, as a server sends them
MOST_ELEMENTS = 6000  # a seventh of what it once had, which kept a processor busy for two seconds
FARTHEST = 0.05  # layout shift; the Web Vitals call 0.1 good

# What moves before anybody has touched anything, in parts of the screen.
WATCH_SHIFT = """
  window.shift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
"""

# The observer hears of a frame after it was shown.
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 300)))"

# By how many ex of the text around each inline formula is wider than was foreseen.
MISSED = """() => [...document.querySelectorAll("span.math")].filter(
  (kept) => kept.style.getPropertyValue("--ex") && kept.offsetWidth
).map((kept) => {
  const ruler = kept.parentElement.appendChild(document.createElement("span"));
  ruler.style.cssText = "display: inline-block; width: 60ex";
  const ex = ruler.getBoundingClientRect().width / 60;
  ruler.remove();
  return kept.getBoundingClientRect().width / ex - kept.style.getPropertyValue("--ex");
})"""

STOPS = """() => [...document.querySelectorAll("mjx-container")].filter(
  (formula) => formula.tabIndex >= 0 && formula.scrollWidth <= formula.clientWidth
).map((formula) => formula.parentElement.outerHTML.slice(0, 120))"""

SCROLLING = """() => [...document.querySelectorAll("div.math mjx-container")].filter(
  (formula) => formula.scrollWidth > formula.clientWidth).map((formula) => formula.tabIndex)"""


@pytest.fixture
def visit(browser, address):
    """Open a page as one who was never there; return the tab and the answers by address."""
    contexts = []

    def open_page(page, width):
        contexts.append(browser.new_context(viewport={"width": width, "height": 844}))
        tab = contexts[-1].new_page()
        files = {}
        tab.on("response", lambda response: files.setdefault(response.url, response))
        tab.add_init_script(WATCH_SHIFT)
        tab.goto(address + page, wait_until="networkidle")
        tab.evaluate("MathJax.startup.promise.then(() => null)")
        tab.evaluate(SETTLED)
        return tab, files

    yield open_page
    for context in contexts:
        context.close()


def sent(response):
    """Count the bytes of a file as a server sends it: what is not packed yet is."""
    content = response.body()
    packed = re.search(r"\.(woff2?|png)($|\?)", response.url)
    return len(content) if packed else len(gzip.compress(content))


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_is_light_and_nothing_jumps(page, visit):
    tab, files = visit(page, 1280)
    assert tab.evaluate("window.shift") < FARTHEST
    sizes = {url: sent(response) for url, response in files.items()}
    assert len(sizes) > 10
    heaviest = sorted(sizes, key=sizes.get)[-5:]
    assert sum(sizes.values()) < HEAVIEST, {url: sizes[url] for url in heaviest}
    check_where_the_tab_key_stops(tab)
    if page != "index.html":
        check_the_room_of_formulas(tab)
    tab.evaluate("document.querySelector('article').style.paddingTop = '300px'")
    tab.evaluate(SETTLED)
    assert tab.evaluate("window.shift") > FARTHEST  # what jumps is noticed


@pytest.mark.parametrize("page", PAGES)
def test_nothing_jumps_on_a_phone(page, visit):
    tab, _ = visit(page, 390)
    assert tab.evaluate("window.shift") < FARTHEST
    check_where_the_tab_key_stops(tab)
    if "05_gradient_descent" in page:
        check_wide_formulas(tab)


def check_the_room_of_formulas(tab):
    """Formulas take the room that was kept for them."""
    missed = tab.evaluate(MISSED)
    assert len(missed) > 20
    within_one = sum(abs(ex) <= 1 for ex in missed)
    assert within_one >= 0.9 * len(missed)


def check_where_the_tab_key_stops(tab):
    """Of all formulas it stops only at those that scroll."""
    assert tab.locator("mjx-container").count()
    assert tab.evaluate(STOPS) == []
    assert set(tab.evaluate(SCROLLING)) <= {0}


def check_wide_formulas(tab):
    """A wide formula says that it goes on, until its end is seen."""
    wide = len(tab.evaluate(SCROLLING))
    assert wide
    assert tab.locator("div.math.goes-on").count() == wide
    tab.evaluate(
        """for (const formula of document.querySelectorAll("div.math.goes-on mjx-container"))
             formula.scrollLeft = formula.scrollWidth"""
    )
    tab.evaluate(SETTLED)
    assert tab.locator("div.math.goes-on").count() == 0


def test_the_scoreboard_can_be_taken_in(lend, address):
    tab = lend(address)
    tab.goto(f"{address}scoreboard.html")
    tab.evaluate("MathJax.startup.promise.then(() => null)")
    assert tab.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS


def test_every_icon_is_drawn(lend, address):
    tab = lend(address)
    tab.goto(f"{address}nb/05_gradient_descent.html")
    missing = """[...document.querySelectorAll("i, span")].filter(
      (node) => /\\bfa-/.test(node.className) && node.checkVisibility()
        && !getComputedStyle(node, "::before").maskImage.startsWith("url")
    ).map((node) => node.outerHTML)"""
    assert tab.locator(".fa-bars").count()
    assert tab.evaluate(missing) == []


def test_no_page_holds_an_icon_that_is_not_drawn():
    drawn = (SITE / "_static/icons.css").read_text(encoding="utf-8")
    used = set()
    for page in SITE.rglob("*.html"):
        for icon in re.findall(
            r'class="[^"]*\bfa[srb]?(?:-solid|-brands)? [^"]*"', page.read_text()
        ):
            used.update(re.findall(r"fa-(?!solid|brands|lg\b)[\w-]+", icon))
    assert len(used) > 8
    assert {icon for icon in used if f".fa-{icon.removeprefix('fa-')}" not in drawn} == set()


def test_the_site_holds_no_more_than_it_shows():
    unused = [*SITE.glob("_static/**/*.map"), *SITE.glob("_static/**/fontawesome*")]
    assert unused == []
    static = sum(path.stat().st_size for path in (SITE / "_static").rglob("*") if path.is_file())
    assert static < 2_500_000  # 31 MB before
