"""Everything that can go wrong with a build: one clear line, a status, and nothing half-written."""

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import tiny_project
from tiny_project import contents

from ntpnb_book import output
from publishing import keys, project, runner

PROGRESS = re.compile(r"\w+: .*; running|\d+ executed, \d+ failed, \d+ s|.* left")


@pytest.fixture
def book(tmp_path):
    return tiny_project.make(tmp_path / "book")


def complaint(root, *arguments, **options):
    """Run a command that must fail; return the one line it says beside its progress."""
    status, printed, errors = tiny_project.run(root, *arguments, **options)
    assert status == 1
    assert printed == ""
    [line] = [line for line in errors.splitlines() if not PROGRESS.fullmatch(line)]
    return line


def assert_nothing_half_written(root):
    files = contents(root, "book", "figures", "_build")
    assert [path for path in files if path.endswith((".tmp", ".ipynb"))] == []
    for path, content in files.items():
        if path.endswith(".json"):
            json.loads(content)


def test_a_notebook_that_raises(book):
    tiny_project.only(book, "x = 1\nraise ValueError('a first line\\nand a second')")
    assert complaint(book, "run") == (
        "01_tiny, cell [1], line 2: ValueError: a first line and a second "
        "(see _build/01_tiny.traceback.txt)"
    )
    assert "raise ValueError" in (book / "_build/01_tiny.traceback.txt").read_text()
    assert_nothing_half_written(book)


def test_a_notebook_that_hangs(book):
    tiny_project.only(book, "while True: pass")
    line = complaint(book, "run", env={"NTPNB_CELL_SECONDS": "2"})
    assert line.startswith("01_tiny, cell [1]: ran longer than 2 s")
    assert_nothing_half_written(book)


def test_a_kernel_that_dies(book):
    tiny_project.only(book, "import os; os.abort()")
    assert complaint(book, "run") == "01_tiny, cell [1]: the kernel died, or never answered"
    assert_nothing_half_written(book)


def full(size):
    """Let a process write files up to `size` bytes, as if the disk were full after them."""

    def limit():
        # As on a full disk, a file's first part is still written and the next write fails.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_a_disk_that_is_full_when_a_figure_is_saved(book):
    line = complaint(book, "run", preexec_fn=full(2048))
    assert re.match(r"01_tiny, cell \[3\], line \d+: OSError: \[Errno 27\] File too large", line)
    assert_nothing_half_written(book)
    assert [path.name for path in (book / "figures").iterdir()] == ["tiny.csv"]


def test_a_disk_that_is_full_when_the_notebook_is_written(book):
    tiny_project.only(book, "print(30_000 * 'x')")
    line = complaint(book, "run", preexec_fn=full(20_000))
    assert line == "01_tiny: [Errno 27] File too large"
    assert_nothing_half_written(book)


def measured(book):
    """Pretend that the notebook was executed and measured its claim."""
    tiny_project.pretend(book, "01_tiny", [{"id": "t24.fig1.sum", "value": 12.0}])


def test_a_disk_that_is_full_when_the_pages_are_written(book):
    measured(book)
    line = complaint(book, "collect", preexec_fn=full(100))
    assert "File too large" in line
    assert_pages_unwritten(book)


def assert_pages_unwritten(book):
    assert list(book.glob("book/*.md")) == []
    assert not (book / "_build/claims.json").exists()
    assert [path for path in contents(book, ".") if path.endswith(".tmp")] == []


def without_privilege():
    """Bind even root to what a folder's permissions say, from the next program on."""
    if os.geteuid() == 0:
        drop_from_bounding_set, dac_override = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override)


@pytest.mark.parametrize("folder", ["book/nb", "figures"])
def test_a_read_only_folder(book, folder):
    tiny_project.only(book, "import os\nopen(os.environ['NTPNB_FIGURES'] + '/x', 'w').close()")
    for path in (book / "figures", book / folder):
        path.mkdir(parents=True, exist_ok=True)
    (book / folder).chmod(0o555)
    probe = [sys.executable, "-c", f"open({str(book / folder / 'x')!r}, 'w')"]
    if not subprocess.run(probe, preexec_fn=without_privilege, capture_output=True).returncode:
        pytest.skip("this system does not let the test give up root's right to write anywhere")
    line = complaint(book, "run", preexec_fn=without_privilege)
    assert "Permission denied" in line
    assert f"/{folder}/" in line
    assert contents(book, folder) == {}


def test_a_home_folder_that_cannot_be_written(book, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    own = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "IPYTHONDIR")
    jupyter = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    environment = dict.fromkeys((*own, *jupyter), "") | {"HOME": str(home)}
    options = {"env": environment, "preexec_fn": without_privilege}
    status, _, errors = tiny_project.run(book, "run", **options)
    assert status == 0, errors
    assert "1 executed, 0 failed" in errors
    assert list(home.iterdir()) == []


def test_a_corrupt_executed_notebook(book):
    measured(book)
    path = project.executed("01_tiny", book)
    damage = path.read_bytes()[:-20]
    path.write_bytes(damage)
    line = complaint(book, "collect")
    assert line.startswith(f"{path}: damaged (")
    assert line.endswith("; run it again")
    assert path.read_bytes() == damage
    assert_pages_unwritten(book)
    assert keys.outdated(["01_tiny"], book).keys() == {"01_tiny"}  # and so does the next build


@pytest.mark.parametrize("damage", [b"", b"\xff", b'{"cells": [], "metadata": '])
def test_other_damage_to_an_executed_notebook(book, damage):
    path = project.executed("01_tiny", book)
    tiny_project.write(path, "")
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"01_tiny\.ipynb: .*; run it again$"):
        project.read_executed("01_tiny", book)


ATTEMPTS = """
import socket, urllib.request

local, other = socket.socketpair()  # within this machine: no network
local.sendall(b"x")
attempts = [
    lambda: socket.create_connection(("192.0.2.1", 80), timeout=1),
    lambda: socket.socket().connect(("example.org", 80)),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    lambda: __import__("_socket").socket(),
    lambda: socket.gethostbyname("example.org"),
    lambda: socket.gethostbyname_ex("example.org"),
    lambda: socket.gethostbyaddr("192.0.2.1"),
    lambda: socket.getaddrinfo("example.org", 80),
    lambda: urllib.request.urlopen("http://192.0.2.1/", timeout=1),
]
for attempt in attempts:
    try:
        attempt()
    except RuntimeError as error:
        print(error)
    else:
        print("reached")
"""


def test_a_readers_own_settings_of_ipython_and_python_play_no_part(book, tmp_path):
    own = "print('mine')\nmine = True\n"
    startup = tmp_path / "ipython/profile_default/startup/00-mine.py"
    tiny_project.write(startup, own)
    tiny_project.write(tmp_path / "startup.py", own)
    tiny_project.only(book, "print(sorted(name for name in dir() if not name.startswith('_')))")
    environment = {
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONSTARTUP": str(tmp_path / "startup.py"),
    }
    status, _, errors = tiny_project.run(book, "run", env=environment)
    assert status == 0, errors
    # nor does the guard against the network leave a name behind
    assert tiny_project.printed(book) == "['In', 'Out', 'exit', 'get_ipython', 'open', 'quit']\n"


def test_no_notebook_reaches_the_network_nor_do_the_kernels_of_nbval(book):
    tiny_project.only(book, ATTEMPTS)
    assert runner.run(root=book) == []
    assert tiny_project.printed(book) == 9 * "a notebook runs without the network\n"
    shutil.copy(output.ROOT / "book/conftest.py", book / "book")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    done = subprocess.run(
        [*command, "--nbval-current-env", project.executed("01_tiny", book)],
        cwd=book,
        env=os.environ | {"PYTHONPATH": str(book)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_no_notebook_starts_a_kernel_of_its_own_or_another_program():
    # The guard sees one process only, so notebooks start no other, joblib's workers excepted
    # (`test_reproducibility` runs those without a network).
    for name in project.names():
        text = project.source(name).read_text(encoding="utf-8")
        assert not re.search(r"\bsubprocess\b|os\.system|^[!%]|get_ipython", text, re.MULTILINE)
