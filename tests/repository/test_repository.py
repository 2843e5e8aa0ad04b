"""The repository as a stranger meets it: metadata, lock, workflows, Makefile, README."""

import ast
import contextlib
import csv
import difflib
import importlib.metadata
import inspect
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import committed
import grimp
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ntpnb

ROOT = Path(__file__).resolve().parents[2]


def read(name):
    """The text of a file of the repository."""
    return (ROOT / name).read_text("utf-8")


DECLARED = tomllib.loads(read("pyproject.toml"))
PROJECT = DECLARED["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ISSUE_FORMS = ROOT / ".github/ISSUE_TEMPLATE"
EXTRAS = PROJECT["optional-dependencies"]
LOCKED_EXTRAS = ("reference", "plot", "sweep", "notebook", "book", "test")
OTHER_LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def run(*command, **options):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)


def schema_errors(schema, *files):
    """What the published schema, shipped by check-jsonschema, finds wrong; empty if nothing."""
    tool = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    done = run(*tool, *map(str, files))
    return done.stdout + done.stderr if done.returncode else ""


def requirement_lines(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def locked(path=ROOT / "requirements.lock"):
    """A lock as {name: (requirement, its hashes)}."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    entries = [line.split("--hash=") for line in text.splitlines() if line[:1].isalnum()]
    parsed = [(Requirement(head), {digest.strip() for digest in rest}) for head, *rest in entries]
    return {requirement.name: (requirement, hashes) for requirement, hashes in parsed}


def names_of(needs):
    return {canonicalize_name(Requirement(need).name) for need in needs}


# -- citation -------------------------------------------------------------------------------------


def test_citation_is_valid_by_the_published_schema(tmp_path):
    citation = ROOT / "CITATION.cff"
    assert not schema_errors("citation-file-format", citation)
    broken = tmp_path / "CITATION.cff"
    broken.write_text(citation.read_text("utf-8").replace("family-names", "surname"), "utf-8")
    assert "surname" in schema_errors("citation-file-format", broken)


# -- package --------------------------------------------------------------------------------------


def test_version_is_written_once():
    assert ntpnb.__version__ == importlib.metadata.version("ntpnb") == PROJECT["version"]
    literal = re.compile(rf"(?<![\d.]){re.escape(PROJECT['version'])}(?![\d.])")
    naming = [p.name for p in ROOT.glob("ntpnb*/**/*.py") if literal.search(p.read_text())]
    assert not naming


def modules_in(path):
    """Packages and modules that a source imports, by the first part of their names."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


def imported(folder):
    """Distributions that the sources below a folder import, their own modules left out."""
    sources = list((ROOT / folder).rglob("*.py"))
    local = {path.stem for path in (ROOT / "tests").rglob("*.py")} | set(sys.stdlib_module_names)
    local |= {
        "benchmarks",
        "authors_trials",
        "language_model",
        "ntpnb_book",
        "publishing",
    }  # of this repository, outside the installed package
    modules = set().union(*map(modules_in, sources))
    owners = importlib.metadata.packages_distributions()
    # mutmut has a lock of its own, and is imported only where that is installed
    return {canonicalize_name(owners.get(module, [module])[0]) for module in modules - local}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("ntpnb", ("reference", "plot", "sweep")),
        ("ntpnb_book", ("notebook",)),
        ("publishing", ("notebook", "book")),
        ("tests", (*LOCKED_EXTRAS, "mutation")),
    ],
)
def test_every_import_is_a_declared_need(folder, extras):
    declared = PROJECT["dependencies"] + [need for extra in extras for need in EXTRAS[extra]]
    assert imported(folder) <= names_of(declared) | {"ntpnb"}


def test_every_direct_need_has_its_reason_beside_it():
    lists = ("requirements.in", "requirements/tools.in")
    lines = [
        line.strip() for name in ("pyproject.toml", *lists) for line in read(name).splitlines()
    ]
    build = DECLARED["build-system"]["requires"]
    needs = [
        *build,
        *PROJECT["dependencies"],
        *(need for extra in EXTRAS.values() for need in extra),
    ]
    stated = [f'"{need}",' for need in needs]
    stated += [need for name in lists for need in requirement_lines(ROOT / name)]
    for need in stated:
        reasons = [line.partition("#")[2] for line in lines if line.split("#")[0].strip() == need]
        assert reasons, f"{need}: one line each"
        assert all(reasons), f"{need}: why is it needed?"


# -- lock and environment -------------------------------------------------------------------------


def test_lock_pins_every_direct_need_within_its_range():
    needs = PROJECT["dependencies"] + [need for extra in LOCKED_EXTRAS for need in EXTRAS[extra]]
    pins = locked()
    for need in map(Requirement, needs + requirement_lines(ROOT / "requirements.in")):
        if need.name == PROJECT["name"]:  # one extra that includes another
            assert need.extras <= set(LOCKED_EXTRAS)
            continue
        (pin,) = pins[canonicalize_name(need.name)][0].specifier
        assert need.specifier.contains(pin.version), f"{need} is locked at {pin.version}"


def test_tests_of_the_mathematics_need_no_jupyter():
    support = {path.stem: path for path in (ROOT / "tests/support").glob("*.py")}
    read, left = set(), sorted((ROOT / "tests/math").glob("*.py"))
    while left:
        path = left.pop()
        read.add(path)
        for module in modules_in(path):
            assert not module.startswith(("jupyter_client", "jupyterlab")), path
            if module in support and support[module] not in read:
                left.append(support[module])


@pytest.mark.parametrize(
    "path",
    [ROOT / "requirements.lock", ROOT / "authors_trials/requirements.lock", *OTHER_LOCKS],
    ids=lambda p: p.name,
)
def test_lock_has_one_hashed_version_of_each_package_and_names_no_host(path):
    text = path.read_text("utf-8")
    pins = locked(path)
    assert len(pins) == len(re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE))
    for requirement, hashes in pins.values():
        assert [s.operator for s in requirement.specifier] == ["=="]
        assert hashes
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("path", OTHER_LOCKS, ids=lambda path: path.name)
def test_what_two_locks_name_is_the_same_files(path):
    pins = locked()
    common = {name: entry for name, entry in locked(path).items() if name in pins}
    assert len(common) > 3
    for name, (requirement, hashes) in common.items():
        assert requirement.specifier == pins[name][0].specifier
        assert hashes == pins[name][1]


def test_the_other_locks_have_what_they_are_for():
    for extra in ("bench", "cluster", "mutation"):
        assert names_of(EXTRAS[extra]) <= locked(ROOT / f"requirements/{extra}.lock").keys()
    tools = requirement_lines(ROOT / "requirements/tools.in")
    assert names_of(tools) <= locked(ROOT / "requirements/tools.lock").keys()


def test_readers_get_what_notebooks_need_and_nothing_that_tests_or_builds():
    pins = locked(ROOT / "requirements/readers.lock")
    environment = requirement_lines(ROOT / "requirements.in")
    needed = [*PROJECT["dependencies"], *EXTRAS["reference"], *EXTRAS["sweep"], *EXTRAS["notebook"]]
    assert names_of([*needed, *environment]) <= pins.keys()
    assert pins.keys() <= locked().keys()
    # myst-nb, which glues numbers, brings Sphinx with it; nothing else of the build comes along.
    with_sphinx = names_of(["docutils", "jinja2", "packaging", "pillow"])
    building = names_of(EXTRAS["book"]) - names_of(["sphinx", "ntpnb"]) - with_sphinx
    left_out = building | names_of(EXTRAS["test"]) - names_of(["beautifulsoup4", "packaging"])
    assert {"jupyter-book", "playwright", "pytest", "mypy", "ruff"} <= left_out
    assert pins.keys() & left_out == {"psutil"}  # ipykernel's


INSTALLS = ["Makefile", ".ci/run", "postBuild", "environment.yml", *WORKFLOWS]


@pytest.mark.parametrize("path", INSTALLS, ids=lambda path: Path(path).name)
def test_nothing_is_installed_without_hashes(path):
    text = read(path).replace("\\\n", " ")
    for line in text.splitlines():
        if any(word in line for word in ("pip install", "pip wheel", "$(INSTALL)")):
            # the project itself comes from this folder, and its backend from the environment
            assert "--require-hashes" in line or "--no-deps" in line, line
            pinned = "--require-hashes" in line or "--no-build-isolation" in line
            assert "--no-deps" not in line or pinned or "dist/" in line
            # A lock is complete. What pip looks up besides may have a release that is not in it.
            assert ".lock" not in line or "--no-deps" in line, line
        assert "pipx" not in line
    listed = re.findall(r"-r (\S+)", text)
    assert all(name.endswith(".lock") or name == "everything.txt" for name in listed)


def test_this_environment_is_the_lock():
    wrong = []
    for name, (requirement, _) in locked().items():
        if requirement.marker is None or requirement.marker.evaluate():
            (pin,) = requirement.specifier
            found = importlib.metadata.version(name)
            if found != pin.version:
                wrong.append(f"{name} {found} instead of {pin.version}")
    assert not wrong
    checked = run(sys.executable, "-m", "pip", "check")
    assert not checked.returncode, checked.stdout


def test_environment_yml_leaves_everything_but_python_to_the_lock():
    environment = yaml.safe_load(read("environment.yml"))
    listed = environment["dependencies"]
    packages = [entry for entry in listed if isinstance(entry, str)]
    (python,) = [entry for entry in packages if entry.startswith("python=")]
    supported = Requirement(PROJECT["name"] + PROJECT["requires-python"]).specifier
    assert supported.contains(python.removeprefix("python="))
    assert set(packages) == {python, "pip"}
    assert [entry for entry in listed if entry not in packages] == [
        {"pip": ["-r requirements/readers.lock"]}
    ]


def test_post_build_installs_both_packages_and_opens_text_notebooks():
    commands = requirement_lines(ROOT / "postBuild")
    (install,) = [command for command in commands if "pip install --no-deps" in command]
    assert install.endswith("--editable . --editable ./ntpnb_book")
    assert any(c.startswith("jupytext-config") and "set-default-viewer" in c for c in commands)
    assert not run("bash", "-n", "postBuild").returncode
    assert os.access(ROOT / "postBuild", os.X_OK)


# -- workflows ------------------------------------------------------------------------------------


def test_workflows_are_valid_by_the_published_schema():
    assert [path.name for path in WORKFLOWS] == ["release.yml", "tests.yml", "weekly.yml"]
    assert not schema_errors("github-workflows", *WORKFLOWS)


def test_issue_templates_are_valid_by_the_published_schemas():
    settings = ISSUE_FORMS / "config.yml"
    forms = [path for path in ISSUE_FORMS.glob("*.yml") if path != settings]
    assert forms
    assert not schema_errors("github-issue-forms", *forms)
    assert not schema_errors("github-issue-config", settings)


def test_the_book_is_published_after_every_other_job_and_as_it_was_tested():
    workflow = yaml.safe_load(read(".github/workflows/tests.yml"))
    jobs = workflow["jobs"]
    deploying = jobs.pop("deploy")
    assert set(deploying["needs"]) == set(jobs)
    assert deploying["if"] == "github.ref == 'refs/heads/main'"
    steps = [step.get("run", step.get("uses", "")) for step in jobs["everything"]["steps"]]
    tested = steps.index("bash .ci/run")
    (added,) = [number for number, step in enumerate(steps) if "make pdf" in step]
    (uploaded,) = [number for number, step in enumerate(steps) if "upload-pages-artifact" in step]
    assert tested < added < uploaded
    assert "python -m publishing versions releases" in steps[added]
    others = [path.read_text("utf-8") for path in WORKFLOWS if path.name != "tests.yml"]
    assert not any("deploy-pages" in text for text in others)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_permissions_least(path):
    text = path.read_text("utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in uses)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    needed = {
        ("tests.yml", "deploy"): {"pages": "write", "id-token": "write"},
        ("release.yml", "index"): {"id-token": "write"},  # for trusted publishing
        ("release.yml", "assets"): {"contents": "write"},  # for the release's page
    }
    for name, job in workflow["jobs"].items():
        assert job.get("permissions") == needed.get((path.name, name))
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_the_weekly_limits_are_those_of_the_installed_package_on_the_oldest_and_newest_python():
    job = yaml.safe_load(read(".github/workflows/weekly.yml"))["jobs"]["checks"]
    every_push = yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["check"]
    limits = [entry for entry in job["strategy"]["matrix"]["include"] if "resolution" in entry]
    assert {entry["resolution"]: entry.get("python") for entry in limits} == {
        "lowest-direct": None,
        "highest": every_push["strategy"]["matrix"]["python"][-1],
    }
    [setup] = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["with"]["python-version"] == "${{ matrix.python || '3.11' }}"
    [step] = [step for step in job["steps"] if step.get("if") == "matrix.resolution"]
    first, *rest = step["run"].splitlines()
    assert "--extra plot" in first  # so that matplotlib is the oldest, or the newest, too
    assert rest[0].strip() == "cat limits.txt"  # the log says which versions these are
    assert rest[-3] == "rm --recursive dist/ntpnb-*/ntpnb"  # before the tests
    named = re.findall(r"tests/[\w/.]+", "\n".join(rest[-2:]))
    assert named
    assert all((ROOT / name).exists() for name in named)
    assert {"tests/math", "tests/book/test_figures.py"} <= set(named)


# -- what every check rests on --------------------------------------------------------------------


def test_warnings_and_passes_that_were_not_expected_fail_the_tests():
    told = DECLARED["tool"]
    settings = told["pytest"]["ini_options"]
    assert settings["filterwarnings"] == ["error"]
    assert settings["xfail_strict"]
    assert "--strict-markers" in settings["addopts"]
    assert told["mypy"]["strict"]


def test_one_thread_computes_whatever_make_is_asked_for():
    exported = re.findall(r"^export (\w+) := (.+)$", read("Makefile"), re.M)
    threads = {name: number for name, number in exported if name.endswith("_NUM_THREADS")}
    libraries = ("OMP", "OPENBLAS", "MKL")
    assert threads == {f"{library}_NUM_THREADS": "1" for library in libraries}


def test_the_score_of_the_tests_is_what_its_table_counts():
    path = ROOT / "benchmarks/results/mutants.csv"
    with path.open(encoding="utf-8", newline="") as file:
        *rooms, together = csv.DictReader(file)
    counts = ("changes", "tried", "noticed", "by the time limit", "survived", "met no test")
    for count in counts:
        assert sum(int(room[count]) for room in rooms) == int(together[count])
    for row in [*rooms, together]:
        changes, tried, noticed, by_time, *missed = (int(row[count]) for count in counts)
        assert noticed + sum(missed) == tried <= changes
        assert by_time <= noticed
        assert row["score"] == (f"{noticed / tried:.1%}" if tried else "–")


def test_what_survives_for_a_reason_is_of_functions_that_there_are():
    text = read("tests/repository/survivors.yml")
    for group in yaml.safe_load(text):
        assert group["reason"]
        for where, changes in group["mutants"].items():
            function = inspect.getsource(pkgutil.resolve_name(f"ntpnb.{where}"))
            lines = [line.strip() for line in function.splitlines()]
            assert changes
            for change in changes:
                assert change not in lines
                assert difflib.get_close_matches(change.lower(), map(str.lower, lines), cutoff=0.8)


# -- Makefile -------------------------------------------------------------------------------------


def make(*arguments, **variables):
    """Run make as from a shell, though these tests run under `make test` and inherit its flags."""
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return run(shutil.which("make"), *arguments, env=shell | variables)


def test_bare_make_explains_every_target():
    rules = re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE)
    text = make().stdout
    assert text == make("help").stdout
    assert re.findall(r"^  make (\w+) +\S", text, re.MULTILINE) == rules


def test_pages_name_only_targets_that_exist():
    targets = set(re.findall(r"^  make (\w+)", make().stdout, re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = read(name)
        named = set(re.findall(r"(?:`|^ *)make ([a-z]+)", text, re.MULTILINE))
        assert named
        assert named <= targets


def test_make_says_in_one_line_that_python_is_missing(tmp_path):
    stamp = f"{tmp_path}/.venv/.locked"
    done = make("PYTHON=no-such-python", f"VENV={tmp_path}/.venv", stamp)
    assert done.returncode
    message, *rest = done.stderr.splitlines()
    assert "no-such-python" in message
    assert "install" in message
    assert all(line.startswith("make: ***") for line in rest)


def test_make_says_in_one_line_that_chromium_is_missing(tmp_path):
    done = make("_chromium", PATH=str(tmp_path))
    assert done.returncode
    message, *rest = done.stderr.splitlines()
    assert "apt install chromium" in message
    assert all(line.startswith("make: ***") for line in rest)


def test_ci_script_asks_for_stale_notebooks_before_anything_runs():
    assert not run("bash", "-n", ".ci/run").returncode
    commands = requirement_lines(ROOT / ".ci/run")
    asked = commands.index(".venv/bin/python -m publishing stale --check")
    drawn = commands.index("make figures")
    verified = commands.index(".venv/bin/python -m publishing verify")
    assert asked < drawn < verified < commands.index("make test")


def test_an_unpacked_archive_knows_its_files_without_git(tmp_path):
    for name in (".gitignore", "Makefile", "book/index.md", "book/_toc.yml", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    files = sorted(committed.files(tmp_path))
    for made in ("_build/html/index.html", "figures/a.svg", "ntpnb/__pycache__/a.pyc"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).touch()
    assert sorted(committed.files(tmp_path)) == files
    assert files == [".ci/run", ".gitignore", "Makefile", "book/_toc.yml", "book/index.md"]


def test_commit_hooks_are_targets_of_the_makefile():
    settings = yaml.safe_load(read(".pre-commit-config.yaml"))
    targets = set(re.findall(r"^  make (\w+)", make().stdout, re.MULTILINE))
    for repository in settings["repos"]:
        assert repository["repo"] == "local"  # so that nothing is downloaded
        for hook in repository["hooks"]:
            assert hook["entry"].removeprefix("make ") in targets


# -- pages ----------------------------------------------------------------------------------------


def test_readme_example_prints_what_the_readme_says():
    (example,) = re.findall(r"```python\n(.*?)```", read("README.md"), re.S)
    shown = re.search(r"# ([\d.]+)$", example.rstrip())[1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "the README's example", "exec"), names := {})
    assert f"{float(printed.getvalue()):.3f}" == shown
    compared = names["run"].compare(ntpnb.finite_part(names["data"]), names["svm"])
    assert f"{compared.corrected_alignment[-1]:.5f}" in read("README.md")


def test_the_description_for_an_index_shows_the_same_example():
    examples = [
        re.findall(r"```python\n(.*?)```", read(name), re.DOTALL)
        for name in ("README.md", PROJECT["readme"])
    ]
    assert examples[0] == examples[1]


def test_the_readme_s_table_is_the_map_of_the_tree():
    text = read("README.md")
    listed = set(re.findall(r"^\| `([^`]+)/`", text, re.MULTILINE))
    subpackages = {path.parent.name for path in (ROOT / "ntpnb").glob("*/__init__.py")}
    tested = {path.name for path in (ROOT / "tests").glob("*/") if path.name != "__pycache__"}
    assert {f"ntpnb/{name}" for name in subpackages} | {"ntpnb_book"} <= listed
    assert {f"tests/{name}" for name in tested} <= listed
    assert [name for name in listed if not (ROOT / name).is_dir()] == []


def imports_between_rooms():
    """What rooms import, by import-linter's graph; what ``ntpnb`` exports is no room."""
    graph = grimp.build_graph("ntpnb", "ntpnb_book", "publishing", cache_dir=None)
    for room in [*graph.find_children("ntpnb"), "ntpnb_book", "publishing"]:
        graph.squash_module(room)
    graph.remove_module("ntpnb.__main__")
    for importer in graph.find_modules_that_directly_import("ntpnb"):
        graph.remove_import(importer=importer, imported="ntpnb")
    return graph


def test_the_readme_s_picture_shows_what_rooms_import():
    text = read("README.md")
    drawn = {
        (first, second)
        for first, line in re.findall(r"^  (\w+) --> (.+)$", text, re.MULTILINE)
        for second in line.split(" & ")
    }
    graph, needed = imports_between_rooms(), set()
    for importer in graph.modules - {"ntpnb"}:
        for imported in graph.find_modules_directly_imported_by(importer) - {importer}:
            graph.remove_import(importer=importer, imported=imported)
            if not graph.chain_exists(importer, imported):  # an arrow that others imply is left out
                needed.add((importer.rpartition(".")[2], imported.rpartition(".")[2]))
            graph.add_import(importer=importer, imported=imported)
    assert drawn == needed


@pytest.mark.parametrize(
    "name", ["README.md", "DESCRIPTION.md", "CONTRIBUTING.md", "book/run.md", "book/scaling_out.md"]
)
def test_extras_that_a_page_names_exist(name):
    text = read(name)
    named = re.findall(r"extra `(\w+)`", text)
    for several in re.findall(r"pip install [^`\n]*\[([\w,]+)\]", text):
        named += several.split(",")
    assert set(named) <= EXTRAS.keys()


def test_the_description_says_of_each_extra_what_it_brings():
    text = read(PROJECT["readme"])
    named = re.findall(r"extra `(\w+)`", text)
    brought = dict(re.findall(r"extra `(\w+)` \(([\w, ]+)\)", text))
    assert named == [*brought]
    for extra, packages in brought.items():
        assert set(packages.split(", ")) == names_of(EXTRAS[extra])
    assert brought["plot"] == "matplotlib"
    [added] = re.findall(r"`pip install \"\.\[plot\]\"` adds\s+(\w+)", read("README.md"))
    assert added == brought["plot"]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_within_the_repository_lead_somewhere(name):
    targets = re.findall(r"\]\(([^)#]+)\)", read(name))
    missing = [t for t in targets if "://" not in t and not (ROOT / t).exists()]
    assert not missing


def test_no_committed_file_names_a_machine_or_an_index():
    listed = committed.files()
    assert {"Makefile", ".ci/run", "book/_toc.yml"} <= set(listed)
    # Installing hands on what pip was told of indexes, by the names of these settings alone.
    pattern = re.compile(
        r"(?<![\w.~*-])/(?:home|root|tmp|work)/|file://"
        r"|(?:index[-_]url|find[-_]links)[\s=:'\"]+(?:\w+://|/)"
    )
    assert pattern.search("index-url = https://somewhere")
    assert pattern.search("--find-links=/wheels")
    found = []
    for name in listed:
        path = ROOT / name
        if path == Path(__file__).resolve():
            continue
        with contextlib.suppress(UnicodeDecodeError):
            text = path.read_text("utf-8")
            found += [f"{name}: {match[0]}" for match in pattern.finditer(text)]
    assert not found
