"""E3: requests for a unit of money when the traffic changes by the hour, or bursts."""

from __future__ import annotations

import dataclasses
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
from armillary.serving.hexgen.static import MODELS, SLO, TABLES
from armillary.serving.hexgen.traces import Workload

#: The paper's six hours: requests an hour, and whose traffic.
HOURS = (
    (6600, "openr1-math"), (11200, "openr1-math"), (61400, "wildgpt"), (129000, "wildgpt"),
    (13900, "numinamath"), (8200, "openthoughts"),
)  # fmt: skip
#: Rates are so many times the paper's, and an hour lasts so many seconds.
SCALE = {"smoke": (0.2, 120.0), "full": (3.0, 600.0), "long": (3.0, 3600.0)}
#: Every request of the Azure trace comes so many times; seconds that are taken of it.
AZURE = {"full": (6, 1800.0), "long": (6, 3600.0)}
#: Seeds of the day before are this much higher.
YESTERDAY = 500_000


def schedule(scale: float, hour_s: float, seed: int) -> Workload:
    """The paper's schedule: Poisson arrivals, lengths of the hour's traffic."""
    rng = np.random.default_rng(seed)
    t, inputs, outputs = [], [], []
    for k, (load, kind) in enumerate(HOURS):
        rate = load / 3600 * scale
        count = max(int(rng.poisson(rate * hour_s)), 2)
        part = Workload.synthetic_of(kind, count, rate, seed * 10 + k)
        t.append(k * hour_s + np.sort(rng.uniform(0, hour_s, count)))
        inputs.append(part.inputs)
        outputs.append(part.outputs)
    return Workload(
        np.concatenate(t), np.concatenate(inputs), np.concatenate(outputs), "schedule", True
    )


@dataclasses.dataclass
class Work:
    """A day's traffic, and that of the day before where there is one."""

    today: Workload
    yesterday: Workload | None


def _setup(cell: Cell) -> Work:
    if cell.case.name == "schedule":
        scale, hour = SCALE[cell.profile]
        return Work(schedule(scale, hour, cell.seed), schedule(scale, hour, cell.seed + YESTERDAY))
    times, seconds = AZURE[cell.profile]
    trace = Workload.from_azure(kind="conv")
    trace = trace.head(int(np.searchsorted(trace.t, seconds)))
    return Work(trace.multiplied(times, 5.0, cell.seed), None)


def _policy(name: str, work: Work) -> Any:
    from armillary.serving.hexgen import autoscaler as auto
    from armillary.serving.hexgen.catalog import Catalog
    from armillary.serving.hexgen.model_shape import ModelShape

    shape = ModelShape.load(MODELS["moe-30b"])
    gpus = Catalog.load(book="paper")
    h100 = gpus.only("h100")
    if name == "hpa-h100":
        policy: Any = auto.HpaLike(auto.Market(shape, h100, SLO, ("agg",)))
    elif name == "proportional-h100":
        policy = auto.Proportional(auto.Market(shape, h100, SLO, ("pd",)))
    elif name == "static-peak":
        peak = auto.peak_rate(work.today)
        policy = auto.StaticPeak(auto.Market(shape, gpus, SLO), peak, work.today)
    else:
        market = auto.Market(shape, h100 if name == "one-type" else gpus, SLO)
        earlier = None if name == "no-yesterday" else work.yesterday
        policy = auto.TransitionAware(market, earlier=earlier, reload_cost=name != "no-reload")
    return policy, shape


def _serves(name: str):
    def run(work: Work, cell: Cell) -> dict[str, float]:
        from armillary.serving.hexgen.autoscaler import autoscale

        policy, shape = _policy(name, work)
        found = autoscale(work.today, policy, shape, SLO)
        hours = float(work.today.t[-1]) / 3600
        return {
            "per_unit": found.good_per_unit,
            "attainment": found.attainment(),
            "changes": found.changes / hours,
        }

    return run


def _gain(peers: tuple[str, ...], pool: str):
    """Gain of ours over the better of some peers, cell by cell: its mean, or its largest."""

    def fn(table: Any) -> float | None:
        ours = table.value("per_unit")
        others = [table.value("per_unit", peer) for peer in peers]
        with np.errstate(all="ignore"):
            gains = ours / np.max(others, axis=0) - 1
        gains = gains[np.isfinite(gains)]
        if not len(gains):
            return None
        return float(gains.mean() if pool == "mean" else gains.max())

    return fn


def _azure_case() -> Case:
    from armillary.corpora import EXTERNAL

    entry = next(e for e in EXTERNAL if e.name == "azure-conv")
    return Case("azure-bursts", {}, (*TABLES, Need("data", entry.path, entry.how)))


NAMES = (
    "ours", "hpa-h100", "proportional-h100", "static-peak", "one-type", "no-reload", "no-yesterday"
)  # fmt: skip
PEERS = ("hpa-h100", "proportional-h100")

DYNAMIC = Experiment(
    id="dynamic",
    title="Requests a dollar under changing traffic (Qwen3-30B-A3B, the paper's prices)",
    cases={
        "smoke": [Case("schedule", {}, TABLES)],
        "quick": [],
        "full": [Case("schedule", {}, TABLES), _azure_case()],
        "long": [Case("schedule", {}, TABLES), _azure_case()],
    },
    setup=_setup,
    contenders=tuple(Contender(name, _serves(name)) for name in NAMES),
    metrics=(
        Metric("per_unit", "requests/$", "higher"),
        Metric("attainment", "share", "higher"),
        Metric("changes", "replicas an hour", "lower"),
    ),
    claims=(
        Claim(
            id="dynamic-gain",
            statement="Under the paper's schedule and under the bursts of the Azure trace the "
            "autoscaled fleet serves on average at least 55.1 % more requests a dollar within the "
            "targets than the better of two autoscaled fleets of H100s, and at least 78.3 % more "
            "at best. The H20's times are a roofline; on the schedule it knows the day before.",
            paper="Mean +55.1 %, up to +78.3 %.",
            conditions=(
                Condition(Stat(fn=_gain(PEERS, "mean")), at_least=0.551),
                Condition(Stat(fn=_gain(PEERS, "max")), at_least=0.783),
            ),
            ablations=(
                Ablation("one-type", "per_unit"),
                Ablation("no-reload", "per_unit"),
                Ablation("no-reload", "changes"),
                Ablation("no-yesterday", "attainment"),
                Ablation("static-peak", "per_unit"),
            ),
        ),
        Claim(
            id="dynamic-attainment",
            statement="Its attainment of the targets is not lower than that of the autoscaled "
            "fleets of H100s by more than half a point.",
            paper="Gives no attainment.",
            conditions=(
                Condition(Stat("attainment", over=PEERS, form="difference"), at_least=-0.005),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 5},
    packages=("scipy", "aiconfigurator-core"),
    max_seconds=600,
)
