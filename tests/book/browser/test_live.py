"""Pages that run in the browser: whole, changed, refuted, stopped, from the cache, without parts.

All of it comes from this machine; the browser of these tests reaches no other.
"""

import contextlib
import json

import pytest
from built_site import SITE
from checks import OVERFLOW, accessibility

from publishing import live, project

WHOLE = ["02_entropy", "08_token_priority", "12_automaton"]
"""Three chapters that are run on every change: claims, figures and numbers in the text.

To start Python takes longer than most cells, so a test asks all that it can of a started page.
"""

TOY = "nb/01_toy.html"
SHORT = "nb/02_entropy.html"
PARTS = "**/live/*.gz*"

if not (SITE / live.FOLDER).exists():
    pytest.skip("there is no Python for browsers: `make live book`", allow_module_level=True)


class Reader:
    """Someone who lets a page run.

    Parameters
    ----------
    tab : playwright.sync_api.Page
        A tab that shows the page.
    """

    def __init__(self, tab):
        self.tab = tab

    @property
    def state(self):
        return self.tab.evaluate("document.documentElement.dataset.live")

    @property
    def claims(self):
        return self.tab.evaluate("document.documentElement.dataset.liveClaims")

    @property
    def said(self):
        return self.tab.locator(".live-panel [role=status]").inner_text()

    def until(self, *states, seconds=120):
        self.tab.wait_for_function(
            "(states) => states.includes(document.documentElement.dataset.live)",
            arg=list(states),
            timeout=seconds * 1000,
        )
        return self.state

    def start(self):
        self.tab.locator("[data-live-start]").click()
        assert self.until("ready", "failed") == "ready", self.said
        return self

    def press(self, what):
        self.tab.locator(f".live-panel [data-live-{what}]").click()

    def run_all(self, seconds=120):
        self.press("run-all")
        return self.until("done", "ready", "failed", seconds=seconds)

    def run_to(self, cell):
        button = self.tab.locator(f"[data-live-run='{cell}']")
        button.evaluate("button => button.closest('details')?.setAttribute('open', '')")
        button.click()
        return self.until("done", "ready", "failed")

    def set(self, name, value):
        field = self.tab.locator(f"[data-live-parameter='{name}']")
        field.fill(value)
        field.blur()

    def edit(self, cell, code):
        row = self.tab.locator(f"[data-live-run='{cell}']").locator("..")
        row.evaluate("row => row.closest('details')?.setAttribute('open', '')")
        row.get_by_role("button", name="Edit").click()
        self.tab.locator(f"textarea[aria-label='Code of cell {cell + 1}']").fill(code)


@pytest.fixture(scope="module")
def visitor_with_cache(browser):
    """One visitor, who keeps what was loaded: most tests need no first visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def visit(visitor_with_cache, address, errors):
    """Open a page and note what it complains about and what it asks for."""
    with contextlib.ExitStack() as tabs:

        def open_page(page, context=visitor_with_cache, may_complain=False):
            tab = context.new_page()
            tabs.callback(tab.close)
            tab.on("pageerror", lambda error: errors.append(str(error)))
            if not may_complain:
                tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
            tab.goto(address + page)
            return Reader(tab)

        yield open_page
    assert errors == []


@pytest.fixture(scope="module")
def started(visitor_with_cache, address):
    """A short chapter with Python started, for tests that leave it as it is printed."""
    tab = visitor_with_cache.new_page()
    tab.goto(address + SHORT)
    yield Reader(tab).start()
    tab.close()


@pytest.fixture
def reader(started):
    """The same, as printed and ready to run; what its page complains about fails the test."""
    complaints = []

    def note(error):
        complaints.append(str(error))

    started.tab.on("pageerror", note)
    yield started
    started.tab.remove_listener("pageerror", note)
    started.press("reset")
    assert complaints == []


@pytest.fixture
def first_visit(browser):
    """A visitor who was never here."""
    context = browser.new_context()
    yield context
    context.close()


def run_whole(visit, name, seconds=300):
    """Run a page whole; returns the reader and how many claims the book measures there."""
    reader = visit(f"nb/{name}.html").start()
    assert reader.run_all(seconds) == "done", reader.said
    return reader, claims_of(name)


def claims_of(name):
    """Count the claims that a page measures."""
    return sum(len(cell["claims"]) for cell in live.describe(name)["cells"])


def check_whole(reader, name):
    """All of a page has run, and its claims hold."""
    expected = claims_of(name)
    assert reader.claims == f"{expected}/{expected}"
    drawn = reader.tab.locator("figure img[data-live=here]").count()
    saved = sum("figures.save" in cell["code"] for cell in live.describe(name)["cells"])
    assert drawn >= saved > 0
    assert reader.tab.locator(".live-claim[data-holds=true]").count() == expected
    assert reader.tab.evaluate(OVERFLOW) == []
    assert accessibility(reader.tab) == []


def test_a_chapter_runs_whole_and_what_ran_after_a_cell_has_to_run_again_with_it(visit):
    reader, total = run_whole(visit, "02_entropy")
    check_whole(reader, "02_entropy")
    assert reader.run_to(2) == "ready"
    assert int(reader.claims.split("/")[0]) < total
    assert "not measured" in reader.tab.locator(".live-count").inner_text()
    assert reader.run_all() == "done"
    assert reader.claims == f"{total}/{total}"


def test_a_chapter_runs_whole_and_what_is_explored_there_is_compared_with_the_package(visit):
    reader, _ = run_whole(visit, "08_token_priority")
    check_whole(reader, "08_token_priority")
    check_compared(reader)


@pytest.mark.stress
@pytest.mark.parametrize("name", [name for name in project.names() if name not in WHOLE])
def test_every_page_runs_whole(visit, name):
    """A few cells of evidence compare with a solver that no browser has, and are left out."""
    reader, expected = run_whole(visit, name, 3000)
    text = reader.tab.locator(".live-count").inner_text()
    left_out = int(text.split("; ")[1].split()[0]) if "no browser has" in text else 0
    assert reader.claims == f"{expected - left_out}/{expected}"
    assert "cvxpy" in project.source(name).read_text(encoding="utf-8") or not left_out


def test_nothing_is_loaded_before_the_click_and_all_of_it_once(first_visit, visit, address):
    first_visit.grant_permissions(["clipboard-read", "clipboard-write"])
    asked = []
    first_visit.on("request", lambda request: asked.append(request.url))
    reader = visit(SHORT, first_visit)
    reader.tab.wait_for_load_state("networkidle")
    assert reader.state == "idle"
    assert not [url for url in asked if "/live/" in url]
    # It can be stopped while Python loads, and loads again once a cell is to run.
    reader.tab.locator("[data-live-start]").click()
    reader.until("loading")
    reader.press("stop")
    assert reader.until("ready") == "ready"
    assert reader.run_to(0) == "ready"
    assert [url for url in asked if "/live/" in url]
    assert all(url.startswith(("blob:", address)) for url in asked)
    # A second visit loads from the cache; its link brings changed numbers and nothing that runs.
    asked.clear()
    numbers = json.dumps({"steps": "2_000", "step": "__import__('os').getcwd()", "other": "1"})
    reader = visit(f"{SHORT}?run={numbers}", first_visit).start()
    assert not [url for url in asked if ".gz" in url or "book.zip" in url]
    fields = reader.tab.locator(".live-fields input")
    assert [field.input_value() for field in fields.all()] == ["2_000", "0.5"]
    reader.press("share")
    text = reader.tab.evaluate("navigator.clipboard.readText()")
    assert "0 of 11 claims hold here" in text
    assert "steps = 2_000 (printed: 10_000)" in text
    assert text.endswith("02_entropy.html?run=%7B%22steps%22%3A%222_000%22%7D")


def test_a_changed_number_redraws_its_figure_and_rewrites_the_text(visit):
    reader = visit(TOY)
    reader.tab.locator(".beside .container").first.scroll_into_view_if_needed()
    reader.tab.locator(".beside .explore").wait_for()
    assert reader.tab.locator(".compare button").count() == 0  # nothing to compare with yet
    reader.start()
    image, slider = (
        reader.tab.locator(f"{part}").first for part in ("figure img", ".frames input")
    )
    printed = image.get_attribute("src")
    reader.set("steps", "2_000")
    assert "steps = 2_000" in reader.tab.locator(".cell_input pre").nth(1).text_content()
    reader.run_to(3)
    assert image.get_attribute("src").startswith("blob:")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 600
    number = reader.tab.locator(".pasted-text.live-quoted").first
    assert (number.inner_text(), number.get_attribute("title")) == ("2,000", "printed: 10,000")
    # Moving the figure's slider shows a frame of this run, not of the printed one.
    slider.focus()
    reader.tab.keyboard.press("ArrowRight")
    assert image.get_attribute("src").startswith("blob:")
    reader.press("reset")
    assert image.get_attribute("src") == printed
    assert reader.tab.locator(".live-quoted").count() == 0
    assert "steps = 10_000" in reader.tab.locator(".cell_input pre").nth(1).text_content()
    # Nor does a slider that was moved before hide the picture of a run.
    slider.focus()
    reader.tab.keyboard.press("ArrowRight")
    assert not image.get_attribute("src").startswith("blob:")
    reader.run_to(3)
    assert image.get_attribute("src").startswith("blob:")
    assert image.get_attribute("style") in (None, "")
    check_compared(reader)


def test_a_claim_that_fails_says_so_and_what_was_changed(visit):
    reader = visit("nb/12_automaton.html").start()
    reader.set("steps", "40")
    assert reader.run_all() == "done"
    held, total = map(int, reader.claims.split("/"))
    assert held < total
    words = reader.tab.locator(".live-count").inner_text()
    assert f"{held} of {total} claims hold here, with steps = 40 (printed: 4000)" in words
    wrong = reader.tab.locator(".live-claim[data-holds=false]")
    assert wrong.count() == total - held
    assert wrong.first.is_visible()  # its fold was opened
    assert wrong.first.inner_text().startswith("✗ in this browser: expected")
    # Once the number is the printed one again, nothing is claimed until it has run.
    reader.set("steps", "4000")
    assert reader.tab.locator(".live-claim[data-holds]").count() == 0
    assert reader.claims == f"0/{total}"
    assert reader.run_all() == "done"
    check_whole(reader, "12_automaton")


REPLIED = "() => /^[✓✗]/.test(document.querySelector('.compare span').innerText)"
WRONG = """root => {
  const { computed } = root;
  root.computed = () => {
    const answers = computed();
    return { ...answers, finite: { ...answers.finite, compatible: !answers.finite.compatible } };
  };
}"""


def check_compared(reader):
    """What is explored beside a started page is compared with the package."""
    root = reader.tab.locator(".beside .explore")
    reader.tab.locator(".beside .container").first.scroll_into_view_if_needed()
    root.wait_for()
    compare, reply = root.locator(".compare button"), root.locator(".compare [role=status]")

    def replied():
        compare.click()
        reader.tab.wait_for_function(REPLIED)
        return reply.inner_text()

    assert replied().startswith("✓ The package says so too: separable, ")
    assert accessibility(reader.tab) == []
    root.locator(".preset").select_option("inseparable")
    assert reply.inner_text() == ""
    assert replied().startswith("✓ The package says so too: not separable, ")
    root.evaluate(WRONG)
    assert replied().startswith("✗ The package says of these data: not separable, ")


def test_a_change_during_a_run_counts_for_the_whole_run(reader):
    reader.press("run-all")
    reader.until("running")
    reader.tab.wait_for_function(
        "document.querySelector('.live-panel [role=status]').textContent.includes('cell 3')"
    )
    reader.set("steps", "2_000")
    assert reader.until("done") == "done"
    words = reader.tab.locator(".live-count").inner_text()
    assert "steps = 2_000 (printed: 10_000)" in words
    assert reader.tab.locator(".live-panel [role=status]").inner_text().startswith("The whole page")


def test_an_error_shows_the_readers_line_and_the_page_goes_on(reader):
    reader.edit(2, "x = 1\nx / 0")
    assert reader.run_to(2) == "ready"
    text = reader.tab.locator("pre.live-wrong").inner_text()
    assert 'File "<cell 3>", line 2' in text
    assert text.strip().endswith("ZeroDivisionError: division by zero")
    assert "Cell 3 stopped: ZeroDivisionError" in reader.said
    assert accessibility(reader.tab) == []
    reader.press("reset")
    assert reader.run_to(2) == "ready"
    assert reader.tab.locator("pre.live-wrong").count() == 0


def stop_without_end(reader, code):
    """Run a cell that has no end, and stop it."""
    reader.edit(2, code)
    reader.tab.keyboard.press("Control+Enter")
    reader.until("running")
    reader.tab.wait_for_function(
        "document.querySelector('.live-panel [role=status]').textContent.includes('cell 3')"
    )
    reader.tab.locator("[data-live-start]").click()  # which stands in sight, and says Stop
    assert reader.until("ready", seconds=10) == "ready"
    assert reader.said.startswith("Stopped")


def test_stop_ends_what_has_no_end_and_the_next_run_begins_anew(reader):
    stop_without_end(reader, "while True: print('all work')")
    reader.press("reset")
    assert reader.run_to(3) == "ready"
    assert reader.said == "Ran up to the cell you asked for."
    stop_without_end(reader, "while True: pass")


def altered(route):
    route.fulfill(status=200, body=b"something else")


def missing(route):
    route.fulfill(status=404, body="")


@pytest.mark.parametrize(
    ("part", "answer", "words"),
    [
        ("packages.data.gz", altered, "is not the file that was published with this page"),
        ("pyodide.asm.wasm.gz", missing, "is missing (status 404)"),
        ("parts.json", missing, "is missing (status 404)"),
    ],
)
def test_a_bad_part_gives_one_line_and_the_page_reads_as_before(
    first_visit, visit, part, answer, words
):
    first_visit.route(f"**/live/{part}*", answer)
    reader = visit(SHORT, first_visit, may_complain=True)
    text = reader.tab.locator(".bd-article section").first.inner_text()
    reader.tab.locator("[data-live-start]").click()
    assert reader.until("failed") == "failed"
    assert reader.said.startswith("Python could not run here: ")
    assert words in reader.said
    added = "[...document.querySelectorAll('.live-panel, .live-buttons')].forEach(n => n.remove())"
    reader.tab.evaluate(added)
    assert reader.tab.locator(".bd-article section").first.inner_text() == text


def test_a_field_refuses_what_is_no_literal(reader):
    reader.set("steps", "print(1)")
    assert "steps needs a number" in reader.said
    assert reader.tab.locator("[data-live-parameter=steps]").get_attribute("aria-invalid")
    assert "steps = 10_000" in reader.tab.locator(".cell_input pre").nth(1).text_content()


LITERALS = [
    "1",
    "-2.5",
    "1_000",
    "1e-3",
    "'a b'",
    '"x"',
    "None",
    "True",
    "[1, 2]",
    "(0.5,)",
    "1, 2",
]
CODE = [
    "f()",
    "x",
    "1;2",
    "'a' + x",
    '"\\x41"',
    "[x]",
    "1\nimport os",
    "e(1)",
    "(1)(2)",
    "[i for i in 1]",
]


def test_only_literals_are_literals(reader, address):
    tab = reader.tab
    of = f"async (text) => (await import('{address}live/page.js')).isLiteral(text)"
    assert [text for text in LITERALS if not tab.evaluate(of, text)] == []
    assert [text for text in CODE if tab.evaluate(of, text)] == []


def test_a_value_changes_and_its_remark_stays(reader, address):
    tab = reader.tab
    of = f"async (code) => (await import('{address}live/page.js')).withValue(code, 'b', '3')"
    assert tab.evaluate(of, "a = 1\nb = 2  # so") == "a = 1\nb = 3  # so"


def test_a_page_opened_as_a_file_says_what_it_needs(lend):
    tab = lend(SITE.as_uri())
    tab.goto(f"{SITE.as_uri()}/{SHORT}")
    tab.locator("[data-live-start]").click()
    tab.wait_for_function(
        "document.querySelector('[data-live-start]').textContent.includes('make serve')"
    )


def test_on_a_dark_telephone(browser, visit):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True
    )
    reader = visit(SHORT, context).start()
    reader.run_to(8)
    assert reader.tab.evaluate(OVERFLOW) == []
    assert accessibility(reader.tab) == []
    image = reader.tab.locator("figure img[data-live=here]").nth(1)
    assert image.evaluate("image => image.naturalWidth") < 400  # the form for telephones
    filter = image.evaluate("image => getComputedStyle(image).filter")
    assert filter == "invert(1) hue-rotate(180deg)"
    context.close()
