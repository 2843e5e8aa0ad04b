"""The wheel, in a clean environment: the mathematics and its needs, and nothing of the book."""

import email
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FILES = (
    "pyproject.toml",
    "MANIFEST.in",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE-BOOK",
    "README.md",
)
FOLDERS = ("ntpnb", "ntpnb_book", "publishing", "tests", "book", "authors_trials", "language_model")
USER_PROGRAM = ROOT / "tests/repository/user_program.py"


def run(*command, **options):
    # Neither this environment nor the folder that pytest was started in.
    shell = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, capture_output=True, text=True, env=shell, **options)


def succeed(*command, **options):
    """What a command prints, which must not fail."""
    done = run(*command, **options)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no build folder of an earlier run can leak into it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "_build", "build", "*.egg-info", "nb")
    source.mkdir()
    for name in (*FILES, PROJECT["readme"], *PROJECT["license-files"]):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    succeed(*pip, "--wheel-dir", str(folder), str(source), cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean(wheel):
    """A function that runs Python code where the wheel and its needs are all there is.

    The needs are links to this environment's packages, so that nothing is downloaded.
    """
    environment = wheel.parent / "environment"
    succeed(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = environment / "bin/python"
    where = succeed(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    packages = Path(where.strip())
    for need in PROJECT["dependencies"]:
        distribution = importlib.metadata.distribution(Requirement(need).name)
        tops = {file.parts[0] for file in distribution.files if file.parts[0] != ".."}
        for name in tops:
            (packages / name).symlink_to(distribution.locate_file(name))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
    succeed(*pip, str(packages), str(wheel))

    def python_runs(code):
        return run(python, "-c", code, cwd=wheel.parent)

    python_runs.interpreter = python
    return python_runs


def metadata(wheel):
    """What a wheel says of itself."""
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(archive.read(name))


def test_it_holds_the_typed_package_and_nothing_of_the_build(wheel):
    files = zipfile.ZipFile(wheel).namelist()
    information = f"ntpnb-{PROJECT['version']}.dist-info"
    assert {name.split("/")[0] for name in files} == {"ntpnb", information}
    assert "ntpnb/py.typed" in files
    assert wheel.stat().st_size < 400_000
    sources = [path.relative_to(ROOT).as_posix() for path in (ROOT / "ntpnb").rglob("*.py")]
    assert set(sources) == {name for name in files if name.endswith(".py")}


def test_the_archive_of_sources_tests_itself(wheel, tmp_path):
    build = f"import setuptools.build_meta as backend; backend.build_sdist({str(tmp_path)!r})"
    succeed(sys.executable, "-c", build, cwd=wheel.parent / "source")
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (folder for folder in tmp_path.iterdir() if folder.is_dir())
    for name in ("ntpnb", "tests/math"):
        sources = {file.relative_to(ROOT) for file in (ROOT / name).rglob("*.py")}
        assert sources == {file.relative_to(unpacked) for file in (unpacked / name).rglob("*.py")}
    assert all((unpacked / file).exists() for file in FILES)
    assert not (unpacked / "publishing").exists()
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:nbval", "-p", "no:cacheprovider")
    succeed(*pytest, "--collect-only", "tests/math", cwd=unpacked)
    succeed(*pytest, "tests/math/test_corpus.py", "tests/math/test_loss.py", cwd=unpacked)


def test_its_description_has_no_link_that_needs_the_repository(wheel):
    targets = re.findall(r"\]\(([^)]+)\)", metadata(wheel).get_payload())
    assert targets
    assert all(target.startswith("https://") for target in targets)


def test_an_index_can_show_what_it_is_and_where_it_comes_from(wheel):
    said = metadata(wheel)
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_all("Classifier") == PROJECT["classifiers"]
    addresses = dict(line.split(", ") for line in said.get_all("Project-URL"))
    assert addresses == PROJECT["urls"]
    assert said["Requires-Python"] == ",".join(sorted(PROJECT["requires-python"].split(",")))
    assert said["License-Expression"] == PROJECT["license"]


def test_every_public_name_is_there(clean):
    done = clean(
        "import ntpnb\nfor name in ntpnb.__all__: getattr(ntpnb, name)\n"
        "print(ntpnb.__file__, ntpnb.__version__, len(ntpnb.__all__))"
    )
    assert not done.returncode, done.stderr
    file, version, names = done.stdout.split()
    assert str(ROOT) not in file
    assert version == PROJECT["version"]
    assert int(names) > 30


def test_the_example_runs(clean):
    text = (ROOT / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"# ([\d.]+)$", example.rstrip())[1]
    done = clean(example)
    assert not done.returncode, done.stderr
    assert f"{float(done.stdout):.3f}" == shown


# What needs more than its dependencies: the call, and what its one line has to name.
NEEDS_MORE = {
    "a sweep": ("import ntpnb; ntpnb.thresholds.sweep([(4, 2, 3)], 1)", "ntpnb[sweep]"),
    "a report's figure": ("import ntpnb; ntpnb.report(ntpnb.datasets.toy()).plot()", "ntpnb[plot]"),
}


@pytest.mark.parametrize("what", NEEDS_MORE)
def test_what_needs_an_extra_names_it_in_one_line(what, clean):
    code, extra = NEEDS_MORE[what]
    done = clean(code)
    assert done.returncode
    assert extra in done.stderr.splitlines()[-1]


def test_the_command_line_reports_on_a_text(clean, tmp_path):
    story = tmp_path / "story.txt"
    story.write_text("the fox sees the owl and the owl sees the fox", "utf-8")
    command = (clean.interpreter, "-m", "ntpnb", "report", story)
    done = run(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "separable with margin" in done.stdout
    drawn = run(*command, "--plot", "figure.png", cwd=tmp_path)
    assert (drawn.returncode, drawn.stdout) == (1, "")
    assert drawn.stderr.count("\n") == 1
    assert 'pip install "ntpnb[plot]"' in drawn.stderr


A_MODEL = """
import numpy as np, ntpnb
words = "the fox sees the owl and the owl sees the fox and the fox hides".split()
names = sorted(set(words))
tokens = np.array([names.index(word) for word in words])
first, last, after = tokens[:-2], tokens[1:-1], tokens[2:]
E, F, W = 0.3 * np.random.default_rng(0).standard_normal((3, len(names), 6))
for _ in range(2000):
    h = np.tanh(E[first] + F[last])
    q = np.exp(h @ W.T)
    error = (q / q.sum(1, keepdims=True) - np.eye(len(names))[after]) / len(after)
    back = error @ W * (1 - h**2)
    W -= 0.5 * error.T @ h
    np.add.at(E, first, -0.5 * back)
    np.add.at(F, last, -0.5 * back)
hidden = np.tanh(E[first] + F[last]).astype(np.float32)
data = ntpnb.NextTokenData.from_hidden_states(hidden, after, len(names))
print(data.num_contexts, len(set(zip(first.tolist(), last.tolist()))))
print(ntpnb.compare(W, data, seconds=60).alignment > 0.5)
print(ntpnb.report(data, words=names, W=W, seconds=60))
"""


def test_hidden_states_of_a_model_that_is_trained_there(clean):
    done = clean(A_MODEL)
    contexts, points_there, *said = done.stdout.splitlines()
    assert len(set(contexts.split())) == 1  # as many as there are pairs of words
    assert points_there == "True"
    assert "your W:" in said


def test_what_chapters_import_is_a_distribution_of_its_own(wheel, clean, tmp_path):
    assert clean("import ntpnb_book").returncode
    pip = (sys.executable, "-m", "pip")
    quietly = ("--quiet", "--no-deps", "--no-build-isolation")
    source = wheel.parent / "source/ntpnb_book"
    succeed(*pip, "wheel", *quietly, "--wheel-dir", str(tmp_path), str(source), cwd=tmp_path)
    (path,) = tmp_path.glob("ntpnb_book-*.whl")
    files = zipfile.ZipFile(path).namelist()
    sources = [p.relative_to(ROOT).as_posix() for p in (ROOT / "ntpnb_book").rglob("*.py")]
    assert set(sources) == {name for name in files if name.endswith(".py")}
    data = {p.relative_to(ROOT).as_posix() for p in (ROOT / "ntpnb_book/data_files").iterdir()}
    assert data == {name for name in files if "data_files" in name}
    said = metadata(path)
    assert (said["Version"], said["Requires-Dist"]) == (PROJECT["version"], "ntpnb[notebook]")
    succeed(*pip, "install", *quietly, "--target", str(tmp_path / "book"), str(path))
    beside = f"import sys\nsys.path.append({str(tmp_path / 'book')!r})\n"
    done = clean(beside + "from ntpnb_book import check\ncheck('t24.fig1.entropy', 0.88)")
    said = done.stdout.strip() or done.stderr.splitlines()[-1]
    assert len(said.splitlines()) == 1
    assert "checkout" in said


@pytest.mark.slow
def test_a_user_s_program_finds_the_types(clean, tmp_path):
    program = shutil.copy(USER_PROGRAM, tmp_path)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", clean.interpreter)
    succeed(*mypy, "--cache-dir", str(tmp_path / "cache"), program, cwd=tmp_path)
