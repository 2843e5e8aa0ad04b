"""The whole book on other threads and other processors, and built twice: what differs is named."""

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import committed
import nbformat
import pytest
import tiny_project
from numpy._core import _multiarray_umath as core
from tiny_project import contents

from publishing import execute, kernel, project, verify

pytestmark = pytest.mark.stress


def unexecuted(root):
    """Copy the book without the executed notebooks."""
    committed.copy_to(root)
    shutil.rmtree(root / "book/nb")
    return root


def differences(name, new):
    """List where an execution differs from the committed one by more than processors may."""
    return list(verify.between(name, project.read_executed(name), new, verify.exceptions()))


def has_feature(name):
    """Whether this processor has a group of instructions, by numpy's name."""
    return core.__cpu_features__.get(name, False)


def dispatched():
    """List the groups of instructions that numpy would choose on this processor."""
    return [name for name in core.__cpu_dispatch__ if has_feature(name)]


SETTINGS = {
    "the usual": {},
    "two threads": dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2"),
    "Sandybridge's BLAS": {"OPENBLAS_CORETYPE": "Sandybridge"},
    "a BLAS and a numpy with all of AVX": {
        "OPENBLAS_CORETYPE": "SkylakeX",
        "NPY_DISABLE_CPU_FEATURES": "",
    },
    "a BLAS and a numpy without AVX": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": " ".join(dispatched()),
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", project.names())
def test_what_is_measured_survives_other_processors(name, setting, tmp_path, monkeypatch):
    if "BLAS" in setting and platform.machine() != "x86_64":
        pytest.skip("the names of processors are those of the x86 family")
    if SETTINGS[setting].get("OPENBLAS_CORETYPE") == "SkylakeX" and not has_feature("AVX512_SKX"):
        pytest.skip("this processor has no AVX-512")
    # The kernel's environment, where one thread is otherwise set.
    monkeypatch.setattr(kernel, "THREADS", kernel.THREADS | SETTINGS[setting])
    root = unexecuted(tmp_path / "copy")
    new = nbformat.reads(execute.execute(name, root=root), as_version=4)
    assert differences(name, new) == []


def build(root):
    """Build a book from its sources to its pages; return the bytes of all that came out."""
    for command in ("run", "collect"):
        status, _, said = tiny_project.run(root, command, timeout=3600)
        assert status == 0, said
    sphinx = [Path(sys.executable).with_name("jupyter-book"), "build", "book", "-W", "-n", "--all"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(sphinx, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return contents(root, "book", "figures", "_build/html")


BUILDS = int(os.environ.get("NTPNB_BUILDS", "2"))


def test_clean_builds_of_the_book_are_byte_identical(tmp_path):
    roots = [tmp_path / f"build {number}" for number in range(1, BUILDS + 1)]
    first = build(unexecuted(roots[0]))
    for root in roots[1:]:
        other = build(unexecuted(root))
        assert first.keys() == other.keys(), root.name
        assert [path for path, content in first.items() if content != other[path]] == [], root.name
        shutil.rmtree(root)


def site(root):
    """Build the pages of executed notebooks; return the bytes of all."""
    status, _, said = tiny_project.run(root, "build", timeout=3600)
    assert status == 0, said
    return contents(root, "_build/html")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The pages of an undisturbed build, and the seconds it takes."""
    root = committed.copy_to(tmp_path_factory.mktemp("undisturbed") / "book")
    started = time.monotonic()
    return site(root), time.monotonic() - started


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_pages_come_out_the_same_after_a_kill(undisturbed, tmp_path, part):
    expected, seconds = undisturbed
    root, seconds = committed.copy_to(tmp_path / "book"), part * seconds
    while not tiny_project.killed(root, seconds, "build"):  # the machine is quicker than before
        seconds /= 2
        shutil.rmtree(root / "_build")
    assert site(root) == expected


ALONE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command where no network exists but the loopback device, which kernels talk over."""


def with_workers():
    """List the notebooks that compute in several processes."""
    return [name for name in project.names() if "n_jobs" in project.source(name).read_text("utf-8")]


@pytest.mark.parametrize("name", with_workers())
def test_workers_need_no_network(name, tmp_path):
    # The guard in a kernel (`test_faults`) does not see the sockets of processes that it starts.
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the system does not let a test take its network away (unshare, ip)")
    root = unexecuted(tmp_path / "copy")
    attempt = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    reach = subprocess.run([*ALONE, sys.executable, "-c", attempt], capture_output=True, text=True)
    assert "Network is unreachable" in reach.stderr
    build = [*ALONE, sys.executable, "-m", "publishing", "run", name]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(build, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert differences(name, project.read_executed(name, root)) == []
