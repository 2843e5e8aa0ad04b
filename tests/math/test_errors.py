"""The errors that carry evidence: it arrives, also from another process."""

import copy
import pickle

import numpy as np
import pytest

import ntpnb


def pickled(error):
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, pickled])
def test_errors_arrive_with_message_and_evidence(transport):
    refused = transport(ntpnb.NotSeparableError("no margin", np.array([1.0, 2.0])))
    assert type(refused) is ntpnb.NotSeparableError
    assert str(refused) == "no margin"
    assert refused.certificate.tolist() == [1.0, 2.0]

    unfinished = transport(ntpnb.ConvergenceError("came near", 1e-3))
    assert type(unfinished) is ntpnb.ConvergenceError
    assert str(unfinished) == "came near"
    assert unfinished.residual == 1e-3
    assert unfinished.point is None

    stopped = transport(ntpnb.ConvergenceError("no time left", 1e-3, np.array([[1.0], [2.0]])))
    assert stopped.residual == 1e-3
    assert stopped.point.tolist() == [[1.0], [2.0]]
