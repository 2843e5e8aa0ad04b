"""The language model: the transformer's gradients, its training, and the file that ships."""

import hashlib
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

import ntpnb
from language_model import __main__ as script
from language_model.max_margin import multipliers_of
from language_model.optimizers import OPTIMIZERS, Adam, polar_factor
from language_model.training import Plan, read_words, save_whole, train, training_set
from language_model.transformer import (
    Shape,
    hidden_states,
    initial_parameters,
    loss_and_gradients,
)
from ntpnb import NextTokenData, datasets
from ntpnb.problem.text import split_words
from ntpnb_book import language_model, margin_multipliers

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "ntpnb_book/data_files/language_model.npz"
TEXT = ROOT / "language_model/genesis.txt"
MARGIN = ROOT / "ntpnb_book/data_files/language_model_margin.npz"
SHA256 = {
    FILE: "41c494c3c10fdb7b152e6d23e9ab35332478b1c83fa607e2b84d458a804ae7c5",
    MARGIN: "f33feba7e8e51aa4b22e19039e97c98c9a15eabac7353b2a62ecb234d467ded6",
}
SMALL = Shape(vocab_size=7, window=3, dim=8, num_heads=2, num_blocks=2, num_neurons=12)


@pytest.fixture(scope="module")
def model():
    return language_model()


def perturbed(seed):
    """Parameters in double precision away from the start, where many gradients vanish."""
    rng = np.random.default_rng(seed)
    start = initial_parameters(SMALL, rng)
    return {name: value + 0.3 * rng.standard_normal(value.shape) for name, value in start.items()}


def examples(seed):
    rng = np.random.default_rng([seed, 1])
    return rng.integers(7, size=(6, 3)), rng.integers(7, size=6)


# -- the transformer ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(initial_parameters(SMALL, np.random.default_rng(0))))
@pytest.mark.parametrize("seed", [0, 1])
def test_each_gradient_is_the_slope_of_the_loss(name, seed):
    parameters = perturbed(seed)
    windows, next_words = examples(seed)
    _, gradients = loss_and_gradients(parameters, SMALL, windows, next_words)
    direction = np.random.default_rng([seed, 2]).standard_normal(parameters[name].shape)

    def loss(length):
        moved = parameters | {name: parameters[name] + length * direction}
        return loss_and_gradients(moved, SMALL, windows, next_words)[0]

    h = 1e-5
    slope = (loss(h) - loss(-h)) / (2 * h)
    # h² of the third derivative, and rounding of the loss, 1e-16 / h
    assert slope == pytest.approx((gradients[name] * direction).sum(), rel=1e-6, abs=1e-8)


def test_the_loss_is_the_cross_entropy_of_the_scores():
    parameters = perturbed(3)
    windows, next_words = examples(3)
    scores = hidden_states(parameters, SMALL, windows) @ parameters["decoder"].T
    expected = -log_softmax(scores, axis=1)[np.arange(6), next_words].mean()
    loss, _ = loss_and_gradients(parameters, SMALL, windows, next_words)
    assert loss == pytest.approx(expected, rel=1e-12)


def test_adam_takes_the_steps_of_the_package_s_adam():
    data = datasets.toy()
    steps = 20
    run = ntpnb.descend(data, ntpnb.Adam(step=0.1), steps, record=[steps])
    parameters = {"W": np.zeros(data.shape)}
    adam = Adam(parameters)
    for _ in range(steps):
        adam.update(parameters, {"W": ntpnb.gradient(parameters["W"], data)}, 0.1)
    np.testing.assert_allclose(parameters["W"], run.W[-1], rtol=1e-6)


def test_sgd_takes_the_steps_of_heavy_ball():
    rng = np.random.default_rng(4)
    gradients = rng.standard_normal((3, 2, 5))
    parameters = {"W": np.zeros((2, 5))}
    sgd = OPTIMIZERS["SGD"](parameters)
    for gradient in gradients:
        sgd.update(parameters, {"W": gradient}, 0.1)
    # velocities g0, .9 g0 + g1, .81 g0 + .9 g1 + g2, added up
    expected = -0.1 * (2.71 * gradients[0] + 1.9 * gradients[1] + gradients[2])
    np.testing.assert_allclose(parameters["W"], expected, rtol=1e-12)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4)])
def test_a_polar_factor_has_equal_singular_values_and_is_nearest(shape):
    rng = np.random.default_rng([6, *shape])
    matrix = rng.standard_normal(shape)
    factor = polar_factor(matrix)
    np.testing.assert_allclose(np.linalg.svd(factor)[1], 1.0, rtol=1e-12)
    # No other matrix with singular values of at most one has a larger inner product with it.
    nuclear = np.linalg.norm(matrix, "nuc")
    assert (matrix * factor).sum() == pytest.approx(nuclear, rel=1e-12)


def test_muon_moves_matrices_by_polar_factors_and_the_rest_by_adam():
    rng = np.random.default_rng(8)
    names = {"decoder": (6, 3), "attention_out0": (4, 4), "words": (6, 3), "last_norm_bias": (3,)}
    start = {name: rng.standard_normal(size) for name, size in names.items()}
    gradients = {name: rng.standard_normal(size) for name, size in names.items()}
    moved = {name: value.copy() for name, value in start.items()}
    OPTIMIZERS["Muon"](moved).update(moved, gradients, 0.5)
    step = moved["decoder"] - start["decoder"]  # of the first gradient alone, in whatever mean
    expected = -0.5 * np.sqrt(2) * polar_factor(gradients["decoder"])
    np.testing.assert_allclose(step, expected, rtol=1e-6)
    square = moved["attention_out0"] - start["attention_out0"]
    np.testing.assert_allclose(np.linalg.svd(square)[1], 0.5, rtol=1e-6)
    for name in ("words", "last_norm_bias"):  # Adam's first step goes by signs
        expected = start[name] - 0.05 * np.sign(gradients[name])
        np.testing.assert_allclose(moved[name], expected, rtol=1e-6)


@pytest.mark.parametrize(("method", "step"), [("Adam", 1e-2), ("SGD", 0.1), ("Muon", 0.02)])
def test_training_lowers_the_loss_and_repeats_itself(method, step):
    words = split_words("the fox sees the owl and the owl sees the fox and the fox runs")
    small = training_set(words, window=3)
    shape = Shape(len(small.words), window=3, dim=8, num_heads=2, num_neurons=12)
    plan = Plan(
        epochs=30, checkpoints=(0, 30), batch_size=4, first_step=step, seed=5, method=method
    )
    first, last = train(small, shape, plan, lambda line: None)
    again = list(train(small, shape, plan, lambda line: None))[-1]
    assert (last.decoder == again.decoder).all()
    assert (last.hidden == again.hidden).all()

    def loss(checkpoint):
        scores = checkpoint.hidden[small.context_of] @ checkpoint.decoder.T
        rows = np.arange(len(small.next_words))
        return -log_softmax(scores, axis=1)[rows, small.next_words].mean()

    assert loss(first) == pytest.approx(np.log(len(small.words)))  # a decoder of zeros
    assert loss(last) < loss(first) / 2


def test_windows_and_contexts_are_those_of_the_text():
    words = read_words(TEXT)
    whole = training_set(words, window=3)
    assert len(whole.windows) == len(words) - 3
    spelled = [tuple(whole.words[v] for v in c) for c in whole.contexts]
    expected = dict.fromkeys(zip(words, words[1:], words[2:], strict=False))
    del expected[tuple(words[-3:])]  # nothing follows the last three words, which occur once
    assert spelled == list(expected)
    assert (whole.contexts[whole.context_of] == whole.windows).all()


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHA256, ids=lambda path: path.stem)
def test_a_file_is_the_one_that_was_measured_and_comes_with_the_book(path):
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256[path]
    text = (ROOT / "ntpnb_book/pyproject.toml").read_text("utf-8")
    patterns = tomllib.loads(text)["tool"]["setuptools"]["package-data"]["ntpnb_book"]
    shipped = {p for pattern in patterns for p in path.parents[1].glob(pattern)}
    assert path in shipped


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    save_whole(path, {"a": np.arange(3)})

    def half(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(OSError, match="disk full"):
        save_whole(path, {"a": np.zeros(3)})
    assert np.load(path)["a"].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_it_says_where_it_is_from(model):
    said = model.provenance
    assert said["script"] == "python -m language_model"
    assert said["plan"]["seed"] == script.PLAN.seed
    assert said["plan"]["epochs"] == script.PLAN.epochs == model.epochs[-1]
    assert tuple(said["plan"]["checkpoints"]) == script.PLAN.checkpoints == tuple(model.epochs)
    assert said["shape"]["vocab_size"] == len(model.words)
    assert said["numpy"]
    head = " ".join(line for line in TEXT.read_text("utf-8").splitlines() if line[0] == "#")
    assert "bible-kjv-text" in head
    assert "public domain" in head


def test_its_text_begins_with_the_text_of_the_package():
    shorter = [v for verse in datasets.text_corpus(106).verses for v in verse]
    words = read_words(TEXT)
    assert datasets.text_corpus(106).spell(shorter).split() == words[: len(shorter)]


def test_its_counts_are_those_of_the_text(model):
    words = read_words(TEXT)
    counted = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    found = {}
    table = model.counts.tocoo()
    for row, word, count in zip(*table.coords, table.data, strict=True):
        context = tuple(model.words[v] for v in model.contexts[row])
        found[*context, model.words[word]] = count
    assert found == counted


def test_the_first_hidden_states_are_those_of_the_last_checkpoint(model):
    assert (model.first_hidden[-1] == model.hidden[: len(model.first_hidden[-1])]).all()
    assert not model.decoders[0].any()


def test_the_states_are_the_model_s_before_training(model):
    # The parameters before training are drawn from the seed alone, on every processor alike.
    shape = Shape(**model.provenance["shape"])
    rng = np.random.default_rng(script.PLAN.seed)
    states = hidden_states(initial_parameters(shape, rng), shape, model.contexts[:50])
    np.testing.assert_allclose(model.first_hidden[0, :50], states, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("count", [1, 40, 1000])
def test_data_are_the_first_contexts(model, count):
    data = model.data(count)
    assert (data.context_embeddings == model.hidden[:count]).all()
    counts = model.counts[:count].toarray()
    np.testing.assert_allclose(data.target_probs, counts / counts.sum(1, keepdims=True))
    early = model.data(count, checkpoint=0)
    assert (early.context_embeddings == model.first_hidden[0, :count]).all()
    last = model.data(count, checkpoint=len(model.epochs) - 1)
    assert (last.context_embeddings == data.context_embeddings).all()


def test_data_are_those_of_the_states_position_by_position(model):
    whole = training_set(read_words(TEXT), window=3)
    states = model.hidden[whole.context_of]
    again = NextTokenData.from_hidden_states(
        states, whole.next_words, len(whole.words), merge_tolerance=0.0
    )
    data = model.data()
    assert (again.context_embeddings == data.context_embeddings).all()
    assert (again.context_probs == data.context_probs).all()
    assert (abs(again.sparse_target_probs - data.sparse_target_probs)).max() == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_contexts": 0}, "num_contexts"),
        ({"num_contexts": 6306}, "num_contexts is 6306; there are 6305"),
        ({"num_contexts": 1001, "checkpoint": 0}, "num_contexts is 1001; there are 1000"),
        ({"checkpoint": 99}, "checkpoint is 99"),
        ({"checkpoint": -1}, "checkpoint"),
    ],
)
def test_data_that_do_not_exist_are_refused(model, arguments, named):
    with pytest.raises(ValueError, match=named):
        model.data(**arguments)


def direction_of(multipliers, H, counts, subspace):
    """The combination of the pairs that multipliers stand for, without its part in F."""
    mean = (counts > 0) / (counts > 0).sum(1, keepdims=True)
    weights = multipliers.toarray()
    return subspace.reject((mean * weights.sum(1, keepdims=True) - weights).T @ H)


def test_the_multipliers_make_the_matrix_of_the_largest_margin(model):
    multipliers = margin_multipliers()
    assert (multipliers.data > 0).all()
    counts = model.counts.toarray()
    follows = counts > 0
    assert not follows[multipliers.nonzero()].any()
    H = model.hidden
    W = direction_of(multipliers, H, counts, ntpnb.equal_subspace(model.data()))
    scores = H @ W.T
    lowest = np.where(follows, scores, np.inf).min(1)
    assert (np.where(follows, scores, -np.inf).max(1) - lowest).max() < 1e-9
    gaps = lowest - np.where(follows, -np.inf, scores).max(1)
    margin = gaps.min() / np.linalg.norm(W)
    bound = np.linalg.norm(W) / multipliers.sum()
    assert margin == pytest.approx(bound, rel=1e-9)  # the claim beyond.language_model.margin


def test_the_program_finds_multipliers_of_the_first_contexts(model):
    # A vocabulary of as many words as follow these contexts, so that none is collapsed away.
    counts = model.counts[:150].toarray()
    counts = counts[:, counts.any(axis=0)]
    data = NextTokenData.from_counts(model.hidden[:150], counts)
    W = direction_of(multipliers_of(data), model.hidden[:150], counts, ntpnb.equal_subspace(data))
    np.testing.assert_allclose(W, ntpnb.max_margin(data).W, atol=1e-9)


def test_the_model_can_be_saved_and_read_back(model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = ntpnb.load(tmp_path / "model.npz")
    assert (again.hidden == model.hidden).all()
    assert again.words == model.words
    assert (again.counts != model.counts).nnz == 0


def test_tokens_that_are_no_words_are_refused(model):
    with pytest.raises(ValueError, match="tokens"):
        model.spell([1027])
