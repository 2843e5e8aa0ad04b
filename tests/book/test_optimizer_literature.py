"""What the pages on optimizers say and cite: the speed limit's constant, and earlier work."""

import re

import pytest
from citations import cited

from ntpnb_book import claims
from publishing import project

CITED = {
    "06_optimizers": ["wu2023edge", "meng2024large"],
    "19_geometries": [
        "bernstein2018signsgd",
        "bernstein2024old",
        "jordan2024muon",
        "tsilivis2025flavors",
        "gronich2026implicit",
        "xie2024adamw",
        "xie2026multiclass",
        "ravi2024multiclass",
        "julistiono2024mirror",
    ],
    "20_heads": ["lyu2020gradient", "ji2020directional", "vardi2022margin"],
}
"""Work that each chapter stands on, by its key in the bibliography."""


def _text(name):
    return project.source(name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("chapter", "key"), [(c, key) for c in CITED for key in CITED[c]])
def test_a_chapter_cites_what_it_stands_on(chapter, key):
    assert key in cited(chapter)


def test_the_speed_limit_is_stated_with_the_curvature_of_the_bowl():
    for name in ("19_geometries", "evidence/geometries_margins"):
        limits = re.findall(r"2/(\\lambda_N|L_N)\$ infinitely often", _text(name))
        assert set(limits) <= {r"\lambda_N"}
    assert r"exceed every number below $2/\lambda_N$ infinitely often" in _text("19_geometries")


def test_sign_and_spectral_descent_are_not_one_fate():
    text = " ".join(_text("19_geometries").split())
    assert not re.search(r"sign and spectral descent lose", text, re.IGNORECASE)
    momentum = [claim for claim in claims.load() if "geometries.momentum" in claim]
    assert {"beyond.geometries.momentum-sign", "beyond.geometries.momentum-spectral"} < {*momentum}
