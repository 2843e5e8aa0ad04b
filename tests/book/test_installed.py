"""What a chapter imports, installed without the book and without the packages that it needs."""

import os
import subprocess
import sys

import pytest
import tiny_project

from publishing.keys import PACKAGES


@pytest.fixture
def installed(tmp_path):
    """The packages alone in a folder, as `pip install` puts them there."""
    for package in PACKAGES:
        tiny_project.copy_package(package, tmp_path / "packages")
    (tmp_path / "work").mkdir()
    return tmp_path


def run(installed, code, without=()):
    """Run code in an empty folder beside the package, as if some modules were not installed."""
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in without), code]
    environment = {name: value for name, value in os.environ.items() if name != "NTPNB_FIGURES"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=installed / "work",
        env=environment | {"PYTHONPATH": str(installed / "packages")},
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr.strip().rpartition("\n")[2]


EXTRA = ("IPython", "cycler", "fastjsonschema", "joblib", "matplotlib", "tqdm", "yaml")


def test_check_says_what_it_is_for_and_what_was_measured(installed):
    shown, error = run(installed, "import ntpnb_book as n; n.check('t24.x', 2.5)", EXTRA)
    assert error == ""
    [line] = shown.splitlines()
    assert "measured 2.5" in line
    assert "checkout" in line


def test_figures_go_to_the_working_directory(installed):
    code = "from ntpnb_book import figures\n"
    code += "figures.save(figures.plt.figure(), 'mine', {'x': [1]}, None)"
    shown, error = run(installed, code)
    assert (shown, error) == ("Figure mine\n", "")
    saved = sorted(path.name for path in (installed / "work/figures").iterdir())
    assert saved == ["mine.csv", "mine.svg"]


@pytest.mark.parametrize(
    "code", ["from ntpnb_book import figures", "import ntpnb_book as n; n.figures"]
)
def test_a_missing_package_names_the_extra(installed, code):
    assert run(installed, code, EXTRA) == (
        "",
        'ImportError: ntpnb_book.figures needs matplotlib: pip install "ntpnb[notebook]"',
    )


def test_a_missing_yaml_names_the_extra_where_there_are_claims(installed):
    for folder in ("notebooks", "book/claims"):
        (installed / "packages" / folder).mkdir(parents=True)
    code = "from ntpnb_book import check; check('t24.x', 1)"
    assert run(installed, code, ("yaml",)) == (
        "",
        'ImportError: check needs yaml: pip install "ntpnb[notebook]"',
    )
