"""Late training is compared with the states, the matrix and the time that belong to it."""

from ntpnb_book import claims
from ntpnb_book.output import ROOT
from publishing import project


def test_the_language_model_is_compared_with_the_states_of_each_checkpoint():
    listed = claims.load()
    assert "beyond.language_model.angle-own" in listed
    assert "beyond.language_model.own-falls" in listed
    # The direction of the last states, for decoders that never saw them.
    assert "beyond.language_model.cos-rises" not in listed
    assert "ntpnb.compare(model.decoders[1:]" not in project.source("21_language_model").read_text()


def test_the_distance_of_figure_4b_is_that_of_the_print():
    listed = claims.load()
    assert "App. D" in listed["l24.fig4.distance"]["where"]
    assert "change" not in listed["l24.fig4.distance"]
    assert "change" in listed["l24.fig4.distance-solved"]


def test_the_book_proves_that_this_step_comes():
    assert "(proofs-gain)=" in (ROOT / "book/proofs.md").read_text(encoding="utf-8")
    equations = (ROOT / "book/equations.md").read_text(encoding="utf-8")
    assert "{prf:ref}`a proof <proofs-gain-proposition>`" in equations
    listed = claims.load()
    assert listed["l24.thm3.gain"]["expect"]["horizons"]
    assert "l24.thm3.gain-example" in listed
