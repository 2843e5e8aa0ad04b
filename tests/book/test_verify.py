"""A notebook that was forged, and its hash with it, is told from what this clone executed itself.

Whoever edits an executed notebook by hand may write its line in `book/nb/keys.txt` anew. Then only
an execution tells: its values, names, seeds and pictures.
"""

import json
import re

import pytest
import tiny_project
import yaml

from ntpnb_book import claims, figures, output
from publishing import keys, manifest, project, runner, verify

NAME, SVG = "01_tiny", "image/svg+xml"

MORE = """glue("total", f"{total:.1f}")
glue("half", f"{total / 2:.1f}")
"""

SECOND = """_ = ax.plot(scale * np.arange(4) ** 2)
figures.save(fig, "tiny", {"x": scale * np.arange(4), "name": ["a", "b"]}, seed)
fig, ax = figures.plt.subplots()
_ = ax.bar(range(4), scale * np.arange(4)[::-1], width=0.9)
figures.save(fig, "bars", {"x": scale * np.arange(4)}, [seed, 1])
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A tiny book, executed; and executed once more, as a fresh clone does for its figures."""
    root = tiny_project.make(tmp_path_factory.mktemp("book"))
    text = root / "notebooks/01_tiny.md"
    tiny_project.edit(text, 'glue("total", f"{total:.1f}")\n', MORE)
    tiny_project.edit(
        text, 'figures.save(fig, "tiny", {"x": scale * np.arange(4)}, seed)\n', SECOND
    )
    assert runner.run(root=root) == []
    assert verify.comparable(root) == []
    assert runner.run(draw=True, root=root) == []
    assert verify.comparable(root) == [NAME]
    return root


@pytest.fixture
def forge(book):
    """Edit the outputs of the executed notebook, and have its line vouch for the result."""
    path = project.executed(NAME, book)
    before = path.read_bytes()

    def found(change, exactly=True):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        change(list(output.outputs(notebook)))
        path.write_text(json.dumps(notebook), encoding="utf-8")
        keys.record(NAME, keys.key(NAME, book), book)
        assert keys.outdated([NAME], book) == {}
        return list(verify.differences(NAME, book, exactly=exactly))

    yield found
    path.write_bytes(before)
    keys.record(NAME, keys.key(NAME, book), book)


def record(outputs, field, value):
    """Find the record of `check` or of a figure."""
    records = [output["metadata"].get("ntpnb", {}) for output in outputs if "metadata" in output]
    return next(record for record in records if record.get(field) == value)


def pictures(outputs):
    """Find what is shown as a picture."""
    return [output["data"] for output in outputs if SVG in output.get("data", {})]


def scraps(outputs):
    """Find the glued numbers, by their names."""
    glued = [output for output in outputs if "scrapbook" in output.get("metadata", {})]
    return {output["metadata"]["scrapbook"]["name"]: output for output in glued}


def of_check(**changes):
    return lambda outputs: record(outputs, "id", "t24.fig1.sum").update(changes)


def of_figure(**changes):
    return lambda outputs: record(outputs, "figure", "tiny").update(changes)


def of_sketch(x):
    return of_figure(sketch={"x": x, "name": [2]})


def covered(x, y, width, height):
    """Cover a part of a drawing, in percent of its size, with what lies beside the curves."""
    place = f'x="{x}%" y="{y}%" width="{width}%" height="{height}%"'
    return f'<rect {place} fill="{figures.BACKGROUND}"/></svg>'


def swap_glue(outputs):
    one, other = (shown["metadata"]["scrapbook"] for shown in scraps(outputs).values())
    one["name"], other["name"] = other["name"], one["name"]


def swap_pictures(outputs):
    one, other = pictures(outputs)
    one[SVG], other[SVG] = other[SVG], one[SVG]


def of_picture(pattern, instead):
    """Change the drawing of the first figure."""

    def change(outputs):
        data = pictures(outputs)[0]
        data[SVG], changes = re.subn(pattern, instead, "".join(data[SVG]), count=1)
        assert changes == 1

    return change


def of_narrow(outputs):
    drawings = record(outputs, "figure", "tiny")["drawings"]
    drawings["narrow"] = drawings["narrow"].replace("</svg>", covered(0, 0, 100, 60))


def another_word(outputs):
    outputs[0]["text"] = ["first\n", "second 2\n"]


def of_glue(text):
    """Write another number where the page quotes the total, 12.0."""

    def change(outputs):
        data = scraps(outputs)["total"]["data"]
        data.update(dict.fromkeys(data, repr(text)))

    return change


# What happens, what is said of it, and whether it is also noticed on another processor.
FORGERIES = {
    "a value 1 % larger": (of_check(value=12.12), "t24.fig1.sum: value is 12.12", True),
    "its sixth digit": (of_check(value=12.0001), "t24.fig1.sum: value is 12.0001", False),
    "an integer for a number": (of_check(value=12), "value is 12, executed here 12.0", True),
    "a claim's id": (of_check(id="t24.fig1.other"), "id is 't24.fig1.other'", True),
    "a seed": (of_figure(seed=424242), "tiny: seed is 424242, executed here 0", True),
    "a figure's name": (of_figure(figure="other"), "is 'other', executed here 'tiny'", True),
    "the number of curves": (of_figure(curves=[7, 0]), "tiny: curves is [7, 0]", True),
    "the hash of its data": (of_figure(data=64 * "0"), "tiny: data is '000", False),
    "data 1 % larger": (of_sketch([4, 0.0, 6.06, 3.03, 2.35667]), "tiny: x is [", True),
    "data in another order": (of_sketch([4, 0.0, 6.0, 3.0, 0.66667]), "tiny: x is [", True),
    "data with fewer entries": (of_sketch([3, 0.0, 6.0, 3.0, 2.33333]), "tiny: x is [", True),
    "data rounded otherwise": (
        of_sketch([4, 0.0, 6.0001, 3.0, 2.33333]),
        "tiny: x is [",
        False,
    ),
    "data without an array": (of_figure(sketch={"name": [2]}), "tiny: x is None", True),
    "names of glued numbers": (swap_glue, "name is 'half'", True),
    "two pictures": (swap_pictures, "another picture than the one drawn here", True),
    "a curve painted out": (
        of_picture("</svg>", covered(60, 50, 35, 35)),
        "another picture than the one drawn here",
        True,
    ),
    "the drawing for telephones": (of_narrow, "tiny: narrow is another picture", True),
    "a drawing that is missing": (of_figure(drawings={}), "tiny: narrow is None", True),
    "a picture's size": (
        of_picture(r'width="[^"]*" height="[^"]*"', 'width="40px" height="30px"'),
        "a picture of (30, 40) pixels",
        True,
    ),
    "a quoted number 5 % larger": (of_glue("12.6"), "text/plain is \"'12.6'\"", True),
    "its last printed digit": (of_glue("12.1"), "text/plain is \"'12.1'\"", False),
    "printed text": (another_word, "text is 'first\\nsecond 2\\n'", True),
    "an output that is missing": (lambda outputs: outputs[0].clear(), "output_type is None", True),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_notebook_is_noticed_though_its_hash_is_forged_too(forge, what):
    change, message, everywhere = FORGERIES[what]
    found = forge(change)
    assert any(message in line for line in found), found
    assert all(line.startswith(f"{NAME}, cell [") for line in found)
    assert (forge(lambda outputs: None, exactly=False) != []) is everywhere


def test_an_exception_allows_what_it_names_and_no_more(book, forge):
    file = book / "book/elsewhere.yml"
    lines = "- {because: a test, within: {t24.fig1.sum: 0.7, total: 0.5}, share: {tiny: 0.06}}\n"
    file.write_text(lines, encoding="utf-8")
    try:
        assert forge(of_check(value=12.6), exactly=False) == []
        assert forge(of_sketch([4, 0.0, 6.3, 3.15, 2.45]), exactly=False) == []
        assert forge(of_glue("12.4"), exactly=False) == []
        assert forge(of_check(value=12.8), exactly=False) != []
        assert forge(of_glue("12.6"), exactly=False) != []
        assert forge(of_sketch([4, 0.0, 6.6, 3.3, 2.57]), exactly=False) != []
        assert forge(of_check(value=12.6)) != []
    finally:
        file.unlink()


def test_each_exception_names_what_there_is_once_and_has_a_reason():
    groups = yaml.safe_load((output.ROOT / "book/elsewhere.yml").read_text(encoding="utf-8"))
    assert all(group.keys() <= {"because", "within", "share", "pixels"} for group in groups)
    assert all(len(group["because"].split()) > 5 for group in groups)
    figures = {row["figure"] for row in manifest.figures()}
    glued = {glue for page in project.names() for glue in project.glued(page)}
    numbers = {*claims.load(), *glued, *project.names()}
    for kind, known in (("within", numbers), ("share", figures), ("pixels", figures)):
        named = [name for group in groups for name in group.get(kind, {})]
        assert len(named) == len(set(named))
        assert [name for name in named if name not in known] == []


def test_an_honest_notebook_has_no_differences_however_its_file_is_written(forge):
    assert forge(lambda outputs: None) == []


def test_a_cell_without_its_outputs_is_noticed(forge, book):
    forge(lambda outputs: None)
    path = project.executed(NAME, book)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"][-1]["outputs"] = []
    path.write_text(json.dumps(notebook), encoding="utf-8")
    found = list(verify.differences(NAME, book, exactly=False))
    assert f"{NAME}, cell [3]: {NAME}: output_type is None, executed here 'display_data'" in found


def test_what_a_layout_moves_by_a_pixel_is_no_difference(forge):
    assert forge(of_picture("<g>", '<g transform="translate(0.5 0.5)">')) == []


def test_most_notebooks_byte_for_byte_make_it_the_same_machine(book, forge):
    assert verify.is_same_machine(book)
    forge(of_check(value=11.0))
    assert not verify.is_same_machine(book)


def test_the_command_names_what_differs_and_executes_what_was_not(book, forge):
    def call():
        return tiny_project.run(book, "verify")

    assert call() == (0, "", "1 notebooks, 0 differences (to the last digit)\n")
    forge(of_check(value=5.0))
    line = f"{NAME}, cell [2]: t24.fig1.sum: value is 5.0, executed here 12.0\n"
    other = "1 notebooks, 1 differences (coarsely: another processor wrote them)\n"
    assert call() == (1, line, other)
    # What this clone has not executed from these sources is executed.
    (book / project.HERE / keys.FILE).unlink()
    assert verify.comparable(book) == []
    assert call()[:2] == (1, line)
    assert verify.comparable(book) == [NAME]
