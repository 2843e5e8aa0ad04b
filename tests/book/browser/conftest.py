"""One Chromium and one visitor for all browser tests."""

import json
import shutil

import pytest
from built_site import SITE, path_prefix, served
from checks import RENDERED, Visitor
from playwright.sync_api import sync_playwright

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


@pytest.fixture
def explorable(request):
    """The page that a module is about; a module about several has parameters instead."""
    return request.module.EXPLORABLE


@pytest.fixture(scope="session")
def context_with(browser):
    """A reader with certain settings, always the same one: scripts and fonts are read only once."""
    contexts = {}

    def find(**settings):
        key = json.dumps(settings, sort_keys=True)
        if key not in contexts:
            contexts[key] = browser.new_context(**settings)
        return contexts[key]

    yield find
    for context in contexts.values():
        context.close()


@pytest.fixture
def opened(explorable, context_with, errors):
    """Open the page that can be explored anew; it must complain about nothing."""
    tabs = []

    def open_page(address, fragment="", *, width=1280, **settings):
        context = context_with(viewport={"width": width, "height": 1000}, **settings)
        tab = context.new_page()
        tabs.append(tab)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        tab.goto(address + explorable.page + fragment)
        tab.evaluate(RENDERED)
        tab.locator(".explore svg.main").scroll_into_view_if_needed()
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert errors == []


@pytest.fixture
def tab(opened, address):
    return opened(address)
