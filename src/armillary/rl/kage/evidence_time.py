"""What is timed: blocks of random steps on one core, every frame consumed.

A consumed frame is written whole into a buffer that the loop carries and gives back, and a byte of
it decides the next action, so that no compiler can leave the drawing out. Physics alone is timed
apart, and named so.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from armillary.evidence import inputs
from armillary.evidence.shapes import (
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
from armillary.rl.kage import peers, throughput
from armillary.rl.kage.evidence_exact import CHECKOUT

EXTRA = "pip install 'armillary[rl-peers]'"
#: Frames of a timed block, about, and its fewest steps: a block begins with fresh memory.
FRAMES, FEWEST = 4096, 16
#: Steps without frames are so quick that a block takes more of them.
PHYSICS = 200_000
MEMSET = 256 * 2**20


class Engines:
    """Compiled blocks of one number of environments, each made when first asked for."""

    def __init__(self, cell: Cell) -> None:
        if hasattr(os, "sched_setaffinity"):  # before XLA counts cores for its threads
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cell.threads])
        self.n = int(cell.case.x["n"])
        self.threads = cell.threads
        fewest = int(cell.case.x.get("fewest", FEWEST))
        self.steps = max(fewest, int(cell.case.x.get("frames", FRAMES)) // self.n)
        self.physics_steps = max(20, int(cell.case.x.get("physics", PHYSICS)) // self.n)

    def ours(self, mode: throughput.Mode) -> throughput.Block:
        steps = self.physics_steps if mode == "physics" else self.steps
        return _ours(self.n, steps, mode)

    @functools.cached_property
    def _original(self) -> Any:
        return peers.original_env(inputs.peer_path("kage-bench"))

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def original(self, frames: bool) -> peers.Block:
        steps = self.steps if frames else max(4, self.physics_steps // 20)
        return peers.original_block(self._original, self.n, steps, frames)

    @functools.cached_property
    def craftax(self) -> tuple[peers.Block, int]:
        return peers.craftax_block(self.n, max(2, self.steps // 8))

    @functools.cached_property
    def envpool(self) -> tuple[peers.Block, int]:
        return peers.envpool_block(self.n, self.steps, self.threads)

    @functools.cached_property
    def memset(self) -> float:
        """Bytes a second of writing one value into 256 MiB, the best of three."""
        buffer = np.empty(MEMSET, np.uint8)
        best = float("inf")
        for value in range(4):
            start = time.perf_counter()
            buffer.fill(value)
            best = min(best, time.perf_counter() - start)
        return MEMSET / best


@functools.lru_cache(maxsize=4)
def _ours(n: int, steps: int, mode: throughput.Mode) -> throughput.Block:
    from armillary.rl.kage.pairs import any_config

    return throughput.block(any_config(), n, steps, mode)


def _timed(run: Callable[[], float], count: int, frame: int) -> dict[str, float]:
    start = time.perf_counter()
    checksum = run()
    seconds = time.perf_counter() - start
    found = {"us": 1e6 * seconds / count, "checksum": checksum}
    if frame:
        found["gb_per_s"] = 1e-9 * frame * count / seconds
    return found


def rgb(work: Engines, cell: Cell) -> Mapping[str, float]:
    frame = 128 * 128 * 3
    found = _timed(work.ours("rgb"), work.n * work.steps, frame)
    found["memset_share"] = 1e9 * found["gb_per_s"] / work.memset
    return found


def index(work: Engines, cell: Cell) -> Mapping[str, float]:
    return _timed(work.ours("index"), work.n * work.steps, 128 * 128)


def physics(work: Engines, cell: Cell) -> Mapping[str, float]:
    return _timed(work.ours("physics"), work.n * work.physics_steps, 0)


def original(work: Engines, cell: Cell) -> Mapping[str, float]:
    return _timed(work.original(True), work.n * work.steps, 128 * 128 * 3)


def original_physics(work: Engines, cell: Cell) -> Mapping[str, float]:
    steps = max(4, work.physics_steps // 20)
    return _timed(work.original(False), work.n * steps, 0)


def craftax(work: Engines, cell: Cell) -> Mapping[str, float]:
    run, frame = work.craftax
    return _timed(run, work.n * max(2, work.steps // 8), frame)


def envpool(work: Engines, cell: Cell) -> Mapping[str, float]:
    run, frame = work.envpool
    return _timed(run, work.n * work.steps, frame)


def _sizes(*sizes: int, **x: float) -> list[Case]:
    return [Case(f"n={n}", x={"n": n, **x}) for n in sizes]


def _at(n: int) -> Callable[[Case], bool]:
    return lambda case: case.x["n"] == n


METRICS = (
    Metric("us", "microseconds a step of one environment"),
    Metric("gb_per_s", "GB of frames a second", "higher"),
    Metric("memset_share", "of memset's bandwidth", "higher"),
    Metric("checksum", "", "neither"),
)


def _ratio(of: str, over: str, n: int | None = None) -> Stat:
    where = None if n is None else _at(n)
    return Stat("us", of=of, over=(over,), form="ratio", pool="geomean", where=where)


THROUGHPUT = Experiment(
    id="throughput",
    title="Steps with frames, steps without, and steps with an index map; one core",
    cases={
        "smoke": _sizes(8, frames=16, physics=160, fewest=2),
        "quick": _sizes(64),
        "full": _sizes(1, 64, 1024),
        "long": [],
    },
    setup=Engines,
    contenders=(
        Contender("ours", rgb),
        Contender("index", index),
        Contender("physics", physics),
        Contender("original", original, CHECKOUT, required=False),
        Contender("original-physics", original_physics, CHECKOUT, required=False),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="frames-64",
            statement="With 64 environments a step with its frame consumed takes at most an eighth "
            "of the original's.",
            paper="Up to 33 M steps a second on one GPU, measured by a script whose frames nobody "
            "reads.",
            conditions=(Condition(_ratio("ours", "original", 64), at_most=1 / 8),),
        ),
        Claim(
            id="frames-1024",
            statement="With 1024 environments it takes at most a twelfth of the original's.",
            paper="As above.",
            conditions=(Condition(_ratio("ours", "original", 1024), at_most=1 / 12),),
        ),
        Claim(
            id="physics",
            statement="A step without a frame takes at most a tenth of the original's.",
            paper="As above: this is what that script measures.",
            conditions=(Condition(_ratio("physics", "original-physics"), at_most=1 / 10),),
        ),
        Claim(
            id="index-maps",
            statement="A step with an index map takes at most a third of one with an RGB frame.",
            paper="Not part of the paper.",
            conditions=(Condition(_ratio("index", "ours", 64), at_most=1 / 3),),
        ),
        Claim(
            id="near-the-limit",
            statement="Frames of 64 environments are written at 0.4 or more of the bandwidth with "
            "which memset fills 256 MiB.",
            paper="Not part of the paper.",
            conditions=(Condition(Stat("memset_share", where=_at(64)), at_least=0.4),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    timed=Timing(metrics=("us",), warmups=1, repeats=5),
)

SCALING = Experiment(
    id="scaling",
    title="Time of a step of all environments against their number",
    cases={
        "smoke": [],
        "quick": [],
        "full": _sizes(1024, 2048, 4096, 8192),
        "long": [],
    },
    setup=Engines,
    contenders=(
        Contender("ours", lambda work, cell: {"ms": 1e-3 * work.n * rgb(work, cell)["us"]}),
    ),
    metrics=(Metric("ms", "ms a step of all"),),
    claims=(
        Claim(
            id="linear-in-environments",
            statement="From 1024 environments on, the time of a step of all with their frames "
            "grows with at most the power 1.05 of their number.",
            paper="Not stated.",
            conditions=(Condition(Stat("ms", form="slope", along="n"), at_most=1.05),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 3},
    timed=Timing(metrics=("ms",), warmups=1, repeats=3),
)

ENGINES = Experiment(
    id="engines",
    title="Bytes of frames a second beside other engines, 64 environments, one core",
    cases={
        "smoke": [],
        "quick": [],
        "full": _sizes(64),
        "long": [],
    },
    setup=Engines,
    contenders=(
        Contender("ours", rgb),
        Contender("craftax", craftax, (Need("extra", "craftax", EXTRA),)),
        Contender("envpool", envpool, (Need("extra", "envpool", EXTRA),)),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="bytes-of-frames",
            statement="It gives more bytes of frames a second than Craftax (63 x 63 floats) and "
            "EnvPool's Atari (84 x 84 grey), whose worlds are richer.",
            paper="Not compared in the abstract.",
            conditions=(
                Condition(
                    Stat("gb_per_s", over=("craftax", "envpool"), form="ratio", pool="geomean"),
                    at_least=1.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 3},
    timed=Timing(metrics=("us",), warmups=1, repeats=3),
    packages=("craftax", "envpool"),
)
