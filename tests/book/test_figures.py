"""Figures: the same bytes on every run, the data behind them, four panels, and who can see them."""

import hashlib
import os
import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest

from ntpnb_book import figures, saving

DRAW = """
import numpy as np
from ntpnb_book import figures
figures.use_style()
fig, axes = figures.plt.subplots(1, 2)
_ = axes[0].plot([1, 2, 3], label="$\\\\mathcal{H}$ ∥W∥")
_ = axes[0].legend()
_ = axes[1].imshow(np.arange(6).reshape(2, 3))
_ = axes[1].fill_between([0, 1], [0, 1], alpha=0.3, hatch="/")
figures.save(fig, "drawn", {"x": np.arange(3) / 3}, 0)


def draw(fig, k):
    ax = fig.subplots()
    _ = ax.plot([0, k], label="$W$")
    _ = ax.legend()


figures.save_frames(draw, ["one", "two"], "moved", {"x": np.arange(2)}, 0, control="Move")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, book_style):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path))
    return tmp_path


def test_a_figure_is_drawn_once_for_each_of_its_drawings(folder, monkeypatch):
    fig, axes = figures.plt.subplots(2, 2)
    axes[0, 0].plot([1, 2, 3])
    drawn = []
    monkeypatch.setattr(fig, "draw", lambda renderer: drawn.append(type(fig).draw(fig, renderer)))
    figures.save(fig, "one", {"x": [1, 2, 3]}, None)
    files = {path.name for path in folder.iterdir()}
    assert files == {"one.csv", "one.svg", "one_narrow.svg"}
    assert len(drawn) == 2


def test_other_kinds_of_files_are_made_where_they_are_asked_for(folder, monkeypatch):
    monkeypatch.setenv("NTPNB_FORMATS", "png pdf")
    figures.save(figures.plt.figure(), "one", {"x": [1]}, None)
    assert (folder / "one.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "one.pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setenv("NTPNB_FORMATS", "gif")
    with pytest.raises(ValueError, match=r"NTPNB_FORMATS: .*pdf, png, svg.*, found 'gif'"):
        figures.save(figures.plt.figure(), "two", {"x": [1]}, None)
    figures.plt.close("all")


def test_a_drawing_of_very_many_points_holds_them_as_one_picture(folder, monkeypatch):
    def drawn():
        fig, ax = figures.plt.subplots()
        ax.scatter(*np.random.default_rng(0).random((2, 500)))
        svg = saving.draw(fig)
        figures.plt.close(fig)
        return svg

    light = drawn()
    monkeypatch.setattr(saving, "HEAVY", len(light) - 1)
    heavy = drawn()
    assert "data:image/png;base64" not in light
    assert heavy.count("data:image/png;base64") == 1
    assert heavy.count("<use") < 100 < 500 < light.count("<use")


def test_two_processes_write_the_same_bytes(tmp_path):
    written = []
    for seed, style in (("1", ""), ("2", "savefig.dpi: 33\nsvg.hashsalt: other\nfont.size: 30\n")):
        place = tmp_path / seed
        place.mkdir()
        (place / "matplotlibrc").write_text(style)
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "NTPNB_FIGURES": str(place / "out"),
            "NTPNB_FORMATS": "png pdf",
            "MPLCONFIGDIR": str(place),
            "TZ": f"UTC+{seed}",
            "MPLBACKEND": "agg",
        }
        subprocess.run([sys.executable, "-c", DRAW], check=True, cwd=place, env=environment)
        written.append({p.name: p.read_bytes() for p in sorted((place / "out").iterdir())})
    suffixes = ("png", "svg", "pdf", "csv")
    names = {f"{name}.{suffix}" for name in ("drawn", "moved") for suffix in suffixes}
    assert written[0].keys() == names | {"moved_frames.svg", "drawn_narrow.svg"}
    assert written[0] == written[1]


SAVED = """array,i,j,value
matrix,0,0,0.3333333333333333
matrix,0,1,5e-324
matrix,1,0,9007199254740994.0
matrix,1,1,0.30000000000000004
runs.GD.0.loss,0,,0.1
runs.GD.0.loss,1,,1e-300
runs.GD.1.loss,0,,nan
runs.GD.1.loss,1,,inf
entropy,,,0.3333333333333333
steps,0,,0
steps,1,,7
names,0,,"a,b"
names,1,,c
yes,0,,True
"""


def test_the_data_survive_to_the_last_bit(folder):
    data = {
        "matrix": np.array([[1 / 3, 5e-324], [2**53 + 2, 0.1 + 0.2]]),
        "runs": {"GD": [{"loss": np.array([0.1, 1e-300])}, {"loss": np.array([np.nan, np.inf])}]},
        "entropy": 1 / 3,
        "steps": np.array([0, 7]),
        "names": ["a,b", "c"],
        "yes": np.array([True]),
    }
    figures.save(figures.plt.figure(), "data", data, [1, 2])
    assert (folder / "data.csv").read_text("utf-8") == SAVED


def test_a_sketch_is_of_finite_numbers_and_sees_an_exchange_of_entries():
    described = saving.sketch({"x": [1.0, np.nan, 3.0, -np.inf], "yes": True, "none": []})
    assert described == {
        "x": [2, 1.0, 3.0, 2.0, 1.5],
        "yes": [1, 1.0, 1.0, 1.0, 0.0],
        "none": [0],
    }
    assert saving.sketch({"x": [3.0, 1.0]})["x"] == [2, 1.0, 3.0, 2.0, 0.5]


def test_save_closes_the_figure_and_records_seed_and_data(folder, monkeypatch):
    shown = []
    monkeypatch.setattr("ntpnb_book.output.show", lambda *output: shown.append(output))
    fig = figures.plt.figure()
    assert figures.save(fig, "one", {"x": [1.0]}, np.int64(3)) is None
    assert not figures.plt.fignum_exists(fig.number)
    [(data, record)] = shown
    digest = hashlib.sha256((folder / "one.csv").read_bytes()).hexdigest()
    plain = {"curves": [0, 0], "unnamed": [], "drawings": {}}
    of_data = {"data": digest, "sketch": {"x": [1, 1.0, 1.0, 1.0, 0.0]}}
    assert record == {"figure": "one", "seed": 3, **of_data, **plain}
    assert data["text/plain"] == "Figure one"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("Fig 1", {"x": [1]}, "name 'Fig 1'"),
        ("../x", {"x": [1]}, "name '../x'"),
        ("x", {}, "data: a mapping"),
        ("x", [1, 2], "data: a mapping"),
        ("x", {"a": {"z": np.ones(2) * 1j}}, "data 'a.z': numbers or texts"),
        ("x", {"z": np.ones((1, 1, 1))}, "at most two dimensions"),
        ("x", {"z": None}, "found object"),
    ],
)
def test_save_refuses(folder, name, data, message):
    with pytest.raises(ValueError, match=message):
        figures.save(figures.plt.figure(), name, data, 0)
    figures.plt.close("all")
    assert not list(folder.iterdir())


def batch(shape):
    rng = np.random.default_rng(0)
    run = SimpleNamespace(steps=np.array([0, 1, 10, 100]))
    for name in ("loss", "excess", "norm"):
        setattr(run, name, rng.random((*shape, 4)))
    names = ("alignment", "corrected_alignment", "finite_error")
    return run, SimpleNamespace(**{name: rng.random((*shape, 4)) for name in names})


@pytest.mark.parametrize("shape", [(), (3,)])
def test_curves_come_from_one_run_or_a_batch(shape):
    run, trace = batch(shape)
    curves = figures.curves(run, trace)
    assert len(curves) == (shape or (1,))[0]
    for source, names in ((run, ("loss", "norm")), (trace, ("alignment", "finite_error"))):
        for name in names:
            expected = np.reshape(getattr(source, name), (-1, 4))
            np.testing.assert_array_equal([one[name] for one in curves], expected)


def test_four_panels_draw_the_curves_given(folder):
    one, two = figures.curves(*batch((2,)))
    fig, axes = figures.four_panels({"GD": [one, two], "Adam": [two]}, entropy=0.5)
    # Step 0 has no place on a logarithmic axis; the first curve of a label is drawn last.
    lines = [line for line in axes[0].lines if len(line.get_xdata()) == 3]
    drawn = [line.get_ydata() for line in lines]
    np.testing.assert_array_equal(drawn, [two["loss"][1:], one["loss"][1:], two["loss"][1:]])
    assert [line.get_linewidth() < 1 for line in lines] == [True, False, False]
    assert len({line.get_marker() for line in lines[1:]}) == 2
    assert [len(ax.lines) for ax in axes[1:]] == [3, 6 + 2, 3]
    figures.plt.close(fig)


def test_four_panels_show_the_excess_by_default_and_take_axes(folder):
    [one] = figures.curves(*batch(()))
    fig, mine = figures.plt.subplots(1, 4)
    found, axes = figures.four_panels({"GD": [one]}, axes=mine)
    assert found is fig
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), one["excess"][1:])
    assert axes[0].get_yscale() == "log"
    with pytest.raises(ValueError, match="four are needed"):
        figures.four_panels({"GD": [one]}, axes=mine[:3])
    with pytest.raises(ValueError, match="at most 6"):
        figures.four_panels({str(number): [one] for number in range(7)})
    figures.plt.close(fig)


def linear(color):
    """Linear RGB of a colour (IEC 61966-2-1)."""
    rgb = np.array(mpl.colors.to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, two):
    """Contrast ratio of WCAG 2.2."""
    lights = sorted(linear(color) @ [0.2126, 0.7152, 0.0722] for color in (one, two))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def test_lines_and_letters_stand_out_from_the_card(book_style):
    # WCAG 2.2: 3 for graphics (1.4.11), 4.5 for text (1.4.3).
    assert min(contrast(color, figures.BACKGROUND) for color in figures.PALETTE) >= 3
    assert min(contrast(color, figures.BACKGROUND) for color in figures.PALETTE[:-1]) >= 4.5
    letters = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor")
    colors = {mpl.rcParams[name].replace("auto", "black") for name in letters}
    assert min(contrast(color, figures.BACKGROUND) for color in colors) >= 4.5


# Machado, Oliveira & Fernandes 2009, severity 1.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("kind", BLINDNESS)
def test_no_two_colours_look_alike(kind):
    seen = [np.clip(BLINDNESS[kind] @ linear(color), 0, 1) for color in figures.PALETTE]
    # Oklab (Ottosson 2020), where equal distances look equally large; 0.02 is just noticeable.
    lms = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    lab = np.array(
        [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    )
    points = np.array([lab @ np.cbrt(lms @ rgb) for rgb in seen])
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    assert distances[~np.eye(len(points), dtype=bool)].min() >= 0.1


def test_text_is_readable_at_page_width(book_style):
    sizes = ("font.size", "xtick.labelsize", "ytick.labelsize", "legend.fontsize", "axes.labelsize")
    # A page is about 7.6 inches wide, so that points in the figure are points on the page.
    assert min(mpl.rcParams[size] for size in sizes) >= 9
    assert mpl.rcParams["figure.figsize"][0] <= 7.6
