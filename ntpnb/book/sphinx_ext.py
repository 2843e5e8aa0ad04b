"""Sphinx extension of the book: buttons where the repository is known, accessibility repairs.

A button that leads nowhere is worse than none, so nothing is assumed: the address comes from the
build's environment, from the package's metadata or from the checkout, in this order.
"""

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

HOSTED = re.compile(r"(?:https://|git@|ssh://git@)(github\.com|gitlab\.com)[:/](.+?)(?:\.git)?/?")


def repository_url(environ, declared, remote):
    """Return the public https address of the repository, or None where it is not known.

    Parameters
    ----------
    environ : mapping of str to str
        The environment; a GitHub Actions run sets ``GITHUB_REPOSITORY`` to ``owner/name``.
    declared : list of str
        The package's ``Project-URL`` metadata, each ``label, address``.
    remote : str
        What ``git remote get-url origin`` prints, or the empty string.
    """
    candidates = []
    if environ.get("GITHUB_REPOSITORY"):
        candidates.append(f"https://github.com/{environ['GITHUB_REPOSITORY']}")
    candidates += [address.partition(",")[2].strip() for address in declared]
    candidates.append(remote.strip())
    for match in map(HOSTED.fullmatch, candidates):
        if match:
            return f"https://{match[1]}/{match[2]}"
    return None


def _add_buttons(app, config):
    git = ["git", "-C", str(Path(app.srcdir)), "remote", "get-url", "origin"]
    try:
        remote = subprocess.run(git, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # an unpacked archive on a machine without git
        remote = ""
    declared = metadata.metadata("ntpnb").get_all("Project-URL") or []
    url = repository_url(os.environ, declared, remote)
    if url is not None:
        config.html_theme_options |= {
            "repository_url": url,
            "repository_branch": os.environ.get("GITHUB_REF_NAME", "main"),
            "path_to_docs": "book",
            "use_repository_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


# Accessibility slips of the tools beneath: what they write, what it should be.
REPAIRS = {
    'role="doc-biblioentry"': 'role="listitem"',  # ARIA lists hold items only (docutils)
    ' aria-label="Toggle hidden content"': "",  # contradicts the words shown (myst-nb)
}


def _repair(app, pagename, templatename, context, doctree):
    for written, meant in REPAIRS.items() if "body" in context else ():
        context["body"] = context["body"].replace(written, meant)


def setup(app):
    """Register the extension; Sphinx calls this."""
    app.connect("config-inited", _add_buttons)
    app.connect("html-page-context", _repair)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
