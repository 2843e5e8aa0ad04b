"""What a release says of itself, in every place that says it, and the workflow that makes it."""

import re
import shutil

import pytest
import said_alike
import yaml
from packaging.specifiers import SpecifierSet
from test_repository import PROJECT, ROOT
from tiny_project import edit

from publishing import release

FILES = (
    "pyproject.toml",
    "ntpnb_book/pyproject.toml",
    "CHANGELOG.md",
    "CITATION.cff",
    "README.md",
    "DESCRIPTION.md",
    "book/references.bib",
)
ADDRESS = "https://github.com/owner/name"
TAG = f"v{PROJECT['version']}"


@pytest.fixture
def project(tmp_path):
    for folder in ("book", "ntpnb_book"):
        (tmp_path / folder).mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_place_says_the_same():
    assert list(said_alike.disagreements()) == []


ARXIV = "https://arxiv.org/abs/"
FORGERIES = {
    "the version": ("pyproject.toml", 'version = "', 'version = "9', "pyproject.toml says '9"),
    "its other place": (
        "ntpnb_book/pyproject.toml",
        'version = "',
        'version = "9',
        "ntpnb_book/pyproject.toml '9",
    ),
    "the newest change": (
        "CHANGELOG.md",
        f"## {PROJECT['version']}",
        "## 0.9",
        "CHANGELOG.md '0.9'",
    ),
    "the date": ("CITATION.cff", "date-released: ", "date-released: 1", "CITATION.cff '1"),
    "a start page": ("CITATION.cff", "start: 22624", "start: 22642", "their pages: CITATION.cff"),
    "pages": ("book/references.bib", "685--693", "685--639", "their pages: CITATION.cff says"),
    "a volume": ("CITATION.cff", "volume: 238", "volume: 283", "their volumes: CITATION.cff says"),
    "an author": ("CITATION.cff", "family-names: Oymak", "family-names: Omyak", "their authors"),
    "an initial's name": ("README.md", "S. Oymak", "S. Omyak", "their authors: CITATION.cff says"),
    "a title": ("README.md", "Mechanics of Next", "Mechanic of Next", "their titles: CITATION.cff"),
    "a year": ("README.md", "AISTATS 2024", "AISTATS 2023", "their years: CITATION.cff says"),
    "a link's label": (
        "README.md",
        "[arXiv:2402.18551]",
        "[arXiv:2402.18552]",
        "README.md ['arXiv",
    ),
    "its target": (
        "README.md",
        f"{ARXIV}2402.18551",
        f"{ARXIV}2402.18552",
        "README.md, in its links",
    ),
    "an identifier on the index page": (
        "DESCRIPTION.md",
        "[arXiv:2402.18551]",
        "[arXiv:2402.18552]",
        "DESCRIPTION.md ['arXiv",
    ),
    "a note's identifier": (
        "book/references.bib",
        "arXiv:1806.01796",
        "arXiv:1806.01769",
        "nacson2018stochastic has two identifiers: 1806.01769 and 1806.01796",
    ),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_one_file_says_otherwise_is_named(what, project):
    name, old, new, message = FORGERIES[what]
    edit(project / name, old, new)
    assert any(message in line for line in said_alike.disagreements(project))


def test_what_is_not_released_yet_may_stand_on_top_until_the_release(project):
    heading = f"## {PROJECT['version']} –"
    edit(project / "CHANGELOG.md", heading, f"## Unreleased\n\nNew.\n\n{heading}")
    assert list(said_alike.disagreements(project)) == []
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


def test_python_has_no_upper_bound_and_the_stated_versions_are_those_of_the_quick_job():
    supported = SpecifierSet(PROJECT["requires-python"])
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    tested = workflow["jobs"]["check"]["strategy"]["matrix"]["python"]
    oldest = int(tested[0].removeprefix("3."))
    assert [minor for minor in range(100) if f"3.{minor}" in supported] == [*range(oldest, 100)]
    assert tested == [f"3.{minor}" for minor in range(oldest, oldest + len(tested))]
    stated = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert stated == tested


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
    assert job["environment"]["name"] == "pypi"
    [publishing] = [step for step in job["steps"] if "gh-action-pypi-publish" in step["uses"]]
    assert publishing["with"]["attestations"] is True
    assert not {"password", "user"} & publishing["with"].keys()
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "secrets." not in text
