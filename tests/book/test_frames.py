"""Figures that move: the strip of frames, what is refused, and the slider on the page."""

import json
import re
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from ntpnb_book import figures, frames
from publishing.sphinx_ext import slider

TEXTS = [f"at {k}" for k in range(4)]


@pytest.fixture
def folder(tmp_path, monkeypatch, book_style):
    monkeypatch.setenv("NTPNB_FIGURES", str(tmp_path))
    return tmp_path


def draw(fig, k):
    left, right = fig.subplots(1, 2)
    _ = left.plot([0, k], "o-")
    _ = left.set(ylim=(-1, 5), title=f"${k}$")
    _ = right.plot([0, 1])


def save(**changes):
    arguments = {"draw": draw, "texts": TEXTS, "name": "moves", "data": {"x": [1.0]}, "seed": None}
    arguments |= {"control": "Move it", "start": 1, "figsize": (5, 3)}
    return figures.save_frames(**arguments | changes)


def test_the_notebook_shows_one_frame_as_if_it_were_the_only_one(folder, monkeypatch):
    shown = []
    monkeypatch.setattr("ntpnb_book.output.show", lambda *output: shown.append(output))
    assert save() is None
    fig = figures.plt.figure(figsize=(5, 3))
    draw(fig, 1)
    figures.save(fig, "alone", {"x": [1.0]}, None)
    assert not figures.plt.get_fignums()
    assert (folder / "moves.svg").read_bytes() == (folder / "alone.svg").read_bytes()
    (moving, record), (alone, plain) = shown
    assert moving["image/svg+xml"] == alone["image/svg+xml"]
    assert record.pop("frames") == {"control": "Move it", "start": 1, "texts": TEXTS}
    strip = (folder / "moves_frames.svg").read_text(encoding="utf-8")
    assert record == plain | {"figure": "moves", "drawings": {"frames": strip}}


def test_the_strip_holds_every_frame_at_its_height(folder):
    save()
    strip = (folder / "moves_frames.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(strip)
    assert (root.get("width"), root.get("height")) == ("360pt", f"{4 * 216}pt")
    # the left panel's clipping box: as high in every frame, and one frame's height further down
    boxes = [rect.attrib for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    left = sorted(float(box["y"]) for box in boxes if box["x"] == boxes[0]["x"])
    assert [round(y - left[0]) for y in left] == [0, 216, 432, 648]
    assert len({box["height"] for box in boxes}) == 1
    # what was taken out is not missed
    ids = re.findall(r'\bid="([^"]*)"', strip)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', strip)) <= set(ids)
    assert len(strip) < 4 * 16_000  # two panels with their letters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["alone"]}, "texts: a text for each of two or more frames"),
        ({"texts": ["one", " "]}, "texts: a text for each"),
        ({"texts": ["one", 2]}, "texts: a text for each"),
        ({"control": ""}, "control: the slider needs a label"),
        ({"start": 4}, "start: there are 4 frames from 0 on, found 4"),
        ({"start": -1}, "found -1"),
        ({"name": "Fig 1"}, "name 'Fig 1'"),
        ({"data": {}}, "data: a mapping"),
    ],
)
def test_save_frames_refuses(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        save(**changes)
    figures.plt.close("all")
    assert not list(folder.iterdir())


def test_a_strip_too_large_for_a_telephone_is_refused(folder, monkeypatch):
    monkeypatch.setattr(frames, "LIMIT", 1000)
    with pytest.raises(ValueError, match=r"moves: 4 frames take \d+ bytes, at most 1000"):
        save()
    figures.plt.close("all")
    assert not list(folder.iterdir())


def test_frames_with_other_axes_are_refused(folder):
    with pytest.raises(ValueError, match="draw: frame 1 has 2 axes, frame 0 1"):
        save(draw=lambda fig, k: fig.subplots(1, 1 + (k == 1)))
    figures.plt.close("all")
    assert not list(folder.iterdir())


def test_the_slider_has_a_name_limits_and_words():
    record = {"control": "Turn <C>", "start": 1, "texts": ['"a" & <b>', "it's", "c"]}
    page = BeautifulSoup(slider("turn", record), "html.parser")
    control = page.select_one(".frames")
    assert control.has_attr("hidden")
    assert json.loads(control["data-texts"]) == record["texts"]
    assert control.label.text == record["control"]
    assert control.label["for"] == control.input["id"]
    assert control.output["for"] == [control.input["id"]]
    assert [control.input[key] for key in ("type", "min", "max", "value")] == ["range", *"021"]
    assert control.input["aria-valuetext"] == control.output.text == "it's"
