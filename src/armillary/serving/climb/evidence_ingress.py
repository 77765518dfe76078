"""What the ingress costs over HTTP (E4), and what it never asks of an engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

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
    Timing,
)

if TYPE_CHECKING:
    from armillary.serving.climb.processes import Server

NEEDS = tuple(
    Need("extra", name, "pip install 'armillary[serving]'")
    for name in ("aiohttp", "starlette", "uvicorn", "prometheus_client", "pandas")
)
LITELLM = Need("venv", ".venv-litellm", "scripts/peers/litellm.sh")
CONNECTIONS = 32


# ---- servers that live as long as the process of a cell ------------------------------------------

_STARTED: dict[str, list[Server]] = {}


def direct() -> list[Server]:
    from armillary.serving.climb.processes import emitter

    if "emitter" not in _STARTED:
        _STARTED["emitter"] = [emitter()]
    return _STARTED["emitter"]


def ours() -> list[Server]:
    from armillary.serving.climb.processes import ingress

    if "ours" not in _STARTED:
        address = direct()[0].address
        _STARTED["ours"] = [ingress(f"ClimbConfig(({address!r},), slots=8)")]
    return _STARTED["ours"]


def litellm() -> list[Server]:
    """litellm's proxy with one worker, no database, no callbacks: passing on and nothing else."""
    import tempfile
    from pathlib import Path

    from armillary.evidence import peer_path
    from armillary.serving.climb.processes import Server

    if "litellm" not in _STARTED:
        folder = Path(tempfile.mkdtemp(prefix="climb-litellm-"))
        address = direct()[0].address
        (folder / "config.yaml").write_text(
            "model_list:\n"
            "  - model_name: base\n"
            "    litellm_params:\n"
            "      model: hosted_vllm/base\n"
            f"      api_base: {address}/v1\n"
            "      api_key: none\n"
            "litellm_settings:\n"
            "  telemetry: false\n"
            "  num_retries: 0\n"
            "general_settings:\n"
            "  dangerously_permit_weak_or_unset_master_key: true\n"  # on loopback, as ours
            "  disable_spend_logs: true\n"
        )
        command = [str(peer_path(".venv-litellm") / "bin" / "litellm"), "--config",
                   str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", "{port}",
                   "--num_workers", "1"]  # fmt: skip
        _STARTED["litellm"] = [
            Server(
                command,
                ready="/health/liveliness",
                seconds=120,
                environment={"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            )
        ]
    return _STARTED["litellm"]


# ---- E4 ------------------------------------------------------------------------------------------


def nothing(cell: Cell) -> None:
    """Traffic is drawn from the cell's seed by each contender alike."""


def answered_in(start: Callable[[], list[Server]]) -> Callable[[None, Cell], Mapping[str, float]]:
    """Poisson traffic at a rate: how long answers of eight events take."""

    def run(work: None, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.climb.emulator import BASE
        from armillary.serving.climb.loading import replay
        from armillary.serving.climb.traces import multi_lora_trace

        (server,) = start()
        x = cell.case.x
        trace = multi_lora_trace(x["seconds"], x["rate"], 1, vip_adapters=0, prompt_tokens=16,
                                 output_tokens=8, seed=cell.seed)  # fmt: skip
        trace["adapter"] = ""
        results = asyncio.run(replay(trace, server.address, base_model=BASE))
        bad = sum(r.status != 200 for r in results)
        if bad:
            raise RuntimeError(f"{bad} of {len(results)} requests were not answered")
        took = np.array([r.done - r.sent for r in results])[len(results) // 10 :]
        return {
            "p50": float(np.quantile(took, 0.5)),
            "p99": float(np.quantile(took, 0.99)),
            "late": float(np.mean([r.sent - r.due for r in results])),
        }

    return run


def _rates(seconds: float, *rates: int) -> list[Case]:
    return [Case(f"{r} requests/s", x={"rate": r, "seconds": seconds}, needs=NEEDS) for r in rates]


OVERHEAD = Experiment(
    id="overhead",
    title="Time to pass a request on and its answer back",
    cases={
        "smoke": _rates(0.5, 50),
        "quick": _rates(1, 200),
        "full": _rates(3, 200, 400),
        "long": _rates(20, 50, 100, 200, 400, 800),
    },
    setup=nothing,
    contenders=(Contender("ours", answered_in(ours)), Contender("direct", answered_in(direct))),
    metrics=(Metric("p50", "s"), Metric("p99", "s"), Metric("late", "s")),
    claims=(
        Claim(
            id="two-milliseconds",
            statement="At 200 requests a second the ingress adds at most 2 ms to the median answer "
            "of an engine that answers at once.",
            paper="Not in the abstract.",
            conditions=(
                Condition(
                    Stat("p50", over=("direct",), form="difference",
                         where=lambda case: case.x["rate"] == 200),
                    at_most=0.002,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(metrics=("p50", "p99"), warmups=1, repeats=2),
    packages=("aiohttp", "starlette", "uvicorn"),
)  # fmt: skip


def at_most(start: Callable[[], list[Server]]) -> Callable[[None, Cell], Mapping[str, float]]:
    """As many requests as 32 connections get answered, one after the other."""

    def run(work: None, cell: Cell) -> Mapping[str, float]:
        (server,) = start()
        seconds = cell.case.x["seconds"]
        count, failed = asyncio.run(_hammered(server.address, seconds))
        if failed:
            raise RuntimeError(f"{failed} of {count + failed} requests were not answered")
        return {"requests per second": count / seconds, "rss": server.rss_mb}

    return run


async def _hammered(address: str, seconds: float) -> tuple[int, int]:
    import aiohttp

    counts = {True: 0, False: 0}
    message = {"role": "user", "content": "word"}
    content = {"model": "base", "messages": [message], "max_tokens": 8, "stream": True}
    end = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            async with session.post(f"{address}/v1/chat/completions", json=content) as answer:
                body = await answer.read()
                counts[answer.status == 200 and b"[DONE]" in body] += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(CONNECTIONS)))
    return counts[True], counts[False]


def _spans(*seconds: float) -> list[Case]:
    return [Case(f"{s:g} s", x={"seconds": s}, needs=NEEDS) for s in seconds]


THROUGHPUT = Experiment(
    id="throughput",
    title="Streamed chat requests a second over 32 connections, one process",
    cases={"smoke": [], "quick": [], "full": _spans(3), "long": _spans(20)},
    setup=nothing,
    contenders=(
        Contender("ours", at_most(ours)),
        Contender("direct", at_most(direct)),
        Contender("litellm", at_most(litellm), needs=(LITELLM,)),
    ),
    metrics=(Metric("requests per second", "1/s", "higher"), Metric("rss", "MB")),
    claims=(
        Claim(
            id="three-times-litellm",
            statement="The ingress passes on at least three times the requests a second of "
            "litellm's proxy, each in one process before the same engine.",
            paper="Not in the abstract.",
            conditions=(
                Condition(
                    Stat("requests per second", over=("litellm",), form="ratio", pool="geomean"),
                    at_least=3.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 0, "full": 3, "long": 3},
    timed=Timing(metrics=(), warmups=1, repeats=3),
    packages=("aiohttp", "starlette", "uvicorn"),
)


def kept_after(requests: int) -> Callable[[None, Cell], Mapping[str, float]]:
    """Memory of a fresh ingress after some requests, and after many more."""

    def run(work: None, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.climb.processes import ingress

        server = ingress(f"ClimbConfig(({direct()[0].address!r},), slots=8)")
        try:
            before = _memory_after(server, requests // 10)
            after = _memory_after(server, requests)
        finally:
            server.stop()
        return {"growth": after / before - 1}

    return run


def _memory_after(server: Server, requests: int) -> float:
    done = 0
    while done < requests:
        done += asyncio.run(_hammered(server.address, 1.0))[0]
    return server.rss_mb


MEMORY = Experiment(
    id="memory",
    title="Memory of the ingress after 2,000 and after 20,000 more requests",
    cases={"smoke": [], "quick": [], "full": _spans(0), "long": _spans(0)},
    setup=nothing,
    contenders=(Contender("ours", kept_after(20_000)),),
    metrics=(Metric("growth", "share"),),
    claims=(
        Claim(
            id="memory-stays",
            statement="Over 20,000 requests the ingress's memory grows by at most 5 %.",
            paper="Not in the abstract.",
            conditions=(Condition(Stat("growth"), at_most=0.05, every=True),),
        ),
    ),
    seeds={"smoke": 0, "quick": 0, "full": 3, "long": 3},
    packages=("aiohttp", "starlette", "uvicorn"),
)


# ---- what the engine is never asked --------------------------------------------------------------

SLOTS = 3
ADAPTERS = ("vip-0", *(f"bg-{i}" for i in range(6)))
#: Residency marked when a load is asked for, not when it is done.
HASTY = """
from armillary.serving.climb.controller import Controller
start = Controller.load
def hasty(self, adapter, victim=None):
    start(self, adapter, victim)
    self.loaded(adapter.name, adapter.load_seconds, 0.0)
Controller.load = hasty
"""


def through(before: str = "", policy: str = "climb") -> Callable[[None, Cell], Mapping[str, float]]:
    """Traffic of more adapters than slots, through an ingress to the emulated engine."""

    def run(work: None, cell: Cell) -> Mapping[str, float]:
        import json
        import urllib.request

        from armillary.serving.climb.loading import replay
        from armillary.serving.climb.processes import emulator, ingress
        from armillary.serving.climb.traces import multi_lora_trace

        engine = emulator("EngineModel(base=0.01, load=0.1)", SLOTS, ADAPTERS)
        adapters = ", ".join(
            f"{n!r}: AdapterConfig({'vip' if n[0] == 'v' else 'background'!r}, '/x')"
            for n in ADAPTERS
        ).replace("AdapterConfig(vip", "AdapterConfig('vip'")
        front = ingress(
            f"ClimbConfig(({engine.address!r},), adapters={{{adapters}}}, policy={policy!r})",
            before=before,
        )
        try:
            trace = multi_lora_trace(cell.case.x["seconds"], 15, len(ADAPTERS), vip_adapters=1,
                                     output_tokens=12, seed=cell.seed)  # fmt: skip
            results = asyncio.run(replay(trace, front.address, base_model="base", timeout=60))
            with urllib.request.urlopen(f"{engine.address}/state", timeout=5) as answer:
                state = json.load(answer)
        finally:
            front.stop()
            engine.stop()
        vip = (trace["class"] == "vip").to_numpy()
        wait = np.array([r.first - r.due for r in results])
        return {
            "unasked misses": float(state["unasked_misses"]),
            "unanswered": float(sum(r.status != 200 for r in results)),
            "vip p99": float(np.nanquantile(wait[vip], 0.99)),
            "background p99": float(np.nanquantile(wait[~vip], 0.99)),
        }

    return run


UNASKED = Experiment(
    id="unasked",
    title="Seven adapters on three slots, over HTTP: misses that the engine was not asked to make",
    cases={"smoke": _spans(1), "quick": _spans(3), "full": _spans(10), "long": _spans(60)},
    setup=nothing,
    contenders=(
        Contender("ours", through()),
        Contender("marked-at-start", through(HASTY)),
        Contender("fcfs", through(policy="fcfs")),
    ),
    metrics=(
        Metric("unasked misses"),
        Metric("unanswered"),
        Metric("vip p99", "s"),
        Metric("background p99", "s"),
    ),
    claims=(
        Claim(
            id="no-unasked-miss",
            statement="No request reaches the engine before its adapter is resident, and every "
            "request is answered.",
            paper="The abstract: an adapter is ready as a whole or not at all.",
            conditions=(
                Condition(Stat("unasked misses"), at_most=0, every=True),
                Condition(Stat("unanswered"), at_most=0, every=True),
            ),
            ablations=(Ablation("marked-at-start", "unasked misses"),),
        ),
        Claim(
            id="vip-off-the-cliff-over-http",
            statement="There, before an engine that runs in real time, VIP's 99th percentile is at "
            "most 1/2.95 of what it is with the same ingress passing requests on as they come.",
            paper="2.95 times, on another workload.",
            conditions=(
                Condition(Stat("vip p99", over=("fcfs",), form="ratio", pool="geomean"),
                          at_most=1 / 2.95),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 5},
    packages=("aiohttp", "starlette", "uvicorn"),
)  # fmt: skip
