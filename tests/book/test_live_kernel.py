"""The kernel of pages that run in a browser, without a browser: what it sends and what it keeps."""

import sys

import pytest

from ntpnb_book import claims, saving
from publishing.live import kernel

CLAIM = {"id": "a.claim", "expect": {"near": 1.0, "within": 0.1, "because": "print"}, "show": ".2f"}


@pytest.fixture
def sent():
    return []


@pytest.fixture
def page(sent, monkeypatch):
    """A kernel; what it puts in the place of other modules is taken back afterwards."""
    for name in ("IPython", "IPython.display", "ntpnb_book.claims"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, claims))
    return kernel.Kernel({"a.claim": CLAIM}, sent.append)


def kinds(sent):
    return [message["kind"] for message in sent]


def test_prints_and_the_value_of_the_last_line_are_shown(page, sent):
    ended = page.run(0, "print('one')\n1 + 1")
    assert ended["kind"] == "ran"
    assert "".join(message["text"] for message in sent) == "one\n2\n"


def test_nothing_is_shown_of_a_last_line_that_is_none_or_ends_with_a_semicolon(page, sent):
    page.run(0, "None")
    page.run(1, "3;")
    assert sent == []


def test_names_stay_from_cell_to_cell(page, sent):
    page.run(0, "x = 5")
    page.run(1, "print(x)")
    assert sent == [{"kind": "text", "text": "5\n"}]


@pytest.mark.parametrize(("value", "holds"), [(1.05, True), (2.0, False)])
def test_a_claim_is_measured_against_the_pages_own_expectation(page, sent, value, holds):
    page.run(0, f"from ntpnb_book import check\ncheck('a.claim', {value})")
    [claim] = sent
    assert (claim["kind"], claim["id"], claim["holds"]) == ("claim", "a.claim", holds)
    assert str(value) in claim["text"] or claim["text"].startswith("1.05")
    assert "a.claim" not in claim["text"]


def test_an_unlisted_claim_does_not_hold(page, sent):
    page.run(0, "from ntpnb_book import check\ncheck('another.claim', 1.0)")
    assert [message["holds"] for message in sent] == [False]


def test_a_quoted_number_is_sent_by_its_name(page, sent):
    page.run(0, "from ntpnb_book import glue\nglue('degrees', \"1,0'1\")")
    assert sent == [{"kind": "quote", "name": "degrees", "text": "1,0'1"}]


def test_a_figure_is_sent_by_its_name_with_its_drawings(page, sent, monkeypatch, tmp_path):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path))
    page.run(
        0,
        "from ntpnb_book import figures\n"
        "fig, ax = figures.plt.subplots(1, 2)\n"
        "line = ax[0].plot([1, 2])\n"
        "figures.save(fig, 'two_panels', {'y': [1, 2]}, seed=None)",
    )
    [figure] = sent
    assert (figure["kind"], figure["name"], figure["texts"]) == ("figure", "two_panels", None)
    assert figure["svg"].startswith("<?xml")
    assert figure["drawings"].keys() == {"narrow"}


def test_an_open_figure_is_shown_and_closed(page, sent):
    page.run(0, "import matplotlib.pyplot as plt\nline = plt.plot([1, 2])")
    assert kinds(sent) == ["figure"]
    assert sent[0]["name"] == ""
    page.run(1, "pass")
    assert len(sent) == 1


def test_html_is_never_sent(page, sent):
    page.run(
        0,
        "from IPython import display\n"
        "display.publish_display_data({'text/html': '<b onload=x>', 'text/plain': 'b'})\n"
        "display.publish_display_data({'text/html': '<b onload=x>'})",
    )
    assert sent == [{"kind": "text", "text": "b\n"}]


def test_what_was_printed_before_an_output_stands_before_it(page, sent):
    page.run(0, "from ntpnb_book import glue\nprint('first')\nglue('name', 'then')")
    assert kinds(sent) == ["text", "quote"]


def test_an_error_shows_the_readers_lines_alone(page):
    page.run(0, "def f(v):\n    import ntpnb\n    return ntpnb.max_margin(v)")
    ended = page.run(1, "x = 1\nf([[1.0]])")
    assert ended["kind"] == "error"
    text = ended["text"]
    assert 'File "<cell 1>", line 3, in f' in text
    assert 'File "<cell 2>", line 2, in <module>' in text
    assert "f([[1.0]])" in text
    assert "validation.py" not in text
    assert "kernel.py" not in text
    assert text.strip().splitlines()[-1].startswith("TypeError: ")


@pytest.mark.parametrize("code", ["x = (", "raise SystemExit", "raise KeyboardInterrupt"])
def test_whatever_a_cell_raises_is_its_error(page, code):
    ended = page.run(0, code)
    assert ended["kind"] == "error"
    assert code.split()[-1].removesuffix("(") in ended["text"]
    assert sys.stdout is sys.__stdout__ or not isinstance(sys.stdout, kernel.Stream)


def test_a_cell_that_needs_what_no_browser_has_is_left_out(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    assert page.run(0, "solution = 1")["kind"] == "ran"
    left_out = page.run(1, "import cvxpy as cp\nsolution = cp.Variable()")
    assert (left_out["kind"], left_out["needs"]) == ("left-out", "cvxpy")
    # What follows from it is left out as well, though an older `solution` was there.
    then = page.run(2, "twice = 2 * solution")
    assert (then["kind"], then["needs"]) == ("left-out", "cvxpy")
    assert page.run(3, "print(twice)")["kind"] == "left-out"
    assert page.run(4, "print(never)")["kind"] == "error"
    assert page.run(5, "solution = 3\nprint(solution)")["kind"] == "ran"
    assert page.run(6, "solution")["kind"] == "ran"


def test_a_missing_module_of_ones_own_is_an_error(page):
    assert page.run(0, "import no_such_module")["kind"] == "error"


def test_a_cell_that_prints_without_end_sends_little(sent):
    stream = kernel.Stream(sent.append)
    for _ in range(200_000):
        stream.write("all work\n")
    stream.flush()
    text = "".join(message["text"] for message in sent)
    assert len(text) < kernel.MOST_TEXT + 100
    assert "more than 100,000 characters" in text
    assert len(sent) < 50  # not one for each line


def test_seconds_are_told(page):
    assert page.run(0, "import time\ntime.sleep(0.02)")["seconds"] >= 0.02


@pytest.mark.parametrize("narrow", [False, True])
def test_a_wide_page_has_no_drawing_for_telephones(page, sent, monkeypatch, tmp_path, narrow):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path))
    monkeypatch.setattr(saving, "stack", saving.stack)
    kernel.load_libraries(narrow)
    code = "from ntpnb_book import figures; fig, axes = figures.plt.subplots(1, 2)\n"
    page.run(0, f"{code}figures.save(fig, 'two', {{'x': [1.0]}}, seed=None)")
    [message] = [message for message in sent if message["kind"] == "figure"]
    assert ("narrow" in message["drawings"]) == narrow


def test_messages_cross_as_json(monkeypatch):
    for name in ("IPython", "IPython.display", "ntpnb_book.claims"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, claims))
    sent = []
    run = kernel.start("{}", sent.append, narrow=True)
    assert '"kind": "ran"' in run(0, "print('ü')")
    assert sent == ['{"kind": "text", "text": "\\u00fc\\n"}']
