"""Figures for dark pages: the same picture, every contrast kept, light and dark exchanged.

A contrast ratio (WCAG 2.2) is (Y + 0.05) / (Y' + 0.05) of two relative luminances. Replacing each
Y + 0.05 by a constant over it turns every ratio around and changes none, whatever was drawn: a line
on the card, a letter in a disc, two steps of a colour map. The constant takes the card to the dark
page; hues stay, and what the drawing has more of has more contrast with the page in both.
"""

import base64
import functools
import io
import re

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from ntpnb_book.figures import BACKGROUND

FloatArray = npt.NDArray[np.float64]

PAGE = "#121212"
"""What lies behind a dark page: the theme's ``--pst-color-background``."""

_PLACE_VALUES = np.array([256**2, 256, 1], dtype=np.uint32)

_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# Oklab (Ottosson 2020): distances and hues as they are seen.
_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)

_FROM_LMS = np.linalg.inv(_TO_LMS)
_FROM_LAB = np.linalg.inv(_TO_LAB)


def _linear(rgb: npt.ArrayLike) -> FloatArray:
    """Linear light of sRGB values between 0 and 1 (IEC 61966-2-1)."""
    rgb = np.asarray(rgb, dtype=float)
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def _encoded(linear: FloatArray) -> FloatArray:
    """Turn linear light back into sRGB values."""
    linear = np.clip(linear, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _luminance(rgb: npt.ArrayLike) -> float:
    """Relative luminance of WCAG 2.2."""
    return float(_linear(rgb) @ _LUMINANCE)


def contrast(one: str, two: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2.2 defines it.

    Parameters
    ----------
    one, two : str
        Colours as matplotlib knows them.
    """
    lower, higher = sorted(_luminance(to_rgb(color)) for color in (one, two))
    return (higher + 0.05) / (lower + 0.05)


_CONSTANT = (_luminance(to_rgb(BACKGROUND)) + 0.05) * (_luminance(to_rgb(PAGE)) + 0.05)


def _from_lab(lab: FloatArray) -> FloatArray:
    """Linear light of a colour given in Oklab."""
    return _FROM_LMS @ (_FROM_LAB @ lab) ** 3


def _shade(lab: FloatArray, chroma: float, wanted: float) -> FloatArray:
    """Linear light of the hue of `lab` that has this share of its chroma and this luminance."""
    low, high = 0.0, 1.5
    for _ in range(24):
        middle = (low + high) / 2
        linear = _from_lab(np.array([middle, chroma * lab[1], chroma * lab[2]]))
        low, high = (middle, high) if linear @ _LUMINANCE < wanted else (low, middle)
    return linear


@functools.cache
def dark(color: str) -> str:
    """Return what a colour of a figure becomes on a dark page.

    Parameters
    ----------
    color : str
        As ``#rrggbb``.

    Returns
    -------
    str
        As ``#rrggbb``: of the same hue, and with the same contrasts to other colours, so far as
        there is a colour light enough (black would have to be a little lighter than white).
    """
    rgb = np.array(to_rgb(color))
    wanted = min(1.0, max(0.0, _CONSTANT / (_luminance(rgb) + 0.05) - 0.05))
    lab = _TO_LAB @ np.cbrt(_TO_LMS @ _linear(rgb))
    # Light colours hold less chroma than dark ones: take as much as the screen can show.
    for chroma in np.linspace(1, 0, 11):
        linear = _shade(lab, float(chroma), wanted)
        if linear.min() >= -1e-3 and linear.max() <= 1 + 1e-3:
            break
    red, green, blue = _encoded(linear)
    return to_hex((red, green, blue))


def dark_picture(content: bytes) -> bytes:
    """Recolour a PNG, its transparency kept.

    Parameters
    ----------
    content : bytes
        The file.
    """
    pixels = np.array(Image.open(io.BytesIO(content)).convert("RGBA"))
    # One number for each colour: numbers are sorted several times as quickly as rows.
    numbers = pixels[..., :3].astype(np.uint32) @ _PLACE_VALUES
    colors, place = np.unique(numbers, return_inverse=True)
    found = colors[:, None] // _PLACE_VALUES % 256
    # Colours between two others come from smoothed edges: steps of 4 in 256 are enough there.
    exact = len(found) <= 512
    steps = found if exact else np.minimum(4 * np.round(found / 4), 255).astype(int)
    names = [to_hex(one / 255) for one in steps]
    table = np.array([to_rgb(dark(name)) for name in names])
    pixels[..., :3] = np.round(255 * table)[place.ravel()].reshape(pixels[..., :3].shape)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG", optimize=True)
    return out.getvalue()


def dark_drawing(svg: str) -> str:
    """Recolour an SVG, pictures within it included.

    Parameters
    ----------
    svg : str
        As matplotlib writes it: colours as ``#rrggbb``, and black where none is named.
    """
    svg = re.sub(r"(?<=[:\" ])#[0-9a-f]{6}\b", lambda found: dark(found[0]), svg)

    def within(found: re.Match[str]) -> str:
        content = dark_picture(base64.b64decode(found[1]))
        return "data:image/png;base64," + base64.b64encode(content).decode()

    svg = re.sub(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+)", within, svg)
    return svg.replace("<svg ", f'<svg fill="{dark("#000000")}" ', 1)
