"""Policies under traffic that changes, and the cost of changing."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.serving.hexgen import (
    HpaLike,
    InfeasibleError,
    Market,
    ModelShape,
    Proportional,
    Slo,
    StaticPeak,
    TransitionAware,
    Workload,
    autoscale,
)
from armillary.serving.hexgen.allocation import Problem, solve
from armillary.serving.hexgen.autoscaler import Seen, cold_start, peak_rate

SHAPE = ModelShape.load("Qwen/Qwen3-30B-A3B")
SLO = Slo()


def step_traffic(seed: int, low: float = 4.0, high: float = 40.0) -> Workload:
    """Ten minutes at a low rate, five at a high one."""
    rng = np.random.default_rng(seed)
    t = np.r_[
        np.sort(rng.uniform(0, 600, int(low * 600))),
        np.sort(rng.uniform(600, 900, int(high * 300))),
    ]
    lengths = Workload.synthetic_of("numinamath", len(t), 1.0, seed)
    return Workload(t, lengths.inputs, lengths.outputs)


@pytest.fixture(scope="module")
def market(paper) -> Market:
    return Market(SHAPE, paper, SLO)


def test_cold_start_loads_weights_over_all_disks(market, wildgpt) -> None:
    by_name = {c.name: c for c in market.columns(wildgpt)}
    weights = SHAPE.params * 2
    assert cold_start(SHAPE, by_name["agg-h20-tp2"]) == pytest.approx(weights / 4e9 + 20)


def test_forecast_is_the_larger_of_average_and_rise(market) -> None:
    policy = TransitionAware(market, smoothing=0.5)
    assert policy.forecast([10.0]) == pytest.approx(12.0)
    assert policy.forecast([10.0, 20.0]) == pytest.approx(24.0)
    assert policy.forecast([20.0, 10.0]) == pytest.approx(15.0)


def test_a_small_saving_is_not_worth_a_change(market, wildgpt) -> None:
    """A fleet that carries its load at the planned utilisation is left alone."""
    policy = TransitionAware(market)
    rates = [20.0] * 10
    first = policy.targets(Seen(600.0, rates, wildgpt, {}))
    assert first
    running = {c.name: n for c, n in first}
    assert policy.targets(Seen(660.0, rates, wildgpt, running)) is None
    more = policy.targets(Seen(720.0, [*rates, 60.0], wildgpt, running))
    assert more is not None
    assert sum(c.capacity * n for c, n in more) > sum(c.capacity * n for c, n in first)


def test_running_replicas_are_kept_where_change_is_dear(market, wildgpt) -> None:
    problem = market.problem(wildgpt, 20.0)
    fresh = solve(problem)
    assert fresh is not None
    running = [1 if c.name == "agg-h100-tp2" else 0 for c in problem.columns]
    kept = solve(
        Problem(problem.columns, problem.inventory, problem.kv_bytes, rate=20.0, running=running,
                change_price=[1e3] * len(running))
    )  # fmt: skip
    assert kept is not None
    assert sum(max(n - r, 0) for n, r in zip(kept.counts, running, strict=True)) == 0
    assert kept.price >= fresh.price


def test_yesterday_lets_the_fleet_be_ready(market) -> None:
    today, before = step_traffic(1), step_traffic(2)
    blind = autoscale(today, TransitionAware(market), SHAPE, SLO)
    warned = autoscale(today, TransitionAware(market, earlier=before), SHAPE, SLO)
    assert warned.attainment() >= blind.attainment()
    assert warned.attainment() > 0.99
    assert np.isfinite(warned.finish).all()


def test_following_the_traffic_costs_less_than_its_peak(market) -> None:
    today = step_traffic(3)
    peak = StaticPeak(market, peak_rate(today), today)
    fixed = autoscale(today, peak, SHAPE, SLO)
    moving = autoscale(today, TransitionAware(market, earlier=step_traffic(4)), SHAPE, SLO)
    assert fixed.changes == 0
    assert moving.cost < fixed.cost
    assert moving.changes > 0


def test_homogeneous_policies_scale_and_drain(paper) -> None:
    today = step_traffic(5, low=10.0, high=120.0)
    h100 = paper.only("h100")
    for policy, kinds in (
        (HpaLike(Market(SHAPE, h100, SLO, ("agg",))), 1),
        (Proportional(Market(SHAPE, h100, SLO, ("pd",))), 2),
    ):
        run = autoscale(today, policy, SHAPE, SLO)
        assert np.isfinite(run.finish).all()
        assert run.replicas >= kinds
        assert run.changes > 0


def test_a_policy_without_replicas_is_refused(market) -> None:
    class Idle:
        def targets(self, seen: Seen) -> None:
            return None

    with pytest.raises(InfeasibleError, match="no replica"):
        autoscale(step_traffic(6), Idle(), SHAPE, SLO)
    with pytest.raises(ValueError, match="window_s"):
        autoscale(step_traffic(6), Idle(), SHAPE, SLO, window_s=0.0)
