"""What is done where numpy.linalg returns NaN, as it does in a browser, and raises no error."""

import numpy as np
import pytest

import ntpnb
from ntpnb.basics.linear_systems import finite


def test_what_is_not_finite_is_a_matrix_without_a_factor():
    for wrong in (np.nan, np.inf):
        with pytest.raises(np.linalg.LinAlgError, match="singular, or not positive"):
            finite(np.array([[1.0, wrong], [0.0, 1.0]]))
    assert finite(np.eye(2)).sum() == 2


def as_in_a_browser(function):
    """The same function, with NaN in the place of an error."""

    def without_flags(matrix, *rest):
        try:
            return function(matrix, *rest)
        except np.linalg.LinAlgError:
            return np.full_like(matrix, np.nan)

    return without_flags


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "nuclear"])
def test_a_margin_is_found_all_the_same(norm, monkeypatch):
    expected = ntpnb.max_margin(ntpnb.datasets.toy(), norm=norm)
    for name in ("cholesky", "inv", "solve"):
        monkeypatch.setattr(np.linalg, name, as_in_a_browser(getattr(np.linalg, name)))
    found = ntpnb.max_margin(ntpnb.datasets.toy(), norm=norm)
    np.testing.assert_array_equal(found.W, expected.W)
