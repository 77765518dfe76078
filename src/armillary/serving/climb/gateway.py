"""One engine's ingress: requests wait here until the controller lets them go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine

from armillary.serving.climb.controller import Controller, Limits, Residency
from armillary.serving.climb.metrics import Metrics
from armillary.serving.climb.requests import Class, Dispatch, Evict, Load, Reject, Request
from armillary.serving.climb.upstream import Upstream, UpstreamError

#: Seconds between looks at the clock while requests wait, and at an engine that is gone.
TICK, RETRY = 0.05, 0.5


class Ticket:
    """A request that waits or is under way.

    Attributes:
        request: as the controller knows it.
        turn: set when it may go (None) or is refused (`Reject`).
        lost: set when the engine that has it is gone.
    """

    __slots__ = ("arrived", "lost", "request", "sent", "turn")

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.turn: asyncio.Future[Reject | None] = loop.create_future()
        self.lost = asyncio.Event()
        self.arrived, self.sent = request.arrived, 0.0


class Gateway:
    """A controller and the engine behind it.

    Args:
        upstream: the engine.
        controller: its books.
        metrics: that are kept.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        upstream: Upstream,
        controller: Controller,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.upstream, self.controller, self.metrics = upstream, controller, metrics
        self.clock = clock
        self.tickets: dict[int | str, Ticket] = {}
        self.up, self.admitting = True, True
        self._ids = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._evicted: list[str] = []
        self._pumping = False

    # ---- a request's life ------------------------------------------------------------------------

    def enter(self, adapter: str | None, klass: Class, deadline_seconds: float | None) -> Ticket:
        """A request came; wait for `Ticket.turn`."""
        now = self.clock()
        deadline = None if deadline_seconds is None else now + deadline_seconds
        request = Request(next(self._ids), adapter, klass, now, deadline)
        ticket = Ticket(request, asyncio.get_running_loop())
        self.tickets[request.id] = ticket
        if not self.admitting:
            ticket.turn.set_result(Reject(request, 503, "the ingress is shutting down"))
            return ticket
        self.controller.arrive(request)
        self.pump()
        return ticket

    def began(self, ticket: Ticket) -> None:
        """The engine began to answer."""
        self.controller.first_token(ticket.request.id)
        self.metrics.first_token(ticket.request.klass, self.clock() - ticket.sent)
        self.pump()

    def leave(self, ticket: Ticket) -> None:
        """The request is over, however it ended; once a ticket."""
        if self.tickets.pop(ticket.request.id, None) is None:
            return
        self.controller.cancelled(ticket.request.id)
        self.pump()

    # ---- what the controller asks for ------------------------------------------------------------

    def pump(self) -> None:
        """Carry out what is to be done now."""
        if self._pumping or not self.up:
            return
        self._pumping = True
        try:
            for action in self.controller.actions(self.clock()):
                self._do(action)
        finally:
            self._pumping = False

    def _do(self, action: Dispatch | Evict | Load | Reject) -> None:
        if isinstance(action, Dispatch):
            ticket = self.tickets[action.request.id]
            ticket.sent = self.clock()
            self.metrics.queued(action.request.klass, ticket.sent - ticket.arrived)
            if not ticket.turn.done():
                ticket.turn.set_result(None)
        elif isinstance(action, Reject):
            self.metrics.rejected(action.request.klass, action.status)
            ticket = self.tickets.get(action.request.id)
            if ticket is not None and not ticket.turn.done():
                ticket.turn.set_result(action)
        elif isinstance(action, Evict):
            self._evicted.append(action.adapter)
        else:
            self._spawn(self._load(action.adapter))

    async def _load(self, adapter: str) -> None:
        start = self.clock()
        controller = self.controller
        try:
            for name in self._take_evicted():
                await self.upstream.unload(name)
            await self.upstream.load(adapter)
        except UpstreamError as error:
            if controller.loading is None or controller.loading.name != adapter:
                return  # the engine is gone, and with it the load
            if not await self.upstream.alive():
                self.lost()
                return
            controller.load_failed(adapter, str(error), self.clock())
            self.metrics.load_failed()
        else:
            if controller.loading is None or controller.loading.name != adapter:
                return
            now = self.clock()
            controller.loaded(adapter, now - start, now)
            self.metrics.loaded(now - start)
        self.pump()

    def _take_evicted(self) -> list[str]:
        taken, self._evicted = self._evicted, []
        return taken

    # ---- the engine comes and goes ---------------------------------------------------------------

    def lost(self) -> None:
        """The engine is gone: what it had is lost, what waits goes on waiting until it is back."""
        if not self.up:
            return
        self.up = False
        self._evicted = []
        for request in self.controller.engine_lost():
            ticket = self.tickets.get(request.id)
            if ticket is not None:
                ticket.lost.set()
        self._spawn(self._await_return())

    async def _await_return(self) -> None:
        while not await self.upstream.alive():
            await asyncio.sleep(RETRY)
        for name in [a for a in self.controller.adapters if a is not None]:
            with contextlib.suppress(UpstreamError):  # one that only hung may still hold some
                await self.upstream.unload(name)
        self.up = True
        self.pump()

    # ---- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look at the clock."""
        self._spawn(self._ticking())

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if any(self.controller.queued.values()):
                self.pump()

    def stop_admitting(self) -> None:
        """Refuse what comes and what waits; what the engine has goes on."""
        self.admitting = False
        for ticket in list(self.tickets.values()):
            if not ticket.turn.done():
                ticket.turn.set_result(Reject(ticket.request, 503, "the ingress is shutting down"))

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- for pages and metrics -------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """What is where, as plain data."""
        c = self.controller
        return {
            "upstream_up": self.up,
            "slots": c.slots,
            "in_flight": c.in_flight,
            "queued": dict(c.queued),
            "loads": c.loads,
            "load_failures": c.load_failures,
            "load_seconds": round(c.load_seconds, 6),
            "adapters": {
                name if name is not None else "": {
                    "class": a.klass,
                    "residency": "resident" if name is None else a.where.value,
                    "queued": len(a.queue),
                    "in_flight": a.in_flight,
                    "load_seconds": round(a.load_seconds, 6),
                }
                for name, a in c.adapters.items()
            },
        }

    @property
    def working_set(self) -> int:
        """Adapters with work."""
        return sum(1 for n, a in self.controller.adapters.items() if n is not None and not a.idle)

    @property
    def resident(self) -> int:
        return sum(
            a.where in (Residency.RESIDENT, Residency.DRAINING)
            for a in self.controller.holders.values()
        )


def new_controller(
    slots: int, policy: object, classes: dict[str, Class], in_flight: int, queue: dict[Class, int]
) -> Controller:
    """A controller whose requests in flight are bounded where the policy keeps them outside."""
    engine_loads = getattr(policy, "engine_loads", False)
    limits = Limits(None if engine_loads else in_flight, queue)
    return Controller(slots, policy, classes, limits)  # pyright: ignore[reportArgumentType]
