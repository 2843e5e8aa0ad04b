"""What cannot be used ends in one sentence of the package, which names it, whatever it is.

The first part gives every argument of the public functions all that it could be taken for; the
second is the table of what each function says to the letter, also of parts that do not fit each
other.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import public_names
import pytest
import scipy.sparse as sp
from problems import l24, t24
from refusals import assert_in_words, assert_numbers, in_time

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, attention, datasets, thresholds
from ntpnb_book import (
    descend_factors,
    descend_heads,
    features,
    heads_loss,
    local_balance,
    ranking_floor,
)
from ntpnb_book.authors_runs import authors_curve, authors_trials

TOY = datasets.toy()
FIGURE2 = datasets.figure2()
BIAS = ntpnb.implicit_bias(TOY)
REPORT = ntpnb.report(TOY)
BOTH_WAYS = NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
START = features.joint_init(TOY, 3, 0.1, 0)
BATCH = np.ones((4, 4))


class Tensor:
    """A tensor of another library, which does not let numpy read it, and says why."""

    def __init__(self, why):
        self._why = why

    def __array__(self, dtype=None, copy=None):
        raise self._why


class Broken:
    """Looks like a sequence, and is none."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise KeyError(i)


TRACKING = Tensor(RuntimeError("Can't call numpy() on Tensor that requires grad."))
ON_DEVICE = Tensor(TypeError("can't convert cuda:0 device type tensor. Use Tensor.cpu() first."))


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


P = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
STATES = [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]
ATTENTION = {"data": FIGURE2, "W": BATCH, "init": BATCH}
OWN = {
    NextTokenData: {
        "context_embeddings": np.eye(2),
        "target_probs": P,
        "context_probs": [0.5, 0.5],
        "token_embeddings": np.eye(3, 5),
        "candidate_counts": np.ones((2, 3)),
        "context_groups": [1, 2],
    },
    NextTokenData.from_hidden_states: {"hidden": STATES, "next_tokens": [2, 0, 1]},
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
    [], [[]], [[], [1]], [None], ["a"], [[1, "a"]], [[10**400]], TRACKING, [TRACKING],
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


# -- what is said ---------------------------------------------------------------------------------


def flat_loss(outputs, label):
    return outputs, outputs


def balance_of_the_circle(selected):
    return local_balance(CIRCLE, selected, attention.cross_entropy)


DECODER = t24(0)
CIRCLE = NextTokenData.from_attention(np.eye(4), [[0, 1, 3], [1, 2, 3], [2, 0, 3]], [0, 1, 2])
SOFT_CIRCLE = CIRCLE.replace(target_probs=CIRCLE.candidates / 3)
TWO_STARTS = features.joint_init(TOY, 4, 1.0, 1, runs=2)
MASKED = np.ma.masked_array([0, 1, 1], mask=[False, True, False])
RUN = ntpnb.descend(TOY, ntpnb.GD(0.5), 9)
TWO_RUNS = ntpnb.descend([TOY] * 2, ntpnb.GD(1.0), 2)
FINITE, SVM = BIAS.finite_part, BIAS.max_margin
ONE_THEORY = "^finite and svm have {}; give one of each per problem$"
NO_NUMBER_OF_JOBS = "it must be an integer other than zero, of at most nine digits$"
NO_CONTEXTS = {"^num_contexts is 0; it must be a positive integer": {"num_contexts": 0}}
NO_SIZES = {
    f"^{name} is {number}; it must be an integer": {name: number}
    for name in ("support_size", "vocab_size")
    for number in (2.5, np.nan)
} | {
    "^a size in support_size is 2.5; it must be an integer": {"support_size": {1: 0.5, 2.5: 0.5}},
    "^the shares in support_size is not .* numbers": {"support_size": {1: "half", 2: 0.5}},
}
NO_NUMBERS = {
    f"^{name} is of type str; it must be an integer": {name: "2"}
    for name in ("support_size", "vocab_size")
}
NO_STEP = {
    f"step is {step}; it must be positive and finite": {"step": step}
    for step in (0, -1.0, np.nan, np.inf)
}
NO_WEIGHTS = {
    r"W has shape \(2, 5\); its last two axes must be \(5, 2\)": {"W": np.zeros((2, 5))},
    r"W has shape \(10,\); its last two axes must be \(5, 2\)": {"W": np.zeros(10)},
    r"W has shape \(\); its last two axes must be \(5, 2\)": {"W": 0.0},
    "W has entries that are not finite": {"W": np.full((5, 2), np.nan)},
    "^W has entries that are not finite": {"W": np.full((2, 5, 2), np.inf)},
    r"W has the entry 2e\+151; none may be larger than 1e\+151": {"W": np.full((5, 2), -2e151)},
    "W is not a rectangular array of numbers": {"W": "W"},
    "W is a sparse matrix": {"W": sp.eye_array(5)},
    "W is a masked array": {"W": np.ma.zeros((5, 2))},
}

# By what is said, what a function is given in place of its usual arguments.
VALUES = {
    NextTokenData: {
        "context_embeddings is not a rectangular array of numbers": {
            "context_embeddings": Broken()
        },
        "context_embeddings is not a rectangular array of numbers: .*generator": {
            "context_embeddings": (x for x in [[1.0]])
        },
        "context_embeddings .*detach": {"context_embeddings": TRACKING},
        "context_embeddings has 2 rows .* both need one row per context": {
            "target_probs": np.eye(5)
        },
        "target_probs row 0 sums to 100": {"target_probs": [[50, 50], [1, 0]]},
        "target_probs row 1 sums to 1.00000002; it must sum to one": {
            "target_probs": [[0.5, 0.5, 0], [0, 0, 1 + 2e-8]]
        },
        "target_probs has 1 dimension; it needs 2": {"target_probs": sp.coo_array([0.5, 0.5])},
        r"context_embeddings\[1, 0\] is inf; every entry must be finite": {
            "context_embeddings": [[0.0, 1.0], [np.inf, 0.0]]
        },
        r"token_embeddings\[1, 0\] is nan; every entry must be finite": {
            "token_embeddings": [[1.0], [np.nan], [0.0]]
        },
        "context_embeddings has 3 dimensions; it needs 2": {
            "context_embeddings": np.ones((2, 2, 2))
        },
        r"context_embeddings has shape \(0, 2\) .* at least one context": {
            "context_embeddings": np.zeros((0, 2)),
            "target_probs": np.zeros((0, 3)),
        },
        r"context_embeddings has shape \(2, 0\) .* one embedding dimension": {
            "context_embeddings": np.zeros((2, 0))
        },
        "context_probs sums to 1.1; it must sum to one": {"context_probs": [0.5, 0.6]},
        r"context_probs\[1\] is 0; every context needs a positive probability": {
            "context_probs": [1.0, 0.0]
        },
        r"context_probs\[1\] is -0.5; every context needs a positive probability": {
            "context_probs": [1.5, -0.5]
        },
        "context_probs has 3 rows; it needs 2": {"context_probs": [0.5, 0.25, 0.25]},
        "context_probs has 2 dimensions; it needs 1": {"context_probs": [[0.5, 0.5]]},
        "token_embeddings has 2 rows; it needs 3": {"token_embeddings": np.eye(2)},
        "token_embeddings has no columns; it needs at least one": {
            "token_embeddings": np.zeros((3, 0))
        },
        r"context_groups has shape \(1,\); it needs one name a context, \(2,\)": {
            "context_groups": [0]
        },
        "context_groups has dtype float64 and 1 dimension; it must be a flat sequence "
        "of integers": {"context_groups": [0.0, 1.0]},
        "context_groups puts row 1 into group 4, whose first row has another embedding": {
            "context_groups": [4, 4]
        },
        **{
            rf"{name} is a masked array, .* or write what it means": {name: masked}
            for name, masked in {
                "context_embeddings": np.ma.masked_array(np.eye(2), mask=[[1, 0], [0, 0]]),
                "target_probs": np.ma.masked_equal(P, 0.0),
                "context_probs": np.ma.masked_array([0.5, 0.5], mask=False),
                "token_embeddings": np.ma.masked_array(np.eye(3)),
                "candidate_counts": [np.ma.masked_array([1, 1, 1], mask=[1, 0, 0]), [1, 1, 1]],
                "context_groups": np.ma.masked_array([1, 2], mask=[True, False]),
            }.items()
        },
        **{
            f"{name} is a sparse matrix; a dense array is needed": {name: sp.eye_array(8)}
            for name in ("context_embeddings", "context_probs", "token_embeddings")
        },
        "support_threshold is 0.55, and target_probs row 1 has": {
            "target_probs": [[0.6, 0.4, 0.0], [0.0, 0.5, 0.5]],
            "support_threshold": 0.55,
        },
        "support_threshold is -0.1": {"support_threshold": -0.1},
        "support_threshold is 1.0": {"support_threshold": 1.0},
        "support_threshold is nan": {"support_threshold": np.nan},
    },
    NextTokenData.from_sequences: {
        r"sequences\[0\] holds the token 5; .* in 0…4": {"sequences": [[0, 5, 1]]},
        r"sequences\[1\] holds the token -1": {"sequences": [[0, 1], [-1, 0]]},
        r"sequences\[0\] has dtype float64": {"sequences": [[0, 1.5]]},
        r"sequences\[0\] has dtype int\d+ and 2 dim": {"sequences": [[[0], [1]]]},
        r"sequences\[0\] is a masked array": {"sequences": [MASKED]},
        "context_length is 0; it must be a positive integer": {"context_length": 0},
        "at least one sequence must be longer than 2": {
            "sequences": [[0, 1], [1]],
            "context_length": 2,
        },
        "at least one sequence must be longer than 1": {"sequences": []},
        "449985000 tokens in all, about 3.6 GB.*context_length": {
            "sequences": [[0] * 30_000],
            "context_length": None,
        },
        "context_length = 15000 have 375000000 .*smaller": {
            "sequences": [[0] * 40_000],
            "context_length": 15_000,
        },
        r"context_embeddings\[0, 0\] is nan": {"embed": lambda context: [np.nan]},
        "what embed returned is a masked array": {"embed": lambda context: np.ma.ones(1)},
        "what embed returned .*detach": {"embed": lambda context: TRACKING},
        r"embed .* shape \(1, 1\) for the context \(0,": {"embed": lambda context: [[1.0]]},
        r"embed .* shape \(2,\) for the context \(0, 1, 2, 3, 4, 5, \.\.\.\); "
        "a vector of length 1": {
            "sequences": [range(9)],
            "context_length": None,
            "vocab_size": None,
            "embed": lambda context: [1.0] * max(1, len(context) - 5),
        },
    },
    NextTokenData.from_attention: {
        r"labels\[0\] is 3, which does not occur in sequences\[0\]": {"labels": [3, 1]},
        r"labels\[0\] is -1, which does not occur": {"labels": [-1, 1]},
        r"sequences\[1\] holds the token 4; tokens must lie in 0…3": {
            "sequences": [[0, 1], [1, 4]]
        },
        r"sequences\[1\] is empty; its last token is the query": {"sequences": [[0, 1], []]},
        r"labels has shape \(0,\) for 0 sequences; at least one": {"sequences": [], "labels": []},
        r"labels has shape \(1,\) for 2 sequences": {"labels": [0]},
        r"labels has dtype int\d+ and 2 dimensions": {"labels": [[0], [1]]},
        "embeddings has 1 dimension; it needs 2": {"embeddings": np.ones(4)},
        r"embeddings\[0, 0\] is nan": {"embeddings": np.full((4, 4), np.nan)},
        "embeddings is a masked array": {"embeddings": np.ma.ones((4, 4))},
    },
    NextTokenData.from_hidden_states: {
        "hidden .* requires grad .*detach": {"hidden": TRACKING},
        r"hidden .* cuda:0 .*\.cpu\(": {"hidden": ON_DEVICE},
        r"hidden has shape \(2,\); it needs \(n, d\)": {"hidden": [1.0, 2.0], "next_tokens": [0]},
        r"hidden has shape \(0, 3\)": {"hidden": np.ones((0, 3)), "next_tokens": []},
        r"hidden has shape \(3, 0\)": {"hidden": np.ones((3, 0))},
        r"next_tokens has shape \(2,\) and hidden \(3, 2\)": {"next_tokens": [0, 1]},
        r", shape \(1, 3\); the states before tokens\[:, 1:\] are hidden\[:, :-1\]$": {
            "hidden": [STATES],
            "next_tokens": [[0, 1]],
        },
        r"next_tokens has shape \(3, 1\) .* each hidden state, shape \(3,\)$": {
            "next_tokens": [[0], [1], [2]]
        },
        r"next_tokens has shape \(3,\) .* each hidden state, shape \(1, 3\)$": {"hidden": [STATES]},
        "no position that counts: all 3": {"next_tokens": [-100] * 3},
        r"next_tokens\[1\] is -1; .* −?-100": {"next_tokens": [0, -1, 1]},
        r"next_tokens\[0, 1\] is 5; .* 0…4": {"hidden": [STATES], "next_tokens": [[0, 5, 1]]},
        "^next_tokens holds the token 1099511627776": {
            "next_tokens": [0, 2**40, 1],
            "vocab_size": None,
        },
        "next_tokens has dtype float64": {"next_tokens": [0.0, 1.0, 2.0]},
        r"hidden\[0\] has an entry that is nan; all must be finite": {
            "hidden": [[1.0, np.nan], *STATES[1:]]
        },
        r"hidden\[0\] .* inf": {"hidden": [[-np.inf, 0], *STATES[1:]]},
        r"hidden\[0\] .* 1e\+60": {"hidden": [[1e60, 0], *STATES[1:]]},
        "hidden is not .* complex128": {"hidden": np.ones((3, 2)) * 1j},
        "hidden is a masked array": {"hidden": np.ma.ones((3, 2))},
        "vocab_size is 0": {"vocab_size": 0},
        r"^labels has shape \(2,\); one label is .* state, shape \(3,\)$": {"labels": ["a", "b"]},
        r"^labels has shape \(\); one label is needed": {"labels": "abc"},
    },
    NextTokenData.from_text: {
        "embedding is 'glove'; it must be one of random, mean": {"embedding": "glove"},
        "dim is 5;.*a multiple of": {"embedding": "concatenated", "dim": 5},
        "dim is 0": {"dim": 0},
        r"embedding the contexts needs a dense array of \d+ × 1000000000 .*smaller dim": {
            "embedding": "random",
            "dim": 10**9,
        },
        "context_length is 1.5": {"context_length": 1.5},
        "context_length is 0": {"context_length": 0},
        "seed is -1": {"seed": -1},
    },
    ntpnb.cross_entropy: NO_WEIGHTS,
    ntpnb.gradient: NO_WEIGHTS,
    ntpnb.excess_loss: NO_WEIGHTS,
    ntpnb.GD: NO_STEP,
    ntpnb.NGD: NO_STEP,
    ntpnb.Adam: NO_STEP
    | {
        r"^beta1 is 1.0; it must lie in \[0, 1\)": {"beta1": 1.0},
        r"^beta2 is -0.1; it must lie in \[0, 1\)": {"beta2": -0.1},
        r"^beta2 is nan; it must lie in \[0, 1\)": {"beta2": np.nan},
        "^epsilon is -1e-09; it must be nonnegative$": {"epsilon": -1e-9},
        "^decay is -0.5; it must be nonnegative$": {"decay": -0.5},
    },
    ntpnb.SGD: NO_STEP
    | {
        "^seed is -1; it must be a nonnegative integer": {"seed": -1},
        "^batch_size is 0; it must be a positive integer": {"batch_size": 0},
        "^batch_size is 1.5; it must be a positive integer": {"batch_size": 1.5},
        "^over is 'tokens'; it must be one of contexts, sequences": {"over": "tokens"},
    },
    ntpnb.descend: {
        "^data is an empty list; it needs at least one problem$": {"data": []},
        r"data\[1\] has W \(5, 8\) .* needs equal shapes": {"data": [TOY, DECODER]},
        r"target_probs \(6, 5\), data\[0\] .* equal shapes": {"data": [TOY, t24(0, d=2)]},
        r"data\[1\] and data\[0\] must both have token": {
            "data": [TOY, t24(0, m=3, d=2, tokens=5)]
        },
        "steps is -1; it must be a nonnegative integer": {"steps": -1},
        r"init has shape \(2, 5\); its last two axes": {"init": np.zeros((2, 5))},
        r"init has shape \(1, 5, 2\); it needs \(5, 2": {"init": np.zeros((1, 5, 2))},
        r"init has shape \(5, 2\); it needs \(1, 5, 2": {"data": [TOY]},
        "init has entries that are not finite": {"init": np.full((5, 2), np.nan)},
        "record is empty; at least one number is needed": {"record": []},
        r"record\[2\] is 1 after 2; record must increase": {"record": [0, 2, 1]},
        "record has the step -1; all must lie in 0…3": {"record": [-1, 2]},
        "record has the step 4; all must lie in 0…3": {"record": [0, 4]},
        "record has dtype float64 .* flat sequence of integers": {"record": [0.0, 1.0]},
        "record is a masked array": {"record": MASKED},
        r"^step is 1e\+160, too large: after 1 step W has the entry \S+e\+159; none may be "
        r"larger than 1e\+151$": {"method": ntpnb.GD(1e160), "record": [0, 1, 3]},
        "step is 1e": {"method": ntpnb.GD(1e300)},
    },
    attention.descend_head: {
        r"data\[0\] needs token_embeddings and one label per row": {"data": DECODER},
        r"data\[0\] needs token_embeddings and one label": {"data": t24(0, tokens=8, size=2)},
        r"data\[1\] needs token_embeddings and one label": {"data": [FIGURE2, DECODER]},
        "data is an empty list": {"data": []},
        r"data\[1\] has W \(7, 7\) .* needs equal shapes": {"data": [FIGURE2, l24(0, d=7)]},
        r"head has shape \(5, 4\); it needs \(4, 4\), or \(1, 4,": {"head": np.zeros((5, 4))},
        r"head has shape \(4,\); it needs \(4, 4\)": {"head": np.zeros(4)},
        r"head has shape \(3, 4, 4\); it needs \(4, 4\)": {
            "data": [FIGURE2] * 2,
            "init": None,
            "head": np.zeros((3, 4, 4)),
        },
        "head has entries that are not finite": {"head": np.full((4, 4), np.nan)},
        "loss returned int": {"loss": lambda outputs, label: 3},
        "loss returned arrays of shapes": {"loss": flat_loss},
    },
    attention.attention_mass: {r"W has shape \(8, 6\); its last two axes": {"W": np.zeros((8, 6))}},
    attention.pseudo_data: {r"W has shape \(8, 6\); its last two axes": {"W": np.zeros((8, 6))}}
    | {
        rf"threshold is {threshold}.* 0 < ignore_below <= threshold < 1/V": {
            "threshold": threshold,
            "ignore_below": below,
        }
        for threshold, below in [(0.25, 1e-3), (0.1, 0.2), (0.11, 0.0), (0.12, -1.0)]
    },
    ntpnb.adam_metric: {
        r"^data have no bowl, F is \{0\}": {"data": NextTokenData([[1.0, 2.0]], [[0, 1, 0]])},
        "^data have no bowl": {"data": NextTokenData([[0.0]], [[0.5, 0.5]])},
        "^data have token embeddings": {"data": FIGURE2},
        "^betas has 0 dimensions": {"betas": 0.9},
        r"^betas has shape \(1,\); it needs": {"betas": (0.9,)},
        "^beta2 is 1.0": {"betas": (0.9, 1.0)},
        "^steps is 15999; .* 16000": {"betas": (0.9, 0.999), "steps": 15_999},
        "^steps is 0": {"steps": 0},
        "^seed is -1": {"seed": -1},
    },
    ntpnb.max_margin: {
        r"metric has shape \(1, 1\)": {"metric": [[1.0]]},
        r"metric\[0, 0\] is 0; it must be positive": {"metric": np.zeros((5, 2))},
        r"metric\[0, 0\] is -2; it must be positive": {"metric": np.full((5, 2), -2.0)},
        r"metric\[0, 0\] is nan": {"metric": np.full((5, 2), np.nan)},
        "must be left out": {"metric": np.ones((5, 2)), "norm": "max"},
        "norm is 'l1'; .*frobenius": {"norm": "l1"},
    },
    ntpnb.gradient_flow: {
        r"init has shape \(1, 5, 2\); it needs \(5, 2\)": {"init": np.zeros((1, 5, 2))},
        "strict pairs": {"data": BOTH_WAYS, "init": None},
    },
    ntpnb.regularization_path: {
        r"^radii\[0\] is 0; radii must be pos": {"radii": [0.0, 1.0]},
        "is -1; radii m": {"radii": [-1.0, 1.0]},
    },
    ntpnb.ridge_path: {"log_multipliers": {"log_multipliers": [0.0, 1.0]}},
    ntpnb.compare: NO_WEIGHTS
    | {
        "^W is not a rectangular array of numbers": {"W": [np.ones((5, 2)), np.ones((5, 3))]},
        "data has none for 'another', which W names": {
            "W": dict.fromkeys(["step 1", "another"], np.ones((5, 2))),
            "data": {"step 1": TOY},
        },
        "W names no matrix": {"W": {}, "data": {"step 1": TOY}},
        r"W\['step 1'\] has 3 dimensions": {"W": {"step 1": np.ones((1, 5, 2))}},
    },
    RUN.compare: {
        ONE_THEORY.format(r"lengths \[1, 1\] \(None: not a list\) for one run"): {
            "finite": [FINITE],
            "svm": [SVM],
        }
    },
    TWO_RUNS.compare: {
        ONE_THEORY.format(r"lengths \[None, None\] .* for a batch of 2 runs"): {},
        ONE_THEORY.format(r"lengths \[2, None\] .* for a batch of 2 runs"): {
            "finite": [FINITE] * 2
        },
    },
    ntpnb.report: {
        r"^W has shape \(2, 1, 5, 2\).* or a stack of them is needed": {
            "W": np.zeros((2, 1, 5, 2))
        },
        r"^W has shape \(0, 5, 2\).* or a stack of them is needed": {"W": np.zeros((0, 5, 2))},
        "words has 2 entries; the vocabulary has 5": {"words": ["a", "b"]},
        "words has the number 5 where 4 is needed": {
            "words": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 5}
        },
        "words has the number 0 where 1 is needed": {
            "words": {"a": 0, "b": 0, "c": 1, "d": 2, "e": 3}
        },
        "the numbers in words": {"words": {"a": 0, "b": 1, "c": "2"}},
    },
    REPORT.log10_steps: {
        "degrees is 0.* between 0 and 90": {"degrees": 0},
        "degrees is 90.* between 0 and 90": {"degrees": 90},
    },
    REPORT.row_name: {
        "row is -1": {"row": -1},
        r"row is 3; it must .* \(below 3\)": {"row": 3},
    },
    REPORT.context_name: {"context is 3; .*_groups": {"context": 3}},
    datasets.overparameterized: {
        "support_size is 0; it must lie between 1 and": {"support_size": 0},
        "support_size is 11; it must lie between 1 and": {"support_size": 11},
    },
    datasets.attention_trials: {
        "kind is 'tree'; it must be one of": {"kind": "tree"},
        "tokens is 'same'; it must be one of": {"tokens": "same"},
        "labels is 'E'; it must be one of": {"labels": "E"},
        'labels="priority" never gives cyclic data': {"kind": "cyclic", "labels": "priority"},
        "length is 1; a strict pair needs sequences of two different tokens": {"length": 1},
        "vocab_size is 1; a strict pair needs": {"vocab_size": 1},
        "length is 9; distinct tokens allow at most vocab_size = 8": {"length": 9},
        "length is 2.5": {"length": 2.5},
    },
    **{
        function: {
            f"{argument} is {number}; .*between 1 and {most}": {argument: number}
            for number in (0, most + 1)
        }
        for function, argument, most in [
            (datasets.text_corpus, "num_verses", 106),
            (datasets.declaration_corpus, "num_paragraphs", 24),
            (datasets.text_corpus(13).windows, "length", 280),
        ]
    },
    datasets.TextCorpus(("a", "b"), ()).windows: {
        "length is 1; it must lie between 1 and 0 words": {"length": 1}
    },
    thresholds.separability_threshold: {
        "^" + re.escape(f"support_size is {sizes}{why}") + "$": {"support_size": sizes}
        for why, several in {
            " and vocab_size 5; there must be at least two tokens, and sizes between 1 and "
            "their number": [0, 6, {1: 0.5, 6: 0.5}],
            "; shares must be >= 0 and sum to one": [{2: 0.5}, {1: 1.5, 2: -0.5}],
        }.items()
        for sizes in several
    }
    | NO_SIZES
    | {"^1000001 tokens are out of support; there may be 0 to 1000000$": {"vocab_size": 10**6 + 3}},
    thresholds.pooled_law: {
        "^1000001 tokens are out of support; there may be 0 to 1000000$": {"outside": 10**6 + 1},
        "^outside is -1; it must be a nonnegative integer": {"outside": -1},
        "^support_size is 0; it must be a positive integer": {"support_size": 0},
    },
    thresholds.compatibility_threshold: NO_SIZES,
    thresholds.transition_width: NO_SIZES | NO_CONTEXTS,
    thresholds.random_data: NO_SIZES | NO_CONTEXTS,
    thresholds.sweep: {
        "trials has dtype float64 and 0 dim": {"cells": [(3, 1, 4)], "trials": 0.5},
        "each of the 1 cell": {"cells": [(3, 1, 4)], "trials": [1, 2]},
    },
    thresholds.first_true: {
        "top is -1": {"top": -1, "guess": 1},
        "^guess is nan; it must be a finite number$": {"top": 9, "guess": np.nan},
        "^step is -1; it must be a nonnegative number$": {"top": 9, "guess": 1, "step": -1},
    },
    thresholds.compatible_dimension: {
        r"^support has dtype int\d+ and 2 dimensions; it must be a table of": {"support": [[1, 0]]},
        "^support has dtype bool and 1 dimension; it must be a table of": {
            "support": [True, False]
        },
        "^support has dtype bool and 3 dimensions; it must be a table of": {
            "support": np.zeros((2, 2, 2), bool)
        },
        r"^support\[0, 1\] is nan; every entry must be finite": {
            "support": sp.csr_array([[1.0, np.nan]])
        },
        r"^support\[0, 1\] is inf; every entry must be finite": {
            "support": sp.csr_array([[1.0, np.inf]])
        },
        "^support is not a rectangular array of numbers": {"support": sp.csr_array([[1.0, 1j]])},
    },
    ntpnb.loss_floor: {
        f"^n_jobs is {number}; {NO_NUMBER_OF_JOBS}": {"n_jobs": number}
        for number in (0, 2.5, 2**70)
    },
    # Of the book's own functions:
    features.logit_margin: {
        "support has 1 dimension; it needs 2": {"support": [1, 0]},
        r"support\[0, 1\] is 0.5; entries must be 0 or 1": {"support": [[1, 0.5]]},
        "support row 1 is all zero": {"support": [[1, 0], [0, 0]]},
        "their product must be at most 1500": {"support": np.tril(np.ones((60, 60)))},
    },
    features.nuclear_path: {
        "at most -1": {"log_multipliers": [1.0]},
        "log_multipliers must be a flat sequence": {"log_multipliers": []},
        "needs a linear decoder": {"data": DECODER.replace(token_embeddings=np.eye(5))},
    },
    features.joint_init: {"scale is 0": {"scale": 0}},
    features.descend_jointly: {
        "init has shapes": {"data": DECODER},
        r"of the shapes \[\]; exactly one": {"data": [], "init": TWO_STARTS},
        r"of the shapes \[\(3, 5\), .*; exactly one": {
            "data": [TOY, DECODER],
            "init": TWO_STARTS,
        },
        "too large": {"step": 1e9, "steps": 10},
    },
    features.late_joint_flow: {
        r"log_times\[0\] is 4; log_start = 5 is the least": {"log_start": 5.0, "log_times": [4.0]},
        r"log_times\[1\] is 6 after 6; log_times must increase": {"log_times": [6.0, 6.0]},
        r"log_times\[1\] is inf": {"log_times": [6.0, np.inf]},
        "takes one run": {"start": TWO_STARTS},
    },
    descend_heads: {
        "data is an empty list": {"problems": [], "init": np.zeros((0, 2, 4, 4))},
        r"init has shape \(4, 4\); it needs \(1, number of heads": {
            "problems": [CIRCLE],
            "init": np.zeros((4, 4)),
        },
        "one label per row": {"problems": [TOY], "init": np.zeros((1, 2, 5, 2))},
    },
    descend_factors: {
        r"init has shape \(1, 4, 4\); it needs \(1, 8, rank\)": {
            "problems": [CIRCLE],
            "init": np.zeros((1, 4, 4)),
        },
    },
    heads_loss: {"one label per row": {"W": np.zeros((1, 4, 4)), "data": SOFT_CIRCLE}},
    ranking_floor: {
        "one label per row": {"data": SOFT_CIRCLE},
        "steps is 0": {"data": CIRCLE, "steps": 0},
        "a token occurs twice": {"data": l24(0, repeats=True)},
    },
    balance_of_the_circle: {
        "one token of each row": {"selected": [2, 1, 2]},
        # it would count from the end, as another token
        "token -1; tokens must lie in 0…3": {"selected": [0, 1, -1]},
        "token 4; tokens must lie in 0…3": {"selected": [0, 1, 4]},
        "contradicts itself": {"selected": [0, 1, 2]},
    },
    authors_trials: {"log is 'none'": {"log": "none"}},
    authors_curve: {
        "curve is 'none'": {"table": "fig5a_correlation", "curve": "none", "steps": [0]}
    },
}

TYPES = {
    NextTokenData: {"support_threshold is of type str": {"support_threshold": "0.1"}},
    NextTokenData.from_hidden_states: {
        r"^labels\[2\] is of type int; a str is needed$": {"labels": ["a", "b", 3]},
        r"^labels\[1\] is of type NoneType; a str is needed$": {"labels": ["a", None, "c"]},
        r"^labels\[0\] is of type list; a str is needed$": {"labels": [["a"], ["b", "c"], []]},
    },
    NextTokenData.from_text: {
        "text is of type bytes; a str is needed": {"text": b"we see"},
        "dim is of type str": {"dim": "5"},
        "seed is None; it must be a nonnegative integer": {"seed": None},
        "tokenizer is of type int; a function from a text to a list of strings is needed": {
            "tokenizer": 5
        },
        "what tokenizer returned is of type str; a list of strings is needed": {
            "tokenizer": str.upper
        },
        "entry 1 of what tokenizer returned is of type int": {
            "tokenizer": lambda text: ["a", 2, "b"]
        },
        "what tokenizer returned is of type NoneType": {"tokenizer": lambda text: None},
    },
    ntpnb.descend: {
        r"^data\[1\] is of type NoneType; NextTokenData is needed": {"data": [TOY, None]},
        "^method is of type str; one of GD, NGD, Adam, SGD or SteepestDescent is needed$": {
            "method": "gd"
        },
    },
    attention.descend_head: {"method is SGD": {"method": ntpnb.SGD(0.1)}},
    RUN.compare: {"finite is of type NoneType": {"finite": None}},
    ntpnb.compare: {
        "data is of type dict; where W has no names": {"data": {"step 1": TOY}},
    },
    ntpnb.report: {
        r"data is a path; .*read_text": {"data": Path(__file__)},
        "data is of type bytes": {"data": b"some text"},
        "words is of type str": {"words": "abcde"},
        "words is of type str_ascii_iterator": {"words": iter("abcde")},
        r"words\[2\]": {"words": ["a", "b", 3, "d", "e"]},
    },
    REPORT.log10_steps: {"degrees is of type str": {"degrees": "a"}},
    TOY.block: {"rows is of type list": {"rows": [1]}},
    ntpnb.load: {"path is of type NoneType": {"path": None}},
    TOY.save: {"path is of type int": {"path": 3}},
    thresholds.sweep: {
        r"^cells\[0\] is of type int; a tuple is needed$": {"cells": [5], "trials": 2},
        "^cells is of type NoneType; a sequence of tuples is needed$": {"cells": None, "trials": 2},
    },
    thresholds.separability_threshold: NO_NUMBERS,
    thresholds.compatibility_threshold: NO_NUMBERS,
    thresholds.transition_width: NO_NUMBERS,
    thresholds.random_data: NO_NUMBERS
    | {r"^rng is of type int; a numpy\.random\.Generator is needed$": {"rng": 0}},
    thresholds.first_true: {"holds is of type int": {"holds": 3, "top": 9, "guess": 1}},
    ntpnb.loss_floor: {f"^n_jobs is of .* {NO_NUMBER_OF_JOBS}": {"n_jobs": "two"}},
}

STOPPED = {
    # Rounding decides which of the two it is.
    ntpnb.gradient_flow: {
        "the gradient flow stopped .*: (steps too wild|Required step size)": {"log_times": [1e300]}
    },
    ntpnb.regularization_path: {
        "path stopped at log λ = -.* extreme": {"radii": [1e300]},
        r"path stopped at log λ = \d.* extreme": {"radii": [1e-300]},
    },
    ntpnb.ridge_path: {
        # Of these log-odds one would be wrong by a whole nat, with a residual of 3e-12.
        r"^near log λ = -\d+ rounding alone moves logits": {
            "data": NextTokenData([[1.0]], [[1e-12, 0.3, 0.7]]),
            "log_multipliers": [-10, -20, -25, -30, -34],
        }
    },
}
CASES = [
    pytest.param(error, function, given, said, id=f"{function.__qualname__}: {said}")
    for error, table in ((ValueError, VALUES), (TypeError, TYPES), (ConvergenceError, STOPPED))
    for function, rows in table.items()
    for said, given in rows.items()
]


@pytest.mark.parametrize(("error", "function", "given", "said"), CASES)
def test_one_sentence_of_the_package(error, function, given, said):
    with pytest.raises(error, match=said) as refused:
        function(**usual_arguments(function) | given)
    assert "\n" not in str(refused.value)
    if not function.__module__.startswith(("ntpnb_book.", __name__)):
        assert_in_words(refused.value)


def test_integers_may_be_written_otherwise():
    assert datasets.overparameterized(support_size=True).support.sum(1).tolist() == [1] * 50
    assert datasets.text_corpus(np.int8(2)) == datasets.text_corpus(2.0)


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
