"""What an explorable computed by itself, beside what the package computes of the same data.

The explorables' own mathematics (``book/_static/explore/mathematics.js``) answers in each frame in
which something is dragged, which a browser's Python is too slow for. So it stays, and is compared:
by the tests, and by a reader, in a page whose Python runs.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import ntpnb
from ntpnb_book import power_of_ten, weighted_pairs

AGREE = 1e-8
"""Relative difference up to which matrices are the same: what counts as met in the script itself.

It calls odds compatible that miss their targets by at most as many nats, by squares of rounding.
"""

ANGLES_AGREE = 1e-4
"""Radians by which angles of the flow may differ, whose steps the script takes to 1e-6 of ``W``."""

LATE = 12 * np.log(10)
"""The natural logarithm of the time ``t = 1e12``, at which an explorable's flow ends."""


class Comparison(NamedTuple):
    """How far an explorable's answers are from the package's.

    Attributes
    ----------
    verdict : str
        What the package says of the data, in words.
    same_verdicts : bool
        Whether the explorable says so too, about the same strict pairs.
    difference : float
        The largest one of the finite part, of ``W^mm``, and of what the weights of the strict pairs
        combine to: ``W^mm``, or nothing where they contradict each other. Relative to their norms.
    angle_difference : float or None
        Of the flow's angles to ``W^mm`` at the time 1e12, in radians; None where there are none.
    """

    verdict: str
    same_verdicts: bool
    difference: float
    angle_difference: float | None

    @property
    def agrees(self) -> bool:
        """Whether all of it agrees."""
        angles_agree = (self.angle_difference or 0.0) <= ANGLES_AGREE
        return self.same_verdicts and self.difference <= AGREE and angles_agree


def compare(answers: Mapping[str, Any]) -> Comparison:
    """Compute what an explorable computed, with the package.

    Parameters
    ----------
    answers : mapping
        What ``explorable.answers`` returns in JavaScript: the ``data``, the max-margin problem's
        solution ``svm``, the ``finite`` part and the strict ``pairs``, as ``mathematics.js`` has
        them, and the flow's ``start`` and its ``angle``, None where no flow is to be compared.

    Returns
    -------
    Comparison
        Of these answers with the package's.
    """
    svm, finite = answers["svm"], answers["finite"]
    weights = svm["multipliers"] if svm["separable"] else svm["certificate"]
    data = read_data(answers["data"])
    bias = ntpnb.implicit_bias(data)
    pairs = np.array(answers["pairs"], dtype=int).reshape(-1, 3)
    weighted = weighted_pairs(data, pairs, weights)
    combined = bias.equal_subspace.reject(weighted)
    differences = [far_apart(finite["W"], bias.finite_part.W)]
    same = pairs.tolist() == bias.order.strict.tolist() and min(weights, default=0) >= 0
    same &= svm["separable"] == bias.separable
    same &= finite["compatible"] == bias.finite_part.compatible
    if same and bias.separable:
        differences.append(far_apart(svm["W"], bias.max_margin.W))
        differences.append(far_apart(combined, bias.max_margin.W))
    elif same:
        differences.append(far_apart(combined, np.zeros(data.shape)))
        differences.append(abs(sum(weights) - 1))
    words = [
        "separable" if bias.separable else "not separable",
        "compatible" if bias.finite_part.compatible else "not compatible",
    ]
    angle = answers["angle"]
    apart = None
    if same and angle is not None:
        start = np.reshape(answers["start"], data.shape)
        flow = ntpnb.gradient_flow(bias, [LATE], init=start)
        apart = float(abs(flow.compare(bias).angle[-1] - angle))
    return Comparison(", ".join(words), bool(same), max(differences), apart)


def read_data(data: Mapping[str, Any]) -> ntpnb.NextTokenData:
    """Make the package's data of an explorable's."""
    return ntpnb.NextTokenData(
        context_embeddings=data["H"],
        target_probs=data["P"],
        token_embeddings=data["T"],
        candidate_counts=data["counts"],
        context_groups=data["groups"],
    )


def far_apart(found: ArrayLike, expected: ArrayLike) -> float:
    """Largest difference, relative to the norm of what is expected where that exceeds one."""
    difference = np.abs(np.ravel(found) - np.ravel(expected)).max()
    return float(difference / max(1.0, np.linalg.norm(expected)))


def reply(question: str) -> str:
    """Say in one line what the package makes of an explorable's answers.

    Parameters
    ----------
    question : str
        The answers that `compare` takes, as JSON.
    """
    began = time.perf_counter()
    try:
        found = compare(json.loads(question))
    except ntpnb.ConvergenceError as error:
        return f"The package is undecided: {error}"
    took = 1000 * (time.perf_counter() - began)
    if not found.same_verdicts:
        return f"✗ The package says of these data: {found.verdict}."
    mark = "✓" if found.agrees else "✗"
    words = f"{mark} The package says so too: {found.verdict}; matrices differ by less than "
    words += f"{_next_power_of_ten(found.difference)} of their norms"
    if found.angle_difference is not None:
        apart = _next_power_of_ten(np.degrees(found.angle_difference))
        words += f", angles at t = 10¹² by less than {apart}°"
    return f"{words}. Python took {took:.0f} ms."


def _next_power_of_ten(number: float) -> str:
    return power_of_ten(np.floor(np.log10(max(number, 1e-17))) + 1)
