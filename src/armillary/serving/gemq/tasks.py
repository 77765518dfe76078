"""What tests, and evidence that must not take long, run on: small models with random weights."""

from __future__ import annotations

from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_experts_per_tok": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip


def _config_of(kind: str, **changes: Any) -> Any:
    """The configuration of a layout."""
    import transformers as library

    transformers: Any = library

    if kind == "mixtral":
        return transformers.MixtralConfig(
            **_COMMON | {"intermediate_size": 64, "num_local_experts": 4} | changes
        )
    if kind == "olmoe":
        return transformers.OlmoeConfig(
            **_COMMON | {"intermediate_size": 64, "num_experts": 4} | changes
        )
    sparse: dict[str, Any] = {
        "intermediate_size": 128,
        "moe_intermediate_size": 64,
        "num_experts": 4,
    }
    if kind == "qwen2_moe":
        return transformers.Qwen2MoeConfig(
            **_COMMON | sparse | {"shared_expert_intermediate_size": 128} | changes
        )
    if kind == "qwen3_moe":
        return transformers.Qwen3MoeConfig(**_COMMON | sparse | {"head_dim": 16} | changes)
    return transformers.DeepseekV2Config(
        **_COMMON
        | {
            "intermediate_size": 128, "moe_intermediate_size": 64, "n_routed_experts": 4,
            "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 32,
            "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
            "topk_method": "greedy", "num_key_value_heads": 4,
        }
        | changes
    )  # fmt: skip


def small_moe(kind: str = "mixtral", seed: int = 3, **changes: Any) -> Any:
    """A small model with random weights, of any layout.

    Its routers have an opinion, so that experts differ in how often they are used.

    Args:
        kind: mixtral, qwen2_moe, qwen3_moe, olmoe or deepseek_v2.
        seed: of the weights.
        changes: settings of its configuration.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_config_of(kind, **changes)).float().eval()
        for name, p in model.named_parameters():
            if p.ndim >= 2:
                p.data = torch.randn_like(p) * (0.3 if name.endswith("gate.weight") else 0.12)
    return model.requires_grad_(False)
