"""What `tests/conftest.py` promises: a test that leaves something behind fails, and any order."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LEAVING = """
import os, random
import matplotlib.pyplot as plt
import numpy as np

def test_figures(): plt.figure()
def test_settings(): plt.rcParams["axes.grid"] = True
def test_environment(): os.environ["LEFT"] = "1"
def test_folder(): os.chdir("/")
def test_chance(): random.random()
def test_chance_of_numpy(): np.random.rand()
def test_nothing(): pass
"""


def outcomes(folder, *options):
    """Names of the tests of a small suite in the order in which they ran, and of those in error."""
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "test_leaving.py").write_text(LEAVING, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:nbval", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)
    ran = re.findall(r"::(\w+) PASSED", done.stdout)
    return ran, re.findall(r"^ERROR \S+::(\w+)", done.stdout, re.MULTILINE)


def test_a_test_that_leaves_something_behind_fails(tmp_path):
    ran, failed = outcomes(tmp_path, "--tb=no")
    assert len(ran) == 7
    assert sorted(failed) == sorted(set(ran) - {"test_nothing"})


def test_a_seed_gives_one_order_and_another_seed_another(tmp_path):
    orders = [outcomes(tmp_path, "--shuffle", seed)[0] for seed in ("1", "1", "2")]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
