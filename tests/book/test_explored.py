"""The comparison of an explorable's answers with the package: true ones agree, others do not."""

import json

import numpy as np
import pytest

import ntpnb
from publishing.live import explored

TURNED = [[0.0, -1.0], [-1.0, -0.5], [1.0, -0.75]]  # the toy's contexts, A on the other side
DATASETS = {
    "separable": ntpnb.datasets.toy(),
    "not separable": ntpnb.NextTokenData(TURNED, ntpnb.datasets.toy().target_probs),
}


def answered(data):
    """What an explorable that is right answers."""
    bias = ntpnb.implicit_bias(data)
    order = bias.order.strict
    asked = {
        "H": data.context_embeddings.tolist(),
        "P": data.target_probs.tolist(),
        "T": np.eye(data.target_probs.shape[1]).tolist(),
        "counts": np.ones(data.target_probs.shape).tolist(),
        "groups": [*range(len(data.target_probs))],
    }
    start = np.zeros(data.shape)
    if bias.separable:
        flow = ntpnb.gradient_flow(bias, [explored.LATE], init=start)
        W, angle = bias.max_margin.W.ravel().tolist(), float(flow.compare(bias).angle[-1])
        weights = bias.max_margin.multipliers
    else:
        W, angle = None, None
        with pytest.raises(ntpnb.NotSeparableError) as refused:
            ntpnb.max_margin(data)
        weights = refused.value.certificate
    name = "multipliers" if bias.separable else "certificate"
    svm = {"separable": bias.separable, "W": W, name: list(map(float, weights))}
    finite = bias.finite_part.W.ravel().tolist()
    return {
        "data": asked,
        "svm": svm,
        "finite": {"W": finite, "compatible": bias.finite_part.compatible},
        "pairs": order.tolist(),
        "start": start.ravel().tolist(),
        "angle": angle,
    }


@pytest.fixture(params=DATASETS)
def verdict(request):
    return request.param


@pytest.fixture
def answers(verdict):
    return answered(DATASETS[verdict])


def weights_of(answers):
    svm = answers["svm"]
    return svm["multipliers"] if svm["separable"] else svm["certificate"]


def test_right_answers_agree(verdict, answers):
    found = explored.compare(answers)
    assert found.agrees
    assert found.verdict.startswith(verdict)
    words = explored.reply(json.dumps(answers))
    assert words.startswith(f"✓ The package says so too: {verdict}, compatible")
    assert ("angles" in words) == (verdict == "separable")


@pytest.mark.parametrize("name", ["finite", "W", "weights"])
def test_a_number_that_is_wrong_disagrees(answers, name):
    values = {"finite": answers["finite"]["W"], "W": answers["svm"]["W"]}
    values["weights"] = weights_of(answers)
    if values[name] is None:
        pytest.skip("there is no W^mm")
    values[name][0] += 1e-3
    assert not explored.compare(answers).agrees
    assert explored.reply(json.dumps(answers)).startswith("✗ The package says so too")


def test_an_angle_that_is_wrong_disagrees():
    answers = answered(DATASETS["separable"])
    answers["angle"] += 1e-3
    assert not explored.compare(answers).agrees


def test_another_verdict_disagrees(verdict, answers):
    answers["finite"]["compatible"] = not answers["finite"]["compatible"]
    words = explored.reply(json.dumps(answers))
    assert words == f"✗ The package says of these data: {verdict}, compatible."


def test_what_is_called_separable_and_is_not_disagrees():
    answers = answered(DATASETS["not separable"])
    answers["svm"] |= {"separable": True, "multipliers": answers["svm"]["certificate"]}
    assert not explored.compare(answers).same_verdicts


def test_weights_below_zero_prove_nothing(answers):
    weights = weights_of(answers)
    weights[0] = -1.0
    assert not explored.compare(answers).same_verdicts


def test_pairs_that_are_others_disagree(answers):
    group, winner, loser = answers["pairs"][0]
    answers["pairs"][0] = [group, loser, winner]
    assert not explored.compare(answers).same_verdicts
