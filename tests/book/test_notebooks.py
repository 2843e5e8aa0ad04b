"""The executed notebooks are what their text says, hold what they must, and can be caught lying.

nbval (``pytest --nbval book/nb``) compares outputs with a new execution, but passes where there
are none and skips images. The first half looks for what nbval would not miss; the second half
breaks a copy of the project on purpose and wants nbval, or the ledger, to say so.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import jupytext
import lint
import nbformat
import pytest
import tiny_project

from ntpnb_book import claims, frames, ledger, output, saving
from publishing import collect, kernel, keys, project, verify
from publishing.keys import PACKAGES

NAMES = project.names()


@pytest.fixture(scope="module", params=NAMES)
def notebook(request):
    read = nbformat.read(project.executed(request.param), as_version=4)
    read.name = request.param
    return read


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_none_is_stale_and_no_figure_was_drawn_with_other_parameters():
    assert keys.outdated(NAMES) == {}


def test_its_cells_are_those_of_the_text(notebook):
    text = jupytext.read(project.source(notebook.name))

    def parts(cells):
        return [(cell.cell_type, cell.source, cell.metadata) for cell in cells]

    assert parts(notebook.cells) == parts(text.cells)


def test_the_text_survives_jupytext_unchanged(notebook):
    text = project.source(notebook.name).read_text(encoding="utf-8")
    assert jupytext.writes(jupytext.reads(text, "md:myst"), "md:myst") == text


def test_every_cell_ran_once_and_in_order(notebook):
    counts = [cell.execution_count for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_nothing_went_to_stderr_and_nothing_is_hidden_from_nbval(notebook):
    for cell in code(notebook):
        for shown in cell.outputs:
            assert shown.output_type != "error"
            assert shown.get("name") != "stderr", shown.text
    assert list(lint.unchecked(notebook.name)) == []


# Still to be drawn with a name at every axis; none may be added.
TO_BE_NAMED = {
    "graphs_trials",
    "graphsvm_plane",
    "t24_fig3_contexts",
}


def test_every_axis_of_every_figure_has_a_name(notebook):
    for record in output.records({"cells": notebook.cells}, "figure"):
        if record["figure"] not in TO_BE_NAMED:
            assert record.get("unnamed", []) == [], record["figure"]


def test_every_figure_cell_shows_the_saved_image_with_alt_text_caption_and_data(notebook):
    for cell in code(notebook):
        images = [shown for shown in cell.outputs if saving.DRAWING in shown.get("data", {})]
        saved = list(output.records({"cells": [cell]}, "figure"))
        calls = re.findall(r"figures\.save(?:_frames)?\(", cell.source)
        assert len(images) == len(saved) == len(calls)
        if not saved:
            continue
        [image] = images
        [record] = saved
        name = record["figure"]
        drawings = saving.drawing_files(name, image.data[saving.DRAWING], record["drawings"])
        for path, svg in drawings.items():
            assert svg == (output.ROOT / "figures" / path).read_text(encoding="utf-8")
            assert len(svg) < frames.LIMIT, "a page should load on a telephone"
        assert len(cell.metadata.mystnb.image.alt) >= 40
        assert f"../../figures/{name}.csv>`" in cell.metadata.mystnb.figure.caption


@pytest.fixture(scope="module")
def same_machine():
    return verify.is_same_machine()


def test_it_says_what_this_clone_measured_itself(notebook, same_machine):
    """In a fresh clone that is every notebook; `.ci/run` insists on it."""
    if notebook.name in verify.comparable():
        assert list(verify.differences(notebook.name, exactly=same_machine)) == []


def test_it_prints_its_checks_as_the_ledger_would_today(notebook, capsys):
    listed = [claim["id"] for claim in claims.load().values() if claim["notebook"] == notebook.name]
    lines = {
        shown.metadata.ntpnb.id: (shown.metadata.ntpnb.value, shown.data["text/plain"])
        for shown in output.outputs(notebook)
        if "id" in shown.get("metadata", {}).get("ntpnb", {})
    }
    assert listed
    assert sorted(lines) == sorted(listed)
    for id, (value, line) in lines.items():
        assert line.startswith("✓ ")
        ledger.check(id, value)
        assert capsys.readouterr().out == line + "\n"


def test_the_ledger_closes():
    assert list(collect.problems()) == []


# Executed again and again below: of the notebooks that train something, the quickest.
QUICK = "evidence/toy_geometry"


@pytest.fixture
def copy(tmp_path):
    """The packages, the lock, the claims and one executed notebook."""
    for package in PACKAGES:
        tiny_project.copy_package(package, tmp_path)
    shutil.copytree(output.ROOT / "book/claims", tmp_path / "book/claims")
    for path in (project.source(QUICK), project.executed(QUICK)):
        place = tmp_path / path.relative_to(output.ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    shutil.copy(output.ROOT / "requirements.lock", tmp_path)
    return tmp_path


def flip_gradient(path):
    """Change the sign of what the one function named ``residuals`` returns."""
    text = path.read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    [residuals] = [function for function in functions if function.name == "residuals"]
    returned = ast.get_source_segment(text, residuals.body[-1].value)
    assert text.count(f"return {returned}\n") == 1
    path.write_text(text.replace(f"return {returned}\n", f"return -({returned})\n"), "utf-8")


def nbval(root):
    """Run nbval on the copy; return how many cells failed, and pytest's exit status."""
    report = root / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", f"--junit-xml={report}", project.executed(QUICK, root)]
    environment = os.environ | kernel.environment(root / "ipython") | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    return int(ElementTree.parse(report).find("testsuite").get("failures")), done.returncode


def test_nbval_passes_on_an_honest_copy(copy):
    assert nbval(copy) == (0, 0)


def test_nbval_catches_a_sign_flipped_in_the_gradient(copy):
    flip_gradient(copy / "ntpnb/training/batch.py")
    failures, status = nbval(copy)
    assert failures > 0
    assert status == 1


def change(path, pattern, instead):
    """Replace the first match of a pattern in a file."""
    text, changes = re.subn(pattern, instead, path.read_text("utf-8"), count=1, flags=re.MULTILINE)
    assert changes == 1
    path.write_text(text, "utf-8")


def test_nbval_catches_one_changed_digit(copy):
    def next_digit(found):
        return f"{found[1]}{(int(found[2]) + 1) % 10}"

    change(project.executed(QUICK, copy), r'("✓ \S+   [-.\d]*)(\d)', next_digit)
    assert nbval(copy) == (1, 1)


def test_nbval_and_the_ledger_catch_a_changed_expectation(copy):
    wrong = 'expect: {above: 1.0e+6, because: "a wrong expectation"}'
    change(copy / f"book/claims/{QUICK}.yml", r"expect: \{at_most.*\}$", wrong)
    assert nbval(copy) == (1, 1)
    shutil.copy(output.ROOT / "book/statements.yml", copy / "book/statements.yml")
    assert any(": expected > 1000000.0, measured" in line for line in collect.problems(copy))
