"""One replica in the simulator: iteration-level batching that skips ahead between changes.

Between changes of its batch a replica's decode steps form an arithmetic series: with b requests and
S tokens of context, step j takes c + g·j, c = t(b, S), g = slope(b)·b, so that k steps take
k·c + g·k(k − 1)/2. A replica therefore costs O(changes), not O(tokens). Steps that hold prompt
tokens are taken one by one. State is kept as of the last step boundary that mattered.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from armillary.serving.hexgen.columns import LINK_LATENCY_S, AfdTimes, Column
from armillary.serving.hexgen.steptimes import MAX_LENGTH, StepTimes

#: Share of the cache that stays free when requests are let in (vLLM's watermark).
WATERMARK = 0.01


class Requests:
    """What the replicas of one run read and write about requests, by number."""

    def __init__(self, t: np.ndarray, inputs: np.ndarray, outputs: np.ndarray) -> None:
        n = len(t)
        self.t: list[float] = t.tolist()
        self.inputs: list[int] = np.minimum(inputs, MAX_LENGTH).astype(int).tolist()
        self.outputs: list[int] = outputs.astype(int).tolist()
        self.first: list[float] = [math.nan] * n
        self.finish: list[float] = [math.nan] * n
        self.made = [0] * n  # answer tokens that exist
        self.preempted = [0] * n
        self.where = [-1] * n


class Replica:
    """A replica of a column.

    Args:
        number: in the fleet.
        column: its kind.
        requests: of the run.
        done: called with (request, now) when a replica has finished with a request: an answer is
            complete, or (PRE) a prompt's cache may leave.
        again: called with (request, now) when a decode replica must drop a request's cache.
    """

    def __init__(
        self,
        number: int,
        column: Column,
        requests: Requests,
        done: Callable[[int, float], None],
        again: Callable[[int, float], None],
    ) -> None:
        self.number, self.column, self.requests = number, column, requests
        self.done, self.again = done, again
        self.batch, self.chunk = column.batch, column.chunk
        self.decodes = column.kind != "pre"
        self.prefills = column.chunk > 0
        self.kv_tokens = self._kv_tokens()
        self.free_below = int(self.kv_tokens * (1 - WATERMARK))
        self.t = 0.0  # the boundary that the state is of
        self.steps = 0
        self.context = 0  # S
        self.live: dict[int, int] = {}  # request -> context less steps; in order of joining
        self.ends: list[tuple[int, int]] = []  # (step count at its end, request)
        self.prompts: deque[tuple[int, int]] = deque()  # (request, tokens done), being prefilled
        self.held = 0  # tokens of cache that prompts in work hold
        self.waiting: deque[int] = deque()
        self.in_flight = 0
        self.version = 0
        self.busy = False
        self.pending: list[tuple[int, int]] | None = None  # prompt pieces of the running step
        self.draining = False
        self.up = True
        self.start = 0.0
        self.stop = math.inf
        self.link_free = 0.0

    def _kv_tokens(self) -> int:
        times = self.column.times
        assert isinstance(times, StepTimes)
        linear, head, base, slope, prompt = times.plain
        self.linear, self.head, self.prompt = linear, head, prompt
        self.base, self.slope = base, slope
        return times.kv_tokens if self.decodes else 1 << 60

    # What happens to it

    def arrive(self, request: int, now: float) -> float | None:
        """Take a request; returns when to wake the replica, or None if nothing changes."""
        self.in_flight += 1
        self.requests.where[request] = self.number
        self.waiting.append(request)
        if not self.busy:
            self.t = now
            return self._go_on()
        if self.pending is not None or len(self.waiting) > 1 or not self._room(request):
            return None  # it is looked at when the running step, or an answer, ends
        return self._cut_short(now)

    def wake(self, now: float) -> float | None:
        """The moment that was asked for has come: a step with prompts or an answer ended."""
        if self.pending is not None:
            self._end_mixed(now)
        else:
            self._advance(self.planned, now)
        self._finish()
        return self._go_on()

    def drop(self, now: float) -> list[int]:
        """Fail: every request that it held, to be served elsewhere."""
        held = [*self.live, *(r for r, _ in self.prompts), *self.waiting]
        self.live.clear()
        self.ends.clear()
        self.prompts.clear()
        self.waiting.clear()
        self.pending = None
        self.context = self.held = self.in_flight = 0
        self.busy = False
        self.version += 1
        return held

    # How time passes

    def _pace(self) -> tuple[float, float, int]:
        """Seconds of the next decode step, growth from step to step, steps that it is valid for."""
        b = len(self.live)
        slope = self.slope[b]
        step = self.linear[b] + self.head[b] + self.base[b] + slope * self.context
        return step, slope * b, 1 << 60

    def _advance(self, k: int, t: float) -> None:
        self.steps += k
        self.context += k * len(self.live)
        self.t = t

    def _cut_short(self, now: float) -> float | None:
        """Plan to wake at the first boundary at or after ``now``: whoever waits then is let in."""
        c, a = self.c, self.g / 2
        b, late = c - a, now - self.t
        k = late / c if a < 1e-15 * c else (math.sqrt(b * b + 4 * a * late) - b) / (2 * a)
        k = max(math.ceil(k - 1e-9), 1)
        if k >= self.planned:
            return None
        self.planned = k
        self.version += 1
        return self.t + k * c + a * k * (k - 1)

    def _finish(self) -> None:
        ends, steps, requests = self.ends, self.steps, self.requests
        while ends and ends[0][0] <= steps:
            _, request = heapq.heappop(ends)
            offset = self.live.pop(request)
            self.context -= offset + steps
            self._left(request, offset)
            self.in_flight -= 1
            requests.made[request] = requests.outputs[request]
            requests.finish[request] = self.t
            self.done(request, self.t)

    def _left(self, request: int, offset: int) -> None:
        """A request takes part no more."""

    def _room(self, request: int) -> bool:
        tokens = self.requests.inputs[request] + max(self.requests.made[request], 1)
        members = len(self.live) + len(self.prompts)
        if members == 0:
            return True
        used = self.context + self.held + members
        return members < self.batch and used + tokens <= self.free_below

    def _go_on(self) -> float | None:
        """Let in what fits, and plan the next moment that something changes."""
        live, requests = self.live, self.requests
        while live and len(live) > 1 and self.context + self.held + len(live) > self.kv_tokens:
            self._preempt()
        waiting = self.waiting
        while waiting and self._room(waiting[0]):
            request = waiting.popleft()
            if self.prefills:
                self.prompts.append((request, 0))
                self.held += requests.inputs[request] + requests.made[request]
            else:
                self._join(request)
        self.version += 1
        if self.prompts:
            return self._start_mixed()
        if not live:
            self.busy = False
            return None
        self.busy = True
        step, growth, valid = self._pace()
        left = self.ends[0][0] - self.steps
        room = max((self.kv_tokens - self.context) // len(live), 1)
        k = max(min(left, room, valid), 1)
        self.c, self.g, self.planned = step, growth, k
        return self.t + k * step + growth * k * (k - 1) / 2

    def _join(self, request: int) -> None:
        """A request whose cache is here takes part in decode steps."""
        requests = self.requests
        made = requests.made[request]
        context = requests.inputs[request] + made
        left = requests.outputs[request] - made
        self.live[request] = context - self.steps
        self.context += context
        heapq.heappush(self.ends, (self.steps + left, request))

    def _preempt(self) -> None:
        """Drop the cache of the request that joined last."""
        request = next(reversed(self.live))
        offset = self.live.pop(request)
        context = offset + self.steps
        self.context -= context
        self._left(request, offset)
        self.requests.made[request] = context - self.requests.inputs[request]
        self.requests.preempted[request] += 1
        self.ends = [entry for entry in self.ends if entry[1] != request]
        heapq.heapify(self.ends)
        if self.prefills:
            self.waiting.appendleft(request)
        else:
            self.in_flight -= 1
            self.again(request, self.t)

    def _start_mixed(self) -> float:
        """One step with prompt tokens; prompts are taken in order up to the budget."""
        b, left, attention, ending = len(self.live), self.chunk, 0.0, 0
        prompt, pieces = self.prompt, []
        for request, before in self.prompts:
            whole = self.requests.inputs[request] + self.requests.made[request]
            piece = min(left, whole - before)
            after = min(before + piece, MAX_LENGTH)
            attention += prompt[after] - prompt[min(before, MAX_LENGTH)]
            ending += before + piece == whole
            pieces.append((request, before + piece))
            left -= piece
            if left <= 0:
                break
        tokens = b + self.chunk - left
        seconds = self.linear[min(tokens, len(self.linear) - 1)] + attention
        seconds += self.head[min(b + ending, len(self.head) - 1)]
        if b:
            seconds += self.base[b] + self.slope[b] * self.context
        self.pending = pieces
        self.busy = True
        return self.t + seconds

    def _end_mixed(self, now: float) -> None:
        pieces, self.pending = self.pending, None
        assert pieces is not None
        self._advance(1, now)
        requests, prompts = self.requests, self.prompts
        for request, after in pieces:
            whole = requests.inputs[request] + requests.made[request]
            if after < whole:
                prompts[0] = (request, after)
                continue
            prompts.popleft()
            self.held -= whole
            if requests.first[request] != requests.first[request]:  # NaN: its first token
                requests.first[request] = now
            requests.made[request] += 1
            if requests.made[request] >= requests.outputs[request]:
                requests.finish[request] = now
            elif self.decodes:
                self._join(request)
                continue
            self.in_flight -= 1
            self.done(request, now)


class AfdGroup(Replica):
    """A group whose attention workers keep the cache; its pace is that of the fullest worker.

    ``batch`` is of one attention worker. Requests go to the worker with the least context.
    """

    def _kv_tokens(self) -> int:
        times = self.column.times
        assert isinstance(times, AfdTimes)
        self.times = times
        a, f = times.attention, times.ffn
        layers = a.shape.layers
        self.a_linear = a.attention.tolist()
        self.f_linear = f.ffn.tolist()
        _, self.head, base, slope, _ = a.plain
        self.a_base = [v / layers for v in base]
        self.a_slope = [v / layers for v in slope]
        self.layers, self.overhead = layers, a.overhead
        self.shares = [0] * times.workers  # context of each worker, as offsets
        self.members = [0] * times.workers
        self.worker: dict[int, int] = {}
        self.batch *= times.workers
        return times.kv_tokens * times.workers

    def _join(self, request: int) -> None:
        super()._join(request)
        loads = [s + m * self.steps for s, m in zip(self.shares, self.members, strict=True)]
        w = loads.index(min(loads))
        self.worker[request] = w
        self.shares[w] += self.live[request]
        self.members[w] += 1

    def _left(self, request: int, offset: int) -> None:
        w = self.worker.pop(request)
        self.shares[w] -= offset
        self.members[w] -= 1

    def drop(self, now: float) -> list[int]:
        for request, offset in self.live.items():
            self._left(request, offset)
        return super().drop(now)

    def _pace(self) -> tuple[float, float, int]:
        times, m = self.times, self.times.micro
        loads = [s + n * self.steps for s, n in zip(self.shares, self.members, strict=True)]
        most = max(loads)
        w = loads.index(most)
        b = -(-max(self.members) // m)
        rows = -(-len(self.live) // (m * times.ffn_workers))
        slope = self.a_slope[b]
        a = self.a_linear[b] + self.a_base[b]
        f = self.f_linear[min(rows, len(self.f_linear) - 1)]
        c = LINK_LATENCY_S + times.link * b
        context, growth = most / m, self.members[w] / m
        # Three lines in the context; the largest rules until another one overtakes it.
        lines = (
            (a + c + slope * context, slope * growth),
            (f + c, 0.0),
            ((a + f + 2 * c + slope * context) / m, slope * growth / m),
        )
        now, rise = max(lines)
        valid = 1 << 60
        for value, other in lines:
            if other > rise:
                valid = min(valid, int((now - value) / (other - rise)) + 1)
        whole = self.layers * m
        head = self.head[min(max(self.members), len(self.head) - 1)]
        return whole * now + head + self.overhead, whole * rise, valid
