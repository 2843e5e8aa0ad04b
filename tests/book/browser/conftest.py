"""One Chromium and one visitor for all browser tests."""

import shutil

import pytest
from built_site import SITE, path_prefix, served
from checks import Visitor
from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
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
