"""The built book as GitHub Pages shows it: below its address's path, with a page for misses."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from ntpnb_book.output import ROOT
from publishing import archives

SITE = ROOT / "_build" / "html"


@functools.cache  # many tests read all pages, and parsing them takes longer than the rest
def soup(path):
    """A page, parsed; tests look at it and change nothing."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def path_prefix(site: Path) -> str:
    """The path of the site's address: ``/name/`` for https://owner.github.io/name/, else ``/``.

    A site that was built with its address says it in every page's canonical link.
    """
    canonical = soup(site / "index.html").select_one('link[rel="canonical"]')
    if canonical is None:
        return "/"
    return urlsplit(canonical["href"]).path.removesuffix("index.html")


@contextmanager
def served(folder: Path, prefix: str = "/") -> Iterator[str]:
    """Serve a folder below a path on a free local port; yields its address.

    What is not there is answered with the folder's ``404.html``, if it has one, and status 404.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def end_headers(self):
            """Let browsers keep scripts, fonts and pictures, but no page: tests write some anew."""
            is_page = urlsplit(self.path).path.endswith((".html", "/"))
            self.send_header("Cache-Control", "no-store" if is_page else "max-age=3600")
            super().end_headers()

        def translate_path(self, path):
            if not path.startswith(prefix):
                return str(folder / "outside of the site")
            return super().translate_path("/" + path.removeprefix(prefix))

        def send_error(self, code, message=None, explain=None):
            page = folder / "404.html"
            if code != 404 or not page.exists():
                super().send_error(code, message, explain)
                return
            content = page.read_bytes()
            self.send_response(404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()
            thread.join()


def broken_links(site: Path, prefix: str = "/") -> list[str]:
    """Links, images and scripts of a folder of pages that lead to no file or no anchor in it.

    Parameters
    ----------
    site : Path
        The folder.
    prefix : str
        The path below which it is published. A link that begins with a slash, as those of the page
        for missing addresses do because it is shown in any folder, has to begin with all of it.
    """
    pages = {
        path.resolve(): soup(path) for path in site.rglob("*.html") if "_static" not in path.parts
    }
    anchors = {path: {tag["id"] for tag in page.select("[id]")} for path, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for tag in page.select("a[href], link[href], script[src], img[src]"):
            target = tag.get("href", tag.get("src"))
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            place = unquote(url.path)
            if place.startswith("/") and not place.startswith(prefix):
                broken.append(f"{path.relative_to(site.resolve())}: {target}: outside of the site")
                continue
            if place.startswith("/"):
                file = (site / place.removeprefix(prefix)).resolve()
            else:
                file = (path.parent / place).resolve() if place else path
            is_page = file in anchors
            is_state = url.fragment.startswith("preset-")  # of a page to explore
            anchor = "" if is_state else unquote(url.fragment)
            no_anchor = is_page and anchor and anchor not in anchors[file]
            made_later = (site / archives.PDF).resolve()  # from these pages, once they are tested
            if not (file.exists() or file == made_later) or no_anchor:
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    return broken
