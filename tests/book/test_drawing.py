"""What the chapters' pictures share: the artists have the places, sizes and colours asked for."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox

import ntpnb
from ntpnb_book import drawing, figures, toy_picture


@pytest.fixture
def ax():
    return Figure().subplots()


def test_greys_are_grey_and_darken_from_areas_to_letters():
    lights = []
    for grey in (drawing.INK, drawing.GREY, drawing.PALE):
        red, green, blue = mpl.colors.to_rgb(grey)
        assert red == green == blue
        lights.append(red)
    assert lights == sorted(lights)
    assert figures.INK == drawing.INK
    assert figures.PALETTE[-1] == drawing.GREY


def test_a_band_lies_between_the_quantiles(ax):
    curves = np.random.default_rng(0).random((20, 4))
    shaded = drawing.band(ax, np.arange(4), curves, drawing.INK, quantiles=(0.25, 0.75), alpha=0.3)
    np.testing.assert_allclose(shaded.low, np.quantile(curves, 0.25, axis=0))
    np.testing.assert_allclose(shaded.median, np.median(curves, axis=0))
    np.testing.assert_allclose(shaded.high, np.quantile(curves, 0.75, axis=0))
    [area] = ax.collections
    heights = area.get_paths()[0].vertices[:, 1]
    assert heights.min() == shaded.low.min()
    assert heights.max() == shaded.high.max()
    assert area.get_alpha() == 0.3


def test_an_arrow_ends_at_its_point_in_its_colour(ax):
    drawn = drawing.arrow(ax, np.zeros(2), [3, 4], figures.PALETTE[1], zorder=7, linewidth=2.4)
    assert drawn.xy == (3, 4)
    assert drawn.get_position() == (0, 0)
    assert drawn.get_zorder() == 7
    patch = drawn.arrow_patch
    assert mpl.colors.same_color(patch.get_edgecolor(), figures.PALETTE[1])
    assert patch.get_linewidth() == 2.4
    assert (patch.shrinkA, patch.shrinkB) == (0, 0)


def test_a_label_keeps_its_offset_in_points(ax):
    drawn = drawing.label_point(ax, (0.2, 0.3), "A", (-8, 0), ha="right", color=drawing.GREY)
    assert drawn.get_text() == "A"
    assert drawn.xy == (0.2, 0.3)
    assert drawn.get_position() == (-8, 0)
    assert drawn.anncoords == "offset points"
    assert (drawn.get_ha(), drawn.get_va()) == ("right", "center")


def test_a_disc_carries_its_text(ax):
    circle = drawing.disc(ax, (1, 2), 0.2, drawing.PALE, "3", text_color=drawing.INK, zorder=5)
    assert (circle.center, circle.radius, circle.get_zorder()) == ((1, 2), 0.2, 5)
    [text] = ax.texts
    assert text.get_text() == "3"
    assert text.get_position() == (1, 2)
    assert text.get_zorder() > circle.get_zorder()
    drawing.disc(ax, (0, 0), 1, drawing.PALE)
    assert len(ax.texts) == 1


def letters(ax):
    """Texts of the annotations that say something, in their order."""
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_the_toy_s_contexts_stand_where_they_are_with_the_words_that_follow(ax):
    data = ntpnb.datasets.toy()
    toy_picture.draw_contexts(ax, data)
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines]
    np.testing.assert_array_equal(drawn, data.context_embeddings)
    assert letters(ax) == list(toy_picture.CONTEXTS)
    boxes = [found for found in ax.artists if isinstance(found, AnnotationBbox)]
    written = ["".join(piece.get_text() for piece in box.offsetbox.get_children()) for box in boxes]
    assert written == ["{2, 3, 4}", "{1, 4, 5}", "{1, 2, 5}"]
    assert not ax.patches
    toy_picture.draw_contexts(ax, data, triangle=True)
    [triangle] = ax.patches
    np.testing.assert_array_equal(triangle.get_xy()[:3], data.context_embeddings)


def test_equal_rows_of_the_toy_share_a_name_and_a_line(ax):
    W = np.array([[0, -1.0], [1, 1], [0, 2], [-1, 1], [0, -1]])
    toy_picture.draw_rows(ax, W, nudge={3: (-15, -3)})
    assert letters(ax) == ["$w_1 = w_5$", "$w_2$", "$w_3$", "$w_4$"]
    assert len(ax.lines) == 4
    arrows = [text for text in ax.texts if text.get_text() == ""]
    np.testing.assert_array_equal([arrow.xy for arrow in arrows], W)
    [named] = [text for text in ax.texts if text.get_text() == "$w_3$"]
    assert named.get_position() == (-15, -3)
    colors = [mpl.colors.to_hex(arrow.arrow_patch.get_edgecolor()) for arrow in arrows]
    assert colors == list(toy_picture.WORDS)
    assert toy_picture.WORDS == figures.PALETTE[:5]


def test_paths_of_the_toy_carry_growing_dots(ax):
    rows = np.random.default_rng(0).random((7, 5, 2))
    toy_picture.draw_paths(ax, rows, dots=[0, 3, 6])
    for v, (line, dots) in enumerate(zip(ax.lines, ax.collections, strict=True)):
        np.testing.assert_array_equal(line.get_xydata(), rows[:, v])
        np.testing.assert_array_equal(dots.get_offsets(), rows[[0, 3, 6], v])
        assert line.get_color() == toy_picture.WORDS[v]
        assert (np.diff(dots.get_sizes()) > 0).all()
    toy_picture.draw_paths(ax, rows)
    assert (len(ax.lines), len(ax.collections)) == (10, 5)


def test_neither_the_mathematics_nor_the_drawing_loads_matplotlib_by_itself():
    """The package's ``__init__`` is left out: it decides about `figures` for itself."""
    program = (
        "import importlib.util, sys, types\n"
        "package = types.ModuleType('ntpnb_book')\n"
        "package.__path__ = importlib.util.find_spec('ntpnb_book').submodule_search_locations\n"
        "sys.modules['ntpnb_book'] = package\n"
        "import ntpnb_book.drawing, ntpnb_book.vocabulary\n"
        "print('matplotlib' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
