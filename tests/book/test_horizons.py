"""Claims about where training goes are measured at several horizons, each ten times the last."""

import re

import accepted
import lint
import lost_evidence
import pytest
import tiny_project

from ntpnb_book import claims, comparisons, ledger
from ntpnb_book.output import ROOT
from publishing import collect, pages, project, verify

HORIZONS = [20, 200, 2000]
RISING = {
    "horizons": HORIZONS,
    "near": [0.05, 0.18, 0.38],
    "within": 0.01,
    "because": "ours",
}
CLAIM = {
    "id": "beyond.tiny.share",
    "evidence": "prediction",
    "statement": "Share that the steps add.",
    "expect": RISING,
    "show": ".2f",
}

OPTIMIZERS = ("06", "10", "11", "15", "18", "19", "20", "21")
"""The chapters that speak of where an optimizer or a flow ends."""

FATE = re.compile(
    r"\b(?:tends? to|goes to|settles?|loses?|mixes|ends? at|stops? at|steps adds?|does not fall)\b"
)
"""Words of a statement about what training does in the end, and of what measures it."""


@pytest.mark.parametrize(
    ("compare", "inside", "outside"),
    [
        (RISING, [0.05, 0.18, 0.38], [0.05, 0.18, 0.3]),
        ({"horizons": HORIZONS, "above": 0.5}, [0.6, 0.7, 0.8], [0.6, 0.7, 0.4]),
        ({"horizons": HORIZONS, "between": [0, 1]}, [0, 0.5, 1], [0, 0.5, 2]),
        ({"horizons": HORIZONS, "equals": True}, [True] * 3, [True, True, False]),
    ],
)
def test_a_comparison_is_met_at_every_horizon(compare, inside, outside):
    assert comparisons.met(compare, inside)
    assert not comparisons.met(compare, outside)
    assert not comparisons.met(compare, inside[:2])
    assert not comparisons.met(compare, [*inside, inside[-1]])
    assert not comparisons.met(compare, inside[0])


def test_a_list_meets_no_comparison_without_horizons():
    assert not comparisons.met({"above": 0.5}, [0.6, 0.7, 0.8])


def test_a_comparison_says_its_horizons():
    assert comparisons.describe({"horizons": HORIZONS, "above": 0.5}) == "> 0.5 at 20, 200, 2e+03"
    rising = comparisons.describe({"horizons": HORIZONS, "at_least": [0.1, 0.2, 0.1]})
    assert rising == "≥ 0.1, ≥ 0.2, ≥ 0.1 at 20, 200, 2e+03"


WITHOUT = {"near": [1, 2, 3], "within": 1, "because": "x"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expect": RISING | {"horizons": [20, 200]}}, "horizons must contain at least 3 items"),
        ({"expect": RISING | {"horizons": [20, 200, 1000]}}, "at least ten times the one before"),
        ({"expect": RISING | {"horizons": [0, 20, 200]}}, "horizons"),
        ({"expect": RISING | {"near": [0.05, 0.18]}}, "near has 2 entries, for 3 horizons"),
        ({"expect": RISING | {"near": 0.05, "above": 1}}, "one comparison"),
        ({"expect": WITHOUT}, "near has 3 entries, for 0"),
        ({"printed": {"text": "0.4", "above": 0.4}}, "a print is compared with one value"),
    ],
)
def test_lists_belong_to_horizons_that_are_some_and_prints_to_neither(tmp_path, change, message):
    tiny_project.list_claims(tmp_path, CLAIM | change)
    with pytest.raises(ValueError, match=rf"01_tiny.yml: beyond.tiny.share: .*{message}"):
        claims.load(tmp_path)


@pytest.fixture
def listed(tmp_path):
    """A checkout whose only claim has horizons."""
    tiny_project.list_claims(tmp_path, CLAIM)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ([0.05, 0.18, 0.381], "✓ beyond.tiny.share   0.05, 0.18, 0.38   (expected "),
        ([0.05, 0.18, 0.5], "✗ beyond.tiny.share   expected "),
        ([0.05, 0.18], "✗ beyond.tiny.share   expected "),
        (0.05, "✗ beyond.tiny.share   expected "),
    ],
)
def test_check_takes_one_value_for_each_horizon(listed, capsys, value, line):
    ledger.check("beyond.tiny.share", value, root=listed)
    assert capsys.readouterr().out.startswith(line)


def test_horizons_are_part_of_what_is_promised(listed):
    before = list(accepted.changed(listed))
    assert "beyond.tiny.share: was never accepted" in before
    accepted.accept(root=listed)
    longer = CLAIM | {"expect": CLAIM["expect"] | {"horizons": [20, 200, 20_000]}}
    tiny_project.list_claims(listed, longer)
    claims.load.cache_clear()
    [line] = accepted.changed(listed)
    assert "2e+04" in line


def test_a_value_is_written_with_its_horizons(tmp_path):
    root = tiny_project.make(tmp_path)
    tiny_project.list_claims(root, CLAIM)
    value = [0.05, 0.18, 0.38]
    tiny_project.pretend(root, "01_tiny", [{"id": CLAIM["id"], "value": value}])
    [entry] = collect.collect(root)
    assert entry["value"] == value
    assert pages._value(entry) == "0.05, 0.18, 0.38 at 20, 200, 2\u00a0·\u00a010³"


def test_values_at_horizons_are_compared_one_by_one():
    assert verify.close([0.9805, 1e-9], [0.98, 3e-14])
    assert not verify.close([0.98, 0.5], [0.97, -3.0])
    assert not verify.close([0.98, 0.5], [0.97])


def test_a_reason_with_too_many_digits_is_found_at_every_horizon():
    near = [0.05, 0.18, 0.381234567]
    claim = CLAIM | {"expect": CLAIM["expect"] | {"near": near}}
    [line] = lint.reasons({CLAIM["id"]: claim})
    assert "0.381234567 has 9 digits" in line


def _about_optimizers():
    """List the chapters in `OPTIMIZERS` and the pages of evidence for them."""
    listed = [name for name in project.chapters(ROOT) if name[:2] in OPTIMIZERS]
    for name in project.evidence_pages(ROOT):
        text = project.source(name, ROOT).read_text(encoding="utf-8")
        if any(chapter in listed for chapter, _ in lost_evidence.NAMED.findall(text)):
            listed.append(name)
    return listed


@pytest.mark.parametrize("page", _about_optimizers())
def test_a_verdict_on_the_fate_of_training_is_measured_at_several_horizons(page):
    # What a paper prints is compared at its own lengths, and a step of a proof is no measurement.
    verdicts = [
        claim
        for claim in claims.load().values()
        if claim["notebook"] == page
        and claim["evidence"] != "proof-step"
        and "printed" not in claim
        and FATE.search(claim["statement"])
    ]
    assert [claim["id"] for claim in verdicts if "horizons" not in claim["expect"]] == []
