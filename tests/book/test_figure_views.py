"""What a page makes of a figure: dark with the same contrasts, narrow, and its code at hand."""

import io

import numpy as np
import pytest
from bs4 import BeautifulSoup
from matplotlib.colors import to_rgb
from PIL import Image

from ntpnb_book import figures, saving
from ntpnb_book.stacking import WIDTH, stack
from publishing import dark, figure_views

COLORS = [*figures.PALETTE, figures.INK, figures.PALE, "#dddddd", "#e9e6dc", "#ffffff"]


@pytest.fixture
def root(tmp_path, monkeypatch, book_style):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path / "figures"))
    return tmp_path


def test_the_card_becomes_the_dark_page():
    card = np.array(to_rgb(dark.dark(figures.BACKGROUND)))
    assert abs(card - to_rgb(dark.PAGE)).max() <= 2 / 255


@pytest.mark.parametrize("one", COLORS)
def test_contrasts_stay_as_they_are(one):
    for other in [*COLORS, figures.BACKGROUND]:
        before = dark.contrast(one, other)
        assert dark.contrast(dark.dark(one), dark.dark(other)) == pytest.approx(before, rel=0.05)


def test_black_becomes_white_and_hues_stay():
    assert dark.dark("#000000") == "#ffffff"
    for color in figures.PALETTE[:2]:
        light, night = to_rgb(color), to_rgb(dark.dark(color))
        assert np.argmax(light) == np.argmax(night)


def test_pictures_are_recoloured_and_stay_transparent_where_they_were():
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0] = (255, 255, 255, 255)
    pixels[1] = (0, 114, 178, 100)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    seen = np.array(Image.open(io.BytesIO(dark.dark_picture(file.getvalue()))))
    assert (seen[..., 3] == pixels[..., 3]).all()
    assert seen[0].max(initial=0, where=[True, True, True, False]) < 32
    assert tuple(seen[1, 0, :3] / 255) == pytest.approx(to_rgb(dark.dark("#0072b2")), abs=0.003)


def test_a_drawing_is_recoloured_throughout(root):
    fig, (left, right) = figures.plt.subplots(1, 2)
    left.plot([1, 2], color=figures.PALETTE[1])
    right.imshow([[0.0, 1.0]], cmap=figures.AMOUNTS)
    drawn = saving.render(fig, "svg").decode()
    figures.plt.close(fig)
    night = dark.dark_drawing(drawn)
    assert figures.PALETTE[1] not in night
    assert dark.dark(figures.PALETTE[1]) in night
    assert night.count("data:image/png;base64,") == drawn.count("data:image/png;base64,") == 1
    assert figure_views.size(night) == figure_views.size(drawn)


def page(name, caption=""):
    link = f'<a href="../_downloads/1/{name}.csv">Data</a>'
    return (
        f'<figure id="f"><img alt="A &amp; B" src="../_images/0a1b.png" />{link}{caption}</figure>'
    )


def draw(root, name, **options):
    fig, axes = figures.plt.subplots(1, 2, sharey=True, figsize=(7.6, 3.5))
    for ax in axes:
        ax.plot([1, 2, 3])
        ax.set(title="loss", xlabel="step")
    figures.save(fig, name, {"x": [1, 2, 3]}, None, **options)
    drawings = figure_views.Drawings(root, root / "site", lambda file: f"../{file}")
    return BeautifulSoup(figure_views.with_views(page(name), drawings), "html.parser")


def test_a_figure_has_two_colours_and_two_widths(root):
    figure = draw(root, "one").figure
    assert [one["class"] for one in figure.select("picture")] == [["view-light"], ["view-dark"]]
    assert [one["src"] for one in figure.select("img")] == [
        "../_images/one.svg",
        "../_images/one_dark.svg",
    ]
    assert [one["srcset"] for one in figure.select("source")] == [
        "../_images/one_narrow.svg",
        "../_images/one_narrow_dark.svg",
    ]
    assert {one["alt"] for one in figure.select("img")} == {"A & B"}
    for one in figure.select("img, source"):
        address = one.get("src") or one["srcset"]
        text = (root / "site" / address.removeprefix("../")).read_text(encoding="utf-8")
        assert (int(one["width"]), int(one["height"])) == figure_views.size(text)
    assert int(figure.source["width"]) == round(96 * WIDTH)
    assert "scrolls" not in figure.div["class"]


def test_what_cannot_be_stacked_scrolls_and_is_reached_by_keyboard(root):
    figure = draw(root, "one", columns=0).figure
    assert not figure.select("source")
    assert figure.div["class"] == ["views", "scrolls"]
    assert figure.div["tabindex"] == "0"


def test_a_figure_that_was_never_drawn_stays_as_it_is(root):
    drawings = figure_views.Drawings(root, root / "site", str)
    assert figure_views.with_views(page("none"), drawings) == page("none")


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
