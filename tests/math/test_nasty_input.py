"""What cannot be used ends in one sentence of the package, which names it, whatever it is.

The first part gives every argument of the public functions all that it could be taken for; the
second are calls whose parts do not fit each other, or what no list of values holds.
"""

import inspect
import re

import numpy as np
import public_names
import pytest
from quick import slow_but
from refusals import assert_in_words, assert_numbers, in_time

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, attention, datasets, thresholds
from ntpnb_book import features

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
BIAS = ntpnb.implicit_bias(TOY)
REPORT = ntpnb.report(TOY)
BOTH_WAYS = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
START = features.joint_init(TOY, 3, 0.1, 0)
BATCH = np.ones((4, 4))


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


# -- every argument of every function -------------------------------------------------------------

# What functions take under these names, and what some of them take otherwise or besides.
USUAL = {
    "data": TOY, "bias": BIAS, "order": BIAS.order, "finite": BIAS.finite_part,
    "svm": BIAS.max_margin, "W": np.ones((5, 2)), "constant_term": np.zeros((5, 2)),
    "method": ntpnb.GD(0.1), "step": 0.1, "steps": 3, "init": np.ones((5, 2)), "record": [0, 3],
    "log_times": [0.0, 3.0], "radii": [1.0, 2.0], "log_multipliers": [-1.0, -3.0],
    "norm": "frobenius", "gap": 1e-3, "betas": (0.0, 0.9), "seed": 1, "holds": ntpnb.is_separable,
    "vocab_size": 5, "support_size": 2, "num_contexts": 3, "dim": 3, "outside": 3, "support": TOY,
    "num_verses": 2, "num_paragraphs": 2, "words": list("abcde"),
}  # fmt: skip


def sweep_of_one_cell(trials, seed, holds, draw):
    return thresholds.sweep([(3, 1, 4)], trials, seed, holds=holds, draw=draw)


ATTENTION = {"data": FIGURE2, "W": BATCH, "init": BATCH}
OWN = {
    NextTokenData: {
        "context_embeddings": np.eye(3, 2),
        "target_probs": np.full((3, 4), 0.25),
        "context_probs": np.full(3, 1 / 3),
        "token_embeddings": np.eye(4, 5),
        "candidate_counts": np.ones((3, 4)),
        "context_groups": [1, 2, 3],
    },
    NextTokenData.from_sequences: {
        "sequences": [[0, 1, 2], [1, 1]],
        "embed": lambda context: [1.0, len(context)],
        "context_length": 1,
    },
    NextTokenData.from_attention: {
        "embeddings": np.eye(4, 5), "sequences": [[0, 1, 2], [1, 1]], "labels": [1, 1]
    },
    NextTokenData.from_text: {
        "text": "we see what we see", "context_length": 2, "tokenizer": str.split,
        "embedding": "mean",
    },
    TOY.block: {"rows": slice(0, 2)},
    BIAS.equal_subspace.project: {},
    ntpnb.equal_subspace(FIGURE2).reject: ATTENTION,
    ntpnb.GD: {},
    ntpnb.NGD: {},
    ntpnb.Adam: {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    ntpnb.SGD: {"batch_size": 2, "over": "contexts"},
    ntpnb.adam_metric: {"steps": 200},
    attention.descend_head: ATTENTION | {"loss": attention.squared, "head": np.eye(4)},
    attention.attention_mass: ATTENTION,
    attention.pseudo_data: ATTENTION | {"threshold": 1e-2, "ignore_below": 9e-3},
    datasets.attention_trials: {
        "num_trials": 2, "kind": "any", "vocab_size": 8, "num_sequences": 3, "length": 3,
        "tokens": "distinct", "labels": "sequence",
    },
    datasets.text_corpus(1).windows: {"length": 2},
    datasets.text_corpus(1).spell: {"tokens": [0, 1]},
    REPORT.context_name: {"context": 2},
    REPORT.row_name: {"row": 2},
    REPORT.spell: {"pair": REPORT.pairs[0]},
    thresholds.random_data: {"rng": np.random.default_rng(0)},
    sweep_of_one_cell: {"trials": 1, "draw": thresholds.random_data},
    features.descend_jointly: {"init": START},
    features.late_joint_flow: {"start": START, "log_start": 0.0},
    features.joint_init: {"scale": 0.1},
    features.logit_excess: {"logits": np.zeros((3, 5))},
    features.logit_margin: {"support": TOY.support},
    features.centred_support: {"support": TOY.support},
}  # fmt: skip

JUNK = [
    None, True, -1, 0, 1, 2, 1.5, -0.0, 1e-320, 1e300, 10**400, float("nan"), float("inf"), 1j,
    "a", "", "a text of a few words", b"a", object(), {}, {"a": 1}, set(), slice(None),
    [], [[]], [[], [1]], [None], ["a"], [[1, "a"]], [[10**400]], Tensor(), [Tensor()],
    [1, 2], [0.5, 0.5], [[1.0]], [[0.5, 0.5]], (0, 1), range(3), TOY, FIGURE2, [TOY, FIGURE2],
    np.array(0.5), np.array("a"), np.array([]), np.zeros((0, 3)), np.zeros((3, 0)),
    np.zeros((2, 3)), np.ones((5, 2)), np.ones((2, 5, 2)), np.eye(4), np.full((5, 2), np.nan),
    np.full((5, 2), -np.inf), np.full((5, 2), 1e200), np.full((5, 2), 1j), np.full((3, 5), 0.2),
    np.full((3, 5), -0.2), np.array([[object()]]), np.array(["2020-01-01"], dtype="M8[D]"),
    np.array([2**63], dtype=np.uint64), np.array([True, False]),
    np.ma.masked_array([1.0], [True]), np.zeros(1, [("x", float)]),
]  # fmt: skip
UNDEFINED = ["min_margin", "relative_margin", "angle", "step", "log_multiplier"]

# Objects of this package, which a caller may take for each other, and what is none of them.
OURS = "NextTokenData|ImplicitBias|TokenPriority|FinitePart|MarginSolution|JointStart|LateLaw"
NOT_OURS = [3, "a text", np.eye(2), ntpnb.GD, ntpnb.GD(0.5), {"data": TOY}]
AS_THEY_ARE = {"holds", "draw", "support"}  # functions of data, and a table or data


# Functions that the arguments above do not serve: of no data, of files, of functions of numbers.
# `first_true` and `sweep` have rows of their own below.
NOT_SERVED = {
    "ntpnb.attention.cross_entropy",
    "ntpnb.attention.softmax_squared",
    "ntpnb.attention.squared",
    "ntpnb.basics.saving.register",
    "ntpnb.datasets.figure2",
    "ntpnb.datasets.toy",
    "ntpnb.load",
    "ntpnb.problem.split_words",
    "ntpnb.thresholds.first_true",
    "ntpnb.thresholds.sweep",
}


def public_functions():
    """Those of the package, and of the mathematics of chapters, that the arguments above serve."""
    named = {
        name: thing
        for name, thing in public_names.public_things().items()
        if inspect.isfunction(thing)
        and (not name.startswith("ntpnb_book.") or name.startswith("ntpnb_book.features."))
    }
    own = {thing.__qualname__: thing for thing in OWN if thing not in named.values()}
    functions = {}
    for name, function in (named | own).items():
        needed = inspect.signature(function).parameters.values()
        arguments = usual_arguments(function)
        if arguments and all(p.name in arguments or p.default is not p.empty for p in needed):
            functions[name] = function
    assert named.keys() - functions.keys() == NOT_SERVED
    return functions


def usual_arguments(function):
    given = USUAL | OWN.get(function, {})
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


def arguments_of_ours(function):
    """Names of the arguments that must be objects of this package."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in AS_THEY_ARE and re.search(rf"\b({OURS})\b", str(parameter.annotation))
    ]


FUNCTIONS = public_functions()
CHECKED = [name for name in FUNCTIONS if not name.startswith(("ntpnb.training.", "ntpnb_book."))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_usual_arguments_are_accepted(name):
    assert FUNCTIONS[name](**usual_arguments(FUNCTIONS[name])) is not None


@pytest.mark.parametrize("name", CHECKED)
def test_any_value_of_an_argument_is_answered_or_named(name):
    function = FUNCTIONS[name]
    usual = usual_arguments(function)
    stems = [argument.rstrip("s") for argument in [*usual, "text"]]
    named = rf"(\b|_)({'|'.join(stems)})"
    for argument in usual:
        for junk in JUNK:
            with in_time([name, argument, junk]):
                try:
                    assert_numbers(function(**usual | {argument: junk}), but=UNDEFINED)
                except ConvergenceError as error:
                    assert_in_words(error)
                except (ValueError, TypeError) as error:
                    assert_in_words(error, named)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_object_of_the_wrong_type_is_named(name):
    function = FUNCTIONS[name]
    for argument in arguments_of_ours(function):
        for wrong in NOT_OURS:
            if function is ntpnb.report and isinstance(wrong, str):
                continue  # a text
            message = rf"^{argument}\b.* is of type {type(wrong).__name__}; .*needed$"
            with pytest.raises(TypeError, match=message):
                function(**usual_arguments(function) | {argument: wrong})


def test_objects_of_ours_are_found_among_the_arguments():
    found = [argument for name in FUNCTIONS for argument in arguments_of_ours(FUNCTIONS[name])]
    assert len(found) >= 40


# -- what does not fit, and what is more than a value ----------------------------------------------


def embed_with(value):
    return lambda: NextTokenData.from_sequences([[0, 1, 0]], lambda context: value)


# The call, and what its sentence must say.
NASTY = {
    "a generator": (lambda: NextTokenData((x for x in [[1.0]]), [[1, 0]]), "context_embeddings"),
    "no sequence": (lambda: NextTokenData(Broken(), [[1, 0]]), "context_embeddings"),
    "a tensor": (lambda: NextTokenData(Tensor(), [[1, 0]]), "context_embeddings .*detach"),
    "a tensor of a context": (embed_with(Tensor()), "what embed returned .*detach"),
    "a matrix of a context": (embed_with([[1.0]]), r"embed .* shape \(1, 1\) for the context \(0,"),
    "percentages": (lambda: NextTokenData([[1.0]], [[50, 50]]), "target_probs row 0 sums to 100"),
    "transposed": (lambda: NextTokenData(np.ones((3, 2)), np.eye(5)), "one row per context"),
    "a long context": (
        lambda: NextTokenData.from_sequences(
            [range(9)], lambda context: [1.0] * max(1, len(context) - 5)
        ),
        r"embed .* shape \(2,\) for the context \(0, 1, 2, 3, 4, 5, \.\.\.\); a vector of length 1",
    ),
    "a method's name": (
        lambda: ntpnb.descend(TOY, "gd", 9),
        "^method is of type str; one of GD, NGD, Adam, SGD or SteepestDescent is needed$",
    ),
    "half a step": (lambda: ntpnb.descend(TOY, ntpnb.GD(0.5), 2.5), "steps is 2.5"),
    "rows that are no slice": (lambda: TOY.block([1]), "rows is of type list"),
    "half a token": (lambda: datasets.attention_trials(length=2.5), "length is 2.5"),
    "a cell that is a number": (
        lambda: thresholds.sweep([5], 2),
        r"^cells\[0\] is of type int; a tuple is needed$",
    ),
    "a seed as a generator": (
        lambda: thresholds.random_data(0, 5, 2, 7),
        r"^rng is of type int; a numpy\.random\.Generator is needed$",
    ),
    "half a trial": (lambda: thresholds.sweep([(3, 1, 4)], 0.5), "trials"),
    "a step like a float's end": (lambda: ntpnb.descend(TOY, ntpnb.GD(1e300), 9), "step is 1e"),
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
    "a method that draws contexts": (
        lambda: attention.descend_head(FIGURE2, attention.squared, ntpnb.SGD(0.1), 1),
        "method is SGD",
    ),
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
    "no finite part": (
        lambda: ntpnb.descend(TOY, ntpnb.GD(0.5), 9).compare(None),
        "finite is of type NoneType",
    ),
    "a path that is none": (lambda: ntpnb.load(None), "path is of type NoneType"),
    "a number as a path": (lambda: TOY.save(3), "path is of type int"),
    "no condition of numbers": (lambda: thresholds.first_true(3, 9, 1, 1), "holds is of type int"),
    "no numbers to try": (lambda: thresholds.first_true(bool, -1, 1, 1), "top is -1"),
    "a guess that is none": (
        lambda: thresholds.first_true(bool, 9, np.nan, 1),
        "^guess is nan; it must be a finite number$",
    ),
    "a step backwards": (
        lambda: thresholds.first_true(bool, 9, 1, -1),
        "^step is -1; it must be a nonnegative number$",
    ),
    "no cells": (
        lambda: thresholds.sweep(None, 1),
        "^cells is of type NoneType; a sequence of tuples is needed$",
    ),
    "trials of other cells": (lambda: thresholds.sweep([(3, 1, 4)], [1, 2]), "each of the 1 cell"),
    "a norm that is none": (lambda: ntpnb.max_margin(TOY, norm="l1"), "norm is 'l1'; .*frobenius"),
    "an angle of words": (lambda: REPORT.log10_steps("a"), "degrees is of type str"),
    "a row before the first": (lambda: REPORT.row_name(-1), "row is -1"),
    "a row after the last": (lambda: REPORT.row_name(3), r"row is 3; it must .* \(below 3\)"),
    "a context that there is not": (lambda: REPORT.context_name(3), "context is 3; .*_groups"),
    "bytes as a report": (lambda: ntpnb.report(b"some text"), "data is of type bytes"),
}


def test_integers_may_be_written_otherwise():
    assert datasets.overparameterized(support_size=True).support.sum(1).tolist() == [1] * 50
    assert datasets.text_corpus(np.int8(2)) == datasets.text_corpus(2.0)


@pytest.mark.parametrize("case", slow_but(NASTY.keys() - {"a tiny radius"}, NASTY))
def test_one_sentence_of_the_package(case):
    call, said = NASTY[case]
    with pytest.raises((ValueError, TypeError, ConvergenceError), match=said) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert_in_words(refused.value)


def test_an_argument_that_there_is_not_is_named():
    with pytest.raises(TypeError, match="nothing"):
        TOY.replace(nothing=3)


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
