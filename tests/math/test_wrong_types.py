"""An argument that is an object of the wrong type: one sentence that names the argument."""

import inspect
import re

import numpy as np
import public_names
import pytest

import ntpnb
from ntpnb_book import features

# Types of arguments that a caller makes with this package, and may take for each other.
OURS = {
    "NextTokenData",
    "ImplicitBias",
    "TokenPriority",
    "FinitePart",
    "MarginSolution",
    "JointStart",
    "LateLaw",
}
TOY = ntpnb.datasets.toy()
ATTENTION = ntpnb.datasets.figure2()
BIAS = ntpnb.implicit_bias(TOY)

# Arguments that every function takes under these names, and those that one takes differently.
USUAL = {
    "data": TOY,
    "bias": BIAS,
    "order": BIAS.order,
    "finite": BIAS.finite_part,
    "svm": BIAS.max_margin,
    "W": np.zeros(TOY.shape),
    "method": ntpnb.GD(0.1),
    "steps": 2,
    "step": 0.1,
    "log_times": [0.0, 1.0],
    "log_multipliers": [-1.0],
    "radii": [1.0],
    "init": None,
    "seed": 0,
    "holds": ntpnb.is_separable,
    "support": TOY,
    "constant_term": np.zeros(TOY.shape),
}
SPECIAL = {
    "ntpnb.attention.attention_mass": {"data": ATTENTION, "W": np.zeros(ATTENTION.shape)},
    "ntpnb.attention.pseudo_data": {"data": ATTENTION, "W": np.zeros(ATTENTION.shape)},
    "ntpnb.attention.descend_head": {"data": ATTENTION, "loss": ntpnb.attention.squared},
    "ntpnb_book.features.descend_jointly": {"init": features.joint_init(TOY, 3, 0.1, 0)},
    "ntpnb_book.features.late_joint_flow": {
        "start": features.joint_init(TOY, 3, 0.1, 0),
        "log_start": 0.0,
    },
    "ntpnb_book.features.joint_init": {"dim": 3, "scale": 0.1},
    "ntpnb_book.features.logit_excess": {"logits": np.zeros((3, 5))},
}
# Functions of data, and a table or data.
NOT_OBJECTS = {"holds", "draw", "support"}
WRONG = [3, "a text", np.eye(2), ntpnb.GD, ntpnb.GD(0.5), {"data": TOY}]


def names_of_types(annotation):
    return set(re.findall(r"\w+", str(annotation))) & OURS


def functions():
    """Public functions that take an object of ours, but no tools of the chapters."""
    for name, thing in public_names.public_things().items():
        is_tool = name.startswith("ntpnb_book.") and not name.startswith("ntpnb_book.features.")
        if is_tool or not inspect.isfunction(thing):
            continue
        for parameter in inspect.signature(thing).parameters.values():
            if names_of_types(parameter.annotation) and parameter.name not in NOT_OBJECTS:
                yield name, thing, parameter.name


CASES = {
    f"{name}, {argument}": (name, function, argument) for name, function, argument in functions()
}


def valid_arguments(name, function):
    given = USUAL | SPECIAL.get(name, {})
    signature = inspect.signature(function)
    return {
        parameter.name: given[parameter.name]
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
    }


@pytest.mark.parametrize("case", CASES)
def test_an_object_of_the_wrong_type_is_named(case):
    name, function, argument = CASES[case]
    arguments = valid_arguments(name, function)
    is_text_too = name == "ntpnb.report"
    for wrong in WRONG:
        if is_text_too and isinstance(wrong, str):
            continue
        with pytest.raises(
            TypeError, match=rf"^{argument}\b.* is of type \w+; .*needed$"
        ) as raised:
            function(**arguments | {argument: wrong})
        assert type(wrong).__name__ in str(raised.value)


def test_the_functions_that_take_objects_are_found():
    assert "ntpnb.max_margin, order" in CASES
    assert len(CASES) > 25
