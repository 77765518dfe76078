"""A quantised model as transformers knows it: a configuration, a quantiser, loading and saving.

Importing this module (or ``from armillary.serving.gemq import register; register()``) makes the
method ``"gemq"`` known to transformers; then ``AutoModelForCausalLM.from_pretrained(folder)`` reads
what ``save_pretrained`` wrote.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.quantizers.auto import (
    AUTO_QUANTIZATION_CONFIG_MAPPING,
    register_quantization_config,
    register_quantizer,
)
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from armillary.serving.gemq.layouts import blocks, expert_weights
from armillary.serving.gemq.pack import PackedExperts, PackedLinear
from armillary.serving.gemq.rtn import width_of

METHOD = "gemq"


class GemqConfig(QuantizationConfigMixin):
    """What ``config.json`` says of a quantised model.

    Args:
        group: features that share a scale.
        experts: widths of each block's experts, by the block's name.
        linears: widths of other linear layers, by name.
    """

    def __init__(
        self,
        group: int = 128,
        experts: dict[str, list[int]] | None = None,
        linears: dict[str, int] | None = None,
        **_: Any,
    ) -> None:
        self.quant_method = METHOD  # pyright: ignore[reportAttributeAccessIssue]
        self.group = group
        self.experts = experts or {}
        self.linears = linears or {}


class GemqQuantizer(HfQuantizer):
    """Puts packed modules into a skeleton before its weights are read."""

    requires_calibration = True
    quantization_config: Any

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        install(model, self.quantization_config)

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        check_complete(model, self.quantization_config)
        return model

    def _dequantize(self, model: Any, dtype: Any = None) -> Any:
        return to_dense(model)

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def register() -> None:
    """Make ``"gemq"`` known to transformers; a second call does nothing."""
    if METHOD not in AUTO_QUANTIZATION_CONFIG_MAPPING:
        register_quantization_config(METHOD)(GemqConfig)
        register_quantizer(METHOD)(GemqQuantizer)


register()


def install(model: Any, config: GemqConfig) -> None:
    """Replace the modules that the configuration names by empty packed ones."""
    for block in blocks(model):
        bits = config.experts.get(block.name)
        if bits is None:
            raise ValueError(f"the configuration has no widths for {block.name}")
        if len(bits) != block.count:
            raise ValueError(f"{block.name} has {block.count} experts, {len(bits)} widths given")
        hidden, inner = block.experts.down_proj.shape[1:]
        with torch.device(block.experts.down_proj.device):
            block.module.experts = PackedExperts(  # pyright: ignore[reportArgumentType]
                bits, hidden, inner, config.group, block.experts.act_fn
            )
    for name, bits in config.linears.items():
        linear = model.get_submodule(name)
        with torch.device(linear.weight.device):
            packed = PackedLinear(
                linear.out_features, linear.in_features, bits, config.group,
                linear.bias is not None,
            )  # fmt: skip
        set_module(model, name, packed)


def set_module(model: Any, name: str, module: nn.Module) -> None:
    above, _, last = name.rpartition(".")
    setattr(model.get_submodule(above), last, module)


def check_complete(model: Any, config: GemqConfig) -> None:
    """No expert may be left in 16 bits, and none may lack its weights.

    Raises:
        RuntimeError: one is.
    """
    for block in blocks(model):
        if not isinstance(block.experts, PackedExperts):
            raise RuntimeError(f"{block.name} was left unquantised")
        matrices: list[Any] = list(block.experts.gate_up)
        found = [m.bits for m in matrices]
        wanted = [width_of(m.features, b) for m, b in zip(
            matrices, config.experts[block.name], strict=True)]  # fmt: skip
        if found != wanted or any(m.words.is_meta for m in matrices):
            raise RuntimeError(f"{block.name} has widths {found}, the plan says {wanted}")


def mark(model: Any, config: GemqConfig) -> None:
    """Let `save_pretrained` and `from_pretrained` know that the model is quantised."""
    model.config.quantization_config = config
    model.hf_quantizer = GemqQuantizer(config, pre_quantized=True)
    model.is_quantized = True
    model.quantization_method = METHOD


def to_dense(model: Any) -> Any:
    """The same model with plain weights, which any engine loads; in place.

    Packed experts become stacked parameters again, packed linear layers become linear ones.
    """
    dtype = model.get_input_embeddings().weight.dtype
    for block in blocks(model):
        if isinstance(block.experts, PackedExperts):
            block.module.experts = _fused(model, block.experts, dtype)  # pyright: ignore
    for name, module in list(model.named_modules()):
        if isinstance(module, PackedLinear):
            matrix = module.matrix
            linear = nn.Linear(matrix.features, matrix.columns, bias=module.bias is not None)
            linear.weight.data = matrix.dequantised().to(dtype)
            if module.bias is not None:
                linear.bias.data = module.bias.detach().to(dtype)
            set_module(model, name, linear.requires_grad_(False))
    return model


def _fused(model: Any, packed: PackedExperts, dtype: Any) -> nn.Module:
    """The model family's own fused experts, with the packed weights unpacked."""
    import importlib

    module = importlib.import_module(type(model).__module__)
    kind = next(
        value for name, value in vars(module).items()
        if name.endswith("Experts") and isinstance(value, type)
    )  # fmt: skip
    with torch.device("meta"):
        fused = kind(model.config)
    weights = [expert_weights(packed, e) for e in range(packed.num_experts)]
    for i, name in enumerate(("gate_up_proj", "down_proj")):
        stacked = torch.stack([pair[i] for pair in weights]).to(dtype)
        setattr(fused, name, nn.Parameter(stacked, requires_grad=False))
    return fused
