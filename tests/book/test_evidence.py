"""Pages of evidence: they run, count and go stale as chapters do, and each belongs to one."""

import lost_evidence
import pytest
import tiny_project
from small_site import build, parsed
from tiny_project import contents, edit, write

from ntpnb_book import claims
from publishing import collect, keys, manifest, project, runner

PAGE = "evidence/sums"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A book of a chapter and a page of evidence, both executed."""
    root = tiny_project.make_with_evidence(tmp_path_factory.mktemp("evidence"))
    assert runner.run(root=root) == []
    return root


@pytest.fixture
def root(tmp_path):
    """Such a book that is not executed."""
    return tiny_project.make_with_evidence(tmp_path)


def test_a_page_of_evidence_is_executed_beside_the_chapters(executed):
    assert project.names(executed) == ["01_tiny", PAGE]
    assert project.executed_names(executed) == ["01_tiny", PAGE]
    assert keys.recorded(executed) == {name: keys.key(name, executed) for name in ("01_tiny", PAGE)}
    assert keys.outdated(project.names(executed), executed) == {}
    rows = manifest.figures(executed)
    assert [(row["figure"], row["notebook"]) for row in rows] == [
        ("tiny", "01_tiny"),
        ("sums", PAGE),
    ]
    assert (executed / "figures/sums.csv").exists()
    assert [path for path in contents(executed, "book/nb") if path.endswith(".png")] == []


def test_its_claims_close_the_ledger_and_are_counted_under_its_name(executed):
    claims.load.cache_clear()
    entries = collect.collect(executed)
    assert {entry["id"]: entry["notebook"] for entry in entries} == {
        "t24.fig1.sum": "01_tiny",
        "t24.fig2.sum": PAGE,
    }
    for page in ("scoreboard", "statements"):
        assert f"{{doc}}`nb/{PAGE}`" in (executed / f"book/{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("typed", ["sums", "evidence/sums", "notebooks/evidence/sums.md"])
def test_it_is_found_by_its_name(executed, typed):
    assert project.select([typed], executed) == [PAGE]
    assert project.select(["01", typed], executed) == ["01_tiny", PAGE]
    with pytest.raises(ValueError, match="no notebook 'evidence'"):
        project.select(["evidence"], executed)


def test_a_change_to_it_makes_it_stale_and_no_other(root):
    for name in project.names(root):
        tiny_project.pretend(root, name, [])
    assert keys.outdated(project.names(root), root) == {}
    edit(root / "book/claims/evidence/sums.yml", "within: 1e-9", "within: 1e-8")
    assert list(keys.outdated(project.names(root), root)) == [PAGE]
    edit(project.executed(PAGE, root), "code", "code ")
    assert keys.recorded(root).keys() == {"01_tiny"}


def test_one_that_was_removed_is_reported_by_its_executed_file(root):
    tiny_project.pretend(root, "01_tiny", [])
    tiny_project.pretend(root, PAGE, [])
    project.source(PAGE, root).unlink()
    found = list(collect.problems(root))
    assert f"{PAGE}.ipynb: executed, but notebooks/{PAGE}.md does not exist" in found


def test_the_contents_give_pages_of_evidence_their_order(root):
    for name in ("above", "below"):
        tiny_project.write(root / f"notebooks/evidence/{name}.md", f"# {name}\n")
    listed = "".join(f"      - file: nb/evidence/{name}\n" for name in ("sums", "above"))
    tiny_project.write(root / "book/_toc.yml", f"parts:\n  - chapters:\n{listed}")
    assert project.evidence_pages(root) == ["evidence/sums", "evidence/above", "evidence/below"]


def test_every_page_of_evidence_belongs_to_a_chapter_that_leads_to_it():
    assert list(lost_evidence.problems()) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        ("01_tiny", "{doc}`evidence/sums`", "the other page", "no chapter leads to it"),
        ("01_tiny", "{doc}`evidence/sums`", "{doc}`a page <evidence/sums>`", ""),
        ("01_tiny", "{doc}`evidence/sums`", "{ref}`sums-why`", ""),
        ("01_tiny", "{doc}`evidence/sums`", "{numref}`sums`", ""),
        ("01_tiny", "{doc}`evidence/sums`", "[a page](evidence/sums.ipynb#sums-why)", ""),
        ("01_tiny", "(why)=", "(another)=", "01_tiny, where no (why)= stands"),
        (PAGE, ":::{evidence-for} 01_tiny why\n:::\n", "", "no {evidence-for} says which"),
        (PAGE, "{evidence-for} 01_tiny", "{evidence-for} 02_none", "02_none, which is no chapter"),
        (PAGE, "{evidence-for} 01_tiny why", "{evidence-for} 01_tiny", ""),
    ],
)
def test_one_that_is_lost_is_reported(root, path, old, new, message):
    assert list(lost_evidence.problems(root)) == []
    edit(project.source(path, root), old, new)
    found = list(lost_evidence.problems(root))
    assert [line for line in found if message not in line] == []
    assert (found != []) is (message != "")


START = f"""# Book

{{numref}}`dot` shows it.

:::{{toctree}}
nb/{PAGE}
other
:::
"""
PICTURE = """# Sums

:::{figure} dot.png
:name: dot

A dot.
:::
"""


def test_its_figures_count_apart_and_it_is_written_anew_only_where_they_changed(tmp_path):
    write(tmp_path / f"notebooks/{PAGE}.md", PICTURE)
    write(tmp_path / "book/nb/evidence/dot.png", "not drawn")
    texts = {
        "index": START,
        f"nb/{PAGE}": PICTURE,
        "other": "# One",
    }
    site, warnings = build(tmp_path, texts, "publishing.evidence")
    assert "Fig. E1.1 shows it" in parsed(site / "index.html").text, warnings
    page = site / f"nb/{PAGE}.html"
    page.write_text("as it was", encoding="utf-8")
    build(tmp_path, {"other": "# Two"}, "publishing.evidence", everything=False)
    assert parsed(site / "other.html").h1.text.startswith("Two")
    assert page.read_text(encoding="utf-8") == "as it was"
