"""The models of other texts, seeds and methods: how they are measured, and the table that ships."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ntpnb
from language_model import study
from language_model.study import SETTINGS, STEPS, TEXTS, Setting, counts_of
from language_model.training import read_words, training_set
from ntpnb import NextTokenData
from ntpnb_book import language_model, language_models

FOLDER = Path(study.__file__).parent
WORDS = "the fox sees the owl and the owl sees the fox and the fox runs to the owl and runs"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A text of nineteen words in place of the long ones, and little training."""
    (tmp_path / "small.txt").write_text(f"# where it is from\n{WORDS}\n", "utf-8")
    monkeypatch.setattr(study, "FOLDER", tmp_path)
    plan = replace(study.PLAN, epochs=40, checkpoints=(0, 20, 40), batch_size=4)
    monkeypatch.setattr(study, "PLAN", plan)
    return Setting("small", 8, "Adam", 3)


def test_a_model_is_measured_as_the_package_compares(small, monkeypatch):
    seen = []
    plain = study.row

    def watching(setting, counts, checkpoint, trained_first):
        seen.append((counts, checkpoint))
        return plain(setting, counts, checkpoint, trained_first)

    monkeypatch.setattr(study, "row", watching)
    rows = study.measured(small)
    assert [row.epoch for row in rows] == [0, 20, 40]
    assert [row.separable for row in rows] == ["yes", "", "yes"]  # in eight dimensions
    counts, last = seen[-1]
    data = NextTokenData.from_counts(last.hidden.astype(float), counts)
    found = ntpnb.compare(last.decoder.astype(float), data)
    # float32 decoders, and an arccosine, which loses half of the digits of a small angle
    assert rows[-1].angle == pytest.approx(np.degrees(found.angle), rel=1e-6)
    assert rows[-1].few_angle == rows[-1].angle  # of fewer than 300 contexts
    assert rows[-1].excess == pytest.approx(found.excess, rel=1e-9)
    finite = ntpnb.finite_part(data).W
    assert rows[-1].odds == pytest.approx(found.finite_error / np.linalg.norm(finite), rel=1e-9)
    assert rows[1].few_kept == rows[1].few_angle
    assert np.isnan(rows[0].few_angle)


def test_what_is_in_the_table_is_not_trained_again(small, tmp_path, monkeypatch, capsys):
    path = tmp_path / "table.csv"
    other = replace(small, seed=4)
    monkeypatch.setattr(study, "SETTINGS", [small])
    monkeypatch.setattr("sys.argv", ["study", "--out", str(path)])
    study.main()
    first = path.read_text("utf-8")
    assert first.count("\n") == 4

    monkeypatch.setattr(study, "SETTINGS", [small, other])
    trained = []

    def only(setting):
        trained.append(setting)
        return rows

    rows = [replace(row, seed=4) for row in study.measured(small)]
    monkeypatch.setattr(study, "measured", only)
    study.main()
    assert trained == [other]
    second = path.read_text("utf-8")
    assert second.startswith(first)
    assert second.count("\n") == 7
    assert {file.name for file in tmp_path.iterdir()} == {"small.txt", "table.csv"}


# -- the table ------------------------------------------------------------------------------------


def test_the_table_has_every_model_at_every_checkpoint():
    models = language_models()
    names = ["text", "width", "method", "seed", "epoch"]
    found = [tuple(row[name].item() for name in names) for row in models]
    expected = [
        (s.text, s.width, s.method, s.seed, epoch)
        for s in SETTINGS
        for epoch in study.PLAN.checkpoints
    ]
    assert found == expected
    assert len(SETTINGS) == len(set(SETTINGS)) == 36
    assert {setting.method for setting in SETTINGS} == set(STEPS)


@pytest.mark.parametrize("text", TEXTS)
def test_its_entropies_are_those_of_the_texts(text):
    examples = training_set(read_words(FOLDER / f"{text}.txt"), study.WINDOW)
    counts = counts_of(examples)
    data = NextTokenData.from_counts(np.eye(len(examples.contexts), 2), counts)
    models = language_models()
    of_text = models["entropy"][models["text"] == text]
    np.testing.assert_allclose(of_text, data.entropy, rtol=1e-5)  # six digits


def test_a_text_says_where_it_is_from():
    for text in TEXTS:
        lines = (FOLDER / f"{text}.txt").read_text("utf-8").splitlines()
        head = " ".join(line for line in lines if line.startswith("#"))
        assert "Debian's package" in head
        assert "public domain" in head


def test_the_model_that_ships_is_one_of_their_kind():
    """The same plan and seed, rounded on another processor: it lies where the seeds lie."""
    model = language_model()
    models = language_models()
    alike = (models["text"] == "genesis") & (models["width"] == 64) & (models["method"] == "Adam")
    last = models[alike & (models["epoch"] == model.epochs[-1])]
    assert len(last) == 3
    data = model.data()
    excess = float(ntpnb.excess_loss(model.decoders[-1], data))
    spread = last["excess"].max() - last["excess"].min()
    assert last["excess"].min() - spread < excess < last["excess"].max() + spread
