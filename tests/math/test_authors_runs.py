"""What L24's authors released: the reading of curves, and the trials drawn again."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest

from authors_trials.curves import read_curves
from ntpnb_book import claims
from ntpnb_book.authors_runs import authors_curve, authors_trials, curve_distance

LOGS = {"global 514473c": 10, "global 0d105ef": 1, "local 514473c": 10}
LOGS |= {"local 0d105ef": 10, "acyclic 0d105ef": 2}


def drawn(curves):
    """The PDF file of a plot with a grid, as the authors' figures have it."""
    fig, ax = plt.subplots()
    for x, y in curves:
        ax.plot(x, y, linewidth=3)
    ax.grid(True)
    file = io.BytesIO()
    with plt.rc_context({"pdf.use14corefonts": True}):
        fig.savefig(file, format="pdf")
    plt.close(fig)
    return file.getvalue()


def test_a_curve_that_we_draw_is_read_back():
    """A point is printed to a millionth of a PDF unit; 1e-4 of the axis is what is promised."""
    x = np.linspace(0, 40, 41)
    curves = [(x, 2 + np.sin(x / 5)), (x, 2 + 0.5 * np.cos(x / 3))]
    found = read_curves(drawn(curves))
    assert len(found) == 2
    for (steps, values), curve in zip(curves, found, strict=True):
        assert np.abs(np.interp(steps, *curve.T) - values).max() < 2e-4


def test_a_file_without_curves_is_refused():
    with pytest.raises(ValueError, match="no compressed stream"):
        read_curves(b"no drawing")


@pytest.mark.parametrize("log", LOGS)
def test_what_was_drawn_again_is_what_is_printed(log):
    trials = authors_trials(log)
    assert len(trials) == LOGS[log]
    for trial in trials:
        assert trial.drawn["sequences"] == trial.printed["sequences"]
        assert trial.drawn["labels"] == trial.printed["labels"]


def test_a_shifted_curve_is_found():
    ours = np.random.default_rng(0).normal(size=(3, 100, 5))
    assert curve_distance(ours, np.zeros(5)) < 4 < curve_distance(ours, np.ones(5))


QUOTED = {id: claim["authors"] for id, claim in claims.load().items() if "authors" in claim}


@pytest.mark.parametrize("id", QUOTED)
def test_what_a_claim_quotes_of_a_file_stands_in_it(id):
    theirs = QUOTED[id]
    found = authors_curve(theirs["table"], theirs["curve"], theirs["step"])
    digits = 4 if abs(theirs["value"]) < 1 else 2  # of the numbers as quoted
    assert round(float(found), digits) == theirs["value"]
    assert theirs.get("compared", id) in claims.load()
