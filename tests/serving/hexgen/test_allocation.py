"""The planner beside exhaustive search, and what its answers must satisfy."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pytest

from armillary.serving.hexgen import Catalog, InfeasibleError, ModelShape, Plan, Slo, plan
from armillary.serving.hexgen.allocation import (
    Problem,
    fits,
    price_of,
    shadow_prices,
    solve,
    throughput_of,
)
from armillary.serving.hexgen.annealer import anneal, block_size
from armillary.serving.hexgen.columns import build_columns, straggler
from armillary.serving.hexgen.evidence_planner import exhaustive, random_problem

MOE = "Qwen/Qwen3-30B-A3B"


@pytest.mark.parametrize("seed", range(2000, 2012))
def test_milp_equals_exhaustive_search(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    truth, found = exhaustive(problem), solve(problem)
    if truth is None:
        assert found is None
        return
    assert found is not None
    assert fits(problem, found.counts)
    value = found.throughput if problem.budget is not None else found.price
    assert value == pytest.approx(truth, rel=1e-7)
    assert found.bound == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("seed", range(2100, 2104))
def test_annealer_is_feasible_and_never_above_the_bound(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    if problem.budget is None:
        problem = dataclasses.replace(problem, budget=30.0, rate=None)
    best, found = solve(problem), anneal(problem, params=8e9, seed=seed)
    assert best is not None
    if found is not None:
        assert fits(problem, found.counts)
        assert found.throughput <= best.throughput * (1 + 1e-9)


def test_blocks_are_as_published() -> None:
    assert [block_size(p) for p in (8e9, 13e9, 32e9, 70e9, 405e9)] == [1, 1, 2, 4, 8]


def test_link_binds_disaggregation_only() -> None:
    """AGG ships no cache: a slow link must not forbid it."""
    problem = random_problem(np.random.default_rng(2000))
    pair = [
        dataclasses.replace(problem.columns[0], kind=kind, name=kind, use=(("x", 1),), price=1.0,
                            capacity=2.0, kv_bandwidth=0.1)
        for kind in ("agg", "pre", "dec")
    ]  # fmt: skip
    slow = Problem(pair, {"x": 4}, kv_bytes=1.0, budget=100.0)
    found = solve(slow)
    assert found is not None
    assert found.counts == (4, 0, 0)
    assert throughput_of(slow, (0, 2, 2))[0] == pytest.approx(0.2)
    assert price_of(slow, (0, 2, 2)) == 4.0


def test_one_more_gpu_is_worth_its_capacity() -> None:
    problem = random_problem(np.random.default_rng(2000))
    agg = dataclasses.replace(
        problem.columns[0], kind="agg", use=(("x", 2),), price=1.0, capacity=3.0
    )
    worth = shadow_prices(Problem([agg], {"x": 4}, budget=100.0))
    assert worth["x"] == pytest.approx(1.5)


def test_either_budget_or_rate() -> None:
    with pytest.raises(ValueError, match="either"):
        Problem([], {})
    with pytest.raises(ValueError, match="above 0"):
        Problem([], {}, budget=float("nan"))


def test_sub_problems_are_never_better(paper, wildgpt) -> None:
    slo = Slo()
    whole = plan(MOE, paper, wildgpt, slo, budget_per_hour=20.0)
    for catalog, modes in (
        (paper, ("pd",)), (paper, ("agg",)), (paper.only("h100"), ("agg",)),
        (paper.only("h20"), ("pd",)),
    ):  # fmt: skip
        part = plan(MOE, catalog, wildgpt, slo, budget_per_hour=20.0, modes=modes)
        assert part.throughput <= whole.throughput * (1 + 1e-9)
    assert whole.price <= 20.0
    assert whole.gap < 1e-5
    assert "budget" in whole.binding
    assert any("h20" in name for name in whole.estimated)


def test_rate_form_carries_the_rate_for_least(paper, wildgpt) -> None:
    cheap = plan(MOE, paper, wildgpt, Slo(), rate=30.0, rho=0.75)
    dear = plan(MOE, paper.only("h100"), wildgpt, Slo(), rate=30.0, rho=0.75)
    assert cheap.throughput >= 40.0 - 1e-6
    assert cheap.price <= dear.price


def test_plan_survives_json_and_warns_of_new_prices(paper, wildgpt, tmp_path) -> None:
    found = plan(MOE, paper, wildgpt, Slo(), budget_per_hour=20.0)
    found.save(tmp_path / "plan.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Plan.load(tmp_path / "plan.json", paper)
    assert again.describe() == found.describe()
    assert again.price == pytest.approx(found.price)
    assert [c.capacity for c in again.columns] == [c.capacity for c in found.columns]
    with pytest.warns(UserWarning, match="plan anew"):
        Plan.load(tmp_path / "plan.json", Catalog.load())
    (tmp_path / "bad.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(ValueError, match="no plan"):
        Plan.load(tmp_path / "bad.json")


def test_a_model_too_large_says_what_is_missing(wildgpt) -> None:
    with pytest.raises(InfeasibleError, match=r"812 GB of weights.*h100 \(tp 8\).*GB missing"):
        plan("meta-llama/Meta-Llama-3.1-405B", Catalog.load().only("h100"), wildgpt, Slo(), rate=1)


def test_a_next_degree_is_named_where_it_would_do(wildgpt) -> None:
    few = Catalog.load().only("l40s").with_inventory(l40s=1)
    with pytest.raises(InfeasibleError, match=r"or tp 2"):
        plan(MOE, few, wildgpt, Slo(), rate=1)


def test_a_budget_too_small_names_the_cheapest_price(paper, wildgpt) -> None:
    with pytest.raises(InfeasibleError, match=r"cheapest fleet that serves at all: 1\.85 USD"):
        plan(MOE, paper, wildgpt, Slo(), budget_per_hour=0.5)


def test_targets_below_the_floor_show_the_floor(paper, wildgpt) -> None:
    with pytest.raises(InfeasibleError, match=r"h100: TPOT floor \d.*ms, TTFT floor"):
        plan(MOE, paper, wildgpt, Slo(2.0, 0.5), rate=1.0)


def test_a_rate_above_the_inventory_is_told(paper, wildgpt) -> None:
    with pytest.raises(InfeasibleError, match="the inventory carries"):
        plan(MOE, paper, wildgpt, Slo(), rate=1e5)


def test_wrong_arguments_are_named(paper, wildgpt) -> None:
    with pytest.raises(ValueError, match="rho=0"):
        plan(MOE, paper, wildgpt, Slo(), rate=1.0, rho=0.0)
    with pytest.raises(ValueError, match="solver='genetic'"):
        plan(MOE, paper, wildgpt, Slo(), rate=1.0, solver="genetic")
    with pytest.raises(ValueError, match="unknown"):
        plan(MOE, paper, wildgpt, Slo(), rate=1.0, modes=("agg", "magic"))


def test_a_solver_out_of_time_is_flagged(paper, wildgpt) -> None:
    problem = Problem(
        build_columns(ModelShape.load(MOE), paper, wildgpt, Slo()), {"h100": 64, "h20": 64},
        budget=49.12,
    )  # fmt: skip
    found = solve(problem, time_limit=1e-9)
    assert found is None or found.timed_out or found.gap < 1e-5


def test_every_capacity_meets_its_target_and_uses_what_it_says(paper, wildgpt) -> None:
    slo = Slo(2.0, 40.0)
    columns = build_columns(ModelShape.load(MOE), paper, wildgpt, slo)
    assert {c.kind for c in columns} == {"agg", "pre", "dec", "afd"}
    for column in columns:
        assert column.tpot_s <= slo.tpot_s
        assert column.ttft_s <= slo.ttft_p99_s
        assert column.price == pytest.approx(sum(paper[g].price * n for g, n in column.use))


def test_straggler_is_the_expected_largest_normal() -> None:
    """0.564, 1.029, 1.424 for 2, 4, 8; sqrt(2 ln n) would say 1.18, 1.67, 2.04."""
    assert straggler(1) == 0.0
    for workers, truth in ((2, 0.5642), (4, 1.0294), (8, 1.4236)):
        assert straggler(workers) == pytest.approx(truth, rel=0.05)
