"""What a first visit loads, how far a page jumps while it loads, and where the Tab key stops."""

import gzip
import re

import pytest
from built_site import SITE

# A chapter with few formulas, two with many, one with letters from another font; the first page.
CHAPTERS = ["01_toy", "05_gradient_descent", "16_your_data", "20_heads"]
PAGES = ["index.html", *(f"nb/{name}.html" for name in CHAPTERS)]
WIDTHS = [1280, 390]
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
def test_a_first_visit_is_light(page, visit):
    _, files = visit(page, 1280)
    sizes = {url: sent(response) for url, response in files.items()}
    assert len(sizes) > 10
    heaviest = sorted(sizes, key=sizes.get)[-5:]
    assert sum(sizes.values()) < HEAVIEST, {url: sizes[url] for url in heaviest}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_jumps_while_a_page_loads(page, width, visit):
    tab, _ = visit(page, width)
    assert tab.evaluate("window.shift") < FARTHEST


@pytest.mark.parametrize("name", CHAPTERS)
def test_formulas_take_the_room_that_was_kept_for_them(name, visit):
    tab, _ = visit(f"nb/{name}.html", 1280)
    missed = tab.evaluate(MISSED)
    assert len(missed) > 20
    within_one = sum(abs(ex) <= 1 for ex in missed)
    assert within_one >= 0.9 * len(missed)


def test_what_jumps_is_noticed(visit):
    tab, _ = visit(PAGES[1], 1280)
    tab.evaluate("document.querySelector('article').style.paddingTop = '300px'")
    tab.evaluate(SETTLED)
    assert tab.evaluate("window.shift") > FARTHEST


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_the_tab_key_stops_only_at_formulas_that_scroll(page, width, visit):
    tab, _ = visit(page, width)
    assert tab.locator("mjx-container").count()
    assert tab.evaluate(STOPS) == []
    assert set(tab.evaluate(SCROLLING)) <= {0}


def test_wide_formulas_are_reached_on_a_phone(visit):
    tab, _ = visit("nb/05_gradient_descent.html", 390)
    assert tab.evaluate(SCROLLING)


def test_a_wide_formula_says_that_it_goes_on_until_its_end_is_seen(visit):
    tab, _ = visit("nb/05_gradient_descent.html", 390)
    wide = len(tab.evaluate(SCROLLING))
    assert tab.locator("div.math.goes-on").count() == wide
    tab.evaluate(
        """for (const formula of document.querySelectorAll("div.math.goes-on mjx-container"))
             formula.scrollLeft = formula.scrollWidth"""
    )
    tab.evaluate(SETTLED)
    assert tab.locator("div.math.goes-on").count() == 0


def test_the_scoreboard_can_be_taken_in(visit):
    tab, _ = visit("scoreboard.html", 1280)
    assert tab.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS


def test_every_icon_is_drawn(visit):
    tab, _ = visit("nb/05_gradient_descent.html", 1280)
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
