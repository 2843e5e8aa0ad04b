"""What needs an extra says which one, in one line."""

import sys

import pytest

import ntpnb

NEEDS = {
    "plot": (lambda: ntpnb.report(ntpnb.datasets.toy()).plot(), "matplotlib", "plot"),
    "workers": (lambda: ntpnb.loss_floor(ntpnb.datasets.toy(), n_jobs=2), "joblib", "sweep"),
    "sweep": (lambda: ntpnb.thresholds.sweep([(4, 2, 3)], 1), "joblib", "sweep"),
    "a sweep's bar": (lambda: ntpnb.thresholds.sweep([(4, 2, 3)], 1), "tqdm", "sweep"),
}


@pytest.mark.parametrize("what", NEEDS)
def test_what_is_missing_is_named_with_its_extra(what, monkeypatch):
    call, package, extra = NEEDS[what]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ImportError) as caught:
        call()
    assert not isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name.partition(".")[0] == package
    said = str(caught.value)
    assert package in said
    assert f"ntpnb[{extra}]" in said
    assert "\n" not in said
