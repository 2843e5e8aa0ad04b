"""Builds killed at a random moment, or two at once: they end with an undisturbed one's bytes."""

import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import tiny_project
from tiny_project import contents

from publishing import project, runner

KEPT = ("book", "figures")
"""Everything a build makes for the book; `_build` holds run times, which differ."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What an undisturbed build gives, and the seconds it takes."""
    root = tiny_project.make_two(tmp_path_factory.mktemp("undisturbed"))
    started = time.monotonic()
    output = do("run", root)
    assert "2 executed, 0 failed" in output
    return contents(root, *KEPT), time.monotonic() - started


def do(command, root):
    """Run a command to its end; return what it said."""
    status, _, said = tiny_project.run(root, command)
    assert status == 0, said
    return said


def moments(count):
    """Fractions of a build's time: one in each of `count` equal parts of it, at random there."""
    generator = random.Random(8)
    return [(number + generator.random()) / count for number in range(count)]


MANY = [pytest.param(moment, marks=pytest.mark.stress) for moment in moments(20)]


@pytest.mark.parametrize("fraction", moments(2) + MANY)
def test_a_kill_leaves_nothing_half_written_and_the_next_build_gives_the_same(
    undisturbed, tmp_path, fraction
):
    expected, seconds = undisturbed
    root, seconds = tmp_path / "book", 0.9 * fraction * seconds
    tiny_project.make_two(root)
    while not tiny_project.killed(root, seconds, "run"):  # the machine is quicker than before
        seconds /= 2
        shutil.rmtree(root)
        tiny_project.make_two(root)
    # Whatever is there after the kill is whole: no reader ever sees half a file.
    for path, content in contents(root, *KEPT).items():
        if not path.endswith((".tmp", "keys.txt")):
            assert content == expected[path]
    do("run", root)
    assert contents(root, *KEPT) == expected


@pytest.mark.parametrize("fraction", moments(3))
def test_a_ledger_that_is_killed_while_it_is_closed(tmp_path, fraction):
    root = tiny_project.make(tmp_path)
    tiny_project.pretend(root, "01_tiny", [{"id": "t24.fig1.sum", "value": 12.0}])
    places = ("book", "_build")
    sources = contents(root, *places)
    started = time.monotonic()
    do("collect", root)
    seconds = time.monotonic() - started
    expected = contents(root, *places)
    for path in expected.keys() - sources.keys():
        (root / path).unlink()
    while not tiny_project.killed(root, 0.9 * fraction * seconds, "collect"):
        seconds /= 2
    for path, content in contents(root, *places).items():
        if not path.endswith(".tmp"):
            assert content == expected[path]
    do("collect", root)
    project.sweep(root)
    assert contents(root, *places) == expected


def test_two_builds_at_once_are_one_after_the_other(undisturbed, tmp_path):
    root = tiny_project.make_two(tmp_path / "book")
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(do, ["run", "run"], [root, root]))
    assert sorted("this one begins at its end" in output for output in said) == [False, True]
    assert sorted("2 executed, 0 failed" in output for output in said) == [False, True]
    assert contents(root, *KEPT) == undisturbed[0]


def test_workers_and_kernels_end_when_the_main_process_is_killed(tmp_path):
    root = tiny_project.make(tmp_path)
    tiny_project.only(root, "import time\nopen('started', 'w').close()\ntime.sleep(600)")
    process = tiny_project.command(root, "run")
    started = root / "book/nb/started"
    deadline = time.monotonic() + 300
    while not started.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 2  # a worker and its kernel
    process.kill()
    process.communicate()
    _, left = psutil.wait_procs(below, timeout=60)
    # One that ended may wait for the system to notice.
    left = [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
    for each in left:
        each.kill()
    assert not left


def test_what_a_kill_left_half_written_is_swept_away_and_no_results_with_it(tmp_path):
    for folder in ("book/nb", "book", "figures", "_build", "_build/nb"):
        tiny_project.write(tmp_path / folder / ".whole.json.4711.tmp", '{"half')
        tiny_project.write(tmp_path / folder / "whole.json", "{}")
    project.sweep(tmp_path)
    left = contents(tmp_path, ".")
    assert len(left) == 5
    assert all(path.endswith("whole.json") for path in left)


def test_a_clean_build_elsewhere_is_byte_identical(undisturbed, tmp_path):
    # One notebook of the two is enough here: the two kills above end in whole builds elsewhere.
    root = tiny_project.make_two(tmp_path / "ëlsewhere" / "with a späce")
    assert runner.run(["02_other"], root=root) == []
    made = contents(root, "book/nb", "figures")
    assert made.pop("book/nb/keys.txt") in undisturbed[0]["book/nb/keys.txt"]
    assert len(made) == 4  # the notebook, and the figure in three files
    assert made == {path: undisturbed[0][path] for path in made}
