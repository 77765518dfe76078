"""Torch operators over the kernels: forward by the fixed tree, backward by the same kernel.

Each operator is registered with ``torch.library``, with a shape function and a gradient, so that
``torch.compile`` and wrappers of modules see it. Where no gradient is asked for, the kernel is
called directly: a step of decoding makes hundreds of calls.

Shapes: x (..., K), weight (N, K), y (..., N). Accumulation is float32; a result is rounded once to
the type of x.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from armillary import native
from armillary.serving.tbik.plan import Node, Program, TreePlan

#: Features of a leaf on the CPU.
LEAF = 64
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclasses.dataclass(frozen=True)
class PackedWeight:
    """A weight (N, K) in panels of 32 columns, ready for `tree_linear`.

    Attributes:
        packed: the panels.
        dtype: float32, or bfloat16 which takes half the memory and is widened exactly.
    """

    packed: native.Packed
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:
        """(N, K)."""
        return torch.Size((self.packed.columns, self.packed.features))


def _numpy(x: Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory: float32, or uint16 for bfloat16."""
    x = x.detach()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def _check(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}: give a tensor")
    if x.is_quantized or x.dtype not in FLOATS:
        raise TypeError(
            f"{name} is {x.dtype}: dequantise first (float32, bfloat16 or float16 are taken)"
        )
    if x.device.type != "cpu":
        raise ValueError(
            f"{name} is on {x.device}: these kernels run on the CPU; move it there with .cpu()"
        )
    return x


def pack(w: Tensor, dtype: torch.dtype | None = None) -> PackedWeight:
    """Arrange a weight for `tree_linear`; do it once and keep it.

    Args:
        w: (N, K), any strides.
        dtype: float32 or bfloat16 (rounds a float32 weight); None: bfloat16 stays, the rest is
            float32.

    Raises:
        TypeError: quantised or integer weights, or another ``dtype``.
        ValueError: not two-dimensional.
    """
    w = _check("w", w).detach()
    if dtype is None:
        dtype = torch.bfloat16 if w.dtype == torch.bfloat16 else torch.float32
    if dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"dtype={dtype}: float32 or bfloat16 are packed")
    if w.dim() != 2:
        raise ValueError(f"w has shape {tuple(w.shape)}: (N, K) is needed")
    threads = torch.get_num_threads()
    return PackedWeight(native.pack(_numpy(w.to(dtype)), threads=threads), dtype)


@functools.lru_cache(maxsize=1024)
def whole(k: int, leaf: int) -> TreePlan:
    """The plan of one rank."""
    return TreePlan(k, leaf)


def _gemm(
    x: Tensor, w: PackedWeight, leaf: int, program: Program, *, first: int = 0,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(rows, k) and a program to (rows, N) float32."""
    found = native.tree_gemm(
        x.detach().float().contiguous().numpy(), w.packed, leaf=leaf, merges=program.merges,
        rounded=program.rounded if program.rounds else None, first=first,
        bias=None if bias is None else bias.detach().float().contiguous().numpy(),
        threads=torch.get_num_threads(),
    )  # fmt: skip
    return torch.from_numpy(found)


def _forward(
    x: Tensor, w: PackedWeight, leaf: int, bias: Tensor | None, plan: TreePlan | None = None
) -> Tensor:
    plan = plan or whole(w.shape[1], leaf)
    flat = x.reshape(-1, x.shape[-1])
    y = _gemm(flat, w, leaf, plan.subtree((0, plan.leaves)), bias=bias)
    return y.to(x.dtype).reshape(*x.shape[:-1], w.shape[0])


def wants_operator(*tensors: Tensor | None) -> bool:
    """Whether a call must go through the registered operator: for a gradient, or for a compiler."""
    if torch.compiler.is_compiling():
        return True
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


@torch.library.custom_op("armillary::tree_linear", mutates_args=())
def _tree_linear(x: Tensor, weight: Tensor, bias: Tensor | None, leaf: int) -> Tensor:
    return _forward(x, pack(weight), leaf, bias)


@_tree_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, leaf: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.leaf = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _tree_linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """dX = dY W (over N in order), dW = dY^T X and db = dY^T 1 (over tokens in order)."""
    x, weight = ctx.saved_tensors  # products by the operator, so that a compiler can trace them
    dx = dw = db = None
    flat = grad.reshape(-1, grad.shape[-1])
    if ctx.needs_input_grad[0]:
        dx = _tree_linear(flat, weight.t(), None, ctx.leaf).reshape(x.shape)
    tokens = x.detach().float().reshape(-1, x.shape[-1])
    if ctx.needs_input_grad[1]:
        up = flat.float().t()
        dw = _tree_linear(up, tokens.t(), None, ctx.leaf).to(weight.dtype)
    if ctx.has_bias and ctx.needs_input_grad[2]:
        ones = torch.ones(1, len(flat))
        db = _tree_linear(ones, flat.float().t(), None, ctx.leaf)[0].to(weight.dtype)
    return dx, dw, db, None


_tree_linear.register_autograd(_tree_linear_backward, setup_context=_remember)


def tree_linear(
    x: Tensor,
    w: PackedWeight | Tensor,
    *,
    leaf: int = LEAF,
    k_range: tuple[int, int] | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """y = x w^T (+ bias), every sum over K in one fixed tree.

    The bits of y[m, n] depend on x[m], w[n] and ``leaf`` alone: not on the other rows or columns,
    on threads or on the instruction set. Use it where results must not move with the batch or with
    the number of ranks; where they may, a plain product is as good.

    Args:
        x: (..., K) float32, bfloat16 or float16; widened exactly, accumulated in float32.
        w: (N, K), packed or not (then it is packed in every call, and may learn).
        leaf: features of a leaf.
        k_range: features [first, last) that form one subtree of the layer's tree: the value of that
            node, with x (..., last - first). See `tree_parts` for any range.
        bias: (N,), added once at the end.

    Returns:
        (..., N) in the type of x. NaN and infinities propagate; NaN is the canonical one.

    Raises:
        TypeError: quantised weights or other types.
        ValueError: shapes that do not fit; a ``k_range`` that is no subtree, with those inside it.
    """
    x = _check("x", x)
    n, k = w.shape
    features = k if k_range is None else k_range[1] - k_range[0]
    if x.shape[-1] != features:
        raise ValueError(f"x has {x.shape[-1]} features and w {features}: they must agree")
    if k_range is not None:
        packed = w if isinstance(w, PackedWeight) else pack(w)
        shards = [s for s in ((0, k_range[0]), k_range, (k_range[1], k)) if s[0] < s[1]]
        plan = TreePlan(k, leaf, shards)
        nodes = plan.nodes(shards.index(k_range))
        if len(nodes) != 1:
            raise ValueError(
                f"k_range={k_range} is no subtree of {plan.leaves} leaves of {leaf}: it holds "
                f"the nodes {list(nodes)}; evaluate each, or use tree_parts"
            )
        flat = x.reshape(-1, features)
        y = _gemm(flat, packed, leaf, plan.subtree(nodes[0]), first=k_range[0], bias=bias)
        return y.to(x.dtype).reshape(*x.shape[:-1], n)
    if isinstance(w, PackedWeight):
        return _forward(x, w, leaf, bias)
    _check("w", w)
    if wants_operator(x, w, bias):
        return _tree_linear(x, w, bias, leaf)
    return _forward(x, pack(w), leaf, bias)


def tree_parts(x: Tensor, w: PackedWeight, plan: TreePlan, rank: int) -> list[tuple[Node, Tensor]]:
    """What a rank can finish of x w^T alone: (node, value) from left to right.

    Args:
        x: (rows, K_local), this rank's features.
        w: (N, K_local), this rank's columns of the weight.
        plan: of the whole layer.
        rank: which shard.

    Returns:
        Values (rows, N) float32.
    """
    first, last = plan.shards[rank]
    if x.shape[-1] != last - first or w.shape[1] != last - first:
        raise ValueError(
            f"rank {rank} holds the features [{first}, {last}): x has {x.shape[-1]} and w "
            f"{w.shape[1]} of them"
        )
    parts = []
    for lo, hi in plan.nodes(rank):
        start, stop = lo * plan.leaf - first, min(hi * plan.leaf, plan.k) - first
        value = _gemm(x[:, start:stop], w, plan.leaf, plan.subtree((lo, hi)), first=start)
        parts.append(((lo, hi), value))
    return parts


# ---- the rest of the block ----------------------------------------------------------------------


def _rows(kernel: Any, x: Tensor, *more: Any) -> Tensor:
    found = kernel(x.detach().float().contiguous().numpy(), *more, threads=torch.get_num_threads())
    return torch.from_numpy(found).to(x.dtype)


def _rms_norm_now(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _rows(native.rms_norm, x, weight.detach().float().contiguous().numpy(), eps)


_rms_norm = torch.library.custom_op("armillary::rms_norm", _rms_norm_now, mutates_args=())


@_rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


def _rms_norm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    wide, up = x.float(), grad.float() * weight.float()
    scale = 1 / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + ctx.eps)
    inner = (up * wide).mean(-1, keepdim=True)
    dx = scale * up - wide * (scale**3 * inner)
    dw = (grad.float() * wide * scale).reshape(-1, x.shape[-1]).sum(0)
    return dx.to(x.dtype), dw.to(weight.dtype), None


def _remember_norm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


_rms_norm.register_autograd(_rms_norm_backward, setup_context=_remember_norm)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, the same bits for a row anywhere.

    Args:
        x: (..., n).
        weight: (n,).
        eps: added to the mean square.
    """
    _check("x", x)
    call = _rms_norm if wants_operator(x, weight) else _rms_norm_now
    return call(x, weight, eps)


def _silu_now(x: Tensor) -> Tensor:
    return _rows(native.silu, x)


_silu = torch.library.custom_op("armillary::silu", _silu_now, mutates_args=())


@_silu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _silu_backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    wide = x.float()
    gate = torch.from_numpy(native.exp((-wide).contiguous().numpy()))
    gate = 1 / (1 + gate)
    return (grad.float() * gate * (1 + wide * (1 - gate))).to(x.dtype)


_silu.register_autograd(
    _silu_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x)), the same bits for an element wherever it stands."""
    _check("x", x)
    return (_silu if wants_operator(x) else _silu_now)(x)


def _log_softmax_now(x: Tensor) -> Tensor:
    return _rows(native.log_softmax, x.float())


_log_softmax = torch.library.custom_op("armillary::log_softmax", _log_softmax_now, mutates_args=())


@_log_softmax.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)


def _log_softmax_backward(ctx: Any, grad: Tensor) -> Tensor:
    (found,) = ctx.saved_tensors
    return (grad - found.exp() * grad.sum(-1, keepdim=True)).to(ctx.dtype)


def _remember_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.dtype = inputs[0].dtype
    ctx.save_for_backward(output)


_log_softmax.register_autograd(_log_softmax_backward, setup_context=_remember_softmax)


def log_softmax(x: Tensor) -> Tensor:
    """Log-probabilities over the last axis in float32, the same bits for a row anywhere."""
    _check("x", x)
    return (_log_softmax if wants_operator(x) else _log_softmax_now)(x)


def _attention_now(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, kv_head: Tensor, scale: float, window: int
) -> Tensor:
    found = native.attention(
        _numpy(q), _numpy(k), _numpy(v), scale=scale, first=first.numpy(), kv_head=kv_head.numpy(),
        window=window, threads=torch.get_num_threads(),
    )  # fmt: skip
    return torch.from_numpy(found).to(q.dtype)


_attention = torch.library.custom_op("armillary::attention", _attention_now, mutates_args=())


@_attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, kv_head: Tensor, scale: float, window: int
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3])


def _remember_attention(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scale, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def _attention_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """By the dense formula in float32, which a trainer repeats bit for bit on the same batch."""
    q, k, v, first, kv_head = ctx.saved_tensors
    heads = kv_head.long()
    wide_q, wide_k, wide_v = q.float(), k.float()[:, heads], v.float()[:, heads]
    seen = visible(q.shape[2], k.shape[2], first, ctx.window)
    scores = (wide_q @ wide_k.transpose(-1, -2) * ctx.scale).masked_fill(~seen, -torch.inf)
    p = torch.softmax(scores, -1).nan_to_num(0.0)
    up = grad.float().transpose(1, 2)
    dv = p.transpose(-1, -2) @ up
    dp = up @ wide_v.transpose(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
    dq, dk = ds @ wide_k, ds.transpose(-1, -2) @ wide_q
    gathered = [torch.zeros(k.shape, dtype=torch.float32) for _ in range(2)]
    for i, h in enumerate(heads.tolist()):  # in order, so that the sum is the same every time
        gathered[0][:, h] += dk[:, i]
        gathered[1][:, h] += dv[:, i]
    return dq.to(q.dtype), gathered[0].to(k.dtype), gathered[1].to(v.dtype), None, None, None, None


_attention.register_autograd(_attention_backward, setup_context=_remember_attention)


def visible(queries: int, keys: int, first: Tensor, window: int) -> Tensor:
    """(batch, 1, queries, keys): which key a query sees."""
    q = torch.arange(keys - queries, keys)[:, None]
    k = torch.arange(keys)[None, :]
    seen = (k <= q) & (k > q - window) if window else k <= q
    return seen[None, None] & (k >= first[:, None, None, None])


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    first: Tensor | None = None,
    kv_head: Sequence[int] | Tensor | None = None,
    window: int = 0,
) -> Tensor:
    """Causal attention whose rows do not know of each other; see `armillary.native.attention`.

    Args:
        q: (batch, heads, queries, width); queries are the last of the keys.
        k, v: (batch, key heads, keys, width), in the type of q.
        scale: factor of scores.
        first: (batch,) int32 index of each sequence's own first token.
        kv_head: (heads,) the key head that serves a head; None: shared evenly.
        window: keys that a query sees at most; 0: all.

    Returns:
        (batch, queries, heads, width) in the type of q.
    """
    q, k, v = (_check(name, t) for name, t in zip("qkv", (q, k, v), strict=True))
    if q.dtype == torch.float16:
        wide = attention(
            q.float(), k.float(), v.float(), scale=scale, first=first, kv_head=kv_head,
            window=window,
        )  # fmt: skip
        return wide.to(q.dtype)
    if first is None:
        first = torch.zeros(len(q), dtype=torch.int32)
    if kv_head is None:
        kv_head = torch.arange(q.shape[1], dtype=torch.int32) // (q.shape[1] // k.shape[1])
    served = torch.as_tensor(kv_head, dtype=torch.int32)
    call = _attention if wants_operator(q, k, v) else _attention_now
    return call(q, k, v, first, served, scale, window)
