"""The cliff in simulated time (E1), and what the simulation costs (E5).

The traffic is that of the abstract: 10.66 requests a second, 30 % of them VIP on two adapters, the
rest evenly over the others; eight slots. Lengths are drawn (24 output tokens on average).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
    Timing,
)

NEEDS = (Need("extra", "pandas", "pip install 'armillary[serving]'"),)
SLOTS, RATE, VIPS, VIP_SHARE = 8, 10.66, 2, 0.3
#: Seconds at the start that are not counted: every adapter is loaded for the first time in them.
WARM = 30.0
PEERS = ("fcfs", "priority", "longest-queue", "partition", "affinity-router")


class Work(NamedTuple):
    """Traffic over the working set, the same traffic over as many adapters as there are slots, and
    a rare adapter's lone request."""

    trace: Any
    uncrowded: Any
    seconds: float
    load: float


def setup(cell: Cell) -> Work:
    from armillary.serving.climb.traces import multi_lora_trace

    x = cell.case.x
    draw = functools.partial(
        multi_lora_trace, x["seconds"], RATE, vip_adapters=VIPS, vip_share=VIP_SHARE, seed=cell.seed
    )
    return Work(draw(int(x["working_set"])), draw(SLOTS), x["seconds"], x["load"])


def served(
    make: Callable[[], Any], *, blind: bool = False
) -> Callable[[Work, Cell], Mapping[str, float]]:
    """A contender: a policy before the simulated engine.

    Args:
        make: the policy.
        blind: whether every request looks like background to it.
    """

    def replay(trace: Any, work: Work) -> Any:
        from armillary.serving.climb.engine_model import EngineModel
        from armillary.serving.climb.simulation import simulate

        shown = trace.assign(**{"class": "background"}) if blind else trace
        engine = EngineModel(load=work.load)
        result = simulate(shown, engine, make(), SLOTS, until=20 * work.seconds)
        if blind:
            vip = result.requests["adapter"].str.startswith("vip")
            result.requests["class"] = vip.map({True: "vip", False: "background"})
        return result

    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        result = replay(work.trace, work)
        found = tails(result.requests, work.seconds)
        found["loads"] = float(result.loads)
        found["unfinished"] = float(result.unfinished)
        calm = replay(work.uncrowded, work)
        found["vip tail over that without crowd"] = (
            found["vip p99"] / tails(calm.requests, work.seconds)["vip p99"]
        )
        return found

    return run


def tails(requests: Any, seconds: float) -> dict[str, float]:
    """Percentiles of times to the first token, and what was answered while traffic came."""
    counted = requests[requests["arrived"] > min(WARM, seconds / 4)]
    wait = counted["first"] - counted["arrived"]
    inside = counted["first"] - counted["sent"]
    vip = counted["class"] == "vip"
    return {
        "vip p50": float(wait[vip].quantile(0.5)),
        "vip p99": float(wait[vip].quantile(0.99)),
        "vip engine p99": float(inside[vip].quantile(0.99)),
        "background p50": float(wait[~vip].quantile(0.5)),
        "background p99": float(wait[~vip].quantile(0.99)),
        "longest wait": float(wait.max()),
        "throughput": float((requests["done"] < seconds).sum() / seconds),
    }


def policy(name: str, **settings: Any) -> Callable[[], Any]:
    """A fresh policy, made when it is used."""

    def make() -> Any:
        from armillary.serving.climb.policies import POLICIES

        return POLICIES[name](**settings)

    return make


METRICS = (
    Metric("vip p50", "s"),
    Metric("vip p99", "s"),
    Metric("vip engine p99", "s"),
    Metric("background p50", "s"),
    Metric("background p99", "s"),
    Metric("longest wait", "s"),
    Metric("throughput", "requests/s", "higher"),
    Metric("loads", "", "neither"),
    Metric("unfinished"),
    Metric("vip tail over that without crowd"),
)


def _cases(seconds: float, *settings: tuple[float, int]) -> list[Case]:
    return [
        Case(
            f"load {load:g} s, {w} adapters",
            x={"load": load, "working_set": w, "seconds": seconds},
            needs=NEEDS,
        )
        for load, w in settings
    ]


def _crowded(case: Case) -> bool:
    return case.x["working_set"] >= 1.5 * SLOTS


def _slow(case: Case) -> bool:
    return _crowded(case) and case.x["load"] == 0.35


def _fast(case: Case) -> bool:
    return _crowded(case) and case.x["load"] == 0.1


_ABSTRACT = (
    "The abstract: VIP's 99th percentile falls from 38.7 s to 13.1 s (2.95 times) at a matched "
    "10.66 requests/s; VIP latency inside the engine stays near 0.13 s; no throughput is lost."
)

CLIFF = Experiment(
    id="cliff",
    title="Time to the first token when more adapters are used than fit (simulated engine)",
    cases={
        "smoke": _cases(20, (0.35, 12)),
        "quick": _cases(150, (0.1, 12), (0.35, 16)),
        "full": _cases(
            300, (0.35, 8), (0.1, 12), (0.35, 12), (1.0, 12), (0.1, 24), (0.35, 24), (1.0, 24)
        ),
        "long": _cases(
            300, *((load, w) for load in (0.1, 0.35, 1.0) for w in (4, 8, 10, 12, 16, 24, 32))
        ),
    },
    setup=setup,
    contenders=(
        Contender("ours", served(policy("climb"))),
        *(Contender(name, served(policy(name))) for name in PEERS),
        Contender("no-vip-rule", served(policy("climb"), blind=True)),
        Contender("paced", served(policy("climb", pace=3.0))),
        Contender(
            "drained-by-clock",
            served(policy("climb", drain_by_clock=True, q_min=0.2, quantum_fixed=0.2)),
        ),
        Contender("not-put-off", served(policy("climb", put_off=False, loads_stall=False))),
        Contender("fixed-quantum", served(policy("climb", quantum_fixed=0.2))),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="there-is-a-cliff",
            statement="First come, first served, VIP's 99th percentile is at least three times as "
            "long with half as many adapters more than slots as with as many as slots.",
            paper="The abstract: the tail jumps once the working set exceeds the slots.",
            conditions=(
                Condition(
                    Stat(
                        "vip tail over that without crowd",
                        of="fcfs",
                        pool="geomean",
                        where=_crowded,
                    ),
                    at_least=3.0,
                ),
            ),
        ),
        Claim(
            id="vip-off-the-cliff",
            statement="With half as many adapters more than slots, and more, VIP's 99th percentile "
            "is at most 1/2.95 of first come, first served; at least 0.98 of its requests are "
            "answered in the same time, and background's 99th percentile is at most twice as long.",
            paper=_ABSTRACT,
            conditions=(
                Condition(
                    Stat(
                        "vip p99",
                        over=("fcfs", "affinity-router"),
                        form="ratio",
                        pool="geomean",
                        where=_crowded,
                    ),
                    at_most=1 / 2.95,
                ),
                Condition(
                    Stat(
                        "throughput", over=("fcfs",), form="ratio", pool="geomean", where=_crowded
                    ),
                    at_least=0.98,
                ),
                Condition(
                    Stat(
                        "background p99",
                        over=("fcfs",),
                        form="ratio",
                        pool="geomean",
                        where=_crowded,
                    ),
                    at_most=2.0,
                ),
            ),
            ablations=(
                Ablation("no-vip-rule", "vip p99", where=_crowded),
                Ablation("paced", "background p99", where=_slow),
                Ablation("drained-by-clock", "background p99", where=_fast),
                Ablation("not-put-off", "vip engine p99", where=_crowded),
                Ablation("fixed-quantum", "background p99", expect="reported", where=_crowded),
            ),
        ),
        Claim(
            id="best-for-vip-of-all",
            statement="There VIP's 99th percentile is below that of every rival: priority in the "
            "engine, the longest queue first, slots parted between the classes, affinity routing.",
            paper="Compares with baselines that the abstract does not name.",
            conditions=(
                Condition(
                    Stat("vip p99", over=PEERS, form="ratio", pool="geomean", where=_crowded),
                    at_most=1.0,
                ),
            ),
        ),
        Claim(
            id="engine-stays-quick",
            statement="There VIP's 99th percentile inside the engine is at most half of that with "
            "priority alone, which admits misses.",
            paper="The abstract: near 0.13 s inside the engine; what is left is waited outside.",
            conditions=(
                Condition(
                    Stat(
                        "vip engine p99",
                        over=("priority",),
                        form="ratio",
                        pool="geomean",
                        where=_crowded,
                    ),
                    at_most=0.5,
                ),
            ),
            ablations=(Ablation("priority", "vip engine p99", where=_crowded),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 5},
    packages=("numpy", "pandas"),
)


# ---- a rare adapter ----------------------------------------------------------------------------


class Rare(NamedTuple):
    """Busy adapters, as many as slots, and one request of another."""

    trace: Any
    seconds: float


def rare(cell: Cell) -> Rare:
    """Every slot's adapter always has work; in the tenth second one request comes for a ninth."""
    import pandas as pd

    from armillary.serving.climb.traces import multi_lora_trace

    seconds = cell.case.x["seconds"]
    busy = multi_lora_trace(seconds, 120.0, SLOTS, vip_adapters=0, output_tokens=24, seed=cell.seed)
    lone = pd.DataFrame(
        [{"t_s": 10.0, "adapter": "rare", "class": "background", "prompt_tokens": 1,
          "output_tokens": 8}]
    )  # fmt: skip
    return Rare(pd.concat([busy, lone]).sort_values("t_s", kind="stable"), seconds)


def waited(make: Callable[[], Any]) -> Callable[[Rare, Cell], Mapping[str, float]]:
    def run(work: Rare, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.climb.engine_model import EngineModel
        from armillary.serving.climb.simulation import simulate

        engine = EngineModel(per_request=0.0002, load=0.35)
        rows = simulate(work.trace, engine, make(), SLOTS).requests
        one = rows[rows["adapter"] == "rare"].iloc[0]
        return {"wait": float(one["first"] - one["arrived"])}

    return run


RARE = Experiment(
    id="rare-adapter",
    title="One request for a ninth adapter while eight are busy",
    cases={
        "smoke": [Case("15 s", x={"seconds": 15}, needs=NEEDS)],
        "quick": [],
        "full": [Case(f"{s} s", x={"seconds": s}, needs=NEEDS) for s in (60, 120)],
        "long": [Case(f"{s} s", x={"seconds": s}, needs=NEEDS) for s in (60, 120, 300, 600)],
    },
    setup=rare,
    contenders=(
        Contender("ours", waited(policy("climb"))),
        Contender("longest-queue", waited(policy("longest-queue"))),
        Contender("fcfs", waited(policy("fcfs"))),
    ),
    metrics=(Metric("wait", "s"),),
    claims=(
        Claim(
            id="nobody-starves",
            statement="A lone request for a rare adapter waits at most 11 s on average while as "
            "many adapters as slots are busy all the time; with the longest queue first it waits "
            "longer the longer they are.",
            paper="The abstract: background adapters take turns.",
            conditions=(
                Condition(Stat("wait"), at_most=11.0),
                Condition(
                    Stat("wait", of="longest-queue", form="slope", along="seconds"), at_least=0.5
                ),
            ),
            ablations=(Ablation("longest-queue", "wait"),),
        ),
    ),
    seeds={"smoke": 1, "quick": 0, "full": 5, "long": 5},
    packages=("numpy", "pandas"),
)


# ---- E5: what it costs -------------------------------------------------------------------------


def traffic(cell: Cell) -> Any:
    from armillary.serving.climb.traces import multi_lora_trace

    x = cell.case.x
    return multi_lora_trace(
        x["requests"] / RATE, RATE, int(x["working_set"]), vip_adapters=VIPS,
        vip_share=VIP_SHARE, seed=cell.seed,
    )  # fmt: skip


def paced(make: Callable[[], Any]) -> Callable[[Any, Cell], Mapping[str, float]]:
    def run(trace: Any, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.climb.engine_model import EngineModel
        from armillary.serving.climb.simulation import simulate

        start = time.perf_counter()
        result = simulate(trace, EngineModel(load=0.1), make(), SLOTS)
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "events per second": result.events / seconds,
            "answered": float(len(result.requests)),
        }

    return run


def _sizes(requests: int, *working_sets: int) -> list[Case]:
    return [
        Case(f"{w} adapters", x={"requests": requests, "working_set": w}, needs=NEEDS)
        for w in working_sets
    ]


SPEED = Experiment(
    id="simulation-speed",
    title="Events a second of the simulation",
    cases={
        "smoke": _sizes(300, 12),
        "quick": _sizes(10_000, 12),
        "full": _sizes(50_000, 12, 24, 48),
        "long": _sizes(1_000_000, 12, 24, 48, 96),
    },
    setup=traffic,
    contenders=(
        Contender("ours", paced(policy("climb"))),
        Contender("fcfs", paced(policy("fcfs"))),
    ),
    metrics=(
        Metric("seconds", "s"),
        Metric("events per second", "1/s", "higher"),
        Metric("answered", "", "neither"),
    ),
    claims=(
        Claim(
            id="simulates-quickly",
            statement="The simulation handles at least 100,000 events a second (arrivals, "
            "sendings, first tokens, completions, loads) on one core.",
            paper="Has no simulator in its abstract.",
            conditions=(Condition(Stat("events per second"), at_least=100_000),),
        ),
        Claim(
            id="linear-in-adapters",
            statement="Its time grows with at most the power 1.1 of the number of adapters.",
            paper="Has no simulator in its abstract.",
            conditions=(
                Condition(Stat("seconds", form="slope", along="working_set"), at_most=1.1),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(warmups=1, repeats=2),
    packages=("numpy", "pandas"),
)
