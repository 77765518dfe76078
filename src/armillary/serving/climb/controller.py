"""Slots, queues and adapters: what is where, and what may be done about it.

The controller does no I/O and reads no clock: the proxy and the simulator tell it what happened
and when, and carry out the actions it answers with. A policy (`armillary.serving.climb.policies`)
decides; the controller keeps the books and refuses what would break them:

- at most ``slots`` adapters hold or fill a slot;
- an adapter is resident from the moment its load is *done*, not from when it was asked for;
- nothing of an adapter that is evicted is in flight;
- one load at a time;
- every request ends exactly once.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Protocol

from armillary.serving.climb.requests import (
    Action,
    Class,
    Dispatch,
    Evict,
    Load,
    Reject,
    Request,
)

#: Seconds that a load is taken to last before one was seen.
FIRST_GUESS = 0.5
#: Weight of the newest load in the running estimate.
NEWEST = 0.3
#: Seconds after a failed load until the next try: doubled from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0


class Residency(enum.Enum):
    """Where an adapter is."""

    ABSENT = "absent"
    LOADING = "loading"
    RESIDENT = "resident"
    #: Resident, and sent nothing more until it can be evicted.
    DRAINING = "draining"


@dataclasses.dataclass(slots=True, eq=False)
class Adapter:
    """An adapter's books.

    Attributes:
        name: None is the base model, which is always resident and holds no slot.
        usual: its class by `Controller.classes`, or that of its first request.
        klass: the class it is treated as: ``vip`` while a VIP request waits for it, else ``usual``.
        where: its residency.
        queue: requests that wait here for it, oldest first.
        in_flight: requests of it that the engine has.
        load_seconds: running estimate of how long its load takes.
        turn_since: when it became resident.
        last_used: when a request of it was last sent on.
        failures: loads that failed in a row.
        not_before: no load before this time.
    """

    name: str | None
    usual: Class
    klass: Class
    where: Residency = Residency.ABSENT
    queue: collections.deque[Request] = dataclasses.field(default_factory=collections.deque)
    in_flight: int = 0
    load_seconds: float = FIRST_GUESS
    turn_since: float = 0.0
    last_used: float = 0.0
    failures: int = 0
    not_before: float = 0.0

    @property
    def head(self) -> float:
        """When the oldest waiting request came; infinite if none waits."""
        return self.queue[0].arrived if self.queue else math.inf

    @property
    def idle(self) -> bool:
        return not self.queue and not self.in_flight


class Policy(Protocol):
    """Decides what is sent on and loaded.

    Attributes:
        engine_loads: whether requests are sent on whose adapter is not resident, so that the engine
            loads by itself; the controller then knows nothing of slots.
    """

    engine_loads: bool

    def decide(self, controller: Controller, now: float, /) -> None:
        """Call `Controller.dispatch`, `load`, `drain`, … for what should happen now."""
        ...


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of the books.

    Attributes:
        in_flight: requests that the engine has at once, at most; None: no bound.
        queue: waiting requests of a class, at most; None: no bound.
    """

    in_flight: int | None = None
    queue: Mapping[Class, int] | None = None


class Controller:
    """The books of one engine.

    Args:
        slots: adapters that the engine holds at once (vLLM's ``--max-loras``); at least 1.
        policy: who decides.
        classes: adapter -> class. An adapter that is not named has the class of its requests.
        limits: of requests in flight and waiting.

    Raises:
        ValueError: ``slots`` is below 1, or a class is none of ``vip`` and ``background``.
    """

    def __init__(
        self,
        slots: int,
        policy: Policy,
        classes: Mapping[str, Class] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(f"slots={slots}: an engine holds at least one adapter")
        for name, klass in (classes or {}).items():
            if klass not in ("vip", "background"):
                raise ValueError(f"classes[{name!r}]={klass!r}: expected 'vip' or 'background'")
        self.slots, self.policy = slots, policy
        self.classes: dict[str, Class] = dict(classes or {})
        self.limits = limits or Limits()
        self.cap = math.inf if self.limits.in_flight is None else self.limits.in_flight
        self.adapters: dict[str | None, Adapter] = {}
        self.in_flight = 0
        self.loading: Adapter | None = None
        #: Adapters that hold a slot, the loading one too, by when they got it.
        self.holders: dict[str, Adapter] = {}
        #: Adapters with waiting requests, by class: those that are ready, those without a slot (in
        #: the order in which they began to), and those that load or drain.
        self.ready: dict[Class, dict[str | None, Adapter]] = {"vip": {}, "background": {}}
        self.absent: dict[Class, dict[str | None, Adapter]] = {"vip": {}, "background": {}}
        self.stuck: dict[Class, dict[str | None, Adapter]] = {"vip": {}, "background": {}}
        #: Holders of slots without requests in flight that have none waiting, or drain.
        self.settled: dict[str, Adapter] = {}
        self.queued: dict[Class, int] = {"vip": 0, "background": 0}
        #: Sent on without a first token yet, by class.
        self.unstarted: dict[Class, set[int | str]] = {"vip": set(), "background": set()}
        self.loads = self.load_failures = 0
        self.load_seconds = 0.0
        self._sent: dict[int | str, Request] = {}
        self._queued: dict[int | str, Adapter] = {}
        self._actions: list[Action] = []

    # ---- what happened ---------------------------------------------------------------------------

    def arrive(self, request: Request) -> None:
        """A request came.

        Raises:
            ValueError: a request of this id is under way.
        """
        if request.id in self._sent or request.id in self._queued:
            raise ValueError(f"request {request.id!r} is under way already")
        adapter = self.adapter(request.adapter, request.klass)
        bound = (self.limits.queue or {}).get(request.klass, math.inf)
        if self.queued[request.klass] >= bound:
            wait = self.predicted_wait(adapter, request.arrived)
            self._reject(request, 429, f"{int(bound)} {request.klass} requests wait already", wait)
            return
        if adapter.not_before > request.arrived:
            wait = adapter.not_before - request.arrived
            self._reject(request, 503, f"adapter {adapter.name!r} could not be loaded", wait)
            return
        if request.deadline is not None:
            wait = self.predicted_wait(adapter, request.arrived)
            if request.arrived + wait > request.deadline:
                self._reject(
                    request, 504, f"its turn comes in {wait:.1f} s, past its deadline", wait
                )
                return
        adapter.queue.append(request)
        self._queued[request.id] = adapter
        self.queued[request.klass] += 1
        if request.klass == "vip" and adapter.klass != "vip":
            self._unfile(adapter)
            adapter.klass = "vip"
            self._file(adapter)
        elif len(adapter.queue) == 1:
            self._file(adapter)

    def first_token(self, id: int | str) -> None:
        """The engine has begun to answer."""
        for ids in self.unstarted.values():
            ids.discard(id)

    def finished(self, id: int | str) -> None:
        """The engine has answered in full, or failed to.

        Raises:
            KeyError: no request of this id is in flight.
        """
        if id not in self._sent:
            raise KeyError(f"request {id!r} is not in flight")
        request = self._sent.pop(id)
        self.first_token(id)
        self.in_flight -= 1
        adapter = self.adapters[request.adapter]
        adapter.in_flight -= 1
        if not adapter.in_flight:
            self._settle(adapter)

    def cancelled(self, id: int | str) -> Request | None:
        """The client went away: a waiting request is forgotten, one in flight is over.

        Returns:
            The request that was in flight and is to be stopped at the engine, or None.
        """
        if id in self._sent:
            request = self._sent[id]
            self.finished(id)
            return request
        if id in self._queued:
            adapter = self._queued[id]
            self._unqueue(adapter, next(r for r in adapter.queue if r.id == id))
        return None

    def loaded(self, adapter: str, seconds: float, now: float) -> None:
        """A load is done.

        Raises:
            ValueError: this adapter was not loading.
        """
        found = self._loading(adapter)
        found.turn_since, found.failures = now, 0
        self._move(found, Residency.RESIDENT)
        found.load_seconds = (
            seconds
            if not self.loads
            else found.load_seconds + NEWEST * (seconds - found.load_seconds)
        )
        self.loads += 1
        self.load_seconds += seconds
        self.loading = None
        self._settle(found)

    def load_failed(self, adapter: str, error: str, now: float) -> None:
        """A load failed: its waiting requests are answered, and it rests for a while."""
        found = self._loading(adapter)
        del self.holders[adapter]
        self.loading = None
        self._move(found, Residency.ABSENT)
        self.load_failures += 1
        pause = min(LAST_PAUSE, FIRST_PAUSE * 2**found.failures)
        found.failures += 1
        found.not_before = now + pause
        for request in list(found.queue):
            self._unqueue(found, request)
            self._reject(request, 503, f"adapter {adapter!r} could not be loaded: {error}", pause)

    def engine_lost(self) -> list[Request]:
        """The engine restarted: nothing is resident nor in flight; what waits goes on waiting.

        Returns:
            The requests that were in flight and are lost.
        """
        lost = list(self._sent.values())
        for request in lost:
            self.finished(request.id)
        for adapter in self.holders.values():
            self._move(adapter, Residency.ABSENT)
        self.holders.clear()
        self.settled.clear()
        self.loading = None
        return lost

    def found_resident(self, adapter: str, now: float) -> None:
        """The engine says that it holds this adapter (after a restart of ours)."""
        found = self.adapter(adapter, "background")
        if found.where is Residency.ABSENT and len(self.holders) < self.slots:
            found.turn_since = now
            self.holders[adapter] = found
            self._move(found, Residency.RESIDENT)
            self._settle(found)

    def actions(self, now: float) -> list[Action]:
        """What is to be done now, in this order."""
        self.policy.decide(self, now)
        done, self._actions = self._actions, []
        return done

    # ---- what a policy may do --------------------------------------------------------------------

    def dispatch(self, adapter: Adapter, now: float) -> Request:
        """Send on the oldest waiting request of an adapter.

        Raises:
            ValueError: nothing waits, the cap is reached, or the adapter is not resident.
        """
        if not adapter.queue or self.in_flight >= self.cap:
            raise ValueError(f"nothing of {adapter.name!r} may be sent on")
        if not (self.is_ready(adapter) or self.policy.engine_loads):
            raise ValueError(f"{adapter.name!r} is {adapter.where.value}, not resident")
        request = adapter.queue[0]
        self.unstarted[request.klass].add(request.id)
        self._unqueue(adapter, request)
        self._sent[request.id] = request
        self.in_flight += 1
        adapter.in_flight += 1
        adapter.last_used = now
        self.settled.pop(adapter.name, None)  # pyright: ignore[reportArgumentType,reportCallIssue]
        self._actions.append(Dispatch(request))
        return request

    def load(self, adapter: Adapter, victim: Adapter | None = None) -> None:
        """Load an adapter, into a free slot or in the place of ``victim``.

        Raises:
            ValueError: something loads already, the adapter is not absent, no slot is free, or the
                victim has requests in flight.
        """
        if self.loading is not None or adapter.where is not Residency.ABSENT:
            raise ValueError(f"{adapter.name!r} cannot be loaded now")
        if victim is not None:
            if victim.in_flight or victim.name not in self.holders:
                raise ValueError(f"{victim.name!r} has {victim.in_flight} requests in flight")
            del self.holders[victim.name]  # pyright: ignore[reportArgumentType]
            self.settled.pop(victim.name, None)  # pyright: ignore[reportArgumentType,reportCallIssue]
            self._move(victim, Residency.ABSENT)  # where it waits, at the end of the ring
            self._actions.append(Evict(victim.name))  # pyright: ignore[reportArgumentType]
        if len(self.holders) >= self.slots:
            raise ValueError(f"all {self.slots} slots are taken")
        self._move(adapter, Residency.LOADING)
        self.holders[adapter.name] = adapter  # pyright: ignore[reportArgumentType]
        self.loading = adapter
        self._actions.append(Load(adapter.name))  # pyright: ignore[reportArgumentType]

    def drain(self, adapter: Adapter) -> None:
        """Send nothing more to a resident adapter, so that its slot becomes free."""
        if adapter.where is Residency.RESIDENT:
            self._move(adapter, Residency.DRAINING)
            if not adapter.in_flight:
                self._settle(adapter)

    def undrain(self, adapter: Adapter) -> None:
        """Take a drain back."""
        if adapter.where is Residency.DRAINING:
            self._move(adapter, Residency.RESIDENT)
            if adapter.queue:
                self.settled.pop(adapter.name, None)  # pyright: ignore[reportArgumentType,reportCallIssue]

    def is_ready(self, adapter: Adapter) -> bool:
        """Whether requests of an adapter may be sent on without a load."""
        return adapter.where is Residency.RESIDENT

    # ---- what a policy may look at ---------------------------------------------------------------

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.holders)

    def adapter(self, name: str | None, klass: Class) -> Adapter:
        """The books of an adapter, opened if it is new."""
        found = self.adapters.get(name)
        if found is None:
            usual: Class = self.classes.get(name or "", klass)
            where = Residency.RESIDENT if name is None else Residency.ABSENT
            found = Adapter(name, usual, usual, where)
            self.adapters[name] = found
        return found

    def predicted_wait(self, adapter: Adapter, now: float) -> float:
        """Seconds until a request of this adapter that came now would be sent on, about."""
        if self.is_ready(adapter) or self.policy.engine_loads:
            return 0.0
        if adapter is self.loading:
            return adapter.load_seconds
        ahead = 0
        for name in self.absent[adapter.klass]:
            if name == adapter.name:
                break
            ahead += 1
        turn = getattr(self.policy, "turn_seconds", lambda _: 0.0)(adapter)
        each = adapter.load_seconds + (0.0 if self.free_slots else turn / self.slots)
        return (ahead + 1) * each

    def check(self) -> None:
        """Raise AssertionError where the books are wrong (for tests)."""
        assert len(self.holders) <= self.slots, "too many slots are taken"
        assert self.in_flight == len(self._sent) == sum(a.in_flight for a in self.adapters.values())
        assert sum(self.queued.values()) == len(self._queued)
        assert sum(len(a.queue) for a in self.adapters.values()) == len(self._queued)
        for name, adapter in self.adapters.items():
            holds = adapter.where is not Residency.ABSENT and name is not None
            assert holds == (name in self.holders)
            filed = [d for d in (self.ready, self.absent, self.stuck) if name in d[adapter.klass]]
            assert len(filed) == bool(adapter.queue)
            assert not filed or filed[0] is self._shelf(adapter)
            settled = adapter.where is Residency.DRAINING or not adapter.queue
            settled &= not adapter.in_flight and adapter.where is not Residency.LOADING
            assert (name in self.settled) == (settled and name in self.holders), name
            if not self.policy.engine_loads and name is not None and adapter.in_flight:
                assert adapter.where in (Residency.RESIDENT, Residency.DRAINING)

    # ---- within ----------------------------------------------------------------------------------

    def _loading(self, adapter: str) -> Adapter:
        if self.loading is None or self.loading.name != adapter:
            raise ValueError(f"{adapter!r} was not loading")
        return self.loading

    def _unqueue(self, adapter: Adapter, request: Request) -> None:
        if adapter.queue[0] is request:
            adapter.queue.popleft()
        else:
            adapter.queue.remove(request)
        del self._queued[request.id]
        self.queued[request.klass] -= 1
        if not adapter.queue:
            self._unfile(adapter)
            adapter.klass = adapter.usual
            self._settle(adapter)

    def _shelf(self, adapter: Adapter) -> dict[Class, dict[str | None, Adapter]]:
        if self.is_ready(adapter):
            return self.ready
        return self.absent if adapter.where is Residency.ABSENT else self.stuck

    def _file(self, adapter: Adapter) -> None:
        """Put an adapter with waiting requests where policies look for it."""
        self._shelf(adapter)[adapter.klass][adapter.name] = adapter
        if adapter.where is not Residency.DRAINING:
            self.settled.pop(adapter.name, None)  # pyright: ignore[reportArgumentType,reportCallIssue]

    def _unfile(self, adapter: Adapter) -> None:
        self._shelf(adapter)[adapter.klass].pop(adapter.name, None)

    def _move(self, adapter: Adapter, where: Residency) -> None:
        self._unfile(adapter)
        adapter.where = where
        if adapter.queue:
            self._file(adapter)

    def _settle(self, adapter: Adapter) -> None:
        """Note a holder whose slot could be had at once."""
        if adapter.in_flight or adapter.name not in self.holders or adapter is self.loading:
            return
        if not adapter.queue or adapter.where is Residency.DRAINING:
            self.settled[adapter.name] = adapter

    def _reject(self, request: Request, status: int, reason: str, retry_after: float) -> None:
        self._actions.append(Reject(request, status, reason, max(0.0, retry_after)))
