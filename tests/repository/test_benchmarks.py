"""The benchmarks: they run from end to end at sizes that measure nothing. No time is asserted."""

import csv
import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
import tiny_project

from benchmarks import build, margin, notebooks, report, sizes, text, text_report, training

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
CONTENDERS, LOOPS = margin.CONTENDERS, training.CONTENDERS
OPTIONAL = {name for needs in (CONTENDERS | LOOPS).values() for name in needs}
SECONDS = ("ours_cpu", "ours_wall", "theirs_cpu", "theirs_wall")


def bench(out, *parts, **env):
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(out), *parts]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "env": os.environ | env}
    done = subprocess.run(command, **options)
    assert not done.returncode, done.stderr
    return json.loads((out / "results.json").read_text("utf-8")), done.stdout


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmarks")
    return *bench(out), out


def table(path):
    return list(csv.reader(path.read_text("utf-8").splitlines()))


def names(records):
    return [record["contender"] for record in records]


def test_contenders_run_or_are_named_as_missing(tiny):
    results, printed, _ = tiny
    missing = set(results["missing"])
    assert missing <= OPTIONAL
    for name in missing:
        assert f"not installed, so not compared: {name}\n" in printed
        assert results["machine"][name] == "not installed"
    wanted = [name for name, needs in CONTENDERS.items() if not missing & set(needs)]
    loops = [name for name, needs in LOOPS.items() if not missing & set(needs)]
    assert "cvxpy + Clarabel" in wanted  # cvxpy is in the lock, so something is compared
    assert names(results["margin"]) == wanted
    assert names(results["descent"]) == loops
    assert names(results["trials"]) == [name for name in loops if name != "matrix products"]


def test_records_are_whole_and_contenders_agree(tiny):
    results, _, _ = tiny
    for record in results["margin"] + results["descent"] + results["trials"]:
        assert all(math.isfinite(record[name]) for name in SECONDS)
        assert record["peak_mb"] > 1
    for record in results["margin"]:
        assert record["kkt_ours"] < 1e-10  # what max_margin promises
        assert record["difference"] < 1e-3  # the loosest default, SCS's, stops at 1e-4
        assert record["angle"] < 1e-3
        if record["contender"] == "ortools + PDLP":
            assert record["difference"] < 1e-5  # it stops at 1e-6, by residuals
            assert record["kkt_theirs"] < 1e-5
        assert record["kkt_theirs"] is None or record["kkt_theirs"] < 1e-3
    for record in results["descent"] + results["trials"]:
        if record["contender"] != "matrix products":
            assert record["difference"] < 1e-12  # the same twenty steps, rounded differently
    assert [record["V"] for record in results["alone"]] == [4, 5]
    (both,) = results["path and flow"]
    assert both["path_residual"] < 1e-10
    assert both["path_cpu"] > 0
    assert both["flow_cpu"] > 0
    (floors,) = results["workers"]
    assert floors["same"] == "yes"
    assert floors["ratio_wall"] > 0


def test_tables_have_a_row_for_every_record(tiny):
    results, _, out = tiny
    for part in ("margin", "alone", "descent", "trials", "path and flow", "text", "workers"):
        rows = table(out / f"{part.replace(' ', '_')}.csv")
        assert len(rows) == 1 + len(results[part])
        assert len({len(row) for row in rows}) == 1
    for name in ("scaling.svg", "growth.svg"):
        assert (out / name).read_text("utf-8").startswith("<?xml")


def test_reports_are_measured_on_texts_that_are_long_enough():
    assert sizes.of_text("log", 1000)["cpu"] > 0
    assert sizes.of_text("English", sizes.SIZES[-1]) == {}
    assert all(len(sizes.TEXTS[kind]()) > sizes.SIZES[-1] for kind in ("code", "log"))


def test_the_plot_has_a_line_for_every_contender():
    lines = [name for name in CONTENDERS if "LinearSVC" not in name]  # it solves another problem
    record = {"V": 4, "d": 10, "ours_cpu": 1.0, "theirs_cpu": 2.0, "peak_mb": 100.0}
    results = {"alone": [record], "margin": [record | {"contender": name} for name in lines]}
    with mpl.rc_context():
        svg = report.scaling(results)
    for name in ["max_margin", *lines]:
        assert f"<!-- {name} -->" in svg


def test_programs_agree_at_the_size_of_real_text_made_small(tiny):
    results, _, _ = tiny
    missing = set(results["missing"])
    solved = [record for record in results["text"] if record["problem"][0] == "random"]
    wanted = ["ours", "HiGHS", "Clarabel", "SCS"] + ["LinearSVC"] * ("sklearn" not in missing)
    assert [record["program"] for record in solved] == wanted
    shortest = solved[0]["norm"]
    for record in solved:
        assert record["outcome"] == "separable"
        assert record["violation"] < 1e-3  # the loosest default, SCS's, stops at 1e-4
        if record["program"] == "HiGHS":  # any solution, so none may be shorter
            assert record["norm"] >= shortest * (1 - 1e-9)
        else:
            assert record["norm"] == pytest.approx(shortest, rel=1e-3)
    assert solved[0]["kkt"] < 1e-10  # what max_margin promises
    (enclosed,) = [record for record in results["text"] if record["question"] == "gap"]
    assert enclosed["gap"] <= 1e-3
    states = [r for r in results["text"] if r["problem"][0] == "hidden states"]
    assert [record["outcome"] for record in states] == ["separable", "separable"]
    # Genesis begins with contexts that are followed by two words each: two dimensions are too few
    (too_few,) = [record for record in results["text"] if record["problem"][0] == "bigrams"]
    assert too_few["outcome"] == "not separable"
    verdicts = {tuple(run["outcome"] for run in record["runs"]) for record in results["growth"]}
    assert verdicts == {("separable", "separable")}  # more dimensions than contexts


@pytest.mark.parametrize("program", ["HiGHS", "Clarabel", "SCS"])
def test_programs_prove_that_nothing_separates(program):
    record = text.race(["bigrams", "Genesis", 1, 2], "verdict", program)
    assert record["outcome"] == "not separable"


def test_a_limit_of_time_ends_a_measurement_and_is_shown():
    record = text.race(["bigrams", "Genesis", 31, 60], "verdict", "HiGHS", seconds=1)
    assert record["outcome"] == "time"
    assert record["m"] == 375  # known all the same
    assert record["peak_mb"] > 50


def test_a_limit_of_memory_ends_a_measurement_and_is_shown():
    record = text.race(["random", 300, 400, 60, 1], "verdict", "SCS", gibibytes=0.5)
    assert record["outcome"] == "memory"
    assert "cpu" not in record


def test_tables_of_limits_say_so(tmp_path):
    size = {"V": 3, "m": 6, "d": 8, "problem": ["random", 3, 6, 8, 1], "question": "verdict"}
    size |= {"seconds": 30, "gibibytes": 6, "peak_mb": 200.0}
    records = [
        size | {"program": "ours", "outcome": "separable", "cpu": 2.0},
        size | {"program": "HiGHS", "outcome": "time"},
        size | {"program": "SCS", "outcome": "memory"},
        size | {"program": "Clarabel", "outcome": "separable", "cpu": 5.0},
    ]
    text_report.show({"text": records}, tmp_path, tmp_path)
    rows = table(tmp_path / "text.csv")
    assert [row[3:] for row in rows[1:]] == [
        ["ours", "separable", "2", "–", "200"],
        ["HiGHS", "none in time", "over 30", "over 15", "over 200"],
        ["SCS", "none in memory", "–", "–", "over 6144"],
        ["Clarabel", "separable", "5", "2.5", "200"],
    ]


def test_what_cannot_be_imported_is_named_and_the_rest_still_runs(tmp_path):
    for name in ("cvxpy", "ortools", "qpsolvers", "sklearn", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('made absent')\n", "utf-8")
    results, printed = bench(tmp_path, "margin", "descent", PYTHONPATH=str(tmp_path))
    assert {"cvxpy", "ortools", "qpsolvers", "sklearn", "torch"} <= set(results["missing"])
    assert "not compared: cvxpy" in printed
    assert results["margin"] == []
    assert names(results["descent"]) == ["numpy loop", "matrix products"]


def test_an_unknown_part_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "flow"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    parts = "margin, alone, descent, trials, path and flow, text, growth, threads, workers"
    assert f"unknown part flow; parts are {parts}" in done.stderr


def test_committed_tables_show_the_committed_results(tmp_path):
    results = json.loads((RESULTS / "results.json").read_text("utf-8"))
    with mpl.rc_context():
        report.show(results, tmp_path, tmp_path)
    # what `make mutants` and programs of their own, such as `benchmarks.sizes`, write is of no race
    others = ("notebooks", "build", "browser", "mutants", "sizes")
    tables = sorted(path for path in RESULTS.glob("*.csv") if not path.name.startswith(others))
    assert [path.name for path in tables] == sorted(path.name for path in tmp_path.glob("*.csv"))
    for path in tables:
        assert path.read_text("utf-8") == (tmp_path / path.name).read_text("utf-8")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_no_cell_begins_as_a_quotation_or_a_list_does(path):
    cells = [cell for row in table(path) for cell in row]
    assert [cell for cell in cells if re.match(r"[>#*+-] ", cell)] == []


def test_the_stages_of_a_build_leave_no_test_out():
    commands = [stage.split() for stage in build.STAGES.values()]
    named = {word for command in commands for word in command if word.startswith("tests/")}
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert {Path(name) for name in named} == folders
    assert all(command[0] == "make" or Path(command[0]).name == "python" for command in commands)


def test_a_stage_is_timed_and_one_that_fails_is_not(tmp_path):
    working = "import time\nwhile time.process_time() < 0.3:\n    pass\n"
    (tmp_path / "working.py").write_text(working, "utf-8")
    spent = build.measure(shlex.join([sys.executable, "working.py"]), tmp_path)
    assert 0.3 < spent.cpu < 600
    assert 0.3 < spent.clock < 600
    with pytest.raises(subprocess.CalledProcessError):
        build.measure(shlex.join([sys.executable, "-c", "1/0"]), tmp_path)


def test_a_notebook_is_measured_with_its_kernel(tmp_path):
    tiny_project.make(tmp_path)
    record = notebooks.measure("01_tiny", tmp_path)
    assert 0.1 < record["seconds"] < 600
    assert record["kernel_mb"] > 20  # numpy alone needs more
    assert (tmp_path / "figures/tiny.svg").exists()
    assert not (tmp_path / "book/nb/01_tiny.ipynb").exists()
