"""What the tests of all pages that can be explored need."""

import numpy as np

SETTLED = 900  # milliseconds after which the state is in the address, on a busy machine too


def far_apart(found, expected):
    """Largest difference, relative to the size of what is expected where that exceeds one."""
    expected = np.ravel(expected)
    return np.abs(np.ravel(found) - expected).max() / max(1.0, np.linalg.norm(expected))


def middle(tab, name):
    box = tab.locator(f"[data-handle={name}] .touch").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def unit(tab):
    """Pixels of the screen that are one unit of the plane."""
    return tab.locator("svg.main").bounding_box()["width"] * 130 / 440


FRAMES = """async (name) => {
  const root = document.querySelector(".explore");
  const handle = root.querySelector(`[data-handle=${name}]`);
  const took = [];
  for (let i = 0; i < 150; i++) {
    const key = i % 2 ? "ArrowLeft" : "ArrowRight";
    handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    took.push(Number(root.dataset.milliseconds));
  }
  return took;
}"""


def frames(tab, handle):
    """Milliseconds of each frame while a handle moves to and fro."""
    return tab.evaluate(FRAMES, handle)
