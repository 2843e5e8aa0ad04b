"""Late training is compared with the states, the matrix and the time that belong to it."""

import numpy as np
import pytest

import ntpnb
from ntpnb import GD, NextTokenData
from ntpnb_book import claims, cosine, language_model
from ntpnb_book.output import ROOT
from publishing import project


def test_the_language_model_is_compared_with_the_states_of_each_checkpoint():
    listed = claims.load()
    assert "beyond.language_model.angle-own" in listed
    assert "beyond.language_model.own-falls" in listed
    # The direction of the last states, for decoders that never saw them.
    assert "beyond.language_model.cos-rises" not in listed
    assert "ntpnb.compare(model.decoders[1:]" not in project.source("21_language_model").read_text()


def test_each_decoder_is_nearer_to_the_direction_of_its_own_states():
    model = language_model()
    degrees = []
    for states, W in zip(model.first_hidden[1:], model.decoders[1:], strict=True):
        data = NextTokenData.from_counts(states[:40], model.counts[:40])
        found = np.degrees(np.arccos(cosine(W, ntpnb.max_margin(data).W)))
        assert found == pytest.approx(np.degrees(ntpnb.compare(W, data).angle))
        degrees.append(found)
    assert (np.diff(degrees) < 0).all()


def test_the_distance_of_figure_4b_is_that_of_the_print():
    listed = claims.load()
    assert "App. D" in listed["l24.fig4.distance"]["where"]
    assert "change" not in listed["l24.fig4.distance"]
    assert "change" in listed["l24.fig4.distance-solved"]


def test_a_step_gains_most_along_the_limit_from_some_step_on():
    # Eq. (29) of L24's proof of Theorem 3, on the data of the erratum; the constant is L of (23).
    sequences = [(0, 1, 2), (0, 2), (0, 2)]
    data = NextTokenData.from_attention(np.eye(3), sequences, [0, 0, 0])
    svm = ntpnb.max_margin(data)
    W = ntpnb.descend(data, GD(1 / (2 * np.sqrt(3))), 2000, record=range(2001)).W
    W = W.reshape(len(W), -1)
    step, here = np.diff(W, axis=0)[1:], W[1:-1]
    left = step @ svm.W.ravel() / svm.norm
    right = np.sum(step * here, axis=1) / np.linalg.norm(here, axis=1)
    fails = 1 + np.flatnonzero(left < right)
    assert fails.tolist() == list(range(1, 45))


def test_the_book_proves_that_this_step_comes():
    assert "(proofs-gain)=" in (ROOT / "book/proofs.md").read_text(encoding="utf-8")
    equations = (ROOT / "book/equations.md").read_text(encoding="utf-8")
    assert "{prf:ref}`a proof <proofs-gain-proposition>`" in equations
    assert claims.load()["l24.thm3.gain"]["expect"]["horizons"]
