"""What a page makes of a figure: as clear on dark pages, narrow, and with its code at hand."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from small_site import build, parsed

from ntpnb_book import figures, saving
from ntpnb_book.output import ROOT
from ntpnb_book.stacking import WIDTH, stack
from publishing import figure_views


@pytest.fixture
def root(tmp_path, monkeypatch, book_style):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path / "figures"))
    return tmp_path


# What CSS calls invert(1) hue-rotate(180deg), as the Filter Effects module defines the two.
HALF_A_TURN = 2 * np.array([0.213, 0.715, 0.072]) - np.eye(3)
DARK_PAGE = "#121212"  # the theme's


def at_night(color):
    """What the page's style makes of a colour on a dark page."""
    return np.clip(HALF_A_TURN @ (1 - np.array(to_rgb(color))), 0, 1)


def contrast(one, two):
    """The contrast ratio of WCAG 2.2."""
    light = (np.array(to_rgb(color)) for color in (one, two))
    linear = (np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in light)
    lower, higher = sorted(float(c @ [0.2126, 0.7152, 0.0722]) for c in linear)
    return (higher + 0.05) / (lower + 0.05)


@pytest.mark.parametrize("color", [*figures.PALETTE, figures.INK, "#8f8f8f"])
def test_colours_stand_out_on_a_dark_page_as_on_a_light_one(color):
    style = (ROOT / "book/_static/book.css").read_text("utf-8")
    assert "filter: invert(1) hue-rotate(180deg);" in style
    by_day = contrast(color, figures.BACKGROUND)
    assert contrast(at_night(color), DARK_PAGE) >= 0.95 * by_day


def test_hues_stay_at_night():
    for color in figures.PALETTE[:2]:
        assert np.argmax(to_rgb(color)) == np.argmax(at_night(color))


PAGE = """# Page

:::{{figure}} ../figures/{name}.svg
:alt: A & B

Words.
:::
"""


def draw(root, name, **options):
    fig, axes = figures.plt.subplots(1, 2, sharey=True, figsize=(7.6, 3.5))
    for ax in axes:
        ax.plot([1, 2, 3])
        ax.set(title="loss", xlabel="step")
    figures.save(fig, name, {"x": [1, 2, 3]}, None, **options)
    site, warnings = build(root, {"index": PAGE.format(name=name)}, "publishing.figure_views")
    assert warnings == ""
    return parsed(site / "index.html")


def test_a_figure_has_two_widths(root):
    figure = draw(root, "one").figure
    assert [one["src"] for one in figure.select("img")] == ["_images/one.svg"]
    assert [one["srcset"] for one in figure.select("source")] == ["_images/one_narrow.svg"]
    assert {one["alt"] for one in figure.select("img")} == {"A & B"}
    for one in figure.select("img, source"):
        address = one.get("src") or one["srcset"]
        text = (root / "site" / address).read_text(encoding="utf-8")
        assert (int(one["width"]), int(one["height"])) == figure_views.size(text)
    assert int(figure.source["width"]) == round(96 * WIDTH)
    assert "scrolls" not in figure.div["class"]


def test_what_cannot_be_stacked_scrolls_and_is_reached_by_keyboard(root):
    figure = draw(root, "one", columns=0).figure
    assert not figure.select("source")
    assert figure.div["class"] == ["views", "scrolls"]
    assert figure.div["tabindex"] == "0"


def test_panels_are_stacked_each_with_numbers_and_names(root):
    fig, axes = figures.plt.subplots(2, 2, sharex=True, sharey=True, figsize=(7.6, 5))
    for ax in axes[1]:
        ax.set_xlabel("step")
    axes[0, 0].set_ylabel("loss")
    assert stack(fig)
    tops = [ax.get_position().y1 for ax in axes.ravel()]
    assert tops == sorted(tops, reverse=True)
    assert {ax.get_xlabel() for ax in axes.ravel()} == {"step"}
    assert {ax.get_ylabel() for ax in axes.ravel()} == {"loss"}
    assert all(ax.xaxis.get_tick_params()["labelbottom"] for ax in axes.ravel())
    figures.plt.close(fig)


def test_a_wide_sketch_and_long_words_are_not_squeezed(root):
    sketch, ax = figures.plt.subplots(figsize=(7.6, 3))
    ax.axis("off")
    assert not stack(sketch)
    wordy, ax = figures.plt.subplots(figsize=(7.6, 3))
    ax.set_title("a title that is far longer than the screen of any telephone is wide in portrait")
    assert not stack(wordy)
    high, ax = figures.plt.subplots(figsize=(7.6, 6))
    ax.set_ylabel("what stands beside this axis is longer than the panel would be high there")
    assert not stack(high)
    crowded, ax = figures.plt.subplots(figsize=(7.6, 3))
    ax.set_xticks(range(4), ["the very first kind"] * 4)
    assert not stack(crowded)
    ax.set_xticks(range(4), ["first"] * 4)
    assert stack(crowded)
    figures.plt.close("all")


def test_axes_without_a_name_are_listed(book_style):
    fig, axes = figures.plt.subplots(2, 2, sharex="col")
    axes[0, 0].set_title("loss")
    axes[0, 1].set_ylabel("angle")
    axes[1, 0].set(xlabel="step", title="norm")
    axes[1, 1].barh(["a", "b"], [1, 2])
    assert saving.unnamed(fig) == ["x of panel 4"]
    figures.plt.close(fig)
