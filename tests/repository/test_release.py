"""What a release says of itself, in every place that says it, and the workflow that makes it."""

import json
import re
import shutil

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from test_repository import PROJECT, ROOT
from tiny_project import edit

from publishing import release

FILES = ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", ".zenodo.json", "codemeta.json")
ADDRESS = "https://github.com/owner/name"
TAG = f"v{PROJECT['version']}"


@pytest.fixture
def project(tmp_path):
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_place_says_the_same():
    assert list(release.disagreements()) == []


CHANGES = {
    "pyproject.toml": ('version = "', 'version = "9', "version: pyproject.toml says '9"),
    "CHANGELOG.md": (f"## {PROJECT['version']}", "## 0.9", "CHANGELOG.md '0.9'"),
    "CITATION.cff": ("date-released: ", "date-released: 1", "CITATION.cff '1"),
    ".zenodo.json": ("arXiv:2402.18551", "arXiv:2402.18552", "papers: CITATION.cff says"),
    "codemeta.json": ("licenses/BSD-3-Clause", "licenses/MIT", "codemeta.json 'MIT'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_one_file_says_otherwise_is_named(name, project):
    old, new, message = CHANGES[name]
    edit(project / name, old, new)
    assert any(message in line for line in release.disagreements(project))


def test_what_is_not_released_yet_may_stand_on_top_until_the_release(project):
    heading = f"## {PROJECT['version']} –"
    edit(project / "CHANGELOG.md", heading, f"## Unreleased\n\nNew.\n\n{heading}")
    assert list(release.disagreements(project)) == []
    message = "CHANGELOG.md: what is unreleased needs its version and date"
    assert list(release.problems(TAG, None, project)) == [message]


def test_a_tag_is_the_version_and_what_is_released_names_its_source(project):
    assert list(release.problems(TAG, None, project)) == []
    wrong = f"the tag is v0.0, but pyproject.toml has the version {PROJECT['version']}"
    assert list(release.problems("v0.0", None, project)) == [wrong]
    needed = f'pyproject.toml: [project.urls] needs Source = "{ADDRESS}"'
    assert list(release.problems(TAG, ADDRESS, project)) == [needed]
    edit(project / "pyproject.toml", "[project.urls]", f'[project.urls]\nSource = "{ADDRESS}"')
    assert list(release.problems(TAG, ADDRESS, project)) == []


def test_the_archive_s_files_name_what_the_package_needs():
    codemeta = json.loads((ROOT / "codemeta.json").read_text("utf-8"))
    assert codemeta["softwareRequirements"] == PROJECT["dependencies"]


def test_python_has_an_upper_bound_and_the_quick_job_runs_every_version_below_it():
    supported = SpecifierSet(PROJECT["requires-python"])
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    tested = workflow["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}" in supported] == tested
    stated = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert stated == tested
    codemeta = json.loads((ROOT / "codemeta.json").read_text("utf-8"))
    assert codemeta["runtimePlatform"] == f"Python {tested[0]} to {tested[-1]}"


def test_labels_of_addresses_have_no_comma_which_would_end_them():
    for label, address in PROJECT["urls"].items():
        assert re.fullmatch(r"[^,]{1,32}", label)
        assert address.startswith("https://")


WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))


def test_a_tag_starts_the_release_and_nothing_else_does():
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true


def test_what_is_uploaded_was_tested_and_agrees_with_its_tag():
    steps = [step.get("run", step.get("uses", "")) for step in WORKFLOW["jobs"]["build"]["steps"]]
    places = [
        next(number for number, step in enumerate(steps) if words in step)
        for words in (
            "python -m publishing release",
            "bash .ci/run",
            "python -m build --no-isolation",
            "make pdf",
            "upload-artifact",
        )
    ]
    assert places == sorted(places)
    assert WORKFLOW["jobs"]["index"]["needs"] == ["build"]
    assert WORKFLOW["jobs"]["assets"]["needs"] == ["build", "index"]


def test_the_index_trusts_the_workflow_and_gets_attestations():
    job = WORKFLOW["jobs"]["index"]
    assert job["permissions"] == {"id-token": "write"}
    assert job["environment"]["name"] == "pypi"
    [publishing] = [step for step in job["steps"] if "gh-action-pypi-publish" in step["uses"]]
    assert publishing["with"]["attestations"] is True
    assert not {"password", "user"} & publishing["with"].keys()
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "secrets." not in text
