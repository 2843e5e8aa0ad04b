"""Tabs that are lent to one test after the other."""

import contextlib
import json

LAPTOP = {"width": 1280, "height": 720}


class Tabs:
    """Tabs of one browser, each lent to one test after the other.

    A new tab is a new process, to which every script and font is new: that takes longer than the
    page itself. A tab that came back shows nothing, and keeps what tabs of one reader share
    anyway, and how far the theme's side bars were scrolled.

    Parameters
    ----------
    browser : playwright.sync_api.Browser
        The browser.
    """

    def __init__(self, browser):
        self.browser = browser
        self.contexts = {}
        self.free = {}

    @contextlib.contextmanager
    def lend(self, address, *, viewport=LAPTOP, **reader):
        """Lend a tab, for pages at this address, to a reader with certain settings.

        Parameters
        ----------
        address : str
            Where the pages are. The browser has processes for files and others for servers.
        viewport : dict
            Width and height of the screen, in CSS pixels.
        **reader
            The other settings, as Playwright's `new_context` takes them.

        Yields
        ------
        playwright.sync_api.Page
            The tab, with an empty page. A `with` statement that an exception leaves keeps it.
        """
        key = json.dumps(reader, sort_keys=True)
        if key not in self.contexts:
            self.contexts[key] = self.browser.new_context(**reader)
        free = self.free.setdefault((key, address.partition(":")[0]), [])
        tab = free.pop() if free else self.contexts[key].new_page()
        tab.bring_to_front()  # behind another one nothing would move
        tab.set_viewport_size(viewport)
        yield tab
        tab.goto("about:blank")
        tab.emulate_media(media="null")
        tab.mouse.move(0, 0)
        free.append(tab)
