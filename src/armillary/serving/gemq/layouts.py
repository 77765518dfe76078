"""Where the experts of a mixture-of-experts model of transformers lie.

transformers 5 keeps a layer's experts as two stacked parameters, ``gate_up_proj`` (E, 2 I, H) and
``down_proj`` (E, H, I), so that a walk over linear layers passes them by. Here they are found by
the layouts that are known; any other is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn

MODEL_TYPES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2")


class UnsupportedModelError(TypeError):
    """The model's experts lie in a way that is not known here."""


class Block(NamedTuple):
    """One mixture-of-experts block.

    Attributes:
        name: its dotted name, such as ``model.layers.3.mlp``.
        layer: the number of its decoder layer.
        module: the block; its output is added to the residual stream.
        experts: its fused experts, called with (tokens (T, H), indices (T, k), weights (T, k)).
        router: what chooses; ``router.weight`` (E, H).
    """

    name: str
    layer: int
    module: nn.Module
    experts: Any
    router: Any

    @property
    def count(self) -> int:
        return int(self.experts.num_experts)


def blocks(model: Any) -> list[Block]:
    """The mixture-of-experts blocks of a model, in order.

    Raises:
        TypeError: the model is dense.
        UnsupportedModelError: its experts lie in an unknown way.
    """
    kind = getattr(getattr(model, "config", None), "model_type", None)
    layers = decoder_layers(model)
    found = []
    for i, layer in enumerate(layers):
        module = getattr(layer, "mlp", None)
        experts, router = getattr(module, "experts", None), getattr(module, "gate", None)
        if module is None or experts is None:
            continue
        known = hasattr(experts, "gate_up") or (
            getattr(getattr(experts, "gate_up_proj", None), "ndim", 0) == 3
            and getattr(getattr(experts, "down_proj", None), "ndim", 0) == 3
        )
        if kind not in MODEL_TYPES or not known or getattr(router, "weight", None) is None:
            raise UnsupportedModelError(
                f"experts of a {kind!r} model ({type(experts).__name__}) lie in an unknown way; "
                f"known are {', '.join(MODEL_TYPES)}"
            )
        found.append(Block(f"model.layers.{i}.mlp", i, module, experts, router))
    if not found:
        stacked = [name for name, p in model.named_parameters() if p.ndim == 3]
        if stacked:
            raise UnsupportedModelError(
                f"a {kind!r} model has stacked parameters ({stacked[0]}) in an unknown way; known "
                f"are {', '.join(MODEL_TYPES)}"
            )
        raise TypeError(
            f"a {kind!r} model is dense: it has no experts. armillary.serving.gemq.moefy turns a "
            "Llama into a mixture of experts"
        )
    return found


def decoder_layers(model: Any) -> list[Any]:
    """The decoder layers of a causal language model.

    Raises:
        UnsupportedModelError: there are none where transformers keeps them.
    """
    inner = getattr(model, "model", None)
    layers = getattr(inner, "layers", None)
    if layers is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no model.layers: give a causal language model of "
            "transformers"
        )
    return list(layers)


def expert_weights(experts: Any, e: int) -> tuple[Tensor, Tensor]:
    """Gate and up (2 I, H) and down (H, I) of an expert, in float32, packed or not."""
    if hasattr(experts, "gate_up"):
        return experts.gate_up[e].dequantised(), experts.down[e].dequantised()
    return experts.gate_up_proj[e].detach().float(), experts.down_proj[e].detach().float()


def run_expert(act: Any, gate_up: Tensor, down: Tensor, x: Tensor) -> Tensor:
    """down(act(gate x) * up x) of tokens (T, H)."""
    return inner_activation(act, gate_up, x) @ down.T


def inner_activation(act: Any, gate_up: Tensor, x: Tensor) -> Tensor:
    """act(gate x) * up x, (T, I): what the down projection reads."""
    gate, up = (x @ gate_up.T).chunk(2, dim=-1)
    return act(gate) * up


def other_linears(model: Any) -> list[str]:
    """Names of the linear layers inside decoder layers that belong to no routed expert or router:
    attention, dense feed-forward layers, shared experts."""
    import torch

    names = []
    for i, layer in enumerate(decoder_layers(model)):
        for name, module in layer.named_modules():
            gate = name.endswith("shared_expert_gate")
            if isinstance(module, torch.nn.Linear) and not gate:
                names.append(f"model.layers.{i}.{name}")
    return names


def is_shared(name: str) -> bool:
    """Whether a linear layer belongs to a shared expert."""
    return ".shared_expert" in name
