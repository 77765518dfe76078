"""E5: how fast the simulator is, and how its time grows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
    Timing,
)
from armillary.serving.hexgen.evidence_static import SR_SIM
from armillary.serving.hexgen.static import TABLES

#: Share of the fluid throughput that arrives.
LOAD = 0.85


def _setup(cell: Cell) -> Any:
    """A fleet at the paper's prices (49.12 an hour: 16 H100), and its requests."""
    from armillary.serving.hexgen.baselines import Task, ours
    from armillary.serving.hexgen.catalog import Catalog
    from armillary.serving.hexgen.model_shape import ModelShape
    from armillary.serving.hexgen.static import MODELS, SLO
    from armillary.serving.hexgen.traces import Workload

    n = int(cell.case.x["requests"])
    sample = Workload.synthetic_of("wildgpt", 3000, 10.0, 60_000 + cell.seed)
    shape = ModelShape.load(MODELS["moe-30b"])
    fleet = ours(Task(shape, Catalog.load(book="paper"), sample, SLO, 49.12))
    trace = Workload.synthetic_of("wildgpt", n, fleet.throughput * LOAD, cell.seed)
    return fleet, trace


def _ours(work: Any, cell: Cell) -> dict[str, float]:
    from armillary.serving.hexgen.simulator import simulate

    fleet, trace = work
    start = time.perf_counter()
    run = simulate(fleet, trace)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "rate": len(trace) / seconds,
        "checksum": float(np.mean(run.ttft)),
    }


def _sr_sim(work: Any, cell: Cell) -> dict[str, float]:
    """The same requests and number of replicas in ``vllm-sr-sim``'s event simulation."""
    from fleet_sim import Fleet, FleetConfig, PoolConfig, Request
    from fleet_sim.gpu_profiles import ProfileBuilder, ServingConfig
    from fleet_sim.hardware import H100_SXM
    from fleet_sim.models import QWEN3_30B_A3B

    fleet, trace = work
    replicas = sum(n for c, n in zip(fleet.columns, fleet.counts, strict=True) if c.kind != "pre")
    context = int(trace.inputs.max() + trace.outputs.max())
    config = ServingConfig(tp=2, mean_ctx_tokens=1000, max_slots=256)
    profile = ProfileBuilder().build(H100_SXM, QWEN3_30B_A3B, config)
    pool = PoolConfig("all", profile, replicas, context, "independent", "least_queue")
    requests = [
        (t, Request(i, t, int(a), int(max(b, 1))))
        for i, (t, a, b) in enumerate(
            zip(trace.t.tolist(), trace.inputs, trace.outputs, strict=True)
        )
    ]
    peer = Fleet(FleetConfig([pool], "RandomRouter"))
    start = time.perf_counter()
    result = peer.run(requests)
    seconds = time.perf_counter() - start
    done = [r.ttft for r in result.completed if r.ttft is not None]
    return {
        "seconds": seconds,
        "rate": len(trace) / seconds,
        "checksum": float(np.mean(done)) if done else 0.0,
    }


def _sizes(*sizes: int) -> list[Case]:
    return [Case(f"{n} requests", {"requests": n}, TABLES) for n in sizes]


SPEED = Experiment(
    id="speed",
    title="Speed of the simulator",
    cases={
        "smoke": _sizes(300),
        "quick": _sizes(5_000, 20_000),
        "full": _sizes(10_000, 30_000, 100_000),
        "long": _sizes(10_000, 100_000, 1_000_000),
    },
    setup=_setup,
    contenders=(
        Contender("ours", _ours),
        Contender("vllm-sr-sim", _sr_sim, needs=(SR_SIM,), required=False),
    ),
    metrics=(
        Metric("seconds", "s"),
        Metric("rate", "requests/s", "higher"),
        Metric("checksum", "s", "neither"),
    ),
    claims=(
        Claim(
            id="simulator-speed",
            statement="The simulator serves at least 20,000 requests a second of wall time on one "
            "core, token by token in effect, at every size.",
            paper="Gives no figure.",
            conditions=(Condition(Stat("rate", pool="min"), at_least=20_000),),
        ),
        Claim(
            id="simulator-growth",
            statement="Its time grows with at most the power 1.1 of the number of requests.",
            paper="Gives no figure.",
            conditions=(Condition(Stat("seconds", form="slope", along="requests"), at_most=1.1),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(metrics=("seconds",), warmups=1, repeats=3),
    packages=("vllm-sr-sim",),
)
