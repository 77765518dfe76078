"""The sizes of a decoder-only transformer that decide what serving it costs.

Read from a Hugging Face ``config.json`` (a file, a dictionary, or the name of a model whose
configuration ships with ``aiconfigurator-core``): grouped-query attention with a gated
feed-forward block, dense or a mixture of experts.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BYTES = 2  # bf16 weights and KV cache


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """Sizes of a model.

    Attributes:
        name: what it is called in plans.
        layers, hidden, heads, kv_heads, head_dim, vocab: as in the configuration.
        inner: width of the dense feed-forward block.
        experts, top_k, expert_inner: of a mixture of experts; ``experts = 0`` for a dense one.
        tied: input embedding and output head are the same matrix.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    experts: int = 0
    top_k: int = 0
    expert_inner: int = 0
    tied: bool = False

    @property
    def attention_params(self) -> int:
        """Parameters of attention, one layer."""
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def ffn_params(self) -> int:
        """Parameters of the feed-forward block, one layer, every expert."""
        if self.experts:
            return self.experts * 3 * self.hidden * self.expert_inner + self.hidden * self.experts
        return 3 * self.hidden * self.inner

    @property
    def embedding_params(self) -> int:
        """Parameters of the input embedding and the output head."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def params(self) -> int:
        """All parameters but norms."""
        return self.layers * (self.attention_params + self.ffn_params) + self.embedding_params

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache for one token, all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * BYTES

    def bytes_read(self, tp: int) -> float:
        """Least bytes of weights that one step of one token reads on each of ``tp`` GPUs.

        All of it but the input embedding (one row a token), and of a mixture only the ``top_k``
        experts that one token goes to.
        """
        ffn = 3 * self.hidden * self.expert_inner * self.top_k if self.experts else self.ffn_params
        head = self.vocab * self.hidden
        return BYTES * (self.layers * (self.attention_params + ffn) + head) / tp

    def can_split(self, tp: int) -> bool:
        """Whether ``tp`` GPUs can share its heads and widths evenly."""
        inner = self.expert_inner if self.experts else self.inner
        return self.heads % tp == 0 and inner % tp == 0

    @classmethod
    def load(cls, model: str | Path | Mapping[str, Any]) -> ModelShape:
        """From a configuration: a mapping, a file (or its folder), or a known name.

        Raises:
            ValueError: a name that is not known, a file that is no configuration, or a model whose
                attention has another form (no plain K and V heads).
        """
        if isinstance(model, Mapping):
            return _from_config(dict(model), str(model.get("_name_or_path") or "model"))
        path = Path(model)
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            return _from_config(_json(path), path.parent.name or path.stem)
        folder = known_configs()
        name = str(model).replace("/", "--")
        found = folder / f"{name}_config.json"
        if not found.is_file():
            names = sorted(
                p.name.removesuffix("_config.json").replace("--", "/")
                for p in folder.glob("*_config.json")
                if "hf_quant" not in p.name
            )
            near = difflib.get_close_matches(str(model), names, n=3, cutoff=0.3)
            raise ValueError(
                f"model={str(model)!r}: neither a file nor a known name; nearest: "
                f"{', '.join(near) or 'none'}; give a config.json"
            )
        return _from_config(_json(found), str(model))


def known_configs() -> Path:
    """The folder of configurations that ships with ``aiconfigurator-core``."""
    import importlib.util

    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        from armillary.errors import MissingExtra

        raise MissingExtra("hexgen", "serving", "aiconfigurator_core")
    return Path(next(iter(spec.submodule_search_locations))) / "model_configs"


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeError):
        raise ValueError(f"{path.name}: it is no JSON: give a model's config.json") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: it holds no mapping: give a model's config.json")
    return content


def _from_config(config: dict[str, Any], name: str) -> ModelShape:
    config = {**config, **(config.get("text_config") or {})}
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    missing = [key for key in needed if not isinstance(config.get(key), int)]
    if missing:
        raise ValueError(f"model {name!r}: its configuration lacks {', '.join(missing)}")
    if config.get("kv_lora_rank"):
        raise ValueError(
            f"model {name!r}: latent attention (kv_lora_rank) keeps no K and V heads; only "
            "grouped-query attention is planned for"
        )
    heads = int(config["num_attention_heads"])
    experts = int(config.get("num_experts") or config.get("num_local_experts") or 0)
    inner = int(config.get("intermediate_size") or 0)
    if not experts and not inner:
        raise ValueError(f"model {name!r}: its configuration lacks intermediate_size")
    return ModelShape(
        name=name,
        layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        inner=inner,
        vocab=int(config["vocab_size"]),
        experts=experts,
        top_k=int(config.get("num_experts_per_tok") or 0) if experts else 0,
        expert_inner=int(config.get("moe_intermediate_size") or inner) if experts else 0,
        tied=bool(config.get("tie_word_embeddings", False)),
    )
