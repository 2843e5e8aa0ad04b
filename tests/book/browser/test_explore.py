"""Words in the plane: its mathematics against the package, and every way to move things on it."""

from typing import NamedTuple

import numpy as np
import pytest
from checks import mouse_only
from explored import (
    WORDS,
    assert_agrees,
    field,
    middle,
    places,
    settle,
    unit,
)

import ntpnb
from publishing.live.explored import far_apart

EXPLORABLE = WORDS
CASES = 300

# What the page computes of a state, as numbers.
SOLVE = """cases => cases.map(({ h, p }) => {
  const solved = exploreWords.solve({ h, p });
  const start = p[0].map(() => [0, 0]);
  const flow = { start: start.flat(), points: exploreWords.train(solved, "flow", start) };
  return {
    answers: explorable.answers(solved, flow),
    residual: solved.finite.residual,
    clashing: solved.clash.ties.map(({ row, i, j, weight }) => [row, i, j, weight]),
  };
})"""


class Case(NamedTuple):
    """Contexts in hundredths and percentages, as the page keeps them."""

    h: np.ndarray
    p: np.ndarray

    @property
    def data(self):
        return ntpnb.NextTokenData(self.h / 100, self.p / 100)


def random_case(rng):
    """Up to six contexts and seven tokens; some contexts parallel, equal or on a coarse grid."""
    m, V = rng.integers(1, 7), rng.integers(2, 8)
    h = rng.integers(-150, 151, (m, 2))
    kind = rng.integers(4)
    if kind == 1 and m > 1:
        one, other = rng.choice(m, 2, replace=False)
        h[other] = h[one] * rng.choice([-1, 1]) // rng.integers(1, 3)
    elif kind == 2:
        h = 50 * rng.integers(-2, 3, (m, 2))
    support = rng.random((m, V)) < rng.choice([0.3, 0.5, 0.7])
    support[np.arange(m), rng.integers(0, V, m)] = True
    p = np.zeros((m, V), dtype=int)
    for law, own in zip(p, support, strict=True):
        size = own.sum()
        law[own] = 1 + rng.multinomial(100 - size, rng.dirichlet(np.ones(size)))
    return Case(h, p)


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(17)
    return [random_case(rng) for _ in range(CASES)]


@pytest.fixture(scope="module")
def solved(cases, tabs, address):
    """What the page computes of the cases."""
    with tabs.lend(address) as tab:
        tab.goto(address + WORDS.page)
        asked = [{"h": case.h.tolist(), "p": case.p.tolist()} for case in cases]
        return tab.evaluate(SOLVE, asked)


# -- the mathematics, against the package ---------------------------------------------------------


@pytest.mark.slow
def test_verdicts_solutions_proofs_and_late_angles_are_those_of_the_package(solved, cases):
    assert_agrees(solved, [case.data for case in cases])
    residuals = [ntpnb.finite_part(case.data).residual for case in cases]
    assert [one["residual"] for one in solved] == pytest.approx(residuals, abs=1e-8)
    verdicts = {
        (one["answers"]["svm"]["separable"], one["answers"]["finite"]["compatible"])
        for one in solved
    }
    assert len(verdicts) == 4


@pytest.mark.slow
def test_ties_that_contradict_are_proved_to(solved, cases):
    incompatible = 0
    for case, found in zip(cases, solved, strict=True):
        assert bool(found["clashing"]) != found["answers"]["finite"]["compatible"]
        combined, odds = np.zeros(case.data.shape), 0.0
        for j, z, v, weight in found["clashing"]:
            combined[[z, v]] += np.outer([weight, -weight], case.h[j] / 100)
            # The page's pairs are (anchor, other), its odds those of the other to the anchor.
            odds += weight * np.log(case.p[j, v] / case.p[j, z])
        if found["clashing"]:
            incompatible += 1
            assert np.abs(combined).max() < 1e-8  # no W moves this combination of scores ...
            assert abs(odds) > 1e-8  # ... and the odds ask it not to be zero
    assert incompatible > 20


METHODS = {
    "GD": ntpnb.GD(step=0.5),
    "NGD": ntpnb.NGD(step=0.02),
    "Adam": ntpnb.Adam(step=0.01),
}

DESCEND = """([method, step, start]) => {
  const { coords } = exploreWords.solve(exploreWords.fromPreset("single"));
  return ntpnb.descend(coords, { method, step }, [0, 1, 10, 1000], start).map(({ W, y }) => ({
    W,
    excess: ntpnb.excessLoss(coords, y),
    loss: ntpnb.crossEntropy(coords, y),
    gradient: ntpnb.gradient(coords, y),
  }));
}"""


def test_gradient_methods_take_the_steps_of_the_package(tab):
    h, p = (np.array(tab.evaluate(f"exploreWords.PRESETS.single.{name}")) for name in "hp")
    start = [[0.5, -0.25], [0.0, 0.0], [0.0, 1.0]]
    data = Case(h, p).data
    for method, optimizer in METHODS.items():
        run = ntpnb.descend(data, optimizer, 1000, init=start, record=[0, 1, 10, 1000])
        found = tab.evaluate(DESCEND, [method, optimizer.step, np.ravel(start).tolist()])
        for k, one in enumerate(found):
            assert far_apart(one["W"], run.W[k]) < 1e-8
            assert one["excess"] == pytest.approx(run.excess[k], rel=1e-6)
            assert one["loss"] == pytest.approx(run.loss[k], rel=1e-8)
            assert far_apart(one["gradient"], ntpnb.gradient(run.W[k], data)) < 1e-8


VERDICTS = {
    "toy": "yes yes",
    "single": "yes yes",
    "tie": "yes yes",
    "barely": "yes yes",
    "inseparable": "no yes",
    "moved": "yes yes",
    "incompatible": "yes no",
    "optimizers": "yes yes",
}


def test_an_example_is_what_its_name_says(tab):
    for preset, verdicts in VERDICTS.items():
        tab.select_option(".preset", preset)
        assert " ".join(tab.locator(".verdicts b").all_inner_texts()) == verdicts, preset
        assert tab.locator(".drawn .clash.ring").count() == (2 if preset == "inseparable" else 0)
        assert tab.locator(".drawn .odds.ring").count() == (2 if preset == "incompatible" else 0)
        assert tab.locator("svg.second").is_visible() == (preset == "optimizers")


# -- moving things --------------------------------------------------------------------------------


def test_the_mouse_drags_a_context_and_everything_follows(opened, site):
    tab = opened(site)
    before = tab.locator(".drawn").inner_html()
    (x, y), size = middle(tab, "h0"), unit(tab)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x, y + size / 2, steps=8)
    assert tab.locator(".verdicts b").first.inner_text() == "yes"
    tab.mouse.move(x, y + 2 * size, steps=8)
    tab.mouse.up()
    settle(tab)
    assert tab.locator(".verdicts b").first.inner_text() == "no"
    assert tab.locator(".drawn").inner_html() != before
    assert places(tab, "h")[0] == pytest.approx((0, -100), abs=1)
    assert places(tab, "h")[1:] == [(-100, -50), (100, -75)]
    assert tab.locator(".spoken").inner_text().startswith("Not separable")
    tab.locator(".reset").click()
    assert places(tab, "h")[0] == (0, 100)
    assert tab.locator(".verdicts b").first.inner_text() == "yes"


def test_a_click_starts_training_there(opened, address):
    tab = opened(address, reduced_motion="reduce")
    tab.get_by_role("button", name="Choose token 3").click()
    (x, y), size = middle(tab, "w"), unit(tab)
    tab.mouse.click(x + 0.5 * size, y - 0.3 * size)
    settle(tab)
    assert "t=12" in tab.url  # who wants no motion sees the end at once
    start = field(tab, "w").split(";")
    assert [start[0], start[1], start[3], start[4]] == ["0,0"] * 4
    assert tuple(map(int, start[2].split(","))) == pytest.approx((50, 30), abs=1)
    assert "t = 10¹²" in tab.locator(".reading").inner_text()


def test_the_keyboard_reaches_and_moves_everything(tab):
    handle = tab.get_by_role("slider", name="Context A, followed by 2, 3 and 4")
    handle.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowRight")
    settle(tab)
    assert handle.get_attribute("aria-valuetext") == "0.06 to the right, 0.95 up"
    assert places(tab, "h")[0] == (6, 95)

    cell = tab.get_by_role("button", name="Token 1 follows A")
    assert cell.get_attribute("aria-pressed") == "false"
    cell.press("Enter")
    assert cell.get_attribute("aria-pressed") == "true"
    assert cell.evaluate("cell => cell === document.activeElement")
    time = tab.locator(".when")
    time.focus()
    tab.keyboard.press("End")
    assert time.get_attribute("aria-valuetext") == "time 10¹²"
    assert mouse_only(tab) == []


def test_sliders_keep_the_sum(tab):
    tab.get_by_role("button", name="Choose context B").click()
    slider = tab.locator(".sliders input").first
    slider.focus()
    for keys in (["ArrowRight"] * 5, ["End"], ["Home"], ["ArrowRight"] * 3):
        for key in keys:
            tab.keyboard.press(key)
        row = places(tab, "p")[1]
        assert sum(row) == 100
        assert [x > 0 for x in row] == [True, False, False, True, True]
        assert slider.input_value() == str(row[0])


def test_contexts_and_tokens_come_and_go(tab):
    for name, times in [("Add a context", 3), ("Add a token", 2)]:
        button = tab.get_by_role("button", name=name)
        for _ in range(times):
            button.click()
        assert button.is_disabled()
    assert tab.locator(".laws tbody button[data-cell]").count() == 42
    for name, times in [("Remove a context", 5), ("Remove a token", 5)]:
        button = tab.get_by_role("button", name=name)
        for _ in range(times):
            button.click()
        assert button.is_disabled()
    assert tab.locator(".laws tbody button[data-cell]").count() == 2


# -- the first page of the book -------------------------------------------------------------------


def test_the_landing_page_opens_with_the_toy_to_play_with(lend, errors, site):
    tab = lend(site, viewport={"width": 1280, "height": 1000})
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(site + "index.html")
    assert tab.locator(".preset").input_value() == "toy"
    assert "#" not in tab.url  # the address stays plain until something is moved
    assert not tab.locator(".laws").is_visible()
    tab.locator("[data-handle=h0]").focus()
    tab.keyboard.press("ArrowDown")
    assert places(tab, "h")[0] == (0, 95)
    assert errors == []
