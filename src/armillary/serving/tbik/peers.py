"""Rivals: the same cuts with products and reductions that other people use.

``naive`` is plain torch: ``linear`` on each rank and gloo's ``all_reduce``. ``layercast`` keeps
bfloat16 weights and computes in float32 (LayerCast, arXiv 2506.09501, a rewrite). ``double`` adds
partial sums in float64 and rounds once. ``local-tree``, ``rank-order``, ``boundary``,
``torch-silu`` and ``torch-attention`` are ours with one part taken out.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from armillary.serving.tbik import hf, ops
from armillary.serving.tbik.dist import exchange_of
from armillary.serving.tbik.modules import TreeLinear
from armillary.serving.tbik.plan import TreePlan
from armillary.serving.tbik.sharding import layout, rows_of

BACKENDS = ("naive", "layercast", "double")
ABLATIONS = ("local-tree", "rank-order", "boundary", "torch-silu", "torch-attention")


class PlainLinear(nn.Module):
    """One rank's part of a linear layer with torch's product.

    Args:
        weight: the rank's rows or columns.
        bias: or None.
        compute: the type in which products are taken (float32 for LayerCast, float64), or None.
        reduce: whether partial sums are added over ranks by ``all_reduce``.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, compute: torch.dtype | None, reduce: bool
    ) -> None:
        super().__init__()
        self.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias)
        self.compute, self.reduce = compute, reduce
        self.gathered: list[int] = []
        self.exchange: Any = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        kind = self.compute or x.dtype
        y = F.linear(x.to(kind), self.weight.to(kind))
        if self.reduce:
            dist.all_reduce(y, group=self.exchange.group)
        if self.bias is not None:
            y = y + self.bias.to(kind)
        y = y.to(x.dtype)
        if not self.gathered:
            return y
        flat = self.exchange.gather(y.reshape(-1, y.shape[-1]), self.gathered)
        return flat.reshape(*y.shape[:-1], -1)


def make_plain(model: Any, backend: str, *, group: Any = None, leaf: int = ops.LEAF) -> Any:
    """Cut a model as `make_invariant` does, with plain products and reductions.

    Args:
        model: of transformers; changed in place.
        backend: ``naive``, ``layercast`` or ``double``.
        group: as in `make_invariant`.
        leaf: where cuts may lie.
    """
    hf.check(model)
    exchange = exchange_of(group)
    cut = layout(model.config, exchange.rank, exchange.world, leaf, 64, "float32")
    several = cut.world > 1
    compute = torch.float32 if backend == "layercast" else None
    summed = {"layercast": torch.float32, "double": torch.float64}.get(backend)

    def some(linear: Any, rows: Tensor) -> PlainLinear:
        if not several:
            return PlainLinear(linear.weight, linear.bias, compute, False)
        bias = None if linear.bias is None else linear.bias[rows].clone()
        return PlainLinear(linear.weight[rows].clone(), bias, compute, False)

    def partial(linear: Any, plan: TreePlan) -> PlainLinear:
        first, last = plan.shards[cut.rank]
        weight = linear.weight[:, first:last].clone() if several else linear.weight
        found = PlainLinear(weight, linear.bias, summed, several)
        found.exchange = exchange
        return found

    with torch.no_grad():
        for layer in model.base_model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            if several:  # a key head a query head: an uneven share has no other form here
                first, last = cut.heads[cut.rank]
                kv = rows_of([h // cut.group for h in range(first, last)], cut.head_dim)
                attention.num_key_value_groups = 1
            else:
                kv = torch.empty(0)
            attention.q_proj = some(attention.q_proj, cut.query_rows())
            attention.k_proj = some(attention.k_proj, kv)
            attention.v_proj = some(attention.v_proj, kv)
            attention.o_proj = partial(attention.o_proj, cut.attention)
            rows = torch.arange(*cut.mlp.shards[cut.rank])
            mlp.gate_proj, mlp.up_proj = some(mlp.gate_proj, rows), some(mlp.up_proj, rows)
            mlp.down_proj = partial(mlp.down_proj, cut.mlp)
        head = model.get_output_embeddings()
        first, last = cut.vocabulary[cut.rank]
        plain = some(head, torch.arange(first, last))
        if several:
            plain.gathered = [b - a for a, b in cut.vocabulary]
            plain.exchange = exchange
        model.set_output_embeddings(plain)
    return model


# ---- ablations ----------------------------------------------------------------------------------


class _Summed(nn.Module):
    """A cut layer whose parts are added otherwise."""

    def __init__(self, whole: TreeLinear, how: str) -> None:
        super().__init__()
        self.whole, self.how = whole, how

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        layer = self.whole
        plan, exchange = layer.plan, layer.exchange
        assert plan is not None
        flat = x.reshape(-1, x.shape[-1])
        if self.how in ("local-tree", "rank-order"):
            # The tree of the shard alone; ranks are then added in order.
            local = TreePlan(flat.shape[1], plan.leaf)
            mine = ops.tree_linear(flat.float(), layer.packed(), leaf=plan.leaf)
            assert local.world == 1
        else:  # boundary: the whole tree, and one rounding of what a rank sends
            parts = ops.tree_parts(flat, layer.packed(), plan, exchange.rank)
            mine = parts[0][1]
            for _, value in parts[1:]:
                mine = mine + value
        total = sum_of_ranks(mine, exchange, self.how)
        return total.to(x.dtype).reshape(*x.shape[:-1], -1)


def sum_of_ranks(mine: Tensor, exchange: Any, how: str) -> Tensor:
    """Every rank's values added: in a tree of ranks, in their order, or rounded before."""
    if exchange.world == 1:
        return mine
    rounded = mine.to(torch.bfloat16).float() if how == "boundary" else mine
    rows, n = rounded.shape
    every = exchange.gather(rounded.reshape(1, -1), [rows * n] * exchange.world)
    values = list(every.reshape(exchange.world, rows, n))
    if how == "rank-order":
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total
    while len(values) > 1:  # pairs, as for a power of two
        pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def make_ablated(model: Any, what: str, *, group: Any = None, leaf: int = ops.LEAF) -> Any:
    """`make_invariant` with one part taken out.

    Args:
        model: of transformers; changed in place.
        what: one of `ABLATIONS`.
        group, leaf: as in `make_invariant`.
    """
    attention = model.config._attn_implementation
    hf.make_invariant(model, group=group, leaf=leaf)
    for layer in model.base_model.layers:
        if what in ("local-tree", "rank-order", "boundary"):
            layer.self_attn.o_proj = _Summed(layer.self_attn.o_proj, what)
            layer.mlp.down_proj = _Summed(layer.mlp.down_proj, what)
        if what == "torch-silu":
            layer.mlp.act_fn = nn.SiLU()
        if what == "torch-attention":
            layer.self_attn.num_key_value_groups = 1
    if what == "torch-attention":
        register_dense()
        model.set_attn_implementation("tbik-dense")
    else:
        assert attention is not None
    return model


def register_dense() -> None:
    """Torch's attention over padded keys, with a mask, for our cuts."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **given: Any
    ) -> tuple[Tensor, None]:
        served = torch.as_tensor(module.tbik_served)
        key, value = key[:, served], value[:, served]
        causal = attention_mask is None and query.shape[2] > 1
        found = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=causal,
            scale=given.get("scaling"),
        )  # fmt: skip
        return found.transpose(1, 2).contiguous(), None

    AttentionInterface.register("tbik-dense", forward)
    AttentionMaskInterface.register("tbik-dense", sdpa_mask)
