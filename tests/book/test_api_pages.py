"""The API pages: every public name has one entry, and the example of the overview runs."""

import importlib
import re

import public_names
import pytest
import yaml

import ntpnb
from ntpnb_book.output import ROOT

PAGES = {path.stem: path for path in sorted((ROOT / "book" / "api").glob("*.md"))}
DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+):: (\S+)$", re.MULTILINE)


def entries(text):
    """Dotted names that a page documents, modules not counted."""
    names = []
    module = None
    for kind, name in DIRECTIVE.findall(text):
        if kind in ("currentmodule", "automodule"):
            module = name
        else:
            names.append(f"{module}.{name}")
    return names


def resolve(dotted):
    """The object that a dotted name stands for."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def documented():
    """Every entry of every page."""
    return [name for path in PAGES.values() for name in entries(path.read_text("utf-8"))]


def page(room):
    """Name of a room's page: the last of its names."""
    return room.rpartition(".")[2]


def test_every_room_has_a_page():
    assert sorted(PAGES.keys() - {"index"}) == sorted(map(page, public_names.rooms()))


@pytest.mark.parametrize("room", public_names.rooms())
def test_a_page_begins_with_its_modules_docstring(room):
    assert f".. automodule:: {room}\n" in PAGES[page(room)].read_text("utf-8")


def test_every_public_name_has_one_entry():
    found = sorted(id(resolve(name)) for name in documented())
    public = {id(thing): name for name, thing in public_names.public_things().items()}
    missing = [name for thing, name in public.items() if thing not in found]
    repeated = [name for thing, name in public.items() if found.count(thing) > 1]
    assert (missing, repeated) == ([], [])


def test_entries_stand_under_the_names_that_users_call():
    assert set(documented()) - set(public_names.public_things()) == set()


def test_every_page_is_in_the_contents():
    contents = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text("utf-8"))
    chapters = [chapter for part in contents["parts"] for chapter in part["chapters"]]
    (package,) = [chapter for chapter in chapters if chapter["file"] == "api/index"]
    listed = [package["file"], *(page["file"] for page in package["sections"])]
    assert sorted(listed) == [f"api/{name}" for name in PAGES]


def test_the_overviews_example_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", PAGES["index"].read_text("utf-8"), re.DOTALL)
    exec(compile(program, "book/api/index.md", "exec"), {})
    excess, angle = capsys.readouterr().out.split()
    assert 0 < float(excess) < 0.01
    assert 0 < float(angle) < 0.3


def test_the_overview_links_what_the_package_exports():
    text = PAGES["index"].read_text("utf-8")
    linked = set(re.findall(r"\{py:\w+\}`(?:[^`<]*<)?~?ntpnb\.(\w+)", text))
    results = {  # returned, never called: the functions that return them are linked
        "AdamMetric",
        "Comparison",
        "EqualSubspace",
        "FinitePart",
        "LossFloor",
        "FlowTrace",
        "ImplicitBias",
        "MarginSolution",
        "PathTrace",
        "Report",
        "Result",
        "TokenPriority",
        "Trace",
        "Twin",
        "WeightComparison",
    }
    assert set(ntpnb.__all__) - linked == results
