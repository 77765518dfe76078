"""Who is sent on, and who gets a slot: CLIMB and its rivals.

`Climb` follows "CLIMB: Taming the LoRA Residency Cliff in Multi-LoRA Serving" (Zhang, Liang, Zuo,
Wang, ICML 2026) as far as its abstract tells: requests whose adapter is not resident wait outside
the engine, VIP goes first, background adapters take turns. The turns' lengths, draining, putting
loads off and aging are our reconstruction.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math

from armillary.serving.climb.controller import Adapter, Controller, Residency
from armillary.serving.climb.requests import CLASSES, Class


@dataclasses.dataclass
class Climb:
    """Feasible requests only; VIP first; background adapters in turns.

    Attributes:
        eta: share of time spent in loads above which turns grow longer, in (0, 1].
        q_min: seconds of a turn, at least.
        vip_reserve: share of the requests in flight that background never takes, in [0, 1).
        max_wait: seconds after which a waiting head gets the next turn, and may have the slot of a
            VIP adapter that is idle.
        quantum_fixed: seconds of every turn; None: they adapt.
        pass_through: seconds for which at most as many adapters as slots were active, after which
            requests go on in the order in which they came; infinite: never.
        loads_stall: whether the engine serves nobody while it loads: then nothing is sent to VIP
            adapters meanwhile, and what they wait is waited here.
        put_off: whether a background load waits for the first tokens of VIP requests under way.
        drain_by_clock: whether a busy adapter whose turn is over is drained though no waiting head
            is older than a turn (an ablation).
        pace: seconds between background loads, at least (an ablation).

    Raises:
        ValueError: a setting is out of range.
    """

    eta: float = 0.5
    q_min: float = 2.0
    vip_reserve: float = 0.1
    max_wait: float = 30.0
    quantum_fixed: float | None = None
    pass_through: float = 10.0
    loads_stall: bool = True
    put_off: bool = True
    drain_by_clock: bool = False
    pace: float = 0.0

    engine_loads = False

    def __post_init__(self) -> None:
        ranges = {
            "eta": 0 < self.eta <= 1,
            "q_min": self.q_min > 0,
            "vip_reserve": 0 <= self.vip_reserve < 1,
            "max_wait": self.max_wait > 0,
            "quantum_fixed": self.quantum_fixed is None or self.quantum_fixed > 0,
            "pace": self.pace >= 0,
        }
        for name, right in ranges.items():
            if not right:
                raise ValueError(f"{name}={getattr(self, name)}: out of range")
        self._growth = 1.0
        self._ring_left = self._ring_backlog = 0
        self._ring_since = self._ring_loading = 0.0
        self._last_load = -math.inf
        #: A load that was put off, the VIP requests that it waits for, and whom it replaces.
        self._held: tuple[Adapter, set[int | str]] | None = None
        self._crowded = self._looked = self._aged = -math.inf

    # ---- one decision ----------------------------------------------------------------------------

    def decide(self, controller: Controller, now: float) -> None:
        calm = self._calm(controller, now)
        if self._held is not None and controller.absent["vip"]:
            self._held = None  # VIP's own load goes first
        if self._held is not None and not self._release(controller, now):
            self._background(controller, now, calm)
            return  # VIP waits behind the load that is due
        pressed = self._vip(controller, now)
        self._background(controller, now, calm)
        if not pressed:
            self._rotate(controller, now, calm)

    def _vip(self, c: Controller, now: float) -> bool:
        """Send VIP on, oldest head first; load what it lacks. True if it waits for a slot."""
        ready, absent = c.ready["vip"], c.absent["vip"]
        if not (ready or absent or c.stuck["vip"]):
            return False
        if self.loads_stall and c.loading is not None:
            return True
        for adapter in _oldest_first(ready):
            while adapter.queue and c.in_flight < c.cap:
                c.dispatch(adapter, now)
        if not absent:
            return bool(c.stuck["vip"])
        if c.loading is None:
            for adapter in _oldest_first(absent):
                if adapter.not_before > now:
                    continue
                victim = None if c.free_slots else self._vip_victim(c)
                if c.free_slots or victim is not None:
                    c.load(adapter, victim)
                else:
                    self._press(c, now)
                break
        return True

    def _vip_victim(self, c: Controller) -> Adapter | None:
        """Whom VIP may replace: background without requests in flight, else VIP that is idle."""
        free = [a for a in c.holders.values() if not a.in_flight and a is not c.loading]
        background = [a for a in free if a.klass == "background"]
        if background:
            return min(background, key=lambda a: (bool(a.queue), a.turn_since))
        return min(c.settled.values(), key=lambda a: a.last_used, default=None)

    def _press(self, c: Controller, now: float) -> None:
        """Let a slot become free: drain the background adapter with the least in flight."""
        holders = list(c.holders.values())
        if any(a.where is Residency.DRAINING for a in holders):
            return
        background = [a for a in holders if a.klass == "background" and c.is_ready(a)]
        if background:
            c.drain(min(background, key=lambda a: a.in_flight))
            return
        over = [a for a in holders if c.is_ready(a) and now - a.turn_since > self.turn_seconds(a)]
        if over:  # more VIP adapters than slots: they take turns
            c.drain(min(over, key=lambda a: a.turn_since))

    def _background(self, c: Controller, now: float, calm: bool) -> None:
        """Send on what is resident, one request of an adapter at a time; some room is VIP's."""
        room = c.cap
        if not calm and c.cap < math.inf:
            room -= min(math.ceil(self.vip_reserve * c.cap), c.cap - 1)
        ready = list(c.ready["background"].values())
        if not ready:
            return
        if room == math.inf or sum(len(a.queue) for a in ready) <= room - c.in_flight:
            for adapter in ready:
                while adapter.queue:
                    c.dispatch(adapter, now)
            return
        ring = collections.deque(sorted(ready, key=lambda a: a.last_used))
        while ring and c.in_flight < room:
            adapter = ring.popleft()
            c.dispatch(adapter, now)
            if adapter.queue:
                ring.append(adapter)

    def _rotate(self, c: Controller, now: float, calm: bool) -> None:
        """Give a slot to the next background adapter that waits for one."""
        if c.loading is not None:
            return
        following = self._following(c, now)
        if following is None:
            for adapter in c.holders.values():
                c.undrain(adapter)  # nobody wants the slot any more
            return
        if now - self._last_load < self.pace:
            return
        victim = None
        if not c.free_slots:
            victim = self._background_victim(c, following, now)
            if victim is None:
                return
        if self.put_off and not calm and c.unstarted["vip"]:
            self._held = (following, set(c.unstarted["vip"]))
            return
        self._start(c, following, victim, now)

    def _release(self, c: Controller, now: float) -> bool:
        """Start the load that was put off, if its VIP requests have begun. False: not yet."""
        assert self._held is not None
        following, ids = self._held
        ids &= c.unstarted["vip"]
        if ids:
            return not c.ready["vip"]
        self._held = None
        if following.where is Residency.ABSENT and following.queue and c.loading is None:
            victim = None if c.free_slots else self._background_victim(c, following, now)
            if c.free_slots or victim is not None:
                self._start(c, following, victim, now)
        return True

    def _start(self, c: Controller, adapter: Adapter, victim: Adapter | None, now: float) -> None:
        c.load(adapter, victim)
        self._last_load = now
        self._count(c, now)

    def _following(self, c: Controller, now: float) -> Adapter | None:
        """The next of the ring: whose head is too old, else who began to wait first."""
        ring = c.absent["background"]
        first = None
        for adapter in ring.values():
            if adapter.not_before > now:
                continue
            if first is None:
                first = adapter
                if now - self._aged < self.max_wait / 20:
                    break  # heads grow old slowly: they are looked through now and then
            if now - adapter.head > self.max_wait:
                return adapter
        else:
            self._aged = now
        return first

    def _background_victim(self, c: Controller, following: Adapter, now: float) -> Adapter | None:
        """A background adapter that gives up its slot now; else one is drained, if it is time."""
        settled = [a for a in c.settled.values() if a.klass == "background"]
        if settled:
            return min(settled, key=lambda a: a.turn_since)
        if now - following.head > self.max_wait and c.settled:
            # VIP's adapters hold every other slot and this one does nothing: better than never.
            return min(c.settled.values(), key=lambda a: a.last_used)
        if not (self.drain_by_clock or now - following.head > self.turn_seconds(following)):
            return None
        holders = [a for a in c.holders.values() if a is not c.loading and a.klass == "background"]
        if any(a.where is Residency.DRAINING for a in holders):
            return None
        over = [a for a in holders if now - a.turn_since > self.turn_seconds(a)]
        if not over:
            return None
        drained = min(over, key=lambda a: a.turn_since)
        c.drain(drained)
        return None if drained.in_flight else drained

    # ---- turns -----------------------------------------------------------------------------------

    def turn_seconds(self, adapter: Adapter) -> float:
        """Seconds that an adapter with work keeps its slot while others wait."""
        if self.quantum_fixed is not None:
            return self.quantum_fixed
        start = max(self.q_min, 5 * adapter.load_seconds)
        return min(start * self._growth, max(start, 20 * adapter.load_seconds))

    def _count(self, c: Controller, now: float) -> None:
        """After a full ring: longer turns if work piles up and loads eat the time, else shorter."""
        self._ring_left -= 1
        if self._ring_left > 0:
            return
        backlog = c.queued["background"]
        passed = now - self._ring_since
        eaten = (c.load_seconds - self._ring_loading) / passed if passed > 0 else 0.0
        if backlog > self._ring_backlog and eaten > self.eta:
            self._growth *= 1.5
        elif backlog < self._ring_backlog:
            self._growth = max(1.0, self._growth / 1.2)
        self._growth = min(self._growth, 20.0)
        self._ring_left = len(c.absent["background"])
        self._ring_backlog, self._ring_since = backlog, now
        self._ring_loading = c.load_seconds

    # ---- who is who ------------------------------------------------------------------------------

    def _calm(self, c: Controller, now: float) -> bool:
        """Whether the adapters that were active of late all have a slot."""
        if self.pass_through == math.inf:
            return False
        if now - self._looked < self.pass_through / 40:
            return now - self._crowded >= self.pass_through
        self._looked = now
        active = sum(1 for a in c.adapters.values() if a.name is not None and self._active(a, now))
        if active > c.slots:
            self._crowded = now
        return now - self._crowded >= self.pass_through

    def _active(self, adapter: Adapter, now: float) -> bool:
        return not adapter.idle or now - adapter.last_used < self.pass_through


def _oldest_first(adapters: dict[str | None, Adapter]) -> list[Adapter]:
    """By the head's deadline where it has one, else by when it came."""
    if len(adapters) < 2:
        return list(adapters.values())
    return sorted(adapters.values(), key=_urgency)


def _urgency(adapter: Adapter) -> float:
    head = adapter.queue[0]
    return head.arrived if head.deadline is None else min(head.arrived, head.deadline)


def _waiting(c: Controller, *classes: Class) -> list[Adapter]:
    return [a for k in classes for s in (c.ready, c.absent, c.stuck) for a in s[k].values()]


@dataclasses.dataclass
class Fcfs:
    """First come, first served: everything goes on at once, and the engine loads by itself."""

    engine_loads = True
    engine_priority = False

    def decide(self, c: Controller, now: float) -> None:
        _by_age(c, now, _waiting(c, *CLASSES))


@dataclasses.dataclass
class PriorityOnly:
    """VIP before background, here and in the engine, which loads by itself and so admits misses."""

    engine_loads = True
    engine_priority = True

    def decide(self, c: Controller, now: float) -> None:
        _by_age(c, now, _waiting(c, "vip"))
        _by_age(c, now, _waiting(c, "background"))


@dataclasses.dataclass
class LoraAffinityRouter:
    """The rule of the Gateway API's LoRA affinity filter, before one engine.

    Where the adapter is loaded first, then where a slot is free, then the rest; residency is what
    an engine's metrics would show, here the adapters used last.
    """

    engine_loads = True
    engine_priority = False

    def decide(self, c: Controller, now: float) -> None:
        waiting = _waiting(c, *CLASSES)
        if not waiting:
            return
        used = sorted(
            (a for a in c.adapters.values() if a.name is not None and a.last_used > 0),
            key=lambda a: (a.in_flight > 0, a.last_used),
            reverse=True,
        )[: c.slots]
        _by_age(c, now, [a for a in waiting if a.name is None or a in used])
        _by_age(c, now, [a for a in waiting if a.queue])


@dataclasses.dataclass
class AffinityLongestQueue:
    """Resident adapters first; an idle slot goes to the longest queue (as in S-LoRA and dLoRA)."""

    engine_loads = False

    def decide(self, c: Controller, now: float) -> None:
        waiting = _waiting(c, *CLASSES)
        _by_age(c, now, [a for a in waiting if c.is_ready(a)])
        if c.loading is not None:
            return
        absent = [a for a in waiting if a.where is Residency.ABSENT and a.not_before <= now]
        if not absent:
            return
        idle = [a for a in c.holders.values() if a.idle]
        if c.free_slots or idle:
            victim = None if c.free_slots else min(idle, key=lambda a: a.last_used)
            c.load(max(absent, key=lambda a: len(a.queue)), victim)


@dataclasses.dataclass
class StaticPartition:
    """Some slots are VIP's, the rest background's; each part takes turns by itself.

    Attributes:
        vip_slots: how many are VIP's; None: a quarter, at least one, and none of a single slot.
        quantum: seconds of a turn.
    """

    vip_slots: int | None = None
    quantum: float = 2.0

    engine_loads = False

    def decide(self, c: Controller, now: float) -> None:
        mine = self.vip_slots if self.vip_slots is not None else max(1, c.slots // 4)
        mine = min(mine, c.slots - 1)
        parts: list[tuple[tuple[Class, ...], int]] = [
            (("vip",), mine),
            (("background",), c.slots - mine),
        ]
        if c.slots == 1:  # a single slot cannot be parted
            parts = [(CLASSES, 1)]
        for classes, slots in parts:
            waiting = _waiting(c, *classes)
            _by_age(c, now, [a for a in waiting if c.is_ready(a)])
            absent = [a for a in waiting if a.where is Residency.ABSENT and a.not_before <= now]
            if c.loading is None and absent:
                self._turn(c, now, min(absent, key=lambda a: a.head), classes, slots)

    def _turn(
        self, c: Controller, now: float, following: Adapter, classes: tuple[Class, ...], slots: int
    ) -> None:
        holders = [a for a in c.holders.values() if a.usual in classes]
        if len(holders) < slots and c.free_slots:
            c.load(following)
            return
        settled = [
            a for a in holders if not a.in_flight and (not a.queue or a.where is Residency.DRAINING)
        ]
        if settled:
            c.load(following, min(settled, key=lambda a: a.turn_since))
        elif not any(a.where is Residency.DRAINING for a in holders):
            over = [a for a in holders if now - a.turn_since > self.quantum]
            if over and now - following.head > self.quantum:
                c.drain(min(over, key=lambda a: a.turn_since))


def _by_age(c: Controller, now: float, adapters: list[Adapter]) -> None:
    """Send on what waits for these adapters, the oldest first, as far as the cap allows."""
    if len(adapters) == 1:
        (only,) = adapters
        while only.queue and c.in_flight < c.cap:
            c.dispatch(only, now)
        return
    heads = [(a.queue[0].arrived, i) for i, a in enumerate(adapters)]
    heapq.heapify(heads)
    while heads and c.in_flight < c.cap:
        _, i = heapq.heappop(heads)
        adapter = adapters[i]
        c.dispatch(adapter, now)
        if adapter.queue:
            heapq.heappush(heads, (adapter.queue[0].arrived, i))


POLICIES = {
    "climb": Climb,
    "fcfs": Fcfs,
    "priority": PriorityOnly,
    "longest-queue": AffinityLongestQueue,
    "partition": StaticPartition,
    "affinity-router": LoraAffinityRouter,
}
