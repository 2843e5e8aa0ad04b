"""``python -m ntpnb``: what it writes, where, and its exit status."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from shlex import quote

import numpy as np
import pytest

import ntpnb
from ntpnb import __main__ as command_line
from ntpnb.reporting import findings

from_text = ntpnb.NextTokenData.from_text


STORY = """The fox runs over the hill. The fox hides in the wood. The owl sits
in the wood and sees the fox. The fox sees the owl."""
RIDDLE = "he can if he will will he if he can he will"  # not separable in few dimensions


@pytest.fixture
def story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(STORY, encoding="utf-8")
    return path


@pytest.fixture
def run(capsys):
    """A function that runs a command here, and returns its status, output and errors."""

    def command(*arguments):
        try:
            status = command_line.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        output, errors = capsys.readouterr()
        return status, output, errors

    yield command
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")  # what a process would have ended with


@pytest.fixture
def pipe(monkeypatch):
    """A function that gives some bytes to what reads standard input."""

    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def in_a_process(*arguments, **options):
    command = [sys.executable, "-m", "ntpnb", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, **options)


# -- answers --------------------------------------------------------------------------------------


def test_the_report_is_written(run, story):
    expected = str(ntpnb.report(STORY))
    assert run("report", story) == (0, expected + "\n", "")


def test_options_are_those_of_the_report(run, story):
    data = from_text(STORY, context_length=1, dim=4, embedding="mean", seed=3)
    found = ntpnb.report(data)
    options = ("--context-length", 1, "--dim", 4, "--embedding", "mean", "--seed", 3)
    assert run("report", *options, story) == (0, str(found) + "\n", "")


def test_a_text_that_is_not_separable_is_an_answer(run, tmp_path):
    (tmp_path / "riddle").write_text(RIDDLE, encoding="utf-8")
    status, output, errors = run("report", tmp_path / "riddle", "--dim", 2)
    assert (status, errors) == (0, "")
    assert "not separable" in output


def test_a_name_in_standard_input_is_a_text(run, pipe, tmp_path, monkeypatch):
    """Though a string in Python that names a file is refused."""
    (tmp_path / "we see").touch()
    monkeypatch.chdir(tmp_path)
    pipe(b"we see")
    found = ntpnb.report(from_text("we see\n", context_length=1))
    assert run("report", "-", "--context-length", 1) == (0, f"{found}\n", "")


def test_json(run, story):
    status, output, errors = run("report", story, "--json", "--context-length", 1)
    said = json.loads(output)
    found = ntpnb.report(from_text(STORY, context_length=1))
    assert (status, errors) == (0, "")
    assert said == found.summary()
    assert said["margin"] == found.margin
    assert said["ordered_pairs"] == len(found.order.strict)
    assert [pair["share"] for pair in said["pairs"]] == [pair.share for pair in found.pairs][:100]
    assert said["log10_steps_to_degrees"]["10"] == found.log10_steps(10)
    assert said["dimensions_needed"] == found.generic_dimension.dim


@pytest.mark.parametrize(
    "data",
    [
        ntpnb.datasets.toy(),
        ntpnb.datasets.figure2(),
        ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]]),
        ntpnb.NextTokenData([[1.0]], [[0.3, 0.7]]),
        ntpnb.NextTokenData([[0.0]], [[0.3, 0.7]]),
    ],
    ids=["toy", "attention", "contradiction", "nothing ordered", "zero embedding"],
)
def test_summaries_are_strict_json(data):
    for W in (None, np.zeros(data.shape), np.ones((2, *data.shape))):
        said = ntpnb.report(data, W=W).summary()
        assert json.loads(json.dumps(said, allow_nan=False)) == said


def test_what_is_unknown_is_null(monkeypatch):
    monkeypatch.setattr(ntpnb.bias, "finite_part", _raise(ValueError("large")))
    said = ntpnb.report(ntpnb.datasets.toy(), seconds=0).summary()
    assert said["compatible"] is None
    assert said["separable"] is None
    assert said["margin"] is None
    assert said["pairs"] == []
    assert said["undecided_because"].startswith("undecided: 0 seconds are over")
    assert said["failures"] == {"finite part": "large"}


def _raise(error):
    def fail(*arguments, **options):
        raise error

    return fail


@pytest.mark.parametrize("ending", ["png", "svg", "PDF"])
def test_a_figure_is_drawn(run, story, tmp_path, ending):
    path = tmp_path / f"figure.{ending}"
    status, output, errors = run("report", story, "--plot", path)
    assert (status, errors) == (0, "")
    assert "entropy" in output
    assert path.stat().st_size > 1000


# -- no answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory: "),
        (b"two words", "text has 2 words; at least context_length + 1 = 3 are needed"),
        (b"", "text has 0 words"),
        (b"word", "text has 1 word; at least"),
        (b"caf\xe9 au lait", "story.txt' is not in UTF-8"),
        (b"\x00\x01", "story.txt' holds a zero byte"),
    ],
)
def test_what_cannot_be_read_is_explained_in_one_line(run, tmp_path, content, why):
    path = tmp_path / "story.txt"
    if content is not None:
        path.write_bytes(content)
    status, output, errors = run("report", path)
    assert (status, output) == (1, "")
    assert errors.startswith("ntpnb: error: ")
    assert why in errors
    assert errors.count("\n") == 1


def test_a_folder_is_no_text(run, tmp_path):
    status, _, errors = run("report", tmp_path)
    assert status == 1
    assert repr(str(tmp_path)) in errors


def test_standard_input_that_is_no_text(run, pipe):
    pipe(b"caf\xe9")
    status, _, errors = run("report", "-")
    assert status == 1
    assert errors.count("\n") == 1
    assert "standard input is not in UTF-8: byte 3 is 0xe9" in errors


def test_undecided_is_no_answer_but_the_rest_is_written(run, story):
    status, output, errors = run("report", story, "--seconds", 0)
    assert (status, errors) == (1, "")
    assert "separable or not: undecided: 0 seconds are over" in output
    assert "entropy" in output


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (MemoryError(), 1, "MemoryError"),
        (ntpnb.ConvergenceError("in\ntwo lines", 1.0), 1, "in two lines"),
        (ImportError("no plot"), 1, "no plot"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_other_errors_are_one_line(run, story, monkeypatch, error, status, said):
    monkeypatch.setattr(command_line, "implicit_bias", _raise(error))
    assert run("report", story) == (status, "", f"ntpnb: error: {said}\n")


def test_faults_of_the_package_are_not_hidden(run, story, monkeypatch):
    monkeypatch.setattr(command_line, "implicit_bias", _raise(KeyError("a fault")))
    with pytest.raises(KeyError):
        run("report", story)


def test_what_is_known_at_an_interruption_is_reported(run, story, monkeypatch):
    whole = run("report", story)[1].splitlines()
    monkeypatch.setattr(findings, "way_in_time", _raise(KeyboardInterrupt()))
    status, output, errors = run("report", story)
    assert (status, errors) == (130, "")
    known = [line for line in output.splitlines() if "interrupted" not in line]
    assert len(known) > 5
    assert known == whole[: len(known)]
    assert "steps to a given angle: interrupted" in output


def test_a_missing_matplotlib_is_named_before_anything_is_computed(run, story, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(command_line, "implicit_bias", _raise(AssertionError("it is too late")))
    status, output, errors = run("report", story, "--plot", "figure.png")
    assert (status, output) == (1, "")
    assert 'pip install "ntpnb[plot]"' in errors


# -- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "COMMAND"),
        ("summarise", "invalid choice: 'summarise'"),
        ("report", "FILE"),
        ("report a b", "unrecognized arguments: b"),
        ("report a --dim 0", "'0' is no positive integer"),
        ("report a --dim 2.5", "'2.5' is no positive integer"),
        ("report a --context-length -1", "argument --context-length"),
        ("report a --seed -1", "argument --seed"),
        ("report a --seconds nan", "'nan' is no number of seconds"),
        ("report a --seconds soon", "'soon' is no number of seconds"),
        ("report a --embedding glove", "invalid choice: 'glove'"),
        ("report a --embedding concatenated --dim 3", "must be a multiple"),
        ("report a --plot figure.docx", "ends in '.docx'"),
        ("report a --plot no/such/folder/figure.png", "there is no folder"),
    ],
)
def test_arguments_that_cannot_be_used_are_explained_in_one_line(run, arguments, why):
    status, output, errors = run(*arguments.split())
    assert (status, output) == (2, "")
    assert why in errors
    assert errors.count("\n") == 1
    assert errors.startswith("ntpnb")


def test_help_and_version(run):
    status, output, _ = run("report", "--help")
    assert status == 0
    assert "exit status: 0" in output
    assert run("--version")[:2] == (0, f"ntpnb {ntpnb.__version__}\n")


def test_the_page_names_every_option(run):
    page = Path(__file__).parents[2].joinpath("book/api/reporting.md").read_text("utf-8")
    options = {word.strip("[],") for word in run("report", "--help")[1].split()}
    for option in {option for option in options if option.startswith("--")} - {"--help"}:
        assert f"`{option}" in page, option


# -- terminals and pipes --------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_only(story):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "ntpnb", "report", str(story)]
    with subprocess.Popen(command, stderr=terminal, **options) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(main, 4096):
                shown += chunk
        except OSError:  # the terminal's other end is closed
            pass
        output = process.stdout.read()
    os.close(main)
    assert process.returncode == 0
    assert b"counting what follows" in shown
    assert shown.endswith(b"\r\x1b[K")  # the line is left as it was
    assert b"\n" not in shown
    assert output.decode() == str(ntpnb.report(STORY)) + "\n"


def test_a_line_of_progress_fits_the_terminal(monkeypatch):
    monkeypatch.setattr(command_line.shutil, "get_terminal_size", lambda: os.terminal_size((20, 5)))
    stream = io.StringIO()
    told = command_line._TerminalLine(stream)
    told("x" * 100)
    assert stream.getvalue() == "\r\x1b[K" + "x" * 19


def test_lines_of_progress_that_follow_at_once_are_left_out(monkeypatch):
    stream = io.StringIO()
    told = command_line._TerminalLine(stream)
    for now, text in [(5.0, "first"), (5.05, "at once"), (5.2, "later")]:
        monkeypatch.setattr(command_line.time, "monotonic", lambda now=now: now)
        told(text)
    assert stream.getvalue() == "\r\x1b[Kfirst\r\x1b[Klater"


def test_a_reader_who_has_enough_sees_no_error(story):
    command = f"{quote(sys.executable)} -m ntpnb report {quote(str(story))} --json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout == b'{\n  "conte'


def test_a_terminal_without_the_signs_gets_others():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = in_a_process("report", "-", env=environment, input=STORY.encode())
    assert done.returncode == 0
    assert b"W has shape 12 ? " in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_disk_is_said_in_one_line(story, options):
    command = [sys.executable, "-m", "ntpnb", "report", str(story), *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ("ntpnb: error: No space left on device: 'standard output'\n")
