"""`autoscale`: a fleet that follows its traffic, under four policies.

Every minute a policy sees what arrived and may ask for another fleet. New replicas are paid at once
and serve after their cold start (weights from disk, and a start of the engine); replicas that are
to go are drained only when the new ones serve. At most one change is in flight.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from armillary.serving.hexgen.allocation import Problem, price_of, solve, throughput_of
from armillary.serving.hexgen.catalog import Catalog
from armillary.serving.hexgen.columns import AfdTimes, Column, build_columns
from armillary.serving.hexgen.model_shape import BYTES, ModelShape
from armillary.serving.hexgen.planner import InfeasibleError
from armillary.serving.hexgen.replicas import Replica
from armillary.serving.hexgen.simulator import Fleet, SimResult
from armillary.serving.hexgen.traces import Slo, Workload

#: A fleet: columns with counts.
Wanted = list[tuple[Column, int]]

#: Bytes a second that one GPU loads weights with, and seconds of the engine's own start.
DISK_BANDWIDTH, ENGINE_START_S = 2e9, 20.0
WINDOW_S = 60.0
#: Utilisation to plan for, and the published dead band around it.
TARGET, BAND = 0.75, 0.08


def cold_start(shape: ModelShape, column: Column) -> float:
    """Seconds from the order to the first request: weights from the disks, and a start."""
    gpus = sum(count for _, count in column.use)
    if not isinstance(column.times, AfdTimes):
        gpus = column.times.tp
    return shape.params * BYTES / (DISK_BANDWIDTH * gpus) + ENGINE_START_S


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a policy may know.

    Attributes:
        now: seconds.
        rates: requests a second of every window so far.
        recent: requests of late, whose lengths say what is asked.
        running: replicas by the name of their column.
    """

    now: float
    rates: Sequence[float]
    recent: Workload
    running: dict[str, int]


class Policy(Protocol):
    """Chooses the fleet; `targets` gives counts of columns, or None to leave it as it is."""

    def targets(self, seen: Seen) -> Wanted | None: ...


@dataclasses.dataclass
class Market:
    """What policies choose from: columns for the traffic of late, made anew when it changes."""

    shape: ModelShape
    catalog: Catalog
    slo: Slo
    modes: tuple[str, ...] = ("agg", "pd", "afd")
    margin: float = 0.9
    _made: dict[tuple[int, ...], list[Column]] = dataclasses.field(default_factory=dict)

    def columns(self, recent: Workload) -> list[Column]:
        """Columns at the recent lengths, to steps of 10 %."""
        means = (recent.inputs.mean() + 1, recent.outputs.mean() + 1)
        key = tuple(round(math.log(v) / math.log(1.1)) for v in means)
        if key not in self._made:
            self._made[key] = build_columns(
                self.shape, self.catalog, recent, self.slo, modes=self.modes, margin=self.margin
            )
        return self._made[key]

    def problem(self, recent: Workload, rate: float, **values: Sequence[float]) -> Problem:
        """The rate form for the traffic of late."""
        inventory = {name: gpu.inventory for name, gpu in self.catalog.gpus.items()}
        kv = float(recent.inputs.mean()) * self.shape.kv_bytes
        return Problem(self.columns(recent), inventory, kv, rate=max(rate, 1e-3), **values)  # type: ignore[arg-type]


@dataclasses.dataclass
class TransitionAware:
    """Ours: the programme again, with the cost of getting there.

    The forecast is the larger of a moving average and 1.2 times the last window. Where the traffic
    of an earlier period is known (yesterday's), its requests of the minutes ahead are planned for
    as well, and the dearer of both fleets is wanted. An added replica costs its price over its cold
    start; a cheaper fleet is taken only if it saves more than that over the horizon. Where the load
    would pass what is planned for by more than the dead band, the fleet is enlarged without such a
    test.

    Attributes:
        market: what can be bought.
        horizon_s: over which a change must pay.
        earlier: requests of an earlier period, its clock set to today's.
        ahead_s: how far ahead the earlier period is looked at.
        smoothing: weight of the last window in the moving average.
        reload_cost: False: changes are taken to cost nothing (an ablation).
    """

    market: Market
    horizon_s: float = 300.0
    earlier: Workload | None = None
    ahead_s: float = 150.0
    smoothing: float = 0.3
    reload_cost: bool = True

    def forecast(self, rates: Sequence[float]) -> float:
        """Requests a second to be ready for, from today's windows alone."""
        average = rates[0]
        for rate in rates[1:]:
            average += self.smoothing * (rate - average)
        return max(average, 1.2 * rates[-1])

    def _expected(self, seen: Seen) -> list[tuple[Workload, float]]:
        """Traffic to be ready for: that of late, and that of the earlier period's next minutes."""
        found = [(seen.recent, self.forecast(seen.rates))]
        if self.earlier is not None:
            low, high = np.searchsorted(self.earlier.t, [seen.now, seen.now + self.ahead_s])
            if high - low >= 2:
                t = self.earlier.t[low:high]
                windows = np.histogram(t, np.arange(seen.now, seen.now + self.ahead_s + 1, 50.0))[0]
                last = slice(int(high - windows[-1]), int(high)) if windows[-1] >= 2 else slice(
                    int(low), int(high))  # fmt: skip
                found.append((_slice(self.earlier, last), float(windows.max()) / 50.0))
        return found

    def _wanted(self, seen: Seen, recent: Workload, rate: float) -> tuple[float, bool, Wanted]:
        """Load of the running fleet, whether a change pays, and the fleet that is wanted."""
        columns = self.market.columns(recent)
        running = [seen.running.get(c.name, 0) for c in columns]
        waits = [cold_start(self.market.shape, c) for c in columns]
        charge = [
            c.price * wait / self.horizon_s if self.reload_cost else 0.0
            for c, wait in zip(columns, waits, strict=True)
        ]
        problem = self.market.problem(recent, rate / TARGET, running=running, change_price=charge)
        found = solve(problem, time_limit=2.0)
        if found is None:
            return 0.0, False, []
        added = [max(n - r, 0) for n, r in zip(found.counts, running, strict=True)]
        saved = (price_of(problem, running) - found.price) * self.horizon_s
        spent = sum(c.price * w * a for c, w, a in zip(columns, waits, added, strict=True))
        wanted = [(c, n) for c, n in zip(columns, found.counts, strict=True) if n]
        load = rate / max(throughput_of(problem, running)[0], 1e-9)
        return load, saved > spent or not self.reload_cost, wanted

    def targets(self, seen: Seen) -> Wanted | None:
        options = [self._wanted(seen, *traffic) for traffic in self._expected(seen)]
        load = max(load for load, _, _ in options)
        _, pays, wanted = max(options, key=lambda o: sum(c.price * n for c, n in o[2]))
        if not wanted:
            return None
        if load > TARGET + BAND or not self.reload_cost:
            return wanted
        return wanted if pays and load < TARGET - BAND else None


@dataclasses.dataclass
class HpaLike:
    """One kind of replica, its number by utilisation, as horizontal pod autoscalers do.

    The number is last window's rate over 0.75 of a replica's capacity at the lengths of late; it
    grows at once and shrinks to the largest number that the last five minutes asked for. The kind
    is the one that serves the first traffic at least cost.
    """

    market: Market
    stabilisation: int = 5
    _kinds: list[str] = dataclasses.field(default_factory=list)
    _asked: list[int] = dataclasses.field(default_factory=list)

    def targets(self, seen: Seen) -> Wanted | None:
        by_name = {c.name: c for c in self.market.columns(seen.recent)}
        if not self._kinds or self._kinds[0] not in by_name:
            agg = [c for c in by_name.values() if c.kind == "agg"]
            if not agg:
                return None
            self._kinds = [max(agg, key=lambda c: c.capacity / c.price).name]
        column = by_name[self._kinds[0]]
        self._asked.append(max(1, math.ceil(seen.rates[-1] / (TARGET * column.capacity))))
        count = max(self._asked[-self.stabilisation :])
        return [(column, _affordable(self.market, column, count))]


@dataclasses.dataclass
class Proportional:
    """Prefill and decode replicas of one kind each, scaled together by the rule of `HpaLike`."""

    market: Market
    stabilisation: int = 5
    _kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    _asked: list[float] = dataclasses.field(default_factory=list)

    def targets(self, seen: Seen) -> Wanted | None:
        columns = self.market.columns(seen.recent)
        by_name = {c.name: c for c in columns}
        for kind in ("pre", "dec"):
            if self._kinds.get(kind) not in by_name:
                own = [c for c in columns if c.kind == kind]
                if not own:
                    return None
                self._kinds[kind] = max(own, key=lambda c: c.capacity / c.price).name
        self._asked.append(seen.rates[-1])
        rate = max(self._asked[-self.stabilisation :])
        chosen = [by_name[name] for name in self._kinds.values()]
        return [
            (c, _affordable(self.market, c, max(1, math.ceil(rate / (TARGET * c.capacity)))))
            for c in chosen
        ]


@dataclasses.dataclass
class StaticPeak:
    """A fleet for the peak, bought once: it knows the highest rate and the lengths in advance."""

    market: Market
    peak: float
    lengths: Workload
    _bought: bool = False

    def targets(self, seen: Seen) -> Wanted | None:
        if self._bought:
            return None
        self._bought = True
        problem = self.market.problem(self.lengths, self.peak / TARGET)
        found = solve(problem)
        if found is None:
            raise InfeasibleError(f"peak={self.peak:g}: the inventory does not carry it")
        return [(c, n) for c, n in zip(problem.columns, found.counts, strict=True) if n]


def peak_rate(workload: Workload, window_s: float = WINDOW_S) -> float:
    """Requests a second of the fullest window."""
    edges = np.arange(0.0, float(workload.t[-1]) + window_s, window_s)
    return float(np.histogram(workload.t, edges)[0].max()) / window_s


def _affordable(market: Market, column: Column, count: int) -> int:
    return min(count, *(market.catalog[gpu].inventory // use for gpu, use in column.use))


def autoscale(
    workload: Workload,
    policy: Policy,
    shape: ModelShape,
    slo: Slo,
    *,
    window_s: float = WINDOW_S,
    router: str = "least",
    seed: int = 0,
) -> SimResult:
    """A trace under a policy.

    The first fleet is what the policy asks for on seeing the first five windows, and is up when the
    trace starts, for every policy alike.

    Args:
        workload: the trace.
        policy: chooses fleets.
        shape: the model.
        slo: the targets.
        window_s: between decisions.
        router: see `simulate`.
        seed: of the router.

    Returns:
        What became of the requests; ``cost`` counts every replica from its order to its end, and
        ``changes`` the replicas that came or went after the start.
    """
    if window_s <= 0:
        raise ValueError(f"window_s={window_s}: it must be above 0")
    fleet = Fleet(workload, slo, shape.kv_bytes, router=router, seed=seed)
    end = float(workload.t[-1])
    edges = np.arange(0.0, end + window_s, window_s)
    counts = np.histogram(workload.t, edges)[0] / window_s
    start = Seen(
        0.0, [float(counts[:5].max())], workload.head(max(2, int(counts[:5].sum() * window_s))), {}
    )
    for column, count in policy.targets(start) or []:
        for _ in range(count):
            fleet.add(column)
    if not fleet.replicas:
        raise InfeasibleError("the policy asks for no replica at the start")
    settled = 0.0
    for i in range(1, len(edges) - 1):
        now = float(edges[i])
        fleet.run(until=now)
        if now < settled:
            continue
        recent = _recent(workload, fleet.seen)
        seen = Seen(now, counts[:i].tolist(), recent, _running(fleet))
        wanted = policy.targets(seen)
        if wanted is not None:
            settled = _change(fleet, shape, wanted, now)
    fleet.run()
    return fleet.result(end)


def _recent(workload: Workload, seen: int) -> Workload:
    """The last requests that came, at most 2000."""
    return _slice(workload, slice(max(0, min(seen, len(workload)) - 2000), max(seen, 2)))


def _slice(workload: Workload, rows: slice) -> Workload:
    return dataclasses.replace(
        workload, t=workload.t[rows], inputs=workload.inputs[rows], outputs=workload.outputs[rows]
    )


def _members(fleet: Fleet) -> dict[str, list[Replica]]:
    found: dict[str, list[Replica]] = {}
    for replica in fleet.replicas:
        if not replica.draining:
            found.setdefault(replica.column.name, []).append(replica)
    return found


def _running(fleet: Fleet) -> dict[str, int]:
    return {name: len(members) for name, members in _members(fleet).items()}


def _change(fleet: Fleet, shape: ModelShape, wanted: Wanted, now: float) -> float:
    """Order what is missing, drain what is too much once the new ones serve; when that is."""
    members = _members(fleet)
    ready = now
    for column, count in wanted:
        for _ in range(count - len(members.get(column.name, []))):
            fleet.add(column, now + cold_start(shape, column))
            ready = max(ready, now + cold_start(shape, column))
            fleet.changes += 1
    names = {column.name: count for column, count in wanted}
    leaving = []
    for name, own in members.items():
        surplus = len(own) - names.get(name, 0)
        if surplus > 0:
            leaving += sorted(own, key=lambda r: r.in_flight)[:surplus]
    fleet.changes += len(leaving)
    for replica in leaving:
        if ready > now:
            fleet.at(ready, lambda r=replica: fleet.drain(r))
        else:
            fleet.drain(replica)
    return ready
