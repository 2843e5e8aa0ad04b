"""Comparing figures' data with another machine's."""

import math
import shutil

import pytest

from publishing import compare
from publishing.__main__ import main

DATA = """array,i,j,value
x,0,,1.0
x,1,,-4.0
label,,,left
far,0,,inf
far,1,,nan
far,2,,2.0
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two machines with the same figure, the first of them this one."""
    for machine in ("here", "there"):
        (tmp_path / machine / "figures").mkdir(parents=True)
        (tmp_path / machine / "figures/one.csv").write_text(DATA, "utf-8")
    monkeypatch.setattr(compare.compare, "__defaults__", (compare.TOLERANCE, tmp_path / "here"))
    return tmp_path / "there/figures"


def edit(folder, old, new):
    path = folder / "one.csv"
    assert old in DATA
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def test_the_same_data_are_the_same(folders, capsys):
    assert main(["compare", str(folders)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "one: ok"
    assert out[1:4] == ["  x: 0.0e+00", "  label: 0.0e+00", "  far: 0.0e+00"]
    assert out[4] == "1 figures, 0 different (tolerance 1e-06)"


@pytest.mark.parametrize(
    ("old", "new", "array", "expected"),
    [
        ("x,0,,1.0", "x,0,,1.004", "x", 0.001),  # relative to the largest entry, 4
        ("x,1,,-4.0", "x,1,,4.0", "x", 2.0),
        ("x,1,,-4.0\n", "", "x", math.inf),
        ("left", "right", "label", math.inf),
        ("far,0,,inf", "far,0,,-inf", "far", math.inf),
        ("far,1,,nan", "far,1,,0.0", "far", math.inf),
        ("far,2,,2.0", "far,2,,nan", "far", math.inf),
        ("label,,,left\n", "", "label", None),
        ("label,,,left\n", "label,,,left\nmore,,,1\n", "more", None),
    ],
)
def test_a_difference_is_found_and_measured(folders, capsys, old, new, array, expected):
    edit(folders, old, new)
    [(figure, same, found)] = compare.compare(folders)
    assert (figure, same) == ("one", False)
    assert found.pop(array) == (expected if expected is None else pytest.approx(expected))
    assert set(found.values()) == {0.0}
    assert main(["compare", str(folders)]) == 1
    assert "one: different" in capsys.readouterr().out


def test_the_tolerance_decides(folders, capsys):
    edit(folders, "x,0,,1.0", "x,0,,1.004")
    assert main(["compare", str(folders), "--tolerance", "1.1e-3"]) == 0
    assert main(["compare", str(folders), "--tolerance", "0.9e-3"]) == 1


def test_a_figure_that_this_machine_lacks_is_different(folders, capsys):
    shutil.copy(folders / "one.csv", folders / "two.csv")
    assert main(["compare", str(folders)]) == 1
    assert "two: different\n  x: on one side only" in capsys.readouterr().out


def test_a_folder_without_figures_is_named_in_one_line(tmp_path, capsys):
    for folder, reason in ((tmp_path / "none", "does not exist"), (tmp_path, "holds no CSV")):
        assert main(["compare", str(folder)]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert reason in line
