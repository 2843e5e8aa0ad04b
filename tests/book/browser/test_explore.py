"""Words in the plane: its mathematics against the package, and every way to move things on it."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from built_site import SITE
from checks import VIEWS, mouse_only, pale_letters
from explored import SETTLED, far_apart, frames, middle, unit

import ntpnb

PAGE = "explore_words.html"
CASES = 300
LATE = 12 * np.log(10)  # natural logarithm of t = 1e12

# What the page computes of a state, as numbers.
SOLVE = """cases => cases.map(({ h, p, late }) => {
  const { coords, svm, finite, clash } = exploreWords.solve({ h, p });
  const grows = svm.separable && svm.norm > 0;
  const end = late && grows ? ntpnb.gradientFlow(coords, [late], undefined, 1e-6)[0] : null;
  return {
    separable: svm.separable, W: svm.W, multipliers: svm.multipliers,
    certificate: svm.certificate ?? null, kkt: svm.kktResidual ?? 0,
    finite: finite.W, compatible: finite.compatible, residual: finite.residual,
    clashing: clash.ties.map(({ row, i, j, weight }) => [row, i, j, weight]),
    pairs: coords.order.strict.map(({ group, i, j }) => [group, i, j]),
    angle: end ? ntpnb.angle(end.W, svm.W) : null,
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


@pytest.fixture
def tab(opened, address):
    return opened(address)


def solve(tab, cases, late=0.0):
    asked = [{"h": case.h.tolist(), "p": case.p.tolist(), "late": late} for case in cases]
    return tab.evaluate(SOLVE, asked)


# -- the mathematics, against the package ---------------------------------------------------------


@pytest.mark.slow
def test_verdicts_solutions_and_proofs_are_those_of_the_package(tab, cases):
    kinds = set()
    for case, found in zip(cases, solve(tab, cases), strict=True):
        bias = ntpnb.implicit_bias(case.data)
        kinds.add((bias.separable, bias.finite_part.compatible))
        assert found["pairs"] == bias.order.strict.tolist()
        assert (found["separable"], found["compatible"]) == (
            bias.separable,
            bias.finite_part.compatible,
        )
        assert far_apart(found["finite"], bias.finite_part.W) < 1e-8
        assert found["residual"] == pytest.approx(bias.finite_part.residual, abs=1e-8)
        weights = found["multipliers"] if bias.separable else found["certificate"]
        assert min(weights, default=0.0) >= 0
        # What the weights of the strict pairs make off F: W^mm, or nothing where they contradict.
        made = np.zeros(case.data.shape)
        for (j, z, v), weight in zip(bias.order.strict, weights, strict=True):
            made[[z, v]] += np.outer([weight, -weight], case.h[j] / 100)
        made = bias.equal_subspace.reject(made)
        if bias.separable:
            assert far_apart(found["W"], bias.max_margin.W) < 1e-8
            assert far_apart(made.ravel(), bias.max_margin.W) < 1e-8
            assert found["kkt"] < 1e-10
        else:
            assert sum(weights) == pytest.approx(1)
            assert np.abs(made).max() < 1e-8
    assert len(kinds) == 4


@pytest.mark.slow
def test_ties_that_contradict_are_proved_to(tab, cases):
    incompatible = 0
    for case, found in zip(cases, solve(tab, cases), strict=True):
        assert bool(found["clashing"]) == (not found["compatible"])
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


@pytest.mark.slow
def test_flow_at_late_times_is_that_of_the_package(tab, cases):
    tried = 0
    for case, found in zip(cases, solve(tab, cases, late=LATE), strict=True):
        if found["angle"] is None:
            continue
        bias = ntpnb.implicit_bias(case.data)
        expected = ntpnb.gradient_flow(bias, [LATE]).compare(bias).angle[-1]
        assert found["angle"] == pytest.approx(expected, abs=1e-4)
        tried += 1
    assert tried > 60


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


@pytest.mark.parametrize("method", METHODS)
def test_gradient_methods_take_the_steps_of_the_package(method, tab):
    h, p = (np.array(tab.evaluate(f"exploreWords.PRESETS.single.{name}")) for name in "hp")
    start = [[0.5, -0.25], [0.0, 0.0], [0.0, 1.0]]
    data, optimizer = Case(h, p).data, METHODS[method]
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
    "incompatible": "yes no",
    "optimizers": "yes yes",
}


@pytest.mark.parametrize("preset", VERDICTS)
def test_an_example_is_what_its_name_says(preset, tab):
    tab.select_option(".preset", preset)
    assert " ".join(tab.locator(".verdicts b").all_inner_texts()) == VERDICTS[preset]
    assert tab.locator(".drawn .clash.ring").count() == (2 if preset == "inseparable" else 0)
    assert tab.locator(".drawn .odds.ring").count() == (2 if preset == "incompatible" else 0)
    assert tab.locator("svg.second").is_visible() == (preset == "optimizers")


# -- moving things --------------------------------------------------------------------------------


def contexts(tab):
    """The contexts in the address, in hundredths."""
    tab.wait_for_timeout(SETTLED)
    rows = re.search(r"#h=([^&]*)", tab.url)[1].split(";")
    return [tuple(map(int, row.split(","))) for row in rows]


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
    tab.wait_for_timeout(SETTLED)
    assert tab.locator(".verdicts b").first.inner_text() == "no"
    assert tab.locator(".drawn").inner_html() != before
    assert contexts(tab)[0] == pytest.approx((0, -100), abs=1)
    assert contexts(tab)[1:] == [(-100, -50), (100, -75)]
    assert tab.locator(".spoken").inner_text().startswith("Not separable")
    tab.locator(".reset").click()
    assert contexts(tab)[0] == (0, 100)
    assert tab.locator(".verdicts b").first.inner_text() == "yes"


def test_a_finger_drags_a_context(opened, address):
    tab = opened(address, width=390, has_touch=True, is_mobile=True)
    (x, y), size = middle(tab, "h2"), unit(tab)
    touch = tab.context.new_cdp_session(tab)
    for kind, share in [("Start", 0), ("Move", 0.3), ("Move", 0.7), ("Move", 1), ("End", 1)]:
        points = [] if kind == "End" else [{"x": x - share * size, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    assert contexts(tab)[2] == pytest.approx((0, -75), abs=2)


def test_a_click_starts_training_there(opened, site):
    tab = opened(site, reduced_motion="reduce")
    tab.get_by_role("button", name="Choose token 3").click()
    (x, y), size = middle(tab, "w"), unit(tab)
    tab.mouse.click(x + 0.5 * size, y - 0.3 * size)
    tab.wait_for_timeout(SETTLED)
    assert "t=12" in tab.url  # who wants no motion sees the end at once
    start = re.search(r"w=([^&]*)", tab.url)[1].split(";")
    assert [start[0], start[1], start[3], start[4]] == ["0,0"] * 4
    assert tuple(map(int, start[2].split(","))) == pytest.approx((50, 30), abs=1)
    assert "t = 10¹²" in tab.locator(".reading").inner_text()


def test_training_runs_through_time(tab):
    tab.locator(".play").click()
    tab.wait_for_timeout(1000)
    between = float(tab.locator(".when").input_value())
    tab.wait_for_function("document.querySelector('.when').value === '12'")
    assert 0 < between < 12


def test_the_keyboard_reaches_and_moves_everything(opened, site):
    tab = opened(site)
    handle = tab.get_by_role("slider", name="Context A, followed by 2, 3 and 4")
    handle.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowRight")
    tab.wait_for_timeout(SETTLED)
    assert handle.get_attribute("aria-valuetext") == "0.06 to the right, 0.95 up"
    assert contexts(tab)[0] == (6, 95)

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
        tab.wait_for_timeout(SETTLED)
        row = [int(x) for x in re.search(r"p=([^&]*)", tab.url)[1].split(";")[1].split(",")]
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


# -- the address, the views, and without a script -------------------------------------------------

OWN = "#h=20,130;-130,-30;80,-110&p=90,10,0;0,50,50;0,0,100&m=gd&t=7.5&l=hpf&w=0,0;30,-20;0,0"


def test_an_address_shows_the_same_again(opened, site):
    tabs = [opened(site, OWN) for _ in range(2)]
    shown = [tab.locator(".panes").inner_html() for tab in tabs]
    assert shown[0] == shown[1]
    tabs[0].wait_for_timeout(SETTLED)
    assert tabs[0].url.endswith(OWN)
    assert "step = 3.2·10⁷" in tabs[0].locator(".reading").inner_text()


BAD = {
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
}


@pytest.mark.parametrize("fragment", BAD)
def test_a_bad_address_is_ignored_with_a_word(fragment, opened, address):
    tab = opened(address, fragment)
    note = tab.locator(".explore .note")
    assert note.is_visible()
    assert BAD[fragment] in note.inner_text()
    assert tab.locator(".preset").input_value() == "toy"


def test_a_heading_in_the_address_is_no_state(opened, address):
    tab = opened(address, "#five-questions")
    assert not tab.locator(".explore .note").is_visible()
    assert tab.locator(".preset").input_value() == "toy"


@pytest.mark.parametrize(("mode", "width"), VIEWS)
def test_letters_stand_out_and_nothing_leaves_the_screen(mode, width, opened, address):
    tab = opened(
        address,
        "#h=0,100;-100,-50;100,-75&p=0,35,55,10,0,0,0;60,0,0,10,30,0,0;15,15,0,0,30,20,20",
        width=width,
        color_scheme=mode,
    )
    tab.set_viewport_size({"width": width, "height": 2400})
    tab.evaluate("document.body.replaceChildren(document.querySelector('.explore'))")
    presets = ["", "inseparable", "incompatible", "optimizers"]
    for preset in presets:
        if preset:
            tab.select_option(".preset", preset)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("svg.main").bounding_box()["width"] > 300
        assert pale_letters(tab) == [], preset
        tab.evaluate("document.querySelectorAll('svg *').forEach(one => one.style.visibility = '')")


def test_without_a_script_and_on_paper_there_is_a_still_picture(browser, opened, site):
    context = browser.new_context(java_script_enabled=False)
    still = context.new_page()
    still.goto(site + PAGE)
    assert still.locator(".explore-words img").bounding_box()["height"] > 100
    assert not still.locator(".explore").count()
    context.close()
    tab = opened(site)
    assert not tab.locator(".explore-words img").is_visible()
    tab.emulate_media(media="print")
    assert tab.locator(".explore-words img").is_visible()
    assert not tab.locator(".explore").is_visible()


def test_the_landing_page_opens_with_the_toy_to_play_with(browser, errors, site):
    tab = browser.new_page(viewport={"width": 1280, "height": 1000})
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(site + "index.html")
    assert tab.locator(".preset").input_value() == "toy"
    assert "#" not in tab.url  # the address stays plain until something is moved
    assert not tab.locator(".laws").is_visible()
    tab.locator("[data-handle=h0]").focus()
    tab.keyboard.press("ArrowDown")
    assert contexts(tab)[0] == (0, 95)
    tab.close()
    assert errors == []


DEGENERATE = [
    "h=0,0&p=100,0",
    "h=0,0;0,0&p=50,50;40,60",
    "h=10,10&p=50,50",
    "h=1,0;-1,0&p=100,0;0,100",
]


@pytest.mark.parametrize("state", DEGENERATE)
def test_nothing_is_not_a_number(state, opened, address):
    for method in ("flow", "gd", "both"):
        tab = opened(address, f"#{state}&m={method}&l=hpf")
        assert tab.locator(".verdicts b").count() == 2
        for part in (".panes", ".handles", ".reading"):
            assert "NaN" not in tab.locator(part).inner_html()
            assert "Infinity" not in tab.locator(part).inner_html()


def test_the_scripts_are_loaded_where_they_are_used():
    asked = {
        page: "explore/words.js" in (SITE / page).read_text("utf-8")
        for page in (PAGE, "changelog.html")
    }
    assert asked == {PAGE: True, "changelog.html": False}


@pytest.mark.slow
def test_a_frame_of_dragging_fits_sixty_in_a_second(tab):
    # The clock runs while other programs have the processor; a tenth of the frames have it alone.
    assert np.quantile(frames(tab, "h1"), 0.1) < 1000 / 60
