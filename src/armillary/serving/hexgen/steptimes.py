"""What one step of a replica takes: operators of all layers put together.

A decode step of b requests with S tokens of context in all takes
    linear(b) + head(b) + base(b) + slope(b)·S,
affine in S at fixed b: k steps have a closed-form duration. A chunk of c prompt tokens that follows
``off`` earlier ones adds linear(b + c) − linear(b) and the causal attention of its rows.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.serving.hexgen.catalog import Gpu
from armillary.serving.hexgen.model_shape import BYTES, ModelShape
from armillary.serving.hexgen.optables import Floats, OpTable

#: Scheduling, sampling and transfers to the host that no kernel hides (s a step).
STEP_OVERHEAD_S = 5e-4
#: Share of memory that weights and KV cache may fill, as vLLM's gpu_memory_utilization.
MEMORY_SHARE = 0.9
#: Activations and the runtime's own memory on each GPU (bytes).
RUNTIME_BYTES = 2.5e9
#: Most requests of a batch on one replica, most tokens of a step, longest request.
MAX_BATCH, MAX_STEP_TOKENS, MAX_LENGTH = 1024, 8192, 40960


class PhysicalityError(ArithmeticError):
    """A step that would be faster than reading its weights and cache."""


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Times of one replica of a model on ``tp`` GPUs of one type (seconds).

    Attributes:
        shape, gpu, tp: whose times these are.
        attention: (tokens + 1,) of a layer's attention block but attention itself.
        ffn: (tokens + 1,) of a layer's feed-forward block.
        head: (batch + 1,) of the output head.
        base, slope: (batch + 1,) lines of decode attention, all layers.
        prompt: (length + 1,) causal attention over a prompt, all layers.
        kv_tokens: tokens of KV cache that fit beside the weights.
        overhead: of every step.
        fit_error: of the lines of decode attention, relative, at worst.
        estimated: operators that were no measurement.
    """

    shape: ModelShape
    gpu: Gpu
    tp: int
    attention: Floats
    ffn: Floats
    head: Floats
    base: Floats
    slope: Floats
    prompt: Floats
    kv_tokens: int
    overhead: float = STEP_OVERHEAD_S
    fit_error: float = 0.0
    estimated: tuple[str, ...] = ()

    @functools.cached_property
    def linear(self) -> Floats:
        """(tokens + 1,) all that depends on the number of tokens alone."""
        return self.shape.layers * (self.attention + self.ffn) + self.overhead

    @functools.cached_property
    def plain(self) -> tuple[list[float], ...]:
        """linear, head, base, slope and prompt as lists: one element of a list is read faster."""
        arrays = (self.linear, self.head, self.base, self.slope, self.prompt)
        return tuple(array.tolist() for array in arrays)

    def decode(self, batch: NDArray[np.int64] | int, context: ArrayLike) -> Floats:
        """Seconds of a decode step of ``batch`` requests, ``context`` tokens in all."""
        line = self.base[batch] + self.slope[batch] * np.asarray(context)
        return self.linear[batch] + self.head[batch] + line

    def prefill(self, lengths: NDArray[np.int64], budget: int) -> Floats:
        """Seconds that each prompt adds to steps that are filled up to ``budget`` tokens."""
        a_token = (self.linear[budget] + self.head[1]) / budget
        return lengths * a_token + self.prompt[np.minimum(lengths, MAX_LENGTH)]

    def alone(self, lengths: NDArray[np.int64], budget: int) -> Floats:
        """Seconds to the first token of a prompt that has the replica to itself."""
        whole, rest = np.divmod(lengths, budget)
        steps = whole * self.linear[budget] + np.where(rest > 0, self.linear[rest], 0.0)
        return steps + self.head[1] + self.prompt[np.minimum(lengths, MAX_LENGTH)]

    def check_floor(self) -> None:
        """Refuse times below what the memory allows.

        Raises:
            PhysicalityError: a decode step is faster than (its weights + its cache) / bandwidth.
        """
        weights = self.shape.bytes_read(self.tp)
        kv = self.shape.kv_bytes / self.kv_share
        for batch in (1, 8, 64, 512):
            for length in (0, 1024):
                floor = (weights + kv * batch * length) / self.gpu.bandwidth
                found = float(self.decode(batch, float(batch * length)))
                if found < floor * (1 - 1e-9):
                    raise PhysicalityError(
                        f"{self.shape.name} on {self.tp} x {self.gpu.name}: a step of {batch} "
                        f"requests at {length} tokens takes {found * 1e3:.3f} ms, but reading its "
                        f"weights and cache takes {floor * 1e3:.3f} ms: the operator table is wrong"
                    )

    @property
    def kv_share(self) -> int:
        """Over how many of the GPUs a token's KV is spread (heads are copied past their number)."""
        return min(self.tp, self.shape.kv_heads)

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache of one token."""
        return self.shape.kv_bytes


def step_times(shape: ModelShape, gpu: Gpu, tp: int, framework: str = "vllm") -> StepTimes | None:
    """Times of a replica, or None if the model cannot be split so or does not fit.

    The whole model's weights must fit; see `kv_room` for groups that hold a part.
    """
    if not shape.can_split(tp) or tp > gpu.node:
        return None
    return _times(shape, gpu, tp, framework)


@functools.lru_cache(maxsize=256)
def _times(shape: ModelShape, gpu: Gpu, tp: int, framework: str) -> StepTimes:
    table = OpTable.measured(gpu, framework)
    m = np.unique(np.round(np.geomspace(1, MAX_STEP_TOKENS + MAX_BATCH, 140)))
    every = np.arange(MAX_STEP_TOKENS + MAX_BATCH + 1)
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    dim, hidden = shape.head_dim, shape.hidden

    def filled(values: Floats) -> Floats:
        full = np.exp(np.interp(np.log(np.maximum(every, 1)), np.log(m), np.log(values)))
        full[0] = 0.0
        return full

    reduce = table.all_reduce(m * hidden * BYTES, tp)
    attention = (
        table.gemm(m, (heads + 2 * kv_heads) * dim, hidden)
        + table.gemm(m, hidden, heads * dim)
        + table.elementwise(m * BYTES * (4 * hidden + 2 * (heads + kv_heads) * dim), 2)
        + reduce
    )
    ffn = _ffn(table, shape, tp, m) + reduce
    rows = np.arange(MAX_BATCH + 1)
    head_m = np.unique(np.round(np.geomspace(1, MAX_BATCH, 40)))
    head = np.interp(rows, head_m, table.gemm(head_m, -(-shape.vocab // tp), hidden))
    batch, base, slope, worst = table.decode_attention(heads, kv_heads, dim)
    log_rows = np.log(np.maximum(rows, 1))
    base = np.interp(log_rows, np.log(batch), base) * shape.layers
    slope = np.interp(log_rows, np.log(batch), slope) * shape.layers
    length = np.unique(np.round(np.geomspace(1, MAX_LENGTH, 120)))
    prompt = table.prefill_attention(length, heads, kv_heads, dim) * shape.layers
    prompt = np.interp(np.arange(MAX_LENGTH + 1), np.r_[0.0, length], np.r_[0.0, prompt])
    return StepTimes(
        shape, gpu, tp, filled(attention), filled(ffn), head, base, slope, prompt,
        kv_room(shape, gpu, tp, shape.params), fit_error=float(worst[0]),
        estimated=tuple(sorted(table.estimated)),
    )  # fmt: skip


def _ffn(table: OpTable, shape: ModelShape, tp: int, m: Floats) -> Floats:
    """A layer's feed-forward block; experts are split by width or dealt out, the faster way."""
    hidden = shape.hidden
    norm = table.elementwise(m * BYTES * 4 * hidden, 1)
    if shape.experts:
        route = table.gemm(m, shape.experts, hidden)
        width = table.moe(m, hidden, shape.expert_inner, shape.experts, shape.top_k, tp, 1)
        if tp > 1 and shape.experts % tp == 0:
            dealt = table.moe(m, hidden, shape.expert_inner, shape.experts, shape.top_k, 1, tp)
            width = np.minimum(width, dealt)
        return norm + route + width
    inner = shape.inner // tp
    gate = table.gemm(m, 2 * inner, hidden) + table.elementwise(m * BYTES * 3 * inner, 1)
    return norm + gate + table.gemm(m, hidden, inner)


def kv_room(shape: ModelShape, gpu: Gpu, tp: int, params: float) -> int:
    """Tokens of KV cache that fit on ``tp`` GPUs beside ``params`` parameters; may be negative."""
    free = (gpu.memory * MEMORY_SHARE - RUNTIME_BYTES) * tp - params * BYTES
    copies = tp / min(tp, shape.kv_heads)
    return int(free / (shape.kv_bytes * copies))
