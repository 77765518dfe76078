"""The closing loop: promises that hold in the simulator."""

from __future__ import annotations

import pytest

from armillary.serving.hexgen import (
    InfeasibleError,
    Slo,
    Workload,
    close_loop,
    compare,
    plan,
    simulate,
    sustained,
)
from armillary.serving.hexgen.baselines import Task, vllm_sr_sim
from armillary.serving.hexgen.model_shape import ModelShape

MOE = "Qwen/Qwen3-30B-A3B"


def test_sustained_rate_passes_and_a_little_more_does_not(flat) -> None:
    """One replica of a batch of 1 and service of 1 s, targets of 5 s: below 1 request a second."""
    column = flat.column(flat.times(0.01), batch=1)
    fleet = flat.plan((column, 1), slo=Slo(5.0, 1000.0))
    work = Workload.synthetic_of("wildgpt", 1500, 1.0, 1000)
    work = Workload(work.t, work.inputs * 0 + 1, work.outputs * 0 + 100)
    rate = sustained(fleet, work, tolerance=0.05)
    assert 0.3 < rate < 1.0
    assert simulate(fleet, work.at_rate(rate)).attainment(0.4) >= 0.99
    assert simulate(fleet, work.at_rate(rate * 1.1)).attainment(0.4) < 0.99
    with pytest.raises(ValueError, match="attainment=0"):
        sustained(fleet, work, attainment=0.0)


def test_targets_that_cannot_hold_give_no_rate(flat) -> None:
    fleet = flat.plan((flat.column(flat.times(0.01)), 1), slo=Slo(0.001, 1000.0))
    work = Workload.synthetic_of("wildgpt", 200, 1.0, 1000)
    assert sustained(fleet, work) == 0.0


def test_closed_plans_hold_and_cost_no_more_than_careful_ones(paper, wildgpt) -> None:
    closed = close_loop(MOE, paper, wildgpt, Slo(), rate=40.0)
    assert closed.run.attainment(0.4) >= 0.99
    careful = plan(MOE, paper, wildgpt, Slo(), rate=40.0, rho=0.5)
    assert closed.plan.price <= careful.price
    assert closed.tried


def test_a_load_of_one_breaks_the_targets_where_queues_matter(flat) -> None:
    """Planned for all of its capacity, a queue has no end: M/D/1 at a load of 1."""
    column = flat.column(flat.times(0.01), batch=1)
    fleet = flat.plan((column, 1), slo=Slo(5.0, 1000.0))
    work = Workload.synthetic_of("wildgpt", 3000, 1.0, 1000)
    work = Workload(work.t, work.inputs * 0 + 1, work.outputs * 0 + 100)
    assert simulate(fleet, work.at_rate(1.0)).attainment(0.4) < 0.9


def test_impossible_targets_are_told(paper, wildgpt) -> None:
    few = paper.only("h100").with_inventory(h100=1)
    with pytest.raises(InfeasibleError, match=r"at no utilisation|the inventory"):
        close_loop(MOE, few, wildgpt, Slo(), rate=500.0)


def test_compare_uses_the_same_requests_for_all(paper, wildgpt) -> None:
    one = plan(MOE, paper, wildgpt, Slo(), budget_per_hour=10.0)
    found = compare({"a": one, "b": one}, wildgpt.head(500), seeds=[1, 2])
    assert found["a"] == found["b"]
    with pytest.raises(ValueError, match="seeds"):
        compare({"a": one}, wildgpt, seeds=[])


def test_the_peer_recommends_a_fleet_within_the_budget(paper, wildgpt) -> None:
    pytest.importorskip("fleet_sim")
    task = Task(ModelShape.load(MOE), paper, wildgpt, Slo(), 12.28)
    found = vllm_sr_sim(task)
    assert 0 < found.price <= 12.28
    assert {c.kind for c in found.columns} == {"pre", "dec"}
