"""A reader changes the parameters of a chapter: every cell still runs.

What a claim expects need not hold then, and `check` says so and carries on. Sizes are smaller than
the book's, and figures are built and not rendered, since this is about what a cell computes with.
"""

import ast

import jupytext
import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from ntpnb_book import figures
from publishing import live, project

OTHER = {
    "01_toy": [{"steps": steps, "large_seeds": [5]} for steps in (7, 2_000, 20_000)],
    "02_entropy": [{"steps": 700, "step": 0.4}],
    "03_overparameterization": [{"seed": 2, "V": 4, "m": 20, "trials": 6}],
    "04_regularization_path": [{"seed": 2}],
    "05_gradient_descent": [{"seed": 4, "num_seeds": 3, "steps": 700, "step": 0.4}],
    "06_optimizers": [
        {"seed": 4, "num_seeds": 3, "steps": 700, "num_problems": 5, "long_run": 3_000}
    ],
    "07_autoregressive": [{"seed": 2, "longest": 4, "verses": 5, "steps": 300}],
    "08_token_priority": [{"farthest": 6}],
    "09_graph_svm": [{"toy_radius": 50, "cycle_radius": 20}],
    "10_attention_descent": [{"seed": 2, "num_trials": 10, "steps": 300}],
    "11_local_convergence": [{"seed": 1, "num_trials": 10, "steps": 300}],
    "12_automaton": [{"steps": 300}],
    "13_one_problem": [{"seed": 2, "steps": 700}],
    "14_thresholds": [{"seed": 2}],
    "15_rates": [{"seed": 2, "steps": 20_000, "largest": 10_000}],
    "16_your_data": [{"seed": 1}],
    "17_real_text": [{"seeds": (3, 4), "frequent": 5}],
    "18_features": [{"seed": 2, "runs": 2, "steps": 3_000, "farthest": 100}],
    "19_geometries": [{"seed": 5, "num_problems": 4, "steps": 2_000, "adam_steps": 3_000}],
    "20_heads": [{"seed": 7, "num_starts": 9, "num_trials": 4, "num_factored": 2}],
    "21_language_model": [{"few": 30, "many": 700, "steps": 60, "record": [1, 5, 20, 60]}],
    "22_topics": [{"pairs_of_topics": 12, "steps": 1000, "seed": 5}],
}


def parameters(name):
    """The parameters of a chapter, as its page offers them."""
    [cell] = [
        cell
        for cell in jupytext.read(project.source(name)).cells
        if "parameters" in cell.metadata.get("tags", [])
    ]
    return live.parameters(cell.source)


def offered(name):
    """The smaller values that a chapter offers to those who do not want to wait."""
    listed = parameters(name)
    return {one["name"]: ast.literal_eval(one["smaller"]) for one in listed if one["smaller"]}


SMALLER = {name: offered(name) for name in OTHER}
CASES = [(name, case) for name, cases in OTHER.items() for case in cases]
CASES += [(name, smaller) for name, smaller in SMALLER.items() if smaller]


def built(fig, *rest, **options):
    """In place of `figures.save`."""
    plt.close(fig)


def frames_built(draw, texts, *rest, **options):
    """In place of `figures.save_frames`."""
    for k in range(len(texts)):
        fig = plt.figure()
        draw(fig, k)
        plt.close(fig)


def test_every_chapter_is_run_with_another_value_of_its_parameters():
    assert [*OTHER] == [name for name in project.names() if "/" not in name]


def test_chapters_of_more_than_a_minute_in_a_browser_offer_smaller_sizes():
    rows = [row for row in project.results("browser") if not row["cell"]]
    seconds = {row["notebook"]: float(row["seconds"]) for row in rows}
    assert [name for name in OTHER if seconds.get(name, 0) > 60 and not SMALLER[name]] == []


def test_a_smaller_value_is_of_the_same_kind_and_is_another_one():
    for name, smaller in SMALLER.items():
        written = {one["name"]: one["value"] for one in parameters(name)}
        for parameter, value in smaller.items():
            usual = ast.literal_eval(written[parameter])
            assert type(value) is type(usual), (name, parameter)
            assert value != usual, (name, parameter)
            if isinstance(value, (list, tuple)):
                assert {*map(type, value)} == {*map(type, usual)}, (name, parameter)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changed"), CASES, ids=[f"{n}-{c}" for n, c in CASES])
def test_it_runs_with_other_parameters(name, changed, monkeypatch):
    monkeypatch.setattr(figures, "save", built)
    monkeypatch.setattr(figures, "save_frames", frames_built)
    monkeypatch.setattr("ntpnb_book.output.show", lambda *output: None)
    monkeypatch.chdir(project.source(name).parent)
    names = {"__name__": "__main__"}
    with mpl.rc_context():
        for number, cell in enumerate(jupytext.read(project.source(name)).cells):
            if cell.cell_type != "code":
                continue
            exec(compile(cell.source, f"{name}, cell {number}", "exec"), names)
            if "parameters" in cell.metadata.get("tags", []):
                assert changed.keys() <= names.keys()
                names |= changed
    plt.close("all")
