"""What cannot be used ends in one sentence that the package wrote, whatever it was given to."""

import traceback
from pathlib import Path

import numpy as np
import pytest
from quick import slow_but

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, attention, datasets, thresholds

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
REPORT = ntpnb.report(TOY)
BOTH_WAYS = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
PACKAGE = Path(ntpnb.__file__).parent


class Tensor:
    """A tensor of another library, which tracks gradients and does not let numpy read it."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use something else.")


class Broken:
    """Looks like a sequence, and is none."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise KeyError(i)


def embed_with(value):
    return lambda: NextTokenData.from_sequences([[0, 1, 0]], lambda context: value)


CERTAIN = [[1, 0]]
# The call, and what its sentence must name.
NASTY = {
    "nothing": (lambda: NextTokenData(None, None), "context_embeddings"),
    "text as vectors": (lambda: NextTokenData("ab", CERTAIN), "context_embeddings"),
    "a generator": (lambda: NextTokenData((x for x in [[1.0]]), CERTAIN), "context_embeddings"),
    "a set": (lambda: NextTokenData({1.0}, CERTAIN), "context_embeddings"),
    "a mapping": (lambda: NextTokenData({"x": 1}, CERTAIN), "context_embeddings"),
    "no sequence": (lambda: NextTokenData(Broken(), CERTAIN), "context_embeddings"),
    "a tensor": (lambda: NextTokenData(Tensor(), CERTAIN), "context_embeddings .*detach"),
    "tensors": (lambda: NextTokenData([Tensor()], CERTAIN), "context_embeddings .*detach"),
    "a tensor of laws": (lambda: NextTokenData([[1.0]], Tensor()), "target_probs .*detach"),
    "a tensor of shares": (lambda: NextTokenData([[1.0]], CERTAIN, Tensor()), "context_probs"),
    "a tensor of groups": (
        lambda: NextTokenData([[1.0]], CERTAIN, context_groups=Tensor()),
        "context_groups",
    ),
    "dates": (lambda: NextTokenData(np.zeros((1, 1), "M8[D]"), CERTAIN), "datetime64"),
    "records": (lambda: NextTokenData(np.zeros(1, [("x", float)]), CERTAIN), "context_embeddings"),
    "a huge integer": (lambda: NextTokenData([[10**400]], CERTAIN), "context_embeddings"),
    "percentages": (lambda: NextTokenData([[1.0]], [[50, 50]]), "target_probs row 0 sums to 100"),
    "transposed": (lambda: NextTokenData(np.ones((3, 2)), np.eye(5)), "one row per context"),
    "another argument": (lambda: TOY.replace(nothing=3), "nothing"),
    "text as sequences": (lambda: NextTokenData.from_sequences("abc", len), r"sequences\[0\]"),
    "a number as sequences": (lambda: NextTokenData.from_sequences(5, len), "sequences"),
    "no function": (lambda: NextTokenData.from_sequences([[0, 1]], None), "embed"),
    "a number of a context": (embed_with(1.0), r"embed .* shape \(\) for the context \(0,\)"),
    "nothing of a context": (embed_with(None), "embed"),
    "a matrix of a context": (embed_with([[1.0]]), r"embed .* shape \(1, 1\)"),
    "a word of a context": (embed_with("x"), "what embed returned is not"),
    "a tensor of a context": (embed_with(Tensor()), "what embed returned .*detach"),
    "vectors of two lengths": (
        lambda: NextTokenData.from_sequences([[0, 1, 0]], lambda context: [1.0] * len(context)),
        r"embed .* shape \(2,\) for the context \(0, 1\); a vector of length 1",
    ),
    "a long context": (
        lambda: NextTokenData.from_sequences(
            [range(9)], lambda context: [1.0] * max(1, len(context) - 5)
        ),
        r"for the context \(0, 1, 2, 3, 4, 5, \.\.\.\)",
    ),
    "no sequences": (lambda: NextTokenData.from_attention(np.eye(3), None, [0]), "sequences"),
    "no labels": (lambda: NextTokenData.from_attention(np.eye(3), [[0]], None), "labels"),
    "a class as method": (lambda: ntpnb.descend(TOY, ntpnb.GD, 10), "method"),
    "half a step": (lambda: ntpnb.descend(TOY, ntpnb.GD(0.5), 2.5), "steps is 2.5"),
    "weights of words": (lambda: ntpnb.descend(TOY, ntpnb.GD(0.5), 9, init="x"), "init"),
    "two shapes": (lambda: ntpnb.descend([TOY, FIGURE2], ntpnb.GD(0.5), 9), r"data\[1\]"),
    "a bias to descend": (lambda: ntpnb.descend(ntpnb.implicit_bias(TOY), ntpnb.GD(1), 9), "data"),
    "a step like a float's end": (lambda: ntpnb.descend(TOY, ntpnb.GD(1e300), 9), "step is 1e"),
    "a step of several": (lambda: ntpnb.GD(np.ones(2)), "step"),
    "no times": (lambda: ntpnb.gradient_flow(TOY, None), "log_times"),
    "a time of e^(1e300)": (
        lambda: ntpnb.gradient_flow(TOY, [1e300]),
        # Rounding decides which of the two it is.
        "the gradient flow stopped .*: (steps too wild|Required step size)",
    ),
    "a flow that leads nowhere": (lambda: ntpnb.gradient_flow(BOTH_WAYS, [1.0]), "strict pairs"),
    "a huge radius": (lambda: ntpnb.regularization_path(TOY, [1e300]), "path stopped .* extreme"),
    "a tiny radius": (lambda: ntpnb.regularization_path(TOY, [1e-300]), "path stopped .* extreme"),
    "a radius of zero": (lambda: ntpnb.regularization_path(TOY, [0.0]), r"radii\[0\] is 0"),
    "growing ridges": (lambda: ntpnb.ridge_path(TOY, [0.0, 1.0]), "log_multipliers"),
    "a vector to compare": (lambda: ntpnb.compare(np.ones(3), TOY), r"W has shape \(3,\)"),
    "a tensor to compare": (lambda: ntpnb.compare(Tensor(), TOY), "W .*detach"),
    "rows that are no slice": (lambda: TOY.block([1]), "rows is of type list"),
    "no condition": (lambda: thresholds.first_dimension(TOY, 3), "holds is of type int"),
    "a loss that is a number": (
        lambda: attention.descend_head(FIGURE2, lambda outputs, label: 3, ntpnb.GD(0.1), 5),
        "loss returned int",
    ),
    "a loss without derivatives": (
        lambda: attention.descend_head(
            FIGURE2, lambda outputs, label: (outputs, outputs), ntpnb.GD(0.1), 5
        ),
        "loss returned arrays of shapes",
    ),
    "a path that is none": (lambda: ntpnb.load(None), "path is of type NoneType"),
    "a number as a path": (lambda: TOY.save(3), "path is of type int"),
    "a seed as a generator": (lambda: thresholds.random_data(0, 5, 1, 3), "rng is of type int"),
    "fewer than no tokens": (lambda: thresholds.separability_threshold(-1, 1), "vocab_size -1"),
    "no shares": (lambda: thresholds.separability_threshold(5, {}), r"support_size is \{\}"),
    "a ragged support": (
        lambda: thresholds.compatible_dimension([1, [2]]),
        "support is not a table of truth values",
    ),
    "no condition of numbers": (lambda: thresholds.first_true(3, 9, 1, 1), "holds is of type int"),
    "no numbers to try": (lambda: thresholds.first_true(bool, -1, 1, 1), "top is -1"),
    "no cells": (lambda: thresholds.sweep(None, 1), "cells is of type NoneType"),
    "half a trial": (lambda: thresholds.sweep([(3, 1, 4)], 0.5), "trials has dtype float64"),
    "trials of other cells": (lambda: thresholds.sweep([(3, 1, 4)], [1, 2]), "each of the 1 cell"),
    "fewer than no trials": (lambda: thresholds.sweep([(3, 1, 4)], -1), "trials is -1"),
    "a text as a seed": (lambda: thresholds.sweep([(3, 1, 4)], 1, "x"), "seed is of type str"),
    "nothing to draw with": (
        lambda: thresholds.sweep([(3, 1, 4)], 1, draw=None),
        "draw is of type NoneType",
    ),
    "a letter as betas": (lambda: ntpnb.adam_metric(TOY, np.array("a")), "betas is not"),
    "a table of betas": (lambda: ntpnb.adam_metric(TOY, [1, [2]]), "betas is not"),
    "an array as a norm": (lambda: ntpnb.max_margin(TOY, norm=np.array([])), "norm is array"),
    "a norm that is none": (lambda: ntpnb.max_margin(TOY, norm="l1"), "norm is 'l1'; .*frobenius"),
    "an array as a kind": (lambda: datasets.attention_trials(kind=np.array([])), "kind is array"),
    "an array as an embedding": (
        lambda: NextTokenData.from_text("a b c d", embedding=np.array([])),
        "embedding is array",
    ),
    "a letter as words": (lambda: ntpnb.report(TOY, words=np.array("a")), "words is of type ndarr"),
    "an angle of words": (lambda: REPORT.log10_steps("a"), "degrees is of type str"),
    "an angle that is none": (lambda: REPORT.log10_steps(np.nan), "degrees is nan"),
    "a row after the last": (lambda: REPORT.row_name(3), r"row is 3; it must .* \(below 3\)"),
    "a row before the first": (lambda: REPORT.row_name(-1), "row is -1"),
    "a context that there is not": (lambda: REPORT.context_name(3), "context is 3; .*_groups"),
    "no context": (lambda: REPORT.context_name(None), "context is of type NoneType"),
    "no pair": (lambda: REPORT.spell((1.0, 0)), "pair is of type tuple; Pair is needed"),
    "bytes as a report": (lambda: ntpnb.report(b"some text"), "data is of type bytes"),
}


def test_integers_may_be_written_otherwise():
    assert datasets.overparameterized(support_size=True).support.sum(1).tolist() == [1] * 50
    assert datasets.text_corpus(np.int8(2)) == datasets.text_corpus(2.0)


@pytest.mark.parametrize("case", slow_but(NASTY.keys() - {"a tiny radius"}, NASTY))
def test_one_sentence_of_the_package(case):
    call, named = NASTY[case]
    with pytest.raises((ValueError, TypeError, ConvergenceError), match=named) as refused:
        call()
    assert "\n" not in str(refused.value)
    raised_in = Path(traceback.extract_tb(refused.tb)[-1].filename)
    assert PACKAGE in raised_in.parents, f"raised in {raised_in}"


def test_an_error_of_the_caller_s_function_is_the_caller_s():
    with pytest.raises(ZeroDivisionError):
        NextTokenData.from_sequences([[0, 1]], lambda context: 1 / 0)


def test_an_embedding_may_reuse_its_array():
    buffer = np.zeros(2)

    def embed(context):
        buffer[:] = context[-1], len(context)
        return buffer

    data = NextTokenData.from_sequences([[3, 1, 2]], embed)
    assert data.context_embeddings.tolist() == [[3.0, 1.0], [1.0, 2.0]]
