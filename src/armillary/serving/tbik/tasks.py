"""What the evidence runs on: prompts, a small model with random weights, and a game of formats."""

from __future__ import annotations

import functools
import tempfile
from importlib import resources
from typing import Any

_KEPT: list[Any] = []


def prompt_texts() -> list[str]:
    """64 instructions that come with the package."""
    text = resources.files("armillary.serving.tbik").joinpath("prompts.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line]


def small_config(
    layers: int, *, hidden: int = 576, heads: int = 9, key_heads: int = 3, width: int = 64,
    intermediate: int = 768, vocabulary: int = 211,
) -> Any:  # fmt: skip
    """A Llama with the heads of SmolLM2-135M (nine and three) and few layers."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=key_heads,
        head_dim=width, max_position_embeddings=512, eos_token_id=None, pad_token_id=0,
        bos_token_id=1,
    )  # fmt: skip


@functools.cache
def small_model(layers: int, seed: int) -> str:
    """The folder of a small Llama with random bfloat16 weights; it goes when the process ends."""
    import torch
    from transformers import LlamaForCausalLM

    from armillary.models.silence import quiet_transformers

    folder = tempfile.TemporaryDirectory(prefix="armillary-small-")
    _KEPT.append(folder)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(small_config(layers))
        model.to(torch.bfloat16).save_pretrained(folder.name)
    return folder.name
