"""Kinds of replica that a plan can buy, each with its GPUs, its price and what it can carry.

- AGG: one replica does everything; steps hold a batch of decodes and a chunk of a prompt.
- PRE, DEC: prompts on one replica, answers on another, the KV cache crosses a link between them.
- AFD: answers on a group whose attention workers keep the KV cache and whose feed-forward workers
  keep the rest of the weights; m micro-batches go back and forth in every layer.

Capacities are fluid: requests per second at which the mean step just meets the TPOT target. They
steer the planner and are never reported as results; the simulator judges.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from armillary.serving.hexgen.catalog import Catalog, Gpu
from armillary.serving.hexgen.model_shape import BYTES, ModelShape
from armillary.serving.hexgen.optables import Floats
from armillary.serving.hexgen.steptimes import (
    MAX_BATCH,
    MEMORY_SHARE,
    RUNTIME_BYTES,
    STEP_OVERHEAD_S,
    StepTimes,
    kv_room,
    step_times,
)
from armillary.serving.hexgen.traces import Slo, Workload

#: Tensor-parallel degrees that are tried.
DEGREES = (1, 2, 4, 8)
#: Token budgets of a step: of a mixed step (AGG), and of a prefill replica.
CHUNKS = (512, 1024, 2048, 8192)
PREFILL_BUDGET = 8192
#: Latency of a message between nodes (s).
LINK_LATENCY_S = 1e-5
_BATCHES = np.unique(np.round(np.geomspace(1, MAX_BATCH, 60)).astype(np.int64))


@dataclasses.dataclass(frozen=True)
class Demand:
    """What of a workload decides capacities.

    Attributes:
        inputs: (n,) prompt lengths.
        steps: mean decode steps of a request (its answer but the first token).
        context: mean tokens of context of a decode step.
        context_sd: their standard deviation.
        long_input: the 99th percentile of prompts.
    """

    inputs: NDArray[np.int64]
    steps: float
    context: float
    context_sd: float
    long_input: int

    @classmethod
    def of(cls, workload: Workload) -> Demand:
        """Moments of a workload."""
        inputs = workload.inputs.astype(float)
        steps = np.maximum(workload.outputs - 1, 0).astype(float)
        total = max(float(steps.sum()), 1e-9)
        # A request of i prompt tokens meets contexts i + 1 … i + steps, once each.
        mean = float((steps * (inputs + (steps + 1) / 2)).sum() / total)
        square = inputs**2 + inputs * (steps + 1) + (steps + 1) * (2 * steps + 1) / 6
        second = float((steps * square).sum() / total)
        return cls(
            workload.inputs, total / len(workload), max(mean, 1.0),
            math.sqrt(max(second - mean**2, 0.0)), int(np.quantile(workload.inputs, 0.99)),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class AfdTimes:
    """Step times of a group that splits attention from the feed-forward blocks.

    Attributes:
        attention: times of one attention worker (its ``ffn`` is not used).
        ffn: times of one feed-forward worker (only its ``ffn`` is used).
        workers, ffn_workers: how many of each.
        micro: micro-batches in flight.
        kv_tokens: tokens of cache on one attention worker.
    """

    attention: StepTimes
    ffn: StepTimes
    workers: int
    ffn_workers: int
    micro: int
    kv_tokens: int

    @functools.cached_property
    def link(self) -> float:
        """Seconds that one token's activations take one way, per token of a worker's batch."""
        hidden = self.attention.shape.hidden * BYTES
        out = hidden / (self.attention.gpu.inter * self.attention.tp)
        into = hidden * self.workers / (self.ffn.gpu.inter * self.ffn.tp * self.ffn_workers)
        return max(out, into)

    def cycle(self, batch: NDArray[np.int64], context: Floats) -> Floats:
        """Seconds between micro-batches in a layer.

        Args:
            batch: requests of one micro-batch on one attention worker.
            context: tokens of context of the fullest worker's micro-batch.
        """
        layers = self.attention.shape.layers
        a = self.attention.attention[batch]
        a = a + (self.attention.base[batch] + self.attention.slope[batch] * context) / layers
        f = self.ffn.ffn[-(-self.workers * batch // self.ffn_workers)]
        c = LINK_LATENCY_S + self.link * batch
        return np.maximum(np.maximum(a, f) + c, (a + f + 2 * c) / self.micro)

    def step(self, batch: NDArray[np.int64], context: Floats) -> Floats:
        """Seconds of one token for every request in the group."""
        layers = self.attention.shape.layers
        whole = layers * self.micro * self.cycle(batch, context)
        rows = np.minimum(batch * self.micro, MAX_BATCH)
        return whole + self.attention.head[rows] + STEP_OVERHEAD_S


@dataclasses.dataclass(frozen=True)
class Column:
    """A kind of replica.

    Attributes:
        kind: ``agg``, ``pre``, ``dec`` or ``afd``.
        name: unique within a plan.
        use: GPUs of one replica by type.
        price: of an hour of one replica.
        capacity: requests a second that one replica carries, of its phases.
        batch: most requests in its batch (of a group: of one attention worker).
        chunk: token budget of a step with prompt tokens.
        tpot_s, ttft_s: predicted at capacity, without queues.
        kv_bandwidth: bytes a second that leave a prefill replica.
        times: of its steps.
    """

    kind: str
    name: str
    use: tuple[tuple[str, int], ...]
    price: float
    capacity: float
    batch: int
    chunk: int
    tpot_s: float
    ttft_s: float
    kv_bandwidth: float
    times: StepTimes | AfdTimes

    @property
    def estimated(self) -> bool:
        """Whether a roofline stands in for measurements of one of its GPUs."""
        if isinstance(self.times, AfdTimes):
            return self.times.attention.gpu.estimated or self.times.ffn.gpu.estimated
        return self.times.gpu.estimated


def build_columns(
    shape: ModelShape,
    catalog: Catalog,
    workload: Workload,
    slo: Slo,
    *,
    modes: Sequence[str] = ("agg", "pd", "afd"),
    margin: float = 0.9,
    prefer_chunk: int | None = None,
) -> list[Column]:
    """Every kind of replica that fits, meets the targets when unloaded, and is not dominated.

    Args:
        shape: the model.
        catalog: the GPUs.
        workload: whose lengths decide capacities.
        slo: the targets.
        modes: ``agg``, ``pd``, ``afd`` (answers by groups; prompts then need ``pd``'s prefill).
        margin: share of the TPOT target that a full batch may take.
        prefer_chunk: only this token budget for AGG.
    """
    unknown = sorted(set(modes) - {"agg", "pd", "afd"})
    if unknown:
        raise ValueError(f"modes={tuple(modes)!r}: {unknown} unknown; agg, pd and afd are known")
    demand = Demand.of(workload)
    chunks = CHUNKS if prefer_chunk is None else (prefer_chunk,)
    found: list[Column] = []
    for gpu in catalog.gpus.values():
        for tp in DEGREES:
            times = step_times(shape, gpu, tp)
            if times is None or gpu.inventory < tp or times.kv_tokens < demand.context:
                continue
            times.check_floor()
            options = []
            if "agg" in modes:
                options.append(_agg(times, demand, slo, margin, chunks))
            if "pd" in modes or "afd" in modes:
                options.append(_pre(times, demand, slo))
            if "pd" in modes:
                options.append(_dec(times, demand, slo, margin))
            found += [column for column in options if column is not None]
    if "afd" in modes:
        found += _afd(shape, catalog, demand, slo, margin)
    return _undominated(found)


def _replica(times: StepTimes, kind: str, **values: float) -> Column:
    gpu, tp = times.gpu, times.tp
    chunk = int(values["chunk"])
    return Column(
        kind, f"{kind}-{gpu.name}-tp{tp}", ((gpu.name, tp),), gpu.price * tp,
        values["capacity"], int(values["batch"]), chunk, values["tpot_s"], values["ttft_s"],
        gpu.inter * tp, times,
    )  # fmt: skip


def _feasible_batches(times: StepTimes, demand: Demand) -> NDArray[np.int64]:
    room = times.kv_tokens / (demand.context + demand.context_sd / 4)
    return _BATCHES[max(1, min(MAX_BATCH, int(room))) >= _BATCHES]


def _agg(
    times: StepTimes, demand: Demand, slo: Slo, margin: float, chunks: Sequence[int]
) -> Column | None:
    """The batch and token budget of most requests a second.

    A request brings P seconds of prompt work and D decode steps; with b decodes in the batch
    λ = 1 / (P + D·t(b)/b), and prompts stretch the step to t(b) / (1 − λP).
    """
    batch = _feasible_batches(times, demand)
    best: tuple[float, dict[str, float]] | None = None
    step = times.decode(batch, batch * demand.context)
    attention = float(times.prompt[np.minimum(demand.inputs, len(times.prompt) - 1)].mean())
    for chunk in chunks:
        a_token = (times.linear[batch + chunk] - times.linear[batch]) / chunk
        prompt = float(demand.inputs.mean()) * a_token + attention
        rate = 1 / (prompt + demand.steps * step / batch)
        tpot = step / np.maximum(1 - rate * prompt, 1e-9)
        chunks_needed = math.ceil(demand.long_input / chunk)
        longest = times.prompt[min(demand.long_input, len(times.prompt) - 1)]
        ttft = chunks_needed * (step + chunk * a_token) + longest
        good = (ttft <= slo.ttft_p99_s) & ((tpot <= slo.tpot_s * margin) | (demand.steps < 0.5))
        if good.any():
            i = int(np.flatnonzero(good)[np.argmax(rate[good])])
            if best is None or rate[i] > best[0]:
                best = (float(rate[i]), {
                    "capacity": float(rate[i]), "batch": float(batch[i]), "chunk": chunk,
                    "tpot_s": float(tpot[i]), "ttft_s": float(ttft[i]),
                })  # fmt: skip
    return None if best is None else _replica(times, "agg", **best[1])


def _pre(times: StepTimes, demand: Demand, slo: Slo) -> Column | None:
    longest = float(times.alone(np.array([demand.long_input]), PREFILL_BUDGET)[0])
    if longest > slo.ttft_p99_s:
        return None
    mean = float(times.prefill(demand.inputs, PREFILL_BUDGET).mean())
    return _replica(
        times, "pre", capacity=1 / mean, batch=MAX_BATCH, chunk=PREFILL_BUDGET, tpot_s=0.0,
        ttft_s=longest,
    )  # fmt: skip


def _dec(times: StepTimes, demand: Demand, slo: Slo, margin: float) -> Column | None:
    batch = _feasible_batches(times, demand)
    step = times.decode(batch, batch * demand.context)
    good = step <= slo.tpot_s * margin
    if not good.any():
        return None
    rate = batch / (step * max(demand.steps, 1e-9))
    i = int(np.flatnonzero(good)[np.argmax(rate[good])])
    return _replica(
        times, "dec", capacity=float(rate[i]), batch=float(batch[i]), chunk=0,
        tpot_s=float(step[i]), ttft_s=0.0,
    )  # fmt: skip


def straggler(workers: int) -> float:
    """Expected largest of ``workers`` standard normals (Blom's approximation)."""
    return float(ndtri((workers - 0.375) / (workers + 0.25))) if workers > 1 else 0.0


def _afd(
    shape: ModelShape, catalog: Catalog, demand: Demand, slo: Slo, margin: float
) -> list[Column]:
    """For each pair of GPU types, the three groups of most requests for their price."""
    kept: list[Column] = []
    for a, f in itertools.product(catalog.gpus.values(), repeat=2):
        found = list(_groups_of(shape, a, f, demand, slo, margin))
        found.sort(key=lambda column: -column.capacity / column.price)
        kept += found[:3]
        small = min(found, key=lambda column: column.price, default=None)
        if small is not None and small not in found[:3]:
            kept.append(small)
    return kept


def _groups_of(
    shape: ModelShape, a: Gpu, f: Gpu, demand: Demand, slo: Slo, margin: float
) -> Iterator[Column]:
    attention_params = shape.layers * shape.attention_params + shape.embedding_params
    for tp_a, tp_f in itertools.product((1, 2, 4), (1, 2, 4, 8)):
        times_a, times_f = step_times(shape, a, tp_a), step_times(shape, f, tp_f)
        held = shape.layers * shape.ffn_params * BYTES / tp_f
        if times_a is None or times_f is None:
            continue
        if held > f.memory * MEMORY_SHARE - RUNTIME_BYTES:
            continue
        room = kv_room(shape, a, tp_a, attention_params)
        for n_a, n_f in itertools.product((1, 2, 3, 4, 6, 8), (1, 2)):
            gpus = {a.name: tp_a * n_a}
            gpus[f.name] = gpus.get(f.name, 0) + tp_f * n_f
            if sum(gpus.values()) > 16 or any(
                count > gpu.inventory for gpu in (a, f) if (count := gpus[gpu.name])
            ):
                continue
            best = None
            for micro in (1, 2, 3, 4):
                group = AfdTimes(times_a, times_f, n_a, n_f, micro, room)
                column = _group(group, gpus, demand, slo, margin)
                if column is not None and (best is None or column.capacity > best.capacity):
                    best = column
            if best is not None:
                yield best


def _group(
    group: AfdTimes, gpus: dict[str, int], demand: Demand, slo: Slo, margin: float
) -> Column | None:
    a, f = group.attention, group.ffn
    per_worker = min(group.kv_tokens / (demand.context + demand.context_sd / 4), MAX_BATCH)
    batch = _BATCHES[_BATCHES * group.micro <= per_worker]
    batch = batch[batch * group.workers <= (len(f.ffn) - 1) * group.ffn_workers]
    if not len(batch):
        return None
    spread = demand.context_sd * np.sqrt(batch) * straggler(group.workers)
    step = group.step(batch, batch * demand.context + spread)
    good = step <= slo.tpot_s * margin
    if not good.any():
        return None
    whole = batch * group.micro * group.workers
    rate = whole / (step * max(demand.steps, 1e-9))
    i = int(np.flatnonzero(good)[np.argmax(rate[good])])
    price = a.gpu.price * a.tp * group.workers + f.gpu.price * f.tp * group.ffn_workers
    name = (
        f"afd-{group.workers}x{a.gpu.name}-tp{a.tp}-{group.ffn_workers}x{f.gpu.name}-tp{f.tp}"
        f"-m{group.micro}"
    )
    return Column(
        "afd", name, tuple(sorted(gpus.items())), price, float(rate[i]),
        int(batch[i]) * group.micro, 0, float(step[i]), 0.0, a.gpu.inter * a.tp, group,
    )  # fmt: skip


def _undominated(columns: list[Column]) -> list[Column]:
    """Without columns that use no fewer GPUs of any type than another that carries as much.

    A PRE that is otherwise as good stays if it ships its KV cache faster.
    """

    def worse(one: Column, other: Column) -> bool:
        if one is other or (one.kind == "agg") != (other.kind == "agg"):
            return False
        if (one.kind == "pre") != (other.kind == "pre"):
            return False
        use, least = dict(one.use), dict(other.use)
        if any(least[g] > use.get(g, 0) for g in least) or other.capacity < one.capacity:
            return False
        if one.kind == "pre" and other.kv_bandwidth < one.kv_bandwidth:
            return False
        return (least, other.capacity) != (use, one.capacity) or other.name < one.name

    return [one for one in columns if not any(worse(one, other) for other in columns)]
