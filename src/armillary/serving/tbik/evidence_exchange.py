"""How long ranks take to agree on a sum, on real processes of one host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

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
)  # fmt: skip
from armillary.serving.tbik.evidence_kernels import NEEDS

SMALL, LARGE = 576, 1 << 20  # 2.3 KB: a hidden state of SmolLM2; 4 MB: that of a long prompt
TRANSPORTS = {"ours": "shm", "gloo-tree": "gloo", "gloo-all-reduce": "gloo"}
PRELOAD = ["torch", "torch.distributed", "armillary.serving.tbik.dist"]


def sizes(cell: Cell) -> tuple[int, ...]:
    return (SMALL, 1 << 14) if cell.profile == "smoke" else (SMALL, LARGE)


def on_rank(group: Any, how: str, lengths: tuple[int, int], seed: int) -> tuple[float, float]:
    """Median seconds of one exchange, for each length; every rank starts each one together."""
    import torch
    import torch.distributed as dist

    from armillary.serving.tbik.plan import TreePlan, even_shards

    k = 64 * 24
    plan = TreePlan(k, 64, even_shards(k, 64, group.world))
    generator = torch.Generator().manual_seed(seed)
    found = []
    for n, repeats in zip(lengths, (60, 5), strict=True):
        parts = [(node, torch.randn(1, n, generator=generator)) for node in plan.nodes(group.rank)]
        taken = []
        for i in range(repeats + 2):
            dist.barrier()
            start = time.perf_counter()
            if how == "gloo-all-reduce":
                total = parts[0][1].clone()
                dist.all_reduce(total)
            else:
                total = group.reduce(parts, plan)
            if i >= 2:
                taken.append(time.perf_counter() - start)
            assert torch.isfinite(total).all()
        found.append(sorted(taken)[len(taken) // 2])
    return found[0], found[1]


def exchange(name: str) -> Callable[[Any, Cell], Mapping[str, float]]:
    def run(work: tuple[int, int], cell: Cell) -> Mapping[str, float]:
        from armillary.serving.tbik.ranks import run_ranks

        world = int(cell.case.x["ranks"])
        transport = TRANSPORTS[name]
        found = run_ranks(
            world, on_rank, name, work, cell.seed, transport=transport, preload=PRELOAD
        )
        small, large = (max(column) for column in zip(*found, strict=True))
        return {"small": small, "large": large}

    return run


def _cases(*ranks: int) -> list[Case]:
    return [Case(f"{p} ranks", x={"ranks": p}, needs=NEEDS) for p in ranks]


def ratio(metric: str, at_most: float, of: str) -> Condition:
    stat = Stat(metric, of=of, over=("gloo-all-reduce",), form="ratio", pool="geomean")
    return Condition(stat, at_most=at_most)


EXCHANGE = Experiment(
    id="exchange",
    title="Seconds of one exchange of 2.3 KB and of 4 MB",
    cases={
        "smoke": _cases(2),
        "quick": [],
        "full": _cases(2, 4, 8),
        "long": _cases(2, 4, 8),
    },
    setup=sizes,
    contenders=tuple(Contender(name, exchange(name)) for name in TRANSPORTS),
    metrics=(Metric("small", "s"), Metric("large", "s")),
    claims=(
        Claim(
            id="shared-memory-is-quick",
            statement="Through shared memory the exchange of a small message takes at most 0.2 of "
            "the time of gloo's all_reduce, which adds in an order of its own.",
            paper="Has a kernel of its own for small messages over NVLink; no figure.",
            conditions=(ratio("small", 0.2, "ours"),),
        ),
        Claim(
            id="gloo-tree-is-no-slower",
            statement="Through gloo the tree takes no longer than gloo's all_reduce for small "
            "messages, and at most 1.3 times as long for large ones.",
            paper="Gives no figure for the cost.",
            conditions=(ratio("small", 1.0, "gloo-tree"), ratio("large", 1.3, "gloo-tree")),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 7},
    timed=Timing(("small", "large"), warmups=0, repeats=1, threads=1),
    packages=("torch",),
)
