"""A language model of transformers whose bits are the same on any number of ranks.

Linear layers, norms, activations, rotary tables and attention are replaced in place; the model's
own forward and ``generate()`` stay. A module that is not known is refused before anything is
replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from armillary.serving.tbik import ops
from armillary.serving.tbik.dist import Exchange, agree, exchange_of
from armillary.serving.tbik.modules import (
    InvariantRMSNorm,
    InvariantSiLU,
    RotaryTable,
    TreeLinear,
)  # fmt: skip
from armillary.serving.tbik.plan import TreePlan
from armillary.serving.tbik.sharding import Layout, layout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = "tbik"
LAYOUTS = ("llama", "mistral", "qwen2", "qwen3")
ROTARY = ("default", "linear", "llama3", "yarn")
_WIRES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


class UnsupportedModelError(ValueError):
    """A model holds modules that are not known to be invariant; nothing was changed."""


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """What transformers calls for ``attn_implementation="tbik"``."""
    if dropout:
        raise ValueError(f"attention dropout {dropout}: the same bits need 0")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    served = getattr(module, "tbik_served", None)
    found = ops.attention(
        query, key, value, scale=scale, first=attention_mask, kv_head=served,
        window=sliding_window or 0,
    )  # fmt: skip
    return found, None


def attention_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: int = 0, kv_offset: int = 0,
    mask_function: Any = None, attention_mask: Tensor | None = None,
    local_size: int | None = None, use_vmap: bool = False, **_: Any,
) -> Tensor:  # fmt: skip
    """The (batch,) index among the keys of each sequence's own first token.

    Raises:
        ValueError: a mask with holes, packed sequences, or a static cache.
    """
    from transformers.masking_utils import causal_mask_function

    plain = mask_function is causal_mask_function or local_size is not None
    if not plain or use_vmap:
        raise ValueError("tbik attention takes causal masks; packed or custom masks are not taken")
    if int(kv_offset) + kv_length != int(q_offset) + q_length:
        raise ValueError("tbik attention needs a cache that grows (DynamicCache), not a static one")
    if attention_mask is None:
        return torch.full((batch_size,), -int(kv_offset), dtype=torch.int32)
    mask = attention_mask.to(torch.int32)
    first = mask.argmax(1)
    run = mask.sum(1)
    inside = torch.arange(mask.shape[1])[None, :]
    wanted = (inside >= first[:, None]) & (inside < (first + run)[:, None])
    if not bool((wanted == attention_mask.bool()).all()):
        raise ValueError("attention_mask has holes: pad on the left or on the right alone")
    return (first - int(kv_offset)).to(torch.int32)


def register() -> None:
    """Make ``attn_implementation="tbik"`` known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION, attention_forward)
    AttentionMaskInterface.register(ATTENTION, attention_mask)


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, m) for name, m in model.named_modules() if not list(m.children()))


def _is_silu(module: nn.Module) -> bool:
    return type(module).__name__ in ("SiLU", "SiLUActivation", "InvariantSiLU")


def check(model: Any) -> None:
    """Refuse what could not be replaced whole.

    Raises:
        TypeError: quantised linear layers.
        UnsupportedModelError: another architecture, or modules that are not known.
    """
    unknown = []
    for name, module in _leaves(model):
        kind = type(module).__name__
        if "Linear" in kind and type(module) not in (nn.Linear, TreeLinear):
            raise TypeError(f"{name} is a {kind}: dequantise first (a plain nn.Linear is needed)")
        if type(module) is nn.Linear:
            if module.weight.dtype not in ops.FLOATS:
                raise TypeError(f"{name} has {module.weight.dtype} weights: dequantise first")
            if name.split(".")[-1] not in _LINEARS:
                unknown.append(f"{name} ({kind})")
            continue
        taken = isinstance(module, (nn.Embedding, nn.Identity, TreeLinear)) or _is_silu(module)
        if not (taken or "RMSNorm" in kind or "Rotary" in kind):
            unknown.append(f"{name} ({kind})")
    kind = getattr(model.config, "model_type", "?")
    rope = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in ROTARY:
        unknown.append(f"rotary embedding of type {rope!r}")
    if kind not in LAYOUTS or unknown:
        shown = ", ".join(unknown[:12]) or "none by name"
        raise UnsupportedModelError(
            f"model_type={kind!r}; layouts that are known: {', '.join(LAYOUTS)}. Modules that "
            f"would be left as they are: {shown}. Nothing was changed"
        )


def make_invariant(
    model: PreTrainedModel,
    *,
    group: Any = None,
    tp_max: int = 8,
    wire_dtype: torch.dtype = torch.float32,
    leaf: int = ops.LEAF,
    packed_dtype: torch.dtype | None = None,
) -> PreTrainedModel:
    """Replace the layers of a model so that its bits depend on weights and tokens alone.

    Logits are then the same, bit for bit, for any batch, padding, chunked prefill, cache, number of
    threads and number of ranks. Use it where rollouts and training, or one run and the next, must
    agree exactly. It holds among CPUs; a GPU has other leaves.

    Args:
        model: Llama, Mistral, Qwen2 or Qwen3 of transformers, float32 or bfloat16; changed in
            place.
        group: a process group (or an exchange such as `SharedMemoryExchange`) whose ranks share the
            model; every rank calls this with the whole model. None: one rank, which can be trained.
        tp_max: with a bfloat16 wire, the largest number of ranks for which bits are the same.
        wire_dtype: float32, or bfloat16 to halve what ranks send: sums are then rounded at the
            same nodes of the tree whatever the number of ranks; bits differ from float32's.
        leaf: features of a leaf.
        packed_dtype: type of the packed weights; bfloat16 rounds those of a float32 model.

    Returns:
        The same model.

    Raises:
        UnsupportedModelError: another architecture or unknown modules; nothing was changed.
        TypeError: quantised layers.
        ValueError: more ranks than leaves of a layer, which is named.
        PlanMismatchError: ranks that disagree, on all of them.
    """
    if wire_dtype not in _WIRES:
        raise ValueError(f"wire_dtype={wire_dtype}: float32 or bfloat16")
    check(model)
    exchange = exchange_of(group)
    plan_of = layout(model.config, exchange.rank, exchange.world, leaf, tp_max, _WIRES[wire_dtype])
    if exchange.world > 1:
        agree([plan_of.attention, plan_of.mlp], getattr(exchange, "group", None))
    register()
    body: Any = model.base_model
    with torch.no_grad():
        for layer in body.layers:
            _replace_attention(layer.self_attn, plan_of, exchange, leaf, packed_dtype)
            _replace_mlp(layer.mlp, plan_of, exchange, leaf, packed_dtype)
        _replace_norms(model)
        body.rotary_emb = RotaryTable(body.rotary_emb.inv_freq, body.rotary_emb.attention_scaling)
        head = model.get_output_embeddings()
        if head is not None:
            model.set_output_embeddings(_head(head, plan_of, exchange, leaf, packed_dtype))
    model.set_attn_implementation(ATTENTION)
    return model


def _rows(linear: Any, rows: Tensor | slice, leaf: int, dtype: torch.dtype | None) -> TreeLinear:
    """A layer, or some of its output columns."""
    if isinstance(rows, slice):
        return TreeLinear(linear.weight, linear.bias, leaf=leaf, packed_dtype=dtype)
    bias = None if linear.bias is None else linear.bias[rows].clone()
    return TreeLinear(linear.weight[rows].clone(), bias, leaf=leaf, packed_dtype=dtype)


def _columns(
    linear: Any, plan: TreePlan, exchange: Exchange, dtype: torch.dtype | None
) -> TreeLinear:
    """A layer, or some of the features that it sums over."""
    first, last = plan.shards[exchange.rank]
    weight = linear.weight if exchange.world == 1 else linear.weight[:, first:last].clone()
    return TreeLinear(
        weight, linear.bias, plan=plan, exchange=exchange, leaf=plan.leaf, packed_dtype=dtype
    )


def _replace_attention(
    attention: Any, cut: Layout, exchange: Exchange, leaf: int, dtype: torch.dtype | None
) -> None:
    several = cut.world > 1
    q = cut.query_rows() if several else slice(None)
    kv = cut.key_rows() if several else slice(None)
    attention.q_proj = _rows(attention.q_proj, q, leaf, dtype)
    attention.k_proj = _rows(attention.k_proj, kv, leaf, dtype)
    attention.v_proj = _rows(attention.v_proj, kv, leaf, dtype)
    attention.o_proj = _columns(attention.o_proj, _plan(cut.attention, several), exchange, dtype)
    attention.tbik_served = cut.served


def _replace_mlp(
    mlp: Any, cut: Layout, exchange: Exchange, leaf: int, dtype: torch.dtype | None
) -> None:
    several = cut.world > 1
    rows = torch.arange(*cut.mlp.shards[cut.rank]) if several else slice(None)
    mlp.gate_proj = _rows(mlp.gate_proj, rows, leaf, dtype)
    mlp.up_proj = _rows(mlp.up_proj, rows, leaf, dtype)
    mlp.down_proj = _columns(mlp.down_proj, _plan(cut.mlp, several), exchange, dtype)
    mlp.act_fn = InvariantSiLU()


def _plan(plan: TreePlan, several: bool) -> TreePlan:
    return plan


def _replace_norms(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if "RMSNorm" in type(child).__name__ and not isinstance(child, InvariantRMSNorm):
                eps = getattr(child, "variance_epsilon", None) or getattr(child, "eps", None)
                setattr(parent, name, InvariantRMSNorm(child.weight, float(eps)))  # pyright: ignore


def _head(
    head: Any, cut: Layout, exchange: Exchange, leaf: int, dtype: torch.dtype | None
) -> TreeLinear:
    if cut.world == 1:
        return _rows(head, slice(None), leaf, dtype)
    first, last = cut.vocabulary[cut.rank]
    bias = None if head.bias is None else head.bias[first:last].clone()
    sizes = [b - a for a, b in cut.vocabulary]
    return TreeLinear(
        head.weight[first:last].clone(), bias, sizes=sizes, exchange=exchange, leaf=leaf,
        packed_dtype=dtype,
    )  # fmt: skip


def logprobs(model: Any, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Log-probability of every token given those before it, as a trainer needs them.

    Equal bit for bit to what the same model gave while it generated those tokens.

    Args:
        model: from `make_invariant`.
        ids: (batch, tokens).
        attention_mask: (batch, tokens) of 0 and 1, padding on either side; None: no padding.

    Returns:
        (batch, tokens - 1) float32; entry t belongs to token t + 1. With gradient where enabled.
    """
    if ids.dim() != 2 or ids.shape[1] < 2:
        raise ValueError(f"ids has shape {tuple(ids.shape)}: (batch, at least 2 tokens) is needed")
    given: dict[str, Any] = {}
    if attention_mask is not None:
        positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
        given = {"attention_mask": attention_mask, "position_ids": positions}
    logits = model(input_ids=ids, use_cache=False, **given).logits[:, :-1]
    found = ops.log_softmax(logits)
    return found.gather(-1, ids[:, 1:, None]).squeeze(-1)
