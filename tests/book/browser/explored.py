"""The pages that can be explored, and what the tests of all of them need."""

import re
from typing import NamedTuple

from publishing.live.explored import compare, read_data


class Explorable(NamedTuple):
    """A page that can be explored, with states that its tests show on it.

    Attributes
    ----------
    page : str
        Its address in the book.
    script : str
        What its own script is called, and in its container's class.
    first : str
        The example with which it opens.
    examples : tuple of str
        All of them.
    places : str
        The field of the address that holds the places that can be dragged.
    dragged : tuple
        A handle, by how many units of the plane it is dragged to the right, and where it ends, in
        hundredths.
    own : str
        A state that is no example, with a start, at the time 10^7.5 of gradient descent.
    full : str
        A state with as many tokens as there can be.
    bad : dict
        Addresses that name no state: what the page says of them.
    degenerate, settings : tuple of str
        States in which much is zero, equal or empty, and what to try in each.
    """

    page: str
    script: str
    first: str
    examples: tuple
    places: str
    dragged: tuple
    own: str
    full: str
    bad: dict
    degenerate: tuple
    settings: tuple


WORDS = Explorable(
    page="explore_words.html",
    script="words",
    first="toy",
    examples=(
        "toy",
        "single",
        "tie",
        "barely",
        "inseparable",
        "moved",
        "incompatible",
        "remainder",
        "optimizers",
    ),
    places="h",
    dragged=("h2", -1, (0, -75)),
    own="#h=20,130;-130,-30;80,-110&p=90,10,0;0,50,50;0,0,100&m=gd&t=7.5&l=hpf&w=0,0;30,-20;0,0",
    full="#h=0,100;-100,-50;100,-75&p=0,35,55,10,0,0,0;60,0,0,10,30,0,0;15,15,0,0,30,20,20",
    bad={
        "#h=1": "p needs",
        "#h=0,100;x,2&p=50,50;50,50": "h needs whole numbers",
        "#h=0,999&p=50,50": "h needs",
        "#h=0,100&p=50,60": "p needs",
        "#h=0,100&p=50,50&m=magic": "m is one of",
        "#h=0,100&p=50,50&m=constructor": "m is one of",
        "#h=0,100&p=50,50&t=13": "t lies",
        "#h=0,100&p=50,50&l=z": "l is made",
        "#h=0,100&p=50,50&w=1,2": "w needs",
        "#<script>=%ff": "h needs",
        "#preset-cycle": "preset is one of toy, single",
        "#preset-constructor": "preset is one of",
        "#preset-tie&t=3": "preset is one of",
    },
    degenerate=(
        "h=0,0&p=100,0",
        "h=0,0;0,0&p=50,50;40,60",
        "h=10,10&p=50,50",
        "h=1,0;-1,0&p=100,0;0,100",
    ),
    settings=("m=flow&l=hpf", "m=gd&l=hpf", "m=both&l=hpf"),
)

ATTENTION = Explorable(
    page="explore_attention.html",
    script="attention",
    first="cycle",
    examples=("acyclic", "cycle", "fig2", "automaton", "silent", "inseparable"),
    places="e",
    dragged=("e2", 0.5, (0, 90)),
    own="#e=100,20;30,120;-50,90&s=123-1;213-2;33-3&x=13&q=3&c=2&m=gd&t=7.5&l=sc&w=3,30,-20",
    full="#e=110,75;0,75;-110,75;20,-70;-90,-40;90,-40&s=12345-1;21345-2;31245-4;54365-6",
    bad={
        "#e=1": "e needs",
        "#e=0,100;x,2&s=12-1": "e needs whole numbers",
        "#e=0,999;1,1&s=12-1": "e needs",
        "#e=0,100;1,1": "s needs",
        "#e=0,100;1,1&s=12-3": "s needs",
        "#e=0,100;1,1&s=13-1": "s needs",
        "#e=0,100;1,1&s=12": "s needs",
        "#e=0,100;1,1&s=12-1&x=3": "x needs",
        "#e=0,100;1,1&s=12-1&q=9": "q is one",
        "#e=0,100;1,1&s=12-1&c=7": "c is the number",
        "#e=0,100;1,1&s=12-1&m=magic": "m is one of",
        "#e=0,100;1,1&s=12-1&m=constructor": "m is one of",
        "#e=0,100;1,1&s=12-1&t=13": "t lies",
        "#e=0,100;1,1&s=12-1&l=z": "l is made",
        "#e=0,100;1,1&s=12-1&w=1,2": "w needs",
        "#<script>=%ff": "e needs",
        "#preset-toy": "preset is one of acyclic, cycle",
        "#preset-": "preset is one of",
        "#preset-silent&q=1": "preset is one of",
    },
    degenerate=(
        "e=0,0;0,0&s=12-1",
        "e=0,0;0,0&s=12-1;12-2",
        "e=10,10;10,10&s=12-1;21-2&w=1,50,50",
        "e=100,0;0,100&s=1-1",
        "e=0,0;50,50&s=21-1&w=1,50,50",
        "e=100,0;0,100;0,0&s=12-2&x=12&q=3",
    ),
    settings=("m=flow&t=3", "m=gd&t=3", "m=ngd&t=3"),
)


# -- the mathematics ------------------------------------------------------------------------------


def assert_agrees(found, datasets):
    """What a page answers of many states is what the package says of the same data.

    Of each the verdicts, the finite part, ``W^mm`` and the weights that prove it, or that there is
    none, and the angle to ``W^mm`` at the time 1e12.
    """
    for one, data in zip(found, datasets, strict=True):
        asked = read_data(one["answers"]["data"])
        assert (asked.target_probs == data.target_probs).all()
        assert (asked.context_embeddings == data.context_embeddings).all()
        svm = one["answers"]["svm"]
        assert not svm["separable"] or svm["kktResidual"] < 1e-10
    compared = [compare(one["answers"]) for one in found]
    assert [one for one in compared if not one.agrees] == []
    assert sum(one.angle_difference is not None for one in compared) > 60


# -- the page -------------------------------------------------------------------------------------


SETTLE = """async () => {
  const timer = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  await new Promise(requestAnimationFrame);
  await timer(250);
  await timer(250);
}"""


def settle(tab):
    """Wait until the page has written its state into the address.

    It draws what was dragged in the next frame, again after 120 ms, and writes 200 ms after that.
    Timers of one page end in the order of their times, however busy the machine: the first of these
    two ends after the drawing, and the second after the writing.
    """
    tab.evaluate(SETTLE)


def middle(tab, name):
    box = tab.locator(f"[data-handle={name}] .touch").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def unit(tab):
    """Pixels of the screen that are one unit of the plane."""
    return tab.locator("svg.main").bounding_box()["width"] * 130 / 440


def field(tab, name):
    """A field of the address, once it is there."""
    settle(tab)
    return re.search(rf"[#&]{name}=([^&]*)", tab.url)[1]


def places(tab, name):
    """The places in a field of the address, in hundredths."""
    return [tuple(map(int, row.split(","))) for row in field(tab, name).split(";")]


FRAMES = """async (name) => {
  const root = document.querySelector(".explore");
  const handle = root.querySelector(`[data-handle=${name}]`);
  const took = [];
  for (let i = 0; i < 60; i++) {
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
