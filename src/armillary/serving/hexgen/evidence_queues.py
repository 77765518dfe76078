"""E4, its first half: the simulator beside closed forms of queues."""

from __future__ import annotations

import math
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
)
from armillary.serving.hexgen.static import TABLES

#: Service takes 1 s: 100 steps of 0.01 s. Servers, load, requests a run.
STEP_S, SERVICE_STEPS, LOAD = 0.01, 100, 0.7
SERVERS = {"M/D/1": 1, "M/M/5": 5}
REQUESTS = {"smoke": 300, "quick": 4000, "full": 60_000, "long": 200_000}


def mean_wait(case: str) -> float:
    """Mean wait in seconds: Pollaczek and Khinchine for M/D/1, Erlang's C for M/M/c."""
    c = SERVERS[case]
    if case == "M/D/1":
        return LOAD / (2 * (1 - LOAD))
    a = c * LOAD
    top = a**c / math.factorial(c) * c / (c - a)
    busy = top / (sum(a**k / math.factorial(k) for k in range(c)) + top)
    return busy / (c * (1 - LOAD))


def _setup(cell: Cell) -> Any:
    """One replica whose steps take the same time whatever is in them, and its requests."""
    from armillary.serving.hexgen.catalog import Catalog
    from armillary.serving.hexgen.columns import Column
    from armillary.serving.hexgen.model_shape import ModelShape
    from armillary.serving.hexgen.planner import Plan
    from armillary.serving.hexgen.steptimes import (
        MAX_BATCH,
        MAX_LENGTH,
        MAX_STEP_TOKENS,
        StepTimes,
    )
    from armillary.serving.hexgen.traces import Slo, Workload

    catalog = Catalog.load()
    shape = ModelShape("queue", 1, 64, 1, 1, 64, 64, 64)
    tokens, rows = np.zeros(MAX_STEP_TOKENS + MAX_BATCH + 1), np.zeros(MAX_BATCH + 1)
    times = StepTimes(
        shape, catalog["h100"], 1, tokens, tokens, rows, rows, rows, np.zeros(MAX_LENGTH + 1),
        10**12, overhead=STEP_S,
    )  # fmt: skip
    c = SERVERS[cell.case.name]
    column = Column("agg", "queue", (("h100", 1),), 1.0, float(c), c, 512, 0.0, 0.0, 1.0, times)
    rng = np.random.default_rng(cell.seed)
    n = REQUESTS[cell.profile]
    outputs = np.full(n, SERVICE_STEPS) if c == 1 else rng.geometric(1 / SERVICE_STEPS, n)
    trace = Workload(np.cumsum(rng.exponential(1 / (LOAD * c), n)), np.ones(n, int), outputs)
    return Plan(shape, Slo(), catalog, (column,), (1,), float(c)), trace


def _wait(work: Any, cell: Cell) -> dict[str, float]:
    from armillary.serving.hexgen.simulator import simulate

    fleet, trace = work
    run = simulate(fleet, trace)
    wait = float((run.ttft - STEP_S)[len(trace) // 20 :].mean())
    return {"wait_ratio": wait / mean_wait(cell.case.name)}


QUEUES = Experiment(
    id="queues",
    title="Waits in the simulator beside closed forms",
    cases={
        name: [Case(case, {}, TABLES) for case in SERVERS]
        for name in ("smoke", "quick", "full", "long")
    },
    setup=_setup,
    contenders=(Contender("ours", _wait),),
    metrics=(Metric("wait_ratio", "of the closed form", "neither"),),
    claims=tuple(
        Claim(
            id=f"wait-{case.lower().replace('/', '')}",
            statement=f"The simulator's mean wait at a load of {LOAD:g} is that of {case} within "
            "5 %.",
            paper="Does not validate its simulator.",
            conditions=(
                Condition(
                    Stat("wait_ratio", where=lambda c, name=case: c.name == name),
                    at_least=0.95,
                    at_most=1.05,
                ),
            ),
        )
        for case in SERVERS
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 10},
)
