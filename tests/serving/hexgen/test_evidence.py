"""The experiments: what contenders are given, and that they buy what they say."""

from __future__ import annotations

import pytest

from armillary.evidence.shapes import Cell
from armillary.serving.hexgen.baselines import VARIANTS
from armillary.serving.hexgen.card import CARD
from armillary.serving.hexgen.evidence import EXPERIMENTS
from armillary.serving.hexgen.static import BUDGET, CASES, LIST_CASES, case_of, fleet_of, task_of
from armillary.serving.hexgen.tuned import CHOSEN


def test_claims_stand_on_the_card_in_order() -> None:
    assert tuple(c.id for e in EXPERIMENTS for c in e.claims) == CARD.claims


def test_every_contender_has_no_more_variants_than_ours() -> None:
    assert all(len(v) <= 5 for v in VARIANTS.values())
    known = {case.name for case in (*CASES, *LIST_CASES)}
    assert set(CHOSEN) <= known
    for chosen in CHOSEN.values():
        for name, variant in chosen.items():
            assert variant in VARIANTS[name]


def test_contenders_keep_to_the_budget_and_their_restrictions() -> None:
    case = case_of("moe-30b", "wildgpt")
    task = task_of(case, 1000)
    fleets = {name: fleet_of(name, case, task) for name in VARIANTS}
    assert all(fleet.price <= BUDGET * (1 + 1e-9) for fleet in fleets.values())
    assert set(fleets["h100-agg"].gpus) == {"h100"}
    assert {c.kind for c in fleets["h100-pd"].columns} == {"pre", "dec"}
    assert len(fleets["best-homogeneous"].gpus) == 1
    assert {c.kind for c in fleets["no-pd"].columns} == {"agg"}
    assert "afd" not in {c.kind for c in fleets["no-afd"].columns}


def test_exhaustive_search_of_a_cell_agrees() -> None:
    exact = next(e for e in EXPERIMENTS if e.id == "exact")
    cell = Cell(exact.cases["smoke"][0], 1000, "smoke")
    found = exact.contenders[0].run(exact.setup(cell), cell)
    assert found["disagreements"] == 0
    assert found["distance"] == pytest.approx(0, abs=1e-9)
