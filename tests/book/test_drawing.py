"""What the chapters' pictures share: the artists have the places, sizes and colours asked for."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from ntpnb.notebook import drawing, figures


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


def test_neither_the_mathematics_nor_the_drawing_loads_matplotlib_by_itself():
    """The package's ``__init__`` is left out: it decides about `figures` for itself."""
    program = (
        "import sys, types, pathlib\n"
        "package = types.ModuleType('ntpnb.notebook')\n"
        "import ntpnb\n"
        "package.__path__ = [str(pathlib.Path(ntpnb.__file__).parent / 'notebook')]\n"
        "sys.modules['ntpnb.notebook'] = package\n"
        "import ntpnb.notebook.drawing, ntpnb.notebook.vocabulary\n"
        "print('matplotlib' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
