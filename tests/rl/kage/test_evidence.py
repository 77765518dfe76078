"""The experiments: counts that can fail, statistics on planted rows, blocks that consume frames."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from armillary.evidence.shapes import Case, Cell, Row
from armillary.evidence.table import Table
from armillary.rl.kage import evidence_exact, evidence_policies, throughput
from armillary.rl.kage.engine import Kage
from armillary.rl.kage.pairs import any_config, suites


def cell(name: str, **x: float) -> Cell:
    return Cell(Case(name, x=x), 1000, "smoke")


def test_the_check_of_axes_finds_a_leak_of_keys():
    at = cell("distractors", levels=2, stride=250)
    pairs = [suites()["distractors"][1]]
    fine = evidence_exact._compare(Kage, pairs, at)
    assert fine["mismatches"] == fine["unchanged"] == 0
    leaky = evidence_exact._compare(evidence_exact.Leaky, pairs, at)
    assert leaky["mismatches"] > 0


def test_compilations_are_counted_when_they_happen(monkeypatch):
    monkeypatch.setattr(evidence_exact, "COUNTED", 0.0)
    x = jnp.arange(17.0)
    double = jax.jit(lambda v: v * 2 + 1)
    with evidence_exact.Compilations() as heard:
        double(x).block_until_ready()
    assert heard.count >= 1
    with evidence_exact.Compilations() as again:
        double(x).block_until_ready()
    assert again.count == 0


def test_sums_of_a_seed():
    rows = [
        {"id": f"filters-{i}", "axis": "filters", "success_train": 1.0, "success_drop": drop}
        | {"distance_train": 500.0, "distance_eval": distance, "policy_gap": gap}
        for i, (drop, distance, gap) in enumerate(
            [(0.9, 480, 0.5), (0.1, 490, 0.1), (0.5, 100, 0.3)]
        )
    ]
    found = evidence_policies.summary(rows)
    assert found["hidden failures"] == 1
    assert found["rank correlation"] == pytest.approx(1.0)
    assert found["success drop, filters"] == pytest.approx(0.5)
    assert found["success drop, filters-0"] == 0.9
    assert "success drop, layout" not in found
    assert evidence_policies.rank_correlation(np.zeros(5), np.arange(5.0)) == 0.0


def test_the_lead_of_an_axis_is_paired_by_seed():
    rows = [
        Row(
            "kage",
            "e",
            "full",
            "c",
            seed,
            "ours",
            metrics={"success drop, filters": a, "success drop, agent_appearance": b},
        )
        for seed, (a, b) in enumerate([(0.6, 0.1), (0.4, 0.3)])
    ]
    condition = evidence_policies._drop_lead("filters")
    table = Table.from_rows(rows, [Case("c")], "seed")
    assert condition.stat.fn is not None
    assert condition.stat.fn(table) == pytest.approx(0.3)
    assert evidence_policies._drop_lead("effects").stat.fn(table) is None  # pyright: ignore


def test_a_block_depends_on_every_frame():
    """What is given back changes when the last frame does: nothing was dropped."""
    config = any_config()
    run = throughput.block(config, 2, 3, "rgb")
    other = config._replace(
        visual=config.visual.replace(ground_colours=np.uint8(config.visual.ground_colours) + 9)
    )  # pyright: ignore
    assert run() == run()
    assert throughput.block(other, 2, 3, "rgb")() != run()
    with pytest.raises(ValueError, match="mode='frames'"):
        throughput.block(config, 2, 3, "frames")  # pyright: ignore[reportArgumentType]


def test_the_most_used_looks_are_a_scene_and_a_circle():
    scene, circle = evidence_policies.by_look(evidence_policies._most_used(2))
    assert (len(scene), len(circle)) == (13, 11)
    assert {p.axis for p in scene} == {"background", "filters", "effects"}
