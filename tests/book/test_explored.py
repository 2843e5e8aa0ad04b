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
    arguments = {
        "context_embeddings": data.context_embeddings.tolist(),
        "target_probs": data.target_probs.tolist(),
        "token_embeddings": np.eye(data.target_probs.shape[1]).tolist(),
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
    return {
        "data": arguments,
        "pairs": order.tolist(),
        "separable": bias.separable,
        "compatible": bias.finite_part.compatible,
        "finite": bias.finite_part.W.ravel().tolist(),
        "W": W,
        "weights": list(map(float, weights)),
        "start": start.ravel().tolist(),
        "angle": angle,
    }


@pytest.fixture(params=DATASETS)
def verdict(request):
    return request.param


@pytest.fixture
def answers(verdict):
    return answered(DATASETS[verdict])


def moved(values, by):
    return [values[0] + by, *values[1:]]


def test_right_answers_agree(verdict, answers):
    found = explored.compare(answers)
    assert found.agrees
    assert found.verdict.startswith(verdict)
    words = explored.reply(json.dumps(answers))
    assert words.startswith(f"✓ The package says so too: {verdict}, compatible")
    assert ("angles" in words) == (verdict == "separable")


@pytest.mark.parametrize("name", ["finite", "W", "weights", "angle"])
def test_a_number_that_is_wrong_disagrees(answers, name):
    if answers[name] is None:
        pytest.skip("there is none")
    by = 1e-3
    answers[name] = answers[name] + by if name == "angle" else moved(answers[name], by)
    assert not explored.compare(answers).agrees
    assert explored.reply(json.dumps(answers)).startswith("✗ The package says so too")


@pytest.mark.parametrize("name", ["separable", "compatible"])
def test_another_verdict_disagrees(verdict, answers, name):
    answers[name] = not answers[name]
    words = explored.reply(json.dumps(answers))
    assert words == f"✗ The package says of these data: {verdict}, compatible."


def test_weights_below_zero_prove_nothing(answers):
    answers["weights"] = [-weight for weight in answers["weights"]]
    assert not explored.compare(answers).same_verdicts


def test_pairs_that_are_others_disagree(answers):
    group, winner, loser = answers["pairs"][0]
    answers["pairs"][0] = [group, loser, winner]
    assert not explored.compare(answers).same_verdicts
