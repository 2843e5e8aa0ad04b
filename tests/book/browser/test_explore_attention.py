"""A layer of attention: its mathematics against the package, and every way to change it."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from checks import mouse_only
from explored import (
    ATTENTION,
    assert_agrees,
    field,
    middle,
    places,
    unit,
)

import ntpnb
from ntpnb.attention import attention_mass
from publishing.live.explored import far_apart

EXPLORABLE = ATTENTION
CASES = 300

# What the page computes of a state, as numbers.
SOLVE = """cases => cases.map(({ state, W }) => {
  const solved = exploreAttention.solve(state);
  const { coords, data } = solved;
  const start = [0, 0, 0, 0];
  const flow = { start, points: explorable.trainingPath(solved, null, start) };
  const asked = [...state.s.map(({ tokens }) => tokens), state.x];
  const counts = (tokens) => state.e.map((_, v) => tokens.filter((u) => u === v).length);
  return {
    answers: explorable.answers(solved, flow),
    components: coords.order.groups.map((k) => coords.order.components.get(k)),
    attention: asked.map((x) => exploreAttention.attention(W, data.T, counts(x), x.at(-1))),
    rule: exploreAttention.rule(state, solved, state.x),
  };
})"""


class Case(NamedTuple):
    """Places in hundredths, sequences with labels, a new sequence, and some W to attend with."""

    e: np.ndarray
    sequences: list
    labels: list
    new: list
    W: np.ndarray

    @property
    def data(self):
        return ntpnb.NextTokenData.from_attention(self.e / 100, self.sequences, self.labels)

    def asked(self):
        s = [{"tokens": x, "label": y} for x, y in zip(self.sequences, self.labels, strict=True)]
        state = {"e": self.e.tolist(), "s": s, "x": self.new}
        return {"state": state, "W": self.W.ravel().tolist()}


def random_case(rng):
    """Up to six tokens and eight sequences; some tokens equal, in line or on a coarse grid."""
    K = int(rng.integers(2, 7))
    e = rng.integers(-150, 151, (K, 2))
    kind = rng.integers(5)
    if kind == 1:
        e = 50 * rng.integers(-2, 3, (K, 2))
    elif kind == 2:
        e[:, 1] = 60
    elif kind == 3:
        e[rng.integers(K)] = e[rng.integers(K)]
    queries = rng.integers(K, size=rng.integers(1, 4))  # few, so that they share graphs
    sequences = []
    for _ in range(rng.integers(1, 9)):
        tokens = rng.integers(K, size=rng.integers(0, 5)).tolist()
        sequences.append([*tokens, int(rng.choice(queries))])
    labels = [int(rng.choice(x)) for x in sequences]
    new = [*rng.integers(K, size=rng.integers(0, 5)).tolist(), int(rng.choice(queries))]
    return Case(e, sequences, labels, new, rng.standard_normal((2, 2)))


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(17)
    return [random_case(rng) for _ in range(CASES)]


@pytest.fixture(scope="module")
def solved(cases, tabs, address):
    """What the page computes of the cases."""
    with tabs.lend(address) as tab:
        tab.goto(address + ATTENTION.page)
        return tab.evaluate(SOLVE, [case.asked() for case in cases])


def attention(scores, tokens):
    """Attention of a sequence on each token of the vocabulary, from all tokens' scores."""
    counts = np.bincount(tokens, minlength=len(scores))
    mass = counts * np.exp(scores - scores[tokens].max())
    return mass / mass.sum()


# -- the mathematics, against the package ---------------------------------------------------------


@pytest.mark.slow
def test_graphs_verdicts_solutions_and_late_angles_are_those_of_the_package(solved, cases):
    assert_agrees(solved, [case.data for case in cases])
    kinds = set()
    for case, found in zip(cases, solved, strict=True):
        bias = ntpnb.implicit_bias(case.data)
        kinds.add((bias.separable, len(bias.order.equal) > 0))
        for ours, theirs in zip(found["components"], bias.order.components, strict=True):
            together = np.equal.outer(theirs, theirs) & (theirs >= 0)
            assert (np.equal.outer(ours, ours) & (np.array(ours) >= 0)[:, None] == together).all()
    assert len(kinds) == 4


@pytest.mark.slow
def test_attention_and_the_rule_are_those_of_the_package(solved, cases):
    decided = {"graph": 0, "margins": 0, "tie": 0, "none": 0}
    for case, found in zip(cases, solved, strict=True):
        bias, E = ntpnb.implicit_bias(case.data), case.e / 100
        assert far_apart(found["attention"][:-1], attention_mass(case.W, case.data)) < 1e-8
        query = E[case.new[-1]]
        assert far_apart(found["attention"][-1], attention(E @ case.W @ query, case.new)) < 1e-8
        rule = found["rule"]
        decided[rule["by"]] += 1
        assert (rule["by"] == "none") == (not bias.separable)
        if not bias.separable:
            continue
        # The tokens that W^mm scores highest, and W^cyc among them.
        scores = E @ bias.max_margin.W @ query
        first = [v for v in case.new if scores[v] >= scores[case.new].max() - 1e-6]
        assert set(rule["among"]) == set(first)
        pairs = [np.outer(E[v] - E[first[0]], query) for v in first]
        free = max(np.abs(bias.equal_subspace.reject(pair)).max() for pair in pairs)
        assert (rule["mass"] is None) == (free > 1e-9)
        if rule["mass"] is not None:
            expected = attention(E @ bias.finite_part.W @ query, first)
            assert far_apart(rule["mass"], expected) < 1e-8
    assert min(decided.values()) > 5


START = """() => {
  const { fromPreset, solve, startWith, METHODS } = exploreAttention;
  const state = fromPreset("acyclic"); // normalized steps around a cycle magnify rounding
  const { coords } = solve(state);
  const start = startWith([0.5, -0.25], state.e[3].map((x) => x / 100));
  const at = (name) => ntpnb.descend(coords, METHODS[name].settings, [0, 1, 10, 1000], start);
  return { start, gd: at("gd").map(({ W }) => W), ngd: at("ngd").map(({ W }) => W), state };
}"""


def test_gradient_methods_take_the_steps_of_the_package(tab):
    found = tab.evaluate(START)
    start = np.reshape(found["start"], (2, 2))
    e = np.array(found["state"]["e"]) / 100
    assert start @ e[3] == pytest.approx([0.5, -0.25])
    assert np.linalg.matrix_rank(start) == 1
    s = found["state"]["s"]
    data = ntpnb.NextTokenData.from_attention(
        e, [one["tokens"] for one in s], [one["label"] for one in s]
    )
    for method, optimizer in {"gd": ntpnb.GD(step=0.1), "ngd": ntpnb.NGD(step=0.02)}.items():
        run = ntpnb.descend(data, optimizer, 1000, init=start, record=[0, 1, 10, 1000])
        for ours, theirs in zip(found[method], run.W, strict=True):
            assert far_apart(ours, theirs) < 1e-8


VERDICTS = {
    "acyclic": "yes yes",
    "cycle": "no yes",
    "fig2": "no yes",
    "automaton": "no yes",
    "silent": "yes yes",
    "inseparable": "yes no",
}


def test_an_example_is_what_its_name_says(tab):
    for preset, verdicts in VERDICTS.items():
        tab.select_option(".preset", preset)
        assert " ".join(tab.locator(".verdicts b").all_inner_texts()) == verdicts, preset
        assert (tab.locator(".drawn .clash.ring").count() > 0) == (preset == "inseparable")
        assert (tab.locator(".edge.clash.head").count() > 0) == (preset == "inseparable")


def test_figure_2_has_the_structure_of_the_book(tab):
    found = tab.evaluate(SOLVE, [{"state": tab.evaluate("exploreAttention.fromPreset('fig2')")}
                                 | {"W": [0, 0, 0, 0]}])[0]  # fmt: skip
    order = ntpnb.token_priority(ntpnb.datasets.figure2())
    assert found["answers"]["pairs"] == order.strict.tolist()
    assert found["components"] == [[0, 1, 2, 3], [0, 0, 0, 3]]
    tab.select_option(".preset", "fig2")
    assert tab.locator(".component").count() == 2
    assert tab.locator(".component.cycle").count() == 1
    tab.get_by_role("button", name="Sequences that end in token 1").click()
    assert tab.locator(".component").count() == 4
    assert "3 ⇒ 2" in tab.locator(".constraints").inner_text()


def bars(box):
    """Widths of a bar's parts, as shares."""
    parts = box.locator("i").all()
    return [float(part.evaluate("part => part.style.flexGrow")) for part in parts]


def test_training_does_what_the_rule_says(opened, address):
    tab = opened(address, reduced_motion="reduce")
    for preset in ("acyclic", "cycle", "fig2", "automaton", "silent"):
        tab.select_option(".preset", preset)
        tab.locator(".play").click()
        tab.wait_for_function("document.querySelector('.when').value === '12'")
        seen, said = bars(tab.locator(".sequence.new .share")), bars(tab.locator(".predicted"))
        assert seen == pytest.approx(said, abs=0.01), preset


# -- changing things ------------------------------------------------------------------------------


def test_the_mouse_drags_a_token_and_everything_follows(opened, site):
    tab = opened(site)
    tab.select_option(".preset", "fig2")
    before = tab.locator(".drawn").inner_html()
    (x, y), size = middle(tab, "e1"), unit(tab)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x, y + size / 2, steps=8)
    tab.mouse.up()
    assert places(tab, "e")[1] == pytest.approx((0, 25), abs=1)
    assert tab.locator(".verdicts b").nth(1).inner_text() == "no"
    assert tab.locator(".drawn").inner_html() != before
    assert tab.locator(".spoken").inner_text().startswith("Graph-SVM has no solution")
    tab.locator(".reset").click()
    assert places(tab, "e")[1] == (0, 75)
    assert tab.locator(".verdicts b").nth(1).inner_text() == "yes"


def test_a_click_starts_training_there(opened, address):
    tab = opened(address, reduced_motion="reduce")
    (x, y), size = middle(tab, "w"), unit(tab)
    tab.mouse.click(x - 0.5 * size, y - 0.3 * size)
    assert field(tab, "t") == "12"  # who wants no motion sees the end at once
    query, *place = map(int, field(tab, "w").split(","))
    assert query == 4
    assert place == pytest.approx([-50, 30], abs=1)
    assert "t = 10¹²" in tab.locator(".reading").inner_text()


def test_the_keyboard_reaches_and_moves_everything(tab):
    handle = tab.get_by_role("slider", name="Token 4, the last token")
    handle.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowRight")
    assert places(tab, "e")[3] == (-24, -85)
    assert handle.get_attribute("aria-valuetext") == "−0.24 to the right, −0.85 up"
    choice = tab.get_by_role("combobox", name="Token at place 1 of 3 in sequence 1")
    choice.focus()
    tab.keyboard.press("3")
    assert field(tab, "s").startswith("324-4;214-1")  # the label 1 is gone with its token
    assert choice.evaluate("choice => choice === document.activeElement")
    time = tab.locator(".when")
    time.focus()
    tab.keyboard.press("End")
    assert time.get_attribute("aria-valuetext") == "time 10¹²"
    assert mouse_only(tab) == []


def test_sequences_and_labels_are_edited(tab):
    tab.get_by_label("Label of sequence 2").select_option("2")
    assert field(tab, "s") == "124-1;214-2;124-2;134-1;34-3"
    tab.get_by_label("Token at place 1 of 3 in sequence 2").select_option("-")
    assert field(tab, "s") == "124-1;14-4;124-2;134-1;34-3"
    tab.get_by_label("Put a token in front of sequence 5").click()
    assert field(tab, "s") == "124-1;14-4;124-2;134-1;134-3"
    tab.get_by_label("Remove sequence 1").click()
    tab.get_by_label("Token at place 3 of 3 in the new sequence").select_option("1")
    assert (field(tab, "s"), field(tab, "x"), field(tab, "q")) == (
        "14-4;124-2;134-1;134-3",
        "231",
        "1",
    )
    tab.get_by_role("button", name="Add a sequence").click()
    assert field(tab, "s") == "14-4;124-2;134-1;134-3;231-2"
    assert tab.locator(".constraints").inner_text().startswith("2 ⇒ 1")


def test_sequences_and_tokens_come_and_go(tab):
    for name, times in [("Add a sequence", 3), ("Add a token", 2)]:
        button = tab.get_by_role("button", name=name, exact=True)
        for _ in range(times):
            button.click()
        assert button.is_disabled()
    assert tab.locator(".sequence").count() == 9
    assert tab.locator("[data-handle^=e]").count() == 6
    button = tab.get_by_role("button", name="Remove a token")
    for _ in range(4):
        button.click()
    assert button.is_disabled()
    assert set(re.sub(r"\D", "", field(tab, "s"))) <= {"1", "2"}
    while tab.locator("[data-drop]:enabled").count():
        tab.locator("[data-drop]:enabled").first.click()
    assert tab.locator(".sequence").count() == 2
