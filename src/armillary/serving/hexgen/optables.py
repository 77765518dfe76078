"""How long one operator takes on one GPU: measured tables, or a roofline where there is none.

The tables are those of ``aiconfigurator-core`` (latencies of vLLM's kernels in bf16 on the GPU
itself): GEMM over (m, n, k), prefill and decode attention, mixture-of-experts blocks, all-reduce.
Between grid points the logarithm of time is interpolated in the logarithms of the sizes; beyond
the grid time grows with the work, and `OpTable.clamped` counts such look-ups.

The tables were taken with warm caches: a small operator may seem to read its weights faster than
the memory can. A model's weights never stay in cache from one layer to its next turn, so that
every operator takes at least (bytes it must read) / bandwidth; `OpTable.floored` counts where that
decided.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
from numpy.typing import NDArray

from armillary.errors import require
from armillary.serving.hexgen.catalog import Gpu
from armillary.serving.hexgen.model_shape import BYTES

Floats = NDArray[np.float64]

#: Time of an operator that does nothing, where no table tells (s).
LAUNCH_S = 3e-6
#: Share of its memory bandwidth that an elementwise kernel reaches.
ELEMENTWISE_SHARE = 0.8
_SKEW = ("power_law_1.2", "power_law_1.01", "balanced")


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """What share of its peaks a GPU reaches, where a roofline stands in for measurements.

    Attributes:
        compute: of dense operations per second, in large GEMMs.
        memory: of memory bandwidth, in GEMMs of few rows.
        attention: of dense operations per second, in causal attention of long prompts.
        kv: of memory bandwidth, in decode attention.
        experts: of memory bandwidth, in mixture-of-experts blocks of few tokens.
        launch: seconds of the smallest operator.
    """

    compute: float = 0.7
    memory: float = 0.8
    attention: float = 0.5
    kv: float = 0.8
    experts: float = 0.7
    launch: float = LAUNCH_S


@dataclasses.dataclass
class OpTable:
    """Operator times of one GPU.

    Attributes:
        gpu: whose times these are.
        source: what they rest on.
        efficiency: of its rooflines.
        tables: measured curves by operator and sizes; what is not in it is a roofline.
        clamped: look-ups beyond the measured grid.
        floored: look-ups that were below the time to read their bytes.
        estimated: operators that a roofline stood in for.
    """

    gpu: Gpu
    source: str
    efficiency: Efficiency
    tables: Mapping[str, Any]
    clamped: int = 0
    floored: int = 0
    estimated: set[str] = dataclasses.field(default_factory=set)

    @classmethod
    def measured(cls, gpu: Gpu, framework: str = "vllm") -> OpTable:
        """The table of a GPU, or a roofline fitted on the H100's where none is public."""
        if gpu.estimated:
            like = _efficiency("h100_sxm", framework, 9.89e14, 3.35e12)
            return cls(gpu, "roofline fitted on the H100", like, {})
        tables, version = _load(gpu.table, framework)
        efficiency = _efficiency(gpu.table, framework, gpu.flops, gpu.bandwidth)
        return cls(gpu, f"{framework} {version} on {gpu.table}", efficiency, tables)

    def gemm(self, m: Floats, n: int, k: int) -> Floats:
        """Seconds of (m, k) @ (k, n) in bf16, for every m."""
        bytes_read = BYTES * (float(n) * k + m * (n + k))
        floor = bytes_read / self.gpu.bandwidth
        grid = self.tables.get("gemm")
        if grid is None:
            self.estimated.add("gemm")
            work = 2.0 * m * n * k / (self.gpu.flops * self.efficiency.compute)
            return np.maximum(work, floor / self.efficiency.memory) + self.efficiency.launch
        return self._at_least(_between(self, grid, m, n, k), floor)

    def moe(
        self, m: Floats, hidden: int, inner: int, experts: int, top_k: int, tp: int, ep: int
    ) -> Floats:
        """Seconds of one mixture-of-experts block (routing apart) on each of tp·ep GPUs.

        Experts are hit unevenly (a power law), as the measurements have it.
        """
        held = experts / ep
        touched = held * (1 - (1 - top_k / experts) ** m)
        expert = 3.0 * hidden * inner / tp * BYTES
        curve = self.tables.get("moe", {}).get((hidden, inner, top_k, experts, tp, ep))
        if curve is None:
            self.estimated.add("moe")
            work = 6.0 * m * top_k / ep * hidden * inner / tp
            work = work / (self.gpu.flops * self.efficiency.compute)
            read = touched * expert / (self.gpu.bandwidth * self.efficiency.experts)
            return np.maximum(work, read) + self.efficiency.launch
        # The busiest tokens share experts: what surely is read are those of one token.
        floor = top_k / ep * expert / self.gpu.bandwidth + 0.0 * m
        return self._at_least(self._curve(curve, m), floor)

    def prefill_attention(self, length: Floats, heads: int, kv_heads: int, dim: int) -> Floats:
        """Seconds of causal attention over one prompt of each length."""
        floor = BYTES * length * 2 * (heads + kv_heads) * dim / self.gpu.bandwidth
        curve = self.tables.get("prefill", {}).get((heads, kv_heads, dim))
        if curve is None:
            self.estimated.add("prefill attention")
            work = 2.0 * length**2 * heads * dim / (self.gpu.flops * self.efficiency.attention)
            return np.maximum(work, floor) + self.efficiency.launch
        return self._at_least(self._curve(curve, length, power=2.0), floor)

    def decode_attention(self, heads: int, kv_heads: int, dim: int) -> tuple[Floats, ...]:
        """Decode attention as an affine function of the context, one line for each batch size.

        Returns:
            batch (B,), seconds at no context (B,), seconds a token of context (B,), and the
            largest relative distance (1,) of the lines from the measurements they were fitted to,
            at contexts of 256 tokens and more.
        """
        kv = BYTES * 2.0 * kv_heads * dim
        least = kv / self.gpu.bandwidth
        found = self.tables.get("decode", {}).get((heads, kv_heads, dim))
        if found is None:
            self.estimated.add("decode attention")
            batch = np.array([1.0, 4096.0])
            flat = np.full(2, 2 * self.efficiency.launch)
            return batch, flat, np.full(2, least / self.efficiency.kv), np.zeros(1)
        batches, bases, slopes, worst = [], [], [], 0.0
        for batch, lengths, seconds in found:
            context = batch * lengths
            floor = context * least
            self.floored += int((seconds < floor).sum())
            seconds = np.maximum(seconds, floor)
            if len(context) < 3:
                continue
            base, slope = _line(context, seconds, least)
            batches.append(batch)
            bases.append(base)
            slopes.append(slope)
            long = lengths >= 256
            if long.any():
                fitted = base + slope * context[long]
                worst = max(worst, float(np.abs(fitted / seconds[long] - 1).max()))
        return np.array(batches), np.array(bases), np.array(slopes), np.array([worst])

    def all_reduce(self, size: Floats, tp: int) -> Floats:
        """Seconds of an all-reduce of ``size`` bytes over ``tp`` GPUs of a node."""
        if tp == 1:
            return np.zeros_like(size)
        floor = 2 * (tp - 1) / tp * size / (self.gpu.intra * tp)
        curve = self.tables.get("all_reduce", {}).get(tp)
        if curve is None:
            self.estimated.add("all-reduce")
            return 2 * (tp - 1) / tp * size / self.gpu.intra + 2 * tp * self.efficiency.launch
        return np.maximum(self._curve(curve, size), floor)

    def elementwise(self, size: Floats, kernels: int) -> Floats:
        """Seconds of ``kernels`` fused elementwise kernels that move ``size`` bytes (modelled)."""
        return size / (self.gpu.bandwidth * ELEMENTWISE_SHARE) + kernels * LAUNCH_S

    def _curve(self, curve: tuple[Floats, Floats], at: Floats, power: float = 1.0) -> Floats:
        grid, seconds = curve
        self.clamped += int((at > grid[-1]).sum() > 0)
        inside = np.exp(np.interp(np.log(np.maximum(at, 1e-9)), np.log(grid), np.log(seconds)))
        return np.where(at > grid[-1], seconds[-1] * (at / grid[-1]) ** power, inside)

    def _at_least(self, seconds: Floats, floor: Floats) -> Floats:
        self.floored += int((seconds < floor).any())
        return np.maximum(seconds, floor)


def _line(x: Floats, y: Floats, least: float) -> tuple[float, float]:
    """The line of least squared relative error, not below zero and no flatter than ``least``."""
    weight = 1 / y
    design = np.stack([weight, weight * x], 1)
    base, slope = np.linalg.lstsq(design, np.ones_like(y), rcond=None)[0]
    slope = max(float(slope), least)
    if base < 0:
        base = 0.0
        slope = max(float((x / y).sum() / ((x / y) ** 2).sum()), least)
    return float(base), slope


@dataclasses.dataclass(frozen=True)
class _Gemm:
    m: Floats
    n: Floats
    k: Floats
    log_seconds: Floats  # (n, k, m)


def _between(table: OpTable, grid: _Gemm, m: Floats, n: int, k: int) -> Floats:
    """Interpolation in log n and log k of curves over log m."""
    size = np.array([n, k], float)
    scale = 1.0
    corners = []
    for value, axis in zip(size, (grid.n, grid.k), strict=True):
        if value > axis[-1]:
            table.clamped += 1
            scale *= value / axis[-1]
            value = axis[-1]
        high = int(np.clip(np.searchsorted(axis, value), 1, len(axis) - 1))
        low = high - 1
        share = np.log(max(value, axis[0]) / axis[low]) / np.log(axis[high] / axis[low])
        corners.append(((low, 1 - share), (high, share)))
    curve = np.zeros(len(grid.m))
    for i, a in corners[0]:
        for j, b in corners[1]:
            if a * b > 0:
                curve = curve + a * b * grid.log_seconds[i, j]
    return table._curve((grid.m, np.exp(curve) * scale), m)


def _folder(table: str) -> Path:
    require("aiconfigurator_core", what="hexgen", extra="serving")
    import importlib.util

    spec = importlib.util.find_spec("aiconfigurator_core")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data" / table


def _newest(folder: Path, name: str) -> Path | None:
    found = [p for p in folder.glob(f"*/{name}") if p.is_file()]
    return max(found, key=lambda p: [int(v) for v in p.parent.name.split(".")], default=None)


def _columns(path: Path, columns: list[str], **equal: Any) -> dict[str, NDArray[Any]]:
    table = ds.dataset(path, format="parquet")
    mask = None
    for name, value in equal.items():
        if name in table.schema.names:
            part = ds.field(name) == value
            mask = part if mask is None else mask & part
    rows = table.to_table(columns=columns, filter=mask)
    return {name: rows[name].to_numpy() for name in columns}


@functools.cache
def _load(system: str, framework: str) -> tuple[dict[str, Any], str]:
    """Every table of a system, in seconds."""
    folder = _folder(system)
    gemm = _newest(folder / "gemm" / framework, "gemm_perf.parquet")
    if gemm is None:
        raise ValueError(f"framework={framework!r}: there are no tables of {system} for it")
    tables: dict[str, Any] = {"gemm": _gemm_grid(gemm)}
    attention = folder / "attention" / framework
    if (path := _newest(attention, "context_attention_perf.parquet")) is not None:
        tables["prefill"] = _prefill(path)
    if (path := _newest(attention, "generation_attention_perf.parquet")) is not None:
        tables["decode"] = _decode(path)
    if (path := _newest(folder / "moe" / framework, "moe_perf.parquet")) is not None:
        tables["moe"] = _moe(path)
    if (path := _newest(folder / "comm" / framework, "custom_allreduce_perf.parquet")) is not None:
        tables["all_reduce"] = _all_reduce(path)
    return tables, gemm.parent.name


def _gemm_grid(path: Path) -> _Gemm:
    rows = _columns(path, ["m", "n", "k", "latency"], gemm_dtype="bfloat16")
    axes = {name: np.unique(rows[name]).astype(float) for name in "mnk"}
    place = {name: np.searchsorted(axes[name], rows[name]) for name in "mnk"}
    seconds = np.full([len(axes[name]) for name in "nkm"], np.nan)
    seconds[place["n"], place["k"], place["m"]] = rows["latency"] * 1e-3
    log_m = np.log(axes["m"])
    for i in range(seconds.shape[0]):
        for j in range(seconds.shape[1]):
            row = seconds[i, j]
            known = np.isfinite(row)
            if 0 < known.sum() < len(row):
                last = int(np.flatnonzero(known)[-1])
                row[~known] = np.exp(np.interp(log_m[~known], log_m[known], np.log(row[known])))
                row[last + 1 :] = row[last] * axes["m"][last + 1 :] / axes["m"][last]
    missing = np.argwhere(~np.isfinite(seconds).all(-1))
    for i, j in missing:  # a corner of the grid: from its neighbour with less work
        near = seconds[i - 1, j] * axes["n"][i] / axes["n"][i - 1]
        other = seconds[i, j - 1] * axes["k"][j] / axes["k"][j - 1]
        seconds[i, j] = near if np.isfinite(near).all() else other
    return _Gemm(axes["m"], axes["n"], axes["k"], np.log(seconds))


def _groups(keys: NDArray[Any]) -> list[tuple[tuple[int, ...], NDArray[Any]]]:
    """Row numbers by key."""
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(inverse.ravel()))[:-1])
    return [(tuple(int(v) for v in key), part) for key, part in zip(unique, parts, strict=True)]


def _sorted_curve(x: NDArray[Any], seconds: NDArray[Any]) -> tuple[Floats, Floats]:
    """A curve with one value a place: the least, where kernels compete."""
    unique, inverse = np.unique(x, return_inverse=True)
    best = np.full(len(unique), np.inf)
    np.minimum.at(best, inverse.ravel(), seconds)
    return unique.astype(float), best


def _prefill(path: Path) -> dict[tuple[int, ...], tuple[Floats, Floats]]:
    names = ["isl", "num_heads", "num_key_value_heads", "head_dim", "latency"]
    rows = _columns(path, names, batch_size=1, window_size=0, kv_cache_dtype="bfloat16")
    keys = np.stack([rows[name] for name in names[1:4]], 1)
    return {
        key: _sorted_curve(rows["isl"][part], rows["latency"][part] * 1e-3)
        for key, part in _groups(keys)
    }


def _decode(path: Path) -> dict[tuple[int, ...], list[tuple[int, Floats, Floats]]]:
    names = ["batch_size", "step", "num_heads", "num_key_value_heads", "head_dim", "latency"]
    rows = _columns(path, names, window_size=0, kv_cache_dtype="bfloat16")
    keys = np.stack([rows[name] for name in [*names[2:5], "batch_size"]], 1)
    found: dict[tuple[int, ...], list[tuple[int, Floats, Floats]]] = {}
    for key, part in _groups(keys):
        kept = part[(rows["step"][part] >= 127) & (rows["step"][part] < 40000)]
        if len(kept):
            x, seconds = _sorted_curve(rows["step"][kept] + 1, rows["latency"][kept] * 1e-3)
            found.setdefault(key[:3], []).append((key[3], x, seconds))
    return found


def _moe(path: Path) -> dict[tuple[int, ...], tuple[Floats, Floats]]:
    names = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    rows = _columns(path, [*names, "num_tokens", "distribution", "latency"], moe_dtype="bfloat16")
    found: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
    for skew in reversed(_SKEW):  # the most uneven one that was measured stays
        kept = np.flatnonzero(rows["distribution"] == skew)
        keys = np.stack([rows[name][kept] for name in names], 1)
        for key, part in _groups(keys) if len(kept) else ():
            at = kept[part]
            found[key] = _sorted_curve(rows["num_tokens"][at], rows["latency"][at] * 1e-3)
    return found


def _all_reduce(path: Path) -> dict[int, tuple[Floats, Floats]]:
    rows = _columns(path, ["num_gpus", "message_size", "latency"])
    return {
        key[0]: _sorted_curve(rows["message_size"][part], rows["latency"][part] * 1e-3)
        for key, part in _groups(rows["num_gpus"][:, None])
    }


@functools.cache
def _efficiency(system: str, framework: str, flops: float, bandwidth: float) -> Efficiency:
    """Shares of its peaks that a measured GPU reaches: medians over operators of that kind."""
    tables, _ = _load(system, framework)
    grid: _Gemm = tables["gemm"]
    seconds = np.exp(grid.log_seconds)
    n, k, m = np.meshgrid(grid.n, grid.k, grid.m, indexing="ij")
    inner = (n >= 2048) & (k >= 2048) & (n <= 16384) & (k <= 16384)
    big = inner & (m >= 2048) & (m <= 8192)
    few = inner & (m <= 16) & (n * k * BYTES > 1.2e8)
    compute = float(np.median((2 * m * n * k / seconds)[big] / flops))
    memory = float(np.median((BYTES * n * k / seconds)[few] / bandwidth))
    attention = [
        2 * x[-1] ** 2 * heads * dim / t[-1] / flops
        for (heads, _, dim), (x, t) in tables.get("prefill", {}).items()
        if heads >= 16 and dim == 128 and x[-1] >= 8192
    ]
    kv = [
        BYTES * 2 * kv_heads * dim * batch * x[-1] / t[-1] / bandwidth
        for (_, kv_heads, dim), rows in tables.get("decode", {}).items()
        for batch, x, t in rows
        if dim == 128 and batch * x[-1] * kv_heads * dim * 4 > 3e8
    ]
    experts = [
        key[3] * 3 * key[0] * key[1] / key[4] / key[5] * BYTES / np.interp(256, x, t) / bandwidth
        for key, (x, t) in tables.get("moe", {}).items()
        if key[4] * key[5] == 1 and key[2] * 256 > 4 * key[3]
    ]

    def share(values: list[float], default: float) -> float:
        return float(np.clip(np.median(values), 0.05, 1.0)) if values else default

    return Efficiency(
        min(compute, 1.0), min(memory, 1.0), share(attention, 0.5), share(kv, 0.8),
        share(experts, 0.7), float(np.exp(grid.log_seconds[0, 0, 0])),
    )  # fmt: skip
