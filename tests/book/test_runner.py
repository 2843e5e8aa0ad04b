"""The runner, on a tiny book: what is stale, what is executed, and what an accident leaves."""

import json
import os
import shutil
import signal
import sys
import time

import pytest
import tiny_project
from tiny_project import contents, edit

from ntpnb_book import output
from publishing import (
    collect,
    execute,
    keys,
    manifest,
    project,
    runner,
    verify,
)
from publishing.__main__ import main


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The tiny book, executed once."""
    root = tiny_project.make(tmp_path_factory.mktemp("book"))
    assert runner.run(root=root) == []
    return root


@pytest.fixture
def book(template, tmp_path):
    shutil.copytree(template, tmp_path / "copy")
    return tmp_path / "copy"


def test_an_executed_notebook_holds_nothing_that_changes_from_run_to_run(template):
    notebook = project.read_executed("01_tiny", template)
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert "version" not in notebook["metadata"]["language_info"]
    assert [cell["id"] for cell in notebook["cells"]] == [f"cell-{i:02d}" for i in range(5)]
    fields = {field for cell in notebook["cells"] for field in cell["metadata"]}
    assert fields == {"tags", "mystnb"}


def test_outputs_keep_what_was_measured_and_drawn(template):
    notebook = project.read_executed("01_tiny", template)
    assert list(output.records(notebook, "id")) == [{"id": "t24.fig1.sum", "value": 12.0}]
    [figure] = output.records(notebook, "figure")
    assert (figure["figure"], figure["seed"]) == ("tiny", 0)
    assert tiny_project.printed(template) == "first\nsecond 1\n"


def test_the_longest_notebook_starts_first_and_one_never_measured_before_it(tmp_path):
    taken = "notebook,seconds,MiB\nb,2.0,80\nc,9.0,80\n"
    tiny_project.write(tmp_path / "benchmarks/results/notebooks.csv", taken)
    reasons = {"b": "stale", "c": "stale", "new": "not known"}
    assert [name for name, _ in runner._longest_first(reasons, tmp_path)] == ["new", "c", "b"]


def test_nbval_leaves_out_what_this_clone_has_executed_and_verify_compares(book, capfd):
    committed = project.executed("01_tiny", book)
    assert verify.remaining(book) == [committed]  # executed once is not executed again

    assert runner.run(draw=True, root=book) == []
    assert "same bytes as the executed notebook" in capfd.readouterr().err
    assert verify.remaining(book) == []

    text = committed.read_text()
    edit(committed, "second 1", "second 2")
    assert verify.remaining(book) == [committed]
    committed.write_text(text)
    assert verify.remaining(book) == []
    # Nor is anything compared with what was edited here, or run with a reader's parameters.
    edit(project.executed("01_tiny", book, project.HERE), "second 1", "second 2")
    assert verify.remaining(book) == [committed]


def test_nbval_executes_what_was_given_again_by_other_sources(book):
    assert runner.run(draw=True, root=book) == []
    edit(book / "notebooks/01_tiny.md", "scale * np.arange(4)).sum", "np.arange(4) * scale).sum")
    assert runner.run(root=book) == []
    assert verify.remaining(book) == [project.executed("01_tiny", book)]


def drawings(book):
    """The drawings that lie in ``figures/``."""
    return {path.name: path.read_text(encoding="utf-8") for path in book.glob("figures/*.svg")}


def test_a_fresh_clone_unpacks_its_drawings_and_runs_nothing(book, capsys):
    drawn = drawings(book)
    assert drawn.keys() == {"tiny.svg", "tiny_narrow.svg"}
    before = contents(book, "book", "_build")
    shutil.rmtree(book / "figures")
    assert runner.run(root=book) == []
    assert "0 executed" in capsys.readouterr().err
    assert contents(book, "book", "_build") == before
    collect.collect(book)
    assert drawings(book) == drawn


def test_a_drawing_that_no_notebook_holds_gives_way_and_the_others_stay_untouched(book):
    drawn = drawings(book)
    times = {name: (book / "figures" / name).stat().st_mtime_ns for name in drawn}
    tiny_project.write(book / "figures/tiny_frames.svg", "no longer drawn")
    manifest.unpack(book)
    assert {name: (book / "figures" / name).stat().st_mtime_ns for name in drawings(book)} == times
    # As in Jupyter, where a notebook with a changed parameter saves to the same folder.
    edit(book / "figures/tiny.svg", "<svg", "<svg data-mine=''")
    manifest.unpack(book)
    assert drawings(book) == drawn


def test_drawing_anew_keeps_the_executed_notebook_and_makes_every_kind_of_file(book, capfd):
    notebook = project.executed("01_tiny", book)
    edit(notebook, "12.0", "12.5")  # as if another machine had executed it
    keys.record("01_tiny", keys.key("01_tiny", book), book)
    before = contents(book, "book")
    shutil.rmtree(book / "figures")
    assert verify.comparable(book) == []
    assert runner.run(draw=True, root=book) == []
    said = capfd.readouterr().err
    assert "01_tiny: drawn anew; running" in said
    assert "other bytes than the executed notebook, kept" in said
    assert contents(book, "book") == before
    assert "12.5" not in project.executed("01_tiny", book, project.HERE).read_text()
    assert verify.comparable(book) == ["01_tiny"]
    assert {path.suffix for path in book.glob("figures/tiny.*")} == {".csv", ".pdf", ".png", ".svg"}


def test_a_figure_is_named_by_its_name_or_beginning(book):
    assert manifest.drawing("tiny", book) == ["01_tiny"]
    for typed in ("tin-y", "tiny-x"):
        with pytest.raises(ValueError, match=f"no figure '{typed}'; there are: tiny"):
            manifest.drawing(typed, book)


def test_the_kernel_is_this_interpreter_whatever_is_installed(book, monkeypatch):
    spec = {"argv": ["false"], "language": "python", "display_name": "Python 3"}
    tiny_project.write(book / "jupyter/kernels/python3/kernel.json", json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(book / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(book / "jupyter"))
    edit(book / "notebooks/01_tiny.md", "import os\n", "import os, sys\nprint(sys.executable)\n")
    assert runner.run(root=book) == []
    assert sys.executable in project.executed("01_tiny", book).read_text()


def test_a_failing_notebook_is_reported_and_the_others_are_kept(book, capfd):
    old = contents(book, "book/nb")
    shutil.copy(book / "notebooks/01_tiny.md", book / "notebooks/02_tiny.md")
    edit(book / "notebooks/01_tiny.md", "total = ", "total = unheard_of + ")
    assert runner.run(root=book) == ["01_tiny"]
    report = capfd.readouterr().err
    assert "01_tiny, cell [2], line 9: NameError" in report
    assert "2 executed, 1 failed" in report
    new = contents(book, "book/nb")
    added = {"book/nb/02_tiny.ipynb"}
    assert new.keys() == old.keys() | added
    assert new["book/nb/01_tiny.ipynb"] == old["book/nb/01_tiny.ipynb"]


def test_an_interrupted_run_resumes(book):
    shutil.copy(book / "notebooks/01_tiny.md", book / "notebooks/02_slow.md")
    wait = "open('started', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.1)\n"
    slow = f"import time\n{wait}total = "
    edit(book / "notebooks/02_slow.md", "total = ", slow)
    edit(book / "notebooks/01_tiny.md", "scale * np.arange(4)).sum", "np.arange(4) * scale).sum")
    # What a shell starts in the background ignores interrupts, and so would what it starts in turn.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = tiny_project.command(book, "run", "--jobs", "1")
    signal.signal(signal.SIGINT, before)
    while not (book / "book/nb/started").exists():
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert keys.outdated(["01_tiny"], book) == {}
    left = [path.name for path in (book / "book/nb").iterdir()]
    assert sorted(left) == ["01_tiny.ipynb", "keys.txt", "started"]
    (book / "book/nb/go").touch()
    status, _, said = tiny_project.run(book, "run")
    assert status == 0
    assert "02_slow: not known to be executed from these sources; running" in said
    assert "1 executed, 0 failed" in said


def test_a_readers_parameters_write_elsewhere_and_check_says_what_differs(book):
    before = contents(book, "book", "figures")
    status, printed, said = tiny_project.run(book, "run", "01", "-p", "scale=3.0")
    assert status == 0, said
    assert printed == f"{book / '_build/nb/01_tiny.ipynb'}\n"
    assert contents(book, "book", "figures") == before
    text = (book / "_build/nb/01_tiny.ipynb").read_text(encoding="utf-8")
    assert "✗ t24.fig1.sum   expected 12.0 ± 1e-09, measured 18.0" in text
    assert (book / "_build/nb/figures/tiny.png").exists()


def test_unknown_parameters_and_notebooks_are_refused(book):
    with pytest.raises(ValueError, match=r"no parameter 'size'; it has: \['scale', 'seed'\]"):
        execute.execute("01_tiny", {"size": 3}, book)
    with pytest.raises(ValueError, match=r"no notebook '07'; there are: 01_tiny"):
        project.select(["07"], book)
    assert project.select(["notebooks/01_tiny.md", "01"], book) == ["01_tiny"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "99_none"], "no notebook '99_none'"),
        (["run", "-p", "seed=1"], "-p needs the name of one notebook"),
        (["run", "01", "-p", "seed"], "NAME=VALUE is needed"),
    ],
)
def test_the_command_line_explains_what_it_cannot_do(arguments, message, capsys):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_the_command_line_says_what_is_stale(book):
    def call(*arguments):
        return tiny_project.run(book, *arguments)

    assert call("stale", "--check") == (0, "", "")
    shutil.rmtree(book / "figures")  # as in a fresh clone, where the committed file is current
    assert call("stale", "--check") == (0, "", "")
    edit(book / "book/claims/01_tiny.yml", "within: 1e-9", "within: 1e-8")
    assert call("stale") == (0, "01_tiny\n", "")
    assert "01_tiny: its code, its claims" in call("stale", "--why")[1]
    status, listed, message = call("stale", "--check")
    assert (status, listed) == (1, "01_tiny\n")
    assert message == (
        "1 executed notebooks in book/nb are not what the sources give; "
        "run `make book` and commit book/nb\n"
    )
    assert call("collect") == (0, "1 claims\n", "")
    edit(book / "book/claims/01_tiny.yml", "near: 12.0", "near: 13.0")
    failed = "t24.fig1.sum: expected 13.0 ± 1e-08, measured 12.0\n"
    assert call("collect") == (1, "", failed)


def test_sources_that_change_while_a_notebook_runs_are_noticed(book, capfd):
    before = contents(book, "book/nb")
    text = book / "notebooks/01_tiny.md"
    change = f"open({str(book / 'requirements.lock')!r}, 'a').write('# another')\ntotal = "
    edit(text, "total = ", change)
    assert runner.run(root=book) == ["01_tiny"]
    assert "01_tiny: its sources changed while it ran; run it again" in capfd.readouterr().err
    assert contents(book, "book/nb") == before
    assert keys.outdated(["01_tiny"], book).keys() == {"01_tiny"}


def test_nothing_vouches_for_what_was_written_without_its_key(book):
    # As a kill between the two writes leaves it.
    edit(book / "notebooks/01_tiny.md", 'print("first")', 'print("once")')
    runner._work("01_tiny", "edited", project.COMMITTED, book)
    assert keys.recorded(book) == {}
    edit(book / "notebooks/01_tiny.md", 'print("once")', 'print("first")')
    assert keys.outdated(["01_tiny"], book).keys() == {"01_tiny"}
