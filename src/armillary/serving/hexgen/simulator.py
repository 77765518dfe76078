"""`simulate`: a fleet under a trace of requests, event by event.

Requests come in time order and go to an AGG replica, or to a PRE and then, after its KV cache has
crossed the link, to a DEC or AFD one. Paths are chosen in proportion to what the replicas that are
up can carry; within a kind the router chooses.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.serving.hexgen.columns import Column
from armillary.serving.hexgen.planner import Plan
from armillary.serving.hexgen.replicas import AfdGroup, Replica, Requests
from armillary.serving.hexgen.traces import Slo, Workload

if TYPE_CHECKING:
    import pandas as pd

ROUTERS = ("least", "round-robin", "two")


@dataclasses.dataclass(frozen=True)
class SimResult:
    """What became of every request.

    Attributes:
        t: (n,) arrival, s.
        ttft: (n,) seconds to the first token; infinite if there was none.
        tpot: (n,) seconds an answer token after the first; 0 for answers of one token.
        finish: (n,) when the answer was complete, s.
        replica: (n,) the last replica that held it.
        preempted: (n,) how often its cache was dropped.
        slo: the targets.
        cost: of the fleet over the run, in the catalogue's currency.
        changes: replicas that came or went.
        replicas: how many there were at most.
    """

    t: NDArray[np.float64]
    ttft: NDArray[np.float64]
    tpot: NDArray[np.float64]
    finish: NDArray[np.float64]
    replica: NDArray[np.int64]
    preempted: NDArray[np.int64]
    slo: Slo
    cost: float
    changes: int = 0
    replicas: int = 0

    @property
    def good(self) -> NDArray[np.bool_]:
        """(n,) whether both targets were met."""
        return (self.ttft <= self.slo.ttft_p99_s) & (self.tpot <= self.slo.tpot_s)

    def attainment(self, skip: float = 0.0) -> float:
        """Share of requests that met both targets, the first ``skip`` of them left out."""
        return float(self.good[int(len(self.t) * skip) :].mean())

    def quantile(self, name: str, q: float, skip: float = 0.0) -> float:
        """A quantile of ``ttft`` or ``tpot``."""
        values = getattr(self, name)[int(len(self.t) * skip) :]
        return float(np.quantile(values, q))

    @property
    def throughput(self) -> float:
        """Requests a second, from the first arrival to the last finish."""
        return len(self.t) / max(float(np.nanmax(self.finish) - self.t[0]), 1e-9)

    @property
    def good_per_unit(self) -> float:
        """Requests that met the targets, for each unit of currency."""
        return float(self.good.sum()) / max(self.cost, 1e-12)

    def table(self) -> pd.DataFrame:
        """One row a request."""
        import pandas as pd

        return pd.DataFrame(
            {
                "t_s": self.t, "ttft_s": self.ttft, "tpot_s": self.tpot, "finish_s": self.finish,
                "replica": self.replica, "preempted": self.preempted, "good": self.good,
            }
        )  # fmt: skip

    def summary(self) -> dict[str, float]:
        """The figures that people ask for."""
        return {
            "requests": len(self.t),
            "attainment": self.attainment(),
            "ttft_p50_s": self.quantile("ttft", 0.5),
            "ttft_p99_s": self.quantile("ttft", 0.99),
            "tpot_p50_ms": 1e3 * self.quantile("tpot", 0.5),
            "tpot_p99_ms": 1e3 * self.quantile("tpot", 0.99),
            "throughput_rps": self.throughput,
            "cost": self.cost,
            "cost_per_1k_requests": 1e3 * self.cost / len(self.t),
            "good_requests_per_unit": self.good_per_unit,
            "preemptions": int(self.preempted.sum()),
        }


@dataclasses.dataclass(frozen=True)
class Failure:
    """A replica goes down at ``t`` (s) and is back after ``down_s``."""

    t: float
    replica: int
    down_s: float


class Fleet:
    """Replicas with a clock. `simulate` and the autoscaler drive it."""

    def __init__(
        self, workload: Workload, slo: Slo, kv_bytes: float, *, router: str = "least", seed: int = 0
    ) -> None:
        if router not in ROUTERS:
            raise ValueError(f"router={router!r}: it must be one of {', '.join(ROUTERS)}")
        self.workload, self.slo, self.kv_bytes = workload, slo, kv_bytes
        self.requests = Requests(workload.t, workload.inputs, workload.outputs)
        self.replicas: list[Replica] = []
        self.pools: dict[str, list[Replica]] = {"agg": [], "pre": [], "dec": []}
        self.heap: list[tuple[float, int, int, int, Any]] = []
        self.serial = 0
        self.router = router
        self.rng = np.random.default_rng(seed)
        self.turn = {"agg": 0, "pre": 0, "dec": 0}
        self.share, self.credit = 1.0, 0.0
        self.parked: list[tuple[str, int]] = []
        self.changes = 0
        self.now = 0.0
        self.seen = 0  # requests that have arrived

    # Membership

    def add(self, column: Column, ready: float = 0.0) -> Replica:
        """A replica that is paid from now on and serves from ``ready`` (s) on."""
        kind = AfdGroup if column.kind == "afd" else Replica
        replica = kind(len(self.replicas), column, self.requests, self._done, self._again)
        replica.start, replica.up = self.now, False
        self.replicas.append(replica)
        if ready <= self.now:
            self._open(replica)
        else:
            self.at(ready, lambda: self._open(replica))
        return replica

    def drain(self, replica: Replica) -> None:
        """No new requests; it goes when its last one is done."""
        replica.draining = True
        self._close(replica)
        self._retire(replica)

    def fail(self, replica: Replica, down_s: float) -> None:
        """Lose what it holds (it is served anew elsewhere), come back after ``down_s`` s."""
        if not replica.up:
            return
        self._close(replica)
        held = replica.drop(self.now)
        for request in held:
            self.requests.made[request] = 0
            self._enter(request)
        self.at(self.now + down_s, lambda: self._open(replica))

    def at(self, t: float, action: Callable[[], None]) -> None:
        """Call ``action`` at ``t`` s."""
        self.serial += 1
        heapq.heappush(self.heap, (t, 1, self.serial, -1, action))

    def _open(self, replica: Replica) -> None:
        if replica.draining or replica.stop < math.inf:
            return
        replica.up = True
        replica.t = self.now
        self.pools[_pool(replica.column)].append(replica)
        self._shares()
        parked, self.parked = self.parked, []
        for stage, request in parked:
            self._enter(request) if stage == "new" else self._decode(request)

    def _close(self, replica: Replica) -> None:
        pool = self.pools[_pool(replica.column)]
        if replica in pool:
            pool.remove(replica)
        replica.up = False
        self._shares()

    def _retire(self, replica: Replica) -> None:
        if replica.draining and replica.in_flight == 0 and replica.stop == math.inf:
            replica.stop = self.now

    def _shares(self) -> None:
        carried = {k: sum(r.column.capacity for r in pool) for k, pool in self.pools.items()}
        apart = min(carried["pre"], carried["dec"])
        whole = carried["agg"] + apart
        self.share = carried["agg"] / whole if whole > 0 else 1.0

    # Routing

    def _choose(self, kind: str) -> Replica | None:
        pool = self.pools[kind]
        if len(pool) < 2:
            return pool[0] if pool else None
        if self.router == "round-robin":
            self.turn[kind] = (self.turn[kind] + 1) % len(pool)
            return pool[self.turn[kind]]
        if self.router == "two":
            i, j = self.rng.choice(len(pool), 2, replace=False)
            pool = [pool[i], pool[j]]
        if kind == "pre":
            return min(pool, key=_prompt_load)
        return min(pool, key=_load)

    def _enter(self, request: int) -> None:
        """To an AGG or a PRE replica, in proportion to what both paths carry."""
        self.credit += self.share
        if self.credit >= 1.0 - 1e-12:
            self.credit -= 1.0
            kind = "agg"
        else:
            kind = "pre"
        replica = self._choose(kind) or self._choose("agg" if kind == "pre" else "pre")
        if replica is None:
            self.parked.append(("new", request))
            return
        self._to(replica, request)

    def _to(self, replica: Replica, request: int) -> None:
        wake = replica.arrive(request, self.now)
        if wake is not None:
            heapq.heappush(self.heap, (wake, 0, replica.number, replica.version, replica))

    def _done(self, request: int, now: float) -> None:
        """A replica is through with a request."""
        replica = self.replicas[self.requests.where[request]]
        if self.requests.finish[request] == self.requests.finish[request]:
            if replica.draining:
                self._retire(replica)
            return
        self._ship(request, now, replica)

    def _ship(self, request: int, now: float, replica: Replica) -> None:
        size = self.kv_bytes * (self.requests.inputs[request] + self.requests.made[request])
        start = max(now, replica.link_free)
        replica.link_free = start + size / replica.column.kv_bandwidth
        self.serial += 1
        heapq.heappush(self.heap, (replica.link_free, 2, self.serial, -2, request))
        if replica.draining:
            self._retire(replica)

    def _again(self, request: int, now: float) -> None:
        """A decode replica had no room: the cache is fetched anew over its link."""
        self._ship(request, now, self.replicas[self.requests.where[request]])

    def _decode(self, request: int) -> None:
        replica = self._choose("dec")
        if replica is None:
            self.parked.append(("cache", request))
            return
        self._to(replica, request)

    # The clock

    def run(self, until: float = math.inf) -> None:
        """Until every request is served, or up to ``until`` s."""
        heap, t, n = self.heap, self.requests.t, len(self.requests.t)
        pop, push = heapq.heappop, heapq.heappush
        while True:
            arrival = t[self.seen] if self.seen < n else math.inf
            if heap and heap[0][0] <= arrival:
                when = heap[0][0]
                if when > until:
                    break
                when, _, _, version, what = pop(heap)
                if version >= 0:
                    if version != what.version:
                        continue
                    self.now = when
                    wake = what.wake(when)
                    if wake is not None:
                        push(heap, (wake, 0, what.number, what.version, what))
                elif version == -2:
                    self.now = when
                    self._decode(what)
                else:
                    self.now = when
                    what()
            elif arrival <= until and arrival < math.inf:
                self.now = arrival
                self.seen += 1
                self._enter(self.seen - 1)
            else:
                break
        if until < math.inf:
            self.now = max(self.now, until)

    def cost(self, until: float) -> float:
        """Of all replicas up to ``until`` s, idle or not."""
        return sum(
            r.column.price * max(min(r.stop, until) - r.start, 0.0) / 3600 for r in self.replicas
        )

    def result(self, until: float | None = None) -> SimResult:
        """What became of the requests; costs are counted up to ``until`` (the last arrival)."""
        r = self.requests
        t, first, finish = np.array(r.t), np.array(r.first), np.array(r.finish)
        outputs = np.array(r.outputs)
        ttft = np.where(np.isfinite(first), first - t, np.inf)
        with np.errstate(invalid="ignore"):
            tpot = np.where(outputs > 1, (finish - first) / np.maximum(outputs - 1, 1), 0.0)
        tpot = np.where(np.isfinite(finish), tpot, np.inf)
        end = float(t[-1]) if until is None else until
        return SimResult(
            t, ttft, tpot, finish, np.array(r.where), np.array(r.preempted), self.slo,
            self.cost(end), self.changes, len(self.replicas),
        )  # fmt: skip


def _load(replica: Replica) -> float:
    return (replica.in_flight + 1) / replica.batch


def _prompt_load(replica: Replica) -> float:
    return (replica.in_flight + 1) / replica.column.capacity


def _pool(column: Column) -> str:
    return "dec" if column.kind == "afd" else column.kind


def simulate(
    plan: Plan,
    workload: Workload,
    *,
    router: str = "least",
    seed: int = 0,
    failures: Sequence[Failure] = (),
) -> SimResult:
    """A plan's fleet under a trace.

    Args:
        plan: the fleet.
        workload: arrivals and lengths.
        router: ``least`` (least share of its batch in use), ``round-robin``, or ``two`` (the better
            of two drawn at random).
        seed: of the router's draws.
        failures: replicas, by number in the order of the plan, that go down and come back.

    Returns:
        Every request's times, and the fleet's cost up to the last arrival.
    """
    fleet = Fleet(workload, plan.slo, plan.shape.kv_bytes, router=router, seed=seed)
    for column, count in zip(plan.columns, plan.counts, strict=True):
        for _ in range(count):
            fleet.add(column)
    for failure in failures:
        if not 0 <= failure.replica < len(fleet.replicas):
            raise ValueError(
                f"failures: replica {failure.replica}, the plan has {len(fleet.replicas)}"
            )
        replica = fleet.replicas[failure.replica]
        fleet.at(failure.t, lambda r=replica, f=failure: fleet.fail(r, f.down_s))
    fleet.run()
    return fleet.result()
