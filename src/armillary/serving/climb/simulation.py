"""An engine in simulated time, behind the same controller that the proxy drives.

Between two changes of the batch every step takes equally long, so that steps are skipped over: the
cost is one of requests, not of tokens. Requests that come while a step runs join at its end.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.serving.climb.controller import Controller, Limits, Policy
from armillary.serving.climb.engine_model import EngineModel
from armillary.serving.climb.requests import Class, Dispatch, Evict, Load, Reject, Request

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class SimResult:
    """What a simulation saw.

    Attributes:
        requests: one row a request that was answered: ``adapter``, ``class``, ``arrived``, ``sent``
            (to the engine), ``first`` (token), ``done``, all in seconds, and ``output_tokens``.
        loads: loads of adapters.
        misses: loads that the engine had to make by itself.
        load_seconds: seconds in loads.
        events: arrivals, sendings, first tokens, completions and loads.
        unfinished: requests that were under way or waiting at the end.
        rejected: requests that were refused.
        seconds: simulated time.
    """

    requests: pd.DataFrame
    loads: int
    misses: int
    load_seconds: float
    events: int
    unfinished: int
    rejected: int
    seconds: float


class Engine:
    """vLLM's way of batching: at most ``slots`` different adapters at once, others are passed over.

    Args:
        model: how long steps take.
        slots: adapters that it holds.
        loads_itself: whether it loads a missing adapter inside the step that admits the request.
        priority: whether VIP requests are admitted before the others.
    """

    def __init__(
        self, model: EngineModel, slots: int, *, loads_itself: bool, priority: bool = False
    ) -> None:
        self.model, self.slots = model, slots
        self.loads_itself, self.priority = loads_itself, priority
        #: Adapters that it holds, the one used longest ago first.
        self.resident: collections.OrderedDict[str, None] = collections.OrderedDict()
        self.waiting: dict[str | None, collections.deque[tuple[int, int, Request]]] = {}
        self.waiting_count = 0
        self.running: list[tuple[int, int, Request]] = []  # (last step, order, request)
        self.batch: dict[str | None, int] = {}
        self.steps = self.misses = self._order = 0
        self.fresh: list[Request] = []
        self.prompt_tokens = 0
        self.load_seconds = 0.0

    def add(self, request: Request) -> None:
        """A request arrives at the engine."""
        self._order += 1
        rank = int(self.priority and request.klass != "vip")
        queue = self.waiting.setdefault(request.adapter, collections.deque())
        queue.append((rank, self._order, request))
        self.waiting_count += 1

    def admit(self) -> float:
        """Fill the batch, as far as slots and its size allow; seconds that its own loads take."""
        stalled = 0.0
        while self.waiting_count and len(self.running) < self.model.max_batch:
            adapter = self._next()
            if adapter is _NOBODY:
                break
            stalled += self._hold(adapter)
            self._run(self.waiting[adapter].popleft()[2])
            self.waiting_count -= 1
        return stalled

    def _next(self) -> Any:
        adapters = len(self.batch) - (None in self.batch)
        best, found = (2, 0), _NOBODY
        for name, queue in self.waiting.items():
            if not queue:
                continue
            if name is not None and name not in self.batch and adapters >= self.slots:
                continue  # deferred: no slot for another adapter
            key = queue[0][:2]
            if key < best:
                best, found = key, name
        return found

    def _hold(self, adapter: str | None) -> float:
        if adapter is None:
            return 0.0
        if adapter in self.resident:
            self.resident.move_to_end(adapter)
            return 0.0
        self.misses += 1
        if len(self.resident) >= self.slots:
            victim = next(name for name in self.resident if name not in self.batch)
            del self.resident[victim]
        self.resident[adapter] = None
        self.load_seconds += self.model.load
        return self.model.load

    def _run(self, request: Request) -> None:
        self._order += 1
        last = self.steps + max(1, request.output_tokens)
        heapq.heappush(self.running, (last, self._order, request))
        self.batch[request.adapter] = self.batch.get(request.adapter, 0) + 1
        self.fresh.append(request)
        self.prompt_tokens += request.prompt_tokens

    def evict(self, adapter: str) -> None:
        self.resident.pop(adapter, None)

    def load(self, adapter: str) -> float:
        """Load as asked for; seconds that it takes."""
        if len(self.resident) >= self.slots:
            raise ValueError(f"no slot is free for {adapter!r}")
        self.resident[adapter] = None
        self.load_seconds += self.model.load
        return self.model.load

    def advance(self, now: float, until: float) -> tuple[float, list[Request], list[Request]]:
        """Run steps until the batch changes, or the first end of a step at or after ``until``.

        Returns:
            The time, requests whose first token came, and requests that are done.
        """
        adapters = len(self.batch) - (None in self.batch)
        model, fresh = self.model, self.fresh
        duration = model.step(len(self.running), adapters, self.prompt_tokens)
        steps = 1
        if not fresh:
            left = self.running[0][0] - self.steps
            fits = math.ceil((until - now) / duration - 1e-9) if until < math.inf else left
            steps = max(1, min(left, fits))
        self.fresh, self.prompt_tokens = [], 0
        self.steps += steps
        now += steps * duration
        done = []
        while self.running and self.running[0][0] <= self.steps:
            request = heapq.heappop(self.running)[2]
            done.append(request)
            count = self.batch[request.adapter] - 1
            if count:
                self.batch[request.adapter] = count
            else:
                del self.batch[request.adapter]
        return now, fresh, done


_NOBODY: Any = object()
#: Seconds after which the controller is asked again though nothing happened.
TICK = 0.05
#: Seconds for which nothing but time passes, after which what still waits is left unanswered.
PATIENCE = 120.0


def simulate(
    trace: pd.DataFrame,
    engine: EngineModel,
    policy: Policy,
    slots: int,
    *,
    classes: dict[str, Class] | None = None,
    limits: Limits | None = None,
    until: float = math.inf,
) -> SimResult:
    """Replay a trace through a policy and an engine.

    Args:
        trace: ``t_s`` (rising), ``adapter`` (empty: the base model), ``class``, ``prompt_tokens``,
            ``output_tokens``; see `armillary.serving.climb.traces`.
        engine: how long steps and loads take.
        policy: a fresh one, of `armillary.serving.climb.policies`.
        slots: adapters that the engine holds.
        classes: adapter -> class, where it is not that of its requests.
        limits: of requests in flight and waiting; None: in flight as many as the engine runs where
            the policy keeps requests outside, else no bound.
        until: simulated seconds after which no more is looked at.

    Returns:
        What happened.
    """
    if limits is None:
        limits = Limits(None if policy.engine_loads else engine.max_batch)
    controller = Controller(slots, policy, classes, limits)
    machine = Engine(
        engine,
        slots,
        loads_itself=policy.engine_loads,
        priority=getattr(policy, "engine_priority", False),
    )
    run = _Run(controller, machine)
    arrivals = _requests(trace)
    run.replay(arrivals, until)
    return run.result(len(arrivals))


class _Run:
    """One replay: the clock, what was asked of the engine and is not carried out yet, the log."""

    def __init__(self, controller: Controller, machine: Engine) -> None:
        self.controller, self.machine = controller, machine
        self.asked: list[Load | Evict] = []
        self.sent: dict[int | str, float] = {}
        self.first: dict[int | str, float] = {}
        self.rows: list[tuple[Request, float, float, float]] = []
        self.events = self.rejected = 0
        self.now = 0.0

    def replay(self, arrivals: list[Request], until: float) -> None:
        """Serve until nothing is left to do; what comes during a step is looked at as it comes."""
        coming, total, ticks = 0, len(arrivals), 0
        controller = self.controller
        while self.now <= until:
            following = arrivals[coming].arrived if coming < total else math.inf
            if self._busy():
                end, began, done, loaded = self._work(following)
                ticks = 0
            elif coming < total:
                end, began, done, loaded = max(self.now, following), [], [], []
            elif any(controller.queued.values()) and ticks * TICK < PATIENCE:
                end, began, done, loaded = self.now + TICK, [], [], []  # only time can move it
                ticks += 1
            else:
                break
            while coming < total and arrivals[coming].arrived <= end:
                request = arrivals[coming]
                controller.arrive(request)
                self._act(request.arrived)
                coming += 1
            self.events += len(began) + len(done) + len(loaded)
            self._told(end, began, done, loaded)
            self.now = end
            self._act(end)

    def _busy(self) -> bool:
        machine = self.machine
        return bool(machine.running or machine.waiting_count or self.asked)

    def _work(
        self, following: float
    ) -> tuple[float, list[Request], list[Request], list[tuple[str, float]]]:
        """The engine from the end of a step on: loads that were asked for, else steps."""
        machine = self.machine
        if self.asked:
            end, loaded = self.now, []
            for asked in self.asked:
                if isinstance(asked, Evict):
                    machine.evict(asked.adapter)
                else:
                    seconds = machine.load(asked.adapter)
                    end += seconds
                    loaded.append((asked.adapter, seconds))
            self.asked = []
            return end, [], [], loaded
        stalled = machine.admit()
        end, began, done = machine.advance(self.now + stalled, following)
        return end, began, done, []

    def _told(
        self,
        end: float,
        began: list[Request],
        done: list[Request],
        loaded: list[tuple[str, float]],
    ) -> None:
        controller = self.controller
        for adapter, seconds in loaded:
            controller.loaded(adapter, seconds, end)
        for request in began:
            self.first[request.id] = end
            controller.first_token(request.id)
        for request in done:
            id = request.id
            controller.finished(id)
            self.rows.append((request, self.sent.pop(id), self.first.pop(id), end))

    def _act(self, now: float) -> None:
        for action in self.controller.actions(now):
            self.events += 1
            if isinstance(action, Dispatch):
                self.sent[action.request.id] = now
                self.machine.add(action.request)
            elif isinstance(action, Reject):
                self.rejected += 1
            else:
                self.asked.append(action)

    def result(self, total: int) -> SimResult:
        import pandas as pd

        rows = self.rows
        table = pd.DataFrame(
            {
                "adapter": [r[0].adapter for r in rows],
                "class": [r[0].klass for r in rows],
                "arrived": np.fromiter((r[0].arrived for r in rows), float, len(rows)),
                "sent": np.fromiter((r[1] for r in rows), float, len(rows)),
                "first": np.fromiter((r[2] for r in rows), float, len(rows)),
                "done": np.fromiter((r[3] for r in rows), float, len(rows)),
                "output_tokens": [r[0].output_tokens for r in rows],
            }
        )
        controller, machine = self.controller, self.machine
        return SimResult(
            table,
            controller.loads + machine.misses,
            machine.misses,
            machine.load_seconds,
            self.events,
            total - len(rows) - self.rejected,
            self.rejected,
            self.now,
        )


def _requests(trace: pd.DataFrame) -> list[Request]:
    columns = (trace[name].tolist() for name in (
        "t_s", "adapter", "class", "prompt_tokens", "output_tokens",
    ))  # fmt: skip
    return [
        Request(i, adapter or None, klass, t, None, prompt, output)
        for i, (t, adapter, klass, prompt, output) in enumerate(zip(*columns, strict=True))
    ]
