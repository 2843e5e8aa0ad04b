"""What needs an extra says which one, in one line."""

import sys

import pytest

import ntpnb

TOY = ntpnb.datasets.toy()


def sweep():
    return ntpnb.thresholds.sweep([(4, 2, 3)], 1)


NEEDS = {
    "plot": (lambda: ntpnb.report(TOY).plot(), "Report.plot", "matplotlib", "plot"),
    "workers": (lambda: ntpnb.loss_floor(TOY, n_jobs=2), "n_jobs, but for 1,", "joblib", "sweep"),
    "sweep": (sweep, "thresholds.sweep", "joblib", "sweep"),
    "a sweep's bar": (sweep, "thresholds.sweep", "tqdm", "sweep"),
}


@pytest.mark.parametrize("what", NEEDS)
def test_what_is_missing_is_named_with_its_extra(what, monkeypatch):
    call, who, package, extra = NEEDS[what]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ImportError) as caught:
        call()
    assert not isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name.partition(".")[0] == package
    said = str(caught.value)
    assert said.startswith(f"{who} needs {package}")
    assert said.endswith(f': pip install "ntpnb[{extra}]"')
    assert "\n" not in said
