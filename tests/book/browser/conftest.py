"""One Chromium and one visitor for all browser tests."""

import contextlib
import shutil

import pytest
from built_site import SITE, path_prefix, served
from checks import RENDERED, Visitor
from playwright.sync_api import sync_playwright
from tabs import Tabs

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # This machine alone: a page that asks for another gets no answer.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-proxy-server",
]


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("chromium is missing and these tests need it (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address():
    if not (SITE / "index.html").exists():
        pytest.fail("there is no built book in _build/html; run `make book` first")
    with served(SITE, path_prefix(SITE)) as address:
        yield address


@pytest.fixture(scope="session")
def visitor(browser, address):
    return Visitor(browser, address)


@pytest.fixture
def errors():
    return []


@pytest.fixture(params=["server", "file"])
def site(request):
    return request.getfixturevalue("address") if request.param == "server" else f"{SITE.as_uri()}/"


@contextlib.contextmanager
def noted(tab, errors):
    """Note the exceptions and errors of a tab's pages."""
    complain = {
        "pageerror": lambda error: errors.append(str(error)),
        "console": lambda said: errors.append(said.text) if said.type == "error" else None,
    }
    for event, note in complain.items():
        tab.on(event, note)
    yield
    for event, note in complain.items():
        tab.remove_listener(event, note)


@pytest.fixture
def explorable(request):
    """The page that a module is about; a module about several has parameters instead."""
    return request.module.EXPLORABLE


@pytest.fixture(scope="session")
def tabs(browser):
    return Tabs(browser)


@pytest.fixture
def lend(tabs):
    """Lend a tab, or several, until the test has ended."""
    with contextlib.ExitStack() as lent:
        yield lambda address, **settings: lent.enter_context(tabs.lend(address, **settings))


@pytest.fixture
def opened(explorable, lend, errors):
    """Open the page that can be explored anew; it must complain about nothing."""
    with contextlib.ExitStack() as listening:

        def open_page(address, fragment="", *, width=1280, **settings):
            tab = lend(address, viewport={"width": width, "height": 1000}, **settings)
            listening.enter_context(noted(tab, errors))
            tab.goto(address + explorable.page + fragment)
            tab.evaluate(RENDERED)
            tab.locator(".explore svg.main").scroll_into_view_if_needed()
            return tab

        yield open_page
    assert errors == []


@pytest.fixture
def tab(opened, address):
    return opened(address)
