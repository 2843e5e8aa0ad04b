"""A notebook's text in JupyterLab: it opens as a notebook, and theorem blocks are not raw text."""

import subprocess
import sys

import pytest
from jupyter_server import Lab

from ntpnb_book.output import ROOT


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    state = tmp_path_factory.mktemp("jupyter")
    settings = state / "config/labconfig/default_setting_overrides.json"
    viewer = (sys.executable, "-m", "jupytext_config", "--settings-file", settings)
    subprocess.run((*viewer, "set-default-viewer", "markdown"), check=True)
    with Lab(ROOT, state, PYTHONPATH=str(ROOT)) as lab:
        yield lab


def test_a_theorem_is_rendered(lab, browser):
    # `jupyter labextension list` marks jupyterlab-myst as incompatible for a package that it does
    # not use, so only the page itself can tell.
    text = (ROOT / "notebooks/05_gradient_descent.md").read_text("utf-8")
    assert "{prf:lemma} 2 of T24 (norm growth)\n:label: t24-lemma2\n" in text
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.goto(f"{lab.url}lab/tree/notebooks/05_gradient_descent.md?token={lab.token}")
    block = page.locator(".jp-Notebook aside#t24-lemma2")
    block.wait_for(timeout=120_000)
    title = block.locator(".myst-proof-title").text_content()
    assert " ".join(title.split()) == "Lemma (2 of T24 (norm growth))"
    assert block.locator(".katex").count() > 0
    shown = page.locator(".jp-Notebook .myst").all_inner_texts()
    assert shown
    assert not any("{prf:" in cell for cell in shown)
    page.close()
