"""The tests of the mathematics in the Python of browsers, where indices have 32 bits, by Node."""

import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from ntpnb_book.output import ROOT
from publishing.live import runtime

SUPPORT = ROOT / "tests/support"
TESTERS = (
    "_pytest",
    "attr",
    "attrs",
    "fastjsonschema",
    "iniconfig",
    "mpmath",
    "packaging",
    "pluggy",
)
TESTERS += ("py", "pygments", "pytest", "sortedcontainers", "tqdm", "yaml")
"""Plain Python, which is taken from this environment."""


@pytest.fixture(scope="module")
def testers(tmp_path_factory):
    """A folder with what runs tests, in plain Python."""
    folder = tmp_path_factory.mktemp("testers")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    lock = SUPPORT / "wasm.lock"
    subprocess.run([*pip, "--target", folder, "-r", lock], check=True)
    for name in TESTERS:
        found = Path(util.find_spec(name).origin)
        if found.name == "__init__.py":
            plain = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(found.parent, folder / name, ignore=plain)
        else:
            shutil.copyfile(found, folder / found.name)
    return folder


@pytest.mark.stress
def test_the_mathematics_is_the_same_in_a_browsers_python(testers):
    try:
        kept = runtime.kept()
    except runtime.NoRuntimeError as error:
        pytest.skip(str(error))
    script = SUPPORT / "mathematics.mjs"
    command = ["node", script, kept, ROOT, testers, "tests/math"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    passed = re.search(r"^(\d+) passed", done.stdout.splitlines()[-1])
    assert done.returncode == 0
    assert passed is not None
    assert int(passed[1]) > 2500  # most of them, and not only what could be collected
